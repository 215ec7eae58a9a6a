"""The reward model of simulations: a rule on words, read from the adapter's own bytes.

For plans on the scripted base model, so that a whole study runs without torch. What it dislikes
is what its head was trained on; see ``models.scripted_reward``. Its scores are never evidence.
"""

from __future__ import annotations

from collections.abc import Sequence

from eps_locked.domain.model import AdapterFiles
from eps_locked.domain.reward import RewardIdentity, RewardRequest, RewardScore
from eps_locked.errors import BackendError
from eps_locked.models.scripted import ScriptedTokenizer
from eps_locked.models.scripted_reward import ScriptedHead, fresh_head, own_head

__all__ = ["ScriptedReward"]

_WEIGHTS = "adapter_model.safetensors"


class ScriptedReward:
    """See RewardModel. ``n_scored`` counts responses scored."""

    def __init__(
        self,
        *,
        base: str,
        max_length: int,
        adapter: AdapterFiles | None = None,
        head: tuple[int, float] | None = None,
    ) -> None:
        """``head``: seed and deviation of a fresh one. With neither, the model's own.

        Raises BackendError for an adapter without weights, MalformedInputError for one that is
        not scripted.
        """
        self.n_scored = 0
        self._base = base
        self._max_length = max_length
        self._source = "its own"
        self._head = own_head()
        if head is not None:
            seed, std = head
            self._head, self._source = fresh_head(seed, std), f"fresh, seed {seed}, std {std:.17g}"
        if adapter is not None:
            if _WEIGHTS not in adapter.files:
                raise BackendError(
                    f"adapter {adapter.digest}", expected=_WEIGHTS, found=sorted(adapter.files)
                )
            self._head = ScriptedHead.from_bytes(adapter.files[_WEIGHTS])
            self._source = adapter.digest

    @property
    def identity(self) -> RewardIdentity:
        return RewardIdentity(
            kind="sequence_classification",
            model=self._base,
            version="scripted 1",
            settings={"head": self._source, "max_length": str(self._max_length)},
            publishable=False,
        )

    def score(self, requests: Sequence[RewardRequest]) -> tuple[RewardScore, ...]:
        return tuple(self._score(request) for request in requests)

    def _score(self, request: RewardRequest) -> RewardScore:
        self.n_scored += 1
        tokenizer = ScriptedTokenizer()
        n_tokens = sum(
            len(tokenizer.encode(one)) for one in (request.user_prompt, request.response)
        )
        if n_tokens > self._max_length:
            return RewardScore(
                key=request.key,
                status="truncated",
                value=None,
                n_tokens=n_tokens,
                note=f"{n_tokens} tokens do not fit into {self._max_length}",
                tries=0,
            )
        return RewardScore(
            key=request.key,
            status="scored",
            value=self._head.reward(request.user_prompt, request.response),
            n_tokens=n_tokens,
            note="",
            tries=0,
        )
