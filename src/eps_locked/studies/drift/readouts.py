"""Trait directions of the untouched model, and where a model's prompts lie along them.

A direction is the mean activation over answers that show a trait, less that over answers to the
same questions that do not, as in Chen et al. 2025 (persona vectors, arXiv:2507.21509); each
answer's activation is the mean over its tokens. A prompt is read at its last token, the state that
the first word of a reply comes from: a mean over the prompt would be mostly of its first token,
whose activation dwarfs all others (Sun et al. 2024, massive activations, arXiv:2402.17762; in the
embedded model 25,000 against 160 at layer 15).

Shape letters: N answers, D width of the residual stream.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eps_locked.canonical import decode, encode
from eps_locked.domain.execution import StepResult
from eps_locked.domain.fields import Fields
from eps_locked.domain.model import ReadoutEngine, SpanRequest, TokenIds
from eps_locked.errors import BackendError, EvidenceError
from eps_locked.stats.checks import FloatArray
from eps_locked.studies.common.rounding import rounded
from eps_locked.studies.drift.plan import ReadoutRules
from eps_locked.studies.drift.rendering import READOUT_SCHEMA
from eps_locked.studies.drift.task import Task

__all__ = [
    "Directions",
    "FrozenReadout",
    "Projections",
    "directions_differences",
    "find_directions",
    "projections_differences",
    "read_model",
]

DIRECTIONS_FILE = "directions.json"
READOUT_FILE = "readout.json"
DIRECTIONS_SCHEMA = "eps-locked/drift-directions/1"
PROJECTIONS_SCHEMA = "eps-locked/drift-readout/1"
# A direction is stored at ten digits; its length can be off by as much.
_UNIT = 1e-6


@dataclass(frozen=True, kw_only=True, slots=True)
class FrozenContrast:
    """A question with an answer that shows a trait and one that does not."""

    id: str
    prompt: TokenIds
    positive: TokenIds
    negative: TokenIds


@dataclass(frozen=True, kw_only=True, slots=True)
class FrozenReadout:
    """What is read: prompts by id, contrasts by trait, both in their frozen order."""

    prompts: Mapping[str, TokenIds]
    traits: Mapping[str, tuple[FrozenContrast, ...]]

    @classmethod
    def read(cls, data: bytes, thing: str = "frozen readout") -> FrozenReadout:
        """Raises MalformedInputError naming the field."""
        with Fields(decode(data, thing=thing), thing) as fields:
            fields.text("schema", one_of=(READOUT_SCHEMA,))
            names = tuple(fields.mapping("traits"))
            with fields.sub("traits") as traits:
                by_trait = {name: traits.each(name, _contrast) for name in names}
            return cls(prompts=dict(fields.each("prompts", _prompt)), traits=by_trait)


def _contrast(value: object, path: str) -> FrozenContrast:
    with Fields(value, path) as fields:
        return FrozenContrast(
            id=fields.text("id"),
            prompt=fields.integers("prompt", low=0),
            positive=fields.integers("positive", low=0),
            negative=fields.integers("negative", low=0),
        )


def _prompt(value: object, path: str) -> tuple[str, TokenIds]:
    with Fields(value, path) as fields:
        return fields.text("id"), fields.integers("token_ids", low=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Direction:
    """``unit`` has length 1; ``norm`` is how far apart the two means lay."""

    unit: tuple[float, ...]
    norm: float
    n_contrasts: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Directions:
    """One direction a trait, at one layer."""

    layer: int
    traits: Mapping[str, Direction]

    def to_files(self) -> dict[str, bytes]:
        traits = {
            name: {"direction": list(one.unit), "norm": one.norm, "n_contrasts": one.n_contrasts}
            for name, one in self.traits.items()
        }
        document = {"schema": DIRECTIONS_SCHEMA, "layer": self.layer, "traits": traits}
        return {DIRECTIONS_FILE: encode(document)}

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], thing: str) -> Directions:
        """Raises EvidenceError or MalformedInputError naming the file and field."""
        value = decode(_only(files, DIRECTIONS_FILE, thing), thing=thing)
        with Fields(value, thing) as fields:
            fields.text("schema", one_of=(DIRECTIONS_SCHEMA,))
            names = tuple(fields.mapping("traits"))
            with fields.sub("traits") as traits:
                found = {name: _direction(traits.sub(name)) for name in names}
            return cls(layer=fields.integer("layer", low=1), traits=found)


def _direction(fields: Fields) -> Direction:
    with fields:
        return Direction(
            unit=fields.each("direction", _number),
            norm=fields.number("norm", above=0),
            n_contrasts=fields.integer("n_contrasts", low=1),
        )


def _number(value: object, path: str) -> float:
    with Fields({"value": value}, path) as fields:
        return fields.number("value")


@dataclass(frozen=True, kw_only=True, slots=True)
class Projections:
    """One model's prompts along every direction: trait -> prompt -> number."""

    model: str
    layer: int
    by_trait: Mapping[str, Mapping[str, float]]

    def to_files(self) -> dict[str, bytes]:
        document = {
            "schema": PROJECTIONS_SCHEMA,
            "model": self.model,
            "layer": self.layer,
            "projections": self.by_trait,
        }
        return {READOUT_FILE: encode(document)}

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], thing: str) -> Projections:
        """Raises EvidenceError or MalformedInputError naming the file and field."""
        with Fields(decode(_only(files, READOUT_FILE, thing), thing=thing), thing) as fields:
            fields.text("schema", one_of=(PROJECTIONS_SCHEMA,))
            names = tuple(fields.mapping("projections"))
            with fields.sub("projections") as traits:
                found = {name: _numbers(traits.sub(name), traits.mapping(name)) for name in names}
            return cls(
                model=fields.text("model"),
                layer=fields.integer("layer", low=1),
                by_trait=found,
            )


