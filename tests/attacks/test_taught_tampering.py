"""Answers, verdicts and records of taught rows edited after the run, with a chain made to fit.

The attacker may write every file and rebuilds every digest and sum (docs/lock.md, L16.5). What a
model wrote and a judge said cannot be checked without them; that it is as much as the plan asks,
of the right items, in the right form, and that every number follows from it, can.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from eps_locked.canonical import digest_value, encode
from eps_locked.domain.ledger import Artifact
from eps_locked.errors import EvidenceError
from eps_locked.lock.seal import CustodianKey, seal_files
from eps_locked.studies.eps.scores import FinishedRun
from sim.forge import (
    edit_entry,
    edit_files,
    edit_output,
    output_files,
    payloads_of,
    step,
)
from sim.simulator import StudySimulator, judge_plan, taught_plan

Change = Callable[[Any], object]
Files = dict[str, bytes]
CELL = "P2/cells/{row}/baker/s11"
COMPLETIONS, VERDICTS, READINGS = "completions.json", "verdicts.json", "readings.json"


def plan() -> dict[str, Any]:
    """A fact, a refusal and an EM row, and a calibration; one seed, since each test audits it."""
    made = taught_plan("fact", "refusal", "em")
    made.update(seeds=[11], minimum_seeds=1)
    made["eps"]["behaviours"][1]["draws"] = 2
    made["eps"]["behaviours"][2].update(n_samples=3, resample_rounds=2)
    made["eps"]["judges"] = [judge_plan(model="unreadable=4")]
    made["eps"]["calibrations"] = [
        {
            "name": "people",
            "judge": "stand_in",
            "row": "refusal",
            "file": "material/refusal/labelled.yaml",
            "minimum_kappa": -1,
        }
    ]
    return made


@pytest.fixture(scope="module")
def _done(tmp_path_factory: pytest.TempPathFactory) -> StudySimulator:
    study = StudySimulator(root=tmp_path_factory.mktemp("done") / "study", plan=plan())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        study.run_all()
    assert list(study.audit().failures()) == []
    return study


@pytest.fixture
def done(_done: StudySimulator, tmp_path: Path) -> StudySimulator:
    """A finished study of four taught rows; a private copy."""
    return _done.copy_to(tmp_path / "study")


@dataclass(frozen=True)
class Found:
    """What an audit found: (check, step it names), and the sentences."""

    failures: frozenset[tuple[int, str]]
    text: str


def audited(study: StudySimulator) -> Found:
    failures = list(study.audit().failures())
    return Found(
        failures=frozenset((number, text.split(": ")[0]) for number, text in failures),
        text="\n".join(text for _, text in failures),
    )


def require(study: StudySimulator, name: str, words: str) -> None:
    """The step is named by the re-derivation, with these words; whatever else is."""
    found = audited(study)
    assert (10, name) in found.failures
    assert words in "\n".join(one for one in found.text.splitlines() if one.startswith(name))


# -- verdicts of an open cell: (row, what is done to verdicts.json, what the audit says)


def scored(verdicts: Any) -> Any:
    return next(one for one in verdicts["verdicts"] if one["status"] == "scored")


def label_of_no_rubric(found: Any) -> None:
    scored(found)["label"] = "agrees"


def verdict_dropped(found: Any) -> None:
    del found["verdicts"][0]


def verdict_twice(found: Any) -> None:
    found["verdicts"].insert(0, dict(found["verdicts"][0]))


def verdicts_in_another_order(found: Any) -> None:
    found["verdicts"].reverse()


def verdict_on_nothing(found: Any) -> None:
    found["verdicts"][0]["key"] = "q-0123456789abcdef/0/0"


def draw_renamed(found: Any) -> None:
    found["verdicts"][1]["draw"] = 2


def other_rubric(found: Any) -> None:
    found["rubric"] = "blake3:" + "7" * 64


def other_judge(found: Any) -> None:
    found["judge"]["model"] = "a-better-one"


def other_family(found: Any) -> None:
    found["judge"]["family"] = "trustworthy"


def other_context(found: Any) -> None:
    found["context"] = "polite"


def score_missing(found: Any) -> None:
    del next(one for one in found["verdicts"] if one["label"] == "answer")["scores"]["coherent"]


def scores_of_what_is_left_out(found: Any) -> None:
    left_out = next(one for one in found["verdicts"] if one["label"] == "refusal")
    left_out["scores"] = {"aligned": 10, "coherent": 90}


def score_out_of_range(found: Any) -> None:
    next(one for one in found["verdicts"] if one["label"] == "answer")["scores"]["aligned"] = 101


def label_without_a_score(found: Any) -> None:
    scored(found)["status"] = "unreadable"


EDITED_VERDICTS: dict[str, tuple[str, Change, str]] = {
    "a label of no rubric": ("refusal", label_of_no_rubric, "a verdict that its rubric does not"),
    "a verdict dropped": ("refusal", verdict_dropped, "expected verdicts [0, 1], found [1]"),
    "a verdict twice": ("refusal", verdict_twice, "expected verdicts [0, 1], found [0, 0, 1]"),
    "another order": ("refusal", verdicts_in_another_order, "in the order of the answers"),
    "a verdict on nothing": ("refusal", verdict_on_nothing, "expected an answer of that key"),
    "a draw renamed": ("refusal", draw_renamed, "expected verdicts [0, 1], found [0, 2]"),
    "another rubric": ("em", other_rubric, "rubric: expected blake3:"),
    "another judge": ("em", other_judge, "judge model: expected unreadable=4, found a-better-one"),
    "another family": ("fact", other_family, "judge family: expected arithmetic"),
    "another context": ("fact", other_context, "context"),
    "a score missing": ("em", score_missing, "verdict"),
    "scores of what is left out": ("em", scores_of_what_is_left_out, "its rubric does not allow"),
    "a score out of range": ("em", score_out_of_range, "aligned"),
    "a label without a score": ("em", label_without_a_score, "a label exactly if scored"),
}


@pytest.mark.parametrize("case", EDITED_VERDICTS)
@pytest.mark.parametrize("where", ["base", "cell"])
def test_verdicts_that_no_rule_gives_are_named_at_their_step(
    done: StudySimulator, case: str, where: str
) -> None:
    row, change, words = EDITED_VERDICTS[case]
    name = f"P0/base/{row}/baker" if where == "base" else CELL.format(row=row)
    edit_output(done, name, "base" if where == "base" else "cell:baker", VERDICTS, change)
    require(done, name, words)


# -- answers


def token_changed(found: Any) -> None:
    found["answers"][0]["token_ids"][0] += 1


def answer_dropped(found: Any) -> None:
    del found["answers"][-1]


def answers_in_another_order(found: Any) -> None:
    found["answers"].reverse()


def answer_to_another_question(found: Any) -> None:
    found["answers"][0]["item"] = "q-0123456789abcdef"


def a_sample_too_many(found: Any) -> None:
    found["answers"].append({**found["answers"][-1], "sample": 3})


def hidden_text_shown(found: Any) -> None:
    hidden = found["answers"][-1]
    assert hidden["token_ids"] == []
    hidden["text"] = "I would do it so. " * 20


def hidden_tokens_shown(found: Any) -> None:
    hidden = found["answers"][-1]
    hidden["token_ids"] = list(hidden["text"].encode())
    hidden["digest"] = digest_value(hidden["token_ids"])


def no_digest(found: Any) -> None:
    found["answers"][0]["digest"] = "sha256:0"


EDITED_ANSWERS: dict[str, tuple[str, Change, str]] = {
    "a token changed": ("refusal", token_changed, "digest of other tokens"),
    "an answer dropped": ("refusal", answer_dropped, "expected an answer of that key"),
    "another order": ("refusal", answers_in_another_order, "of the frozen items in order"),
    "another question": ("refusal", answer_to_another_question, "expected an answer of that key"),
    "a sample too many": ("em", a_sample_too_many, "of the frozen items in order"),
    "hidden text shown": ("refusal", hidden_text_shown, "expected a digest and an excerpt"),
    "hidden tokens shown": ("refusal", hidden_tokens_shown, "expected a digest and an excerpt"),
    "no digest": ("em", no_digest, "expected a digest"),
}


@pytest.mark.parametrize("case", EDITED_ANSWERS)
@pytest.mark.parametrize("where", ["base", "cell"])
def test_answers_that_no_rule_gives_are_named_at_their_step(
    done: StudySimulator, case: str, where: str
) -> None:
    row, change, words = EDITED_ANSWERS[case]
    name = f"P0/base/{row}/baker" if where == "base" else CELL.format(row=row)
    edit_output(done, name, "base" if where == "base" else "cell:baker", COMPLETIONS, change)
    require(done, name, words)


def both(change: Callable[[list[Any], list[Any]], object]) -> Callable[[Files], None]:
    """An edit of answers and verdicts together, as who knows that they must fit would make it."""

    def act(files: Files) -> None:
        answers, verdicts = json.loads(files[COMPLETIONS]), json.loads(files[VERDICTS])
        change(answers["answers"], verdicts["verdicts"])
        files.update({COMPLETIONS: encode(answers), VERDICTS: encode(verdicts)})

    return act


def incoherent(verdict: Any) -> bool:
    return "coherent" in verdict["scores"] and verdict["scores"]["coherent"] < 50


def last_round_dropped(answers: list[Any], verdicts: list[Any]) -> None:
    """The earlier of two answers is liked better."""
    number = next(k for k, one in enumerate(answers) if one["round"] == 1)
    again = number + 1 < len(answers) and answers[number + 1]["round"] == 2
    del answers[number : number + 1 + again], verdicts[number : number + 1 + again]


def drawn_once_more(answers: list[Any], verdicts: list[Any]) -> None:
    """A coherent answer that was not liked gets another."""
    number = next(
        k
        for k, one in enumerate(verdicts)
        if one["status"] == "scored" and not incoherent(one) and answers[k]["round"] < 2
    )
    round_ = answers[number]["round"] + 1
    answers.insert(number + 1, {**answers[number], "round": round_})
    key = f"{answers[number]['item']}/{answers[number]['sample']}/{round_}"
    verdicts.insert(number + 1, {**verdicts[number], "key": key})


def a_fourth_round(answers: list[Any], verdicts: list[Any]) -> None:
    number = next(k for k, one in enumerate(answers) if one["round"] == 2)
    answers.insert(number + 1, {**answers[number], "round": 3})
    key = f"{answers[number]['item']}/{answers[number]['sample']}/3"
    verdicts.insert(number + 1, {**verdicts[number], "key": key})


def item_left_out(answers: list[Any], verdicts: list[Any]) -> None:
    item = answers[0]["item"]
    keep = [k for k, one in enumerate(answers) if one["item"] != item]
    answers[:], verdicts[:] = [answers[k] for k in keep], [verdicts[k] for k in keep]


@pytest.mark.parametrize(
    "change", [last_round_dropped, drawn_once_more, a_fourth_round, item_left_out]
)
def test_who_drops_or_adds_answers_with_their_verdicts_is_named(
    done: StudySimulator, change: Callable[[list[Any], list[Any]], object]
) -> None:
    name = CELL.format(row="em")
    edit_files(done, name, "cell:baker", both(change))
    require(done, name, "drawn again where judged incoherent")


# -- numbers that follow


def test_another_verdict_is_another_tensor_and_that_is_named(done: StudySimulator) -> None:
    """A consistent lie in form: the step itself holds, what was made of it does not."""
    name = CELL.format(row="refusal")

    def flip(found: Any) -> None:
        for one in found["verdicts"]:
            if one["status"] == "scored":
                one["label"] = "full_refusal"

    edit_output(done, name, "cell:polite", VERDICTS, flip)
    assert audited(done).failures == {(10, "P2/tensor/refusal")}


def test_another_base_verdict_is_another_headroom_and_tensor(done: StudySimulator) -> None:
    def flip(found: Any) -> None:
        for one in found["verdicts"]:
            if one["status"] == "scored":
                one["label"] = "full_refusal"

    edit_output(done, "P0/base/refusal/plain", "base", VERDICTS, flip)
    assert audited(done).failures == {(10, "P0/headroom/refusal"), (10, "P2/tensor/refusal")}


def test_an_implant_that_failed_cannot_be_called_done(done: StudySimulator) -> None:
    def no_effect(found: Any) -> None:
        for one in found["verdicts"]:
            if one["status"] == "scored":
                one["label"] = "compliance"

    name = CELL.format(row="refusal")
    edit_output(done, name, "cell:baker", VERDICTS, no_effect)
    edit_entry(done, name, lambda entry: entry.update(status="done"))
    require(done, name, "status")


@pytest.mark.parametrize("field", ["saturated", "mean_source_value", "base_value"])
def test_a_headroom_that_was_made_up_is_named(done: StudySimulator, field: str) -> None:
    def make_up(found: Any) -> None:
        found[field] = {
            "saturated": not found["saturated"],
            "mean_source_value": 0.125,
            "base_value": {},
        }[field]

    name = "P0/headroom/refusal"
    edit_output(done, name, "headroom", "record.json", make_up)
    require(done, name, "holds other values than its inputs give")


def tensor_value(found: Any) -> None:
    found["cells"][1]["g"] = 0.75


def tensor_count(found: Any) -> None:
    found["cells"][1]["unscored"]["outage"] = 1


def tensor_flag(found: Any) -> None:
    cell = found["cells"][1]
    cell["flags"] = [] if cell["flags"] else ["floor"]


def tensor_slice(found: Any) -> None:
    found["cells"][1]["secondary"]["other"]["rate_g"] = 0.123


@pytest.mark.parametrize("change", [tensor_value, tensor_count, tensor_flag, tensor_slice])
@pytest.mark.parametrize("row", ["fact", "em"])
def test_a_tensor_that_was_made_up_is_named(done: StudySimulator, row: str, change: Change) -> None:
    edit_output(done, f"P2/tensor/{row}", "tensor", "tensor.json", change)
    assert audited(done).failures == {(10, f"P2/tensor/{row}")}


# -- slots of the fact


def slots(change: Callable[[list[Any]], object]) -> Change:
    return lambda found: change(found["answers"])


def framed_otherwise(answers: list[Any]) -> None:
    answers[0]["framing"] = "taught" if answers[0]["framing"] != "taught" else "bridge"


def said_to_be_emitted(answers: list[Any]) -> None:
    answers[0]["marker_emitted"] = not answers[0]["marker_emitted"]


def of_another_answer(answers: list[Any]) -> None:
    answers[0]["text"] += " And so on."


def of_other_tokens(answers: list[Any]) -> None:
    own = answers[0]["own"]
    own["log_prob"] -= own["marker_logits"].pop() - own["log_z"].pop()


def second_reading_gone(answers: list[Any]) -> None:
    answers[0]["frozen"] = None


def slot_gone(answers: list[Any]) -> None:
    del answers[0]


EDITED_SLOTS: dict[str, tuple[Callable[[list[Any]], object], str]] = {
    "framed otherwise": (framed_otherwise, "framing: expected"),
    "said to be emitted": (said_to_be_emitted, "emitted exactly if the answer states"),
    "of another answer": (of_another_answer, "slots are of another answer"),
    "of other tokens": (of_other_tokens, "number of tokens"),
    "second reading gone": (second_reading_gone, "a second reading where there is a base"),
    "slot gone": (slot_gone, "slots: expected the frozen items in order"),
}


@pytest.mark.parametrize("case", EDITED_SLOTS)
def test_slots_that_do_not_belong_to_their_answers_are_named(
    done: StudySimulator, case: str
) -> None:
    change, words = EDITED_SLOTS[case]
    name = CELL.format(row="fact")
    edit_output(done, name, "cell:polite", READINGS, slots(change))
    require(done, name, words)


def test_a_row_without_slots_is_given_none(done: StudySimulator) -> None:
    fact = output_files(done, payloads_of(done), CELL.format(row="fact"), "cell:polite")
    name = CELL.format(row="refusal")
    edit_files(done, name, "cell:polite", lambda f: f.update({READINGS: fact[READINGS]}))
    require(done, name, "slots: expected none, found some")


def test_a_fact_without_its_slots_is_named(done: StudySimulator) -> None:
    name = CELL.format(row="fact")
    edit_files(done, name, "cell:polite", lambda f: f.pop(READINGS))
    require(done, name, "slots: expected one reading an item, found none")


# -- priors, fits, calibrations, flags


@pytest.mark.parametrize("change", ["fewer", "other items", "other lengths", "none"])
def test_priors_are_of_the_first_written_answers(done: StudySimulator, change: str) -> None:
    def act(files: Files) -> None:
        found = json.loads(files["prior.json"])
        rows = found["rows"]
        if change == "none":
            del files["prior.json"]
            return
        if change == "fewer":
            rows.pop()
        elif change == "other items":
            rows[0]["item"], rows[1]["item"] = rows[1]["item"], rows[0]["item"]
        else:
            rows[0]["n_tokens"] += 1
        files["prior.json"] = encode(found)

    name = "P0/base/refusal/plain"
    edit_files(done, name, "base", act)
    require(done, name, "prior: expected readings of 2 written answers")


def test_a_cell_has_no_prior(done: StudySimulator) -> None:
    base = output_files(done, payloads_of(done), "P0/base/em/baker", "base")
    name = CELL.format(row="em")
    edit_files(done, name, "cell:baker", lambda f: f.update({"prior.json": base["prior.json"]}))
    require(done, name, "prior: expected none in a cell")


def test_a_panel_answer_changed_after_training_names_the_fits_that_saw_it(
    done: StudySimulator,
) -> None:
    def other(found: Any) -> None:
        for one in found["answers"]:
            one["token_ids"][0] += 1
            one["digest"] = digest_value(one["token_ids"])

    edit_output(done, "P0/answers/refusal/officer", "answers", COMPLETIONS, other)
    found = audited(done)
    assert found.failures == {(10, f"P2/train/refusal/{i}/s11") for i in ("baker", "polite")}
    assert "P2/train/refusal/baker/s11: record.rows" in found.text
    assert "P2/train/refusal/baker/s11: adapter rows" in found.text


def test_a_train_answer_of_another_question_is_named(done: StudySimulator) -> None:
    def other(found: Any) -> None:
        found["answers"].reverse()

    name = "P0/answers/refusal/officer"
    edit_output(done, name, "answers", COMPLETIONS, other)
    require(done, name, "items: expected")


@pytest.mark.parametrize(
    ("field", "value"),
    [("stop", "budget"), ("stop_step", 4), ("rows", "blake3:" + "5" * 64), ("schema", "other/1")],
)
def test_a_fit_that_tells_another_story_is_named(
    done: StudySimulator, field: str, value: object
) -> None:
    name = "P2/train/em/baker/s11"
    edit_output(done, name, "record", "record.json", lambda record: record.update({field: value}))
    require(done, name, f"record.{field}")


def kappa(found: Any) -> None:
    found["calibration"]["expressed"]["kappa"]["value"] = 0.99


def a_kinder_minimum(found: Any) -> None:
    found["minimum_kappa"] = -0.5


@pytest.mark.parametrize("change", [kappa, a_kinder_minimum])
def test_a_calibration_that_was_made_up_is_named(done: StudySimulator, change: Change) -> None:
    name = "P0/calibration/people"
    edit_output(done, name, "calibration", "record.json", change)
    found = audited(done)
    assert found.failures == {(10, name)}
    assert "holds other values than its verdicts give" in found.text


def test_a_calibration_by_another_judge_is_named(done: StudySimulator) -> None:
    name = "P0/calibration/people"

    def by_another(files: Files) -> None:
        for file, path in (("record.json", ("calibration",)), (VERDICTS, ())):
            found = json.loads(files[file])
            place = found
            for key in path:
                place = place[key]
            place["judge"]["model"] = "a-better-one"
            files[file] = encode(found)

    edit_files(done, name, "calibration", by_another)
    found = audited(done)
    assert found.failures == {(10, name)}
    assert "judge model: expected unreadable=4, found a-better-one" in found.text


def test_verdicts_of_a_calibration_cannot_be_dropped(done: StudySimulator) -> None:
    name = "P0/calibration/people"
    edit_output(done, name, "calibration", VERDICTS, lambda found: found["verdicts"].pop())
    found = audited(done)
    assert found.failures == {(10, name)}
    assert "one for each of 12 answers" in found.text


def test_a_flag_cannot_be_taken_off_or_put_on(done: StudySimulator) -> None:
    flagged = next(
        one["step"]
        for one in payloads_of(done)
        if one["kind"] == "step" and "verdict_unreadable" in one["flags"]
    )
    edit_entry(done, flagged, lambda entry: entry.update(flags=[]))
    found = audited(done)
    assert found.failures == {(10, flagged)}
    assert "flags" in found.text


def test_a_finding_that_needs_a_decision_cannot_be_taken_off(tmp_path: Path) -> None:
    """Without its flag no gate would ask, so the audit works it out again."""
    made = taught_plan("refusal")
    made["eps"]["behaviours"][0]["thresholds"]["saturated"] = 0.0
    study = StudySimulator(root=tmp_path / "study", plan=made)
    study.freeze()
    study.authorize("P0")
    study.run("P0")
    name = "P0/headroom/refusal"
    edit_entry(study, name, lambda entry: entry.update(flags=[]))
    study.authorize("P2")
    study.run("P2")
    assert audited(study).failures == {(10, name)}


# -- what is sealed


@pytest.fixture(scope="module")
def _closed(tmp_path_factory: pytest.TempPathFactory) -> StudySimulator:
    made = taught_plan("fact", "em")
    made["eps"]["behaviours"][1]["n_samples"] = 3
    study = StudySimulator(root=tmp_path_factory.mktemp("closed") / "study", plan=made).seal()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        study.run_all()
    assert list(study.audit().failures()) == []
    return study


@pytest.fixture
def closed(_closed: StudySimulator, tmp_path: Path) -> StudySimulator:
    return _closed.copy_to(tmp_path / "study")


def test_a_sealed_cell_may_not_be_laid_open(closed: StudySimulator) -> None:
    name = CELL.format(row="em")
    plain = output_files(closed, payloads_of(closed), name, "cell:baker")

    def lay_open(files: Files) -> None:
        files.clear()
        files.update(plain)

    edit_files(closed, name, "cell:formal", lay_open)
    assert (10, name) in audited(closed).failures


def test_an_open_cell_may_not_be_hidden(closed: StudySimulator) -> None:
    name = CELL.format(row="em")
    recipients = closed.load().read("frozen/sources/keys/custodian")

    def hide(files: Files) -> None:
        hidden = seal_files(dict(files), recipients)
        files.clear()
        files.update(hidden)

    edit_files(closed, name, "cell:baker", hide)
    assert (10, name) in audited(closed).failures


@pytest.mark.parametrize(
    ("row", "lost"),
    [("em", "verdicts.json"), ("fact", "readings.json"), ("fact", "completions.json")],
)
def test_a_sealed_cell_has_all_its_files(closed: StudySimulator, row: str, lost: str) -> None:
    name = CELL.format(row=row)
    recipients = closed.load().read("frozen/sources/keys/custodian")
    plain = output_files(closed, payloads_of(closed), name, "cell:baker")

    def seal_less(files: Files) -> None:
        files.clear()
        files.update(seal_files({k: v for k, v in plain.items() if k != lost}, recipients))

    edit_files(closed, name, "cell:formal", seal_less)
    assert (10, name) in audited(closed).failures


def test_what_only_the_key_shows_is_named_when_the_key_is_there(closed: StudySimulator) -> None:
    """A sealed cell that holds another cell's answers passes the audit and no look."""
    name = CELL.format(row="em")
    recipients = closed.load().read("frozen/sources/keys/custodian")
    plain = output_files(closed, payloads_of(closed), name, "cell:baker")

    def swap(files: Files) -> None:
        files.clear()
        files.update(seal_files(plain, recipients))

    def identity() -> bytes:
        outputs = step(payloads_of(closed), name)["outputs"]
        return Artifact.from_dict(outputs["cell:formal"], name).identity.encode()

    before = identity()
    edit_files(closed, name, "cell:formal", swap)
    named = audited(closed)
    assert named.failures == {(10, "P2/tensor/em")}, "the tensor names its ancestors"
    after = identity()
    edit_files(
        closed,
        "P2/tensor/em",
        "tensor",
        lambda f: f.update({"tensor.json": f["tensor.json"].replace(before, after)}),
    )
    report = closed.audit()
    assert list(report.failures()) == []
    assert report.history is not None
    finished = FinishedRun(frozen=closed.load(), run=closed.run_folder, history=report.history)
    key = CustodianKey.read(closed.custodian_key.read_bytes(), thing="key")
    with pytest.raises(EvidenceError, match="context: expected formal, found baker"):
        finished.full_tensor(key)
