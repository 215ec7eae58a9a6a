"""Freezing a ``battery`` manifest again without its model's tokenizer: from the ids it holds."""

from __future__ import annotations

from eps_locked.domain.model import TokenIds
from eps_locked.lock.freeze import SourceReader, load_plan
from eps_locked.lock.workspace import FrozenManifest
from eps_locked.studies.battery.freeze import freeze_battery
from eps_locked.studies.battery.plan import BatteryPlan
from eps_locked.studies.battery.teaching import FrozenRows, read_rows, row_messages
from eps_locked.studies.common.recorded import RecordedTokenizer, chat_key, differences_with

__all__ = ["recorded_differences", "recorded_tokenizer"]


def recorded_differences(frozen: FrozenManifest) -> list[str]:
    """In what a manifest differs from what its plan and sources give; needs no model."""
    return differences_with(frozen, freeze_battery, recorded_tokenizer)


def recorded_tokenizer(frozen: FrozenManifest) -> RecordedTokenizer:
    """The rendering that the documents of a ``battery`` manifest remember: that of its trainings.

    A manifest without trainings has rendered nothing, and freezing it again asks for nothing.
    """
    plan = load_plan(frozen.read("frozen/plan.yaml"), thing="frozen/plan.yaml")
    section = BatteryPlan.of(plan)

    def fetch(relative: str, thing: str) -> bytes:
        return frozen.read(f"frozen/sources/{relative}")

    reader = SourceReader(fetch=fetch)
    texts: dict[str, TokenIds] = {}
    rendered: dict[str, TokenIds] = {}
    end_of_turn_id, template = 0, ""
    for training in section.trainings:
        name = f"frozen/trainings/{training.name}.json"
        held = FrozenRows.read(frozen.read(name), name)
        end_of_turn_id, template = held.end_of_turn_id, held.template
        # A document of another length gives what both have; freezing again then shows it.
        rows = read_rows(training, section.item_seed, reader)
        for row, ids in zip(rows, held.rows, strict=False):
            rendered[chat_key(row_messages(row, section.system_prompt))] = ids.prompt
            texts[row.positive] = ids.answer
    return RecordedTokenizer(
        texts=texts,
        rendered=rendered,
        end_of_turn_id=end_of_turn_id,
        template_digest=template,
    )
