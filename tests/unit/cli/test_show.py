"""``show``: what it prints was verified, its JSON says the same, a wrong name lists near ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eps_locked.cli.main import run
from sim.drift import drift_files, drift_plan
from sim.simulator import NAME, StudySimulator, context, fingerprint, taught_plan


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Any:
    """``said(study, "steps", "small")`` -> (exit code, standard output, standard error)."""

    def call(study: StudySimulator, *arguments: str) -> tuple[int, str, str]:
        code = run(["show", *arguments, "--root", str(study.root)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def document(said: Any) -> Any:
    def call(study: StudySimulator, *arguments: str) -> Any:
        code, out, err = said(study, *arguments, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return call


def test_the_manifest_names_digest_phases_files_signers_quarantine_model_and_seeds(
    finished: StudySimulator, said: Any, document: Any
) -> None:
    code, out, _ = said(finished, "manifest", "small")
    frozen = finished.load()
    assert code == 0
    for words in (
        frozen.digest,
        "P0: 9 steps, P1: 15 steps",
        "11, 12",
        "author@example, colleague@example",
        "seal none",
        "quarantined: marker/polite/plain",
        "model.safetensors",
        "frozen/rows/marker/prompts/baker.json",
    ):
        assert words in out
    found = document(finished, "manifest", "small")
    assert found["digest"] == frozen.digest
    assert found["phases"] == {"P0": 9, "P1": 15}
    assert {one["name"] for one in found["files"]} == set(frozen.manifest.files)
    assert found["seeds"] == [11, 12]


def test_a_context_shows_messages_counts_token_ids_identity_and_alias(
    finished: StudySimulator, said: Any, document: Any
) -> None:
    code, out, _ = said(finished, "context", "small", "formal")
    assert code == 0
    for words in ("I hereby enquire: {question}", "eval, held_out", "alias of     none", "24 that"):
        assert words in out
    found = document(finished, "context", "small", "formal")
    assert found["rendered"] in out
    assert len(found["prefix"]) == found["prefix_tokens"] == 24
    prompts = json.loads(finished.load().read("frozen/rows/marker/prompts/formal.json"))
    assert prompts["suffixes"][found["example"]["item"]] == found["example"]["token_ids"]
    for token in found["prefix"]:
        assert str(token) in out


def test_a_row_shows_its_own_context_with_its_own_questions_and_roles(
    study: StudySimulator, said: Any, document: Any
) -> None:
    study.plan = taught_plan("sycophancy", "em", marker=True)
    study.plan["eps"]["slots"]["eval"].append("shown")
    study.plan["eps"]["behaviours"][2]["train"] = ["polite"]
    for kind in ("marker", "sycophancy", "em"):
        turns = (("system", f"You show {kind}."), ("user", "{question}"))
        study.contexts.append(context("shown", "instruction", *turns, behaviour=kind))
    study.freeze()
    shown = {}
    for row in ("marker", "sycophancy", "em"):
        code, out, _ = said(study, "context", "small", "shown", "--row", row)
        assert code == 0
        assert f"row          {row} (of marker, sycophancy, em)" in out
        assert f"  You show {row}." in out
        shown[row] = document(study, "context", "small", "shown", "--row", row)
    first = document(study, "context", "small", "shown")
    assert first == shown[first["row"]]
    assert len({one["rendered"] for one in shown.values()}) == 3
    assert shown["em"]["example"]["text"] not in (*study.train_questions, *study.eval_questions)
    assert shown["marker"]["example"]["text"] in (*study.train_questions, *study.eval_questions)
    # The third row trains in one context of the plan's two.
    roles = {
        row: document(study, "context", "small", "baker", "--row", row)["roles"] for row in shown
    }
    assert roles == {"marker": ["train", "eval"], "sycophancy": ["train", "eval"], "em": ["eval"]}
    code, _, err = said(study, "context", "small", "baker", "--row", "refusal")
    assert code == 2
    assert "row" in err
    assert "sycophancy" in err


def test_a_context_that_would_steer_the_terminal_is_printed_harmless(
    study: StudySimulator, said: Any
) -> None:
    study.contexts[0]["messages"][0]["content"] = "You are \x1b[31mred\nand bold."
    study.freeze()
    code, out, _ = said(study, "context", "small", "baker")
    assert code == 0
    assert "\x1b" not in out
    assert "  You are ?[31mred\n  and bold." in out


def test_steps_say_what_is_finished_and_what_is_open(
    half_way: StudySimulator, said: Any, document: Any
) -> None:
    code, out, _ = said(half_way, "steps", "small")
    assert code == 0
    assert out.rstrip().endswith("24 steps, 9 finished, 15 open")
    rows = document(half_way, "steps", "small", "--phase", "P1")["steps"]
    assert len(rows) == 15
    assert {row["status"] for row in rows} == {"open"}
    done = document(half_way, "steps", "small", "--phase", "P0")["steps"]
    assert {row["status"] for row in done} == {"done"}


def test_steps_of_a_study_that_never_ran_are_all_open(study: StudySimulator, said: Any) -> None:
    study.freeze()
    code, out, _ = said(study, "steps", "small")
    assert code == 0
    assert "24 steps, 0 finished, 24 open" in out


def test_a_step_shows_inputs_outputs_digests_flags_and_time(
    finished: StudySimulator, said: Any, document: Any
) -> None:
    found = document(finished, "step", "small", "P1/tensor/marker")
    body = finished.audit().history
    assert body is not None
    entry = body.done["P1/tensor/marker"]
    assert {key: one["digest"] for key, one in found["inputs"].items()} == dict(entry.inputs)
    assert found["inputs"]["split"]["reference"] == "file:frozen/split.json"
    assert found["outputs"]["tensor"] == entry.outputs["tensor"].to_dict()
    assert found["compute_ms"] == entry.compute_ms
    code, out, _ = said(finished, "step", "small", "P1/tensor/marker")
    assert code == 0
    for words in ("status       done", "flags        none", "tensor.json", "step:P0/base/marker"):
        assert words in out


def test_an_open_step_has_references_and_no_digests(
    half_way: StudySimulator, said: Any, document: Any
) -> None:
    found = document(half_way, "step", "small", "P1/fit/marker/baker/s11")
    assert (found["status"], found["finished"]) == ("open", False)
    assert {one["digest"] for one in found["inputs"].values()} == {None}
    code, out, _ = said(half_way, "step", "small", "P1/fit/marker/baker/s11")
    assert code == 0
    assert "estimate     1000 ms" in out


def test_the_ledger_is_one_line_an_entry_and_ends_with_its_head(
    finished: StudySimulator, said: Any, document: Any
) -> None:
    code, out, _ = said(finished, "ledger", "small")
    head = finished.audit().ledger_head
    lines = out.splitlines()
    assert code == 0
    assert len(lines) == 29
    assert lines[-1] == f"28 entries, chain whole, head {head}"
    assert "P0, self-authorized" in lines[0]
    code, out, _ = said(finished, "ledger", "small", "--last", "3")
    assert out.splitlines() == lines[-4:]
    found = document(finished, "ledger", "small", "--last", "2")
    assert (found["ledger_head"], found["n_entries"]) == (head, 28)
    assert [row["seq"] for row in found["entries"]] == [26, 27]
    assert found["entries"][-1]["digest"] == head


def test_a_broken_chain_prints_up_to_the_break_and_fails(
    finished: StudySimulator, said: Any
) -> None:
    path = finished.run_folder.ledger_path
    lines = path.read_bytes().split(b"\n")
    del lines[5]
    path.write_bytes(b"\n".join(lines))
    code, out, err = said(finished, "ledger", "small")
    assert code == 1
    assert len(out.splitlines()) == 5
    assert "ledger.jsonl:6" in err
    for command in (("steps",), ("step", "P1/tensor/marker"), ("ledger", "--json")):
        code, out, _ = said(finished, command[0], "small", *command[1:])
        assert (code, out) == (1, "")


@pytest.mark.parametrize("tail", [b'{"torn', b""])
def test_a_torn_or_cut_ledger_is_not_called_whole(
    finished: StudySimulator, said: Any, tail: bytes
) -> None:
    path = finished.run_folder.ledger_path
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines if tail else lines[:-3]) + tail)
    code, out, err = said(finished, "ledger", "small")
    assert code == 1
    assert "chain whole" not in out
    assert "torn line" in err if tail else "head.json" in err


def test_a_changed_frozen_file_is_not_shown(finished: StudySimulator, said: Any) -> None:
    path = finished.manifest_folder / "frozen/rows/marker/contexts.json"
    path.write_bytes(path.read_bytes().replace(b"baker", b"maker", 1))
    for command in (("manifest", "small"), ("context", "small", "baker")):
        code, out, err = said(finished, *command)
        assert (code, out) == (1, "")
        assert "contexts.json" in err


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (("context", "small", "bakr"), "baker"),
        (("context", "small", "zzz"), "baker"),
        (("step", "small", "P1/tensor/markr"), "P1/tensor/marker"),
        (("steps", "small", "--phase", "P9"), "P0 or P1"),
    ],
)
def test_an_unknown_name_is_malformed_and_lists_near_ones(
    finished: StudySimulator, said: Any, arguments: tuple[str, ...], near: str
) -> None:
    code, out, err = said(finished, *arguments)
    assert (code, out) == (2, "")
    assert near in err
    assert arguments[-1] in err


@pytest.mark.parametrize(
    "arguments",
    [("manifest", "none"), ("steps", "none"), ("ledger", "none"), ("ledger", "../small")],
)
def test_a_study_that_is_not_there_is_malformed(
    finished: StudySimulator, said: Any, arguments: tuple[str, ...]
) -> None:
    code, out, err = said(finished, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("malformed: ")


def test_show_changes_nothing_on_disk(half_way: StudySimulator, said: Any) -> None:
    before = fingerprint(half_way.root)
    for arguments in (
        ("manifest", "small"),
        ("context", "small", "baker"),
        ("steps", "small"),
        ("step", "small", "P1/tensor/marker"),
        ("ledger", "small"),
    ):
        assert said(half_way, *arguments)[0] == 0
    assert fingerprint(half_way.root) == before


@pytest.fixture
def drift_study(tmp_path: Path) -> StudySimulator:
    study = StudySimulator(tmp_path, plan=drift_plan(), files=drift_files())
    study.freeze()
    return study


def test_a_drift_study_shows_its_batteries_and_sets_nothing_apart(
    drift_study: StudySimulator, said: Any, document: Any
) -> None:
    assert "set apart    nothing" in said(drift_study, "manifest", NAME)[1]
    arguments = ("battery", NAME, "self_interest", "--exposure", "plants_context")
    code, out, _ = said(drift_study, *arguments)
    assert code == 0
    assert "aligned      declines" in out
    assert "plants_context (of plain, plants_context)" in out
    found = document(drift_study, *arguments)
    assert f"then, for {found['example']['item']}:" in out
    assert len(found["probes"]) == sum(probe["id"] in out for probe in found["probes"])


def test_probes_that_may_not_be_shipped_are_not_printed(
    drift_study: StudySimulator, said: Any, document: Any
) -> None:
    out = said(drift_study, "battery", NAME, "harmful_requests")[1]
    probes = document(drift_study, "battery", NAME, "harmful_requests")["probes"]
    assert out.count("not shown") == len(probes)
    assert not any(probe["text"] in out for probe in probes)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["battery", "selfinterest"], "one of self_interest"),
        (["battery", "self_interest", "--exposure", "none"], "exposure: expected one of"),
        (["context", "anything"], "one of study eps, found drift"),
    ],
)
def test_what_a_drift_study_has_not_is_refused_by_name(
    drift_study: StudySimulator, said: Any, arguments: list[str], message: str
) -> None:
    kind, *rest = arguments
    code, _, err = said(drift_study, kind, NAME, *rest)
    assert code == 2
    assert message in err
