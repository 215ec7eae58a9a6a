"""A tokenizer that only remembers: it renders what a manifest says was rendered.

With it an auditor derives a manifest again from its plan where the model's own tokenizer is not at
hand. It proves nothing about the rendering itself; a run repeats that with the real one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eps_locked.canonical import decode, digest_value
from eps_locked.domain.model import Message, TokenIds
from eps_locked.errors import EvidenceError
from eps_locked.lock.freeze import SourceReader, load_plan, manifest_differences
from eps_locked.lock.workspace import FrozenManifest
from eps_locked.studies.eps.baselines.elicitation import recorded_elicitation
from eps_locked.studies.eps.freeze import (
    PROBE_QUESTIONS,
    behaviour_files,
    contexts_by_id,
    elicitation_texts,
    freeze_eps,
)
from eps_locked.studies.eps.plan import EpsPlan


class RecordedTokenizer:
    """Implements ``ChatTokenizer`` over the frozen prompts of one manifest."""

    def __init__(self, frozen: FrozenManifest) -> None:
        document = decode(frozen.read("frozen/contexts.json"), thing="frozen/contexts.json")
        self.end_of_turn_id: int = document["end_of_turn_id"]
        self.template_digest: str = document["template"]
        plan = load_plan(frozen.read("frozen/plan.yaml"), thing="frozen/plan.yaml")
        section = EpsPlan.from_section(plan.study_section)
        self._texts = {b.marker_text: b.marker_ids for b in section.behaviours}
        self._rendered = _rendered(frozen, section, document["contexts"])

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
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        name = type(error).__name__
        return [f"{frozen.folder}: frozen documents are not as specified ({name}: {error})"]


def _rendered(
    frozen: FrozenManifest, section: EpsPlan, contexts: Mapping[str, object]
) -> dict[str, TokenIds]:
    def fetch(relative: str, thing: str) -> bytes:
        return frozen.read(f"frozen/sources/{relative}")

    items = decode(frozen.read("frozen/items.json"), thing="frozen/items.json")
    texts = {item["id"]: item["text"] for pool in ("train", "eval") for item in items[pool]}
    material = contexts_by_id(section, SourceReader(fetch=fetch))
    found: dict[str, TokenIds] = {}
    for name in contexts:
        thing = f"frozen/prompts/{name}.json"
        document = decode(frozen.read(thing), thing=thing)
        for question, ids in zip(PROBE_QUESTIONS, document["probes"], strict=True):
            found[_key(material[name].ask(question))] = tuple(ids)
        for item, suffix in document["suffixes"].items():
            asked = material[name].ask(texts[item])
            found[_key(asked)] = (*document["prefix"], *suffix)
    if section.baselines is not None:
        for file in behaviour_files(section, SourceReader(fetch=fetch)):
            data = frozen.read(f"frozen/elicitation/{file.name}.json")
            rules, offered = section.baselines.persona, elicitation_texts(file)
            for messages, ids in recorded_elicitation(rules, file.name, offered, data):
                found[_key(messages)] = ids
    return found


def _key(messages: Sequence[Message]) -> str:
    return digest_value([[message.role, message.content] for message in messages])
