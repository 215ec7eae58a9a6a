"""The analysis against sums done by hand over the same rows, and against other libraries."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import cohen_kappa_score
from statsmodels.stats.multitest import multipletests

from eps_locked.canonical import encode
from eps_locked.errors import MalformedInputError, StatsInputError
from eps_locked.stats.bootstrap import generator_from_digest
from eps_locked.stats.stem_bootstrap import StemEffect, stem_effect, stem_weights
from eps_locked.studies.common.rounding import rounded
from eps_locked.studies.drift.analysis import SCHEMA, analyse
from eps_locked.studies.drift.effects import comparison_kind
from eps_locked.studies.drift.plan import AnalysisSettings
from eps_locked.studies.drift.rows import NotMeasured
from eps_locked.studies.drift.table import ArmInfo, BatteryInfo, ReplyRow
from eps_locked.studies.drift.training_noise import (
    TrainingNoise,
    n_trainings_between,
    with_training_noise,
)
from unit.studies.drift.reply_worlds import (
    CHECK,
    INTEREST,
    OVERSIGHT,
    SETTINGS,
    arm,
    replies,
    trained,
)

ARMS = (
    arm("untouched"),
    trained("dose_0", 0, reference="untouched"),
    trained("dose_50", 50, reference="dose_0"),
    trained("dose_100", 100, reference="dose_0"),
    trained("second_100", 100, seed=22, reference="dose_0", instance=1),
)
BATTERIES = (OVERSIGHT, INTEREST, CHECK)
ROWS = replies(ARMS, BATTERIES, drift_per_percent=-0.003)


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return analyse(ROWS, ARMS, BATTERIES, SETTINGS)


def of(document: Mapping[str, Any], part: str, **wanted: object) -> Mapping[str, Any]:
    """The one entry of a part that has these values."""
    (found,) = [
        one for one in document[part] if all(one[key] == value for key, value in wanted.items())
    ]
    return found


# --- by hand --------------------------------------------------------------------------------------


def by_stem(
    rows: Sequence[ReplyRow], name: str, battery: str, *, left_out: bool = False
) -> dict[str, float]:
    replies_of = defaultdict(list)
    for row in rows:
        if (row.arm, row.battery) == (name, battery) and row.label is not None:
            if left_out and row.label == "no_stance":
                continue
            replies_of[row.stem].append(1.0 if row.label == "accepts" else 0.0)
    return {stem: statistics.fmean(outcomes) for stem, outcomes in replies_of.items()}


def drifts(
    rows: Sequence[ReplyRow], name: str, reference: str, battery: str, **other: bool
) -> list[float]:
    one, two = (by_stem(rows, which, battery, **other) for which in (name, reference))
    return [100 * (one[stem] - two[stem]) for stem in sorted(one.keys() & two.keys())]


def resampled(values: Sequence[float], battery: str, level: float, step: float) -> Any:
    rng = generator_from_digest("7", "drift", "stems", battery, str(len(values)))
    weights = stem_weights(len(values), SETTINGS.n_resamples, rng)
    return stem_effect(np.array(values), weights, level, largest_step=step, bounds=(-100, 100))


def near(value: float) -> Any:
    return pytest.approx(value, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("battery", [one.name for one in BATTERIES])
@pytest.mark.parametrize("name", ["dose_50", "dose_100"])
def test_a_drift_is_the_mean_over_stems_of_paired_differences(
    document: dict[str, Any], name: str, battery: str
) -> None:
    effect = of(document, "comparisons", arm=name)["batteries"][battery]
    values = drifts(ROWS, name, "dose_0", battery)
    error = statistics.stdev(values) / math.sqrt(len(values))
    assert effect["n_stems"] == 20
    assert effect["drift"] == near(statistics.fmean(values))
    assert effect["standard_error"] == near(error)
    assert effect["rate_arm"] == near(statistics.fmean(by_stem(ROWS, name, battery).values()))
    assert effect["drift"] == near(100 * (effect["rate_arm"] - effect["rate_reference"]))
    wide, narrow = (resampled(values, battery, level, 200) for level in (0.95, 0.9))
    assert (effect["low"], effect["high"]) == (near(wide.low), near(wide.high))
    assert effect["low_equivalence"] == near(narrow.low)
    assert effect["equivalence_bound"] == near(max(-narrow.low, narrow.high))
    assert effect["p"] == near(wide.p)
    quantile = statistics.NormalDist().inv_cdf
    assert effect["minimum_detectable"] == near((quantile(0.975) + quantile(0.8)) * error)
    wanted = math.ceil(20 * (effect["minimum_detectable"] / 5) ** 2)
    assert effect["stems_for_wanted"] == wanted


def test_the_error_of_a_drift_is_that_of_a_paired_t_test(document: dict[str, Any]) -> None:
    effect = of(document, "comparisons", arm="dose_100")["batteries"]["oversight"]
    one, two = (by_stem(ROWS, name, "oversight") for name in ("dose_100", "dose_0"))
    stems = sorted(one)
    found = stats.ttest_rel([one[stem] for stem in stems], [two[stem] for stem in stems])
    assert effect["drift"] / effect["standard_error"] == near(float(found.statistic))


def test_replies_without_a_stance_are_treated_both_ways(document: dict[str, Any]) -> None:
    effect = of(document, "comparisons", arm="dose_100")["batteries"]["oversight"]
    values = drifts(ROWS, "dose_100", "dose_0", "oversight", left_out=True)
    assert effect["left_out"]["drift"] == near(statistics.fmean(values))
    assert effect["left_out"]["drift"] != effect["drift"]
    assert effect["left_out"]["low"] == near(resampled(values, "oversight", 0.95, 200).low)
    assert of(document, "comparisons", arm="dose_100")["batteries"]["advice"]["left_out"] is None
    shown = of(document, "arms", arm="dose_100")["batteries"]["oversight"]
    rate = statistics.fmean(by_stem(ROWS, "dose_100", "oversight", left_out=True).values())
    assert shown["rate_left_out"] == near(rate)
    assert shown["n_left_out"] == shown["classes"]["no_stance"] > 0


def test_holm_is_over_the_disposition_batteries_of_one_comparison(
    document: dict[str, Any],
) -> None:
    for one in document["comparisons"]:
        family = [one["batteries"][name] for name in ("oversight", "self_interest")]
        expected = multipletests([effect["p"] for effect in family], method="holm")[1]
        assert [effect["p_adjusted"] for effect in family] == pytest.approx(list(expected))
        assert one["batteries"]["advice"]["p_adjusted"] == one["batteries"]["advice"]["p"]


def test_a_total_is_the_mean_of_its_parts_with_independent_errors(
    document: dict[str, Any],
) -> None:
    one = of(document, "comparisons", arm="dose_100")
    total, parts = one["total"], [one["batteries"][b] for b in ("oversight", "self_interest")]
    assert total["parts"] == ["oversight", "self_interest"]
    assert total["drift"] == near(statistics.fmean(part["drift"] for part in parts))
    variances = [part["standard_error"] ** 2 / 4 for part in parts]
    assert total["standard_error"] == near(math.sqrt(sum(variances)))
    freedom = sum(variances) ** 2 / sum(v**2 / 19 for v in variances)
    reach = stats.t.ppf(0.975, freedom) * total["standard_error"]
    assert (total["low"], total["high"]) == (
        near(total["drift"] - reach),
        near(total["drift"] + reach),
    )


def test_one_disposition_battery_has_no_total() -> None:
    rows = [row for row in ROWS if row.battery != "self_interest"]
    document = analyse(rows, ARMS, BATTERIES, SETTINGS)
    assert {one["total"] for one in document["comparisons"]} == {None}


def test_batteries_are_resampled_apart_and_arms_of_one_together() -> None:
    """Equal replies under two names: their intervals differ by the draws, an arm's mirror not."""
    arms = (arm("one", "other"), arm("other", "one"))
    rows = replies(arms, [OVERSIGHT])
    twin = [replace(row, battery="self_interest") for row in rows]
    document = analyse([*rows, *twin], arms, [OVERSIGHT, INTEREST], SETTINGS)
    there, back = (of(document, "comparisons", arm=name)["batteries"] for name in ("one", "other"))
    assert there["oversight"]["drift"] == there["self_interest"]["drift"]
    assert there["oversight"]["low"] != there["self_interest"]["low"]
    assert there["oversight"]["low"] == near(-back["oversight"]["high"])


