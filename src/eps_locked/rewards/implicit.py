"""The reward that two causal models imply: how much likelier one finds a response than the other.

    r(x, y) = beta * (log pi(y | x) - log ref(y | x))

with both log-probabilities summed over the tokens of the response and its end of turn, after the
same prompt. A term that depends on the prompt alone is left out: it falls away in every difference
between two responses to one prompt. Longer responses have more terms; that is the form's own doing
and not corrected unless ``length_average`` is asked for, which divides by the number of tokens.

Source: Rafailov et al. 2023, arXiv:2305.18290, equation 5 and section 4.

The two models are never in memory together.
"""

from __future__ import annotations

import gc
import importlib.metadata
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from eps_locked.canonical import digest_bytes
from eps_locked.domain.model import TokenIds
from eps_locked.domain.reward import RewardIdentity, RewardRequest, RewardScore
from eps_locked.errors import BackendError
from eps_locked.models.exchange import exchange_of
from eps_locked.models.tokenizer import HfChatTokenizer

if TYPE_CHECKING:
    import torch

__all__ = ["CausalModel", "ImplicitReward", "ImplicitRules", "load_causal_model", "sequence_sums"]

# Not part of how text becomes ids: we set both ourselves, and some writers fill them in.
_UNUSED = ("truncation", "padding")


@dataclass(frozen=True, kw_only=True, slots=True)
class ImplicitRules:
    """``max_length`` bounds prompt and response together, in tokens. ``policy`` and ``reference``
    are the models' names for people."""

    policy: str
    reference: str
    beta: float
    length_average: bool
    max_length: int
    batch_rows: int


class CausalModel(Protocol):
    """``models.host.AdapterHost``, as far as it is used here."""

    device: str

    @property
    def body(self) -> Any: ...

    @property
    def lm_head(self) -> Any: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class _Row:
    prompt: TokenIds
    answer: TokenIds

    @property
    def n_tokens(self) -> int:
        return len(self.prompt) + len(self.answer)


class ImplicitReward:
    """See RewardModel. ``load`` brings one model up; it is dropped before the other one comes."""

    def __init__(
        self,
        rules: ImplicitRules,
        *,
        policy_folder: Path,
        reference_folder: Path,
        load: Callable[[Path], CausalModel],
        device: str,
        dtype: str,
    ) -> None:
        """Reads both tokenizers. Raises BackendError if they are not one and the same, and if
        ``max_length`` is beyond the positions of either model."""
        _require_positions(rules, policy_folder, reference_folder)
        self._rules = rules
        self._folders = {"policy": policy_folder, "reference": reference_folder}
        self._load = load
        self._device, self._dtype = device, dtype
        self._tokenizer = HfChatTokenizer(reference_folder)
        self._digests = _require_same_tokenizer(policy_folder, reference_folder, self._tokenizer)

    @property
    def identity(self) -> RewardIdentity:
        rules = self._rules
        names = ("tokenizers", "torch", "transformers")
        return RewardIdentity(
            kind="implicit",
            model=rules.policy,
            version=", ".join(f"{name} {importlib.metadata.version(name)}" for name in names),
            settings={
                "reference": rules.reference,
                "beta": f"{rules.beta:.17g}",
                "length_average": "yes" if rules.length_average else "no",
                "max_length": str(rules.max_length),
                "batch_rows": str(rules.batch_rows),
                "device": self._device,
                "dtype": self._dtype,
                **self._digests,
            },
            publishable=True,
        )

    def score(self, requests: Sequence[RewardRequest]) -> tuple[RewardScore, ...]:
        """Raises BackendError for a response that the chat template does not leave as it is."""
        rows = [self._row(request) for request in requests]
        fits = [row for row in rows if self._fits(row)]
        sums = {name: self._sums(folder, fits) for name, folder in self._folders.items()}
        ratios = iter(zip(sums["policy"], sums["reference"], strict=True))
        return tuple(
            self._score(request.key, row, next(ratios) if self._fits(row) else None)
            for request, row in zip(requests, rows, strict=True)
        )

    def _row(self, request: RewardRequest) -> _Row:
        exchange = exchange_of(
            self._tokenizer, request.user_prompt, request.response, key=request.key
        )
        # Prompt and response apart: the prompt's tokens are then the same for every response.
        answer = self._tokenizer.encode(exchange.response)
        return _Row(
            prompt=self._tokenizer.encode(exchange.head),
            answer=(*answer, self._tokenizer.end_of_turn_id),
        )

    def _fits(self, row: _Row) -> bool:
        return row.n_tokens <= self._rules.max_length

    def _sums(self, folder: Path, rows: Sequence[_Row]) -> list[float]:
        if not rows:
            return []
        model = self._load(folder)
        try:
            return sequence_sums(
                model,
                [(row.prompt, row.answer) for row in rows],
                batch_rows=self._rules.batch_rows,
            )
        finally:
            del model
            gc.collect()

    def _score(self, key: str, row: _Row, sums: tuple[float, float] | None) -> RewardScore:
        rules, n_tokens = self._rules, row.n_tokens
        if sums is None:
            return RewardScore(
                key=key,
                status="truncated",
                value=None,
                n_tokens=n_tokens,
                note=f"{n_tokens} tokens do not fit into {rules.max_length}",
                tries=0,
            )
        policy, reference = sums
        value = rules.beta * (policy - reference)
        if rules.length_average:
            value /= len(row.answer)
        is_finite = math.isfinite(value)
        return RewardScore(
            key=key,
            status="scored" if is_finite else "not_finite",
            value=value if is_finite else None,
            n_tokens=n_tokens,
            note="" if is_finite else f"log-probabilities {policy} and {reference}",
            tries=0,
        )


