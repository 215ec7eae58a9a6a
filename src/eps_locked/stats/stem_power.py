"""What a number of stems can see: before the run to plan it, after it to read what was not found.

Everything is in the unit of the standard error (percentage points, for drifts). Two figures are
given for the smallest drift a design finds, and a report shows both:

- ``minimum_detectable``: 2.8 standard errors, the figure of the literature. It takes the standard
  error as known. A t test of 30 stems finds such a drift in 77 % of studies, not in 80 %; of 12 in
  72 %, of 8 in 67 %.
- ``minimum_detectable_few``: the same for a standard error that is itself estimated from so many
  stems (noncentral t). This is the drift that is found in 80 %: 2.9 standard errors at 30 stems,
  3.1 at 12, 3.3 at 8. Numbers of stems are planned with it.

``simulated_coverage`` plays the whole procedure, replies and all, and counts; ADR 17 holds what it
and the tests found.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy.optimize
import scipy.special

from eps_locked.errors import StatsInputError
from eps_locked.stats.checks import FloatArray
from eps_locked.stats.resolution import minimum_detectable_effect
from eps_locked.stats.stem_bootstrap import StemEffect, stem_effects, stem_weights
from eps_locked.stats.stem_replies import ReplyModel, simulate_replies

__all__ = [
    "Assumptions",
    "SimulatedCoverage",
    "minimum_detectable",
    "minimum_detectable_few",
    "planned_stems",
    "power_of",
    "simulated_coverage",
    "stems_for",
]

_ALPHA, _POWER = 0.05, 0.80
_PLAN_LIMIT = 10_000_000
# Experiments that share one set of resamples. Fewer, and making the resamples is all the work;
# all of them, and the luck of one set moves every interval the same way.
_EXPERIMENTS_A_BLOCK = 100
_ROUNDS, _SETTLED = 60, 1e-3
# Normal scores of the quantiles of an estimated standard error, for ``power_of``.
_NODES = np.linspace(-8.0, 8.0, 321)
_NODE_WEIGHTS = np.exp(-np.square(_NODES) / 2)
_NODE_WEIGHTS /= _NODE_WEIGHTS.sum()


@dataclass(frozen=True, kw_only=True, slots=True)
class Assumptions:
    """What a plan takes for granted about its noise.

    ``stem_sd``: standard deviation over stems of a stem's true difference between two arms, in
    points. ``within_variance``: variance of one reply (0 or 100) around its own probe's rate, in
    points squared: 10,000 times the mean of p (1 - p). ``n_probes`` rewordings a stem and
    ``n_samples`` replies to each. Raises StatsInputError for what cannot be, and for no noise at
    all: a plan that assumes none promises a resolution without limit.
    """

    stem_sd: float
    within_variance: float
    n_probes: int
    n_samples: int

    def __post_init__(self) -> None:
        for name in ("stem_sd", "within_variance"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise StatsInputError(name, expected="a finite number of 0 or more", found=value)
        for name in ("n_probes", "n_samples"):
            if getattr(self, name) < 1:
                raise StatsInputError(name, expected="at least 1", found=getattr(self, name))
        if self.stem_sd == 0 and self.within_variance == 0:
            raise StatsInputError(
                "stem_sd, within_variance", expected="at least one of them above 0", found="both 0"
            )

    def standard_error(self, n_stems: int) -> float:
        """Of the drift between two arms over ``n_stems`` stems.

        The root of (stem_sd^2 + 2 within_variance / (n_probes n_samples)) / n_stems.
        """
        if n_stems < 1:
            raise StatsInputError("n_stems", expected="at least 1", found=n_stems)
        replies = self.n_probes * self.n_samples
        return math.sqrt((self.stem_sd**2 + 2 * self.within_variance / replies) / n_stems)


def minimum_detectable(
    standard_error: float, alpha: float = _ALPHA, power: float = _POWER
) -> float:
    """2.8 standard errors at the defaults; ``resolution.minimum_detectable_effect``."""
    return minimum_detectable_effect(standard_error, alpha, power)


def minimum_detectable_few(
    standard_error: float, n_stems: int, alpha: float = _ALPHA, power: float = _POWER
) -> float:
    """The true drift that ``n_stems`` stems find with probability ``power``.

    ``standard_error`` as for ``power_of``, which this inverts; grows to ``minimum_detectable`` from
    above with the number of stems. Raises StatsInputError as ``power_of``.
    """
    _require_share("power", power)
    if power <= alpha:
        raise StatsInputError("power", expected=f"more than alpha, {alpha}", found=power)
    _require_positive("standard_error", standard_error)
    high = 1.0
    while power_of(high, 1.0, n_stems, alpha) < power:
        high *= 2
    errors = scipy.optimize.brentq(
        lambda effect: power_of(effect, 1.0, n_stems, alpha) - power, 0.0, high, xtol=1e-10
    )
    return float(errors) * standard_error


def power_of(effect: float, standard_error: float, n_stems: int, alpha: float = _ALPHA) -> float:
    """Probability that a two-sided t test over ``n_stems`` stems finds a true drift of ``effect``.

    standard_error: the true one, of the mean over so many stems. Differences are taken as normal;
    rejections on the wrong side are counted (alpha / 2 at an effect of 0, next to nothing soon
    after). Raises StatsInputError for an effect that is not finite, a standard error that is not
    above 0, fewer than 2 stems, or an alpha outside (0, 1).
    Source: Johnson, Kotz and Balakrishnan 1995, Continuous Univariate Distributions 2, chapter 31.
    """
    if not math.isfinite(effect):
        raise StatsInputError("effect", expected="a finite number", found=effect)
    _require_positive("standard_error", standard_error)
    if n_stems < 2:
        raise StatsInputError("n_stems", expected="at least 2", found=n_stems)
    _require_share("alpha", alpha)
    freedom, shift = n_stems - 1, abs(effect) / standard_error
    critical = scipy.special.stdtrit(freedom, 1 - alpha / 2)
    # Noncentral t as the mean of normal probabilities over the standard error that is estimated:
    # scipy.special.nctdtr has no value for some of the far tails asked for here.
    below = scipy.special.gammaincinv(freedom / 2, scipy.special.ndtr(_NODES[_NODES < 0]))
    above = scipy.special.gammainccinv(freedom / 2, scipy.special.ndtr(-_NODES[_NODES >= 0]))
    reach = critical * np.sqrt(2 * np.concatenate([below, above]) / freedom)
    found = scipy.special.ndtr(shift - reach) + scipy.special.ndtr(-shift - reach)
    return min(1.0, max(0.0, float(_NODE_WEIGHTS @ found)))


def stems_for(
    resolution: float,
    standard_error: float,
    n_stems: int,
    alpha: float = _ALPHA,
    power: float = _POWER,
) -> int:
    """Stems at which the minimum detectable drift would be ``resolution``, as seen from a study.

    standard_error: what ``n_stems`` stems gave. It falls as 1 / sqrt(stems), so the answer is
    n_stems (2.8 standard errors / resolution)^2, rounded up. Raises StatsInputError for numbers
    that are not above 0.
    """
    _require_positive("resolution", resolution)
    if n_stems < 1:
        raise StatsInputError("n_stems", expected="at least 1", found=n_stems)
    ratio = minimum_detectable(standard_error, alpha, power) / resolution
    return _up(n_stems * ratio**2)


def planned_stems(
    resolution: float, assumptions: Assumptions, alpha: float = _ALPHA, power: float = _POWER
) -> int:
    """The fewest stems, at least 2, with which a drift of ``resolution`` is found often enough.

    By ``minimum_detectable_few``, so the power holds for the number itself and not only for many
    stems. Raises StatsInputError if it would take more than ten million.
    """
    _require_positive("resolution", resolution)

    def reaches(n_stems: int) -> bool:
        error = assumptions.standard_error(n_stems)
        return power_of(resolution, error, n_stems, alpha) >= power

    _require_share("power", power)
    return _first(reaches)


@dataclass(frozen=True, kw_only=True, slots=True)
class SimulatedCoverage:
    """Shares of simulated studies, each from 0 to 1.

    ``coverage``: intervals that held the true drift when there was none in the mean;
    ``coverage_at_minimum``: when the drift was ``minimum_detectable``. ``null_rejection``: null
    tests (the first against the second sample of one arm) whose interval left out 0; None with one
    sample. ``power_at_minimum`` and ``power_at_minimum_few``: drifts of these two sizes that were
    found, on their own side; None where rates from 0 to 1 leave no room for such a drift.
    ``standard_error`` is the assumptions'. ``monte_carlo_se`` is that of a share equal to the
    level in so many experiments.
    """

    n_stems: int
    standard_error: float
    minimum_detectable: float
    minimum_detectable_few: float
    coverage: float
    coverage_at_minimum: float | None
    null_rejection: float | None
    power_at_minimum: float | None
    power_at_minimum_few: float | None
    confidence_level: float
    n_resamples: int
    n_experiments: int
    monte_carlo_se: float


def simulated_coverage(
    assumptions: Assumptions,
    rate: float,
    n_stems: int,
    n_resamples: int,
    n_experiments: int,
    confidence_level: float,
    rng: np.random.Generator,
) -> SimulatedCoverage:
    """Play ``n_experiments`` studies of the assumed kind from replies to intervals, and count.

    Replies are 0 or 1, aligned at ``rate`` in the reference arm; rewordings of a stem are
    correlated, and both arms share stems and rewordings (``stem_replies``). The variances are those
    of the assumptions at every simulated drift, which goes towards the middle of the scale; where a
    drift of that size cannot be as even over stems as assumed, it counts in the larger standard
    errors that it brings along.

    Raises StatsInputError for assumptions that replies of this rate cannot have: a within variance
    above that of coins, or a stem_sd that the rest of the variance cannot hold.
    """
    if n_experiments < 1:
        raise StatsInputError("n_experiments", expected="at least 1", found=n_experiments)
    if n_stems < 2:
        raise StatsInputError("n_stems", expected="at least 2", found=n_stems)
    error = assumptions.standard_error(n_stems)
    alpha = 1 - confidence_level
    known = minimum_detectable(error, alpha)
    few = minimum_detectable_few(error, n_stems, alpha)

    def play(n_errors: float) -> tuple[list[StemEffect], list[StemEffect], float] | None:
        model = _model(assumptions, rate, n_stems, n_errors)
        if model is None:
            return None
        study = _Study(assumptions, n_stems, n_resamples, confidence_level)
        drifts, nulls = study.play(model, n_experiments, rng)
        return drifts, nulls, model.drift

    still = play(0.0)
    if still is None:
        raise StatsInputError(
            "assumptions",
            expected=f"variances that replies of rate {rate} can have",
            found=f"stem_sd {assumptions.stem_sd}, within_variance {assumptions.within_variance}",
            next_step="a reply's variance is at most 10,000 rate (1 - rate); what is left of that "
            "is for stems and rewordings, and stem_sd must fit into it",
        )
    at_known, at_few = play(known / error), play(few / error)
    return SimulatedCoverage(
        n_stems=n_stems,
        standard_error=error,
        minimum_detectable=known,
        minimum_detectable_few=few,
        coverage=_share(still[0], lambda one: _holds(one, still[2])),
        coverage_at_minimum=None
        if at_known is None
        else _share(at_known[0], lambda one: _holds(one, at_known[2])),
        null_rejection=_share(still[1], lambda one: one.excludes_zero) if still[1] else None,
        power_at_minimum=None if at_known is None else _found(at_known[0], at_known[2]),
        power_at_minimum_few=None if at_few is None else _found(at_few[0], at_few[2]),
        confidence_level=confidence_level,
        n_resamples=n_resamples,
        n_experiments=n_experiments,
        monte_carlo_se=math.sqrt(confidence_level * alpha / n_experiments),
    )


def _model(
    assumptions: Assumptions, rate: float, n_stems: int, n_errors: float
) -> ReplyModel | None:
    """The assumed variances with a drift of so many standard errors, towards the middle.

    Where the drift itself makes stems differ by more than was assumed, the standard errors are the
    larger ones that it then has.
    """
    error, model = assumptions.standard_error(n_stems), None
    for _ in range(_ROUNDS):
        size = n_errors * error
        model = ReplyModel.fitting(
            rate=rate,
            drift=-size if rate >= 0.5 else size,
            stem_sd=assumptions.stem_sd,
            within_variance=assumptions.within_variance,
            n_probes=assumptions.n_probes,
        )
        if model is None:
            return None
        before = error
        error = replace(assumptions, stem_sd=model.stem_sd).standard_error(n_stems)
        if abs(error - before) <= _SETTLED * error:
            return model
    return None


@dataclass(frozen=True, slots=True)
class _Study:
    assumptions: Assumptions
    n_stems: int
    n_resamples: int
    confidence_level: float

    def play(
        self, model: ReplyModel, n_experiments: int, rng: np.random.Generator
    ) -> tuple[list[StemEffect], list[StemEffect]]:
        """Effects of the drift, and of the null test where there are two samples."""
        drifts: list[StemEffect] = []
        nulls: list[StemEffect] = []
        for begin in range(0, n_experiments, _EXPERIMENTS_A_BLOCK):
            size = min(_EXPERIMENTS_A_BLOCK, n_experiments - begin)
            reference, arm = simulate_replies(
                model, rng, (size, self.n_stems, self.assumptions.n_samples)
            )
            weights = stem_weights(self.n_stems, self.n_resamples, rng)
            drifts += self._effects(arm.mean(axis=(2, 3)) - reference.mean(axis=(2, 3)), weights)
            if self.assumptions.n_samples > 1:
                between = reference[..., 1].mean(axis=2) - reference[..., 0].mean(axis=2)
                nulls += self._effects(between, weights)
        return drifts, nulls

    def _effects(
        self, differences: FloatArray, weights_BS: np.typing.NDArray[np.int64]
    ) -> list[StemEffect]:
        found = stem_effects(
            100 * differences, weights_BS, (self.confidence_level,), largest_step=200
        )
        return [one for (one,) in found]


def _share(effects: list[StemEffect], counts: Callable[[StemEffect], bool]) -> float:
    return sum(map(counts, effects)) / len(effects)


def _holds(one: StemEffect, drift: float) -> bool:
    assert one.low is not None
    assert one.high is not None
    return one.low - 1e-9 <= drift <= one.high + 1e-9


def _found(effects: list[StemEffect], drift: float) -> float:
    return _share(effects, lambda one: one.excludes_zero and (one.mean > 0) == (drift > 0))


def _first(reaches: Callable[[int], bool]) -> int:
    """The smallest number from 2 on that reaches; power grows with the number of stems."""
    high = 2
    while not reaches(high):
        high *= 2
        if high > _PLAN_LIMIT:
            raise StatsInputError(
                "resolution",
                expected=f"one that {_PLAN_LIMIT} stems can reach",
                found="a smaller one",
            )
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        if reaches(middle):
            high = middle
        else:
            low = middle
    return high


def _up(number: float) -> int:
    """Rounded up, unless it is a whole number but for rounding."""
    return max(1, math.ceil(number * (1 - 1e-12)))


def _require_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise StatsInputError(name, expected="a finite number above 0", found=value)


def _require_share(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise StatsInputError(name, expected="a number between 0 and 1", found=value)