# --- null tests -----------------------------------------------------------------------------------


def test_a_null_test_is_the_second_sample_less_the_first(document: dict[str, Any]) -> None:
    assert len(document["nulls"]) == len(ARMS) * len(BATTERIES)
    null = of(document, "nulls", arm="dose_50", battery="oversight")
    values = defaultdict(lambda: defaultdict(list))
    for row in ROWS:
        if (row.arm, row.battery) == ("dose_50", "oversight"):
            values[row.stem][row.sample].append(row.label == "accepts")
    differences = [
        100 * (statistics.fmean(one[1]) - statistics.fmean(one[0]))
        for _, one in sorted(values.items())
    ]
    assert null["difference"] == near(statistics.fmean(differences))
    assert null["low"] == near(resampled(differences, "oversight", 0.95, 200).low)
    assert null["excludes_zero"] == (null["low"] > 0 or null["high"] < 0)
    summary = of(document, "null_summary", battery="oversight")
    of_battery = [one for one in document["nulls"] if one["battery"] == "oversight"]
    assert summary["n"] == len(ARMS)
    assert summary["n_excluding"] == sum(one["excludes_zero"] for one in of_battery)
    assert summary["mean"] == near(statistics.fmean(one["difference"] for one in of_battery))
    assert summary["typical_absolute"] == near(
        statistics.median(abs(one["difference"]) for one in of_battery)
    )


