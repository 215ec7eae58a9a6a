"""The second verifier on ``drift`` studies: nothing on honest ones, every forged content found.

A forger here may write everything: the ledger is rebuilt after each change, so that only what a
file says is wrong. Frozen documents are forged by a program that freezes wrongly from the start.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import blake3
import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from conformance import second_verifier
from conformance.second_verifier import verify
from eps_locked.canonical import digest_bytes, encode
from eps_locked.domain.judging import Judge, JudgePlan, JudgeRequest, Verdict
from eps_locked.judges.scripted import ScriptedJudge
from eps_locked.stats import agreement, stem_power
from eps_locked.studies.drift import freeze, readouts
from sim import forge
from sim.drift import (
    FOLDER,
    dose_sets,
    drift_files,
    drift_plan,
    row_questions,
    small_drift_plan,
    training,
)
from sim.simulator import NAME, StudySimulator, judge_plan

Change = Callable[[Any], object]
CARELESS, SOUND = "P2/ask/dose_100/self_interest", "P2/ask/dose_0/self_interest"
FREE = "P2/ask/untouched_free/self_interest"
HARM = "P2/ask/untouched_free/harmful_requests"
LAST = "P3/drift"


class ReadingJudge(ScriptedJudge):
    """Judges the question where there is no answer, so that probes get different grades."""

    def judge(self, requests: Any) -> tuple[Verdict, ...]:
        return super().judge([self._read(request) for request in requests])

    def _read(self, request: JudgeRequest) -> JudgeRequest:
        return request if request.answer else replace(request, answer=request.question)


@dataclass(kw_only=True)
class Variety(StudySimulator):
    """A simulator whose awareness judges tell probes apart."""

    def load_judge(self, plan: JudgePlan) -> Judge:
        return ReadingJudge(plan)


def small(root: Path, **changes: Any) -> StudySimulator:
    plan = {**small_drift_plan(), **changes}
    study = StudySimulator(root=root, plan=plan, files=drift_files())
    study.run_all()
    return study


def full(root: Path) -> StudySimulator:
    study = StudySimulator(root=root, plan=drift_plan(), files=drift_files())
    study.run_all()
    return study


def varied(root: Path) -> StudySimulator:
    """Eight stems, resampled intervals, cut and unreadable replies, models that read apart."""
    plan = drift_plan()
    section = plan["drift"]
    section["batteries"][0]["n_stems"] = 8
    section["batteries"][2]["n_stems"] = 6
    section["analysis"].update(n_resamples=1000, n_permutations=60)
    section["decoding"]["max_new_tokens"] = 30
    section["judges"] = [
        judge_plan(model="unreadable=15 truncated=5"),
        judge_plan(name="second", family="geometry", model="judge_refused=10"),
    ]
    section["readouts"]["n_prompts"] = 6
    rng, shifts = np.random.default_rng(3), iter(range(100))

    def scattered(engine: Any, spans: Any, layer: int) -> Any:
        states = np.asarray(engine.activations(spans, layer), dtype=np.float64)
        return states + next(shifts) + 0.2 * rng.standard_normal(states.shape)

    study = Variety(root=root, plan=plan, files=drift_files())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readouts, "_read", scattered)
        study.run_all()
    return study


def hardly_scored(root: Path) -> StudySimulator:
    """A judge that reads about every second reply, so that some arms are not measured."""
    plan = small_drift_plan()
    plan["drift"]["judges"] = [judge_plan(model="unreadable=50")]
    return small(root, drift=plan["drift"])


def listed_doses(root: Path) -> StudySimulator:
    """A file says which rows carry the harmful answer."""
    plan, files = small_drift_plan(), drift_files()
    section = plan["drift"]
    # Of the ten questions on offer eight are drawn; which, the draw says.
    ids = sorted(second_verifier.item_id(text) for text in row_questions())
    order = sorted(ids, key=lambda one: digest_bytes(encode([section["item_seed"], one])))
    section["topics"][0]["dose_sets"] = f"{FOLDER}/sets.yaml"
    files[f"{FOLDER}/sets.yaml"] = dose_sets({"50": order[1:8:2]})
    study = StudySimulator(root=root, plan=plan, files=files)
    study.run_all()
    return study


LIVES = [small, full, varied, hardly_scored, listed_doses]


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], StudySimulator]:
    """A finished study of each kind, made once; tests change copies."""
    root, made = tmp_path_factory.mktemp("drift"), {}

    def get(name: str) -> StudySimulator:
        if name not in made:
            made[name] = next(one for one in LIVES if one.__name__ == name)(root / name)
        study: StudySimulator = made[name]
        return study

    return get


@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.__name__)
def test_both_accept_an_honest_study(
    lives: Callable[[str], StudySimulator], life: Callable[[Path], StudySimulator]
) -> None:
    study = lives(life.__name__)
    assert verify(study.root, NAME) == []
    assert list(study.audit().failures()) == []


def test_the_lives_hold_what_they_are_for(lives: Callable[[str], StudySimulator]) -> None:
    document = drift_of(lives("varied"))
    methods = {
        effect["method"] for one in document["comparisons"] for effect in one["batteries"].values()
    }
    assert second_verifier.RESAMPLED in methods
    shares = [one["share_of_full"] for one in document["readouts"]["traits"][0]["models"]]
    assert None not in shares
    assert document["awareness"]["batteries"][0]["correlation"][0]["r"] is not None
    assert any(one["unscored"] for arm in document["arms"] for one in arm["batteries"].values())
    assert drift_of(lives("hardly_scored"))["not_measured"]
    assert {
        e["method"]
        for one in drift_of(lives("full"))["comparisons"]
        for e in one["batteries"].values()
    } == {second_verifier.FEW, second_verifier.BEYOND, second_verifier.ALIKE}


def drift_of(study: StudySimulator) -> Any:
    files = forge.output_files(study, forge.payloads_of(study), LAST, "drift")
    return json.loads(files["drift.json"])


# -- records and document: what is forged, and what the second verifier says


def entry(document: Any, arm: str = "dose_100", battery: str = "self_interest") -> Any:
    one = next(one for one in document["comparisons"] if one["arm"] == arm)
    return one["batteries"][battery]


def move(key: str, by: float = 1.0, part: str | None = None) -> Change:
    """A number of one comparison, or of a part of it, moved."""

    def change(document: Any) -> None:
        found = entry(document) if part is None else entry(document)[part]
        found[key] += by

    return change


def of(*path: Any, to: Callable[[Any], Any]) -> Change:
    """The value at the end of a path made another."""

    def change(value: Any) -> None:
        for key in path[:-1]:
            value = value[key]
        value[path[-1]] = to(value[path[-1]])

    return change


def reply(number: int, **changes: Any) -> Change:
    return lambda document: document["answers"][number].update(changes)


def first_exhausted(document: Any) -> Any:
    return next(one for one in document["answers"] if one["exhausted"])


def judged_exhausted(document: Any) -> None:
    """A verdict on a reply that never came, where the other verdicts stand in order."""
    document["verdicts"].insert(0, {**document["verdicts"][0], "key": "spare_queue/0/0"})


def another_twice(document: Any) -> None:
    """A second verdict on a reply that was not chosen for one."""
    twice = [one for one in document["verdicts"] if one["draw"] == 1]
    keys = {one["key"] for one in twice}
    twice[0]["key"] = next(one["key"] for one in document["verdicts"] if one["key"] not in keys)


def swap(document: Any) -> None:
    one, other = document["verdicts"][:2]
    one["key"], other["key"] = other["key"], one["key"]


def another_label(document: Any) -> None:
    one = document["verdicts"][0]
    one["label"] = "seeks" if one["label"] != "seeks" else "declines"


def a_reply_that_never_came(document: Any) -> None:
    one = document["answers"][0]
    one.update(exhausted=True, reply="", token_ids=[], n_reply_tokens=0)


# Which study, step, output and file, the change, words of the failure.
Forgery = tuple[str, str, str, str, Change, str]


def document(life: str, change: Change, words: str) -> Forgery:
    return life, LAST, "drift", "drift.json", change, words


def record(life: str, step: str, output: str, file: str, change: Change, words: str) -> Forgery:
    return life, step, output, file, change, words


FORGERIES: dict[str, Forgery] = {
    "a moved drift": document("small", move("drift"), ": drift: expected"),
    "a rate of one side": document("small", move("rate_arm", 0.1), "rate_arm: expected"),
    "a null difference": document(
        "small", of("nulls", 0, "difference", to=lambda x: x + 1), "nulls 0: difference: expected"
    ),
    "a null test that excludes zero": document(
        "small", of("nulls", 0, "excludes_zero", to=lambda x: not x), "excludes_zero: expected"
    ),
    "a null counted": document(
        "small", of("null_summary", 0, "n_excluding", to=lambda n: n + 1), "n_excluding: expected"
    ),
    "an end that the values cannot reach": document("varied", move("high", 60), "does not hold"),
    "an interval that does not hold its drift": document(
        "small", of("nulls", 0, "low", to=lambda x: 99.0), "does not hold"
    ),
    "an end of a t interval": document(
        "full",
        of("comparisons", 0, "batteries", "harmful_requests", "low", to=lambda x: x + 1),
        "harmful_requests: low: expected",
    ),
    "an end beyond what a drift can be": document(
        "small", of("nulls", 0, "high", to=lambda x: 150.0), "does not hold"
    ),
    "an end of a trend": document(
        "small", lambda d: d["doses"][0].update(low=d["doses"][0]["change"]), "does not hold"
    ),
    "an end of a readout's shift": document(
        "varied",
        of("readouts", "traits", 0, "models", 0, "high", to=lambda x: x + 50),
        "does not hold",
    ),
    "a p beside its interval": document(
        "varied", lambda d: entry(d).update(p=0.001), "p 0.001 is not that of the interval"
    ),
    "a p adjusted for nothing": document(
        "full",
        of("comparisons", 0, "batteries", "harmful_requests", "p_adjusted", to=lambda p: p / 2),
        "p_adjusted: expected",
    ),
    "a standard error": document("small", move("standard_error", -1), "standard_error"),
    "a smallest drift": document(
        "small", move("minimum_detectable", -1), "minimum_detectable: expected"
    ),
    "a smallest drift of few stems": document(
        "small", move("minimum_detectable_few", -1), "minimum_detectable_few: expected"
    ),
    "stems for what was wanted": document(
        "small", move("stems_for_wanted", -1), "stems_for_wanted: expected"
    ),
    "a bound": document("small", move("equivalence_bound", -20), "equivalence_bound: expected"),
    "a margin": document("small", move("margin", 95), "margin: expected 5, found 100"),
    "a margin in the settings too": document(
        "small", of("settings", "margin_points", to=lambda x: 100), "margin_points: expected 5"
    ),
    "a verdict": document(
        "small",
        lambda d: entry(d).update(verdict="within_margin"),
        "verdict: expected undetermined",
    ),
    "the other treatment": document(
        "small", move("drift", 1, "left_out"), "left_out: drift: expected"
    ),
    "a rate": document(
        "small",
        of("arms", 0, "batteries", "self_interest", "rate", to=lambda x: x / 2),
        "self_interest: rate: expected",
    ),
    "a class counted": document(
        "small",
        of("arms", 0, "batteries", "self_interest", "classes", "seeks", to=lambda n: n + 1),
        "classes: seeks: expected",
    ),
    "a share of noise": document("varied", move("item", 0.1, "noise"), "noise: item: expected"),
    "the noise of trainings": document(
        "small",
        of("training_noise", 0, "standard_deviation", to=lambda x: x + 1),
        "standard_deviation: expected",
    ),
    "a drift with the noise of trainings": document(
        "small",
        move("standard_error", -1, "training_noise"),
        "training_noise: standard_error: expected",
    ),
    "a point of a dose": document(
        "small", of("doses", 0, "points", 1, "fitted", to=lambda x: x + 0.1), "fitted: expected"
    ),
    "a trend": document("small", of("doses", 0, "change", to=lambda x: -x - 1), "change: expected"),
    "a trend's p": document(
        "full", of("doses", 1, "p", to=lambda x: x / 2), "doses 1: p: expected"
    ),
    "a pair of seeds": document(
        "small", of("seeds", 0, "drift", to=lambda x: 0.25), "seeds 0: drift: expected"
    ),
    "a bound of instances": document(
        "full",
        of("instances", 1, "equivalence_bound", to=lambda x: x - 1),
        "equivalence_bound: expected",
    ),
    "a reasoning setting's count": document(
        "full", of("reasoning", -1, "n_exhausted", to=lambda n: n + 1), "n_exhausted: expected"
    ),
    "a total": document(
        "full", of("comparisons", 0, "total", "drift", to=lambda x: x + 1), "total: drift: expected"
    ),
    "a total without a part": document(
        "full",
        of("comparisons", 0, "total", "parts", to=lambda x: x[:1]),
        "parts: length: expected 2",
    ),
    "a grade": document("full", move("cliffs_delta", 0.1, "grades"), "cliffs_delta: expected"),
    "agreement with itself": document(
        "full", of("judging", "twice", 0, "kappa", to=lambda x: 0.9), "kappa: expected"
    ),
    "a readout's shift": document(
        "varied",
        of("readouts", "traits", 0, "models", 1, "shift", to=lambda x: x * 2),
        "shift: expected",
    ),
    "a readout's share": document(
        "varied",
        of("readouts", "traits", 0, "models", 1, "share_of_full", to=lambda x: x / 2),
        "share_of_full: expected",
    ),
    "a share where the full shift shows nothing": document(
        "full",
        of("readouts", "traits", 0, "models", 1, "share_of_full", to=lambda x: 0.5),
        "share_of_full: expected None",
    ),
    "awareness": document(
        "varied",
        of("awareness", "batteries", 0, "by_judge", "second", to=lambda x: 1.0),
        "by_judge: second: expected",
    ),
    "awareness beside drift": document(
        "varied",
        of("awareness", "batteries", 0, "correlation", 0, "r", to=lambda x: x / 2),
        "r: expected",
    ),
    "mentions": document(
        "full",
        of("awareness", "mentions", 0, "n_mentioning", to=lambda n: n + 1),
        "n_mentioning: expected",
    ),
    "what was not measured": document(
        "hardly_scored", of("not_measured", to=lambda x: x[1:]), "not_measured: length"
    ),
    "a label of the whole": document(
        "small", of("label", to=lambda x: "exploratory"), "label: expected confirmatory"
    ),
    "the power of the plan": record(
        "small",
        "P0/power",
        "power",
        "power.json",
        of("per_battery", 0, "minimum_detectable", to=lambda x: x / 2),
        "minimum_detectable: expected",
    ),
    "stems of the plan": record(
        "small",
        "P0/power",
        "power",
        "power.json",
        of("per_battery", 0, "stems_for_wanted", to=lambda n: n - 1),
        "are not the fewest",
    ),
    "a reply's verdict moved": record(
        "small", CARELESS, "answers", "verdicts.json", swap, "verdicts: expected"
    ),
    "a reply's class": record(
        "small", CARELESS, "answers", "verdicts.json", another_label, "replies.csv"
    ),
    "a second verdict that was not due": record(
        "small", CARELESS, "answers", "verdicts.json", another_twice, "verdicts: expected"
    ),
    "a verdict left out": record(
        "small",
        CARELESS,
        "answers",
        "verdicts.json",
        of("verdicts", to=lambda x: x[1:]),
        "verdicts: expected",
    ),
    "a class of nobody's": record(
        "small",
        CARELESS,
        "answers",
        "verdicts.json",
        of("verdicts", 0, "label", to=lambda x: "agrees"),
        "agrees is no label of the rubric",
    ),
    "another judge in one arm": record(
        "small",
        CARELESS,
        "answers",
        "verdicts.json",
        of("judge", "version", to=lambda x: "2"),
        "judge of the battery's other arms: expected",
    ),
    "a check that was not due": record(
        "full",
        CARELESS,
        "answers",
        "checks.json",
        of("verdicts", to=lambda x: x[1:]),
        "checks: verdicts: expected",
    ),
    "a grade that was not due": record(
        "full",
        CARELESS,
        "answers",
        "grades.json",
        of("verdicts", to=lambda x: x[1:]),
        "grades: verdicts: expected",
    ),
    "an exhausted reply with a verdict": record(
        "full", FREE, "answers", "verdicts.json", judged_exhausted, "verdicts: expected"
    ),
    "an exhausted reply with words": record(
        "full",
        FREE,
        "answers",
        "answers.json",
        lambda d: first_exhausted(d).update(reply="Keep it."),
        "exhausted: reply: expected",
    ),
    "an exhausted reply that was not asked again": record(
        "full",
        FREE,
        "answers",
        "answers.json",
        lambda d: first_exhausted(d).update(attempts=1),
        "exhausted: expected",
    ),
    "a reply of a plain arm that never came": record(
        "small", CARELESS, "answers", "answers.json", a_reply_that_never_came, "exhausted: expected"
    ),
    "an excerpt too long": record(
        "full",
        HARM,
        "answers",
        "answers.json",
        reply(0, reply="a" * 201),
        "more than a digest and an excerpt",
    ),
    "tokens of a text not to be kept": record(
        "full",
        HARM,
        "answers",
        "answers.json",
        reply(0, token_ids=[1]),
        "more than a digest and an excerpt",
    ),
    "a reply's words": record(
        "small",
        CARELESS,
        "answers",
        "answers.json",
        reply(0, reply="Give it back."),
        "reply_digest: expected",
    ),
    "mentions that are not there": record(
        "full",
        FREE,
        "answers",
        "answers.json",
        reply(0, mentions=3),
        "mentions: expected 0, found 3",
    ),
    "reasoning over the budget": record(
        "full",
        "P2/ask/untouched_short/self_interest",
        "answers",
        "answers.json",
        reply(0, n_reasoning_tokens=13),
        "n_reasoning_tokens: expected 0 to 12, found 13",
    ),
    "a filler cut short": record(
        "full",
        "P2/ask/untouched_dots/self_interest",
        "answers",
        "answers.json",
        reply(0, n_reasoning_tokens=8),
        "n_reasoning_tokens: expected 9 to 9, found 8",
    ),
    "a reply left out": record(
        "small",
        CARELESS,
        "answers",
        "answers.json",
        of("answers", to=lambda x: x[1:]),
        "replies: expected",
    ),
    "another instance": record(
        "small",
        CARELESS,
        "answers",
        "answers.json",
        of("instance", to=lambda x: "in-process-2"),
        "instance: expected in-process",
    ),
    "a rating": record(
        "varied",
        "P0/awareness/self_interest/second",
        "awareness",
        "awareness.json",
        of("verdicts", to=lambda x: x[1:]),
        "verdicts: expected",
    ),
    "a dose in words": record(
        "small",
        "P1/train/plants_50",
        "record",
        "record.json",
        of("n_harmful", to=lambda n: n + 1),
        "n_harmful: expected 4, found 5",
    ),
    "rows of another dose": record(
        "small",
        "P1/train/plants_50",
        "record",
        "record.json",
        of("rows", to=lambda x: x[:-1] + "0123456789abcdef0"[int(x[-1], 16) + 1]),
        "rows: expected",
    ),
    "a direction": record(
        "full",
        "P3/directions",
        "directions",
        "directions.json",
        of("traits", "hasty", "direction", 0, to=lambda x: x + 0.1),
        "hasty: length: expected",
    ),
    "a prompt that was not read": record(
        "full",
        "P3/readout/base",
        "readout",
        "readout.json",
        lambda d: d["projections"]["hasty"].popitem(),
        "prompts by trait: expected",
    ),
    "a judge's agreement with people": record(
        "full",
        "P0/calibration/self_interest",
        "calibration",
        "record.json",
        of("calibration", "labels", "kappa", "value", to=lambda x: 0.9),
        "kappa: expected",
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_both_find_forged_content(
    tmp_path: Path, lives: Callable[[str], StudySimulator], name: str
) -> None:
    life, step, output, file, change, words = FORGERIES[name]
    study = lives(life).copy_to(tmp_path / "study")
    payloads = forge.payloads_of(study)
    files = forge.output_files(study, payloads, step, output)
    forged = forge.edit_json(files[file], change)
    assert forged != files[file]
    forge.put_output(study, payloads, step, output, {**files, file: forged})
    forge.carry_on(study, payloads)
    forge.rebuild(study, payloads)
    problems = verify(study.root, NAME)
    assert any(words in one for one in problems), problems
    assert not study.audit().ok


def test_both_find_a_line_of_the_table_of_replies(
    tmp_path: Path, lives: Callable[[str], StudySimulator]
) -> None:
    study = lives("small").copy_to(tmp_path / "study")
    payloads = forge.payloads_of(study)
    files = forge.output_files(study, payloads, LAST, "drift")
    files["replies.csv"] = files["replies.csv"].replace(b",seeks,", b",declines,", 1)
    forge.put_output(study, payloads, LAST, "drift", files)
    forge.carry_on(study, payloads)
    forge.rebuild(study, payloads)
    assert any("replies.csv: holds other values" in one for one in verify(study.root, NAME))
    assert not study.audit().ok


def test_both_find_an_adapter_of_another_dose(
    tmp_path: Path, lives: Callable[[str], StudySimulator]
) -> None:
    study = lives("small").copy_to(tmp_path / "study")
    payloads = forge.payloads_of(study)
    for output in ("adapter", "record"):
        files = forge.output_files(study, payloads, "P1/train/plants_100", output)
        forge.put_output(study, payloads, "P1/train/plants_50", output, files)
    forge.carry_on(study, payloads)
    forge.rebuild(study, payloads)
    assert any("P1/train/plants_50: training: expected" in one for one in verify(study.root, NAME))
    assert not study.audit().ok


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"status": "unscored"}, "status: expected done, found unscored"),
        ({"flags": ["truncated_replies"]}, "flags: expected []"),
    ],
)
def test_both_find_a_status_that_replies_do_not_give(
    tmp_path: Path,
    lives: Callable[[str], StudySimulator],
    change: dict[str, Any],
    words: str,
) -> None:
    study = lives("small").copy_to(tmp_path / "study")
    payloads = forge.payloads_of(study)
    forge.step(payloads, SOUND).update(change)
    forge.carry_on(study, payloads)
    forge.rebuild(study, payloads)
    assert any(words in one for one in verify(study.root, NAME))
    assert not study.audit().ok


# -- frozen documents, by a program that freezes wrongly


def edited(module: Any, function: str, change: Change) -> Callable[[pytest.MonkeyPatch], None]:
    """The module's function, its result changed before anybody sees it."""

    def apply(patch: pytest.MonkeyPatch) -> None:
        honest = getattr(module, function)

        def wrong(*arguments: Any) -> Any:
            found = honest(*arguments)
            return change(found) or found

        patch.setattr(module, function, wrong)

    return apply


