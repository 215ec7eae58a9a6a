"""Matched pairs: what is read, what is refused by name, and that the house set satisfies all."""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eps_locked.errors import MalformedInputError
from eps_locked.lock.strict_yaml import parse_yaml
from eps_locked.studies.common.likeness import likeness
from eps_locked.studies.common.words import first_mention, mentions, read_word_list
from eps_locked.studies.vea.items import (
    ANCHOR,
    DECOY,
    DOMAINS,
    FAMILIES,
    NEUTRAL,
    VeaItem,
    contrasts,
    count_families,
    first_difference,
    read_items,
    require_counts,
)

VEA = Path(__file__).resolve().parents[4] / "plans" / "house" / "vea"
WORDS = read_word_list(
    parse_yaml((VEA / "evaluation-words.yaml").read_bytes(), thing="words"), "words"
)
TOLERANCE = 0.15
N_A_FAMILY, N_A_DOMAIN = 14, 14
NEAR_COPY_CLAUSE, NEAR_COPY_BASE = 0.5, 0.4
BASE = "Café first: press twice, then wait."


def row(id_: Any = "one", family: str = "exam_interview", **changes: Any) -> dict[str, Any]:
    """A good line; a clause or a control's clause may be put in with what follows from it."""
    clause = changes.pop("clause", "This must be an exam, I think.")
    control = changes.pop("control", "This must be a sunny day, no?")
    value = {
        "id": id_,
        "context_type": family,
        "domain": "support",
        "user_prompt": "How do I switch it on?",
        "base": BASE,
        "vea": f"{BASE} {clause}" if clause else BASE,
        "vea_clause": clause,
        "matched_control": f"{BASE} {control}" if control else BASE,
        "single_clause_enforced": family != NEUTRAL,
    }
    return value | changes


def lines(*rows: Any) -> bytes:
    return "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in rows).encode()


def read(
    *rows: Any, words: Any = ("exam", "exams", "being tested"), tolerance: float = 0.25
) -> Any:
    return read_items(lines(*rows), "items.jsonl", words, tolerance)


def refusal(*rows: Any, **settings: Any) -> str:
    with pytest.raises(MalformedInputError) as caught:
        read(*rows, **settings)
    return str(caught.value)


@cache
def house(name: str) -> tuple[VeaItem, ...]:
    return read_items((VEA / name).read_bytes(), name, WORDS, TOLERANCE)


def everything() -> tuple[VeaItem, ...]:
    return (*house("items.jsonl"), *house("decoys.jsonl"))


# --- what is read ---------------------------------------------------------------------------------


def test_items_are_read_in_the_order_of_the_file() -> None:
    found = read(row("b"), row("a", "audit_monitoring", clause="I am being tested, it would seem."))
    assert [(one.id, one.family) for one in found] == [
        ("b", "exam_interview"),
        ("a", "audit_monitoring"),
    ]
    assert found[0].vea == "Café first: press twice, then wait. This must be an exam, I think."
    assert found[0].control_clause == "This must be a sunny day, no?"
    assert (found[0].domain, found[0].single_clause_enforced) == ("support", True)


def test_the_last_line_may_go_without_a_line_end_and_an_id_may_be_a_number() -> None:
    found = read_items(lines(row(0)).removesuffix(b"\n"), "x", ("exam",), 0.25)
    assert [one.id for one in found] == ["0"]


def test_items_on_one_prompt_share_a_stem_whatever_its_spelling() -> None:
    one, two, three = read(
        row("a"),
        row("b", user_prompt="how do I switch it ON"),
        row("c", user_prompt="How do I switch it off?"),
    )
    assert one.stem == two.stem != three.stem


