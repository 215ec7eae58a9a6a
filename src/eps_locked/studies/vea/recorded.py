"""Freezing a ``vea`` manifest again where its model's tokenizer is not at hand."""

from __future__ import annotations

from eps_locked.lock.workspace import FrozenManifest
from eps_locked.studies.common.recorded import RecordedTokenizer, differences_with
from eps_locked.studies.vea.freeze import freeze_vea

__all__ = ["recorded_differences"]


def recorded_differences(frozen: FrozenManifest) -> list[str]:
    """In what a manifest differs from what its plan and sources give; needs no model."""
    return differences_with(frozen, freeze_vea, _nothing_rendered)


def _nothing_rendered(frozen: FrozenManifest) -> RecordedTokenizer:
    """Items are frozen as text, so there is nothing to remember; whoever asks is refused."""
    return RecordedTokenizer(texts={}, rendered={}, end_of_turn_id=-1, template_digest="none")