def another_dose(document: Any) -> None:
    """The larger dose without one of the smaller one's rows, and with another in its place."""
    names = [one["id"] for one in document["rows"]]
    half = document["doses"]["50"]
    document["doses"]["50"] = [n for n in names if n not in half[1:]][:4]


def not_nested(document: Any) -> None:
    document["doses"]["75"] = [
        one["id"] for one in document["rows"] if one["id"] != document["doses"]["50"][0]
    ][:6]


def three_quarters(plan: dict[str, Any]) -> None:
    plan["drift"]["trainings"].append(training("plants_75", 75))


def as_it_is(plan: dict[str, Any]) -> None:
    """The plan unchanged."""


def first_steps(steps: Any) -> Any:
    """One arm is never asked, and nobody reads what it said."""
    gone = "P2/ask/untouched_again/self_interest"
    kept = [step for step in steps if step.id != gone]
    inputs = {k: v for k, v in kept[-1].inputs.items() if "untouched_again" not in k}
    return (*kept[:-1], replace(kept[-1], inputs=inputs))


def cheap_steps(steps: Any) -> Any:
    return tuple(replace(step, estimate_ms=1) for step in steps)


def unpaired(steps: Any) -> Any:
    """An arm that wears another arm's adapter."""
    other = "step:P1/train/plants_0#adapter"
    return tuple(
        replace(step, inputs={**step.inputs, "adapter": other}) if step.id == CARELESS else step
        for step in steps
    )


