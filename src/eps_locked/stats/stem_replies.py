"""Replies of two arms to reworded questions, with known variances: what intervals are tried on.

A probe's rate of aligned replies in an arm is the quantile, at a normal score, of a beta
distribution around the arm's rate. The score adds up what the stem has in both arms, what it has in
this arm only, and what the rewording has:

    z[arm, s, k] = sqrt(a) stem[s] + sqrt(b) stem_in_arm[arm, s] + sqrt(c) rewording[s, k]

with standard normal letters and a + b + c = 1, so rewordings of a stem are correlated, and a stem's
true difference between the arms varies over stems. A reply is 1 with its probe's rate. Stems are
drawn anew in every experiment: the true drift is over all stems there could be.

Shape letters: E experiments, S stems, P rewordings, K samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import scipy.optimize
import scipy.special

from eps_locked.errors import StatsInputError
from eps_locked.stats.checks import FloatArray

__all__ = ["REWORDING_SHARE", "ReplyModel", "simulate_replies"]

REWORDING_SHARE = 0.3
"""Share of a score's variance that is the rewording's own."""

BoolArray = npt.NDArray[np.bool_]

# Scores beyond 8 standard deviations do not occur; 1e-3 apart, a line between two of them is exact
# to 1e-6 in the rates.
_SCORES = np.linspace(-8.0, 8.0, 16_001)
_MASS = np.exp(-np.square(_SCORES) / 2)
_MASS /= _MASS.sum()
_N_TERMS = 80


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ReplyModel:
    """Two arms. ``drift`` (arm less reference) and ``stem_sd`` in points, ``within_variance`` in
    points squared: true values of what is simulated, not of what was asked for."""

    drift: float
    stem_sd: float
    within_variance: float
    n_probes: int
    rates: tuple[FloatArray, FloatArray]
    in_arm: float
    rewording: float

    @classmethod
    def fitting(
        cls,
        *,
        rate: float,
        drift: float,
        stem_sd: float,
        within_variance: float,
        n_probes: int,
        rewording: float = REWORDING_SHARE,
    ) -> ReplyModel | None:
        """The model with these variances; None if rates ``rate`` and ``rate + drift`` cannot have
        them.

        ``within_variance`` is the mean of the two arms'. A drift cannot be the same everywhere if
        some stems have no room for it: where even equal scores in both arms make a stem's
        difference vary by more than asked for, the ``stem_sd`` of the result is that larger one.
        Raises StatsInputError for a rate outside (0, 1) or a share outside [0, 1).
        """
        if not 0 < rate < 1:
            raise StatsInputError("rate", expected="a number between 0 and 1", found=rate)
        if not 0 <= rewording < 1:
            raise StatsInputError("rewording", expected="from 0 to below 1", found=rewording)
        return _fitted(rate, drift, stem_sd, within_variance, n_probes, rewording)


@lru_cache(maxsize=64)
def _fitted(
    rate: float,
    drift: float,
    stem_sd: float,
    within_variance: float,
    n_probes: int,
    rewording: float,
) -> ReplyModel | None:
    """``ReplyModel.fitting``, once for equal numbers: studies of different sizes, and a check of
    theirs, ask for the same models again. So nobody may write into the rates."""
    other = rate + drift / 100
    if not 0 < other < 1:
        return None
    coins = 1e4 * (rate * (1 - rate) + other * (1 - other)) / 2
    between = 1 - within_variance / coins
    if between < -1e-12:
        return None
    tables = _table(rate, max(between, 0.0)), _table(other, max(between, 0.0))
    for table in tables:
        table.flags.writeable = False
    spread = _Spread(tables, n_probes, rewording)
    in_arm = spread.solve(stem_sd)
    if in_arm is None:
        return None
    return ReplyModel(
        drift=100 * (_mean(tables[1]) - _mean(tables[0])),
        stem_sd=spread.stem_sd(in_arm),
        within_variance=1e4 * sum(_mean(table * (1 - table)) for table in tables) / 2,
        n_probes=n_probes,
        rates=tables,
        in_arm=in_arm,
        rewording=rewording,
    )


def simulate_replies(
    model: ReplyModel, rng: np.random.Generator, shape: tuple[int, int, int]
) -> tuple[BoolArray, BoolArray]:
    """Replies of the reference and of the arm, each (E, S, P, K); ``shape`` is (E, S, K)."""
    n_experiments, n_stems, n_samples = shape
    stems = (n_experiments, n_stems, 1)
    probes = (n_experiments, n_stems, model.n_probes)
    both = math.sqrt(1 - model.in_arm - model.rewording) * rng.standard_normal(stems)
    both = both + math.sqrt(model.rewording) * rng.standard_normal(probes)
    replies = []
    for table in model.rates:
        score = both + math.sqrt(model.in_arm) * rng.standard_normal(stems)
        rate = np.interp(score, _SCORES, table)
        replies.append(rng.random((*probes, n_samples)) < rate[..., None])
    return replies[0], replies[1]


def _table(mean: float, between: float) -> FloatArray:
    """Rates at ``_SCORES``: beta distributed with this mean, and with ``between`` of the variance
    that rates of 0 and 1 only would have."""
    if between == 0:
        return np.full(len(_SCORES), mean)
    size = 1 / between - 1
    if size < 1e-9:
        return np.where(scipy.special.ndtr(_SCORES) > 1 - mean, 1.0, 0.0)
    place = scipy.special.ndtr(_SCORES)
    found = scipy.special.betaincinv(mean * size, (1 - mean) * size, place)
    table: FloatArray = np.clip(found, 0.0, 1.0)
    return table


def _mean(table: FloatArray) -> float:
    return float(_MASS @ table)


class _Spread:
    """Standard deviation over stems of a stem's true difference, by what is the arm's own.

    Covariances of two rates whose scores correlate are sums over Hermite polynomials (Mehler); what
    lies beyond the last term is taken to fall with the next power.
    """

    def __init__(
        self, tables: tuple[FloatArray, FloatArray], n_probes: int, rewording: float
    ) -> None:
        self._n_probes, self._rewording = n_probes, rewording
        first, second = (_hermite(table) for table in tables)
        self._terms = (first**2 + second**2, first * second)
        self._at_one = (
            sum(_mean(table**2) - _mean(table) ** 2 for table in tables),
            _mean(tables[0] * tables[1]) - _mean(tables[0]) * _mean(tables[1]),
        )

    def stem_sd(self, in_arm: float) -> float:
        both = 1 - in_arm - self._rewording
        n = self._n_probes
        variance = self._at_one[0] + (n - 1) * self._covariance(0, both + in_arm)
        shared = self._covariance(1, both + self._rewording) + (n - 1) * self._covariance(1, both)
        return 100 * math.sqrt(max(0.0, (variance - 2 * shared) / n))

    def solve(self, stem_sd: float) -> float | None:
        most = 1 - self._rewording
        if stem_sd <= self.stem_sd(0.0):
            return 0.0
        if stem_sd > self.stem_sd(most) + 1e-9:
            return None
        if stem_sd >= self.stem_sd(most):
            return most
        found = scipy.optimize.brentq(lambda b: self.stem_sd(b) - stem_sd, 0.0, most, xtol=1e-12)
        return float(found)

    def _covariance(self, which: int, correlation: float) -> float:
        powers = correlation ** np.arange(1, _N_TERMS + 1)
        terms = self._terms[which]
        rest = self._at_one[which] - float(terms.sum())
        return float(terms @ powers) + rest * float(powers[-1]) * correlation


def _hermite(table: FloatArray) -> FloatArray:
    """Coefficients of ``table`` in the normalised Hermite polynomials 1, 2, ...; (_N_TERMS,)."""
    before, now = np.ones_like(_SCORES), _SCORES.copy()
    found = np.empty(_N_TERMS)
    for degree in range(1, _N_TERMS + 1):
        found[degree - 1] = _MASS @ (now * table)
        following = (_SCORES * now - math.sqrt(degree) * before) / math.sqrt(degree + 1)
        before, now = now, following
    return found
