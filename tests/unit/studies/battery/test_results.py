"""From records to the study's document: who is fit for publication, how models were served, what
both stages said, and one line of a table for each reply that may be shown."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from eps_locked.canonical import decode, encode
from eps_locked.domain.judging import JudgeRequest, Verdict
from eps_locked.studies.battery.cards import card
from eps_locked.studies.battery.plan import BatteryPlan
from eps_locked.studies.battery.records import AskRecord, SpeedRecord, SpeedRow
from eps_locked.studies.battery.results import _csv, battery_document
from eps_locked.studies.battery.served import template_of
from sim.battery_run import lost, reply
from unit.studies.battery.outcome_worlds import in_turn, record
from unit.studies.battery.world import AXES, axis_bytes, labelled, section, without_judge

FROZEN = {axis: axis_bytes(axis) for axis in (*AXES, "harmful")}


def document(
    records: Sequence[AskRecord],
    plan: BatteryPlan | None = None,
    speeds: dict[str, SpeedRecord] | None = None,
    **more: Any,
) -> dict[str, Any]:
    keywords = {"run": "small", "is_for_publication": True, "power": {}, "label": "exploratory"}
    found = battery_document(
        plan or section(), records, speeds or {}, FROZEN, **{**keywords, **more}
    )
    # As the audit reads it: any float that is none, or not rounded, shows.
    assert decode(encode(found), thing="x") == found
    return found


def entry(found: dict[str, Any], model: str = "untouched") -> dict[str, Any]:
    return next(one for one in found["models"] if one["model"] == model)


def served(one: AskRecord, publishable: bool = True, server: str = "s", **said: str) -> AskRecord:
    names = {name.replace("__", "."): text for name, text in said.items()}
    endpoint = {**one.endpoint, "publishable": publishable, "server": server}
    return replace(one, endpoint={**endpoint, "said": {**endpoint["said"], **names}})


def judged_by(one: AskRecord, publishable: bool) -> AskRecord:
    judge = {**(one.verdicts.judge or {}), "publishable": publishable}
    return replace(one, verdicts=replace(one.verdicts, judge=judge))


def timed(*rows: SpeedRow, publishable: bool = True) -> SpeedRecord:
    return SpeedRecord(
        model="untouched",
        endpoint={"kind": "serve", "model": "base", "server": "s", "said": {}, "publishable": True}
        | {"publishable": publishable},
        request={"max_tokens": 40},
        rows=rows,
    )


def request(n_tokens: int | None, first: float | None, seconds: float | None) -> SpeedRow:
    return SpeedRow(
        status="answered",
        n_completion_tokens=n_tokens,
        first_token_seconds=first,
        seconds=seconds,
    )


# -- publication


@pytest.mark.parametrize(
    ("endpoint", "judge", "plan", "expected"),
    [
        (True, True, True, True),
        (False, True, True, False),
        (True, False, True, False),
        (True, True, False, False),
    ],
    ids=["all", "stand_in_serves", "stand_in_judges", "plan_says_no"],
)
def test_a_model_is_for_publication_if_no_stand_in_has_a_part_and_the_plan_is(
    endpoint: bool, judge: bool, plan: bool, expected: bool
) -> None:
    records = [
        judged_by(served(record("over_refusal"), endpoint), judge),
        served(record("capability")),
    ]
    found = document(records, is_for_publication=plan)
    assert entry(found)["publishable"] is expected
    assert ("Not for publication" in card(found, "untouched")) is not expected


def test_a_stand_in_in_a_later_step_or_in_the_timing_counts_as_well() -> None:
    first, later = served(record("capability")), served(record("tools"), False)
    assert entry(document([first, later]))["publishable"] is False
    speed = timed(request(9, None, 1.0), publishable=False)
    assert entry(document([first], speeds={"untouched": speed}))["publishable"] is False
    assert entry(document([first]))["publishable"] is True


def test_a_model_of_which_there_is_no_record_is_not_for_publication() -> None:
    assert entry(document([]))["publishable"] is False


# -- how it was served


def test_what_an_endpoint_says_of_its_template_is_shown_and_else_unknown() -> None:
    assert template_of({"eps_locked.template_digest": "blake3:1", "a.chat_template": "x"}) == (
        "blake3:1"
    )
    assert template_of({"meta.chat_template": "{{x}}"}) == "{{x}}"
    assert template_of({"owned_by": "somebody"}) == "unknown"
    found = entry(document([record("capability")]))
    assert (found["template_digest"], found["server"]) == ("unknown", "unknown")


def test_two_models_that_were_served_differently_are_said_to_be_and_the_title_names_weights() -> (
    None
):
    plan = section()
    models = tuple(
        replace(one, quantisation="awq-4bit", context_length=99) if one.name == "cautious" else one
        for one in plan.models
    )
    mine = served(
        record("capability", model="cautious"), server="litellm", eps_locked__template_digest="b"
    )
    base = served(record("capability"), eps_locked__template_digest="a")
    found = document([mine, base], replace(plan, models=models))["comparisons"][0]
    assert found["title"].endswith("across quantisations")
    assert {one["what"]: (one["model"], one["base"]) for one in found["differs"]} == {
        "quantisation": ("awq-4bit", "float32"),
        "context length": (99, 16384),
        "chat template": ("b", "a"),
        "server": ("litellm", "s"),
    }


def test_two_models_of_one_server_differ_in_nothing() -> None:
    records = [record("capability", model=name) for name in ("untouched", "cautious")]
    found = document(records)["comparisons"][0]
    assert found["differs"] == []
    assert "served differently" not in card(document(records), "cautious")


def test_an_endpoint_that_became_another_between_two_steps_is_told() -> None:
    records = [
        served(record("capability"), owned_by="x", version="1"),
        served(record("tools"), owned_by="x", version="2", server="t"),
    ]
    found = document(records)
    assert entry(found)["endpoint_changed"] == ["said.version", "server"]
    assert "did not say the same of itself throughout: said.version, server." in card(
        found, "untouched"
    )
    assert entry(document(records[:1]))["endpoint_changed"] == []


def test_every_name_under_which_a_gateway_answered_is_kept() -> None:
    tell = in_turn(*[lambda one: reply(one, model="big")] * 3, lambda one: reply(one, model="tiny"))
    assert entry(document([record("capability", tell)]))["answered_as"] == ["big", "tiny"]


# -- stages and thinking


def both_sides(*pairs: tuple[str, str]) -> AskRecord:
    """The judge's label of the answer and of the thoughts, item by item."""
    keys = ("one", "two", "three", "four")
    labels = {key: pair[0] for key, pair in zip(keys, pairs, strict=True)}
    labels |= {f"{key}/thinking": pair[1] for key, pair in zip(keys, pairs, strict=True)}

    def judge(asked: JudgeRequest) -> Verdict:
        return labelled(labels[asked.key.partition("over_refusal/on/")[2]])(asked)

    return record(
        "over_refusal",
        lambda one: reply(one, "Use a lid.", reasoning="I can help with that."),
        judge=judge,
        thinking="on",
    )


