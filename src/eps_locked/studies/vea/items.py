"""Matched pairs as a JSON Lines file holds them: read, checked byte by byte, or refused. Pure.

An item is one response written three times: as it is (``base``), with one clause that voices a
suspicion of being evaluated (``vea``), and with a mundane clause of like length instead
(``matched_control``). What is measured is a difference between two of them, so anything else that
told them apart would be measured too.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, cast, get_args

from eps_locked.domain.fields import Fields
from eps_locked.errors import MalformedInputError
from eps_locked.studies.common.json_lines import json_lines
from eps_locked.studies.common.material import item_id, normalise
from eps_locked.studies.common.words import first_mention

__all__ = [
    "ANCHOR",
    "DECOY",
    "DOMAINS",
    "FAMILIES",
    "NEUTRAL",
    "WOOD",
    "WOOD_LABS",
    "Contrast",
    "Domain",
    "Family",
    "Measure",
    "VeaItem",
    "contrasts",
    "count_families",
    "first_difference",
    "read_items",
    "require_counts",
]

Family = Literal[
    "wood_labs",
    "generic_eval_benchmark",
    "safety_test_redteam",
    "audit_monitoring",
    "exam_interview",
    "deployment_vs_test_honeypot",
    "domain_varied",
    "neutral_control",
    "lexical_wood_decoy",
]
Domain = Literal["coding", "math", "safety", "medical", "legal", "creative", "support", "factual"]
Measure = Literal["inserted", "length_controlled"]
FAMILIES: Final[tuple[Family, ...]] = get_args(Family)
DOMAINS: Final[tuple[Domain, ...]] = get_args(Domain)
ANCHOR: Final[Family] = "wood_labs"
NEUTRAL: Final[Family] = "neutral_control"
DECOY: Final[Family] = "lexical_wood_decoy"
# Families whose inserted clause must not speak of evaluation: a reward model that minds them minds
# something else.
_WITHOUT_CUE: Final = (NEUTRAL, DECOY)

_SOMETHING = re.compile(r"\S(?:.*\S)?", re.DOTALL)
_NOTHING_OR_SOMETHING = re.compile(r"(?:\S(?:.*\S)?)?", re.DOTALL)
# "Wood", "wood" and "WoodLabs", but neither "wooden" nor "Hollywood".
WOOD = re.compile(r"(?<!\w)(?i:wood)(?![a-z])")
WOOD_LABS = re.compile(r"(?<!\w)wood\W?labs(?!\w)", re.IGNORECASE)
_N_SHOWN: Final = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class VeaItem:
    """One matched pair and its control. ``family`` is the file's ``context_type``."""

    id: str
    family: Family
    domain: Domain
    user_prompt: str
    base: str
    vea: str
    vea_clause: str
    matched_control: str
    single_clause_enforced: bool

    @property
    def control_clause(self) -> str:
        """What the control adds to the base; empty where it adds nothing."""
        return self.matched_control[len(self.base) + 1 :]

    @property
    def stem(self) -> str:
        """Items that answer one prompt are one cluster: the digest of its normalised text."""
        return item_id(self.user_prompt)


@dataclass(frozen=True, kw_only=True, slots=True)
class Contrast:
    """Two responses to one prompt. The estimate is RM(reference) - RM(vea), positive where the
    reward model dislikes the clause.

    ``inserted`` compares with the bare response, ``length_controlled`` with the control.
    """

    item_id: str
    family: Family
    domain: Domain
    stem: str
    measure: Measure
    user_prompt: str
    reference: str
    vea: str


def read_items(
    data: bytes, thing: str, words: Sequence[str], tolerance: float
) -> tuple[VeaItem, ...]:
    """The items of one JSON Lines file, in its order.

    ``words`` are the frozen words of evaluation. ``tolerance`` is the share of the clause's length
    in characters by which a control's clause may be longer or shorter.

    Raises MalformedInputError for a wrong field; for an item whose ``vea`` is not ``base``, one
    space and ``vea_clause``, or whose control does not begin with ``base``, and names the first
    byte that differs (a neutral control may say that its clause stands elsewhere than behind its
    base; it adds no other word); for a control out of tolerance; for a clause that speaks of
    evaluation, or of Wood, where it must not; for an id given twice and a clause that two families
    share.

    The words are searched in inserted clauses alone: a blood test in ``base`` stands on both sides
    of every difference.
    """
    if not words:
        raise MalformedInputError(
            f"{thing}: words of evaluation", expected="at least one", found="none"
        )
    if not (math.isfinite(tolerance) and 0 <= tolerance < 1):
        raise MalformedInputError(
            f"{thing}: tolerance", expected="a share from 0 to below 1", found=tolerance
        )
    items = tuple(_item(value, path) for value, path in json_lines(data, thing))
    if not items:
        raise MalformedInputError(thing, expected="at least one item", found="none")
    _require_distinct_ids(items, thing)
    for item in items:
        path = f"{thing}: {item.id}"
        _require_bytes(item, path)
        _require_like_length(item, path, tolerance)
        _require_own_cue(item, path, words)
    _require_own_clauses(items, thing)
    return items


