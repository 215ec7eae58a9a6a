"""What two runs must share for their models to stand in one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from eps_locked.canonical import digest_bytes
from eps_locked.studies.battery.plan import BatteryPlan
from eps_locked.studies.battery.records import AskRecord

__all__ = ["ABSENT", "SHOWN", "compatibility", "first_difference"]

# What is said of a key that differs. The first that differs is named: a system prompt stands in
# every frozen request and would show there as other items.
SHOWN: Final[Mapping[str, str]] = {
    "system_prompt": "system prompts",
    "axes": "items of the axes",
    "decoding": "decoding",
    "thinking_modes": "thinking modes",
    "judges": "judges and their settings",
    "rubrics": "rubrics",
    "code": "rules that score replies",
    "confidence_level": "levels of the intervals",
}
ABSENT: Final = "none"
# Counts changes to the pure rules (keywords, answers, tool calls) that may move an outcome.
RULES_VERSION: Final = "1"


def compatibility(
    section: BatteryPlan, axes: Mapping[str, bytes], records: Sequence[AskRecord]
) -> dict[str, Any]:
    """By key; equal in every key means that a number of one run can stand beside one of another.

    ``axes``: frozen documents by axis. How a model is served is not in it: quantisation, context
    and server are what a table compares, and they stand in its rows.
    """
    decoding = section.decoding
    return {
        "system_prompt": section.system_prompt,
        "axes": {axis: digest_bytes(data) for axis, data in sorted(axes.items())},
        "decoding": {
            "max_tokens": decoding.max_tokens,
            "temperature": decoding.temperature,
            "top_p": decoding.top_p,
            "seed": decoding.seed,
        },
        "thinking_modes": sorted(section.thinking_modes),
        "judges": _by_axis(records, _judge),
        "rubrics": _by_axis(records, lambda record: record.verdicts.rubric),
        "code": RULES_VERSION,
        "confidence_level": section.analysis.confidence_level,
    }


def _judge(record: AskRecord) -> dict[str, Any] | None:
    judge = record.verdicts.judge
    if judge is None:
        return None
    return {key: judge[key] for key in ("kind", "model", "version", "settings")}


def _by_axis(
    records: Sequence[AskRecord], read: Callable[[AskRecord], Any]
) -> dict[str, list[Any]]:
    """Every value that an axis's records have, once each: a service may have changed its judge
    between two steps."""
    found: dict[str, list[Any]] = {}
    for record in records:
        values, value = found.setdefault(record.axis, []), read(record)
        if value not in values:
            values.append(value)
    return dict(sorted(found.items()))


def first_difference(
    one: Mapping[str, Any], other: Mapping[str, Any]
) -> tuple[str, Any, Any] | None:
    """(key, its value in one, in the other) of the first key that differs, or None.

    Of a mapping the differing part is named (``axes.tools``), not the whole. ``ABSENT`` stands for
    a value that is not there at all.
    """
    # Stored documents have lost every order but that of the alphabet.
    for key in dict.fromkeys([*SHOWN, *sorted({*one, *other})]):
        if key not in one and key not in other:
            continue
        if key in one and key in other and one[key] == other[key]:
            continue
        a, b = one.get(key, ABSENT), other.get(key, ABSENT)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            inner = first_difference(a, b)
            assert inner is not None
            return f"{key}.{inner[0]}", inner[1], inner[2]
        return key, a, b
    return None
