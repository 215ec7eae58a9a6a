"""Re-deriving what a ``vea`` run claims, from stored scores.

What a reward model said cannot be recomputed without it; that there is one score for each frozen
response, in order, by the reward model that the plan names and in a form that it can give, can be
checked. A table's scores are read again, and what was only computed is computed again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eps_locked.domain.execution import StepInputs
from eps_locked.domain.plan import Plan
from eps_locked.domain.reward import RewardScore
from eps_locked.domain.steps import Step
from eps_locked.lock.freeze import load_plan
from eps_locked.lock.workspace import FrozenManifest
from eps_locked.rewards.table import TableReward as Table
from eps_locked.studies.common.rederiver import Derived, Outputs, Rederiver, same_files
from eps_locked.studies.vea.derive import (
    FrozenItem,
    read_frozen_items,
    requests_of,
    score_flags,
    score_status,
)
from eps_locked.studies.vea.plan import (
    ClassifierReward,
    GatewayReward,
    ImplicitReward,
    RewardModelPlan,
    TableReward,
    VeaPlan,
)
from eps_locked.studies.vea.recorded import recorded_differences
from eps_locked.studies.vea.records import ScoresRecord
from eps_locked.studies.vea.results import breadth_files, power_files
from eps_locked.studies.vea.train import fit_differences

__all__ = ["VeaRederiver", "score_differences"]

_MOST = 20
_LOCAL = ("scored", "not_finite", "truncated")
_SERVED = (
    "scored",
    "not_finite",
    "truncated",
    "unreadable",
    "refused",
    "rate_limited",
    "outage",
)


class VeaRederiver(Rederiver):
    """Callable for ``audit_run``. Parses the frozen plan once per distinct bytes."""

    def __init__(self) -> None:
        self._plans: dict[bytes, tuple[Plan, VeaPlan]] = {}

    def manifest(self, frozen: FrozenManifest) -> list[str]:
        """Freeze again from the frozen plan and sources."""
        return recorded_differences(frozen)

    def derive(self, step: Step, inputs: StepInputs, outputs: Outputs) -> Derived | None:
        plan, section = self._read(inputs.frozen("plan"))
        match step.kind:
            case "power":
                expected = power_files(section)
                return same_files("power", expected, outputs["power"]), "done", ()
            case "train":
                training = section.training(step.params["training"])
                return fit_differences(inputs, outputs, training), "done", ()
            case "score":
                return _score(step, inputs, outputs, plan, section)
            case "breadth":
                promised = "breadth" in plan.analyses
                expected = breadth_files(inputs, section, is_promised=promised)
                return same_files("breadth", expected, outputs["breadth"]), "done", ()
        return None

    def _read(self, plan_bytes: bytes) -> tuple[Plan, VeaPlan]:
        if plan_bytes not in self._plans:
            plan = load_plan(plan_bytes, thing="frozen/plan.yaml")
            self._plans[plan_bytes] = plan, VeaPlan.of(plan)
        return self._plans[plan_bytes]


def _score(
    step: Step, inputs: StepInputs, outputs: Outputs, plan: Plan, section: VeaPlan
) -> Derived:
    record = ScoresRecord.from_files(outputs["scores"], step.id)
    items = read_frozen_items(inputs.frozen("items"), "frozen items")
    model = section.reward_model(step.params["reward_model"])
    adapter = inputs.artifact_digest("adapter") if "adapter" in step.inputs else None
    differences = score_differences(record, items, model, plan, adapter)
    if isinstance(model, TableReward):
        differences += _table_differences(record, items, model, inputs.frozen("table"))
    minimum = section.analysis.minimum_items
    return (
        differences[:_MOST],
        score_status(record, items, minimum),
        score_flags(record, items, minimum),
    )


def score_differences(
    record: ScoresRecord,
    items: Sequence[FrozenItem],
    model: RewardModelPlan,
    plan: Plan,
    adapter: str | None,
) -> list[str]:
    """Whether a record holds what the plan's rules give: heading, speaker, every score in order.

    ``adapter``: the digest of what the reward model wore, None for one without training.
    """
    wanted = [request.key for request in requests_of(items)]
    found = [score.key for score in record.scores]
    differences = _unequal({"reward_model": (model.name, record.reward_model)})
    differences += _identity_differences(record.identity, model, plan, adapter)
    if found != wanted:
        pairs = zip([*wanted, None], [*found, None], strict=False)
        expected, other = next(pair for pair in pairs if pair[0] != pair[1])
        differences.append(
            f"scores: expected base, vea and control of every item, {len(wanted)} in frozen order, "
            f"found {len(found)}: {other or 'nothing'} where {expected or 'nothing'} should stand"
        )
        return differences
    for score in record.scores:
        differences += [f"{score.key}: {one}" for one in _form_differences(score, model)]
    return differences


def _identity_differences(
    identity: Mapping[str, Any], model: RewardModelPlan, plan: Plan, adapter: str | None
) -> list[str]:
    """Whether the reward model that spoke is the one that the plan names."""
    expected: dict[str, str] = {"kind": model.kind}
    settings: dict[str, str] = {}
    match model:
        case ClassifierReward():
            expected["model"] = plan.base_model.name
            settings = {"head": _head(model, adapter), "max_length": str(model.max_length)}
        case ImplicitReward():
            expected["model"] = model.policy.where
            settings = {
                "reference": plan.base_model.name,
                "beta": f"{model.beta:.17g}",
                "length_average": "yes" if model.length_average else "no",
                "max_length": str(model.max_length),
            }
        case GatewayReward():
            expected["model"] = model.model
            settings = {"endpoint": model.endpoint, "api": model.api}
        case TableReward():
            expected["model"] = model.name
    pairs: dict[str, tuple[Any, Any]] = {
        f"identity.{key}": (value, identity[key]) for key, value in expected.items()
    }
    found = identity["settings"]
    pairs |= {f"identity.{key}": (value, found.get(key)) for key, value in settings.items()}
    is_scripted = isinstance(model, ClassifierReward) and plan.engine.name == "scripted"
    if isinstance(model, ClassifierReward | ImplicitReward) and not is_scripted:
        ran = {
            "batch_rows": str(model.batch_rows),
            "device": plan.engine.device,
            "dtype": plan.engine.dtype,
        }
        pairs |= {f"identity.{key}": (value, found.get(key)) for key, value in ran.items()}
    pairs["identity.publishable"] = (not is_scripted, identity["publishable"])
    return _unequal(pairs)


def _head(model: ClassifierReward, adapter: str | None) -> str:
    """What a classifier's identity calls its head."""
    if adapter is not None:
        return adapter
    if model.head is not None:
        return f"fresh, seed {model.head.seed}, std {model.head.std:.17g}"
    return "its own"


