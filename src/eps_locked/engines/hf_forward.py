"""One forward pass for rows that share prefixes: a prefix's keys and values exist once.

A batch here is the same few questions behind each of some contexts. Copying a context's keys and
values into every row (what padding to a rectangle does) costs memory traffic that outweighs the
weights once the context is long, so attention is done in two parts, over the shared prefix (one
prefix after the other) and over each row's own tail (all rows at once), and the two softmaxes are
merged. Everything else runs over all fed tokens at once, without padding. The merge is exact up to
float rounding: with scores s_p, s_t and a common maximum m,

    softmax([s_p, s_t]) [V_p; V_t]
        = (e^(s_p-m) V_p + e^(s_t-m) V_t) / (sum e^(s_p-m) + sum e^(s_t-m))

Source: Juravsky et al. 2024, Hydragen, arXiv:2402.05099, section 3.1.

The pass runs the model's own modules (LoRA layers included) through the attention registry of
transformers; only the attention arithmetic and the place where keys and values are kept are ours.

Shape letters: B rows, R rows of one prefix, N fed tokens of all rows, T fed tokens of a row (with
padding), S tail length, P prefix length, H query heads, K key heads, G = H / K, D head size,
C hidden size, L layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
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
    """Keys and values of tokens that some rows begin with. ``kv_L2KPD`` is never written."""

    token_ids: TokenIds
    kv_L2KPD: torch.Tensor

    @property
    def length(self) -> int:
        return len(self.token_ids)


@dataclass(kw_only=True, slots=True)
class Tails:
    """Keys and values of each row after its prefix: the working memory of one batch.

    Row b begins with ``prefixes[b]`` (None: with nothing) and its own token i lies at
    ``kv_L2BKSD[:, :, b, :, i]``. Rows are packed to the left, so padding is only ever behind a
    row's last token, where the causal mask hides it until it is overwritten. Rows of one prefix
    should be neighbours: each run of them is one more piece of work in every layer.
    """

    prefixes: list[Prefix | None]
    kv_L2BKSD: torch.Tensor

    def reorder(self, order: Sequence[int]) -> None:
        """Row i becomes what row ``order[i]`` was. Copies only the rows that move."""
        rows = self.kv_L2BKSD.unbind(2)
        left = {i for i, source in enumerate(order) if i != source}
        while left:
            # One cycle of the permutation: a spare copy of its first row, then row by row.
            first = place = left.pop()
            spare = rows[first].clone()
            while order[place] != first:
                rows[place].copy_(rows[order[place]])
                place = order[place]
                left.remove(place)
            rows[place].copy_(spare)
        self.prefixes = [self.prefixes[i] for i in order]

    def part(self, rows: slice) -> Tails:
        """Some of the rows; what is written there is written here."""
        return Tails(prefixes=self.prefixes[rows], kv_L2BKSD=self.kv_L2BKSD[:, :, rows])


class _Step:
    """The cache handed to the model for one pass: stores new keys and values, returns the tails.

    The model sees the fed tokens as one long row of N, the rows' tokens one after the other;
    attention alone sees rows again.
    """

    def __init__(
        self, tails: Tails, starts: Sequence[int], n_fed: Sequence[int], device: str
    ) -> None:
        self.tails = tails
        self.n_rows, self.n_tokens = len(n_fed), max(n_fed)
        self.end = max(start + n for start, n in zip(starts, n_fed, strict=True))
        self.is_even = min(n_fed) == self.n_tokens
        prefixes = tails.prefixes[: self.n_rows]
        self.shared = _runs(prefixes)
        self.whole = not any(starts) and not self.shared
        offsets = [0 if prefix is None else prefix.length for prefix in prefixes]
        self.n_seen = self.n_rows * self.end + sum(offsets)  # scores per head and fed token
        row_N = [b for b, n in enumerate(n_fed) for _ in range(n)]
        token_N = [t for n in n_fed for t in range(n)]
        place_N = [starts[b] + t for b, t in zip(row_N, token_N, strict=True)]
        position_N = [offsets[b] + place for b, place in zip(row_N, place_N, strict=True)]
        self.row_N = torch.tensor(row_N, device=device)
        self.token_N = torch.tensor(token_N, device=device)
        self.place_N = torch.tensor(place_N, device=device)
        self.position_N = torch.tensor(position_N, device=device)
        if not self.whole:
            index_BT = torch.tensor(starts, device=device)[:, None] + torch.arange(
                self.n_tokens, device=device
            )
            visible_BTS = torch.arange(self.end, device=device) <= index_BT[:, :, None]
            zero = torch.zeros((), device=device)
            self.bias_BTS = torch.where(visible_BTS, zero, float("-inf"))

    def update(
        self, key_1KND: torch.Tensor, value_1KND: torch.Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        key_BKSD, value_BKSD = self.tails.kv_L2BKSD[layer_idx, :, : self.n_rows].unbind(0)
        key_BKSD[self.row_N, :, self.place_N] = key_1KND[0].transpose(0, 1)
        value_BKSD[self.row_N, :, self.place_N] = value_1KND[0].transpose(0, 1)
        return key_BKSD[:, :, : self.end], value_BKSD[:, :, : self.end]

    def get_seq_length(self, *_: Any) -> int:
        return 0

    def rows_of(self, packed_1HND: torch.Tensor) -> torch.Tensor:
        """The packed tokens as padded_BHTD; what stands in padded places means nothing."""
        _, H, _N, D = packed_1HND.shape
        packed_NHD = packed_1HND[0].transpose(0, 1)
        if self.is_even:
            return packed_NHD.reshape(self.n_rows, self.n_tokens, H, D).transpose(1, 2)
        padded_BTHD = packed_NHD.new_zeros(self.n_rows, self.n_tokens, H, D)
        padded_BTHD[self.row_N, self.token_N] = packed_NHD
        return padded_BTHD.transpose(1, 2)

    def packed(self, rows_BTHD: torch.Tensor) -> torch.Tensor:
        """The way back: packed_1NHD."""
        if self.is_even:
            return rows_BTHD.reshape(1, -1, *rows_BTHD.shape[2:])
        return rows_BTHD[self.row_N, self.token_N][None]


def register_attention() -> None:
    """Make our attention known to transformers by its name. Repeating it is harmless."""
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION_NAME, _attend)


def new_tails(host: ModelHost, prefixes: Sequence[Prefix | None], capacity: int) -> Tails:
    """Room for one row of up to ``capacity`` tokens behind each of ``prefixes``.

    Zeroed, not empty: masked places are multiplied by an exact 0, and 0 times a stray NaN is NaN.
    """
    config = host.config
    n_heads = config.num_attention_heads
    kv_L2BKSD = torch.zeros(
        config.num_hidden_layers,
        2,
        len(prefixes),
        getattr(config, "num_key_value_heads", None) or n_heads,
        capacity,
        getattr(config, "head_dim", None) or config.hidden_size // n_heads,
        dtype=host.model.dtype,
        device=host.device,
    )
    return Tails(prefixes=list(prefixes), kv_L2BKSD=kv_L2BKSD)


def prefix_of(host: ModelHost, token_ids: TokenIds) -> Prefix:
    """Compute a prefix alone, in one pass of batch 1, so its bytes depend on nothing else."""
    tails = new_tails(host, [None], len(token_ids))
    forward(host, tails, [token_ids], [0])
    return Prefix(token_ids=token_ids, kv_L2KPD=tails.kv_L2BKSD[:, :, 0])


def forward(
    host: ModelHost,
    tails: Tails,
    feeds: Sequence[Sequence[int]],
    starts: Sequence[int],
    layer: int | None = None,
) -> torch.Tensor:
    """Feed ``feeds[b]`` to row b, whose tail holds ``starts[b]`` tokens. Returns hidden_NC.

    N runs over the fed tokens, row after row. ``len(feeds)`` may be less than the rows of
    ``tails``: the first ones are meant. With ``layer`` (1 or more) the pass ends after that block
    and returns the residual stream there; the final norm is not applied, after the last block
    neither.
    """
    step = _Step(tails, starts, [len(feed) for feed in feeds], host.device)
    ids = [token_id for feed in feeds for token_id in feed]
    with torch.no_grad(), _our_attention(host.config), _ending_after(host, layer) as reached:
        hidden_1NC = host.body(
            input_ids=torch.tensor([ids], device=host.device),
            position_ids=step.position_N[None],
            past_key_values=step,
            use_cache=True,
            shared_step=step,
        ).last_hidden_state
        reached.append(hidden_1NC)
    return reached[0][0]


class _EndOfPass(Exception):
    """Thrown by the hook below through the model's own forward; never seen outside this file."""


