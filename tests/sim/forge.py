"""What an attacker can do who may write every file of a study but holds no other person's key.

They rebuild the ledger's chain after a change, move its head, carry a change on to everything that
names it, and sign with keys of their own. Tests use this to show what the rules catch beyond a
broken chain.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from eps_locked.canonical import digest_bytes, encode
from eps_locked.domain.ledger import LEDGER_SCHEMA, Artifact, Entry
from eps_locked.domain.steps import FILE_REF, STEP_REF, results_digest
from eps_locked.lock.envelope import seal_document
from eps_locked.lock.ledger import HEAD_SCHEMA, Root, genesis_digest, write_line
from sim.simulator import StudySimulator, make_key

Payload = dict[str, Any]
Files = dict[str, bytes]


def flip(path: Path, position: int = -2, bit: int = 0) -> None:
    """Flip one bit of one byte; the file keeps its length."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(bytes(data))


def lines_of(study: StudySimulator) -> list[bytes]:
    """The ledger's lines, without their newlines."""
    return study.run_folder.ledger_path.read_bytes().splitlines()


def write_lines(study: StudySimulator, lines: list[bytes]) -> None:
    """Put these lines in the ledger's place; the head file stays as it is."""
    study.run_folder.ledger_path.write_bytes(b"".join(line + b"\n" for line in lines))


def payloads_of(study: StudySimulator) -> list[Payload]:
    return [json.loads(line)["payload"] for line in lines_of(study)]


def steps_in(payloads: list[Payload]) -> list[Payload]:
    return [payload for payload in payloads if payload["kind"] == "step"]


def find(payloads: list[Payload], kind: str, **fields: Any) -> Payload:
    """The first entry of a kind with these fields."""
    return next(
        payload
        for payload in payloads
        if payload["kind"] == kind
        and all(payload.get(name) == value for name, value in fields.items())
    )


def step(payloads: list[Payload], identifier: str) -> Payload:
    return find(payloads, "step", step=identifier)


def write_head(study: StudySimulator, seq: int, digest: str) -> None:
    data, _ = seal_document({"schema": HEAD_SCHEMA, "seq": seq, "digest": digest})
    study.run_folder.head_path.write_bytes(data)


def rebuild(study: StudySimulator, payloads: list[Payload], *, root: Root = "runs") -> None:
    """Write these entries as a ledger with a whole chain, numbers and all, and move the head."""
    prev = genesis_digest(study.load().digest, root)
    lines = []
    for seq, payload in enumerate(payloads):
        body = {
            key: value
            for key, value in payload.items()
            if key not in ("schema", "seq", "prev", "kind", "at")
        }
        assert payload["schema"] == LEDGER_SCHEMA
        entry = Entry(seq=seq, prev=prev, kind=payload["kind"], at=payload["at"], body=body)
        line, prev = write_line(entry)
        lines.append(line)
    write_lines(study, lines)
    write_head(study, len(lines) - 1, prev)


def carry_on(study: StudySimulator, payloads: list[Payload]) -> None:
    """Make every input digest and every close entry agree with the outputs as they now stand."""
    frozen = study.load()
    steps = frozen.steps()
    outputs: dict[str, dict[str, str]] = {}
    for payload in steps_in(payloads):
        promised = steps.get(payload["step"])
        if promised is None:
            continue
        for name, reference in promised.inputs.items():
            if reference.startswith(FILE_REF):
                digest = frozen.manifest.files[reference[len(FILE_REF) :]].digest
            else:
                identifier, _, output = reference[len(STEP_REF) :].partition("#")
                digest = outputs[identifier][output]
            payload["inputs"][name] = digest
        outputs[payload["step"]] = {k: v["digest"] for k, v in payload["outputs"].items()}
    for payload in payloads:
        if payload["kind"] != "close":
            continue
        phase = payload["phase"]
        by_id = {s["step"]: s for s in steps_in(payloads)}
        rows = [
            (name, by_id[name]["status"], _identities(by_id[name]))
            for name, one in steps.items()
            if one.phase == phase and name in by_id
        ]
        payload["results"] = results_digest(phase, rows)
        payload["compute_ms"] = sum(
            p["compute_ms"]
            for p in payloads
            if p["kind"] in ("step", "aborted") and p["phase"] == phase
        )


