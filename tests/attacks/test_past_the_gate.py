"""Somebody edits a manifest folder between freezing and the first signature, and seals it anew.

The folder is whole in itself and all that follows is signed over it, so digests show nothing.
Only freezing again does: the gate refuses (G13), and a run made past that rule fails C14.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from eps_locked.canonical import digest_bytes
from sim.forge import edit_json, replace_frozen, reseal
from sim.simulator import AUTHOR, StudySimulator

FRIEND = "friend@example"


@dataclass(frozen=True)
class Edit:
    """``words`` stand in the gate's refusal; ``seen`` are the checks that fail in a run past it."""

    act: Callable[[StudySimulator], object]
    words: str
    seen: frozenset[int] = frozenset({14})
    signer: str = AUTHOR


def document(
    name: str, change: Callable[[Any], object], seen: frozenset[int] = frozenset({14})
) -> Edit:
    """A frozen JSON document changed, and listed so."""

    def act(study: StudySimulator) -> None:
        path = f"frozen/{name}"
        data = (study.manifest_folder / path).read_bytes()
        replace_frozen(study, path, edit_json(data, change))

    return Edit(act, name, seen)


def field(**changes: Any) -> Edit:
    return Edit(lambda study: reseal(study, **changes), next(iter(changes)))


def other_quarantine(split: Any) -> None:
    other = {"open": "quarantined", "quarantined": "open"}
    split["cells"] = {cell: other.get(fate, fate) for cell, fate in split["cells"].items()}


def one_seed_less(listed: Any) -> None:
    listed["steps"] = [step for step in listed["steps"] if "s12" not in step["id"]]
    for step in listed["steps"]:
        step["inputs"] = {k: v for k, v in step["inputs"].items() if "s12" not in v}


def free_of_cost(listed: Any) -> None:
    for step in listed["steps"]:
        step["estimate_ms"] = 0


def shorter_prefix(prompts: Any) -> None:
    """The same prompts, split elsewhere."""
    token = prompts["prefix"].pop()
    prompts["suffixes"] = {item: [token, *ids] for item, ids in prompts["suffixes"].items()}


def other_prompt(prompts: Any) -> None:
    """One letter of one question, as the model would read it."""
    next(iter(prompts["suffixes"].values()))[0] ^= 1


def one_key_under_two_names(study: StudySimulator) -> None:
    """The author could sign as their own colleague, past the cap on self-authorization."""
    public = study.key(AUTHOR).with_suffix(".pub").read_text().strip()
    data = f"{AUTHOR} {public}\n{FRIEND} {public}\n".encode()
    for suffix in ("", ".pub"):
        shutil.copy(f"{study.key(AUTHOR)}{suffix}", f"{study.key(FRIEND)}{suffix}")
    source = "keys/allowed_signers"
    (study.root / "plans" / source).write_bytes(data)
    for name in ("allowed_signers", f"sources/{source}"):
        replace_frozen(study, f"frozen/{name}", data)
    sources = dict(study.load().manifest.to_payload()["sources"])
    sources[source] = {"digest": digest_bytes(data), "size": len(data)}
    reseal(study, sources=sources)


def source_swapped(study: StudySimulator) -> None:
    """plans/ stays as it was frozen; only the copy beside the manifest is another."""
    name = "frozen/sources/material/eval.yaml"
    text = (study.manifest_folder / name).read_text("utf-8")
    replace_frozen(study, name, text.replace("sky blue", "sea blue").encode())


EDITS = {
    "auto_approve_ms": field(auto_approve_ms=10**12),
    "author": field(author="nobody@example"),
    "publication": field(publication=True),
    "title": field(title="A larger study"),
    "summary": field(summary={"cells": 1000}),
    "self_authorization": field(self_authorization=True),
    "quarantine chosen by hand": document("split.json", other_quarantine),
    "a seed dropped": document("steps.json", one_seed_less),
    "steps that cost nothing": document("steps.json", free_of_cost),
    "another question under an old id": document(
        "rows/marker/items.json",
        lambda items: items["eval"][0].update(text="Is this another question?"),
    ),
    "a context made an alias": document(
        "rows/marker/contexts.json",
        lambda found: found["contexts"]["plain"].update(alias_of="baker"),
    ),
    "prompts split elsewhere": document("rows/marker/prompts/plain.json", shorter_prefix),
    "probes swapped": document(
        "rows/marker/prompts/plain.json", lambda found: found["probes"].reverse()
    ),
    # Without a tokenizer nobody can tell what it should have given: docs/lock.md, C14.
    "a prompt reworded": document("rows/marker/prompts/plain.json", other_prompt, seen=frozenset()),
    "another end of turn": document(
        "rows/marker/contexts.json", lambda found: found.update(end_of_turn_id=7), seen=frozenset()
    ),
    "one key under two names": Edit(
        one_key_under_two_names, "cannot be frozen again", signer=FRIEND
    ),
    "a source swapped": Edit(source_swapped, "eval.yaml"),
    "a document added": Edit(
        lambda study: replace_frozen(study, "frozen/more.json", b"{}"), "more.json"
    ),
}


@pytest.fixture(params=EDITS)
def edit(request: pytest.FixtureRequest) -> Edit:
    return EDITS[request.param]


@pytest.fixture
def edited(study: StudySimulator, edit: Edit) -> StudySimulator:
    """Frozen, edited, sealed anew, and only then authorized."""
    if edit.words == "self_authorization":
        study.plan["authorization"]["self_authorization"] = False
    study.freeze()
    edit.act(study)
    study.authorize("P0", signer=edit.signer)
    return study


def test_the_gate_refuses_before_a_model_is_called(
    edited: StudySimulator, edit: Edit, refuses: Any
) -> None:
    with refuses(edited) as caught:
        edited.run("P0")
    assert edit.words in str(caught.value)
    assert "freeze the plan again under another name" in str(caught.value)


def test_past_the_gates_rule_the_run_goes_through_and_only_the_audits_rule_sees_it(
    edited: StudySimulator, edit: Edit
) -> None:
    edited.refreeze = lambda frozen: []  # type: ignore[method-assign]
    edited.run("P0")
    edited.authorize("P1", signer=edit.signer)
    edited.run("P1")
    assert {number for number, _ in edited.audit().failures()} == edit.seen


def test_a_run_past_the_gate_that_nobody_edited_passes(study: StudySimulator) -> None:
    """So that the rule above is what fails, and not the way there."""
    study.refreeze = lambda frozen: []  # type: ignore[method-assign]
    study.run_all()
    assert list(study.audit().failures()) == []


def test_an_edit_after_p0_refuses_p1_as_well(half_way: StudySimulator, refuses: Any) -> None:
    """The digest changed, so everything signed and recorded names another manifest."""
    reseal(half_way, publication=True)
    with refuses(half_way):
        half_way.run("P1")


def test_the_refusal_lists_more_than_the_first_difference(
    study: StudySimulator, refuses: Any
) -> None:
    study.freeze()
    reseal(study, publication=True, title="Another")
    study.authorize("P0")
    with refuses(study) as caught:
        study.run("P0")
    text = json.dumps([str(caught.value), *caught.value.details])
    assert "publication" in text
    assert "title" in text
