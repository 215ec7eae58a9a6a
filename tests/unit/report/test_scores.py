"""The scores on the page and in the terminal: everything beside what would explain it away."""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from typing import Any

import pytest
from documents import METRICS, look, scores_document, submission
from reader import PageReader, TableReader

from eps_locked.errors import MalformedInputError
from eps_locked.report.figures import bar, whisker
from eps_locked.report.looks import look_sections, look_sheets
from eps_locked.report.score_rows import POOLED, beyond, groups, require_scores
from eps_locked.report.score_sections import score_anchors, score_sections
from eps_locked.report.score_sheets import score_sheets
from eps_locked.report.score_summary import in_short
from eps_locked.report.score_text import score_text
from eps_locked.scoring.final import score_final
from eps_locked.scoring.score import score_open
from unit.scoring.worlds import QUICK, noise, predictor, table, tensor

FEW = replace(QUICK, n_permutations=19, n_part_permutations=19, n_combiner_permutations=19)
# A mirror pair that is held back.
PAIR = {"c02", "c05"}


@pytest.fixture
def scores() -> dict[str, Any]:
    return scores_document(("marker", "fact"), 4)


def test_without_a_document_the_page_says_that_nothing_was_scored() -> None:
    read = PageReader(score_sections(None).encode())
    assert "Nothing was scored." in read.text
    assert score_anchors(None) == [("scores-1", "Scores")]
    assert score_sheets(None) == {}


def test_each_behaviour_comes_first_and_the_pool_last(scores: dict[str, Any]) -> None:
    read = PageReader(score_sections(scores).encode())
    at = [read.text.index(w) for w in ("Scores on “marker”", "Scores on “fact”", POOLED)]
    assert at == sorted(at)
    identifiers = {a["id"] for _, a in read.elements if "id" in a}
    assert {anchor for anchor, _ in score_anchors(scores)} <= identifiers
    alone = scores_document(("marker",), 4)
    text = PageReader(score_sections(alone).encode()).text
    assert POOLED not in text
    assert "one behaviour: nothing to pool" in text


@pytest.mark.parametrize("label", ["confirmatory", "exploratory"])
def test_every_table_of_scores_carries_the_computed_label(
    scores: dict[str, Any], label: str
) -> None:
    tables = TableReader(score_sections({**scores, "label": label})).tables
    assert len(tables) >= 2 * 14
    assert {table.caption.split()[0] for table in tables} == {label}


def test_the_leaderboard_is_ordered_by_out_of_fold_r2_with_the_undefined_last(
    scores: dict[str, Any],
) -> None:
    first = scores["behaviours"][0]
    r2 = [0.1, None, 0.3, -2.0]
    for one, value in zip(first["predictors"], r2, strict=True):
        one["r2"]["leave_two_out"]["value"] = value
    rows = score_sheets(scores)["leaderboard"].where(behaviour="marker").rows
    assert [row["r2"] for row in rows] == [0.3, 0.1, -2.0, None]
    assert [row["rank"] for row in rows] == [1, 2, 3, 4]


def test_beside_every_r2_stand_its_null_and_the_additive_model(scores: dict[str, Any]) -> None:
    for name in ("leaderboard", "parts", "over-additive"):
        sheet = score_sheets(scores)[name]
        heads = [column.head for column in sheet.columns]
        assert any("permuted" in head for head in heads), name
        assert any("R², additive" in head for head in heads), name
        assert all(row["additive_r2"] is not None for row in sheet.rows)
    combiners = score_sheets(scores)["combiners"]
    assert {"best_single_r2", "additive_r2", "delta_r2_null"} <= set(combiners.rows[0])
    assert {row["part"] for row in combiners.rows} == {"all cells", "symmetric", "antisymmetric"}


def test_what_is_undefined_says_why(scores: dict[str, Any]) -> None:
    text = PageReader(score_sections(scores).encode()).text
    for words in (
        "6 cells, at least 12 needed",
        "the metric gives no blind values",
        "the metric gives one value per eval context: rows cannot differ",
        "2 of 61 cells at a bound (3.3 %), below 10 %",
        "0 by construction",
        "covers 91.0 %",
    ):
        assert words in text
    assert "nan" not in text.lower().split()
    assert "None" not in text


