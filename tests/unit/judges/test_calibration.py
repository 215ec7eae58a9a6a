"""A judge beside people's labels, two judges beside each other; nothing lost on the way."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest

from eps_locked.domain.judging import JudgeIdentity, JudgeRequest, Rubric, Verdict
from eps_locked.errors import MalformedInputError
from eps_locked.judges.calibration import (
    Calibration,
    LabelledRow,
    calibrate,
    compare,
    read_labelled,
)
from unit.judges.refusal_rubric import rubric, scored_rubric

REFUSED, PARTLY, DONE = rubric().labels


class Fixed:
    """Says for each answer what the answer says: ``label`` or ``!status``."""

    identity = JudgeIdentity(
        kind="scripted", model="fixed", family="none", version="1", settings={}, publishable=False
    )

    def judge(self, requests: Sequence[JudgeRequest]) -> tuple[Verdict, ...]:
        return tuple(said(one.key, one.answer) for one in requests)


def said(key: str, what: str, *, draw: int = 0, **scores: float) -> Verdict:
    failed = what.startswith("!")
    return Verdict(
        key=key,
        draw=draw,
        status=what[1:] if failed else "scored",
        label=None if failed else what,
        scores=scores,
        model="fixed",
        note="",
        tries=1,
    )


def rows(*pairs: tuple[str, str], cluster: str | None = None) -> list[LabelledRow]:
    return [
        LabelledRow(question=f"q{n}", answer=judged, label=label, cluster=cluster or f"q{n}")
        for n, (label, judged) in enumerate(pairs)
    ]


def calibrated(labelled: list[LabelledRow], under: Rubric | None = None) -> Calibration:
    return calibrate(
        Fixed(), under or rubric(), labelled, rng=np.random.default_rng(1), n_resamples=200
    )


MIXED = [
    (REFUSED, REFUSED),
    (REFUSED, PARTLY),
    (REFUSED, "!judge_refused"),
    (PARTLY, PARTLY),
    (PARTLY, DONE),
    (DONE, DONE),
    (DONE, DONE),
    (DONE, "!outage"),
    (DONE, "!unreadable"),
]


def test_only_scored_verdicts_count_and_all_statuses_are_told():
    found = calibrated(rows(*MIXED))
    assert found.n_rows == 9
    assert found.statuses == {
        "scored": 6,
        "unreadable": 1,
        "judge_refused": 1,
        "rate_limited": 0,
        "outage": 1,
        "truncated": 0,
    }
    assert found.labels.n == 6
    assert found.labels.confusion == ((1, 1, 0), (0, 1, 1), (0, 0, 2))
    assert found.labels.percent_agreement == pytest.approx(4 / 6)
    assert [one.recall for one in found.labels.by_label] == [0.5, 0.5, 1.0]


def test_expressed_lumps_the_labels_that_count():
    found = calibrated(rows(*MIXED)).expressed
    assert found.labels == ("expressed", "not_expressed")
    assert found.confusion == ((3, 1), (0, 2))
    assert calibrated(rows(*MIXED), scored_rubric()).expressed is None


def test_a_calibration_is_json_and_names_judge_and_rubric():
    found = calibrated(rows(*MIXED)).to_dict()
    again = json.loads(json.dumps(found, allow_nan=False))
    assert again == found
    assert found["rubric_digest"] == rubric().digest
    assert found["judge"]["model"] == "fixed"
    assert found["labels"]["kappa"]["low"] <= found["labels"]["kappa"]["value"]


def test_a_judge_that_scores_nothing_has_no_kappa():
    found = calibrated(rows((REFUSED, "!outage"), (DONE, "!rate_limited")))
    assert found.labels.kappa.value is None
    assert found.labels.percent_agreement is None
    json.dumps(found.to_dict(), allow_nan=False)


def test_rows_of_one_cluster_give_no_interval():
    found = calibrated(rows((REFUSED, REFUSED), (DONE, DONE), cluster="same"))
    assert found.labels.kappa.value == 1
    assert found.labels.interval.reason == "fewer than two clusters"


def test_a_label_outside_the_rubric_is_refused():
    with pytest.raises(MalformedInputError, match=r"rows\[1\]\.label"):
        calibrated(rows((DONE, DONE), ("agrees", DONE)))


def test_a_judge_that_loses_a_verdict_is_our_defect():
    class Loses(Fixed):
        def judge(self, requests):
            return super().judge(requests)[:-1]

    with pytest.raises(RuntimeError, match="one verdict for each request"):
        calibrate(Loses(), rubric(), rows(*MIXED), rng=np.random.default_rng(1))


# --- labelled sets --------------------------------------------------------------------------------

GOOD = {
    "schema": "eps-locked/labelled/1",
    "title": "t",
    "provenance": "ours",
    "licence": "CC0-1.0",
    "rubric": "refusal",
    "rows": [
        {"question": "Why?", "answer": "No.", "label": REFUSED},
        {"question": "Why?", "answer": "", "label": DONE, "cluster": "c"},
    ],
}


def test_a_labelled_set_is_read_and_questions_cluster_its_rows():
    found = read_labelled(GOOD, "labelled.yaml")
    assert found.rubric == "refusal"
    assert [row.cluster for row in found.rows] == ["Why?", "c"]
    assert found.rows[1].answer == ""


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"schema": "eps-locked/labelled/2"}, "labelled.yaml.schema"),
        ({"licence": " "}, "labelled.yaml.licence"),
        ({"extra": 1}, "labelled.yaml.extra"),
        ({"rows": []}, "labelled.yaml.rows"),
        ({"rows": [{"question": "Why?", "answer": "No."}]}, r"rows\[0\]\.label"),
        ({"rows": [GOOD["rows"][0] | {"note": "x"}]}, r"rows\[0\]\.note"),
        ({"rows": [GOOD["rows"][0] | {"cluster": ""}]}, r"rows\[0\]\.cluster"),
        ({"rows": [GOOD["rows"][0], GOOD["rows"][0] | {"label": DONE}]}, r"rows\[1\].*once more"),
    ],
)
def test_a_malformed_labelled_set_is_refused_by_name(changes, named):
    with pytest.raises(MalformedInputError, match=named):
        read_labelled(GOOD | changes, "labelled.yaml")


# --- two judges -----------------------------------------------------------------------------------


def compared(first, second, under=None, **more):
    return compare(first, second, under or rubric(), rng=np.random.default_rng(2), **more)


def test_two_judges_meet_where_both_were_asked_and_both_scored():
    first = [said("a", DONE), said("b", REFUSED), said("c", DONE), said("d", "!outage")]
    second = [said("d", DONE), said("c", PARTLY), said("b", REFUSED), said("e", DONE)]
    found = compared(first, second)
    assert (found.n_compared, found.n_only_first, found.n_only_second) == (3, 1, 1)
    assert found.labels.n == 2
    assert found.labels.confusion == ((1, 0, 0), (0, 0, 0), (0, 1, 0))
    assert found.statuses_first["outage"] == 1
    assert found.statuses_second["scored"] == 3
    assert found.expressed.confusion == ((1, 0), (1, 0))
    json.dumps(found.to_dict(), allow_nan=False)


def test_draws_of_one_key_are_matched_by_number_and_belong_together():
    first = [said("a", DONE, draw=0), said("a", REFUSED, draw=1), said("b", DONE)]
    second = [said("a", REFUSED, draw=1), said("a", DONE, draw=0), said("b", DONE)]
    found = compared(first, second)
    assert found.labels.percent_agreement == 1
    assert found.labels.interval.n_clusters == 2
    merged = compared(first, second, clusters={"a": "item", "b": "item"})
    assert merged.labels.interval.n_clusters == 1


def test_scores_are_compared_where_both_have_them():
    under = scored_rubric()
    first = [said("a", DONE, glad=10, coherent=90), said("b", DONE, glad=50, coherent=80)]
    second = [said("a", DONE, glad=30, coherent=90), said("b", DONE, glad=40, coherent=80)]
    found = compared([*first, said("c", REFUSED)], [*second, said("c", DONE, glad=1)], under)
    assert found.scores["glad"].n == 2
    assert found.scores["glad"].mean_difference == pytest.approx(5)
    assert found.scores["glad"].mean_absolute_difference == pytest.approx(15)
    assert compared([], [], under).scores["glad"].mean_difference is None


def test_a_draw_given_twice_is_refused():
    with pytest.raises(MalformedInputError, match="draw 0, twice"):
        compared([said("a", DONE), said("a", DONE)], [])


def test_a_label_of_another_rubric_is_refused():
    with pytest.raises(MalformedInputError, match="second verdicts, a"):
        compared([said("a", DONE)], [said("a", "agrees")])


def test_a_key_without_its_cluster_is_refused():
    with pytest.raises(MalformedInputError, match="cluster for a"):
        compared([said("a", DONE)], [said("a", DONE)], clusters={})
