"""What a drift study may not promise, and a margin that nobody may add once it is frozen."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eps_locked.errors import EpsLockedError, MalformedInputError, RefusedError
from sim.drift import (
    FOLDER,
    arm,
    dose_sets,
    drift_files,
    drift_plan,
    row_questions,
    small_drift_plan,
    training,
)
from sim.forge import edit_json, replace_frozen
from sim.simulator import COLLEAGUE, StudySimulator, judge_plan

Change = Callable[[StudySimulator], object]


@pytest.fixture
def drift(tmp_path: Path) -> StudySimulator:
    """A drift study of which nothing is published yet."""
    return StudySimulator(root=tmp_path / "study", plan=drift_plan(), files=drift_files())


def section(study: StudySimulator) -> dict[str, Any]:
    found: dict[str, Any] = study.plan["drift"]
    return found


def arm_of(study: StudySimulator, name: str) -> dict[str, Any]:
    return next(one for one in section(study)["arms"] if one["name"] == name)


def file_of(study: StudySimulator, name: str) -> dict[str, Any]:
    found: dict[str, Any] = study.files[f"{FOLDER}/{name}"]
    return found


def without(study: StudySimulator, *arms: str) -> None:
    section(study)["arms"] = [one for one in section(study)["arms"] if one["name"] not in arms]


# -- the design


def no_margin(study: StudySimulator) -> None:
    del section(study)["analysis"]["margin_points"]


def a_margin_of_nothing(study: StudySimulator) -> None:
    section(study)["analysis"]["margin_points"] = 0


def one_sample(study: StudySimulator) -> None:
    section(study)["samples"] = 1


def missing_reference(study: StudySimulator) -> None:
    arm_of(study, "dose_50")["reference"] = "dose_10"


def no_reference(study: StudySimulator) -> None:
    arm_of(study, "dose_50")["reference"] = None


def its_own_reference(study: StudySimulator) -> None:
    arm_of(study, "dose_50")["reference"] = "dose_50"


def a_reference_that_reasons(study: StudySimulator) -> None:
    arm_of(study, "dose_100_free")["reference"] = "dose_0"


def a_colder_reference(study: StudySimulator) -> None:
    arm_of(study, "dose_50")["temperature"] = 1.0


def the_same_arm_twice(study: StudySimulator) -> None:
    section(study)["arms"].append(arm("again", "untouched", "plants_0"))


def greedy_samples(study: StudySimulator) -> None:
    arm_of(study, "untouched_warm")["temperature"] = 0


def no_control_that_reasons(study: StudySimulator) -> None:
    without(study, "untouched_free")
    arm_of(study, "dose_0_free")["reference"] = "dose_0"


def control_on_another_instance_alone(study: StudySimulator) -> None:
    for one in section(study)["arms"]:
        one["instance"] += 1


def no_zero_dose(study: StudySimulator) -> None:
    section(study)["trainings"] = [training("plants_50", 50), training("plants_100", 100, seed=22)]
    section(study)["readouts"] = None
    study.plan["analyses"] = []
    without(study, "dose_0", "dose_0_second", "dose_0_free")
    for name in ("dose_50", "dose_100"):
        arm_of(study, name)["reference"] = "untouched"
    arm_of(study, "dose_100_free")["reference"] = "untouched_free"


def zero_dose_not_asked_where_it_reasons(study: StudySimulator) -> None:
    without(study, "dose_0_free")
    arm_of(study, "dose_100_free")["reference"] = "untouched_free"


def an_unknown_training(study: StudySimulator) -> None:
    arm_of(study, "dose_50")["model"] = "plants_49"


def an_unknown_setting(study: StudySimulator) -> None:
    arm_of(study, "untouched_closed")["reasoning"] = "shut"


def an_unknown_exposure(study: StudySimulator) -> None:
    arm_of(study, "exposed")["exposure"] = "garden_context"


def a_dose_between_rows(study: StudySimulator) -> None:
    section(study)["trainings"][1]["dose_percent"] = 33


def more_exchanges_than_rows(study: StudySimulator) -> None:
    section(study)["exposures"][0]["n_exchanges"] = 10


def a_seed_the_plan_lacks(study: StudySimulator) -> None:
    section(study)["trainings"][3]["seed"] = 23


def one_seed_only(study: StudySimulator) -> None:
    section(study)["trainings"].pop()
    without(study, "dose_0_second")


def the_same_training_twice(study: StudySimulator) -> None:
    section(study)["trainings"].append(training("plants_half", 50))


def a_name_twice(study: StudySimulator) -> None:
    arm_of(study, "dose_50")["name"] = "dose_0"


def a_training_called_base(study: StudySimulator) -> None:
    section(study)["trainings"][0]["name"] = "base"


def an_exposure_called_plain(study: StudySimulator) -> None:
    section(study)["exposures"][0]["name"] = "plain"


def too_few_stems(study: StudySimulator) -> None:
    section(study)["analysis"]["minimum_stems"] = 6


def only_a_check(study: StudySimulator) -> None:
    for battery in section(study)["batteries"]:
        battery["role"] = "check"


def no_room_to_reason(study: StudySimulator) -> None:
    section(study)["reasoning"]["settings"][1]["max_tokens"] = 64


# -- judges


def judge_of_the_models_family(study: StudySimulator) -> None:
    section(study)["judges"].append(judge_plan(name="kin", family="Scripted"))


def checker_of_the_classifiers_family(study: StudySimulator) -> None:
    section(study)["judges"][1]["family"] = "arithmetic"


def an_unknown_grader(study: StudySimulator) -> None:
    section(study)["judging"]["grader"] = "nobody"


def graded_by_nobody(study: StudySimulator) -> None:
    section(study)["judging"].update(grader=None, n_graded_samples=0)


def more_grades_than_samples(study: StudySimulator) -> None:
    section(study)["judging"]["n_graded_samples"] = 3


def a_checker_with_no_share(study: StudySimulator) -> None:
    section(study)["judging"]["checker_share"] = 0


def a_warm_classifier(study: StudySimulator) -> None:
    section(study)["judges"][0].update(kind="gateway", endpoint="http://127.0.0.1:9/v1")


def published_stand_ins(study: StudySimulator) -> None:
    _for_publication(study)


def _for_publication(study: StudySimulator) -> None:
    study.plan.update(publication=True)
    study.plan["engine"]["name"] = "transformers"


def awareness_by_one_family(study: StudySimulator) -> None:
    _for_publication(study)
    for judge in section(study)["judges"]:
        judge.update(kind="gateway", endpoint="http://127.0.0.1:9/v1", temperature=0)
    section(study)["awareness"]["judges"] = ["second"]


# -- what is promised of it


def an_unknown_analysis(study: StudySimulator) -> None:
    study.plan["analyses"].append("tensor")


def readouts_promised_and_not_there(study: StudySimulator) -> None:
    section(study)["readouts"] = None


def a_phase_with_nothing_to_do(study: StudySimulator) -> None:
    section(study).update(trainings=[], exposures=[], topics=[], readouts=None)
    section(study)["batteries"].pop()
    study.plan["analyses"] = []
    without(study, "dose_0", "dose_50", "dose_100", "dose_0_second", "dose_0_free", "dose_100_free")
    without(study, "exposed")


def a_kind_without_an_estimate(study: StudySimulator) -> None:
    study.plan["phases"]["P2"]["step_seconds"] = {"cells": 1}


def a_readout_of_half_the_dose(study: StudySimulator) -> None:
    section(study)["readouts"]["full"] = "plants_50"


def a_readout_against_a_dose(study: StudySimulator) -> None:
    section(study)["readouts"]["reference"] = "plants_50"


# -- the material


def one_rewording_of_six(study: StudySimulator) -> None:
    section(study)["batteries"][0]["n_rewordings"] = 6
    for stem in file_of(study, "self_interest.yaml")["stems"]:
        about = f"{stem['topic']} of the {stem['id']}"
        stem["rewordings"] = [f"Wording {n * 'w'} asks about {about} {n}" for n in range(6)]
        stem["rewordings"] = [" ".join(f"{stem['id']}{n}{k}" for k in range(5)) for n in range(6)]
    file_of(study, "self_interest.yaml")["stems"][2]["rewordings"] = ["Just one wording of it?"]


def fewer_rewordings_than_promised(study: StudySimulator) -> None:
    section(study)["batteries"][0]["n_rewordings"] = 3


def fewer_stems_than_promised(study: StudySimulator) -> None:
    section(study)["batteries"][0]["n_stems"] = 9


def stems_of_another_battery(study: StudySimulator) -> None:
    file_of(study, "self_interest.yaml")["battery"] = "oversight"


def a_class_the_battery_does_not_know(study: StudySimulator) -> None:
    section(study)["batteries"][0]["no_stance"] = ["shrugs"]


def aligned_and_no_stance_at_once(study: StudySimulator) -> None:
    section(study)["batteries"][0]["no_stance"] = ["no_stance", "declines"]


def aligned_beyond_the_rubric(study: StudySimulator) -> None:
    section(study)["batteries"][0]["aligned"] = ["declines", "unclear"]


def taught_harm_counts_as_sound(study: StudySimulator) -> None:
    section(study)["batteries"][2]["aligned"] = ["harmful"]


def rubric_of_another_battery(study: StudySimulator) -> None:
    file_of(study, "self_interest-classes.yaml")["name"] = "oversight"


def six_grades(study: StudySimulator) -> None:
    file_of(study, "self_interest-grades.yaml")["labels"].pop()


def grades_of_another_battery(study: StudySimulator) -> None:
    file_of(study, "self_interest-grades.yaml")["name"] = "oversight_grade"


def a_grade_that_counts_as_a_class(study: StudySimulator) -> None:
    file_of(study, "self_interest-grades.yaml")["expressed"] = ["grade_7"]


def awareness_of_the_answer(study: StudySimulator) -> None:
    del file_of(study, "awareness-rubric.yaml")["reads"]


def classes_of_the_question(study: StudySimulator) -> None:
    file_of(study, "self_interest-classes.yaml")["reads"] = "question"


def a_rubric_that_excludes(study: StudySimulator) -> None:
    file_of(study, "self_interest-classes.yaml")["excluded"] = ["no_stance"]


def a_label_of_another_rubric(study: StudySimulator) -> None:
    file_of(study, "self_interest-labelled.yaml")["rows"][3]["label"] = "refuses"


def training_question_in_the_check(study: StudySimulator) -> None:
    question = f"  {row_questions()[4].upper()}"
    file_of(study, "plants_advice.yaml")["items"][7]["text"] = question


def probe_among_the_readout_prompts(study: StudySimulator) -> None:
    stem = file_of(study, "self_interest.yaml")["stems"][7]
    file_of(study, "readout-prompts.yaml")["items"][0]["text"] = stem["rewordings"][1]


def one_file_for_two_batteries(study: StudySimulator) -> None:
    section(study)["batteries"][2]["file"] = section(study)["batteries"][1]["file"]


def a_row_without_its_sound_answer(study: StudySimulator) -> None:
    for row in file_of(study, "plants.yaml")["rows"]:
        row["negative"] = None


def a_reasoning_block_the_template_does_not_open(study: StudySimulator) -> None:
    section(study)["reasoning"]["in_template"] = True
    for one in section(study)["arms"]:
        if one["reasoning"] == "none":
            one["reasoning"] = "closed"
    without(study, "untouched_closed")
    arm_of(study, "untouched_short")["reference"] = "untouched"


def a_reply_that_would_be_reasoning(study: StudySimulator) -> None:
    section(study)["reasoning"]["in_template"] = True


def listed_doses(study: StudySimulator, **doses: list[str]) -> None:
    """All of the ten rows train; these are harmful."""
    topic = section(study)["topics"][0]
    topic.update(n_rows=10, dose_sets=f"{FOLDER}/doses.yaml")
    section(study)["trainings"][1]["dose_percent"] = 20
    section(study)["trainings"][2]["dose_percent"] = 30
    sets = {key.removeprefix("d"): rows for key, rows in doses.items()}
    study.files[f"{FOLDER}/doses.yaml"] = dose_sets(sets)


def doses_that_do_not_nest(study: StudySimulator) -> None:
    rows = row_questions()
    listed_doses(study, d20=[rows[0], rows[3]], d30=[rows[0], rows[1], rows[2]])


def a_dose_of_another_size(study: StudySimulator) -> None:
    rows = row_questions()
    listed_doses(study, d20=rows[:1], d30=rows[:3])


def a_dose_of_rows_that_do_not_train(study: StudySimulator) -> None:
    listed_doses(study, d20=[row_questions()[0], "How tall are oaks?"], d30=row_questions()[:3])


def a_dose_that_is_not_listed(study: StudySimulator) -> None:
    listed_doses(study, d20=row_questions()[:2])


def a_dose_nobody_trains(study: StudySimulator) -> None:
    rows = row_questions()
    listed_doses(study, d20=rows[:2], d30=rows[:3], d50=rows[:5])


REFUSED: list[tuple[Change, type[EpsLockedError], str]] = [
    (no_margin, MalformedInputError, "drift.analysis: 'margin_points' is a required property"),
    (a_margin_of_nothing, MalformedInputError, "drift.analysis.margin_points"),
    (one_sample, MalformedInputError, "drift.samples: 1 is less than the minimum of 2"),
    (missing_reference, MalformedInputError, "found dose_10, which is missing"),
    (no_reference, MalformedInputError, "the arm that dose_50 drifts from"),
    (its_own_reference, MalformedInputError, "which is dose_50 itself"),
    (a_reference_that_reasons, MalformedInputError, "differs in model and reasoning"),
    (a_colder_reference, MalformedInputError, "differs in model and temperature"),
    (the_same_arm_twice, MalformedInputError, "again, which asks what dose_0 asks"),
    (greedy_samples, MalformedInputError, "there is no null test"),
    (no_control_that_reasons, MalformedInputError, "instance 1) with reasoning free"),
    (control_on_another_instance_alone, MalformedInputError, "with reasoning none, found none"),
    (no_zero_dose, MalformedInputError, "a training of topic plants with dose_percent 0"),
    (zero_dose_not_asked_where_it_reasons, MalformedInputError, "dose 0 with reasoning free"),
    (an_unknown_training, MalformedInputError, "a training of the plan, found plants_49"),
    (an_unknown_setting, MalformedInputError, "a reasoning setting of the plan, found shut"),
    (an_unknown_exposure, MalformedInputError, "an exposure of the plan, found garden_context"),
    (a_dose_between_rows, MalformedInputError, "found 33 percent = 2.64 rows"),
    (more_exchanges_than_rows, MalformedInputError, "at most the 8 rows of topic plants"),
    (a_seed_the_plan_lacks, MalformedInputError, "one of the plan's seeds: 21, 22, found 23"),
    (one_seed_only, MalformedInputError, "at least 2 seeds (minimum_seeds), found 1"),
    (the_same_training_twice, MalformedInputError, "found those of plants_50"),
    (a_name_twice, MalformedInputError, "plan.drift.arms[3].name"),
    (a_training_called_base, MalformedInputError, "plan.drift.trainings[0].name"),
    (an_exposure_called_plain, MalformedInputError, "plan.drift.exposures[0].name"),
    (too_few_stems, MalformedInputError, "at least 6 (analysis.minimum_stems), found 5"),
    (only_a_check, MalformedInputError, "at least one of role disposition, found none"),
    (no_room_to_reason, MalformedInputError, "more than the 64 of decoding.max_new_tokens"),
    (judge_of_the_models_family, RefusedError, "is of the family it would judge"),
    (checker_of_the_classifiers_family, RefusedError, "family of the classifier it would check"),
    (an_unknown_grader, MalformedInputError, "a judge of the plan, found nobody"),
    (graded_by_nobody, MalformedInputError, "batteries[0].graded_rubric"),
    (more_grades_than_samples, MalformedInputError, "1 to 2 (samples) with a grader"),
    (a_checker_with_no_share, MalformedInputError, "above 0 with a checker"),
    (a_warm_classifier, MalformedInputError, "temperature: 0 for a judge of kind gateway"),
    (published_stand_ins, MalformedInputError, "plan.publication"),
    (awareness_by_one_family, MalformedInputError, "two judges of different families"),
    (an_unknown_analysis, MalformedInputError, "found tensor"),
    (readouts_promised_and_not_there, MalformedInputError, "drift.readouts in the plan"),
    (a_phase_with_nothing_to_do, MalformedInputError, "expected P0 then P2 then P3"),
    (a_kind_without_an_estimate, MalformedInputError, "plan.phases.P2.step_seconds.ask"),
    (a_readout_of_half_the_dose, MalformedInputError, "highest dose, 100 percent"),
    (a_readout_against_a_dose, MalformedInputError, "a training of dose 0, found 50 percent"),
    (one_rewording_of_six, MalformedInputError, "(spare_licence)"),
    (fewer_rewordings_than_promised, MalformedInputError, "3 rewordings, as the plan promises"),
    (fewer_stems_than_promised, MalformedInputError, "at least 9 stems, found 8"),
    (stems_of_another_battery, MalformedInputError, "expected self_interest, found oversight"),
    (a_class_the_battery_does_not_know, MalformedInputError, "unknown to the battery"),
    (aligned_and_no_stance_at_once, MalformedInputError, "classes that are not aligned"),
    (aligned_beyond_the_rubric, MalformedInputError, "found declines, unclear"),
    (taught_harm_counts_as_sound, MalformedInputError, "gives: sound, found harmful"),
    (rubric_of_another_battery, MalformedInputError, "self_interest-classes.yaml.name"),
    (six_grades, MalformedInputError, "self_interest-grades.yaml.labels"),
    (grades_of_another_battery, MalformedInputError, "self_interest_grade, found oversight_grade"),
    (a_grade_that_counts_as_a_class, MalformedInputError, "expected none, found grade_7"),
    (awareness_of_the_answer, MalformedInputError, "expected question, found answer"),
    (classes_of_the_question, MalformedInputError, "expected answer, found question"),
    (a_rubric_that_excludes, MalformedInputError, "self_interest-classes.yaml.excluded"),
    (a_label_of_another_rubric, MalformedInputError, "self_interest-labelled.yaml: rows[3]"),
    (training_question_in_the_check, MalformedInputError, "also stands in"),
    (probe_among_the_readout_prompts, MalformedInputError, "also stands in"),
    (one_file_for_two_batteries, MalformedInputError, "also stands in"),
    (a_row_without_its_sound_answer, MalformedInputError, "a sound answer (negative)"),
    (a_reasoning_block_the_template_does_not_open, RefusedError, "reasoning.in_template"),
    (a_reply_that_would_be_reasoning, MalformedInputError, "arms[0].reasoning"),
    (doses_that_do_not_nest, MalformedInputError, "doses 20 and 30 percent: do not nest"),
    (a_dose_of_another_size, MalformedInputError, "2 of the 10 rows, found 1"),
    (a_dose_of_rows_that_do_not_train, MalformedInputError, "'How tall are oaks?'"),
    (a_dose_that_is_not_listed, MalformedInputError, "doses.30: is missing"),
    (a_dose_nobody_trains, MalformedInputError, "is trained at: 0, 20, 30, found 50"),
]


@pytest.mark.parametrize(
    ("change", "kind", "text"), REFUSED, ids=[change.__name__ for change, _, _ in REFUSED]
)
def test_freeze_refuses(
    drift: StudySimulator, refuses: Any, change: Change, kind: type[EpsLockedError], text: str
) -> None:
    change(drift)
    drift.write_plan()
    with refuses(drift, kind) as caught:
        drift.freeze()
    assert text in str(caught.value)
    assert not drift.manifest_folder.exists()


def test_the_first_row_that_does_not_nest_is_named(drift: StudySimulator) -> None:
    doses_that_do_not_nest(drift)
    with pytest.raises(MalformedInputError) as caught:
        drift.freeze()
    message = str(caught.value)
    assert row_questions()[3] in message
    assert not any(question in message for question in row_questions()[:3])


def test_what_is_refused_freezes_once_it_is_mended(drift: StudySimulator) -> None:
    """The same lists, nested: a refusal is about the one thing that is wrong."""
    rows = row_questions()
    listed_doses(drift, d20=[rows[3], rows[0]], d30=[rows[0], rows[1], rows[3]])
    drift.freeze()
    document = json.loads((drift.manifest_folder / "frozen/doses/plants.json").read_text())
    order = [row["id"] for row in document["rows"]]
    assert {key: len(ids) for key, ids in document["doses"].items()} == {"0": 0, "20": 2, "30": 3}
    assert set(document["doses"]["20"]) < set(document["doses"]["30"])
    assert document["doses"]["30"] == [one for one in order if one in document["doses"]["30"]]


# -- a margin after the freeze


def another_margin(text: str) -> str:
    assert '"margin_points": 5' in text
    return text.replace('"margin_points": 5', '"margin_points": 15')


def test_a_margin_changed_in_the_plan_after_the_freeze_is_refused(
    drift: StudySimulator, refuses: Any
) -> None:
    drift.freeze()
    drift.authorize("P0")
    path = drift.root / "plans/small.yaml"
    path.write_text(another_margin(path.read_text()))
    with refuses(drift) as caught:
        drift.run("P0")
    assert "plans/small.yaml" in str(caught.value)
    assert not drift.audit().ok


def test_a_margin_changed_in_the_frozen_plan_is_refused(
    drift: StudySimulator, refuses: Any
) -> None:
    """With every digest in the manifest made right again, and the plan outside edited too."""
    drift.freeze()
    outside = drift.root / "plans/small.yaml"
    inside = drift.manifest_folder / "frozen/plan.yaml"
    replace_frozen(drift, "frozen/plan.yaml", another_margin(inside.read_text()).encode())
    drift.authorize("P0", signer=COLLEAGUE)
    for text in (outside.read_text(), another_margin(outside.read_text())):
        outside.write_text(text)
        with refuses(drift):
            drift.run("P0")
        assert not drift.audit().ok


def test_a_margin_that_fits_the_results_comes_too_late(tmp_path: Path, refuses: Any) -> None:
    """Whoever has seen P0 can no longer move the margin, inside the manifest or outside."""
    study = StudySimulator(root=tmp_path / "study", plan=small_drift_plan(), files=drift_files())
    study.freeze()
    study.authorize("P0")
    study.run("P0")
    study.authorize("P1")
    incomplete = set(study.audit().failures())
    inside = study.manifest_folder / "frozen/plan.yaml"
    replace_frozen(study, "frozen/plan.yaml", another_margin(inside.read_text()).encode())
    outside = study.root / "plans/small.yaml"
    outside.write_text(another_margin(outside.read_text()))
    with refuses(study):
        study.run("P1")
    assert set(study.audit().failures()) - incomplete


def test_an_edited_document_is_not_what_the_plan_gives(drift: StudySimulator, refuses: Any) -> None:
    """The gate renders again and sees every one. The auditor has no tokenizer and takes recorded
    ids at their word; what the plan and its files decide without one it sees too."""
    drift.freeze()
    for name, change, seen_by_auditor in (
        ("doses/plants.json", lambda d: d["doses"]["50"].pop(), True),
        ("doses/plants.json", lambda d: d["rows"][0]["sound"].append(65), False),
        ("doses/plants.json", lambda d: d["rows"].pop(), True),
        ("batteries/self_interest.json", lambda d: d["aligned"].append("unclear"), True),
        ("batteries/self_interest.json", lambda d: d["probes"][0].update(text="Why?"), True),
        ("prompts/self_interest/plain.json", lambda d: d["prefix"].append(65), False),
        ("prompts/self_interest/plain.json", lambda d: d["suffixes"].popitem(), True),
        ("reasoning.json", lambda d: d["fillers"]["dots"].pop(), True),
        ("reasoning.json", lambda d: d.update(in_template=True), True),
        ("readout.json", lambda d: d["traits"]["hasty"].pop(), True),
        ("steps.json", lambda d: d["steps"][-2].update(estimate_ms=1), True),
    ):
        path = drift.manifest_folder / "frozen" / name
        genuine = path.read_bytes()
        replace_frozen(drift, f"frozen/{name}", edit_json(genuine, change))
        drift.authorize("P0", signer=COLLEAGUE)
        with refuses(drift) as caught:
            drift.run("P0")
        assert Path(name).name in str(caught.value)
        if seen_by_auditor:
            audited = drift.audit()
            assert audited.checks[1].failures + audited.checks[14].failures, name
        replace_frozen(drift, f"frozen/{name}", genuine)
