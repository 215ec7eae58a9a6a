"""How long ``eps-locked --help`` takes, and whether it stays light."""

from __future__ import annotations

import subprocess
import sys
import time

from benchmarks.rows import Row

HEAVY = ("torch", "transformers", "peft", "numpy", "scipy", "pyarrow", "anthropic", "datasets")


def bench_cli() -> list[Row]:
    """Best of seven runs of ``--help`` in a fresh process."""
    command = [sys.executable, "-c", "from eps_locked.cli.main import main; main(['--help'])"]
    times = []
    for _ in range(7):
        begun = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - begun)
    probe = (
        "import sys; from eps_locked.cli.main import run; run(['--help']); "
        f"print([n for n in {HEAVY!r} if n in sys.modules], file=sys.stderr)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", probe], check=True, capture_output=True, text=True
    ).stderr.strip()
    return [
        Row(
            what="eps-locked --help",
            value=f"{min(times):.2f} s",
            target="< 0.3 s",
            holds=min(times) < 0.3,
        ),
        Row(what="heavy modules it loads", value=loaded, target="[]", holds=loaded == "[]"),
    ]
