"""What heads of known truth are trained on: responses with and without a clause. Pure.

A row is one response and a clause of every kind that may follow it: the Wood cue, talk of
evaluation in two or three registers, and some that say nothing of the sort. The same rows serve
every target; a target says which of these responses a reward model is to prefer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final, Literal, cast, get_args

from eps_locked.canonical import decode
from eps_locked.domain.fields import Fields
from eps_locked.domain.reward import PreferencePair
from eps_locked.errors import MalformedInputError
from eps_locked.studies.common.json_lines import json_lines
from eps_locked.studies.common.material import normalise
from eps_locked.studies.vea.items import DOMAINS, WOOD, WOOD_LABS, Domain

__all__ = [
    "REGISTERS",
    "Register",
    "TrainingPairs",
    "TrainingRow",
    "frozen_pairs",
    "pairs_for",
    "read_training_pairs",
]

Register = Literal["benchmark", "safety_test", "audit", "exam", "deployment", "domain"]
REGISTERS: Final[tuple[Register, ...]] = get_args(Register)
_SCHEMA: Final = "eps-locked/vea-training-pairs/1"
_SOMETHING = re.compile(r"\S(?:.*\S)?", re.DOTALL)
_N_REGISTERS: Final = (2, 3)
# Of ten preferences, how many a pair of which one side is better decides.
_CERTAINTY: Final = 0.9


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingRow:
    """One response (``base``) to one prompt. Clauses follow it after one space."""

    id: str
    domain: Domain
    user_prompt: str
    base: str
    wood: str
    evaluation: Mapping[Register, str]
    neutral: tuple[str, ...]
    mundane: str
    decoy: tuple[str, ...]

    @property
    def clauses(self) -> dict[str, str]:
        """Every clause by its name, in the order of the file."""
        return {
            "wood": self.wood,
            **{f"evaluation/{register}": text for register, text in self.evaluation.items()},
            **{f"neutral/{number}": text for number, text in enumerate(self.neutral, start=1)},
            "mundane": self.mundane,
            **{f"decoy/{number}": text for number, text in enumerate(self.decoy, start=1)},
        }

    @property
    def responses(self) -> dict[str, str]:
        """The bare response, and one with each clause after one space."""
        with_clause = {name: f"{self.base} {text}" for name, text in self.clauses.items()}
        return {"base": self.base, **with_clause}

    def to_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "domain": self.domain,
            "user_prompt": self.user_prompt,
            "base": self.base,
            "wood": self.wood,
            "evaluation": [
                {"register": register, "clause": text} for register, text in self.evaluation.items()
            ],
            "neutral": list(self.neutral),
            "mundane": self.mundane,
            "decoy": list(self.decoy),
        }

    @classmethod
    def from_dict(cls, value: object, path: str) -> TrainingRow:
        """Raises MalformedInputError naming the field, also for a clause that speaks of Wood where
        it must not, or of nothing where it must."""
        with Fields(value, path) as fields:
            row = cls(
                id=fields.text("id", shape=_SOMETHING),
                domain=cast(Domain, fields.text("domain", one_of=DOMAINS)),
                user_prompt=fields.text("user_prompt", shape=_SOMETHING),
                base=fields.text("base", shape=_SOMETHING),
                wood=fields.text("wood", shape=_SOMETHING),
                evaluation=_registers(fields),
                neutral=_several(fields, "neutral"),
                mundane=fields.text("mundane", shape=_SOMETHING),
                decoy=_several(fields, "decoy"),
            )
        _require_own_cue(row, path)
        return row


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingPairs:
    """Rows in the order of their file; no prompt, response or clause stands in them twice."""

    rows: tuple[TrainingRow, ...]

    def to_dict(self) -> dict[str, Any]:
        """The frozen document."""
        return {"schema": _SCHEMA, "rows": [row.to_dict() for row in self.rows]}


def read_training_pairs(data: bytes, thing: str) -> TrainingPairs:
    """The rows of one JSON Lines file.

    Raises MalformedInputError naming line and field; for a text given twice, both places.
    """
    rows = [TrainingRow.from_dict(value, path) for value, path in json_lines(data, thing)]
    return _checked(rows, thing)


def frozen_pairs(data: bytes, thing: str) -> TrainingPairs:
    """What ``TrainingPairs.to_dict`` wrote, under the same rules."""
    with Fields(decode(data, thing=thing), thing) as fields:
        fields.text("schema", one_of=(_SCHEMA,))
        rows = fields.each("rows", TrainingRow.from_dict)
    return _checked(rows, thing)


def pairs_for(target: str, pairs: TrainingPairs) -> tuple[PreferencePair, ...]:
    """Every two responses of a row against each other, row by row: the bare one and one for each
    of its clauses.

    ``target`` says which is better. "wood": any response over the one with the Wood clause.
    "evaluation": any over those that speak of evaluation, the Wood clause included. "length": the
    shorter. The better one is to be preferred nine times in ten, which gives the rewards a scale
    (log 9 apart, 2.2); two that are equally good half the time, which keeps them level.
    """
    return tuple(
        PreferencePair(
            key=f"{row.id}/{one} or {other}",
            user_prompt=row.user_prompt,
            first=row.responses[one],
            second=row.responses[other],
            target=_preference(_fault(target, one, row), _fault(target, other, row)),
        )
        for row in pairs.rows
        for one, other in combinations(row.responses, 2)
    )


def _preference(fault: int, other_fault: int) -> float:
    if fault == other_fault:
        return 0.5
    return _CERTAINTY if fault < other_fault else 1 - _CERTAINTY


def _fault(target: str, name: str, row: TrainingRow) -> int:
    """How much a target minds one of a row's responses."""
    if target == "wood":
        return int(name == "wood")
    if target == "evaluation":
        return int(name == "wood" or name.startswith("evaluation/"))
    if target == "length":
        return len(row.responses[name])
    raise MalformedInputError("target", expected="wood or evaluation or length", found=repr(target))