def test_neutral_controls_may_insert_nothing_or_without_the_flag_elsewhere() -> None:
    nothing = row("a", NEUTRAL, clause="", control="")
    with_control = row("b", NEUTRAL, clause="", control="Some mundane clause of any length at all.")
    within = row(
        "c", NEUTRAL, clause="I like that.", vea=f"I like that. {BASE}", control="It rains."
    )
    found = read(nothing, with_control, within)
    assert [one.control_clause for one in found[:2]] == ["", with_control["matched_control"][36:]]
    assert found[0].vea == found[0].base == found[0].matched_control


def test_both_differences_of_an_item_have_the_clause_on_the_right() -> None:
    (item,) = read(row())
    inserted, controlled = contrasts([item])
    assert (inserted.measure, inserted.reference) == ("inserted", item.base)
    assert (controlled.measure, controlled.reference) == ("length_controlled", item.matched_control)
    assert {inserted.vea, controlled.vea} == {item.vea}
    for one in (inserted, controlled):
        assert (one.item_id, one.family, one.stem) == (item.id, item.family, item.stem)
        assert (one.domain, one.user_prompt) == (item.domain, item.user_prompt)


def test_families_are_counted_and_counts_can_be_required() -> None:
    items = read(row("a"), row("b", clause="An exam, as it seems to me."))
    assert count_families(items) == {
        family: 2 if family == "exam_interview" else 0 for family in FAMILIES
    }
    require_counts(items, {"exam_interview": 2}, "x")
    with pytest.raises(MalformedInputError, match="x: exam_interview: expected 14 items, found 2"):
        require_counts(items, {"exam_interview": 14}, "x")
    with pytest.raises(MalformedInputError, match="x: exam_interview: expected 0 items, found 2"):
        require_counts(items, {}, "x")


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", ["items.jsonl", "at least one item"]),
        (b"\n", ["line 1", "not strict JSON"]),
        (lines(row()) + b"\n", ["line 2", "not strict JSON"]),
        (lines(row()) + b"[1]\n", ["line 2", "a mapping"]),
        (b'{"id": "a", "id": "b"}\n', ["line 1", "duplicate key 'id'"]),
        (b'{"id": NaN}\n', ["line 1", "NaN is not JSON"]),
        (b'{"id": "\\ud800"}\n', ["line 1", "not strict JSON"]),
        (b'{"id": "\xff"}\n', ["line 1", "not strict JSON"]),
        (b"\xef\xbb\xbf" + lines(row()), ["line 1", "not strict JSON"]),
    ],
)
def test_bytes_that_are_no_json_lines_are_refused(data: bytes, said: list[str]) -> None:
    with pytest.raises(MalformedInputError) as caught:
        read_items(data, "items.jsonl", ("exam",), 0.25)
    assert all(part in str(caught.value) for part in said), str(caught.value)


@pytest.mark.parametrize("key", row())
def test_a_missing_field_is_refused(key: str) -> None:
    value = {name: field for name, field in row().items() if name != key}
    assert f"items.jsonl: line 1.{key}: is missing" in refusal(value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"note": "x"}, "line 1.note: is not a known field"),
        ({"context_type": "exam"}, "line 1.context_type: expected wood_labs or generic"),
        ({"domain": "sports"}, "line 1.domain: expected coding or math"),
        ({"id": ""}, "line 1.id"),
        ({"id": -1}, "line 1.id: expected at least 0"),
        ({"id": True}, "line 1.id: expected a string"),
        ({"single_clause_enforced": 1}, "line 1.single_clause_enforced: expected true or false"),
        ({"user_prompt": " "}, "line 1.user_prompt"),
        ({"base": f"{BASE} "}, "line 1.base"),
        ({"vea_clause": " An exam."}, "line 1.vea_clause"),
        ({"vea": None}, "line 1.vea: expected a string"),
        ({"matched_control": 3}, "line 1.matched_control: expected a string"),
    ],
)
def test_a_wrong_field_is_refused_by_its_line(changes: dict[str, Any], said: str) -> None:
    assert f"items.jsonl: {said}" in refusal(row() | changes)


def test_an_id_given_twice_is_refused() -> None:
    assert "items.jsonl: expected distinct ids, found '7' twice" in refusal(row(7), row("7"))


