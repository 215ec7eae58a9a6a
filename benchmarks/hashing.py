"""Verifying artifacts against ``b3sum`` on the same 1 GiB in the page cache, interleaved."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.rows import Row
from eps_locked.canonical import DIGEST_PREFIX
from eps_locked.domain.ledger import Artifact, FileRecord
from eps_locked.lock.record import verify_artifact
from eps_locked.lock.workspace import RunFolder, artifact_digest

N_FILES = 64
FILE_BYTES = 16 << 20
ROUNDS = 5


def bench_hashing() -> list[Row]:
    """Best of five each: ``verify_artifact`` over 64 artifacts of 16 MiB, and ``b3sum``."""
    tool = shutil.which("b3sum")
    if tool is None:
        return [Row(what="hashing", value="b3sum is not installed", target="0.8", holds=False)]
    with tempfile.TemporaryDirectory() as scratch:
        run = RunFolder(folder=Path(scratch) / "run", root="runs")
        artifacts, paths = _fill(run, tool, Path(scratch))
        ours, theirs = [], []
        for _ in range(ROUNDS):
            begun = time.perf_counter()
            subprocess.run([tool, *paths], check=True, capture_output=True)
            theirs.append(time.perf_counter() - begun)
            begun = time.perf_counter()
            for artifact in artifacts:
                verify_artifact(run, artifact)
            ours.append(time.perf_counter() - begun)
    ratio = min(theirs) / min(ours)
    gib = N_FILES * FILE_BYTES / 2**30
    return [
        Row(
            what=f"verifying {gib:g} GiB, throughput over b3sum's",
            value=f"{ratio:.2f} ({gib / min(ours):.2f} against {gib / min(theirs):.2f} GiB/s)",
            target=">= 0.80",
            holds=ratio >= 0.8,
        )
    ]


def _fill(run: RunFolder, tool: str, scratch: Path) -> tuple[list[Artifact], list[str]]:
    artifacts, paths = [], []
    for number in range(N_FILES):
        source = scratch / f"{number}.bin"
        source.write_bytes(os.urandom(FILE_BYTES))
        printed = subprocess.run([tool, "--no-names", str(source)], check=True, capture_output=True)
        digest = DIGEST_PREFIX + printed.stdout.decode().strip()
        records = {"data.bin": FileRecord(digest=digest, size=FILE_BYTES)}
        artifact = Artifact(digest=artifact_digest(records), files=records)
        folder = run.artifact_folder(artifact.digest)
        folder.mkdir(parents=True)
        source.rename(folder / "data.bin")
        artifacts.append(artifact)
        paths.append(str(folder / "data.bin"))
    return artifacts, paths
