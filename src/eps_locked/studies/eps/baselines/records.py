"""What the steps of P3 that call the model write, and how it is read back.

Each artifact has a JSON head and, where there are activations, float32 arrays beside it. Reading
checks that the parts fit each other; whether they fit the plan is the audit's question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eps_locked.canonical import decode, encode
from eps_locked.domain.fields import Fields
from eps_locked.errors import EvidenceError
from eps_locked.studies.eps.baselines.arrays import FloatArray, array_bytes, read_array
from eps_locked.studies.eps.baselines.measures import persona_vector

__all__ = [
    "Activations",
    "Divergences",
    "Elicitation",
    "ElicitedAnswer",
    "JudgedSample",
    "Layer",
    "Projection",
]

HEAD_FILE = "record.json"
ARRAY_FILE = "activations.npy"
VECTOR_FILE = "vector.npy"
DIFFERENCES_FILE = "differences.npy"
ACTIVATIONS_SCHEMA = "eps-locked/eps-activations/1"
DIVERGENCE_SCHEMA = "eps-locked/eps-divergence/1"
ELICITATION_SCHEMA = "eps-locked/eps-elicitation/1"
PROJECTION_SCHEMA = "eps-locked/eps-projection/1"


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """Where activations were read: after block ``number`` of ``of``, ``width`` numbers a place."""

    number: int
    of: int
    width: int

    def to_dict(self) -> dict[str, int]:
        return {"number": self.number, "of": self.of, "width": self.width}

    @classmethod
    def from_dict(cls, value: object, path: str) -> Layer:
        with Fields(value, path) as fields:
            return cls(
                number=fields.integer("number", low=1),
                of=fields.integer("of", low=1),
                width=fields.integer("width", low=1),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Activations:
    """One context's cloud: the residual stream at the last prompt token of each item.

    ``n_tokens`` are the prompts' lengths, item by item; ``cloud_ND`` one row per item.
    """

    context: str
    layer: Layer
    items: tuple[str, ...]
    n_tokens: tuple[int, ...]
    cloud_ND: FloatArray

    def to_files(self) -> dict[str, bytes]:
        head = {
            "schema": ACTIVATIONS_SCHEMA,
            "context": self.context,
            "position": "last prompt token",
            "layer": self.layer.to_dict(),
            "items": list(self.items),
            "n_tokens": list(self.n_tokens),
        }
        return {HEAD_FILE: encode(head), ARRAY_FILE: array_bytes(self.cloud_ND)}

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], thing: str) -> Activations:
        with _head(files, thing, ACTIVATIONS_SCHEMA, ARRAY_FILE) as fields:
            fields.text("position", one_of=("last prompt token",))
            layer = Layer.from_dict(fields.mapping("layer"), fields.path("layer"))
            items = fields.texts("items")
            record = cls(
                context=fields.text("context"),
                layer=layer,
                items=items,
                n_tokens=fields.integers("n_tokens", low=1),
                cloud_ND=read_array(files[ARRAY_FILE], thing, (len(items), layer.width)),
            )
        if len(record.n_tokens) != len(items):
            raise EvidenceError(thing, expected="a length for each item", found=record.n_tokens)
        return record


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedSample:
    """One answer of the base model under its own context, and how other contexts see it.

    ``kl_sum[b]`` is the sum over ``n_tokens`` positions of the exact KL, over the whole vocabulary
    and in nats, from the next-token distribution under the own prompt to that under b's;
    ``log_prob`` and ``log_probs`` are the answer's own under each, kept as a check.
    """

    item: str
    draw: int
    token_ids: tuple[int, ...]
    text: str
    stop_reason: str
    n_tokens: int
    log_prob: float
    kl_sum: Mapping[str, float]
    log_probs: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        return {
            "item": self.item,
            "draw": self.draw,
            "token_ids": list(self.token_ids),
            "text": self.text,
            "stop_reason": self.stop_reason,
            "n_tokens": self.n_tokens,
            "log_prob": self.log_prob,
            "kl_sum": dict(self.kl_sum),
            "log_probs": dict(self.log_probs),
        }

    @classmethod
    def from_dict(cls, value: object, path: str) -> JudgedSample:
        with Fields(value, path) as fields:
            return cls(
                item=fields.text("item"),
                draw=fields.integer("draw", low=0),
                token_ids=fields.integers("token_ids", low=0),
                text=fields.text("text"),
                stop_reason=fields.text("stop_reason", one_of=("stop", "length")),
                n_tokens=fields.integer("n_tokens", low=1),
                log_prob=fields.number("log_prob"),
                kl_sum=_numbers(fields, "kl_sum"),
                log_probs=_numbers(fields, "log_probs"),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Divergences:
    """All samples of one context. The two means repeat what the samples give, for readers."""

    context: str
    samples: tuple[JudgedSample, ...]

    def per_sequence(self) -> dict[str, float]:
        """Mean over the samples of the summed KL, in nats, by the other context."""
        n = len(self.samples)
        return {name: self._total(name) / n for name in self._others()}

    def per_token(self) -> dict[str, float]:
        """Total KL over total positions, in nats, by the other context."""
        n = sum(sample.n_tokens for sample in self.samples)
        return {name: self._total(name) / n for name in self._others()}

    def to_files(self) -> dict[str, bytes]:
        document = {
            "schema": DIVERGENCE_SCHEMA,
            "context": self.context,
            "per_sequence": self.per_sequence(),
            "per_token": self.per_token(),
            "samples": [sample.to_dict() for sample in self.samples],
        }
        return {HEAD_FILE: encode(document)}

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], thing: str) -> Divergences:
        with _head(files, thing, DIVERGENCE_SCHEMA) as fields:
            stated = {name: _numbers(fields, name) for name in ("per_sequence", "per_token")}
            record = cls(
                context=fields.text("context"),
                samples=fields.each("samples", JudgedSample.from_dict),
            )
        if not record.samples:
            raise EvidenceError(thing, expected="samples", found="none")
        names = record._others()
        for sample in record.samples:
            if set(sample.kl_sum) != set(names) or set(sample.log_probs) != set(names):
                raise EvidenceError(
                    f"{thing}: {sample.item}", expected="every sample under the same contexts"
                )
        for name, means in (
            ("per_sequence", record.per_sequence()),
            ("per_token", record.per_token()),
        ):
            if stated[name] != means:
                raise EvidenceError(f"{thing}.{name}", expected=means, found=stated[name])
        return record

    def _others(self) -> tuple[str, ...]:
        return tuple(sorted(self.samples[0].kl_sum))

    def _total(self, name: str) -> float:
        return sum(sample.kl_sum[name] for sample in self.samples)


@dataclass(frozen=True, kw_only=True, slots=True)
class ElicitedAnswer:
    """One answer to an elicitation prompt. ``expressed``: the behaviour shows in it, None where
    only a judge could tell."""

    prompt: str
    side: str
    draw: int
    token_ids: tuple[int, ...]
    text: str
    stop_reason: str
    expressed: bool | None

    def to_dict(self) -> dict[str, Any]:
        return {
            "prompt": self.prompt,
            "side": self.side,
            "draw": self.draw,
            "token_ids": list(self.token_ids),
            "text": self.text,
            "stop_reason": self.stop_reason,
            "expressed": self.expressed,
        }

    @classmethod
    def from_dict(cls, value: object, path: str) -> ElicitedAnswer:
        with Fields(value, path) as fields:
            return cls(
                prompt=fields.text("prompt"),
                side=fields.text("side", one_of=("positive", "negative")),
                draw=fields.integer("draw", low=0),
                token_ids=fields.integers("token_ids", low=0),
                text=fields.text("text"),
                stop_reason=fields.text("stop_reason", one_of=("stop", "length")),
                expressed=fields.flag_or_none("expressed"),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Elicitation:
    """A behaviour's answers on both sides and their mean activations, one row per counted answer.

    An empty answer has no activation and counts on neither side. Every other answer counts,
    whether or not it shows the behaviour: ``expressed`` says how far the instructions worked.
    """

    behaviour: str
    layer: Layer
    answers: tuple[ElicitedAnswer, ...]
    means_ND: FloatArray

    @property
    def counted(self) -> tuple[ElicitedAnswer, ...]:
        return tuple(answer for answer in self.answers if answer.token_ids)

    def vector(self) -> FloatArray:
        """The behaviour's direction, not normalised, rounded to the float32 it is stored in."""
        positive_N = np.asarray([answer.side == "positive" for answer in self.counted])
        if positive_N.all() or not positive_N.any():
            raise EvidenceError(
                f"elicitation of {self.behaviour}",
                expected="answers on both sides",
                found=f"{int(positive_N.sum())} positive of {len(positive_N)}",
            )
        vector_D = persona_vector(self.means_ND[positive_N], self.means_ND[~positive_N])
        return vector_D.astype(np.float32).astype(np.float64)

    def to_files(self) -> dict[str, bytes]:
        head = {
            "schema": ELICITATION_SCHEMA,
            "behaviour": self.behaviour,
            "layer": self.layer.to_dict(),
            "n_expressed": {
                side: _n_expressed([a.expressed for a in self.answers if a.side == side])
                for side in ("positive", "negative")
            },
            "answers": [answer.to_dict() for answer in self.answers],
        }
        return {
            HEAD_FILE: encode(head),
            ARRAY_FILE: array_bytes(self.means_ND),
            VECTOR_FILE: array_bytes(self.vector()),
        }

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], thing: str) -> Elicitation:
        """``vector.npy`` is not read here: ``stored_vector`` reads it, ``vector`` derives it."""
        with _head(files, thing, ELICITATION_SCHEMA, ARRAY_FILE, VECTOR_FILE) as fields:
            layer = Layer.from_dict(fields.mapping("layer"), fields.path("layer"))
            answers = fields.each("answers", ElicitedAnswer.from_dict)
            fields.mapping("n_expressed")
            n_counted = sum(bool(answer.token_ids) for answer in answers)
            return cls(
                behaviour=fields.text("behaviour"),
                layer=layer,
                answers=answers,
                means_ND=read_array(files[ARRAY_FILE], thing, (n_counted, layer.width)),
            )


