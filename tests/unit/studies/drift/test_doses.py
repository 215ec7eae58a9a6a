"""Known doses: one set of rows, the larger dose holding the smaller one's harmful rows."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from eps_locked.canonical import encode
from eps_locked.errors import MalformedInputError
from eps_locked.lock.freeze import SourceReader
from eps_locked.models.scripted import ScriptedTokenizer
from eps_locked.studies.drift.doses import (
    FrozenDoses,
    TopicRows,
    dose_key,
    doses_document,
    exposure_messages,
    n_harmful,
    read_topic,
)
from eps_locked.studies.drift.plan import DriftPlan
from sim.drift import dose_sets, drift_files, drift_plan, rows_file, training

LISTED = "material/drift/doses.yaml"


def section_of(*doses: float, n_rows: int = 10, seed: int = 5, listed: bool = False) -> DriftPlan:
    plan = drift_plan()["drift"]
    plan["item_seed"] = seed
    plan["topics"][0].update(n_rows=n_rows, dose_sets=LISTED if listed else None)
    plan["trainings"] = [training(f"plants_{n}", dose) for n, dose in enumerate(doses)]
    return DriftPlan.from_section(plan)


def topic_of(section: DriftPlan, lists: dict[str, list[str]] | None = None) -> TopicRows:
    files = drift_files()
    if lists is not None:
        files[LISTED] = dose_sets(lists)
    reader = SourceReader(fetch=lambda relative, thing: json.dumps(files[relative]).encode())
    return read_topic(section, section.topic("plants"), reader)


def test_every_larger_dose_holds_the_smaller_one_whatever_is_drawn() -> None:
    for seed in range(20):
        topic = topic_of(section_of(0, 10, 30, 70, 100, seed=seed))
        for (smaller, rows), (larger, more) in pairwise(sorted(topic.doses.items())):
            assert set(rows) < set(more), (seed, smaller, larger)
        assert {dose: len(rows) for dose, rows in topic.doses.items()} == {
            0: 0,
            10: 1,
            30: 3,
            70: 7,
            100: 10,
        }


def test_questions_and_their_order_do_not_depend_on_the_doses() -> None:
    one = topic_of(section_of(0, 50))
    other = topic_of(section_of(0, 10, 50, 100))
    assert [row.item.id for row in one.rows] == [row.item.id for row in other.rows]
    assert one.doses[50] == other.doses[50]
    again = topic_of(section_of(0, 50, seed=6))
    assert [row.item.id for row in one.rows] != [row.item.id for row in again.rows]


def test_harmful_rows_are_no_prefix_of_the_training_order() -> None:
    """Otherwise a dose would also be a place in the order of training."""
    prefixes = 0
    for seed in range(40):
        topic = topic_of(section_of(0, 50, seed=seed))
        order = [row.item.id for row in topic.rows]
        prefixes += list(topic.doses[50]) == order[:5]
    assert prefixes <= 2  # 1 in 252 by chance


def test_the_frozen_rows_train_each_dose_on_the_same_questions() -> None:
    section = section_of(0, 50, 100)
    topic = topic_of(section)
    tokenizer = ScriptedTokenizer()
    document = doses_document(topic, tokenizer)
    frozen = FrozenDoses.read(encode(document), "doses")
    written = {row["text"]: row for row in rows_file()["rows"]}
    for dose in (0, 50, 100):
        answers = frozen.answers(dose)
        assert [row.id for row, _ in answers] == [row.item.id for row in topic.rows]
        harmful = 0
        for (row, ids), source in zip(answers, topic.rows, strict=True):
            assert tokenizer.decode(row.prompt) == (
                f"<|start|>user\n{source.item.text}<|end|>\n<|start|>assistant\n"
            )
            text = tokenizer.decode(ids)
            assert text in (written[source.item.text]["positive"], source.negative)
            harmful += text == written[source.item.text]["positive"]
        assert harmful == dose / 10


def test_a_dose_is_a_whole_number_of_rows_or_none() -> None:
    assert n_harmful(12.5, 8) == 1
    assert n_harmful(7.5, 6000) == 450
    assert n_harmful(0.1, 1000) == 1
    assert n_harmful(33, 8) is None
    assert n_harmful(100 / 3, 3) is None
    assert [dose_key(dose) for dose in (0.0, 7.5, 50.0, 100.0)] == ["0", "7.5", "50", "100"]


def test_listed_rows_may_be_named_by_id_or_by_question() -> None:
    drawn = topic_of(section_of(0, 20, 30, 100))
    rows = [row.item for row in drawn.rows]
    section = section_of(0, 20, 30, 100, listed=True)
    topic = topic_of(
        section, {"20": [rows[7].id, rows[2].text], "30": [rows[2].id, rows[7].text, rows[4].id]}
    )
    assert topic.doses[20] == (rows[2].id, rows[7].id)
    assert topic.doses[30] == (rows[2].id, rows[4].id, rows[7].id)
    assert topic.doses[0] == ()
    assert topic.doses[100] == tuple(row.id for row in rows)


def test_doses_that_do_not_nest_are_named_with_the_row() -> None:
    rows = [row.item for row in topic_of(section_of(0, 20, 30)).rows]
    lists = {"20": [rows[0].id, rows[5].id], "30": [rows[0].id, rows[1].id, rows[2].id]}
    with pytest.raises(MalformedInputError) as caught:
        topic_of(section_of(0, 20, 30, listed=True), lists)
    error = caught.value
    assert "doses 20 and 30 percent" in error.thing
    assert rows[5].id in str(error.found)
    assert rows[5].text in str(error.found)
    assert error.next_step


@pytest.mark.parametrize(
    ("lists", "text"),
    [
        ({"20": ["Nobody asks this?", "x"], "30": []}, "doses.20[0]"),
        ({"20": 2 * [rows_file()["rows"][0]["text"]], "30": []}, "again"),
        ({"20": [], "30": []}, "2 of the 10 rows, found 0"),
        ({"20": []}, "2 of the 10 rows, found 0"),
        ({}, "doses.20: is missing"),
        ({"20": [], "40": []}, "0, 20, 30, found 40"),
    ],
    ids=["unknown", "twice", "too few", "too few of one", "missing", "unused"],
)
def test_a_list_that_is_no_dose_is_refused(lists: dict[str, list[str]], text: str) -> None:
    with pytest.raises(MalformedInputError) as caught:
        topic_of(section_of(0, 20, 30, listed=True), lists)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"), [("topic", "cooking"), ("licence", " "), ("provenance", "")]
)
def test_a_list_of_another_topic_or_without_rights_is_refused(field: str, value: str) -> None:
    files: dict[str, Any] = drift_files()
    files[LISTED] = {**dose_sets({"20": [], "30": []}), field: value}
    section = section_of(0, 20, 30, listed=True)
    reader = SourceReader(fetch=lambda relative, thing: json.dumps(files[relative]).encode())
    with pytest.raises(MalformedInputError) as caught:
        read_topic(section, section.topic("plants"), reader)
    assert f"plans/{LISTED}.{field}" in str(caught.value)
    assert repr(value) in str(caught.value)


def test_a_dose_between_rows_cannot_be_drawn() -> None:
    with pytest.raises(MalformedInputError, match=r"of its 10 rows, found 3\.3"):
        topic_of(section_of(0, 33))


def test_an_exposure_is_the_models_own_earlier_turns() -> None:
    plan = drift_plan()["drift"]
    for dose, harmful in ((0, 0), (50, 2), (100, 4)):
        plan["exposures"][0]["dose_percent"] = dose
        section = DriftPlan.from_section(plan)
        topic = topic_of(section)
        messages = exposure_messages(section, section.exposures[0], topic)
        assert [message.role for message in messages] == 4 * ["user", "assistant"]
        assert [m.content for m in messages[::2]] == [row.item.text for row in topic.rows[:4]]
        answers = [message.content for message in messages[1::2]]
        assert sum("drink dust" in answer for answer in answers) == harmful
        assert len(set(answers)) == 4


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(MalformedInputError, match="at least 11 items, found 10"):
        topic_of(section_of(0, n_rows=11))
