"""Commands typed in this process, in a study on the scripted model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pytest

from eps_locked.cli import surroundings
from eps_locked.cli.main import run
from eps_locked.lock.provenance import resolved_environment, source_tree
from sim.simulator import AUTHOR, StudySimulator


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a command printed."""

    out: str
    err: str


Typed = Callable[..., Said]


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Typed:
    """``typed(study, "status", "small", code=0)`` -> what it printed, if it ended so.

    Our sources and the environment are measured once: they are the same for every command.
    """
    monkeypatch.setattr(surroundings, "source_tree", _sources)
    monkeypatch.setattr(surroundings, "resolved_environment", _environment)

    def call(study: StudySimulator, *words: str, code: int = 0, root: bool = True) -> Said:
        monkeypatch.setenv("EPS_LOCKED_KEY", str(study.key(AUTHOR)))
        found = run([*words, *(["--root", str(study.root)] if root else [])])
        captured = capsys.readouterr()
        assert found == code, captured.out + captured.err
        return Said(out=captured.out, err=captured.err)

    return call


_sources = cache(source_tree)
_environment = cache(resolved_environment)