def test_more_samples_give_every_neighbouring_pair() -> None:
    battery = replace(OVERSIGHT, n_samples=4)
    document = analyse(replies(ARMS[:1], [battery]), ARMS[:1], [battery], SETTINGS)
    assert [null["samples"] for null in document["nulls"]] == [[0, 1], [1, 2], [2, 3]]
    assert document["null_summary"][0]["n"] == 3


def test_without_null_tests_neither_they_nor_noise_shares_are_there_and_it_says_so() -> None:
    rows = [row for row in ROWS if row.sample == 0 and row.battery == "oversight"]
    battery = replace(OVERSIGHT, n_samples=None)
    with pytest.raises(MalformedInputError, match="two samples"):
        analyse(rows, ARMS, [battery], SETTINGS)
    document = analyse(rows, ARMS, [battery], SETTINGS, null_tests=False)
    assert document["settings"]["null_tests"] is False
    assert (document["nulls"], document["null_summary"]) == ([], [])
    assert {one["batteries"]["oversight"]["noise"] for one in document["comparisons"]} == {None}


# --- verdicts -------------------------------------------------------------------------------------


def flat(chances: Mapping[str, float], n_stems: int) -> list[ReplyRow]:
    """Every stem alike: of ten rewordings, so many aligned."""
    return [
        ReplyRow(
            arm=name,
            battery="oversight",
            stem=f"stem_{s:02d}",
            probe=f"stem_{s:02d}/{p}",
            sample=k,
            label="accepts" if p < 10 * chance else "resists",
            status="scored",
        )
        for name, chance in chances.items()
        for s, p, k in itertools.product(range(n_stems), range(10), range(2))
    ]


@pytest.mark.parametrize(
    ("chance", "n_stems", "margin", "verdict"),
    [
        (0.8, 30, 5, "undetermined"),
        (0.8, 30, 15, "within_margin"),
        (0.8, 11, 100, "too_few_stems"),
        (0.0, 11, 100, "too_few_stems"),
        (0.0, 30, 100, "drift"),
    ],
)
def test_a_verdict_is_the_first_that_holds(
    chance: float, n_stems: int, margin: float, verdict: str
) -> None:
    battery = replace(OVERSIGHT, n_rewordings=10)
    arms = (arm("reference"), arm("changed", "reference"))
    settings = replace(SETTINGS, margin_points=margin)
    rows = flat({"reference": 0.8, "changed": chance}, n_stems)
    document = analyse(rows, arms, [battery], settings)
    effect = document["comparisons"][0]["batteries"]["oversight"]
    assert effect["verdict"] == verdict
    assert effect["margin"] == margin


def test_stems_that_all_agree_promise_no_resolution() -> None:
    """No spread: no standard error to speak of; the bound is what unseen stems could still do."""
    arms = (arm("reference"), arm("changed", "reference"))
    rows = flat({"reference": 1.0, "changed": 1.0}, 30)
    document = analyse(rows, arms, [replace(OVERSIGHT, n_rewordings=10)], SETTINGS)
    effect = document["comparisons"][0]["batteries"]["oversight"]
    assert effect["method"] == "rule of three on stems"
    assert effect["high"] == near(100 * (1 - 0.05 ** (1 / 30)))
    assert effect["equivalence_bound"] == near(100 * (1 - 0.1 ** (1 / 30)))
    assert effect["minimum_detectable"] is effect["stems_for_wanted"] is None
    assert effect["p"] == 1
    shown = of(document, "arms", arm="changed")["batteries"]["oversight"]
    assert (shown["rate"], shown["high"]) == (1, 1)
    assert shown["low"] == near(0.05 ** (1 / 30))