def lead(scores: dict[str, Any], number: int = 0) -> str:
    return PageReader(in_short(scores, groups(scores)[number]).encode()).text


def set_nulls(group: dict[str, Any], p: float, n: int = 999) -> None:
    """The same p for every measure and combiner of a behaviour."""
    for one in group["predictors"]:
        for measure in (one["spearman"], one["r2"]["leave_two_out"], beyond(one)["delta_r2"]):
            measure["null"].update(p=p, n=n)
    for one in group["combiners"]:
        for measure in (one["r2"], one["delta_r2"]):
            measure["null"].update(p=p, n=n)
    for row in group["multiplicity"]:
        row.update(p=p, holm=min(1.0, 4 * p))


def test_the_first_sentences_say_how_many_cells_and_who_is_best(scores: dict[str, Any]) -> None:
    first = scores["behaviours"][0]
    best = first["predictors"][2]
    best["r2"]["leave_two_out"].update(
        value=0.61, low=-4000.0, high=0.8, coverage_reached=False, simulated_coverage=0.891
    )
    best["r2"]["leave_two_out"]["null"].update(mean=-150.0, high=0.2)
    text = lead(scores)
    assert text.startswith("59 of 60 cells are scored. Best of 4 predictors by R² out of fold: ")
    assert "Bystander prior, 0.61 [below −99, 0.80] (covers 89.1 %)" in text
    assert "permuted below −99, 95 % below 0.20; Holm p 0.016." in text
    assert "could have been seen (power 80 %, before Holm): 0.47." in text
    assert lead(scores, 2).startswith("118 cells of 2 behaviours are pooled.")
    html = score_sections(scores)
    assert html.index('class="lead"') < html.index("<h3")
    assert html.count('class="lead"') == 3


def test_nothing_is_said_plainly_when_nothing_differs_from_its_null(
    scores: dict[str, Any],
) -> None:
    first = scores["behaviours"][0]
    set_nulls(first, 0.02)
    text = lead(scores)
    assert (
        "Nothing here is distinguishable from its null: no R², Spearman, gain over rows and "
        "columns, combiner's R² or combiner's gain has a Holm p of 0.05 or less."
    ) in text
    assert "could (" not in text
    # Four predictors and 79 relabellings: 4 / 80 can still be reached, 4 / 79 cannot.
    set_nulls(first, 0.02, n=79)
    assert "could (" not in lead(scores)
    set_nulls(first, 0.02, n=78)
    assert "No R² could (78 relabellings leave it at 0.051 or more); no Spearman could" in lead(
        scores
    )


@pytest.mark.parametrize("what", ["spearman", "gain", "combiner"])
def test_one_measure_that_differs_is_named_and_nothing_is_not_said(
    scores: dict[str, Any], what: str
) -> None:
    first = scores["behaviours"][0]
    set_nulls(first, 0.3)
    one = first["predictors"][1]
    measure, said = {
        "spearman": (one["spearman"], "Spearman: One-way output KL."),
        "gain": (beyond(one)["delta_r2"], "gain over rows and columns: One-way output KL."),
        "combiner": (first["combiners"][0]["r2"], "combiner's R²: ridge."),
    }[what]
    measure["null"]["p"] = 0.0125  # four tests: exactly 0.05 after Holm
    text = lead(scores)
    assert f"After Holm (p ≤ 0.05) these differ from their null: {said}" in text
    assert "Nothing here" not in text
    measure["null"]["p"] = 0.0126
    assert "Nothing here" in lead(scores)


def test_better_than_relabelled_but_worse_than_the_mean_is_said(scores: dict[str, Any]) -> None:
    first = scores["behaviours"][0]
    set_nulls(first, 0.3)
    first["predictors"][0]["r2"]["leave_two_out"]["value"] = -0.1
    first["multiplicity"][0]["holm"] = 0.01
    assert "null: R²: Symmetric Gaussian KL (none above 0)." in lead(scores)


