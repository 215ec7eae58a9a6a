"""How often a reward model prefers the answer that is labelled right. Pure.

A judgement is right, wrong, or a tie where the two scores are exactly equal. *Accuracy* is the
share of right ones among those with a winner; *half credit* counts a tie as half of a right one.
Which of the two is meant should be said with the number, so both are given. Pairs of two equal
answers have no right one: they are counted apart, in neither.

*Interval.* Judgements of one question, and one pair asked in two orders, hang together. Wilson's
interval is therefore taken of an effective number of judgements: the number of independent ones
whose mean would vary as the mean over questions does. With one judgement a question it is the usual
Wilson interval; with each pair asked twice and answered alike it is that of the pairs. Simulated
(1,500 samples each, 1 to 4 judgements a question, questions from alike to all or nothing): a 95 %
interval holds the truth in 94 to 96 % with 20 questions or more, in 93 to 96 % with 12.

Sources: Wilson 1927, J. Am. Stat. Assoc. 22, 209-212; Korn and Graubard 1998, Survey Methodology
24, 193-201 (effective number, with Student's correction for few clusters).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import scipy.special

from eps_locked.errors import MalformedInputError
from eps_locked.stats.paired_rates import minimum_detectable_paired
from eps_locked.studies.common.rounding import rounded
from eps_locked.studies.vea.pairs_table import Judgement, Order, PairsTable

__all__ = ["PAIRS_SCHEMA", "analyse_pairs", "clustered_share"]

PAIRS_SCHEMA: Final = "eps-locked/vea-pairs/1"
CHANCE: Final = 0.5
Outcome = Literal["right", "wrong", "tie"]
_CREDIT: Final[Mapping[Outcome, float]] = {"right": 1.0, "wrong": 0.0, "tie": 0.5}
_ORDERS: Final[tuple[Order, ...]] = ("chosen_first", "rejected_first", "not_said")


def analyse_pairs(table: PairsTable, confidence_level: float, power: float) -> dict[str, Any]:
    """The document, an entry for each reward model in the order in which they first come.

    Raises MalformedInputError for a level or a power that is no share.
    """
    for option, value in (("--confidence-level", confidence_level), ("--power", power)):
        if not 0.5 <= value < 1:
            raise MalformedInputError(
                option,
                expected="a share of at least 0.5 and below 1",
                found=value,
                next_step="0.95 and 0.8 are usual",
            )
    by_model: dict[str, list[Judgement]] = {}
    for one in table.judgements:
        by_model.setdefault(one.reward_model, []).append(one)
    document: dict[str, Any] = rounded(
        {
            "schema": PAIRS_SCHEMA,
            "label": "exploratory",
            "form": table.form,
            "settings": {
                "confidence_level": confidence_level,
                # Rounded: 1 - 0.95 is not 0.05 to the last digit.
                "alpha": round(1 - confidence_level, 12),
                "power": power,
            },
            "n_with_texts": table.n_with_texts,
            "n_ties_decided": table.n_ties_decided,
            "reward_models": [
                _model(name, judgements, confidence_level, power)
                for name, judgements in by_model.items()
            ],
        }
    )
    return document


def clustered_share(
    values: Sequence[float], clusters: Sequence[str], confidence_level: float
) -> dict[str, Any]:
    """Mean of ``values`` in [0, 1] with an interval over clusters, and the effective number.

    The value is None without any, the interval None with fewer than two clusters. Where all values
    are 0, or all 1, the clusters are what counts.
    """
    n = len(values)
    members: dict[str, list[float]] = {}
    for value, cluster in zip(values, clusters, strict=True):
        members.setdefault(cluster, []).append(value)
    n_clusters = len(members)
    nothing = {"low": None, "high": None, "effective_n": None, "n_clusters": n_clusters}
    if not n:
        return {"value": None, **nothing}
    mean = math.fsum(values) / n
    if n_clusters < 2:
        return {"value": mean, **nothing}
    number = _effective_number(mean, n, list(members.values()), confidence_level)
    low, high = _wilson(mean, number, confidence_level)
    return {
        "value": mean,
        "low": low,
        "high": high,
        "effective_n": number,
        "n_clusters": n_clusters,
    }


def _model(
    name: str, judgements: Sequence[Judgement], confidence_level: float, power: float
) -> dict[str, Any]:
    left_out = Counter(one.status for one in judgements if one.status != "scored")
    scored = [one for one in judgements if one.status == "scored"]
    same = [one for one in scored if one.same_text]
    told = [(one, _outcome(one)) for one in scored if not one.same_text]
    accuracy = _accuracy(told, confidence_level)
    return {
        "reward_model": name,
        "n_pairs": len({one.pair for one in judgements}),
        "n_questions": len({one.question for one in judgements}),
        "n_judgements": len(judgements),
        "left_out": dict(sorted(left_out.items())),
        "n_same_text": len(same),
        "n_same_text_told_apart": sum(one.chosen != one.rejected for one in same),
        **_counts(outcome for _, outcome in told),
        "accuracy": accuracy,
        "half_credit": clustered_share(
            [_CREDIT[outcome] for _, outcome in told],
            [one.question for one, _ in told],
            confidence_level,
        ),
        "minimum_detectable": _minimum(accuracy, confidence_level, power),
        "verdict": _verdict(accuracy),
        "by_order": [
            {"order": order, **_counts(outcome for _, outcome in some)}
            | {"accuracy": _accuracy(some, confidence_level)}
            for order in _ORDERS
            if (some := [(one, outcome) for one, outcome in told if one.order == order])
        ],
        "both_orders": _both_orders(told),
    }


def _outcome(one: Judgement) -> Outcome:
    assert one.chosen is not None
    assert one.rejected is not None
    if one.chosen == one.rejected:
        return "tie"
    return "right" if one.chosen > one.rejected else "wrong"


def _counts(outcomes: Iterable[Outcome]) -> dict[str, int]:
    counts = Counter(outcomes)
    return {"n_right": counts["right"], "n_wrong": counts["wrong"], "n_ties": counts["tie"]}


def _accuracy(told: Sequence[tuple[Judgement, Outcome]], level: float) -> dict[str, Any]:
    decided = [(one, outcome) for one, outcome in told if outcome != "tie"]
    return clustered_share(
        [_CREDIT[outcome] for _, outcome in decided], [one.question for one, _ in decided], level
    )


def _minimum(accuracy: Mapping[str, Any], level: float, power: float) -> float | None:
    """How far from chance a true accuracy has to lie for an exact sign test on the effective number
    of judgements to find it so often; None where no accuracy would be."""
    if accuracy["effective_n"] is None:
        return None
    # Rounding must not take one from a whole number.
    n = int(accuracy["effective_n"] + 1e-9)
    # Of n that all differ, a share (1 + delta) / 2 goes up: delta is twice the distance from half.
    found = minimum_detectable_paired(n, 1.0, round(1 - level, 12), power)
    return None if found is None else found / 2


def _verdict(accuracy: Mapping[str, Any]) -> str:
    if accuracy["low"] is None:
        return "too_few_questions"
    if accuracy["low"] > CHANCE:
        return "above_chance"
    return "below_chance" if accuracy["high"] < CHANCE else "not_told_from_chance"


def _both_orders(told: Sequence[tuple[Judgement, Outcome]]) -> dict[str, int] | None:
    """How pairs that were asked in both orders came out; None where there is none."""
    by_pair: dict[str, dict[Order, Outcome]] = {}
    for one, outcome in told:
        by_pair.setdefault(one.pair, {})[one.order] = outcome
    pairs = [
        (found["chosen_first"], found["rejected_first"])
        for found in by_pair.values()
        if {"chosen_first", "rejected_first"} <= set(found)
    ]
    if not pairs:
        return None
    same = {outcome: pairs.count((outcome, outcome)) for outcome in _CREDIT}
    return {
        "n_pairs": len(pairs),
        "n_right": same["right"],
        "n_wrong": same["wrong"],
        "n_ties": same["tie"],
        "n_changed": len(pairs) - sum(same.values()),
    }


def _effective_number(
    mean: float, n: int, members: Sequence[Sequence[float]], confidence_level: float
) -> float:
    """At most ``n``: clusters whose members disagree more than chance promise nothing."""
    n_clusters = len(members)
    away = [math.fsum(values) - len(values) * mean for values in members]
    variance = math.fsum(one**2 for one in away) / n**2 * n_clusters / (n_clusters - 1)
    most = mean * (1 - mean)
    if most <= 0:
        return float(n_clusters)
    if variance <= most / n:
        return float(n)
    # As many independent values have variance most / (number - 1) when it is estimated alike.
    number = min(float(n), most / variance + 1)
    quantile = (1 + confidence_level) / 2
    reach, wider = (
        float(scipy.special.stdtrit(max(one - 1, 1.0), quantile)) for one in (number, n_clusters)
    )
    return min(number, number * (reach / wider) ** 2)


def _wilson(mean: float, number: float, confidence_level: float) -> tuple[float, float]:
    """Wilson's interval of ``number`` values, which need not be whole."""
    wide = float(scipy.special.ndtri((1 + confidence_level) / 2)) ** 2 / number
    reach = math.sqrt(wide * mean * (1 - mean) + wide**2 / 4)
    # At the edges the ends are exact, and rounding must not move them past it.
    low = 0.0 if mean <= 0 else (mean + wide / 2 - reach) / (1 + wide)
    high = 1.0 if mean >= 1 else (mean + wide / 2 + reach) / (1 + wide)
    return low, high
