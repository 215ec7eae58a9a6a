"""The ``eps`` section of a plan: behaviours, slots, items, decoding, flags, intervals."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from eps_locked.domain.fields import Fields
from eps_locked.domain.model import Decoding, LoraRecipe, StepBudget
from eps_locked.domain.plan import SOURCE_PATH_SHAPE
from eps_locked.errors import MalformedInputError
from eps_locked.scoring.settings import ScoreSettings
from eps_locked.studies.eps.baselines.rules import BaselineRules

BEHAVIOURS = ("marker",)
# Context ids become file names and parts of step ids.
_CONTEXT_ID = re.compile(r"[a-z0-9][a-z0-9_-]*")
_MODULE = re.compile(r".+", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class MarkerBehaviour:
    """One row of the tensor: the contentless marker.

    ``band`` is in nats of mean (trained - base) log-probability at the source slot. A source whose
    base value lies above ``unreachable_above`` has no room for the band and is step-matched.
    ``implant_threshold`` is what the diagonal cell must reach for the implant to count.
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

    def budget(self) -> StepBudget:
        return StepBudget(
            min_steps=self.min_steps,
            max_steps=self.max_steps,
            check_every=self.check_every,
            band=self.band,
        )

    @classmethod
    def from_dict(cls, value: object, path: str) -> MarkerBehaviour:
        with Fields(value, path) as fields:
            with fields.sub("marker") as marker:
                text, ids = marker.text("text"), marker.integers("token_ids", low=0)
            with fields.sub("budget") as budget:
                band = _pair_of_numbers(budget, "band_nats")
                steps = tuple(
                    budget.integer(key, low=1) for key in ("min_steps", "max_steps", "check_every")
                )
            behaviour = cls(
                name=fields.text("name", one_of=BEHAVIOURS),
                file=fields.text("file", shape=SOURCE_PATH_SHAPE),
                marker_text=text,
                marker_ids=ids,
                recipe=_recipe(fields.sub("recipe")),
                min_steps=steps[0],
                max_steps=steps[1],
                check_every=steps[2],
                band=band,
                n_rows=fields.integer("n_rows", low=1),
                n_strength_items=fields.integer("n_strength_items", low=1),
                unreachable_above=fields.number("unreachable_above"),
                implant_threshold=fields.number("implant_threshold", above=0),
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
class Slots:
    """Which contexts train, which evaluate, which are held out, which are trained against.

    ``aliases``: pairs that are one context. ``near_duplicates``: groups of contexts so alike that a
    fold may not hold out one and keep another; absent means none.
    """

    train: tuple[str, ...]
    eval: tuple[str, ...]
    held_out: tuple[str, ...]
    negative_panel: tuple[str, ...]
    aliases: tuple[tuple[str, str], ...]
    near_duplicates: tuple[tuple[str, ...], ...]

    @classmethod
    def from_dict(cls, value: object, path: str) -> Slots:
        with Fields(value, path) as fields:
            slots = cls(
                train=fields.texts("train", shape=_CONTEXT_ID),
                eval=fields.texts("eval", shape=_CONTEXT_ID),
                held_out=fields.texts("held_out", shape=_CONTEXT_ID),
                negative_panel=fields.texts("negative_panel", shape=_CONTEXT_ID),
                aliases=fields.each("aliases", _pair),
                near_duplicates=fields.optional("near_duplicates", _groups) or (),
            )
        slots._check(path)
        return slots

    def _check(self, path: str) -> None:
        for key in ("train", "eval", "held_out", "negative_panel"):
            names = getattr(self, key)
            if len(set(names)) != len(names):
                raise MalformedInputError(
                    f"{path}.{key}", expected="distinct contexts", found="a repeated one"
                )
            if not names and key != "held_out":
                raise MalformedInputError(
                    f"{path}.{key}", expected="at least one context", found="none"
                )
        for key, expected, names in (
            ("train", "contexts that are also evaluated", set(self.train) - set(self.eval)),
            ("held_out", "contexts that are also evaluated", set(self.held_out) - set(self.eval)),
            ("held_out", "no trained context", set(self.held_out) & set(self.train)),
            (
                "negative_panel",
                "no evaluated context (it would be measured past an explicit negative)",
                set(self.negative_panel) & (set(self.eval) | set(self.train)),
            ),
        ):
            if names:
                raise MalformedInputError(
                    f"{path}.{key}", expected=expected, found=sorted(names)[0]
                )
        grouped = [name for group in self.near_duplicates for name in group]
        for name in grouped:
            if name not in self.eval or grouped.count(name) > 1:
                raise MalformedInputError(
                    f"{path}.near_duplicates",
                    expected="evaluated contexts, each in one group at most",
                    found=name,
                )


@dataclass(frozen=True, kw_only=True, slots=True)
class FlagRules:
    """When a cell is saturated or its reading doubtful.

    ``ceiling_log_prob``: trained mean log-prob at or above it is a ceiling. ``floor_delta``: a
    transfer whose interval holds 0 and whose size is below it is a floor. ``divergence_nats``: how
    far the change of log-prob and the change of the margin (marker logit - end-of-turn logit) may
    lie apart before the cell is flagged. ``minimum_answered_share``: the share of a cell's
    questions that must have a slot under every seed; with fewer the cell is unscored.
    """

    ceiling_log_prob: float
    floor_delta: float
    divergence_nats: float
    minimum_answered_share: float

    @classmethod
    def from_dict(cls, value: object, path: str) -> FlagRules:
        with Fields(value, path) as fields:
            return cls(
                ceiling_log_prob=fields.number("ceiling_log_prob", high=0),
                floor_delta=fields.number("floor_delta", low=0),
                divergence_nats=fields.number("divergence_nats", low=0),
                minimum_answered_share=fields.number("minimum_answered_share", above=0, high=1),
            )


def _confidence_level(value: object, path: str) -> float:
    """Of every interval around a cell's value."""
    with Fields(value, path) as fields:
        level = fields.number("confidence_level")
    if not 0.5 <= level < 1:
        raise MalformedInputError(
            f"{path}.confidence_level", expected="0.5 to below 1", found=level
        )
    return level


@dataclass(frozen=True, kw_only=True, slots=True)
class QuarantineRules:
    """Which share of the open off-diagonal cells is set apart, and by which draw.

    ``seal`` says what protects them. ``age``: held-out and quarantined cells are encrypted to the
    custodian's keys in the file ``recipients`` before they reach a disk. ``none``: by name only;
    the manifest lists them, and every page says that nobody was kept from reading them.
    """

    fraction: float
    seed: int
    seal: Literal["none", "age"]
    recipients: str | None

    @classmethod
    def from_dict(cls, value: object, path: str) -> QuarantineRules:
        with Fields(value, path) as fields:
            rules = cls(
                fraction=fields.number("fraction", low=0, high=0.5),
                seed=fields.integer("seed", low=0),
                seal=cast(Literal["none", "age"], fields.text("seal", one_of=("none", "age"))),
                recipients=fields.text_or_none("recipients"),
            )
        if (rules.seal == "age") != (rules.recipients is not None):
            raise MalformedInputError(
                f"{path}.recipients",
                expected="a file of age recipients" if rules.seal == "age" else "null",
                found=repr(rules.recipients),
            )
        return rules


# Which shipped baseline plays which part in the multiplicative combiner.
COMBINER_ROLES = {
    "source_prior": "source_prior",
    "bystander_prior": "bystander_prior",
    "gate": "gaussian_kl",
}


def score_settings(value: object, path: str) -> ScoreSettings:
    """How metrics are scored: every number of it is frozen with the plan."""
    with Fields(value, path) as fields:
        return ScoreSettings(
            n_resamples=fields.integer("n_resamples", low=100),
            n_permutations=fields.integer("n_permutations", low=19),
            n_part_permutations=fields.integer("n_part_permutations", low=19),
            n_combiner_permutations=fields.integer("n_combiner_permutations", low=19),
            confidence_level=fields.number("confidence_level", above=0, below=1),
            alpha=fields.number("alpha", above=0, below=1),
            minimum_cells=fields.integer("minimum_cells", low=6),
            seed=fields.integer("seed", low=0),
            roles=COMBINER_ROLES,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class EpsPlan:
    """The whole section. ``baselines`` and ``scoring`` are there or not; see ``freeze``."""

    context_files: tuple[str, ...]
    train_items_file: str
    eval_items_file: str
    n_train_items: int
    n_eval_items: int
    item_seed: int
    behaviours: tuple[MarkerBehaviour, ...]
    slots: Slots
    decoding: Decoding
    flags: FlagRules
    confidence_level: float
    quarantine: QuarantineRules
    baselines: BaselineRules | None
    scoring: ScoreSettings | None

    @classmethod
    def from_section(cls, section: Mapping[str, Any], path: str = "plan.eps") -> EpsPlan:
        """Raises MalformedInputError naming the field."""
        with Fields(section, path) as fields:
            with fields.sub("material") as material:
                context_files = material.texts("contexts", shape=SOURCE_PATH_SHAPE)
                train_items_file = material.text("train_items", shape=SOURCE_PATH_SHAPE)
                eval_items_file = material.text("eval_items", shape=SOURCE_PATH_SHAPE)
            with fields.sub("items") as items:
                n_train, n_eval = items.integer("n_train", low=1), items.integer("n_eval", low=2)
                item_seed = items.integer("seed", low=0)
            with fields.sub("decoding") as decoding:
                decode = Decoding(
                    max_new_tokens=decoding.integer("max_new_tokens", low=1),
                    temperature=decoding.number("temperature", low=0),
                    top_p=decoding.number("top_p", above=0, high=1),
                )
            plan = cls(
                context_files=context_files,
                train_items_file=train_items_file,
                eval_items_file=eval_items_file,
                n_train_items=n_train,
                n_eval_items=n_eval,
                item_seed=item_seed,
                behaviours=fields.each("behaviours", MarkerBehaviour.from_dict),
                slots=Slots.from_dict(fields.mapping("slots"), fields.path("slots")),
                decoding=decode,
                flags=FlagRules.from_dict(fields.mapping("flags"), fields.path("flags")),
                confidence_level=_confidence_level(
                    fields.mapping("intervals"), fields.path("intervals")
                ),
                quarantine=QuarantineRules.from_dict(
                    fields.mapping("quarantine"), fields.path("quarantine")
                ),
                baselines=fields.optional("baselines", BaselineRules.from_dict),
                scoring=fields.optional("scoring", score_settings),
            )
        plan._check(path)
        return plan

    def behaviour(self, name: str) -> MarkerBehaviour:
        return next(behaviour for behaviour in self.behaviours if behaviour.name == name)

    def _check(self, path: str) -> None:
        if not self.context_files:
            raise MalformedInputError(
                f"{path}.material.contexts", expected="at least one file", found="none"
            )
        names = [behaviour.name for behaviour in self.behaviours]
        if not names or len(set(names)) != len(names):
            raise MalformedInputError(
                f"{path}.behaviours", expected="distinct behaviours, at least one", found=names
            )
        if self.baselines is not None:
            self.baselines.check_items(self.n_train_items, f"{path}.baselines")
        panel = len(self.slots.negative_panel)
        for number, behaviour in enumerate(self.behaviours):
            where = f"{path}.behaviours[{number}]"
            if behaviour.n_rows > self.n_train_items or panel == 0 or behaviour.n_rows % panel:
                raise MalformedInputError(
                    f"{where}.n_rows",
                    expected=f"a multiple of the panel's {panel}, at most the {self.n_train_items} "
                    "train items",
                    found=behaviour.n_rows,
                )
            if behaviour.n_strength_items > self.n_train_items:
                raise MalformedInputError(
                    f"{where}.n_strength_items",
                    expected=f"at most the {self.n_train_items} train items",
                    found=behaviour.n_strength_items,
                )


def _recipe(fields: Fields) -> LoraRecipe:
    with fields:
        recipe = LoraRecipe(
            rank=fields.integer("rank", low=1),
            alpha=fields.number("alpha", above=0),
            dropout=fields.number("dropout", low=0, below=1),
            rank_stabilised=fields.flag("rank_stabilised"),
            target_modules=fields.texts("target_modules", shape=_MODULE),
            learning_rate=fields.number("learning_rate", above=0),
            schedule=cast(
                Literal["constant", "linear", "cosine"],
                fields.text("schedule", one_of=("constant", "linear", "cosine")),
            ),
            warmup_steps=fields.integer("warmup_steps", low=0),
            weight_decay=fields.number("weight_decay", low=0),
            max_grad_norm=fields.number("max_grad_norm", low=0),
            rows_per_step=fields.integer("rows_per_step", low=1),
        )
    modules = recipe.target_modules
    if not modules or len(set(modules)) != len(modules):
        raise MalformedInputError(
            fields.path("target_modules"), expected="distinct modules", found=list(modules)
        )
    return recipe


def _pair_of_numbers(fields: Fields, key: str) -> tuple[float, float]:
    numbers = fields.each(key, _number)
    if len(numbers) != 2:
        raise MalformedInputError(fields.path(key), expected="two numbers", found=len(numbers))
    return (numbers[0], numbers[1])


def _number(value: object, path: str) -> float:
    with Fields({"value": value}, path) as fields:
        return fields.number("value")


def _groups(value: object, path: str) -> tuple[tuple[str, ...], ...]:
    with Fields({"groups": value}, path) as fields:
        groups = fields.each("groups", _group)
    return groups


def _group(value: object, path: str) -> tuple[str, ...]:
    with Fields({"group": value}, path) as fields:
        names = fields.texts("group", shape=_CONTEXT_ID)
    if len(names) < 2:
        raise MalformedInputError(path, expected="two contexts or more", found=len(names))
    return names


def _pair(value: object, path: str) -> tuple[str, str]:
    if not (
        isinstance(value, list)
        and len(value) == 2
        and all(isinstance(name, str) and _CONTEXT_ID.fullmatch(name) for name in value)
    ):
        raise MalformedInputError(path, expected="two context ids", found=repr(value)[:60])
    return (value[0], value[1])
