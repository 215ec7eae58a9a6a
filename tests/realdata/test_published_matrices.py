"""Published leakage matrices, scored as any user scores a table: the figures others published."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eps_locked.cli.main import run

DATA = Path(__file__).parents[2].parent / "shared/data/eps_leakage"
pytestmark = [
    pytest.mark.realdata,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"the published matrices are not at {DATA}"),
]
SIDES = ("--column", "train=train_context", "--column", "eval=eval_context")
Scored = Callable[..., Any]


@pytest.fixture
def scored(tmp_path: Path) -> Scored:
    """``scored(folder, *options)``: what ``eps-locked score`` writes about that folder's tables."""
    number = 0

    def call(folder: str, *options: str) -> Any:
        nonlocal number
        number += 1
        out = tmp_path / f"scores-{number}.json"
        here = [option.replace("@", f"{DATA / folder}/") for option in options]
        quick = ("--permutations", "199", "--resamples", "200")
        assert run(["score", *here, *SIDES, *quick, "--out", str(out)]) == 0
        return json.loads(out.read_bytes())

    return call


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def written(path: Path, rows: list[dict[str, str]]) -> str:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return str(path)


# --- #474: a marker, 16 x 16, one seed, with a symmetric KL ---------------------------------------

MARKER = (
    "--tensor",
    "@cells.csv",
    "--behaviour",
    "marker",
    "--unit",
    "nats",
    "--column",
    "g=delta",
)
KL = (
    *("--predictor", "@gauss_kl_last_prompt_L22.csv", "--metric", "gauss_kl", "--polarity", "less"),
    *("--predictor-column", "train=context_a", "--predictor-column", "eval=context_b"),
    *("--predictor-column", "value=gauss_kl"),
)


@pytest.fixture
def marker(scored: Scored) -> Any:
    found = scored("i474_marker_16x16", *MARKER, *KL, "--contexts", "@contexts.csv")
    return found["behaviours"][0]


def test_474_spearman_of_the_symmetric_kl_is_the_published_one(marker: Any) -> None:
    found = marker["predictors"][0]["spearman"]
    assert found["n"] == 240
    assert found["value"] == pytest.approx(-0.7952, abs=5e-5)
    assert found["oriented"] == -found["value"]
    assert found["low"] < -0.7952 < found["high"]
    assert found["null"]["p"] == pytest.approx(1 / 200)


def test_474_decomposition_is_the_published_one(marker: Any) -> None:
    found = marker["decomposition"]
    assert found["n_cells"] == 240
    assert found["antisymmetric_share"] == pytest.approx(0.2832, abs=5e-5)
    assert found["symmetric_cap"] == pytest.approx(0.717, abs=5e-4)
    assert found["additive_r2"] == pytest.approx(0.943, abs=5e-4)


def test_474_a_symmetric_metric_has_no_antisymmetric_score(marker: Any) -> None:
    found = marker["predictors"][0]["parts"]["antisymmetric"]
    assert found["zero_by_construction"]
    assert found["r2"]["value"] == 0.0
    assert found["delta_r2"]["value"] == 0.0
    # And rows and columns, without any metric, explain most of that part.
    assert found["additive_r2"] > 0.7


def test_474_what_rows_and_columns_explain_the_kl_adds_nothing_to(marker: Any) -> None:
    found = marker["predictors"][0]["over_additive"]
    assert found["additive_r2"] == pytest.approx(0.943, abs=5e-4)
    assert found["delta_r2"]["value"] < 0.01


def test_474_without_the_theatrical_personas_the_rank_correlation_falls(
    scored: Scored, tmp_path: Path
) -> None:
    folder = DATA / "i474_marker_16x16"
    plain = {r["context_id"] for r in rows_of(folder / "contexts.csv") if r["stylised"] == "0"}

    def kept(name: str, *sides: str) -> str:
        rows = [r for r in rows_of(folder / name) if all(r[side] in plain for side in sides)]
        return written(tmp_path / name, rows)

    cells = kept("cells.csv", "train_context", "eval_context")
    metric = kept("gauss_kl_last_prompt_L22.csv", "context_a", "context_b")
    options = [
        {"@cells.csv": cells, "@gauss_kl_last_prompt_L22.csv": metric}.get(option, option)
        for option in (*MARKER, *KL)
    ]
    found = scored("i474_marker_16x16", *options)["behaviours"][0]["predictors"][0]["spearman"]
    assert found["n"] == 156
    assert found["value"] == pytest.approx(-0.586, abs=5e-4)


def test_474_two_names_of_one_prompt_leave_folds_together(scored: Scored, tmp_path: Path) -> None:
    folder = DATA / "i474_marker_16x16"
    rows = rows_of(folder / "contexts.csv")
    # B1, the bare question, and C1, the standard template, render to the same prompt.
    twins = [{**r, "group": "bare" if r["context_id"] in ("B1", "C1") else ""} for r in rows]
    path = written(tmp_path / "contexts.csv", twins)
    found = scored("i474_marker_16x16", *MARKER, *KL, "--contexts", path)["behaviours"][0]
    assert found["cells"]["context_groups"] == 15
    apart = scored("i474_marker_16x16", *MARKER, *KL)["behaviours"][0]
    assert apart["cells"]["context_groups"] == 16
    both = [b["predictors"][0]["r2"]["leave_two_out"]["value"] for b in (found, apart)]
    assert both[0] != both[1]


