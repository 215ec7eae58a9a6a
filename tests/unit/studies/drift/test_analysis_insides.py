"""Internal readouts and evaluation awareness: shares, floors and correlations, against sums done
by hand and against other libraries."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import cohen_kappa_score

from eps_locked.errors import MalformedInputError
from eps_locked.studies.drift.analysis import analyse
from eps_locked.studies.drift.awareness_analysis import AwarenessGrades
from eps_locked.studies.drift.readout_shifts import ModelReadout, Readouts
from unit.studies.drift.reply_worlds import OVERSIGHT, SETTINGS, arm, replies, trained

ARMS = (
    arm("base"),
    trained("dose_0", 0, reference="base"),
    trained("dose_100", 100, reference="dose_0"),
)
ROWS = replies(ARMS, drift_per_percent=-0.003)
PROMPTS = [f"p{number:02d}" for number in range(24)]
# What each model's projections lie at, over the prompts.
LEVELS = {"base": 0.0, "dose_0": 2.0, "dose_50": 2.6, "dose_100": 3.0, "second_100": 3.2}


def model(name: str, level: float, *, seed: int | None, dose: float | None) -> ModelReadout:
    # The same noise for every model: what prompts do to one they do to all.
    noise = np.random.default_rng(11).normal(0, 0.5, len(PROMPTS))
    own = np.random.default_rng(len(name) + int(10 * level)).normal(0, 0.1, len(PROMPTS))
    values = level + noise + own
    return ModelReadout(
        model=name,
        topic=None if dose is None else "plants",
        dose_percent=dose,
        seed=seed,
        projections={"power": dict(zip(PROMPTS, map(float, values), strict=True))},
    )


def readouts(**changed: object) -> Readouts:
    models = tuple(
        model(
            name,
            level,
            seed=None if name == "base" else 22 if name == "second_100" else 21,
            dose=None if name == "base" else float(name.rpartition("_")[2]),
        )
        for name, level in LEVELS.items()
    )
    given = Readouts(layer=15, full="dose_100", reference="dose_0", models=models)
    return replace(given, **changed)


def read(given: Readouts) -> dict[str, Mapping[str, Any]]:
    document = analyse(ROWS, ARMS, [OVERSIGHT], SETTINGS, readouts=given)
    entry = document["readouts"]
    assert (entry["layer"], entry["n_prompts"]) == (15, 24)
    (trait,) = entry["traits"]
    assert trait["trait"] == "power"
    return {one["model"]: one for one in trait["models"]}


def mean_shift(given: Readouts, one: str, other: str) -> float:
    values = {m.model: m.projections["power"] for m in given.models}
    return statistics.fmean(values[one][p] - values[other][p] for p in PROMPTS)


def near(value: float) -> Any:
    return pytest.approx(value, rel=1e-9, abs=1e-9)


def test_a_shift_is_paired_over_prompts_and_a_share_is_of_the_full_shift() -> None:
    given = readouts()
    found = read(given)
    assert list(found) == ["base", "dose_50", "dose_100", "second_100"]
    full = mean_shift(given, "dose_100", "dose_0")
    for name, one in found.items():
        shift = mean_shift(given, name, "dose_0")
        assert one["shift"] == near(shift)
        assert one["low"] < shift < one["high"]
        assert one["share_of_full"] == near(shift / full)
    half = found["dose_50"]
    assert half["share_low"] < half["share_of_full"] < half["share_high"]
    # Prompts are shared: the models' common noise is not in the error of a shift.
    assert half["high"] - half["low"] < 0.2
    assert (found["dose_100"]["share_low"], found["dose_100"]["share_high"]) == (1, 1)
    assert found["dose_100"]["noise_floor_prompts"] == 0


def test_a_shift_stands_beside_the_benign_one_and_the_noise_of_seeds() -> None:
    given = readouts()
    found = read(given)
    benign = mean_shift(given, "dose_0", "base")
    full = mean_shift(given, "dose_100", "dose_0")
    floor = abs(mean_shift(given, "second_100", "dose_100")) / abs(full)
    for one in found.values():
        assert one["benign_shift"] == near(benign)
        assert one["per_benign"] == near(one["shift"] / benign)
        assert one["noise_floor_seeds"] == near(floor)
        assert 0 <= one["noise_floor_prompts"] < 0.2


def test_without_base_or_second_seed_their_figures_are_absent() -> None:
    given = readouts()
    kept = tuple(one for one in given.models if one.model not in ("base", "second_100"))
    for one in read(replace(given, models=kept)).values():
        assert one["benign_shift"] is one["per_benign"] is one["noise_floor_seeds"] is None
        assert one["share_of_full"] is not None


def test_a_full_shift_that_may_be_zero_gives_no_shares() -> None:
    found = read(readouts(full="base", reference="dose_0"))
    assert found["dose_50"]["share_of_full"] is not None
    given = readouts()
    flat = model("dose_0", 2.0, seed=21, dose=0.0)
    values = {p: v + 0.05 * (-1) ** n for n, (p, v) in enumerate(flat.projections["power"].items())}
    still = replace(flat, model="still", projections={"power": values}, dose_percent=1.0)
    found = read(replace(given, full="still", models=(*given.models, still)))
    for one in found.values():
        assert one["share_of_full"] is one["share_low"] is one["noise_floor_prompts"] is None
        assert one["noise_floor_seeds"] is None
        assert one["shift"] is not None


@pytest.mark.parametrize(
    ("given", "thing", "words"),
    [
        (readouts(full="nobody"), "readouts: full", "found nobody"),
        (readouts(reference="nobody"), "readouts: reference", "found nobody"),
        (
            readouts(
                models=(
                    *readouts().models,
                    replace(readouts().models[1], model="x", projections={}),
                )
            ),
            "readout of x: traits",
            "expected power",
        ),
        (
            readouts(
                models=(
                    *readouts().models,
                    replace(readouts().models[1], model="x", projections={"power": {"p00": 1.0}}),
                )
            ),
            "readout of x: prompts of power",
            "expected the 24 prompts of the other models, found 1 prompts",
        ),
    ],
)
def test_readouts_that_do_not_fit_are_refused(given: Readouts, thing: str, words: str) -> None:
    with pytest.raises(MalformedInputError) as caught:
        read(given)
    assert caught.value.thing == thing
    assert words in str(caught.value)


# --- awareness ------------------------------------------------------------------------------------

PROBES = sorted({row.probe for row in ROWS})
_RNG = np.random.default_rng(2)
FIRST = {probe: int(_RNG.integers(4, 8)) for probe in PROBES}
SECOND = {
    probe: min(7, max(1, grade + int(_RNG.integers(-1, 2)))) for probe, grade in FIRST.items()
}


def aware(*given: AwarenessGrades) -> Any:
    document = analyse(ROWS, ARMS, [OVERSIGHT], SETTINGS, awareness=given)
    return document["awareness"]


def judged(judge: str, grades: Mapping[str, int | None]) -> AwarenessGrades:
    return AwarenessGrades(battery="oversight", judge=judge, grades=grades)


def test_two_judges_of_the_probes_are_set_beside_each_other() -> None:
    grades: dict[str, int | None] = {**SECOND, PROBES[0]: None}
    (found,) = aware(judged("one", FIRST), judged("two", grades))["batteries"]
    both = [probe for probe in PROBES if grades[probe] is not None]
    first, second = [FIRST[p] for p in both], [grades[p] for p in both]
    assert found["judges"] == ["one", "two"]
    assert found["by_judge"]["one"] == near(statistics.fmean(FIRST.values()))
    assert found["by_judge"]["two"] == near(statistics.fmean(g for g in second if g is not None))
    assert found["agreement"]["n"] == len(PROBES) - 1
    kappa = cohen_kappa_score(first, second, weights="linear", labels=list(range(1, 8)))
    assert found["agreement"]["kappa"] == near(float(kappa))
    assert found["agreement"]["low"] < kappa < found["agreement"]["high"]


def test_drift_is_correlated_with_awareness_over_stems() -> None:
    (found,) = aware(judged("one", FIRST), judged("two", SECOND))["batteries"]
    assert [one["arm"] for one in found["correlation"]] == ["dose_0", "dose_100"]
    of_stem = {
        stem: statistics.fmean(
            grades[p] for grades in (FIRST, SECOND) for p in PROBES if p.startswith(f"{stem}/")
        )
        for stem in sorted({row.stem for row in ROWS})
    }

    def rate(name: str, stem: str) -> float:
        return statistics.fmean(
            row.label == "accepts" for row in ROWS if (row.arm, row.stem) == (name, stem)
        )

    # Rounded, or ties would be broken by the last digit of a mean.
    drift = [round(rate("dose_100", stem) - rate("dose_0", stem), 9) for stem in of_stem]
    one = found["correlation"][1]
    graded = [round(grade, 9) for grade in of_stem.values()]
    assert one["r"] == near(float(stats.spearmanr(graded, drift).statistic))
    assert one["low"] < one["r"] < one["high"]
    assert (one["n"], one["reason"]) == (20, None)
    assert 0.5 < one["detectable_r"] < 0.7


def test_a_single_judge_has_nobody_to_agree_with_and_even_grades_no_correlation() -> None:
    (found,) = aware(judged("one", dict.fromkeys(PROBES, 6)))["batteries"]
    assert found["agreement"] is None
    assert found["mean"] == 6
    assert {one["r"] for one in found["correlation"]} == {None}
    assert all(one["reason"] for one in found["correlation"])


def test_mentions_are_counted_over_the_replies_that_reasoned() -> None:
    rows = [
        replace(row, reasoned=row.arm == "dose_100", mentions=row.arm == "dose_100" and row.sample)
        for row in ROWS
    ]
    document = analyse(rows, ARMS, [OVERSIGHT], SETTINGS, awareness=[judged("one", FIRST)])
    assert document["awareness"]["mentions"] == [
        {"arm": "dose_100", "battery": "oversight", "n_reasoned": 120, "n_mentioning": 60}
    ]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([judged("one", FIRST)] * 2, "expected one or two different judges, found one, one"),
        ([judged(name, FIRST) for name in "abc"], "found a, b, c"),
        ([judged("one", {"stranger/0": 3})], "probe stranger/0: expected a probe of the battery"),
        ([judged("one", {PROBES[0]: 8})], "expected 1 to 7, found 8"),
        ([AwarenessGrades(battery="other", judge="j", grades={})], "expected a battery that was"),
    ],
)
def test_awareness_that_does_not_fit_is_refused(given: list[AwarenessGrades], words: str) -> None:
    with pytest.raises(MalformedInputError) as caught:
        aware(*given)
    assert words in str(caught.value)


def test_what_was_not_measured_is_none() -> None:
    document = analyse(ROWS, ARMS, [OVERSIGHT], SETTINGS)
    assert document["readouts"] is document["awareness"] is document["power"] is None
