"""The policy of an implicit reward: found, held against its frozen digests, and only then used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from eps_locked.canonical import decode
from eps_locked.domain.fields import Fields
from eps_locked.errors import BackendError, RefusedError
from eps_locked.models.folder import digest_model_folder

__all__ = ["FrozenPolicy", "require_policy"]

POLICY_SCHEMA = "eps-locked/vea-model/1"
_WEIGHTS = ".safetensors"


@dataclass(frozen=True, kw_only=True, slots=True)
class FrozenPolicy:
    """``files``: the digest of each file of the policy's folder by its name; there is no other."""

    reward_model: str
    where: str
    files: Mapping[str, str]

    @classmethod
    def read(cls, data: bytes, thing: str) -> FrozenPolicy:
        """Raises MalformedInputError naming the field."""
        with Fields(decode(data, thing=thing), thing) as fields:
            fields.text("schema", one_of=(POLICY_SCHEMA,))
            with fields.sub("source") as source:
                source.text("kind")
                where = source.text("where")
                source.text_or_none("revision")
            return cls(
                reward_model=fields.text("reward_model"),
                where=where,
                files=fields.text_map("files"),
            )


def require_policy(frozen: FrozenPolicy, folder: Path, reference: Path) -> None:
    """Require that ``folder`` holds exactly the frozen files, and other weights than the reference.

    Reads every byte of both models' weights. Raises RefusedError naming the file, and BackendError
    for a folder that cannot be read.
    """
    found = {name: record["digest"] for name, record in digest_model_folder(folder).items()}
    for name in sorted({*frozen.files, *found}):
        expected, there = frozen.files.get(name, "no such file"), found.get(name, "no such file")
        if expected != there:
            raise RefusedError(
                f"policy of {frozen.reward_model}: {name}",
                expected=expected,
                found=there,
                next_step="restore the frozen policy, or freeze a plan that names this one",
            )
    if _weights(found) == _weights(
        {name: record["digest"] for name, record in digest_model_folder(reference).items()}
    ):
        raise RefusedError(
            f"policy of {frozen.reward_model}",
            problem="has the weights of its reference, so that every reward would be 0",
            expected="a model that was trained from the base model",
            found="the base model's own weights",
            next_step="name the trained policy; the plan's base model is the reference",
        )


def _weights(files: Mapping[str, str]) -> set[str]:
    found = {digest for name, digest in files.items() if name.endswith(_WEIGHTS)}
    if not found:
        raise BackendError("model folder", expected=f"{_WEIGHTS} weights", found="none")
    return found