def _identities(entry: Payload) -> dict[str, str]:
    """What stands for the outputs in a results digest: of sealed ones what they commit to."""
    return {name: Artifact.from_dict(one, name).identity for name, one in entry["outputs"].items()}


def put_output(
    study: StudySimulator,
    payloads: list[Payload],
    identifier: str,
    output: str,
    contents: Mapping[str, bytes],
) -> None:
    """Replace an output: the new artifact in the store, its name in the entry, the old one gone."""
    entry = step(payloads, identifier)
    old = entry["outputs"][output]["digest"]
    artifact = study.run_folder.store(contents)
    entry["outputs"][output] = artifact.to_dict()
    still_named = {
        one["digest"] for payload in steps_in(payloads) for one in payload["outputs"].values()
    }
    if old not in still_named:
        shutil.rmtree(study.run_folder.artifact_folder(old))


def output_files(
    study: StudySimulator, payloads: list[Payload], identifier: str, output: str
) -> dict[str, bytes]:
    artifact = step(payloads, identifier)["outputs"][output]
    folder = study.run_folder.artifact_folder(artifact["digest"])
    return {name: (folder / name).read_bytes() for name in artifact["files"]}


def edit_json(data: bytes, change: Callable[[Any], object]) -> bytes:
    value = json.loads(data)
    change(value)
    return encode(value)


def edit_files(
    study: StudySimulator, name: str, output: str, change: Callable[[Files], object]
) -> None:
    """Change an output's files and make everything else in the ledger agree."""
    payloads = payloads_of(study)
    files = output_files(study, payloads, name, output)
    before = dict(files)
    change(files)
    assert files != before, "the edit changed nothing"
    put_output(study, payloads, name, output, files)
    carry_on(study, payloads)
    rebuild(study, payloads)


def edit_output(
    study: StudySimulator, name: str, output: str, file: str, change: Callable[[Any], object]
) -> None:
    """The same for one JSON file of it."""
    edit_files(
        study, name, output, lambda files: files.update({file: edit_json(files[file], change)})
    )


def edit_entry(study: StudySimulator, name: str, change: Callable[[Payload], object]) -> None:
    """Change a step's entry and make everything else in the ledger agree."""
    payloads = payloads_of(study)
    change(step(payloads, name))
    carry_on(study, payloads)
    rebuild(study, payloads)


def reseal(one: StudySimulator, /, **changes: Any) -> str:
    """Change fields of the manifest and give it its right digest again; returns that."""
    path = one.manifest_folder / "manifest.json"
    payload = {**json.loads(path.read_bytes())["payload"], **changes}
    data, digest = seal_document(payload)
    path.write_bytes(data)
    return digest


def replace_frozen(study: StudySimulator, name: str, data: bytes | None) -> None:
    """Change, add or (None) remove a frozen file, and let a resealed manifest list it so."""
    path = study.manifest_folder / name
    listed = json.loads((study.manifest_folder / "manifest.json").read_bytes())["payload"]["files"]
    if data is None:
        path.unlink()
        del listed[name]
    else:
        path.write_bytes(data)
        listed[name] = {"digest": digest_bytes(data), "size": len(data)}
    reseal(study, files=listed)


def resign(
    folder: Path,
    payload: Payload,
    *,
    key: Path,
    namespace: str = "eps-locked-authorization",
) -> None:
    """Seal a payload as ``folder/document.json`` and sign it with any key, in any namespace."""
    folder.mkdir(parents=True, exist_ok=True)
    document = folder / "document.json"
    document.write_bytes(seal_document(payload)[0])
    signature = folder / "document.json.sig"
    signature.unlink(missing_ok=True)
    subprocess.run(
        ["ssh-keygen", "-Y", "sign", "-f", str(key), "-n", namespace, str(document)],
        check=True,
        capture_output=True,
    )


def document_payload(folder: Path) -> Payload:
    payload: Payload = json.loads((folder / "document.json").read_bytes())["payload"]
    return payload


def strangers_key(study: StudySimulator) -> Path:
    """A key that no allowed-signers file names."""
    path = study.key("stranger@example")
    make_key(path, "stranger@example")
    return path
