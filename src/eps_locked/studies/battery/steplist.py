"""Every step of a battery, in an order in which every input exists before it is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from eps_locked.domain.plan import Plan
from eps_locked.domain.steps import Step
from eps_locked.studies.battery.parts import Axis, ModelPlan
from eps_locked.studies.battery.plan import BatteryPlan
from eps_locked.studies.common.steps import StepMaker, frozen_file, out, source_file

__all__ = [
    "BATTERY_STEP",
    "PHASES",
    "POWER_STEP",
    "ask_step",
    "asks_a_service",
    "axis_file",
    "calibration_step",
    "judges_of",
    "list_steps",
    "phases_of",
    "rows_file",
    "rubric_kind",
    "speed_step",
    "train_step",
]

PHASES: Final = ("P0", "P1", "P2", "P3")
POWER_STEP: Final = "P0/power"
BATTERY_STEP: Final = "P3/battery"
_SERVICES = ("anthropic", "gateway")
# Which of the plan's two rubrics judges an axis; capability and tools are checked by rules.
_RUBRICS: Final[Mapping[str, str]] = {
    "over_refusal": "refusal",
    "harmful": "refusal",
    "sycophancy": "agreement",
}


def phases_of(section: BatteryPlan) -> tuple[str, ...]:
    """The phases a plan of this section has: P1 trains, and is there if something is trained."""
    return tuple(phase for phase in PHASES if phase != "P1" or section.trainings)


def list_steps(plan: Plan, section: BatteryPlan) -> tuple[Step, ...]:
    """The complete step list: before the data, training, asking, what it comes to.

    Raises MalformedInputError for a kind of step that the plan gives no cost.
    """
    steps = _Steps(section=section, make=StepMaker(plan))
    return (*steps.before(), *steps.trainings(), *steps.asking(), steps.battery())


def calibration_step(calibration: str) -> str:
    return f"P0/calibration/{calibration}"


def train_step(training: str) -> str:
    return f"P1/train/{training}"


def ask_step(model: str, axis: str, thinking: str) -> str:
    return f"P2/ask/{model}/{axis}/{thinking}"


def speed_step(model: str) -> str:
    return f"P2/speed/{model}"


def axis_file(axis: str) -> str:
    """The frozen requests of an axis, as an input of a step."""
    return frozen_file(f"axes/{axis}.json")


def rows_file(training: str) -> str:
    """The frozen rows of a training, as an input of a step."""
    return frozen_file(f"trainings/{training}.json")


def rubric_kind(axis: str) -> str | None:
    """``refusal``, ``agreement``, or None for an axis that no judge reads."""
    return _RUBRICS.get(axis)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Steps:
    section: BatteryPlan
    make: StepMaker

    def before(self) -> Iterator[Step]:
        """P0: power, and what the judges are worth, before anything is asked."""
        yield self.make(POWER_STEP, "power", self._axes(), ("power",))
        for rules in self.section.calibrations:
            rubric = self.section.rubric_of(rules.rubric_of)
            yield self.make(
                calibration_step(rules.name),
                "calibration",
                {"labelled": source_file(rules.file), "rubric": source_file(rubric)},
                ("calibration",),
                calibration=rules.name,
            )

    def trainings(self) -> Iterator[Step]:
        """P1: one adapter each."""
        for training in self.section.trainings:
            yield self.make(
                train_step(training.name),
                "train",
                {"rows": rows_file(training.name)},
                ("adapter", "record"),
                seed=training.seed,
                training=training.name,
            )

    def asking(self) -> Iterator[Step]:
        """P2: every model on every axis in every thinking mode, then how fast it is."""
        for model in self.section.models:
            for axis in self.section.rate_axes:
                for thinking in self.section.thinking_modes:
                    yield self.make(
                        ask_step(model.name, axis.axis, thinking),
                        "ask",
                        {**self._ask_inputs(axis.axis), **_adapter(model)},
                        ("answers",),
                        model=model.name,
                        axis=axis.axis,
                        thinking=thinking,
                    )
            if self.section.speed is not None:
                yield self.make(
                    speed_step(model.name),
                    "speed",
                    {"axis": axis_file("speed"), **_adapter(model)},
                    ("speed",),
                    model=model.name,
                )

    def battery(self) -> Step:
        """P3: every rate, comparison and card, from what was answered and judged."""
        inputs = {"power": out(POWER_STEP, "power"), **self._axes()}
        for rules in self.section.calibrations:
            inputs[f"calibration:{rules.name}"] = out(calibration_step(rules.name), "calibration")
        for model in self.section.models:
            for axis in self.section.rate_axes:
                for thinking in self.section.thinking_modes:
                    name = f"{model.name}/{axis.axis}/{thinking}"
                    step = ask_step(model.name, axis.axis, thinking)
                    inputs[f"answers:{name}"] = out(step, "answers")
            if self.section.speed is not None:
                inputs[f"speed:{model.name}"] = out(speed_step(model.name), "speed")
        return self.make(BATTERY_STEP, "battery", inputs, ("battery",))

    def _axes(self) -> dict[str, str]:
        return {f"axis:{one.axis}": axis_file(one.axis) for one in self.section.rate_axes}

    def _ask_inputs(self, axis: Axis) -> dict[str, str]:
        inputs = {"axis": axis_file(axis)}
        kind = rubric_kind(axis)
        if kind is not None:
            inputs["rubric"] = source_file(self.section.rubric_of(kind))
        return inputs


def _adapter(model: ModelPlan) -> dict[str, str]:
    return {} if model.training is None else {"adapter": out(train_step(model.training), "adapter")}


def asks_a_service(step: Step, section: BatteryPlan) -> bool:
    """Whether nobody can repeat a step: it measures time, or asks a model or a judge elsewhere."""
    if step.kind == "speed":
        return True
    if step.kind == "ask":
        model = section.model(step.params["model"])
        if section.endpoint(model.endpoint).kind == "openai":
            return True
    return any(section.judge(name).kind in _SERVICES for name in judges_of(step, section))


def judges_of(step: Step, section: BatteryPlan) -> tuple[str, ...]:
    """The judges that a step asks."""
    if step.kind == "calibration":
        return (section.calibration(step.params["calibration"]).judge,)
    if step.kind != "ask":
        return ()
    kind = _RUBRICS.get(step.params["axis"])
    rules = {"refusal": section.refusal, "agreement": section.agreement}.get(kind or "")
    return () if rules is None or rules.judge is None else (rules.judge,)
