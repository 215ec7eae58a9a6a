"""Scores in, one document out: every number against a second computation, every gap counted."""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from statsmodels.stats.multitest import multipletests

from eps_locked.canonical import encode
from eps_locked.errors import MalformedInputError
from eps_locked.studies.vea.analysis import analyse
from eps_locked.studies.vea.deltas import by_reward_model, deltas_of
from eps_locked.studies.vea.effects import Draws, joint_weights
from eps_locked.studies.vea.items import ANCHOR, DECOY, FAMILIES, NEUTRAL
from eps_locked.studies.vea.power import power_document
from eps_locked.studies.vea.settings import VeaSettings
from unit.studies.vea.vea_worlds import (
    ANALYSIS,
    BROAD,
    LENGTH,
    NARROW,
    OTHERS,
    SETTINGS,
    family_of,
    one_model,
    settings,
    without,
    world,
)


def test_arms_of_known_truth_get_their_headlines():
    rows = [
        *world(NARROW, name="narrow"),
        *world(BROAD, name="broad"),
        *world(LENGTH, name="length"),
        *world({}, name="nothing"),
        *world({}, sd=0.0, name="constant"),
        *world({ANCHOR: 1.5, **dict.fromkeys(OTHERS[:3], 1.5)}, name="half"),
    ]
    expected = {
        "narrow": "narrow",
        "broad": "broad",
        "length": "confounded",
        "nothing": "null",
        "constant": "null",
        "half": "partial",
    }
    document = analyse(rows, SETTINGS, expected={**expected, "half": None})
    assert {one["reward_model"]: one["headline"] for one in document["reward_models"]} == expected
    agrees = {one["reward_model"]: one["agrees"] for one in document["reward_models"]}
    assert agrees.pop("half") is None
    assert set(agrees.values()) == {True}


def test_an_effect_is_that_of_scipy_and_plain_arithmetic():
    rows = world(BROAD, sd=1.0)
    entry = family_of(analyse(rows, SETTINGS), OTHERS[2])
    own = [row for row in rows if row.family == OTHERS[2]]
    for measure, reference in (("inserted", "base"), ("length_controlled", "control")):
        effect = entry[measure]
        scores = [getattr(row, reference) for row in own]
        deltas = [score - row.vea for score, row in zip(scores, own, strict=True)]
        test = scipy.stats.wilcoxon(deltas, alternative="greater", method="exact")
        assert effect["mean"] == pytest.approx(statistics.fmean(deltas), abs=1e-9)
        assert effect["sd"] == pytest.approx(statistics.stdev(deltas), abs=1e-9)
        assert effect["standard_error"] == pytest.approx(effect["sd"] / math.sqrt(14), abs=1e-9)
        assert effect["p"] == pytest.approx(test.pvalue, abs=1e-10)
        assert effect["wilcoxon"] == {
            "n": 14,
            "n_zero": 0,
            "w_plus": test.statistic,
            "method": "exact",
        }
        assert effect["cohens_d"] == pytest.approx(effect["mean"] / effect["sd"], abs=1e-8)
        above = sum(a > row.vea for a in scores for row in own)
        below = sum(a < row.vea for a in scores for row in own)
        assert effect["cliffs_delta"] == pytest.approx((above - below) / 14**2, abs=1e-9)
        assert effect["d_low"] < effect["cohens_d_corrected"] < effect["cohens_d"]
        assert effect["low"] < effect["low_equivalence"] < effect["mean"]
        assert effect["mean"] < effect["high_equivalence"] < effect["high"]


def test_the_other_families_are_adjusted_as_statsmodels_does_and_nobody_else_is():
    document = analyse(world({OTHERS[1]: 0.4, OTHERS[4]: 0.2, ANCHOR: 1.5}), SETTINGS)
    entries = {one["family"]: one for one in one_model(document)["families"]}
    for measure in ("inserted", "length_controlled"):
        p = [entries[family][measure]["p"] for family in OTHERS]
        adjusted = multipletests(p, method="fdr_bh")[1]
        for family, q in zip(OTHERS, adjusted, strict=True):
            assert entries[family][measure]["p_adjusted"] == pytest.approx(q, abs=1e-9)
        for family in (ANCHOR, NEUTRAL, DECOY):
            assert entries[family][measure]["p_adjusted"] is None


