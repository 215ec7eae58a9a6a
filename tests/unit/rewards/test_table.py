"""Scores made elsewhere: read as they are, and refused where they are of something else."""

from __future__ import annotations

import pytest

from eps_locked.canonical import digest_bytes
from eps_locked.domain.reward import RewardRequest
from eps_locked.errors import MalformedInputError
from eps_locked.rewards.table import TableReward, read_table

HEADER = "item,response,score\n"
REQUESTS = tuple(
    RewardRequest(key=f"{item}/{response}", user_prompt="Why?", response=f"{item} {response}.")
    for item in ("a", "b/1")
    for response in ("base", "vea", "control")
)


def table(text: str) -> TableReward:
    return TableReward(text.encode(), name="elsewhere", thing="scores.csv")


def test_each_response_gets_its_own_score_in_the_order_of_asking() -> None:
    rows = ["b/1,control,6\n", "a,vea,2\n", "a,base,1.5\n", "b/1,vea,-5e-1\n"]
    scores = table(HEADER + "".join(rows)).score(REQUESTS)
    assert [(one.key, one.status, one.value) for one in scores] == [
        ("a/base", "scored", 1.5),
        ("a/vea", "scored", 2.0),
        ("a/control", "absent", None),
        ("b/1/base", "absent", None),
        ("b/1/vea", "scored", -0.5),
        ("b/1/control", "scored", 6.0),
    ]


def test_no_number_is_no_zero() -> None:
    scores = table(HEADER + "a,base,nan\na,vea,-1e61\na,control,\nb/1,base,1e999\n").score(REQUESTS)
    assert [(one.status, one.value) for one in scores[:4]] == [
        ("not_finite", None),
        ("not_finite", None),
        ("absent", None),
        ("not_finite", None),
    ]
    assert "line 4" in scores[2].note
    assert scores[4].note == "no row in the table"


def test_a_digest_is_held_against_our_text_where_it_is_given() -> None:
    header = "item,response,score,digest\n"
    right = digest_bytes(b"a base.")
    scores = table(f"{header}a,base,1,{right}\na,vea,2,\n").score(REQUESTS)
    assert [one.value for one in scores[:2]] == [1.0, 2.0]
    with pytest.raises(MalformedInputError, match="line 2: is about another text than a/vea"):
        table(f"{header}a,vea,1,{right}\n").score(REQUESTS)


def test_a_row_that_nobody_asked_for_is_refused() -> None:
    with pytest.raises(MalformedInputError, match="line 3: expected an item of the plan, found c"):
        table(HEADER + "a,base,1\nc,base,2\n").score(REQUESTS)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "line 1: expected the columns item, response, score"),
        (b"item,score\na,1\n", "line 1: expected the columns"),
        (b"item,response,score,note\na,base,1,x\n", "line 1: expected the columns"),
        (b"item,response,score,score\na,base,1,1\n", "line 1: expected the columns"),
        (HEADER.encode(), "expected at least one score, found none"),
        (b"item,response,score\na,base\n", "line 2: expected 3 cells, found 2"),
        (b"item,response,score\na,middle,1\n", "line 2: expected an item, and one of base, vea"),
        (b"item,response,score\n,base,1\n", "line 2: expected an item"),
        (b"item,response,score\na,base,high\n", "line 2: score: expected a number"),
        (b"item,response,score\na,base,1_000\n", "line 2: score: expected a number"),
        (b"item,response,score\na,base,1\na,base,1\n", "line 3: expected one score for each"),
        (b"item,response,score\n\xff,base,1\n", "expected UTF-8"),
        (b'item,response,score\n"a,base,1\n', "is not CSV"),
        (b"item,response,score,digest\na,base,1,md5:0\n", "line 2: digest: expected blake3:"),
    ],
)
def test_a_table_of_another_form_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(MalformedInputError, match=words) as caught:
        read_table(data, "scores.csv")
    assert "scores.csv" in str(caught.value)


def test_the_identity_names_the_bytes() -> None:
    one, other = table(HEADER + "a,base,1\n"), table(HEADER + "a,base,2\n")
    assert one.identity.kind == "table"
    assert one.identity.version != other.identity.version
    assert one.identity.version == digest_bytes((HEADER + "a,base,1\n").encode())