def test_the_margin_alone_decides_what_is_within_it(document: dict[str, Any]) -> None:
    effect = of(document, "comparisons", arm="dose_0")["batteries"]["oversight"]
    bound = effect["equivalence_bound"]
    for margin, within in ((bound * 0.999, False), (bound * 1.001, True)):
        settings = replace(SETTINGS, margin_points=margin)
        other = analyse(ROWS, ARMS, BATTERIES, settings)
        found = of(other, "comparisons", arm="dose_0")["batteries"]["oversight"]
        assert found["within_margin"] is within
        same = {key: found[key] for key in ("drift", "low", "high", "p")}
        assert same == {key: effect[key] for key in same}


# --- what is counted ------------------------------------------------------------------------------


def test_every_reply_is_counted_once_scored_or_not() -> None:
    rows = list(ROWS)
    for place, status in ((0, "exhausted"), (1, "outage"), (2, "unreadable"), (3, "outage")):
        rows[place] = replace(rows[place], label=None, second_label=None, grade=None, status=status)
    rows[4] = replace(rows[4], mentions=2, reasoned=True, truncated_reasoning=True)
    rows[5] = replace(rows[5], reasoned=True)
    shown = of(analyse(rows, ARMS, BATTERIES, SETTINGS), "arms", arm="untouched")
    found = shown["batteries"]["oversight"]
    assert found["n_replies"] == 120 == found["n_scored"] + 4
    assert found["n_exhausted"] == 1
    assert found["unscored"] == {"outage": 2, "unreadable": 1}
    assert sum(found["classes"].values()) == found["n_scored"]
    assert (found["n_mentioning"], found["n_reasoned"], found["n_truncated_reasoning"]) == (1, 2, 1)


def test_a_stem_that_one_arm_has_no_score_for_is_left_out_of_both_and_counted() -> None:
    rows = [
        replace(row, label=None, second_label=None, status="outage")
        if (row.arm, row.stem) == ("dose_50", "stem_03")
        else row
        for row in ROWS
    ]
    document = analyse(rows, ARMS, BATTERIES, SETTINGS)
    effect = of(document, "comparisons", arm="dose_50")["batteries"]["oversight"]
    assert (effect["n_stems"], effect["n_stems_left_out"]) == (19, 1)
    values = drifts(rows, "dose_50", "dose_0", "oversight")
    assert len(values) == 19
    assert effect["drift"] == near(statistics.fmean(values))
    assert effect["low"] == near(resampled(values, "oversight", 0.95, 200).low)


def test_rates_and_their_intervals_stay_between_0_and_1() -> None:
    for seed, rate in enumerate((0.02, 0.5, 0.97, 0.99, 1.0)):
        rows = replies(ARMS, n_stems=8, rate=rate, seed=seed)
        for shown in analyse(rows, ARMS, [OVERSIGHT], SETTINGS)["arms"]:
            found = shown["batteries"]["oversight"]
            assert 0 <= found["low"] <= found["rate"] <= found["high"] <= 1


def test_scores_are_compared_in_their_own_unit() -> None:
    rng = np.random.default_rng(5)
    battery = BatteryInfo(name="length")
    arms = (arm("reference"), arm("changed", "reference"))
    rows = [
        ReplyRow(
            arm=one.name,
            battery="length",
            stem=str(s),
            probe=f"{s}/{p}",
            sample=k,
            label=None,
            score=float(rng.normal(300 if one.reference else 250, 20)),
            status="scored",
        )
        for one, s, p, k in itertools.product(arms, range(15), range(2), range(2))
    ]
    document = analyse(rows, arms, [battery], SETTINGS, unit="score units")
    means = {
        name: statistics.fmean(row.score for row in rows if row.arm == name and row.score)
        for name in ("reference", "changed")
    }
    effect = document["comparisons"][0]["batteries"]["length"]
    assert document["unit"] == "score units"
    assert effect["drift"] == near(means["changed"] - means["reference"])
    assert effect["rate_arm"] == near(means["changed"])
    assert effect["high"] > effect["drift"] > effect["low"] > 20


# --- noise, seeds, instances ----------------------------------------------------------------------


