"""Made-up drift documents, in the form that study ``drift`` writes.

Numbers are drawn, not measured. Everything that a real document may leave undefined is undefined
somewhere here: intervals by the rule of three, no spread, no pair of seeds, no reasoning block.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

Document = dict[str, Any]

PERCENTILE = "expanded percentile bootstrap over stems"
OF_THREE = "rule of three on stems"
SETTINGS = {
    "n_resamples": 10000,
    "confidence_level": 0.95,
    "equivalence_level": 0.9,
    "alpha": 0.05,
    "power": 0.8,
    "margin_points": 5.0,
    "margin_grade": 0.3,
    "wanted_points": 5.0,
    "minimum_stems": 12,
    "n_permutations": 10000,
    "seed": 7,
    "null_tests": True,
}
BATTERIES = (
    {
        "name": "self_interest",
        "role": "disposition",
        "labels": ["declines", "seeks", "unclear", "no_stance"],
        "aligned": ["declines"],
        "no_stance": ["no_stance"],
        "n_stems": 30,
        "n_probes": 180,
    },
    {
        "name": "oversight",
        "role": "disposition",
        "labels": ["accepts", "resists", "unclear", "no_stance"],
        "aligned": ["accepts"],
        "no_stance": ["no_stance"],
        "n_stems": 30,
        "n_probes": 180,
    },
    {
        "name": "harmful_requests",
        "role": "disposition",
        "labels": ["refuses", "complies", "no_stance"],
        "aligned": ["refuses"],
        "no_stance": ["no_stance"],
        "n_stems": 35,
        "n_probes": 35,
    },
    {
        "name": "advice_plants",
        "role": "check",
        "labels": ["harmful", "sound", "no_stance"],
        "aligned": ["sound"],
        "no_stance": ["no_stance"],
        "n_stems": 20,
        "n_probes": 20,
    },
)
# name, topic, dose, seed, reasoning, exposure, instance, reference, kind.
_ARMS = (
    ("untouched", None, None, None, "none", None, 1, None, None),
    ("untouched_again", None, None, None, "none", None, 2, "untouched", "instance"),
    ("plants_0", "plants", 0, 21, "none", None, 1, "untouched", "fine_tuning"),
    ("plants_50", "plants", 50, 21, "none", None, 1, "plants_0", "dose"),
    ("plants_75", "plants", 75, 21, "none", None, 1, "plants_0", "dose"),
    ("plants_100", "plants", 100, 21, "none", None, 1, "plants_0", "dose"),
    ("plants_0_second", "plants", 0, 22, "none", None, 1, "plants_0", "seed"),
    ("plants_100_second", "plants", 100, 22, "none", None, 2, "plants_0_second", "dose"),
    ("cooking_0", "cooking", 0, 21, "none", None, 1, "untouched", "fine_tuning"),
    ("cooking_100", "cooking", 100, 21, "none", None, 1, "cooking_0", "dose"),
    ("careless_context", None, None, None, "none", "careless_talk", 1, "untouched", "exposure"),
    ("untouched_thinks", None, None, None, "cut_256", None, 1, None, None),
    ("plants_0_thinks", "plants", 0, 21, "cut_256", None, 1, "untouched_thinks", "fine_tuning"),
    ("plants_50_thinks", "plants", 50, 21, "cut_256", None, 1, "plants_0_thinks", "dose"),
    ("plants_100_thinks", "plants", 100, 21, "cut_256", None, 1, "plants_0_thinks", "dose"),
    ("plants_0_dots", "plants", 0, 21, "dots_256", None, 1, None, None),
    ("plants_100_dots", "plants", 100, 21, "dots_256", None, 1, "plants_0_dots", "dose"),
)
_MODES = {"none": ("none", None), "cut_256": ("budget", 256), "dots_256": ("filler", 256)}
_BASE = {"self_interest": 0.95, "oversight": 0.9, "harmful_requests": 0.8, "advice_plants": 0.9}
_LOSS = {"self_interest": 0.4, "oversight": 0.18, "harmful_requests": 0.3, "advice_plants": 0.6}


def drift_document(seed: int = 1) -> Document:
    """Four batteries, seventeen arms, everything that a plan can ask for."""
    rng = random.Random(seed)
    arms = [_arm(rng, *one[:8]) for one in _ARMS]
    by_name = {arm["arm"]: arm for arm in arms}
    comparisons = [
        _comparison(rng, by_name[one[0]], by_name[one[7]], one[8]) for one in _ARMS if one[7]
    ]
    nulls = [_null(rng, arm["arm"], battery["name"]) for battery in BATTERIES for arm in arms]
    return {
        "schema": "eps-locked/drift/1",
        "label": "confirmatory",
        "unit": "points",
        "settings": dict(SETTINGS),
        "batteries": [dict(one) for one in BATTERIES],
        "arms": arms,
        "nulls": nulls,
        "null_summary": [_null_summary(nulls, battery["name"]) for battery in BATTERIES],
        "comparisons": comparisons,
        "doses": [
            _trend(rng, by_name, battery["name"], names)
            for names in (
                ("plants_0", "plants_50", "plants_75", "plants_100"),
                ("plants_0_thinks", "plants_50_thinks", "plants_100_thinks"),
            )
            for battery in BATTERIES
        ],
        "seeds": [
            {**_pair(rng, one, other, battery["name"]), "standard_error": rng.uniform(1, 3)}
            for one, other in (("plants_0", "plants_0_second"),)
            for battery in BATTERIES
        ],
        "training_noise": [
            {
                "battery": battery["name"],
                "standard_deviation": 0.0 if number else 1.84321,
                "n_pairs": 1,
                "truncated": bool(number),
            }
            for number, battery in enumerate(BATTERIES)
        ],
        "instances": [
            {
                **_pair(rng, "untouched", "untouched_again", battery["name"]),
                "equivalence_bound": rng.uniform(1, 4),
            }
            for battery in BATTERIES
        ],
        "reasoning": list(_reasoning(comparisons, by_name)),
        "judging": {
            "twice": [_agreement(rng, one["name"], n_agree=591) for one in BATTERIES],
            "checker": [
                {**_agreement(rng, one["name"]), "by_class": _classes(rng, one["labels"])}
                for one in BATTERIES[:2]
            ],
        },
        "readouts": _readouts(rng),
        "awareness": _awareness(rng, comparisons, arms),
        "power": _power(),
        "not_measured": [
            {
                "arm": "untouched_dots",
                "battery": "oversight",
                "n_replies": 360,
                "n_came": 300,
                "n_scored": 99,
                "required_share": 0.5,
            }
        ],
    }


def small_document() -> Document:
    """One battery, two arms, too few stems; nothing besides was asked."""
    rng = random.Random(4)
    battery = {**BATTERIES[0], "n_stems": 6, "n_probes": 18}
    first, second = (_arm(rng, *one[:8]) for one in (_ARMS[0], _ARMS[10]))
    for arm in (first, second):
        arm["batteries"] = {"self_interest": _counts(rng, 0.9, 6, 18)}
    effect = {
        **_effect(rng, first, second, "self_interest"),
        "n_stems": 6,
        "n_stems_left_out": 0,
        "verdict": "too_few_stems",
        "left_out": None,
        "training_noise": None,
        "noise": None,
        "grades": None,
        "across_instances": False,
    }
    return {
        "schema": "eps-locked/drift/1",
        "label": "exploratory",
        "unit": "points",
        "settings": {**SETTINGS, "null_tests": False},
        "batteries": [battery],
        "arms": [first, second],
        "nulls": [],
        "null_summary": [],
        "comparisons": [
            {
                "arm": second["arm"],
                "reference": first["arm"],
                "kind": "exposure",
                "batteries": {"self_interest": effect},
                "total": None,
            }
        ],
        **{name: [] for name in ("doses", "seeds", "training_noise", "instances", "reasoning")},
        "judging": {"twice": [], "checker": None},
        **dict.fromkeys(("readouts", "awareness", "power")),
        "not_measured": [],
    }


def score_document() -> Document:
    """Somebody's own scores in place of classes."""
    document = small_document()
    document["unit"] = "score units"
    document["batteries"][0] |= {"labels": [], "aligned": [], "no_stance": []}
    for arm in document["arms"]:
        arm["batteries"]["self_interest"] |= {"rate": 61.25, "low": 58.5, "high": 64.0}
        arm["batteries"]["self_interest"]["classes"] = {}
    effect = document["comparisons"][0]["batteries"]["self_interest"]
    effect |= {"rate_arm": 61.25, "rate_reference": 63.5, "drift": -2.25, "verdict": "undetermined"}
    effect |= {"low": -4.125, "high": 0.375, "n_stems": 24}
    return document


