"""Every step of an ``eps`` study, in an order in which every input exists before it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from eps_locked.domain.plan import Plan
from eps_locked.domain.steps import FILE_REF, STEP_REF, Step
from eps_locked.errors import MalformedInputError
from eps_locked.studies.eps.baselines.steps import baseline_steps
from eps_locked.studies.eps.plan import EpsPlan, MarkerBehaviour
from eps_locked.studies.eps.split import SEALED, cell_id, draw_split

PHASES = ("P0", "P1", "P3")

# (id, kind, inputs, outputs, seed=None, **params): the plan's step under its phase's costs.
StepFactory = Callable[..., Step]


def list_steps(plan: Plan, section: EpsPlan) -> tuple[Step, ...]:
    """The complete step list, in an order in which every input exists before it is read."""
    costs = {phase: budget.step_seconds for phase, budget in plan.phases.items()}

    def step(
        identifier: str,
        kind: str,
        inputs: dict[str, str],
        outputs: tuple[str, ...],
        seed: int | None = None,
        **params: str,
    ) -> Step:
        phase = identifier.partition("/")[0]
        if kind not in costs[phase]:
            raise MalformedInputError(
                f"plan.phases.{phase}.step_seconds.{kind}",
                problem="is missing",
                next_step="say what such a step may cost; the cap is checked against it",
            )
        return Step(
            id=identifier,
            phase=phase,
            kind=kind,
            seed=seed,
            params=params,
            inputs={"plan": f"{FILE_REF}frozen/plan.yaml", **inputs},
            outputs=outputs,
            estimate_ms=round(costs[phase][kind] * 1000),
        )

    slots = section.slots
    fates = draw_split(section)["cells"]
    steps: list[Step] = []
    trained = tuple(dict.fromkeys((*slots.train, *slots.negative_panel)))
    for behaviour in section.behaviours:
        b = behaviour.name
        for name in trained:
            steps.append(
                step(
                    f"P0/answers/{b}/{name}",
                    "answers",
                    _prompt_inputs(name),
                    ("answers",),
                    behaviour=b,
                    context=name,
                )
            )
        for name in slots.eval:
            steps.append(
                step(
                    f"P0/base/{b}/{name}",
                    "base",
                    _prompt_inputs(name),
                    ("base",),
                    behaviour=b,
                    context=name,
                )
            )
        bases = {f"base:{name}": _out(f"P0/base/{b}/{name}", "base") for name in slots.eval}
        sources = {
            f"answers:{name}": _out(f"P0/answers/{b}/{name}", "answers") for name in slots.train
        }
        steps.append(
            step(f"P0/headroom/{b}", "headroom", {**bases, **sources}, ("headroom",), behaviour=b)
        )
        steps += _row_steps(plan, section, behaviour, fates, step)
    if section.baselines is not None:
        steps += baseline_steps(plan, section, step)
    return tuple(sorted(steps, key=lambda one: PHASES.index(one.phase)))


def _row_steps(
    plan: Plan,
    section: EpsPlan,
    behaviour: MarkerBehaviour,
    fates: Mapping[str, str],
    step: StepFactory,
) -> list[Step]:
    b, slots = behaviour.name, section.slots
    headroom = {"headroom": _out(f"P0/headroom/{b}", "headroom")}
    steps: list[Step] = []
    for seed in plan.seeds:
        fit_inputs = {}
        for i in slots.train:
            inputs = {**headroom, **_prompt_inputs(i)}
            inputs["answers"] = _out(f"P0/answers/{b}/{i}", "answers")
            for name in slots.negative_panel:
                inputs[f"answers:{name}"] = _out(f"P0/answers/{b}/{name}", "answers")
                inputs[f"prompts:{name}"] = f"{FILE_REF}frozen/prompts/{name}.json"
            fit_inputs[i] = inputs
            steps.append(
                step(
                    f"P1/fit/{b}/{i}/s{seed}",
                    "fit",
                    inputs,
                    ("fit",),
                    seed=seed,
                    behaviour=b,
                    context=i,
                )
            )
        fits = {f"fit:{i}": _out(f"P1/fit/{b}/{i}/s{seed}", "fit") for i in slots.train}
        steps.append(
            step(f"P1/match/{b}/s{seed}", "match", fits, ("match",), seed=seed, behaviour=b)
        )
        for i in slots.train:
            inputs = {**fit_inputs[i], "fit": fits[f"fit:{i}"]}
            inputs["match"] = _out(f"P1/match/{b}/s{seed}", "match")
            steps.append(
                step(
                    f"P1/adapter/{b}/{i}/s{seed}",
                    "adapter",
                    inputs,
                    ("adapter", "record"),
                    seed=seed,
                    behaviour=b,
                    context=i,
                )
            )
        for i in slots.train:
            steps.append(_cells_step(section, b, i, seed, fates, step))
    inputs = {
        "contexts": f"{FILE_REF}frozen/contexts.json",
        "split": f"{FILE_REF}frozen/split.json",
        **headroom,
        **_recipient_inputs(section),
    }
    for j in slots.eval:
        inputs[f"base:{j}"] = _out(f"P0/base/{b}/{j}", "base")
    for seed in plan.seeds:
        for i in slots.train:
            inputs[f"record:{i}/s{seed}"] = _out(f"P1/adapter/{b}/{i}/s{seed}", "record")
            for j in slots.eval:
                inputs[f"cell:{i}/{j}/s{seed}"] = _out(f"P1/cells/{b}/{i}/s{seed}", f"cell:{j}")
    steps.append(step(f"P1/tensor/{b}", "tensor", inputs, ("tensor",), behaviour=b))
    return steps


def _cells_step(
    section: EpsPlan, b: str, i: str, seed: int, fates: Mapping[str, str], step: StepFactory
) -> Step:
    """One adapter under every eval context: one batch, as fast as the model can be read."""
    slots = section.slots
    # The diagonal first: it is the manipulation check, and the first thing to look at.
    evaluated = (i, *(name for name in slots.eval if name != i))
    inputs = {
        "items": f"{FILE_REF}frozen/items.json",
        "adapter": _out(f"P1/adapter/{b}/{i}/s{seed}", "adapter"),
    }
    for j in evaluated:
        inputs[f"prompts:{j}"] = f"{FILE_REF}frozen/prompts/{j}.json"
        inputs[f"base:{j}"] = _out(f"P0/base/{b}/{j}", "base")
    sealed = [j for j in evaluated if fates[cell_id(b, i, j)] in SEALED]
    params = {"behaviour": b, "train": i}
    if section.quarantine.seal == "age" and sealed:
        inputs |= _recipient_inputs(section)
        params["sealed"] = " ".join(sealed)
    return step(
        f"P1/cells/{b}/{i}/s{seed}",
        "cells",
        inputs,
        tuple(f"cell:{j}" for j in evaluated),
        seed=seed,
        **params,
    )


def _recipient_inputs(section: EpsPlan) -> dict[str, str]:
    """The frozen file of the custodian's public keys, where the plan seals."""
    recipients = section.quarantine.recipients
    return {} if recipients is None else {"recipients": f"{FILE_REF}frozen/sources/{recipients}"}


def _prompt_inputs(context: str) -> dict[str, str]:
    return {
        "prompts": f"{FILE_REF}frozen/prompts/{context}.json",
        "items": f"{FILE_REF}frozen/items.json",
        "contexts": f"{FILE_REF}frozen/contexts.json",
    }


def _out(step_id: str, output: str) -> str:
    return f"{STEP_REF}{step_id}#{output}"
