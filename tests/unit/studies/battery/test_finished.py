"""Checked runs beside one another: refused where they cannot stand together, by the difference."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eps_locked.domain.chat import ChatReply, ChatRequest
from eps_locked.errors import EvidenceError, MalformedInputError, RefusedError
from eps_locked.studies.battery.finished import (
    FinishedBattery,
    compare_across,
    promised,
    require_compatible,
    shown,
)
from eps_locked.studies.battery.shortfalls import unmet
from sim import simulator as sim_module
from sim.battery import battery_files, gateway_plan
from sim.battery_run import BatterySimulator, lost, narrow_plan, reply
from sim.forge import edit_output
from sim.simulator import StudySimulator, tiny_plan


def right(request: ChatRequest) -> ChatReply:
    return reply(request, "Answer: 42", model=request.model)


def half_lost(request: ChatRequest) -> ChatReply:
    """Of the ablated model too little comes back."""
    if request.model == "vendor/ablated" and request.key not in ("sum_0", "sum_1"):
        return lost(request, "filtered")
    return right(request)


def two_models(**changes: Any) -> dict[str, Any]:
    """A stock model and an ablated one behind a service, on capability alone."""
    plan, narrow = gateway_plan(), narrow_plan("capability", served=False)
    plan["battery"] = {**narrow["battery"], "models": plan["battery"]["models"], **changes}
    plan["battery"]["axes"][0]["n_items"] = None
    return plan


Make = Callable[..., BatterySimulator]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    """A finished run in a folder of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)

        def made(name: str, plan: dict[str, Any], tell: Any = right) -> BatterySimulator:
            patch.setattr(sim_module, "NAME", name)
            plan["name"] = name
            study = BatterySimulator(
                root=tmp_path_factory.mktemp(name) / "study",
                plan=plan,
                files=battery_files(),
                tell=tell,
            )
            study.run_all()
            return study

        yield made


def finished(study: BatterySimulator) -> FinishedBattery:
    return FinishedBattery.of(study.audit())


@pytest.fixture(scope="module")
def one(make: Make) -> FinishedBattery:
    return finished(make("one", two_models()))


@pytest.fixture(scope="module")
def other(make: Make) -> FinishedBattery:
    """The same requests, by another day's models, with margins and shares of its own."""
    plan = two_models()
    plan["battery"]["analysis"].update(margins={"capability": 0.3}, seed=8)
    return finished(make("other", plan, lambda request: reply(request, "Answer: 1")))


def test_a_finished_run_has_its_document_and_every_record(one: FinishedBattery) -> None:
    assert one.document["run"] == one.name == "one"
    assert [record.model for record in one.records("ablated")] == ["ablated"]
    assert "run one, manifest " in one.evidence
    assert unmet(one.document) == []


def test_runs_with_other_margins_and_models_stand_in_one_table(
    one: FinishedBattery, other: FinishedBattery
) -> None:
    require_compatible([one, other, one])


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda s: s["decoding"].update(max_tokens=99), "decoding.max_tokens"),
        (lambda s: s.update(system_prompt="Be brief."), "system_prompt"),
        (lambda s: s["axes"][0].update(n_items=7), "axes.capability"),
        (lambda s: s["analysis"].update(confidence_level=0.9), "confidence_level"),
    ],
)
def test_a_run_of_another_kind_is_refused_by_the_difference(
    one: FinishedBattery, make: Make, change: Any, key: str
) -> None:
    plan = two_models()
    change(plan["battery"])
    another = finished(make("another", plan))
    with pytest.raises(RefusedError) as told:
        require_compatible([one, another])
    text = str(told.value)
    assert f"one and another: {key}" in text
    assert "(one)" in text
    assert "(another)" in text
    with pytest.raises(RefusedError, match=key):
        compare_across(one, "stock", another, "stock")


def test_what_a_difference_is_in_stands_in_words() -> None:
    judge = {"kind": "scripted", "model": "m", "settings": {}, "version": "1"}
    for value, words in (
        ([judge], "kind scripted, model m, version 1"),
        ([None], "none"),
        (None, "none"),
        (["off", "on"], "off and on"),
        (0.95, "0.95"),
    ):
        assert shown(value) == words