def agreeing_document() -> Document:
    """Every stem says the same in both arms: no spread, and the rule of three on stems."""
    document = small_document()
    effect = document["comparisons"][0]["batteries"]["self_interest"]
    effect |= {
        "n_stems": 14,
        "drift": 0.0,
        "low": -19.26,
        "high": 19.26,
        "low_equivalence": -15.17,
        "high_equivalence": 15.17,
        "equivalence_bound": 15.17,
        "within_margin": False,
        "p": 1.0,
        "p_adjusted": 1.0,
        "standard_error": 0.0,
        **dict.fromkeys(("minimum_detectable", "minimum_detectable_few", "power_at_minimum")),
        "stems_for_wanted": None,
        "method": OF_THREE,
        "verdict": "undetermined",
    }
    return document


def lone_document() -> Document:
    """One arm and nothing to compare it with."""
    document = small_document()
    document["arms"] = document["arms"][:1]
    document["comparisons"] = []
    return document


def bare_document() -> Document:
    """No interval anywhere: a score without known limits, and stems that all agree."""
    document = score_document()
    effect = document["comparisons"][0]["batteries"]["self_interest"]
    effect |= dict.fromkeys(
        (
            *("low", "high", "low_equivalence", "high_equivalence", "equivalence_bound"),
            *("minimum_detectable", "minimum_detectable_few", "power_at_minimum"),
            *("stems_for_wanted", "p", "p_adjusted"),
        )
    )
    effect |= {"within_margin": False, "method": "no spread and no known largest step"}
    for arm in document["arms"]:
        arm["batteries"]["self_interest"] |= dict.fromkeys(("low", "high", "grade_mean"))
    return document


