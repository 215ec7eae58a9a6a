"""``python -m benchmarks [NAME...]``: run all benchmarks, or those named.

    hashing     our verifier against b3sum on 1 GiB
    ledger      100,000 entries: chain and head, time and memory
    cli         --help and what it imports
    generation  the engine against a plain loop and plain batching (needs the embedded model)

Each prints its figure, the number it is held to, and whether it holds. Exit code 1 if one does
not, 2 for an unknown name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from benchmarks.cli import bench_cli
from benchmarks.hashing import bench_hashing
from benchmarks.ledger import bench_ledger
from benchmarks.rows import Row, print_rows


def bench_generation() -> list[Row]:
    """The full-size generation benchmark; fetches the embedded model if need be."""
    from benchmarks.generation import main as generation
    from eps_locked.models.source import SMOLLM2_135M, cache_root, obtain

    folder = obtain(SMOLLM2_135M, cache_root(os.environ), lambda text: print(f"model: {text}"))
    status = generation([str(folder), "--threads", str(os.cpu_count() or 1)])
    return [
        Row(
            what="generation: every target above",
            value="met" if status == 0 else "missed",
            target="met",
            holds=status == 0,
        )
    ]


BENCHMARKS: dict[str, Callable[[], list[Row]]] = {
    "hashing": bench_hashing,
    "ledger": bench_ledger,
    "cli": bench_cli,
    "generation": bench_generation,
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"unknown benchmark {unknown[0]}; known: {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    rows = [row for name in names or BENCHMARKS for row in BENCHMARKS[name]()]
    print_rows(rows)
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
