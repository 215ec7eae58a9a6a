"""Where the noise of a drift comes from: the classifier, the model's luck, or the stems.

The squared standard error of a drift is the variance of the stems' differences over their number.
A stem's difference moves because the arms really differ more on some stems than on others (item),
because the same model answers the same wording differently (model), and because the same reply is
not always put into the same class (classifier):

    var(drift) = item + (v_arm + v_reference) mean_s(1 / n_s) / S,    v = v_model + q / 2

v: variance of an outcome between samples of one probe; n_s: replies of stem s in an arm; q: mean
squared difference of the outcomes when a reply is classified twice (the share of changed outcomes,
where they are 0 and 1). More stems make all three smaller; a better classifier only the first.

Shape letters: S stems, P probes of a stem, K samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eps_locked.errors import StatsInputError
from eps_locked.stats.checks import FloatArray, IntArray, finite_vector

__all__ = ["NoiseShares", "noise_shares"]


@dataclass(frozen=True, kw_only=True, slots=True)
class NoiseShares:
    """Shares of the three parts' sum, each from 0 to 1.

    That sum is ``variance_total``, the squared standard error of the drift, unless a part came out
    below 0: it is then counted as 0 and named in ``truncated`` ("item", "model"). All shares are
    None where nothing varies or no probe has two samples in both arms; ``classifier`` is also None
    where no reply was classified twice, and its part is then inside ``model``. ``n_twice``: replies
    that were.
    """

    classifier: float | None
    model: float | None
    item: float | None
    variance_total: float
    n_twice: int
    truncated: tuple[str, ...]


def noise_shares(
    differences_S: npt.ArrayLike,
    arm_SPK: npt.ArrayLike,
    reference_SPK: npt.ArrayLike,
    disagreement: float | None,
    n_twice: int,
) -> NoiseShares:
    """Split the noise of one drift.

    differences_S: arm less reference, in the unit of the outcomes. arm_SPK, reference_SPK: an
    outcome for each reply, NaN where there is none. disagreement: q above, in that unit squared;
    None if no reply was classified twice. Unequal numbers of replies are taken as they are.

    Raises StatsInputError for fewer than 2 stems, arrays that do not fit, a stem without a reply,
    an infinite outcome, or a disagreement below 0 or without replies.
    """
    differences = finite_vector(differences_S, "differences_S")
    n_stems = len(differences)
    if n_stems < 2:
        raise StatsInputError("differences_S", expected="at least 2 stems", found=n_stems)
    arms = (
        _outcomes(arm_SPK, "arm_SPK", n_stems),
        _outcomes(reference_SPK, "reference_SPK", n_stems),
    )
    if disagreement is not None and not (math.isfinite(disagreement) and disagreement >= 0):
        raise StatsInputError("disagreement", expected="a number of 0 or more", found=disagreement)
    if (disagreement is None) != (n_twice == 0):
        raise StatsInputError(
            "disagreement",
            expected="a figure exactly if replies were classified twice",
            found=f"{disagreement} of {n_twice} replies",
        )
    total = float(differences.var(ddof=1)) / n_stems
    within = [_within(arm) for arm in arms]
    known = [one for one in within if one is not None]
    if len(known) < len(within):
        return _undefined(total, n_twice)
    # Share of one reply's variance that is left in the mean over stems.
    left = [float((1 / _n_replies(arm)).mean()) / n_stems for arm in arms]
    by_reply = sum(v * part for v, part in zip(known, left, strict=True))
    by_classifier = 0.0 if disagreement is None else disagreement / 2 * sum(left)
    raw = {"model": by_reply - by_classifier, "item": total - by_reply}
    parts = {name: max(0.0, value) for name, value in raw.items()}
    whole = by_classifier + sum(parts.values())
    if whole == 0:
        return _undefined(total, n_twice)
    return NoiseShares(
        classifier=None if disagreement is None else by_classifier / whole,
        model=parts["model"] / whole,
        item=parts["item"] / whole,
        variance_total=total,
        n_twice=n_twice,
        truncated=tuple(name for name, value in raw.items() if value < 0),
    )


def _undefined(total: float, n_twice: int) -> NoiseShares:
    return NoiseShares(
        classifier=None, model=None, item=None, variance_total=total, n_twice=n_twice, truncated=()
    )


def _within(outcomes_SPK: FloatArray) -> float | None:
    """Mean over probes with two samples or more of the variance between their samples."""
    probes = outcomes_SPK.reshape(-1, outcomes_SPK.shape[2])
    counts = np.count_nonzero(~np.isnan(probes), axis=1)
    probes, counts = probes[counts > 1], counts[counts > 1]
    if not len(probes):
        return None
    means = np.nansum(probes, axis=1) / counts
    squares = np.nansum(np.square(probes - means[:, None]), axis=1)
    return float((squares / (counts - 1)).mean())


def _n_replies(outcomes_SPK: FloatArray) -> IntArray:
    counts: IntArray = (~np.isnan(outcomes_SPK)).sum(axis=(1, 2), dtype=np.int64)
    return counts


def _outcomes(values: npt.ArrayLike, name: str, n_stems: int) -> FloatArray:
    try:
        outcomes = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise StatsInputError(name, problem=f"is not an array of numbers ({error})") from error
    if outcomes.ndim != 3 or len(outcomes) != n_stems:
        raise StatsInputError(
            name, expected=f"{n_stems} stems x probes x samples", found=f"shape {outcomes.shape}"
        )
    if np.isinf(outcomes).any():
        raise StatsInputError(name, expected="finite outcomes, or NaN", found="an infinite one")
    if not _n_replies(outcomes).all():
        raise StatsInputError(
            name,
            expected="at least one reply for every stem",
            found="a stem without",
            next_step="leave out the stems that an arm has no scored reply to",
        )
    return outcomes
