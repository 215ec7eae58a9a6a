"""Tables and tensors whose truth is known: what every interval and test here is tried on.

A context has a breadth as a source, a susceptibility as a target, and a place in a small latent
space on either side; a cell adds what it shares with its mirror and what is its own:

    G[i, j] = row r_i + column c_j + interaction u_i . v_j / sqrt(3) + mirror m_{ij} + cell e_ij

with all letters standard normal, corr(r_i, c_i) given, and contexts independent: any number of
further contexts can be drawn from the same source, which is what "the truth of a huge table" means
(``draw_cells``). A predictor is built the same way from letters that correlate with G's; with
correlation 0 it is a null predictor with rows and columns of its own.

Readings add seeds and questions to a cell: an accident of the adapter and its seed that all cells
of the adapter share, one of the cell and seed, a question's level in the cell, and the rest. Rates
apply them on the logit scale and toss a coin per reading.

Shape letters: N cells, K contexts, C cells of a tensor, S seeds, Q questions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.special

from eps_locked.errors import StatsInputError

__all__ = [
    "READING_SPREAD",
    "TABLE_SPREADS",
    "ReadingSpread",
    "SimulatedTable",
    "SimulatedTensor",
    "TableSpread",
    "draw_cells",
    "off_diagonal",
    "simulate_rates",
    "simulate_readings",
    "simulate_table",
    "simulate_tensor",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_LATENT_SIZE = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class TableSpread:
    """Standard deviations of the parts of a table; ``row_column`` is a correlation."""

    row: float
    column: float
    row_column: float
    interaction: float
    mirror: float
    cell: float


# From a table that an additive model nearly explains, as measured ones are, to one of mere noise.
TABLE_SPREADS = {
    "rows": TableSpread(row=2, column=1, row_column=0.3, interaction=0.7, mirror=0.3, cell=0.4),
    "mixed": TableSpread(row=1, column=1, row_column=0.3, interaction=1, mirror=0.5, cell=0.7),
    "cells": TableSpread(row=0.05, column=0.05, row_column=0, interaction=0.05, mirror=0.3, cell=1),
    "latent": TableSpread(row=0.3, column=0.3, row_column=0, interaction=1.5, mirror=0.5, cell=0.3),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadingSpread:
    """Standard deviations of what a reading adds to its cell's truth."""

    adapter_seed: float
    cell_seed: float
    question: float
    residual: float


READING_SPREAD = ReadingSpread(adapter_seed=0.3, cell_seed=0.2, question=0.8, residual=0.6)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SimulatedTable:
    """Context ids and true values of every cell; ``predictors_PN`` one row per predictor."""

    train_N: IntArray
    eval_N: IntArray
    g_N: FloatArray
    predictors_PN: FloatArray


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SimulatedTensor:
    """One behaviour: a table, and readings of it. ``adapter_C`` is the train context's id."""

    table: SimulatedTable
    readings_CSQ: FloatArray
    adapter_C: IntArray


def off_diagonal(n_train: int, n_eval: int, *, n_shared: int | None = None) -> tuple[IntArray, ...]:
    """Ids of the cells of a table without its diagonal.

    Train contexts are 0 .. n_train - 1. The first ``n_shared`` of them (all that fit, unless told)
    are also the first eval contexts; the other eval contexts have ids of their own.
    """
    shared = min(n_train, n_eval) if n_shared is None else n_shared
    evaluated = [*range(shared), *range(n_train, n_train + n_eval - shared)]
    cells = [(i, j) for i in range(n_train) for j in evaluated if i != j]
    array = np.array(cells, dtype=np.int64).reshape(-1, 2)
    return array[:, 0].copy(), array[:, 1].copy()


def simulate_table(
    rng: np.random.Generator,
    train_N: IntArray,
    eval_N: IntArray,
    *,
    spread: TableSpread,
    strengths: tuple[float, ...] = (),
    predictor_spread: TableSpread | None = None,
) -> SimulatedTable:
    """One table over the given cells, and one predictor per strength.

    A predictor's strength is the correlation of each of its letters with G's; 0 gives a predictor
    that has nothing to do with G. Its parts have the sizes of ``predictor_spread`` (G's).
    """
    for strength in strengths:
        if not -1 <= strength <= 1:
            raise StatsInputError(
                "strengths", expected="correlations in [-1, 1]", found=f"{strength}"
            )
    letters = _letters(rng, train_N, eval_N)
    g = _table(letters, train_N, eval_N, spread)
    predictors = [
        _table(
            {
                name: strength * letter
                + np.sqrt(1 - strength**2) * rng.standard_normal(letter.shape)
                for name, letter in letters.items()
            },
            train_N,
            eval_N,
            predictor_spread or spread,
        )
        for strength in strengths
    ]
    return SimulatedTable(
        train_N=train_N,
        eval_N=eval_N,
        g_N=g,
        predictors_PN=np.array(predictors).reshape(len(strengths), len(g)),
    )


