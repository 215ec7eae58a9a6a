"""One cell's numbers from its paired answers: which readings count, the mean, its interval.

Shape letters: S seeds, Q questions. NaN marks a reading that does not exist: the measure is
defined at the end of an answer, and an answer cut at the length limit has none. Such a pair (base
or trained) is left out and counted; a cell with too few pairs left has no value at all, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import scipy.stats

from eps_locked.domain.model import SlotReading
from eps_locked.errors import EvidenceError
from eps_locked.stats.cell_interval import pooled_cell_intervals
from eps_locked.studies.eps.readings import Answer

FloatArray = npt.NDArray[np.float64]
Which = Literal["own", "frozen"]
# (train, eval)
Place = tuple[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """A mean of paired differences and its interval, in nats."""

    value: float
    low: float
    high: float
    standard_error: float
    degrees_of_freedom: float


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
    """Mean over seeds of each seed's mean over the readings it has, or None.

    Seeds count alike, however many readings each has. None where any seed has too few of them:
    fewer than ``minimum_share`` of the questions, or fewer than two.
    """
    counts_S = (~np.isnan(values_SQ)).sum(axis=1)
    needed = max(2.0, minimum_share * values_SQ.shape[1])
    if (counts_S < needed).any():
        return None
    return float(np.nanmean(values_SQ, axis=1).mean())


def row_estimates(
    values: Mapping[Place, FloatArray], minimum_share: float, confidence_level: float
) -> dict[Place, Estimate]:
    """Mean and interval of every cell of a row that has enough readings; the others are left out.

    values: (train, eval) to readings of shape (S, Q). With two seeds or more the seed variance is
    pooled over the cells (``stats.cell_interval``), because two seeds of one cell say almost
    nothing of it. With one seed the interval is a t interval over questions and speaks of that
    training run alone.
    """
    places = [place for place in values if mean_change(values[place], minimum_share) is not None]
    if not places:
        return {}
    stacked_CSQ = np.stack([values[place] for place in places])
    if stacked_CSQ.shape[1] == 1:
        found = [_one_seed(row_Q, confidence_level) for row_Q in stacked_CSQ[:, 0]]
        return dict(zip(places, found, strict=True))
    adapters = list(dict.fromkeys(train for train, _ in places))
    intervals = pooled_cell_intervals(
        stacked_CSQ,
        np.asarray([adapters.index(train) for train, _ in places]),
        confidence_level=confidence_level,
    )
    return {
        place: Estimate(
            value=one.value,
            low=one.low,
            high=one.high,
            standard_error=one.standard_error,
            degrees_of_freedom=one.degrees_of_freedom,
        )
        for place, one in zip(places, intervals, strict=True)
    }


def _one_seed(values_Q: FloatArray, confidence_level: float) -> Estimate:
    known = values_Q[~np.isnan(values_Q)]
    error, df = float(known.std(ddof=1)) / math.sqrt(len(known)), float(len(known) - 1)
    value, reach = float(known.mean()), float(scipy.stats.t.ppf((1 + confidence_level) / 2, df))
    return Estimate(
        value=value,
        low=value - reach * error,
        high=value + reach * error,
        standard_error=error,
        degrees_of_freedom=df,
    )


def _first_log_prob(reading: SlotReading) -> float:
    return reading.marker_logits[0] - reading.log_z[0]


def _margin(reading: SlotReading) -> float:
    return reading.marker_logits[0] - reading.end_of_turn_logit
