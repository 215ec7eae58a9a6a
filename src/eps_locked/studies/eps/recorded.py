"""Freezing an ``eps`` manifest again without its model's tokenizer: from the ids it holds."""

from __future__ import annotations

from typing import Any

from eps_locked.canonical import decode
from eps_locked.domain.model import TokenIds
from eps_locked.lock.freeze import SourceReader, load_plan
from eps_locked.lock.workspace import FrozenManifest
from eps_locked.studies.common.prompts import PROBE_QUESTIONS
from eps_locked.studies.common.recorded import RecordedTokenizer, chat_key, differences_with
from eps_locked.studies.eps.baselines.elicitation import recorded_elicitation
from eps_locked.studies.eps.freeze import elicitation_texts, freeze_eps
from eps_locked.studies.eps.plan import EpsPlan, MarkerBehaviour
from eps_locked.studies.eps.row_material import RowMaterial, read_material

__all__ = ["recorded_differences", "recorded_tokenizer"]


def recorded_differences(frozen: FrozenManifest) -> list[str]:
    """In what a manifest differs from what its plan and sources give; needs no model."""
    return differences_with(frozen, freeze_eps, recorded_tokenizer)


def recorded_tokenizer(frozen: FrozenManifest) -> RecordedTokenizer:
    """The rendering that the documents of an ``eps`` manifest remember."""
    plan = load_plan(frozen.read("frozen/plan.yaml"), thing="frozen/plan.yaml")
    section = EpsPlan.of(plan)

    def fetch(relative: str, thing: str) -> bytes:
        return frozen.read(f"frozen/sources/{relative}")

    texts: dict[str, TokenIds] = {}
    rendered: dict[str, TokenIds] = {}
    end_of_turn_id, template = -1, ""
    for name, row in read_material(section, SourceReader(fetch=fetch)).items():
        document = row_document(frozen, name, "contexts")
        end_of_turn_id, template = document["end_of_turn_id"], document["template"]
        texts |= _encoded(frozen, row)
        rendered |= _rendered(frozen, row)
        if section.baselines is not None:
            data = frozen.read(f"frozen/elicitation/{name}.json")
            rules, offered = section.baselines.persona, elicitation_texts(row.file)
            for messages, ids in recorded_elicitation(rules, name, offered, data):
                rendered[chat_key(messages)] = ids
    return RecordedTokenizer(
        texts=texts, rendered=rendered, end_of_turn_id=end_of_turn_id, template_digest=template
    )


def row_document(frozen: FrozenManifest, row: str, name: str) -> Any:
    """A frozen document of one row, decoded."""
    thing = f"frozen/rows/{row}/{name}.json"
    return decode(frozen.read(thing), thing=thing)


def _encoded(frozen: FrozenManifest, row: RowMaterial) -> dict[str, TokenIds]:
    """Token ids of the bare texts that a row's freeze encodes."""
    if isinstance(row.behaviour, MarkerBehaviour):
        return {row.behaviour.marker_text: row.behaviour.marker_ids}
    document = row_document(frozen, row.behaviour.name, "written")
    found: dict[str, TokenIds] = {}
    for name, written in row.written.items():
        for text, ids in (
            (written.positive, document["answers"][name]["positive"]),
            (written.negative, document["answers"][name]["negative"]),
        ):
            if text is not None:
                found[text] = tuple(ids)
    if row.file.fact is not None:
        found[row.file.fact.attribute] = tuple(document["fact"]["attribute"])
        found[row.file.fact.bridge] = tuple(document["fact"]["bridge"])
    return found


def _rendered(frozen: FrozenManifest, row: RowMaterial) -> dict[str, TokenIds]:
    texts = {item.id: item.text for item in (*row.train_items, *row.eval_items)}
    found: dict[str, TokenIds] = {}
    for name, context in row.contexts.items():
        document = row_document(frozen, row.behaviour.name, f"prompts/{name}")
        for question, ids in zip(PROBE_QUESTIONS, document["probes"], strict=True):
            found[chat_key(context.ask(question))] = tuple(ids)
        for item, suffix in document["suffixes"].items():
            found[chat_key(context.ask(texts[item]))] = (*document["prefix"], *suffix)
    return found