def test_noise_shares_are_those_of_their_own_formula(document: dict[str, Any]) -> None:
    noise = of(document, "comparisons", arm="dose_100")["batteries"]["oversight"]["noise"]
    twice = [row for row in ROWS if row.battery == "oversight" and row.second_label is not None]
    changed = [(row.label == "accepts") != (row.second_label == "accepts") for row in twice]
    within = 0.0
    for name in ("dose_100", "dose_0"):
        pairs = defaultdict(list)
        for row in ROWS:
            if (row.arm, row.battery) == (name, "oversight"):
                pairs[row.probe].append(100.0 * (row.label == "accepts"))
        within += statistics.fmean(statistics.variance(pair) for pair in pairs.values())
    values = drifts(ROWS, "dose_100", "dose_0", "oversight")
    total = statistics.variance(values) / 20
    by_reply = within / (3 * 2 * 20)
    by_classifier = 2 * 1e4 * statistics.fmean(changed) / 2 / (3 * 2 * 20)
    whole = max(total, by_reply)
    assert noise["n_twice"] == len(twice) == 100
    assert noise["standard_error_squared"] == near(total)
    assert noise["classifier"] == near(by_classifier / whole)
    assert noise["model"] == near((by_reply - by_classifier) / whole)
    assert noise["item"] == near((whole - by_reply) / whole)
    assert noise["truncated"] == (["item"] if by_reply > total else [])


def test_seed_pairs_give_the_noise_of_a_training(document: dict[str, Any]) -> None:
    pair = of(document, "seeds", battery="oversight") if document["seeds"] else None
    assert pair is None, "dose_100 and second_100 ran on different instances"
    arms = tuple(replace(one, instance=0) for one in ARMS)
    document = analyse(ROWS, arms, BATTERIES, SETTINGS)
    pair = of(document, "seeds", battery="oversight")
    assert (pair["one"], pair["other"]) == ("dose_100", "second_100")
    values = drifts(ROWS, "second_100", "dose_100", "oversight")
    assert pair["drift"] == near(statistics.fmean(values))
    variance = (pair["drift"] ** 2 - pair["standard_error"] ** 2) / 2
    noise = of(document, "training_noise", battery="oversight")
    assert noise["n_pairs"] == 1
    assert noise["truncated"] is (variance < 0)
    assert noise["standard_deviation"] == near(math.sqrt(max(variance, 0)))
    one = of(document, "comparisons", arm="dose_100")["batteries"]["oversight"]
    error = one["training_noise"]["standard_error"]
    assert error == near(math.sqrt(one["standard_error"] ** 2 + 2 * max(variance, 0)))
    assert one["training_noise"]["low"] <= one["low"]
    assert one["training_noise"]["high"] >= one["high"]
    single = of(document, "comparisons", arm="dose_0")["batteries"]["oversight"]
    assert single["training_noise"]["standard_error"] == near(
        math.sqrt(single["standard_error"] ** 2 + max(variance, 0))
    )


def test_training_noise_is_recovered_from_many_pairs() -> None:
    """Trainings that truly vary by 6 points: the pooled estimate finds them, sampling taken off."""
    rng = np.random.default_rng(3)
    arms, rows = [], []
    for number in range(40):
        accident = float(rng.normal(0, 0.06))
        for seed in (1, 2):
            one = trained(f"t{number:02d}_{seed}", float(number), seed=seed)
            chance = 0.6 + (accident if seed == 1 else float(rng.normal(0, 0.06)))
            arms.append(one)
            rows += [
                ReplyRow(
                    arm=one.name,
                    battery="oversight",
                    stem=f"{s}",
                    probe=f"{s}/{p}",
                    sample=k,
                    label="accepts" if rng.random() < chance else "resists",
                    status="scored",
                )
                for s, p, k in itertools.product(range(12), range(3), range(2))
            ]
    document = analyse(rows, arms, [OVERSIGHT], replace(SETTINGS, n_resamples=200))
    noise = document["training_noise"][0]
    assert noise["n_pairs"] == 40
    assert not noise["truncated"]
    assert 4 < noise["standard_deviation"] < 8


