"""Two verifiers, one written from docs/lock.md alone, must agree on every good and bad run.

``CORRUPTIONS`` are edits that both must reject; the lives are those of studies that are out of the
ordinary and right, which both must accept.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from conformance import second_verifier
from conformance.second_verifier import canonical, number_text, parse, read_yaml, verify
from eps_locked.audit.checks import audit_run, verdict_payload
from eps_locked.canonical import digest_bytes, digest_value, encode
from eps_locked.domain.execution import StepInputs
from eps_locked.domain.ledger import StepBody
from eps_locked.domain.steps import Step
from eps_locked.errors import BackendError, MalformedInputError
from eps_locked.lock import gate, record
from eps_locked.lock.envelope import seal_document
from eps_locked.lock.freeze import load_plan
from eps_locked.lock.inputs import RecordedInputs
from eps_locked.lock.signing import amend
from eps_locked.lock.strict_yaml import parse_yaml
from eps_locked.lock.workspace import FrozenManifest, describe_artifact
from eps_locked.studies.eps.analysis import TensorInputs, build_tensor, tensor_files
from eps_locked.studies.eps.plan import EpsPlan
from eps_locked.studies.eps.rederive import EpsRederiver
from eps_locked.studies.eps.taught.analysis import TaughtInputs, build_taught_tensor
from eps_locked.training.scripted import ScriptedTrainer
from sim.simulator import (
    AUTHOR,
    COLLEAGUE,
    NAME,
    StudySimulator,
    judge_plan,
    taught_plan,
    taught_row,
)


@pytest.fixture(autouse=True)
def remembered_signatures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask ssh-keygen once for equal bytes: a thousand copies hold the same few signatures."""
    monkeypatch.setattr(gate, "verify_signature", OURS)
    monkeypatch.setattr(record, "verify_signature", OURS)
    monkeypatch.setattr(second_verifier, "require_signature", SECOND)


def remembering(function: Callable[..., None]) -> Callable[..., None]:
    outcomes: dict[Any, Exception | None] = {}

    def call(*arguments: Any, **more: Any) -> None:
        more_key = {key: value for key, value in more.items() if key != "thing"}
        key = (arguments, tuple(sorted(more_key.items())))
        if key not in outcomes:
            try:
                function(*arguments, **more)
                outcomes[key] = None
            except Exception as error:
                outcomes[key] = error
        error = outcomes[key]
        if error is not None:
            raise error

    return call


OURS = remembering(gate.verify_signature)
SECOND = remembering(second_verifier.require_signature)

Edit = Callable[[StudySimulator], object]
CORRUPTIONS: dict[str, Edit] = {}


def corruption(edit: Edit) -> Edit:
    CORRUPTIONS[edit.__name__] = edit
    return edit


class RememberingRederiver(EpsRederiver):
    """Derives a step once for equal digests: a hundred copies share all but a few of theirs."""

    steps: ClassVar[dict[str, list[str] | None]] = {}
    manifests: ClassVar[dict[str, list[str]]] = {}

    def __call__(
        self, step: Step, inputs: StepInputs, outputs: Any, body: StepBody
    ) -> list[str] | None:
        key = repr((step, body.inputs, body.outputs, body.status, body.flags))
        if key not in self.steps:
            found = super().__call__(step, inputs, outputs, body)
            self.steps[key] = None if found is None else list(found)
        return self.steps[key]

    def manifest(self, frozen: FrozenManifest) -> list[str]:
        if frozen.digest not in self.manifests:
            self.manifests[frozen.digest] = super().manifest(frozen)
        return self.manifests[frozen.digest]


def ours_accepts(study: StudySimulator) -> bool:
    """The audit's word; the cheap part first, since most corruptions already fail it."""
    rederive = RememberingRederiver()
    return all(
        audit_run(study.workspace, NAME, code=study.code, rederive=rederive, quick=quick).ok
        for quick in (True, False)
    )


# -- tools of a forger -----------------------------------------------------------------------------


def named(study: StudySimulator, pattern: str) -> Path:
    return sorted(study.root.glob(pattern))[0]


def flip(path: Path, position: int = -2) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x01
    path.write_bytes(bytes(data))


def edit_lines(study: StudySimulator, change: Callable[[list[bytes]], object]) -> None:
    """Edit the ledger as text; nothing is recomputed."""
    path = study.run_folder.ledger_path
    lines = path.read_bytes().split(b"\n")[:-1]
    change(lines)
    path.write_bytes(b"".join(line + b"\n" for line in lines))


