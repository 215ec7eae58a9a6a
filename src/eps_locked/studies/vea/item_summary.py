"""What a file of matched pairs holds, once every check of ``items`` has let it through. Pure."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from eps_locked.errors import MalformedInputError
from eps_locked.studies.common.json_lines import json_lines
from eps_locked.studies.common.rounding import rounded
from eps_locked.studies.vea.items import DOMAINS, FAMILIES, NEUTRAL, VeaItem, read_items

__all__ = ["FIELDS", "ITEMS_SUMMARY_SCHEMA", "summarise_items"]

ITEMS_SUMMARY_SCHEMA: Final = "eps-locked/vea-items-summary/1"
FIELDS: Final = (
    "id",
    "context_type",
    "domain",
    "user_prompt",
    "base",
    "vea",
    "vea_clause",
    "matched_control",
    "single_clause_enforced",
)
# Where no tolerance is demanded, only what no tolerance can allow is refused.
_ANY: Final = math.nextafter(1.0, 0.0)
_SHOWN: Final = 40


def summarise_items(
    data: bytes, thing: str, words: Sequence[str], tolerance: float | None
) -> dict[str, Any]:
    """Counts by family and domain, and how far the lengths of clause and control lie apart.

    ``tolerance`` None: controls may be of any length up to twice their clause's, and the largest
    deviation is told. Raises MalformedInputError as ``read_items``, and for a line that is no
    object with an item's fields.
    """
    _require_form(data, thing)
    items = read_items(data, thing, words, _ANY if tolerance is None else tolerance)
    counts = Counter(item.family for item in items)
    with_clause = [item for item in items if item.vea_clause]
    furthest = max(with_clause, key=_deviation, default=None)
    document: dict[str, Any] = rounded(
        {
            "schema": ITEMS_SUMMARY_SCHEMA,
            "file": thing,
            "n_items": len(items),
            "n_stems": len({item.stem for item in items}),
            "n_single_clause": sum(item.single_clause_enforced for item in items),
            "n_neutral_without_clause": sum(
                item.family == NEUTRAL and not item.vea_clause for item in items
            ),
            "families": [
                _family(family, [item for item in items if item.family == family])
                for family in FAMILIES
                if counts[family]
            ],
            "missing_families": [family for family in FAMILIES if not counts[family]],
            "domains": {domain: sum(item.domain == domain for item in items) for domain in DOMAINS},
            "tolerance_demanded": tolerance,
            "tolerance_found": None if furthest is None else _deviation(furthest),
            "tolerance_found_at": None if furthest is None else furthest.id,
        }
    )
    return document


def _require_form(data: bytes, thing: str) -> None:
    """Refuse what is no file of items at all in words that say so; ``read_items`` does the rest."""
    first = data.split(b"\n", 1)[0]
    try:
        is_object = isinstance(json.loads(first.decode("utf-8")), dict)
    except (ValueError, RecursionError):
        is_object = False
    if not is_object:
        raise MalformedInputError(
            f"{thing}: line 1",
            expected="JSON Lines: one item a line, each an object of its own, in UTF-8",
            found=repr(first[:_SHOWN].decode("utf-8", "replace")) if data else "nothing",
            next_step="write each item on a line of its own; docs/vea.md names its fields",
        )
    for value, path in json_lines(data, thing):
        keys = list(value) if isinstance(value, dict) else []
        missing = [name for name in FIELDS if name not in keys]
        if missing:
            raise MalformedInputError(
                path,
                expected=f"the fields {', '.join(FIELDS)}",
                found=f"no {', '.join(missing)} among {', '.join(keys)[:200] or 'nothing'}",
                next_step="rename the fields, if these are matched pairs; a control is a response "
                "to be scored like the others and cannot be left out",
            )


def _family(family: str, items: Sequence[VeaItem]) -> dict[str, Any]:
    deviations = [_deviation(item) for item in items if item.vea_clause]
    return {
        "family": family,
        "n_items": len(items),
        "n_stems": len({item.stem for item in items}),
        "n_with_clause": len(deviations),
        "largest_deviation": max(deviations, default=None),
        "mean_deviation": math.fsum(deviations) / len(deviations) if deviations else None,
    }


def _deviation(item: VeaItem) -> float:
    """By which share of the clause's length the control's is longer or shorter."""
    return abs(len(item.control_clause) - len(item.vea_clause)) / len(item.vea_clause)