def _form_differences(score: RewardScore, model: RewardModelPlan) -> list[str]:
    """Whether a reward model of this kind can have given this score."""
    if isinstance(model, TableReward):
        return []  # read again as a whole
    if isinstance(model, GatewayReward):
        return [
            *([] if score.status in _SERVED else [f"status: a service gives no {score.status}"]),
            *_outside("tries", score.tries, 0, model.max_tries),
        ]
    if score.status not in _LOCAL:
        return [f"status: a model in this process gives no {score.status}"]
    if score.n_tokens is None:
        return ["n_tokens: expected the exchange's length, found none"]
    differences = _outside("tries", score.tries, 0, 0)
    if (score.n_tokens > model.max_length) != (score.status == "truncated"):
        differences.append(
            f"status: expected truncated exactly beyond {model.max_length} tokens, "
            f"found {score.status} at {score.n_tokens}"
        )
    return differences


def _table_differences(
    record: ScoresRecord, items: Sequence[FrozenItem], model: TableReward, data: bytes
) -> list[str]:
    """The frozen table read again: every score, and which bytes they stand in."""
    table = Table(data, name=model.name, thing=model.file)
    differences = _unequal({"identity": (table.identity.to_dict(), dict(record.identity))})
    found = record.by_key
    return differences + [
        f"{score.key}: expected {_shown(score)}, found {_shown(found[score.key])}"
        for score in table.score(requests_of(items))
        if score.key in found and found[score.key] != score
    ]


def _shown(score: RewardScore) -> str:
    return str(score.value) if score.is_scored else f"{score.status} ({score.note})"


def _outside(name: str, value: int, low: int, high: int) -> list[str]:
    return [] if low <= value <= high else [f"{name}: expected {low} to {high}, found {value}"]


def _unequal(pairs: Mapping[str, tuple[Any, Any]]) -> list[str]:
    return [
        f"{name}: expected {expected}, found {found}"
        for name, (expected, found) in pairs.items()
        if expected != found
    ]