def draw_cells(
    rng: np.random.Generator,
    n_cells: int,
    *,
    spread: TableSpread,
    strengths: tuple[float, ...] = (),
    predictor_spread: TableSpread | None = None,
) -> SimulatedTable:
    """Cells no two of which share a context: independent draws from the huge table.

    A score over very many of them is the score of the huge table.
    """
    train = np.arange(n_cells, dtype=np.int64)
    return simulate_table(
        rng,
        train,
        train + n_cells,
        spread=spread,
        strengths=strengths,
        predictor_spread=predictor_spread,
    )


def simulate_readings(
    rng: np.random.Generator,
    truth_C: FloatArray,
    adapter_C: IntArray,
    *,
    n_seeds: int,
    n_items: int,
    spread: ReadingSpread = READING_SPREAD,
) -> FloatArray:
    """Readings of each cell, e.g. log-prob deltas; shape (C, S, Q)."""
    noise = _reading_noise(rng, adapter_C, n_seeds, n_items, spread)
    noise += spread.residual * rng.standard_normal(noise.shape)
    return truth_C[:, None, None] + noise


def simulate_rates(
    rng: np.random.Generator,
    logit_C: FloatArray,
    adapter_C: IntArray,
    *,
    n_seeds: int,
    n_items: int,
    spread: ReadingSpread = READING_SPREAD,
) -> tuple[FloatArray, FloatArray]:
    """Zeros and ones of each cell, shape (C, S, Q), and each cell's true rate, shape (C,).

    ``residual`` is not used: the coin is the rest. The true rate is over unseen seeds and unseen
    questions, by Gauss-Hermite quadrature of the logistic of a normal.
    """
    noise = _reading_noise(rng, adapter_C, n_seeds, n_items, spread)
    rates = scipy.special.expit(logit_C[:, None, None] + noise)
    readings = (rng.random(rates.shape) < rates).astype(np.float64)
    nodes, weights = np.polynomial.hermite_e.hermegauss(41)
    sd = np.sqrt(spread.adapter_seed**2 + spread.cell_seed**2 + spread.question**2)
    truth = scipy.special.expit(logit_C[:, None] + sd * nodes) @ (weights / weights.sum())
    return readings, truth


def simulate_tensor(
    rng: np.random.Generator,
    *,
    n_train: int,
    n_eval: int,
    n_seeds: int,
    n_items: int,
    spread: TableSpread = TABLE_SPREADS["rows"],
    reading_spread: ReadingSpread = READING_SPREAD,
    strengths: tuple[float, ...] = (),
) -> SimulatedTensor:
    """A table without its diagonal with readings of every cell, and predictors of its truth."""
    train, evaluated = off_diagonal(n_train, n_eval)
    table = simulate_table(rng, train, evaluated, spread=spread, strengths=strengths)
    readings = simulate_readings(
        rng, table.g_N, train, n_seeds=n_seeds, n_items=n_items, spread=reading_spread
    )
    return SimulatedTensor(table=table, readings_CSQ=readings, adapter_C=train)


def _letters(
    rng: np.random.Generator, train_N: IntArray, eval_N: IntArray
) -> dict[str, FloatArray]:
    n_contexts = int(max(train_N.max(), eval_N.max())) + 1
    low, high = np.minimum(train_N, eval_N), np.maximum(train_N, eval_N)
    n_pairs = len(np.unique(low * n_contexts + high))
    return {
        "row": rng.standard_normal(n_contexts),
        "column": rng.standard_normal(n_contexts),
        "source": rng.standard_normal((n_contexts, _LATENT_SIZE)),
        "target": rng.standard_normal((n_contexts, _LATENT_SIZE)),
        "pair": rng.standard_normal(n_pairs),
        "cell": rng.standard_normal(len(train_N)),
    }


def _table(
    letters: dict[str, FloatArray], train_N: IntArray, eval_N: IntArray, spread: TableSpread
) -> FloatArray:
    n_contexts = len(letters["row"])
    low, high = np.minimum(train_N, eval_N), np.maximum(train_N, eval_N)
    pair_N = np.unique(low * n_contexts + high, return_inverse=True)[1]
    row = letters["row"]
    column = spread.row_column * row + np.sqrt(1 - spread.row_column**2) * letters["column"]
    latent = np.einsum("nd,nd->n", letters["source"][train_N], letters["target"][eval_N])
    return np.asarray(
        spread.row * row[train_N]
        + spread.column * column[eval_N]
        + spread.interaction * latent / np.sqrt(_LATENT_SIZE)
        + spread.mirror * letters["pair"][pair_N]
        + spread.cell * letters["cell"]
    )


def _reading_noise(
    rng: np.random.Generator,
    adapter_C: IntArray,
    n_seeds: int,
    n_items: int,
    spread: ReadingSpread,
) -> FloatArray:
    adapters, adapter = np.unique(adapter_C, return_inverse=True)
    n_cells = len(adapter_C)
    by_adapter = spread.adapter_seed * rng.standard_normal((len(adapters), n_seeds))
    by_cell = spread.cell_seed * rng.standard_normal((n_cells, n_seeds))
    by_question = spread.question * rng.standard_normal((n_cells, n_items))
    return np.asarray((by_adapter[adapter] + by_cell)[:, :, None] + by_question[:, None, :])
