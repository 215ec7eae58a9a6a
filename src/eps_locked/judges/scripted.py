"""The judge of tests and dry walks: verdicts by arithmetic, never for publication.

What it says follows from the answer's own bytes, so the same answer gets the same verdict in any
process, and it can be told to fail in each way a real judge does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import blake3

from eps_locked.domain.judging import (
    JudgeIdentity,
    JudgePlan,
    JudgeRequest,
    Verdict,
    VerdictStatus,
)

__all__ = ["ScriptedJudge"]

_NOTES = {"unreadable": "no verdict in the reply", "judge_refused": "the judge would not answer"}


class ScriptedJudge:
    """A Judge whose label is a digest of the answer, modulo the labels.

    The plan's ``model`` may name statuses to be given instead, as ``status=share`` in hundredths:
    ``"outage=10 unreadable=5"`` gives those to about every tenth and twentieth answer.
    ``n_calls`` counts calls of ``judge``.
    """

    def __init__(self, plan: JudgePlan) -> None:
        self._plan = plan
        self._shares = _shares(plan.model)
        self.n_calls = 0

    @property
    def identity(self) -> JudgeIdentity:
        return JudgeIdentity(
            kind="scripted",
            model=self._plan.model,
            family=self._plan.family,
            version="1",
            settings={},
            publishable=False,
        )

    def judge(self, requests: Sequence[JudgeRequest]) -> tuple[Verdict, ...]:
        """One verdict a request; repeated draws of one answer differ in what they draw."""
        self.n_calls += 1
        return tuple(self._verdict(request) for request in requests)

    def _verdict(self, request: JudgeRequest) -> Verdict:
        drawn = blake3.blake3(f"{request.draw}\n{request.answer}".encode()).digest()
        failure = self._failure(drawn[0] * 100 // 256)
        if failure is not None:
            return self._of(request, failure, None, {})
        label = request.rubric.labels[drawn[1] % len(request.rubric.labels)]
        scores = (
            {}
            if label in request.rubric.excluded
            else {
                name: float(drawn[2 + number] * 100 // 255)
                for number, name in enumerate(request.rubric.scores)
            }
        )
        return self._of(request, "scored", label, scores)

    def _failure(self, hundredth: int) -> VerdictStatus | None:
        for status, share in self._shares.items():
            if hundredth < share:
                return status
            hundredth -= share
        return None

    def _of(
        self,
        request: JudgeRequest,
        status: VerdictStatus,
        label: str | None,
        scores: Mapping[str, float],
    ) -> Verdict:
        return Verdict(
            key=request.key,
            draw=request.draw,
            status=status,
            label=label,
            scores=scores,
            model=self._plan.model,
            note=_NOTES.get(status, ""),
            tries=1,
        )


def _shares(model: str) -> dict[VerdictStatus, int]:
    found: dict[VerdictStatus, int] = {}
    for part in model.split():
        name, _, share = part.partition("=")
        if share:
            found[name] = int(share)  # type: ignore[index]  # a status, or the verdict is refused
    return found