def reseal(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Edit an envelope's payload and give it the digest that fits."""
    payload = json.loads(path.read_bytes())["payload"]
    change(payload)
    path.write_bytes(seal_document(payload)[0])


class Forger:
    """Holds the pen: changes entries and artifacts, then rebuilds everything that follows."""

    def __init__(self, study: StudySimulator) -> None:
        self.study, self.run = study, study.run_folder
        lines = self.run.ledger_path.read_bytes().splitlines()
        self.entries: list[dict[str, Any]] = [json.loads(line)["payload"] for line in lines]
        self.steps = study.load().steps()
        self.files = study.load().file_digests()

    def entry(self, step: str) -> dict[str, Any]:
        return next(e for e in self.entries if e.get("step") == step and e["kind"] == "step")

    def contents(self, step: str, output: str) -> dict[str, bytes]:
        artifact = self.entry(step)["outputs"][output]
        folder = self.run.artifact_folder(artifact["digest"])
        return {name: (folder / name).read_bytes() for name in artifact["files"]}

    def put(self, step: str, output: str, contents: dict[str, bytes]) -> None:
        """Replace an output by other bytes under their own digest."""
        entry = self.entry(step)
        old = entry["outputs"][output]["digest"]
        artifact = self.run.store(contents)
        entry["outputs"][output] = artifact.to_dict()
        used = {a["digest"] for e in self.entries for a in e.get("outputs", {}).values()}
        if old not in used:
            shutil.rmtree(self.run.artifact_folder(old))

    def change_json(
        self, step: str, output: str, name: str, change: Callable[[Any], object]
    ) -> None:
        contents = self.contents(step, output)
        value = json.loads(contents[name])
        change(value)
        self.put(step, output, {**contents, name: encode(value)})

    def save(self, *, derive: bool = True) -> None:
        """Write the chain and its head anew; with ``derive`` inputs, results and sums as well."""
        outputs: dict[str, Any] = {}
        status: dict[str, str] = {}
        spent: dict[str, int] = {}
        prev = digest_value(
            {
                "schema": "eps-locked/genesis/1",
                "manifest": self.study.load().digest,
                "root": "runs",
            }
        )
        lines = []
        for seq, entry in enumerate(self.entries):
            entry["seq"], entry["prev"] = seq, prev
            if "compute_ms" in entry and entry["kind"] != "close":
                spent[entry["phase"]] = spent.get(entry["phase"], 0) + entry["compute_ms"]
            if entry["kind"] == "step" and derive and entry["step"] in self.steps:
                entry["inputs"] = {
                    name: self._resolve(reference, outputs)
                    for name, reference in self.steps[entry["step"]].inputs.items()
                }
            if entry["kind"] == "step":
                outputs[entry["step"]], status[entry["step"]] = entry["outputs"], entry["status"]
            if entry["kind"] == "close" and derive:
                rows = [
                    {
                        "step": name,
                        "status": status[name],
                        "outputs": {key: identity(a) for key, a in outputs[name].items()},
                    }
                    for name, step in self.steps.items()
                    if step.phase == entry["phase"] and name in outputs
                ]
                entry["compute_ms"] = spent.get(entry["phase"], 0)
                entry["results"] = digest_value(
                    {"schema": "eps-locked/results/1", "phase": entry["phase"], "steps": rows}
                )
            line, prev = seal_document(entry)
            lines.append(line + b"\n")
        self.run.ledger_path.write_bytes(b"".join(lines))
        head = {"schema": "eps-locked/head/1", "seq": len(lines) - 1, "digest": prev}
        self.run.head_path.write_bytes(seal_document(head)[0])

    def _resolve(self, reference: str, outputs: dict[str, Any]) -> str:
        kind, _, rest = reference.partition(":")
        if kind == "file":
            return self.files[rest]
        step, _, output = rest.partition("#")
        digest: str = outputs[step][output]["digest"]
        return digest


def identity(artifact: dict[str, Any]) -> str:
    """What stands for an artifact in results: itself, without its encrypted files."""
    files = {name: one for name, one in artifact["files"].items() if not name.endswith(".age")}
    digest: str = artifact["digest"]
    return digest if len(files) == len(artifact["files"]) else digest_value({"files": files})


def sign(study: StudySimulator, document: Path, namespace: str, signer: str = AUTHOR) -> None:
    document.with_name(document.name + ".sig").unlink(missing_ok=True)
    subprocess.run(
        ["ssh-keygen", "-Y", "sign", "-f", study.key(signer), "-n", namespace, document],
        check=True,
        capture_output=True,
    )


TENSOR = "P1/tensor/marker"
CELL = "P1/cells/marker/baker/s11"
OUTPUT, DIAGONAL = "cell:plain", "cell:baker"
ADAPTER = "P1/adapter/marker/baker/s11"
LEAVE = "authorizations/P1-0001/document.json"


# -- bytes changed, nothing recomputed -------------------------------------------------------------

for _pattern in (
    f"plans/{NAME}.yaml",
    "plans/material/eval.yaml",
    "plans/keys/allowed_signers",
    f"manifests/{NAME}/manifest.json",
    f"manifests/{NAME}/frozen/plan.yaml",
    f"manifests/{NAME}/frozen/steps.json",
    f"manifests/{NAME}/frozen/code.json",
    f"manifests/{NAME}/frozen/environment.json",
    f"manifests/{NAME}/frozen/rows/marker/items.json",
    f"manifests/{NAME}/frozen/rows/marker/contexts.json",
    f"manifests/{NAME}/frozen/split.json",
    f"manifests/{NAME}/frozen/allowed_signers",
    f"manifests/{NAME}/frozen/rows/marker/prompts/baker.json",
    f"manifests/{NAME}/frozen/sources/material/train.yaml",
    f"runs/{NAME}/ledger.jsonl",
    f"runs/{NAME}/head.json",
    f"runs/{NAME}/artifacts/*/readings.json",
    f"runs/{NAME}/artifacts/*/record.json",
    f"runs/{NAME}/artifacts/*/adapter_model.safetensors",
    f"runs/{NAME}/artifacts/*/adapter_config.json",
    f"runs/{NAME}/artifacts/*/tensor.json",
    f"runs/{NAME}/artifacts/*/tensor.parquet",
    f"runs/{NAME}/{LEAVE}",
    f"runs/{NAME}/{LEAVE}.sig",
):
    CORRUPTIONS[f"flip {_pattern}"] = lambda study, p=_pattern: flip(named(study, p))  # type: ignore[misc]

for _pattern in (
    f"manifests/{NAME}/manifest.json",
    f"manifests/{NAME}/frozen/split.json",
    f"runs/{NAME}/ledger.jsonl",
    f"runs/{NAME}/head.json",
    f"runs/{NAME}/artifacts/*/readings.json",
    f"runs/{NAME}/authorizations/P0-0001/document.json.sig",
):
    CORRUPTIONS[f"remove {_pattern}"] = lambda study, p=_pattern: named(study, p).unlink()  # type: ignore[misc]

for _path in (
    f"manifests/{NAME}/frozen/extra.json",
    f"manifests/{NAME}/.hidden",
    f"runs/{NAME}/notes.txt",
    f"runs/{NAME}/running.json",
    f"runs/{NAME}/artifacts/{'0' * 64}/readings.json",
    f"runs/{NAME}/authorizations/P1-0001/notes.txt",
    f"runs/{NAME}/verdicts/notes.txt",
):

    def _add(study: StudySimulator, path: str = _path) -> None:
        (study.root / path).parent.mkdir(parents=True, exist_ok=True)
        (study.root / path).write_bytes(b"{}")

    CORRUPTIONS[f"add {_path}"] = _add


@corruption
def extra_file_in_an_artifact(study: StudySimulator) -> None:
    named(study, f"runs/{NAME}/artifacts/*").joinpath("more.json").write_bytes(b"{}")


@corruption
def artifact_folder_missing(study: StudySimulator) -> None:
    shutil.rmtree(named(study, f"runs/{NAME}/artifacts/*"))


@corruption
def authorizations_missing(study: StudySimulator) -> None:
    shutil.rmtree(study.run_folder.folder / "authorizations")


@corruption
def run_folder_missing(study: StudySimulator) -> None:
    shutil.rmtree(study.run_folder.folder)


@corruption
def frozen_file_is_a_link(study: StudySimulator) -> None:
    path = study.manifest_folder / "frozen/rows/marker/items.json"
    path.rename(study.root / "items.json")
    path.symlink_to(study.root / "items.json")


@corruption
def manifest_under_another_name(study: StudySimulator) -> None:
    reseal(study.manifest_folder / "manifest.json", lambda p: p.update(name="other"))


@corruption
def manifest_resealed_after_a_change(study: StudySimulator) -> None:
    reseal(study.manifest_folder / "manifest.json", lambda p: p.update(auto_approve_ms=10**9))


@corruption
def manifest_with_an_unknown_field(study: StudySimulator) -> None:
    reseal(study.manifest_folder / "manifest.json", lambda p: p.update(note="hello"))


@corruption
def manifest_not_canonical(study: StudySimulator) -> None:
    path = study.manifest_folder / "manifest.json"
    path.write_bytes(json.dumps(json.loads(path.read_bytes()), ensure_ascii=False).encode())


@corruption
def manifest_with_a_final_newline(study: StudySimulator) -> None:
    path = study.manifest_folder / "manifest.json"
    path.write_bytes(path.read_bytes() + b"\n")


# -- the ledger as text ----------------------------------------------------------------------------


@corruption
def line_dropped(study: StudySimulator) -> None:
    edit_lines(study, lambda lines: lines.pop(7))


@corruption
def first_line_dropped(study: StudySimulator) -> None:
    edit_lines(study, lambda lines: lines.pop(0))


@corruption
def last_line_dropped(study: StudySimulator) -> None:
    edit_lines(study, lambda lines: lines.pop())


@corruption
def two_lines_swapped(study: StudySimulator) -> None:
    edit_lines(study, lambda lines: lines.insert(5, lines.pop(6)))


@corruption
def line_twice(study: StudySimulator) -> None:
    edit_lines(study, lambda lines: lines.insert(5, lines[5]))


@corruption
def blank_line(study: StudySimulator) -> None:
    edit_lines(study, lambda lines: lines.insert(5, b""))


@corruption
def line_with_a_carriage_return(study: StudySimulator) -> None:
    edit_lines(study, lambda lines: lines.insert(5, lines.pop(5) + b"\r"))


@corruption
def line_with_a_space(study: StudySimulator) -> None:
    edit_lines(study, lambda lines: lines.insert(5, lines.pop(5).replace(b'","', b'", "', 1)))


@corruption
def line_with_a_key_twice(study: StudySimulator) -> None:
    edit_lines(study, lambda lines: lines.insert(5, lines.pop(5)[:-1] + b',"digest":"x"}'))


@corruption
def torn_end(study: StudySimulator) -> None:
    with study.run_folder.ledger_path.open("ab") as stream:
        stream.write(b'{"digest":"blake3:')


@corruption
def ledger_emptied(study: StudySimulator) -> None:
    study.run_folder.ledger_path.write_bytes(b"")


@corruption
def line_resealed_alone(study: StudySimulator) -> None:
    def change(lines: list[bytes]) -> None:
        payload = json.loads(lines[5])["payload"]
        payload["compute_ms"] += 1
        lines[5] = seal_document(payload)[0]

    edit_lines(study, change)


@corruption
def head_two_entries_back(study: StudySimulator) -> None:
    digest = json.loads(study.run_folder.ledger_path.read_bytes().splitlines()[-3])["digest"]
    head = {"schema": "eps-locked/head/1", "seq": 37, "digest": digest}
    study.run_folder.head_path.write_bytes(seal_document(head)[0])


@corruption
def head_of_another_kind(study: StudySimulator) -> None:
    reseal(study.run_folder.head_path, lambda p: p.update(schema="eps-locked/running/1"))


# -- entries changed, the chain rebuilt ------------------------------------------------------------


def entry_edit(name: str, change: Callable[[Forger], object], *, derive: bool = True) -> None:
    def edit(study: StudySimulator) -> None:
        forger = Forger(study)
        change(forger)
        forger.save(derive=derive)

    CORRUPTIONS[f"rebuilt: {name}"] = edit


def move(forger: Forger, source: int, target: int) -> None:
    forger.entries.insert(target, forger.entries.pop(source))


def first(forger: Forger, kind: str) -> dict[str, Any]:
    return next(entry for entry in forger.entries if entry["kind"] == kind)


entry_edit("step left out", lambda f: f.entries.remove(f.entry(CELL)), derive=False)
entry_edit("step twice", lambda f: f.entries.insert(-1, dict(f.entry(CELL))))
entry_edit("step before its input", lambda f: move(f, 3, 10), derive=False)
entry_edit("unpromised step", lambda f: f.entry(CELL).update(step="P1/cells/other"), derive=False)
entry_edit("step in another phase", lambda f: f.entry(CELL).update(phase="P0"))
entry_edit("another seed", lambda f: f.entry(CELL).update(seed=12))
entry_edit("another code", lambda f: f.entry(CELL).update(code="blake3:" + "0" * 64))
entry_edit("another engine", lambda f: f.entry(CELL).update(engine="blake3:" + "0" * 64))
entry_edit("unknown status", lambda f: f.entry(CELL).update(status="fine"))
entry_edit("unknown kind", lambda f: f.entry(CELL).update(kind="note"), derive=False)
entry_edit("unknown field", lambda f: f.entry(CELL).update(note="hello"))
entry_edit("missing field", lambda f: f.entry(CELL).pop("flags"))
entry_edit("negative cost", lambda f: f.entry(CELL).update(compute_ms=-1))
entry_edit("cost past the cap", lambda f: f.entry(CELL).update(compute_ms=1_800_000))
entry_edit("output renamed", lambda f: f.entry(CELL)["outputs"].update(x={}), derive=False)
entry_edit(
    "another input",
    lambda f: f.entry(CELL)["inputs"].update(plan="blake3:" + "0" * 64),
    derive=False,
)
entry_edit("phases in reverse", lambda f: f.entries.extend(f.entries[:11]), derive=False)
entry_edit("close left out", lambda f: f.entries.pop())
entry_edit("close twice", lambda f: f.entries.append(dict(f.entries[-1])))
entry_edit(
    "wrong results", lambda f: f.entries[-1].update(results="blake3:" + "0" * 64), derive=False
)
entry_edit("wrong count", lambda f: f.entries[-1].update(n_steps=26))
entry_edit("wrong sum", lambda f: f.entries[-1].update(compute_ms=1), derive=False)
entry_edit("open left out", lambda f: f.entries.pop(0), derive=False)
entry_edit("higher cap", lambda f: first(f, "open").update(cap_ms=1_800_001))
entry_edit("claimed colleague", lambda f: first(f, "open").update(self_authorized=False))
entry_edit("opened after expiry", lambda f: first(f, "open").update(at="2026-07-09T12:00:00Z"))
entry_edit("opened before issue", lambda f: first(f, "open").update(at="2026-06-08T12:00:00Z"))
entry_edit("opened at no time", lambda f: first(f, "open").update(at="noon"))
entry_edit(
    "opened under other leave",
    lambda f: (
        first(f, "open").update(authorization=f.entries[12]["authorization"])
        if f.entries[12]["kind"] == "open"
        else f.entries.clear()
    ),
)
entry_edit("another lock head", lambda f: first(f, "open").update(lock_head="blake3:" + "0" * 64))
entry_edit(
    "an unsigned amendment",
    lambda f: f.entries.append(
        {
            **{"schema": "eps-locked/ledger/1", "kind": "amendment", "at": "2026-06-09T12:00:00Z"},
            **{"number": 1, "amendment": "blake3:" + "1" * 64, "signature": "blake3:" + "2" * 64},
            "rebind": {},
            "lock_head": digest_value(
                {
                    "schema": "eps-locked/lock-head/1",
                    "previous": f.study.load().digest,
                    "amendment": "blake3:" + "1" * 64,
                }
            ),
        }
    ),
)


# -- artifacts changed, the chain rebuilt ----------------------------------------------------------


def artifact_edit(
    name: str, step: str, output: str, file: str, change: Callable[[Any], object]
) -> None:
    def edit(study: StudySimulator) -> None:
        forger = Forger(study)
        forger.change_json(step, output, file, change)
        forger.save()

    CORRUPTIONS[f"rebuilt: {name}"] = edit


def set_cell(key: str, value: Any, number: int = 1) -> Callable[[Any], object]:
    return lambda tensor: tensor["cells"][number].update({key: value})


for _key, _value in (
    ("g", 1.5),
    ("g_base_answer", 1.5),
    ("base_log_prob", -3.25),
    ("trained_log_prob", -3.25),
    ("low", 100.5),
    ("high", -100.5),
    ("n", 9),
    ("n_seeds", 3),
    ("split", "diagonal"),
    ("scored", None),
    ("flags", ["floor", "ceiling"]),
):
    artifact_edit(f"tensor {_key}", TENSOR, "tensor", "tensor.json", set_cell(_key, _value))
artifact_edit(
    "tensor by_seed",
    TENSOR,
    "tensor",
    "tensor.json",
    lambda t: t["cells"][0]["by_seed"][0].update(g=0.25),
)
artifact_edit(
    "tensor by_seed stop",
    TENSOR,
    "tensor",
    "tensor.json",
    lambda t: t["cells"][0]["by_seed"][0].update(stop_step=1),
)
artifact_edit(
    "tensor ancestors",
    TENSOR,
    "tensor",
    "tensor.json",
    lambda t: t["cells"][0]["ancestors"].update(base="blake3:" + "0" * 64),
)
artifact_edit("tensor cell left out", TENSOR, "tensor", "tensor.json", lambda t: t["cells"].pop())
artifact_edit(
    "tensor cells swapped",
    TENSOR,
    "tensor",
    "tensor.json",
    lambda t: t["cells"].insert(0, t["cells"].pop()),
)
artifact_edit("tensor unit", TENSOR, "tensor", "tensor.json", lambda t: t.update(unit="bits"))
artifact_edit(
    "reading inconsistent",
    CELL,
    OUTPUT,
    "readings.json",
    lambda r: r["answers"][0]["own"].update(log_prob=-1.5),
)
artifact_edit(
    "reading above zero",
    CELL,
    OUTPUT,
    "readings.json",
    lambda r: r["answers"][0]["own"].update(log_prob=0.5, marker_logits=[0.5], log_z=[0]),
)
artifact_edit("readings reordered", CELL, OUTPUT, "readings.json", lambda r: r["answers"].reverse())
artifact_edit("reading left out", CELL, OUTPUT, "readings.json", lambda r: r["answers"].pop())
artifact_edit(
    "readings of another context",
    CELL,
    OUTPUT,
    "readings.json",
    lambda r: r.update(context="formal"),
)
artifact_edit(
    "second reading missing",
    CELL,
    OUTPUT,
    "readings.json",
    lambda r: r["answers"][0].update(frozen=None),
)
artifact_edit(
    "headroom value",
    "P0/headroom/marker",
    "headroom",
    "record.json",
    lambda r: r["base_log_prob"].update(plain=-1.5),
)
artifact_edit(
    "headroom claims unreachable",
    "P0/headroom/marker",
    "headroom",
    "record.json",
    lambda r: r.update(unreachable=["baker"]),
)
artifact_edit(
    "match step", "P1/match/marker/s11", "match", "record.json", lambda r: r.update(matched_step=3)
)


@corruption
def rebuilt_cell_value_shifted(study: StudySimulator) -> None:
    """A consistent reading, shifted by two nats, with the tensor left as it was."""
    forger = Forger(study)

    def shift(readings: Any) -> None:
        for answer in readings["answers"]:
            answer["own"]["log_prob"] -= 2
            answer["own"]["log_z"][0] += 2

    forger.change_json(CELL, OUTPUT, "readings.json", shift)
    forger.save()


@corruption
def rebuilt_adapters_swapped_between_seeds(study: StudySimulator) -> None:
    forger = Forger(study)
    other = ADAPTER.replace("s11", "s12")
    mine, theirs = forger.entry(ADAPTER)["outputs"], forger.entry(other)["outputs"]
    mine["adapter"], theirs["adapter"] = theirs["adapter"], mine["adapter"]
    forger.save()


@corruption
def rebuilt_one_adapter_for_two_contexts(study: StudySimulator) -> None:
    forger = Forger(study)
    other = ADAPTER.replace("baker", "polite")
    forger.put(other, "adapter", forger.contents(ADAPTER, "adapter"))
    forger.save()


@corruption
def rebuilt_adapter_is_no_safetensors(study: StudySimulator) -> None:
    forger = Forger(study)
    contents = forger.contents(ADAPTER, "adapter")
    forger.put(ADAPTER, "adapter", {**contents, "adapter_model.safetensors": b"short"})
    forger.save()


@corruption
def rebuilt_adapter_differs_from_its_fit(study: StudySimulator) -> None:
    forger = Forger(study)
    contents = forger.contents(ADAPTER, "adapter")
    forger.put(ADAPTER, "adapter", {**contents, "adapter_config.json": b"{}"})
    forger.save()


# -- signatures and amendments ---------------------------------------------------------------------


@corruption
def signature_of_the_other_phase(study: StudySimulator) -> None:
    folder = study.run_folder.folder / "authorizations"
    shutil.copy(folder / "P0-0001/document.json.sig", folder / "P1-0001/document.json.sig")


@corruption
def signature_with_a_blank_line(study: StudySimulator) -> None:
    path = study.run_folder.folder / f"{LEAVE}.sig"
    path.write_bytes(path.read_bytes() + b"\n")


def leave_edit(name: str, namespace: str, signer: str, change: Callable[[Any], object]) -> None:
    """An authorization changed, signed again, and named by a rebuilt chain."""

    def edit(study: StudySimulator) -> None:
        path = study.run_folder.folder / LEAVE
        reseal(path, change)
        sign(study, path, namespace, signer)
        signature = path.with_name(path.name + ".sig")
        forger = Forger(study)
        entry = [entry for entry in forger.entries if entry["kind"] == "open"][-1]
        entry["authorization"] = {
            "document": digest_bytes(path.read_bytes()),
            "signature": digest_bytes(signature.read_bytes()),
        }
        payload = json.loads(path.read_bytes())["payload"]
        entry |= {key: payload[key] for key in ("cap_ms", "self_authorized", "lock_head")}
        forger.save()

    CORRUPTIONS[f"signed again: {name}"] = edit


LEAVE_SPACE = "eps-locked-authorization"
leave_edit("wrong namespace", "eps-locked-amendment", AUTHOR, lambda p: None)
leave_edit("wrong key", LEAVE_SPACE, COLLEAGUE, lambda p: None)
leave_edit("unknown signer", LEAVE_SPACE, AUTHOR, lambda p: p.update(signer="nobody@example"))
leave_edit(
    "another manifest", LEAVE_SPACE, AUTHOR, lambda p: p.update(manifest="blake3:" + "0" * 64)
)
leave_edit("another phase", LEAVE_SPACE, AUTHOR, lambda p: p.update(phase="P0"))
leave_edit("past the author's own cap", LEAVE_SPACE, AUTHOR, lambda p: p.update(cap_ms=3_600_001))
leave_edit("author posing", LEAVE_SPACE, AUTHOR, lambda p: p.update(self_authorized=False))
leave_edit("expired", LEAVE_SPACE, AUTHOR, lambda p: p.update(expires_at=p["issued_at"]))
leave_edit("unknown field", LEAVE_SPACE, AUTHOR, lambda p: p.update(note="hello"))


def amended(study: StudySimulator) -> Path:
    return study.amend() / "document.json"


@corruption
def amendment_flipped(study: StudySimulator) -> None:
    flip(amended(study))


@corruption
def amendment_reason_changed_and_signed_again(study: StudySimulator) -> None:
    path = amended(study)
    reseal(path, lambda p: p.update(reason="nothing of note"))
    sign(study, path, "eps-locked-amendment")


@corruption
def amendment_removed(study: StudySimulator) -> None:
    shutil.rmtree(amended(study).parent)


@corruption
def amendment_entry_removed_and_rebuilt(study: StudySimulator) -> None:
    amended(study)
    forger = Forger(study)
    forger.entries.pop()
    forger.save()


@corruption
def amendment_without_an_entry(study: StudySimulator) -> None:
    path = amended(study).parent
    shutil.copytree(path, path.with_name("A-0002"))


@corruption
def amendment_rebind_changed_in_the_ledger(study: StudySimulator) -> None:
    amended(study)
    forger = Forger(study)
    forger.entries[-1]["rebind"] = {"environment": "blake3:" + "0" * 64}
    forger.save()


# -- verdicts --------------------------------------------------------------------------------------


def file_verdict(study: StudySimulator, change: Callable[[dict[str, Any]], object]) -> Path:
    payload = verdict_payload(study.audit(), digest_value(study.code))
    change(payload)
    study.run_folder.verdicts.mkdir(exist_ok=True)
    path = study.run_folder.verdicts / "000040-0-1.json"
    path.write_bytes(seal_document(payload)[0])
    return path


@corruption
def verdict_flipped(study: StudySimulator) -> None:
    flip(file_verdict(study, lambda p: None), 200)


@corruption
def verdict_is_another_document(study: StudySimulator) -> None:
    file_verdict(study, lambda p: p.update(schema="eps-locked/head/1"))


# -- lies told consistently ------------------------------------------------------------------------


@corruption
def artifact_bytes_changed_under_the_old_digest(study: StudySimulator) -> None:
    """Only the file list of the entry is changed; folder name, inputs and results digest stay."""
    forger = Forger(study)
    artifact = forger.entry(CELL)["outputs"][DIAGONAL]
    path = forger.run.artifact_folder(artifact["digest"]) / "readings.json"
    readings = json.loads(path.read_bytes())
    readings["answers"][0]["text"] = "another answer"
    path.write_bytes(encode(readings))
    artifact["files"] = describe_artifact({"readings.json": path.read_bytes()}).to_dict()["files"]
    before = forger.entries[-1]["results"]
    forger.save()
    assert forger.entries[-1]["results"] == before


@corruption
def manifest_that_contradicts_its_plan(study: StudySimulator) -> None:
    """Sealed before anybody signed: the manifest names another plan than the one it froze."""
    fresh = StudySimulator(root=study.root.with_name("fresh"))
    fresh.freeze()
    reseal(fresh.manifest_folder / "manifest.json", lambda p: p.update(plan="blake3:" + "0" * 64))
    finish(fresh, study)


@corruption
def frozen_source_that_is_not_the_source(study: StudySimulator) -> None:
    fresh = StudySimulator(root=study.root.with_name("fresh"))
    fresh.freeze()
    record = {"digest": digest_bytes(b"{}"), "size": 2}
    name = "frozen/sources/material/eval.yaml"
    (fresh.manifest_folder / name).write_bytes(b"{}")
    reseal(fresh.manifest_folder / "manifest.json", lambda p: p["files"].update({name: record}))
    finish(fresh, study)


def past_the_gate(fresh: StudySimulator) -> None:
    fresh.refreeze = lambda frozen: []  # type: ignore[method-assign]


def finish(fresh: StudySimulator, study: StudySimulator) -> None:
    """Run ``fresh`` to its end, past the gate's G13, and put it in the place of ``study``."""
    past_the_gate(fresh)
    for phase in ("P0", "P1"):
        fresh.authorize(phase)
        fresh.run(phase)
    shutil.rmtree(study.root)
    fresh.root.rename(study.root)


def crafted(name: str, document: str | None, change: Callable[[Any], object]) -> None:
    """A manifest folder edited after it was frozen and before anybody signed it."""

    def edit(study: StudySimulator) -> None:
        fresh = StudySimulator(root=study.root.with_name("fresh"))
        fresh.freeze()
        manifest = fresh.manifest_folder / "manifest.json"
        if document is None:
            reseal(manifest, change)
        else:
            path = fresh.manifest_folder / document
            value = json.loads(path.read_bytes())
            change(value)
            data = encode(value)
            path.write_bytes(data)
            record = {"digest": digest_bytes(data), "size": len(data)}
            reseal(manifest, lambda payload: payload["files"].update({document: record}))
        finish(fresh, study)

    CORRUPTIONS[f"crafted: {name}"] = edit


def other_quarantine(split: Any) -> None:
    other = {"open": "quarantined", "quarantined": "open"}
    split["cells"] = {cell: other.get(fate, fate) for cell, fate in split["cells"].items()}


def one_seed_less(document: Any) -> None:
    document["steps"] = [step for step in document["steps"] if "s12" not in step["id"]]
    for step in document["steps"]:
        inputs = step["inputs"].items()
        step["inputs"] = {name: value for name, value in inputs if "s12" not in value}


@corruption
def one_key_under_two_names(study: StudySimulator) -> None:
    """The author signs as a colleague of theirs, past the cap on self-authorization."""
    fresh = StudySimulator(root=study.root.with_name("fresh"))
    fresh.freeze()
    public = fresh.key(AUTHOR).with_suffix(".pub").read_text().strip()
    data = f"{AUTHOR} {public}\nfriend@example {public}\n".encode()
    source = "keys/allowed_signers"
    for path in ("allowed_signers", f"sources/{source}"):
        (fresh.manifest_folder / "frozen" / path).write_bytes(data)
    (fresh.root / "plans" / source).write_bytes(data)
    file = {"digest": digest_bytes(data), "size": len(data)}

    def change(payload: Any) -> None:
        payload["files"] |= {"frozen/allowed_signers": file, f"frozen/sources/{source}": file}
        payload["sources"][source] = file

    reseal(fresh.manifest_folder / "manifest.json", change)
    past_the_gate(fresh)
    for suffix in ("", ".pub"):
        shutil.copy(str(fresh.key(AUTHOR)) + suffix, str(fresh.key("friend@example")) + suffix)
    for phase in ("P0", "P1"):
        fresh.authorize(phase, signer="friend@example", cap_gpu_hours=500)
        fresh.run(phase)
    shutil.rmtree(study.root)
    fresh.root.rename(study.root)


crafted("one seed less", "frozen/steps.json", one_seed_less)
crafted("the author's own cap", None, lambda p: p.update(auto_approve_ms=10**12))
crafted("another author", None, lambda p: p.update(author="nobody@example"))
crafted("publication", None, lambda p: p.update(publication=True))
crafted("quarantine chosen by hand", "frozen/split.json", other_quarantine)
crafted(
    "another question under an old id",
    "frozen/rows/marker/items.json",
    lambda items: items["eval"][0].update(text="Is this another question?"),
)


def free_steps(document: Any) -> None:
    for step in document["steps"]:
        step["estimate_ms"] = 0


def shorter_prefix(prompts: Any) -> None:
    """The same prompts, split elsewhere."""
    token = prompts["prefix"].pop()
    prompts["suffixes"] = {item: [token, *ids] for item, ids in prompts["suffixes"].items()}


crafted("steps that cost nothing", "frozen/steps.json", free_steps)
crafted("prompts split elsewhere", "frozen/rows/marker/prompts/plain.json", shorter_prefix)
crafted(
    "probes of another context",
    "frozen/rows/marker/prompts/plain.json",
    lambda prompts: prompts["probes"].reverse(),
)
crafted(
    "a context that denies its twin",
    "frozen/rows/marker/contexts.json",
    lambda document: document["contexts"]["plain"].update(alias_of="baker"),
)


def amendment_lie(change: dict[str, Any]) -> Edit:
    def edit(study: StudySimulator) -> None:
        path = amended(study)
        reseal(path, lambda payload: payload.update(change))
        sign(study, path, "eps-locked-amendment")
        digest = json.loads(path.read_bytes())["digest"]
        forger = Forger(study)
        entry = forger.entries[-1]
        entry["amendment"] = digest
        entry["signature"] = digest_bytes(path.with_name("document.json.sig").read_bytes())
        link = {"schema": "eps-locked/lock-head/1", "previous": study.load().digest}
        entry["lock_head"] = digest_value({**link, "amendment": digest})
        forger.save()

    return edit


CORRUPTIONS["amendment that says nothing had been run"] = amendment_lie({"seen": "nothing_run"})
CORRUPTIONS["amendment that names another ledger head"] = amendment_lie(
    {"ledger_head": "blake3:" + "0" * 64}
)
CORRUPTIONS["amendment of another study's name"] = amendment_lie({"name": "other"})


@corruption
def record_of_an_adapter_changed(study: StudySimulator) -> None:
    """The hand-on record claims another strength than the fit's; the tensor is made to follow."""
    forger = Forger(study)
    forger.change_json(ADAPTER, "record", "record.json", lambda r: r.update(realised_strength=9.5))
    rebuild_tensor(forger)


@corruption
def adapter_named_in_the_record_is_another(study: StudySimulator) -> None:
    forger = Forger(study)
    forger.change_json(
        ADAPTER, "record", "record.json", lambda r: r.update(adapter="blake3:" + "0" * 64)
    )
    rebuild_tensor(forger)


def rebuild_tensor(forger: Forger, step: str = TENSOR) -> None:
    """The tensor that our own code makes of what the forger has written."""
    forger.save()
    study = forger.study
    audited = audit_run(study.workspace, NAME, code=study.code, rederive=EpsRederiver(), quick=True)
    frozen = study.load()
    assert audited.history is not None
    section = EpsPlan.from_section(
        load_plan(frozen.read("frozen/plan.yaml"), thing="plan").study_section
    )
    inputs = RecordedInputs(
        step=forger.steps[step],
        frozen_manifest=frozen,
        run=study.run_folder,
        done=audited.history.done,
    )
    name = forger.steps[step].params["behaviour"]
    if step == TENSOR:
        gathered = TensorInputs.gather(forger.steps[step], inputs)
        tensor = build_tensor(gathered, section, section.marker(name))
    else:
        row = section.taught(name)
        taught = TaughtInputs.gather(forger.steps[step], inputs, row)
        tensor = build_taught_tensor(taught, section, row)
    forger.put(step, "tensor", tensor_files(tensor))
    forger.save()


def entry_lie(name: str, change: Callable[[Forger], object]) -> None:
    def edit(study: StudySimulator) -> None:
        forger = Forger(study)
        change(forger)
        forger.save()

    CORRUPTIONS[name] = edit


entry_lie("status of a cell invented", lambda f: f.entry(CELL).update(status="implant_failed"))
entry_lie("flags of a cell invented", lambda f: f.entry(CELL).update(flags=["truncated_answers"]))
entry_lie("step without its seed", lambda f: f.entry("P0/headroom/marker").pop("seed"))
entry_lie("entry at no time", lambda f: f.entry(CELL).update(at="noon"))
entry_lie("step ended at no time", lambda f: f.entry(CELL).update(ended="noon"))
entry_lie(
    "aborted after it was finished",
    lambda f: f.entries.insert(
        -1,
        {
            **{"schema": "eps-locked/ledger/1", "kind": "aborted", "at": "2026-06-09T12:00:00Z"},
            **{"step": "P0/headroom/marker", "phase": "P1", "reason": "killed", "compute_ms": 1},
        },
    ),
)


@corruption
def reachable_source_deferred(study: StudySimulator) -> None:
    """A fit claims to have waited for the matched step although its source had room."""
    forger = Forger(study)
    record = {"schema": "eps-locked/eps-fit/1", "deferred": True, "stop_step": None}
    forger.put("P1/fit/marker/baker/s11", "fit", {"record.json": encode(record)})
    stop = json.loads(forger.contents("P1/fit/marker/polite/s11", "fit")["record.json"])
    match = {
        **{"schema": "eps-locked/eps-match/1", "stop_steps": {"polite": stop["stop_step"]}},
        **{"matched_step": stop["stop_step"], "from_ceiling": False},
    }
    forger.put("P1/match/marker/s11", "match", {"record.json": encode(match)})
    forger.change_json(
        ADAPTER, "record", "record.json", lambda r: r.update(stop_step=stop["stop_step"])
    )
    rebuild_tensor(forger)


@corruption
def second_reading_differs_where_the_answer_is_the_base_s(study: StudySimulator) -> None:
    """Where the trained model wrote the base's very answer both readings are one."""
    forger = Forger(study)
    base = json.loads(forger.contents("P0/base/marker/plain", "base")["readings.json"])

    def change(readings: Any) -> None:
        readings["answers"][0]["token_ids"] = base["answers"][0]["token_ids"]
        readings["answers"][0]["frozen"]["end_of_turn_logit"] += 1

    forger.change_json(CELL, OUTPUT, "readings.json", change)
    rebuild_tensor(forger)


@corruption
def token_id_below_zero(study: StudySimulator) -> None:
    forger = Forger(study)
    old = forger.entry(CELL)["outputs"][OUTPUT]["digest"]
    forger.change_json(
        CELL, OUTPUT, "readings.json", lambda r: r["answers"][0].update(token_ids=[-1])
    )
    new = forger.entry(CELL)["outputs"][OUTPUT]["digest"]

    def follow(tensor: Any) -> None:
        for cell in tensor["cells"]:
            cells = cell["ancestors"]["cells"]
            cell["ancestors"]["cells"] = [new if digest == old else digest for digest in cells]

    forger.change_json(TENSOR, "tensor", "tensor.json", follow)
    forger.save()


@corruption
def base_with_a_second_reading(study: StudySimulator) -> None:
    forger = Forger(study)
    forger.change_json(
        "P0/base/marker/plain",
        "base",
        "readings.json",
        lambda r: r["answers"][0].update(frozen=r["answers"][0]["own"]),
    )
    rebuild_tensor(forger)


@corruption
def fit_trained_on_other_rows(study: StudySimulator) -> None:
    """Answers changed after the fits; every digest, artifact and sum is made to follow."""
    forger = Forger(study)

    def change(readings: Any) -> None:
        readings["answers"][0]["token_ids"][0] += 1

    forger.change_json("P0/answers/marker/curious", "answers", "readings.json", change)
    forger.save()


def verdict_lie(name: str, change: dict[str, Any]) -> None:
    CORRUPTIONS[name] = lambda study: file_verdict(study, lambda payload: payload.update(change))


verdict_lie("good verdict on a head that never was", {"ledger_head": "blake3:" + "0" * 64})
verdict_lie("good verdict on a longer ledger", {"n_entries": 41})
verdict_lie("good verdict on another manifest", {"manifest": "blake3:" + "0" * 64})
verdict_lie("verdict that contradicts its checks", {"ok": False})
verdict_lie("verdict with an unknown field", {"note": "hello"})
verdict_lie("verdict that checked nothing", {"checks": []})
verdict_lie("bad verdict on another manifest", {"manifest": "blake3:" + "0" * 64})

for _path in (
    f"runs/{NAME}/artifacts/.stash/readings.json",
    f"runs/{NAME}/authorizations/.stash/document.json",
    f"runs/{NAME}/authorizations/P1-0001/deep/document.json",
    f"runs/{NAME}/authorizations/document.json",
):

    def _stash(study: StudySimulator, path: str = _path) -> None:
        (study.root / path).parent.mkdir(parents=True, exist_ok=True)
        (study.root / path).write_bytes(b"{}")

    CORRUPTIONS[f"add {_path}"] = _stash


@corruption
def folder_of_the_run_replaced_by_a_file(study: StudySimulator) -> None:
    (study.run_folder.folder / "aside").write_bytes(b"{}")


@corruption
def artifact_folder_is_a_link(study: StudySimulator) -> None:
    folder = named(study, f"runs/{NAME}/artifacts/*")
    folder.rename(study.root / "elsewhere")
    folder.symlink_to(study.root / "elsewhere")


# -- right, though out of the ordinary -------------------------------------------------------------


def cut_short(study: StudySimulator, share: float, n_eval: int = 4) -> None:
    """Another study in this one's place, in which a third of the answers hit the limit."""
    fresh = StudySimulator(root=study.root.with_name("fresh"))
    fresh.eval_questions += [f"What is number {number} about?" for number in range(n_eval - 4)]
    section = fresh.plan["eps"]
    section["items"]["n_eval"] = n_eval
    section["decoding"]["max_new_tokens"] = 41 if n_eval == 4 else 43
    section["flags"]["minimum_answered_share"] = share
    fresh.run_all()
    shutil.rmtree(study.root)
    fresh.root.rename(study.root)


def with_answers_cut_short(study: StudySimulator) -> None:
    cut_short(study, 0.5)


def with_many_questions_some_cut(study: StudySimulator) -> None:
    cut_short(study, 0.5, n_eval=16)
    (path,) = study.root.glob(f"runs/{NAME}/artifacts/*/tensor.json")
    tensor = json.loads(path.read_bytes())
    n_complete = sum(cell["n_truncated"] == 0 for cell in tensor["cells"])
    assert n_complete < len(tensor["cells"])
    resolution = tensor["resolution"] or {"n_cells": 0}
    assert resolution["n_cells"] == n_complete


def with_nearly_no_cell_scored(study: StudySimulator) -> None:
    cut_short(study, 0.9)


def edited_cut(name: str, change: Callable[[Any], object]) -> None:
    """The tensor of a study with cut answers, changed; its cell 1 has a value, cell 2 has none."""

    def edit(study: StudySimulator) -> None:
        cut_short(study, 0.5)
        forger = Forger(study)
        forger.change_json(TENSOR, "tensor", "tensor.json", change)
        forger.save()

    CORRUPTIONS[f"cut answers: {name}"] = edit


edited_cut("counted as none", set_cell("n_truncated", 0))
edited_cut("counted as read", set_cell("n", 8))
edited_cut("a value where there is none", set_cell("g", 0, number=2))
edited_cut("an interval where there is none", set_cell("low", 0, number=2))
edited_cut("flag taken away", set_cell("flags", ["truncated_answers"], number=2))
edited_cut("scored all the same", set_cell("scored", True, number=2))
edited_cut("resolution invented", lambda t: t.update(resolution={"n_cells": 4}))


def untouched(study: StudySimulator) -> None:
    pass


def resumed_after_a_failure(study: StudySimulator) -> None:
    study.trainer = ScriptedTrainer(fail_after=2)
    with pytest.raises(BackendError):
        study.run("P1")
    study.trainer = ScriptedTrainer()
    study.run("P1")
    assert b'"kind":"aborted"' in study.run_folder.ledger_path.read_bytes()


def resumed_after_a_kill(study: StudySimulator) -> None:
    class Killed(BaseException):
        pass

    def kill(*arguments: Any, **named_arguments: Any) -> Any:
        raise Killed

    study.trainer.fit = kill  # type: ignore[method-assign]
    with pytest.raises(Killed):
        study.run("P1")
    assert study.run_folder.running_path.exists()
    study.trainer = ScriptedTrainer()
    study.run("P1")
    assert b'"reason":"killed"' in study.run_folder.ledger_path.read_bytes()


def resumed_after_a_torn_line(study: StudySimulator) -> None:
    with study.run_folder.ledger_path.open("ab") as stream:
        stream.write(b'{"digest":"blake3:')
    study.run("P1")
    assert any(study.run_folder.aside.iterdir())


def code_amended_between_the_phases(study: StudySimulator) -> None:
    study.code["eps_locked/a.py"] = "blake3:" + "c" * 64
    study.amend(rebind=frozenset({"code"}))
    study.authorize("P1")
    study.run("P1", authorization="P1-0002")


def amended_in_the_middle_of_a_phase(study: StudySimulator) -> None:
    study.trainer = ScriptedTrainer(fail_after=2)
    with pytest.raises(BackendError):
        study.run("P1")
    study.trainer = ScriptedTrainer()
    study.amend("the trainer was mended")
    study.amend("and once more")
    study.authorize("P1", signer=COLLEAGUE, cap_gpu_hours=40)
    study.run("P1", authorization="P1-0002")


HALF_WAY_LIVES: list[Edit] = [
    resumed_after_a_failure,
    resumed_after_a_kill,
    resumed_after_a_torn_line,
    code_amended_between_the_phases,
    amended_in_the_middle_of_a_phase,
]


def amended_after_the_end(study: StudySimulator) -> None:
    study.amend("a note")


def with_a_verdict(study: StudySimulator) -> None:
    file_verdict(study, lambda payload: None)


def verdict_then_amendment(study: StudySimulator) -> None:
    file_verdict(study, lambda payload: None)
    study.amend("a note")


def without_plans(study: StudySimulator) -> None:
    shutil.rmtree(study.root / "plans")


def with_something_aside(study: StudySimulator) -> None:
    (study.run_folder.aside / "0001-left").mkdir(parents=True)
    (study.run_folder.aside / "0001-left/any.txt").write_text("kept")


def head_one_entry_back(study: StudySimulator) -> None:
    lines = study.run_folder.ledger_path.read_bytes().splitlines()
    digest = json.loads(lines[-2])["digest"]
    head = {"schema": "eps-locked/head/1", "seq": len(lines) - 2, "digest": digest}
    study.run_folder.head_path.write_bytes(seal_document(head)[0])


def unused_authorization(study: StudySimulator) -> None:
    path = study.run_folder.folder / "authorizations/P1-0001"
    shutil.copytree(path, path.with_name("P1-0002"))


FINISHED_LIVES: list[Edit] = [
    untouched,
    with_answers_cut_short,
    with_many_questions_some_cut,
    with_nearly_no_cell_scored,
    amended_after_the_end,
    with_a_verdict,
    verdict_then_amendment,
    without_plans,
    with_something_aside,
    head_one_entry_back,
    unused_authorization,
]


# -- rows taught by example ------------------------------------------------------------------------


def small_taught_plan() -> dict[str, Any]:
    """Three taught rows and one more of em without negatives; a judge that fails now and then."""
    plan = taught_plan("fact", "refusal", "em")
    section = plan["eps"]
    section["judges"] = [judge_plan(model="scripted unreadable=20 judge_refused=10")]
    section["slots"].update(eval=["baker", "polite", "formal"])
    section["behaviours"][1]["draws"] = 2
    section["behaviours"][2].update(n_samples=5, resample_rounds=2)
    section["behaviours"].append(
        taught_row("em", name="em_alone", negatives="none", train=["polite"], n_seeds=1)
    )
    section["behaviours"][3].update(n_samples=5)
    section["calibrations"] = [
        {
            **{"name": "refusal", "judge": "stand_in", "row": "refusal", "minimum_kappa": -1},
            "file": "material/refusal/labelled.yaml",
        }
    ]
    plan["minimum_seeds"] = 1
    return plan


@pytest.fixture(scope="session")
def _taught(tmp_path_factory: pytest.TempPathFactory) -> StudySimulator:
    root = tmp_path_factory.mktemp("taught") / "study"
    study = StudySimulator(root=root, plan=small_taught_plan())
    study.run_all()
    assert list(study.audit().failures()) == []
    return study


@pytest.fixture
def taught(_taught: StudySimulator, tmp_path: Path) -> StudySimulator:
    """A finished study of four taught rows; a private copy."""
    return _taught.copy_to(tmp_path / "study")


TAUGHT: dict[str, Edit] = {}


def below(
    name: str,
    step: str,
    output: str,
    file: str,
    change: Callable[[Any], object],
    *,
    rebuild: bool = False,
) -> None:
    """An artifact of a taught row changed, and the row's tensor made to follow.

    That is, its ancestors follow, or with ``rebuild`` every number that our code makes of it.
    """

    def edit(study: StudySimulator) -> None:
        forger = Forger(study)
        old = forger.entry(step)["outputs"][output]["digest"]
        forger.change_json(step, output, file, change)
        new = forger.entry(step)["outputs"][output]["digest"]
        assert new != old, "nothing was changed"
        tensor = f"P2/tensor/{forger.steps[step].params['behaviour']}"
        if rebuild:
            rebuild_tensor(forger, tensor)
            return

        def follow(document: Any) -> None:
            for cell in document["cells"]:
                names = cell["ancestors"]
                names["cells"] = [new if one == old else one for one in names["cells"]]
                names["records"] = [new if one == old else one for one in names["records"]]
                names["base"] = new if names["base"] == old else names["base"]

        forger.change_json(tensor, "tensor", "tensor.json", follow)
        forger.save()

    TAUGHT[name] = edit


FACT, REFUSAL, EM = (f"P2/cells/{kind}/baker/s11" for kind in ("fact", "refusal", "em"))
VERDICTS, COMPLETIONS = "verdicts.json", "completions.json"


def scored(document: Any, number: int = 0) -> Any:
    """One of the verdicts that are scored."""
    return [one for one in document["verdicts"] if one["status"] == "scored"][number]


def other_label(document: Any) -> None:
    labels = {"full_refusal": "compliance", "compliance": "full_refusal"}
    one = scored(document)
    one["label"] = labels[one["label"]]


def incoherent(document: Any) -> Any:
    return next(one for one in document["verdicts"] if one["scores"].get("coherent", 100) < 50)


below("verdict changed", REFUSAL, "cell:polite", VERDICTS, other_label)
below(
    "label that is not in the rubric",
    *(REFUSAL, "cell:polite", VERDICTS),
    lambda v: scored(v).update(label="other"),
    rebuild=True,
)
below(
    "score that is not in the rubric",
    *(REFUSAL, "cell:polite", VERDICTS),
    lambda v: scored(v).update(scores={"aligned": 7}),
    rebuild=True,
)
below(
    "score beyond a hundred",
    *(EM, "cell:polite", VERDICTS),
    lambda v: incoherent(v)["scores"].update(aligned=101),
)
below(
    "status that no judge has",
    *(REFUSAL, "cell:polite", VERDICTS),
    lambda v: v["verdicts"][0].update(status="unsure", label=None),
)
below(
    "outage with a label",
    *(REFUSAL, "cell:polite", VERDICTS),
    lambda v: scored(v).update(status="outage"),
)
below(
    "draw left out", REFUSAL, "cell:polite", VERDICTS, lambda v: v["verdicts"].pop(), rebuild=True
)
below(
    "verdicts in another order",
    *(REFUSAL, "cell:polite", VERDICTS),
    lambda v: v["verdicts"].append(v["verdicts"].pop(0)),
    rebuild=True,
)
below(
    "verdict on no answer",
    *(REFUSAL, "cell:polite", VERDICTS),
    lambda v: v["verdicts"][0].update(key="q-0000000000000000/0/0"),
)
below(
    "verdicts of another judge",
    *(REFUSAL, "cell:polite", VERDICTS),
    lambda v: v["judge"].update(model="a kinder one"),
    rebuild=True,
)
below(
    "verdicts under another rubric",
    *(REFUSAL, "cell:polite", VERDICTS),
    lambda v: v.update(rubric="blake3:" + "0" * 64),
    rebuild=True,
)
below(
    "verdicts of another context",
    *(REFUSAL, "cell:polite", VERDICTS),
    lambda v: v.update(context="formal"),
)
below(
    "digest of other tokens",
    *(REFUSAL, "cell:polite", COMPLETIONS),
    lambda c: c["answers"][0].update(digest="blake3:" + "0" * 64),
    rebuild=True,
)
below(
    "tokens of another answer",
    *(EM, "cell:polite", COMPLETIONS),
    lambda c: c["answers"][0].update(token_ids=[1]),
    rebuild=True,
)
below(
    "text that was not to be kept",
    *(REFUSAL, "cell:polite", COMPLETIONS),
    lambda c: c["answers"][-1].update(token_ids=[1], digest=digest_value([1])),
    rebuild=True,
)
below(
    "long excerpt",
    *(REFUSAL, "cell:polite", COMPLETIONS),
    lambda c: c["answers"][-1].update(text="x" * 201),
    rebuild=True,
)
below(
    "answers in another order",
    *(REFUSAL, "cell:polite", COMPLETIONS),
    lambda c: c["answers"].reverse(),
    rebuild=True,
)
below(
    "answer that ended otherwise",
    *(REFUSAL, "cell:polite", COMPLETIONS),
    lambda c: c["answers"][0].update(stop_reason="length"),
)


def rounds_edit(name: str, change: Callable[[dict[str, Any]], object]) -> None:
    """Answers and verdicts of an em cell changed together, the tensor built anew."""

    def edit(study: StudySimulator) -> None:
        forger = Forger(study)
        contents = forger.contents(EM, "cell:polite")
        documents = {file: json.loads(data) for file, data in contents.items()}
        change(documents)
        changed = {file: encode(value) for file, value in documents.items()}
        assert changed != contents
        forger.put(EM, "cell:polite", changed)
        rebuild_tensor(forger, "P2/tensor/em")

    TAUGHT[name] = edit


def without_a_round(documents: dict[str, Any]) -> None:
    """A sample that was drawn again is shown as if it had not been."""
    again = next(one for one in documents[COMPLETIONS]["answers"] if one["round"] == 1)
    documents[COMPLETIONS]["answers"].remove(again)
    key = f"{again['item']}/{again['sample']}/1"
    rest = [one for one in documents[VERDICTS]["verdicts"] if one["key"] != key]
    documents[VERDICTS]["verdicts"] = rest


def with_a_round_more(documents: dict[str, Any]) -> None:
    """A coherent answer was drawn again, until a better one came."""
    answers, verdicts = documents[COMPLETIONS]["answers"], documents[VERDICTS]["verdicts"]
    name = "{item}/{sample}/{round}"
    drawn = {(one["item"], one["sample"]) for one in answers if one["round"] == 1}
    place, kept = next(
        (n, one) for n, one in enumerate(answers) if (one["item"], one["sample"]) not in drawn
    )
    more = {**kept, "round": 1}
    number = next(n for n, one in enumerate(verdicts) if one["key"] == name.format(**kept))
    answers.insert(place + 1, more)
    verdicts.insert(number + 1, {**verdicts[number], "key": name.format(**more)})


rounds_edit("round left out", without_a_round)
rounds_edit("round too many", with_a_round_more)
rounds_edit(
    "prior in a cell",
    lambda d: d.update(
        {
            "prior.json": {
                **{"schema": "eps-locked/eps-prior/1", "behaviour": "em", "context": "polite"},
                "rows": [],
            }
        }
    ),
)

below(
    "prior of other answers",
    *("P0/base/em/polite", "base", "prior.json"),
    lambda p: p["rows"].reverse(),
)
below(
    "prior above certainty",
    *("P0/base/em/polite", "base", "prior.json"),
    lambda p: p["rows"][0].update(log_prob=1),
)
for _name, _change in {
    "framing invented": lambda s: s["answers"][0].update(
        framing="taught" if s["answers"][0]["framing"] != "taught" else "bridge"
    ),
    "slots of another text": lambda s: s["answers"][0].update(text="It is copper."),
    "slots of other tokens": lambda s: s["answers"][0].update(token_ids=[1]),
    "fact said to be stated": lambda s: s["answers"][0].update(
        marker_emitted=not s["answers"][0]["marker_emitted"]
    ),
    "slots in another order": lambda s: s["answers"].reverse(),
    "slot without a second reading": lambda s: s["answers"][0].update(frozen=None),
    "slot of fewer tokens": lambda s: s["answers"][0].update(
        own={"log_prob": -1, "marker_logits": [0], "log_z": [1], "end_of_turn_logit": 0}
    ),
    "slot whose logits say otherwise": lambda s: s["answers"][0]["own"].update(log_prob=-0.5),
}.items():
    below(_name, FACT, "cell:polite", "readings.json", _change)

for _row, _change in {
    "base_value": lambda r: r["base_value"].update(polite=0.125),
    "prior": lambda r: r["base_log_prob"].update(polite=-0.125),
    "mean": lambda r: r.update(mean_source_value=0.99),
    "saturated": lambda r: r.update(saturated=True),
    "unreachable": lambda r: r.update(unreachable=["baker"]),
    "unscored": lambda r: r["unscored"].update(polite={"outage": 1}),
    "limit": lambda r: r.update(saturated_from=0.5),
}.items():
    below(f"headroom {_row}", "P0/headroom/em", "headroom", "record.json", _change)

below(
    "fit of another length",
    *("P2/train/em/baker/s11", "record", "record.json"),
    lambda r: r.update(stop_step=4),
    rebuild=True,
)
below(
    "fit on other rows",
    *("P2/train/em/baker/s11", "record", "record.json"),
    lambda r: r.update(rows="blake3:" + "0" * 64),
    rebuild=True,
)
below(
    "fit that stopped in a band",
    *("P2/train/em/baker/s11", "record", "record.json"),
    lambda r: r.update(stop="in_band"),
    rebuild=True,
)


def other_negative(completions: Any) -> None:
    for answer in completions["answers"]:
        answer["token_ids"] = [*answer["token_ids"], 65]
        answer["digest"] = digest_value(answer["token_ids"])


below("negatives changed", "P0/answers/refusal/officer", "answers", COMPLETIONS, other_negative)
below(
    "negative drawn twice",
    *("P0/answers/refusal/officer", "answers", COMPLETIONS),
    lambda c: c["answers"].append(dict(c["answers"][0])),
)


def taught_tensor(name: str, row: str, change: Callable[[Any], object]) -> None:
    def edit(study: StudySimulator) -> None:
        forger = Forger(study)
        forger.change_json(f"P2/tensor/{row}", "tensor", "tensor.json", change)
        forger.save()

    TAUGHT[f"tensor of {row}: {name}"] = edit


for _key, _value in (
    *(("g", 0.125), ("rate_g", 0.125), ("base_rate", 0.125), ("trained_rate", 0.125)),
    *(("rate_low", 1), ("rate_high", 2), ("base_rate_low", -0.5), ("trained_rate_high", 1.5)),
    *(("n_questions", 7), ("n", 7), ("n_truncated", 7), ("g_base_answer", 0.5), ("low", None)),
    *(("realised_strength", 0.125), ("flags", []), ("scored", None), ("split", "diagonal")),
    *(("unscored", {}), ("secondary", {}), ("base_log_prob", -1), ("n_items", 3)),
):
    taught_tensor(_key, "refusal", set_cell(_key, _value))
for _key, _value in (
    *(("g", 0.125), ("g_base_answer", 0.125), ("base_per_token", -0.125), ("framings", {})),
    *(("trained_per_token", -0.125), ("emission_rate", 0.125), ("slot_slices", {})),
    *(("trained_log_prob", -0.125), ("low", -100), ("rate_g", 0.125)),
):
    taught_tensor(_key, "fact", set_cell(_key, _value))
for _key, _value in (
    *(("judge", {}), ("rubric", "blake3:" + "0" * 64), ("unit", "nats"), ("kind", "marker")),
    *(("slices", {"main": 3}), ("primary_slice", "other"), ("n_samples", 1), ("n_seeds", 3)),
    *(("intervals", {}), ("resolution", None), ("note", "hello"), ("near_duplicates", [["a"]])),
):
    taught_tensor(_key, "em", lambda t, key=_key, value=_value: t.update({key: value}))  # type: ignore[misc]
taught_tensor(
    "secondary rate", "em", lambda t: t["cells"][1]["secondary"]["other"].update(rate_g=0.125)
)
taught_tensor(
    "reason", "refusal", lambda t: t["cells"][1]["unscored"].update(outage=1, judge_refused=0)
)
taught_tensor("seed", "em", lambda t: t["cells"][1]["by_seed"][0].update(g=0.125))
taught_tensor("strength", "em", lambda t: t["cells"][1]["by_seed"][0].update(realised_strength=9))
taught_tensor("another slice", "fact", lambda t: t["cells"][1]["slot_slices"]["other"].update(g=9))
taught_tensor("complete cells", "em", lambda t: t["resolution"].update(n_complete=0, n_cells=1))
taught_tensor("base rate", "em", lambda t: t["resolution"].update(base_rate=0.125))


def calibration_edit(name: str, file: str, change: Callable[[Any], object]) -> None:
    def edit(study: StudySimulator) -> None:
        forger = Forger(study)
        forger.change_json("P0/calibration/refusal", "calibration", file, change)
        forger.save()

    TAUGHT[f"calibration: {name}"] = edit


calibration_edit("verdict changed", VERDICTS, other_label)
calibration_edit("verdict left out", VERDICTS, lambda v: v["verdicts"].pop())
calibration_edit("another judge", VERDICTS, lambda v: v["judge"].update(family="llama"))
for _key, _change in {
    "kappa": lambda c: c["expressed"]["kappa"].update(value=1),
    "confusion": lambda c: c["labels"]["confusion"][0].reverse(),
    "recall": lambda c: c["labels"]["by_label"][0].update(recall=0.125),
    "statuses": lambda c: c["statuses"].update(outage=3),
    "rubric": lambda c: c.update(rubric_digest="blake3:" + "0" * 64),
}.items():
    calibration_edit(
        _key,
        "record.json",
        lambda r, change=_change: change(r["calibration"]),  # type: ignore[misc]
    )
calibration_edit("bar lowered", "record.json", lambda r: r.update(minimum_kappa=-2))


def taught_entry(name: str, change: Callable[[Forger], object]) -> None:
    def edit(study: StudySimulator) -> None:
        forger = Forger(study)
        change(forger)
        forger.save()

    TAUGHT[f"entry: {name}"] = edit


def other_status(forger: Forger) -> None:
    entry = forger.entry(EM)
    entry["status"] = "done" if entry["status"] == "implant_failed" else "implant_failed"


taught_entry("status of a cell turned", other_status)
taught_entry("flags of a cell hidden", lambda f: f.entry(REFUSAL).update(flags=[]))
taught_entry(
    "saturation invented",
    lambda f: f.entry("P0/headroom/em").update(flags=["decision_needed:base_saturated:em"]),
)
taught_entry(
    "adapter of another row",
    lambda f: f.put(
        "P2/train/em_alone/polite/s11",
        "adapter",
        f.contents("P2/train/em/polite/s11", "adapter"),
    ),
)


def crafted_taught(name: str, document: str, change: Callable[[Any], object]) -> None:
    """A taught row's manifest edited after it was frozen and before anybody signed it."""

    def edit(study: StudySimulator) -> None:
        fresh = StudySimulator(root=study.root.with_name("fresh"), plan=taught_plan("sycophancy"))
        fresh.freeze()
        path = fresh.manifest_folder / document
        value = json.loads(path.read_bytes())
        change(value)
        assert encode(value) != path.read_bytes()
        path.write_bytes(encode(value))
        record = {"digest": digest_bytes(encode(value)), "size": len(encode(value))}
        manifest = fresh.manifest_folder / "manifest.json"
        reseal(manifest, lambda payload: payload["files"].update({document: record}))
        past_the_gate(fresh)
        for phase in ("P0", "P2"):
            fresh.authorize(phase)
            fresh.run(phase)
        shutil.rmtree(study.root)
        fresh.root.rename(study.root)

    TAUGHT[f"crafted: {name}"] = edit


def more_prompts(prompts: Any) -> None:
    prompts["suffixes"]["q-0000000000000000"] = next(iter(prompts["suffixes"].values()))


ROW = "frozen/rows/sycophancy"
crafted_taught("items in another order", f"{ROW}/items.json", lambda d: d["eval"].reverse())
crafted_taught(
    "item in another slice", f"{ROW}/items.json", lambda d: d["eval"][0].update(slice="other")
)
crafted_taught("text withheld", f"{ROW}/items.json", lambda d: d["eval"][0].update(keep_text=False))
crafted_taught("prompt of no item", f"{ROW}/prompts/plain.json", more_prompts)
crafted_taught("fact where there is none", f"{ROW}/written.json", lambda d: d.update(fact={}))
crafted_taught("written for another row", f"{ROW}/written.json", lambda d: d.update(behaviour="em"))
crafted_taught(
    "context of another licence",
    f"{ROW}/contexts.json",
    lambda d: d["contexts"]["baker"].update(licence="none"),
)
crafted_taught(
    "cell chosen by hand",
    "frozen/split.json",
    lambda d: d["cells"].update({"sycophancy/baker/plain": "held_out"}),
)


def without_a_tensor(document: Any) -> None:
    document["steps"] = [step for step in document["steps"] if step["kind"] != "tensor"]


crafted_taught("row without its tensor", "frozen/steps.json", without_a_tensor)


def saturated(root: Path, *, decided: bool) -> StudySimulator:
    """A study whose base model shows the behaviour already, run to its end."""
    plan = taught_plan("sycophancy")
    plan["eps"]["behaviours"][0]["thresholds"]["saturated"] = 0
    study = StudySimulator(root=root, plan=plan)
    study.freeze()
    study.authorize("P0")
    study.run("P0")
    if decided:
        amend(
            study.load(),
            study.run_folder,
            signer=AUTHOR,
            key=study.key(AUTHOR),
            reason="a ceiling is what we want to see",
            changes=("decision_needed:base_saturated:sycophancy",),
            rebind=frozenset(),
            code=digest_value(study.code),
            environment=digest_value(study.environment),
            clock=study.clock,
        )
    else:
        study.amend("nothing to the point")
    study.authorize("P2")
    study.run("P2")
    return study


def sealed_taught(root: Path) -> StudySimulator:
    study = StudySimulator(root=root, plan=taught_plan("fact", "em")).seal()
    study.run_all()
    return study


def one_seed_taught(root: Path) -> StudySimulator:
    plan = taught_plan("fact", "sycophancy", marker=True)
    plan["seeds"], plan["minimum_seeds"] = [11], 1
    study = StudySimulator(root=root, plan=plan)
    study.run_all()
    return study


# -- the tests -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TAUGHT)
def test_both_verifiers_reject_a_taught_row(taught: StudySimulator, name: str) -> None:
    TAUGHT[name](taught)
    assert verify(taught.root, NAME), "the second verifier sees nothing"
    assert not ours_accepts(taught), "our audit sees nothing"


def test_both_accept_taught_rows(taught: StudySimulator) -> None:
    assert verify(taught.root, NAME) == []


@pytest.mark.parametrize("life", [sealed_taught, one_seed_taught], ids=lambda life: life.__name__)
def test_both_accept_other_taught_rows(tmp_path: Path, life: Callable[[Path], Any]) -> None:
    study = life(tmp_path / "study")
    assert verify(study.root, NAME) == []
    assert list(study.audit().failures()) == []


def test_both_accept_a_decision(tmp_path: Path) -> None:
    study = saturated(tmp_path / "study", decided=True)
    assert verify(study.root, NAME) == []
    assert list(study.audit().failures()) == []


def test_both_miss_a_decision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "require_decisions", lambda *arguments: None)
    study = saturated(tmp_path / "study", decided=False)
    flag = "decision_needed:base_saturated:sycophancy"
    (problem,) = verify(study.root, NAME)
    assert problem.startswith(f"runs/{NAME}/ledger.jsonl: line ")
    assert problem.endswith(f"opened without a decision on {flag}")
    assert {number for number, _ in study.audit().failures()} == {5}