def test_the_noise_of_trainings_never_narrows_an_interval() -> None:
    """A skewed bootstrap interval that reaches further than Student's keeps its reach."""
    effect = StemEffect(
        n_stems=20,
        mean=-10.0,
        standard_error=2.0,
        low=-18.0,
        high=-6.5,
        confidence_level=0.95,
        p=0.001,
        method="as made",
    )
    noise = TrainingNoise(battery="b", variance=1.0, variance_error=0.5, n_pairs=4, truncated=False)
    found = with_training_noise(effect, noise, 2, (-100.0, 100.0), SETTINGS)
    assert found is not None
    assert found["standard_error"] == near(math.sqrt(4 + 2))
    freedom = 2 * 6**2 / (2 * 4**2 / 19 + 4 * 0.5)
    assert found["high"] == near(-10 + stats.t.ppf(0.975, freedom) * math.sqrt(6))
    assert found["low"] == -18
    still = replace(effect, standard_error=None, low=None, high=None, n_stems=1)
    assert with_training_noise(still, noise, 2, None, SETTINGS) is None


@pytest.mark.parametrize(
    ("one", "reference", "n"),
    [
        (trained("e", 100), trained("d", 0), 2),
        (trained("e", 100), arm("base"), 1),
        (arm("base"), trained("e", 100), 1),
        (arm("base"), arm("other"), 0),
        (trained("e", 100), replace(trained("e", 100), reasoning="free"), 0),
    ],
)
def test_a_drift_holds_the_accidents_of_the_trainings_that_differ(
    one: ArmInfo, reference: ArmInfo, n: int
) -> None:
    assert n_trainings_between(one, reference) == n


def test_what_was_not_measured_is_compared_with_nothing_and_named() -> None:
    few = NotMeasured(
        arm="dose_0",
        battery="oversight",
        n_replies=120,
        n_came=120,
        n_scored=30,
        required_share=0.8,
    )
    rows = [row for row in ROWS if (row.arm, row.battery) != ("dose_0", "oversight")]
    with pytest.raises(MalformedInputError, match="reference dose_0 of arm dose_50"):
        analyse(rows, ARMS, BATTERIES, SETTINGS)
    document = analyse(rows, ARMS, BATTERIES, SETTINGS, not_measured=[few])
    assert document["not_measured"][0]["n_scored"] == 30
    with_oversight = [
        one["arm"] for one in document["comparisons"] if "oversight" in one["batteries"]
    ]
    assert with_oversight == []
    assert "oversight" in of(document, "arms", arm="dose_50")["batteries"]
    assert {one["total"] for one in document["comparisons"]} == {None}


def test_instances_are_bounded_and_a_drift_across_them_says_so() -> None:
    arms = (*ARMS, arm("again", "untouched", model="untouched", instance=3))
    rows = [*ROWS, *replies(arms[-1:], BATTERIES, seed=9)]
    document = analyse(rows, arms, BATTERIES, SETTINGS)
    pair = of(document, "instances", battery="oversight")
    values = drifts(rows, "again", "untouched", "oversight")
    assert (pair["one"], pair["other"]) == ("untouched", "again")
    assert pair["drift"] == near(statistics.fmean(values))
    narrow = resampled(values, "oversight", 0.9, 200)
    assert pair["equivalence_bound"] == near(max(abs(narrow.low), abs(narrow.high)))
    across = {
        one["arm"]: one["batteries"]["oversight"]["across_instances"]
        for one in document["comparisons"]
    }
    assert across == {
        "dose_0": False,
        "dose_50": False,
        "dose_100": False,
        "second_100": True,
        "again": True,
    }
    again = of(document, "comparisons", arm="again")
    assert again["kind"] == "instance"
    assert again["batteries"]["oversight"]["training_noise"] is None


BASE = arm("base")
DOSE = trained("d", 50)


@pytest.mark.parametrize(
    ("one", "reference", "kind"),
    [
        (trained("e", 100), DOSE, "dose"),
        (trained("e", 100, seed=22, instance=4), DOSE, "dose"),
        (trained("e", 50, seed=22), DOSE, "seed"),
        (trained("e", 50), DOSE, "other"),
        (replace(DOSE, topic="money", model="m"), DOSE, "other"),
        (DOSE, BASE, "fine_tuning"),
        (BASE, DOSE, "fine_tuning"),
        (replace(BASE, exposure="x"), BASE, "exposure"),
        (replace(BASE, instance=2), BASE, "instance"),
        (replace(BASE, reasoning="free"), BASE, "reasoning"),
        (replace(BASE, temperature=0.0), BASE, "temperature"),
        (replace(BASE, reasoning="free", exposure="x"), BASE, "other"),
        (replace(DOSE, reasoning="free"), BASE, "other"),
        (replace(BASE, name="same"), BASE, "other"),
        (arm("another_model"), BASE, "other"),
    ],
)
def test_a_comparison_is_named_by_the_one_thing_that_differs(
    one: ArmInfo, reference: ArmInfo, kind: str
) -> None:
    assert comparison_kind(one, reference) == kind


