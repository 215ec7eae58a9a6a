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

    def close(self) -> None:
        """Give back what an engine holds outside this process; nothing can be asked afterwards.

        An engine that serves from processes of its own has a ``close``; the others go with their
        last reference.
        """
        for engine in {id(one): one for one in (self.engine, self.readout)}.values():
            close = getattr(engine, "close", None)
            if close is not None:
                close()