def test_a_promised_comparison_keeps_its_label_and_any_other_is_exploratory(
    one: FinishedBattery,
) -> None:
    found = promised(one, "ablated", "stock")
    assert found is not None
    assert found["label"] == "confirmatory"
    assert promised(one, "stock", "ablated") is None
    reverse = compare_across(one, "stock", one, "ablated")
    assert reverse["label"] == "exploratory"
    assert reverse["axes"][0]["delta"] == -found["axes"][0]["delta"] + 0.0


def test_models_of_two_runs_are_compared_under_their_runs_names(
    one: FinishedBattery, other: FinishedBattery
) -> None:
    found = compare_across(one, "stock", other, "stock")
    assert found["title"] == "stock of one against stock of other (float32)"
    (row,) = found["axes"]
    # One item of eight is right by 42, none by 1; matched by item.
    assert (row["n_pairs"], row["n_up"], row["n_down"]) == (8, 1, 0)
    assert row["sentence"].startswith("capability, thinking off: stock of one answers correctly")
    assert row["margin"] == 0.2, "by the settings of the first"


def test_a_model_beside_itself_and_models_that_are_not_there_are_refused(
    one: FinishedBattery, other: FinishedBattery
) -> None:
    with pytest.raises(RefusedError, match="expected two models"):
        compare_across(one, "stock", one, "stock")
    with pytest.raises(MalformedInputError, match="known: stock, ablated"):
        compare_across(one, "nobody", other, "stock")
    with pytest.raises(MalformedInputError, match="known: stock, ablated"):
        compare_across(one, "stock", other, "nobody")


def test_what_came_in_short_is_told_once_with_what_is_missing(make: Make) -> None:
    plan = two_models()
    plan["battery"]["axes"][0]["minimum_scored_share"] = 0.6
    (text,) = unmet(finished(make("short", plan, half_lost)).document)
    assert text == (
        "ablated, capability, thinking off: 2 of 8 items have a verdict, the plan asks for 60% "
        "(missing: 6 filtered)"
    )


def test_measured_axes_with_too_few_shared_items_are_short_as_well(make: Make) -> None:
    def lost_apart(request: ChatRequest) -> ChatReply:
        mine = {"vendor/stock": ("sum_0", "sum_1"), "vendor/ablated": ("sum_2", "sum_3")}
        return lost(request, "filtered") if request.key in mine[request.model] else right(request)

    plan = two_models()
    plan["battery"]["analysis"]["minimum_items"] = 6
    found = finished(make("apart", plan, lost_apart))
    assert all(axis["measured"] for model in found.document["models"] for axis in model["axes"])
    (text,) = unmet(found.document)
    assert "not measured for ablated against stock" in text
    assert "on both 4" in text


def test_a_run_that_fails_its_checks_or_is_not_complete_is_refused(make: Make) -> None:
    study = make("broken", two_models())
    edit_output(study, "P3/battery", "battery", "battery.json", lambda it: it.update(label="x"))
    with pytest.raises(EvidenceError, match="run broken") as told:
        finished(study)
    assert "P3/battery: " in str(told.value)
    assert "just check-evidence broken" in str(told.value)


def test_a_run_under_way_is_refused(make: Make, tmp_path: Path) -> None:
    study = make("fresh", two_models())
    begun = BatterySimulator(
        root=tmp_path / "study", plan=study.plan, files=battery_files(), tell=right
    )
    begun.freeze()
    begun.authorize("P0")
    begun.run("P0")
    with pytest.raises(EvidenceError, match="a complete run") as told:
        finished(begun)
    assert "phase P2" in str(told.value)


def test_a_run_of_another_study_is_refused(make: Make, tmp_path: Path) -> None:
    plan = tiny_plan()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sim_module, "NAME", plan["name"])
        study = StudySimulator(root=tmp_path / "study", plan=plan)
        study.run_all()
        with pytest.raises(RefusedError, match="a plan of study battery"):
            FinishedBattery.of(study.audit())