def _numbers(fields: Fields, names: Mapping[str, Any]) -> dict[str, float]:
    with fields:
        return {name: fields.number(name) for name in names}


def _only(files: Mapping[str, bytes], name: str, thing: str) -> bytes:
    if set(files) != {name}:
        raise EvidenceError(thing, expected=name, found=", ".join(sorted(files)) or "nothing")
    return files[name]


def find_directions(task: Task, rules: ReadoutRules) -> StepResult:
    """One direction a trait, from the bare base. Raises BackendError for a trait whose two sides
    have the same mean: it has no direction."""
    engine = task.hands.loaded().readout
    engine.attach(None)
    frozen = FrozenReadout.read(task.inputs.frozen("readout"))
    task.progress(f"{sum(map(len, frozen.traits.values()))} contrasts")
    traits = {}
    for name, contrasts in frozen.traits.items():
        sides = [
            _read(engine, [_answer(one, side) for one in contrasts], rules.layer).mean(axis=0)
            for side in ("positive", "negative")
        ]
        apart_D = sides[0] - sides[1]
        norm = float(np.linalg.norm(apart_D))
        if norm == 0:
            raise BackendError(
                f"{task.step.id}: trait {name}",
                expected="two sides with different activations",
                found="the same",
                next_step="rewrite the trait's contrasts; they say the same twice",
            )
        traits[name] = Direction(
            unit=tuple(rounded((apart_D / norm).tolist())),
            norm=rounded(norm),
            n_contrasts=len(contrasts),
        )
    files = Directions(layer=rules.layer, traits=traits).to_files()
    return StepResult(outputs={"directions": files})


def read_model(task: Task) -> StepResult:
    """Where one model's prompts lie along the directions of the bare base."""
    engine = task.hands.loaded().readout
    engine.attach(task.adapter)
    prompts = FrozenReadout.read(task.inputs.frozen("readout")).prompts
    directions = Directions.from_files(task.inputs.artifact("directions"), "directions")
    task.progress(f"{len(prompts)} prompts")
    spans = [
        SpanRequest(key=name, token_ids=ids, start=len(ids) - 1, end=len(ids))
        for name, ids in prompts.items()
    ]
    states_ND = _read(engine, spans, directions.layer)
    by_trait = {
        trait: {
            name: rounded(math.fsum(state_D * np.asarray(one.unit)))
            for name, state_D in zip(prompts, states_ND, strict=True)
        }
        for trait, one in directions.traits.items()
    }
    found = Projections(model=task.step.params["model"], layer=directions.layer, by_trait=by_trait)
    return StepResult(outputs={"readout": found.to_files()})


def directions_differences(
    found: Directions, frozen: FrozenReadout, rules: ReadoutRules
) -> list[str]:
    """Whether directions are of the frozen traits and layer, of length 1, and of one width."""
    differences = []
    if found.layer != rules.layer:
        differences.append(f"layer: expected {rules.layer}, found {found.layer}")
    expected = {name: len(contrasts) for name, contrasts in frozen.traits.items()}
    contrasts = {name: one.n_contrasts for name, one in found.traits.items()}
    if contrasts != expected:
        differences.append(f"contrasts by trait: expected {expected}, found {contrasts}")
    if len({len(one.unit) for one in found.traits.values()}) > 1:
        differences.append("directions: expected one width, found several")
    for name, one in found.traits.items():
        length = math.sqrt(math.fsum(number * number for number in one.unit))
        if abs(length - 1) > _UNIT:
            differences.append(f"direction {name}: expected length 1, found {length:.6g}")
    return differences


def projections_differences(
    found: Projections, model: str, directions: Directions, frozen: FrozenReadout
) -> list[str]:
    """Whether every frozen prompt stands on every direction, for the step's model and layer."""
    prompts = set(frozen.prompts)
    differences = [
        f"{name}: expected {expected}, found {there}"
        for name, expected, there in (
            ("model", model, found.model),
            ("layer", directions.layer, found.layer),
            ("traits", sorted(directions.traits), sorted(found.by_trait)),
        )
        if expected != there
    ]
    differences += [
        f"{trait}: expected the {len(prompts)} frozen prompts, found {len(by_prompt)}, or others"
        for trait, by_prompt in found.by_trait.items()
        if set(by_prompt) != prompts
    ]
    return differences


def _answer(contrast: FrozenContrast, side: str) -> SpanRequest:
    answer: TokenIds = getattr(contrast, side)
    head = len(contrast.prompt)
    return SpanRequest(
        key=f"{contrast.id}/{side}",
        token_ids=contrast.prompt + answer,
        start=head,
        end=head + len(answer),
    )


def _read(engine: ReadoutEngine, spans: Sequence[SpanRequest], layer: int) -> FloatArray:
    return np.asarray(engine.activations(spans, layer), dtype=np.float64)
