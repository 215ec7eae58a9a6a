"""C9: which adapter was trained for which cell, as the adapter files themselves say."""

from __future__ import annotations

import json

from eps_locked.audit.noting import Check, Noting
from eps_locked.errors import EvidenceError
from eps_locked.lock.history import History
from eps_locked.lock.workspace import RunFolder


def check_lineage(run: RunFolder, history: History, check: Check) -> None:
    """Adapter files carry their cell in the safetensors header; it must be the step's.

    A cell is what the step is called by: each of its parameters, and its seed.
    """
    owners: dict[str, str] = {}
    for body in history.done.values():
        step = history.terms.steps[body.step]
        artifact = body.outputs.get("adapter")
        if artifact is None:
            continue
        with Noting(check):
            data = run.artifact_file(artifact, "adapter_model.safetensors")
            found = safetensors_metadata(data, thing=body.step)
            for key, value in (*step.params.items(), ("seed", str(step.seed))):
                if found.get(key) != value:
                    raise EvidenceError(
                        f"{body.step}: adapter {key}", expected=value, found=found.get(key)
                    )
            other = owners.setdefault(artifact.digest, body.step)
            if other != body.step:
                raise EvidenceError(
                    f"{body.step}: adapter",
                    expected="an adapter of its own",
                    found=f"the bytes of {other}'s",
                )


def safetensors_metadata(data: bytes, *, thing: str) -> dict[str, str]:
    """The ``__metadata__`` of a safetensors file, without loading a tensor."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(len(data) - 8, 100 << 20):
        raise EvidenceError(thing, expected="a safetensors file", found=f"{len(data)} bytes")
    try:
        metadata = json.loads(data[8 : 8 + length]).get("__metadata__", {})
        return {str(key): str(value) for key, value in metadata.items()}
    except (ValueError, AttributeError, RecursionError) as error:
        raise EvidenceError(thing, problem="has an unreadable safetensors header") from error