@contextmanager
def _ending_after(host: ModelHost, layer: int | None) -> Iterator[list[torch.Tensor]]:
    """Inside, a pass ends after block ``layer`` and leaves its output in the list; None: never."""
    reached: list[torch.Tensor] = []
    if layer is None:
        yield reached
        return

    def end(_module: Any, _arguments: Any, output: Any) -> None:
        reached.append(output[0] if isinstance(output, tuple) else output)
        raise _EndOfPass

    handle = host.body.layers[layer - 1].register_forward_hook(end)
    try:
        yield reached
    except _EndOfPass:
        pass
    finally:
        handle.remove()


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
    query_1HND: torch.Tensor,
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
    scale = query_1HND.shape[-1] ** -0.5 if scaling is None else scaling
    query_BHTD = shared_step.rows_of(query_1HND)
    if shared_step.whole:
        out_BHTD = torch.nn.functional.scaled_dot_product_attention(
            query_BHTD, key_BKSD, value_BKSD, is_causal=True, scale=scale, enable_gqa=True
        )
        return shared_step.packed(out_BHTD.transpose(1, 2)), None
    n_heads, n_tokens = query_BHTD.shape[1:3]
    block = max(1, _SCORES_PER_BLOCK // (n_heads * shared_step.n_seen))
    shared = [(rows, prefix.kv_L2KPD[module.layer_idx]) for rows, prefix in shared_step.shared]
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
    return shared_step.packed(parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)), None