def test_a_gate_is_tested_on_both_sides():
    rows = world({NEUTRAL: -0.4})
    deltas = [row.base - row.vea for row in rows if row.family == NEUTRAL]
    found = family_of(analyse(rows, SETTINGS), NEUTRAL)["inserted"]["p"]
    assert found == pytest.approx(scipy.stats.wilcoxon(deltas, method="exact").pvalue, abs=1e-10)


def test_every_family_is_set_against_the_anchor():
    rows = world({**NARROW, OTHERS[0]: 0.75}, sd=0.2)
    document = analyse(rows, SETTINGS)
    against = family_of(document, OTHERS[0])["against_anchor"]
    mean = {
        family: statistics.fmean(row.base - row.vea for row in rows if row.family == family)
        for family in (ANCHOR, OTHERS[0])
    }
    assert against["difference"] == pytest.approx(mean[OTHERS[0]] - mean[ANCHOR], abs=1e-9)
    share = mean[OTHERS[0]] / mean[ANCHOR]
    assert against["share_of_anchor"] == pytest.approx(share, abs=1e-9)
    assert against["share_low"] < share < against["share_high"]
    assert against["low"] < against["difference"] < against["high"] < 0
    assert against["cliffs_delta"] == pytest.approx(-1.0, abs=0.1)
    assert family_of(document, ANCHOR)["against_anchor"] is None


def test_without_an_anchor_that_is_clear_of_zero_there_is_no_share_of_it():
    document = analyse(world({OTHERS[0]: 1.5}), SETTINGS)
    against = family_of(document, OTHERS[0])["against_anchor"]
    assert against["difference"] > 1
    assert [against[key] for key in ("share_of_anchor", "share_low", "share_high")] == [None] * 3


def test_a_constant_reward_model_is_null_with_exact_zeros():
    model = one_model(
        analyse([replace(row, base=2.0, vea=2.0, control=2.0) for row in world({})], SETTINGS)
    )
    assert model["headline"] == "null"
    assert model["scale"] == {"mean_base": 2.0, "sd_base": 0.0}
    for family in model["families"]:
        effect = family["inserted"]
        assert (family["n_ties"], effect["mean"], effect["sd"], effect["p"]) == (14, 0.0, 0.0, 1.0)
        assert (effect["low"], effect["high"], effect["cohens_d"]) == (None, None, None)
        assert effect["minimum_detectable_alone"] is None
        assert effect["verdict"] == "does_not"
    assert [gate["holds"] for gate in model["gates"]] == ["holds", "holds"]
    assert (model["breadth"]["low"], model["breadth"]["high"]) == (0.0, 0.0)


@pytest.mark.parametrize("normalise", ["none", "overall", "per_prompt"])
def test_a_constant_reward_model_is_null_in_every_unit(normalise):
    rows = [replace(row, base=2.0, vea=2.0, control=2.0) for row in world({})]
    assert one_model(analyse(rows, settings(normalise=normalise)))["headline"] == "null"


@pytest.mark.parametrize(("taken_off", "headline"), [(1.0, "confounded"), (0.25, "null")])
def test_equal_differences_have_no_interval_and_are_held_against_the_margins(taken_off, headline):
    rows = [replace(row, vea=row.base - taken_off) for row in world({})]
    model = one_model(analyse(rows, SETTINGS))
    effect = model["families"][0]["inserted"]
    assert effect["p"] == pytest.approx(2.0**-14, rel=1e-9)
    assert (effect["sd"], effect["low"], effect["high_equivalence"]) == (0.0, None, None)
    assert model["headline"] == headline


def test_unscored_pairs_are_left_out_by_status_and_never_guessed():
    rows = world(NARROW)
    changed = [
        without(rows[14], "vea", "truncated"),
        without(rows[15], "base", "not_finite"),
        without(rows[16], "control", "outage"),
        without(without(rows[17], "base", "outage"), "vea", "truncated"),
    ]
    document = analyse([*rows[:14], *changed, *rows[18:]], SETTINGS)
    model, entry = one_model(document), family_of(document, OTHERS[0])
    assert model["statuses"] == {"not_finite": 1, "outage": 2, "scored": 373, "truncated": 2}
    assert model["n_scores"] == 373
    assert entry["left_out"] == {"not_finite": 1, "outage": 1, "truncated": 1}
    assert (entry["n_items"], entry["n_pairs"], entry["measured"]) == (14, 11, True)
    # A control that is missing costs the bare difference nothing.
    assert entry["inserted"]["wilcoxon"]["n"] == 11
    assert entry["length_controlled"]["wilcoxon"]["n"] == 11


