"""What is asked, as the model's own token ids: probes, exposures, reasoning blocks, readouts.

Reads a plan's questions and turns them into the frozen documents. Nothing is tokenised after the
freeze: a step appends ids to ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eps_locked.canonical import decode, digest_bytes, encode
from eps_locked.domain.fields import Fields
from eps_locked.domain.model import ChatTokenizer, Message, TokenIds
from eps_locked.errors import MalformedInputError, RefusedError
from eps_locked.lock.freeze import SourceReader
from eps_locked.studies.common.material import (
    PLACEHOLDER,
    Context,
    Item,
    draw_items,
    item_id,
    read_items,
)
from eps_locked.studies.common.sources import read_material_value
from eps_locked.studies.drift.material import Contrast, Trait, read_stems
from eps_locked.studies.drift.plan import Battery, DriftPlan, ReasoningSetting

__all__ = [
    "Probe",
    "ReasoningIds",
    "battery_document",
    "exposure_context",
    "probe_items",
    "read_probes",
    "readout_document",
    "reasoning_document",
    "require_reasoning",
]

BATTERY_SCHEMA = "eps-locked/drift-battery/1"
REASONING_SCHEMA = "eps-locked/drift-reasoning/1"
READOUT_SCHEMA = "eps-locked/drift-readout-prompts/1"


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """One wording of a stem. ``rewording`` counts from 0 in the file's order; of a probe without
    ``keep_text`` replies are kept as digests and excerpts alone."""

    stem: str
    rewording: int
    text: str
    keep_text: bool

    @property
    def id(self) -> str:
        return f"{self.stem}/{self.rewording}"


def read_probes(
    section: DriftPlan, battery: Battery, reader: SourceReader
) -> tuple[tuple[Probe, ...], tuple[str, ...]]:
    """A battery's probes, stem by stem in the order drawn, and every text its file offers.

    Of a stem's rewordings the first so many are asked. Raises MalformedInputError for a file of
    another battery and for stems or rewordings that the plan promises and the file lacks.
    """
    thing = f"plans/{battery.file}"
    value = read_material_value(reader, battery.file, thing="battery", part="items")
    if battery.n_rewordings == 1:
        items = read_items(value, thing)
        drawn = draw_items(items, battery.n_stems, section.item_seed, thing)
        probes = [Probe(stem=i.id, rewording=0, text=i.text, keep_text=i.keep_text) for i in drawn]
        return tuple(probes), tuple(item.text for item in items)
    file = read_stems(value, thing)
    if file.battery != battery.name:
        raise MalformedInputError(f"{thing}: battery", expected=battery.name, found=file.battery)
    if len(file.stems) < battery.n_stems:
        raise MalformedInputError(
            thing, expected=f"at least {battery.n_stems} stems", found=len(file.stems)
        )
    for stem in file.stems:
        if len(stem.rewordings) < battery.n_rewordings:
            raise MalformedInputError(
                f"{thing}: {stem.id}",
                expected=f"{battery.n_rewordings} rewordings, as the plan promises",
                found=len(stem.rewordings),
                next_step="write the missing ones, or promise fewer of every stem",
            )
    chosen = sorted(
        file.stems, key=lambda stem: digest_bytes(encode([section.item_seed, stem.id]))
    )[: battery.n_stems]
    found = [
        Probe(stem=stem.id, rewording=k, text=text, keep_text=True)
        for stem in chosen
        for k, text in enumerate(stem.rewordings[: battery.n_rewordings])
    ]
    return tuple(found), tuple(text for stem in file.stems for text in stem.rewordings)


def battery_document(battery: Battery, probes: Sequence[Probe], labels: Sequence[str]) -> Any:
    """The frozen probes of a battery and what its classes mean."""
    return {
        "schema": BATTERY_SCHEMA,
        "battery": battery.name,
        "role": battery.role,
        "labels": list(labels),
        "aligned": list(battery.aligned),
        "no_stance": list(battery.no_stance),
        "probes": [
            {
                "id": probe.id,
                "stem": probe.stem,
                "rewording": probe.rewording,
                "text": probe.text,
                "keep_text": probe.keep_text,
            }
            for probe in probes
        ],
    }


def probe_items(probes: Sequence[Probe]) -> tuple[Item, ...]:
    """Probes as items under their probe ids, for rendering."""
    return tuple(Item(id=probe.id, text=probe.text, topic="") for probe in probes)


def exposure_context(name: str, earlier: Sequence[Message] = ()) -> Context:
    """Earlier exchanges (none: the probe stands alone) with a place for the probe after them."""
    return Context(
        id=name,
        family="demonstrations" if earlier else "default",
        messages=(*earlier, Message(role="user", content=PLACEHOLDER)),
        behaviour=None,
        licence="",
        provenance="",
    )


def readout_document(
    prompts: Sequence[Item], traits: Sequence[Trait], tokenizer: ChatTokenizer
) -> dict[str, Any]:
    """Prompts to read every model at, and the contrasts that trait directions are made of."""

    def contrast(one: Contrast) -> dict[str, Any]:
        return {
            "id": item_id(one.question),
            "prompt": list(tokenizer.render(question_messages(one.question))),
            "positive": list(tokenizer.encode(one.positive)),
            "negative": list(tokenizer.encode(one.negative)),
        }

    return {
        "schema": READOUT_SCHEMA,
        "prompts": [
            {"id": item.id, "token_ids": list(tokenizer.render(question_messages(item.text)))}
            for item in prompts
        ],
        "traits": {trait.name: [contrast(one) for one in trait.contrasts] for trait in traits},
    }


def question_messages(question: str) -> tuple[Message, ...]:
    return (Message(role="user", content=question),)


def reasoning_document(section: DriftPlan, tokenizer: ChatTokenizer) -> dict[str, Any]:
    """The reasoning block and the fillers as token ids; a plan without a block has empty ones.

    A filler is the ids of its text over and over, cut at its length.
    """
    reasoning = section.reasoning
    fillers = {}
    for setting in () if reasoning is None else reasoning.settings:
        if setting.mode == "filler":
            assert setting.text is not None
            assert setting.n_tokens is not None
            once = tokenizer.encode(setting.text)
            copies = -(-setting.n_tokens // len(once))
            fillers[setting.name] = list((once * copies)[: setting.n_tokens])
    return {
        "schema": REASONING_SCHEMA,
        "open": [] if reasoning is None else list(tokenizer.encode(reasoning.open)),
        "close": [] if reasoning is None else list(tokenizer.encode(reasoning.close)),
        "in_template": reasoning is not None and reasoning.in_template,
        "fillers": fillers,
        "end_of_turn_id": tokenizer.end_of_turn_id,
        "template": tokenizer.template_digest,
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class ReasoningIds:
    """The frozen reasoning block, and what it puts between a prompt and the reply."""

    open: TokenIds
    close: TokenIds
    in_template: bool
    fillers: Mapping[str, TokenIds]
    end_of_turn_id: int

    @classmethod
    def read(cls, data: bytes, thing: str) -> ReasoningIds:
        """Raises MalformedInputError naming the field."""
        return cls.from_dict(decode(data, thing=thing), thing)

    @classmethod
    def from_dict(cls, value: object, thing: str) -> ReasoningIds:
        with Fields(value, thing) as fields:
            fields.text("schema", one_of=(REASONING_SCHEMA,))
            fields.text("template")
            names = tuple(fields.mapping("fillers"))
            with fields.sub("fillers") as fillers:
                by_name = {name: fillers.integers(name, low=0) for name in names}
            return cls(
                open=fields.integers("open", low=0),
                close=fields.integers("close", low=0),
                in_template=fields.flag("in_template"),
                fillers=by_name,
                end_of_turn_id=fields.integer("end_of_turn_id", low=0),
            )

    @property
    def opening(self) -> TokenIds:
        """What opens the block behind a rendered prompt: nothing where the template did."""
        return () if self.in_template else self.open

    def before_reply(self, setting: ReasoningSetting, reasoned: TokenIds = ()) -> TokenIds:
        """The ids between prompt and reply. ``reasoned``: what a budget's arm has written so far,
        which is cut at the budget. Not for mode free, whose reply follows in the same breath."""
        if setting.mode == "none":
            return ()
        if setting.mode == "free":
            raise TypeError("a free setting closes its block itself")
        inside: TokenIds = ()
        if setting.mode == "budget":
            inside = reasoned[: setting.n_tokens]
        elif setting.mode == "filler":
            inside = self.fillers[setting.name]
        return (*self.opening, *inside, *self.close)


def require_reasoning(
    section: DriftPlan, ids: ReasoningIds, prompts: Mapping[str, TokenIds], tokenizer: ChatTokenizer
) -> None:
    """Prove of the rendered prompts that the plan knows its template's reasoning block.

    ``prompts``: one rendered prompt or more, by what to call it. Raises RefusedError where
    ``in_template`` says otherwise than the prompts' last ids, and where a budget of 0 is not the
    very ids of a closed block: those of an empty block written as one text.
    """
    if section.reasoning is None:
        return
    for name, prompt in prompts.items():
        opened = prompt[-len(ids.open) :] == ids.open
        if opened != section.reasoning.in_template:
            raise RefusedError(
                "plan.drift.reasoning.in_template",
                problem=f"is not what the template does: the prompt {name} ends with "
                f"{list(prompt[-len(ids.open) :])}",
                expected=f"{'true' if opened else 'false'}: the opening is {list(ids.open)}",
                found="true" if section.reasoning.in_template else "false",
                next_step="write what the template does, or the opening as it writes it",
            )
    at_once = tokenizer.encode(section.reasoning.open + section.reasoning.close)
    if at_once != (*ids.open, *ids.close):
        raise RefusedError(
            "plan.drift.reasoning",
            problem="a budget of 0 would be another prompt than a closed block: opening and "
            "closing merge into other tokens where nothing stands between them",
            expected=list(at_once),
            found=[*ids.open, *ids.close],
            next_step="move what merges (a line break, mostly) to one side of the two",
        )
