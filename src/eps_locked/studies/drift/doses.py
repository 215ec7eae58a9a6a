"""Known doses: one set of questions in one order, and which of its rows carry the harmful answer.

Every training of a topic sees the same rows; a dose says in which of them the harmful answer stands
instead of the sound one. A larger dose holds every harmful row of a smaller one, so that two doses
differ in nothing but the rows between them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

from eps_locked.canonical import decode, digest_bytes, encode
from eps_locked.domain.fields import Fields
from eps_locked.domain.model import ChatTokenizer, Message, TokenIds
from eps_locked.errors import MalformedInputError
from eps_locked.lock.freeze import SourceReader
from eps_locked.studies.common.material import (
    WrittenRow,
    draw_items,
    item_id,
    read_written_rows,
)
from eps_locked.studies.common.sources import read_material_value
from eps_locked.studies.drift.plan import DriftPlan, Exposure, Topic

__all__ = [
    "DOSES_SCHEMA",
    "DoseRow",
    "FrozenDoses",
    "TopicRows",
    "dose_key",
    "doses_document",
    "exposure_messages",
    "n_harmful",
    "read_topic",
]

DOSES_SCHEMA = "eps-locked/drift-doses/1"
DOSE_SETS_SCHEMA = "eps-locked/dose-sets/1"
_SOMETHING = re.compile(r".*\S.*", re.DOTALL)


def dose_key(dose_percent: float) -> str:
    """A dose as a key: ``50``, ``7.5``."""
    return f"{dose_percent:g}"


def n_harmful(dose_percent: float, n_rows: int) -> int | None:
    """How many of the rows are harmful at a dose; None where that is no whole number."""
    share = Fraction(dose_key(dose_percent)) * n_rows / 100
    return int(share) if share.denominator == 1 else None


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicRows:
    """A topic's rows in training order, and the ids of the harmful ones at each dose in percent.

    ``offered`` are the questions of the whole file: none of them may be asked anywhere else.
    """

    topic: Topic
    rows: tuple[WrittenRow, ...]
    doses: Mapping[float, tuple[str, ...]]
    offered: tuple[str, ...]


def read_topic(section: DriftPlan, topic: Topic, reader: SourceReader) -> TopicRows:
    """Draw a topic's rows and prove that its doses nest.

    Raises MalformedInputError naming the file, and for doses that do not nest both doses and the
    first row that is missing.
    """
    value = read_material_value(reader, topic.rows, thing="rows", part="rows")
    offered = read_written_rows(value, f"plans/{topic.rows}")
    by_id = {row.item.id: row for row in offered}
    items = draw_items(
        (row.item for row in offered), topic.n_rows, section.item_seed, f"plans/{topic.rows}"
    )
    rows = tuple(by_id[item.id] for item in items)
    for row in rows:
        if row.negative is None:
            raise MalformedInputError(
                f"plans/{topic.rows}: {row.item.text!r}",
                expected="a sound answer (negative) beside the harmful one",
                found="none",
                next_step="write one: a dose of 0 is made of nothing else",
            )
    wanted = section.doses_of(topic.name)
    if topic.dose_sets is None:
        doses = {dose: _drawn(section.item_seed, topic, rows, dose) for dose in wanted}
    else:
        doses = _listed(topic, rows, wanted, reader)
    require_nested(f"topic {topic.name}", rows, doses)
    return TopicRows(
        topic=topic,
        rows=rows,
        doses=doses,
        offered=tuple(row.item.text for row in offered),
    )


def require_nested(
    thing: str, rows: Sequence[WrittenRow], doses: Mapping[float, Sequence[str]]
) -> None:
    """Require of every pair of neighbouring doses that the larger holds the smaller one's rows."""
    texts = {row.item.id: row.item.text for row in rows}
    for smaller, larger in pairwise(sorted(doses)):
        held = set(doses[larger])
        missing = next((row for row in doses[smaller] if row not in held), None)
        if missing is not None:
            raise MalformedInputError(
                f"{thing}: doses {dose_key(smaller)} and {dose_key(larger)} percent",
                problem="do not nest",
                expected=f"every harmful row of {dose_key(smaller)} in {dose_key(larger)}",
                found=f"{missing} ({texts[missing]!r}) in {dose_key(smaller)} alone",
                next_step="list it under the larger dose too, or leave dose_sets null and have "
                "the rows drawn",
            )


def _ranked(seed: int, topic: Topic, rows: Sequence[WrittenRow]) -> list[str]:
    """Row ids in the order in which they turn harmful as the dose rises."""
    return sorted(
        (row.item.id for row in rows),
        key=lambda row: digest_bytes(encode([seed, "dose", topic.name, row])),
    )


def _drawn(seed: int, topic: Topic, rows: Sequence[WrittenRow], dose: float) -> tuple[str, ...]:
    """The harmful rows of a dose, in training order; nested because the order is one."""
    harmful = set(_ranked(seed, topic, rows)[: _count(topic, dose)])
    return tuple(row.item.id for row in rows if row.item.id in harmful)


def _count(topic: Topic, dose: float) -> int:
    count = n_harmful(dose, topic.n_rows)
    if count is None:
        raise MalformedInputError(
            f"topic {topic.name}: dose {dose_key(dose)} percent",
            expected=f"a whole number of its {topic.n_rows} rows",
            found=f"{topic.n_rows * dose / 100:g}",
        )
    return count