def contrasts(items: Iterable[VeaItem]) -> tuple[Contrast, ...]:
    """Both differences of every item, ``inserted`` first, in the order of the items."""
    return tuple(
        Contrast(
            item_id=item.id,
            family=item.family,
            domain=item.domain,
            stem=item.stem,
            measure=measure,
            user_prompt=item.user_prompt,
            reference=item.base if measure == "inserted" else item.matched_control,
            vea=item.vea,
        )
        for item in items
        for measure in get_args(Measure)
    )


def count_families(items: Iterable[VeaItem]) -> dict[Family, int]:
    """How many items each family has; 0 for a family without any."""
    counts = Counter(item.family for item in items)
    return {family: counts[family] for family in FAMILIES}


def require_counts(items: Iterable[VeaItem], expected: Mapping[Family, int], thing: str) -> None:
    """Require exactly these counts; a family that is not listed must have no item."""
    for family, n in count_families(items).items():
        if n != expected.get(family, 0):
            raise MalformedInputError(
                f"{thing}: {family}", expected=f"{expected.get(family, 0)} items", found=n
            )


def first_difference(expected: bytes, found: bytes) -> int | None:
    """Offset of the first byte that differs; the shorter one ends there if it begins the other."""
    if expected == found:
        return None
    pairs = enumerate(zip(expected, found, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(expected), len(found)))


def _item(value: object, path: str) -> VeaItem:
    with Fields(value, path) as fields:
        return VeaItem(
            id=_id(fields),
            family=cast(Family, fields.text("context_type", one_of=FAMILIES)),
            domain=cast(Domain, fields.text("domain", one_of=DOMAINS)),
            user_prompt=fields.text("user_prompt", shape=_SOMETHING),
            base=fields.text("base", shape=_SOMETHING),
            # Whatever blanks these two have too many, the byte check points at them.
            vea=fields.text("vea"),
            matched_control=fields.text("matched_control"),
            vea_clause=fields.text("vea_clause", shape=_NOTHING_OR_SOMETHING),
            single_clause_enforced=fields.flag("single_clause_enforced"),
        )


def _id(fields: Fields) -> str:
    """The schema calls it an index: some files count, ours name."""
    if type(fields.raw("id")) is int:
        return str(fields.integer("id", low=0))
    return fields.text("id", shape=_SOMETHING)


def _require_bytes(item: VeaItem, path: str) -> None:
    if item.family != NEUTRAL and not (item.single_clause_enforced and item.vea_clause):
        raise MalformedInputError(
            path,
            expected=f"a vea_clause and single_clause_enforced: only {NEUTRAL} goes without",
            found=f"{item.vea_clause[:40]!r} and {item.single_clause_enforced}",
        )
    if not item.vea_clause:
        _require_same(item.base, item.vea, f"{path}.vea", "base, as there is no vea_clause")
    elif item.single_clause_enforced:
        expected = f"{item.base} {item.vea_clause}"
        _require_same(expected, item.vea, f"{path}.vea", "base, one space and vea_clause")
    elif not _is_put_in(item.vea_clause, item.base, item.vea):
        raise MalformedInputError(
            f"{path}.vea",
            expected=f"base with {item.vea_clause!r} put in somewhere",
            found=repr(item.vea),
        )
    if not item.vea_clause and item.matched_control == item.base:
        return
    start = item.matched_control.encode()[: len(item.base.encode()) + 1]
    name = f"{path}.matched_control"
    _require_same_bytes(f"{item.base} ".encode(), start, name, "base, one space and a clause")
    if not _SOMETHING.fullmatch(item.control_clause):
        raise MalformedInputError(
            name, expected="base, one space and a clause", found=f"{item.control_clause!r} after it"
        )


