"""Proof that an adapter acts, for any engine that can show log-probabilities.

An adapter that is silently not applied gives differences of zero that look like a finding
(field notes, incident 4). So an engine counts the tensors that found their place and compares a
few fixed probes with the bare base, and serves nothing before both have passed.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence

from eps_locked.domain.model import AdapterFiles, AttachProof, SlotRequest
from eps_locked.errors import BackendError

__all__ = ["MIN_LOG_PROB_CHANGE", "n_tensors_in_file", "require_effect"]

# The smallest change, in nats, that counts as one. The engine repeats its own bytes, so a bare
# base compared with itself gives exactly 0; 1e-4 lies above the float32 noise of differently
# shaped batches (up to 1e-4 nats on real text) and four orders of magnitude below the smallest
# implant worth measuring. Half a training step of a rank-8 adapter already moves 1e-2.
MIN_LOG_PROB_CHANGE = 1e-4

_WEIGHTS_NAME = "adapter_model.safetensors"


def n_tensors_in_file(adapter: AdapterFiles) -> int:
    """Count tensors in the safetensors header. Raises BackendError if there is no such header.

    Source: the safetensors format, https://github.com/huggingface/safetensors#format.
    """
    content = adapter.files.get(_WEIGHTS_NAME)
    try:
        if content is None:
            raise ValueError(f"the adapter has no {_WEIGHTS_NAME}")
        (length,) = struct.unpack_from("<Q", content)
        header = json.loads(content[8 : 8 + length])
        return len(header.keys() - {"__metadata__"})
    except (ValueError, struct.error, AttributeError) as error:
        raise BackendError(
            f"adapter {adapter.digest}: {_WEIGHTS_NAME}",
            expected="a safetensors file",
            found=str(error),
            next_step="fetch or train the adapter again",
        ) from error


def require_effect(
    adapter: AdapterFiles, n_loaded: int, probes: Sequence[SlotRequest], changes: Sequence[float]
) -> AttachProof:
    """Return the proof, or raise BackendError saying what is missing.

    ``changes[i]`` is the largest absolute log-probability change (nats) at the position after
    ``probes[i]``, over the vocabulary, adapter against bare base.
    """
    n_in_file = n_tensors_in_file(adapter)
    if n_loaded != n_in_file:
        raise BackendError(
            f"adapter {adapter.digest}: tensors in place",
            expected=n_in_file,
            found=n_loaded,
            next_step="check that the adapter was trained on this base model",
        )
    largest = max(changes)
    # Written so that NaN, which compares false, is refused.
    if not largest > MIN_LOG_PROB_CHANGE:
        raise BackendError(
            f"adapter {adapter.digest}: adapter has no effect",
            expected=f"a log-probability change above {MIN_LOG_PROB_CHANGE:g} nats on a probe",
            found=f"{largest:g}",
            next_step="check that it was trained (B is zero in a fresh adapter) and is activated",
            details=tuple(
                f"probe {probe.key}: {change:g}"
                for probe, change in zip(probes, changes, strict=True)
            ),
        )
    return AttachProof(
        adapter_digest=adapter.digest,
        n_tensors_loaded=n_loaded,
        n_tensors_in_file=n_in_file,
        max_abs_log_prob_change=largest,
    )