def test_the_additive_model_stands_in_the_first_sentences(scores: dict[str, Any]) -> None:
    first = scores["behaviours"][0]
    for one, gain in zip(first["predictors"], (0.03, -0.1, 0.01, 0.02), strict=True):
        beyond(one)["delta_r2"]["value"] = gain
        one["r2"]["leave_two_out"]["value"] = 0.2
    text = lead(scores)
    assert "Rows and columns alone reach an R² of 0.66; no predictor's own R² does" in text
    assert "the largest gain on top is that of Symmetric Gaussian KL, +0.03 (Holm p " in text
    for one in first["predictors"]:
        beyond(one)["delta_r2"]["value"] = -0.01
    assert lead(scores).endswith("no predictor's own R² does, and none adds to it.")
    first["predictors"][3]["r2"]["leave_two_out"]["value"] = 0.7
    assert "above that: Source prior, and none adds to it." in lead(scores)


def test_without_a_predictor_only_the_cells_are_counted(scores: dict[str, Any]) -> None:
    first = scores["behaviours"][0]
    first.update(predictors=[], multiplicity=[], combiners=[])
    assert lead(scores) == "59 of 60 cells are scored."


def test_gates_are_words_and_signs_not_colours_alone(scores: dict[str, Any]) -> None:
    tables = TableReader(score_sections(scores)).tables
    rows = next(table.rows for table in tables if "right way" in table.caption)
    texts = {row[2] for row in rows}
    assert texts == {"✓ passed", "✗ failed", "? undetermined"}
    assert rows[0][0].startswith("measured G")


def test_sensitivity_begins_with_the_scores_as_they_are(scores: dict[str, Any]) -> None:
    rows = score_sheets(scores)["sensitivity"].rows
    assert [row["included"] for row in rows[:2]] == ["nothing: as scored", "ceiling, floor"]
    by_metric = {one["metric"]: one for one in scores["behaviours"][0]["predictors"]}
    assert rows[0]["r2"] == by_metric[rows[0]["metric"]]["r2"]["leave_two_out"]["value"]


def test_decomposition_bars_add_up_to_the_whole_twice(scores: dict[str, Any]) -> None:
    rows = score_sheets(scores)["decomposition"].where(behaviour="fact").rows
    share = {row["part"]: row["share"] for row in rows}
    assert share["symmetric"] + share["antisymmetric"] == pytest.approx(1)
    assert share["additive"] + share["interaction"] == pytest.approx(1)
    assert 0 < share["noise"] < 0.1
    html = score_sections(scores)
    widths = [float(w) for w in re.findall(r'class="fill symmetric" style="width:([\d.]+)%', html)]
    assert widths[1] == pytest.approx(100 * share["symmetric"], abs=0.06)
    assert html.count('class="share" aria-hidden="true"') == 2 * 5


def test_a_square_part_that_cannot_be_taken_apart_has_no_bars_and_a_reason(
    scores: dict[str, Any],
) -> None:
    scores["behaviours"][0]["decomposition"] = {"reason": "2 mirror pairs with both cells scored"}
    text = PageReader(score_sections(scores).encode()).text
    assert text.count("Decomposition of G") == 1
    assert "marker: 2 mirror pairs with both cells scored" in text
    assert "antisymmetric" in score_text(scores)


def test_without_noise_the_shares_stand_alone(scores: dict[str, Any]) -> None:
    for group in scores["behaviours"]:
        group["decomposition"]["noise"] = None
    text = PageReader(score_sections(scores).encode()).text
    assert text.count("The noise could not be estimated") == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [({"schema": "eps-locked/scores/9"}, "eps-locked/scores/1"), ({"label": "proven"}, "label")],
)
def test_another_form_or_label_is_refused(
    scores: dict[str, Any], change: dict[str, str], words: str
) -> None:
    with pytest.raises(MalformedInputError, match=words):
        require_scores({**scores, **change})
    with pytest.raises(MalformedInputError):
        score_text({**scores, **change})


