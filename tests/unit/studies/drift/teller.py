"""A model that says what it is told to, call by call, and remembers what it was asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from eps_locked.domain.model import (
    AdapterFiles,
    Completion,
    Decoding,
    EngineIdentity,
    Prompt,
    SlotProbe,
)
from eps_locked.engines.scripted import ScriptedEngine
from eps_locked.models.scripted import ScriptedTokenizer


@dataclass
class Teller:
    """An Engine. ``says``: by call, the whole answer of each row; the last call's are repeated.

    An answer longer than the limit is cut at it, as any engine would.
    """

    says: Sequence[Sequence[str]]
    calls: list[tuple[tuple[Prompt, ...], Decoding]] = field(default_factory=list)

    @property
    def identity(self) -> EngineIdentity:
        return ScriptedEngine().identity

    def attach(self, adapter: AdapterFiles | None) -> None:
        return None

    def generate(
        self, prompts: Sequence[Prompt], decoding: Decoding, probe: SlotProbe | None = None
    ) -> tuple[Completion, ...]:
        answers = self.says[min(len(self.calls), len(self.says) - 1)]
        self.calls.append((tuple(prompts), decoding))
        tokenizer = ScriptedTokenizer()
        found = []
        for number, prompt in enumerate(prompts):
            ids = tokenizer.encode(answers[number % len(answers)])
            cut = ids[: decoding.max_new_tokens]
            found.append(
                Completion(
                    key=prompt.key,
                    token_ids=cut,
                    text=tokenizer.decode(cut),
                    stop_reason="stop" if len(ids) < decoding.max_new_tokens else "length",
                )
            )
        return tuple(found)
