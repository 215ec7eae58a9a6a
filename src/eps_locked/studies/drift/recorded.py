"""Freezing a ``drift`` manifest again without its model's tokenizer: from the ids it holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from eps_locked.canonical import decode
from eps_locked.domain.model import Message, TokenIds
from eps_locked.lock.freeze import SourceReader, load_plan
from eps_locked.lock.workspace import FrozenManifest
from eps_locked.studies.common.prompts import PROBE_QUESTIONS
from eps_locked.studies.common.recorded import RecordedTokenizer, chat_key, differences_with
from eps_locked.studies.drift.doses import TopicRows, row_messages
from eps_locked.studies.drift.freeze import contexts_of, freeze_drift
from eps_locked.studies.drift.gather import DriftMaterial, gather
from eps_locked.studies.drift.plan import DriftPlan
from eps_locked.studies.drift.rendering import question_messages

__all__ = ["recorded_differences", "recorded_tokenizer"]

_Chats = Iterator[tuple[tuple[Message, ...], Iterable[int]]]
_Texts = Iterator[tuple[str, Iterable[int]]]


def recorded_differences(frozen: FrozenManifest) -> list[str]:
    """In what a manifest differs from what its plan and sources give; needs no model."""
    return differences_with(frozen, freeze_drift, recorded_tokenizer)


def recorded_tokenizer(frozen: FrozenManifest) -> RecordedTokenizer:
    """The rendering that the documents of a ``drift`` manifest remember."""
    plan = load_plan(frozen.read("frozen/plan.yaml"), thing="frozen/plan.yaml")
    section = DriftPlan.of(plan)

    def fetch(relative: str, thing: str) -> bytes:
        return frozen.read(f"frozen/sources/{relative}")

    material = gather(section, SourceReader(fetch=fetch))
    reasoning = _document(frozen, "reasoning.json")
    texts: dict[str, TokenIds] = {}
    rendered: dict[str, TokenIds] = {}
    for text, ids in _reasoning_texts(section, reasoning):
        texts[text] = tuple(ids)
    for messages, ids in _prompts(section, material, frozen):
        rendered[chat_key(messages)] = tuple(ids)
    for topic in material.topics.values():
        document = _document(frozen, f"doses/{topic.topic.name}.json")
        for text, ids in _answers(topic, document):
            texts[text] = tuple(ids)
        for row, held in zip(topic.rows, document["rows"], strict=False):
            rendered[chat_key(row_messages(row))] = tuple(held["prompt"])
    if section.readouts is not None:
        document = _document(frozen, "readout.json")
        for text, ids in _replies(material, document):
            texts[text] = tuple(ids)
        for messages, ids in _readouts(material, document):
            rendered[chat_key(messages)] = tuple(ids)
    return RecordedTokenizer(
        texts=texts,
        rendered=rendered,
        end_of_turn_id=reasoning["end_of_turn_id"],
        template_digest=reasoning["template"],
    )


def _reasoning_texts(section: DriftPlan, document: Any) -> _Texts:
    """The block's two ends, the empty block (which the freeze proved to be one after the other),
    and of each filler's text as much as its longest setting shows."""
    reasoning = section.reasoning
    if reasoning is None:
        return
    yield reasoning.open, document["open"]
    yield reasoning.close, document["close"]
    yield reasoning.open + reasoning.close, (*document["open"], *document["close"])
    for setting in sorted(reasoning.settings, key=lambda one: one.n_tokens or 0):
        if setting.mode == "filler" and setting.text is not None:
            yield setting.text, document["fillers"][setting.name]


def _prompts(section: DriftPlan, material: DriftMaterial, frozen: FrozenManifest) -> _Chats:
    for exposure, context in contexts_of(section, material).items():
        for battery, probes in material.probes.items():
            document = _document(frozen, f"prompts/{battery}/{exposure}.json")
            for question, ids in zip(PROBE_QUESTIONS, document["probes"], strict=True):
                yield context.ask(question), ids
            for probe in probes:
                ids = (*document["prefix"], *document["suffixes"][probe.id])
                yield context.ask(probe.text), ids


def _answers(topic: TopicRows, document: Any) -> _Texts:
    """A document of another length gives what both have; freezing again then shows it."""
    for row, held in zip(topic.rows, document["rows"], strict=False):
        yield row.positive, held["harmful"]
        yield row.negative or "", held["sound"]


def _replies(material: DriftMaterial, document: Any) -> _Texts:
    for trait in material.traits:
        for one, held in zip(trait.contrasts, document["traits"][trait.name], strict=False):
            yield one.positive, held["positive"]
            yield one.negative, held["negative"]


def _readouts(material: DriftMaterial, document: Any) -> _Chats:
    for item, held in zip(material.readout_prompts, document["prompts"], strict=False):
        yield question_messages(item.text), held["token_ids"]
    for trait in material.traits:
        for one, held in zip(trait.contrasts, document["traits"][trait.name], strict=False):
            yield question_messages(one.question), held["prompt"]


def _document(frozen: FrozenManifest, name: str) -> Any:
    thing = f"frozen/{name}"
    return decode(frozen.read(thing), thing=thing)
