"""The steps of phase P3: what each baseline reads and writes, listed at the freeze."""

from __future__ import annotations

from collections.abc import Callable

from eps_locked.domain.plan import Plan
from eps_locked.domain.steps import FILE_REF, STEP_REF, Step
from eps_locked.studies.eps.plan import EpsPlan, Slots

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
    slots = section.slots
    steps = [_activations(name, step) for name in slots.eval]
    steps += [_divergence(name, slots, step) for name in slots.eval]
    for behaviour in section.behaviours:
        b = behaviour.name
        steps.append(
            step(
                f"{PHASE}/elicitation/{b}",
                "elicitation",
                {"elicitation": f"{FILE_REF}frozen/elicitation/{b}.json"},
                ("elicitation",),
                behaviour=b,
            )
        )
        steps += [_projection(plan, slots, b, i, step) for i in slots.train]
    steps.append(step(BASELINES_STEP, "baselines", _gathered(section), ("baselines",)))
    return steps


def compared_with(slots: Slots, context: str) -> tuple[str, ...]:
    """The contexts that a context's own samples must be judged under.

    A cell i -> j needs KL(i || j) and KL(j || i), so a train context meets every other context and
    an eval-only one every train context.
    """
    others = slots.eval if context in slots.train else slots.train
    return tuple(name for name in others if name != context)


def _activations(name: str, step: StepFactory) -> Step:
    return step(
        f"{PHASE}/activations/{name}",
        "activations",
        {"prompts": _prompts(name), "items": _ITEMS},
        ("activations",),
        context=name,
    )


def _divergence(name: str, slots: Slots, step: StepFactory) -> Step:
    others = {f"prompts:{other}": _prompts(other) for other in compared_with(slots, name)}
    return step(
        f"{PHASE}/divergence/{name}",
        "divergence",
        {"prompts": _prompts(name), "items": _ITEMS, "contexts": _CONTEXTS, **others},
        ("divergence",),
        context=name,
    )


def _projection(plan: Plan, slots: Slots, behaviour: str, train: str, step: StepFactory) -> Step:
    """Reads what the fit of the same context reads, under the same names."""
    inputs = {"prompts": _prompts(train), "items": _ITEMS, "contexts": _CONTEXTS}
    inputs["answers"] = _out(f"P0/answers/{behaviour}/{train}", "answers")
    for name in slots.negative_panel:
        inputs[f"prompts:{name}"] = _prompts(name)
        inputs[f"answers:{name}"] = _out(f"P0/answers/{behaviour}/{name}", "answers")
    inputs["elicitation"] = _out(f"{PHASE}/elicitation/{behaviour}", "elicitation")
    return step(
        f"{PHASE}/projection/{behaviour}/{train}",
        "projection",
        inputs,
        ("projection",),
        seed=plan.seeds[0],
        behaviour=behaviour,
        context=train,
    )


def _gathered(section: EpsPlan) -> dict[str, str]:
    slots = section.slots
    inputs = {"contexts": _CONTEXTS}
    for name in slots.eval:
        for kind in ("activations", "divergence"):
            inputs[f"{kind}:{name}"] = _out(f"{PHASE}/{kind}/{name}", kind)
    for behaviour in section.behaviours:
        b = behaviour.name
        inputs[f"headroom:{b}"] = _out(f"P0/headroom/{b}", "headroom")
        inputs[f"elicitation:{b}"] = _out(f"{PHASE}/elicitation/{b}", "elicitation")
        for i in slots.train:
            inputs[f"projection:{b}/{i}"] = _out(f"{PHASE}/projection/{b}/{i}", "projection")
    return inputs


_ITEMS = f"{FILE_REF}frozen/items.json"
_CONTEXTS = f"{FILE_REF}frozen/contexts.json"


def _prompts(context: str) -> str:
    return f"{FILE_REF}frozen/prompts/{context}.json"


def _out(step_id: str, output: str) -> str:
    return f"{STEP_REF}{step_id}#{output}"
