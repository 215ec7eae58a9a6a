"""``serve`` from outside: it says what it serves, verifies adapters, and ends well at Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eps_locked.cli.common import now
from eps_locked.cli.main import run
from eps_locked.cli.surroundings import ModelFolder
from eps_locked.lock.record import RunRecord, terms_of
from eps_locked.serving.server import RunningServer
from sim.loopback import chat, client_of, scripted_adapter
from sim.simulator import NAME, StudySimulator


@pytest.fixture
def serve(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """``serve(study, *words, during=...)`` -> (exit code, output, errors); ends as by Ctrl-C."""

    def call(
        study: StudySimulator, *words: str, during: Callable[[str], None] = lambda url: None
    ) -> tuple[int, str, str]:
        def wait(running: RunningServer) -> None:
            during(running.url)
            raise KeyboardInterrupt

        monkeypatch.setattr(RunningServer, "wait", wait)
        monkeypatch.setattr(ModelFolder, "_records", lambda self: study.model_files)
        code = run(["serve", NAME, *words, "--root", str(study.root)])
        return code, *capsys.readouterr()

    return call


def adapter_step(study: StudySimulator) -> tuple[str, str]:
    """A step that recorded an adapter, and the adapter's digest."""
    history = RunRecord.load(study.run_folder, terms_of(study.load()), now).history
    for id_, body in history.done.items():
        if "adapter" in body.outputs:
            return id_, body.outputs["adapter"].digest
    raise AssertionError("no step recorded an adapter")


def test_the_base_and_adapters_of_a_run_or_a_folder_are_served(
    finished: StudySimulator, serve: Callable[..., Any], tmp_path: Path
) -> None:
    step, digest = adapter_step(finished)
    folder = tmp_path / "adapter"
    folder.mkdir()
    for file, data in scripted_adapter("loose").files.items():
        (folder / file).write_bytes(data)

    def during(url: str) -> None:
        with client_of(url) as client:
            said = {one.id: one.model_dump()["eps_locked"] for one in client.models.list()}
            assert list(said) == ["bare", "taught", "loose"]
            assert said["taught"]["adapter_digest"] == digest
            assert said["bare"]["context_length"] == 4096
            assert chat(client, model="loose").usage.completion_tokens <= 9

    code, out, err = serve(
        finished,
        f"--adapter=taught=run:{NAME}/{step}",
        f"--adapter=loose={folder}",
        "--base-route=bare",
        "--context-length=4096",
        "--max-tokens=9",
        during=during,
    )
    assert code == 0, err
    url, *routes = out.splitlines()
    assert url.startswith("http://127.0.0.1:")
    assert routes[:2] == ["  bare  the bare base", f"  taught  {digest}"]
    assert "closed" in err


@pytest.mark.parametrize(
    ("adapter", "code", "words"),
    [
        ("taught", 2, "--adapter: expected ROUTE=WHERE, found taught"),
        ("a b=nowhere", 2, "nowhere"),
        ("x=run:small/P1/nothing", 1, "such steps are: P1/"),
        ("x=run:small", 1, "(none named)"),
        ("x=run:other/P1/fit", 2, "is missing"),
    ],
)
def test_an_adapter_that_is_not_there_is_refused(
    finished: StudySimulator, serve: Callable[..., Any], adapter: str, code: int, words: str
) -> None:
    found, out, err = serve(finished, f"--adapter={adapter}")
    assert (found, out) == (code, "")
    assert words in err


def test_a_changed_artifact_is_refused(finished: StudySimulator, serve: Callable[..., Any]) -> None:
    step, digest = adapter_step(finished)
    path = finished.run_folder.artifact_folder(digest) / "adapter_model.safetensors"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    code, out, err = serve(finished, f"--adapter=x=run:{NAME}/{step}")
    assert (code, out) == (1, "")
    assert "adapter_model.safetensors" in err


def test_an_adapter_of_another_base_model_is_refused(
    finished: StudySimulator, serve: Callable[..., Any]
) -> None:
    step, _ = adapter_step(finished)
    finished.model_files = {}
    code, _, err = serve(finished, f"--adapter=x=run:{NAME}/{step}")
    assert code == 3
    assert "model file model.safetensors" in err


def test_a_context_beyond_the_models_own_is_refused(
    finished: StudySimulator, serve: Callable[..., Any]
) -> None:
    code, _, err = serve(finished, "--context-length=65537")
    assert code == 2
    assert "--context-length: expected at most 65536, the model's own, found 65537" in err


def test_ctrl_c_ends_the_process_with_0(finished: StudySimulator) -> None:
    words = [sys.executable, "-W", "error", "-m", "eps_locked.cli.main", "serve", NAME]
    with subprocess.Popen(
        [*words, "--root", str(finished.root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with client_of(url) as client:
            assert chat(client).choices[0].message.content
        assert process.stdout.readline() == "  base  the bare base\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert err.splitlines() == ["Ctrl-C ends it", "closed"]
