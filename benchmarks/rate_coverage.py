"""How often the intervals of a judged row hold the truth, on simulated verdicts.

A context has a base rate, a cell a trained rate, each question a rate of its own around it (beta
distributed, so that the mean over all questions is the context's or cell's), and each seed shifts a
cell's logit. The base's and the trained model's questions are as hard as each other to the degree
``Condition`` says. Readings are shares of N tosses. The truth is over unseen questions and unseen
seeds; with one seed it is that seed's own.

Held to 93-99 % where both rates lie in 0.06-0.94, and to 93 % or more at the edges, with fewer than
20 questions (few readings are possible then) and where all answers but a few agree; plus 2.6
standard errors of the simulation (cells of a row miss together, so rows are what is counted).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import scipy.special

from benchmarks.rows import Row
from eps_locked.stats.bootstrap import generator_from_digest
from eps_locked.stats.rate_interval import (
    RateEstimate,
    minimum_detectable_rate_change,
    rate_change_intervals,
)

N_ROWS = 80
_LEVEL = 0.95
_BAND = (0.93, 0.99)
_EDGE = 0.06
_BASE_RATES = (0.0, 0.0, 0.02, 0.1, 0.3, 0.5, 0.7, 0.9)
_TRAINED_RATES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.97, 1.0)
_LOW_TRAINED_RATES = (0.0, 0.01, 0.03, 0.05, 0.1, 0.5)
_NO_EFFECT_SHARE = 0.4


@dataclass(frozen=True, kw_only=True, slots=True)
class Condition:
    """Where a row's noise comes from. Of a tuple, each cell, context or adapter draws one.

    ``alike``: variance of a question's rate as a share of all or nothing (0 coins, 1 all or
    nothing). ``pairing``: correlation of a question's rates on both sides, where there is an effect
    and where there is none. Seed effects are standard deviations on the logit scale. ``effects``:
    trained less base, instead of trained rates of their own.
    """

    name: str
    alike: tuple[float, ...] = (0.3,)
    base_alike: tuple[float, ...] = (0.3,)
    pairing: tuple[float, float] = (0.5, 0.5)
    adapter_seed: tuple[float, ...] = (0.5,)
    cell_seed: float = 0.2
    effects: tuple[float, ...] = ()
    missing: float = 0.0
    is_held: bool = True
    may_be_wide: bool = False


CONDITIONS = (
    Condition(name="plain"),
    Condition(name="a tenth missing", missing=0.1),
    Condition(
        name="coins, no seed effect",
        alike=(0.0,),
        base_alike=(0.0,),
        adapter_seed=(0.0,),
        cell_seed=0.0,
    ),
    Condition(name="large seed effects", adapter_seed=(1.0,), cell_seed=0.5),
    Condition(name="questions alike in some cells only", alike=(0.0, 0.9), base_alike=(0.0, 0.9)),
    Condition(
        name="paired without an effect, opposed with one",
        alike=(0.8,),
        base_alike=(0.8,),
        pairing=(-0.9, 0.98),
        adapter_seed=(0.3,),
    ),
    Condition(
        name="same answers but for a few",
        alike=(0.98,),
        base_alike=(0.98,),
        pairing=(1.0, 1.0),
        adapter_seed=(0.0,),
        cell_seed=0.0,
        effects=(0.02, 0.05, 0.1),
        may_be_wide=True,
    ),
    Condition(name="seed effects of some adapters only", adapter_seed=(0.1, 1.5), is_held=False),
)
# Seeds, questions, answers per question.
DESIGNS = ((2, 6, 1), (2, 10, 5), (2, 20, 1), (2, 24, 3), (3, 24, 3), (2, 40, 5))
ONE_SEED_DESIGNS = ((1, 6, 1), (1, 20, 3), (1, 40, 1))
SHAPES = {"8 x 12": (8, 12), "3 x 6": (3, 6)}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SimulatedRow:
    """Rates of each question, NaN where missing, and the two true rates of each cell."""

    trained_CSQ: np.ndarray
    base_CQ: np.ndarray
    adapter_C: np.ndarray
    trained_C: np.ndarray
    base_C: np.ndarray


def simulate_row(
    rng: np.random.Generator,
    condition: Condition,
    shape: tuple[int, int],
    design: tuple[int, int, int],
    *,
    base_rates: tuple[float, ...] = _BASE_RATES,
    trained_rates: tuple[float, ...] = _TRAINED_RATES,
    no_effect_share: float = _NO_EFFECT_SHARE,
) -> SimulatedRow:
    """One row of train x eval contexts."""
    (n_train, n_eval), (n_seeds, n_items, n_samples) = shape, design
    adapter, context = np.repeat(np.arange(n_train), n_eval), np.tile(np.arange(n_eval), n_train)
    n_cells = len(adapter)
    base_J = rng.choice(base_rates, size=n_eval)
    base = base_J[context]
    has_none = rng.random(n_cells) < no_effect_share
    if condition.effects:
        other = np.minimum(base + rng.choice(condition.effects, size=n_cells), 1.0)
    else:
        other = rng.choice(trained_rates, size=n_cells)
    centre = np.where(has_none, base, other)

    with np.errstate(divide="ignore"):
        logit = scipy.special.logit(centre)
    spread_A = rng.choice(condition.adapter_seed, size=n_train)
    shift = (spread_A[:, None] * rng.standard_normal((n_train, n_seeds)))[adapter]
    shift = shift + condition.cell_seed * rng.standard_normal((n_cells, n_seeds))
    mean_CS = scipy.special.expit(logit[:, None] + shift)
    trained = mean_CS[:, 0]
    if n_seeds > 1:
        nodes, weights = np.polynomial.hermite_e.hermegauss(41)
        spread = np.hypot(spread_A, condition.cell_seed)[adapter]
        rates = scipy.special.expit(logit[:, None] + spread[:, None] * nodes)
        trained = rates @ (weights / weights.sum())

    # How hard a question is: half of it in all contexts, half in its own.
    common, own = rng.standard_normal(n_items), rng.standard_normal((n_eval, n_items))
    hard_JQ = math.sqrt(0.5) * (common + own)
    pairing = np.where(has_none, condition.pairing[1], condition.pairing[0])[:, None, None]
    rest = math.sqrt(0.8) * rng.standard_normal((n_cells, 1, n_items))
    rest = rest + math.sqrt(0.2) * rng.standard_normal((n_cells, n_seeds, n_items))
    hard_CSQ = pairing * hard_JQ[context][:, None, :] + np.sqrt(1 - pairing**2) * rest
    base_alike = rng.choice(condition.base_alike, size=n_eval)
    alike = np.where(has_none, base_alike[context], rng.choice(condition.alike, size=n_cells))
    chance_JQ = _question_rates(hard_JQ, base_J[:, None], base_alike[:, None])
    chance_CSQ = _question_rates(hard_CSQ, mean_CS[:, :, None], alike[:, None, None])
    read_JQ = rng.binomial(n_samples, chance_JQ) / n_samples
    read_CSQ = rng.binomial(n_samples, chance_CSQ) / n_samples
    if condition.missing:
        read_JQ[rng.random(read_JQ.shape) < condition.missing] = np.nan
        read_CSQ[rng.random(read_CSQ.shape) < condition.missing] = np.nan
    return SimulatedRow(
        trained_CSQ=read_CSQ,
        base_CQ=read_JQ[context],
        adapter_C=adapter,
        trained_C=trained,
        base_C=base,
    )


def _question_rates(hard: np.ndarray, mean: np.ndarray, alike: np.ndarray) -> np.ndarray:
    """Beta distributed rates with these means, at the quantiles of the normal ``hard``."""
    hard, mean, alike = np.broadcast_arrays(hard, mean, alike)
    rates = np.array(mean, dtype=np.float64)
    varies = (mean > 0) & (mean < 1) & (alike > 0)
    size, at = 1 / alike[varies] - 1, mean[varies]
    quantile = np.clip(scipy.special.ndtr(hard[varies]), 1e-12, 1 - 1e-12)
    rates[varies] = scipy.special.betaincinv(at * size, (1 - at) * size, quantile)
    return np.clip(rates, 0.0, 1.0)


@dataclass(slots=True)
class Tally:
    """Hits and cells of each simulated row."""

    hits: list[float] = field(default_factory=list)
    cells: list[float] = field(default_factory=list)
    width: float = 0.0

    def add(self, holds: np.ndarray, width: np.ndarray) -> None:
        if len(holds):
            self.hits.append(float(holds.sum()))
            self.cells.append(float(len(holds)))
            self.width += float(width.sum())

    def join(self, other: Tally) -> None:
        self.hits += other.hits
        self.cells += other.cells
        self.width += other.width

    @property
    def n(self) -> float:
        return sum(self.cells)

    @property
    def share(self) -> float:
        return sum(self.hits) / self.n if self.n else math.nan

    @property
    def error(self) -> float:
        """Standard error of ``share``, rows counting once."""
        left = np.array(self.hits) - self.share * np.array(self.cells)
        return float(np.sqrt(np.square(left).sum())) / self.n


Tallies = dict[tuple[str, str], Tally]


def coverage(
    condition: Condition, shape: str, design: tuple[int, int, int], n_rows: int
) -> Tallies:
    """By (change, trained or base; centre or edge)."""
    rng = generator_from_digest("rate coverage", condition.name, shape, str(design))
    tallies: Tallies = {}
    for number in range(n_rows):
        trained_rates = (_TRAINED_RATES, _LOW_TRAINED_RATES)[number % 2]
        row = simulate_row(rng, condition, SHAPES[shape], design, trained_rates=trained_rates)
        _count(tallies, row)
    return tallies


def _count(tallies: Tallies, row: SimulatedRow) -> None:
    found = rate_change_intervals(
        row.trained_CSQ,
        row.base_CQ,
        row.adapter_C,
        confidence_level=_LEVEL,
        minimum_share=0.5,
    )
    there = np.array([one is not None for one in found])
    ends = {
        "change": ("low", "high"),
        "trained": ("trained_low", "trained_high"),
        "base": ("base_low", "base_high"),
    }
    truth = {"change": row.trained_C - row.base_C, "trained": row.trained_C, "base": row.base_C}
    trained_at_edge, base_at_edge = _at_edge(row.trained_C), _at_edge(row.base_C)
    edges = {
        "change": np.where(trained_at_edge & base_at_edge, 2, trained_at_edge | base_at_edge),
        "trained": trained_at_edge.astype(int),
        "base": base_at_edge.astype(int),
    }
    for what, (low, high) in ends.items():
        lows = np.array([getattr(one, low) for one in found if one is not None])
        highs = np.array([getattr(one, high) for one in found if one is not None])
        true, place = truth[what][there], edges[what][there]
        if what != "change":
            # A rate of exactly 0 or 1 is read as such and always held; it would hide the others.
            place = np.where((true > 0) & (true < 1), place, -1)
        # A rate of 0 less a rate of 0 is 0 up to the last digit.
        holds = (lows <= true + 1e-12) & (true <= highs + 1e-12)
        for number, name in enumerate(("centre", "one edge", "both edges")):
            here = place == number
            tally = tallies.setdefault((what, name), Tally())
            tally.add(holds[here], (highs - lows)[here])


def _at_edge(rate: np.ndarray) -> np.ndarray:
    return np.asarray((rate < _EDGE) | (rate > 1 - _EDGE))


def bench_rate_coverage(n_rows: int = N_ROWS) -> list[Row]:
    """By condition over the designs, by design over the conditions, by rates, and the power."""
    rows, by_design = [], {}
    for shape in SHAPES:
        n = n_rows if shape == "8 x 12" else 4 * n_rows
        for designs, seeds in ((DESIGNS, "2 or 3 seeds"), (ONE_SEED_DESIGNS, "1 seed")):
            for condition in CONDITIONS:
                # With one seed no seed effect matters: the truth is that of the seed.
                is_held = condition.is_held or designs is ONE_SEED_DESIGNS
                cases = {design: coverage(condition, shape, design, n) for design in designs}
                rows += _rows(f"{shape}, {seeds}, {condition.name}", condition, cases, is_held)
                for design, tallies in cases.items():
                    if is_held and not condition.may_be_wide:
                        joined = by_design.setdefault((shape, design), {})
                        for key, tally in tallies.items():
                            joined.setdefault(key, Tally()).join(tally)
    for (shape, design), tallies in by_design.items():
        seeds, items, samples = design
        label = f"{shape}, {seeds} seeds x {items} questions x {samples} answers"
        rows += _rows(label, CONDITIONS[0], {design: tallies}, True)
    return [*rows, *_grid_rows(n_rows), *_power_rows(n_rows)]


def _rows(
    label: str, condition: Condition, cases: dict[tuple[int, int, int], Tallies], is_held: bool
) -> list[Row]:
    rows = []
    for what in ("change", "trained", "base"):
        texts, holds = [], True
        for place in ("centre", "one edge", "both edges"):
            joined, shares = Tally(), []
            for design, tallies in cases.items():
                tally = tallies[what, place]
                # The error of a share of few rows is not to be trusted.
                if len(tally.cells) < 16:
                    continue
                joined.join(tally)
                shares.append(tally.share)
                slack = 2.6 * tally.error
                holds &= tally.share >= _BAND[0] - slack
                may_be_wide = place != "centre" or condition.may_be_wide or design[1] < 20
                holds &= may_be_wide or tally.share <= _BAND[1] + slack
            if not shares:
                continue
            across = f", {min(shares):.1%} to {max(shares):.1%}" if len(shares) > 1 else ""
            width = joined.width / joined.n
            texts.append(f"{place} {joined.share:.1%}{across} (width {width:.2f})")
        rows.append(
            Row(
                what=f"{label}, {what}",
                value="; ".join(texts),
                target="93-99 %, 93 % or more at the edges" if is_held else "none, see ADR 15",
                holds=holds or not is_held,
            )
        )
    return rows


def _grid_rows(n_rows: int) -> Iterator[Row]:
    """The change by base rate and effect, in one design."""
    bases, effects = (0.0, 0.02, 0.1, 0.3, 0.5, 0.7, 0.9), (0.0, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9)
    for base in bases:
        texts, holds = [], True
        for effect in (one for one in effects if base + one <= 1):
            rng = generator_from_digest("rate coverage", "grid", str(base), str(effect))
            tallies: Tallies = {}
            for _ in range(n_rows):
                row = simulate_row(
                    rng,
                    replace(CONDITIONS[0], effects=(effect,)),
                    SHAPES["8 x 12"],
                    (2, 20, 3),
                    base_rates=(base,),
                    no_effect_share=0.0,
                )
                _count(tallies, row)
            joined = Tally()
            for (what, _), tally in tallies.items():
                if what == "change":
                    joined.join(tally)
            holds &= joined.share >= _BAND[0] - 2.6 * joined.error
            texts.append(f"+{effect:g} {joined.share:.1%}")
        yield Row(
            what=f"8 x 12, 2 seeds x 20 questions x 3 answers, base rate {base:g}, change",
            value=", ".join(texts),
            target="93 % or more",
            holds=holds,
        )


def _power_rows(n_rows: int) -> Iterator[Row]:
    """How often an effect of the stated detectable size is found (its interval excludes 0)."""
    for design in ((2, 10, 5), (2, 20, 3), (2, 40, 5)):
        for base in (0.0, 0.1, 0.4):
            found, stated = power_at_the_stated_effect(design, base, n_rows)
            seeds, items, samples = design
            yield Row(
                what=f"8 x 12, {seeds} seeds x {items} questions x {samples} answers, base rate "
                f"{base:g}: found at the stated detectable effect of {stated:.2f}",
                value=f"{found:.0%}",
                target="none, 80 % meant",
                holds=True,
            )


def power_at_the_stated_effect(
    design: tuple[int, int, int], base: float, n_rows: int
) -> tuple[float, float]:
    """Share of cells found when all have the effect that rows without an effect state."""
    rng = generator_from_digest("rate coverage", "power", str(design), str(base))
    stated = []
    for _ in range(n_rows):
        row = _row_with_effect(rng, design, base, 0.0)
        one = minimum_detectable_rate_change(
            row.trained_CSQ,
            row.base_CQ,
            row.adapter_C,
            confidence_level=_LEVEL,
            minimum_share=0.5,
        )
        stated.append(one.minimum_detectable_effect if one else None)
    effect = float(np.mean([1.0 if one is None else one for one in stated]))
    found: list[bool] = []
    for _ in range(n_rows):
        row = _row_with_effect(rng, design, base, min(effect, 1 - base))
        found += [one.low > 0 for one in _found(row)]
    return float(np.mean(found)), effect


def _row_with_effect(
    rng: np.random.Generator, design: tuple[int, int, int], base: float, effect: float
) -> SimulatedRow:
    condition = replace(CONDITIONS[0], effects=(effect,))
    return simulate_row(
        rng, condition, SHAPES["8 x 12"], design, base_rates=(base,), no_effect_share=0.0
    )


def _found(row: SimulatedRow) -> list[RateEstimate]:
    found = rate_change_intervals(
        row.trained_CSQ,
        row.base_CQ,
        row.adapter_C,
        confidence_level=_LEVEL,
        minimum_share=0.5,
    )
    return [one for one in found if one is not None]
