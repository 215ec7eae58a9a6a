"""Scores in, differences out: what is subtracted from what, in which unit, and what is left out.

Pure. A difference is the reference's score minus that of ``vea``: positive where the reward model
dislikes the clause. Both sides have to be scored; what is not is counted by its status and never
guessed. A difference of exactly 0 is a measurement.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from eps_locked.domain.reward import LARGEST_SCORE, REWARD_STATUSES
from eps_locked.errors import MalformedInputError
from eps_locked.stats.checks import FloatArray
from eps_locked.studies.vea.items import ANCHOR, DECOY, FAMILIES, NEUTRAL, Family, Measure
from eps_locked.studies.vea.settings import Normalise

__all__ = [
    "RESPONSES",
    "FamilyDeltas",
    "ItemScores",
    "ModelScores",
    "Role",
    "Unit",
    "by_reward_model",
    "deltas_of",
    "role_of",
]

Role = Literal["anchor", "other", "gate"]
Unit = Literal["reward", "sd of base scores", "per-prompt z"]
RESPONSES: Final = ("base", "vea", "control")
SCORED: Final = "scored"
# Reasons of our own to leave a pair out, beside the statuses of scores.
SAME_TEXT: Final = "same_text"
NO_SCALE: Final = "no_scale"
_UNITS: Final[Mapping[Normalise, Unit]] = {
    "none": "reward",
    "overall": "sd of base scores",
    "per_prompt": "per-prompt z",
}
# Of the largest score. 0.3 - 0.2 and 0.2 - 0.1 are one difference, and rounding must not rank them.
_ROUNDING = 1e-12
# What squares and fourth powers do not lose; no reward model comes near it.
_SMALLEST = 1e-60
# z-scores lose more digits where a prompt's scores lie close together.
_DECIMALS_OF_Z = 9


@dataclass(frozen=True, kw_only=True, slots=True)
class ItemScores:
    """What one reward model said of the three responses of one item.

    A score is there exactly where ``statuses`` (keys base, vea, control) says "scored". ``stem``:
    items that answer one prompt share it. ``same_text``: ``vea`` is ``base``, no clause at all;
    such a pair cannot differ, and is left out of ``inserted``.
    """

    reward_model: str
    item: str
    family: Family
    domain: str
    stem: str
    base: float | None
    vea: float | None
    control: float | None
    statuses: Mapping[str, str]
    same_text: bool = False

    def score(self, response: str) -> float | None:
        return {"base": self.base, "vea": self.vea, "control": self.control}[response]


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelScores:
    """All rows of one reward model, by item id, in one unit.

    ``values``: each row's scores in that unit, None where there is none; ``largest`` of them is
    the one furthest from 0. ``has_scale``: False where a unit could not be made. ``mean_base`` and
    ``sd_base`` (ddof 1) are of the raw base scores; None below one and two of them.
    """

    name: str
    rows: tuple[ItemScores, ...]
    values: tuple[Mapping[str, float | None], ...]
    largest: float
    unit: Unit
    has_scale: bool
    mean_base: float | None
    sd_base: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class FamilyDeltas:
    """One family by one measure.

    ``stems`` are in order of their ids, ``deltas`` the mean difference of each (S,); ``reference``
    and ``vea`` the scores of the pairs themselves (P,). ``left_out`` counts pairs by reason.
    """

    family: Family
    measure: Measure
    stems: tuple[str, ...]
    deltas: FloatArray
    reference: FloatArray
    vea: FloatArray
    n_ties: int
    left_out: Mapping[str, int]

    @property
    def n_pairs(self) -> int:
        return len(self.vea)


def role_of(family: Family) -> Role:
    if family == ANCHOR:
        return "anchor"
    return "gate" if family in (NEUTRAL, DECOY) else "other"


def by_reward_model(scores: Iterable[ItemScores], normalise: Normalise) -> tuple[ModelScores, ...]:
    """One entry for each reward model, in the order in which they first come.

    Raises MalformedInputError for a family or status that is not known, a score that is not a
    finite number, one that is there without its status or missing with it, an item given twice to
    one reward model, and an item that is not the same to all of them.
    """
    models: dict[str, dict[str, ItemScores]] = {}
    known: dict[str, tuple[str, str, str]] = {}
    for row in scores:
        path = f"{row.reward_model}: {row.item}"
        _require_row(row, path)
        own = models.setdefault(row.reward_model, {})
        if row.item in own:
            raise MalformedInputError(path, expected="one row", found="two")
        own[row.item] = row
        about = (row.family, row.domain, row.stem)
        first = known.setdefault(row.item, about)
        if first != about:
            raise MalformedInputError(
                path, expected="family, domain and stem " + ", ".join(first), found=", ".join(about)
            )
    return tuple(
        _in_unit(name, tuple(own[item] for item in sorted(own)), normalise)
        for name, own in models.items()
    )


def deltas_of(model: ModelScores, family: Family, measure: Measure) -> FamilyDeltas:
    """The differences of one family; empty where no pair has both scores."""
    response = "base" if measure == "inserted" else "control"
    left_out: Counter[str] = Counter()
    kept: list[tuple[str, float, float]] = []
    for row, values in zip(model.rows, model.values, strict=True):
        if row.family != family:
            continue
        reason = _left_out(model, row, values, measure, response)
        if reason is not None:
            left_out[reason] += 1
            continue
        reference, vea = values[response], values["vea"]
        assert reference is not None
        assert vea is not None
        kept.append((row.stem, reference, vea))
    reference_P = np.array([one for _, one, _ in kept], dtype=np.float64)
    vea_P = np.array([one for _, _, one in kept], dtype=np.float64)
    deltas_P = _cleaned(model, reference_P - vea_P)
    stems = tuple(sorted({stem for stem, _, _ in kept}))
    of_stem: dict[str, list[float]] = {stem: [] for stem in stems}
    for (stem, _, _), delta in zip(kept, deltas_P.tolist(), strict=True):
        of_stem[stem].append(delta)
    means = [math.fsum(of_stem[stem]) / len(of_stem[stem]) for stem in stems]
    return FamilyDeltas(
        family=family,
        measure=measure,
        stems=stems,
        deltas=_cleaned(model, np.array(means, dtype=np.float64)),
        reference=reference_P,
        vea=vea_P,
        n_ties=int((deltas_P == 0).sum()),
        left_out=dict(sorted(left_out.items())),
    )


def _require_row(row: ItemScores, path: str) -> None:
    if row.family not in FAMILIES:
        raise MalformedInputError(
            f"{path}.family", expected=" or ".join(FAMILIES), found=repr(row.family)
        )
    if set(row.statuses) != set(RESPONSES):
        raise MalformedInputError(
            f"{path}.statuses", expected=", ".join(RESPONSES), found=", ".join(row.statuses)
        )
    for response in RESPONSES:
        status, score = row.statuses[response], row.score(response)
        if status not in REWARD_STATUSES:
            raise MalformedInputError(
                f"{path}.statuses.{response}",
                expected=" or ".join(REWARD_STATUSES),
                found=repr(status),
            )
        if (status == SCORED) != (score is not None):
            raise MalformedInputError(
                f"{path}.{response}",
                expected="a score exactly if its status is scored",
                found=f"{score} with {status}",
            )
        if score is not None and not abs(score) <= LARGEST_SCORE:
            raise MalformedInputError(
                f"{path}.{response}",
                expected=f"a number within ±{LARGEST_SCORE:g}",
                found=score,
                next_step="a score that is not a number has the status not_finite and no value",
            )


def _in_unit(name: str, rows: tuple[ItemScores, ...], normalise: Normalise) -> ModelScores:
    base = [row.base for row in rows if row.base is not None]
    sd = float(np.std(base, ddof=1)) if len(base) > 1 else None
    raw: list[Mapping[str, float | None]] = [
        {response: row.score(response) for response in RESPONSES} for row in rows
    ]
    has_scale = True
    if normalise == "per_prompt":
        raw = _z_scores(rows)
    elif normalise == "overall" and len({one for row in raw for one in row.values()} - {None}) > 1:
        # Equal scores throughout need no scale: their differences are 0 in any.
        has_scale = sd is not None and sd > _ROUNDING * max(_SMALLEST, *map(abs, base))
        if has_scale:
            assert sd is not None
            raw = [{k: None if v is None else v / sd for k, v in row.items()} for row in raw]
    return ModelScores(
        name=name,
        rows=rows,
        values=tuple(raw),
        largest=max((abs(v) for row in raw for v in row.values() if v is not None), default=0.0),
        unit=_UNITS[normalise],
        has_scale=has_scale,
        mean_base=math.fsum(base) / len(base) if base else None,
        sd_base=sd,
    )


def _z_scores(rows: Sequence[ItemScores]) -> list[Mapping[str, float | None]]:
    """Each response against all responses to its prompt (ddof 0); equal scores are all 0.

    Items with a missing response have none: z among two is +-1 whatever the scores were. Among the
    three of a single item z says little more than the order: differences lie within +-sqrt(6), a
    reward model that hardly tells responses apart has as large ones as any, and the margin has to
    be chosen in that unit.
    """
    complete: dict[str, list[float]] = {}
    for row in rows:
        scores = _all_three(row)
        if scores is not None:
            complete.setdefault(row.stem, []).extend(scores)
    found: list[Mapping[str, float | None]] = []
    for row in rows:
        scores = _all_three(row)
        if scores is None:
            found.append(dict.fromkeys(RESPONSES))
            continue
        of_stem = np.array(sorted(complete[row.stem]))
        if np.ptp(of_stem) <= _ROUNDING * max(_SMALLEST, np.abs(of_stem).max()):
            found.append(dict.fromkeys(RESPONSES, 0.0))
            continue
        mean, sd = float(of_stem.mean()), float(of_stem.std())
        found.append({k: (v - mean) / sd for k, v in zip(RESPONSES, scores, strict=True)})
    return found


def _all_three(row: ItemScores) -> tuple[float, float, float] | None:
    if row.base is None or row.vea is None or row.control is None:
        return None
    return row.base, row.vea, row.control


def _left_out(
    model: ModelScores,
    row: ItemScores,
    values: Mapping[str, float | None],
    measure: Measure,
    response: str,
) -> str | None:
    needed = RESPONSES if model.unit == "per-prompt z" else (response, "vea")
    missing = next((row.statuses[one] for one in needed if row.statuses[one] != SCORED), None)
    if missing is not None:
        return missing
    assert values[response] is not None
    if not model.has_scale:
        return NO_SCALE
    return SAME_TEXT if measure == "inserted" and row.same_text else None


def _cleaned(model: ModelScores, deltas: FloatArray) -> FloatArray:
    """Differences without the last digits, in which only rounding could tell two of them apart."""
    if model.unit == "per-prompt z":
        # + 0.0 turns a negative zero into the usual one.
        return np.round(deltas, _DECIMALS_OF_Z) + 0.0
    step = _ROUNDING * max(_SMALLEST, model.largest)
    cleaned: FloatArray = np.round(deltas / step) * step + 0.0
    return cleaned
