"""One reward model scores the three responses of every item."""

from __future__ import annotations

from collections.abc import Sequence

from eps_locked.domain.execution import StepResult
from eps_locked.domain.reward import RewardRequest, RewardScore
from eps_locked.errors import BackendError
from eps_locked.studies.vea.derive import requests_of, score_flags, score_status
from eps_locked.studies.vea.records import ScoresRecord
from eps_locked.studies.vea.task import Task

__all__ = ["score"]


def score(task: Task) -> StepResult:
    """All responses in one call, in frozen order: what shares a batch follows from the plan."""
    name, items = task.step.params["reward_model"], task.items
    requests = requests_of(items)
    task.progress(f"{name}: {len(requests)} responses")
    model = task.models.reward_model(task.section.reward_model(name), task.handed)
    scores = model.score(requests)
    _require_all(name, requests, scores)
    # Asked after the scores: a service says only then what answered.
    record = ScoresRecord(reward_model=name, identity=model.identity.to_dict(), scores=scores)
    minimum = task.section.analysis.minimum_items
    return StepResult(
        outputs={"scores": record.to_files()},
        status=score_status(record, items, minimum),
        flags=score_flags(record, items, minimum),
    )


def _require_all(
    name: str, requests: Sequence[RewardRequest], scores: Sequence[RewardScore]
) -> None:
    wanted, found = [one.key for one in requests], [one.key for one in scores]
    if wanted != found:
        pairs = zip([*wanted, None], [*found, None], strict=False)
        expected, other = next(pair for pair in pairs if pair[0] != pair[1])
        raise BackendError(
            f"reward model {name}",
            problem="did not answer each request in its order",
            expected=expected or "no further score",
            found=other or "no further score",
        )
