"""What two runs must share, and how the first thing they do not share is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from eps_locked.canonical import digest_value, encode
from eps_locked.judges.keyword import is_keyword_refusal, is_planned_refusal
from eps_locked.judges.language import why_other_language
from eps_locked.studies.battery.compatibility import (
    ABSENT,
    RULES_VERSION,
    SHOWN,
    compatibility,
    first_difference,
)
from eps_locked.studies.battery.plan import BatteryPlan
from eps_locked.studies.battery.records import AskRecord
from unit.studies.battery.outcome_worlds import record
from unit.studies.battery.world import axis_bytes, section

AXES = {axis: axis_bytes(axis) for axis in ("over_refusal", "capability", "sycophancy")}
RECORDS = tuple(record(axis) for axis in AXES)
Change = Callable[[BatteryPlan], BatteryPlan]


def of(
    plan: BatteryPlan | None = None,
    axes: dict[str, bytes] | None = None,
    records: tuple[AskRecord, ...] = RECORDS,
) -> dict[str, Any]:
    return compatibility(plan or section(), axes or AXES, records)


def named(other: dict[str, Any]) -> str:
    found = first_difference(of(), other)
    assert found is not None
    key, one, another = found
    assert one != another
    assert first_difference(other, of()) == (key, another, one)
    assert SHOWN[key.partition(".")[0]]
    return key


def decoding(**changes: Any) -> Change:
    return lambda plan: replace(plan, decoding=replace(plan.decoding, **changes))


def test_what_is_made_alike_is_compatible_in_every_key() -> None:
    assert first_difference(of(), of()) is None
    assert set(of()) == set(SHOWN)
    encode(of())


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (decoding(max_tokens=161), "decoding.max_tokens"),
        (decoding(temperature=0.7), "decoding.temperature"),
        (decoding(top_p=0.9), "decoding.top_p"),
        (decoding(seed=None), "decoding.seed"),
        (lambda plan: replace(plan, thinking_modes=("off",)), "thinking_modes"),
        (lambda plan: replace(plan, system_prompt="Be brief."), "system_prompt"),
        (
            lambda plan: replace(plan, analysis=replace(plan.analysis, confidence_level=0.9)),
            "confidence_level",
        ),
    ],
)
def test_each_part_of_a_plan_that_moves_a_number_counts(change: Change, key: str) -> None:
    assert named(of(change(section()))) == key


def test_a_system_prompt_is_named_though_it_stands_in_every_frozen_request() -> None:
    other = of(
        replace(section(), system_prompt="Be brief."),
        {axis: data + b" " for axis, data in AXES.items()},
    )
    assert named(other) == "system_prompt"


def test_other_items_and_other_axes_are_named_by_axis() -> None:
    assert named(of(axes={**AXES, "capability": axis_bytes("capability", note="x")})) == (
        "axes.capability"
    )
    found = first_difference(of(), of(axes={**AXES, "tools": axis_bytes("tools")}))
    assert found is not None
    assert found[:2] == ("axes.tools", ABSENT)


@pytest.mark.parametrize("key", ["kind", "model", "version", "settings"])
def test_another_judge_is_named_by_the_axis_that_it_judges(key: str) -> None:
    def other(one: AskRecord) -> AskRecord:
        if one.axis != "sycophancy":
            return one
        judge = {**(one.verdicts.judge or {}), key: {"x": 1} if key == "settings" else "other"}
        return replace(one, verdicts=replace(one.verdicts, judge=judge))

    assert named(of(records=tuple(map(other, RECORDS)))) == "judges.sycophancy"


def test_a_judge_that_changed_between_two_steps_of_one_run_is_not_hidden_by_the_later() -> None:
    judge = {**(RECORDS[0].verdicts.judge or {}), "version": "2"}
    later = replace(RECORDS[0], verdicts=replace(RECORDS[0].verdicts, judge=judge), model="x")
    for records in ((later, *RECORDS), (*RECORDS, later)):
        assert named(of(records=records)) == "judges.over_refusal"


def test_another_rubric_is_named() -> None:
    verdicts = replace(RECORDS[0].verdicts, rubric="blake3:other")
    assert named(of(records=(replace(RECORDS[0], verdicts=verdicts), *RECORDS[1:]))) == (
        "rubrics.over_refusal"
    )


def test_the_order_of_modes_and_models_and_who_was_asked_do_not_count() -> None:
    plan = replace(section(), thinking_modes=("on", "off"), models=section().models[::-1])
    assert first_difference(of(), of(plan, records=RECORDS[::-1])) is None
    renamed = tuple(replace(one, model="another") for one in RECORDS)
    assert first_difference(of(), of(records=renamed)) is None


def test_null_and_absent_are_two_things() -> None:
    assert first_difference({"a": None}, {}) == ("a", None, ABSENT)
    assert first_difference({"a": {"b": None}}, {"a": {}}) == ("a.b", None, ABSENT)
    assert first_difference({}, {}) is None


# Texts on which the rules may come to say something else one day, and what they say in this
# version. If this fails: a rule that scores replies has changed what it says; then give
# RULES_VERSION another value, so that new rates do not stand beside old ones, and mend it here.
_TEXTS = (
    "I can't help with that.",
    "I'm sorry, but I cannot provide instructions for this.",
    "I won't do that. Here is another way: use a lid.",
    "Sure. You can't kill a process without its number; use kill -9.",
    "As an AI language model, I don't have access to that.",
    "I must refuse to answer this.",
    "The user asks for something harmful. I should refuse.",
    "Unfortunately, it is not possible to say.",
    "Das ist nicht gut, und ich mag es nicht.",
    "Je ne sais pas ce que vous voulez dire, et je ne peux pas vous le dire.",
    "42",
    "No.",
)
_SAID = {"1": "blake3:f597573cf3b347f4aea2714d6a38cc2a69e3f0d5d3cf5a0e94307255166d9065"}


def test_the_version_of_the_rules_belongs_to_what_the_rules_say() -> None:
    said = [
        [is_keyword_refusal(text), is_planned_refusal(text), why_other_language(text) is not None]
        for text in _TEXTS
    ]
    assert any(one[0] for one in said)
    assert not all(one[0] for one in said)
    assert digest_value(said) == _SAID[RULES_VERSION]
