"""The prompts that draw a behaviour out of the base model, or keep it in, frozen as token ids.

A behaviour's file holds pairs of instructions, one that asks for the behaviour and one that asks
for the opposite, and questions to put under both. Here each instruction becomes a system turn and
each question the user's turn after it. Source: Chen et al. 2025, Persona vectors,
arXiv:2507.21509, section 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from eps_locked.canonical import decode
from eps_locked.domain.fields import Fields
from eps_locked.domain.model import ChatTokenizer, Message, TokenIds
from eps_locked.errors import MalformedInputError
from eps_locked.studies.common.material import item_id
from eps_locked.studies.eps.baselines.rules import PersonaRules

__all__ = [
    "ELICITATION_SCHEMA",
    "SIDES",
    "ElicitationPrompt",
    "ElicitationTexts",
    "elicitation_document",
    "elicitation_documents",
    "elicitation_messages",
    "read_elicitation",
    "recorded_elicitation",
]

ELICITATION_SCHEMA = "eps-locked/elicitation/1"
Side = Literal["positive", "negative"]
SIDES: tuple[Side, ...] = ("positive", "negative")


@dataclass(frozen=True, kw_only=True, slots=True)
class ElicitationTexts:
    """What a behaviour's file offers: (positive, negative) instructions, and questions."""

    instruction_pairs: tuple[tuple[str, str], ...]
    questions: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ElicitationPrompt:
    """One frozen prompt: which pair (by place), which question (by id), which side of the pair."""

    pair: int
    question: str
    side: Side
    token_ids: TokenIds

    @property
    def key(self) -> str:
        return f"{self.pair}/{self.question}/{self.side}"


def elicitation_documents(
    rules: PersonaRules, behaviours: Mapping[str, ElicitationTexts], tokenizer: ChatTokenizer
) -> dict[str, dict[str, Any]]:
    """The frozen documents by path below ``frozen/``, one for each behaviour."""
    return {
        f"elicitation/{name}.json": elicitation_document(rules, name, texts, tokenizer)
        for name, texts in behaviours.items()
    }


def elicitation_document(
    rules: PersonaRules, behaviour: str, texts: ElicitationTexts, tokenizer: ChatTokenizer
) -> dict[str, Any]:
    """One behaviour's prompts, rendered. Raises MalformedInputError if its file holds too few."""
    return {
        "schema": ELICITATION_SCHEMA,
        "behaviour": behaviour,
        "prompts": [
            {
                "pair": pair,
                "question": item_id(messages[-1].content),
                "side": side,
                "token_ids": list(tokenizer.render(messages)),
            }
            for pair, side, messages in elicitation_messages(rules, behaviour, texts)
        ],
    }


def elicitation_messages(
    rules: PersonaRules, behaviour: str, texts: ElicitationTexts
) -> Iterator[tuple[int, Side, tuple[Message, ...]]]:
    """(pair, side, messages) in the document's order: pair, then question, then side."""
    for name, wanted, offered in (
        ("n_pairs", rules.n_pairs, len(texts.instruction_pairs)),
        ("n_questions", rules.n_questions, len(texts.questions)),
    ):
        if wanted > offered:
            raise MalformedInputError(
                f"plan.eps.baselines.persona.{name}",
                expected=f"at most the {offered} in the file of {behaviour}",
                found=wanted,
            )
    for pair, instructions in enumerate(texts.instruction_pairs[: rules.n_pairs]):
        for question in texts.questions[: rules.n_questions]:
            for side, instruction in zip(SIDES, instructions, strict=True):
                yield (
                    pair,
                    side,
                    (
                        Message(role="system", content=instruction),
                        Message(role="user", content=question),
                    ),
                )


def recorded_elicitation(
    rules: PersonaRules, behaviour: str, texts: ElicitationTexts, data: bytes
) -> Iterator[tuple[tuple[Message, ...], TokenIds]]:
    """Messages beside the token ids that a frozen document holds for them.

    For an auditor without the tokenizer: what a recorded rendering must remember. A document of
    another length gives what both have; freezing again then shows the difference.
    """
    prompts = read_elicitation(data, f"frozen/elicitation/{behaviour}.json")
    asked = elicitation_messages(rules, behaviour, texts)
    for (_pair, _side, messages), prompt in zip(asked, prompts, strict=False):
        yield messages, prompt.token_ids


def read_elicitation(data: bytes, thing: str) -> tuple[ElicitationPrompt, ...]:
    """The prompts of a frozen document, in its order."""
    with Fields(decode(data, thing=thing), thing) as fields:
        fields.text("schema", one_of=(ELICITATION_SCHEMA,))
        fields.text("behaviour")
        return fields.each("prompts", _prompt)


def _prompt(value: object, path: str) -> ElicitationPrompt:
    with Fields(value, path) as fields:
        return ElicitationPrompt(
            pair=fields.integer("pair", low=0),
            question=fields.text("question"),
            side=cast(Side, fields.text("side", one_of=SIDES)),
            token_ids=fields.integers("token_ids", low=0),
        )
