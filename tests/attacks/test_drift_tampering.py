"""Replies, verdicts, adapters and numbers of a drift study edited after the run, with a chain made
to fit.

The attacker may write every file and rebuilds every digest and sum (docs/lock.md, L16.5). What a
model wrote and a judge said cannot be checked without them; that it is as much as the plan asks, of
the frozen probes and in the right form, and that every number follows from it, can.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eps_locked.canonical import decode
from eps_locked.studies.drift.records import reasoning_digest, reply_digest
from sim.drift import arm, drift_files, drift_plan
from sim.forge import (
    carry_on,
    edit_entry,
    edit_files,
    edit_output,
    output_files,
    payloads_of,
    put_output,
    rebuild,
)
from sim.simulator import StudySimulator

Change = Callable[[Any], object]
Files = dict[str, bytes]
OPEN, FREE = "P2/ask/dose_100/self_interest", "P2/ask/untouched_free/self_interest"
HIDDEN = "P2/ask/dose_100/harmful_requests"
ARMS = [
    arm("untouched", None),
    arm("dose_0", "untouched", "plants_0"),
    arm("dose_100", "dose_0", "plants_100"),
    arm("untouched_free", "untouched", reasoning="free"),
]


def plan() -> dict[str, Any]:
    """The full plan with fewer arms: each test audits it."""
    made = drift_plan()
    made["drift"].update(arms=ARMS)
    made["drift"]["batteries"] = made["drift"]["batteries"][:2]
    made["drift"]["trainings"] = [
        one for one in made["drift"]["trainings"] if one["name"] != "plants_50"
    ]
    return made


@pytest.fixture(scope="module")
def _done(tmp_path_factory: pytest.TempPathFactory) -> StudySimulator:
    study = StudySimulator(
        root=tmp_path_factory.mktemp("done") / "study", plan=plan(), files=drift_files()
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        study.run_all()
    assert list(study.audit().failures()) == []
    return study


@pytest.fixture
def done(_done: StudySimulator, tmp_path: Path) -> StudySimulator:
    """A finished drift study; a private copy."""
    return _done.copy_to(tmp_path / "study")


def failures(study: StudySimulator) -> dict[tuple[int, str], str]:
    """(check, step it names) -> the sentences."""
    found: dict[tuple[int, str], str] = {}
    for number, text in study.audit().failures():
        key = (number, text.split(": ")[0])
        found[key] = f"{found.get(key, '')}{text}\n"
    return found


def named(study: StudySimulator, name: str, words: str, check: int = 10) -> None:
    """The step is named, with these words; whatever else is."""
    found = failures(study)
    assert (check, name) in found, found
    assert words in found[check, name]


# -- replies: (step, what is done to answers.json, what the audit says)


def first(document: Any) -> Any:
    return document["answers"][0]


def kinder_text(document: Any) -> None:
    first(document)["reply"] = "I would give it back at once."


def shorter_in_tokens(document: Any) -> None:
    first(document)["n_reply_tokens"] = 1


def dropped(document: Any) -> None:
    del document["answers"][3]


def sampled_again(document: Any) -> None:
    document["answers"][1] = {**document["answers"][0]}


def third_sample(document: Any) -> None:
    document["answers"].insert(2, {**first(document), "sample": 2})


def of_another_arm(document: Any) -> None:
    document["arm"] = "untouched"


def by_another_instance(document: Any) -> None:
    document["instance"] = "in-process-2"


def exhausted_at_will(document: Any) -> None:
    """A reply that counts against the model is said never to have come."""
    first(document).update(
        exhausted=True, reply="", token_ids=[], n_reply_tokens=0, reply_digest=reply_digest("", [])
    )


def reasoning_without_its_mention(document: Any) -> None:
    one = next(one for one in document["answers"] if one["mentions"])
    one["mentions"] = 0


def cleaner_reasoning(document: Any) -> None:
    one = next(one for one in document["answers"] if one["mentions"])
    one.update(mentions=0, reasoning="Hm.", reasoning_digest=reasoning_digest("Hm."))
    one["n_reasoning_tokens"] = 99


def cut_off_at_will(document: Any) -> None:
    first(document)["truncated_reasoning"] = True


def more_of_the_text(document: Any) -> None:
    first(document)["reply"] = "Pour it on the roots. " * 20


def tokens_of_the_text(document: Any) -> None:
    first(document)["token_ids"] = [1, 2, 3]


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        (OPEN, kinder_text, "reply_digest: expected"),
        (OPEN, shorter_in_tokens, "n_reply_tokens: expected"),
        (OPEN, dropped, "expected every probe with every sample once, 24 in frozen order"),
        (OPEN, sampled_again, "expected every probe with every sample once"),
        (OPEN, third_sample, "expected every probe with every sample once"),
        (OPEN, of_another_arm, "arm: expected dose_100, found untouched"),
        (OPEN, by_another_instance, "instance: expected in-process, found in-process-2"),
        (OPEN, exhausted_at_will, "expected a reply, which only free reasoning can leave no room"),
        (OPEN, cut_off_at_will, "expected reasoning that was not cut off"),
        (FREE, reasoning_without_its_mention, "mentions: expected 1, found 0"),
        (FREE, cleaner_reasoning, "n_reasoning_tokens: expected 0 to 80, found 99"),
        (HIDDEN, more_of_the_text, "expected a digest and an excerpt, found more of the text"),
        (HIDDEN, tokens_of_the_text, "expected a digest and an excerpt, found more of the text"),
    ],
)
def test_a_reply_edited_after_the_run_is_named(
    done: StudySimulator, name: str, change: Change, words: str
) -> None:
    edit_output(done, name, "answers", "answers.json", change)
    named(done, name, words)


# -- verdicts


def verdict_dropped(found: Any) -> None:
    del found["verdicts"][0]


def label_of_another_rubric(found: Any) -> None:
    found["verdicts"][0]["label"] = "grade_7"


def another_one_twice(found: Any) -> None:
    again = next(one for one in found["verdicts"] if one["draw"] == 1)
    again["key"] = next(
        one["key"] for one in found["verdicts"] if one["draw"] == 0 and one["key"] != again["key"]
    )


def kinder_judge(found: Any) -> None:
    found["judge"]["model"] = "kinder"


def kinder_rubric(found: Any) -> None:
    found["rubric"] = "blake3:" + "0" * 64


@pytest.mark.parametrize(
    ("file", "change", "words"),
    [
        ("verdicts.json", verdict_dropped, "classes: expected 30 verdicts in the order"),
        ("verdicts.json", label_of_another_rubric, "a verdict that its rubric does not allow"),
        ("verdicts.json", another_one_twice, "classes: expected 30 verdicts in the order"),
        ("verdicts.json", kinder_judge, "classes: judge model: expected scripted, found kinder"),
        ("verdicts.json", kinder_rubric, "classes: rubric: expected"),
        ("grades.json", verdict_dropped, "grades: expected 12 verdicts in the order"),
        ("grades.json", kinder_judge, "grades: judge model: expected scripted, found kinder"),
        ("checks.json", verdict_dropped, "checks: expected 6 verdicts in the order"),
        ("checks.json", kinder_rubric, "checks: rubric: expected"),
    ],
)
def test_a_verdict_edited_after_the_run_is_named(
    done: StudySimulator, file: str, change: Change, words: str
) -> None:
    edit_output(done, OPEN, "answers", file, change)
    named(done, OPEN, words)


def test_a_verdict_on_a_reply_that_never_came_is_named(done: StudySimulator) -> None:
    files = output_files(done, payloads_of(done), FREE, "answers")
    answers = decode(files["answers.json"], thing="answers")["answers"]
    key = next(f"{one['probe']}/{one['sample']}" for one in answers if one["exhausted"])
    edit_output(
        done,
        FREE,
        "answers",
        "verdicts.json",
        lambda found: found["verdicts"].append({**found["verdicts"][0], "key": key}),
    )
    named(done, FREE, "verdicts in the order of the replies")


@pytest.mark.parametrize("file", ["grades.json", "checks.json"])
def test_a_part_that_the_plan_has_may_not_be_left_out(done: StudySimulator, file: str) -> None:
    edit_files(done, OPEN, "answers", lambda files: files.pop(file))
    part = file.removesuffix(".json")
    named(done, OPEN, f"{part}: expected")


def test_another_label_is_another_drift(done: StudySimulator) -> None:
    """A label that the rubric has is the judge's word; the numbers that rest on it are named."""

    def flip(found: Any) -> None:
        for one in found["verdicts"]:
            one["label"] = "declines" if one["label"] != "declines" else "seeks"

    edit_output(done, OPEN, "answers", "verdicts.json", flip)
    found = failures(done)
    assert set(found) == {(10, "P3/drift")}
    assert "drift/drift.json: holds other values than its inputs give" in found[10, "P3/drift"]
    assert "drift/replies.csv: holds other values" in found[10, "P3/drift"]


