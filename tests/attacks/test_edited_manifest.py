"""A manifest edited between freezing and signing: every digest right, and the promise another.

Its own digest, the list of files and what people sign all agree, so only freezing again from the
plan inside it shows what was changed (G13 at the gate, C14 in the audit).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sim.forge import edit_json, replace_frozen, reseal
from sim.simulator import AUTHOR, COLLEAGUE, StudySimulator, tiny_plan

Edit = Callable[[StudySimulator], object]


def in_document(name: str, change: Callable[[Any], object]) -> Edit:
    def edit(study: StudySimulator) -> None:
        path = study.manifest_folder / "frozen" / name
        replace_frozen(study, f"frozen/{name}", edit_json(path.read_bytes(), change))

    return edit


def add_file(study: StudySimulator) -> None:
    replace_frozen(study, "frozen/extra.json", b"{}")


def another_plan_inside(study: StudySimulator) -> None:
    """The plan's copy is edited too: then it is not the plan in plans/ (and C3 says so)."""
    path = study.manifest_folder / "frozen/plan.yaml"
    replace_frozen(study, "frozen/plan.yaml", path.read_bytes().replace(b"[5, 12]", b"[5, 13]"))
    replace_frozen(study, "frozen/plan.yaml", path.read_bytes().replace(b'"seed": 5', b'"seed": 6'))


def a_stranger_may_sign(study: StudySimulator) -> None:
    path = study.manifest_folder / "frozen/allowed_signers"
    line = path.read_text().splitlines()[0].replace("author@", "stranger@")
    replace_frozen(study, "frozen/allowed_signers", (line + "\n").encode())


EDITS: dict[str, tuple[Edit, str]] = {
    "a step less": (in_document("steps.json", lambda d: d["steps"].pop()), "steps.json"),
    "a cheaper step": (
        in_document("steps.json", lambda d: d["steps"][0].update(estimate_ms=1)),
        "steps.json",
    ),
    "another seed": (
        in_document("steps.json", lambda d: d["steps"][-2].update(seed=99)),
        "steps.json",
    ),
    "another question": (
        in_document("rows/marker/items.json", lambda d: d["eval"][0].update(text="Why?")),
        "items.json",
    ),
    "another prompt": (
        in_document("rows/marker/prompts/plain.json", lambda d: d["prefix"].append(65)),
        "prompts/plain.json",
    ),
    "an opened cell": (in_document("split.json", lambda d: d["cells"].clear()), "split.json"),
    "an alias made up": (
        in_document(
            "rows/marker/contexts.json",
            lambda d: d["contexts"]["plain"].update(alias_of="baker"),
        ),
        "contexts.json",
    ),
    "a file more": (add_file, "extra.json"),
    "other signers": (a_stranger_may_sign, "allowed_signers"),
    "another author": (lambda s: reseal(s, author=COLLEAGUE), "author"),
    "a higher cap alone": (lambda s: reseal(s, auto_approve_ms=10**9), "auto_approve_ms"),
    "for publication": (lambda s: reseal(s, publication=True), "publication"),
    "another title": (lambda s: reseal(s, title="A larger study"), "title"),
    "a phase less": (lambda s: reseal(s, phases=["P0"]), "phases"),
    "a count": (lambda s: reseal(s, summary={"cells": 1}), "summary"),
    "sources forgotten": (lambda s: reseal(s, sources={}), "sources"),
    "another study": (lambda s: reseal(s, study="vea"), "study"),
    "another plan's digest": (lambda s: reseal(s, plan="blake3:" + "7" * 64), "plan"),
}


@pytest.fixture(scope="session")
def _frozen(tmp_path_factory: pytest.TempPathFactory) -> StudySimulator:
    study = StudySimulator(root=tmp_path_factory.mktemp("frozen") / "study", plan=tiny_plan())
    study.freeze()
    return study


@pytest.fixture
def frozen(_frozen: StudySimulator, tmp_path: Any) -> StudySimulator:
    return _frozen.copy_to(tmp_path / "study")


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_manifest_is_refused_although_all_its_digests_are_right(
    frozen: StudySimulator, refuses: Any, name: str
) -> None:
    edit, text = EDITS[name]
    edit(frozen)
    if name == "other signers":
        with refuses(frozen):
            frozen.authorize("P0", signer=COLLEAGUE)
        frozen.key("stranger@example").write_bytes(frozen.key(AUTHOR).read_bytes())
        frozen.key("stranger@example").chmod(0o600)
        frozen.authorize("P0", signer="stranger@example")
    else:
        frozen.authorize("P0", signer=COLLEAGUE)
    with refuses(frozen) as caught:
        frozen.run("P0")
    assert text in str(caught.value)
    audited = frozen.audit()
    # The auditor has no tokenizer and reads the frozen prompts in its place, so an edited question
    # or prompt may show in another file than its own.
    assert audited.checks[1].failures + audited.checks[14].failures


def test_another_plan_inside_is_not_the_plan_outside(frozen: StudySimulator, refuses: Any) -> None:
    another_plan_inside(frozen)
    frozen.authorize("P0", signer=COLLEAGUE)
    with refuses(frozen):
        frozen.run("P0")
    assert not frozen.audit().ok


def test_a_manifest_as_it_was_frozen_is_not_refused(frozen: StudySimulator) -> None:
    frozen.authorize("P0", signer=COLLEAGUE)
    assert frozen.run("P0")