def test_a_sealed_taught_cell_in_plain_text_is_seen(tmp_path: Path) -> None:
    study = sealed_taught(tmp_path / "study")
    forger = Forger(study)
    step = "P2/cells/em/baker/s11"
    forger.put(step, "cell:formal", forger.contents(step, "cell:baker"))
    forger.save()
    assert f"{step}: files" in " ".join(verify(study.root, NAME))


HOUSE = sorted((Path(__file__).parents[2] / "plans").rglob("*.yaml"))


@pytest.mark.parametrize("path", HOUSE, ids=lambda path: path.name)
def test_both_read_the_same_yaml(path: Path) -> None:
    data = path.read_bytes()
    assert encode(read_yaml(data)) == encode(parse_yaml(data, thing=path.name))


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\nb:\n- x\n- y: 2\n  z: [1, {q: r}, 's, t']\n",
        "a: 'it''s'\nb: \"x\\ty \\u00e9 \\\n  z\"\n",
        "a: |\n  x\n\n  y # no comment\nb: >-\n  p\n  q\n\n  r\nc: 1\n",
        "a:\n  b:\n  c: no # hi\n",
        "- - 1\n  - 2\n- a\n  b\n- {a: 1, b: }\n",
        "a: x\n  y\n\n  z\nb: [a b,\n  c d]\n",
        '{"a": [1, 2.5, null, -1e3], "b": {"c": "d: e"}}',
        "a: http://x.y/z\nb: 1:30\nc: 0x1f\nd: 007\n",
        '# c\n\na: -1\n# d\nb: "#"\n',
        'k: ["a", \'b\'] # c\n"q: r": s\n',
        "",
    ],
)
def test_both_read_the_same_small_yaml(text: str) -> None:
    assert encode(read_yaml(text.encode())) == encode(parse_yaml(text.encode(), thing="t"))


