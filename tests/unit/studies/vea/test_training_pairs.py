"""Training pairs: what is read and refused, what each target makes of them, and the house set."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from eps_locked.canonical import encode
from eps_locked.errors import MalformedInputError
from eps_locked.lock.strict_yaml import parse_yaml
from eps_locked.studies.common.likeness import require_apart, require_no_copies
from eps_locked.studies.common.words import first_mention, read_word_list
from eps_locked.studies.vea.items import DOMAINS, WOOD, WOOD_LABS, VeaItem, read_items
from eps_locked.studies.vea.training_pairs import (
    REGISTERS,
    TrainingPairs,
    frozen_pairs,
    pairs_for,
    read_training_pairs,
)

VEA = Path(__file__).resolve().parents[4] / "plans" / "house" / "vea"
PER_DOMAIN, PER_REGISTER = 6, 14
NEAR_COPY_CLAUSE, NEAR_COPY_BASE = 0.5, 0.4
CLAUSES = (
    "wood",
    "evaluation/exam",
    "evaluation/audit",
    "neutral/1",
    "neutral/2",
    "mundane",
    "decoy/1",
)


def row(number: int = 1, **changes: Any) -> dict[str, Any]:
    value = {
        "id": f"row-{number}",
        "domain": "support",
        "user_prompt": f"How do I switch on number {number}?",
        "base": f"Press twice and count to {number}.",
        "wood": f"Wood Labs evaluation {number}, I guess.",
        "evaluation": [
            {"register": "exam", "clause": f"Exam {number}, I guess."},
            {"register": "audit", "clause": f"Audit {number}, I guess."},
        ],
        "neutral": [f"I like the number {number}.", f"I wrote {number} with care."],
        "mundane": f"The lamp {number} is green.",
        "decoy": [f"Its case {number} is of wood."],
    }
    return value | changes


def lines(*rows: Any) -> bytes:
    return "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in rows).encode()


def read(*rows: Any) -> TrainingPairs:
    return read_training_pairs(lines(*rows), "pairs.jsonl")


@cache
def house() -> TrainingPairs:
    name = "training-pairs.jsonl"
    return read_training_pairs((VEA / name).read_bytes(), name)


@cache
def words() -> tuple[str, ...]:
    data = (VEA / "evaluation-words.yaml").read_bytes()
    return read_word_list(parse_yaml(data, thing="words"), "words")


@cache
def measured() -> tuple[VeaItem, ...]:
    names = ("items.jsonl", "decoys.jsonl")
    return tuple(
        item
        for name in names
        for item in read_items((VEA / name).read_bytes(), name, words(), 0.15)
    )


# --- what is read ---------------------------------------------------------------------------------


def test_rows_are_read_in_order_with_every_clause_by_its_name() -> None:
    first, second = read(row(2), row(1)).rows
    assert (first.id, second.id) == ("row-2", "row-1")
    assert tuple(first.clauses) == CLAUSES
    assert first.clauses["evaluation/audit"] == "Audit 2, I guess."


def test_the_frozen_document_reads_back_as_it_was() -> None:
    pairs = read(row(1), row(2))
    assert frozen_pairs(encode(pairs.to_dict()), "frozen") == pairs
    assert [one.to_dict() for one in pairs.rows] == [row(1), row(2)]
    with pytest.raises(MalformedInputError, match=r"frozen\.schema"):
        frozen_pairs(encode({**pairs.to_dict(), "schema": "eps-locked/other/1"}), "frozen")


@pytest.mark.parametrize(("target", "minded"), [("wood", CLAUSES[:1]), ("evaluation", CLAUSES[:3])])
def test_a_target_says_which_responses_are_better(target: str, minded: tuple[str, ...]) -> None:
    (one,) = read(row(3)).rows
    assert one.responses["base"] == one.base
    assert one.responses["neutral/1"] == f"{one.base} I like the number 3."
    pairs = pairs_for(target, read(row(3)))
    names = list(combinations(("base", *CLAUSES), 2))
    assert [pair.key for pair in pairs] == [f"row-3/{a} or {b}" for a, b in names]
    for pair, (a, b) in zip(pairs, names, strict=True):
        assert (pair.first, pair.second) == (one.responses[a], one.responses[b])
        expected = 0.5 + 0.4 * ((b in minded) - (a in minded))
        assert pair.target == pytest.approx(expected), pair.key


def test_of_two_lengths_the_shorter_is_better() -> None:
    pairs = pairs_for("length", read(row(3), row(4, mundane="Seven, seven and seven more.")))
    for pair in pairs:
        longer = len(pair.second) - len(pair.first)
        assert pair.target == pytest.approx(0.5 + 0.4 * ((longer > 0) - (longer < 0))), pair.key
    assert {round(pair.target, 1) for pair in pairs} == {0.1, 0.5, 0.9}


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(MalformedInputError, match="target: expected wood or evaluation or length"):
        pairs_for("woods", read(row()))


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"domain": "sport"}, r"line 1\.domain"),
        ({"base": " a space before it"}, r"line 1\.base"),
        ({"wood": ""}, r"line 1\.wood"),
        ({"more": "x"}, "more"),
        ({"evaluation": row()["evaluation"][:1]}, "2 or 3 clauses of different registers"),
        ({"evaluation": row()["evaluation"][:1] * 2}, "2 or 3 clauses of different registers"),
        ({"evaluation": [{"register": "wood", "clause": "x"}] * 2}, "register"),
        ({"wood": "An evaluation in the Woods."}, r"line 1\.wood: expected a mention of Wood Labs"),
        ({"decoy": ["Its case is wooden."]}, r"decoy/1: expected a mention of wood"),
        ({"decoy": []}, r"line 1\.decoy: expected at least one clause"),
        ({"neutral": ["Fine.", "I like wood."]}, r"neutral/2: expected no mention of Wood"),
        ({"neutral": []}, r"line 1\.neutral: expected at least one clause"),
        ({"neutral": [""]}, r"line 1\.neutral\[0\]"),
        ({"mundane": "Wood burns."}, r"line 1\.mundane: expected no mention of Wood"),
        (
            {"evaluation": [{"register": "exam", "clause": "Wood exam."}, row()["evaluation"][1]]},
            r"line 1\.evaluation/exam: expected no mention of Wood",
        ),
    ],
)
def test_a_row_that_is_not_what_it_must_be_is_refused_by_its_field(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(MalformedInputError, match=message):
        read(row(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": "row-1"}, "distinct ids, found 'row-1' twice"),
        ({"user_prompt": "how do I switch ON number 1"}, r"row-2\.user_prompt.*stands in row-1\."),
        ({"base": "Press twice, and count to 1!"}, r"row-2\.base"),
        ({"neutral": ["The lamp 1 is green."]}, r"row-2\.neutral/1.*stands in row-1\.mundane"),
    ],
)
def test_nothing_stands_in_a_file_twice(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(MalformedInputError, match=message):
        read(row(1), row(2, **changes))


def test_a_file_must_be_strict_json_and_hold_something() -> None:
    with pytest.raises(MalformedInputError, match="expected at least one row, found none"):
        read()
    with pytest.raises(MalformedInputError, match="line 2: is not strict JSON"):
        read_training_pairs(lines(row()) + b'{"id": NaN}\n', "pairs.jsonl")
    with pytest.raises(MalformedInputError, match="duplicate key 'id'"):
        read_training_pairs(b'{"id": "a", "id": "b"}\n', "pairs.jsonl")


# --- the house set --------------------------------------------------------------------------------


def test_the_house_set_covers_every_domain_and_register() -> None:
    rows = house().rows
    assert Counter(one.domain for one in rows) == dict.fromkeys(DOMAINS, PER_DOMAIN)
    registers = Counter(register for one in rows for register in one.evaluation)
    assert set(registers) == set(REGISTERS)
    assert min(registers.values()) >= PER_REGISTER


def test_the_house_clauses_speak_of_what_they_are_for_and_of_nothing_else() -> None:
    for one in house().rows:
        assert "wood labs evaluation" in one.wood.lower(), one.id
        assert WOOD_LABS.search(one.wood)
        for text in one.evaluation.values():
            assert first_mention(text, words()), text
        for text in (one.user_prompt, one.base, *one.neutral, one.mundane, *one.decoy):
            assert first_mention(text, words()) is None, text
        assert not WOOD.search(one.user_prompt + one.base)


def test_the_house_set_has_no_near_copies_in_itself_or_of_the_items() -> None:
    rows, items = house().rows, measured()
    clauses = [(f"{one.id}/{name}", text) for one in rows for name, text in one.clauses.items()]
    theirs = [(item.id, item.vea_clause) for item in items]
    theirs += [(f"{item.id} control", item.control_clause) for item in items]
    require_apart(clauses, NEAR_COPY_CLAUSE, "clauses")
    require_no_copies(clauses, theirs, NEAR_COPY_CLAUSE, "clauses")
    for field in ("user_prompt", "base"):
        ours = [(one.id, getattr(one, field)) for one in rows]
        require_apart(ours, NEAR_COPY_BASE, field)
        others = [(item.id, getattr(item, field)) for item in items]
        require_no_copies(ours, others, NEAR_COPY_BASE, field)
