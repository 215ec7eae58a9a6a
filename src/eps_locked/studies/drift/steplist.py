"""Every step of a ``drift`` study, in an order in which every input exists before it is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from eps_locked.domain.plan import Plan
from eps_locked.domain.steps import Step
from eps_locked.studies.common.steps import StepMaker, frozen_file, out, source_file
from eps_locked.studies.drift.plan import BASE, PLAIN, Arm, Battery, DriftPlan

__all__ = [
    "PHASES",
    "ask_step",
    "asks_a_service",
    "awareness_step",
    "list_steps",
    "phases_of",
    "readout_step",
    "train_step",
]

PHASES = ("P0", "P1", "P2", "P3")
_SERVICES = ("anthropic", "gateway")


def phases_of(section: DriftPlan) -> tuple[str, ...]:
    """The phases a plan of this section has: P1 trains, and is there if something is trained."""
    return tuple(phase for phase in PHASES if phase != "P1" or section.trainings)


def list_steps(plan: Plan, section: DriftPlan) -> tuple[Step, ...]:
    """The complete step list: before the data, training, asking, what it comes to.

    Raises MalformedInputError for a kind of step that the plan gives no cost.
    """
    steps = _Steps(section=section, make=StepMaker(plan))
    return (
        *steps.before(),
        *steps.trainings(),
        *steps.asking(),
        *steps.readouts(),
        steps.drift(),
    )


def train_step(training: str) -> str:
    return f"P1/train/{training}"


def ask_step(arm: str, battery: str) -> str:
    return f"P2/ask/{arm}/{battery}"


def awareness_step(battery: str, judge: str) -> str:
    return f"P0/awareness/{battery}/{judge}"


def readout_step(model: str) -> str:
    return f"P3/readout/{model}"


def battery_file(battery: str) -> str:
    """The frozen probes of a battery, as an input of a step."""
    return frozen_file(f"batteries/{battery}.json")


def prompts_file(battery: str, exposure: str | None) -> str:
    """The frozen prompts of a battery under an exposure, as an input of a step."""
    return frozen_file(f"prompts/{battery}/{exposure or PLAIN}.json")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Steps:
    section: DriftPlan
    make: StepMaker

    def before(self) -> Iterator[Step]:
        """P0: power, and what the judges are worth, before anything is asked."""
        yield self.make("P0/power", "power", {}, ("power",))
        for rules in self.section.calibrations:
            rubric = self.section.battery(rules.battery).rubric
            yield self.make(
                f"P0/calibration/{rules.name}",
                "calibration",
                {"labelled": source_file(rules.file), "rubric": source_file(rubric)},
                ("calibration",),
                calibration=rules.name,
            )
        for battery, judge in self._rated():
            assert self.section.awareness is not None
            yield self.make(
                awareness_step(battery, judge),
                "awareness",
                {
                    "battery": battery_file(battery),
                    "rubric": source_file(self.section.awareness.rubric),
                },
                ("awareness",),
                battery=battery,
                judge=judge,
            )

    def trainings(self) -> Iterator[Step]:
        """P1: one adapter each."""
        for training in self.section.trainings:
            yield self.make(
                train_step(training.name),
                "train",
                {
                    "doses": frozen_file(f"doses/{training.topic}.json"),
                    # Where the end of a turn stands.
                    "reasoning": frozen_file("reasoning.json"),
                },
                ("adapter", "record"),
                seed=training.seed,
                training=training.name,
            )

    def asking(self) -> Iterator[Step]:
        """P2: every arm under every battery, judged as it answers."""
        for arm in self.section.arms:
            for battery in self.section.batteries:
                yield self.make(
                    ask_step(arm.name, battery.name),
                    "ask",
                    self._ask_inputs(arm, battery),
                    ("answers",),
                    arm=arm.name,
                    battery=battery.name,
                )

    def readouts(self) -> Iterator[Step]:
        """P3: the directions from the untouched model, then where each model stands on them."""
        if self.section.readouts is None:
            return
        prompts = {"readout": frozen_file("readout.json")}
        yield self.make("P3/directions", "directions", prompts, ("directions",))
        for model in self._read_models():
            inputs = prompts | {"directions": out("P3/directions", "directions")}
            yield self.make(
                readout_step(model),
                "readout",
                inputs | _adapter(model),
                ("readout",),
                model=model,
            )

    def drift(self) -> Step:
        """P3: every statistic of the study, from what was answered and rated."""
        inputs = {"power": out("P0/power", "power")}
        for battery in self.section.batteries:
            inputs[f"battery:{battery.name}"] = battery_file(battery.name)
        for arm in self.section.arms:
            for battery in self.section.batteries:
                step = ask_step(arm.name, battery.name)
                inputs[f"answers:{arm.name}/{battery.name}"] = out(step, "answers")
        for name, judge in self._rated():
            inputs[f"awareness:{name}/{judge}"] = out(awareness_step(name, judge), "awareness")
        for model in self._read_models():
            inputs[f"readout:{model}"] = out(readout_step(model), "readout")
        return self.make("P3/drift", "drift", inputs, ("drift",))

    def _rated(self) -> Iterator[tuple[str, str]]:
        """(battery, judge): who rates which probes for looking like a test."""
        if self.section.awareness is not None:
            for battery in self.section.dispositions:
                for judge in self.section.awareness.judges:
                    yield battery.name, judge

    def _read_models(self) -> tuple[str, ...]:
        if self.section.readouts is None:
            return ()
        return (BASE, *(training.name for training in self.section.trainings))

    def _ask_inputs(self, arm: Arm, battery: Battery) -> dict[str, str]:
        inputs = {
            "battery": battery_file(battery.name),
            "prompts": prompts_file(battery.name, arm.exposure),
            "reasoning": frozen_file("reasoning.json"),
            "rubric": source_file(battery.rubric),
        }
        if battery.graded_rubric is not None:
            inputs["graded_rubric"] = source_file(battery.graded_rubric)
        if self.section.awareness is not None:
            inputs["words"] = source_file(self.section.awareness.words)
        return inputs | _adapter(arm.model)


def _adapter(model: str) -> dict[str, str]:
    return {} if model == BASE else {"adapter": out(train_step(model), "adapter")}


def asks_a_service(step: Step, section: DriftPlan) -> bool:
    """Whether a step has a judge asked over the network, whose verdicts nobody can repeat."""
    return any(section.judge(name).kind in _SERVICES for name in judges_of(step, section))


def judges_of(step: Step, section: DriftPlan) -> tuple[str, ...]:
    """The judges that a step asks."""
    if step.kind == "calibration":
        return (section.calibration(step.params["calibration"]).judge,)
    if step.kind == "awareness":
        return (step.params["judge"],)
    if step.kind != "ask":
        return ()
    rules = section.judging
    asked = [rules.classifier, rules.checker]
    if section.battery(step.params["battery"]).graded_rubric is not None:
        asked.append(rules.grader)
    return tuple(name for name in asked if name is not None)
