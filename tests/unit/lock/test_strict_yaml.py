"""The strict subset of YAML agrees with PyYAML wherever both have an opinion."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from eps_locked.errors import MalformedInputError
from eps_locked.lock.strict_yaml import parse_yaml


class NoAliases(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


# Words for numbers that are none are refused, also where they were meant as words. "0E0" is a
# number to YAML 1.2 and to us; PyYAML, of YAML 1.1, writes that text without quotes.
NUMBER = re.compile(r"[-+]?[0-9.]+([eE][-+]?[0-9]+)?")
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=15).filter(
    lambda text: (
        text.lstrip("+-.").lower() not in ("nan", "inf", "infinity") and not NUMBER.fullmatch(text)
    )
)
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**15), 10**15)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
    | st.sampled_from(
        ["no", "yes", "on", "Off", "1:30", "0x10", "0o7", "012", "1_000", "~", "null"]
    )
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(VALUES, st.sampled_from([None, True, False]), st.booleans())
def test_what_pyyaml_dumps_is_read_back_as_the_same_value(
    value: Any, flow: bool | None, unicode: bool
) -> None:
    text = yaml.dump(value, Dumper=NoAliases, default_flow_style=flow, allow_unicode=unicode)
    if set(text) & set("\x85\u2028\u2029"):
        # Line ends to YAML 1.1 and letters to 1.2: nobody could say what was signed.
        with pytest.raises(MalformedInputError, match="has the line end U\\+"):
            parse_yaml(text.encode(), thing="x")
        return
    assert parse_yaml(text.encode(), thing="x") == value


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("ab:-[]{},#&*!|>'\"%@`? \n\t01.~"), max_size=25))
def test_any_text_is_a_value_or_ours_to_refuse(text: str) -> None:
    try:
        value, refusal = parse_yaml(text.encode(), thing="x.yaml"), None
    except MalformedInputError as error:
        value, refusal = None, str(error)
    if refusal is not None:
        assert refusal.startswith("x.yaml")
    elif "!" not in text and "%" not in text:
        # Where we accept, PyYAML reads the same structure (its scalars may mean more: 1:30).
        assert shape(yaml.load(text, Loader=LOADER)) == shape(value)


def shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {"keys": len(value)}
    if isinstance(value, list):
        return [shape(one) for one in value]
    return "scalar"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("True", "True"),
        ("true", True),
        ("NULL", "NULL"),
        ("null", None),
        ("~", None),
        ("''", ""),
        ("1:30", "1:30"),
        ("2026-06-09", "2026-06-09"),
        ("0x1F", "0x1F"),
        ("012", "012"),
        ("1_000", "1_000"),
        ("+5", 5),
        ("-0", 0),
        ("1e3", 1000.0),
        ("1.5", 1.5),
        ("'7'", "7"),
        ('"true"', "true"),
        ("|\n  7\n", "7\n"),
        ("<<", "<<"),
        ("=", "="),
    ],
)
def test_a_plain_scalar_means_one_thing(text: str, value: Any) -> None:
    found = parse_yaml(text.encode(), thing="x")
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("letter", ["\x85", "\u2028", "\u2029"])
def test_a_line_end_that_yaml_versions_read_apart_is_refused(letter: str) -> None:
    for text in (f"a: b{letter}c\n", f'a: "b{letter}c"\n', f"a: b\n# {letter}\n"):
        with pytest.raises(MalformedInputError, match=r"x:[12]: has the line end U\+"):
            parse_yaml(text.encode(), thing="x")
    escaped = f'a: "b\\u{ord(letter):04x}c"'
    assert parse_yaml(escaped.encode(), thing="x") == {"a": f"b{letter}c"}