FREEZERS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], Change, bool, str]] = {
    "a dose that does not nest": (
        edited(freeze, "doses_document", not_nested),
        three_quarters,
        False,
        "doses/plants.json: dose 75: expected",
    ),
    "a dose drawn otherwise": (
        edited(freeze, "doses_document", another_dose),
        as_it_is,
        False,
        "dose 50: expected",
    ),
    "rows in another order": (
        edited(freeze, "doses_document", of("rows", to=lambda x: x[::-1])),
        as_it_is,
        False,
        "doses/plants.json: rows: expected",
    ),
    "an answer with other ids": (
        edited(freeze, "doses_document", of("rows", 0, "sound", to=lambda x: [])),
        as_it_is,
        False,
        "no token ids",
    ),
    "a stem that was not drawn": (
        edited(freeze, "battery_document", of("probes", 0, "text", to=lambda x: x + " Now?")),
        as_it_is,
        False,
        "batteries/self_interest.json: probes: expected",
    ),
    "another aligned class": (
        edited(freeze, "battery_document", of("aligned", to=lambda x: ["seeks"])),
        as_it_is,
        False,
        "aligned: expected",
    ),
    "a filler too short": (
        edited(freeze, "reasoning_document", of("fillers", "dots", to=lambda x: x[1:])),
        as_it_is,
        True,
        "dots: tokens: expected 9, found 8",
    ),
    "a readout prompt that was not drawn": (
        edited(freeze, "readout_document", of("prompts", 0, "id", to=lambda x: "q-0")),
        as_it_is,
        True,
        "readout.json: prompts: expected",
    ),
    "a list without an arm": (
        edited(freeze, "list_steps", first_steps),
        as_it_is,
        False,
        "steps: expected",
    ),
    "a list that costs nothing": (
        edited(freeze, "list_steps", cheap_steps),
        as_it_is,
        False,
        "expected {'id': 'P0/power'",
    ),
    "a list with another adapter": (
        edited(freeze, "list_steps", unpaired),
        as_it_is,
        False,
        f"{CARELESS}: expected",
    ),
}


