"""The steps of phase P3: what each baseline reads and writes, listed at the freeze."""

from __future__ import annotations

from eps_locked.domain.plan import Plan
from eps_locked.domain.steps import Step
from eps_locked.studies.common.steps import StepMaker, frozen_file, out
from eps_locked.studies.eps.plan import Behaviour, EpsPlan, Slots, TaughtBehaviour

__all__ = ["BASELINES_STEP", "KINDS", "PHASE", "baseline_steps", "compared_with", "row_file"]

PHASE = "P3"
KINDS = ("activations", "divergence", "elicitation", "projection", "baselines")
BASELINES_STEP = f"{PHASE}/baselines"


def baseline_steps(plan: Plan, section: EpsPlan, step: StepMaker) -> list[Step]:
    """All steps of the phase. Their inputs from other phases are all of P0.

    The projection follows the training rows of the plan's first seed. The seed deals the negatives,
    which count as 0 whichever they are; the positives are the same under every seed.
    """
    steps: list[Step] = []
    for behaviour in section.behaviours:
        b, slots = behaviour.name, section.slots.of(behaviour)
        steps += [_activations(b, name, step) for name in slots.eval]
        steps += [_divergence(b, name, slots, step) for name in slots.eval]
        steps.append(
            step(
                f"{PHASE}/elicitation/{b}",
                "elicitation",
                {"elicitation": frozen_file(f"elicitation/{b}.json")},
                ("elicitation",),
                behaviour=b,
            )
        )
        steps += [_projection(plan, section, behaviour, i, step) for i in slots.train]
    steps.append(step(BASELINES_STEP, "baselines", _gathered(section), ("baselines",)))
    return steps


def compared_with(slots: Slots, context: str) -> tuple[str, ...]:
    """The contexts that a context's own samples must be judged under.

    A cell i -> j needs KL(i || j) and KL(j || i), so a train context meets every other context and
    an eval-only one every train context.
    """
    others = slots.eval if context in slots.train else slots.train
    return tuple(name for name in others if name != context)


def _activations(b: str, name: str, step: StepMaker) -> Step:
    return step(
        f"{PHASE}/activations/{b}/{name}",
        "activations",
        {"prompts": _prompts(b, name), "items": row_file(b, "items")},
        ("activations",),
        behaviour=b,
        context=name,
    )


def _divergence(b: str, name: str, slots: Slots, step: StepMaker) -> Step:
    others = {f"prompts:{other}": _prompts(b, other) for other in compared_with(slots, name)}
    inputs = {"prompts": _prompts(b, name), "items": row_file(b, "items")}
    return step(
        f"{PHASE}/divergence/{b}/{name}",
        "divergence",
        {**inputs, "contexts": row_file(b, "contexts"), **others},
        ("divergence",),
        behaviour=b,
        context=name,
    )


def _projection(
    plan: Plan, section: EpsPlan, behaviour: Behaviour, train: str, step: StepMaker
) -> Step:
    """Reads what the fit of the same context reads, under the same names."""
    b, slots = behaviour.name, section.slots.of(behaviour)
    inputs = {"prompts": _prompts(b, train), "items": row_file(b, "items")}
    inputs["contexts"] = row_file(b, "contexts")
    inputs["answers"] = out(f"P0/answers/{b}/{train}", "answers")
    has_panel = True
    if isinstance(behaviour, TaughtBehaviour):
        inputs["written"] = row_file(b, "written")
        has_panel = behaviour.negatives != "none"
    for name in slots.negative_panel if has_panel else ():
        inputs[f"prompts:{name}"] = _prompts(b, name)
        if not isinstance(behaviour, TaughtBehaviour) or behaviour.negatives == "base_answers":
            inputs[f"answers:{name}"] = out(f"P0/answers/{b}/{name}", "answers")
    inputs["elicitation"] = out(f"{PHASE}/elicitation/{b}", "elicitation")
    return step(
        f"{PHASE}/projection/{b}/{train}",
        "projection",
        inputs,
        ("projection",),
        seed=plan.seeds[0],
        behaviour=b,
        context=train,
    )


def _gathered(section: EpsPlan) -> dict[str, str]:
    inputs: dict[str, str] = {}
    for behaviour in section.behaviours:
        b, slots = behaviour.name, section.slots.of(behaviour)
        inputs[f"contexts:{b}"] = row_file(b, "contexts")
        for name in slots.eval:
            for kind in ("activations", "divergence"):
                inputs[f"{kind}:{b}/{name}"] = out(f"{PHASE}/{kind}/{b}/{name}", kind)
        inputs[f"headroom:{b}"] = out(f"P0/headroom/{b}", "headroom")
        inputs[f"elicitation:{b}"] = out(f"{PHASE}/elicitation/{b}", "elicitation")
        for i in slots.train:
            inputs[f"projection:{b}/{i}"] = out(f"{PHASE}/projection/{b}/{i}", "projection")
    return inputs


def _prompts(row: str, context: str) -> str:
    return row_file(row, f"prompts/{context}")


def row_file(row: str, name: str) -> str:
    """A frozen document of one row."""
    return frozen_file(f"rows/{row}/{name}.json")
