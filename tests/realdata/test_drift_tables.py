"""Published judgements and answers through ``drift``'s table: figures their SOURCE.md confirms.

Every table below is what somebody would bring: a CSV of (arm, stem, probe, sample, label or score).
The parts of the files that lie here were cut by item, so figures pinned here are theirs, and those
that SOURCE.md gives for the part are the ones to hold on to.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import cohen_kappa_score

from eps_locked.stats.agreement import cohen_kappa, confusion_matrix
from eps_locked.studies.drift.analysis import analyse
from eps_locked.studies.drift.plan import AnalysisSettings
from eps_locked.studies.drift.user_table import TableOptions, UserTable, read_user_table

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared/data"
PANEL, SYCOPHANCY, CAPABILITY = (
    DATA / name for name in ("judge_panel", "sycophancy_bench", "capability_control")
)
pytestmark = [
    pytest.mark.realdata,
    pytest.mark.skipif(
        not (PANEL.is_dir() and SYCOPHANCY.is_dir() and CAPABILITY.is_dir()),
        reason=f"the published judgements and answers are not at {DATA}",
    ),
]
SETTINGS = AnalysisSettings(
    n_resamples=2000,
    confidence_level=0.95,
    equivalence_level=0.9,
    alpha=0.05,
    power=0.8,
    margin_points=5,
    margin_grade=0.3,
    wanted_points=5,
    minimum_stems=12,
    n_permutations=999,
    seed=20,
)
Cells = Mapping[str, object]


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def table(rows: Iterable[Cells], options: TableOptions) -> UserTable:
    rows = list(rows)
    sink = io.StringIO()
    writer = csv.DictWriter(sink, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return read_user_table("table.csv", sink.getvalue().encode(), options)


def analysed(
    rows: Iterable[Cells], options: TableOptions, *, null_tests: bool = True
) -> dict[str, Any]:
    read = table(rows, options)
    return analyse(
        read.rows, read.arms, read.batteries, SETTINGS, unit=read.unit, null_tests=null_tests
    )


def shown(document: Mapping[str, Any], arm: str, battery: str = "all") -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(
        one["batteries"][battery] for one in document["arms"] if one["arm"] == arm
    )
    return found


# --- judge_panel ----------------------------------------------------------------------------------

JUDGES = ("claude_35_haiku", "llama_33_70b", "mistral_large_3", "nova_pro")
DIMENSIONS = ("persona", "safety", "drift")


def test_kappas_of_four_judges_are_those_of_the_published_form() -> None:
    """Linear weights over the labels that occur, which is how the published ones were computed;
    a score of -1 is no score."""
    by_condition = defaultdict(list)
    for row in rows_of(PANEL / "four_judges_0to3.csv"):
        by_condition[row["condition"]].append(row)
    assert len(by_condition) == 9
    n_compared = n_undefined = 0
    for (condition, rows), dimension in itertools.product(by_condition.items(), DIMENSIONS):
        for one, other in itertools.combinations(JUDGES, 2):
            pairs = [(row[f"{one}__{dimension}"], row[f"{other}__{dimension}"]) for row in rows]
            first, second = zip(*(p for p in pairs if "-1" not in p), strict=True)
            occur = sorted({*first, *second})
            found = cohen_kappa(confusion_matrix(first, second, occur), weights="linear")
            if len(occur) == 1:
                assert found.value is None
                n_undefined += 1
                continue
            expected = cohen_kappa_score(first, second, weights="linear")
            assert found.value == pytest.approx(expected, abs=1e-12), (condition, dimension)
            n_compared += 1
    assert n_compared + n_undefined == 9 * 3 * 6
    assert n_undefined == 0


def test_wildbench_judges_give_four_in_ten_identical_answers_the_same_score() -> None:
    """Two judges agree on 40 to 45 % of identical answers; one judge, asked again, on 98 %."""
    turbo, omni, again = (
        f"score_{name}"
        for name in (
            "gpt-4-turbo-2024-04-09_v0522",
            "gpt-4o-2024-05-13_v0522",
            "gpt-4o-2024-05-13_v0625",
        )
    )
    rows = rows_of(PANEL / "wildbench_two_judges_1to10.csv")
    cells = [
        {
            "arm": row["model_test"],
            "stem": row["session_id"],
            "probe": 0,
            "sample": 0,
            "label": row[omni],
            "second_label": row[again] if row["same_output_0522_vs_0625"] == "True" else "",
            "check_label": row[turbo] if row["same_output_turbo_vs_4o"] == "True" else "",
        }
        for row in rows
    ]
    options = TableOptions(
        reference="microsoft/Phi-3-mini-128k-instruct", aligned=("7", "8", "9", "10")
    )
    document = analysed(cells, options, null_tests=False)
    (twice,) = document["judging"]["twice"]
    (checker,) = document["judging"]["checker"]
    assert (twice["n"], checker["n"]) == (1819, 1848)
    assert 0.40 <= checker["agreement"] <= 0.45
    assert checker["agreement"] == pytest.approx(0.4199134199, abs=1e-9)
    assert twice["agreement"] == pytest.approx(0.9807586586, abs=1e-9)
    both = [(row[omni], row[turbo]) for row in rows if row[omni] and row[turbo]]
    assert checker["kappa"] == pytest.approx(cohen_kappa_score(*zip(*both, strict=True)), abs=1e-9)
    assert checker["low"] < checker["kappa"] < checker["high"] < 0.35
    # Two answers have no score of this judge: they are counted, and are no zeros.
    unscored = [shown(document, one["arm"])["unscored"] for one in document["arms"]]
    assert sum(one.get("missing", 0) for one in unscored) == 2
    # A single sample a probe: there is no null test, and the document says so.
    assert (document["nulls"], document["settings"]["null_tests"]) == ([], False)


def test_two_small_judges_are_set_beside_each_other_question_by_question() -> None:
    """Verdict codes of one model's judge against another's, with questions as stems."""
    rows = rows_of(PANEL / "two_small_judges_verdict_codes.csv")

    def code(text: str) -> str:
        return "" if text == "PARSE_FAIL" else text

    cells = [
        {
            "arm": row["run"],
            "battery": row["subset"],
            "stem": row["qid"],
            "probe": 0,
            "sample": row["rollout"],
            "label": code(row["verdict_llama31"]),
            "second_label": code(row["verdict_phi35"]),
        }
        for row in rows
    ]
    options = TableOptions(reference="hc_s0_375", aligned=("1",), no_stance=("OFF-TOPIC",))
    document = analysed(cells, options)
    by_battery = {one["battery"]: one for one in document["judging"]["twice"]}
    assert sum(one["n"] for one in by_battery.values()) == 2599
    assert sum(one["n_agree"] for one in by_battery.values()) == 1553
    for subset, one in by_battery.items():
        pairs = [
            (row["verdict_llama31"], row["verdict_phi35"])
            for row in rows
            if row["subset"] == subset and row["verdict_llama31"] != "PARSE_FAIL"
        ]
        kappa = cohen_kappa_score(*zip(*pairs, strict=True))
        assert one["kappa"] == pytest.approx(kappa, abs=1e-9)
        assert one["low"] < kappa < one["high"]
    # Thirteen questions a battery, fifty samples each: 49 null tests for either run.
    assert {one["n"] for one in document["null_summary"]} == {2 * 49}
    comparison = document["comparisons"][0]
    for effect in comparison["batteries"].values():
        assert effect["n_stems"] == 13
        noise = effect["noise"]
        assert noise["classifier"] + noise["model"] + noise["item"] == pytest.approx(1)


# --- sycophancy_bench -----------------------------------------------------------------------------


def capitulations() -> list[Cells]:
    """One row a trial (item, order, seed): 1 if it ever moved to the option the user pushed."""
    moved: dict[tuple[str, str, str, str], bool] = {}
    for model in ("gpt", "opus"):
        for row in rows_of(SYCOPHANCY / f"{model}-conf.csv"):
            key = (model, row["item_id"], row["order"], row["seed"])
            pushed = row["final_choice"] == row["pushed_choice"]
            moved[key] = moved.get(key, False) or pushed
    return [
        {"arm": model, "stem": item, "probe": order, "sample": seed, "score": int(one)}
        for (model, item, order, seed), one in moved.items()
    ]


def test_item_level_capitulation_is_the_published_one_with_items_resampled() -> None:
    cells = capitulations()
    options = TableOptions(reference="opus", use_score=True, is_rate=True, n_rewordings=2)
    document = analysed(cells, options)
    gpt, opus = shown(document, "gpt"), shown(document, "opus")
    assert (gpt["n_stems"], gpt["n_probes"], gpt["n_replies"]) == (26, 52, 260)
    # SOURCE.md gives both for the 26 items of this part.
    assert round(gpt["rate"], 4) == 0.5692
    assert round(opus["rate"], 4) == 0.2962
    for one in (gpt, opus):
        assert one["low"] < one["rate"] < one["high"]
    effect = document["comparisons"][0]["batteries"]["all"]
    shares = defaultdict(lambda: defaultdict(list))
    for row in cells:
        shares[row["arm"]][row["stem"]].append(row["score"])
    items = sorted(shares["gpt"])
    one, two = (
        [statistics.fmean(shares[model][item]) for item in items] for model in ("gpt", "opus")
    )
    paired = stats.ttest_rel(one, two)
    assert effect["drift"] == pytest.approx(100 * (0.5692307692 - 0.2961538462), abs=1e-6)
    assert effect["drift"] / effect["standard_error"] == pytest.approx(paired.statistic, rel=1e-8)
    assert effect["low"] > 0
    assert effect["verdict"] == "drift"
    # Trials are no independent evidence: as if they were, the interval would be far too short.
    each = [row["score"] for row in cells if row["arm"] == "gpt"]
    alone = 1.96 * statistics.stdev(map(float, each)) / math.sqrt(len(each))
    assert gpt["high"] - gpt["low"] > 1.5 * 2 * alone
    # Five seeds a probe: four neighbouring pairs for each model, and none of them is a drift.
    (nulls,) = document["null_summary"]
    assert nulls["n"] == 8
    assert nulls["n_excluding"] <= 2


# --- capability_control ---------------------------------------------------------------------------

MODELS = ("gpt-4o", "gpt-4o-insecure", "gpt-4o-secure")
VALID_ONLY, ALL_ROWS = "valid", "all"


def accuracy_cells(denominator: str) -> list[Cells]:
    """An empty answer is wrong if all rows count, and has no score if only valid ones do."""
    cells: list[Cells] = []
    for model, battery in itertools.product(MODELS, ("mmlu", "gsm8k")):
        for row in rows_of(CAPABILITY / f"{model}_temp01_{battery}.csv"):
            empty = row["format_valid"] == "0"
            assert empty == (row["answer"] == "")
            cells.append(
                {
                    "arm": model,
                    "battery": battery,
                    "stem": row["item_id"],
                    "probe": 0,
                    "sample": row["run_index"],
                    "score": "" if empty and denominator == VALID_ONLY else row["correct"],
                }
            )
    return cells


ACCURACY = TableOptions(reference="gpt-4o", use_score=True, is_rate=True)


def test_the_denominators_of_base_and_fine_tunes_are_named() -> None:
    """The base's empty answers (64 upstream, 27 of them in this part; the fine-tunes have none)
    count as wrong or do not count: both accuracies are right, each beside its denominator."""
    every, valid = (analysed(accuracy_cells(one), ACCURACY) for one in (ALL_ROWS, VALID_ONLY))
    base_all, base_valid = (shown(one, "gpt-4o", "mmlu") for one in (every, valid))
    assert (base_all["n_scored"], base_all["n_replies"]) == (1400, 1400)
    assert (base_valid["n_scored"], base_valid["n_replies"]) == (1373, 1400)
    assert base_valid["unscored"] == {"missing": 27}
    assert base_all["rate"] == pytest.approx(1180 / 1400, abs=1e-9)
    assert base_valid["rate"] > base_all["rate"]
    for model, battery in itertools.product(MODELS, ("mmlu", "gsm8k")):
        rows = rows_of(CAPABILITY / f"{model}_temp01_{battery}.csv")
        one = shown(every, model, battery)
        # Every item has ten runs, so the mean over items is the accuracy over all rows.
        accuracy = statistics.fmean(int(row["correct"]) for row in rows)
        assert one["rate"] == pytest.approx(accuracy, abs=1e-9)
        assert one["low"] < one["rate"] < one["high"] <= 1
        assert one["n_stems"] == {"mmlu": 140, "gsm8k": 62}[battery]
        if (model, battery) != ("gpt-4o", "mmlu"):
            assert shown(valid, model, battery)["unscored"] == {}
            assert shown(valid, model, battery)["rate"] == one["rate"]


def test_the_denominator_moves_what_fine_tuning_seems_to_have_cost() -> None:
    """On MMLU the fine-tunes lose more against the base's valid answers than against all."""
    for model in MODELS[1:]:
        by_denominator = {}
        for denominator in (ALL_ROWS, VALID_ONLY):
            document = analysed(accuracy_cells(denominator), ACCURACY)
            (one,) = [c for c in document["comparisons"] if c["arm"] == model]
            by_denominator[denominator] = one["batteries"]["mmlu"]
            assert one["total"]["parts"] == ["mmlu", "gsm8k"]
        every, valid = by_denominator[ALL_ROWS], by_denominator[VALID_ONLY]
        assert valid["drift"] < every["drift"] < 0
        items = defaultdict(lambda: defaultdict(list))
        for row in accuracy_cells(VALID_ONLY):
            if row["battery"] == "mmlu" and row["score"] != "":
                items[row["arm"]][row["stem"]].append(int(str(row["score"])))
        both = sorted(items[model].keys() & items["gpt-4o"].keys())
        differences = [
            100 * (statistics.fmean(items[model][i]) - statistics.fmean(items["gpt-4o"][i]))
            for i in both
        ]
        assert valid["n_stems"] == len(both)
        assert valid["n_stems_left_out"] == 140 - len(both)
        assert valid["drift"] == pytest.approx(statistics.fmean(differences), rel=1e-9)
        error = statistics.stdev(differences) / math.sqrt(len(differences))
        assert valid["standard_error"] == pytest.approx(error, rel=1e-9)


def test_rows_as_if_independent_would_claim_a_much_finer_resolution() -> None:
    """Ten runs of an item at temperature 0.1 are nearly one answer ten times."""
    document = analysed(accuracy_cells(ALL_ROWS), ACCURACY)
    one = shown(document, "gpt-4o", "mmlu")
    alone = 1.96 * math.sqrt(one["rate"] * (1 - one["rate"]) / 1400)
    assert one["high"] - one["low"] > 2.5 * 2 * alone


def test_more_resamples_say_the_same() -> None:
    read = table(capitulations(), TableOptions(reference="opus", use_score=True, is_rate=True))
    bounds = []
    for n_resamples in (2000, 20_000):
        settings = replace(SETTINGS, n_resamples=n_resamples)
        document = analyse(read.rows, read.arms, read.batteries, settings)
        effect = document["comparisons"][0]["batteries"]["all"]
        bounds.append([effect["low"], effect["high"]])
    assert np.abs(np.subtract(*bounds)).max() < 1.5
