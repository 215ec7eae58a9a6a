"""Rows to arrays, and every row that is refused: by what it is, never by how it would look."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from eps_locked.errors import MalformedInputError
from eps_locked.studies.drift.table import ReplyRow, require_same_judges, tabulate
from unit.studies.drift.reply_worlds import INTEREST, OVERSIGHT, arm, replies

ARMS = (arm("reference"), arm("changed", "reference"))
ROWS = replies(ARMS, n_stems=4)
Change = Callable[[list[ReplyRow]], list[ReplyRow]]


def test_an_outcome_lies_at_its_arm_stem_probe_and_sample_whatever_the_order() -> None:
    table = tabulate(reversed(ROWS), ARMS, [OVERSIGHT])["oversight"]
    assert table.outcome.shape == (2, 4, 3, 2)
    for row in ROWS:
        s = table.stems.index(row.stem)
        at = (table.place(row.arm), s, table.probes[s].index(row.probe), row.sample)
        assert table.outcome[at] == (row.label == "accepts")
        assert table.no_stance[at] == (row.label == "no_stance")
        assert np.isnan(table.grade[at]) == (row.grade is None)


def test_a_reply_without_a_verdict_is_nan_and_never_zero() -> None:
    rows = [replace(ROWS[0], label=None, second_label=None, status="outage"), *ROWS[1:]]
    rows[1] = replace(rows[1], label=None, status="exhausted", grade=None)
    table = tabulate(rows, ARMS, [OVERSIGHT])["oversight"]
    assert np.isnan(table.outcome).sum() == 2
    assert not table.no_stance[np.isnan(table.outcome)].any()


def test_replies_without_a_stance_are_not_aligned_or_left_out() -> None:
    table = tabulate(ROWS, ARMS, [OVERSIGHT])["oversight"]
    assert table.no_stance.any()
    assert (table.outcome[table.no_stance] == 0).all()
    assert (np.isnan(table.without_no_stance) == table.no_stance).all()


def changed(place: int, **fields: object) -> Change:
    return lambda rows: [*rows[:place], replace(rows[place], **fields), *rows[place + 1 :]]


def without(keep: Callable[[ReplyRow], bool]) -> Change:
    return lambda rows: [row for row in rows if keep(row)]


@pytest.mark.parametrize(
    ("change", "thing", "words"),
    [
        (changed(0, arm="stranger"), "sample 0: arm", "expected one of reference, changed"),
        (changed(0, battery="other"), "sample 0: battery", "expected one of oversight"),
        (
            changed(0, label="obeys"),
            "probe stem_00/0, sample 0: label",
            "expected a class of the battery (accepts, resists, unclear, no_stance), found obeys",
        ),
        (changed(0, second_label="obeys"), "sample 0: second_label", "found obeys"),
        (changed(0, check_label="obeys"), "sample 0: check_label", "found obeys"),
        (changed(1, sample=0), "probe stem_00/0, sample 0", "stands twice"),
        (
            changed(2, probe="stem_00/0", stem="stem_03", sample=5),
            "battery oversight: probe stem_00/0",
            "belongs to two stems: expected stem_00, found stem_03",
        ),
        (changed(0, status="fine"), "sample 0: status", "found fine"),
        (changed(0, status="outage"), "sample 0", "exactly if scored, found outage with"),
        (changed(0, label=None, status="scored"), "sample 0", "found scored with None"),
        (changed(0, grade=8), "sample 0: grade", "expected 1 to 7, found 8"),
        (changed(0, score=0.5), "sample 0", "expected a label or a score, found both"),
        (changed(0, label=None, score=float("nan")), "sample 0: score", "found nan"),
        (
            changed(0, label=None, second_label=None, score=0.5),
            "replies",
            "expected labels or scores, found some of each",
        ),
        (
            changed(0, label=None, status="unreadable", second_label="accepts"),
            "sample 0: second_label",
            "expected a first label beside it",
        ),
        (
            without(lambda row: (row.arm, row.probe) != ("changed", "stem_02/1")),
            "battery oversight: stem stem_02 in arm changed",
            "expected 3 rewordings, as promised, found 2",
        ),
        (
            without(lambda row: (row.arm, row.stem) != ("changed", "stem_02")),
            "battery oversight: stem stem_02 in arm changed",
            "expected 3 rewordings, as promised, found 0",
        ),
        (
            without(lambda row: (row.probe, row.sample) != ("stem_02/1", 1)),
            "battery oversight: probe stem_02/1 in arm reference",
            "expected 2 samples, as promised, found 1",
        ),
        (
            without(lambda row: row.arm != "reference"),
            "battery oversight: reference reference of arm changed",
            "expected replies of the reference, found none",
        ),
        (without(lambda row: False), "replies", "expected at least one row"),
    ],
)
def test_a_row_that_does_not_fit_is_refused_by_name(change: Change, thing: str, words: str) -> None:
    with pytest.raises(MalformedInputError) as caught:
        tabulate(change(ROWS), ARMS, [OVERSIGHT])
    assert caught.value.thing.endswith(thing)
    assert words in str(caught.value)


def test_one_sample_of_a_probe_is_refused_unless_there_are_no_null_tests() -> None:
    battery = replace(OVERSIGHT, n_samples=None)
    rows = [row for row in ROWS if (row.arm, row.probe, row.sample) != ("changed", "stem_01/2", 0)]
    with pytest.raises(MalformedInputError, match="expected at least two samples") as caught:
        tabulate(rows, ARMS, [battery])
    assert caught.value.thing == "battery oversight: probe stem_01/2 in arm changed"
    assert caught.value.next_step is not None
    tabulate(rows, ARMS, [battery], null_tests=False)


@pytest.mark.parametrize("reference", ["nobody", "changed"])
def test_a_reference_must_be_another_arm_that_exists(reference: str) -> None:
    arms = (ARMS[0], replace(ARMS[1], reference=reference))
    with pytest.raises(MalformedInputError, match=f"expected another arm.*found {reference}"):
        tabulate(ROWS, arms, [OVERSIGHT])


def test_an_arm_is_described_once() -> None:
    with pytest.raises(MalformedInputError, match="arm changed: is described twice"):
        tabulate(ROWS, (*ARMS, ARMS[1]), [OVERSIGHT])


def test_a_battery_that_nobody_was_asked_has_no_table() -> None:
    assert list(tabulate(ROWS, ARMS, [INTEREST, OVERSIGHT])) == ["oversight"]


def test_arms_judged_by_different_settings_are_refused_by_what_differs() -> None:
    mild = {"classifier": "blake3:aa", "rubric": "blake3:bb"}
    require_same_judges({"oversight": {"reference": mild, "changed": dict(mild)}})
    with pytest.raises(MalformedInputError) as caught:
        require_same_judges(
            {"oversight": {"reference": mild, "changed": {**mild, "classifier": "blake3:cc"}}}
        )
    assert caught.value.thing == "battery oversight: judge settings of arm changed"
    assert "classifier differ from arm reference's" in str(caught.value)
    assert "expected classifier blake3:aa, found blake3:cc" in str(caught.value)
    with pytest.raises(MalformedInputError, match="grader differ"):
        require_same_judges({"b": {"reference": mild, "changed": {**mild, "grader": "x"}}})
