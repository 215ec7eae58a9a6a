"""A verdict is read strictly: one JSON object of the rubric's form, or nothing at all."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from eps_locked.canonical import encode
from eps_locked.judges.parse import output_schema, parse_verdict
from sim.judge_server import LABELS, small_rubric

RUBRIC = small_rubric()
GOOD = '{"reason": "plain", "label": "yes", "worth": 12.5}'


def read(text: str) -> tuple[str, str | None, dict[str, float], str]:
    return parse_verdict(text, RUBRIC)


def test_verdict_of_the_promised_form_is_scored() -> None:
    assert read(GOOD) == ("scored", "yes", {"worth": 12.5}, "")


@pytest.mark.parametrize(
    "text",
    [
        f"\n  {GOOD}\n\n",
        f"```json\n{GOOD}\n```",
        f"\n```\n{GOOD}\n```\n",
        f"```json\r\n{GOOD}\r\n```",
        '{"label": "yes", "worth": 12.5}',
        '{"worth": 1.25e1, "label": "yes"}',
        '{"reason": "it says ```x```", "label": "yes", "worth": 12.5}',
    ],
)
def test_white_space_one_code_block_and_a_missing_reason_are_taken(text: str) -> None:
    assert read(text) == ("scored", "yes", {"worth": 12.5}, "")


@pytest.mark.parametrize("number", ["0", "100", "-0", "0.0", "1e2", "99.99"])
def test_both_ends_of_the_range_belong_to_it(number: str) -> None:
    status, _, scores, _ = read(f'{{"label": "no", "worth": {number}}}')
    assert status == "scored"
    assert scores == {"worth": float(number)}
    assert str(scores["worth"])[0] != "-"


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("", "empty"),
        (" \n ", "empty"),
        ("I would say yes, 80.", "not one JSON object"),
        (f"Here it is: {GOOD}", "not one JSON object"),
        (f"{GOOD} I hope this helps.", "not one JSON object"),
        (f"{GOOD}\n{GOOD}", "not one JSON object"),
        (f"```json\n{GOOD}\n```\nDone.", "not one JSON object"),
        (f"Sure:\n```json\n{GOOD}\n```", "not one JSON object"),
        (f"```json\n{GOOD}\n```\n```json\n{GOOD}\n```", "not one JSON object"),
        (f"```python\n{GOOD}\n```", "not one JSON object"),
        (f"```{GOOD}```", "not one JSON object"),
        (GOOD[:-1], "not one JSON object"),
        (f"\ufeff{GOOD}", "not one JSON object"),
        (f"[{GOOD}]", "a JSON list"),
        ('"yes"', "a JSON string"),
        ("null", "a JSON null"),
        ("true", "a JSON truth value"),
        ("42", "a JSON number"),
        ("{}", "label is missing"),
        ('{"worth": 3}', "label is missing"),
        ('{"label": "yes"}', "worth is missing"),
        ('{"label": "yes", "worth": null}', "worth: expected a number"),
        ('{"label": "yes", "worth": "80"}', "worth: expected a number, found '80'"),
        ('{"label": "yes", "worth": true}', "worth: expected a number"),
        ('{"label": "yes", "worth": [80]}', "worth: expected a number"),
        ('{"label": "yes", "worth": NaN}', "NaN is not a JSON number"),
        ('{"label": "yes", "worth": Infinity}', "Infinity is not a JSON number"),
        ('{"label": "yes", "worth": 1e999}', "expected 0 to 100, found inf"),
        ('{"label": "yes", "worth": -0.001}', "expected 0 to 100"),
        ('{"label": "yes", "worth": 100.0001}', "expected 0 to 100"),
        (f'{{"label": "yes", "worth": 1{"0" * 400}}}', "expected 0 to 100"),
        (f'{{"label": "yes", "worth": 1{"0" * 5000}}}', "4300 digits"),
        ('{"label": "maybe", "worth": 3}', "found 'maybe'"),
        ('{"label": "Yes", "worth": 3}', "found 'Yes'"),
        ('{"label": " yes", "worth": 3}', "found ' yes'"),
        ('{"label": ["yes"], "worth": 3}', "found ['yes']"),
        ('{"label": {"yes": 1}, "worth": 3}', "label: expected one of"),
        ('{"label": null, "worth": 3}', "found None"),
        ('{"label": "yes", "label": "no", "worth": 3}', "key 'label' is there twice"),
        ('{"label": "yes", "worth": 3, "worth": 3}', "key 'worth' is there twice"),
        ('{"label": "yes", "worth": 3, "reason": {"a": 1, "a": 2}}', "key 'a' is there twice"),
        ('{"label": "yes", "worth": 3, "confidence": 9}', "key 'confidence' is not one"),
        ('{"label": "yes", "worth": 3, "reason": null}', "reason: expected a string"),
        ('{"label": "yes", "worth": 3, "reason": 4}', "reason: expected a string"),
        ('{"label": "yes", "worth": 3, "reason": "a\nb"}', "not one JSON object"),
        ("[" * 100_000, "nested too deeply"),
        ('{"label": "\\ud800", "worth": 3}', "found '\\ud800'"),
        ('{"label": "yes", "worth": "' + "9" * 10_000 + '"}', "..."),
    ],
)
def test_anything_else_is_unreadable_and_the_note_says_why(text: str, about: str) -> None:
    status, label, scores, note = read(text)
    assert (status, label, scores) == ("unreadable", None, {})
    assert about in note
    assert len(note) <= 200
    encode(note)  # fit for a record


@pytest.mark.parametrize("worth", [', "worth": 7', ', "worth": null', ""])
def test_excluded_label_needs_no_scores_and_keeps_none(worth: str) -> None:
    assert read(f'{{"label": "code"{worth}}}') == ("scored", "code", {}, "")


@pytest.mark.parametrize("worth", ['"7"', "101", "true"])
def test_excluded_label_does_not_excuse_a_broken_score(worth: str) -> None:
    assert read(f'{{"label": "code", "worth": {worth}}}')[0] == "unreadable"


def test_schema_is_closed_asks_for_the_reason_first_and_bounds_no_number() -> None:
    schema = output_schema(RUBRIC)
    Draft202012Validator.check_schema(schema)
    assert list(schema["properties"]) == ["reason", "label", "worth"]
    assert schema["required"] == ["reason", "label", "worth"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["label"]["enum"] == list(LABELS)
    # The Messages service refuses a schema with these words.
    assert not {"minimum", "maximum", "multipleOf"} & set(json.dumps(schema).split('"'))


@given(
    st.sampled_from(LABELS),
    st.floats(min_value=0, max_value=100),
    st.text(),
    st.sampled_from([0, 1]),
)
def test_what_the_schema_allows_in_range_is_scored(
    label: str, worth: float, reason: str, indent: int
) -> None:
    value = {"reason": reason, "label": label, "worth": worth}
    assert Draft202012Validator(output_schema(RUBRIC)).is_valid(value)
    status, found, scores, note = read(json.dumps(value, indent=indent or None))
    assert (status, found, note) == ("scored", label, "")
    assert scores == ({} if label == "code" else {"worth": worth})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=6,
)


@given(
    st.text()
    | JSON.map(json.dumps)
    | st.dictionaries(st.sampled_from(["label", "worth", "reason", "x"]), JSON).map(json.dumps)
)
def test_no_text_breaks_the_reader_and_no_score_is_out_of_range(text: str) -> None:
    status, label, scores, note = read(text)
    assert status in ("scored", "unreadable")
    assert (label is not None) == (status == "scored")
    assert bool(note) == (status == "unreadable")
    assert all(0 <= value <= 100 for value in scores.values())


def test_rubric_without_scores_takes_none() -> None:
    rubric = replace(RUBRIC, scores=())
    assert parse_verdict('{"label": "yes"}', rubric) == ("scored", "yes", {}, "")
    assert parse_verdict('{"label": "yes", "worth": 1}', rubric)[0] == "unreadable"
