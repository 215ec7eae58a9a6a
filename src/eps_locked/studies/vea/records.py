"""The JSON that scoring writes: one score for each response of each item, in frozen order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eps_locked.canonical import decode, encode
from eps_locked.domain.fields import Fields
from eps_locked.domain.reward import RewardScore
from eps_locked.errors import EvidenceError

__all__ = ["SCORES_FILE", "ScoresRecord"]

SCORES_FILE = "scores.json"
SCORES_SCHEMA = "eps-locked/vea-scores/1"


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoresRecord:
    """``identity`` is the reward model's, as it gave it after it had answered."""

    reward_model: str
    identity: Mapping[str, Any]
    scores: tuple[RewardScore, ...]

    @property
    def by_key(self) -> dict[str, RewardScore]:
        return {score.key: score for score in self.scores}

    def to_files(self) -> dict[str, bytes]:
        document = {
            "schema": SCORES_SCHEMA,
            "reward_model": self.reward_model,
            "identity": dict(self.identity),
            "scores": [score.to_dict() for score in self.scores],
        }
        return {SCORES_FILE: encode(document)}

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], thing: str) -> ScoresRecord:
        """Raises EvidenceError or MalformedInputError naming the file and field."""
        if set(files) != {SCORES_FILE}:
            raise EvidenceError(
                thing, expected=SCORES_FILE, found=", ".join(sorted(files)) or "nothing"
            )
        with Fields(decode(files[SCORES_FILE], thing=thing), thing) as fields:
            fields.text("schema", one_of=(SCORES_SCHEMA,))
            record = cls(
                reward_model=fields.text("reward_model"),
                identity=fields.mapping("identity"),
                scores=fields.each("scores", RewardScore.from_dict),
            )
        _require_identity(record.identity, f"{thing}.identity")
        return record


def _require_identity(value: Mapping[str, Any], path: str) -> None:
    """The form of a RewardIdentity; what stands in it is for the re-derivation to judge."""
    with Fields(value, path) as fields:
        for key in ("kind", "model", "version"):
            fields.text(key)
        fields.text_map("settings")
        fields.flag("publishable")
