"""Rules for models under test: where they answer, how they think, what they are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from eps_locked.domain.plan import Plan
from eps_locked.errors import MalformedInputError
from eps_locked.studies.battery.parts import BASE_ROUTE, EndpointPlan, ModelPlan
from eps_locked.studies.battery.plan import BatteryPlan

__all__ = ["check_models", "require_known"]


class _Named(Protocol):
    @property
    def name(self) -> str: ...


def require_known(name: str, parts: Sequence[_Named], path: str, what: str) -> None:
    """Require that a name is one of the plan's parts of that kind; ``what`` has its article."""
    known = [part.name for part in parts]
    if name not in known:
        raise MalformedInputError(
            path,
            expected=f"{what} of the plan",
            found=name,
            next_step=f"known: {', '.join(known) or 'none'}",
        )


def check_models(plan: Plan, section: BatteryPlan, path: str) -> None:
    """Raises MalformedInputError at the first model that cannot be asked or compared."""
    for number, model in enumerate(section.models):
        where = f"{path}.models[{number}]"
        require_known(model.endpoint, section.endpoints, f"{where}.endpoint", "an endpoint")
        endpoint = section.endpoint(model.endpoint)
        if endpoint.kind == "serve":
            _check_served(plan, section, model, endpoint, where)
        elif model.training is not None:
            raise MalformedInputError(
                f"{where}.training",
                expected=f"null at {endpoint.name}, which is not our own server",
                found=model.training,
                next_step="adapters of the plan answer on an endpoint of kind serve",
            )
        _check_thinking(section, model, where)
        _check_room(section, model, where)
        for earlier in section.models[:number]:
            _check_twins(earlier, model, where)
    for number, model in enumerate(section.models):
        _check_base(section, model, f"{path}.models[{number}].base")


def _check_served(
    plan: Plan, section: BatteryPlan, model: ModelPlan, endpoint: EndpointPlan, where: str
) -> None:
    """Our own server has one base model, and a route for it and for each adapter."""
    if model.training is not None:
        require_known(model.training, section.trainings, f"{where}.training", "a training")
    served = (BASE_ROUTE, *(training.name for training in section.trainings))
    route = BASE_ROUTE if model.training is None else model.training
    if model.route != route:
        raise MalformedInputError(
            f"{where}.route",
            expected=f"{route}: the route of "
            + ("the model without adapter" if model.training is None else "its training"),
            found=model.route
            + ("" if model.route in served else f", which no adapter at {endpoint.name} has"),
            next_step=f"served there: {', '.join(served)}",
        )
    for key, expected, found in (
        ("family", plan.base_model.family, model.family),
        ("context_length", endpoint.max_context, model.context_length),
    ):
        if found != expected:
            raise MalformedInputError(
                f"{where}.{key}",
                expected=f"{expected}, as "
                + ("base_model" if key == "family" else f"endpoint {endpoint.name}")
                + " says",
                found=found,
            )
    first = next(one for one in section.models if one.endpoint == model.endpoint)
    if model.quantisation != first.quantisation:
        raise MalformedInputError(
            f"{where}.quantisation",
            expected=f"{first.quantisation}, as of {first.name}: one server, one base model",
            found=model.quantisation,
        )


def _check_thinking(section: BatteryPlan, model: ModelPlan, where: str) -> None:
    for mode in section.thinking_modes:
        if mode not in model.thinking:
            raise MalformedInputError(
                f"{where}.thinking.{mode}",
                expected=f"fields that put {model.name} into this mode, which thinking_modes asks",
                found="null",
                next_step="say how, or measure this model in a plan of its own modes: rates with "
                "and without thinking are not compared",
            )
    if len(section.thinking_modes) > 1 and model.extra("off") == model.extra("on"):
        raise MalformedInputError(
            f"{where}.thinking.on",
            expected="other fields than off has",
            found="the same",
            next_step="say how thinking is turned on; the same request twice measures nothing",
        )


def _check_room(section: BatteryPlan, model: ModelPlan, where: str) -> None:
    """A reply of full length leaves room for a prompt."""
    asked = [("decoding.max_tokens", section.decoding.max_tokens)]
    if section.speed is not None and section.speed.max_tokens is not None:
        asked.append(("max_tokens of axis speed", section.speed.max_tokens))
    for name, n_tokens in asked:
        if n_tokens >= model.context_length:
            raise MalformedInputError(
                f"{where}.context_length",
                expected=f"more than the {n_tokens} of {name}: the prompt needs room too",
                found=model.context_length,
            )


def _check_twins(earlier: ModelPlan, model: ModelPlan, where: str) -> None:
    """One route is one model: asked twice only with other fields for thinking, described once."""
    if (earlier.endpoint, earlier.route) != (model.endpoint, model.route):
        return
    if earlier.thinking == model.thinking:
        raise MalformedInputError(
            where,
            expected="a model that differs from every other in endpoint, route or thinking",
            found=f"{model.name}, which asks what {earlier.name} asks",
        )
    for key in ("family", "quantisation", "context_length"):
        expected, found = getattr(earlier, key), getattr(model, key)
        if found != expected:
            raise MalformedInputError(
                f"{where}.{key}",
                expected=f"{expected}, as {earlier.name} on the same route has it",
                found=found,
            )


def _check_base(section: BatteryPlan, model: ModelPlan, where: str) -> None:
    """What a model is compared with is a model of the plan that is itself compared with nothing."""
    if model.base is None:
        return
    others = [one for one in section.models if one.name != model.name]
    chain = [model.name]
    name: str | None = model.base
    while name is not None and name not in chain:
        chain.append(name)
        name = next((one.base for one in others if one.name == name), None)
    if name is not None:
        raise MalformedInputError(
            where,
            problem="goes in a circle",
            expected=f"a model that {model.name} comes from",
            found=" -> ".join((*chain, name)),
        )
    require_known(model.base, others, where, "another model")
    base = section.model(model.base)
    if base.base is not None:
        raise MalformedInputError(
            where,
            expected="a model that is itself compared with nothing (base: null)",
            found=f"{base.name}, which is compared with {base.base}",
            next_step=f"name {base.base}: a difference of differences is nobody's finding",
        )
