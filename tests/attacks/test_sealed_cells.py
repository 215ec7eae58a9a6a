"""Aim: read what was sealed without the key, or pass off as sealed what is not."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eps_locked.canonical import decode
from eps_locked.domain.model import Completion, Decoding, Prompt, SlotProbe
from eps_locked.engines.scripted import ScriptedEngine
from eps_locked.errors import EvidenceError, MalformedInputError, RefusedError
from eps_locked.lock.seal import PADDED_TO, CustodianKey, new_custodian_key, seal_files
from eps_locked.studies.eps.readings import Readings
from sim.simulator import AUTHOR, StudySimulator

SEALED = (("baker", "formal"), ("polite", "formal"), ("polite", "plain"))
CELLS = "P1/cells/marker/{train}/s{seed}"


class PlantingEngine(ScriptedEngine):
    """Writes a sentence of its own into every answer of an adapter, to be looked for later."""

    def generate(
        self, prompts: Sequence[Prompt], decoding: Decoding, probe: SlotProbe | None = None
    ) -> tuple[Completion, ...]:
        completions = super().generate(prompts, decoding, probe)
        if not any("/" in prompt.key and prompt.draft for prompt in prompts):
            return completions
        return tuple(replace(one, text=planted(one.key)) for one in completions)


def planted(key: str) -> str:
    return f"the quick secret of {key} lies here"


def forms(text: str) -> list[bytes]:
    """A text as it may come to lie in a file: plain, escaped, wide, in base64 (three phases)."""
    data = text.encode()
    coded = [base64.b64encode(b"x" * shift + data)[4:-4] for shift in range(3)]
    return [data, data.hex().encode(), text.encode("utf-16-le"), *coded]


@pytest.fixture(scope="session")
def opened_for_writing() -> list[str]:
    """Paths opened for writing, as the interpreter itself reports them."""
    opened: list[str] = []

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str):
            path, mode, flags = arguments
            if (isinstance(mode, str) and set(mode) & set("wax+")) or (
                isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)
            ):
                opened.append(path)

    sys.addaudithook(hook)
    return opened


def test_no_file_and_no_write_ever_holds_the_text_of_a_sealed_cell(
    study: StudySimulator, monkeypatch: pytest.MonkeyPatch, opened_for_writing: list[str]
) -> None:
    study.seal()
    study.engine = PlantingEngine()
    written: list[bytes] = []
    write = os.write
    monkeypatch.setattr(
        os, "write", lambda fd, data: written.append(bytes(data)) or write(fd, data)
    )
    opened_for_writing.clear()
    study.run_all()
    study.submit()
    study.check()
    study.look()
    elsewhere = [
        p for p in opened_for_writing if not Path(p).is_relative_to(study.root) and "/dev/" not in p
    ]
    assert [p for p in elsewhere if "eps-locked-" not in p] == [], "written outside the study"
    on_disk = [path.read_bytes() for path in study.root.rglob("*") if path.is_file()]
    items = [one["id"] for one in _frozen(study, "rows/marker/items.json")["eval"]]
    for evaluated in ("baker", "polite", "plain", "formal"):
        for item in items:
            needles = forms(planted(f"{evaluated}/{item}"))
            found = [
                needle for data in (*on_disk, *written) for needle in needles if needle in data
            ]
            # "formal" is sealed for every adapter; the other columns have an open cell each, which
            # shows that the search would see a text that is there.
            assert bool(found) == (evaluated != "formal"), (evaluated, item)


def test_numbers_of_a_sealed_cell_lie_nowhere_either(study: StudySimulator) -> None:
    study.seal().run_all()
    open_text = b"\n".join(p.read_bytes() for p in study.root.rglob("*") if p.is_file())
    for train, evaluated in SEALED:
        for seed in (11, 12):
            for answer in opened(study, train, evaluated, seed).answers:
                assert answer.frozen is not None
                assert repr(answer.own.log_prob).encode() not in open_text
    diagonal = study.run_folder.artifact_file(
        _artifact(study, "baker", "baker", 11), "readings.json"
    )
    value = decode(diagonal, thing="cell")["answers"][0]["own"]["log_prob"]
    assert repr(value).encode() in open_text, "the search itself is blind"


def test_a_run_and_its_folder_hold_no_key_of_the_custodian(study: StudySimulator) -> None:
    study.seal().run_all()
    secret = study.custodian_key.read_bytes().split()[-1]
    for path in study.root.rglob("*"):
        if path.is_file() and path != study.custodian_key:
            assert secret not in path.read_bytes()


def test_any_other_key_opens_nothing(sealed: StudySimulator) -> None:
    recipients = _recipients(sealed)
    files = _files(sealed, "baker", "formal", 11)
    stranger = CustodianKey.read(new_custodian_key()[0].encode(), thing="stranger")
    author = CustodianKey.read(sealed.key(AUTHOR).read_bytes(), thing="author")
    for key in (stranger, author):
        with pytest.raises(EvidenceError, match="cannot be opened with this key"):
            key.open_files(files, recipients)
        with pytest.raises(RefusedError, match="custodian key"):
            key.require_among(recipients, thing="recipients")


def test_the_custodian_reads_what_an_unsealed_run_would_have_shown(
    sealed: StudySimulator, finished: StudySimulator
) -> None:
    for train, evaluated in SEALED:
        plain = finished.run_folder.artifact_file(
            _artifact(finished, train, evaluated, 11), "readings.json"
        )
        assert opened(sealed, train, evaluated, 11).to_files()["readings.json"] == plain


def test_a_recipient_in_another_spelling_is_the_same_key() -> None:
    """What is accepted at the freeze opens at the look."""
    identity, recipients = new_custodian_key()
    key = CustodianKey.read(identity.encode(), thing="key")
    key.require_among(recipients.upper().encode(), thing="recipients")


def test_lengths_of_ciphertexts_do_not_tell_lengths_of_answers() -> None:
    recipients = new_custodian_key()[1].encode()
    sizes = [
        len(seal_files({"readings.json": b"x" * n}, recipients)["readings.json.age"])
        for n in (1, 100, 10_000, PADDED_TO, PADDED_TO + 1)
    ]
    # age puts a stanza of random length into every header; it has nothing to do with the text.
    assert max(sizes[:4]) - min(sizes[:4]) < 400
    assert sizes[4] - max(sizes[:4]) > PADDED_TO - 400


def test_two_honest_runs_share_results_digests_and_no_ciphertext(tmp_path: Path) -> None:
    one = StudySimulator(root=tmp_path / "one").seal()
    two = StudySimulator(root=tmp_path / "two").seal()
    two.custodian_key.write_bytes(one.custodian_key.read_bytes())
    for name in ("custodian",):
        data = (one.root / "plans/keys" / name).read_bytes()
        (two.root / "plans/keys" / name).write_bytes(data)
    assert one.run_all() == two.run_all()
    mine, theirs = (_files(s, "baker", "formal", 11) for s in (one, two))
    assert mine["sealed.json"] == theirs["sealed.json"]
    assert mine["readings.json.age"] != theirs["readings.json.age"]


def test_a_tampered_ciphertext_is_found_without_the_key_and_refused_with_it(
    sealed: StudySimulator,
) -> None:
    artifact = _artifact(sealed, "baker", "formal", 11)
    path = sealed.run_folder.artifact_folder(artifact.digest) / "readings.json.age"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert any("readings.json.age" in failure for _, failure in sealed.audit().failures())


def test_another_cells_ciphertext_is_not_the_committed_text(sealed: StudySimulator) -> None:
    files = _files(sealed, "baker", "formal", 11)
    other = _files(sealed, "polite", "formal", 11)
    key = CustodianKey.read(sealed.custodian_key.read_bytes(), thing="key")
    swapped = {**files, "readings.json.age": other["readings.json.age"]}
    with pytest.raises(EvidenceError, match="another text than the run committed to"):
        key.open_files(swapped, _recipients(sealed))


Change = Callable[[StudySimulator], None]
REFUSED_PLANS: dict[str, tuple[Change, str]] = {
    "no recipients file": (
        lambda s: s.plan["eps"]["quarantine"].update(recipients="keys/nobody"),
        "keys/nobody",
    ),
    "recipients without a seal": (
        lambda s: s.plan["eps"]["quarantine"].update(seal="none"),
        "null",
    ),
    "a seal without recipients": (
        lambda s: s.plan["eps"]["quarantine"].update(recipients=None),
        "a file of age recipients",
    ),
    "an empty recipients file": (
        lambda s: s._write("keys/custodian", "# nobody\n"),
        "at least one age recipient",
    ),
    "a passphrase": (lambda s: s._write("keys/custodian", "hunter2\n"), "an age recipient"),
    "the author's own signing key": (
        lambda s: s._write("keys/custodian", s.key(AUTHOR).with_suffix(".pub").read_text()),
        "a custodian who does not run the study",
    ),
    "a secret key": (
        lambda s: s._write("keys/custodian", new_custodian_key()[0]),
        "keep it out of plans/",
    ),
}


@pytest.mark.parametrize("case", REFUSED_PLANS)
def test_a_plan_that_could_not_seal_is_not_frozen(study: StudySimulator, case: str) -> None:
    change, words = REFUSED_PLANS[case]
    study.seal().write_plan()
    change(study)
    study.write_plan()
    with pytest.raises(MalformedInputError) as caught:
        study.freeze()
    assert words in str(caught.value)
    assert "AGE-SECRET-KEY" not in str(caught.value)
    assert not study.manifest_folder.exists()


def opened(study: StudySimulator, train: str, evaluated: str, seed: int) -> Readings:
    key = CustodianKey.read(study.custodian_key.read_bytes(), thing="key")
    files = key.open_files(_files(study, train, evaluated, seed), _recipients(study))
    return Readings.from_files(files, "opened")


def _artifact(study: StudySimulator, train: str, evaluated: str, seed: int) -> Any:
    history = study.audit().history
    assert history is not None
    step = CELLS.format(train=train, seed=seed)
    return history.done[step].outputs[f"cell:{evaluated}"]


def _files(study: StudySimulator, train: str, evaluated: str, seed: int) -> dict[str, bytes]:
    artifact = _artifact(study, train, evaluated, seed)
    return {name: study.run_folder.artifact_file(artifact, name) for name in artifact.files}


def _recipients(study: StudySimulator) -> bytes:
    return study.load().read("frozen/sources/keys/custodian")


def _frozen(study: StudySimulator, name: str) -> Any:
    return decode(study.load().read(f"frozen/{name}"), thing=name)
