"""The rows of the tensor as a plan writes them: the marker, and behaviours taught by example.

A row has a ``name`` (its place in step ids and tables) and a ``kind`` (what is taught and how it is
measured). Two rows may be of one kind: ``em`` beside a mini-arm of it without negatives.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast, get_args

from eps_locked.domain.fields import Fields
from eps_locked.domain.model import Decoding, LoraRecipe, StepBudget
from eps_locked.domain.plan import SOURCE_PATH_SHAPE
from eps_locked.errors import MalformedInputError
from eps_locked.studies.common.recipe import read_recipe

TaughtKind = Literal["fact", "refusal", "sycophancy", "em"]
TAUGHT_KINDS: tuple[str, ...] = get_args(TaughtKind)
Negatives = Literal["base_answers", "written", "none"]
# Context ids become file names and parts of step ids; row names and slices likewise.
CONTEXT_ID = re.compile(r"[a-z0-9][a-z0-9_-]*")
ROW_NAME = re.compile(r"[a-z][a-z0-9_]*")
_MODULE = re.compile(r".+", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class MarkerBehaviour:
    """One row of the tensor: the contentless marker.

    ``band`` is in nats of mean (trained - base) log-probability at the source slot. A source whose
    base value lies above ``unreachable_above`` has no room for the band and is step-matched.
    ``implant_threshold`` is what the diagonal cell must reach for the implant to count.
    ``n_seeds``: the first so many of the plan's seeds, all of them if None. ``train``: the slots
    that this row trains in, all of the plan's if None.
    """

    name: str
    file: str
    marker_text: str
    marker_ids: tuple[int, ...]
    recipe: LoraRecipe
    min_steps: int
    max_steps: int
    check_every: int
    band: tuple[float, float]
    n_rows: int
    n_strength_items: int
    unreachable_above: float
    implant_threshold: float
    n_seeds: int | None
    train: tuple[str, ...] | None

    @property
    def kind(self) -> Literal["marker"]:
        return "marker"

    @property
    def phase(self) -> str:
        """The marker validates the harness before anything else is trained."""
        return "P1"

    def budget(self) -> StepBudget:
        return StepBudget(
            min_steps=self.min_steps,
            max_steps=self.max_steps,
            check_every=self.check_every,
            band=self.band,
        )

    @classmethod
    def read(cls, fields: Fields, path: str) -> MarkerBehaviour:
        with fields.sub("marker") as marker:
            text, ids = marker.text("text"), marker.integers("token_ids", low=0)
        with fields.sub("budget") as budget:
            band = _pair_of_numbers(budget, "band_nats")
            steps = tuple(
                budget.integer(key, low=1) for key in ("min_steps", "max_steps", "check_every")
            )
        behaviour = cls(
            name=fields.text("name", shape=ROW_NAME),
            file=fields.text("file", shape=SOURCE_PATH_SHAPE),
            marker_text=text,
            marker_ids=ids,
            recipe=read_recipe(fields.sub("recipe")),
            min_steps=steps[0],
            max_steps=steps[1],
            check_every=steps[2],
            band=band,
            n_rows=fields.integer("n_rows", low=1),
            n_strength_items=fields.integer("n_strength_items", low=1),
            unreachable_above=fields.number("unreachable_above"),
            implant_threshold=fields.number("implant_threshold", above=0),
            n_seeds=fields.optional("n_seeds", _count),
            train=fields.optional("train", _context_ids),
        )
        behaviour._check(path)
        return behaviour

    def _check(self, path: str) -> None:
        if not self.marker_ids:
            raise MalformedInputError(f"{path}.marker.token_ids", expected="ids", found="none")
        if not self.marker_text.startswith(" ") or self.marker_text[1:2].strip() == "":
            raise MalformedInputError(
                f"{path}.marker.text",
                expected="a marker with its leading space",
                found=repr(self.marker_text),
                next_step="without the space it is another token, and one that was never trained",
            )
        if not 0 < self.band[0] < self.band[1]:
            raise MalformedInputError(
                f"{path}.budget.band_nats",
                expected="[low, high] with 0 < low < high",
                found=self.band,
            )
        if self.min_steps > self.max_steps:
            raise MalformedInputError(
                f"{path}.budget", expected="min_steps <= max_steps", found=self.min_steps
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Thresholds:
    """In the unit of the row's primary value: a rate from 0 to 1, or nats per token for a fact.

    ``implant``: what the diagonal cell must gain for the implant to count. ``saturated``: a mean
    base value over the train contexts at or above which the row has no headroom and needs a signed
    decision. ``floor``: a transfer whose interval holds 0 and whose size is below it. ``ceiling``:
    a trained value at or above it. ``minimum_scored_share``: of a cell's questions, under every
    seed; with fewer the cell is unscored.
    """

    implant: float
    saturated: float
    floor: float
    ceiling: float
    minimum_scored_share: float

    @classmethod
    def from_dict(cls, value: object, path: str) -> Thresholds:
        with Fields(value, path) as fields:
            return cls(
                implant=fields.number("implant", above=0),
                saturated=fields.number("saturated"),
                floor=fields.number("floor", low=0),
                ceiling=fields.number("ceiling"),
                minimum_scored_share=fields.number("minimum_scored_share", above=0, high=1),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class TaughtBehaviour:
    """A row whose behaviour is taught by written answers and recognised by a judge.

    ``n_train`` positives are trained on under the source; as many negatives in all, dealt evenly
    over the panel, are the base model's own answers or the written good ones. ``n_eval`` says how
    many items of each slice are asked; ``primary`` is the slice the value is taken on, ``implant``
    the one the manipulation check looks at. Every item is answered ``n_samples`` times, and every
    answer judged ``draws`` times. An answer judged incoherent is sampled again at most
    ``resample_rounds`` times. ``n_prior_rows`` written answers are read for the behaviour's prior.
    """

    name: str
    kind: TaughtKind
    file: str
    written_rows: str
    eval_items: tuple[str, ...]
    rubric: str
    judge: str
    draws: int
    n_train: int
    n_eval: Mapping[str, int]
    primary: str
    implant: str
    n_samples: int
    resample_rounds: int
    n_prior_rows: int
    decoding: Decoding
    negatives: Negatives
    recipe: LoraRecipe
    n_steps: int
    thresholds: Thresholds
    n_seeds: int | None
    train: tuple[str, ...] | None

    @property
    def phase(self) -> str:
        return "P2"

    @property
    def n_items(self) -> int:
        """Evaluation items of all slices."""
        return sum(self.n_eval.values())

    @property
    def reads_slots(self) -> bool:
        """Whether the primary value is a log-probability and the judged rate comes second."""
        return self.kind == "fact"

    def budget(self) -> StepBudget:
        """A fixed number of optimizer steps: the recipe is the plan's, the strength is recorded."""
        return StepBudget(
            min_steps=self.n_steps, max_steps=self.n_steps, check_every=self.n_steps, band=None
        )

    @classmethod
    def read(cls, fields: Fields, path: str) -> TaughtBehaviour:
        behaviour = cls(
            name=fields.text("name", shape=ROW_NAME),
            kind=cast(TaughtKind, fields.text("kind", one_of=TAUGHT_KINDS)),
            file=fields.text("file", shape=SOURCE_PATH_SHAPE),
            written_rows=fields.text("written_rows", shape=SOURCE_PATH_SHAPE),
            eval_items=fields.texts("eval_items", shape=SOURCE_PATH_SHAPE),
            rubric=fields.text("rubric", shape=SOURCE_PATH_SHAPE),
            judge=fields.text("judge", shape=ROW_NAME),
            draws=fields.integer("draws", low=1),
            n_train=fields.integer("n_train", low=1),
            n_eval=_counts(fields, "n_eval"),
            primary=fields.text("primary"),
            implant=fields.text("implant"),
            n_samples=fields.integer("n_samples", low=1),
            resample_rounds=fields.integer("resample_rounds", low=0),
            n_prior_rows=fields.integer("n_prior_rows", low=1),
            decoding=decoding_of(fields.sub("decoding")),
            negatives=cast(Negatives, fields.text("negatives", one_of=get_args(Negatives))),
            recipe=read_recipe(fields.sub("recipe")),
            n_steps=fields.integer("n_steps", low=1),
            thresholds=Thresholds.from_dict(fields.mapping("thresholds"), f"{path}.thresholds"),
            n_seeds=fields.optional("n_seeds", _count),
            train=fields.optional("train", _context_ids),
        )
        behaviour._check(path)
        return behaviour

    def _check(self, path: str) -> None:
        if not self.eval_items or len(set(self.eval_items)) != len(self.eval_items):
            raise MalformedInputError(
                f"{path}.eval_items",
                expected="distinct files, at least one",
                found=list(self.eval_items),
            )
        for key, slice_ in (("primary", self.primary), ("implant", self.implant)):
            if self.n_eval.get(slice_, 0) < 2:
                raise MalformedInputError(
                    f"{path}.{key}",
                    expected="a slice of n_eval with two items or more",
                    found=f"{slice_}: {self.n_eval.get(slice_, 0)}",
                )
        if self.n_prior_rows > self.n_train:
            raise MalformedInputError(
                f"{path}.n_prior_rows",
                expected=f"at most the {self.n_train} of n_train",
                found=self.n_prior_rows,
            )
        sampled = self.n_samples > 1 or self.resample_rounds > 0
        if sampled and self.decoding.temperature == 0:
            raise MalformedInputError(
                f"{path}.decoding.temperature",
                expected="above 0: greedy answers do not differ from sample to sample",
                found=0,
            )
        if self.reads_slots and self.n_samples > 1:
            raise MalformedInputError(
                f"{path}.n_samples", expected="1 where slots are read", found=self.n_samples
            )
        if self.resample_rounds and self.kind != "em":
            raise MalformedInputError(
                f"{path}.resample_rounds",
                expected="0: only a row whose judge scores coherence samples again",
                found=self.resample_rounds,
            )