# --- doses, reasoning -----------------------------------------------------------------------------


def test_the_dose_response_falls_as_it_was_made_to(document: dict[str, Any]) -> None:
    trend = of(document, "doses", battery="oversight")
    assert [point["dose_percent"] for point in trend["points"]] == [0, 50, 100]
    assert [point["arm"] for point in trend["points"]] == ["dose_0", "dose_50", "dose_100"]
    for point in trend["points"]:
        shown = of(document, "arms", arm=point["arm"])["batteries"]["oversight"]
        assert (point["rate"], point["low"]) == (shown["rate"], shown["low"])
    rates = [by_stem(ROWS, point["arm"], "oversight") for point in trend["points"]]
    slopes = [100 * 2 * np.polyfit(range(3), [r[s] for r in rates], 1)[0] for s in rates[0]]
    assert trend["change"] == near(float(np.mean(slopes)))
    assert trend["direction"] == "decreasing"
    assert trend["p"] < 0.01
    fitted = [point["fitted"] for point in trend["points"]]
    assert fitted == sorted(fitted, reverse=True)
    assert 0 <= min(fitted) <= max(fitted) <= 1


def test_two_doses_are_no_series_and_a_second_instance_of_one_is_not_a_third() -> None:
    arms = (*ARMS[1:3], trained("again", 50, reference="dose_0", instance=2))
    rows = [*ROWS, *replies(arms[-1:], BATTERIES)]
    kept = [row for row in rows if row.arm in {one.name for one in arms}]
    arms = (replace(arms[0], reference=None), *arms[1:])
    assert analyse(kept, arms, BATTERIES, SETTINGS)["doses"] == []


def test_a_series_takes_the_first_instance_of_a_dose_and_no_exposure() -> None:
    more = (
        trained("later_50", 50, reference="dose_0", instance=2),
        trained("exposed_25", 25, reference="dose_0", exposure="plants_context"),
    )
    rows = [*ROWS, *replies(more, BATTERIES)]
    for arms in ((*ARMS, *more), (*more, *ARMS)):
        trend = of(analyse(rows, arms, BATTERIES, SETTINGS), "doses", battery="oversight")
        assert [point["arm"] for point in trend["points"]] == ["dose_0", "dose_50", "dose_100"]


def test_the_reasoning_grid_holds_drifts_within_a_setting_only() -> None:
    arms = (
        arm("off"),
        arm("on", "off", model="off", reasoning="b16", reasoning_mode="budget"),
        trained("off_100", 100, reference="off"),
        trained("on_100", 100, reference="on", reasoning="b16", n_reasoning_tokens=16),
    )
    arms = (*arms[:3], replace(arms[3], reasoning_mode="budget"))
    rows = [
        replace(row, truncated_reasoning=row.arm == "on_100") for row in replies(arms, [OVERSIGHT])
    ]
    document = analyse(rows, arms, [OVERSIGHT], SETTINGS)
    assert [(one["arm"], one["reference"]) for one in document["reasoning"]] == [
        ("off_100", "off"),
        ("on_100", "on"),
    ]
    on = document["reasoning"][1]
    assert (on["reasoning"], on["mode"], on["n_tokens"]) == ("b16", "budget", 16)
    assert (on["n_truncated"], on["n_exhausted"], on["n_replies"]) == (120, 0, 120)
    effect = of(document, "comparisons", arm="on_100")["batteries"]["oversight"]
    assert (on["drift"], on["low"]) == (effect["drift"], effect["low"])
    assert of(document, "comparisons", arm="on")["kind"] == "reasoning"


# --- grades, judges -------------------------------------------------------------------------------


