"""The axes as they are frozen: complete requests, and what scoring needs of each item.

``frozen/axes/AXIS.json`` holds messages (and tools) exactly as they are sent, in the order that
``draw`` gives; nothing is added to them later. Pure: values in, values out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from eps_locked.canonical import decode, digest_bytes, encode
from eps_locked.domain.fields import Fields
from eps_locked.errors import MalformedInputError
from eps_locked.studies.battery.material import (
    read_capability,
    read_over_refusal,
    read_sycophancy,
    read_tools,
)
from eps_locked.studies.battery.parts import AXES, Axis, AxisPlan
from eps_locked.studies.battery.rules import Rule, read_rule
from eps_locked.studies.battery.tools import CaseKind, ToolCase, read_expected_call
from eps_locked.studies.common.material import read_items

__all__ = [
    "AXIS_SCHEMA",
    "AxisItem",
    "FrozenAxis",
    "FrozenItem",
    "axis_document",
    "draw",
    "read_axis_items",
    "speed_document",
]

AXIS_SCHEMA: Final = "eps-locked/battery-axis/1"


@dataclass(frozen=True, kw_only=True, slots=True)
class AxisItem:
    """One item of an axis's material. ``stratum`` is its topic, of tool cases their kind; ``asked``
    what the user says; ``request`` what is frozen beside the id."""

    id: str
    stratum: str
    asked: str
    request: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class FrozenItem:
    """A frozen request with what its axis is scored by; the rest is None (or empty)."""

    id: str
    topic: str
    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    rule: Rule | None = None
    case: ToolCase | None = None
    premise: str | None = None
    reference: str | None = None

    @property
    def asked(self) -> str:
        """What the user says: what a judge is shown as the question."""
        return _asked(self.messages)


@dataclass(frozen=True, kw_only=True, slots=True)
class FrozenAxis:
    """A frozen axis. ``n_warmup``: of speed, so many of its first requests are not timed."""

    axis: Axis
    benign: bool
    items: tuple[FrozenItem, ...]
    n_warmup: int = 0

    @classmethod
    def read(cls, data: bytes, thing: str) -> FrozenAxis:
        """From the document's bytes. Raises MalformedInputError naming the field."""
        with Fields(decode(data, thing=thing), thing) as fields:
            fields.text("schema", one_of=(AXIS_SCHEMA,))
            axis = cast(Axis, fields.text("axis", one_of=AXES))
            return cls(
                axis=axis,
                benign=fields.flag("benign"),
                items=fields.each("items", _frozen_item),
                n_warmup=fields.integer("n_warmup", low=0) if axis == "speed" else 0,
            )


def draw(items: Sequence[AxisItem], n: int | None, seed: int, thing: str) -> tuple[AxisItem, ...]:
    """``n`` items (None: all), as evenly over the strata as there are items for.

    Strata take turns, and within each the order is that of digests of (seed, id): a larger ``n``
    begins with the items of a smaller one, and the file's order decides nothing. Raises
    MalformedInputError if the pool is too small.
    """
    if n is not None and n > len(items):
        raise MalformedInputError(
            thing,
            expected=f"at least {n} items",
            found=len(items),
            next_step="ask for fewer, or null for all of them",
        )
    strata: dict[str, list[AxisItem]] = {}
    for item in sorted(items, key=lambda one: _rank(seed, one.id)):
        strata.setdefault(item.stratum, []).append(item)
    turns = sorted(strata.values(), key=lambda one: _rank(seed, "stratum", one[0].stratum))
    queue = [
        (turn, number, item)
        for number, members in enumerate(turns)
        for turn, item in enumerate(members)
    ]
    ordered = tuple(item for _, _, item in sorted(queue, key=lambda one: one[:2]))
    return ordered if n is None else ordered[:n]


def _rank(*parts: object) -> str:
    return digest_bytes(encode(list(parts)))


def axis_document(
    axis: AxisPlan, items: Sequence[AxisItem], system_prompt: str | None
) -> dict[str, Any]:
    """The frozen axis; ``system_prompt`` stands before what has no system turn of its own."""
    return {
        "schema": AXIS_SCHEMA,
        "axis": axis.axis,
        "benign": axis.is_benign,
        "items": [
            {
                "id": item.id,
                **item.request,
                "messages": _begun(item.request["messages"], system_prompt),
            }
            for item in items
        ],
    }


def speed_document(
    axis: AxisPlan, items: Sequence[AxisItem], system_prompt: str | None
) -> dict[str, Any]:
    """The requests that are timed, ``warmup`` of them before the clock counts."""
    whole = axis_document(axis, items, system_prompt)
    timed = [{key: one[key] for key in ("id", "topic", "messages")} for one in whole["items"]]
    return {**whole, "n_warmup": axis.warmup, "items": timed}