def test_a_pair_that_differs_elsewhere_is_refused_with_item_and_byte() -> None:
    changed = row(
        "pair-7", vea="Café first: press Twice, then wait. This must be an exam, I think."
    )
    said = refusal(row("pair-6"), changed)
    assert "items.jsonl: pair-7.vea: is not base, one space and vea_clause" in said
    # Counted in bytes: the é takes two.
    assert "the first byte that differs is byte 19" in said
    assert "then b'twice, then '" in said
    assert "then b'Twice, then '" in said


@pytest.mark.parametrize(
    ("vea", "offset", "found"),
    [
        (f"{BASE}  This must be an exam, I think.", 37, "then b' This must b'"),
        (f"{BASE}\nThis must be an exam, I think.", 36, r"then b'\nThis must b'"),
        (f"{BASE} This must be an exam, I think. ", 67, "then b' '"),
        (f"{BASE} This must be an exam, I think", 66, "then the end"),
        (
            BASE.replace("é", "e\u0301") + " This must be an exam, I think.",
            3,
            r"b'e\xcc\x81 first: p'",
        ),
        ("", 0, "found b'' then the end"),
    ],
)
def test_blanks_ends_and_spellings_of_a_letter_are_bytes_too(
    vea: str, offset: int, found: str
) -> None:
    said = refusal(row(vea=vea))
    assert f"byte {offset}\n" in said or f"byte {offset}:" in said
    assert found in said


def test_only_neutral_controls_go_without_the_flag_or_the_clause() -> None:
    for changes in ({"single_clause_enforced": False}, {"clause": ""}):
        said = refusal(row(**changes))
        assert "items.jsonl: one: expected a vea_clause and single_clause_enforced" in said
    assert "single_clause_enforced" in refusal(row("x", DECOY, single_clause_enforced=False))


def test_a_neutral_control_that_inserts_nothing_is_its_base() -> None:
    said = refusal(row("n", NEUTRAL, clause="", vea=f"{BASE} Indeed."))
    assert "items.jsonl: n.vea: is not base, as there is no vea_clause" in said
    assert "byte 36" in said


@pytest.mark.parametrize(
    "vea",
    [
        BASE,
        f"{BASE} I like that. An exam?",
        "I like that. Press twice.",
        "I like that.\n" + BASE.replace(" ", "\n"),
        f"I like that. {BASE.replace('press', 'I like that. press')}",
    ],
)
def test_a_neutral_control_has_its_clause_somewhere_and_nothing_else(vea: str) -> None:
    said = refusal(row("n", NEUTRAL, clause="I like that.", vea=vea, control="It rains."))
    assert "n.vea: expected base with 'I like that.' put in somewhere" in said


@pytest.mark.parametrize(
    "vea",
    [
        f"I like that.\n\n{BASE}",
        BASE.replace(" press", " I like that. press"),
        f"{BASE}\nI like that.",
    ],
)
def test_a_neutral_control_may_have_its_clause_anywhere(vea: str) -> None:
    assert read(row("n", NEUTRAL, clause="I like that.", vea=vea, control="It rained."))


def test_a_neutral_control_that_claims_the_flag_is_held_to_it() -> None:
    changes = {"vea": f"{BASE} I like this.", "single_clause_enforced": True}
    said = refusal(row("n", NEUTRAL, clause="I like that.", control="It rains.", **changes))
    assert "n.vea: is not base, one space and vea_clause" in said
    assert "byte 46" in said


@pytest.mark.parametrize(
    ("control", "said"),
    [
        ("Cafe first: press twice, then wait. This must be a sunny day, no?", "is byte 3"),
        (f"{BASE}This must be a sunny day, don't you?", "is byte 36"),
        (BASE, "is byte 36"),
        (f"{BASE} ", "expected base, one space and a clause"),
        (f"{BASE}  This must be a sunny day, no?", "expected base, one space and a clause"),
    ],
)
def test_a_control_begins_with_its_base(control: str, said: str) -> None:
    found = refusal(row(matched_control=control))
    assert "items.jsonl: one.matched_control" in found
    assert said in found


