"""Intervals and standard errors for means over two crossed factors: seeds and questions.

Every seed answers the same questions, so a reading y[s, q] shares its seed with one set of
readings and its question with another, and neither set may be resampled as if independent.
Readings are log-prob deltas in nats, or rates in [0, 1]; nothing here knows which.

Shape letters: C cells, S seeds, Q questions, B resamples.

What the interval cannot do. It learns about unseen seeds only from the seeds it has. With two
seeds a quarter of the resamples hold the first seed alone, a quarter the second, the rest both:
the seed part of the spread has three possible values and, on average, half the variance it should
have ((S - 1) / S in general). Two seeds show that a result is not one seed's accident by more than
their own distance; they do not say how far a third would fall. For that, pool the seed variance
over the cells of a row (``standard_error_pooled_over_cells``). In 1,000 simulated experiments of
40 questions in which seeds, questions and residuals had standard deviations 1, 1 and 1, the
nominal 95 % interval held the truth in 69 % of them with 2 seeds, 80 % with 3, 88 % with 6
and 94 % with 20; the test beside this file reruns the case of 6.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import blake3
import numpy as np
import numpy.typing as npt

from eps_locked.errors import StatsInputError

__all__ = [
    "Interval",
    "PooledStandardError",
    "crossed_bootstrap_interval",
    "generator_from_digest",
    "standard_error_pooled_over_cells",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

# Weights are made for so many resamples at a time that one block has about this many entries. The
# result does not depend on it.
_BLOCK_ENTRIES = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """``n_resamples`` is how many resamples the percentiles were taken from."""

    low: float
    high: float
    confidence_level: float
    n_resamples: int
    method: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PooledStandardError:
    """Variance components of a row of cells, and the standard error of one cell's mean.

    Variances are of single readings, each averaged over the cells: ``seed_variance`` between
    seeds, ``question_variance`` between questions, ``residual_variance`` what is left (the
    seed-by-question interaction with the noise of one reading). A component that came out below 0
    is reported as 0 and named in ``truncated``. ``seed_degrees_of_freedom`` is C * (S - 1).
    """

    standard_error: float
    seed_variance: float
    question_variance: float
    residual_variance: float
    seed_degrees_of_freedom: int
    n_cells: int
    n_seeds: int
    n_questions: int
    truncated: tuple[str, ...]


def generator_from_digest(digest: str, *labels: str) -> np.random.Generator:
    """PCG64 seeded with the blake3 of the JSON list [digest, *labels] (ASCII, no spaces).

    One stream per purpose: different labels, or the same ones cut differently, give unrelated
    streams. Python's own hash is salted per process and must never choose a seed.
    """
    words = [digest, *labels]
    if not all(isinstance(word, str) for word in words):
        raise TypeError("digest and labels must be strings")
    text = json.dumps(words, ensure_ascii=True, separators=(",", ":"))
    seed = int.from_bytes(blake3.blake3(text.encode("ascii")).digest(), "little")
    return np.random.Generator(np.random.PCG64(seed))


def crossed_bootstrap_interval(
    values_SQ: npt.ArrayLike,
    *,
    rng: np.random.Generator,
    n_resamples: int,
    confidence_level: float,
) -> Interval:
    """Percentile interval of the mean over seeds and questions, both resampled.

    Each resample draws S seeds and, independently, Q questions with replacement and averages the
    readings where they cross. Such a mean is an average of readings, so the interval never leaves
    the range of the data: a rate's stays in [0, 1]. Percentiles by numpy's 'linear' method.

    A single seed is allowed; the interval then speaks of that seed alone. For few seeds see the
    head of this file. The residual is counted up to three times, so where it dominates the
    interval is too wide rather than too narrow (no bootstrap is exact for crossed factors).

    Equal input and an equal state of ``rng`` give equal numbers; exactly two integers are drawn
    from ``rng``. Raises StatsInputError for a reading that is not finite, no seed, fewer than two
    questions, a confidence level outside (0, 1) or no resample.
    Source: Owen 2007, The pigeonhole bootstrap, Ann. Appl. Stat. 1(2), 386-411.
    """
    values = _finite_array(values_SQ, "values_SQ", n_dims=2)
    _require_design(values.shape, "values_SQ")
    if not 0 < confidence_level < 1:
        raise StatsInputError(
            "confidence_level", expected="a number between 0 and 1", found=confidence_level
        )
    if n_resamples < 1:
        raise StatsInputError("n_resamples", expected="at least 1", found=n_resamples)
    means = _resampled_means(values, rng, n_resamples)
    tail = (1 - confidence_level) / 2
    bounds = np.quantile(means, [tail, 1 - tail], method="linear")
    # Exact arithmetic would need no clip: it takes off rounding in the last digit and no more.
    low, high = np.clip(bounds, values.min(), values.max())
    return Interval(
        low=float(low),
        high=float(high),
        confidence_level=confidence_level,
        n_resamples=len(means),
        method="crossed percentile bootstrap over seeds and questions",
    )


def _resampled_means(values: FloatArray, rng: np.random.Generator, n_resamples: int) -> FloatArray:
    """Means of the resamples in the order drawn, shape (B,).

    A resample is a pair of multinomial weights, w_S and w_Q, and its mean is w_S' Y w_Q / (S Q):
    no reading is ever copied.
    """
    n_seeds, n_questions = values.shape
    # One stream per factor, so that the blocks below may have any size.
    seed_rng, question_rng = _child_generators(rng)
    block = max(1, _BLOCK_ENTRIES // max(n_seeds, n_questions))
    means = []
    for begin in range(0, n_resamples, block):
        size = min(block, n_resamples - begin)
        weights_BS = _multinomial_weights(seed_rng, n_seeds, size)
        weights_BQ = _multinomial_weights(question_rng, n_questions, size)
        totals = np.einsum("bq,bq->b", weights_BS @ values, weights_BQ)
        means.append(totals / (n_seeds * n_questions))
    return np.concatenate(means)


def _child_generators(
    rng: np.random.Generator,
) -> tuple[np.random.Generator, np.random.Generator]:
    first, second = (int(word) for word in rng.integers(0, 2**63, size=2, dtype=np.int64))
    return np.random.Generator(np.random.PCG64(first)), np.random.Generator(np.random.PCG64(second))


def _multinomial_weights(rng: np.random.Generator, n: int, n_resamples: int) -> FloatArray:
    """How often each of ``n`` things is drawn in ``n`` draws with replacement; shape (B, n).

    Counting uniform draws is several times faster than Generator.multinomial at these sizes.
    """
    drawn = rng.integers(0, n, size=(n_resamples, n), dtype=np.int64)
    drawn += n * np.arange(n_resamples, dtype=np.int64)[:, None]
    counts = np.bincount(drawn.ravel(), minlength=n_resamples * n)
    return counts.reshape(n_resamples, n).astype(np.float64)


def standard_error_pooled_over_cells(values_CSQ: npt.ArrayLike) -> PooledStandardError:
    """Standard error of a cell's mean, with the variance components pooled over the row's cells.

    Two seeds give one degree of freedom in one cell and C of them in a row of C cells. Within cell
    c the model is y[s, q] = mean + seed[s] + question[q] + residual[s, q], all random, with the
    same three variances in every cell. Method of moments, mean squares averaged over cells:

        MS_seed     = Q / (S - 1) * sum_s (y[s, .] - y[., .])^2       E = Q v_seed + v_residual
        MS_question = S / (Q - 1) * sum_q (y[., q] - y[., .])^2       E = S v_question + v_residual
        MS_residual = sum_sq (y[s, q] - y[s, .] - y[., q] + y[., .])^2 / ((S - 1) (Q - 1))

    so v_seed = (MS_seed - MS_residual) / Q is the variance between the seeds' means less the share
    that question noise leaves in them (the questions' own level cancels: all seeds answer the same
    ones). Negative estimates are set to 0. Then

        standard_error^2 = v_seed / S + v_question / Q + v_residual / (S Q).

    What it assumes: equal variances across cells. If they differ, the figure is right for the
    average cell only. And cells that share an adapter (one training context, many eval contexts)
    share its seeds' accidents, so the degrees of freedom are then an upper bound: for an honest
    count hand over one cell per adapter.

    Raises StatsInputError for a reading that is not finite, no cell, or fewer than two seeds or
    questions: a seed variance does not exist with one seed, in however many cells.
    Source: Searle, Casella & McCulloch 1992, Variance Components, chapter 4 (balanced two-way
    crossed random model, one observation per cell).
    """
    values = _finite_array(values_CSQ, "values_CSQ", n_dims=3)
    n_cells, n_seeds, n_questions = values.shape
    if n_cells < 1 or n_seeds < 2 or n_questions < 2:
        raise StatsInputError(
            "values_CSQ",
            expected="at least 1 cell, 2 seeds and 2 questions",
            found=f"{n_cells}, {n_seeds} and {n_questions}",
        )
    mean = values.mean(axis=(1, 2), keepdims=True)
    by_seed = values.mean(axis=2, keepdims=True) - mean
    by_question = values.mean(axis=1, keepdims=True) - mean
    left = values - mean - by_seed - by_question
    seed_df, question_df = n_seeds - 1, n_questions - 1
    ms_seed = n_questions * float(np.square(by_seed).sum()) / (n_cells * seed_df)
    ms_question = n_seeds * float(np.square(by_question).sum()) / (n_cells * question_df)
    residual = float(np.square(left).sum()) / (n_cells * seed_df * question_df)
    raw = {
        "seed": (ms_seed - residual) / n_questions,
        "question": (ms_question - residual) / n_seeds,
    }
    seed, question = max(raw["seed"], 0.0), max(raw["question"], 0.0)
    return PooledStandardError(
        standard_error=math.sqrt(
            seed / n_seeds + question / n_questions + residual / (n_seeds * n_questions)
        ),
        seed_variance=seed,
        question_variance=question,
        residual_variance=residual,
        seed_degrees_of_freedom=n_cells * seed_df,
        n_cells=n_cells,
        n_seeds=n_seeds,
        n_questions=n_questions,
        truncated=tuple(name for name, value in raw.items() if value < 0),
    )


def _require_design(shape: tuple[int, ...], name: str) -> None:
    n_seeds, n_questions = shape
    if n_seeds < 1 or n_questions < 2:
        raise StatsInputError(
            name,
            expected="at least 1 seed and 2 questions",
            found=f"{n_seeds} and {n_questions}",
        )


def _finite_array(values: npt.ArrayLike, name: str, *, n_dims: int) -> FloatArray:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise StatsInputError(name, problem=f"is not an array of numbers ({error})") from error
    if array.ndim != n_dims:
        raise StatsInputError(name, expected=f"{n_dims} dimensions", found=array.ndim)
    n_bad = int(np.count_nonzero(~np.isfinite(array)))
    if n_bad:
        raise StatsInputError(
            name,
            expected="finite readings only",
            found=f"{n_bad} of {array.size} that are not",
            next_step="leave unscored readings out",
        )
    return array