def test_titles_from_authors_stay_text(scores: dict[str, Any]) -> None:
    evil = "<script>alert(1)</script>"
    scores["predictors"][0]["title"] = evil
    read = PageReader(score_sections(scores).encode())
    assert "script" not in {name for name, _ in read.elements}
    assert evil in read.text


def test_the_terminal_has_every_predictor_with_interval_null_and_additive_model() -> None:
    scores = scores_document(("marker", "fact"), 10)
    text = score_text(scores)
    for metric, _, _ in METRICS:
        # Two behaviours and the pool, each with scores and with what lies beyond rows and columns.
        assert len(re.findall(rf"^  {metric}  ", text, re.MULTILINE)) == 6
    for words in (
        "marker: 59 of 60 cells (out: 6 diagonal",
        "rows + columns",
        "null",
        "best single",
    ):
        assert words in text
    assert POOLED in text
    assert "\x1b" not in text
    assert "None" not in text
    assert max(map(len, text.splitlines())) < 180


def test_names_cannot_steer_the_terminal(scores: dict[str, Any]) -> None:
    changed = copy.deepcopy(scores)
    changed["behaviours"][0]["behaviour"] = "red\x1b[31m"
    assert "\x1b" not in score_text(changed)


def test_a_whisker_stays_on_its_line_and_keeps_its_order() -> None:
    drawn = whisker(0.5, -3.0, 0.75, 0.2)
    assert drawn is not None
    spans = re.findall(r'class="(\w+)" style="left:([\d.]+)%(?:;width:([\d.]+)%)?', drawn)
    places = {name: (float(left), float(width or 0)) for name, left, width in spans}
    assert places["dot"] == (75.0, 0)
    assert places["line"] == (0.0, 87.5)
    assert places["reach"] == (40.0, 20.0)
    assert whisker(None, None, None, None) is None
    assert bar("noise", None, None) is None
    assert 'width:100.0%"' in str(bar("additive", 1.3, None))


def test_what_the_scoring_really_writes_goes_on_the_page_whole() -> None:
    """The made-up documents of these tests could drift from the real ones; these cannot."""
    tables = [table(noise(seed), behaviour=name) for seed, name in enumerate(("marker", "fact"))]
    one, by_row, by_column = noise(7), noise(9), noise(10)
    metrics = [
        predictor(tables, one, metric="gauss_kl", polarity="less", blind=noise(8)),
        predictor(tables, lambda b, i, j: by_row(b, i, i), metric="source_prior"),
        predictor(tables, lambda b, i, j: by_column(b, j, j), metric="bystander_prior"),
    ]
    scores = score_open(tensor(*tables), metrics, FEW)
    sheets = score_sheets(scores)
    assert [len(sheets[name].rows) for name in ("leaderboard", "parts", "families")] == [9, 27, 18]
    read = PageReader(score_sections(scores).encode())
    assert read.text.count("Predictors against G on open cells") == 3
    assert "nan" not in read.text.lower().split()
    assert score_text(scores).count("source_prior") >= 3


def test_what_the_final_scoring_really_writes_goes_on_the_page_whole() -> None:
    grid = table(noise(1), n_train=8, n_eval=12)
    cells = [replace(c, split="held_out" if c.eval == "c11" else "open") for c in grid.cells]
    cells = [replace(c, split="quarantined") if {c.train, c.eval} == PAIR else c for c in cells]
    held_back = grid.with_cells(cells)
    own, other = (predictor([grid], noise(n), metric=f"m{n}") for n in (2, 3))
    few = replace(FEW, minimum_cells=6)
    result = score_final(tensor(held_back), own, [other], few)
    one = submission(1)
    rows = look_sheets([look(1, one, result), look(2, one, result)], [one])
    assert [row["n"] for row in rows["final"].rows[:3]] == [10, 8, 2]
    assert len(rows["looks-adjusted"].rows) == 2 * 2
    text = PageReader(look_sections([look(1, one, result)], [one]).encode()).text
    assert "2 cells, at least 6 needed" in text
