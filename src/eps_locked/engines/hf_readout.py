"""Readings other than answers: hidden states over spans, and divergences of whole distributions.

Distributions over the vocabulary exist for a few positions at a time. What is kept of a row is its
hidden states at the answer's positions, a hundredth of that.

Shape letters: A the answer's positions, M some of them, V vocabulary, C hidden size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from eps_locked.domain.model import Divergence, DivergenceRequest, TokenIds
from eps_locked.engines.hf_forward import ModelHost
from eps_locked.engines.hf_rows import Bunch, hidden_of_rows

__all__ = ["answer_states", "divergence_of", "span_means"]

# Positions whose distributions exist at once, own and other: 2 x 32 x 49152 float64 are 25 MB.
_POSITIONS_PER_CHUNK = 32


def span_means(
    host: ModelHost,
    bunches: Sequence[Bunch],
    rows: Sequence[TokenIds],
    starts: Sequence[int],
    layer: int,
) -> list[tuple[float, ...]]:
    """Mean residual stream after ``layer`` over each row from ``starts[b]`` to its end, in float64.

    No prefix may reach past the start of its rows.
    """
    states = hidden_of_rows(host, bunches, rows, layer)
    return [
        tuple(hidden_TC[start - len(row) :].double().mean(0).tolist())
        for row, start, hidden_TC in zip(rows, starts, states, strict=True)
    ]


def answer_states(
    host: ModelHost, bunches: Sequence[Bunch], rows: Sequence[TokenIds], n_last: Sequence[int]
) -> list[torch.Tensor]:
    """hidden_AC at the last ``n_last[b]`` tokens of each row, ready for the output layer."""
    states = hidden_of_rows(host, bunches, rows)
    # A copy: a view would keep the states of the whole pass.
    return [hidden_TC[-n:].clone() for hidden_TC, n in zip(states, n_last, strict=True)]


def divergence_of(
    lm_head: Any,
    request: DivergenceRequest,
    own_AC: torch.Tensor,
    others_AC: Mapping[str, torch.Tensor],
) -> Divergence:
    """Own against each other prompt, from the hidden states before each answer token.

    KL = sum_v p log p - sum_v p log q, in float64 from the model's logits. Rounding can put a
    divergence of nearly nothing below 0; it then counts as 0. The own tensor among the others
    gives 0 exactly.
    """
    own, kl = 0.0, dict.fromkeys(others_AC, 0.0)
    other = dict.fromkeys(others_AC, 0.0)
    for span in _chunks(len(request.answer)):
        log_p_MV = _log_probs(lm_head, own_AC[span])
        p_MV = log_p_MV.exp()
        answer_M1 = torch.tensor(request.answer[span], device=log_p_MV.device)[:, None]
        own_log_prob = float(log_p_MV.gather(1, answer_M1).sum())
        own += own_log_prob
        negative_entropy_M = torch.linalg.vecdot(p_MV, log_p_MV)
        for name, hidden_AC in others_AC.items():
            if hidden_AC is own_AC:
                other[name] += own_log_prob
                continue
            log_q_MV = _log_probs(lm_head, hidden_AC[span])
            other[name] += float(log_q_MV.gather(1, answer_M1).sum())
            kl_M = negative_entropy_M - torch.linalg.vecdot(p_MV, log_q_MV)
            kl[name] += float(kl_M.clamp(min=0.0).sum())
    return Divergence(
        key=request.key,
        n_tokens=len(request.answer),
        kl_sum=kl,
        log_prob=own,
        log_probs=other,
    )


def _chunks(n_positions: int) -> Iterator[slice]:
    for start in range(0, n_positions, _POSITIONS_PER_CHUNK):
        yield slice(start, start + _POSITIONS_PER_CHUNK)


def _log_probs(lm_head: Any, hidden_MC: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return torch.log_softmax(lm_head(hidden_MC).double(), dim=-1)