def test_refused_in_the_thinking_alone_and_in_the_answer_alone_are_counted_and_add_up() -> None:
    one = both_sides(
        ("comply", "refuse"), ("refuse", "comply"), ("partial", "refuse"), ("comply", "comply")
    )
    (found,) = document([one])["thinking"]
    assert (found["refused_in_thinking_only"], found["items_thinking_only"]) == (1, ["one"])
    assert (found["refused_in_answer_only"], found["items_answer_only"]) == (1, ["two"])
    counts = ("thinking_only", "answer_only", "both", "neither")
    total = sum(found[f"refused_in_{name}"] for name in counts) + found["partial_in_either"]
    assert total == found["n_both_read"] == found["n_thought"] == 4


def test_the_stages_are_compared_on_answers_and_on_thoughts_apart() -> None:
    one = both_sides(
        ("comply", "refuse"), ("comply", "comply"), ("comply", "comply"), ("comply", "partial")
    )
    answer, thinking = document([one])["stages"]
    assert [answer["part"], thinking["part"]] == ["answer", "thinking"]
    # The rule calls all of these texts "comply".
    assert (answer["n"], answer["percent_agreement"], answer["disagreements"]) == (4, 1, [])
    assert (thinking["n"], thinking["percent_agreement"]) == (4, 0.5)
    assert thinking["disagreements"] == ["one", "four"]
    assert answer["kappa"]["n_resamples"] == section().analysis.n_resamples