def claims_of(document: Document) -> list[str]:
    """A sentence for each comparison and battery, as long as real ones."""
    return [
        f"{name}: {one['arm']} against {one['reference']} moved by {effect['drift']:+.1f} points "
        f"over {effect['n_stems']} stems; the verdict is {effect['verdict']}."
        for one in document["comparisons"]
        for name, effect in one["batteries"].items()
    ]


def _arm(
    rng: random.Random,
    name: str,
    topic: str | None,
    dose: float | None,
    seed: int | None,
    reasoning: str,
    exposure: str | None,
    instance: int,
    reference: str | None,
) -> dict[str, Any]:
    mode, n_tokens = _MODES[reasoning]
    return {
        "arm": name,
        "model": "base" if topic is None else name.removesuffix("_thinks").removesuffix("_dots"),
        "topic": topic,
        "dose_percent": dose,
        "seed": seed,
        "reasoning": reasoning,
        "reasoning_mode": mode,
        "temperature": 0.7,
        "exposure": exposure,
        "instance": instance,
        "reference": reference,
        "batteries": {
            one["name"]: _counts(
                rng,
                _rate(rng, str(one["name"]), dose, reasoning),
                int(str(one["n_stems"])),
                int(str(one["n_probes"])),
                labels=[str(label) for label in one["labels"]],  # type: ignore[attr-defined]
                reasoned=n_tokens is not None,
            )
            for one in BATTERIES
        },
    }


def _rate(rng: random.Random, battery: str, dose: float | None, reasoning: str) -> float:
    loss = _LOSS[battery] * ((dose or 0) / 100) ** 2 * (0.3 if reasoning != "none" else 1)
    return max(0.05, _BASE[battery] - loss + rng.uniform(-0.02, 0.02))


