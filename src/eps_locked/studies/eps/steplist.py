"""Every step of an ``eps`` study, in an order in which every input exists before it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eps_locked.domain.plan import Plan
from eps_locked.domain.steps import Step
from eps_locked.studies.common.steps import StepMaker, frozen_file, out, source_file
from eps_locked.studies.eps.baselines.steps import baseline_steps, row_file
from eps_locked.studies.eps.behaviours import seeds_of
from eps_locked.studies.eps.plan import (
    Behaviour,
    CalibrationRules,
    EpsPlan,
    MarkerBehaviour,
    Slots,
    TaughtBehaviour,
)
from eps_locked.studies.eps.split import SEALED, cell_id, draw_split

PHASES = ("P0", "P1", "P2", "P3")


def list_steps(plan: Plan, section: EpsPlan) -> tuple[Step, ...]:
    """The complete step list, in an order in which every input exists before it is read."""
    step = StepMaker(plan)
    fates = draw_split(section)["cells"]
    steps: list[Step] = []
    for rules in section.calibrations:
        steps.append(_calibration_step(section, rules, step))
    for behaviour in section.behaviours:
        row = _Row(plan=plan, section=section, behaviour=behaviour, fates=fates, step=step)
        steps += row.base_steps()
        steps += row.training_steps()
        steps.append(row.tensor_step())
    if section.baselines is not None:
        steps += baseline_steps(plan, section, step)
    return tuple(sorted(steps, key=lambda one: PHASES.index(one.phase)))


def _calibration_step(section: EpsPlan, rules: CalibrationRules, step: StepMaker) -> Step:
    """A judge against human labels, before anything rests on what it says."""
    rubric = section.taught(rules.row).rubric
    return step(
        f"P0/calibration/{rules.name}",
        "calibration",
        {"labelled": source_file(rules.file), "rubric": source_file(rubric)},
        ("calibration",),
        calibration=rules.name,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Row:
    """The steps of one row: its base readings, its adapters and cells, its tensor."""

    plan: Plan
    section: EpsPlan
    behaviour: Behaviour
    fates: Mapping[str, str]
    step: StepMaker

    @property
    def name(self) -> str:
        return self.behaviour.name

    @property
    def slots(self) -> Slots:
        return self.section.slots.of(self.behaviour)

    @property
    def seeds(self) -> tuple[int, ...]:
        return seeds_of(self.behaviour, self.plan.seeds)

    @property
    def headroom(self) -> dict[str, str]:
        return {"headroom": out(f"P0/headroom/{self.name}", "headroom")}

    def base_steps(self) -> list[Step]:
        b, slots = self.name, self.slots
        steps = [
            self.step(
                f"P0/answers/{b}/{name}",
                "answers",
                self._prompt_inputs(name),
                ("answers",),
                behaviour=b,
                context=name,
            )
            for name in answered_contexts(self.section, self.behaviour)
        ]
        for name in slots.eval:
            inputs = self._prompt_inputs(name) | self._judging_inputs()
            steps.append(
                self.step(
                    f"P0/base/{b}/{name}", "base", inputs, ("base",), behaviour=b, context=name
                )
            )
        inputs = {f"base:{name}": out(f"P0/base/{b}/{name}", "base") for name in slots.eval}
        inputs |= self._judging_inputs()
        if isinstance(self.behaviour, MarkerBehaviour):
            inputs |= {
                f"answers:{name}": out(f"P0/answers/{b}/{name}", "answers") for name in slots.train
            }
        else:
            inputs |= {"items": self._file("items")}
        steps.append(self.step(f"P0/headroom/{b}", "headroom", inputs, ("headroom",), behaviour=b))
        return steps

    def training_steps(self) -> list[Step]:
        steps: list[Step] = []
        for seed in self.seeds:
            if isinstance(self.behaviour, MarkerBehaviour):
                steps += self._banded_fits(seed)
            else:
                steps += [self._fixed_fit(i, seed) for i in self.slots.train]
            steps += [self._cells_step(i, seed) for i in self.slots.train]
        return steps

    def tensor_step(self) -> Step:
        b, phase, slots = self.name, self.behaviour.phase, self.slots
        inputs = {
            "contexts": self._file("contexts"),
            "split": frozen_file("split.json"),
            **self.headroom,
            **self._judging_inputs(),
            **_recipient_inputs(self.section),
        }
        if isinstance(self.behaviour, TaughtBehaviour):
            inputs["items"] = self._file("items")
        for j in slots.eval:
            inputs[f"base:{j}"] = out(f"P0/base/{b}/{j}", "base")
        for seed in self.seeds:
            for i in slots.train:
                inputs[f"record:{i}/s{seed}"] = out(self._adapter_step(i, seed), "record")
                for j in slots.eval:
                    inputs[f"cell:{i}/{j}/s{seed}"] = out(
                        f"{phase}/cells/{b}/{i}/s{seed}", f"cell:{j}"
                    )
        return self.step(f"{phase}/tensor/{b}", "tensor", inputs, ("tensor",), behaviour=b)

    def _banded_fits(self, seed: int) -> list[Step]:
        """Fit to the band; then, with the median stop step known, the adapters of all sources."""
        b, slots = self.name, self.slots
        steps, inputs_of = [], {i: self._fit_inputs(i) for i in slots.train}
        for i in slots.train:
            steps.append(
                self.step(
                    f"P1/fit/{b}/{i}/s{seed}",
                    "fit",
                    inputs_of[i],
                    ("fit",),
                    seed=seed,
                    behaviour=b,
                    context=i,
                )
            )
        fits = {f"fit:{i}": out(f"P1/fit/{b}/{i}/s{seed}", "fit") for i in slots.train}
        steps.append(
            self.step(f"P1/match/{b}/s{seed}", "match", fits, ("match",), seed=seed, behaviour=b)
        )
        for i in slots.train:
            inputs = {**inputs_of[i], "fit": fits[f"fit:{i}"]}
            inputs["match"] = out(f"P1/match/{b}/s{seed}", "match")
            steps.append(
                self.step(
                    self._adapter_step(i, seed),
                    "adapter",
                    inputs,
                    ("adapter", "record"),
                    seed=seed,
                    behaviour=b,
                    context=i,
                )
            )
        return steps

    def _fixed_fit(self, i: str, seed: int) -> Step:
        return self.step(
            self._adapter_step(i, seed),
            "train",
            {**self._fit_inputs(i), "written": self._file("written")},
            ("adapter", "record"),
            seed=seed,
            behaviour=self.name,
            context=i,
        )

    def _adapter_step(self, i: str, seed: int) -> str:
        kind = "adapter" if isinstance(self.behaviour, MarkerBehaviour) else "train"
        return f"{self.behaviour.phase}/{kind}/{self.name}/{i}/s{seed}"

    def _fit_inputs(self, i: str) -> dict[str, str]:
        """What decides the training rows of a source: its prompts, the panel's, their answers."""
        b = self.name
        inputs = {**self.headroom, **self._prompt_inputs(i)}
        if isinstance(self.behaviour, MarkerBehaviour):
            inputs["answers"] = out(f"P0/answers/{b}/{i}", "answers")
        return inputs | panel_inputs(self.section, self.behaviour)

    def _cells_step(self, i: str, seed: int) -> Step:
        """One adapter under every eval context: one batch, as fast as the model can be read."""
        b, slots, phase = self.name, self.slots, self.behaviour.phase
        # The diagonal first: it is the manipulation check, and the first thing to look at.
        evaluated = (i, *(name for name in slots.eval if name != i))
        inputs = {
            "items": self._file("items"),
            "adapter": out(self._adapter_step(i, seed), "adapter"),
            **self._judging_inputs(),
        }
        for j in evaluated:
            inputs[f"prompts:{j}"] = self._file(f"prompts/{j}")
            inputs[f"base:{j}"] = out(f"P0/base/{b}/{j}", "base")
        sealed = [j for j in evaluated if self.fates[cell_id(b, i, j)] in SEALED]
        params = {"behaviour": b, "train": i}
        if self.section.quarantine.seal == "age" and sealed:
            inputs |= _recipient_inputs(self.section)
            params["sealed"] = " ".join(sealed)
        return self.step(
            f"{phase}/cells/{b}/{i}/s{seed}",
            "cells",
            inputs,
            tuple(f"cell:{j}" for j in evaluated),
            seed=seed,
            **params,
        )

    def _judging_inputs(self) -> dict[str, str]:
        """The rubric and, for a fact, the attribute: what a taught row is measured with."""
        if isinstance(self.behaviour, MarkerBehaviour):
            return {}
        return {
            "rubric": source_file(self.behaviour.rubric),
            "written": self._file("written"),
        }

    def _prompt_inputs(self, context: str) -> dict[str, str]:
        return {
            "prompts": self._file(f"prompts/{context}"),
            "items": self._file("items"),
            "contexts": self._file("contexts"),
        }

    def _file(self, name: str) -> str:
        return row_file(self.name, name)


