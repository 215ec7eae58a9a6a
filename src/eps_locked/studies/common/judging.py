"""What every study that asks a judge shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eps_locked.domain.judging import JudgePlan, Rubric, Verdict, family_overlap
from eps_locked.domain.plan import Plan
from eps_locked.errors import MalformedInputError, RefusedError
from eps_locked.lock.strict_yaml import parse_yaml

__all__ = [
    "DECISION",
    "STAND_INS",
    "VERDICTS_FILE",
    "judge_differences",
    "read_rubric",
    "require_fair_judges",
    "verdict_differences",
]

# A flag that begins so waits for an amendment that names it; see docs/lock.md.
DECISION = "decision_needed"
VERDICTS_FILE = "verdicts.json"
# Judges that stand in where there is no key and no network: what they say is not for publication.
STAND_INS = ("prototype", "lexical", "scripted")


def read_rubric(data: bytes) -> Rubric:
    return Rubric.from_dict(parse_yaml(data, thing="frozen rubric"), "frozen rubric")


def require_fair_judges(plan: Plan, judges: Sequence[JudgePlan], path: str) -> None:
    """Require that no judge is of the base model's family and, for publication, none a stand-in.

    ``path`` is the judges' place in the plan. Raises RefusedError or MalformedInputError.
    """
    overlap = family_overlap(plan.base_model.family, judges)
    if overlap is not None:
        raise RefusedError(
            f"{path}: {overlap.name}",
            problem="is of the family it would judge",
            expected=f"a family other than {plan.base_model.family}",
            found=overlap.family,
            next_step="name a judge of another family; a model is no fair judge of its own kind",
        )
    stand_in = next((one for one in judges if one.kind in STAND_INS), None)
    if plan.publication and stand_in is not None:
        raise MalformedInputError(
            "plan.publication",
            expected=f"false with the judge {stand_in.name} of kind {stand_in.kind}",
            found="true",
            next_step="name a real judge, or say publication: false",
        )


def judge_differences(found: Mapping[str, object], plan: JudgePlan) -> list[str]:
    """Whether the judge that spoke is the one that the plan names."""
    return [
        f"judge {key}: expected {expected}, found {found.get(key)}"
        for key, expected in (("kind", plan.kind), ("model", plan.model), ("family", plan.family))
        if found.get(key) != expected
    ]


def verdict_differences(name: str, verdicts: Sequence[Verdict], rubric: Rubric) -> list[str]:
    """A scored verdict has a label of the rubric, and exactly its scores unless left out."""
    return [
        f"{name}: a verdict that its rubric does not allow"
        for verdict in verdicts
        if verdict.is_scored
        and (
            verdict.label not in rubric.labels
            or set(verdict.scores)
            != (set() if verdict.label in rubric.excluded else set(rubric.scores))
        )
    ]