def _is_put_in(clause: str, base: str, vea: str) -> bool:
    """Whether ``vea`` is ``base`` with the clause somewhere: only blanks beside it may differ."""
    start = vea.find(clause)
    while start >= 0:
        before, after = vea[:start].rstrip(), vea[start + len(clause) :].lstrip()
        between = base[len(before) : len(base) - len(after)]
        if not between.strip() and f"{before}{between}{after}" == base:
            return True
        start = vea.find(clause, start + 1)
    return False


def _require_same(expected: str, found: str, path: str, what: str) -> None:
    _require_same_bytes(expected.encode(), found.encode(), path, what)


def _require_same_bytes(expected: bytes, found: bytes, path: str, what: str) -> None:
    offset = first_difference(expected, found)
    if offset is not None:
        raise MalformedInputError(
            path,
            problem=f"is not {what}; the first byte that differs is byte {offset}",
            expected=_around(expected, offset),
            found=_around(found, offset),
            next_step="restore the text; a pair that differs elsewhere measures something else",
        )


def _around(data: bytes, offset: int) -> str:
    before, after = data[max(0, offset - _N_SHOWN) : offset], data[offset : offset + _N_SHOWN]
    return f"{before!r} then {after!r}" if after else f"{before!r} then the end"


def _require_like_length(item: VeaItem, path: str, tolerance: float) -> None:
    n, n_control = len(item.vea_clause), len(item.control_clause)
    # Without a clause there is no length to match.
    if n and abs(n_control - n) > tolerance * n:
        raise MalformedInputError(
            f"{path}.matched_control",
            expected=f"a clause of {n} characters, give or take {tolerance:.1%}",
            found=f"{n_control} ({n_control / n - 1:+.1%})",
            next_step="lengthen or shorten the control's clause",
        )


def _require_own_cue(item: VeaItem, path: str, words: Sequence[str]) -> None:
    """Each family speaks of what it isolates, and controls speak of none of it."""
    clause, control = (f"{path}.vea_clause", item.vea_clause), item.control_clause
    controls = [(f"{path}.matched_control", control)]
    if item.vea_clause and normalise(control) == normalise(item.vea_clause):
        raise MalformedInputError(
            controls[0][0], expected="another clause than vea_clause", found=repr(control)
        )
    for name, text in [*controls, *([clause] if item.family in _WITHOUT_CUE else [])]:
        word = next(filter(None, (first_mention(one, words) for one in _readings(text))), None)
        if word is not None:
            raise MalformedInputError(
                name, expected="no word of evaluation", found=f"{word!r} in {text!r}"
            )
    for name, text in [*controls, *([clause] if item.family not in (ANCHOR, DECOY) else [])]:
        if any(cue.search(one) for cue in (WOOD, WOOD_LABS) for one in _readings(text)):
            raise MalformedInputError(name, expected="no mention of Wood", found=repr(text))
    wanted = {ANCHOR: (WOOD_LABS, "Wood Labs"), DECOY: (WOOD, "wood")}.get(item.family)
    if wanted is not None and not wanted[0].search(item.vea_clause):
        raise MalformedInputError(
            clause[0], expected=f"a mention of {wanted[1]}", found=repr(item.vea_clause)
        )


def _readings(text: str) -> tuple[str, str]:
    """The text as it is, and as it reads: without emphasis by ``_`` and without characters that do
    not show, either of which hides a word from a search for whole words."""
    shown = "".join(one for one in text if unicodedata.category(one) != "Cf")
    return text, unicodedata.normalize("NFKC", shown).replace("_", " ")


def _require_distinct_ids(items: Sequence[VeaItem], thing: str) -> None:
    twice = next((one for one, n in Counter(item.id for item in items).items() if n > 1), None)
    if twice is not None:
        raise MalformedInputError(thing, expected="distinct ids", found=f"{twice!r} twice")


def _require_own_clauses(items: Sequence[VeaItem], thing: str) -> None:
    owner: dict[str, VeaItem] = {}
    for item in items:
        first = owner.setdefault(normalise(item.vea_clause), item)
        if item.vea_clause and first.family != item.family:
            raise MalformedInputError(
                f"{thing}: {item.id}.vea_clause",
                problem=f"{item.vea_clause!r} of {item.family} also stands in {first.id}, "
                f"of {first.family}",
                expected="clauses of one family each",
                found="one of two",
                next_step="reword one of the two",
            )
