"""What a study needs loaded."""

from __future__ import annotations

from dataclasses import dataclass, replace

from eps_locked.domain.model import (
    ChatTokenizer,
    EngineIdentity,
    LogprobEngine,
    ReadoutEngine,
    Trainer,
)

__all__ = ["Backends"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Backends:
    """What a study needs loaded: made once, on the first step that calls a model.

    ``engine`` writes answers and reads slots; ``readout`` also shows what lies behind them. Often
    they are one.
    """

    engine: LogprobEngine
    readout: ReadoutEngine
    trainer: Trainer
    tokenizer: ChatTokenizer

    @property
    def identity(self) -> EngineIdentity:
        """The engine that answers; where another one reads what lies behind, that one beside it."""
        identity = self.engine.identity
        if self.readout is self.engine:
            return identity
        other = self.readout.identity
        named = {"readout_engine": other.name, "readout_version": other.version}
        flags = {f"readout_{name}": value for name, value in other.flags.items()}
        return replace(identity, flags={**identity.flags, **named, **flags})
