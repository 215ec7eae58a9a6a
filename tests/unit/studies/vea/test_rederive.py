"""What the audit can say of scores without the reward model that gave them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from eps_locked.domain.plan import Plan
from eps_locked.domain.reward import RewardScore, RewardStatus
from eps_locked.rewards.scripted import ScriptedReward
from eps_locked.studies.vea.derive import (
    FrozenItem,
    requests_of,
    score_flags,
    score_status,
    scored_items,
)
from eps_locked.studies.vea.gather import frozen_item
from eps_locked.studies.vea.items import read_items
from eps_locked.studies.vea.plan import VeaPlan
from eps_locked.studies.vea.records import ScoresRecord
from eps_locked.studies.vea.rederive import score_differences
from sim.vea import gateway, implicit, item, lines, vea_plan, with_files

N_ITEMS = 3
Change = Callable[[list[RewardScore]], object]


def frozen_items() -> tuple[FrozenItem, ...]:
    families = ("wood_labs", "exam_interview")
    data = lines(item(family, number) for family in families for number in range(N_ITEMS))
    found = read_items(data.encode(), "items", ["evaluation"], 0.2)
    return tuple(frozen_item(one) for one in found)


ITEMS = frozen_items()


def plan_with(*models: dict[str, Any]) -> Plan:
    value = vea_plan()
    if any(one["kind"] == "implicit" for one in models):
        with_files(value)
    value["vea"]["reward_models"] += models
    return Plan.from_dict(value)


def untrained() -> ScoresRecord:
    model = ScriptedReward(base="scripted", max_length=1024, head=(5, 0.002))
    scores = model.score(requests_of(ITEMS))
    return ScoresRecord(reward_model="untrained", identity=model.identity.to_dict(), scores=scores)


def differences(
    record: ScoresRecord, name: str = "untrained", plan: Plan | None = None, **adapter: str
) -> list[str]:
    plan = plan or plan_with()
    model = VeaPlan.of(plan).reward_model(name)
    return score_differences(record, ITEMS, model, plan, adapter.get("adapter"))


def test_what_a_reward_model_gave_has_no_difference() -> None:
    assert differences(untrained()) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: s.pop(4), "18 in frozen order, found 17: wood_labs-2/control where wood_labs-2"),
        (lambda s: s.insert(1, s[0]), "found 19: wood_labs-1/base where wood_labs-1/vea should"),
        (lambda s: s.append(replace(s[0], key="b/vea")), "b/vea where nothing should stand"),
        (lambda s: s.reverse(), "exam_interview-3/control where wood_labs-1/base should stand"),
        (lambda s: s.clear(), "found 0: nothing where wood_labs-1/base should stand"),
    ],
)
def test_other_keys_or_another_order_are_named(change: Change, words: str) -> None:
    scores = list(untrained().scores)
    change(scores)
    (said,) = differences(replace(untrained(), scores=tuple(scores)))
    assert words in said


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"status": "outage", "value": None}, "a model in this process gives no outage"),
        ({"status": "absent", "value": None}, "a model in this process gives no absent"),
        ({"status": "truncated", "value": None}, "expected truncated exactly beyond 1024 tokens"),
        ({"n_tokens": 1025}, "found scored at 1025"),
        ({"n_tokens": None}, "n_tokens: expected the exchange's length, found none"),
        ({"tries": 1}, "tries: expected 0 to 0, found 1"),
    ],
)
def test_a_score_that_no_model_of_ours_gives_is_named(changes: dict[str, Any], words: str) -> None:
    first, *others = untrained().scores
    (said,) = differences(replace(untrained(), scores=(replace(first, **changes), *others)))
    assert said.startswith("wood_labs-1/base: ")
    assert words in said


def test_a_score_that_is_no_number_may_come() -> None:
    first, *others = untrained().scores
    odd = replace(first, status="not_finite", value=None, note="nan")
    assert differences(replace(untrained(), scores=(odd, *others))) == []


def test_another_speaker_is_named() -> None:
    identity = {**untrained().identity, "kind": "gateway", "model": "kinder", "publishable": True}
    record = replace(untrained(), reward_model="narrow", identity=identity)
    assert differences(record) == [
        "reward_model: expected untrained, found narrow",
        "identity.kind: expected sequence_classification, found gateway",
        "identity.model: expected scripted, found kinder",
        "identity.publishable: expected False, found True",
    ]


@pytest.mark.parametrize(
    ("name", "adapter", "head"),
    [
        ("narrow", {"adapter": "blake3:" + "1" * 64}, "blake3:" + "1" * 64),
        ("untrained", {}, "fresh, seed 5, std 0.002"),
        ("own", {}, "its own"),
    ],
)
def test_a_head_is_the_one_of_the_plan(name: str, adapter: dict[str, str], head: str) -> None:
    identity = {**untrained().identity, "settings": {"head": head, "max_length": "1024"}}
    record = replace(untrained(), reward_model=name, identity=identity)
    assert differences(record, name, **adapter) == []
    identity["settings"] = {"head": "another", "max_length": "2048"}
    assert differences(record, name, **adapter) == [
        f"identity.head: expected {head}, found another",
        "identity.max_length: expected 1024, found 2048",
    ]


def served(status: RewardStatus = "scored", tries: int = 1, **settings: str) -> ScoresRecord:
    named = {"endpoint": "https://rewards.example/v1", "api": "plain", **settings}
    identity = {
        "kind": "gateway",
        "model": "a-reward-model",
        "version": "1",
        "settings": named,
        "publishable": True,
    }
    value = 1.0 if status == "scored" else None
    scores = tuple(
        RewardScore(key=one.key, status=status, value=value, n_tokens=None, note="", tries=tries)
        for one in requests_of(ITEMS)
    )
    return ScoresRecord(reward_model="served", identity=identity, scores=scores)


@pytest.mark.parametrize(
    ("record", "n", "words"),
    [
        (served(), 0, ""),
        (served("outage", tries=0), 0, ""),
        (served("truncated"), 0, ""),
        (served("absent"), 18, "a service gives no absent"),
        (served(tries=3), 18, "tries: expected 0 to 2, found 3"),
        (served(api="pooling"), 1, "identity.api: expected plain, found pooling"),
        (served(endpoint="http://else"), 1, "identity.endpoint: expected https://rewards"),
    ],
)
def test_what_a_service_gave_is_held_against_its_plan(
    record: ScoresRecord, n: int, words: str
) -> None:
    found = differences(record, "served", plan_with(gateway()))
    assert len(found) == n
    assert all(words in one for one in found)


def test_an_implied_reward_names_both_models_and_its_form() -> None:
    settings = {"reference": "scripted", "beta": "0.10000000000000001", "length_average": "no"}
    settings |= {"max_length": "512", "batch_rows": "8", "device": "cpu", "dtype": "float32"}
    identity = {
        "kind": "implicit",
        "model": "models/policy",
        "version": "1",
        "settings": settings,
        "publishable": True,
    }
    scores = tuple(replace(one, n_tokens=9) for one in untrained().scores)
    record = ScoresRecord(reward_model="dpo", identity=identity, scores=scores)
    plan = plan_with(implicit())
    assert differences(record, "dpo", plan) == []
    settings["length_average"] = "yes"
    assert differences(record, "dpo", plan) == ["identity.length_average: expected no, found yes"]
    settings |= {"length_average": "no", "batch_rows": "4", "dtype": "bfloat16"}
    assert differences(record, "dpo", plan) == [
        "identity.batch_rows: expected 8, found 4",
        "identity.dtype: expected float32, found bfloat16",
    ]


def test_a_family_with_too_few_whole_items_makes_the_step_unscored() -> None:
    record = untrained()
    assert scored_items(record, ITEMS) == {"wood_labs": 3, "exam_interview": 3}
    assert score_status(record, ITEMS, 3) == "done"
    assert score_flags(record, ITEMS, 3) == ()
    # The control of the last item of exam_interview did not come.
    *others, last = record.scores
    short = replace(
        record, scores=(*others, replace(last, status="truncated", value=None, n_tokens=2000))
    )
    assert score_status(short, ITEMS, 3) == "unscored"
    assert score_flags(short, ITEMS, 3) == ("missing:truncated", "too_few:exam_interview")
    assert score_status(short, ITEMS, 2) == "done"
    assert score_flags(short, ITEMS, 2) == ("missing:truncated",)
