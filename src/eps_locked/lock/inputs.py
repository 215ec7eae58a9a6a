"""What a step reads, by the references its frozen form gives: for runs, replays and audits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eps_locked.domain.ledger import Artifact, StepBody
from eps_locked.domain.steps import FILE_REF, STEP_REF, Step
from eps_locked.lock.workspace import FrozenManifest, RunFolder


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedInputs:
    """Inputs of one step, read from the manifest folder and the store under their digests.

    ``done`` holds the finished steps by id. Every read requires the recorded bytes.
    """

    step: Step
    frozen_manifest: FrozenManifest
    run: RunFolder
    done: Mapping[str, StepBody]

    def frozen(self, name: str) -> bytes:
        return self.frozen_manifest.read(self.step.inputs[name].removeprefix(FILE_REF))

    def artifact(self, name: str) -> Mapping[str, bytes]:
        artifact = self._artifact(name)
        return {file: self.run.artifact_file(artifact, file) for file in artifact.files}

    def artifact_digest(self, name: str) -> str:
        return self._artifact(name).identity

    def _artifact(self, name: str) -> Artifact:
        step_id, _, output = self.step.inputs[name].removeprefix(STEP_REF).partition("#")
        return self.done[step_id].outputs[output]