# --- #537: a taught fact, 16 x 30, two seeds ------------------------------------------------------

FACT = ("--behaviour", "fact", "--column", "g=delta")
RATES = ("--rates", "--column", "base=base_rate", "--column", "trained=trained_rate")


def fact_of_seed(tmp_path: Path, seed: str) -> str:
    rows = rows_of(DATA / "i537_fact_16x30_two_seeds/cells.csv")
    return written(tmp_path / f"fact-{seed}.csv", [row for row in rows if row["seed"] == seed])


def test_537_the_two_seeds_agree_as_published(scored: Scored) -> None:
    found = scored("i537_fact_16x30_two_seeds", "--tensor", "@cells.csv", *FACT)
    (pair,) = found["behaviours"][0]["replication"]["pairs"]
    assert pair["n"] == 480
    assert pair["pearson"] == pytest.approx(0.82235, abs=5e-6)
    assert pair["rms"] == pytest.approx(0.24448, abs=5e-6)


@pytest.mark.parametrize(("seed", "share"), [("42", 0.3775), ("1042", 0.3514)])
def test_537_antisymmetric_share_of_each_seed(
    scored: Scored, tmp_path: Path, seed: str, share: float
) -> None:
    path = fact_of_seed(tmp_path, seed)
    found = scored("i537_fact_16x30_two_seeds", "--tensor", path, *FACT)["behaviours"][0]
    assert found["decomposition"]["n_cells"] == 240
    # 0.37746 and 0.35136; the source prints them as 0.378 and 0.351.
    assert found["decomposition"]["antisymmetric_share"] == pytest.approx(share, abs=5e-5)


def test_537_noise_of_the_seeds_is_taken_off_the_share(scored: Scored) -> None:
    found = scored("i537_fact_16x30_two_seeds", "--tensor", "@cells.csv", *FACT)["behaviours"][0]
    noise = found["decomposition"]["noise"]
    assert noise["basis"] == "scatter of 2 seeds"
    assert noise["antisymmetric_share"] < found["decomposition"]["antisymmetric_share"]
    assert 0.5 < noise["reliability"] < 1


def test_537_columns_whose_base_leaves_no_room_are_flagged(scored: Scored) -> None:
    found = scored("i537_fact_16x30_two_seeds", "--tensor", "@cells.csv", *FACT, *RATES)
    cells = found["behaviours"][0]["cells"]
    # Four eval contexts show the fact before training: 4, 19, 23 and 17 of 30. Then there are the
    # cells that show it in all 30 of 30 under both seeds, and those that never do.
    rows = rows_of(DATA / "i537_fact_16x30_two_seeds/cells.csv")
    crowded = {row["eval_context"] for row in rows if float(row["base_rate"]) > 0.1}
    assert crowded == {"icl_k2", "icl_k8", "icl_k4_ho", "binst_fact"}
    in_room = {(r["train_context"], r["eval_context"]): [] for r in rows}
    for row in rows:
        in_room[row["train_context"], row["eval_context"]].append(row["trained_rate"])
    full = {c for c, v in in_room.items() if all(float(one) == 1 for one in v)}
    empty = {c for c, v in in_room.items() if all(float(one) == 0 for one in v)}
    assert cells["excluded"]["ceiling"] == 16 * 4 + len({c for c in full if c[1] not in crowded})
    assert cells["excluded"]["floor"] == len(empty)


def test_537_ten_held_out_columns_take_no_part_in_open_scores(scored: Scored) -> None:
    found = scored(
        "i537_fact_16x30_two_seeds",
        *("--tensor", "@cells.csv", *FACT, "--contexts", "@contexts.csv"),
        *("--context-column", "held_out=is_heldout_eval"),
    )
    cells = found["behaviours"][0]["cells"]
    assert cells["excluded"]["set_apart"] == 16 * 10
    assert cells["scored"] == 16 * 20 - 16
    assert cells["eval_contexts"] == 20


def test_537_inoculation_reads_as_published(scored: Scored, tmp_path: Path) -> None:
    path = fact_of_seed(tmp_path, "42")
    found = scored(
        "i537_fact_16x30_two_seeds", "--tensor", path, *FACT, *RATES, "--contexts", "@contexts.csv"
    )
    gate = found["behaviours"][0]["gates"]["inoculation"]
    assert gate["default_mean"] == pytest.approx(0.748, abs=5e-4)
    assert gate["instruction_mean"] == pytest.approx(0.001, abs=5e-4)
    assert gate["n_columns"] == 28
    assert gate["status"] == "passed"
    assert gate["low"] > 0.5


