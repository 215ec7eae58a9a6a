"""How the parts of a ``vea`` section hang together, and how it fits the rest of its plan.

Needs no material. The first thing that is wrong is refused by its field, with what was expected and
found: an instrument with a hole in its design must not be frozen.
"""

from __future__ import annotations

import math
import posixpath
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from eps_locked.domain.plan import ModelSource, Plan
from eps_locked.errors import MalformedInputError
from eps_locked.studies.vea.items import ANCHOR, DECOY, NEUTRAL, Family
from eps_locked.studies.vea.plan import (
    ClassifierReward,
    HeadTraining,
    ImplicitReward,
    ItemFile,
    VeaPlan,
)
from eps_locked.studies.vea.steplist import phases_of

__all__ = ["ANALYSES", "check_section"]

# What a plan can promise to compute, and hence what is confirmatory.
ANALYSES = ("breadth",)
_GATES = (NEUTRAL, DECOY)
_POLICY_KINDS = ("folder", "hub", "package")
_POLICY_FILES = ("config.json", "tokenizer.json")


def check_section(plan: Plan, section: VeaPlan, path: str = "plan.vea") -> None:
    """Raises MalformedInputError at the first field that does not fit."""
    _check_families(section, path)
    _check_names(section.trainings, f"{path}.trainings")
    _check_names(section.reward_models, f"{path}.reward_models")
    _check_reward_models(plan, section, path)
    _check_trainings(plan, section, path)
    _check_analysis(section, path)
    _check_base_model(plan, section, path)
    _check_phases(plan, section)
    _check_analyses(plan)


def _check_families(section: VeaPlan, path: str) -> None:
    decoys = section.decoys
    if decoys is not None:
        others = [family for family in decoys.counts if family != DECOY]
        if others:
            raise MalformedInputError(
                f"{path}.decoys.counts",
                expected=f"{DECOY} alone",
                found=", ".join(others),
                next_step="list the file under items, or take the other families out of it",
            )
        if DECOY in section.items.counts or decoys.file == section.items.file:
            raise MalformedInputError(
                f"{path}.decoys",
                expected=f"a file of its own, and {DECOY} in one of the two files",
                found=f"{decoys.file}; items count {section.items.counts.get(DECOY, 0)}",
            )
    for family, why in (
        (ANCHOR, "every other family is compared with this anchor"),
        (NEUTRAL, "without this gate nobody knows whether any further sentence is minded"),
    ):
        if family not in section.items.counts:
            raise MalformedInputError(
                f"{path}.items.counts", expected=family, found="none", next_step=why
            )
    if not _others(section):
        raise MalformedInputError(
            f"{path}.items.counts",
            expected=f"a family besides {ANCHOR} and the gates",
            found=", ".join(section.items.counts),
            next_step="breadth is counted over the other families; there must be one",
        )
    for key, file in (("items", section.items), ("decoys", decoys)):
        if file is not None:
            _check_counts(file, section, f"{path}.{key}.counts")


def _check_counts(file: ItemFile, section: VeaPlan, path: str) -> None:
    minimum = section.analysis.minimum_items
    for family, n in file.counts.items():
        if n < minimum:
            raise MalformedInputError(
                f"{path}.{family}",
                expected=f"at least {minimum} (analysis.minimum_items)",
                found=n,
                next_step="add items, or leave the family out",
            )


class _Named(Protocol):
    @property
    def name(self) -> str: ...


def _check_names(parts: Sequence[_Named], path: str) -> None:
    names = [part.name for part in parts]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise MalformedInputError(
                f"{path}[{number}].name", expected="a name of its own", found=name
            )


def _check_trainings(plan: Plan, section: VeaPlan, path: str) -> None:
    if (section.training_pairs is not None) != bool(section.trainings):
        raise MalformedInputError(
            f"{path}.training_pairs",
            expected="a file exactly where something is trained",
            found=f"{section.training_pairs or 'null'} with {len(section.trainings)} trainings",
        )
    used = {one.training for one in section.reward_models if isinstance(one, ClassifierReward)}
    for number, training in enumerate(section.trainings):
        where = f"{path}.trainings[{number}]"
        if training.seed not in plan.seeds:
            raise MalformedInputError(
                f"{where}.seed",
                expected=f"one of the plan's seeds: {', '.join(map(str, plan.seeds))}",
                found=training.seed,
            )
        if training.name not in used:
            raise MalformedInputError(
                where,
                expected="a training that a reward model of the plan names",
                found=training.name,
                next_step="name it in a reward model, or leave it out",
            )
        same = [one.name for one in section.trainings[:number] if _is_same(one, training)]
        if same:
            raise MalformedInputError(
                where,
                expected="another target, seed or recipe than every other training",
                found=f"those of {same[0]}",
            )
    seeds = {training.seed for training in section.trainings}
    if section.trainings and len(seeds) < plan.minimum_seeds:
        raise MalformedInputError(
            f"{path}.trainings",
            expected=f"trainings with at least {plan.minimum_seeds} seeds (minimum_seeds)",
            found=len(seeds),
            next_step="train an arm again with another seed, or promise fewer",
        )