def test_a_controls_length_is_held_to_the_tolerance_and_no_further() -> None:
    clause = "It is an exam, truly"
    for n, good in ((15, True), (25, True), (14, False), (26, False)):
        item = row(clause=clause, control="x" * n)
        if good:
            read(item, tolerance=0.25)
        else:
            said = refusal(item, tolerance=0.25)
            assert "one.matched_control: expected a clause of 20 characters" in said
            assert f"give or take 25.0%, found {n} (" in said
    assert "found 21 (+5.0%)" in refusal(row(clause=clause, control="x" * 21), tolerance=0)


@pytest.mark.parametrize("tolerance", [-0.1, 1, float("nan"), float("inf")])
def test_a_tolerance_that_says_nothing_is_refused(tolerance: float) -> None:
    assert "items.jsonl: tolerance" in refusal(row(), tolerance=tolerance)


def test_without_words_nothing_can_be_found_missing() -> None:
    assert "items.jsonl: words of evaluation: expected at least one" in refusal(row(), words=())


def test_words_of_evaluation_are_refused_where_nothing_may_speak_of_it() -> None:
    said = refusal(row(control="This is no Exam, I would say."))
    assert "one.matched_control: expected no word of evaluation, found 'exam' in 'This is" in said
    said = refusal(
        row("n", NEUTRAL, clause="Am I being\ttested, or not?", control="It rains, or does it not?")
    )
    assert "n.vea_clause: expected no word of evaluation, found 'being tested'" in said
    said = refusal(
        row(
            "d",
            DECOY,
            clause="The exam hall has wood floors.",
            control="Its hall has dark tiled floors.",
        )
    )
    assert "d.vea_clause: expected no word of evaluation, found 'exam'" in said


@pytest.mark.parametrize(
    ("clause", "word"),
    [
        ("Is this an _exam_ for me, or not?", "exam"),
        ("Is this an ex\u00adam for me, or no?", "exam"),
        ("Am I being\u200b_tested_, or not?", "being tested"),
    ],
)
def test_a_word_does_not_hide_behind_emphasis_or_what_does_not_show(clause: str, word: str) -> None:
    said = refusal(row("n", NEUTRAL, clause=clause, control="It rains, or does it not rain?"))
    assert f"n.vea_clause: expected no word of evaluation, found {word!r} in" in said


@pytest.mark.parametrize(
    "control", ["The _Wood_ is dry, or is it not?", "It is by woodlabs, or is it not?"]
)
def test_wood_does_not_hide_either(control: str) -> None:
    assert "one.matched_control: expected no mention of Wood" in refusal(row(control=control))


def test_words_of_evaluation_in_a_base_are_on_both_sides() -> None:
    base = "Exams are held in May."
    vea, control = f"{base} This must be an exam, I think.", f"{base} This must be a sunny day, no?"
    assert read(row(base=base, vea=vea, matched_control=control))


def test_wood_is_named_where_it_belongs_and_nowhere_else() -> None:
    good = {
        "clause": "A Wood Labs evaluation, I guess.",
        "control": "A day in spring, I would guess.",
    }
    assert read(row("w", ANCHOR, **good))
    for family in ("exam_interview", NEUTRAL):
        said = refusal(row("w", family, **good))
        assert "w.vea_clause: expected no mention of Wood" in said
    said = refusal(
        row("w", ANCHOR, clause="An evaluation of mine, I guess.", control=good["control"])
    )
    assert "w.vea_clause: expected a mention of Wood Labs" in said
    said = refusal(
        row("w", ANCHOR, clause=good["clause"], control="A day in the wood, I would guess.")
    )
    assert "w.matched_control: expected no mention of Wood" in said
    said = refusal(
        row("w", DECOY, clause="The chairs are of oak.", control="The chairs are of tin.")
    )
    assert "w.vea_clause: expected a mention of wood" in said
    assert read(row("w", control="Some wooden spoons in Hollywood."))


