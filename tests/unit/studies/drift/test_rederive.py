"""What a record must hold by the plan's rules, found without the model and the judges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from eps_locked.domain.judging import Rubric, Verdict
from eps_locked.judges.scripted import ScriptedJudge
from eps_locked.studies.drift.derive import AskDesign, FrozenBattery, FrozenProbe, Wanted
from eps_locked.studies.drift.plan import DriftPlan
from eps_locked.studies.drift.records import AskRecord, Judged, Reply
from eps_locked.studies.drift.rederive import ask_differences
from sim.drift import drift_plan, rubric

WORDS = ("spare key", "a test")
CLASSES = ["declines", "seeks", "unclear", "no_stance"]
GRADES = [f"grade_{number}" for number in range(1, 8)]


def section() -> DriftPlan:
    return DriftPlan.from_section(drift_plan()["drift"])


def design(arm: str = "untouched") -> AskDesign:
    """Two stems of two rewordings, one of whose texts are not kept."""
    plan = section()
    probes = tuple(
        FrozenProbe(id=f"{stem}/{k}", stem=stem, text=f"{stem} {k}?", keep_text=stem == "disk")
        for stem in ("disk", "oven")
        for k in (0, 1)
    )
    return AskDesign(
        section=plan,
        arm=plan.arm(arm),
        setting=plan.setting(plan.arm(arm).reasoning),
        battery=FrozenBattery(
            name="self_interest",
            role="disposition",
            labels=tuple(CLASSES),
            aligned=("declines",),
            no_stance=("no_stance",),
            probes=probes,
        ),
        rubric=Rubric.from_dict(rubric("self_interest", CLASSES, ["declines"]), "r"),
        graded=Rubric.from_dict(rubric("self_interest_grade", GRADES, []), "g"),
        words=WORDS,
    )


def one_reply(asked: AskDesign, probe: FrozenProbe, sample: int, **changes: Any) -> Reply:
    setting = asked.setting
    reasoning, n_tokens = "", 0
    if setting.mode == "filler":
        n_tokens = setting.n_tokens or 0
    elif setting.mode in ("free", "budget"):
        reasoning = "A spare key"
        n_tokens = len(reasoning)
    fields: dict[str, Any] = {
        "keep_text": probe.keep_text,
        "reply": f"Give {probe.stem} back.",
        "token_ids": tuple(range(12 + sample)),
        "reasoning": reasoning,
        "n_reasoning_tokens": n_tokens,
        "stop": "stop",
        "attempts": 1,
        "exhausted": False,
        "truncated_reasoning": False,
        "mentions": 1 if reasoning else 0,
    }
    return Reply.of(probe.id, sample, **{**fields, **changes})


def judged(asked: AskDesign, judge: str, under: Rubric | None, wanted: Wanted) -> Judged:
    assert under is not None
    made = ScriptedJudge(asked.section.judge(judge))
    return Judged(
        judge=made.identity.to_dict(),
        rubric=under.digest,
        verdicts=tuple(
            Verdict(
                key=key,
                draw=draw,
                status="scored",
                label=under.labels[0],
                scores={},
                model="scripted",
                note="",
                tries=1,
            )
            for key, draw in wanted
        ),
    )


def record(
    asked: AskDesign, change: Callable[[list[Reply]], object] = lambda replies: None
) -> AskRecord:
    """A record as the rules have it, its replies changed before anybody judged them."""
    replies = [one_reply(asked, probe, sample) for probe, sample in asked.places]
    change(replies)
    told = tuple(replies)
    return AskRecord(
        arm=asked.arm.name,
        battery="self_interest",
        instance="in-process",
        replies=told,
        classes=judged(asked, "stand_in", asked.rubric, asked.to_classify(told)),
        grades=judged(asked, "stand_in", asked.graded, asked.to_grade(told)),
        checks=judged(asked, "second", asked.rubric, asked.to_check(told)),
    )


ARMS = ("untouched", "untouched_closed", "untouched_short", "untouched_dots", "untouched_free")


@pytest.mark.parametrize("arm", ARMS)
def test_a_record_by_the_rules_is_found_in_order(arm: str) -> None:
    asked = design(arm)
    assert ask_differences(record(asked), asked) == []


def changed(number: int, **changes: Any) -> Callable[[list[Reply]], object]:
    """One reply (0 to 3 of kept probes, 4 to 7 of others) with fields changed as stored."""

    def change(replies: list[Reply]) -> None:
        replies[number] = replace(replies[number], **changes)

    return change


# -- replies: (arm, what is changed before judging, what is said)

CASES: list[tuple[str, Callable[[list[Reply]], object], str]] = [
    ("untouched", changed(0, reply="Keep it."), "disk/0/0: reply_digest: expected"),
    ("untouched", changed(0, token_ids=(1, 2)), "disk/0/0: reply_digest: expected"),
    ("untouched", changed(0, n_reply_tokens=3), "disk/0/0: n_reply_tokens: expected 12, found 3"),
    ("untouched", changed(4, n_reply_tokens=65), "n_reply_tokens: expected 0 to 64, found 65"),
    ("untouched", changed(4, reply="a" * 201), "expected a digest and an excerpt"),
    ("untouched", changed(4, token_ids=(1,)), "expected a digest and an excerpt"),
    ("untouched", changed(0, attempts=2), "attempts: expected 1 to 1, found 2"),
    ("untouched", changed(4, reasoning="Hm."), "expected no reasoning of the model's own"),
    ("untouched", changed(4, mentions=1), "expected no reasoning of the model's own"),
    ("untouched", changed(4, n_reasoning_tokens=1), "n_reasoning_tokens: expected 0 to 0, found 1"),
    ("untouched", changed(4, truncated_reasoning=True), "expected reasoning that was not cut off"),
    ("untouched", changed(4, exhausted=True), "expected a reply, which only free reasoning"),
    ("untouched_short", changed(0, reasoning="Hm."), "disk/0/0: reasoning_digest: expected"),
    ("untouched_short", changed(0, mentions=0), "disk/0/0: mentions: expected 1, found 0"),
    ("untouched_short", changed(4, reasoning="a" * 201), "expected a digest and an excerpt"),
    ("untouched_short", changed(4, n_reasoning_tokens=13), "expected 0 to 12, found 13"),
    ("untouched_short", changed(4, truncated_reasoning=True), "that was not cut off"),
    ("untouched_dots", changed(4, n_reasoning_tokens=8), "expected 9 to 9, found 8"),
    ("untouched_dots", changed(4, reasoning=" . ."), "expected no reasoning of the model's own"),
    ("untouched_free", changed(4, attempts=4), "attempts: expected 1 to 3, found 4"),
    ("untouched_free", changed(4, n_reply_tokens=70), "expected 0 to 69, found 70"),
    ("untouched_free", changed(4, exhausted=True), "exhausted: expected no reply after 3 attempts"),
]  # fmt: skip


@pytest.mark.parametrize(("arm", "change", "words"), CASES, ids=lambda one: str(one)[:40])
def test_a_reply_that_its_arm_cannot_have_given_is_named(
    arm: str, change: Callable[[list[Reply]], object], words: str
) -> None:
    asked = design(arm)
    found = ask_differences(record(asked, change), asked)
    assert any(words in one for one in found), found


def test_a_budget_used_to_its_end_may_have_been_cut_off() -> None:
    asked = design("untouched_short")
    change = changed(4, n_reasoning_tokens=12, truncated_reasoning=True)
    assert ask_differences(record(asked, change), asked) == []


def test_an_exhausted_reply_after_every_attempt_is_in_order() -> None:
    asked = design("untouched_free")

    def change(replies: list[Reply]) -> None:
        probe = asked.battery.probe("oven/0")
        replies[4] = one_reply(asked, probe, 0, reply="", token_ids=(), attempts=3, exhausted=True)

    made = record(asked, change)
    assert ask_differences(made, asked) == []
    assert "oven/0/0" not in {verdict.key for verdict in made.classes.verdicts}
    late = replace(made.classes, verdicts=(*made.classes.verdicts, verdict("oven/0/0")))
    found = ask_differences(replace(made, classes=late), asked)
    assert any(one.startswith("classes: expected") for one in found)


def verdict(key: str, label: str = "declines", draw: int = 0) -> Verdict:
    return Verdict(
        key=key,
        draw=draw,
        status="scored",
        label=label,
        scores={},
        model="scripted",
        note="",
        tries=1,
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda replies: replies[1:],
        lambda replies: (*replies, replies[0]),
        lambda replies: (replies[0], replies[0], *replies[2:]),
        lambda replies: (replies[1], replies[0], *replies[2:]),
        lambda replies: (replace(replies[0], probe="ivy/0"), *replies[1:]),
    ],
)
def test_every_probe_stands_with_every_sample_once(
    change: Callable[[tuple[Reply, ...]], tuple[Reply, ...]],
) -> None:
    asked = design()
    made = record(asked)
    found = ask_differences(replace(made, replies=change(made.replies)), asked)
    assert any("expected every probe with every sample once, 8 in frozen order" in o for o in found)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"arm": "dose_0"}, "arm: expected untouched, found dose_0"),
        ({"battery": "oversight"}, "battery: expected self_interest, found oversight"),
        ({"instance": "in-process-2"}, "instance: expected in-process, found in-process-2"),
        ({"grades": None}, "grades: expected stand_in, found none"),
        ({"checks": None}, "checks: expected second, found none"),
    ],
)
def test_a_record_of_something_else_is_named(change: dict[str, Any], words: str) -> None:
    asked = design()
    assert words in ask_differences(replace(record(asked), **change), asked)


def test_a_second_instances_record_says_so() -> None:
    asked = design("untouched_again")
    made = record(asked)
    assert ask_differences(made, asked) == ["instance: expected in-process-2, found in-process"]
    assert ask_differences(replace(made, instance="in-process-2"), asked) == []


def test_grades_that_the_plan_has_no_use_for_are_named() -> None:
    asked = design()
    made = record(asked)
    assert ask_differences(made, replace(asked, graded=None)) == [
        "grades: expected none, found some"
    ]


# -- verdicts: (part, what is done to them, what is said)


def without_first(part: Judged) -> Judged:
    return replace(part, verdicts=part.verdicts[1:])


def of_another_label(part: Judged) -> Judged:
    first = replace(part.verdicts[0], label="agrees")
    return replace(part, verdicts=(first, *part.verdicts[1:]))


def with_scores(part: Judged) -> Judged:
    first = replace(part.verdicts[0], scores={"aligned": 50.0})
    return replace(part, verdicts=(first, *part.verdicts[1:]))


def drawn_again(part: Judged) -> Judged:
    return replace(part, verdicts=(*part.verdicts, replace(part.verdicts[0], draw=2)))


def by_another(part: Judged) -> Judged:
    return replace(part, judge={**part.judge, "model": "kinder"})


def under_another_rubric(part: Judged) -> Judged:
    return replace(part, rubric="blake3:" + "0" * 64)


@pytest.mark.parametrize("part", ["classes", "grades", "checks"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without_first, "expected {n} verdicts in the order of the replies"),
        (drawn_again, "expected {n} verdicts in the order of the replies"),
        (of_another_label, "a verdict that its rubric does not allow"),
        (with_scores, "a verdict that its rubric does not allow"),
        (by_another, "judge model: expected scripted, found kinder"),
        (under_another_rubric, "rubric: expected"),
    ],
)
def test_verdicts_that_were_not_due_or_not_the_judges_are_named(
    part: str, change: Callable[[Judged], Judged], words: str
) -> None:
    asked = design()
    made = record(asked)
    before: Judged = getattr(made, part)
    found = ask_differences(replace(made, **{part: change(before)}), asked)
    assert any(one.startswith(f"{part}: ") for one in found)
    assert any(words.format(n=len(before.verdicts)) in one for one in found), found


def test_the_replies_classified_twice_are_the_chosen_ones_and_no_others() -> None:
    asked = design()
    made = record(asked)
    twice = [one for one in made.classes.verdicts if one.draw == 1]
    assert len(twice) == 2
    other = next(reply.key for reply in made.replies if reply.key not in {one.key for one in twice})
    swapped = tuple(
        replace(one, key=other) if one is twice[0] else one for one in made.classes.verdicts
    )
    found = ask_differences(replace(made, classes=replace(made.classes, verdicts=swapped)), asked)
    assert [one.partition(" verdicts")[0] for one in found] == ["classes: expected 10"]