def _attend_block(
    query_BHTD: torch.Tensor,
    key_BKSD: torch.Tensor,
    value_BKSD: torch.Tensor,
    bias_BTS: torch.Tensor,
    shared: Sequence[tuple[slice, torch.Tensor]],
) -> torch.Tensor:
    """Scaled queries over tail and prefixes; softmax in float32. Returns out_BTHD.

    ``shared`` are (rows, kv_2KPD): neighbouring rows and the keys and values of their prefix.
    """
    B, H, T, D = query_BHTD.shape
    K, S = key_BKSD.shape[1:3]
    G = H // K
    query_BKND = query_BHTD.reshape(B, K, G * T, D)
    tail_BKGTS = (query_BKND @ key_BKSD.transpose(2, 3)).float().view(B, K, G, T, S)
    tail_BKGTS = tail_BKGTS + bias_BTS[:, None, None]
    top_BKGT1 = tail_BKGTS.amax(-1, keepdim=True)
    scores = []
    for rows, kv_2KPD in shared:
        # One product over all rows of the prefix: M runs over rows, groups and tokens.
        query_KMD = query_BKND[rows].transpose(0, 1).reshape(K, -1, D)
        score_KMP = (query_KMD @ kv_2KPD[0].transpose(1, 2)).float()
        scores.append(score_KMP)
        top_RKGT1 = top_BKGT1[rows]
        shared_top = score_KMP.amax(-1, keepdim=True).view(K, -1, G, T, 1).transpose(0, 1)
        torch.maximum(top_RKGT1, shared_top, out=top_RKGT1)
    weight_BKGTS = tail_BKGTS.sub_(top_BKGT1).exp_()
    total_BKGT1 = weight_BKGTS.sum(-1, keepdim=True)
    out_BKGTD = _weighted(weight_BKGTS, value_BKSD)
    for (rows, kv_2KPD), score_KMP in zip(shared, scores, strict=True):
        top_KM1 = top_BKGT1[rows].transpose(0, 1).reshape(K, -1, 1)
        weight_KMP = score_KMP.sub_(top_KM1).exp_()
        total_KM1 = weight_KMP.sum(-1, keepdim=True)
        out_KMD = (weight_KMP.to(kv_2KPD.dtype) @ kv_2KPD[1]).float()
        total_BKGT1[rows] += total_KM1.view(K, -1, G, T, 1).transpose(0, 1)
        out_BKGTD[rows] += out_KMD.view(K, -1, G, T, D).transpose(0, 1)
    out_BKGTD = (out_BKGTD / total_BKGT1).to(query_BHTD.dtype)
    return out_BKGTD.permute(0, 3, 1, 2, 4).reshape(B, T, H, D)


def _weighted(weight_BKGTS: torch.Tensor, value_BKSD: torch.Tensor) -> torch.Tensor:
    """Unnormalised weights times values, in float32: shape B K G T D."""
    B, K, G, T, S = weight_BKGTS.shape
    weight_BKNS = weight_BKGTS.view(B, K, G * T, S).to(value_BKSD.dtype)
    return (weight_BKNS @ value_BKSD).float().view(B, K, G, T, -1)


def _runs(prefixes: Sequence[Prefix | None]) -> list[tuple[slice, Prefix]]:
    """(rows, prefix) for each run of neighbours that share one; rows without any are left out."""
    found, start = [], 0
    for _, members in groupby(prefixes, key=id):
        run = list(members)
        if run[0] is not None:
            found.append((slice(start, start + len(run)), run[0]))
        start += len(run)
    return found
