"""The error tree: distinct exit codes where a caller would act differently, one written table."""

from __future__ import annotations

import re

import pytest

from eps_locked import errors
from eps_locked.errors import EpsLockedError, MalformedInputError


def tree(root: type[EpsLockedError]) -> list[type[EpsLockedError]]:
    return [root, *(one for child in root.__subclasses__() for one in tree(child))]


OURS = [one for one in tree(EpsLockedError) if one.__module__ == "eps_locked.errors"]


def test_every_error_of_the_tree_stands_in_errors() -> None:
    """A class elsewhere would have an exit code that no table shows."""
    assert tree(EpsLockedError) == OURS
    assert sorted(one.__name__ for one in OURS) == sorted(errors.__all__)
    assert all(one.__name__.endswith("Error") for one in OURS)


def test_the_docstrings_table_is_the_tree() -> None:
    rows = dict(re.findall(r"[├└]── (\w+)\s+(\d+)", errors.__doc__ or ""))
    assert rows == {one.__name__: str(one.exit_code) for one in OURS if one is not EpsLockedError}


def test_exit_codes_are_distinct_but_for_the_two_kinds_of_bad_input() -> None:
    codes: dict[int, set[str]] = {}
    for one in OURS[1:]:
        codes.setdefault(one.exit_code, set()).add(one.__name__)
    assert codes == {
        1: {"EvidenceError"},
        2: {"MalformedInputError", "StatsInputError"},
        3: {"RefusedError"},
        4: {"BackendError"},
    }


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "a.json"),
        ({"problem": "is odd"}, "a.json: is odd"),
        ({"expected": 1, "found": 2}, "a.json: expected 1, found 2"),
        ({"expected": 0, "found": None}, "a.json: expected 0, found None"),
        (
            {"problem": "is odd", "expected": 1, "found": 3, "next_step": "mend it"},
            "a.json: is odd: expected 1, found 3\n  next: mend it",
        ),
        ({"details": ("x: 1", "y: 2")}, "a.json\n  x: 1\n  y: 2"),
    ],
)
def test_a_message_names_thing_expected_found_and_next_step_in_this_order(
    arguments: dict[str, object], text: str
) -> None:
    assert str(EpsLockedError("a.json", **arguments)) == text  # type: ignore[arg-type]


# In two halves, so that no scan for secrets takes these for some.
PEM = "-----BEGIN OPENSSH " + "PRIVATE KEY-----"
AGE = "AGE-SECRET-" + "KEY-1QQPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L"


@pytest.mark.parametrize(
    "secret",
    [
        f"{PEM}\nb3BlbnNzaC1rZXktdjEA\n{PEM.replace('BEGIN', 'END')}",
        f"{PEM} b3BlbnNzaC1rZXktdjEA...",
        AGE,
    ],
)
@pytest.mark.parametrize("place", ["expected", "found", "problem", "next_step"])
def test_no_error_repeats_a_private_key(secret: str, place: str) -> None:
    """Somebody names a key's file where a document is wanted; the message must not tell it."""
    error = MalformedInputError("judge.yaml", **{place: f"'{secret}"})  # type: ignore[arg-type]
    assert "b3Bl" not in str(error)
    assert "QQPZ" not in str(error)
    assert "a private key, not shown" in str(error)


def test_a_public_key_is_shown() -> None:
    error = MalformedInputError("signers", found="ssh-ed25519 AAAAC3Nza me@example")
    assert "AAAAC3Nza" in str(error)
