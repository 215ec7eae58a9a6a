"""A disk that fills up at every write in turn; and a real one. Nothing is lost, and it resumes."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from eps_locked import files
from eps_locked.errors import BackendError, EpsLockedError
from sim.simulator import StudySimulator, tiny_plan

N_POINTS = {"P0": 58, "P1": 68}


@pytest.fixture(scope="session")
def ready_for(tmp_path_factory: pytest.TempPathFactory) -> dict[str, StudySimulator]:
    first = StudySimulator(root=tmp_path_factory.mktemp("disk0") / "study", plan=tiny_plan())
    first.freeze()
    first.authorize("P0")
    second = first.copy_to(tmp_path_factory.mktemp("disk1") / "study")
    second.run("P0")
    second.authorize("P1")
    return {"P0": first, "P1": second}


@pytest.fixture(scope="session")
def results_of(
    ready_for: dict[str, StudySimulator], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str | None]:
    return {
        phase: study.copy_to(tmp_path_factory.mktemp(f"wanted{phase}") / "study").run(phase)
        for phase, study in ready_for.items()
    }


@pytest.mark.parametrize(
    ("phase", "n"), [(phase, n) for phase in N_POINTS for n in range(1, N_POINTS[phase] + 1)]
)
def test_a_disk_full_from_the_nth_write_on_ends_the_run_and_it_resumes(
    ready_for: dict[str, StudySimulator],
    results_of: dict[str, str | None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    phase: str,
    n: int,
) -> None:
    study = ready_for[phase].copy_to(tmp_path / "study")
    calls = 0

    def full(path: Path, stage: str) -> None:
        nonlocal calls
        calls += 1
        if calls >= n and stage != "unlink":  # removing works on a full disk
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(files, "write_point", full)
        try:
            results, refused = study.run(phase), None
        except BackendError as error:
            results, refused = None, error
    if refused is None:
        assert results == results_of[phase]
        assert calls == n, "only a last act that frees space may pass"
    else:
        assert "No space left on device" in str(refused)
        assert "free space" in str(refused.next_step)
    assert study.run_folder.torn_end() == b"", "a line that did not fit is taken back"
    assert study.run(phase) == results_of[phase]
    failing = {number for number, _ in study.audit().failures()}
    assert failing == ({11} if phase == "P0" else set())


@pytest.mark.parametrize("n", range(1, 60, 4))
def test_a_write_that_ends_halfway_is_no_line_and_no_file(
    ready_for: dict[str, StudySimulator],
    results_of: dict[str, str | None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    n: int,
) -> None:
    """The kernel takes some of the bytes, then none: what a real full disk does."""
    study = ready_for["P0"].copy_to(tmp_path / "study")
    genuine, calls = os.write, 0

    def short(descriptor: int, data: bytes) -> int:
        nonlocal calls
        calls += 1
        if calls > n:
            raise OSError(errno.ENOSPC, "No space left on device")
        return genuine(descriptor, data[: len(data) // 2 + 1])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", short)
        with pytest.raises(BackendError, match="No space left"):
            study.run("P0")
    assert study.run_folder.torn_end() == b""
    assert study.run("P0") == results_of["P0"]


def test_short_writes_alone_are_no_error(
    ready_for: dict[str, StudySimulator],
    results_of: dict[str, str | None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study = ready_for["P0"].copy_to(tmp_path / "study")
    genuine = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: genuine(fd, data[: len(data) // 3 + 1]))
    assert study.run("P0") == results_of["P0"]
    assert {number for number, _ in study.audit().failures()} == {11}


@pytest.mark.parametrize("n", [1, 2, 9, 17])
def test_a_freeze_on_a_full_disk_leaves_no_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    study = StudySimulator(root=tmp_path / "study", plan=tiny_plan())
    study.write_plan()
    calls = 0

    def full(path: Path, stage: str) -> None:
        nonlocal calls
        calls += 1
        if calls >= n:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(files, "write_point", full)
        with pytest.raises(BackendError, match="No space left"):
            study.freeze()
    assert not study.manifest_folder.exists()
    assert study.freeze()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 900 KiB, where we may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=900k,nr_inodes=2000", "tmpfs", str(folder)]
    try:
        mounted = (
            os.geteuid() == 0
            and subprocess.run(command, capture_output=True, check=False).returncode == 0
        )
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("mounting a small file system needs root and leave to mount")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_real_full_disk_ends_the_run_and_it_resumes(
    ready_for: dict[str, StudySimulator], results_of: dict[str, str | None], small_disk: Path
) -> None:
    study = ready_for["P1"].copy_to(small_disk / "study")
    ballast = small_disk / "ballast"
    with ballast.open("wb", buffering=0) as stream, suppress(OSError):
        while stream.write(b"x" * 4096):
            pass
    for kept in (12, 8, 8):
        os.truncate(ballast, max(0, ballast.stat().st_size - kept * 1024))
        with pytest.raises(EpsLockedError) as caught:
            study.run("P1")
        assert isinstance(caught.value, BackendError)
        assert "No space left" in str(caught.value)
    ballast.unlink()
    assert study.run("P1") == results_of["P1"]
    assert study.audit().ok
    shutil.rmtree(study.root)