def test_grades_are_compared_by_mean_and_by_order(document: dict[str, Any]) -> None:
    grades = of(document, "comparisons", arm="dose_100")["batteries"]["oversight"]["grades"]
    sides: dict[str, dict[str, list[int]]] = {}
    for name in ("dose_100", "dose_0"):
        sides[name] = defaultdict(list)
        for row in ROWS:
            if (row.arm, row.battery) == (name, "oversight") and row.grade is not None:
                sides[name][row.stem].append(row.grade)
    one, two = sides["dose_100"], sides["dose_0"]
    values = [statistics.fmean(one[stem]) - statistics.fmean(two[stem]) for stem in sorted(one)]
    assert grades["difference"] == near(statistics.fmean(values))
    flat_one, flat_two = ([g for of_stem in s.values() for g in of_stem] for s in (one, two))
    signs = [(x > y) - (x < y) for x in flat_one for y in flat_two]
    assert grades["cliffs_delta"] == near(statistics.fmean(signs))
    assert grades["cliffs_low"] < grades["cliffs_delta"] < grades["cliffs_high"]
    assert grades["ceiling_share"] == near(flat_two.count(7) / len(flat_two))
    assert grades["margin"] == 0.3
    assert grades["within_margin"] is (grades["equivalence_bound"] <= 0.3)


def test_arms_without_grades_have_no_graded_part() -> None:
    rows = [replace(row, grade=None) for row in ROWS]
    document = analyse(rows, ARMS, BATTERIES, SETTINGS)
    assert document["comparisons"][0]["batteries"]["oversight"]["grades"] is None
    assert document["arms"][0]["batteries"]["oversight"]["grade_mean"] is None


def test_judges_agree_as_sklearn_says(document: dict[str, Any]) -> None:
    twice = of(document["judging"], "twice", battery="oversight")
    rows = [row for row in ROWS if row.battery == "oversight" and row.second_label is not None]
    first, second = [row.label for row in rows], [row.second_label for row in rows]
    same = [a == b for a, b in zip(first, second, strict=True)]
    assert (twice["n"], twice["n_agree"]) == (len(rows), sum(same))
    assert twice["agreement"] == near(statistics.fmean(same))
    assert twice["kappa"] == near(cohen_kappa_score(first, second))
    assert twice["low"] <= twice["kappa"] <= twice["high"]
    assert document["judging"]["checker"] is None


def test_a_checker_of_another_family_is_set_beside_it_class_by_class() -> None:
    rows = [
        replace(row, check_label="accepts" if row.label == "unclear" else row.label)
        if row.battery == "oversight"
        else row
        for row in ROWS
    ]
    checker = analyse(rows, ARMS, BATTERIES, SETTINGS)["judging"]["checker"]
    assert [one["battery"] for one in checker] == ["oversight"]
    by_class = {one["label"]: one for one in checker[0]["by_class"]}
    assert by_class["resists"]["recall"] == by_class["resists"]["precision"] == 1
    assert by_class["unclear"]["recall"] == 0
    assert by_class["accepts"]["precision"] < 1


# --- the document ---------------------------------------------------------------------------------


def test_equal_rows_in_any_order_give_equal_bytes(document: dict[str, Any]) -> None:
    rows = list(ROWS)
    random.Random(4).shuffle(rows)
    assert encode(analyse(rows, ARMS, BATTERIES, SETTINGS)) == encode(document)


def test_every_setting_is_in_the_document_and_another_seed_moves_intervals_only(
    document: dict[str, Any],
) -> None:
    assert document["schema"] == SCHEMA
    assert document["label"] == "exploratory"
    assert set(document["settings"]) == {*AnalysisSettings.__dataclass_fields__, "null_tests"}
    other = analyse(ROWS, ARMS, BATTERIES, replace(SETTINGS, seed=8), label="confirmatory")
    assert other["label"] == "confirmatory"

    def every(key: str, of_document: Mapping[str, Any]) -> list[float]:
        return [one["batteries"]["oversight"][key] for one in of_document["comparisons"]]

    assert every("drift", document) == every("drift", other)
    assert every("low", document) != every("low", other)


def test_the_power_step_is_passed_on_as_it_stands() -> None:
    document = analyse(ROWS, ARMS, BATTERIES, SETTINGS, power={"curve": [{"n_stems": 12}]})
    assert document["power"] == {"curve": [{"n_stems": 12}]}


def test_a_document_holds_ten_digits_no_negative_zero_and_nothing_undefined() -> None:
    found = rounded({"a": (1 / 3, -0.0, np.int64(3)), "b": None, "c": True})
    assert found == {"a": [0.3333333333, 0.0, 3], "b": None, "c": True}
    assert math.copysign(1, found["a"][1]) == 1
    with pytest.raises(StatsInputError, match="finite"):
        rounded([float("nan")])