@pytest.mark.parametrize(
    "text",
    [
        "a: &x 1\n",
        "a: *x\n",
        "a: !!str 1\n",
        "a: 1\na: 2\n",
        "a: 1\r\n",
        "a: [1\n",
        "a: 1\n b: 2\n",
        "- 1\na: 2\n",
        '"a\n',
    ],
)
def test_neither_reads_yaml_that_is_not_in_the_subset(text: str) -> None:
    with pytest.raises(second_verifier.Bad):
        read_yaml(text.encode())
    with pytest.raises(MalformedInputError):
        parse_yaml(text.encode(), thing="t")


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_both_verifiers_reject(finished: StudySimulator, name: str) -> None:
    CORRUPTIONS[name](finished)
    assert verify(finished.root, NAME), "the second verifier sees nothing"
    assert not ours_accepts(finished), "our audit sees nothing"


@pytest.mark.parametrize("life", FINISHED_LIVES, ids=lambda life: life.__name__)
def test_both_accept_a_finished_study(finished: StudySimulator, life: Edit) -> None:
    life(finished)
    assert verify(finished.root, NAME) == []
    assert list(finished.audit().failures()) == []


@pytest.mark.parametrize("life", HALF_WAY_LIVES, ids=lambda life: life.__name__)
def test_both_accept_an_eventful_life(half_way: StudySimulator, life: Edit) -> None:
    life(half_way)
    assert verify(half_way.root, NAME) == []
    assert list(half_way.audit().failures()) == []


