"""One forward pass for rows that share a prefix: the prefix's keys and values exist once.

A batch here is sixteen questions behind one context. Copying the context's keys and values into
every row (what padding to a rectangle does) costs memory traffic that outweighs the weights once
the context is long, so attention is done in two parts, over the shared prefix and over each row's
own tail, and the two softmaxes are merged. The merge is exact up to float rounding: with scores
s_p, s_t and a common maximum m,

    softmax([s_p, s_t]) [V_p; V_t]
        = (e^(s_p-m) V_p + e^(s_t-m) V_t) / (sum e^(s_p-m) + sum e^(s_t-m))

Source: Juravsky et al. 2024, Hydragen, arXiv:2402.05099, section 3.1.

The pass runs the model's own modules (LoRA layers included) through the attention registry of
transformers; only the attention arithmetic and the place where keys and values are kept are ours.

Shape letters: B rows, T tokens fed per row, S tail length, P prefix length, H query heads, K key
heads, G = H / K, D head size, C hidden size, L layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from eps_locked.domain.model import TokenIds
from eps_locked.errors import BackendError

__all__ = [
    "ModelHost",
    "Prefix",
    "Tails",
    "forward",
    "new_tails",
    "prefix_of",
    "register_attention",
]

ATTENTION_NAME = "eps_locked_shared_prefix"
# Scores of one block of queries: 2**22 float32 are 16 MB, which stays near the caches of a CPU.
_SCORES_PER_BLOCK = 2**22


class ModelHost(Protocol):
    """What this room needs of the object that holds the base model (``models.host``)."""

    model: Any
    config: Any
    device: str

    @property
    def body(self) -> Any: ...

    @property
    def lm_head(self) -> Any: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Prefix:
    """Keys and values of tokens that every row begins with. ``kv_L2KPD`` is never written."""

    token_ids: TokenIds
    kv_L2KPD: torch.Tensor

    @property
    def length(self) -> int:
        return len(self.token_ids)


@dataclass(kw_only=True, slots=True)
class Tails:
    """Keys and values of each row after the prefix: the working memory of one batch.

    Row b's token i lies at ``kv_L2BKSD[:, :, b, :, i]``. Rows are packed to the left, so padding
    is only ever behind a row's last token, where the causal mask hides it until it is overwritten.
    """

    prefix: Prefix | None
    kv_L2BKSD: torch.Tensor

    def reorder(self, order: Sequence[int]) -> None:
        """Row i becomes what row ``order[i]`` was. Copies only the rows that move."""
        moved = [i for i, source in enumerate(order) if i != source]
        if moved:
            self.kv_L2BKSD[:, :, moved] = self.kv_L2BKSD[:, :, [order[i] for i in moved]]


class _Step:
    """The cache handed to the model for one pass: stores new keys and values, returns the tails."""

    def __init__(self, tails: Tails, starts: Sequence[int], n_tokens: int, device: str) -> None:
        self.tails = tails
        self.n_rows = len(starts)
        self.end = max(starts) + n_tokens
        # Rows that all start alike are written as one slice; ragged ones by index.
        self.start = starts[0] if len(set(starts)) == 1 else None
        self.whole = self.start == 0 and tails.prefix is None
        self.n_tokens = n_tokens
        steps_T = torch.arange(n_tokens, device=device)
        self.index_BT = torch.tensor(starts, device=device)[:, None] + steps_T
        self.rows_B1 = torch.arange(self.n_rows, device=device)[:, None]
        if not self.whole:
            visible_BTS = torch.arange(self.end, device=device) <= self.index_BT[:, :, None]
            zero = torch.zeros((), device=device)
            self.bias_BTS = torch.where(visible_BTS, zero, float("-inf"))

    def update(
        self, key_BKTD: torch.Tensor, value_BKTD: torch.Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        key_BKSD, value_BKSD = self.tails.kv_L2BKSD[layer_idx, :, : self.n_rows].unbind(0)
        if self.start is not None:
            key_BKSD[:, :, self.start : self.end] = key_BKTD
            value_BKSD[:, :, self.start : self.end] = value_BKTD
        else:
            key_BKSD[self.rows_B1, :, self.index_BT] = key_BKTD.transpose(1, 2)
            value_BKSD[self.rows_B1, :, self.index_BT] = value_BKTD.transpose(1, 2)
        return key_BKSD[:, :, : self.end], value_BKSD[:, :, : self.end]

    def get_seq_length(self, *_: Any) -> int:
        return self.end - self.n_tokens


def register_attention() -> None:
    """Make our attention known to transformers by its name. Repeating it is harmless."""
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION_NAME, _attend)


def new_tails(host: ModelHost, prefix: Prefix | None, n_rows: int, capacity: int) -> Tails:
    """Room for ``n_rows`` rows of up to ``capacity`` tokens after the prefix.

    Zeroed, not empty: masked places are multiplied by an exact 0, and 0 times a stray NaN is NaN.
    """
    config = host.config
    n_heads = config.num_attention_heads
    kv_L2BKSD = torch.zeros(
        config.num_hidden_layers,
        2,
        n_rows,
        getattr(config, "num_key_value_heads", None) or n_heads,
        capacity,
        getattr(config, "head_dim", None) or config.hidden_size // n_heads,
        dtype=host.model.dtype,
        device=host.device,
    )
    return Tails(prefix=prefix, kv_L2BKSD=kv_L2BKSD)


def prefix_of(host: ModelHost, token_ids: TokenIds) -> Prefix:
    """Compute a prefix alone, in one pass of batch 1, so its bytes depend on nothing else."""
    tails = new_tails(host, None, 1, len(token_ids))
    forward(host, tails, [token_ids], [0])
    return Prefix(token_ids=token_ids, kv_L2KPD=tails.kv_L2BKSD[:, :, 0])


def forward(
    host: ModelHost, tails: Tails, feeds: Sequence[Sequence[int]], starts: Sequence[int]
) -> torch.Tensor:
    """Feed ``feeds[b]`` to row b, whose tail holds ``starts[b]`` tokens. Returns hidden_BTC.

    T is the longest feed; shorter ones are padded behind, and their padded places mean nothing.
    ``len(feeds)`` may be less than the rows of ``tails``: the first ones are meant.
    """
    n_tokens = max(len(feed) for feed in feeds)
    padded = [[*feed, *([0] * (n_tokens - len(feed)))] for feed in feeds]
    step = _Step(tails, starts, n_tokens, host.device)
    offset = 0 if tails.prefix is None else tails.prefix.length
    with torch.no_grad(), _our_attention(host.config):
        return host.body(  # type: ignore[no-any-return]
            input_ids=torch.tensor(padded, device=host.device),
            position_ids=step.index_BT + offset,
            past_key_values=step,
            use_cache=True,
            shared_step=step,
        ).last_hidden_state


@contextmanager
def _our_attention(config: Any) -> Iterator[None]:
    """The trainer uses the same model with the attention it was loaded with, so give it back."""
    before = config._attn_implementation
    config._attn_implementation = ATTENTION_NAME
    try:
        yield
    finally:
        config._attn_implementation = before


def _attend(
    module: Any,
    query_BHTD: torch.Tensor,
    key_BKSD: torch.Tensor,
    value_BKSD: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    shared_step: _Step,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Any = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """The attention function of one layer, in the form transformers calls it."""
    if sliding_window is not None or softcap is not None or s_aux is not None:
        raise BackendError(
            f"attention of layer {module.layer_idx}",
            expected="full causal attention",
            found="a sliding window, capped scores or attention sinks",
            next_step="use a model without these, or another engine",
        )
    scale = query_BHTD.shape[-1] ** -0.5 if scaling is None else scaling
    if shared_step.whole:
        out_BHTD = torch.nn.functional.scaled_dot_product_attention(
            query_BHTD, key_BKSD, value_BKSD, is_causal=True, scale=scale, enable_gqa=True
        )
        return out_BHTD.transpose(1, 2).contiguous(), None
    n_rows, n_heads, n_tokens, _size = query_BHTD.shape
    prefix = shared_step.tails.prefix
    span = key_BKSD.shape[2] + (0 if prefix is None else prefix.length)
    block = max(1, _SCORES_PER_BLOCK // (n_rows * n_heads * span))
    shared = None if prefix is None else prefix.kv_L2KPD[module.layer_idx]
    parts = [
        _attend_block(
            query_BHTD[:, :, a : a + block] * scale,
            key_BKSD,
            value_BKSD,
            shared_step.bias_BTS[:, a : a + block],
            shared,
        )
        for a in range(0, n_tokens, block)
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1), None


def _attend_block(
    query_BHTD: torch.Tensor,
    key_BKSD: torch.Tensor,
    value_BKSD: torch.Tensor,
    bias_BTS: torch.Tensor,
    shared_2KPD: torch.Tensor | None,
) -> torch.Tensor:
    """Scaled queries over tail and prefix; softmax in float32. Returns out_BTHD."""
    B, H, T, D = query_BHTD.shape
    K, S = key_BKSD.shape[1:3]
    G = H // K
    query_BKND = query_BHTD.reshape(B, K, G * T, D)
    tail_BKGTS = (query_BKND @ key_BKSD.transpose(2, 3)).float().view(B, K, G, T, S)
    tail_BKGTS = tail_BKGTS + bias_BTS[:, None, None]
    top_BKGT1 = tail_BKGTS.amax(-1, keepdim=True)
    if shared_2KPD is None:
        weight_BKGTS = (tail_BKGTS - top_BKGT1).exp_()
        total_BKGT1 = weight_BKGTS.sum(-1, keepdim=True)
        out_BKGTD = _weighted(weight_BKGTS, value_BKSD)
    else:
        key_KPD, value_KPD = shared_2KPD.unbind(0)
        query_KMD = query_BKND.transpose(0, 1).reshape(K, B * G * T, D)
        shared_KMP = (query_KMD @ key_KPD.transpose(1, 2)).float()
        # M runs over rows, groups and tokens: back to the order of the tail's scores.
        shared_top = shared_KMP.amax(-1, keepdim=True).view(K, B, G, T, 1).transpose(0, 1)
        top_BKGT1 = torch.maximum(top_BKGT1, shared_top)
        top_KM1 = top_BKGT1.transpose(0, 1).reshape(K, B * G * T, 1)
        shared_KMP = shared_KMP.sub_(top_KM1).exp_()
        weight_BKGTS = tail_BKGTS.sub_(top_BKGT1).exp_()
        shared_sum = shared_KMP.sum(-1, keepdim=True).view(K, B, G, T, 1).transpose(0, 1)
        total_BKGT1 = weight_BKGTS.sum(-1, keepdim=True) + shared_sum
        shared_KMD = (shared_KMP.to(value_KPD.dtype) @ value_KPD).float()
        out_BKGTD = _weighted(weight_BKGTS, value_BKSD)
        out_BKGTD = out_BKGTD + shared_KMD.view(K, B, G, T, D).transpose(0, 1)
    out_BKGTD = (out_BKGTD / total_BKGT1).to(query_BHTD.dtype)
    return out_BKGTD.permute(0, 3, 1, 2, 4).reshape(B, T, H, D)


def _weighted(weight_BKGTS: torch.Tensor, value_BKSD: torch.Tensor) -> torch.Tensor:
    """Unnormalised weights times values, in float32: shape B K G T D."""
    B, K, G, T, S = weight_BKGTS.shape
    weight_BKNS = weight_BKGTS.view(B, K, G * T, S).to(value_BKSD.dtype)
    return (weight_BKNS @ value_BKSD).float().view(B, K, G, T, -1)