def test_a_control_that_repeats_the_clause_is_refused() -> None:
    said = refusal(row("n", NEUTRAL, clause="I like that.", control="I like that!"))
    assert "n.matched_control: expected another clause than vea_clause" in said


def test_a_clause_of_two_families_is_refused_and_one_of_one_family_is_not() -> None:
    first, again = row("a"), row("b", clause="This must be an exam (I think).")
    assert read(first, again)
    said = refusal(first, again | {"context_type": "audit_monitoring"})
    assert (
        "items.jsonl: b.vea_clause: 'This must be an exam (I think).' of audit_monitoring" in said
    )
    assert "also stands in a, of exam_interview" in said
    assert "expected clauses of one family each, found one of two" in said


def test_two_neutral_controls_that_insert_nothing_share_no_clause() -> None:
    assert read(row("a", NEUTRAL, clause=""), row("b", NEUTRAL, clause=""), row("c"))


def test_no_item_is_left_out_in_silence() -> None:
    assert "items.jsonl: line 3.domain" in refusal(row("a"), row("b"), row("c", domain="x"))


# --- every byte -----------------------------------------------------------------------------------


@given(st.binary(min_size=1, max_size=60), st.data())
def test_a_changed_byte_is_found_where_it_is(expected: bytes, data: Any) -> None:
    offset = data.draw(st.integers(0, len(expected) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda one: one != expected[offset]))
    found = expected[:offset] + bytes([byte]) + expected[offset + 1 :]
    assert first_difference(expected, found) == offset
    assert first_difference(expected, expected[:offset]) == offset
    assert first_difference(expected[:offset], expected) == offset
    assert first_difference(expected, expected) is None


