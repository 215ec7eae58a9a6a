"""Scores of a finished ``eps`` run: of open cells at any time, of sealed ones in a look.

Everything is computed from recorded bytes: tensors from readings, baselines from the artifact of
phase P3. Numbers of sealed cells exist in this process's memory and go nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eps_locked.canonical import decode, encode
from eps_locked.domain.execution import StepInputs
from eps_locked.domain.ledger import SubmissionBody
from eps_locked.domain.steps import Step
from eps_locked.errors import EvidenceError, MalformedInputError, RefusedError
from eps_locked.lock.freeze import load_plan
from eps_locked.lock.history import History
from eps_locked.lock.inputs import RecordedInputs
from eps_locked.lock.looks import PREDICTOR_FILE, Scored
from eps_locked.lock.seal import CustodianKey, is_sealed
from eps_locked.lock.workspace import FrozenManifest, RunFolder
from eps_locked.scoring.final import published, score_final
from eps_locked.scoring.predictor import Predictor, read_predictor
from eps_locked.scoring.reading import tensor_from_documents
from eps_locked.scoring.score import score_open
from eps_locked.scoring.settings import ScoreSettings
from eps_locked.scoring.tensor import ScoreTensor
from eps_locked.studies.eps.analysis import TENSOR_FILE, TensorInputs, build_tensor
from eps_locked.studies.eps.baselines.predictors import read_predictors
from eps_locked.studies.eps.baselines.steps import BASELINES_STEP
from eps_locked.studies.eps.plan import Behaviour, EpsPlan, TaughtBehaviour
from eps_locked.studies.eps.rederive import cell_differences
from eps_locked.studies.eps.taught.analysis import TaughtInputs, build_taught_tensor
from eps_locked.studies.eps.taught.framing import FrozenFact
from eps_locked.studies.eps.taught.rederive import judged_differences


def tensor_step(behaviour: Behaviour) -> str:
    """The step that makes a row's tensor."""
    return f"{behaviour.phase}/tensor/{behaviour.name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenedInputs:
    """A step's inputs, with what the custodian sealed opened in memory."""

    inner: StepInputs
    key: CustodianKey

    def frozen(self, name: str) -> bytes:
        return self.inner.frozen(name)

    def artifact(self, name: str) -> Mapping[str, bytes]:
        files = self.inner.artifact(name)
        if not is_sealed(files):
            return files
        return self.key.open_files(files, self.inner.frozen("recipients"))

    def artifact_digest(self, name: str) -> str:
        return self.inner.artifact_digest(name)


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedRun:
    """A run whose every phase is closed, as scoring needs it.

    Raises RefusedError if a phase is still open.
    """

    frozen: FrozenManifest
    run: RunFolder
    history: History

    def __post_init__(self) -> None:
        if not self.history.is_complete():
            raise RefusedError(
                f"run {self.frozen.manifest.name}",
                expected="every phase closed",
                found="an open phase",
                next_step=f"just status {self.frozen.manifest.name}",
            )

    @property
    def section(self) -> EpsPlan:
        return EpsPlan.of(self._plan())

    @property
    def settings(self) -> ScoreSettings:
        """The frozen settings, or the documented defaults where the plan promised no scores."""
        return self.section.scoring or ScoreSettings()

    def label(self, analysis: str) -> str:
        """Confirmatory exactly if the frozen plan lists the analysis."""
        return "confirmatory" if analysis in self._plan().analyses else "exploratory"

    def recipients(self) -> bytes | None:
        """The frozen file of the custodian's public keys; None where the plan seals nothing."""
        relative = self.section.quarantine.recipients
        return None if relative is None else self.frozen.read(f"frozen/sources/{relative}")

    def open_tensor(self) -> ScoreTensor:
        """The recorded tensors; sealed cells are known to exist and have no value."""
        documents = []
        for behaviour in self.section.behaviours:
            artifact = self.history.done[tensor_step(behaviour)].outputs["tensor"]
            data = self.run.artifact_file(artifact, TENSOR_FILE)
            documents.append(decode(data, thing=TENSOR_FILE))
        return tensor_from_documents(documents)

    def full_tensor(self, key: CustodianKey) -> ScoreTensor:
        """All cells, the sealed ones opened, computed as the run computed the open ones."""
        documents = []
        for behaviour in self.section.behaviours:
            step = self.history.terms.steps[tensor_step(behaviour)]
            inputs = OpenedInputs(
                inner=RecordedInputs(
                    step=step,
                    frozen_manifest=self.frozen,
                    run=self.run,
                    done=self.history.done,
                ),
                key=key,
            )
            if isinstance(behaviour, TaughtBehaviour):
                documents.append(self._full_taught(step, inputs, behaviour))
                continue
            gathered = TensorInputs.gather(step, inputs)
            self._require_own_cells(gathered, behaviour.name)
            documents.append(build_tensor(gathered, self.section, behaviour))
        return tensor_from_documents(documents)

    def _require_own_cells(self, gathered: TensorInputs, behaviour: str) -> None:
        """What no auditor without the key could see: that a sealed cell holds its own readings."""
        name = f"frozen/rows/{behaviour}/items.json"
        frozen = decode(self.frozen.read(name), thing=name)
        items = [item["id"] for item in frozen["eval"]]
        for (i, j, seed), one in gathered.cells.items():
            differences = cell_differences(one, gathered.base[j], behaviour, j, items)
            if differences:
                raise EvidenceError(f"cell {i} -> {j} {seed}", problem=differences[0])

    def _full_taught(
        self, step: Step, inputs: StepInputs, behaviour: TaughtBehaviour
    ) -> dict[str, Any]:
        gathered = TaughtInputs.gather(step, inputs, behaviour)
        fact = FrozenFact.read(inputs.frozen("written")) if behaviour.reads_slots else None
        judge = self.section.judge(behaviour.judge)
        for (i, j, seed), one in gathered.cells.items():
            base = gathered.base[j].slots
            differences = judged_differences(one, gathered.measured, j, fact, base, judge)
            if differences:
                raise EvidenceError(f"cell {i} -> {j} {seed}", problem=differences[0])
        return build_taught_tensor(gathered, self.section, behaviour)

    def baselines(self) -> tuple[Predictor, ...]:
        """The shipped baselines as phase P3 computed them; none without that phase."""
        if BASELINES_STEP not in self.history.done:
            return ()
        artifact = self.history.done[BASELINES_STEP].outputs["baselines"]
        files = {name: self.run.artifact_file(artifact, name) for name in artifact.files}
        return tuple(
            read_predictor(encode(document), "json", thing=f"baseline {document['metric']}")
            for document in read_predictors(files, BASELINES_STEP)
        )

    def submission(self, body: SubmissionBody) -> Predictor:
        data = self.run.artifact_file(body.submission, PREDICTOR_FILE)
        return read_predictor(data, "json", thing=f"submission {body.number}")

    def open_scores(
        self, metrics: Sequence[Predictor] = (), n_processes: int = 1
    ) -> dict[str, Any]:
        """The baselines, and these metrics beside them, on the open cells.

        With metrics that nobody promised, the whole table is exploratory.
        """
        baselines = self.baselines()
        taken = {one.metric for one in baselines}
        for metric in metrics:
            if metric.metric in taken:
                raise MalformedInputError(
                    f"metric {metric.metric}",
                    expected="an id of its own",
                    found="that of a shipped baseline, or of another metric",
                    next_step="rename it",
                )
            taken.add(metric.metric)
        return score_open(
            self.open_tensor(),
            (*baselines, *metrics),
            self.settings,
            label="exploratory" if metrics else self.label("scores"),
            n_processes=n_processes,
        )

    def look(self, body: SubmissionBody, key: CustodianKey) -> Scored:
        """A submission on the sealed cells: what everybody may know, and the exact scores."""
        details = score_final(
            self.full_tensor(key),
            self.submission(body),
            self.baselines(),
            self.settings,
            label=self.label("final_test"),
        )
        return Scored(public=published(details), details=details)

    def _plan(self) -> Any:
        return load_plan(self.frozen.read("frozen/plan.yaml"), thing="frozen/plan.yaml")
