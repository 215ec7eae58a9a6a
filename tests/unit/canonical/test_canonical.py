"""Canonical JSON: one spelling for a value, and one value for a spelling."""

from __future__ import annotations

import json
import math
import unicodedata
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from eps_locked.canonical import decode, digest_bytes, digest_value, encode, is_digest, short
from eps_locked.errors import MalformedInputError

MAX = 2**53 - 1

# Everything with a canonical form, keys and texts beyond the Basic Multilingual Plane included.
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=12) | st.sampled_from(
    ["\U0001f600", "\ue000", "\uffff", "\U00010000", "é", "e\u0301", "\x00", "\u2028", '"\\/\b\f']
)
FLOATS = st.floats(allow_nan=False, allow_infinity=False).filter(
    # Whole numbers from 2**53 on are spelled like integers that do not fit, and are refused.
    lambda x: not (x.is_integer() and abs(x) > MAX)
)
SCALARS = st.none() | st.booleans() | st.integers(-MAX, MAX) | FLOATS | TEXTS
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=20,
)


@settings(max_examples=400, deadline=None)
@given(VALUES)
def test_decode_takes_what_encode_writes_and_gives_the_same_bytes(value: Any) -> None:
    data = encode(value)
    again = decode(data, thing="x")
    assert again == value
    assert encode(again) == data


@settings(max_examples=300, deadline=None)
@given(VALUES)
def test_the_fast_path_writes_what_rfc_8785_writes(value: Any) -> None:
    """Seen from outside: decode compares with its own re-encoding, so one wrong byte refuses."""
    data = rfc8785.dumps(value)
    assert encode(value) == data
    assert decode(data, thing="x") == value


@settings(max_examples=200, deadline=None)
@given(VALUES)
def test_any_other_spelling_is_refused(value: Any) -> None:
    canonical = encode(value)
    for other in (
        json.dumps(value, indent=1),
        json.dumps(value, separators=(",", ":")),
        json.dumps(value, separators=(",", ":"), ensure_ascii=False),
        json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=True),
    ):
        data = other.encode("utf-8")
        if data != canonical:
            with pytest.raises(MalformedInputError):
                decode(data, thing="x")


@given(st.dictionaries(TEXTS, SCALARS, min_size=2, max_size=8), st.randoms())
def test_key_order_never_matters(value: dict[str, Any], rng: Any) -> None:
    keys = list(value)
    rng.shuffle(keys)
    assert encode({key: value[key] for key in keys}) == encode(value)


@given(st.binary(max_size=60))
def test_bytes_are_refused_or_canonical(data: bytes) -> None:
    try:
        value, refusal = decode(data, thing="file.json"), "file.json"
    except MalformedInputError as error:
        value, refusal = None, str(error)
    assert refusal.startswith("file.json")
    assert refusal != "file.json" or encode(value) == data


def test_keys_are_ordered_by_utf_16_units_not_by_code_points() -> None:
    """U+1F600 is two surrogates (D83D ...) and so comes before U+E000."""
    assert encode({"\ue000": 1, "\U0001f600": 2}) == '{"\U0001f600":2,"\ue000":1}'.encode()
    with pytest.raises(MalformedInputError, match="canonical form"):
        decode('{"\ue000":1,"\U0001f600":2}'.encode(), thing="x")


def test_one_and_one_point_zero_are_the_same_bytes() -> None:
    assert encode(1) == encode(1.0) == b"1"
    assert digest_value({"a": 1}) == digest_value({"a": 1.0})
    with pytest.raises(MalformedInputError):
        decode(b"1.0", thing="x")