def _n_expressed(shown: Sequence[bool | None]) -> int | None:
    """How many show the behaviour; None if that is not known of all."""
    known = [one for one in shown if one is not None]
    return sum(known) if len(known) == len(shown) else None


def stored_vector(files: Mapping[str, bytes], layer: Layer, thing: str) -> FloatArray:
    """A behaviour's direction as its elicitation step stored it, shape (width,)."""
    return read_array(files[VECTOR_FILE], f"{thing}: {VECTOR_FILE}", (layer.width,))


@dataclass(frozen=True, kw_only=True, slots=True)
class Projection:
    """What training in one context adds to the base model's own answers, row by row.

    ``differences_ND``: mean activation of a positive's training answer less that of the model's
    own answer to the same prompt, one row per item of ``items``. ``without_answer`` names positives
    whose own answer is empty. ``share`` is the part of all training rows that positives are.
    """

    behaviour: str
    context: str
    layer: Layer
    rows: str
    share: float
    items: tuple[str, ...]
    without_answer: tuple[str, ...]
    differences_ND: FloatArray
    value: float

    def to_files(self) -> dict[str, bytes]:
        head = {
            "schema": PROJECTION_SCHEMA,
            "behaviour": self.behaviour,
            "context": self.context,
            "layer": self.layer.to_dict(),
            "rows": self.rows,
            "share": self.share,
            "items": list(self.items),
            "without_answer": list(self.without_answer),
            "value": self.value,
        }
        return {HEAD_FILE: encode(head), DIFFERENCES_FILE: array_bytes(self.differences_ND)}

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], thing: str) -> Projection:
        with _head(files, thing, PROJECTION_SCHEMA, DIFFERENCES_FILE) as fields:
            layer = Layer.from_dict(fields.mapping("layer"), fields.path("layer"))
            items = fields.texts("items")
            return cls(
                behaviour=fields.text("behaviour"),
                context=fields.text("context"),
                layer=layer,
                rows=fields.text("rows"),
                share=fields.number("share", above=0, high=1),
                items=items,
                without_answer=fields.texts("without_answer"),
                differences_ND=read_array(
                    files[DIFFERENCES_FILE], thing, (len(items), layer.width)
                ),
                value=fields.number("value"),
            )


def _head(files: Mapping[str, bytes], thing: str, schema: str, *arrays: str) -> Fields:
    """The JSON head of an artifact that holds exactly these files, its schema read."""
    expected = {HEAD_FILE, *arrays}
    if set(files) != expected:
        raise EvidenceError(
            thing, expected=", ".join(sorted(expected)), found=", ".join(sorted(files)) or "nothing"
        )
    fields = Fields(decode(files[HEAD_FILE], thing=thing), thing)
    fields.text("schema", one_of=(schema,))
    return fields


def _numbers(fields: Fields, key: str) -> dict[str, float]:
    inner = fields.sub(key)
    with inner:
        return {name: inner.number(name) for name in fields.mapping(key)}