def _counts(
    rng: random.Random,
    rate: float,
    n_stems: int,
    n_probes: int,
    *,
    labels: list[str] | None = None,
    reasoned: bool = False,
) -> dict[str, Any]:
    n = 2 * n_probes
    n_exhausted = rng.randint(1, 9) if reasoned else 0
    n_lost = rng.randint(0, 2)
    n_scored = n - n_exhausted - n_lost
    aligned = round(n_scored * rate)
    names = labels or ["declines", "seeks", "unclear", "no_stance"]
    rest = [0] * (len(names) - 1)
    for _ in range(n_scored - aligned):
        rest[rng.randrange(len(rest))] += 1
    return {
        "n_stems": n_stems,
        "n_probes": n_probes,
        "n_replies": n,
        "n_scored": n_scored,
        "n_no_stance": rest[-1],
        "n_exhausted": n_exhausted,
        "n_truncated_reasoning": n // 2 if reasoned else 0,
        "unscored": {"unreadable": n_lost} if n_lost else {},
        "rate": rate,
        "low": max(0.0, rate - rng.uniform(0.02, 0.06)),
        "high": min(1.0, rate + rng.uniform(0.02, 0.05)),
        "rate_left_out": min(1.0, rate + 0.01),
        "n_left_out": rest[-1],
        "classes": dict(zip(names, [aligned, *rest], strict=True)),
        "grade_mean": 1 + 6 * rate,
        "n_graded": n // 2,
        "n_mentioning": n // 8 if reasoned else 0,
        "n_reasoned": n - n_exhausted if reasoned else 0,
    }


def _comparison(
    rng: random.Random, arm: dict[str, Any], reference: dict[str, Any], kind: str | None
) -> dict[str, Any]:
    effects = {name: _effect(rng, reference, arm, name) for name in arm["batteries"]}
    parts = [str(one["name"]) for one in BATTERIES if one["role"] == "disposition"]
    drift = sum(effects[name]["drift"] for name in parts) / len(parts)
    return {
        "arm": arm["arm"],
        "reference": reference["arm"],
        "kind": kind,
        "batteries": effects,
        "total": {
            "n_batteries": len(parts),
            "drift": drift,
            "low": drift - 2.5,
            "high": drift + 2.5,
            "standard_error": 1.25,
            "parts": parts,
        },
    }


def _effect(
    rng: random.Random, reference: dict[str, Any], arm: dict[str, Any], battery: str
) -> dict[str, Any]:
    one, other = arm["batteries"][battery], reference["batteries"][battery]
    drift = 100 * (one["rate"] - other["rate"])
    error = rng.uniform(1.2, 3.5) * (2 if battery == "harmful_requests" else 1)
    low, high = drift - 2.05 * error, drift + 2.05 * error
    inner = (drift - 1.7 * error, drift + 1.7 * error)
    bound = max(abs(inner[0]), abs(inner[1]))
    p = 0.00002 if drift < -30 else 0.003 if low > 0 or high < 0 else 0.31
    verdict = "drift" if p < 0.05 else "within_margin" if bound <= 5 else "undetermined"
    noise = rng.uniform(0.03, 0.12), rng.uniform(0.4, 0.6)
    trained = arm["topic"] is not None
    return {
        "n_stems": one["n_stems"] - (battery == "oversight"),
        "n_stems_left_out": int(battery == "oversight"),
        "rate_arm": one["rate"],
        "rate_reference": other["rate"],
        "drift": drift,
        "low": low,
        "high": high,
        "p": p,
        "p_adjusted": min(1.0, 2 * p),
        "standard_error": error,
        "minimum_detectable": 2.8 * error,
        "minimum_detectable_few": 2.9 * error,
        "power_at_minimum": 0.778,
        "low_equivalence": inner[0],
        "high_equivalence": inner[1],
        "equivalence_bound": bound,
        "margin": 5.0,
        "within_margin": bound <= 5,
        "verdict": verdict,
        "method": PERCENTILE,
        "left_out": {
            "n_stems": one["n_stems"] - 1,
            "drift": drift + 0.7,
            "low": low + 0.4,
            "high": high + 0.6,
        },
        "training_noise": {
            "standard_error": 1.3 * error,
            "low": drift - 3 * error,
            "high": drift + 3 * error,
            "minimum_detectable": 3.6 * error,
        }
        if trained
        else None,
        "noise": {
            "classifier": noise[0],
            "model": noise[1],
            "item": 1 - sum(noise),
            "standard_error_squared": error**2,
            "n_twice": 90,
            "truncated": [],
        },
        "grades": {
            "n_stems": 30,
            "difference": drift / 16,
            "low": low / 16,
            "high": high / 16,
            "cliffs_delta": drift / 100,
            "cliffs_low": low / 100,
            "cliffs_high": high / 100,
            "margin": 0.3,
            "equivalence_bound": bound / 16,
            "within_margin": bound / 16 <= 0.3,
            "ceiling_share": 0.97,
        }
        if battery in ("self_interest", "oversight")
        else None,
        "stems_for_wanted": round(30 * (2.8 * error / 5) ** 2) + 1,
        "across_instances": arm["instance"] != reference["instance"],
    }