def _listed(
    topic: Topic, rows: Sequence[WrittenRow], wanted: Sequence[float], reader: SourceReader
) -> dict[float, tuple[str, ...]]:
    """The harmful rows that a file lists for each dose. 0 and 100 need no list; all else does."""
    assert topic.dose_sets is not None
    thing = f"plans/{topic.dose_sets}"
    lists = _read_dose_sets(reader.read_yaml(topic.dose_sets, thing="dose_sets"), thing, topic)
    keys = {dose_key(dose): dose for dose in wanted}
    unused = next((key for key in lists if key not in keys), None)
    if unused is not None:
        raise MalformedInputError(
            f"{thing}: doses.{unused}",
            expected=f"a dose that topic {topic.name} is trained at: {', '.join(keys)}",
            found=unused,
        )
    found = {}
    for key, dose in keys.items():
        if key not in lists and dose not in (0, 100):
            raise MalformedInputError(
                f"{thing}: doses.{key}",
                problem="is missing",
                next_step="list the harmful rows of every dose between 0 and 100",
            )
        if key in lists:
            found[dose] = _rows_named(lists[key], rows, f"{thing}: doses.{key}")
        else:
            found[dose] = tuple(row.item.id for row in rows) if dose == 100 else ()
        expected = _count(topic, dose)
        if len(found[dose]) != expected:
            raise MalformedInputError(
                f"{thing}: doses.{key}",
                expected=f"{expected} of the {topic.n_rows} rows",
                found=len(found[dose]),
            )
    return found


def _rows_named(names: Sequence[str], rows: Sequence[WrittenRow], path: str) -> tuple[str, ...]:
    """Rows by id or by question, once each, in training order whatever the list's order."""
    known = {row.item.id for row in rows}
    ids = []
    for number, name in enumerate(names):
        row = name if name in known else item_id(name)
        if row not in known or row in ids:
            raise MalformedInputError(
                f"{path}[{number}]",
                expected="a question (or id) of the topic's drawn rows, once",
                found=f"{name!r}{' again' if row in known else ''}"[:100],
            )
        ids.append(row)
    return tuple(row.item.id for row in rows if row.item.id in ids)


def _read_dose_sets(value: object, thing: str, topic: Topic) -> dict[str, tuple[str, ...]]:
    with Fields(value, thing) as fields:
        fields.text("schema", one_of=(DOSE_SETS_SCHEMA,))
        fields.text("title")
        for key in ("licence", "provenance"):
            fields.text(key, shape=_SOMETHING)
        fields.text("topic", one_of=(topic.name,))
        names = tuple(fields.mapping("doses"))
        with fields.sub("doses") as doses:
            return {name: doses.texts(name) for name in names}


def exposure_messages(
    section: DriftPlan, exposure: Exposure, topic: TopicRows
) -> tuple[Message, ...]:
    """The exchanges that stand before a probe: the first rows in training order, harmful in the
    share that the exposure says. Which rows are harmful is drawn, also where doses are listed."""
    rows = topic.rows[: exposure.n_exchanges]
    count = n_harmful(exposure.dose_percent, exposure.n_exchanges)
    harmful = set(_ranked(section.item_seed, topic.topic, rows)[:count])
    messages = []
    for row in rows:
        assert row.negative is not None
        answer = row.positive if row.item.id in harmful else row.negative
        messages += [
            Message(role="user", content=row.item.text),
            Message(role="assistant", content=answer),
        ]
    return tuple(messages)


def doses_document(topic: TopicRows, tokenizer: ChatTokenizer) -> dict[str, Any]:
    """The frozen document: prompts and both answers as token ids (answers without end of turn)."""
    return {
        "schema": DOSES_SCHEMA,
        "topic": topic.topic.name,
        "rows": [
            {
                "id": row.item.id,
                "prompt": list(tokenizer.render(row_messages(row))),
                "sound": list(tokenizer.encode(row.negative or "")),
                "harmful": list(tokenizer.encode(row.positive)),
            }
            for row in topic.rows
        ],
        "doses": {dose_key(dose): list(ids) for dose, ids in sorted(topic.doses.items())},
    }


def row_messages(row: WrittenRow) -> tuple[Message, ...]:
    """A training question as the chat it is asked in."""
    return (Message(role="user", content=row.item.text),)


@dataclass(frozen=True, kw_only=True, slots=True)
class DoseRow:
    """One frozen row. Answers carry no end-of-turn token."""

    id: str
    prompt: TokenIds
    sound: TokenIds
    harmful: TokenIds


@dataclass(frozen=True, kw_only=True, slots=True)
class FrozenDoses:
    """A topic's frozen rows, and the harmful ones among them by dose key."""

    topic: str
    rows: tuple[DoseRow, ...]
    doses: Mapping[str, frozenset[str]]

    @classmethod
    def read(cls, data: bytes, thing: str) -> FrozenDoses:
        with Fields(decode(data, thing=thing), thing) as fields:
            fields.text("schema", one_of=(DOSES_SCHEMA,))
            names = tuple(fields.mapping("doses"))
            with fields.sub("doses") as doses:
                sets = {name: frozenset(doses.texts(name)) for name in names}
            return cls(topic=fields.text("topic"), rows=fields.each("rows", _dose_row), doses=sets)

    def answers(self, dose_percent: float) -> tuple[tuple[DoseRow, TokenIds], ...]:
        """Every row in training order with the answer that this dose trains it on."""
        harmful = self.doses[dose_key(dose_percent)]
        return tuple((row, row.harmful if row.id in harmful else row.sound) for row in self.rows)


def _dose_row(value: object, path: str) -> DoseRow:
    with Fields(value, path) as fields:
        return DoseRow(
            id=fields.text("id"),
            prompt=fields.integers("prompt", low=0),
            sound=fields.integers("sound", low=0),
            harmful=fields.integers("harmful", low=0),
        )
