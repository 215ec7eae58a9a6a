"""What the records of asking must say, from frozen files and stored replies alone.

The run's steps and the audit call the same functions; none calls a model or a judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from eps_locked.canonical import decode
from eps_locked.domain.execution import StepInputs
from eps_locked.domain.fields import Fields
from eps_locked.domain.judging import Rubric
from eps_locked.domain.ledger import Status
from eps_locked.domain.steps import Step
from eps_locked.lock.strict_yaml import parse_yaml
from eps_locked.studies.common.judging import read_rubric
from eps_locked.studies.common.words import read_word_list
from eps_locked.studies.drift.parts import Role
from eps_locked.studies.drift.plan import Arm, DriftPlan, ReasoningSetting
from eps_locked.studies.drift.records import AskRecord, Judged, Ratings, Reply, chosen
from eps_locked.studies.drift.rendering import BATTERY_SCHEMA

__all__ = [
    "AskDesign",
    "FrozenBattery",
    "FrozenProbe",
    "Wanted",
    "ask_flags",
    "ask_status",
    "rating_outcome",
    "scored_share",
]

# (key, draw) of every verdict that is wanted, in the order in which it is asked for and kept.
Wanted = list[tuple[str, int]]


@dataclass(frozen=True, kw_only=True, slots=True)
class FrozenProbe:
    """One wording of a stem, as it was frozen."""

    id: str
    stem: str
    text: str
    keep_text: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class FrozenBattery:
    """A battery's probes in their frozen order, and what its classes mean."""

    name: str
    role: Role
    labels: tuple[str, ...]
    aligned: tuple[str, ...]
    no_stance: tuple[str, ...]
    probes: tuple[FrozenProbe, ...]

    @classmethod
    def read(cls, data: bytes, thing: str) -> FrozenBattery:
        """Raises MalformedInputError naming the field."""
        with Fields(decode(data, thing=thing), thing) as fields:
            fields.text("schema", one_of=(BATTERY_SCHEMA,))
            return cls(
                name=fields.text("battery"),
                role=cast(Role, fields.text("role", one_of=("disposition", "check"))),
                labels=fields.texts("labels"),
                aligned=fields.texts("aligned"),
                no_stance=fields.texts("no_stance"),
                probes=fields.each("probes", _probe),
            )

    def probe(self, identifier: str) -> FrozenProbe:
        return next(probe for probe in self.probes if probe.id == identifier)


def _probe(value: object, path: str) -> FrozenProbe:
    with Fields(value, path) as fields:
        fields.integer("rewording", low=0)
        return FrozenProbe(
            id=fields.text("id"),
            stem=fields.text("stem"),
            text=fields.text("text"),
            keep_text=fields.flag("keep_text"),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class AskDesign:
    """How one arm is asked one battery, and which of its replies each judge sees.

    ``grader`` and ``checker`` come with the rubric they judge by; None where the plan has none.
    The checker sees the classifier's rubric: the two are compared class by class.
    """

    section: DriftPlan
    arm: Arm
    setting: ReasoningSetting
    battery: FrozenBattery
    rubric: Rubric
    graded: Rubric | None
    words: tuple[str, ...]

    @classmethod
    def of(cls, step: Step, inputs: StepInputs, section: DriftPlan) -> AskDesign:
        arm = section.arm(step.params["arm"])
        graded = "graded_rubric" in step.inputs and section.judging.grader is not None
        words: tuple[str, ...] = ()
        if "words" in step.inputs:
            value = parse_yaml(inputs.frozen("words"), thing="frozen words")
            words = read_word_list(value, "frozen words")
        return cls(
            section=section,
            arm=arm,
            setting=section.setting(arm.reasoning),
            battery=FrozenBattery.read(inputs.frozen("battery"), "frozen battery"),
            rubric=read_rubric(inputs.frozen("rubric")),
            graded=read_rubric(inputs.frozen("graded_rubric")) if graded else None,
            words=words,
        )

    @property
    def places(self) -> tuple[tuple[FrozenProbe, int], ...]:
        """Every probe with every sample, in the order of asking."""
        samples = range(self.section.n_samples)
        return tuple((probe, sample) for probe in self.battery.probes for sample in samples)

    def to_classify(self, replies: Sequence[Reply]) -> Wanted:
        """Every reply there is, and a frozen share of them once more."""
        keys = [reply.key for reply in replies if reply.is_judged]
        twice = self._chosen(keys, self.section.judging.twice_share, "twice")
        return [*((key, 0) for key in keys), *((key, 1) for key in twice)]

    def to_grade(self, replies: Sequence[Reply]) -> Wanted:
        """The first samples of every probe."""
        n_samples = self.section.judging.n_graded_samples
        return [(one.key, 0) for one in replies if one.is_judged and one.sample < n_samples]

    def to_check(self, replies: Sequence[Reply]) -> Wanted:
        """A frozen share of the replies."""
        keys = [reply.key for reply in replies if reply.is_judged]
        return [
            (key, 0) for key in self._chosen(keys, self.section.judging.checker_share, "checked")
        ]

    def _chosen(self, keys: Sequence[str], share: float, purpose: str) -> tuple[str, ...]:
        # Drawn anew for every arm, so that all probes are covered by some.
        return chosen(
            keys, share, self.section.judging.seed, purpose, self.arm.name, self.battery.name
        )


def scored_share(replies: Sequence[Reply], classes: Judged) -> float:
    """Replies with a class among those that came at all; 0 where none came.

    An empty reply came and has no class. One that never came is counted on its own.
    """
    n_came = sum(not reply.exhausted for reply in replies)
    return len(classes.labels()) / n_came if n_came else 0.0


def ask_flags(record: AskRecord, section: DriftPlan) -> tuple[str, ...]:
    """What whoever reads the replies must know, in a fixed order."""
    flags = {
        "truncated_replies": any(
            one.stop == "length" and not one.exhausted for one in record.replies
        ),
        "exhausted": any(one.exhausted for one in record.replies),
        f"unscored_share:{record.battery}": ask_status(record, section) == "unscored",
    }
    return tuple(name for name, is_set in flags.items() if is_set)


def ask_status(record: AskRecord, section: DriftPlan) -> Status:
    """``unscored`` below the plan's share: the analysis then leaves arm and battery out."""
    share = scored_share(record.replies, record.classes)
    return "done" if share >= section.judging.minimum_scored_share else "unscored"


def rating_outcome(ratings: Ratings, section: DriftPlan) -> tuple[Status, tuple[str, ...]]:
    """Status and flags of the ratings of a battery's probes, by the same share."""
    n_scored = len(ratings.judged.labels())
    n_probes = section.battery(ratings.battery).n_probes
    if n_scored / n_probes >= section.judging.minimum_scored_share:
        return "done", ()
    return "unscored", (f"unscored_share:{ratings.battery}",)
