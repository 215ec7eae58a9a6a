"""Batched forward passes that compute logits only where they are read.

Shapes: B rows, T padded length, D hidden width, V vocabulary, N positions read in the batch.
Rows are padded on the right; the mask keeps padding out of every row's own past.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from eps_locked.domain.model import SlotProbe, SlotRequest, TokenIds, TrainingRow
from eps_locked.models.host import AdapterHost

if TYPE_CHECKING:
    import torch

__all__ = ["loss_over", "marker_log_probs"]

# Rows per forward pass of a strength check. Fixed, so a check does not depend on the recipe.
_CHECK_BATCH = 8


def loss_over(host: AdapterHost, rows: Sequence[TrainingRow]) -> torch.Tensor:
    """Mean cross-entropy in nats over the rows' loss tokens: a scalar that carries gradients."""
    import torch

    wanted = [
        (index, position - 1, row.token_ids[position])
        for index, row in enumerate(rows)
        for position in row.loss_positions
    ]
    logits_NV = _logits_at(host, [row.token_ids for row in rows], wanted)
    targets_N = torch.tensor([token for _, _, token in wanted], device=logits_NV.device)
    return torch.nn.functional.cross_entropy(logits_NV, targets_N)


def marker_log_probs(
    host: AdapterHost, requests: Sequence[SlotRequest], probe: SlotProbe
) -> tuple[float, ...]:
    """Log-probability in nats of the whole marker after each request, in order.

    Teacher-forced: entry k of the marker is read after its first k tokens.
    """
    found: list[float] = []
    for start in range(0, len(requests), _CHECK_BATCH):
        found += _marker_batch(host, requests[start : start + _CHECK_BATCH], probe.marker_ids)
    return tuple(found)


def _marker_batch(
    host: AdapterHost, requests: Sequence[SlotRequest], marker_ids: TokenIds
) -> list[float]:
    import torch

    width = len(marker_ids)
    sequences = [request.token_ids + marker_ids[:-1] for request in requests]
    wanted = [
        (index, len(request.token_ids) - 1 + k, marker_ids[k])
        for index, request in enumerate(requests)
        for k in range(width)
    ]
    log_probs_NV = torch.log_softmax(_logits_at(host, sequences, wanted), dim=-1)
    targets_N = torch.tensor([token for _, _, token in wanted], device=log_probs_NV.device)
    picked_N = log_probs_NV.gather(1, targets_N[:, None])[:, 0]
    return [float(value) for value in picked_N.view(-1, width).double().sum(dim=1)]


def _logits_at(
    host: AdapterHost, sequences: Sequence[TokenIds], wanted: Sequence[tuple[int, int, int]]
) -> torch.Tensor:
    """Float32 logits_NV at the (row, position, _) triples of ``wanted``."""
    import torch

    longest = max(len(ids) for ids in sequences)
    ids_BT = torch.zeros((len(sequences), longest), dtype=torch.long)
    mask_BT = torch.zeros_like(ids_BT)
    for index, ids in enumerate(sequences):
        ids_BT[index, : len(ids)] = torch.tensor(ids)
        mask_BT[index, : len(ids)] = 1
    hidden_BTD = host.body(
        input_ids=ids_BT.to(host.device),
        attention_mask=mask_BT.to(host.device),
        use_cache=False,
    ).last_hidden_state
    row_N = torch.tensor([row for row, _, _ in wanted], device=hidden_BTD.device)
    position_N = torch.tensor([position for _, position, _ in wanted], device=hidden_BTD.device)
    return host.lm_head(hidden_BTD[row_N, position_N]).float()