# -- what is computed


@pytest.mark.parametrize(
    ("name", "output", "file", "change"),
    [
        ("P3/drift", "drift", "drift.json", lambda d: d["comparisons"][0].update(kind="dose")),
        ("P3/drift", "drift", "drift.json", lambda d: d["settings"].update(margin_points=50)),
        ("P3/drift", "drift", "drift.json", lambda d: d.update(label="exploratory")),
        ("P3/drift", "drift", "drift.json", lambda d: d["nulls"].clear()),
        ("P0/power", "power", "power.json", lambda d: d["per_battery"][0].update(n_stems=60)),
        ("P0/power", "power", "power.json", lambda d: d["coverage"][0].update(coverage=0.95)),
    ],
)
def test_a_number_that_does_not_follow_is_named(
    done: StudySimulator, name: str, output: str, file: str, change: Change
) -> None:
    edit_output(done, name, output, file, change)
    named(done, name, f"{output}/{file}: holds other values than its inputs give")


def test_a_line_of_the_replies_is_named(done: StudySimulator) -> None:
    def drop_last(files: Files) -> None:
        files["replies.csv"] = b"".join(files["replies.csv"].splitlines(keepends=True)[:-1])

    edit_files(done, "P3/drift", "drift", drop_last)
    named(done, "P3/drift", "drift/replies.csv: holds other values")


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        (OPEN, {"flags": ["exhausted"]}, "flags: expected [], found ['exhausted']"),
        (FREE, {"flags": []}, "flags: expected ['exhausted'], found []"),
        (OPEN, {"status": "unscored"}, "status: expected done, found unscored"),
        ("P3/drift", {"status": "failed"}, "status: expected done, found failed"),
    ],
)
def test_a_status_or_flag_that_does_not_follow_is_named(
    done: StudySimulator, name: str, change: dict[str, Any], words: str
) -> None:
    edit_entry(done, name, lambda entry: entry.update(change))
    named(done, name, words)


