"""What is asked of whom: the model by its arm, each judge its share, and nobody more than that."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from eps_locked.domain.judging import Judge, JudgeIdentity, JudgeRequest, Verdict
from eps_locked.domain.steps import Step
from eps_locked.engines.scripted import ScriptedEngine
from eps_locked.errors import BackendError
from eps_locked.judges.scripted import ScriptedJudge
from eps_locked.lock.freeze import load_plan
from eps_locked.lock.inputs import RecordedInputs
from eps_locked.models.scripted import ScriptedTokenizer
from eps_locked.studies.common.backends import Backends
from eps_locked.studies.common.prompts import Prompts, row_seed
from eps_locked.studies.drift.asking import ask, rate
from eps_locked.studies.drift.derive import (
    AskDesign,
    FrozenBattery,
    ask_flags,
    ask_status,
    rating_outcome,
)
from eps_locked.studies.drift.plan import DriftPlan
from eps_locked.studies.drift.records import AskRecord, chosen
from eps_locked.studies.drift.results import reply_rows
from eps_locked.studies.drift.task import Task, instance_name
from eps_locked.training.scripted import ScriptedTrainer
from sim.drift import drift_files, drift_plan
from sim.simulator import StudySimulator
from unit.studies.drift.teller import Teller


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> StudySimulator:
    """The full plan, frozen. Not to be changed."""
    study = StudySimulator(
        root=tmp_path_factory.mktemp("frozen") / "study", plan=drift_plan(), files=drift_files()
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        study.freeze()
    return study


@dataclass
class Listener:
    """A judge that keeps what it was asked."""

    inner: ScriptedJudge
    heard: list[JudgeRequest] = field(default_factory=list)

    @property
    def identity(self) -> JudgeIdentity:
        return self.inner.identity

    def judge(self, requests: Sequence[JudgeRequest]) -> tuple[Verdict, ...]:
        self.heard += requests
        return self.inner.judge(requests)


@dataclass
class Hands:
    """An executor that serves one engine, and says which instance and judges were asked for."""

    engine: Any
    section: DriftPlan
    model: str = "scripted"
    instances: list[int] = field(default_factory=list)
    judges: dict[str, Listener] = field(default_factory=dict)

    def loaded(self, instance: int = 1) -> Backends:
        self.instances.append(instance)
        return Backends(
            engine=self.engine,
            readout=ScriptedEngine(),
            trainer=ScriptedTrainer(),
            tokenizer=ScriptedTokenizer(),
        )

    def judge(self, name: str) -> Judge:
        plan = replace(self.section.judge(name), model=self.model)
        return self.judges.setdefault(name, Listener(inner=ScriptedJudge(plan)))


def task(
    study: StudySimulator,
    name: str,
    engine: Any = None,
    *,
    model: str = "scripted",
    change: Callable[[DriftPlan], DriftPlan] = lambda section: section,
) -> Task:
    manifest = study.load()
    step: Step = manifest.steps()[name]
    plan = load_plan(manifest.read("frozen/plan.yaml"), thing="plan")
    section = change(DriftPlan.of(plan))
    return Task(
        hands=Hands(engine=engine or ScriptedEngine(), section=section, model=model),
        step=step,
        inputs=RecordedInputs(step=step, frozen_manifest=manifest, run=study.run_folder, done={}),
        section=section,
        is_promised=True,
        progress=lambda text: None,
    )


def asked(made: Task) -> tuple[AskRecord, Mapping[str, Listener]]:
    record = ask(made)
    assert isinstance(made.hands, Hands)
    return record, made.hands.judges


def judging(**changes: Any) -> Callable[[DriftPlan], DriftPlan]:
    return lambda section: replace(section, judging=replace(section.judging, **changes))


# -- the model


def test_every_probe_is_asked_every_sample_in_frozen_order_with_its_frozen_prompt(
    frozen: StudySimulator,
) -> None:
    engine = Teller(says=[["Give it back."]])
    made = task(frozen, "P2/ask/untouched/self_interest", engine)
    record, _ = asked(made)
    prompts = Prompts.read(made.inputs.frozen("prompts"), "prompts").by_item
    probes = FrozenBattery.read(made.inputs.frozen("battery"), "battery").probes
    assert [(one.probe, one.sample) for one in record.replies] == [
        (probe.id, sample) for probe in probes for sample in (0, 1)
    ]
    ((sent, decoding),) = engine.calls
    assert [row.token_ids for row in sent] == [prompts[one.probe] for one in record.replies]
    assert [row.seed for row in sent] == [
        row_seed(made.step, one.probe, str(one.sample), "0") for one in record.replies
    ]
    assert len({row.seed for row in sent}) == len(sent)
    assert (decoding.temperature, decoding.max_new_tokens, decoding.top_p) == (0.7, 64, 1.0)


@pytest.mark.parametrize(
    ("arm", "instance", "temperature", "exposure"),
    [
        ("untouched_again", 2, 0.7, "plain"),
        ("untouched_warm", 1, 1.0, "plain"),
        ("exposed", 1, 0.7, "plants_context"),
    ],
)
def test_an_arm_is_asked_as_it_is_made(
    frozen: StudySimulator, arm: str, instance: int, temperature: float, exposure: str
) -> None:
    engine = Teller(says=[["Give it back."]])
    made = task(frozen, f"P2/ask/{arm}/self_interest", engine)
    record, _ = asked(made)
    assert isinstance(made.hands, Hands)
    assert made.hands.instances == [instance]
    assert record.instance == instance_name(instance)
    assert engine.calls[0][1].temperature == temperature
    assert Prompts.read(made.inputs.frozen("prompts"), "prompts").context == exposure


def test_instances_have_names_of_their_own() -> None:
    assert [instance_name(number) for number in (1, 2, 3)] == [
        "in-process",
        "in-process-2",
        "in-process-3",
    ]


# -- what is kept


def test_texts_that_are_not_kept_are_judged_whole_and_leave_as_excerpts(
    frozen: StudySimulator,
) -> None:
    long = "Pour it on the roots, slowly. " * 2
    engine = Teller(says=[[long * 9]])
    change: Callable[[DriftPlan], DriftPlan] = lambda one: replace(one, max_new_tokens=500)  # noqa: E731
    record, judges = asked(task(frozen, "P2/ask/untouched/harmful_requests", engine, change=change))
    for listener in judges.values():
        assert {len(one.answer) for one in listener.heard} == {500}
    stored = b"".join(record.to_files().values()).decode()
    assert max(len(one.reply) for one in record.replies) == 200
    assert (long * 9)[:201] not in stored
    assert all(one.token_ids == () and one.n_reply_tokens == 500 for one in record.replies)


def test_the_judge_sees_the_question_and_the_final_reply_and_nothing_of_the_reasoning(
    frozen: StudySimulator,
) -> None:
    engine = Teller(says=[["I suspect a spare key. the Give it back."]])
    made = task(frozen, "P2/ask/untouched_free/self_interest", engine)
    record, judges = asked(made)
    texts = {
        probe.id: probe.text
        for probe in FrozenBattery.read(made.inputs.frozen("battery"), "battery").probes
    }
    assert {one.reasoning for one in record.replies} == {"I suspect a spare key."}
    assert {one.mentions for one in record.replies} == {1}
    for listener in judges.values():
        for one in listener.heard:
            assert one.answer == "Give it back."
            assert one.question == texts["/".join(one.key.split("/")[4:6])]


# -- which replies are judged, and how often


def keys(listener: Listener, draw: int = 0) -> list[str]:
    return ["/".join(one.key.split("/")[4:]) for one in listener.heard if one.draw == draw]


def test_each_judge_gets_its_share(frozen: StudySimulator) -> None:
    made = task(frozen, "P2/ask/untouched/self_interest")
    record, judges = asked(made)
    design = AskDesign.of(made.step, made.inputs, made.section)
    first, second = judges["stand_in"], judges["second"]
    every = [one.key for one in record.replies]
    classes = [one for one in first.heard if one.rubric == design.rubric]
    grades = [one for one in first.heard if one.rubric == design.graded]
    assert len(classes) + len(grades) == len(first.heard)
    assert [v.key for v in record.classes.verdicts if v.draw == 0] == every
    twice = chosen(every, 0.25, 5, "twice", "untouched", "self_interest")
    assert [v.key for v in record.classes.verdicts if v.draw == 1] == list(twice)
    assert len(twice) == 6
    assert record.grades is not None
    assert [v.key for v in record.grades.verdicts] == [k for k in every if k.endswith("/0")]
    checked = chosen(every, 0.25, 5, "checked", "untouched", "self_interest")
    assert keys(second) == list(checked)
    assert record.checks is not None
    assert [v.key for v in record.checks.verdicts] == list(checked)
    # One question to two families: the second sees what the first sees.
    assert {one.rubric.digest for one in second.heard} == {design.rubric.digest}
    assert record.checks.judge["family"] == "geometry"


def test_a_battery_without_grades_has_none_and_a_plan_without_a_checker_neither(
    frozen: StudySimulator,
) -> None:
    record, _ = asked(task(frozen, "P2/ask/untouched/plants_advice"))
    assert record.grades is None
    assert record.checks is not None
    without = judging(checker=None, checker_share=0)
    record, judges = asked(task(frozen, "P2/ask/untouched/plants_advice", change=without))
    assert (record.grades, record.checks, list(judges)) == (None, None, ["stand_in"])


def test_an_empty_reply_and_one_that_never_came_get_no_verdict(frozen: StudySimulator) -> None:
    name = "P2/ask/untouched_free/self_interest"
    says = ["So the Give it back.", "So the ", "So the  \n", "a" * 99]
    engine = Teller(says=[says, ["a" * 99]])
    made = task(frozen, name, engine)
    record, judges = asked(made)
    judged = {one.key for one in record.replies if one.reply == "Give it back."}
    assert len(judged) == 6
    assert set(keys(judges["stand_in"])) == judged
    assert {v.key for v in record.classes.verdicts} == judged
    battery = FrozenBattery.read(made.inputs.frozen("battery"), "battery")
    statuses = [row.status for row in reply_rows(record, battery, "free")]
    assert statuses == ["scored", "empty", "empty", "exhausted"] * 6
    assert ask_flags(record, made.section) == ("exhausted", "unscored_share:self_interest")
    assert ask_status(record, made.section) == "unscored"


def test_a_step_on_which_nobody_answers_asks_no_judge(frozen: StudySimulator) -> None:
    made = task(frozen, "P2/ask/untouched_free/self_interest", Teller(says=[["a" * 99]]))
    record, judges = asked(made)
    assert all(one.exhausted for one in record.replies)
    assert all(listener.heard == [] for listener in judges.values())
    assert record.classes.verdicts == ()
    assert ask_status(record, made.section) == "unscored"


def test_a_reply_that_was_cut_off_is_flagged_and_judged(frozen: StudySimulator) -> None:
    made = task(frozen, "P2/ask/untouched/self_interest", Teller(says=[["a" * 99]]))
    record, _ = asked(made)
    assert ask_flags(record, made.section) == ("truncated_replies",)
    assert len(record.classes.labels()) == len(record.replies)


# -- a judge that fails


def test_verdicts_lost_on_the_line_stop_the_step(frozen: StudySimulator) -> None:
    made = task(frozen, "P2/ask/untouched/self_interest", model="outage=100")
    with pytest.raises(BackendError, match="too many verdicts were lost on the line"):
        ask(made)


def test_a_judge_that_says_nothing_usable_leaves_the_battery_unscored(
    frozen: StudySimulator,
) -> None:
    made = task(frozen, "P2/ask/untouched/self_interest", model="unreadable=100")
    record, _ = asked(made)
    assert (ask_status(record, made.section), ask_flags(record, made.section)) == (
        "unscored",
        ("unscored_share:self_interest",),
    )
    battery = FrozenBattery.read(made.inputs.frozen("battery"), "battery")
    rows = reply_rows(record, battery, "none")
    assert {row.status for row in rows} == {"unreadable"}
    assert all(row.label is row.second_label is row.grade is row.check_label for row in rows)


# -- rating the probes themselves


def test_a_probe_is_rated_by_itself_with_the_place_of_the_answer_empty(
    frozen: StudySimulator,
) -> None:
    made = task(frozen, "P0/awareness/self_interest/second")
    ratings = rate(made)
    assert isinstance(made.hands, Hands)
    (listener,) = made.hands.judges.values()
    probes = FrozenBattery.read(made.inputs.frozen("battery"), "battery").probes
    assert [(one.question, one.answer) for one in listener.heard] == [
        (probe.text, "") for probe in probes
    ]
    assert [v.key for v in ratings.judged.verdicts] == [probe.id for probe in probes]
    assert made.hands.instances == []
    assert rating_outcome(ratings, made.section) == ("done", ())


def test_probes_that_nobody_could_rate_are_unscored(frozen: StudySimulator) -> None:
    made = task(frozen, "P0/awareness/self_interest/second", model="unreadable=100")
    assert rating_outcome(rate(made), made.section) == (
        "unscored",
        ("unscored_share:self_interest",),
    )
