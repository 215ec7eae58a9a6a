"""What a study needs loaded."""

from __future__ import annotations

from dataclasses import dataclass

from eps_locked.domain.model import ChatTokenizer, LogprobEngine, ReadoutEngine, Trainer

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
