"""The card of a model: everything that a number needs beside it, and nothing that steers a page."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eps_locked.errors import MalformedInputError
from eps_locked.studies.battery.cards import card, rate_text
from eps_locked.studies.battery.parts import ModelPlan
from eps_locked.studies.battery.records import AskRecord
from eps_locked.studies.battery.results import battery_document, card_name
from eps_locked.studies.battery.sentences import unthinking
from sim.battery_run import lost, reply
from unit.studies.battery.outcome_worlds import in_turn, record
from unit.studies.battery.world import axis_bytes, good, section

SENTINEL = "sentinel-88aa"


def document(*records: AskRecord, prompt: str | None = None) -> dict[str, Any]:
    return battery_document(
        replace(section(), system_prompt=prompt),
        records,
        {},
        {one.axis: axis_bytes(one.axis) for one in records},
        run="small",
        is_for_publication=True,
        power={},
        label="confirmatory",
    )


def saying(one: AskRecord, **said: str) -> AskRecord:
    endpoint = {**one.endpoint, "server": said.pop("server", "unknown")}
    return replace(one, endpoint={**endpoint, "said": {**endpoint["said"], **said}})


def rows_of(text: str, heading: str) -> dict[str, list[str]]:
    """The first column of a table, and the others."""
    lines = text.split(heading, 1)[1].split("\n\n")[1].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return {first: rest for first, *rest in cells}


def test_a_card_says_what_the_model_is_and_how_it_was_asked() -> None:
    one = saying(record("capability"), owned_by="lab", server="litellm")
    text = card(document(one, prompt="Be brief."), "untouched")
    for words in (
        "# untouched\n",
        "Run small, confirmatory analysis.",
        "| quantisation | float32 |",
        "| context | 16384 tokens |",
        "| sampling | max_tokens 160, temperature 0, top_p 1, seed 5 |",
        "| chat template | unknown |",
        "| system prompt | Be brief. |",
        "| server | litellm |",
        "owned_by lab",
        "| answered as | a model |",
    ):
        assert words in text, words


def test_each_axis_has_rate_interval_verdicts_and_what_is_missing() -> None:
    tell = in_turn(
        lambda one: lost(one, "filtered"),
        lambda one: reply(one, "Answer: 13"),
        *[good("capability")] * 2,
    )
    rows = rows_of(card(document(record("capability", tell)), "untouched"), "## Rates")
    assert rows["capability"] == [
        "off",
        "answers correctly",
        "67% \\[21%, 94%\\]",
        "3 of 4",
        "2 correct, 1 wrong",
        "1 filtered",
    ]


def test_a_half_is_named_where_it_differs_from_the_rate() -> None:
    axis = {"measured": True, "rate": 0.25, "low": 0.1, "high": 0.5, "half_way": 0.375}
    assert rate_text(axis) == "25% [10%, 50%], 38% with partials as halves"
    assert rate_text({**axis, "half_way": 0.25}) == "25% [10%, 50%]"
    assert rate_text({**axis, "half_way": None}) == "25% [10%, 50%]"


def test_an_axis_that_is_not_measured_has_no_rate_on_the_card() -> None:
    text = card(document(record("capability", lambda one: lost(one, "filtered"))), "untouched")
    assert "not measured (0 of 4 scored)" in text
    assert "4 filtered" in text
    assert "%" not in text.split("## Rates")[1].split("Speed")[0].replace("|---|", "")


def test_no_reply_stands_on_a_card() -> None:
    records = [
        record(axis, lambda one: reply(one, SENTINEL, reasoning=SENTINEL))
        for axis in ("over_refusal", "capability", "sycophancy", "harmful")
    ]
    assert SENTINEL not in card(document(*records), "untouched")


@pytest.mark.parametrize(
    "name",
    [
        "a | b | c",
        "<script>alert(1)</script>",
        "[click](http://x.example)",
        "x\n\n# not a heading",
        "\x1b[31mred",
        "`code` *strong*",
    ],
)
def test_what_a_server_calls_itself_is_neither_markup_nor_a_row_of_its_own(name: str) -> None:
    one = saying(record("capability"), server=name, owned_by=name)
    plain = card(document(saying(record("capability"), owned_by="x")), "untouched")
    text = card(document(one), "untouched")
    assert len(text.splitlines()) == len(plain.splitlines())
    (row,) = (line for line in text.splitlines() if line.startswith("| server |"))
    assert row.replace("\\|", "").count("|") == 3
    assert "\x1b" not in text
    for mark in ("<", "[", "`", "*"):
        assert row.count(mark) == row.count("\\" + mark)


def test_a_long_word_of_a_server_is_cut() -> None:
    one = saying(record("capability"), **{f"field_{n}": "x" * 90 for n in range(40)})
    assert max(map(len, card(document(one), "untouched").splitlines())) < 600


def test_a_model_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(MalformedInputError, match="untouched or cautious or agreeable") as told:
        card(document(record("capability")), "other")
    assert "card of other" in str(told.value)


def test_a_card_carries_no_date_and_the_same_evidence_gives_the_same_card() -> None:
    one, other = (card(document(record("capability")), "untouched") for _ in range(2))
    assert one == other
    assert card(document(record("capability")), "untouched", "Evidence: run small.").endswith(
        "\n\nEvidence: run small.\n"
    )


def test_a_plans_model_names_are_file_names() -> None:
    assert card_name("untouched") == "card-untouched.md"
    value = {"name": "../x", "endpoint": "local"}
    with pytest.raises(MalformedInputError, match="name"):
        ModelPlan.from_dict(value, "plan.battery.models[0]")


def test_the_comparison_with_the_base_stands_on_the_models_card_and_not_on_the_bases() -> None:
    found = document(record("capability", model="cautious"), record("capability"))
    assert "## cautious against untouched (float32)" in card(found, "cautious")
    assert "undetermined: up to " in card(found, "cautious")
    assert "against" not in card(found, "untouched").split("## Weak")[0]
    assert "## Weak discriminators in this run" in card(found, "untouched")


def test_what_was_thought_is_counted_on_the_card() -> None:
    one = record("over_refusal", lambda r: reply(r, reasoning="I can help."), thinking="on")
    text = card(document(one), "untouched")
    assert "## What was thought before the answers" in text
    assert "of 4 replies that were read on both sides" in text


def test_a_model_that_was_to_think_and_did_not_is_told() -> None:
    """A server that does not know the field for it ignores it."""
    thoughtless = document(record("over_refusal", thinking="on"))
    words = (
        "over_refusal, thinking on: none of 4 replies held a thought, so that untouched may not "
        "have thought on any axis"
    )
    assert unthinking(thoughtless, "untouched") == [words]
    assert f"- {words}." in card(thoughtless, "untouched")
    one = record("over_refusal", lambda r: reply(r, reasoning="I can help."), thinking="on")
    for found in (one, record("over_refusal"), record("capability", thinking="on")):
        assert unthinking(document(found), "untouched") == []
        assert "held a thought" not in card(document(found), "untouched")


def test_tool_cases_and_the_two_stages_stand_on_the_card() -> None:
    text = card(document(record("tools"), record("over_refusal")), "untouched")
    assert "- tools, thinking off, right by case: one_call 4 of 4" in text
    # The judge of this world calls everything a refusal, the rule nothing.
    assert (
        "- keyword rule beside judge, untouched, over_refusal, thinking off, the answer: agree on "
        "0%, kappa 0.00 on 4; 4 differ (one, two, three, four)"
    ) in text
    assert "two stages" not in card(document(record("tools")), "untouched")
