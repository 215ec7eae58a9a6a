"""The whole development score of a full-size study, in one process and in two.

5 behaviours x 16 train x 29 eval contexts, 3 seeds, ten predictors, three combiners (ridge, write
times gate, and their pooled fits), 2,000 resamples: the numbers of a real study, simulated.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.rows import Row
from eps_locked.canonical import digest_value
from eps_locked.scoring.predictor import Predictor
from eps_locked.scoring.score import score_open
from eps_locked.scoring.settings import ScoreSettings
from eps_locked.scoring.tensor import BehaviourTable, Cell, ScoreTensor

BEHAVIOURS = ("marker", "fact", "refusal", "sycophancy", "misalignment")
N_TRAIN, N_EVAL, N_SEEDS = 16, 29, 3
METRICS = (
    "source_prior",
    "bystander_prior",
    "gauss_kl",
    "output_kl",
    "output_kl_back",
    "projection",
    "length",
    "overlap",
    "base_rate",
    "permutation",
)
FAMILIES = ("persona", "prefix", "demonstrations", "rephrasing", "format")
TARGET_S = 60.0


def bench_scoring() -> list[Row]:
    """Seconds from parsed input to document; the two-process figure is held to the target."""
    tensor, predictors = _study()
    settings = ScoreSettings(n_resamples=2000)
    seconds, digests = {}, set()
    for n_processes in (1, 2):
        begun, spent = time.perf_counter(), time.process_time()
        document = score_open(tensor, predictors, settings, n_processes=n_processes)
        seconds[n_processes] = time.perf_counter() - begun
        cpu = time.process_time() - spent
        digests.add(digest_value(document))
        if n_processes == 1:
            cpu_alone = cpu
    what = f"{len(BEHAVIOURS)} x {N_TRAIN} x {N_EVAL}, {len(METRICS)} predictors"
    return [
        Row(
            what=f"scoring {what}, one process",
            value=f"{seconds[1]:.1f} s ({cpu_alone:.1f} s of CPU)",
            target="none",
            holds=True,
        ),
        Row(
            what=f"scoring {what}, two processes",
            value=f"{seconds[2]:.1f} s, equal bytes: {'yes' if len(digests) == 1 else 'no'}",
            target=f"< {TARGET_S:.0f} s and equal bytes",
            holds=seconds[2] < TARGET_S and len(digests) == 1,
        ),
    ]


def _study() -> tuple[ScoreTensor, list[Predictor]]:
    rng = np.random.default_rng(20260609)
    names = [f"context_{number:02d}" for number in range(N_EVAL)]
    families: dict[str, str | None] = {
        name: FAMILIES[number % len(FAMILIES)] for number, name in enumerate(names)
    }
    families[names[14]], families[names[15]] = "default", "instruction"
    values: dict[str, dict[Any, float]] = {metric: {} for metric in METRICS}
    tables = []
    for behaviour in BEHAVIOURS:
        rows, columns = rng.normal(size=N_TRAIN), 0.5 * rng.normal(size=N_EVAL)
        own = 0.5 * rng.normal(size=(N_TRAIN, N_EVAL))
        cells = []
        for i, train in enumerate(names[:N_TRAIN]):
            for j, evaluated in enumerate(names):
                g = 2 + rows[i] + columns[j] + own[i, j]
                seeds = {str(s): float(g + 0.2 * rng.normal()) for s in range(N_SEEDS)}
                cells.append(
                    Cell(
                        train=train,
                        eval=evaluated,
                        g=float(np.mean(list(seeds.values()))),
                        by_seed=seeds,
                        flags=frozenset({"floor"} if rng.random() < 0.05 else ()),
                        prefix_tokens=float(20 * j),
                        realised_strength=float(7 + 0.3 * rows[i]),
                    )
                )
                signals = (rows[i], columns[j], own[i, j] + 0.3 * rows[i], 0.0)
                for number, metric in enumerate(METRICS):
                    value = float(signals[number % 4] + 0.4 * rng.normal())
                    values[metric][behaviour, train, evaluated] = value
        tables.append(
            BehaviourTable(
                behaviour=behaviour,
                unit="nats",
                direction="up",
                cells=tuple(cells),
                families=families,
                groups={name: name for name in names},
            )
        )
    predictors = [
        Predictor(
            metric=metric,
            title=metric,
            author="benchmark",
            track="predictive",
            polarity="more",
            description="",
            values=values[metric],
            blind={},
        )
        for metric in METRICS
    ]
    return ScoreTensor(tables=tuple(tables)), predictors
