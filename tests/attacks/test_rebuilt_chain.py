"""An attacker rebuilds the whole chain after a change: what a hash chain cannot show, rules must.

Everything that names the changed part is carried on (input digests, close entries, head), so each
test meets the one rule it is about. What nothing here can catch is said in docs/lock.md: a lie told
consistently in readings, adapter header and tensor needs a replay, or a published head, to show.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from eps_locked.canonical import encode
from eps_locked.lock.envelope import seal_document
from sim.forge import (
    Payload,
    carry_on,
    document_payload,
    edit_json,
    find,
    output_files,
    payloads_of,
    put_output,
    rebuild,
    resign,
    step,
    write_lines,
)
from sim.simulator import AUTHOR, StudySimulator

OTHER = "blake3:" + "7" * 64
CELL = "P1/cells/marker/baker/s11"
OUTPUT, DIAGONAL = "cell:polite", "cell:baker"
FIT = "P1/fit/marker/baker/s11"

Change = Callable[[list[Payload]], object]


def move(payloads: list[Payload], payload: Payload, index: int) -> None:
    payloads.remove(payload)
    payloads.insert(index, payload)


def aborted(**fields: Any) -> Payload:
    return {
        "schema": "eps-locked/ledger/1",
        "kind": "aborted",
        "at": "2026-06-09T12:00:00Z",
        "step": CELL,
        "phase": "P1",
        "reason": "killed",
        "compute_ms": 1,
        **fields,
    }


# Changes that break a rule between entries (C7 in the audit; refused by the gate as well).
HISTORY: dict[str, tuple[Change, str]] = {
    "input digest": (lambda p: step(p, CELL)["inputs"].update(items=OTHER), "inputs.items"),
    "input left out": (lambda p: step(p, CELL)["inputs"].pop("base:plain"), "inputs.base:plain"),
    "input added": (lambda p: step(p, CELL)["inputs"].update(extra=OTHER), "inputs.extra"),
    "seed": (lambda p: step(p, CELL).update(seed=12), "seed"),
    "seed removed": (lambda p: step(p, CELL).update(seed=None), "seed"),
    "code of a step": (lambda p: step(p, CELL).update(code=OTHER), "code"),
    "environment of a step": (lambda p: step(p, CELL).update(environment=OTHER), "environment"),
    "engine of a step": (lambda p: step(p, CELL).update(engine=OTHER), "engine"),
    "phase of a step": (lambda p: step(p, CELL).update(phase="P0"), "P0"),
    "output renamed": (
        lambda p: step(p, CELL)["outputs"].update(base=step(p, CELL)["outputs"].pop(OUTPUT)),
        "outputs",
    ),
    "output left out": (lambda p: step(p, CELL)["outputs"].clear(), "outputs"),
    "unknown step": (
        lambda p: step(p, CELL).update(step="P1/cells/marker/a/b/s1"),
        "promised step",
    ),
    "recorded twice": (lambda p: p.insert(len(p) - 2, dict(step(p, CELL))), "recorded twice"),
    "before its inputs": (lambda p: move(p, step(p, CELL), 12), "inputs.adapter"),
    "missing step": (lambda p: p.remove(step(p, CELL)), CELL),
    "open before the phase before it closed": (
        lambda p: move(p, find(p, "close", phase="P0"), len(p) - 1),
        "P0 closed before",
    ),
    "step before any session": (lambda p: move(p, find(p, "open"), 2), "an open session"),
    "step after the close": (
        lambda p: move(p, step(p, "P1/tensor/marker"), len(p) - 1),
        "P1/tensor/marker",
    ),
    "results of a close": (lambda p: find(p, "close", phase="P0").update(results=OTHER), "results"),
    "count of a close": (lambda p: find(p, "close", phase="P0").update(n_steps=8), "n_steps"),
    "cost of a close": (
        lambda p: find(p, "close", phase="P0").update(compute_ms=10**8),
        "compute_ms",
    ),
    "closed twice": (lambda p: p.append(dict(p[-1])), "an open session on P1"),
    "opened again after the close": (
        lambda p: p.append(dict(find(p, "open", phase="P1"))),
        "was closed before",
    ),
    "phase nobody promised": (lambda p: find(p, "open", phase="P0").update(phase="P7"), "P7"),
    "lock head of a session": (lambda p: find(p, "open").update(lock_head=OTHER), "lock_head"),
    "code of a session": (lambda p: find(p, "open").update(code=OTHER), "code"),
    "environment of a session": (
        lambda p: find(p, "open").update(environment=OTHER),
        "environment",
    ),
    "cap of a session": (lambda p: find(p, "open").update(cap_ms=500), "past the authorized cap"),
    "a step that overran": (
        lambda p: step(p, "P0/base/marker/baker").update(compute_ms=1_800_000),
        "past the authorized cap",
    ),
    "a killed attempt that overran": (
        lambda p: p.insert(
            3, aborted(step="P0/base/marker/plain", phase="P0", compute_ms=1_800_000)
        ),
        "past the authorized cap",
    ),
    "aborted, of no step": (lambda p: p.insert(14, aborted(step="P1/x")), "a promised step"),
    "aborted, of another phase": (
        lambda p: p.insert(14, aborted(step="P0/base/marker/plain")),
        "phase",
    ),
    "aborted, after its end": (lambda p: p.insert(14, aborted(step=FIT)), "was finished before"),
    "aborted, without a session": (lambda p: p.insert(0, aborted()), "an open session"),
    "amendment out of nowhere": (
        lambda p: p.insert(
            3,
            {
                "schema": "eps-locked/ledger/1",
                "kind": "amendment",
                "at": "2026-06-09T12:00:00Z",
                "number": 1,
                "amendment": OTHER,
                "signature": OTHER,
                "lock_head": OTHER,
                "rebind": {"code": OTHER},
            },
        ),
        "lock_head",
    ),
}


@pytest.mark.parametrize("name", HISTORY)
def test_a_rebuilt_chain_that_breaks_a_rule_is_refused_and_fails_the_audit(
    finished: StudySimulator, refuses: Any, name: str
) -> None:
    change, text = HISTORY[name]
    payloads = payloads_of(finished)
    change(payloads)
    rebuild(finished, payloads)
    audited = finished.audit()
    assert audited.checks[6].ok, "the chain itself was to be whole"
    assert any(text in failure for failure in audited.checks[7].failures)
    assert all("ledger.jsonl:" in failure for failure in audited.checks[7].failures)
    with refuses(finished) as caught:
        finished.run("P1")
    assert text in str(caught.value)


def test_an_attacker_who_changes_nothing_passes(finished: StudySimulator) -> None:
    """The tools themselves leave no trace, so what the other tests find is the change."""
    payloads = payloads_of(finished)
    carry_on(finished, payloads)
    rebuild(finished, payloads)
    assert list(finished.audit().failures()) == []


# Changes only the documents can contradict (C5).
SIGNED: dict[str, tuple[Change, str]] = {
    "a higher cap": (lambda p: find(p, "open").update(cap_ms=9_000_000), "cap_ms"),
    "not self-authorized": (lambda p: find(p, "open").update(self_authorized=False), "self_auth"),
    "another document": (
        lambda p: find(p, "open")["authorization"].update(document=OTHER),
        "a good document",
    ),
    "another signature": (
        lambda p: find(p, "open")["authorization"].update(signature=OTHER),
        "authorization.signature",
    ),
    "no document": (lambda p: find(p, "open")["authorization"].clear(), "a good document"),
    "the other phase's document": (
        lambda p: find(p, "open", phase="P0").update(
            authorization=find(p, "open", phase="P1")["authorization"]
        ),
        "phase",
    ),
    "begun after the expiry": (
        lambda p: find(p, "open").update(at="2026-06-11T12:00:00Z"),
        "2026-06-11T12:00:00Z",
    ),
    "begun before the leave": (
        lambda p: find(p, "open").update(at="2026-06-01T12:00:00Z"),
        "2026-06-01T12:00:00Z",
    ),
    "begun on no day": (lambda p: find(p, "open").update(at="2026-02-31T12:00:00Z"), "2026-02-31"),
}


@pytest.mark.parametrize("name", SIGNED)
def test_a_session_must_be_the_one_that_was_signed_for(finished: StudySimulator, name: str) -> None:
    change, text = SIGNED[name]
    payloads = payloads_of(finished)
    change(payloads)
    rebuild(finished, payloads)
    failures = finished.audit().checks[5].failures
    assert any(text in failure and "ledger.jsonl:1:" in failure for failure in failures), failures


def _halve(document: dict[str, Any]) -> None:
    for answer in document["answers"]:
        answer["own"]["log_prob"] /= 2


def _raise_all(document: dict[str, Any]) -> None:
    for answer in document["answers"]:
        for reading in (answer["own"], answer["frozen"]):
            reading["marker_logits"][0] += 1.0
            reading["log_prob"] += 1.0


def _other_items(document: dict[str, Any]) -> None:
    document["answers"].reverse()


# (step, output, file, change, what the audit says): caught by re-derivation (C10).
OUTPUTS: dict[str, tuple[str, str, str, Callable[[Any], object], str]] = {
    "a log-prob its logits do not give": (CELL, OUTPUT, "readings.json", _halve, "log_prob"),
    "readings the tensor does not follow": (
        CELL,
        OUTPUT,
        "readings.json",
        _raise_all,
        "P1/tensor/marker: cell baker -> polite: g",
    ),
    "answers in another order": (CELL, OUTPUT, "readings.json", _other_items, "items"),
    "readings of another context": (
        CELL,
        OUTPUT,
        "readings.json",
        lambda d: d.update(context="plain"),
        "context: expected polite, found plain",
    ),
    "readings of another behaviour": (
        CELL,
        OUTPUT,
        "readings.json",
        lambda d: d.update(behaviour="warmth"),
        "behaviour",
    ),
    "an answer left out": (
        CELL,
        OUTPUT,
        "readings.json",
        lambda d: d["answers"].pop(),
        "items",
    ),
    "no second reading": (
        CELL,
        OUTPUT,
        "readings.json",
        lambda d: d["answers"][0].update(frozen=None),
        "second reading",
    ),
    "a base that says more": (
        "P0/base/marker/polite",
        "base",
        "readings.json",
        lambda d: d["answers"].append(d["answers"][0]),
        "items",
    ),
    "training answers of another context": (
        "P0/answers/marker/officer",
        "answers",
        "readings.json",
        lambda d: d.update(context="curious"),
        "context",
    ),
    "a headroom of one's own": (
        "P0/headroom/marker",
        "headroom",
        "record.json",
        lambda d: d["base_log_prob"].update(baker=-1.5),
        "headroom/record.json",
    ),
    "a matched step of one's own": (
        "P1/match/marker/s11",
        "match",
        "record.json",
        lambda d: d.update(matched_step=19),
        "match/record.json",
    ),
    "a fit that names another adapter": (
        FIT,
        "fit",
        "record.json",
        lambda d: d.update(adapter=OTHER),
        "record.adapter",
    ),
    "a fit that calls itself deferred": (
        FIT,
        "fit",
        "record.json",
        lambda d: d.update(deferred=True),
        "deferred",
    ),
    "a strength of one's own": (
        "P1/adapter/marker/baker/s11",
        "record",
        "record.json",
        lambda d: d.update(realised_strength=11.5),
        "record/record.json",
    ),
    "a tensor of one's own": (
        "P1/tensor/marker",
        "tensor",
        "tensor.json",
        lambda d: d["cells"][1].update(g=99.0),
        "cell baker -> polite: g: expected",
    ),
    "a tensor without its cells": (
        "P1/tensor/marker",
        "tensor",
        "tensor.json",
        lambda d: d.update(cells=[]),
        "cells",
    ),
    "a tensor of another title": (
        "P1/tensor/marker",
        "tensor",
        "tensor.json",
        lambda d: d.update(unit="bits"),
        "unit",
    ),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_output_its_inputs_do_not_give_fails_the_derivation(
    finished: StudySimulator, name: str
) -> None:
    identifier, output, file, change, text = OUTPUTS[name]
    payloads = payloads_of(finished)
    contents = output_files(finished, payloads, identifier, output)
    contents[file] = edit_json(contents[file], change)
    put_output(finished, payloads, identifier, output, contents)
    carry_on(finished, payloads)
    rebuild(finished, payloads)
    audited = finished.audit()
    assert all(audited.checks[number].ok for number in (5, 6, 7, 8))
    assert any(text in failure for failure in audited.checks[10].failures)


def test_a_parquet_table_of_other_values_fails_the_derivation(finished: StudySimulator) -> None:
    import io

    import pyarrow as pa
    import pyarrow.parquet as pq

    payloads = payloads_of(finished)
    contents = output_files(finished, payloads, "P1/tensor/marker", "tensor")
    table = pq.read_table(io.BytesIO(contents["tensor.parquet"])).to_pylist()
    table[0]["g"] += 1.0
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(table), sink, compression="none")
    contents["tensor.parquet"] = sink.getvalue()
    put_output(finished, payloads, "P1/tensor/marker", "tensor", contents)
    carry_on(finished, payloads)
    rebuild(finished, payloads)
    assert any("tensor.parquet" in f for f in finished.audit().checks[10].failures)


# A status or a flag is a claim like any other: the stored bytes say which it should be.
CLAIMS: dict[str, tuple[str, dict[str, Any], str]] = {
    "an implant that took, called failed": (
        CELL,
        {"status": "implant_failed"},
        "status: expected done, found implant_failed",
    ),
    "a cell called unscored": (CELL, {"status": "unscored"}, "status"),
    "a headroom called failed": ("P0/headroom/marker", {"status": "failed"}, "status"),
    "an answer called cut": (
        "P0/base/marker/plain",
        {"flags": ["truncated_answers"]},
        "flags",
    ),
    "a fit called overshot": (FIT, {"flags": ["overshoot"]}, "flags"),
    "an adapter called matched": (
        "P1/adapter/marker/baker/s11",
        {"flags": ["band_unreachable", "step_matched"]},
        "flags",
    ),
    "a tensor with a flag": ("P1/tensor/marker", {"flags": ["fine"]}, "flags"),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claimed_status_or_flag_that_the_bytes_do_not_give_fails(
    finished: StudySimulator, name: str
) -> None:
    identifier, claim, text = CLAIMS[name]
    payloads = payloads_of(finished)
    step(payloads, identifier).update(claim)
    carry_on(finished, payloads)
    rebuild(finished, payloads)
    failures = finished.audit().checks[10].failures
    assert any(failure.startswith(identifier) and text in failure for failure in failures)


def test_bytes_swapped_under_an_unchanged_artifact_digest_fail(
    finished: StudySimulator, refuses: Any
) -> None:
    """The entry lists the new bytes, the folder holds them, and only the name is a lie."""
    payloads = payloads_of(finished)
    artifact = step(payloads, CELL)["outputs"][OUTPUT]
    contents = output_files(finished, payloads, CELL, OUTPUT)
    contents["readings.json"] = edit_json(contents["readings.json"], _raise_all)
    folder = finished.run_folder.artifact_folder(artifact["digest"])
    (folder / "readings.json").write_bytes(contents["readings.json"])
    kept = dict(artifact)
    put_output(finished, payloads, CELL, OUTPUT, contents)
    listed = step(payloads, CELL)["outputs"][OUTPUT]
    finished.run_folder.artifact_folder(listed["digest"]).rename(folder)
    listed["digest"] = kept["digest"]
    rebuild(finished, payloads)
    audited = finished.audit()
    assert audited.checks[6].ok
    assert audited.checks[7].ok
    assert any("the digest of the files it lists" in f for f in audited.checks[8].failures)
    with refuses(finished) as caught:
        finished.run("P1")
    assert kept["digest"] in str(caught.value)


def test_an_adapter_swapped_on_disk_refuses_by_name(finished: StudySimulator, refuses: Any) -> None:
    payloads = payloads_of(finished)
    one, two = (
        finished.run_folder.artifact_folder(
            step(payloads, f"P1/adapter/marker/{name}/s11")["outputs"]["adapter"]["digest"]
        )
        / "adapter_model.safetensors"
        for name in ("baker", "polite")
    )
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    with refuses(finished) as caught:
        finished.run("P1")
    assert "adapter_model.safetensors" in str(caught.value)
    failures = finished.audit().checks[8].failures
    assert any(str(one) in f for f in failures)
    assert any(str(two) in f for f in failures)


@pytest.mark.parametrize(
    ("mine", "theirs", "field"),
    [("baker/s11", "polite/s11", "context"), ("baker/s11", "baker/s12", "seed")],
)
def test_an_adapter_swapped_with_the_chain_rebuilt_fails_the_lineage(
    finished: StudySimulator, mine: str, theirs: str, field: str
) -> None:
    """Fit, adapter and record change places together; the file still says whose it is."""
    payloads = payloads_of(finished)
    for kind in ("fit", "adapter"):
        one, two = (step(payloads, f"P1/{kind}/marker/{name}") for name in (mine, theirs))
        one["outputs"], two["outputs"] = two["outputs"], one["outputs"]
    carry_on(finished, payloads)
    rebuild(finished, payloads)
    audited = finished.audit()
    assert all(audited.checks[number].ok for number in (6, 7, 8))
    assert any(
        failure.startswith(f"P1/adapter/marker/{mine}: adapter {field}")
        for failure in audited.checks[9].failures
    )


def test_one_adapter_that_serves_two_cells_fails_the_lineage(finished: StudySimulator) -> None:
    payloads = payloads_of(finished)
    one, two = (step(payloads, f"P1/adapter/marker/{name}/s11") for name in ("baker", "polite"))
    contents = output_files(finished, payloads, one["step"], "adapter")
    put_output(finished, payloads, two["step"], "adapter", contents)
    carry_on(finished, payloads)
    rebuild(finished, payloads)
    assert any("polite" in f for f in finished.audit().checks[9].failures)


def test_a_rebuilt_chain_of_a_smoke_root_is_no_run(finished: StudySimulator, refuses: Any) -> None:
    rebuild(finished, payloads_of(finished), root="smoke")
    with refuses(finished) as caught:
        finished.run("P1")
    assert "ledger.jsonl:1: prev" in str(caught.value)


# What an amendment says is computed, not claimed; and only its signed document can rebind.
AMENDMENTS: dict[str, tuple[dict[str, Any], str]] = {
    "seen less than there was": ({"seen": "nothing_run"}, "seen"),
    "another place in the chain": ({"ledger_head": OTHER}, "ledger_head"),
    "another manifest": ({"manifest": OTHER}, "manifest"),
    "another name": ({"name": "large"}, "name"),
    "another predecessor": ({"previous_lock_head": OTHER}, "previous_lock_head"),
    "a number skipped": ({"number": 2}, "number"),
}


@pytest.mark.parametrize("name", AMENDMENTS)
def test_an_amendment_that_its_signer_lied_in_is_refused(
    finished: StudySimulator, refuses: Any, name: str
) -> None:
    from eps_locked.canonical import digest_bytes
    from eps_locked.lock.history import next_lock_head

    change, text = AMENDMENTS[name]
    folder = finished.amend()
    payload = {**document_payload(folder), **change}
    resign(folder, payload, key=finished.key(AUTHOR), namespace="eps-locked-amendment")
    payloads = payloads_of(finished)
    digest = seal_document(payload)[1]
    payloads[-1].update(
        amendment=digest,
        signature=digest_bytes((folder / "document.json.sig").read_bytes()),
        lock_head=next_lock_head(finished.load().digest, digest),
    )
    rebuild(finished, payloads)
    assert any(f": {text}: expected" in f for f in finished.audit().checks[5].failures)
    with refuses(finished) as caught:
        finished.run("P1")
    assert f": {text}: expected" in str(caught.value)


def test_a_rebinding_that_nobody_signed_is_refused(half_way: StudySimulator, refuses: Any) -> None:
    half_way.amend()
    payloads = payloads_of(half_way)
    half_way.code = {"eps_locked/a.py": OTHER}
    from eps_locked.canonical import digest_value

    payloads[-1]["rebind"] = {"code": digest_value(half_way.code)}
    rebuild(half_way, payloads)
    half_way.authorize("P1")
    with refuses(half_way) as caught:
        half_way.run("P1")
    assert "rebind" in str(caught.value)
    assert any("rebind" in f for f in half_way.audit().checks[5].failures)


# Anything may stand in an artifact whose digests are right. None of it may crash the audit.
GARBAGE: list[bytes] = [
    b"",
    b"\x00\xff",
    b"null",
    b"[]",
    b"{}",
    b'"text"',
    b"17",
    b"[[[]]]",
    b'{"answers":[null],"behaviour":"marker","context":"baker","schema":"eps-locked/eps-readings/1"}',
    b'{"answers":[],"behaviour":"marker","context":"baker","schema":"eps-locked/eps-readings/1"}',
    b'{"adapter":null,"deferred":1,"matched_step":"x","stop":[],"stop_step":{},"unreachable":7}',
    b'{"deferred":false,"stop":{}}',
    b'{"cells":7}',
    b'{"cells":[7,null,{}]}',
    encode({"a": "b" * 100_000}),
    b"[" * 20_000 + b"]" * 20_000,
    (40).to_bytes(8, "little") + b'{"__metadata__":[1,2,3]}'.ljust(40),
    (2**62).to_bytes(8, "little") + b"{}",
    (4).to_bytes(8, "little") + b"[[[[",
]

TARGETS = [
    ("P0/answers/marker/baker", "answers"),
    ("P0/base/marker/baker", "base"),
    ("P0/headroom/marker", "headroom"),
    (FIT, "fit"),
    ("P1/match/marker/s11", "match"),
    ("P1/adapter/marker/baker/s11", "adapter"),
    ("P1/adapter/marker/baker/s11", "record"),
    (CELL, DIAGONAL),
    ("P1/tensor/marker", "tensor"),
]


@pytest.mark.parametrize(("identifier", "output"), TARGETS)
def test_garbage_in_an_artifact_is_a_failure_and_never_a_crash(
    tiny: StudySimulator, identifier: str, output: str
) -> None:
    original = payloads_of(tiny)
    contents = output_files(tiny, original, identifier, output)
    identifier = identifier.replace("diagonal", "baker")
    for garbage in GARBAGE:
        for file in contents:
            payloads = payloads_of(tiny)
            put_output(tiny, payloads, identifier, output, {**contents, file: garbage})
            carry_on(tiny, payloads)
            rebuild(tiny, payloads)
            audited = tiny.audit()
            assert audited.checks[8].ok
            failures = audited.checks[9].failures + audited.checks[10].failures
            assert any(identifier in failure for failure in failures), (file, garbage[:60])


@pytest.mark.parametrize(("identifier", "output"), TARGETS)
def test_an_artifact_of_other_files_is_a_failure_and_never_a_crash(
    tiny: StudySimulator, identifier: str, output: str
) -> None:
    for contents in ({"strange.txt": b"hello"}, {"a/b/c.json": b"{}"}):
        payloads = payloads_of(tiny)
        put_output(tiny, payloads, identifier, output, contents)
        carry_on(tiny, payloads)
        rebuild(tiny, payloads)
        audited = tiny.audit()
        failures = audited.checks[9].failures + audited.checks[10].failures
        assert any(identifier in failure for failure in failures)


@pytest.mark.parametrize("name", ["../../../secret/author", "/etc/passwd", "a/../../x", ""])
def test_an_artifact_file_name_that_climbs_out_is_refused(
    finished: StudySimulator, refuses: Any, name: str
) -> None:
    from eps_locked.domain.ledger import FileRecord
    from eps_locked.lock.workspace import artifact_digest

    payloads = payloads_of(finished)
    artifact = step(payloads, CELL)["outputs"][OUTPUT]
    artifact["files"][name] = artifact["files"].pop("readings.json")
    records = {n: FileRecord.from_dict(r, n) for n, r in artifact["files"].items()}
    artifact["digest"] = artifact_digest(records)
    carry_on(finished, payloads)
    rebuild(finished, payloads)
    with refuses(finished):
        finished.run("P1")
    assert finished.audit().checks[8].failures


def test_a_ledger_of_nothing_but_rubbish_lines_lists_every_line(finished: StudySimulator) -> None:
    write_lines(finished, [b"{}", b"null", b'{"digest":1,"payload":{}}', b"\xff"])
    audited = finished.audit()
    assert len(audited.checks[6].failures) >= 4
    assert audited.ledger_head is None
