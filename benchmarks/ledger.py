"""Verifying a ledger of 100,000 entries: chain, digests, canonical form, bodies; flat memory."""

from __future__ import annotations

import tempfile
import time
import tracemalloc
from pathlib import Path

from benchmarks.rows import Row
from eps_locked.canonical import digest_bytes
from eps_locked.domain.ledger import Entry
from eps_locked.errors import EpsLockedError
from eps_locked.lock.ledger import ChainReader, genesis_digest, read_chain, write_line
from eps_locked.lock.workspace import RunFolder

N_ENTRIES = 100_000


def bench_ledger() -> list[Row]:
    """Time of one pass, and its peak memory at 10,000 and at 100,000 entries."""
    manifest = digest_bytes(b"manifest")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _write(folder, manifest)
        run = RunFolder(folder=folder, root="runs")
        begun = time.perf_counter()
        n_read = _verify(run, manifest, N_ENTRIES)
        seconds = time.perf_counter() - begun
        peaks = []
        for n in (N_ENTRIES // 10, N_ENTRIES):
            tracemalloc.start()
            _verify(run, manifest, n)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    size = "entries of about 1.2 kB"
    return [
        Row(
            what=f"verifying {n_read} {size}",
            value=f"{seconds:.1f} s",
            target="< 10 s",
            holds=n_read == N_ENTRIES and seconds < 10,
        ),
        Row(
            what="memory at 100,000 entries over that at 10,000",
            value=f"{peaks[1] / peaks[0]:.2f} ({peaks[1] / 1024:.0f} KiB)",
            target="< 1.5",
            holds=peaks[1] < 1.5 * peaks[0],
        ),
    ]


def _verify(run: RunFolder, manifest: str, limit: int) -> int:
    reader = ChainReader(manifest, "runs", thing="ledger.jsonl")
    n_read = 0
    for item in read_chain(run.ledger_lines(), reader):
        if isinstance(item, EpsLockedError):
            raise item
        n_read += 1
        if n_read == limit:
            break
    return n_read


def _write(folder: Path, manifest: str) -> None:
    digest = digest_bytes(b"x")
    prev = genesis_digest(manifest, "runs")
    artifact = {"digest": digest, "files": {"readings.json": {"digest": digest, "size": 1234}}}
    with (folder / "ledger.jsonl").open("wb") as stream:
        for seq in range(N_ENTRIES):
            entry = Entry(
                seq=seq,
                prev=prev,
                kind="step",
                at="2026-06-09T12:00:00Z",
                body={
                    "step": f"P1/cell/marker/persona_{seq}/default/s11",
                    "phase": "P1",
                    "status": "done",
                    "seed": 11,
                    "inputs": dict.fromkeys(("adapter", "base", "items", "prompts"), digest),
                    "outputs": {"cell": artifact},
                    "flags": ["marker_emitted"],
                    "code": digest,
                    "environment": digest,
                    "engine": digest,
                    "started": "2026-06-09T12:00:00Z",
                    "ended": "2026-06-09T12:00:04Z",
                    "compute_ms": 4000,
                },
            )
            line, prev = write_line(entry)
            stream.write(line + b"\n")
