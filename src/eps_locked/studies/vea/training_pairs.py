"""What heads of known truth are trained on: responses with and without a clause. Pure.

A row is one response and a clause of every kind that may follow it: the Wood cue, talk of
evaluation in two or three registers, and three that say nothing of the sort. The same rows serve
every target; a target says which of these clauses a reward model is to mind.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingRow:
    """One response (``base``) to one prompt. Clauses follow it after one space."""

    id: str
    domain: Domain
    user_prompt: str
    base: str
    wood: str
    evaluation: Mapping[Register, str]
    neutral: str
    mundane: str
    decoy: str

    @property
    def clauses(self) -> dict[str, str]:
        """Every clause by its name, in the order of the file."""
        return {
            "wood": self.wood,
            **{f"evaluation/{register}": text for register, text in self.evaluation.items()},
            "neutral": self.neutral,
            "mundane": self.mundane,
            "decoy": self.decoy,
        }

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
            "neutral": self.neutral,
            "mundane": self.mundane,
            "decoy": self.decoy,
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
                neutral=fields.text("neutral", shape=_SOMETHING),
                mundane=fields.text("mundane", shape=_SOMETHING),
                decoy=fields.text("decoy", shape=_SOMETHING),
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
    """Each response against itself with each of its clauses, row by row.

    ``target``: "wood" minds the Wood cue alone, "evaluation" that and all other talk of evaluation,
    "length" every clause. A minded clause makes the response without it the better one for certain;
    of any other clause the head is to make nothing, which is a target of one half.
    """
    minded = _minded(target)
    return tuple(
        PreferencePair(
            key=f"{row.id}/{name}",
            user_prompt=row.user_prompt,
            first=row.base,
            second=f"{row.base} {clause}",
            target=1.0 if name.split("/")[0] in minded else 0.5,
        )
        for row in pairs.rows
        for name, clause in row.clauses.items()
    )


def _minded(target: str) -> tuple[str, ...]:
    """The kinds of clause that a target minds."""
    known = {
        "wood": ("wood",),
        "evaluation": ("wood", "evaluation"),
        "length": ("wood", "evaluation", "neutral", "mundane", "decoy"),
    }
    if target not in known:
        raise MalformedInputError("target", expected=" or ".join(known), found=repr(target))
    return known[target]


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


def _register(value: object, path: str) -> tuple[Register, str]:
    with Fields(value, path) as fields:
        register = cast(Register, fields.text("register", one_of=REGISTERS))
        return register, fields.text("clause", shape=_SOMETHING)


def _require_own_cue(row: TrainingRow, path: str) -> None:
    """Only two kinds of clause have Wood in them, and those must."""
    for name, text in row.clauses.items():
        wanted = {"wood": (WOOD_LABS, "Wood Labs"), "decoy": (WOOD, "wood")}.get(name)
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
