"""A finished study for the report, audited once; the page's own reader."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from eps_locked.report.page import report_files
from sim.simulator import COLLEAGUE, StudySimulator

# Helpers beside the tests are plain modules, and importlib mode puts no folder on the path.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def amended_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The report of a study with an evil title, two amendments, and a colleague's signature."""
    from words import EVIL, REASON

    study = StudySimulator(root=tmp_path_factory.mktemp("amended") / "study")
    study.plan["title"] = EVIL
    study.freeze()
    study.authorize("P0")
    study.run("P0")
    study.amend(REASON)
    study.authorize("P1", signer=COLLEAGUE)
    study.run("P1")
    study.amend("A word in the title is wrong.")
    return report_files(study.audit())
