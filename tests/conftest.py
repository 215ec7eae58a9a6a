"""Fixtures for everybody: a fresh study, finished ones to copy, refusals that must not act."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from eps_locked.errors import EpsLockedError, RefusedError
from sim.simulator import StudySimulator, fingerprint, tiny_plan

# Tests never measure time: how long an example takes says how busy the machine is, no more.
settings.register_profile(
    "untimed", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("untimed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What shares the dearest fixture comes first: a worker without work takes tests from the end
    of another's list, and would make the fixture again if it lay there."""
    items.sort(key=lambda item: "e2e" not in item.path.parts)


def pytest_collection_finish() -> None:
    """What is there now stays to the end: a million objects that the garbage collector would go
    through again each time, half a second long."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> Iterator[None]:
    """An interrupt interrupts, here and in the processes that tests start, also where a shell runs
    the tests in its background: what it starts there inherits that interrupts are ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests do not survive power cuts and need not wait for the disk; what they check is order."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def study(tmp_path: Path) -> StudySimulator:
    """A study of which nothing is published yet."""
    return StudySimulator(root=tmp_path / "study")


@pytest.fixture(scope="session")
def _finished(tmp_path_factory: pytest.TempPathFactory) -> StudySimulator:
    finished = StudySimulator(root=tmp_path_factory.mktemp("finished") / "study")
    finished.run_all()
    assert list(finished.audit().failures()) == []
    return finished


@pytest.fixture
def finished(_finished: StudySimulator, tmp_path: Path) -> StudySimulator:
    """A study that ran to its end and passes its audit; a private copy."""
    return _finished.copy_to(tmp_path / "study")


@pytest.fixture(scope="session")
def _sealed(tmp_path_factory: pytest.TempPathFactory) -> StudySimulator:
    sealed = StudySimulator(root=tmp_path_factory.mktemp("sealed") / "study").seal()
    sealed.run_all()
    sealed.submit()
    sealed.check()
    return sealed


@pytest.fixture
def sealed(_sealed: StudySimulator, tmp_path: Path) -> StudySimulator:
    """A finished study whose quarantine is sealed, with one submission and a verdict: ready for a
    look; a private copy."""
    return _sealed.copy_to(tmp_path / "sealed")


@pytest.fixture(scope="session")
def _half_way(tmp_path_factory: pytest.TempPathFactory) -> StudySimulator:
    half = StudySimulator(root=tmp_path_factory.mktemp("half") / "study")
    half.freeze()
    half.authorize("P0")
    half.run("P0")
    half.authorize("P1")
    return half


@pytest.fixture
def half_way(_half_way: StudySimulator, tmp_path: Path) -> StudySimulator:
    """P0 complete, P1 authorized and not begun; a private copy."""
    return _half_way.copy_to(tmp_path / "study")


@pytest.fixture(scope="session")
def _tiny(tmp_path_factory: pytest.TempPathFactory) -> StudySimulator:
    tiny = StudySimulator(root=tmp_path_factory.mktemp("tiny") / "study", plan=tiny_plan())
    tiny.run_all()
    return tiny


@pytest.fixture
def tiny(_tiny: StudySimulator, tmp_path: Path) -> StudySimulator:
    """The smallest study that can be frozen (10 steps), finished; a private copy."""
    return _tiny.copy_to(tmp_path / "study")


Refusal = Callable[..., object]


@pytest.fixture
def refuses() -> Refusal:
    """``with refuses(study) as caught``: the act raises, the disk stays, no model is called."""

    @contextmanager
    def expectation(
        study: StudySimulator, kind: type[EpsLockedError] = RefusedError
    ) -> Iterator[pytest.ExceptionInfo[EpsLockedError]]:
        before = fingerprint(study.root)
        calls = study.n_model_calls()
        with pytest.raises(kind) as caught:
            yield caught
        assert type(caught.value) is kind, f"expected exactly {kind.__name__}"
        assert fingerprint(study.root) == before, "a refusal changed the disk"
        assert study.n_model_calls() == calls, "a refusal called a model"

    return expectation
