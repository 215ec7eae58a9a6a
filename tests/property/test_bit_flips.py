"""Random single-bit flips anywhere in a finished study: the audit finds each and names the file.

2,048 flips by a seeded generator, over every file of the plan, the manifest and the run, each file
chosen with the same chance, so that a short file counts as much as a long one. Nothing is copied:
the bit is flipped, the audit made (without re-derivation, which looks at no further byte), and the
bit flipped back.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from eps_locked.audit.checks import AuditedRun, audit_run, verdict_payload
from eps_locked.canonical import digest_value
from eps_locked.lock import signatures
from eps_locked.lock.envelope import seal_document
from eps_locked.studies.eps.rederive import EpsRederiver
from sim.simulator import NAME, StudySimulator

N_SHARDS = 8
FLIPS_PER_SHARD = 256
SEED = 20260609


@pytest.fixture(autouse=True)
def each_signature_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """ssh-keygen is asked once about the same bytes: most flips touch nothing that it reads."""
    said: dict[tuple[bytes | str, ...], subprocess.CompletedProcess[bytes]] = {}
    ask = signatures._run

    def ask_once(arguments: Sequence[str], data: bytes) -> subprocess.CompletedProcess[bytes]:
        if "verify" not in arguments:
            return ask(arguments, data)
        read = [Path(one).read_bytes() if Path(one).is_file() else one for one in arguments]
        key = (*read, data)
        if key not in said:
            said[key] = ask(arguments, data)
        return said[key]

    monkeypatch.setattr(signatures, "_run", ask_once)


def quick_audit(study: StudySimulator) -> AuditedRun:
    return audit_run(study.workspace, NAME, code=study.code, rederive=EpsRederiver(), quick=True)


def watched_files(study: StudySimulator) -> list[Path]:
    """Everything a verdict stands on: plan, material, manifest, run, and the verdict itself."""
    roots = (study.root / "plans", study.manifest_folder, study.run_folder.folder)
    return sorted(path for root in roots for path in root.rglob("*") if path.is_file())


def write_verdict(study: StudySimulator) -> None:
    payload = verdict_payload(study.audit(), digest_value(study.code))
    study.run_folder.verdicts.mkdir()
    (study.run_folder.verdicts / "000001.json").write_bytes(seal_document(payload)[0])


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(N_SHARDS))
def test_every_flipped_bit_is_found_and_its_file_named(tiny: StudySimulator, shard: int) -> None:
    write_verdict(tiny)
    assert tiny.audit().ok
    paths = watched_files(tiny)
    assert len(paths) > 40
    rng = random.Random(f"{SEED}/{shard}")
    for _ in range(FLIPS_PER_SHARD):
        path = rng.choice(paths)
        genuine = path.read_bytes()
        position, bit = rng.randrange(len(genuine)), rng.randrange(8)
        changed = bytearray(genuine)
        changed[position] ^= 1 << bit
        path.write_bytes(bytes(changed))
        audited = quick_audit(tiny)
        where = f"{path.relative_to(tiny.root)}, byte {position}, bit {bit}"
        assert not audited.ok, f"not found: {where}"
        named = str(path.relative_to(tiny.root))
        failures = [failure for _, failure in audited.failures()]
        assert any(named in failure for failure in failures), f"not named: {where}: {failures}"
        path.write_bytes(genuine)
    assert tiny.audit().ok


def test_every_byte_of_a_signature_and_of_a_head_counts(tiny: StudySimulator) -> None:
    """Small files whole, byte by byte where one chance would be thin: base64 has slack bits."""
    document = tiny.run_folder.folder / "authorizations/P1-0001/document.json.sig"
    for path, step in ((tiny.run_folder.head_path, 1), (document, 3)):
        genuine = path.read_bytes()
        for position in range(0, len(genuine), step):
            changed = bytearray(genuine)
            changed[position] ^= 1 << (position % 8)
            path.write_bytes(bytes(changed))
            failures = [failure for _, failure in quick_audit(tiny).failures()]
            assert any(path.name in failure for failure in failures), position
        path.write_bytes(genuine)
    assert tiny.audit().ok