def load_causal_model(folder: Path, *, dtype: str, device: str, threads: int | None) -> CausalModel:
    """A causal language model without an adapter; local files only."""
    from eps_locked.models.host import AdapterHost

    return AdapterHost.load(folder, dtype=dtype, device=device, threads=threads)


def sequence_sums(
    model: CausalModel, rows: Sequence[tuple[TokenIds, TokenIds]], *, batch_rows: int
) -> list[float]:
    """Sum of the log-probabilities, in nats, of each row's answer after its prompt.

    Rows are padded on the right, where no token of a causal model can see it; the softmax is over
    the whole vocabulary in float64, and only of answer positions.
    """
    import torch

    found: list[float] = []
    for start in range(0, len(rows), batch_rows):
        batch = rows[start : start + batch_rows]
        longest = max(len(prompt) + len(answer) for prompt, answer in batch)
        ids = torch.zeros((len(batch), longest), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for number, (prompt, answer) in enumerate(batch):
            whole = torch.tensor([*prompt, *answer])
            ids[number, : len(whole)] = whole
            mask[number, : len(whole)] = 1
        with torch.no_grad():
            states = model.body(
                input_ids=ids.to(model.device),
                attention_mask=mask.to(model.device),
                use_cache=False,
            ).last_hidden_state
            for number, (prompt, answer) in enumerate(batch):
                before = states[number, len(prompt) - 1 : len(prompt) + len(answer) - 1]
                found.append(_answer_sum(model.lm_head(before), answer))
    return found


def _answer_sum(logits: torch.Tensor, answer: TokenIds) -> float:
    import torch

    log_probs = torch.log_softmax(logits.to(torch.float64), dim=-1)
    wanted = torch.tensor(answer, device=log_probs.device).unsqueeze(1)
    return float(log_probs.gather(1, wanted).sum())


def _require_positions(rules: ImplicitRules, *folders: Path) -> None:
    """Beyond its positions a model gives numbers too, and they mean nothing."""
    for folder in folders:
        config = _config(folder)
        text = config.get("text_config") or config
        limit = text.get("max_position_embeddings", text.get("n_positions"))
        if limit is not None and rules.max_length > limit:
            raise BackendError(
                f"implicit reward: max_length on {folder}",
                expected=f"at most {limit}, the model's positions",
                found=rules.max_length,
            )


def _config(folder: Path) -> dict[str, Any]:
    """Empty where there is none to read: whoever loads the model then says so."""
    path = folder / "config.json"
    value = json.loads(path.read_bytes()) if path.is_file() else {}
    return value if isinstance(value, dict) else {}


def _require_same_tokenizer(
    policy: Path, reference: Path, tokenizer: HfChatTokenizer
) -> dict[str, str]:
    """The digests that both share. A ratio of probabilities of different tokens has no meaning."""
    other = HfChatTokenizer(policy)
    ours = {
        "tokenizer_digest": _tokenizer_digest(reference),
        "template_digest": tokenizer.template_digest,
        "end_of_turn_id": str(tokenizer.end_of_turn_id),
    }
    theirs = {
        "tokenizer_digest": _tokenizer_digest(policy),
        "template_digest": other.template_digest,
        "end_of_turn_id": str(other.end_of_turn_id),
    }
    for name, expected in ours.items():
        if theirs[name] != expected:
            raise BackendError(
                f"implicit reward: {name}",
                problem="policy and reference do not read text alike",
                expected=f"{expected}, as the reference has",
                found=theirs[name],
                next_step="take the model that the policy was trained from as base model, with the "
                "same tokenizer files and chat template",
            )
    return ours


def _tokenizer_digest(folder: Path) -> str:
    """Of everything in tokenizer.json that decides which ids a text becomes."""
    value = json.loads((folder / "tokenizer.json").read_bytes())
    kept = {name: part for name, part in value.items() if name not in _UNUSED}
    text = json.dumps(kept, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return digest_bytes(text.encode("utf-8", "surrogatepass"))