def test_537_a_content_free_metric_is_scored_like_any_other(scored: Scored, tmp_path: Path) -> None:
    rows = rows_of(DATA / "i537_fact_16x30_two_seeds/cells.csv")
    values = [
        {"train": r["train_context"], "eval": r["eval_context"], "value": f"-{r['base_rate']}"}
        for r in rows
        if r["seed"] == "42"
    ]
    metric = written(tmp_path / "minus_base.csv", values)
    found = scored(
        "i537_fact_16x30_two_seeds",
        *("--tensor", "@cells.csv", *FACT, "--predictor", metric, "--polarity", "more"),
    )["behaviours"][0]["predictors"][0]
    # One value per column: nothing beyond rows and columns, whatever its own R2.
    assert found["parts"]["interaction"]["zero_by_construction"]
    assert found["over_additive"]["delta_r2"]["value"] == pytest.approx(0, abs=1e-9)


# --- #108: wrong answers and a marker, 16 x 26, three seeds ---------------------------------------

WRONG = (
    *("--tensor", "@capability_cells.csv", "--column", "g=delta_accuracy", "--rates"),
    *("--column", "base=base_accuracy", "--column", "trained=trained_accuracy"),
    *("--direction", "down", "--room", "0.5", "--implant-threshold", "0.05"),
)


def test_108_rows_that_did_not_implant_are_flagged_and_left_out(scored: Scored) -> None:
    found = scored("i108_sysprompt_16x26_three_seeds", *WRONG, "--contexts", "@contexts.csv")
    block = found["behaviours"][0]
    rows = rows_of(DATA / "i108_sysprompt_16x26_three_seeds/capability_cells.csv")
    drops: dict[str, list[float]] = {}
    for row in rows:
        if row["train_context"] == row["eval_context"]:
            drops.setdefault(row["train_context"], []).append(-float(row["delta_accuracy"]))
    failed = {name for name, values in drops.items() if sum(values) / len(values) < 0.05}
    # The three that the source names, and two that fell by 3.9 and 3.2 points, no more than one
    # of those three did.
    assert failed >= {"generic_assistant", "and_helpful", "llama_default"}
    assert failed - {"generic_assistant", "and_helpful", "llama_default"} == {
        "youre_helpful",
        "very_helpful",
    }
    assert block["cells"]["excluded"]["implant_failed"] == 26 * len(failed)
    assert block["cells"]["train_contexts"] == 16 - len(failed)
    assert block["direction"] == "down"


def test_108_a_stricter_threshold_flags_llama_default_and_and_helpful_alone(
    scored: Scored,
) -> None:
    options = [*WRONG[:-1], "0.02"]
    found = scored("i108_sysprompt_16x26_three_seeds", *options)["behaviours"][0]
    assert found["cells"]["excluded"]["implant_failed"] == 26 * 2


def test_108_antisymmetric_share_and_three_pairs_of_seeds(scored: Scored) -> None:
    found = scored(
        "i108_sysprompt_16x26_three_seeds",
        *("--tensor", "@capability_cells.csv", "--column", "g=delta_accuracy"),
    )["behaviours"][0]
    assert found["decomposition"]["antisymmetric_share"] == pytest.approx(0.167, abs=5e-4)
    assert len(found["replication"]["pairs"]) == 3


def test_108_cosine_ranks_the_change_with_its_published_sign(
    scored: Scored, tmp_path: Path
) -> None:
    folder = DATA / "i108_sysprompt_16x26_three_seeds"
    cosine = [
        {"train": r["context_a"], "eval": r["context_b"], "value": r["cosine"]}
        for r in rows_of(folder / "cosine.csv")
        if (r["layer"], r["variant"]) == ("20", "raw")
    ]
    known = {row["train"] for row in cosine}
    for name, value, rho in (
        ("capability_cells.csv", "delta_accuracy", -0.47),
        ("marker_cells.csv", "marker_rate", 0.35),
    ):
        # The cosine exists for the 16 train contexts only.
        rows = [r for r in rows_of(folder / name) if r["eval_context"] in known]
        found = scored(
            "i108_sysprompt_16x26_three_seeds",
            *("--tensor", written(tmp_path / name, rows), "--column", f"g={value}"),
            *("--predictor", written(tmp_path / "cosine.csv", cosine), "--polarity", "more"),
        )["behaviours"][0]["predictors"][0]["spearman"]
        assert found["value"] == pytest.approx(rho, abs=6e-3)


def test_108_floors_and_ceilings_of_the_marker_are_flagged(scored: Scored) -> None:
    found = scored(
        "i108_sysprompt_16x26_three_seeds",
        *("--tensor", "@marker_cells.csv", "--rates"),
        *("--column", "g=marker_rate", "--column", "trained=marker_rate"),
    )["behaviours"][0]
    rows = rows_of(DATA / "i108_sysprompt_16x26_three_seeds/marker_cells.csv")
    off = [row for row in rows if row["train_context"] != row["eval_context"]]
    zero = [row for row in off if float(row["marker_rate"]) == 0]
    assert len(zero) / len(off) > 0.85
    assert found["cells"]["excluded"]["floor"] == len(zero)
    # Every diagonal is full or nearly so; the full ones are ceilings.
    assert found["cells"]["excluded"]["ceiling"] == sum(
        float(row["marker_rate"]) == 1 for row in rows
    )