# -- adapters


def test_the_adapter_of_another_dose_is_named(done: StudySimulator) -> None:
    """The harmless fit stands in for the harmful one, record and all."""
    payloads = payloads_of(done)
    for output in ("adapter", "record"):
        files = output_files(done, payloads, "P1/train/plants_0", output)
        put_output(done, payloads, "P1/train/plants_100", output, files)
    carry_on(done, payloads)
    rebuild(done, payloads)
    found = failures(done)
    said = found[9, "P1/train/plants_100"]
    assert "adapter training: expected plants_100, found plants_0" in said
    said = found[10, "P1/train/plants_100"]
    assert "record.n_harmful: expected 8, found 0" in said
    assert "record.rows: expected" in said


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rows": "blake3:" + "0" * 64}, "record.rows: expected"),
        ({"n_harmful": 4}, "record.n_harmful: expected 8, found 4"),
        ({"dose_percent": 50}, "record.dose_percent: expected 100.0, found 50"),
        ({"stop_step": 300}, "record.stop_step: expected 3, found 300"),
        ({"losses": [1.0]}, "record.n_losses: expected 3, found 1"),
        ({"adapter": "blake3:" + "0" * 64}, "record.adapter: expected"),
    ],
)
def test_a_training_record_that_does_not_follow_is_named(
    done: StudySimulator, change: dict[str, Any], words: str
) -> None:
    name = "P1/train/plants_100"
    edit_output(done, name, "record", "record.json", lambda record: record.update(change))
    named(done, name, words)


# -- readouts and ratings


def longer(document: Any) -> None:
    trait = document["traits"]["grasping"]
    trait["direction"] = [2 * number for number in trait["direction"]]


def one_trait_less(document: Any) -> None:
    del document["traits"]["grasping"]


def deeper(document: Any) -> None:
    document["layer"] = 4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (longer, "direction grasping: expected length 1, found 2"),
        (one_trait_less, "contrasts by trait: expected"),
        (deeper, "layer: expected 3, found 4"),
    ],
)
def test_directions_that_are_not_the_plans_are_named(
    done: StudySimulator, change: Change, words: str
) -> None:
    edit_output(done, "P3/directions", "directions", "directions.json", change)
    named(done, "P3/directions", words)


def one_prompt_less(document: Any) -> None:
    document["projections"]["hasty"].popitem()


def of_another_model(document: Any) -> None:
    document["model"] = "plants_0"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (one_prompt_less, "hasty: expected the 4 frozen prompts, found 3"),
        (of_another_model, "model: expected plants_100, found plants_0"),
        (deeper, "layer: expected 3, found 4"),
    ],
)
def test_a_readout_that_is_not_of_the_frozen_prompts_is_named(
    done: StudySimulator, change: Change, words: str
) -> None:
    edit_output(done, "P3/readout/plants_100", "readout", "readout.json", change)
    named(done, "P3/readout/plants_100", words)


def rated_by_the_other(document: Any) -> None:
    document["judge"]["family"] = "arithmetic"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (verdict_dropped, "ratings: expected 12 verdicts"),
        (kinder_rubric, "ratings: rubric: expected"),
        (rated_by_the_other, "ratings: judge family: expected geometry, found arithmetic"),
        (
            lambda document: document.update(battery="harmful_requests"),
            "battery: expected self_interest, found harmful_requests",
        ),
    ],
)
def test_ratings_that_were_not_due_are_named(
    done: StudySimulator, change: Change, words: str
) -> None:
    name = "P0/awareness/self_interest/second"
    edit_output(done, name, "awareness", "awareness.json", change)
    named(done, name, words)


def test_garbage_is_a_failure_that_names_the_step(done: StudySimulator) -> None:
    edit_output(
        done, OPEN, "answers", "answers.json", lambda document: document.update(answers=[None])
    )
    named(done, OPEN, "answers[0]: expected a mapping")