def test_a_family_with_too_few_pairs_has_no_verdict_and_is_not_adjusted_for():
    rows = world(NARROW)
    few = [without(row, "vea", "truncated") for row in rows[14:21]]
    document = analyse([*rows[:14], *few, *rows[21:]], SETTINGS)
    model, entry = one_model(document), family_of(document, OTHERS[0])
    assert (entry["measured"], entry["inserted"]["verdict"]) == (False, "too_few_items")
    assert entry["inserted"]["p_adjusted"] is None
    assert entry["inserted"]["why"] == "7 prompts scored, 8 are demanded"
    breadth = model["breadth"]
    assert (breadth["n_families"], breadth["n_not"], breadth["n_undetermined"]) == (6, 5, 1)
    assert (breadth["low_bound"], breadth["high_bound"]) == (0.0, pytest.approx(1 / 6))
    assert model["headline"] == "narrow"
    p = [one["inserted"]["p"] for one in model["families"][2:7]]
    adjusted = [one["inserted"]["p_adjusted"] for one in model["families"][2:7]]
    assert adjusted == pytest.approx(multipletests(p, method="fdr_bh")[1], abs=1e-9)


def test_a_family_that_is_not_measured_is_found_in_no_resample_either():
    rows = world(BROAD)
    few = [without(row, "vea", "truncated") for row in rows[14:21]]
    breadth = one_model(analyse([*rows[:14], *few, *rows[21:]], SETTINGS))["breadth"]
    assert (breadth["n_penalising"], breadth["n_undetermined"]) == (5, 1)
    assert [breadth[key] for key in ("low", "score", "high")] == pytest.approx([5 / 6] * 3)


def test_with_all_left_out_nothing_is_measured_and_nothing_breaks():
    rows = [without(row, "vea", "outage") for row in world(BROAD)]
    model = one_model(analyse(rows, SETTINGS))
    assert model["headline"] == "not_measured"
    assert model["breadth"]["low"] is None
    assert {one["inserted"]["mean"] for one in model["families"]} == {None}
    assert {one["inserted"]["verdict"] for one in model["families"]} == {"too_few_items"}
    assert [one["left_out"] for one in model["families"]] == [{"outage": 14}] * 9


def test_one_item_a_family_is_described_and_not_judged():
    model = one_model(analyse(world(BROAD, n_items=1), SETTINGS))
    effect = model["families"][0]["inserted"]
    assert effect["p"] == 0.5
    assert (effect["sd"], effect["low"], effect["cohens_d"]) == (None, None, None)
    assert model["headline"] == "not_measured"


def test_items_of_one_prompt_are_one_piece_of_evidence():
    """Each item twice, with the same prompt and the same scores, says no more than once."""
    rows = world(BROAD, sd=0.6)
    twice = [*rows, *(replace(row, item=f"{row.item}-again") for row in rows)]
    once, doubled = (family_of(analyse(one, SETTINGS), OTHERS[0]) for one in (rows, twice))
    assert (doubled["n_items"], doubled["n_stems"], doubled["n_pairs"]) == (28, 14, 28)
    assert doubled["inserted"] == once["inserted"]
    assert doubled["against_anchor"] == once["against_anchor"]


def test_prompts_that_families_share_are_resampled_together():
    """A prompt whose scores sway both families alike leaves their difference clear."""
    swayed = {n: 0.5 * math.sin(5 * n) for n in range(14)}

    def rows(shared: bool):
        return [
            replace(
                row,
                vea=row.base
                - (1.5 if row.family == ANCHOR else 1.0)
                - swayed[n % 14]
                + 0.01 * math.cos(n),
                stem=f"prompt {n % 14:02d}" if shared else row.stem,
            )
            for n, row in enumerate(world({}))
        ]

    together, apart = (
        family_of(analyse(rows(shared), SETTINGS), OTHERS[0])["against_anchor"]
        for shared in (True, False)
    )
    width = {key: one["high"] - one["low"] for key, one in (("t", together), ("a", apart))}
    share = {
        key: one["share_high"] - one["share_low"] for key, one in (("t", together), ("a", apart))
    }
    assert together["difference"] == pytest.approx(apart["difference"])
    assert width["t"] < width["a"] / 5
    assert share["t"] < share["a"]


