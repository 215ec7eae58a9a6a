"""Lines dropped, added, swapped, repeated, moved, cut off, or taken from another run's ledger."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sim.forge import find, lines_of, payloads_of, rebuild, write_head, write_lines
from sim.simulator import StudySimulator

Edit = Callable[[list[bytes]], list[bytes]]

# The number of the first line whose predecessor is no longer the one it names.
EDITS: dict[str, tuple[Edit, int]] = {
    "first dropped": (lambda lines: lines[1:], 1),
    "middle dropped": (lambda lines: lines[:4] + lines[5:], 5),
    "one added": (lambda lines: [*lines[:4], lines[2], *lines[4:]], 5),
    "two swapped": (lambda lines: [*lines[:3], lines[4], lines[3], *lines[5:]], 4),
    "one repeated": (lambda lines: [*lines[:5], lines[4], *lines[5:]], 6),
    "all reversed": (lambda lines: lines[::-1], 1),
    "last repeated": (lambda lines: [*lines, lines[-1]], 12),
    "blank line": (lambda lines: [*lines[:4], b"", *lines[4:]], 5),
    "line of text": (lambda lines: [*lines, b"looks good to me"], 12),
    "space at the end": (lambda lines: [*lines[:4], lines[4] + b" ", *lines[5:]], 5),
    "windows line end": (lambda lines: [*lines[:4], lines[4] + b"\r", *lines[5:]], 5),
    "other key order": (
        lambda lines: [lines[0].replace(b'{"digest":', b'{ "digest":', 1), *lines[1:]],
        1,
    ),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_ledger_refuses_and_fails_the_audit_at_its_line(
    half_way: StudySimulator, refuses: Any, name: str
) -> None:
    edit, number = EDITS[name]
    lines = lines_of(half_way)
    assert len(lines) == 11
    write_lines(half_way, edit(lines))
    with refuses(half_way) as caught:
        half_way.run("P1")
    assert f"ledger.jsonl:{number}" in str(caught.value)
    failures = half_way.audit().checks[6].failures
    assert any(f"ledger.jsonl:{number}" in failure for failure in failures)


@pytest.mark.parametrize("n_kept", [0, 1, 5, 10])
def test_a_ledger_cut_short_does_not_end_where_its_head_says(
    half_way: StudySimulator, refuses: Any, n_kept: int
) -> None:
    write_lines(half_way, lines_of(half_way)[:n_kept])
    with refuses(half_way) as caught:
        half_way.run("P1")
    assert "head.json" in str(caught.value)
    assert any("head.json" in failure or "empty" in failure for failure in _failures(half_way, 6))


@pytest.mark.parametrize("n_kept", [0, 1, 5, 8])
def test_a_ledger_cut_short_with_its_head_leaves_artifacts_that_no_entry_names(
    half_way: StudySimulator, refuses: Any, n_kept: int
) -> None:
    """More orphans than one interrupted step explains: nothing that was evidence is set aside."""
    payloads = payloads_of(half_way)[:n_kept]
    if payloads:
        rebuild(half_way, payloads)
    else:
        half_way.run_folder.ledger_path.unlink()
        half_way.run_folder.head_path.unlink()
    with refuses(half_way) as caught:
        half_way.run("P0")
    assert "is shorter than the artifacts it should name" in str(caught.value)
    assert _failures(half_way, 8)


def test_one_step_cut_off_with_its_head_is_told_apart_only_by_a_published_head(
    half_way: StudySimulator,
) -> None:
    """What a crash between artifact and entry leaves looks the same: the step is redone and its
    first artifact kept in aside/. Published heads are for this (docs/lock.md)."""
    published = payloads_of(half_way)
    rebuild(half_way, published[:9])
    digest = published[9]["outputs"]["headroom"]["digest"].removeprefix("blake3:")
    results = half_way.run("P0")
    assert results == find(published, "close", phase="P0")["results"]
    assert (half_way.run_folder.aside / f"0001-{digest}" / "record.json").exists()


def test_the_spliced_ledgers_of_two_runs_of_one_manifest_refuse(
    half_way: StudySimulator, tmp_path: Path, refuses: Any
) -> None:
    other = half_way.copy_to(tmp_path / "other")
    for path in (other.run_folder.ledger_path, other.run_folder.head_path):
        path.unlink()
    for folder in other.run_folder.artifacts.iterdir():
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
    other.authorize("P0", cap_gpu_hours=0.4)
    other.run("P0", authorization="P0-0002")
    mine, theirs = lines_of(half_way), lines_of(other)
    assert len(mine) == len(theirs)
    assert mine[0] != theirs[0]
    for cut in (1, 5, 10):
        write_lines(half_way, mine[:cut] + theirs[cut:])
        with refuses(half_way) as caught:
            half_way.run("P1")
        assert f"ledger.jsonl:{cut + 1}: prev" in str(caught.value)
    write_lines(half_way, theirs)
    with refuses(half_way) as caught:
        half_way.run("P1")
    assert "head.json" in str(caught.value)


def test_a_head_that_names_another_entry_refuses(half_way: StudySimulator, refuses: Any) -> None:
    digest = "blake3:" + "0" * 64
    write_head(half_way, 10, digest)
    with refuses(half_way) as caught:
        half_way.run("P1")
    assert digest in str(caught.value)
    half_way.run_folder.head_path.unlink()
    with refuses(half_way) as caught:
        half_way.run("P1")
    assert "head.json: is missing" in str(caught.value)


@pytest.mark.parametrize(
    "garbage", [b"null", b"{}", b"[]", b"7", b'{"digest":null,"payload":null}', b"\xff\xfe", b""]
)
@pytest.mark.parametrize("name", ["ledger.jsonl", "head.json", "running.json"])
def test_garbage_in_the_record_is_a_refusal_that_names_its_file(
    half_way: StudySimulator, refuses: Any, name: str, garbage: bytes
) -> None:
    path = half_way.run_folder.folder / name
    path.write_bytes(garbage + (b"\n" if name == "ledger.jsonl" else b""))
    with refuses(half_way) as caught:
        half_way.run("P1")
    assert name in str(caught.value)
    assert any(name in failure for _, failure in half_way.audit().failures())


def _failures(study: StudySimulator, number: int) -> list[str]:
    return study.audit().checks[number].failures


def test_an_earlier_verdict_tells_of_a_ledger_that_was_cut(half_way: StudySimulator) -> None:
    """One step cut off with its head looks like a crash, unless somebody looked before."""
    from eps_locked.audit.checks import verdict_payload
    from eps_locked.lock.envelope import seal_document

    verdict = seal_document(verdict_payload(half_way.audit(), "blake3:" + "a" * 64))[0]
    half_way.run_folder.verdicts.mkdir()
    (half_way.run_folder.verdicts / "a.json").write_bytes(verdict)
    assert half_way.audit().checks[13].ok
    rebuild(half_way, payloads_of(half_way)[:9])
    half_way.run("P0")
    assert any("a.json: ledger_head" in f for f in half_way.audit().checks[13].failures)