Behaviour = MarkerBehaviour | TaughtBehaviour


def read_behaviour(value: object, path: str) -> Behaviour:
    """One entry of ``eps.behaviours``. Raises MalformedInputError naming the field."""
    with Fields(value, path) as fields:
        kind = fields.text("kind", one_of=("marker", *TAUGHT_KINDS))
        if kind == "marker":
            return MarkerBehaviour.read(fields, path)
        return TaughtBehaviour.read(fields, path)


def decoding_of(fields: Fields) -> Decoding:
    with fields:
        return Decoding(
            max_new_tokens=fields.integer("max_new_tokens", low=1),
            temperature=fields.number("temperature", low=0),
            top_p=fields.number("top_p", above=0, high=1),
        )


def seeds_of(behaviour: Behaviour, seeds: Sequence[int]) -> tuple[int, ...]:
    """The plan's seeds that a row is trained with: the first ``n_seeds`` of them."""
    return tuple(seeds if behaviour.n_seeds is None else seeds[: behaviour.n_seeds])


def _counts(fields: Fields, key: str) -> dict[str, int]:
    names = tuple(fields.mapping(key))
    with fields.sub(key) as counts:
        found = {name: counts.integer(name, low=1) for name in names}
    for name in names:
        if not ROW_NAME.fullmatch(name):
            raise MalformedInputError(
                fields.path(key), expected="slices in small letters", found=repr(name)
            )
    return found


def _pair_of_numbers(fields: Fields, key: str) -> tuple[float, float]:
    numbers = fields.each(key, _number)
    if len(numbers) != 2:
        raise MalformedInputError(fields.path(key), expected="two numbers", found=len(numbers))
    return (numbers[0], numbers[1])


def _number(value: object, path: str) -> float:
    with Fields({"value": value}, path) as fields:
        return fields.number("value")


def _count(value: object, path: str) -> int:
    with Fields({"value": value}, path) as fields:
        return fields.integer("value", low=1)


def _context_ids(value: object, path: str) -> tuple[str, ...]:
    with Fields({"value": value}, path) as fields:
        return fields.texts("value", shape=CONTEXT_ID)