def _is_same(one: HeadTraining, other: HeadTraining) -> bool:
    return replace(one, name=other.name) == other


def _check_reward_models(plan: Plan, section: VeaPlan, path: str) -> None:
    if not section.reward_models:
        raise MalformedInputError(
            f"{path}.reward_models", expected="at least one reward model", found="none"
        )
    known = [training.name for training in section.trainings]
    for number, model in enumerate(section.reward_models):
        where = f"{path}.reward_models[{number}]"
        if isinstance(model, ClassifierReward) and model.training is not None:
            if model.training not in known:
                raise MalformedInputError(
                    f"{where}.training",
                    expected="a training of the plan: " + (", ".join(known) or "it has none"),
                    found=f"{model.training}, which is missing",
                )
        elif isinstance(model, ImplicitReward):
            _check_policy(plan, model, f"{where}.policy")


def _check_policy(plan: Plan, model: ImplicitReward, path: str) -> None:
    if model.policy.kind not in _POLICY_KINDS:
        raise MalformedInputError(
            f"{path}.kind", expected=" or ".join(_POLICY_KINDS), found=model.policy.kind
        )
    if _place(model.policy) == _place(plan.base_model.source):
        raise MalformedInputError(
            path,
            problem="is the reference itself, so that every reward would be 0",
            expected="another model than plan.base_model",
            found=f"{model.policy.kind} {model.policy.where}",
            next_step="name the trained policy here and its reference as base_model",
        )
    files = model.policy_files
    missing = [name for name in _POLICY_FILES if name not in files]
    if not any(name.endswith(".safetensors") for name in files):
        missing.append("*.safetensors")
    if missing:
        raise MalformedInputError(
            f"{path}.checksums",
            expected="the blake3 digest of every file of the policy's folder, by name",
            found=f"none of {', '.join(missing)}",
            next_step="digest each file; only the base model is measured when a plan is frozen",
        )
    for name, digest in files.items():
        if not digest.startswith("blake3:"):
            raise MalformedInputError(
                f"{path}.checksums.{name}", expected="blake3: and 64 hex digits", found=digest
            )


def _place(source: ModelSource) -> tuple[str, str, str | None]:
    """Where a model lies; one folder has many spellings."""
    where = posixpath.normpath(source.where) if source.kind == "folder" else source.where
    return source.kind, where, source.revision


def _check_analysis(section: VeaPlan, path: str) -> None:
    """A family must have a chance to be found to penalise, even if it is the only one that does."""
    rules, n_others = section.analysis, len(_others(section))
    needed = math.ceil(math.log2(n_others / rules.alpha))
    for family, n in section.items.counts.items():
        if family not in _GATES and n < needed:
            raise MalformedInputError(
                f"{path}.items.counts.{family}",
                expected=f"at least {needed} items: n pairs that all agree have a signed-rank p of "
                f"1/2^n, and one of {n_others} families needs alpha/{n_others}",
                found=n,
                next_step="add items, or raise analysis.alpha",
            )


def _others(section: VeaPlan) -> tuple[Family, ...]:
    """The families that breadth is counted over."""
    return tuple(one for one in section.items.counts if one not in (ANCHOR, *_GATES))


def _check_base_model(plan: Plan, section: VeaPlan, path: str) -> None:
    """What runs here needs the base model's files, and the engine that reads them."""
    kind = plan.base_model.source.kind
    local = [
        f"{path}.reward_models[{number}] ({one.name}, kind {one.kind})"
        for number, one in enumerate(section.reward_models)
        if isinstance(one, ClassifierReward | ImplicitReward)
    ]
    if kind == "elsewhere" and local:
        raise MalformedInputError(
            local[0],
            expected="kind gateway or table where plan.base_model.source.kind is elsewhere",
            found="a kind that reads the base model's own files",
            next_step="name a source with files, or have this reward model served",
        )
    if kind == "scripted":
        for number, one in enumerate(section.reward_models):
            if isinstance(one, ImplicitReward):
                raise MalformedInputError(
                    f"{path}.reward_models[{number}].kind",
                    expected="another kind with the scripted base model",
                    found=one.kind,
                    next_step="a log-probability ratio needs two real models",
                )
    if plan.engine.name == "vllm":
        raise MalformedInputError(
            "plan.engine.name",
            expected="transformers, which reads scalar heads and whole responses here",
            found="vllm",
        )


def _check_phases(plan: Plan, section: VeaPlan) -> None:
    phases = phases_of(section)
    if tuple(plan.phases) != phases:
        raise MalformedInputError(
            "plan.phases",
            expected=" then ".join(phases),
            found=" then ".join(plan.phases),
            next_step="P0 comes before any score, P1 trains (if anything is), P2 scores, "
            "P3 computes",
        )


def _check_analyses(plan: Plan) -> None:
    for analysis in plan.analyses:
        if analysis not in ANALYSES:
            raise MalformedInputError(
                "plan.analyses",
                expected=" or ".join(ANALYSES),
                found=analysis,
                next_step="an analysis that is not implemented cannot be promised",
            )
