"""``python -m benchmarks [NAME...]``: run all benchmarks, or those named.

    hashing     our verifier against b3sum on 1 GiB
    ledger      100,000 entries: chain and head, time and memory
    cli         --help and what it imports
    generation  the engine against a plain loop and plain batching, 29 contexts (the embedded model,
                half an hour); ``generation-quick`` on 6 contexts, only when named
    scoring     the development score of a full-size study, in one process and in two
    drift       intervals of 40 arms over resampled stems, against scipy.stats.bootstrap
    coverage    intervals and null tests on simulated tables (an hour of one core);
                ``coverage-quick`` on a tenth of them; both only when named
    rate-coverage  intervals of judged rates on simulated verdicts (ten minutes of one core);
                ``rate-coverage-quick`` on a quarter of the rows; both only when named
    drift-coverage  intervals of drifts by seven constructions on simulated replies (ten minutes of
                one core); ``drift-coverage-quick`` on a tenth of the studies; both only when named

Each prints its figure, the number it is held to, and whether it holds. Exit code 1 if one does
not, 2 for an unknown name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial

from benchmarks.cli import bench_cli
from benchmarks.coverage import N_TABLES, bench_coverage
from benchmarks.drift import bench_drift
from benchmarks.drift_coverage import N_EXPERIMENTS, bench_drift_coverage
from benchmarks.hashing import bench_hashing
from benchmarks.ledger import bench_ledger
from benchmarks.rate_coverage import N_ROWS, bench_rate_coverage
from benchmarks.rows import Row, print_rows
from benchmarks.scoring import bench_scoring


def bench_generation(*, quick: bool = False) -> list[Row]:
    """Ratios of one run on the embedded model, fetched if need be, held to their targets."""
    from benchmarks.generation import LONG_TOKENS, run
    from eps_locked.models.source import SMOLLM2_135M, cache_root, obtain

    folder = obtain(SMOLLM2_135M, cache_root(os.environ), lambda text: print(f"model: {text}"))
    measured = {row["what"]: row for row in run(folder, quick=quick, threads=os.cpu_count() or 1)}
    rows = []
    for what, least in (
        ("plain / engine", 8.0),
        (f"padded / engine, contexts of {LONG_TOKENS} tokens or more", 2.0),
    ):
        row = measured[what]
        n_other = row["rows_with_other_tokens"]
        rows.append(
            Row(
                what=f"{what}, {row['n_prompts']} prompts of {row['n_contexts']} contexts",
                value=f"{row['ratio']} of wall time, {row['cpu_ratio']} of CPU time, "
                f"{n_other} answers with other tokens",
                target=f">= {least:g} and equal tokens",
                holds=row["ratio"] >= least and n_other == 0,
            )
        )
    return rows


BENCHMARKS: dict[str, Callable[[], list[Row]]] = {
    "hashing": bench_hashing,
    "ledger": bench_ledger,
    "cli": bench_cli,
    "generation": bench_generation,
    "generation-quick": partial(bench_generation, quick=True),
    "scoring": bench_scoring,
    "drift": bench_drift,
    "drift-coverage": bench_drift_coverage,
    "drift-coverage-quick": partial(bench_drift_coverage, N_EXPERIMENTS // 10),
    "coverage": bench_coverage,
    "coverage-quick": partial(bench_coverage, N_TABLES // 10),
    "rate-coverage": bench_rate_coverage,
    "rate-coverage-quick": partial(bench_rate_coverage, N_ROWS // 4),
}
ALL = ("hashing", "ledger", "cli", "scoring", "drift", "generation")


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"unknown benchmark {unknown[0]}; known: {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    rows = [row for name in names or ALL for row in BENCHMARKS[name]()]
    print_rows(rows)
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