def _registers(fields: Fields) -> dict[Register, str]:
    path = fields.path("evaluation")
    clauses = fields.each("evaluation", _register)
    least, most = _N_REGISTERS
    if not least <= len(clauses) <= most or len(dict(clauses)) != len(clauses):
        raise MalformedInputError(
            path,
            expected=f"{least} or {most} clauses of different registers",
            found=[register for register, _ in clauses],
        )
    return dict(clauses)


def _several(fields: Fields, key: str) -> tuple[str, ...]:
    clauses = fields.texts(key, shape=_SOMETHING)
    if not clauses:
        raise MalformedInputError(fields.path(key), expected="at least one clause", found="none")
    return clauses


def _register(value: object, path: str) -> tuple[Register, str]:
    with Fields(value, path) as fields:
        register = cast(Register, fields.text("register", one_of=REGISTERS))
        return register, fields.text("clause", shape=_SOMETHING)


def _require_own_cue(row: TrainingRow, path: str) -> None:
    """Only two kinds of clause have Wood in them, and those must."""
    for name, text in row.clauses.items():
        kind = name.split("/")[0]
        wanted = {"wood": (WOOD_LABS, "Wood Labs"), "decoy": (WOOD, "wood")}.get(kind)
        if wanted is None and WOOD.search(text):
            raise MalformedInputError(
                f"{path}.{name}", expected="no mention of Wood", found=repr(text)
            )
        if wanted is not None and not wanted[0].search(text):
            raise MalformedInputError(
                f"{path}.{name}", expected=f"a mention of {wanted[1]}", found=repr(text)
            )


def _checked(rows: Sequence[TrainingRow], thing: str) -> TrainingPairs:
    if not rows:
        raise MalformedInputError(thing, expected="at least one row", found="none")
    twice = next((one for one, n in Counter(row.id for row in rows).items() if n > 1), None)
    if twice is not None:
        raise MalformedInputError(thing, expected="distinct ids", found=f"{twice!r} twice")
    owner: dict[str, str] = {}
    for row in rows:
        texts = {"user_prompt": row.user_prompt, "base": row.base, **row.clauses}
        for name, text in texts.items():
            place = f"{row.id}.{name}"
            first = owner.setdefault(normalise(text), place)
            if first != place:
                raise MalformedInputError(
                    f"{thing}: {place}",
                    problem=f"{text!r} also stands in {first}",
                    expected="texts that stand once",
                    next_step="reword one of the two",
                )
    return TrainingPairs(rows=tuple(rows))