def test_without_thoughts_there_is_one_stage_and_no_thinking() -> None:
    found = document([record("over_refusal")])
    assert [one["part"] for one in found["stages"]] == ["answer"]
    assert found["thinking"] == []


def test_without_a_judge_and_without_replies_there_is_nothing_to_agree_on() -> None:
    alone = document([record("over_refusal", plan=without_judge())], without_judge())
    assert alone["stages"] == []
    silent = document([record("over_refusal", lambda one: lost(one, "filtered"))])
    (stage,) = silent["stages"]
    assert (stage["n"], stage["kappa"]["value"], stage["disagreements"]) == (0, None, [])


# -- speed


def test_speed_is_of_the_requests_that_could_be_timed() -> None:
    rows = [request(10, 0.2, 1.0), request(30, None, 1.5), request(None, None, None)]
    found = entry(document([record("capability")], speeds={"untouched": timed(*rows)}))["speed"]
    assert (found["n_requests"], found["n_timed"]) == (3, 2)
    assert found["tokens_per_second"]["median"] == 15
    assert found["first_token_seconds"] == {"n": 1, "median": 0.2, "p10": 0.2, "p90": 0.2}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (request(None, None, None), "Speed: not timed."),
        (request(None, None, 2.0), "Speed: 2.00 s a request; nobody counted its tokens."),
        (request(8, None, 2.0), "Speed: 4.0 tokens/s (median of 1 requests"),
    ],
)
def test_what_was_not_timed_or_counted_is_no_number(row: SpeedRow, words: str) -> None:
    assert words in card(
        document([record("capability")], speeds={"untouched": timed(row)}), "untouched"
    )


# -- one axis, one model, nothing


@pytest.mark.parametrize("axis", [*AXES, "harmful"])
def test_one_axis_of_one_model_makes_a_whole_document(axis: str) -> None:
    found = document([record(axis)])
    assert [one["axis"] for one in entry(found)["axes"]] == [axis]
    assert found["weak_discriminators"] == []
    assert all(one["axes"] == [] for one in found["comparisons"])
    assert "No base to compare with" in card(found, "untouched")


def test_a_base_that_did_not_answer_leaves_the_comparison_without_a_number() -> None:
    records = [
        record("capability", model="cautious"),
        record("capability", lambda one: lost(one, "filtered")),
    ]
    found = document(records)
    (row,) = found["comparisons"][0]["axes"]
    assert row["verdict"] == "not_measured"
    assert "not measured for cautious against untouched" in card(found, "cautious")
    assert found["weak_discriminators"] == []


def test_settings_are_those_that_the_numbers_were_made_with() -> None:
    found = document([])["settings"]
    assert (found["n_resamples"], found["seed"], found["minimum_items"]) == (200, 7, 4)


# -- the table of replies


def lines(*records: AskRecord) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(_csv(records).decode())))


def test_a_line_of_the_table_holds_at_most_two_hundred_characters_of_a_reply() -> None:
    long = "A lid,\n" + "x" * 500
    found = lines(record("over_refusal", lambda one: reply(one, long, reasoning="I can help.")))
    assert len(found) == 4
    assert {len(one["excerpt"]) for one in found} == {200}
    assert {one["excerpt"][:10] for one in found} == {"A lid, xxx"}
    assert {(one["status"], one["verdict"], one["keyword"]) for one in found} == {
        ("answered", "refuse", "comply")
    }
    assert {one["thinking_verdict"] for one in found} == {"refuse"}


def test_no_line_of_the_table_is_of_an_axis_that_is_not_kept() -> None:
    assert lines(record("harmful")) == []


def test_a_reply_that_did_not_come_has_no_verdict_in_the_table() -> None:
    found = lines(record("sycophancy", lambda one: lost(one, "filtered")))
    assert {(one["status"], one["verdict"], one["excerpt"]) for one in found} == {
        ("filtered", "", "")
    }
