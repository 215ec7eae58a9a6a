"""A finished study for the report, audited once; the page's own reader."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from eps_locked.report.evidence import Finding
from eps_locked.report.page import files_of, report_files
from eps_locked.report.tensors import gather
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


@pytest.fixture(scope="session")
def full_report(
    tmp_path_factory: pytest.TempPathFactory, _finished: StudySimulator
) -> tuple[bytes, dict[str, bytes]]:
    """A page with everything on it, and all files: sealed tensors of three kinds of row, judges,
    findings, scores, looks, a pool."""
    from big import big_tensor, sealed
    from documents import final_document, look, scores_document, submission
    from rows import of_rows
    from taught import calibration, headroom, taught_tensor
    from words import RECIPIENT

    names = ("marker", "fact", "refusal")
    evidence = gather(_finished.audit())
    marker = sealed(big_tensor(n_seeds=3, seed=7))
    base = {"base_log_prob": dict.fromkeys(marker["eval"], -9.0)}
    tensors = [replace(evidence.tensors[0], document=marker, headroom=base)]
    for number, name in enumerate(names[1:]):
        tensor = sealed(taught_tensor(name, n_seeds=3, seed=8 + number))
        tensors.append(replace(tensors[0], document=tensor, headroom=headroom(tensor, 0.85)))
    finding = Finding(
        finding="decision_needed:base_saturated:refusal",
        step="P0/headroom/refusal",
        phase="P0",
        decided_by=1,
    )
    evidence = of_rows(evidence, tuple(tensors))
    submissions = (submission(1), submission(2, before=2))
    looks = (
        look(1, submissions[0], final_document("metric_1", names)),
        look(2, submissions[0], None),
        look(3, submissions[1], final_document("metric_2", names, seed=3)),
    )
    evidence = replace(
        evidence,
        calibrations=(calibration(),),
        findings=(finding,),
        submissions=submissions,
        looks=looks,
        split={**evidence.split, "seal": "age"},
        recipients=f"# demo custody\n{RECIPIENT}\n",
        plan={**evidence.plan, "analyses": ["tensor", "final_test"]},
    )
    files = files_of(evidence, scores_document(names, 4))
    return files["index.html"], files


@pytest.fixture(scope="session")
def drift_files(_finished: StudySimulator) -> dict[str, bytes]:
    """The report of a drift study with everything that a plan can ask for."""
    from drift_documents import claims_of, drift_document
    from drift_run import drift_evidence
    from taught import calibration

    from eps_locked.report.drift.page import files_of as drift_files_of

    document = drift_document()
    record = calibration("self_interest")
    record["battery"] = record.pop("row")
    evidence = replace(
        drift_evidence(_finished.audit(), document),
        calibrations=(record,),
        findings=(
            Finding(
                finding="decision_needed:judge_kappa:self_interest",
                step="P0/calibration/self_interest",
                phase="P0",
                decided_by=1,
            ),
        ),
    )
    return drift_files_of(evidence, claims_of(document))
