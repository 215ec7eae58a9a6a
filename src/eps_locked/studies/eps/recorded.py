"""A tokenizer that only remembers: it renders what a manifest says was rendered.

With it an auditor derives a manifest again from its plan where the model's own tokenizer is not at
hand. It proves nothing about the rendering itself; a run repeats that with the real one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eps_locked.canonical import decode, digest_value
from eps_locked.domain.model import Message, TokenIds
from eps_locked.errors import EpsLockedError, EvidenceError
from eps_locked.lock.freeze import SourceReader, load_plan, manifest_differences
from eps_locked.lock.workspace import FrozenManifest
from eps_locked.studies.common.prompts import PROBE_QUESTIONS
from eps_locked.studies.eps.baselines.elicitation import recorded_elicitation
from eps_locked.studies.eps.freeze import elicitation_texts, freeze_eps
from eps_locked.studies.eps.plan import EpsPlan, MarkerBehaviour
from eps_locked.studies.eps.row_material import RowMaterial, read_material


class RecordedTokenizer:
    """Implements ``ChatTokenizer`` over the frozen prompts of one manifest."""

    def __init__(self, frozen: FrozenManifest) -> None:
        plan = load_plan(frozen.read("frozen/plan.yaml"), thing="frozen/plan.yaml")
        section = EpsPlan.of(plan)

        def fetch(relative: str, thing: str) -> bytes:
            return frozen.read(f"frozen/sources/{relative}")

        self._texts: dict[str, TokenIds] = {}
        self._rendered: dict[str, TokenIds] = {}
        for name, row in read_material(section, SourceReader(fetch=fetch)).items():
            document = row_document(frozen, name, "contexts")
            self.end_of_turn_id: int = document["end_of_turn_id"]
            self.template_digest: str = document["template"]
            self._texts |= _encoded(frozen, row)
            self._rendered |= _rendered(frozen, row)
            if section.baselines is not None:
                data = frozen.read(f"frozen/elicitation/{name}.json")
                rules, offered = section.baselines.persona, elicitation_texts(row.file)
                for messages, ids in recorded_elicitation(rules, name, offered, data):
                    self._rendered[_key(messages)] = ids

    def render(self, messages: Sequence[Message]) -> TokenIds:
        key = _key(messages)
        if key not in self._rendered:
            raise EvidenceError(
                "frozen prompts", expected=f"{messages[-1].content!r} in context", found="not there"
            )
        return self._rendered[key]

    def encode(self, text: str) -> TokenIds:
        if text not in self._texts:
            raise EvidenceError("frozen plan", expected=f"token ids of {text!r}", found="none")
        return self._texts[text]

    def decode(self, token_ids: Sequence[int]) -> str:
        raise RuntimeError("a recorded tokenizer cannot decode")


def recorded_differences(frozen: FrozenManifest) -> list[str]:
    """``manifest_differences`` with the recorded rendering, which needs no model."""
    try:
        return manifest_differences(frozen, freeze_eps, RecordedTokenizer(frozen))
    except EpsLockedError as error:
        return [f"{frozen.folder}: cannot be frozen again from what it holds: {error}"]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        name = type(error).__name__
        return [f"{frozen.folder}: frozen documents are not as specified ({name}: {error})"]


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
            found[_key(context.ask(question))] = tuple(ids)
        for item, suffix in document["suffixes"].items():
            found[_key(context.ask(texts[item]))] = (*document["prefix"], *suffix)
    return found


def _key(messages: Sequence[Message]) -> str:
    return digest_value([[message.role, message.content] for message in messages])
