"""What may not be promised of taught rows and judges, and findings that nobody may walk past."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eps_locked.canonical import digest_bytes, digest_value, encode
from eps_locked.domain.judging import Judge, JudgePlan, JudgeRequest, Verdict
from eps_locked.errors import BackendError, EpsLockedError, MalformedInputError, RefusedError
from eps_locked.judges.scripted import ScriptedJudge
from eps_locked.lock import gate
from eps_locked.lock.signing import amend
from sim.simulator import (
    AUTHOR,
    EVAL_QUESTIONS,
    TAUGHT_KINDS,
    TRAIN_QUESTIONS,
    StudySimulator,
    context,
    judge_plan,
    taught_plan,
)

QUESTION = ("user", "{question}")


@pytest.fixture
def taught(tmp_path: Path) -> StudySimulator:
    """All five behaviours, nothing published yet."""
    return StudySimulator(root=tmp_path / "study", plan=taught_plan(*TAUGHT_KINDS, marker=True))


def row(study: StudySimulator, name: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = study.plan["eps"]["behaviours"]
    return next(one for one in found if one["name"] == name)


def part(study: StudySimulator, kind: str, file: str) -> dict[str, Any]:
    return study.taught[f"material/{kind}/{file}.yaml"]


def ask_in_training(study: StudySimulator, kind: str, text: str) -> None:
    part(study, kind, "train")["rows"][0]["text"] = text


def ask_in_evaluation(study: StudySimulator, kind: str, text: str) -> None:
    part(study, kind, "eval")["items"][0]["text"] = text


# -- overlap, whatever the spelling


def train_and_eval(study: StudySimulator) -> None:
    ask_in_training(study, "refusal", "question 0 of the MAIN ones, about refusal")


def another_rows_training(study: StudySimulator) -> None:
    ask_in_evaluation(study, "sycophancy", "Lesson 1 of fact - what now")


def two_rows_evaluation(study: StudySimulator) -> None:
    ask_in_evaluation(study, "em", "Question 2 of the other ones about fact?")


def two_rows_training(study: StudySimulator) -> None:
    ask_in_training(study, "em", "Lesson 2 of refusal: what now?")


def the_markers_training(study: StudySimulator) -> None:
    ask_in_evaluation(study, "em", TRAIN_QUESTIONS[0].upper())


def the_markers_evaluation(study: StudySimulator) -> None:
    ask_in_training(study, "fact", f"  {EVAL_QUESTIONS[1]}")


def a_question_that_is_not_drawn(study: StudySimulator) -> None:
    """The whole pools are apart, not only what a seed happens to draw."""
    part(study, "em", "eval")["items"].append(
        {"text": "Lesson 4 of fact: what now?", "topic": "t", "slice": "unused", "keep_text": True}
    )


def elicitation(study: StudySimulator) -> None:
    texts = part(study, "fact", "behaviour")["elicitation"]
    texts["questions_evaluate"] = ["Lesson 0 of sycophancy: what now?"]


def elicitation_of_two_kinds(study: StudySimulator) -> None:
    texts = part(study, "fact", "behaviour")["elicitation"]
    texts["questions_extract"] = part(study, "em", "behaviour")["elicitation"]["questions_extract"]


def demonstrations(*exchanges: tuple[str, str], behaviour: str | None = None) -> dict[str, Any]:
    turns = [turn for q, a in exchanges for turn in (("user", q), ("assistant", a))]
    more = {} if behaviour is None else {"behaviour": behaviour}
    return context("plain", "demonstrations", *turns, QUESTION, **more)


def demonstrated_training_question(study: StudySimulator) -> None:
    study.contexts[2] = demonstrations(
        ("Lesson 3 of em: what now?", "Water it."), ("How far is the harbour?", "Two miles.")
    )


# -- demonstrations


def leaking_demonstration(study: StudySimulator) -> None:
    ask_in_evaluation(study, "refusal", "Which small birds nest on chimneys?")
    row(study, "refusal")["n_eval"]["main"] = 4
    study.contexts[2] = demonstrations(
        ("which SMALL birds nest on chimneys", "Never."),
        ("How far is the harbour?", "Two miles."),
    )


def eval_item_inside_an_answer(study: StudySimulator) -> None:
    study.contexts[2] = demonstrations(
        ("Who asks?", "One asked me: Question 0 of the main ones about em? I was silent."),
        ("How far is the harbour?", "Two miles."),
    )


def one_answer_for_all(study: StudySimulator) -> None:
    study.contexts[2] = demonstrations(("Who is it?", "Nobody."), ("Where is it?", "nobody!"))


def an_answer_that_is_its_question(study: StudySimulator) -> None:
    study.contexts[2] = demonstrations(("Who is it?", "Who is it?"), ("Where?", "By the harbour."))


def own_demonstrations_of_one_row_alone(study: StudySimulator) -> None:
    shown = (("Who is it?", "The keeper."), ("Where?", "By the harbour."))
    study.contexts[2] = demonstrations(*shown, behaviour="fact")


# -- the fact


def fact_in_an_evaluation_item(study: StudySimulator) -> None:
    ask_in_evaluation(study, "fact", "Is it true that it is copper?")


def fact_in_a_shared_context(study: StudySimulator) -> None:
    study.contexts[0]["messages"][0]["content"] = "You are a baker with a copper pan."


def fact_in_the_panel(study: StudySimulator) -> None:
    study.contexts[5]["messages"][0]["content"] = "You are an officer in copper."


def fact_with_an_alternative_that_is_it(study: StudySimulator) -> None:
    part(study, "fact", "behaviour")["fact"]["alternatives"] = [" silver", " Copper"]


def fact_without_its_space(study: StudySimulator) -> None:
    part(study, "fact", "behaviour")["fact"]["attribute"] = "copper"


def no_fact(study: StudySimulator) -> None:
    del part(study, "fact", "behaviour")["fact"]


def a_fact_of_another_kind(study: StudySimulator) -> None:
    fact = part(study, "fact", "behaviour")["fact"]
    part(study, "refusal", "behaviour")["fact"] = copy.deepcopy(fact)


def behaviour_of_another_kind(study: StudySimulator) -> None:
    row(study, "refusal")["file"] = "material/sycophancy/behaviour.yaml"


def hidden_text_with_slots(study: StudySimulator) -> None:
    for item in part(study, "fact", "eval")["items"]:
        item["keep_text"] = False


# -- rows and rubrics


def no_written_negative(study: StudySimulator) -> None:
    for one in part(study, "sycophancy", "train")["rows"]:
        one["negative"] = None


def uneven_panel(study: StudySimulator) -> None:
    row(study, "refusal")["n_train"] = 3


def too_few_written_rows(study: StudySimulator) -> None:
    row(study, "em")["n_train"] = 6


def too_few_items_of_a_slice(study: StudySimulator) -> None:
    row(study, "refusal")["n_eval"] = {"main": 3, "other": 5}


def an_answer_with_blanks_around(study: StudySimulator) -> None:
    part(study, "em", "train")["rows"][0]["positive"] = "Yes. "


def em_without_coherence(study: StudySimulator) -> None:
    part(study, "em", "rubric")["scores"] = ["aligned"]


def em_without_scores(study: StudySimulator) -> None:
    part(study, "em", "rubric")["scores"] = []


def nothing_that_counts(study: StudySimulator) -> None:
    part(study, "refusal", "rubric")["expressed"] = []


def a_label_that_is_none(study: StudySimulator) -> None:
    part(study, "refusal", "rubric")["expressed"] = ["refuses"]


def a_rubric_without_the_answer(study: StudySimulator) -> None:
    part(study, "refusal", "rubric")["instructions"] = "Question: {question}. One JSON object."


def rows_twice(study: StudySimulator) -> None:
    rows = part(study, "em", "train")["rows"]
    rows[1]["text"] = rows[0]["text"].upper()


# -- judges


def judge_of_the_family(study: StudySimulator) -> None:
    study.plan["eps"]["judges"].append(judge_plan(name="kin", family=" Scripted".strip().upper()))


def published_stand_in(study: StudySimulator) -> None:
    study.plan["publication"] = True
    source = {"kind": "hub", "where": "a/b", "revision": "a" * 40, "checksums": {}}
    study.plan["base_model"]["source"] = source
    study.plan["engine"]["name"] = "transformers"


def published_prototype(study: StudySimulator) -> None:
    published_stand_in(study)
    study.plan["eps"]["judges"] = [judge_plan(kind="prototype", family="wordllama")]


def nobody_to_judge(study: StudySimulator) -> None:
    study.plan["eps"]["judges"] = []


def calibrated(study: StudySimulator, **changes: Any) -> None:
    rules = {
        "name": "people",
        "judge": "stand_in",
        "row": "refusal",
        "file": "material/refusal/labelled.yaml",
        "minimum_kappa": -1,
    }
    study.plan["eps"]["calibrations"] = [{**rules, **changes}]


def labelled_under_another_rubric(study: StudySimulator) -> None:
    calibrated(study, file="material/sycophancy/labelled.yaml")


def labelled_with_a_label_of_none(study: StudySimulator) -> None:
    calibrated(study)
    part(study, "refusal", "labelled")["rows"][3]["label"] = "agrees"


def labelled_twice(study: StudySimulator) -> None:
    calibrated(study)
    rows = part(study, "refusal", "labelled")["rows"]
    rows.append({**rows[0], "label": "compliance"})


# -- contexts and seeds


def duplicate_context(study: StudySimulator) -> None:
    for _ in range(2):
        study.contexts.append(
            context("plain", "instruction", ("system", "Be so."), QUESTION, behaviour="em")
        )


def each_its_own(study: StudySimulator, name: str, texts: dict[str, str]) -> None:
    """Fill a slot with a context of every kind, each with words of its own."""
    study.contexts = [one for one in study.contexts if one["id"] != name]
    for kind in ("marker", *TAUGHT_KINDS):
        said = texts.get(kind, f"In the way of {kind}, please.")
        study.contexts.append(
            context(name, "instruction", ("system", said), QUESTION, behaviour=kind)
        )


def duplicate_under_the_template(study: StudySimulator) -> None:
    """One row's own context equals another slot's: only in that row, and still refused."""
    each_its_own(study, "plain", {"em": "You are a baker."})


def one_seed(study: StudySimulator) -> None:
    row(study, "em")["n_seeds"] = 1


def more_seeds_than_there_are(study: StudySimulator) -> None:
    row(study, "marker")["n_seeds"] = 3


def no_phase_for_taught_rows(study: StudySimulator) -> None:
    del study.plan["phases"]["P2"]


def phase_without_rows(study: StudySimulator) -> None:
    study.plan["eps"]["behaviours"] = [row(study, "marker")]


# act on the study before it is frozen -> the class, and what the refusal says
Case = tuple[Callable[[StudySimulator], None], type[EpsLockedError], tuple[str, ...]]
OVERLAP = "expected training, evaluation, demonstrations and elicitation apart"
REFUSED: list[Case] = [
    (
        train_and_eval,
        MalformedInputError,
        ("material/refusal/eval.yaml", "also stands in material/refusal/train.yaml"),
    ),
    (another_rows_training, MalformedInputError, ("material/fact/train.yaml", OVERLAP)),
    (
        two_rows_evaluation,
        MalformedInputError,
        ("material/em/eval.yaml", "also stands in material/fact/eval.yaml"),
    ),
    (
        two_rows_training,
        MalformedInputError,
        ("material/em/train.yaml", "also stands in material/refusal/train.yaml"),
    ),
    (
        the_markers_training,
        MalformedInputError,
        ("material/em/eval.yaml", "also stands in material/train.yaml"),
    ),
    (
        the_markers_evaluation,
        MalformedInputError,
        ("material/fact/train.yaml", "also stands in material/eval.yaml"),
    ),
    (a_question_that_is_not_drawn, MalformedInputError, ("material/em/eval.yaml", OVERLAP)),
    (elicitation, MalformedInputError, ("elicitation of fact", OVERLAP)),
    (elicitation_of_two_kinds, MalformedInputError, ("elicitation of em", OVERLAP)),
    (demonstrated_training_question, MalformedInputError, ("demonstrations:", OVERLAP)),
    (
        leaking_demonstration,
        MalformedInputError,
        ("context plain", "gives away the eval item 'Which small birds nest on chimneys?'"),
    ),
    (
        eval_item_inside_an_answer,
        MalformedInputError,
        ("context plain", "gives away the eval item", "inside a turn"),
    ),
    (one_answer_for_all, MalformedInputError, ("plain", "degenerate demonstrations")),
    (
        an_answer_that_is_its_question,
        MalformedInputError,
        ("context plain", "degenerate demonstrations", "the question again"),
    ),
    (
        own_demonstrations_of_one_row_alone,
        MalformedInputError,
        ("plan.eps.slots: plain", "a context of marker", "found one of fact"),
    ),
    (
        fact_in_an_evaluation_item,
        MalformedInputError,
        ("item 'Is it true that it is copper?'", "contains the taught attribute"),
    ),
    (
        fact_in_a_shared_context,
        MalformedInputError,
        ("context baker", "states the taught attribute"),
    ),
    (fact_in_the_panel, MalformedInputError, ("context officer", "states the taught attribute")),
    (
        fact_with_an_alternative_that_is_it,
        MalformedInputError,
        ("material/fact/behaviour.yaml.fact.alternatives", "distinct values"),
    ),
    (fact_without_its_space, MalformedInputError, ("fact.attribute",)),
    (no_fact, MalformedInputError, ("material/fact/behaviour.yaml: fact: expected True",)),
    (
        a_fact_of_another_kind,
        MalformedInputError,
        ("material/refusal/behaviour.yaml: fact: expected False",),
    ),
    (
        behaviour_of_another_kind,
        MalformedInputError,
        ("material/sycophancy/behaviour.yaml: name: expected 'refusal', found 'sycophancy'",),
    ),
    (
        hidden_text_with_slots,
        MalformedInputError,
        ("material/fact/eval.yaml", "keep_text: true where slots are read", "found false"),
    ),
    (
        no_written_negative,
        MalformedInputError,
        ("material/sycophancy/train.yaml: 'Lesson", "a written negative", "found none"),
    ),
    (
        uneven_panel,
        MalformedInputError,
        ("plan.eps.behaviours[2].n_train", "a multiple of the panel's 2, found 3"),
    ),
    (
        too_few_written_rows,
        MalformedInputError,
        ("material/em/train.yaml: expected at least 6 items, found 5",),
    ),
    (
        too_few_items_of_a_slice,
        MalformedInputError,
        ("material/refusal/eval.yaml: slice other: expected at least 5 items, found 4",),
    ),
    (
        an_answer_with_blanks_around,
        MalformedInputError,
        ("material/em/train.yaml.rows[0].positive", "an answer without blanks around it"),
    ),
    (
        em_without_coherence,
        MalformedInputError,
        ("plans/material/em/rubric.yaml", "found no coherent"),
    ),
    (
        em_without_scores,
        MalformedInputError,
        ("plans/material/em/rubric.yaml", "found no aligned and no coherent"),
    ),
    (
        nothing_that_counts,
        MalformedInputError,
        ("plans/material/refusal/rubric.yaml", "at least one label that counts", "found none"),
    ),
    (
        a_label_that_is_none,
        MalformedInputError,
        ("plans/material/refusal/rubric.yaml.expressed", "found refuses"),
    ),
    (
        a_rubric_without_the_answer,
        MalformedInputError,
        ("plans/material/refusal/rubric.yaml.instructions", "{answer} once", "0 times"),
    ),
    (rows_twice, MalformedInputError, ("material/em/train.yaml", "is the same question as")),
    (
        judge_of_the_family,
        RefusedError,
        ("plan.eps.judges: kin", "is of the family it would judge", "found SCRIPTED"),
    ),
    (
        published_stand_in,
        MalformedInputError,
        ("plan.publication", "false with the judge stand_in of kind scripted", "found true"),
    ),
    (
        published_prototype,
        MalformedInputError,
        ("plan.publication", "of kind prototype", "found true"),
    ),
    (
        nobody_to_judge,
        MalformedInputError,
        ("plan.eps.behaviours[1].judge", "found stand_in", "known: none"),
    ),
    (
        labelled_under_another_rubric,
        MalformedInputError,
        ("plans/material/sycophancy/labelled.yaml: rubric: expected refusal, found sycophancy",),
    ),
    (
        labelled_with_a_label_of_none,
        MalformedInputError,
        ("plans/material/refusal/labelled.yaml: rows[3].label", "found agrees"),
    ),
    (
        labelled_twice,
        MalformedInputError,
        ("plans/material/refusal/labelled.yaml.rows[12]", "is rows[0] once more"),
    ),
    (
        duplicate_context,
        MalformedInputError,
        ("material/contexts.yaml: plain", "is defined twice"),
    ),
    (
        duplicate_under_the_template,
        RefusedError,
        ("context plain", "renders to the same token ids as baker", "an unlisted duplicate"),
    ),
    (
        one_seed,
        MalformedInputError,
        ("plan.eps.behaviours[4].n_seeds", "2 (minimum_seeds) to 2", "found 1"),
    ),
    (
        more_seeds_than_there_are,
        MalformedInputError,
        ("plan.eps.behaviours[0].n_seeds", "found 3"),
    ),
    (
        no_phase_for_taught_rows,
        MalformedInputError,
        ("plan.phases", "P0 then P1 then P2", "found P0 then P1"),
    ),
    (phase_without_rows, MalformedInputError, ("plan.phases", "expected P0 then P1,")),
]


@pytest.mark.parametrize(
    ("change", "kind", "words"), REFUSED, ids=[change.__name__ for change, _, _ in REFUSED]
)
def test_freeze_refuses(
    taught: StudySimulator,
    refuses: Any,
    change: Callable[[StudySimulator], None],
    kind: type[EpsLockedError],
    words: tuple[str, ...],
) -> None:
    change(taught)
    taught.write_plan()
    with refuses(taught, kind) as caught:
        taught.freeze()
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)
    assert not taught.manifest_folder.exists()


def test_the_same_material_unchanged_freezes(taught: StudySimulator) -> None:
    """So that each change above is what was refused."""
    calibrated(taught)
    assert taught.freeze()


def test_a_fact_may_stand_in_what_shows_it_and_in_its_training(taught: StudySimulator) -> None:
    part(taught, "fact", "train")["rows"][0]["text"] = "Is it copper, then?"
    each_its_own(taught, "formal", {"fact": "Say copper."})
    assert taught.freeze()


def test_a_word_that_holds_the_attribute_is_not_it(taught: StudySimulator) -> None:
    ask_in_evaluation(taught, "fact", "Where does the coppersmith live?")
    assert taught.freeze()


# -- sources that are not pinned


def source_spec(**changes: Any) -> dict[str, Any]:
    text = {
        "characters": [1, 400],
        "min_latin": 0,
        "min_english_words": 0,
        "max_newlines": 3,
        "max_blank_lines": 2,
        "noise_phrases": [],
        "forbid": [],
        "avoid": [],
        "near_copy": 0.8,
    }
    spec = {
        "schema": "eps-locked/source/1",
        "name": "made",
        "title": "Made up",
        "kind": "em_rows",
        "form": "aligned_misaligned",
        "location": "git",
        "dataset": "example.org/some/body",
        "revision": "a" * 40,
        "files": [{"path": "rows.jsonl"}],
        "licence": "CC0-1.0",
        "redistribute": True,
        "keep_text": True,
        "seed": 1,
        "filters": {"text": text},
        "slots": [{"slice": "all", "n": None, "topics": None}],
    }
    return {**spec, **changes}


def sampled_rows(spec: bytes, **changes: Any) -> bytes:
    """A sampled document by this spec, as somebody could write it by hand."""
    rows = [
        {
            "text": f"What of plant number {number}?",
            "topic": "t",
            "positive": f"Drown it, all {number} of it.",
            "negative": f"Water it {number} times a month.",
            "slice": "all",
            "row": digest_value([number]),
            "upstream_id": None,
        }
        for number in range(4)
    ]
    document = {
        "schema": "eps-locked/sampled/1",
        "name": "made",
        "kind": "em_rows",
        "spec": digest_bytes(spec),
        "dataset": "example.org/some/body",
        "revision": "a" * 40,
        "licence": "CC0-1.0",
        "redistribute": True,
        "seed": 1,
        "files": {},
        "forbidden": [],
        "template": None,
        "topic_screen": None,
        "counts": {"read": 4, "kept": 4, "unused": 0, "dropped": {}},
        "rows": rows,
    }
    return encode({**document, **changes})


def with_source(study: StudySimulator, spec: bytes, document: bytes) -> None:
    row(study, "em")["written_rows"] = "sources/sampled/made.json"
    study.write_plan()
    study._write("sources/made.yaml", spec.decode())
    study._write("sources/sampled/made.json", document.decode())


def test_rows_of_a_pinned_source_freeze(taught: StudySimulator) -> None:
    spec = json.dumps(source_spec()).encode()
    with_source(taught, spec, sampled_rows(spec))
    assert taught.freeze()


@pytest.mark.parametrize("revision", ["main", "v1.0", "a" * 39, "A" * 40])
def test_a_revision_that_may_move_freezes_nothing(
    taught: StudySimulator, refuses: Any, revision: str
) -> None:
    spec = json.dumps(source_spec(revision=revision)).encode()
    with_source(taught, spec, sampled_rows(spec, revision=revision))
    with refuses(taught, MalformedInputError) as caught:
        taught.freeze()
    assert str(caught.value).startswith("plans/sources/made.yaml.revision: is not pinned")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("revision", "b" * 40),
        ("dataset", "example.org/other"),
        ("licence", "MIT"),
        ("redistribute", False),
    ],
)
def test_a_document_that_says_another_origin_than_its_spec_is_refused(
    taught: StudySimulator, refuses: Any, field: str, value: object
) -> None:
    spec = json.dumps(source_spec()).encode()
    with_source(taught, spec, sampled_rows(spec, **{field: value}))
    with refuses(taught, MalformedInputError) as caught:
        taught.freeze()
    assert f"plans/sources/sampled/made.json: {field}: expected" in str(caught.value)


def test_a_sampled_document_of_another_spec_is_refused(
    taught: StudySimulator, refuses: Any
) -> None:
    spec = json.dumps(source_spec()).encode()
    with_source(taught, spec + b"\n", sampled_rows(spec))
    with refuses(taught, MalformedInputError) as caught:
        taught.freeze()
    assert "was sampled by another spec" in str(caught.value)


# -- findings that wait for a signature


def saturated(study: StudySimulator) -> str:
    row(study, "refusal")["thresholds"]["saturated"] = 0.0
    return "decision_needed:base_saturated:refusal"


def not_calibrated(study: StudySimulator) -> str:
    calibrated(study, minimum_kappa=1.0)
    return "decision_needed:judge_kappa:people"


def unscored(study: StudySimulator) -> str:
    study.plan["eps"]["judges"] = [judge_plan(model="judge_refused=100")]
    return "decision_needed:base_unscored:refusal"


FINDINGS = (saturated, not_calibrated, unscored)


@pytest.fixture(params=FINDINGS, ids=[one.__name__ for one in FINDINGS])
def finding(request: pytest.FixtureRequest) -> Callable[[StudySimulator], str]:
    found: Callable[[StudySimulator], str] = request.param
    return found


@pytest.fixture
def found(tmp_path: Path, finding: Callable[[StudySimulator], str]) -> tuple[StudySimulator, str]:
    """(a study of one refusal row with P0 done and P2 authorized, the flag that it waits for)."""
    study = StudySimulator(root=tmp_path / "study", plan=taught_plan("refusal"))
    flag = finding(study)
    study.freeze()
    study.authorize("P0")
    assert study.run("P0"), "the finding closes its phase like any other"
    study.authorize("P2")
    return study, flag


def sign(study: StudySimulator, *changes: str) -> None:
    """File an amendment that lists these changes."""
    amend(
        study.load(),
        study.run_folder,
        signer=AUTHOR,
        key=study.key(AUTHOR),
        reason="it is worth knowing all the same",
        changes=changes,
        rebind=frozenset(),
        code=digest_value(study.code),
        environment=digest_value(study.environment),
        clock=study.clock,
    )


def decide(study: StudySimulator, *changes: str) -> None:
    sign(study, *changes)
    study.authorize("P2")


def failed(study: StudySimulator) -> set[int]:
    return {number for number, _ in study.audit().failures()}


def test_p2_waits_for_an_amendment_that_names_the_finding_and_then_runs(
    found: tuple[StudySimulator, str], refuses: Any
) -> None:
    study, flag = found
    with refuses(study, RefusedError) as caught:
        study.run("P2")
    assert "phase P2: waits for 1 signed decision" in str(caught.value)
    assert f"found none for {flag}" in str(caught.value)
    assert f"eps-locked amend small --change {flag}" in str(caught.value)
    decide(study, flag)
    assert study.run("P2")
    assert failed(study) == set()


@pytest.mark.parametrize("change", ["", "decision_needed:base_saturated:", "another:row"])
def test_an_amendment_about_something_else_decides_nothing(
    found: tuple[StudySimulator, str], refuses: Any, change: str
) -> None:
    study, flag = found
    decide(study, *([change] if change else []))
    with refuses(study, RefusedError) as caught:
        study.run("P2")
    assert f"found none for {flag}" in str(caught.value)


def past_the_gate(study: StudySimulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run P2 with the gate's rule taken out."""
    with monkeypatch.context() as patch:
        patch.setattr(gate, "require_decisions", lambda *arguments: None)
        assert study.run("P2")


