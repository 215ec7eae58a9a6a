"""What scoring writes reads back as it was, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from eps_locked.canonical import decode, encode
from eps_locked.domain.reward import RewardIdentity, RewardScore
from eps_locked.errors import EvidenceError, MalformedInputError
from eps_locked.studies.vea.derive import requests_of
from eps_locked.studies.vea.gather import frozen_item
from eps_locked.studies.vea.items import read_items
from eps_locked.studies.vea.records import ScoresRecord
from eps_locked.studies.vea.results import item_scores
from sim.vea import item, lines

IDENTITY = RewardIdentity(
    kind="table", model="elsewhere", version="1", settings={"made": "elsewhere"}, publishable=True
)


def score(key: str, value: float | None) -> RewardScore:
    status = "absent" if value is None else "scored"
    return RewardScore(key=key, status=status, value=value, n_tokens=None, note="", tries=0)


def record() -> ScoresRecord:
    return ScoresRecord(
        reward_model="elsewhere",
        identity=IDENTITY.to_dict(),
        scores=(score("a/base", 0.1), score("a/vea", None), score("a/control", -3.0)),
    )


def test_a_record_reads_back_as_it_was() -> None:
    files = record().to_files()
    found = ScoresRecord.from_files(files, "scores")
    assert found == record()
    assert found.to_files() == files
    assert found.by_key["a/control"].value == -3.0


def test_another_file_beside_the_scores_is_refused() -> None:
    with pytest.raises(EvidenceError, match=r"expected scores.json, found notes.txt, scores.json"):
        ScoresRecord.from_files({**record().to_files(), "notes.txt": b""}, "scores")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.update(schema="eps-locked/vea-scores/9"), "schema: expected"),
        (lambda d: d.update(remark=""), "remark: is not a known field"),
        (lambda d: d["identity"].pop("kind"), r"identity\.kind: is missing"),
        (lambda d: d["identity"].update(publishable="yes"), r"identity\.publishable: expected"),
        (lambda d: d["identity"].update(mood="good"), r"identity\.mood: is not a known field"),
        (lambda d: d["scores"][0].update(value=None), r"scores\[0\]\.value: expected a number"),
        (lambda d: d["scores"][1].update(value=0), r"scores\[1\]\.value: expected a number"),
        (lambda d: d["scores"][0].update(status="fine"), r"scores\[0\]\.status: expected"),
        (lambda d: d["scores"][0].update(tries=-1), r"scores\[0\]\.tries: expected"),
    ],
)
def test_another_form_is_refused_naming_the_field(
    change: Callable[[Any], object], words: str
) -> None:
    document = decode(record().to_files()["scores.json"], thing="scores")
    change(document)
    with pytest.raises(MalformedInputError, match=words):
        ScoresRecord.from_files({"scores.json": encode(document)}, "scores")


def test_an_item_without_a_clause_is_told_apart_from_a_tie() -> None:
    data = lines([item("neutral_control", 0, clause="", control=""), item("wood_labs", 1)])
    items = [frozen_item(one) for one in read_items(data.encode(), "items", ["test"], 0.2)]
    scores = tuple(score(request.key, 1.0) for request in requests_of(items))
    rows = item_scores(
        ScoresRecord(reward_model="elsewhere", identity=IDENTITY.to_dict(), scores=scores), items
    )
    assert [(row.item, row.same_text) for row in rows] == [
        ("neutral_control-1", True),
        ("wood_labs-2", False),
    ]
    assert (rows[1].base, rows[1].vea, rows[1].control) == (1.0, 1.0, 1.0)
    assert dict(rows[1].statuses) == dict.fromkeys(("base", "vea", "control"), "scored")
