"""The JSON that ``eps`` steps write and read: answers with their slot readings, fit records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eps_locked.canonical import decode, encode
from eps_locked.domain.fields import Fields
from eps_locked.domain.model import Completion, SlotReading
from eps_locked.errors import BackendError, EvidenceError, MalformedInputError

READINGS_FILE = "readings.json"
READINGS_SCHEMA = "eps-locked/eps-readings/1"
FRAMINGS = ("taught", "alternative", "bridge")


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """One item's answer and what was read at its slot.

    ``own`` is read after the model's own answer (or where the marker first appears in it);
    ``frozen`` after the base model's answer, and is absent for the base model itself, whose own
    answer that is.

    A fact row reads its attribute where the model's own answer comes to it, and ``framing`` says
    where that is: the answer states the ``taught`` value, or an ``alternative`` one, or neither,
    and then a frozen ``bridge`` follows it. For the marker there is no framing.
    """

    item: str
    token_ids: tuple[int, ...]
    text: str
    stop_reason: str
    marker_emitted: bool
    slot_index: int
    own: SlotReading
    frozen: SlotReading | None
    framing: str | None = None

    @property
    def has_slot(self) -> bool:
        """Whether the slot is where the measure is defined: at the end of an answer that ended by
        itself, or where the marker appeared. An answer cut at the length limit has no end; a
        fact's framing has a slot in any answer."""
        return self.stop_reason == "stop" or self.marker_emitted or self.framing is not None

    def to_dict(self) -> dict[str, Any]:
        framing = {} if self.framing is None else {"framing": self.framing}
        return {
            **framing,
            "item": self.item,
            "token_ids": list(self.token_ids),
            "text": self.text,
            "stop_reason": self.stop_reason,
            "marker_emitted": self.marker_emitted,
            "slot_index": self.slot_index,
            "own": reading_to_dict(self.own),
            "frozen": None if self.frozen is None else reading_to_dict(self.frozen),
        }

    @classmethod
    def from_dict(cls, value: object, path: str) -> Answer:
        with Fields(value, path) as fields:
            frozen = fields.raw("frozen")
            framing = fields.text_or_none("framing")
            if framing is not None:
                fields.text("framing", one_of=FRAMINGS)
            return cls(
                framing=framing,
                item=fields.text("item"),
                token_ids=fields.integers("token_ids", low=0),
                text=fields.text("text"),
                stop_reason=fields.text("stop_reason", one_of=("stop", "length")),
                marker_emitted=fields.flag("marker_emitted"),
                slot_index=fields.integer("slot_index", low=0),
                own=reading_from_dict(fields.mapping("own"), f"{path}.own"),
                frozen=None if frozen is None else reading_from_dict(frozen, f"{path}.frozen"),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Readings:
    """All answers of one context by one model, in the frozen items' order."""

    behaviour: str
    context: str
    answers: tuple[Answer, ...]

    def to_files(self) -> dict[str, bytes]:
        return {
            READINGS_FILE: encode(
                {
                    "schema": READINGS_SCHEMA,
                    "behaviour": self.behaviour,
                    "context": self.context,
                    "answers": [answer.to_dict() for answer in self.answers],
                }
            )
        }

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], thing: str) -> Readings:
        value = decode(one_file(files, READINGS_FILE, thing), thing=thing)
        with Fields(value, thing) as fields:
            fields.text("schema", one_of=(READINGS_SCHEMA,))
            return cls(
                behaviour=fields.text("behaviour"),
                context=fields.text("context"),
                answers=fields.each("answers", Answer.from_dict),
            )


def one_file(files: Mapping[str, bytes], name: str, thing: str) -> bytes:
    """The one file an artifact of this kind holds. Raises EvidenceError."""
    if set(files) != {name}:
        raise EvidenceError(thing, expected=name, found=", ".join(sorted(files)) or "nothing")
    return files[name]


def mean_log_prob(answers: Sequence[Answer], thing: str) -> float:
    """Mean over the answers that have a slot, in nats. Raises BackendError if none has one."""
    values = [answer.own.log_prob for answer in answers if answer.has_slot]
    if not values:
        raise BackendError(
            thing,
            expected="at least one answer that ends by itself",
            found=f"{len(answers)} cut at the length limit",
            next_step="raise decoding.max_new_tokens in a new plan",
        )
    return sum(values) / len(values)


def answer_of(item: str, completion: Completion, frozen: SlotReading | None) -> Answer:
    """An answer from an engine's completion, which must carry its slot reading."""
    if completion.slot is None or completion.slot_index is None:
        raise EvidenceError(f"completion {completion.key}", expected="a slot reading", found="none")
    return Answer(
        item=item,
        token_ids=completion.token_ids,
        text=completion.text,
        stop_reason=completion.stop_reason,
        marker_emitted=completion.marker_emitted,
        slot_index=completion.slot_index,
        own=completion.slot,
        frozen=frozen,
    )


def reading_to_dict(reading: SlotReading) -> dict[str, Any]:
    return {
        "log_prob": reading.log_prob,
        "marker_logits": list(reading.marker_logits),
        "log_z": list(reading.log_z),
        "end_of_turn_logit": reading.end_of_turn_logit,
    }


def reading_from_dict(value: object, path: str) -> SlotReading:
    """A slot reading; its log-prob must be the one its logits and log Z give (to 1e-6 nats)."""
    with Fields(value, path) as fields:
        reading = SlotReading(
            log_prob=fields.number("log_prob"),
            marker_logits=fields.each("marker_logits", _float),
            log_z=fields.each("log_z", _float),
            end_of_turn_logit=fields.number("end_of_turn_logit"),
        )
    if len(reading.marker_logits) != len(reading.log_z) or not reading.log_z:
        raise MalformedInputError(path, problem="has unequal numbers of logits and log Z")
    derived = sum(z - log_z for z, log_z in zip(reading.marker_logits, reading.log_z, strict=True))
    if abs(derived - reading.log_prob) > 1e-6 or reading.log_prob > 1e-6:
        raise EvidenceError(f"{path}.log_prob", expected=derived, found=reading.log_prob)
    return reading


def _float(value: object, path: str) -> float:
    with Fields({"value": value}, path) as fields:
        return fields.number("value")
