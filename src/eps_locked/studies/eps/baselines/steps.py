"""The steps of phase P3: what each baseline reads and writes, listed at the freeze."""

from __future__ import annotations

from collections.abc import Callable

from eps_locked.domain.plan import Plan
from eps_locked.domain.steps import FILE_REF, STEP_REF, Step
from eps_locked.studies.eps.plan import Behaviour, EpsPlan, Slots, TaughtBehaviour

__all__ = ["BASELINES_STEP", "KINDS", "PHASE", "baseline_steps", "compared_with"]

PHASE = "P3"
KINDS = ("activations", "divergence", "elicitation", "projection", "baselines")
BASELINES_STEP = f"{PHASE}/baselines"

# ``freeze.list_steps``'s own maker: (id, kind, inputs, outputs, seed, **params) -> Step.
StepFactory = Callable[..., Step]


def baseline_steps(plan: Plan, section: EpsPlan, step: StepFactory) -> list[Step]:
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
                {"elicitation": f"{FILE_REF}frozen/elicitation/{b}.json"},
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


def _activations(b: str, name: str, step: StepFactory) -> Step:
    return step(
        f"{PHASE}/activations/{b}/{name}",
        "activations",
        {"prompts": _prompts(b, name), "items": _file(b, "items")},
        ("activations",),
        behaviour=b,
        context=name,
    )


def _divergence(b: str, name: str, slots: Slots, step: StepFactory) -> Step:
    others = {f"prompts:{other}": _prompts(b, other) for other in compared_with(slots, name)}
    inputs = {"prompts": _prompts(b, name), "items": _file(b, "items")}
    return step(
        f"{PHASE}/divergence/{b}/{name}",
        "divergence",
        {**inputs, "contexts": _file(b, "contexts"), **others},
        ("divergence",),
        behaviour=b,
        context=name,
    )


def _projection(
    plan: Plan, section: EpsPlan, behaviour: Behaviour, train: str, step: StepFactory
) -> Step:
    """Reads what the fit of the same context reads, under the same names."""
    b, slots = behaviour.name, section.slots.of(behaviour)
    inputs = {"prompts": _prompts(b, train), "items": _file(b, "items")}
    inputs["contexts"] = _file(b, "contexts")
    inputs["answers"] = _out(f"P0/answers/{b}/{train}", "answers")
    has_panel = True
    if isinstance(behaviour, TaughtBehaviour):
        inputs["written"] = _file(b, "written")
        has_panel = behaviour.negatives != "none"
    for name in slots.negative_panel if has_panel else ():
        inputs[f"prompts:{name}"] = _prompts(b, name)
        if not isinstance(behaviour, TaughtBehaviour) or behaviour.negatives == "base_answers":
            inputs[f"answers:{name}"] = _out(f"P0/answers/{b}/{name}", "answers")
    inputs["elicitation"] = _out(f"{PHASE}/elicitation/{b}", "elicitation")
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
        inputs[f"contexts:{b}"] = _file(b, "contexts")
        for name in slots.eval:
            for kind in ("activations", "divergence"):
                inputs[f"{kind}:{b}/{name}"] = _out(f"{PHASE}/{kind}/{b}/{name}", kind)
        inputs[f"headroom:{b}"] = _out(f"P0/headroom/{b}", "headroom")
        inputs[f"elicitation:{b}"] = _out(f"{PHASE}/elicitation/{b}", "elicitation")
        for i in slots.train:
            inputs[f"projection:{b}/{i}"] = _out(f"{PHASE}/projection/{b}/{i}", "projection")
    return inputs


def _prompts(row: str, context: str) -> str:
    return _file(row, f"prompts/{context}")


def _file(row: str, name: str) -> str:
    return f"{FILE_REF}frozen/rows/{row}/{name}.json"


def _out(step_id: str, output: str) -> str:
    return f"{STEP_REF}{step_id}#{output}"