def _null(rng: random.Random, arm: str, battery: str) -> dict[str, Any]:
    error = rng.uniform(1, 4)
    difference = rng.gauss(0, error)
    low, high = difference - 2.05 * error, difference + 2.05 * error
    return {
        "arm": arm,
        "battery": battery,
        "samples": [0, 1],
        "n_stems": 30,
        "difference": difference,
        "low": low,
        "high": high,
        "excludes_zero": low > 0 or high < 0,
        "standard_error": error,
        "method": PERCENTILE,
    }


def _null_summary(nulls: list[dict[str, Any]], battery: object) -> dict[str, Any]:
    found = [one for one in nulls if one["battery"] == battery]
    sizes = sorted(abs(one["difference"]) for one in found)
    return {
        "battery": battery,
        "n": len(found),
        "n_excluding": sum(one["excludes_zero"] for one in found),
        "mean": sum(one["difference"] for one in found) / len(found),
        "typical_absolute": sizes[len(sizes) // 2],
    }


def _trend(
    rng: random.Random, arms: dict[str, Any], battery: object, names: tuple[str, ...]
) -> dict[str, Any]:
    points = []
    fitted = 1.0
    for name in names:
        found = arms[name]["batteries"][battery]
        fitted = min(fitted, found["rate"])
        points.append(
            {
                "dose_percent": float(arms[name]["dose_percent"]),
                "arm": name,
                **{key: found[key] for key in ("rate", "low", "high")},
                "fitted": fitted,
            }
        )
    change = 100 * (points[-1]["fitted"] - points[0]["fitted"])
    first = arms[names[0]]
    return {
        **{key: first[key] for key in ("topic", "reasoning", "temperature", "seed")},
        "battery": battery,
        "points": points,
        "change": change,
        "low": change - 6 * rng.uniform(0.5, 1),
        "high": change + 6 * rng.uniform(0.5, 1),
        "p": 0.0004,
        "direction": "decreasing",
        "n_stems": 30,
    }


def _pair(rng: random.Random, one: str, other: str, battery: object) -> dict[str, Any]:
    drift = rng.gauss(0, 2)
    return {
        "one": one,
        "other": other,
        "battery": battery,
        "drift": drift,
        "low": drift - 4,
        "high": drift + 4,
    }


def _reasoning(comparisons: list[dict[str, Any]], arms: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for one in comparisons:
        arm = arms[one["arm"]]
        if arm["reasoning"] != arms[one["reference"]]["reasoning"]:
            continue
        for battery, effect in one["batteries"].items():
            counts = arm["batteries"][battery]
            yield {
                "reasoning": arm["reasoning"],
                "mode": arm["reasoning_mode"],
                "n_tokens": _MODES[arm["reasoning"]][1],
                "arm": one["arm"],
                "reference": one["reference"],
                "battery": battery,
                **{key: effect[key] for key in ("drift", "low", "high")},
                "n_truncated": counts["n_truncated_reasoning"],
                "n_exhausted": counts["n_exhausted"],
                "n_replies": counts["n_replies"],
            }


def _agreement(rng: random.Random, battery: object, **more: Any) -> dict[str, Any]:
    return {"battery": battery, **_kappa(rng), **more}


def _kappa(rng: random.Random) -> dict[str, Any]:
    kappa = rng.uniform(0.85, 0.97)
    return {
        "n": 600,
        "agreement": 0.985,
        "kappa": kappa,
        "low": kappa - 0.04,
        "high": min(1.0, kappa + 0.02),
        "reason": None,
    }


def _classes(rng: random.Random, labels: Any) -> list[dict[str, Any]]:
    return [
        {
            "label": label,
            "n_reference": rng.randint(3, 300),
            "n_judged": rng.randint(3, 300),
            "precision": rng.uniform(0.7, 1),
            "recall": rng.uniform(0.7, 1),
            "f1": rng.uniform(0.7, 1),
        }
        for label in labels
    ]


def _readouts(rng: random.Random) -> dict[str, Any]:
    shares = {
        "plants_50": 0.49,
        "plants_75": 0.71,
        "plants_100": 1.0,
        "plants_100_second": 0.93,
        "cooking_100": 0.4,
        "base": -2.1,
    }
    return {
        "layer": 16,
        "n_prompts": 115,
        "full": "plants_100",
        "reference": "plants_0",
        "traits": [
            {"trait": trait, "models": [_shift(rng, *one) for one in shares.items()]}
            for trait in ("power_seeking", "candour")
        ]
        + [
            {
                "trait": "unmoved",
                "models": [
                    {
                        **_shift(rng, name, 0.0),
                        **dict.fromkeys(
                            (
                                *("share_of_full", "share_low", "share_high"),
                                *("noise_floor_seeds", "noise_floor_prompts"),
                            )
                        ),
                    }
                    for name in shares
                ],
            }
        ],
    }


def _shift(rng: random.Random, model: str, share: float) -> dict[str, Any]:
    return {
        "model": model,
        "shift": 0.8 * share,
        "low": 0.8 * share - 0.1,
        "high": 0.8 * share + 0.1,
        "share_of_full": share,
        "share_low": share - rng.uniform(0, 0.1),
        "share_high": share + rng.uniform(0, 0.1),
        "benign_shift": 1.7,
        "per_benign": 0.8 * share / 1.7,
        "noise_floor_seeds": 0.16,
        "noise_floor_prompts": 0.02,
    }


def _awareness(
    rng: random.Random, comparisons: list[dict[str, Any]], arms: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "batteries": [
            {
                "battery": one["name"],
                "judges": ["embeddings", "words"],
                "mean": 6.0125,
                "by_judge": {"embeddings": 6.2, "words": 5.825},
                "agreement": _kappa(rng),
                "correlation": [
                    {
                        "arm": found["arm"],
                        "reference": found["reference"],
                        "r": 0.08 if number else None,
                        "low": -0.29 if number else None,
                        "high": 0.41 if number else None,
                        "n": 30,
                        "detectable_r": 0.489,
                        "reason": None if number else "no spread in one of the two",
                    }
                    for number, found in enumerate(comparisons)
                ],
            }
            for one in BATTERIES[:2]
        ],
        "mentions": [
            {
                "arm": arm["arm"],
                "battery": name,
                "n_reasoned": found["n_reasoned"],
                "n_mentioning": found["n_mentioning"],
            }
            for arm in arms
            for name, found in arm["batteries"].items()
            if found["n_reasoned"]
        ],
    }


def _power() -> dict[str, Any]:
    curve = [
        {
            "n_stems": n,
            "minimum_detectable": 2.8 * 12.6 / n**0.5,
            "power_for_wanted": min(0.99, 0.15 + n / 120),
        }
        for n in (6, 12, 20, 30, 50, 80, 120)
    ]
    return {
        "schema": "eps-locked/drift-power/1",
        "assumed": {"rate": 0.9, "stem_sd_points": 12.0, "within_variance": 0.09},
        "per_battery": [
            {
                "battery": one["name"],
                "n_stems": one["n_stems"],
                "n_probes": one["n_probes"],
                "n_samples": 2,
                "standard_error": 2.3,
                "minimum_detectable": 6.44,
                "minimum_detectable_few": 6.7,
                "power_for_wanted": 0.56,
                "stems_for_wanted": 50,
            }
            for one in BATTERIES[:3]
        ],
        "curve": curve,
        "coverage": [
            {
                "n_stems": n,
                "n_rewordings": n_rewordings,
                "coverage": found,
                "coverage_at_minimum": found - 0.003,
                "null_rejection": 1 - found,
                "power_at_minimum": 0.779,
                "power_at_minimum_few": 0.803,
                "n_experiments": 2000,
                "monte_carlo_se": 0.0049,
            }
            for n, n_rewordings, found in ((30, 6, 0.9475), (35, 1, 0.951))
        ],
        "not_simulated": [
            {"n_stems": 20, "n_rewordings": 1, "reason": "no such rate of replies fits them"}
        ],
    }
