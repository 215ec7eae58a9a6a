"""From a plan's reward model to a reward model: the one place that knows all kinds.

The libraries of a kind are imported when one of it is made, and not before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, cast

from eps_locked.domain.model import AdapterFiles
from eps_locked.domain.reward import RewardModel
from eps_locked.errors import BackendError, MalformedInputError

if TYPE_CHECKING:
    from eps_locked.models.reward_host import RewardHost
    from eps_locked.rewards.gateway import GatewayRules

__all__ = ["KINDS", "Ground", "RewardPlan", "make_reward_model"]

KINDS = ("sequence_classification", "implicit", "gateway", "table")
_EXTRAS = {"sequence_classification": "hf", "implicit": "hf", "gateway": "judges"}


class RewardPlan(Protocol):
    """What every reward model of a plan has; the rest is its kind's."""

    kind: ClassVar[str]

    @property
    def name(self) -> str: ...


class _Head(Protocol):
    @property
    def seed(self) -> int: ...
    @property
    def std(self) -> float: ...


class _ClassifierPlan(RewardPlan, Protocol):
    @property
    def training(self) -> str | None: ...
    @property
    def head(self) -> _Head | None: ...
    @property
    def max_length(self) -> int: ...
    @property
    def batch_rows(self) -> int: ...


class _Source(Protocol):
    @property
    def where(self) -> str: ...


class _ImplicitPlan(RewardPlan, Protocol):
    @property
    def policy(self) -> _Source: ...
    @property
    def beta(self) -> float: ...
    @property
    def length_average(self) -> bool: ...
    @property
    def max_length(self) -> int: ...
    @property
    def batch_rows(self) -> int: ...


class _TablePlan(RewardPlan, Protocol):
    @property
    def file(self) -> str: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Ground:
    """What a reward model stands on besides its plan.

    ``base_folder``: None for the scripted base model. ``host`` brings the base model up for a
    scalar head, on first need. ``adapter``, ``table`` and ``policy_folder`` are there for the kinds
    that rest on them.
    """

    base_name: str
    base_folder: Path | None
    dtype: str
    device: str
    threads: int | None
    host: Callable[[], RewardHost]
    adapter: AdapterFiles | None = None
    table: bytes | None = None
    policy_folder: Path | None = None


def make_reward_model(plan: RewardPlan, ground: Ground, environ: Mapping[str, str]) -> RewardModel:
    """The reward model that a plan names. No request is sent and no weight is read.

    Raises BackendError for a key that is not set, for an extra that is not installed and for what
    the ground does not hold; MalformedInputError for a kind that there is not.
    """
    if plan.kind not in _MAKERS:
        raise MalformedInputError(
            f"reward model {plan.name}", expected=" or ".join(KINDS), found=plan.kind
        )
    try:
        return _MAKERS[plan.kind](plan, ground, environ)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "eps_locked":
            raise  # our own defect
        extra = _EXTRAS[plan.kind]
        raise BackendError(
            f"reward model {plan.name}",
            problem=f"kind {plan.kind} needs {error.name}, which is not installed",
            next_step=f"install the extra {extra}: pip install 'eps-locked[{extra}]'",
        ) from error


def _classifier(plan: RewardPlan, ground: Ground, environ: Mapping[str, str]) -> RewardModel:
    rules = cast(_ClassifierPlan, plan)
    if rules.training is not None and ground.adapter is None:
        raise _lacks(plan, f"the adapter of {rules.training}")
    head = None if rules.head is None else (rules.head.seed, rules.head.std)
    if ground.base_folder is None:
        from eps_locked.rewards.scripted import ScriptedReward

        return ScriptedReward(
            base=ground.base_name, max_length=rules.max_length, adapter=ground.adapter, head=head
        )
    from eps_locked.models.tokenizer import HfChatTokenizer
    from eps_locked.rewards.sequence_classifier import SequenceClassifier

    return SequenceClassifier(
        ground.host(),
        HfChatTokenizer(ground.base_folder),
        base=ground.base_name,
        max_length=rules.max_length,
        batch_rows=rules.batch_rows,
        adapter=ground.adapter,
        head=head,
    )


def _implicit(plan: RewardPlan, ground: Ground, environ: Mapping[str, str]) -> RewardModel:
    rules = cast(_ImplicitPlan, plan)
    if ground.policy_folder is None or ground.base_folder is None:
        raise _lacks(plan, "the folders of policy and reference")
    from eps_locked.rewards.implicit import ImplicitReward, ImplicitRules, load_causal_model

    return ImplicitReward(
        ImplicitRules(
            policy=rules.policy.where,
            reference=ground.base_name,
            beta=rules.beta,
            length_average=rules.length_average,
            max_length=rules.max_length,
            batch_rows=rules.batch_rows,
        ),
        policy_folder=ground.policy_folder,
        reference_folder=ground.base_folder,
        load=lambda folder: load_causal_model(
            folder, dtype=ground.dtype, device=ground.device, threads=ground.threads
        ),
        device=ground.device,
        dtype=ground.dtype,
    )


def _gateway(plan: RewardPlan, ground: Ground, environ: Mapping[str, str]) -> RewardModel:
    from eps_locked.rewards.gateway import SERVICE, GatewayReward
    from eps_locked.services.rules import key_from

    rules = cast("GatewayRules", plan)
    key = key_from(rules, environ, service=SERVICE, where=rules.endpoint)
    return GatewayReward(rules, key)


def _table(plan: RewardPlan, ground: Ground, environ: Mapping[str, str]) -> RewardModel:
    if ground.table is None:
        raise _lacks(plan, "its table")
    from eps_locked.rewards.table import TableReward

    file = cast(_TablePlan, plan).file
    return TableReward(ground.table, name=plan.name, thing=file)


_MAKERS: Mapping[str, Callable[[RewardPlan, Ground, Mapping[str, str]], RewardModel]] = {
    "sequence_classification": _classifier,
    "implicit": _implicit,
    "gateway": _gateway,
    "table": _table,
}


def _lacks(plan: RewardPlan, what: str) -> BackendError:
    return BackendError(
        f"reward model {plan.name}",
        expected=what,
        found="none",
        next_step="run the steps that its step rests on first",
    )
