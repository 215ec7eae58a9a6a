"""One cell's numbers from its paired answers: which readings count, the mean, its interval.

Shape letters: S seeds, Q questions. NaN marks a reading that does not exist: the measure is
defined at the end of an answer, and an answer cut at the length limit has none. Such a pair (base
or trained) is left out and counted; a cell with too few pairs left has no value at all, never 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from eps_locked.domain.model import SlotReading
from eps_locked.errors import EvidenceError
from eps_locked.stats.bootstrap import (
    crossed_bootstrap_interval,
    generator_from_digest,
    ragged_crossed_bootstrap_interval,
)
from eps_locked.studies.eps.plan import BootstrapRules
from eps_locked.studies.eps.readings import Answer

FloatArray = npt.NDArray[np.float64]
Which = Literal["own", "frozen"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """A mean of paired differences and its percentile interval, in nats."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """A trained answer beside the base's answer to the same item in the same context."""

    base: Answer
    trained: Answer

    def has_slots(self, which: Which) -> bool:
        """Whether both readings of the difference exist."""
        return self.base.has_slot and (which == "frozen" or self.trained.has_slot)

    def reading(self, which: Which) -> SlotReading:
        if which == "own":
            return self.trained.own
        if self.trained.frozen is None:
            raise EvidenceError(
                f"answer {self.trained.item}", expected="a second reading", found="none"
            )
        return self.trained.frozen

    def log_prob_change(self, which: Which) -> float:
        return self.reading(which).log_prob - self.base.own.log_prob

    def first_token_change(self) -> float:
        """Change of the log-probability of the marker's first token at the slot."""
        return _first_log_prob(self.trained.own) - _first_log_prob(self.base.own)

    def margin_change(self) -> float:
        """Change of (marker logit - end-of-turn logit) at the slot: free of log Z."""
        return _margin(self.trained.own) - _margin(self.base.own)


def pair_answers(base: Sequence[Answer], trained: Sequence[Answer], thing: str) -> tuple[Pair, ...]:
    """Pairs in the frozen items' order. Raises EvidenceError if the items are not the same."""
    if [answer.item for answer in base] != [answer.item for answer in trained]:
        raise EvidenceError(thing, expected="the base's items in order", found="others")
    return tuple(Pair(base=b, trained=t) for b, t in zip(base, trained, strict=True))


def changes(pairs_by_seed: Sequence[Sequence[Pair]], which: Which) -> FloatArray:
    """Trained minus base, shape (S, Q), NaN where a reading does not exist."""
    return np.asarray(
        [
            [pair.log_prob_change(which) if pair.has_slots(which) else np.nan for pair in pairs]
            for pairs in pairs_by_seed
        ],
        dtype=np.float64,
    )


def mean_change(values_SQ: FloatArray, minimum_share: float) -> float | None:
    """Mean over the readings that exist, or None where any seed has too few of them.

    Too few: fewer than ``minimum_share`` of the questions, or fewer than two.
    """
    counts_S = (~np.isnan(values_SQ)).sum(axis=1)
    needed = max(2.0, minimum_share * values_SQ.shape[1])
    return None if (counts_S < needed).any() else float(np.nanmean(values_SQ))


def estimate(
    values_SQ: FloatArray, rules: BootstrapRules, minimum_share: float, *labels: str
) -> Estimate | None:
    """Mean and interval, or None for a cell with too few readings.

    ``labels`` choose the random stream, so a cell's interval does not depend on the others.
    """
    value = mean_change(values_SQ, minimum_share)
    if value is None:
        return None
    rng = generator_from_digest(str(rules.seed), *labels)
    exists_SQ = ~np.isnan(values_SQ)
    if exists_SQ.all():
        interval = crossed_bootstrap_interval(
            values_SQ,
            rng=rng,
            n_resamples=rules.n_resamples,
            confidence_level=rules.confidence_level,
        )
    else:
        interval = ragged_crossed_bootstrap_interval(
            [row[here] for row, here in zip(values_SQ, exists_SQ, strict=True)],
            [np.flatnonzero(here) for here in exists_SQ],
            rng=rng,
            n_resamples=rules.n_resamples,
            confidence_level=rules.confidence_level,
        )
    return Estimate(value=value, low=interval.low, high=interval.high)


def _first_log_prob(reading: SlotReading) -> float:
    return reading.marker_logits[0] - reading.log_z[0]


def _margin(reading: SlotReading) -> float:
    return reading.marker_logits[0] - reading.end_of_turn_logit
