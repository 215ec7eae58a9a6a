"""The door of every document: unknown, missing and mistyped fields are refused by path."""

from __future__ import annotations

import re
from typing import Any

import pytest

from eps_locked.domain.clock import format_time, parse_time, time_field
from eps_locked.domain.fields import Fields
from eps_locked.errors import MalformedInputError


def test_a_reader_that_read_everything_closes_in_peace() -> None:
    with Fields({"a": "x", "b": 1, "c": 2.5, "d": True, "e": None}, "doc") as fields:
        assert fields.text("a") == "x"
        assert fields.integer("b") == 1
        assert fields.number("c") == 2.5
        assert fields.flag("d") is True
        assert fields.text_or_none("e") is None


def test_an_unread_key_is_named_with_those_that_are_known() -> None:
    with pytest.raises(MalformedInputError) as caught, Fields({"a": 1, "zz": 2}, "doc") as fields:
        fields.integer("a")
    assert str(caught.value) == "doc.zz: is not a known field\n  next: known here: a"


def test_an_error_inside_is_not_hidden_by_unread_keys() -> None:
    with pytest.raises(ZeroDivisionError), Fields({"a": 1}, "doc"):
        raise ZeroDivisionError


READS: dict[str, Any] = {
    "text": lambda f: f.text("k"),
    "integer": lambda f: f.integer("k"),
    "number": lambda f: f.number("k"),
    "flag": lambda f: f.flag("k"),
    "mapping": lambda f: f.mapping("k"),
    "sub": lambda f: f.sub("k"),
    "texts": lambda f: f.texts("k"),
    "integers": lambda f: f.integers("k"),
    "text_map": lambda f: f.text_map("k"),
    "integer_or_none": lambda f: f.integer_or_none("k"),
    "text_or_none": lambda f: f.text_or_none("k"),
}
VALUES: list[Any] = ["x", 1, 1.5, True, None, {}, {"a": 1}, {"a": "b"}, [], ["x"], [1], [True]]
TAKEN: dict[str, list[Any]] = {
    "text": ["x"],
    "integer": [1],
    "number": [1, 1.5],
    "flag": [True],
    "mapping": [{}, {"a": 1}, {"a": "b"}],
    "sub": [{}, {"a": 1}, {"a": "b"}],
    "texts": [[], ["x"]],
    "integers": [[], [1]],
    "text_map": [{}, {"a": "b"}],
    "integer_or_none": [1, None],
    "text_or_none": ["x", None],
}


@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize("name", READS)
def test_each_reader_takes_its_own_type_and_no_other(name: str, value: Any) -> None:
    fields = Fields({"k": value}, "doc")
    taken = repr(value) in map(repr, TAKEN[name])
    if taken:
        READS[name](fields)
    else:
        with pytest.raises(MalformedInputError, match=r"doc\.k"):
            READS[name](fields)


@pytest.mark.parametrize("name", [n for n in READS if not n.endswith("or_none")])
def test_a_missing_key_is_named(name: str) -> None:
    with pytest.raises(MalformedInputError, match=r"doc\.k: is missing"):
        READS[name](Fields({}, "doc"))


@pytest.mark.parametrize("value", ["x", 7, None, [], True])
def test_only_a_mapping_has_fields(value: object) -> None:
    with pytest.raises(MalformedInputError, match="doc: expected a mapping"):
        Fields(value, "doc")


@pytest.mark.parametrize(
    ("bounds", "good", "bad"),
    [
        ({"low": 0}, [0, 1e300], [-1e-9, float("inf"), float("nan"), 10**400]),
        ({"above": 0}, [1e-9], [0, -1]),
        ({"low": 0, "below": 1}, [0, 0.999], [1, -0.1]),
        ({"high": 0.5}, [0.5, -7], [0.51]),
    ],
)
def test_bounds_of_numbers(bounds: dict[str, float], good: list[Any], bad: list[Any]) -> None:
    for value in good:
        assert Fields({"k": value}, "doc").number("k", **bounds) == value
    for value in bad:
        with pytest.raises(MalformedInputError, match=r"doc\.k: expected a finite number"):
            Fields({"k": value}, "doc").number("k", **bounds)


def test_a_shape_must_match_the_whole_text_newline_and_all() -> None:
    shape = re.compile(r"[a-z]+")
    assert Fields({"k": "abc"}, "doc").text("k", shape=shape) == "abc"
    for value in ("abc\n", "ABC", "", "abc d"):
        with pytest.raises(MalformedInputError, match=r"doc\.k"):
            Fields({"k": value}, "doc").text("k", shape=shape)


def test_a_long_value_is_shortened_in_the_message() -> None:
    with pytest.raises(MalformedInputError) as caught:
        Fields({"k": ["y" * 10_000]}, "doc").text("k")
    assert len(str(caught.value)) < 150


def test_items_of_a_list_are_named_by_their_index() -> None:
    with pytest.raises(MalformedInputError, match=r"doc\.k\[1\]: expected a string, found 7"):
        Fields({"k": ["a", 7]}, "doc").texts("k")


BAD_TIMES = [
    "",
    "2026-06-09",
    "2026-06-09 12:00:00Z",
    "2026-06-09T12:00:00",
    "2026-06-09T12:00:00+00:00",
    "2026-06-09T12:00:00.5Z",
    "2026-6-9T12:00:00Z",
    " 2026-06-09T12:00:00Z",
    "2026-06-09T12:00:00Z\n",
    "٢026-06-09T12:00:00Z",
]


@pytest.mark.parametrize("text", [*BAD_TIMES, "2026-02-30T12:00:00Z", "2026-06-09T24:00:00Z"])
def test_a_time_has_one_spelling(text: str) -> None:
    with pytest.raises(MalformedInputError, match="--at"):
        parse_time(text, thing="--at")


@pytest.mark.parametrize("text", BAD_TIMES)
def test_a_time_in_a_ledger_has_one_shape(text: str) -> None:
    with pytest.raises(MalformedInputError, match=r"doc\.at"):
        time_field(Fields({"at": text}, "doc"), "at")


def test_times_go_there_and_back() -> None:
    text = "2026-06-09T12:00:00Z"
    assert format_time(parse_time(text, thing="x")) == text
    from datetime import datetime

    with pytest.raises(ValueError, match="zone"):
        format_time(datetime(2026, 6, 9))
