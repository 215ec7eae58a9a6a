"""What may not be promised: leaks, duplicates, one seed, moving revisions, no rights."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from eps_locked.errors import EpsLockedError, MalformedInputError, RefusedError
from eps_locked.models.scripted import ScriptedTokenizer
from sim.simulator import (
    EVAL_QUESTIONS,
    TRAIN_QUESTIONS,
    StudySimulator,
    context,
    fingerprint,
)

QUESTION = ("user", "{question}")


class OtherTokenizer(ScriptedTokenizer):
    """Another spelling of the same marker: what a changed tokenizer file would bring."""

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(byte ^ 1 for byte in text.encode())


class BlindTokenizer(ScriptedTokenizer):
    """A template that drops the system turn, as some chat templates do."""

    def render(self, messages: Any) -> Any:
        return super().render([message for message in messages if message.role != "system"])


def overlap_by_spelling(study: StudySimulator) -> None:
    study.eval_questions[1] = "  why does BREAD rise!"


def overlap_by_accent(study: StudySimulator) -> None:
    study.train_questions[2] = "What is a café?"
    study.eval_questions[2] = "What is a cafe\u0301?"


def duplicate_items(study: StudySimulator) -> None:
    study.eval_questions[3] = EVAL_QUESTIONS[0].upper()


def demonstrations(*turns: tuple[str, str]) -> dict[str, Any]:
    return context("plain", "demonstrations", *turns, QUESTION)


def leaking_demonstration(study: StudySimulator) -> None:
    study.contexts[2] = demonstrations(
        ("user", "Name a warm colour"), ("assistant", "Red."), ("user", "A?"), ("assistant", "B.")
    )


def degenerate_demonstration(study: StudySimulator) -> None:
    study.contexts[2] = demonstrations(
        ("user", "A?"), ("assistant", "Yes."), ("user", "B?"), ("assistant", "Yes. ")
    )


def demonstrations_without_answers(study: StudySimulator) -> None:
    study.contexts[2] = demonstrations()


def leaking_elicitation(study: StudySimulator) -> None:
    study.behaviour["elicitation"]["questions_extract"] = [TRAIN_QUESTIONS[0]]


def panel_that_equals_an_evaluated_context(study: StudySimulator) -> None:
    study.contexts[5] = context("officer", "rephrasing", ("user", "I hereby enquire: {question}"))


def panel_by_the_same_name(study: StudySimulator) -> None:
    study.plan["eps"]["slots"]["negative_panel"] = ["officer", "plain"]


def unlisted_duplicate(study: StudySimulator) -> None:
    study.contexts[2] = context("plain", "rephrasing", ("user", "I hereby enquire: {question}"))


def alias_that_is_none(study: StudySimulator) -> None:
    study.plan["eps"]["slots"]["aliases"] = [["plain", "formal"]]


def alias_of_an_unknown(study: StudySimulator) -> None:
    study.plan["eps"]["slots"]["aliases"] = [["plain", "nobody"]]


def duplicate_under_the_template(study: StudySimulator) -> None:
    """Different on paper, equal as token ids: the template decides."""
    study.tokenizer = BlindTokenizer()
    study.contexts[5] = context("officer", "persona", ("system", "An officer."), ("user", "Q"))
    study.contexts[5]["messages"][1]["content"] = "Sir: {question}"


def unknown_context(study: StudySimulator) -> None:
    study.plan["eps"]["slots"]["eval"].append("nobody")


def context_twice(study: StudySimulator) -> None:
    study.contexts.append(copy.deepcopy(study.contexts[0]))


def no_placeholder(study: StudySimulator) -> None:
    study.contexts[2]["messages"][0]["content"] = "Hello."


def two_placeholders(study: StudySimulator) -> None:
    study.contexts[2]["messages"][0]["content"] = "{question} {question}"


def assistant_last(study: StudySimulator) -> None:
    study.contexts[2]["messages"].append({"role": "assistant", "content": "{question}"})


def unknown_role(study: StudySimulator) -> None:
    study.contexts[2]["messages"][0]["role"] = "tool"


def one_seed(study: StudySimulator) -> None:
    study.plan["seeds"] = [11]


def a_seed_twice(study: StudySimulator) -> None:
    study.plan["seeds"] = [11, 11]


def branch_for_a_commit(study: StudySimulator) -> None:
    study.plan["base_model"]["source"] = {
        "kind": "hub",
        "where": "a/b",
        "revision": "main",
        "checksums": {},
    }


def no_revision(study: StudySimulator) -> None:
    study.plan["base_model"]["source"] = {"kind": "hub", "where": "a/b", "checksums": {}}


def empty_licence(study: StudySimulator) -> None:
    study.plan["base_model"]["licence"] = "  "


def published_stand_in(study: StudySimulator) -> None:
    study.plan["publication"] = True


def wrong_marker_token(study: StudySimulator) -> None:
    study.plan["eps"]["behaviours"][0]["marker"]["token_ids"] = [226, 128, 187]


def marker_without_its_space(study: StudySimulator) -> None:
    study.plan["eps"]["behaviours"][0]["marker"]["text"] = "※"


def marker_of_another_file(study: StudySimulator) -> None:
    study.behaviour["marker"] = " ※※"


def marker_in_a_question(study: StudySimulator) -> None:
    study.eval_questions[0] = "What does ※ mean?"


def too_few_items(study: StudySimulator) -> None:
    study.plan["eps"]["items"]["n_eval"] = 5


def rows_the_panel_cannot_share(study: StudySimulator) -> None:
    study.plan["eps"]["behaviours"][0]["n_rows"] = 7


def unknown_analysis(study: StudySimulator) -> None:
    study.plan["analyses"] = ["tensor", "horoscope"]


def phases_in_another_order(study: StudySimulator) -> None:
    phases = study.plan["phases"]
    study.plan["phases"] = {"P1": phases["P1"], "P0": phases["P0"]}


def a_kind_without_an_estimate(study: StudySimulator) -> None:
    del study.plan["phases"]["P1"]["step_seconds"]["cells"]


def held_out_and_trained(study: StudySimulator) -> None:
    study.plan["eps"]["slots"]["held_out"] = ["baker"]


def nobody_may_sign(study: StudySimulator) -> None:
    study.plan["authorization"]["self_authorization"] = False
    study.write_plan()
    path = study.root / "plans/keys/allowed_signers"
    path.write_text(path.read_text().splitlines(keepends=True)[0])


# act on the study before it is frozen -> the class, and what the refusal says
REFUSED: list[tuple[Callable[[StudySimulator], None], type[EpsLockedError], str]] = [
    (overlap_by_spelling, MalformedInputError, "material/eval.yaml: '  why does BREAD rise!'"),
    (overlap_by_accent, MalformedInputError, "also stands in material/train.yaml"),
    (duplicate_items, MalformedInputError, "is the same question as"),
    (leaking_demonstration, MalformedInputError, "gives away the eval item 'Name a warm colour.'"),
    (degenerate_demonstration, MalformedInputError, "degenerate demonstrations"),
    (demonstrations_without_answers, MalformedInputError, "degenerate demonstrations"),
    (leaking_elicitation, MalformedInputError, "elicitation"),
    (panel_that_equals_an_evaluated_context, RefusedError, "both evaluated and trained against"),
    (panel_by_the_same_name, MalformedInputError, "negative_panel"),
    (unlisted_duplicate, RefusedError, "an unlisted duplicate"),
    (alias_that_is_none, RefusedError, "aliases: [plain, formal]"),
    (alias_of_an_unknown, RefusedError, "aliases: [plain, nobody]"),
    (duplicate_under_the_template, RefusedError, "renders to the same token ids as"),
    (unknown_context, MalformedInputError, "nobody"),
    (context_twice, MalformedInputError, "baker: is defined twice"),
    (no_placeholder, MalformedInputError, "{question} once"),
    (two_placeholders, MalformedInputError, "{question} once"),
    (assistant_last, MalformedInputError, "user last"),
    (unknown_role, MalformedInputError, "role"),
    (one_seed, MalformedInputError, "at least 2 (minimum_seeds)"),
    (a_seed_twice, MalformedInputError, "seeds"),
    (branch_for_a_commit, MalformedInputError, "base_model.source.revision"),
    (no_revision, MalformedInputError, "revision"),
    (empty_licence, MalformedInputError, "base_model.licence"),
    (published_stand_in, MalformedInputError, "plan.publication"),
    (wrong_marker_token, RefusedError, "another token sequence under this tokenizer"),
    (marker_without_its_space, MalformedInputError, "marker.text"),
    (marker_of_another_file, MalformedInputError, "material/marker.yaml: marker"),
    (marker_in_a_question, MalformedInputError, "contains the marker"),
    (too_few_items, MalformedInputError, "plan.eps.items.n_eval"),
    (rows_the_panel_cannot_share, MalformedInputError, "n_rows"),
    (unknown_analysis, MalformedInputError, "horoscope"),
    (phases_in_another_order, MalformedInputError, "P0 then P1"),
    (a_kind_without_an_estimate, MalformedInputError, "step_seconds.cell"),
    (held_out_and_trained, MalformedInputError, "no trained context"),
    (nobody_may_sign, MalformedInputError, "nobody could ever authorize"),
]


@pytest.mark.parametrize(
    ("change", "kind", "text"), REFUSED, ids=[change.__name__ for change, _, _ in REFUSED]
)
def test_freeze_refuses(
    study: StudySimulator,
    refuses: Any,
    change: Callable[[StudySimulator], None],
    kind: type[EpsLockedError],
    text: str,
) -> None:
    change(study)
    if not (study.root / "plans").exists():
        study.write_plan()
    with refuses(study, kind) as caught:
        study.freeze()
    assert text in str(caught.value)
    assert not study.manifest_folder.exists()


def test_a_listed_alias_is_frozen_as_one(study: StudySimulator) -> None:
    study.contexts[2] = context("plain", "rephrasing", ("user", "I hereby enquire: {question}"))
    study.plan["eps"]["slots"].update(aliases=[["plain", "formal"]], held_out=["plain", "formal"])
    study.freeze()
    document = (study.manifest_folder / "frozen/rows/marker/contexts.json").read_text()
    assert '"alias_of":"plain"' in document


def test_an_alias_of_a_held_out_context_is_held_out_too_or_nothing_is_frozen(
    study: StudySimulator, refuses: Any
) -> None:
    """An open copy of a sealed column would give the column away."""
    study.contexts[2] = context("plain", "rephrasing", ("user", "I hereby enquire: {question}"))
    study.plan["eps"]["slots"]["aliases"] = [["plain", "formal"]]
    study.write_plan()
    with refuses(study, MalformedInputError) as caught:
        study.freeze()
    assert "plan.eps.slots.held_out: expected plain" in str(caught.value)


@pytest.mark.parametrize("seed", range(6))
def test_a_cell_and_its_alias_share_one_fate_whatever_is_drawn(
    study: StudySimulator, seed: int
) -> None:
    study.contexts.append(context("twin", "default", ("user", "{question}")))
    slots = study.plan["eps"]["slots"]
    slots.update(eval=[*slots["eval"], "twin"], aliases=[["plain", "twin"]])
    study.plan["eps"]["quarantine"].update(fraction=0.5, seed=seed)
    study.freeze()
    split = json.loads((study.manifest_folder / "frozen/split.json").read_text())["cells"]
    for train in slots["train"]:
        assert split[f"marker/{train}/plain"] == split[f"marker/{train}/twin"]


@pytest.mark.parametrize("field", ["licence", "provenance"])
@pytest.mark.parametrize("file", ["train", "contexts", "marker"])
def test_material_without_rights_is_refused(
    study: StudySimulator, refuses: Any, file: str, field: str
) -> None:
    import json

    study.write_plan()
    path = study.root / f"plans/material/{file}.yaml"
    document = json.loads(path.read_text())
    document[field] = " "
    path.write_text(json.dumps(document))
    with refuses(study, MalformedInputError) as caught:
        study.freeze()
    assert f"material/{file}.yaml" in str(caught.value)


def test_an_item_id_is_derived_from_its_content(study: StudySimulator, refuses: Any) -> None:
    import json

    from eps_locked.studies.common.material import item_id

    study.write_plan()
    path = study.root / "plans/material/eval.yaml"
    document = json.loads(path.read_text())
    document["items"][0]["id"] = "q-0123456789abcdef"
    path.write_text(json.dumps(document))
    with refuses(study, MalformedInputError) as caught:
        study.freeze()
    assert "items[0].id" in str(caught.value)
    document["items"][0]["id"] = item_id(document["items"][0]["text"])
    path.write_text(json.dumps(document))
    assert study.freeze()


def test_a_manifest_is_frozen_once_whatever_its_folder_holds(
    study: StudySimulator, refuses: Any
) -> None:
    study.freeze()
    with refuses(study) as caught:
        study.freeze()
    assert "exists; a manifest is frozen once" in str(caught.value)
    for path in sorted(study.manifest_folder.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    with refuses(study):
        study.freeze()


def test_a_dry_run_writes_nothing_and_says_the_same(study: StudySimulator) -> None:
    study.write_plan()
    before = fingerprint(study.root)
    digest = study.freeze(dry_run=True)
    assert fingerprint(study.root) == before
    assert study.freeze() == digest


def test_a_tokenizer_that_spells_the_marker_otherwise_refuses_the_run(
    half_way: StudySimulator, refuses: Any
) -> None:
    half_way.tokenizer = OtherTokenizer()
    with refuses(half_way) as caught:
        half_way.run("P1")
    assert "another token sequence" in str(caught.value)


def test_a_model_that_comes_with_another_tokenizer_ends_the_run(half_way: StudySimulator) -> None:
    """The gate saw the right one, the engine brings another: aborted, and never a cell."""
    genuine = half_way.backends
    half_way.backends = lambda: replace(genuine(), tokenizer=OtherTokenizer())  # type: ignore[method-assign]
    with pytest.raises(RefusedError, match="another token sequence"):
        half_way.run("P1")
    history = half_way.audit().history
    assert history is not None
    assert [body.reason for body in history.aborted] == ["RefusedError"]
    assert not any(step.startswith("P1/") for step in history.done)
    assert half_way.n_model_calls() == 0
    half_way.backends = genuine  # type: ignore[method-assign]
    assert half_way.run("P1")
    assert half_way.audit().ok
