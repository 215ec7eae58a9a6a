"""The ``eps`` section of a plan: behaviours, slots, items, decoding, flags, intervals."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from eps_locked.domain.fields import Fields
from eps_locked.domain.judging import JudgePlan
from eps_locked.domain.model import Decoding
from eps_locked.domain.plan import SOURCE_PATH_SHAPE, Plan
from eps_locked.errors import MalformedInputError, RefusedError
from eps_locked.scoring.settings import ScoreSettings
from eps_locked.studies.eps.baselines.rules import BaselineRules
from eps_locked.studies.eps.behaviours import (
    CONTEXT_ID,
    ROW_NAME,
    Behaviour,
    MarkerBehaviour,
    TaughtBehaviour,
    decoding_of,
    read_behaviour,
)

__all__ = [
    "Behaviour",
    "CalibrationRules",
    "EpsPlan",
    "FlagRules",
    "MarkerBehaviour",
    "QuarantineRules",
    "Slots",
    "TaughtBehaviour",
]

# Stands in an alias for the kind of the row at hand: instruction_{kind}.
KIND = "{kind}"
_ALIAS = re.compile(r"[a-z0-9][a-z0-9_-]*(\{kind\})?[a-z0-9_-]*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Slots:
    """Which contexts train, which evaluate, which are held out, which are trained against.

    A slot is a name; which context a row fills it with depends on the row where the contexts do
    (``material.contexts_of_row``). ``aliases``: pairs that are one context, in which ``{kind}``
    stands for the row's kind. ``near_duplicates``: groups of contexts so alike that a fold may not
    hold out one and keep another; absent means none.
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
                train=fields.texts("train", shape=CONTEXT_ID),
                eval=fields.texts("eval", shape=CONTEXT_ID),
                held_out=fields.texts("held_out", shape=CONTEXT_ID),
                negative_panel=fields.texts("negative_panel", shape=CONTEXT_ID),
                aliases=fields.each("aliases", _pair),
                near_duplicates=fields.optional("near_duplicates", _groups) or (),
            )
        slots._check(path)
        return slots

    def of(self, behaviour: Behaviour) -> Slots:
        """The slots of one row: where it trains, and the aliases of its kind."""
        return replace(
            self,
            train=self.train if behaviour.train is None else behaviour.train,
            aliases=tuple(
                (one.replace(KIND, behaviour.kind), two.replace(KIND, behaviour.kind))
                for one, two in self.aliases
            ),
        )

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
    behaviours: tuple[Behaviour, ...]
    judges: tuple[JudgePlan, ...]
    calibrations: tuple[CalibrationRules, ...]
    slots: Slots
    decoding: Decoding
    flags: FlagRules
    confidence_level: float
    quarantine: QuarantineRules
    baselines: BaselineRules | None
    scoring: ScoreSettings | None

    @classmethod
    def of(cls, plan: Plan) -> EpsPlan:
        """The section of a plan of this study; raises RefusedError for one of another."""
        if plan.study != "eps":
            raise RefusedError(
                f"plan {plan.name}",
                problem="is of another study",
                expected="a plan of study eps",
                found=plan.study,
                next_step=f"this reads tensors; what speaks of {plan.study} runs stands in the "
                "README",
            )
        return cls.from_section(plan.study_section)

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
            plan = cls(
                context_files=context_files,
                train_items_file=train_items_file,
                eval_items_file=eval_items_file,
                n_train_items=n_train,
                n_eval_items=n_eval,
                item_seed=item_seed,
                behaviours=fields.each("behaviours", read_behaviour),
                judges=fields.optional("judges", _judges) or (),
                calibrations=fields.optional("calibrations", _calibrations) or (),
                slots=Slots.from_dict(fields.mapping("slots"), fields.path("slots")),
                decoding=decoding_of(fields.sub("decoding")),
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

    def behaviour(self, name: str) -> Behaviour:
        return next(behaviour for behaviour in self.behaviours if behaviour.name == name)

    def marker(self, name: str) -> MarkerBehaviour:
        """The row of that name, which is a marker row."""
        behaviour = self.behaviour(name)
        if not isinstance(behaviour, MarkerBehaviour):
            raise MalformedInputError(f"row {name}", expected="a marker row", found=behaviour.kind)
        return behaviour

    def taught(self, name: str) -> TaughtBehaviour:
        """The row of that name, which is taught by example."""
        behaviour = self.behaviour(name)
        if not isinstance(behaviour, TaughtBehaviour):
            raise MalformedInputError(f"row {name}", expected="a taught row", found=behaviour.kind)
        return behaviour

    @property
    def material_files(self) -> tuple[str, ...]:
        """Every file below ``plans/`` that material is read from, in the plan's order, once."""
        paths = [*self.context_files, self.train_items_file, self.eval_items_file]
        for behaviour in self.behaviours:
            if isinstance(behaviour, TaughtBehaviour):
                paths += [behaviour.written_rows, *behaviour.eval_items]
        paths += [rules.file for rules in self.calibrations]
        return tuple(dict.fromkeys(paths))

    def slots_of(self, name: str) -> Slots:
        """The slots of one row."""
        return self.slots.of(self.behaviour(name))

    def calibration(self, name: str) -> CalibrationRules:
        return next(rules for rules in self.calibrations if rules.name == name)

    def judge(self, name: str) -> JudgePlan:
        return next(judge for judge in self.judges if judge.name == name)

    def check_seeds(self, seeds: Sequence[int], minimum: int, path: str = "plan.eps") -> None:
        """Require that the plan has the seeds its rows ask for, and each row its minimum."""
        for number, behaviour in enumerate(self.behaviours):
            asked = len(seeds) if behaviour.n_seeds is None else behaviour.n_seeds
            if not minimum <= asked <= len(seeds):
                raise MalformedInputError(
                    f"{path}.behaviours[{number}].n_seeds",
                    expected=f"{minimum} (minimum_seeds) to {len(seeds)} (the plan's seeds)",
                    found=asked,
                )

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
        judges = [judge.name for judge in self.judges]
        if len(set(judges)) != len(judges):
            raise MalformedInputError(f"{path}.judges", expected="distinct names", found=judges)
        for number, behaviour in enumerate(self.behaviours):
            where = f"{path}.behaviours[{number}]"
            self._check_train(behaviour, where)
            if isinstance(behaviour, MarkerBehaviour):
                self._check_marker(behaviour, where)
            else:
                self._check_taught(behaviour, where)
        for number, rules in enumerate(self.calibrations):
            where = f"{path}.calibrations[{number}]"
            _require_known(rules.judge, judges, f"{where}.judge", "judge")
            _require_known(rules.row, names, f"{where}.row", "row")
            if not isinstance(self.behaviour(rules.row), TaughtBehaviour):
                raise MalformedInputError(f"{where}.row", expected="a judged row", found=rules.row)

    def _check_train(self, behaviour: Behaviour, where: str) -> None:
        for name in behaviour.train or ():
            _require_known(name, self.slots.train, f"{where}.train", "train slot")
        if behaviour.train is not None and len(set(behaviour.train)) != len(behaviour.train):
            raise MalformedInputError(
                f"{where}.train", expected="distinct slots", found=list(behaviour.train)
            )

    def _check_marker(self, behaviour: MarkerBehaviour, where: str) -> None:
        panel = len(self.slots.negative_panel)
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

    def _check_taught(self, behaviour: TaughtBehaviour, where: str) -> None:
        panel = len(self.slots.negative_panel)
        if behaviour.negatives != "none" and behaviour.n_train % panel:
            raise MalformedInputError(
                f"{where}.n_train",
                expected=f"a multiple of the panel's {panel}",
                found=behaviour.n_train,
            )
        if self.baselines is not None:
            self.baselines.check_items(behaviour.n_train, f"{path_of(where)}.baselines")
        _require_known(
            behaviour.judge, [one.name for one in self.judges], f"{where}.judge", "judge"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibrationRules:
    """A set of answers with human labels that P0 has a judge label too, under a row's rubric.

    With a kappa below ``minimum_kappa`` (or none) the rows of this judge and rubric need a signed
    decision before they are trained.
    """

    name: str
    judge: str
    row: str
    file: str
    minimum_kappa: float

    @property
    def about(self) -> tuple[str, str]:
        return ("row", self.row)

    @classmethod
    def from_dict(cls, value: object, path: str) -> CalibrationRules:
        with Fields(value, path) as fields:
            return cls(
                name=fields.text("name", shape=ROW_NAME),
                judge=fields.text("judge", shape=ROW_NAME),
                row=fields.text("row", shape=ROW_NAME),
                file=fields.text("file", shape=SOURCE_PATH_SHAPE),
                minimum_kappa=fields.number("minimum_kappa", low=-1, high=1),
            )


def path_of(where: str) -> str:
    """The section a path of one of its behaviours lies in."""
    return where.partition(".behaviours[")[0]


def _require_known(name: str, known: Sequence[str], path: str, what: str) -> None:
    if name not in known:
        raise MalformedInputError(
            path,
            expected=f"a {what} of the plan",
            found=name,
            next_step=f"known: {', '.join(known) or 'none'}",
        )


def _judges(value: object, path: str) -> tuple[JudgePlan, ...]:
    with Fields({"judges": value}, path) as fields:
        return fields.each("judges", JudgePlan.from_dict)


def _calibrations(value: object, path: str) -> tuple[CalibrationRules, ...]:
    with Fields({"calibrations": value}, path) as fields:
        return fields.each("calibrations", CalibrationRules.from_dict)


def _groups(value: object, path: str) -> tuple[tuple[str, ...], ...]:
    with Fields({"groups": value}, path) as fields:
        groups = fields.each("groups", _group)
    return groups


def _group(value: object, path: str) -> tuple[str, ...]:
    with Fields({"group": value}, path) as fields:
        names = fields.texts("group", shape=CONTEXT_ID)
    if len(names) < 2:
        raise MalformedInputError(path, expected="two contexts or more", found=len(names))
    return names


def _pair(value: object, path: str) -> tuple[str, str]:
    if not (
        isinstance(value, list)
        and len(value) == 2
        and all(isinstance(name, str) and _ALIAS.fullmatch(name) for name in value)
    ):
        raise MalformedInputError(path, expected="two context ids", found=repr(value)[:60])
    return (value[0], value[1])
