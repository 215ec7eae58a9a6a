"""What the plan's adapters are trained on: written rows as token ids, frozen before the fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from eps_locked.canonical import decode
from eps_locked.domain.fields import Fields
from eps_locked.domain.model import ChatTokenizer, Message, TokenIds, TrainingRow
from eps_locked.errors import MalformedInputError
from eps_locked.lock.freeze import SourceReader
from eps_locked.studies.battery.parts import TrainingPlan
from eps_locked.studies.common.material import WrittenRow, draw_items, read_written_rows
from eps_locked.studies.common.sources import read_material_value
from eps_locked.training.rows import AnsweredPrompt, answer_row

__all__ = [
    "ROWS_SCHEMA",
    "FrozenRow",
    "FrozenRows",
    "read_rows",
    "row_messages",
    "rows_document",
]

ROWS_SCHEMA: Final = "eps-locked/battery-rows/1"


@dataclass(frozen=True, kw_only=True, slots=True)
class FrozenRow:
    """One row; the answer carries no end-of-turn token."""

    id: str
    prompt: TokenIds
    answer: TokenIds


@dataclass(frozen=True, kw_only=True, slots=True)
class FrozenRows:
    """An adapter's frozen rows in training order."""

    training: str
    rows: tuple[FrozenRow, ...]
    end_of_turn_id: int
    template: str

    @classmethod
    def read(cls, data: bytes, thing: str) -> FrozenRows:
        """From the document's bytes. Raises MalformedInputError naming the field."""
        with Fields(decode(data, thing=thing), thing) as fields:
            fields.text("schema", one_of=(ROWS_SCHEMA,))
            return cls(
                training=fields.text("training"),
                rows=fields.each("rows", _row),
                end_of_turn_id=fields.integer("end_of_turn_id", low=0),
                template=fields.text("template"),
            )

    def training_rows(self) -> tuple[TrainingRow, ...]:
        """What the fit sees: loss on the answer and its end of turn."""
        return tuple(
            answer_row(
                row.id,
                AnsweredPrompt(
                    key=row.id, prompt_ids=row.prompt, answer_ids=row.answer, stop_reason="stop"
                ),
                self.end_of_turn_id,
            )
            for row in self.rows
        )


def read_rows(training: TrainingPlan, seed: int, reader: SourceReader) -> tuple[WrittenRow, ...]:
    """Every row of a training's file, in the order that ids and seed give.

    Raises MalformedInputError naming the file at fault.
    """
    thing = f"plans/{training.rows}"
    value = read_material_value(reader, training.rows, thing="rows", part="rows")
    rows = read_written_rows(value, thing)
    n_used = training.n_steps * training.recipe.rows_per_step
    if not rows or n_used < len(rows):
        raise MalformedInputError(
            thing,
            expected=f"one row to {n_used}, as many as training {training.name} sees "
            f"({training.n_steps} steps of {training.recipe.rows_per_step})",
            found=len(rows),
            next_step="raise n_steps or rows_per_step, or take rows out: what is frozen as "
            "trained on must be",
        )
    by_id = {row.item.id: row for row in rows}
    ordered = draw_items((row.item for row in rows), len(rows), seed, thing)
    return tuple(by_id[item.id] for item in ordered)


def rows_document(
    training: TrainingPlan,
    rows: Sequence[WrittenRow],
    tokenizer: ChatTokenizer,
    system_prompt: str | None,
) -> dict[str, Any]:
    """The frozen document: prompts and answers as token ids."""
    return {
        "schema": ROWS_SCHEMA,
        "training": training.name,
        "rows": [
            {
                "id": row.item.id,
                "prompt": list(tokenizer.render(row_messages(row, system_prompt))),
                "answer": list(tokenizer.encode(row.positive)),
            }
            for row in rows
        ],
        "end_of_turn_id": tokenizer.end_of_turn_id,
        "template": tokenizer.template_digest,
    }


def row_messages(row: WrittenRow, system_prompt: str | None) -> tuple[Message, ...]:
    """A training question as the chat it is asked in: under the system prompt of the axes."""
    asked = Message(role="user", content=row.item.text)
    if system_prompt is None:
        return (asked,)
    return (Message(role="system", content=system_prompt), asked)


def _row(value: object, path: str) -> FrozenRow:
    with Fields(value, path) as fields:
        return FrozenRow(
            id=fields.text("id"),
            prompt=fields.integers("prompt", low=0),
            answer=fields.integers("answer", low=0),
        )