def test_two_spellings_of_an_accented_letter_are_two_values() -> None:
    composed, split = unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é")
    assert encode(composed) != encode(split)
    value = {composed: 1, split: 2}
    assert decode(encode(value), thing="x") == value


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        -math.inf,
        2**53,
        -(2**53),
        10**400,
        "\ud800",
        {"\udfff": 1},
        {1: 2},
        {None: 1},
        {"a": {1, 2}},
        b"bytes",
        object(),
    ],
    ids=lambda value: repr(value)[:20].partition(" at ")[0],
)
def test_a_value_without_canonical_form_is_refused(value: Any) -> None:
    with pytest.raises(MalformedInputError):
        encode(value)
    with pytest.raises(MalformedInputError):
        encode([{"deep": value}])


def test_nesting_without_end_is_refused_both_ways() -> None:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(MalformedInputError):
        encode(value)
    with pytest.raises(MalformedInputError, match="file"):
        decode(b"[" * 100_000 + b"]" * 100_000, thing="file")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "strict JSON"),
        (b" 1", "canonical form"),
        (b"1\n", "canonical form"),
        (b'{"a":1,"a":1}', "duplicate key 'a'"),
        (b'[{"b":{"a":1,"a":2}}]', "duplicate key 'a'"),
        (b"NaN", "NaN is not JSON"),
        (b"-Infinity", "-Infinity is not JSON"),
        (b"[Infinity]", "Infinity is not JSON"),
        (b"9007199254740993", "canonical form"),
        (b"-9007199254740993", "canonical form"),
        (b"1000000000000000000000", "canonical form"),
        (b"1" * 5000, "beyond 2**53 - 1"),
        (b"1e400", "canonical JSON form"),
        (b"1E5", "canonical form"),
        (b"-0", "canonical form"),
        (b"-0.0", "canonical form"),
        (b"0.10", "canonical form"),
        (b'"\\u00e9"', "canonical form"),
        (b'"\\ud800"', "canonical JSON form"),
        (b'{"b":1,"a":2}', "canonical form"),
        (b"\xff", "strict JSON"),
        (b"\xef\xbb\xbf1", "strict JSON"),
        (b"'a'", "strict JSON"),
        (b"[1,]", "strict JSON"),
        (b"1 2", "strict JSON"),
        ("[1]".encode("utf-16"), "strict JSON"),
    ],
)
def test_other_bytes_are_refused_with_the_name_of_their_source(data: bytes, problem: str) -> None:
    with pytest.raises(MalformedInputError) as caught:
        decode(data, thing="ledger.jsonl:7")
    assert str(caught.value).startswith("ledger.jsonl:7")
    assert problem in str(caught.value)


def test_the_largest_safe_integers_pass() -> None:
    for value in (MAX, -MAX, 0):
        assert decode(encode(value), thing="x") == value


def test_digests_carry_their_algorithm() -> None:
    digest = digest_bytes(b"abc")
    # The reference implementation's test vector for b"abc".
    assert digest == "blake3:6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"
    assert is_digest(digest)
    assert short(digest) == "blake3:6437b3ac3846"
    assert short(None) == "none"


@pytest.mark.parametrize(
    "text",
    [
        None,
        7,
        "",
        "blake3:",
        "blake3:" + "a" * 63,
        "blake3:" + "a" * 65,
        "blake3:" + "A" * 64,
        "blake3:" + "g" * 64,
        "sha256:" + "a" * 64,
        "a" * 64,
        "blake3:" + "a" * 64 + "\n",
        "BLAKE3:" + "a" * 64,
        "blake3:" + "\u0661" * 64,
    ],
)
def test_what_is_no_digest(text: object) -> None:
    assert not is_digest(text)


@pytest.mark.parametrize(
    "value", [2.0**53, -(2.0**53), 2.0**53 + 2, 1e17, 1.2e20, 999999999999999900000.0, 1e21, 1e300]
)
def test_large_doubles_are_read_back_as_they_were_written(value: float) -> None:
    """From 2^53 to below 1e21 a double is written without a point, as an integer would be."""
    found = decode(encode([value]), thing="x")[0]
    assert type(found) is float
    assert found == value