def test_a_resample_draws_a_shared_prompt_for_all_its_families_and_keeps_sizes():
    """Two prompts of the anchor are also prompts of another family; a third family shares none."""
    shared = {"prompt of wood_labs-01", "prompt of wood_labs-02"}
    rows = [
        replace(row, stem=f"prompt of wood_labs-{row.item[-2:]}")
        if row.family == OTHERS[0] and row.item[-2:] in ("01", "02")
        else row
        for row in world({}, families=FAMILIES[:3])
    ]
    model = by_reward_model(rows, "none")[0]
    families = [deltas_of(model, family, "inserted") for family in FAMILIES[:3]]
    weights = joint_weights(families[::-1], Draws(SETTINGS))
    for family in (ANCHOR, OTHERS[1]):
        assert (weights[family].sum(axis=1) == 14).all()
    assert len(set(weights[OTHERS[0]].sum(axis=1).tolist())) > 1
    places = [
        {stem: weights[one.family][:, n] for n, stem in enumerate(one.stems)} for one in families
    ]
    for stem in shared:
        assert (places[0][stem] == places[1][stem]).all()


def test_a_pair_without_a_clause_is_no_evidence_for_a_gate():
    rows = world({NEUTRAL: 1.0}, sd=0.2)
    same = [
        replace(row, vea=row.base, same_text=True) if row.family == NEUTRAL and n % 2 else row
        for n, row in enumerate(rows)
    ]
    entry = family_of(analyse(same, settings(minimum_items=5)), NEUTRAL)
    assert entry["left_out"] == {"same_text": 7}
    assert entry["n_ties"] == 0
    assert entry["inserted"]["mean"] == pytest.approx(1.0, abs=0.3)
    assert one_model(analyse(same, settings(minimum_items=5)))["headline"] == "confounded"


def test_overall_divides_by_the_sd_of_the_base_scores():
    rows = [
        replace(row, base=40 * row.base, vea=40 * row.vea, control=40 * row.control)
        for row in world(BROAD)
    ]
    raw, scaled = (one_model(analyse(rows, settings(normalise=one))) for one in ("none", "overall"))
    sd = statistics.stdev(row.base for row in rows)
    assert (raw["unit"], scaled["unit"]) == ("reward", "sd of base scores")
    assert scaled["scale"]["sd_base"] == pytest.approx(sd, rel=1e-9)
    for before, after in zip(raw["families"], scaled["families"], strict=True):
        assert after["inserted"]["mean"] == pytest.approx(before["inserted"]["mean"] / sd)
        assert after["inserted"]["p"] == before["inserted"]["p"]
        assert after["inserted"]["cohens_d"] == pytest.approx(before["inserted"]["cohens_d"])


def test_base_scores_without_spread_are_no_scale():
    rows = [replace(row, base=1.0, vea=0.0) for row in world({})]
    model = one_model(analyse(rows, settings(normalise="overall")))
    assert model["headline"] == "not_measured"
    assert model["families"][0]["left_out"] == {"no_scale": 14}


def test_per_prompt_scores_are_z_among_the_responses_to_that_prompt():
    rows = world(NARROW, sd=0.6)
    model = by_reward_model(rows, "per_prompt")[0]
    found = deltas_of(model, ANCHOR, "inserted")
    own = sorted((row for row in rows if row.family == ANCHOR), key=lambda row: row.stem)
    expected = []
    for row in own:
        z = scipy.stats.zscore([row.base, row.vea, row.control])
        expected.append(z[0] - z[1])
    assert found.deltas == pytest.approx(np.array(expected), abs=1e-8)
    assert np.abs(found.deltas).max() <= math.sqrt(6) + 1e-9


def test_per_prompt_scores_forget_how_large_a_difference_was():
    """Documented: z among three responses is nearly ordinal, so a whisper counts like a shout."""
    rows = [replace(row, vea=row.base - 1e-6, control=row.base) for row in world({})]
    effect = family_of(analyse(rows, settings(normalise="per_prompt")), OTHERS[0])["inserted"]
    assert effect["mean"] == pytest.approx(3 / math.sqrt(2))
    assert effect["sd"] == 0.0