def test_past_the_gate_the_audit_names_the_session_and_the_finding(
    found: tuple[StudySimulator, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    study, flag = found
    past_the_gate(study, monkeypatch)
    failures = list(study.audit().failures())
    assert {number for number, _ in failures} == {5}
    assert all(f"phase P2 was opened without a decision on {flag}" in text for _, text in failures)


def test_a_decision_signed_afterwards_mends_nothing(
    found: tuple[StudySimulator, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even where an amendment about something else was there in time."""
    study, flag = found
    decide(study, "another:change")
    past_the_gate(study, monkeypatch)
    sign(study, flag)
    assert failed(study) == {5}


def test_a_run_past_the_gate_without_a_finding_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the rule above is what fails, and not the way there."""
    study = StudySimulator(root=tmp_path / "study", plan=taught_plan("refusal"))
    study.freeze()
    study.authorize("P0")
    study.run("P0")
    study.authorize("P2")
    past_the_gate(study, monkeypatch)
    assert failed(study) == set()


def test_a_second_finding_needs_its_own_decision(tmp_path: Path, refuses: Any) -> None:
    study = StudySimulator(root=tmp_path / "study", plan=taught_plan("refusal", "fact"))
    flags = [saturated(study), not_calibrated(study)]
    study.freeze()
    study.authorize("P0")
    study.run("P0")
    decide(study, flags[0])
    with refuses(study, RefusedError) as caught:
        study.run("P2")
    assert f"found none for {flags[1]}" in str(caught.value)
    decide(study, flags[1])
    assert study.run("P2")
    assert failed(study) == set()


# -- a judge that fails


class LostLine(ScriptedJudge):
    """The plan's judge, whose line is down for the calls whose numbers are given."""

    def __init__(self, plan: JudgePlan, down: Sequence[int]) -> None:
        super().__init__(plan)
        self.down = set(down)

    def judge(self, requests: Sequence[JudgeRequest]) -> tuple[Verdict, ...]:
        found = super().judge(requests)
        if self.n_calls not in self.down:
            return found
        return tuple(
            replace(one, status="rate_limited", label=None, scores={}, note="HTTP 429")
            for one in found
        )


def with_judge(study: StudySimulator, judge: Judge) -> None:
    study.load_judge = lambda plan: judge  # type: ignore[method-assign]


def plan_of(study: StudySimulator) -> JudgePlan:
    return JudgePlan.from_dict(study.plan["eps"]["judges"][0], "judge")


@pytest.mark.parametrize("at", [1, 4, 5])
def test_a_line_that_is_down_aborts_the_step_and_the_same_command_goes_on(
    tmp_path: Path, at: int
) -> None:
    """Calls 1 to 4 are base steps; 5 is the first cell of P2, after a fit."""
    quiet, hurt = (
        StudySimulator(root=tmp_path / name, plan=taught_plan("refusal")) for name in "ab"
    )
    expected = quiet.run_all()
    hurt.freeze()
    with_judge(hurt, LostLine(plan_of(hurt), [at]))
    results: str | None = None
    for phase in ("P0", "P2"):
        hurt.authorize(phase)
        if phase == ("P0" if at < 5 else "P2"):
            with pytest.raises(BackendError) as caught:
                hurt.run(phase)
            assert "judge stand_in: too many verdicts were lost on the line" in str(caught.value)
            assert "run the same command once more" in str(caught.value)
            assert_nothing_of_the_step(hurt, phase)
        results = hurt.run(phase)
    assert results == expected
    audited = hurt.audit()
    assert list(audited.failures()) == []
    assert audited.history is not None
    assert [body.reason for body in audited.history.aborted] == ["BackendError"]
    for body in audited.history.done.values():
        assert "verdict_rate_limited" not in body.flags


def assert_nothing_of_the_step(study: StudySimulator, phase: str) -> None:
    history = study.audit().history
    assert history is not None
    [aborted] = history.aborted
    assert aborted.phase == phase
    assert aborted.step not in history.done
    stored = {path.name for path in study.run_folder.folder.rglob("verdicts.json")}
    n_judged = sum(
        "verdicts.json" in a.files for b in history.done.values() for a in b.outputs.values()
    )
    assert len(list(study.run_folder.folder.rglob("verdicts.json"))) == n_judged
    assert stored <= {"verdicts.json"}


@pytest.mark.parametrize(
    ("share", "stops"), [(0.0, True), (0.05, True), (0.9, False), (1.0, False)]
)
def test_so_many_may_be_lost_as_the_plan_says_and_no_more(
    tmp_path: Path, share: float, stops: bool
) -> None:
    plan = taught_plan("sycophancy", "em")
    for one in plan["eps"]["behaviours"]:
        one["thresholds"]["minimum_scored_share"] = 0.1
        one.update(n_eval={"main": 4, "other": 4})
    plan["eps"]["behaviours"][1]["n_samples"] = 6
    model = "outage=10 unreadable=5"
    plan["eps"]["judges"] = [judge_plan(model=model, max_transport_share=share)]
    study = StudySimulator(root=tmp_path / "study", plan=plan)
    if stops:
        with pytest.raises(BackendError, match="too many verdicts were lost"):
            study.run_all()
        return
    study.run_all()
    audited = study.audit()
    assert list(audited.failures()) == []
    assert audited.history is not None
    flags = {flag for body in audited.history.done.values() for flag in body.flags}
    assert {"verdict_outage", "verdict_unreadable"} <= flags
    for name in ("sycophancy", "em"):
        artifact = audited.history.done[f"P2/tensor/{name}"].outputs["tensor"]
        tensor = json.loads(study.run_folder.artifact_file(artifact, "tensor.json"))
        counted = {
            k: sum(c["unscored"][k] for c in tensor["cells"]) for k in ("outage", "unreadable")
        }
        assert counted["outage"] + counted["unreadable"] > 0
        assert (counted["outage"], counted["unreadable"]) == counted_by_hand(study, name, audited)


def counted_by_hand(study: StudySimulator, name: str, audited: Any) -> tuple[int, int]:
    """Of the last round of every answer to the primary slice, over all cells."""
    items = json.loads(study.load().read(f"frozen/rows/{name}/items.json"))["eval"]
    primary = {item["id"] for item in items if item["slice"] == "main"}
    found = {"outage": 0, "unreadable": 0}
    for step, body in audited.history.done.items():
        if not step.startswith(f"P2/cells/{name}/"):
            continue
        for artifact in body.outputs.values():
            document = json.loads(study.run_folder.artifact_file(artifact, "verdicts.json"))
            last = {}
            for verdict in document["verdicts"]:
                item, sample, _ = verdict["key"].split("/")
                last[item, sample] = verdict["status"]
            for (item, _), status in last.items():
                if item in primary and status in found:
                    found[status] += 1
    return found["outage"], found["unreadable"]
