"""What a reward model is asked and what it answers. No vendor type appears here.

Only the status ``scored`` is a measurement. A score that is not a number, a response that did not
fit, a service that was down have said nothing about the response; each is kept apart from the
others and from zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, cast, get_args

from eps_locked.domain.fields import Fields
from eps_locked.domain.model import LoraRecipe, TrainingOutcome
from eps_locked.errors import MalformedInputError

RewardStatus = Literal[
    "scored", "not_finite", "truncated", "unreadable", "refused", "rate_limited", "outage", "absent"
]
REWARD_STATUSES: tuple[str, ...] = get_args(RewardStatus)
# What squares and fourth powers do not overflow. Beyond it a score is ``not_finite``.
LARGEST_SCORE: Final = 1e60


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardRequest:
    """One response to score. ``response`` is everything the model under judgement wrote, its
    reasoning included (the leak view)."""

    key: str
    user_prompt: str
    response: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardScore:
    """What came back for one request.

    ``value`` is there exactly if ``status`` is ``scored``, in the reward model's own unit.
    ``n_tokens`` counts the rendered exchange, None where nobody can tell. ``note`` says in at most
    200 characters why there is no score. ``tries`` counts requests sent; 0 for a model in process.
    """

    key: str
    status: RewardStatus
    value: float | None
    n_tokens: int | None
    note: str
    tries: int

    @property
    def is_scored(self) -> bool:
        return self.status == "scored"

    def to_dict(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "status": self.status,
            "value": self.value,
            "n_tokens": self.n_tokens,
            "note": self.note,
            "tries": self.tries,
        }

    @classmethod
    def from_dict(cls, value: object, path: str) -> RewardScore:
        """Raises MalformedInputError naming the field."""
        with Fields(value, path) as fields:
            is_scored = fields.raw("value") is not None
            score = cls(
                key=fields.text("key"),
                status=cast(RewardStatus, fields.text("status", one_of=REWARD_STATUSES)),
                value=fields.number("value") if is_scored else None,
                n_tokens=fields.integer_or_none("n_tokens"),
                note=fields.text("note"),
                tries=fields.integer("tries", low=0),
            )
        if score.is_scored != is_scored:
            raise MalformedInputError(
                f"{path}.value",
                expected="a number exactly if scored",
                found=f"{score.status} with {score.value}",
            )
        return score


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardIdentity:
    """Which reward model spoke, as far as it can tell. Stands beside every set of scores."""

    kind: str
    model: str
    version: str
    settings: Mapping[str, str]
    publishable: bool

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "model": self.model,
            "version": self.version,
            "settings": dict(self.settings),
            "publishable": self.publishable,
        }


class RewardModel(Protocol):
    """Scores responses. One score per request, in order; none lost, none invented."""

    @property
    def identity(self) -> RewardIdentity: ...

    def score(self, requests: Sequence[RewardRequest]) -> tuple[RewardScore, ...]:
        """Raises BackendError only for what no retry could mend; everything else is a status."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class PreferencePair:
    """Two responses to one prompt. ``target`` is the probability, 0 to 1, with which ``first`` is
    to be preferred: 0.5 for a pair that must make no difference."""

    key: str
    user_prompt: str
    first: str
    second: str
    target: float


class RewardTrainer(Protocol):
    """Fits one scalar head, and an adapter with it, onto the bare base model."""

    def fit(
        self,
        pairs: Sequence[PreferencePair],
        recipe: LoraRecipe,
        head: tuple[int, float],
        *,
        n_steps: int,
        max_length: int,
        seed: int,
        provenance: Mapping[str, str],
        on_step: Callable[[int, float], None],
    ) -> TrainingOutcome:
        """Exactly ``n_steps`` steps of ``recipe.rows_per_step`` pairs; same arguments, same bytes
        on CPU.

        ``head``: seed and standard deviation of its first weights. ``provenance`` goes into the
        safetensors header. Raises BackendError for an exchange longer than ``max_length`` tokens:
        a pair that is cut teaches something else.
        """
        ...