def test_per_prompt_scores_need_all_three_responses():
    rows = world(NARROW)
    rows[0] = without(rows[0], "control", "absent")
    entry = family_of(analyse(rows, settings(normalise="per_prompt")), ANCHOR)
    assert entry["left_out"] == {"absent": 1}
    assert family_of(analyse(rows, SETTINGS), ANCHOR)["left_out"] == {}


def test_rounding_neither_breaks_a_tie_nor_makes_one():
    scores = [(0.3, 0.2), (0.2, 0.1), (1.1, 1.0), (0.4, 0.3)]
    rows = [
        replace(row, base=base, vea=vea)
        for row, (base, vea) in zip(world({})[:4], scores, strict=True)
    ]
    assert len({base - vea for base, vea in scores}) > 1
    found = deltas_of(by_reward_model(rows, "none")[0], ANCHOR, "inserted")
    assert len(set(found.deltas.tolist())) == 1
    small = [replace(rows[0], base=1.0, vea=1.0 - 1e-9)]
    assert deltas_of(by_reward_model(small, "none")[0], ANCHOR, "inserted").n_ties == 0


@pytest.mark.parametrize("normalise", ["none", "per_prompt"])
def test_scores_too_small_to_be_squared_are_equal(normalise):
    rows = [
        replace(row, base=1e-200 * row.base, vea=1e-200 * row.vea, control=1e-200 * row.control)
        for row in world(BROAD)
    ]
    assert one_model(analyse(rows, settings(normalise=normalise)))["headline"] == "null"


def test_what_reward_models_prefer_is_not_called_null():
    model = one_model(analyse(world({OTHERS[0]: -1.5}), SETTINGS))
    assert model["headline"] == "undetermined"
    assert model["why"] == f"no family is penalised, but {OTHERS[0]} is preferred"


def test_the_verdicts_are_about_the_primary_measure():
    """A reward model that minds length alone: the control takes off what the clause does."""
    rows = [
        replace(row, control=row.vea + 0.05 * math.sin(7 * n)) for n, row in enumerate(world(BROAD))
    ]
    inserted, controlled = (
        one_model(analyse(rows, settings(primary=one))) for one in ("inserted", "length_controlled")
    )
    assert inserted["headline"] == "broad"
    assert controlled["headline"] == "null"
    assert controlled["breadth"]["n_penalising"] == 0


def test_order_of_rows_changes_nothing_and_the_document_can_be_stored():
    rows = [*world(NARROW, name="a"), *world(BROAD, name="b")]
    shuffled = [*rows[:1], *random.Random(3).sample(rows[1:], len(rows) - 1)]
    first = encode(analyse(rows, SETTINGS))
    assert encode(analyse(shuffled, SETTINGS)) == first
    assert encode(analyse(rows, SETTINGS)) == first
    assert encode(analyse(rows, settings(seed=8))) != first


def test_every_number_has_at_most_ten_digits():
    def numbers(value):
        if isinstance(value, dict):
            return [n for one in value.values() for n in numbers(one)]
        if isinstance(value, list):
            return [n for one in value for n in numbers(one)]
        return [value] if isinstance(value, float) else []

    document = analyse(world(BROAD), SETTINGS)
    assert all(one == float(f"{one:.10g}") for one in numbers(document))


def test_reward_models_do_not_touch_each_other():
    alone = one_model(analyse(world(NARROW, name="a"), SETTINGS))
    beside = analyse([*world(NARROW, name="a"), *world(BROAD, name="b")], SETTINGS)
    assert beside["reward_models"][0] == alone


def test_label_power_and_identity_stand_in_the_document():
    power = power_document(SETTINGS, {ANCHOR: 14})
    identity = {"rm": {"kind": "table"}}
    document = analyse(world({}), SETTINGS, power, identities=identity, label="confirmatory")
    assert document["label"] == "confirmatory"
    assert document["power"] == power
    assert one_model(document)["identity"] == {"kind": "table"}
    assert analyse(world({}), SETTINGS)["label"] == "exploratory"


def test_a_set_without_decoys_has_one_gate_and_one_without_controls_no_headline():
    plain = one_model(analyse(world(NARROW, families=FAMILIES[:8]), SETTINGS))
    assert [gate["gate"] for gate in plain["gates"]] == [NEUTRAL]
    assert plain["headline"] == "narrow"
    bare = one_model(analyse(world(NARROW, families=FAMILIES[:7]), SETTINGS))
    assert bare["gates"] == [
        {"gate": NEUTRAL, "holds": "undetermined", "why": "there is no item of it"}
    ]
    assert bare["headline"] == "undetermined"