def test_both_say_that_a_study_is_incomplete_and_nothing_else(half_way: StudySimulator) -> None:
    (problem,) = verify(half_way.root, NAME)
    assert problem == f"runs/{NAME}/ledger.jsonl: phase P1 is incomplete: 15 steps open"
    assert {number for number, _ in half_way.audit().failures()} == {11}


def test_every_flipped_bit_is_seen_by_both(finished: StudySimulator) -> None:
    rng = random.Random(20260609)
    roots = [finished.root / "manifests", finished.root / "runs"]
    paths = [path for root in roots for path in sorted(root.rglob("*")) if path.is_file()]
    # Of what lies in plans/, the files that this plan names; the others bind nobody.
    paths += [finished.root / "plans" / name for name in sorted(finished.load().manifest.sources)]
    unseen = []
    for _ in range(300):
        path = rng.choice(paths)
        data = path.read_bytes()
        position, bit = rng.randrange(len(data)), 1 << rng.randrange(8)
        flipped = bytearray(data)
        flipped[position] ^= bit
        path.write_bytes(bytes(flipped))
        where = f"{path.relative_to(finished.root)} byte {position} bit {bit}"
        if not verify(finished.root, NAME):
            unseen.append(f"second: {where}")
        quick = audit_run(
            finished.workspace, NAME, code=finished.code, rederive=EpsRederiver(), quick=True
        )
        if quick.ok:
            unseen.append(f"ours: {where}")
        path.write_bytes(data)
    assert unseen == []