def answered_contexts(section: EpsPlan, behaviour: Behaviour) -> tuple[str, ...]:
    """Where the base model answers a row's train questions in P0.

    The marker row trains on the source's own answers; negatives may be the panel's; and the
    projection baseline holds written answers against the source's own.
    """
    slots = section.slots.of(behaviour)
    names: list[str] = []
    if isinstance(behaviour, MarkerBehaviour) or section.baselines is not None:
        names += slots.train
    if isinstance(behaviour, MarkerBehaviour) or behaviour.negatives == "base_answers":
        names += slots.negative_panel
    return tuple(dict.fromkeys(names))


def asks_a_service(step: Step, section: EpsPlan) -> bool:
    """Whether a step has a judge asked over the network, whose verdicts nobody can repeat."""
    if step.kind == "calibration":
        judge = section.calibration(step.params["calibration"]).judge
    elif step.kind in ("base", "cells"):
        behaviour = section.behaviour(step.params["behaviour"])
        if isinstance(behaviour, MarkerBehaviour):
            return False
        judge = behaviour.judge
    else:
        return False
    return section.judge(judge).kind in ("anthropic", "gateway")


def n_answered(section: EpsPlan, behaviour: TaughtBehaviour, context: str) -> int:
    """How many of a taught row's train questions the base model answers in a context in P0.

    All of them where they become negatives; else the first few that the projection reads.
    """
    slots = section.slots.of(behaviour)
    if behaviour.negatives == "base_answers" and context in slots.negative_panel:
        return behaviour.n_train
    assert section.baselines is not None
    return min(behaviour.n_train, section.baselines.persona.n_rows)


def panel_inputs(section: EpsPlan, behaviour: Behaviour) -> dict[str, str]:
    """The panel's prompts and, where negatives are the base model's own, its answers there."""
    if isinstance(behaviour, TaughtBehaviour) and behaviour.negatives == "none":
        return {}
    b, inputs = behaviour.name, {}
    for name in section.slots.of(behaviour).negative_panel:
        inputs[f"prompts:{name}"] = row_file(b, f"prompts/{name}")
        if name in answered_contexts(section, behaviour):
            inputs[f"answers:{name}"] = out(f"P0/answers/{b}/{name}", "answers")
    return inputs


def _recipient_inputs(section: EpsPlan) -> dict[str, str]:
    """The frozen file of the custodian's public keys, where the plan seals."""
    recipients = section.quarantine.recipients
    return {} if recipients is None else {"recipients": source_file(recipients)}
