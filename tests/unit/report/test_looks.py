"""Looks: all counted, each with its end, several read together."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from big import big_tensor, sealed
from documents import final_document, look, scores_document, submission
from reader import PageReader, TableReader
from words import EVIL, RECIPIENT

from eps_locked.errors import EvidenceError, MalformedInputError
from eps_locked.lock.looks import Scored
from eps_locked.report.custody import custody
from eps_locked.report.looks import look_sections, look_sheets, looks_in_short
from eps_locked.report.page import files_of, page, report_files
from eps_locked.report.score_rows import POOLED
from eps_locked.report.tensors import gather, require_sealed
from eps_locked.stats.multiplicity import holm
from sim.simulator import StudySimulator

# Fields that only a reading can fill.
HIDDEN = {"g", "low", "high", "g_base_answer", "trained_log_prob", "emission_rate", "n"}
Looks = tuple[tuple[dict[str, Any], ...], tuple[dict[str, Any], ...]]


@pytest.fixture
def three() -> Looks:
    """A scored look, an aborted one at the same submission, an informed one at a second."""
    submissions = (submission(1), submission(2, before=2))
    looks = (
        look(1, submissions[0], final_document("metric_1")),
        look(2, submissions[0], None),
        look(3, submissions[1], final_document("metric_2", seed=3)),
    )
    return looks, submissions


def scored(metric: str, **more: Any) -> Scored:
    document = final_document(metric, **more)
    return Scored(public=document, details=document)


def test_no_look_is_said_so() -> None:
    text = PageReader(look_sections((), ()).encode()).text
    assert "No look at the sealed cells was taken; 0 submissions frozen." in text
    assert all(not sheet.rows for sheet in look_sheets((), ()).values())


def test_looks_are_counted_in_all_and_per_submission_aborted_ones_too(three: Looks) -> None:
    text = looks_in_short(*three)
    assert text.startswith("3 looks in all; 2 submissions frozen, at most 2 looks at one of them.")
    assert "1 gave no score and counts all the same." in text
    assert "1 was at a submission whose author had seen a score" in text
    sheets = look_sheets(*three)
    assert [row["n_looks"] for row in sheets["submissions"].rows] == [2, 1]
    assert [row["nth_of_submission"] for row in sheets["looks"].rows] == [1, 2, 1]
    assert [row["status"] for row in sheets["looks"].rows] == ["scored", "aborted", "scored"]


def test_each_look_shows_author_mark_and_result_or_how_it_ended(three: Looks) -> None:
    looks, submissions = three
    tables = TableReader(look_sections(looks, submissions)).tables
    rows = next(t for t in tables if t.caption.startswith("Every look")).rows
    assert [row[6] for row in rows] == ["no", "no", "informed"]
    assert [row[7] for row in rows] == ["✓ scored", "✗ aborted", "✓ scored"]
    assert rows[1][8] == "cut short: no end was recorded"
    text = PageReader(look_sections(looks, submissions).encode()).text
    assert "Look 3: My metric, informed" in text
    assert "Look 2:" not in text
    assert text.count("The intervals overlap. Carries over: yes.") == 4
    assert "18 cells, at least 20 needed" in text


def test_one_look_needs_no_adjustment(three: Looks) -> None:
    looks, submissions = three
    text = PageReader(look_sections(looks[:1], submissions).encode()).text
    assert "Read over all looks" not in text
    assert "Not adjusted" not in text


def test_more_than_one_look_is_read_with_holm_and_a_wider_interval(three: Looks) -> None:
    looks, submissions = three
    rows = look_sheets(looks, submissions)["looks-adjusted"].rows
    assert [(row["look"], row["measure"]) for row in rows] == [
        (1, "Spearman"),
        (3, "Spearman"),
        (1, "R2"),
        (3, "R2"),
    ]
    for measure, key in (("Spearman", "spearman"), ("R2", "r2")):
        score = [
            one["result"]["behaviours"][0]["scores"][0]["splits"]["all"][key]
            for one in (looks[0], looks[2])
        ]
        # The aborted look stands in with p = 1: leaving it out would forgive it.
        expected = holm([score[0]["null"]["p"], 1.0, score[1]["null"]["p"]])[[0, 2]]
        found = [row for row in rows if row["measure"] == measure]
        assert np.allclose([row["holm"] for row in found], expected)
        assert all(row["holm"] >= row["p"] for row in found)
        level = score[0]["levels"][2]
        assert (found[0]["adjusted_low"], found[0]["adjusted_high"]) == (
            level["low"],
            level["high"],
        )
    text = PageReader(look_sections(looks, submissions).encode()).text
    assert "The intervals are at 98.33 % instead of 95 %." in text
    assert "Not adjusted for the number of looks; see below." in text


def test_beyond_the_levels_of_the_document_no_interval_is_made_up() -> None:
    one = submission(1)
    looks = [look(n, one, final_document("metric_1")) for n in range(1, 22)]
    rows = look_sheets(looks, [one])["looks-adjusted"].rows
    assert len(rows) == 2 * 21
    assert {(row["adjusted_low"], row["adjusted_high"]) for row in rows} == {(None, None)}


def test_several_behaviours_are_read_one_by_one_and_pooled(three: Looks) -> None:
    _, submissions = three
    names = ("marker", "fact")
    looks = [look(n, submissions[0], final_document("m", names, seed=n)) for n in (1, 2)]
    rows = look_sheets(looks, submissions)["looks-adjusted"].rows
    assert list(dict.fromkeys(row["behaviour"] for row in rows)) == [*names, POOLED]
    tables = TableReader(look_sections(looks, submissions)).tables
    assert sum("held-back cells" in table.caption for table in tables) == 2 * 3 + 1


def test_results_carry_their_label_and_a_mixture_is_exploratory(three: Looks) -> None:
    looks, submissions = three
    mixed = {**looks[2], "result": {**looks[2]["result"], "label": "exploratory"}}
    tables = TableReader(look_sections((*looks[:2], mixed), submissions)).tables
    captions = [t.caption.split()[0] for t in tables[2:]]
    assert captions == ["confirmatory", "exploratory", "exploratory"]


def test_a_result_of_another_form_is_refused(three: Looks) -> None:
    looks, submissions = three
    odd = {**looks[0], "result": {**looks[0]["result"], "schema": "eps-locked/scores/1"}}
    with pytest.raises(MalformedInputError, match="final-scores"):
        look_sheets((odd,), submissions)


def test_names_from_authors_stay_text() -> None:
    odd = submission(author=EVIL)
    read = PageReader(look_sections((look(1, odd, None, reason=EVIL),), (odd,)).encode())
    assert "script" not in {name for name, _ in read.elements}
    assert read.text.count(EVIL) == 3


def test_a_score_cannot_be_called_confirmatory_without_a_promise(
    finished: StudySimulator, three: Looks
) -> None:
    evidence = gather(finished.audit())
    scores = scores_document()
    files_of(evidence, scores)
    with pytest.raises(EvidenceError, match="analyses do not list scores"):
        files_of(evidence, {**scores, "label": "confirmatory"})
    looked = replace(evidence, looks=three[0], submissions=three[1])
    with pytest.raises(EvidenceError, match=r"look 1.*analyses do not list final_test"):
        files_of(looked, scores)
    promised = replace(looked, plan={**looked.plan, "analyses": ["final_test"]})
    assert "looks-adjusted.csv" in files_of(promised, scores)


def test_the_number_of_looks_stands_with_the_verdict(
    finished: StudySimulator, three: Looks
) -> None:
    evidence = gather(finished.audit())
    looked = replace(evidence, looks=three[0], submissions=three[1])
    text = PageReader(page(looked)).text
    assert text.index("looks 3 looks in all") < text.index("Transfer of")


@pytest.mark.parametrize(
    ("recipients", "comment", "publication", "words"),
    [
        ("keys/demo_custodian", "", False, "Demo custody: the demonstration made the custodian"),
        ("keys/custodian", "# demo custody\n", False, "Demo custody: "),
        ("keys/custodian", "", False, "Custody not vouched for: the plan is not for publication"),
        ("keys/custodian", "", True, None),
    ],
)
def test_custody_is_said_plainly(
    finished: StudySimulator,
    recipients: str,
    comment: str,
    publication: bool,
    words: str | None,
) -> None:
    evidence = gather(finished.audit())
    rules = {**evidence.study["quarantine"], "seal": "age", "recipients": recipients}
    manifest = replace(evidence.manifest, publication=publication)
    evidence = replace(
        evidence,
        frozen=replace(evidence.frozen, manifest=manifest),
        split={**evidence.split, "seal": "age"},
        recipients=f"{comment}{RECIPIENT}\n",
        plan={**evidence.plan, "eps": {**evidence.study, "quarantine": rules}},
    )
    text = PageReader(custody(evidence).encode()).text
    assert "2 held-out and 1 quarantined cells are sealed" in text
    assert "The runner holds no key." in text
    assert RECIPIENT in text
    assert "without this ledger" in text
    assert (words in text) if words else ("Demo" not in text and "vouched" not in text)


def test_a_cell_that_the_manifest_seals_must_be_sealed_in_the_tensor() -> None:
    tensor = big_tensor()
    fates = {f"marker/{c['train']}/{c['eval']}": c["split"] for c in tensor["cells"]}
    split = {"seal": "age", "cells": fates}
    require_sealed(sealed(tensor), split, "P1/tensor/marker")
    require_sealed(tensor, {**split, "seal": "none"}, "P1/tensor/marker")
    with pytest.raises(EvidenceError, match="a cell in plain text"):
        require_sealed(tensor, split, "P1/tensor/marker")


def test_a_sealed_run_with_three_looks_is_read_from_its_ledger(study: StudySimulator) -> None:
    study.plan["analyses"] = ["tensor", "final_test"]
    study.plan["eps"]["scoring"] = {
        "n_resamples": 100,
        "n_permutations": 99,
        "n_part_permutations": 49,
        "n_combiner_permutations": 19,
        "confidence_level": 0.95,
        "alpha": 0.05,
        "minimum_cells": 12,
        "seed": 3,
    }
    study.seal().run_all()
    study.check()
    study.submit()
    study.check()
    study.look(score=lambda submission, key: scored("guess"))
    study.check()

    def stopped(submission: object, key: object) -> dict[str, Any]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study.look(score=stopped)
    study.submit(study.predictor("second"))
    study.check()
    study.look(2, score=lambda submission, key: scored("second", seed=4))
    audited = study.audit()
    files = report_files(audited)
    text = PageReader(files["index.html"]).text
    assert "3 looks in all; 2 submissions frozen, at most 2 looks at one of them." in text
    assert "1 was at a submission whose author had seen a score" in text
    tables = {t.attributes["data-csv"]: t for t in TableReader(files["index.html"]).tables}
    looks = tables["looks.csv"].rows
    assert [row[7] for row in looks] == ["✓ scored", "✗ aborted", "✓ scored"]
    assert [row[6] for row in looks] == ["no", "no", "informed"]
    assert looks[1][8] == "interrupted"
    assert "2 held-out and 1 quarantined cells are sealed" in text
    assert study.plan["eps"]["quarantine"]["recipients"] == "keys/custodian"
    assert "age1" in text
    assert len(tables["looks-adjusted.csv"].rows) == 4
    ledger = [row for row in files["ledger.csv"].decode().splitlines() if ",look," in row]
    assert len(ledger) == 3


def test_no_value_of_a_sealed_cell_is_in_any_file_of_the_report(study: StudySimulator) -> None:
    study.seal().run_all()
    files = report_files(study.audit())
    tensor = json.loads(files["tensor.json"])
    hidden = [cell for cell in tensor["cells"] if "sealed" in cell["flags"]]
    assert len(hidden) == 3
    rows = list(csv.DictReader(io.StringIO(files["cells.csv"].decode())))
    for cell in hidden:
        row = next(r for r in rows if (r["train"], r["eval"]) == (cell["train"], cell["eval"]))
        told = {k for k, v in row.items() if v and k.split("_s1")[0] in HIDDEN}
        assert told == set()
    page = PageReader(files["index.html"])
    shown = [a for a in page.heat_cells() if "sealed" in a.get("class", "").split()]
    assert len(shown) == 2 * 3