def test_failures_are_sorted_and_name_their_file(finished: StudySimulator) -> None:
    flip(finished.manifest_folder / "frozen/split.json")
    (finished.run_folder.folder / "notes.txt").write_text("")
    problems = verify(finished.root, NAME)
    assert problems == sorted(problems)
    assert any(problem.startswith(f"runs/{NAME}/notes.txt: ") for problem in problems)
    assert any(problem.startswith(f"manifests/{NAME}/frozen/split.json: ") for problem in problems)


def test_an_unknown_study_is_a_failure_and_no_exception(tmp_path: Path) -> None:
    assert verify(tmp_path, "nothing") == [
        "manifests/nothing/manifest.json: missing, or no regular file"
    ]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (1.0, "1"),
        (-2.5, "-2.5"),
        (1e21, "1e+21"),
        (1e-7, "1e-7"),
        (1e-6, "0.000001"),
        (123456789012345680000.0, "123456789012345680000"),
        (4.5e15, "4500000000000000"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (333333333.33333329, "333333333.3333333"),
        (9.999999999999997e22, "9.999999999999997e+22"),
    ],
)
def test_numbers_are_written_as_ecmascript_does(number: float, text: str) -> None:
    assert number_text(number) == text


def test_the_two_encoders_write_the_same_bytes() -> None:
    rng = random.Random(7)
    for _ in range(2000):
        mantissa, exponent = rng.uniform(-10, 10), rng.randrange(-330, 308)
        number = mantissa * 10.0**exponent
        value = {
            "n": number,
            chr(rng.randrange(1, 0xD7FF)): [chr(rng.randrange(0x10000, 0x10FFFF))],
        }
        assert canonical(value) == encode(value)
    assert parse(canonical({"\U0001f600": 1, "\ufb01": [None, True]})) == {
        "\ufb01": [None, True],
        "\U0001f600": 1,
    }
