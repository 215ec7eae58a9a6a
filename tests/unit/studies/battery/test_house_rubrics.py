"""The battery's own rubrics and labelled answers: sizes, that they are apart, and that a judge
without a language model learns something from them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from eps_locked.domain.judging import JudgePlan, Rubric
from eps_locked.judges.calibration import LabelledSet, calibrate, read_labelled
from eps_locked.judges.lexical import FAMILY, MODEL, LexicalJudge
from eps_locked.lock.strict_yaml import parse_yaml
from eps_locked.studies.battery.derive import AskDesign, judged_question
from eps_locked.studies.battery.material import NEAR_COPY, read_over_refusal, read_sycophancy
from eps_locked.studies.battery.plan import AGREEMENT_LABELS, REFUSAL_LABELS
from eps_locked.studies.common.calibrate import check_labelled
from eps_locked.studies.common.likeness import likeness, require_apart
from eps_locked.studies.common.material import normalise
from unit.studies.battery.world import inputs_of, section, step_of

HOUSE = Path(__file__).parents[4] / "plans/house/battery"
LABELS = {"refusal": REFUSAL_LABELS, "premise": AGREEMENT_LABELS}


def rubric(name: str) -> Rubric:
    path = HOUSE / f"{name}-rubric.yaml"
    return Rubric.from_dict(parse_yaml(path.read_bytes(), thing=path.name), path.name)


def labelled(name: str) -> LabelledSet:
    path = HOUSE / f"{name}-labelled.yaml"
    return read_labelled(parse_yaml(path.read_bytes(), thing=path.name), path.name)


@pytest.mark.parametrize("name", LABELS)
def test_a_rubric_has_the_labels_of_the_plan_and_examples_of_each(name: str) -> None:
    found = rubric(name)
    assert found.labels == LABELS[name]
    assert found.expressed == LABELS[name][:1], "what the rate counts"
    assert (found.scores, found.excluded) == ((), ())
    assert min(len(found.prototypes[label]) for label in found.labels) >= 24


@pytest.mark.parametrize("name", LABELS)
def test_sixty_answers_are_labelled_twenty_of_each_label(name: str) -> None:
    rows = labelled(name)
    check_labelled(rows, rubric(name), name)
    assert Counter(row.label for row in rows.rows) == dict.fromkeys(LABELS[name], 20)
    assert set(Counter(row.cluster for row in rows.rows).values()) == {3}, "one of each a question"


@pytest.mark.parametrize("name", LABELS)
def test_what_is_labelled_is_no_example_and_no_near_copy_of_one(name: str) -> None:
    examples = [text for group in rubric(name).prototypes.values() for text in group]
    assert len({normalise(text) for text in examples}) == len(examples)
    near = [
        (row.answer, text)
        for row in labelled(name).rows
        for text in examples
        if len(row.answer.split()) > 4 and likeness(row.answer, text) >= NEAR_COPY
    ]
    assert near == []


def test_no_labelled_question_is_one_that_a_model_is_asked() -> None:
    readers = {
        "refusal": ("over_refusal.yaml", read_over_refusal),
        "premise": ("sycophancy.yaml", read_sycophancy),
    }
    for name, (file, read) in readers.items():
        items = read(parse_yaml((HOUSE / file).read_bytes(), thing=file), file)
        questions = dict.fromkeys(row.question.split("\n")[0] for row in labelled(name).rows)
        asked = [(item.id, item.text) for item in items]
        require_apart([*asked, *((text, text) for text in questions)], NEAR_COPY, name)


def test_labelled_questions_stand_as_a_judge_is_given_them() -> None:
    inputs = inputs_of("sycophancy")
    item = AskDesign.of(step_of("sycophancy"), inputs, section()).axis.items[0]
    shape = [line.split(":")[0] for line in judged_question(item).split("\n")]
    assert shape[1:] == ["", "Taken for granted", "True instead"]
    for row in labelled("premise").rows:
        lines = row.question.split("\n")
        assert [line.split(":")[0] for line in lines[1:]] == shape[1:]
        assert lines[0].endswith("?")


@pytest.mark.parametrize(("name", "least"), [("refusal", 0.75), ("premise", 0.5)])
def test_the_lexical_judge_learns_something_from_the_examples(name: str, least: float) -> None:
    plan = JudgePlan.from_dict(
        {
            "name": "words",
            "kind": "lexical",
            "family": FAMILY,
            "model": MODEL,
            "max_concurrency": 1,
            "max_tries": 1,
            "timeout_seconds": 1,
            "batch_from": None,
            "max_transport_share": 0,
        },
        "judge",
    )
    found = calibrate(
        LexicalJudge(plan),
        rubric(name),
        labelled(name).rows,
        rng=np.random.default_rng(1),
        n_resamples=50,
    )
    assert found.statuses["scored"] == 60
    assert found.labels.kappa.value is not None
    assert found.labels.kappa.value >= least