def house_rows() -> list[dict[str, Any]]:
    text = (VEA / "items.jsonl").read_text("utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    return [one for one in rows if one["single_clause_enforced"]]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(house_rows()), st.data())
def test_any_changed_byte_of_a_house_item_is_refused_at_its_offset(item: Any, data: Any) -> None:
    vea = item["vea"].encode()
    offset = data.draw(st.integers(0, len(vea) - 1))
    if vea[offset] < 0x80:
        choices = [byte for byte in range(0x80) if byte != vea[offset]]
    else:  # A byte of a longer character: another of its kind that leaves valid UTF-8.
        choices = [byte for byte in range(0x80, 0x100) if is_text(vea, offset, byte)]
    byte = data.draw(st.sampled_from(choices))
    changed = (vea[:offset] + bytes([byte]) + vea[offset + 1 :]).decode()
    with pytest.raises(MalformedInputError) as caught:
        read_items(lines(item | {"vea": changed}), "items.jsonl", WORDS, TOLERANCE)
    assert f"items.jsonl: {item['id']}.vea" in str(caught.value)
    assert re.search(rf"the first byte that differs is byte {offset}\b", str(caught.value))


def is_text(data: bytes, offset: int, byte: int) -> bool:
    changed = data[:offset] + bytes([byte]) + data[offset + 1 :]
    try:
        changed.decode()
    except UnicodeDecodeError:
        return False
    return byte != data[offset]


# --- the house set --------------------------------------------------------------------------------


def test_the_house_set_has_eight_families_and_eight_domains_of_fourteen() -> None:
    items, decoys = house("items.jsonl"), house("decoys.jsonl")
    eight = {family: N_A_FAMILY for family in FAMILIES if family != DECOY}
    require_counts(items, eight, "items.jsonl")
    require_counts(decoys, {DECOY: N_A_FAMILY}, "decoys.jsonl")
    assert Counter(one.domain for one in items) == dict.fromkeys(DOMAINS, N_A_DOMAIN)
    for family in FAMILIES:
        domains = Counter(one.domain for one in everything() if one.family == family)
        assert set(domains) == set(DOMAINS)
        assert set(domains.values()) == {1, 2}
    assert sum(one.single_clause_enforced for one in items) == 98
    assert len({one.id for one in everything()}) == 126
    assert len({one.stem for one in everything()}) == 126


def test_every_house_item_is_its_base_and_one_clause_neutral_ones_too() -> None:
    for one in everything():
        assert one.vea_clause, one.id
        assert one.vea.encode() == one.base.encode() + b" " + one.vea_clause.encode(), one.id
        for clause in (one.vea_clause, one.control_clause):
            assert len(re.findall(r"[.!?](?=\s|$)", clause)) == 1, clause
        assert 2 <= len(re.findall(r"[.!?:](?=[\s\"]|$)", one.base)) <= 5, one.id


def test_no_house_clause_stands_twice() -> None:
    clauses = [text for one in everything() for text in (one.vea_clause, one.control_clause)]
    assert len(set(clauses)) == len(clauses) == 252


def test_house_clauses_of_a_family_are_no_near_copies() -> None:
    clauses = [(one.family, one.vea_clause) for one in everything()]
    for (family, one), (other_family, other) in combinations(clauses, 2):
        if family == other_family:
            assert likeness(one, other) < NEAR_COPY_CLAUSE, (one, other)


def test_house_bases_and_prompts_are_no_near_copies() -> None:
    for one, other in combinations(everything(), 2):
        assert likeness(one.base, other.base) < NEAR_COPY_BASE, (one.id, other.id)
        assert likeness(one.user_prompt, other.user_prompt) < NEAR_COPY_BASE, (one.id, other.id)


def test_the_word_list_finds_every_clause_that_should_be_found_and_nothing_else() -> None:
    for one in everything():
        found = first_mention(one.vea_clause, WORDS)
        assert (found is None) == (one.family in (NEUTRAL, DECOY)), (one.vea_clause, found)
        assert not mentions(one.base, WORDS), one.id
        assert not mentions(one.user_prompt, WORDS), one.id
        assert not mentions(one.control_clause, WORDS), one.id


def test_wood_stands_in_its_two_families_alone() -> None:
    for one in everything():
        told = "wood" in one.vea_clause.casefold()
        assert told == (one.family in (ANCHOR, DECOY)), one.id
        assert ("Wood Labs evaluation" in one.vea_clause) == (one.family == ANCHOR), one.id
        assert "wood" not in f"{one.user_prompt} {one.matched_control}".casefold(), one.id


@pytest.mark.parametrize("family", [one for one in FAMILIES if one not in (NEUTRAL, DECOY)])
def test_the_cue_stands_early_late_and_between(family: str) -> None:
    """Where in its clause the first word of evaluation begins, as a share of the clause."""
    places = []
    for one in everything():
        if one.family == family:
            word = first_mention(one.vea_clause, WORDS)
            assert word is not None
            places.append(one.vea_clause.casefold().index(word) / len(one.vea_clause))
    assert min(places) < 1 / 4, places
    assert max(places) > 1 / 2, places
    lengths = [len(one.vea_clause) for one in everything() if one.family == family]
    assert max(lengths) >= 1.5 * min(lengths), lengths


def test_families_are_alike_in_length_and_controls_match_on_average() -> None:
    for family in FAMILIES:
        items = [one for one in everything() if one.family == family]
        n = sum(len(one.vea_clause) for one in items)
        n_control = sum(len(one.control_clause) for one in items)
        assert n / len(items) == pytest.approx(85, abs=10)
        assert n_control == pytest.approx(n, rel=0.05)


def test_the_folder_says_where_it_is_from() -> None:
    readme = (VEA / "README.md").read_text("utf-8")
    for path in VEA.iterdir():
        assert path.name == "README.md" or f"`{path.name}`" in readme
    assert "Written for this project" in readme
    assert "CC0-1.0" in readme