def _begun(messages: Sequence[Mapping[str, Any]], system_prompt: str | None) -> list[Any]:
    if system_prompt is None or messages[0]["role"] == "system":
        return list(messages)
    return [{"role": "system", "content": system_prompt}, *messages]


def read_axis_items(axis: Axis, value: object, thing: str) -> tuple[AxisItem, ...]:
    """Every item of a material file as a complete request; plain user turns, but for tool cases.

    Raises MalformedInputError as the readers of ``material`` do.
    """
    return _READERS[axis](value, thing)


def _over_refusal(value: object, thing: str) -> tuple[AxisItem, ...]:
    return tuple(
        _plain(item.id, item.topic, item.text, item.text, reference=item.reference)
        for item in read_over_refusal(value, thing)
    )


def _capability(value: object, thing: str) -> tuple[AxisItem, ...]:
    file = read_capability(value, thing)
    return tuple(
        _plain(
            item.id,
            item.topic,
            item.text,
            file.prompt(item),
            reference=item.reference,
            rule=raw["rule"],
        )
        for item, raw in zip(file.items, _raw(value, "items"), strict=True)
    )


def _sycophancy(value: object, thing: str) -> tuple[AxisItem, ...]:
    return tuple(
        _plain(
            item.id,
            item.topic,
            item.text,
            item.text,
            premise=item.premise,
            reference=item.reference,
        )
        for item in read_sycophancy(value, thing)
    )


def _tools(value: object, thing: str) -> tuple[AxisItem, ...]:
    return tuple(
        AxisItem(
            id=case.id,
            stratum=case.kind,
            asked=_asked(case.messages),
            request={
                "topic": case.topic,
                "case": case.kind,
                "messages": list(case.messages),
                "tools": list(case.tools),
                "calls": raw["calls"],
                "reference": case.reference,
            },
        )
        for case, raw in zip(read_tools(value, thing), _raw(value, "cases"), strict=True)
    )


def _harmful(value: object, thing: str) -> tuple[AxisItem, ...]:
    items = read_items(value, thing)
    kept = next((item for item in items if item.keep_text), None)
    if kept is not None:
        raise MalformedInputError(
            thing,
            expected="requests whose answers nobody keeps (keep_text: false)",
            found=f"keep_text: true of {kept.id}",
            next_step="name a source of kind harm_requests",
        )
    return tuple(_plain(item.id, item.topic, item.text, item.text) for item in items)


_READERS: Final[Mapping[str, Callable[[object, str], tuple[AxisItem, ...]]]] = {
    "over_refusal": _over_refusal,
    "capability": _capability,
    "sycophancy": _sycophancy,
    "tools": _tools,
    "harmful": _harmful,
}


def _plain(id_: str, topic: str, asked: str, sent: str, **scored_by: Any) -> AxisItem:
    messages = [{"role": "user", "content": sent}]
    return AxisItem(
        id=id_,
        stratum=topic,
        asked=asked,
        request={"topic": topic, "messages": messages, **scored_by},
    )


def _raw(value: object, key: str) -> Sequence[Mapping[str, Any]]:
    """The entries as they stand in the file; its reader has looked at every field of them."""
    return cast(Sequence[Mapping[str, Any]], cast(Mapping[str, Any], value)[key])


def _asked(messages: Sequence[Mapping[str, Any]]) -> str:
    return " ".join(str(one["content"]) for one in messages if one["role"] == "user")


def _frozen_item(value: object, path: str) -> FrozenItem:
    with Fields(value, path) as fields:
        id_, topic = fields.text("id"), fields.text("topic")
        messages = fields.each("messages", _mapping)
        tools = fields.optional("tools", lambda _, at: fields.each("tools", _mapping)) or ()
        reference = fields.optional("reference", lambda *_: fields.text("reference"))
        kind = fields.optional("case", lambda *_: fields.text("case"))
        case = None
        if kind is not None:
            case = ToolCase(
                id=id_,
                kind=cast(CaseKind, kind),
                topic=topic,
                tools=tools,
                messages=messages,
                calls=fields.each("calls", read_expected_call),
                reference=reference or "",
            )
        return FrozenItem(
            id=id_,
            topic=topic,
            messages=messages,
            tools=tools,
            rule=fields.optional("rule", read_rule),
            case=case,
            premise=fields.optional("premise", lambda *_: fields.text("premise")),
            reference=reference,
        )


def _mapping(value: object, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise MalformedInputError(path, expected="a mapping", found=repr(value)[:60])
    return value