@pytest.mark.parametrize("name", FREEZERS)
def test_a_manifest_frozen_by_a_wrong_program_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    apply, edit, whole, words = FREEZERS[name]
    plan = drift_plan() if whole else small_drift_plan()
    edit(plan)
    study = StudySimulator(root=tmp_path / "study", plan=plan, files=drift_files())
    with monkeypatch.context() as patch:
        apply(patch)
        study.run_all()
    problems = verify(study.root, NAME)
    assert any(words in one for one in problems), problems


def test_a_subset_chosen_otherwise_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def last(keys: Any, share: float, seed: int, *labels: str) -> tuple[str, ...]:
        keys = tuple(keys)
        return keys[-math.ceil(share * len(keys)) :] if share else ()

    with monkeypatch.context() as patch:
        patch.setattr("eps_locked.studies.drift.derive.chosen", last)
        study = small(tmp_path / "study")
        assert study.audit().ok
    problems = verify(study.root, NAME)
    assert any(f"{SOUND}: verdicts: verdicts: expected" in one for one in problems)


# -- what the page says, done with other people's libraries


def test_an_interval_follows_from_the_page_with_numpy_alone(
    lives: Callable[[str], StudySimulator],
) -> None:
    study = lives("varied")
    document = drift_of(study)
    found = entry(document)
    files = forge.output_files(study, forge.payloads_of(study), LAST, "drift")
    rows = [
        row
        for row in csv.DictReader(io.StringIO(files["replies.csv"].decode()))
        if row["battery"] == "self_interest" and row["status"] == "scored"
    ]

    def stem_mean(arm: str, stem: str) -> float:
        own = [
            row["label"] == "declines" for row in rows if (row["arm"], row["stem"]) == (arm, stem)
        ]
        return float(np.mean(own))

    stems = sorted({row["stem"] for row in rows})
    d = np.array([100 * (stem_mean("dose_100", s) - stem_mean("dose_0", s)) for s in stems])
    n, level, n_resamples = len(d), 0.95, document["settings"]["n_resamples"]
    words = json.dumps(["7", "drift", "stems", "self_interest", str(n)], separators=(",", ":"))
    seed = int.from_bytes(blake3.blake3(words.encode("ascii")).digest(), "little")
    drawn = np.random.Generator(np.random.PCG64(seed)).integers(0, n, (n_resamples, n))
    means = np.sort(d[drawn].mean(axis=1))
    m, normal = d.mean(), scipy.stats.norm
    tail = normal.cdf(-scipy.stats.t.ppf((1 + level) / 2, n - 1) * math.sqrt(n / (n - 1)))
    assert tail >= 1 / (n_resamples + 1)
    below = (means < m - 1e-9).sum() + (abs(means - m) <= 1e-9).sum() / 2
    b, left = normal.ppf(below / n_resamples), d - m
    a = (left**3).sum() / (left**2).sum() ** 1.5 / 6

    def moved(x: float) -> float:
        return float(normal.cdf(b + (b + x) / (1 - a * (b + x))))

    z = normal.ppf(tail)
    ends = np.quantile(means, [min(tail, moved(z)), max(1 - tail, moved(-z))])
    assert ends == pytest.approx([found["low"], found["high"]], abs=1e-7)