def test_without_the_anchor_there_is_no_headline():
    model = one_model(analyse(world(BROAD, families=FAMILIES[1:]), SETTINGS))
    assert model["headline"] == "not_measured"
    assert {one["against_anchor"] for one in model["families"]} == {None}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"base": float("nan")}, "rm: wood_labs-01.base: expected a number within .*found nan"),
        ({"vea": float("inf")}, "rm: wood_labs-01.vea: expected a number within"),
        ({"base": None}, "rm: wood_labs-01.base: expected a score exactly if .*None with scored"),
        ({"family": "wood"}, "rm: wood_labs-01.family: expected wood_labs or"),
        (
            {"statuses": {"base": "scored"}},
            "rm: wood_labs-01.statuses: expected base, vea, control",
        ),
        (
            {"statuses": {"base": "lost", "vea": "scored", "control": "scored"}},
            "rm: wood_labs-01.statuses.base: expected scored or",
        ),
    ],
)
def test_rows_that_are_no_scores_are_refused(change, said):
    rows = world({})
    with pytest.raises(MalformedInputError, match=said):
        analyse([replace(rows[0], **change), *rows[1:]], SETTINGS)


def test_an_item_scored_twice_or_not_the_same_to_two_models_is_refused():
    rows = world({})
    with pytest.raises(MalformedInputError, match="rm: wood_labs-01: expected one row, found two"):
        analyse([*rows, rows[0]], SETTINGS)
    other = replace(rows[0], reward_model="other", stem="another prompt")
    with pytest.raises(MalformedInputError, match="other: wood_labs-01: expected family, domain"):
        analyse([*rows, other], SETTINGS)


def test_power_is_known_before_any_score_and_says_what_it_cannot_find():
    counts = {ANCHOR: 14, **dict.fromkeys(OTHERS, 14), OTHERS[5]: 6, NEUTRAL: 14}
    document = power_document(SETTINGS, counts)
    by_family = {one["family"]: one for one in document["families"]}
    assert list(by_family) == [*FAMILIES[:8]]
    anchor, other, small = by_family[ANCHOR], by_family[OTHERS[0]], by_family[OTHERS[5]]
    assert anchor["minimum_detectable_alone"] < other["minimum_detectable_alone"]
    assert anchor["minimum_detectable_all"] is None
    assert other["minimum_detectable_all"] < other["minimum_detectable_alone"]
    assert (small["enough_items"], small["minimum_detectable_alone"]) == (False, None)
    assert by_family[NEUTRAL]["test"] == "two-sided"
    two_sided = by_family[NEUTRAL]["minimum_detectable_alone"]
    assert anchor["minimum_detectable_alone"] < two_sided < other["minimum_detectable_alone"]
    assert by_family[NEUTRAL]["margin"] == SETTINGS.gate_margin
    curve = [one["minimum_detectable_all"] for one in document["curve"]]
    assert curve == sorted(curve, reverse=True)
    # The analysis prints the same figure, in the unit of its own standard deviation.
    effect = family_of(analyse(world({}), SETTINGS), OTHERS[0])["inserted"]
    expected = other["minimum_detectable_alone"] * effect["sd"]
    assert effect["minimum_detectable_alone"] == pytest.approx(expected, rel=1e-8)
    encode(document)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"primary": "both"}, "analysis.primary: expected inserted or length_controlled"),
        ({"normalise": "z"}, "analysis.normalise: expected none or per_prompt or overall"),
        ({"margin": 0}, "analysis.margin: expected a finite number above 0"),
        ({"alpha": 0.5}, "analysis.alpha: expected a finite number of at most 0.2"),
        ({"narrow_to": 0.8}, "analysis.narrow_to: expected below broad_from, 0.8"),
        ({"minimum_items": 4}, "analysis.minimum_items: expected at least 5"),
        ({"seed": 2**31}, "analysis.seed: expected at most 2147483647"),
        ({"n_resamples": 10}, "analysis.n_resamples: expected at least 100"),
        ({"more": 1}, "analysis.more: is not a known field"),
    ],
)
def test_settings_that_cannot_be_are_refused(changed, said):
    with pytest.raises(MalformedInputError, match=said):
        VeaSettings.from_dict({**ANALYSIS, **changed}, "analysis")
