"""The open document: its schema, what stands in it, and what its numbers may depend on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from eps_locked.canonical import decode, encode
from eps_locked.errors import MalformedInputError
from eps_locked.scoring.predictor import Predictor
from eps_locked.scoring.score import score_open
from eps_locked.scoring.settings import ScoreSettings
from eps_locked.scoring.tensor import BehaviourTable, ScoreTensor
from unit.scoring.worlds import (
    QUICK,
    by_context,
    change,
    noise,
    predictor,
    table,
    tensor,
    world,
)

SCHEMA = json.loads((Path(__file__).parents[3] / "schemas/scores.schema.json").read_text("utf-8"))
ROWS, COLUMNS, OWN = by_context(1), by_context(2), noise(3)


def worlds() -> list[BehaviourTable]:
    marker = change(
        table(world(1), behaviour="marker", n_train=8, n_eval=11),
        {
            ("c02", "c03"): {"flags": frozenset({"floor"})},
            ("c03", "c02"): {"flags": frozenset({"sealed"}), "g": None, "by_seed": {}},
            ("c04", "c08"): {"alias_of": "c02", "flags": frozenset({"alias"})},
            ("c05", "c03"): {"flags": frozenset({"implant_failed"})},
        },
    )
    return [marker, table(world(1, pair=0.8), behaviour="fact", n_train=8, n_eval=11)]


def predictors(tables: list[BehaviourTable]) -> list[Predictor]:
    own = noise(11)
    return [
        predictor(tables, lambda b, i, j: ROWS(i), metric="source_prior"),
        predictor(tables, lambda b, i, j: -COLUMNS(j), metric="bystander_prior", polarity="less"),
        predictor(
            tables,
            lambda b, i, j: OWN(b, i, j) + 0.3 * own(b, i, j),
            metric="gauss_kl",
            blind=noise(12),
        ),
    ]


@pytest.fixture(scope="module")
def document() -> Any:
    tables = worlds()
    return score_open(tensor(*tables), predictors(tables), QUICK)


def block(document: Any, behaviour: str, metric: str) -> Any:
    (found,) = [b for b in document["behaviours"] if b["behaviour"] == behaviour]
    (score,) = [p for p in found["predictors"] if p["metric"] == metric]
    return score


def test_the_document_is_canonical_json_and_holds_its_schema(document: Any) -> None:
    assert decode(encode(document), thing="scores") is not None
    jsonschema.Draft202012Validator(SCHEMA).validate(document)


def test_cells_are_counted_by_reason(document: Any) -> None:
    cells = document["behaviours"][0]["cells"]
    assert cells["in_table"] == 88
    assert cells["scored"] == 88 - 8 - 4
    assert cells["excluded"]["diagonal"] == 8
    for reason in ("floor", "sealed", "alias", "implant_failed"):
        assert cells["excluded"][reason] == 1
    assert cells["excluded_only_for"]["floor"] == 1


def test_the_raw_sign_and_the_oriented_one_are_both_given(document: Any) -> None:
    found = block(document, "marker", "bystander_prior")["spearman"]
    assert found["value"] < 0 < found["oriented"] == -found["value"]


def test_a_metric_that_knows_something_beats_its_blind_self_and_its_null(document: Any) -> None:
    found = block(document, "marker", "gauss_kl")
    r2 = found["r2"]["leave_two_out"]
    assert r2["value"] > r2["null"]["high"] > r2["null"]["mean"]
    assert found["blind"]["beats"] in ("yes", "undetermined")
    assert found["blind"]["difference"]["value"] == pytest.approx(
        r2["value"] - found["blind"]["r2"]["value"]
    )


def test_without_blind_values_or_with_one_behaviour_the_ablation_does_not_apply(
    document: Any,
) -> None:
    assert block(document, "marker", "source_prior")["blind"]["beats"] == "not applicable"
    tables = worlds()[:1]
    alone = score_open(tensor(*tables), [predictors(tables)[2]], QUICK)
    assert "one behaviour" in block(alone, "marker", "gauss_kl")["blind"]["reason"]


def test_sensitivity_lets_saturated_and_failed_cells_in_one_after_the_other(document: Any) -> None:
    rows = block(document, "marker", "gauss_kl")["sensitivity"]
    n = document["behaviours"][0]["cells"]["scored"]
    assert [(row["included"], row["n"] - n) for row in rows] == [
        (["floor"], 1),
        (["implant_failed"], 1),
        (["floor", "implant_failed"], 2),
    ]
    assert block(document, "fact", "gauss_kl")["sensitivity"] == []


def test_the_combiners_beat_the_best_single_predictor_where_signals_complement(
    document: Any,
) -> None:
    names = [c["name"] for c in document["behaviours"][0]["combiners"]]
    assert names == ["ridge", "write_times_gate", "ridge_pooled", "write_times_gate_pooled"]
    for combiner in (c for b in document["behaviours"] for c in b["combiners"]):
        assert combiner["reason"] is None
        assert combiner["r2"]["value"] > 0.8
        assert combiner["delta_r2"]["value"] > 0.1
        assert combiner["delta_r2"]["value"] == pytest.approx(
            combiner["r2"]["value"] - combiner["best_single"]["r2"]["value"]
        )
        assert combiner["parts"]["antisymmetric"]["delta_r2"]["null"] is not None
    assert [c["name"] for c in document["pooled"]["combiners"]] == names[2:]


def test_pooled_scores_cover_all_behaviours(document: Any) -> None:
    pooled = document["pooled"]
    assert pooled["n"] == sum(b["cells"]["scored"] for b in document["behaviours"])
    assert [p["metric"] for p in pooled["predictors"]] == [
        "source_prior",
        "bystander_prior",
        "gauss_kl",
    ]
    one = score_open(tensor(worlds()[0]), [], QUICK)
    assert one["pooled"]["reason"] == "one behaviour: there is nothing to pool"


def numbers_of(document: Any, metric: str) -> Any:
    blocks = [block(document, b["behaviour"], metric) for b in document["behaviours"]]
    return encode(
        [*blocks, *[p for p in document["pooled"]["predictors"] if p["metric"] == metric]]
    )


def test_adding_a_predictor_changes_no_other_predictors_numbers(document: Any) -> None:
    tables = worlds()
    more = [predictor(tables, noise(77), metric="another"), *predictors(tables)]
    wider = score_open(tensor(*tables), more, QUICK)
    for metric in ("source_prior", "bystander_prior", "gauss_kl"):
        assert numbers_of(wider, metric) == numbers_of(document, metric)


def test_adding_a_behaviour_changes_no_other_behaviours_scores(document: Any) -> None:
    tables = worlds()[:1]
    alone = score_open(tensor(*tables), predictors(tables)[:1], QUICK)
    assert encode(block(alone, "marker", "source_prior")) == encode(
        block(document, "marker", "source_prior")
    )


def test_equal_input_gives_equal_bytes_and_another_seed_another_null(document: Any) -> None:
    tables = worlds()
    again = score_open(tensor(*tables), predictors(tables), QUICK)
    assert encode(again) == encode(document)
    other = score_open(tensor(*tables), predictors(tables), replace(QUICK, seed=2))
    null = "r2", "leave_two_out", "null"
    first, second = (block(d, "marker", "gauss_kl") for d in (document, other))
    for key in null:
        first, second = first[key], second[key]
    assert first != second


def test_the_scores_do_not_depend_on_the_order_of_the_cells() -> None:
    tables = worlds()[:1]
    shuffled = tables[0].with_cells(
        [tables[0].cells[n] for n in np.random.default_rng(1).permutation(len(tables[0].cells))]
    )
    first, second = (
        score_open(tensor(one), predictors(tables)[:1], QUICK) for one in (tables[0], shuffled)
    )
    a, b = (block(d, "marker", "source_prior")["r2"]["leave_two_out"] for d in (first, second))
    assert a["value"] == pytest.approx(b["value"], abs=1e-12)
    assert a["null"]["p"] == b["null"]["p"]


def test_the_number_of_processes_changes_no_byte() -> None:
    tables = worlds()
    metrics = predictors(tables)[:1]
    one, two = (score_open(tensor(*tables), metrics, QUICK, n_processes=n) for n in (1, 2))
    assert encode(one) == encode(two)


def test_an_unscorable_behaviour_is_reported_with_its_reason() -> None:
    tables = [table(world(1), n_train=2, n_eval=4)]
    found = score_open(tensor(*tables), predictors(tables), QUICK)
    jsonschema.Draft202012Validator(SCHEMA).validate(found)
    score = block(found, "marker", "gauss_kl")
    assert score["r2"]["leave_two_out"]["reason"] == "6 scored cells, at least 12 needed"
    assert found["behaviours"][0]["combiners"][0]["reason"] == "6 scored cells, at least 12 needed"


def test_a_tensor_with_nothing_open_is_a_document_and_no_crash() -> None:
    sealed = table(world(1)).with_cells(
        [replace(c, g=None, by_seed={}, flags=frozenset({"sealed"})) for c in table(world(1)).cells]
    )
    found = score_open(tensor(sealed), predictors([sealed]), QUICK)
    jsonschema.Draft202012Validator(SCHEMA).validate(found)
    assert found["behaviours"][0]["cells"]["scored"] == 0


def censored(n_at_bound: int) -> Any:
    value = world(1, row=0.5, column=0.5, pair=0.3)
    grid = table(value, n_train=8, n_eval=11)
    off = [c for c in grid.cells if c.train != c.eval]
    bound = sorted(float(c.g or 0.0) for c in off)[n_at_bound - 1]
    cut = grid.with_cells(
        [replace(c, g=max(float(c.g or 0.0), bound), lower=bound) for c in grid.cells]
    )
    metric = predictor([cut], lambda b, i, j: value(b, i, j))
    found = score_open(tensor(cut), [metric], QUICK)
    return block(found, "marker", "metric")["tobit"]


def test_tobit_is_fitted_from_a_tenth_of_cells_at_a_bound_and_undoes_the_censoring() -> None:
    assert censored(7)["tobit"] is None
    assert "7 of 80 cells at a bound" in censored(7)["reason"]
    found = censored(30)
    assert found["n_low"] == 30
    assert found["ols"]["slope"] < 0.9
    assert found["tobit"]["slope"] == pytest.approx(1, abs=0.1)


def test_aliases_are_the_same_cell_measured_twice() -> None:
    grid = table(world(1), n_train=6, n_eval=9)
    twice = {
        (c.train, "c08"): {
            "alias_of": "c02",
            "flags": frozenset({"alias"}),
            "g": next(float(d.g or 0) for d in grid.cells if (d.train, d.eval) == (c.train, "c02"))
            + 0.25,
        }
        for c in grid.cells
    }
    found = score_open(tensor(change(grid, twice)), [], QUICK)["behaviours"][0]
    (alias,) = found["aliases"]
    assert (alias["alias"], alias["of"], alias["n"]) == ("c08", "c02", 6)
    assert alias["mean_difference"] == pytest.approx(0.25)
    assert found["cells"]["excluded"]["alias"] == 6


def test_two_seeds_are_compared_and_their_scatter_is_taken_off_the_decomposition() -> None:
    dust = noise(21)
    grid = table(world(1), n_train=8, n_eval=11)
    seeded = grid.with_cells(
        [
            replace(
                c,
                by_seed={
                    s: float(c.g or 0) + sign * dust("x", c.train, c.eval)
                    for s, sign in (("1", 0.3), ("2", -0.3))
                },
            )
            for c in grid.cells
        ]
    )
    found = score_open(tensor(seeded), [], QUICK)["behaviours"][0]
    (pair,) = found["replication"]["pairs"]
    assert (pair["seeds"], pair["n"]) == (["1", "2"], 88)
    assert pair["rms"] == pytest.approx(0.6, rel=0.2)
    noise_block = found["decomposition"]["noise"]
    assert noise_block["basis"] == "scatter of 2 seeds"
    assert noise_block["total"] > 0


def test_covariates_are_scored_alone_and_under_the_metric() -> None:
    grid = table(lambda b, i, j: 3 * ROWS(i) + OWN(b, i, j), n_train=8, n_eval=11)
    known = grid.with_cells(
        [replace(c, realised_strength=ROWS(c.train), prefix_tokens=4.0) for c in grid.cells]
    )
    metrics = [
        predictor([known], lambda b, i, j: ROWS(i), metric="strength"),
        predictor([known], OWN, metric="own"),
    ]
    found = score_open(tensor(known), metrics, QUICK)
    assert found["behaviours"][0]["covariates"]["names"] == ["realised_strength"]
    same = block(found, "marker", "strength")["over_covariates"]
    assert same["delta_r2"]["value"] == pytest.approx(0, abs=1e-12)
    own = block(found, "marker", "own")["over_covariates"]
    assert own["with_predictor_r2"] > 0.99
    assert own["delta_r2"]["value"] == pytest.approx(1 - own["covariates_r2"], abs=0.01)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("alpha", 0.0),
        ("alpha", 1),
        ("confidence_level", 1.0),
        ("n_permutations", 10),
        ("n_permutations", True),
        ("n_part_permutations", 1000),
        ("seed", -1),
        ("seed", 2**53),
        ("roles", {"reader": "x"}),
        ("alphas", ()),
        ("alphas", (0.0,)),
    ],
)
def test_settings_that_make_no_score_are_refused(field: str, value: Any) -> None:
    with pytest.raises(MalformedInputError, match=f"settings.{field}"):
        ScoreSettings(**{field: value})


def test_labels_and_metrics_are_checked() -> None:
    tables = worlds()
    metrics = predictors(tables)
    with pytest.raises(MalformedInputError, match="confirmatory or exploratory"):
        score_open(tensor(*tables), metrics, QUICK, label="final")
    with pytest.raises(MalformedInputError, match="each metric once"):
        score_open(tensor(*tables), [*metrics, metrics[0]], QUICK)
    with pytest.raises(MalformedInputError, match="behaviour fact has no values"):
        score_open(ScoreTensor(tables=tuple(tables)), predictors(tables[:1]), QUICK)
