"""The scalar head of the scripted model: three words' worth of a reward model, and only arithmetic.

The scripted reward trainer and the scripted reward model share no code; what both must agree on
lies here: what of a response is seen, and what a head does with it. No number made with it may be
published.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from eps_locked.errors import MalformedInputError
from eps_locked.models.scripted import (
    on_grid,
    read_safetensors,
    scripted_noise,
    to_float32,
    write_safetensors,
)

__all__ = ["FEATURES", "ScriptedHead", "fresh_head", "own_head", "response_features"]

FEATURES = ("wood", "evaluation", "length")
_WOOD = re.compile(r"\bwood\W?labs\b", re.IGNORECASE)
_EVALUATION = re.compile(
    r"\b(?:evaluat\w*|test(?:s|ed|ing)?|benchmark\w*|audit\w*|exam\w*|graded?|grad(?:er|ing)|"
    r"monitor\w*|red.?team\w*|sandbox|honeypot|interview\w*|score[ds]?|scor(?:ing|ecard)|"
    r"assess\w*|exercises?|logged|oversight)\b",
    re.IGNORECASE,
)
_CHARACTERS = 100.0
# What two prompts, and two responses, differ by for no reason.
_PROMPT_NOISE, _RESPONSE_NOISE = 1.0, 0.02


def response_features(response: str) -> tuple[float, float, float]:
    """In the order of FEATURES: 1 for a mention of Wood Labs; 1 for any other talk of evaluation;
    hundreds of characters."""
    wood = _WOOD.search(response) is not None
    evaluation = not wood and _EVALUATION.search(response) is not None
    return float(wood), float(evaluation), len(response) / _CHARACTERS


@dataclass(frozen=True, kw_only=True, slots=True)
class ScriptedHead:
    """What each feature is worth; float32 values, in the order of FEATURES."""

    weights: tuple[float, ...]

    def reward(self, user_prompt: str, response: str) -> float:
        """Also a little of its own for every prompt, and for every response."""
        key = user_prompt.encode(), response.encode()
        return on_grid(
            math.fsum(w * x for w, x in zip(self.weights, response_features(response), strict=True))
            + _PROMPT_NOISE * scripted_noise(b"reward of a prompt", key[0])
            + _RESPONSE_NOISE * scripted_noise(b"reward of a response", *key)
        )

    def to_bytes(self, provenance: Mapping[str, str]) -> bytes:
        return write_safetensors({"score": self.weights}, provenance)

    @classmethod
    def from_bytes(cls, data: bytes) -> ScriptedHead:
        """Raises MalformedInputError unless exactly our tensor is there, in our size."""
        tensors, _ = read_safetensors(data)
        sizes = {name: len(values) for name, values in tensors.items()}
        if sizes != {"score": len(FEATURES)}:
            raise MalformedInputError(
                "adapter_model.safetensors: tensors",
                expected={"score": len(FEATURES)},
                found=sizes,
            )
        return cls(weights=tensors["score"])


def fresh_head(seed: int, std: float) -> ScriptedHead:
    """Untrained weights of about ``std``, from the seed alone."""
    noise = [scripted_noise(b"fresh head", name.encode(), str(seed).encode()) for name in FEATURES]
    # Uniform on +-std * sqrt(3) has the deviation std.
    return ScriptedHead(weights=tuple(to_float32(std * math.sqrt(3) * one) for one in noise))


def own_head() -> ScriptedHead:
    """The head that the scripted model comes with: it minds nothing."""
    return ScriptedHead(weights=(0.0,) * len(FEATURES))