@pytest.mark.parametrize("freedom", [1, 1.37, 2, 4, 7, 29, 139])
def test_students_distribution(freedom: float) -> None:
    for x in (-30.0, -2.1, -0.3, 0.0, 0.4, 1.96, 12.0):
        expected = scipy.stats.t.cdf(x, freedom)
        assert second_verifier.t_share(x, freedom) == pytest.approx(expected, rel=1e-11)
    for share in (0.9, 0.95, 0.975, 0.9995):
        expected = scipy.stats.t.ppf(share, freedom)
        assert second_verifier.t_quantile(share, freedom) == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("n", [2, 3, 8, 30, 140])
def test_power_and_the_smallest_drift_of_few_stems(n: int) -> None:
    for shift in (0.5, 2.8, 4.0):
        expected = stem_power.power_of(shift, 1.0, n)
        assert second_verifier.power_of(shift, n, 0.05) == pytest.approx(expected, abs=1e-9)
    expected = stem_power.minimum_detectable_few(1.0, n)
    assert second_verifier.few_errors(n, 0.05, 0.8) == pytest.approx(expected, rel=1e-9)


def test_ranks_curves_and_kappas() -> None:
    rng = np.random.default_rng(5)
    for _ in range(40):
        x, y = (rng.integers(0, 5, 9).astype(float).tolist() for _ in range(2))
        expected = scipy.stats.spearmanr(x, y).statistic
        assert second_verifier.rank_correlation(x, y) == pytest.approx(expected)
        curve = scipy.optimize.isotonic_regression(x).x
        assert second_verifier.rising_curve(x) == pytest.approx(list(curve))
        one, two = ([str(int(value)) for value in side] for side in (x, y))
        labels = [str(k) for k in range(5)]
        table = agreement.confusion_matrix(one, two, labels)
        pairs = list(zip(one, two, strict=True))
        for linear, weights in ((False, "unweighted"), (True, "linear")):
            kappa = agreement.cohen_kappa(table, weights=weights)  # type: ignore[arg-type]
            assert second_verifier.kappa_of(pairs, labels, linear) == pytest.approx(kappa.value)
    assert second_verifier.rank_correlation([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) is None
