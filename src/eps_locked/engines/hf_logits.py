"""From hidden states to decisions: arg-max with a tie rule, seeded sampling, and slot values.

Logits exist for a few positions at a time and are dropped at once; a full-vocabulary tensor over
a batch of sequences would be larger than the model.

Shape letters: M positions (of any rows), V vocabulary, C hidden size, N marker tokens.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from eps_locked.domain.model import SlotProbe, SlotReading

__all__ = [
    "TIE_MARGIN",
    "Outlook",
    "ProbeValues",
    "join_reading",
    "look",
    "probe_values",
    "sample",
]

# Two logits closer than this are decided by a pass over the row alone (see hf_decode). Between
# batches of different shape, float32 moved the gap of the two best logits by 2.5e-5 at most on 600
# positions of real answers (135M parameters, 30 layers); this is ten times that, and met by about
# one token in 1,500. A gap that moves by more would let a neighbour decide a token.
TIE_MARGIN = 2.5e-4
# Positions per pass through the output layer: 64 x 49152 float32 logits are 12.6 MB.
_POSITIONS_PER_CHUNK = 64
_READINGS_PER_CHUNK = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeValues:
    """What a probe needs of one position: every marker token's logit, log Z and the end's logit."""

    marker_logits: tuple[float, ...]
    log_z: float
    end_of_turn_logit: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Outlook:
    """What the model says at one position.

    ``choice`` is the greedy or sampled token; ``is_close`` says a greedy choice was within
    ``TIE_MARGIN`` of another. ``values`` is filled when the choice makes the position a possible
    slot (a marker token or the end of the answer) or leaves that open.
    """

    choice: int
    is_close: bool
    values: ProbeValues | None


def look(
    lm_head: Any,
    hidden_MC: torch.Tensor,
    probe: SlotProbe | None,
    slot_ids: Collection[int],
    draws: Sequence[float] | None,
    temperature: float,
    top_p: float,
    tie_margin: float,
) -> list[Outlook]:
    """Decide every position. ``draws[m]`` in [0, 1) samples position m; None means greedy."""
    found: list[Outlook] = []
    for start, logits_MV in _logits(lm_head, hidden_MC):
        if draws is None:
            top_M, choice_M = logits_MV.max(-1)
            close_M = (logits_MV >= top_M[:, None] - tie_margin).sum(-1) > 1
            choices, close = choice_M.tolist(), close_M.tolist()
        else:
            close = [False] * len(logits_MV)
            choices = [
                sample(logits_V, draws[start + m], temperature, top_p)
                for m, logits_V in enumerate(logits_MV)
            ]
        wanted = [m for m, choice in enumerate(choices) if close[m] or choice in slot_ids]
        values: dict[int, ProbeValues] = {}
        if probe is not None:
            values = dict(zip(wanted, _values(logits_MV, wanted, probe), strict=True))
        found += [
            Outlook(choice=choice, is_close=close[m], values=values.get(m))
            for m, choice in enumerate(choices)
        ]
    return found


def sample(logits_V: torch.Tensor, draw: float, temperature: float, top_p: float) -> int:
    """Inverse-CDF sampling in float64: the token in whose probability interval ``draw`` falls.

    One uniform number per token makes the choice a function of this row's logits and seed alone.
    top_p keeps the fewest most probable tokens whose sum reaches it (Holtzman et al. 2020,
    arXiv:1904.09751, section 3.1); equal probabilities are taken in vocabulary order.
    """
    probs_V = torch.softmax(logits_V.double() / temperature, dim=-1)
    ids_V: torch.Tensor | None = None
    if top_p < 1.0:
        probs_V, ids_V = probs_V.sort(descending=True, stable=True)
        before_V = probs_V.cumsum(-1) - probs_V
        probs_V = torch.where(before_V < top_p, probs_V, 0.0)
    cumulative_V = probs_V.cumsum(-1)
    target = draw * cumulative_V[-1]
    index = int(torch.searchsorted(cumulative_V, target, right=True))
    # Rounding may put the target on the last step, past the last token that has any probability.
    index = min(index, int(probs_V.nonzero()[-1]))
    return index if ids_V is None else int(ids_V[index])


def probe_values(lm_head: Any, hidden_MC: torch.Tensor, probe: SlotProbe) -> list[ProbeValues]:
    """The probe's values at every position."""
    return [
        values
        for _start, logits_MV in _logits(lm_head, hidden_MC)
        for values in _values(logits_MV, range(len(logits_MV)), probe)
    ]


def join_reading(steps: Sequence[ProbeValues]) -> SlotReading:
    """One reading from the values at the slot and after each marker token but the last."""
    marker_logits = tuple(step.marker_logits[k] for k, step in enumerate(steps))
    log_z = tuple(step.log_z for step in steps)
    return SlotReading(
        log_prob=sum(logit - z for logit, z in zip(marker_logits, log_z, strict=True)),
        marker_logits=marker_logits,
        log_z=log_z,
        end_of_turn_logit=steps[0].end_of_turn_logit,
    )


def _logits(lm_head: Any, hidden_MC: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
    """(first position, float32 logits_MV) per chunk of positions."""
    for start in range(0, len(hidden_MC), _POSITIONS_PER_CHUNK):
        with torch.no_grad():
            logits_MV = lm_head(hidden_MC[start : start + _POSITIONS_PER_CHUNK]).float()
        yield start, logits_MV


def _values(logits_MV: torch.Tensor, wanted: Sequence[int], probe: SlotProbe) -> list[ProbeValues]:
    """log Z in float64: its error then is that of the float32 logits, not of the sum."""
    columns = torch.tensor([*probe.marker_ids, probe.end_of_turn_id], device=logits_MV.device)
    found = []
    for start in range(0, len(wanted), _READINGS_PER_CHUNK):
        chunk_MV = logits_MV[list(wanted[start : start + _READINGS_PER_CHUNK])].double()
        log_z = torch.logsumexp(chunk_MV, dim=-1).tolist()
        for picked, z in zip(chunk_MV[:, columns].tolist(), log_z, strict=True):
            found.append(
                ProbeValues(marker_logits=tuple(picked[:-1]), log_z=z, end_of_turn_logit=picked[-1])
            )
    return found
