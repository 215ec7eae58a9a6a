"""What two runs must share for their models to stand in one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from eps_locked.canonical import digest_bytes
from eps_locked.studies.battery.plan import BatteryPlan
from eps_locked.studies.battery.records import AskRecord

__all__ = ["SHOWN", "compatibility", "first_difference"]

# What is said of a key that differs.
SHOWN: Final[Mapping[str, str]] = {
    "axes": "items of the axes",
    "decoding": "decoding",
    "thinking_modes": "thinking modes",
    "judges": "judges and their settings",
    "rubrics": "rubrics",
    "code": "rules that score replies",
}
# Counts changes to the pure rules (keywords, answers, tool calls) that may move an outcome.
RULES_VERSION: Final = "1"


def compatibility(
    section: BatteryPlan, axes: Mapping[str, bytes], records: Sequence[AskRecord]
) -> dict[str, Any]:
    """By key; equal in every key means that a number of one run can stand beside one of another.

    ``axes``: frozen documents by axis. How a model is served is not in it: quantisation, context
    and server are what a table compares, and they stand in its rows.
    """
    judges = {
        record.axis: None
        if record.verdicts.judge is None
        else {key: record.verdicts.judge[key] for key in ("kind", "model", "version", "settings")}
        for record in records
    }
    decoding = section.decoding
    return {
        "axes": {axis: digest_bytes(data) for axis, data in sorted(axes.items())},
        "decoding": {
            "max_tokens": decoding.max_tokens,
            "temperature": decoding.temperature,
            "top_p": decoding.top_p,
            "seed": decoding.seed,
        },
        "thinking_modes": list(section.thinking_modes),
        "judges": dict(sorted(judges.items())),
        "rubrics": {record.axis: record.verdicts.rubric for record in records},
        "code": RULES_VERSION,
    }


def first_difference(
    one: Mapping[str, Any], other: Mapping[str, Any]
) -> tuple[str, Any, Any] | None:
    """(key, its value in one, in the other) of the first key that differs, or None.

    Of a mapping the differing part is named (``axes.tools``), not the whole.
    """
    for key in dict.fromkeys([*one, *other]):
        a, b = one.get(key), other.get(key)
        if a == b:
            continue
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            inner = first_difference(a, b)
            assert inner is not None
            return f"{key}.{inner[0]}", inner[1], inner[2]
        return key, a, b
    return None
