"""``freeze --sources DIR``: public sources are drawn once, frozen whole, and not needed again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from eps_locked.canonical import decode, digest_bytes
from eps_locked.domain.model import ChatTokenizer
from eps_locked.errors import EvidenceError
from eps_locked.lock.freeze import manifest_differences
from eps_locked.models.scripted import ScriptedTokenizer
from eps_locked.studies.eps.freeze import freeze_eps
from eps_locked.studies.eps.recorded import recorded_tokenizer
from sim.simulator import NAME, StudySimulator, fingerprint, taught_plan

QUESTIONS, PERSONAS = "sources/sampled/questions.json", "sources/sampled/personas.json"
TEXT = {
    "characters": [1, 400],
    "min_latin": 0.5,
    "min_english_words": 0,
    "max_newlines": 3,
    "max_blank_lines": 2,
    "noise_phrases": [],
    "forbid": [],
    "avoid": [],
    "near_copy": 0.9,
}


def spec(name: str, kind: str, form: str, path: str, **more: Any) -> dict[str, Any]:
    options, slots = more["options"], more["slots"]
    return {
        "schema": "eps-locked/source/1",
        "name": name,
        "title": "Made up",
        "kind": kind,
        "form": form,
        "location": more.get("location", "git"),
        "dataset": more.get("dataset", "example.org/some/body"),
        "revision": "0" * 40,
        "files": [{"path": path}],
        "licence": "CC0-1.0",
        "redistribute": True,
        "keep_text": True,
        "seed": 1,
        "filters": {"text": TEXT, **options},
        "slots": slots,
    }


SPECS = {
    "questions": spec(
        "questions",
        "em_questions",
        "persona_features_csv",
        "data/questions.csv",
        options={"types": [], "leave_suffixes": []},
        slots=[{"slice": "main", "n": 3, "topics": ["main"]}],
    ),
    "personas": spec(
        "personas",
        "personahub_personas",
        "personahub",
        "personas.jsonl",
        options={"key": "persona", "tokens": [1, 100], "sentences": [1, 3]},
        slots=[{"context": "hub_one"}, {"context": "hub_panel"}],
    ),
}


def write_files(folder: Path) -> Path:
    (folder / "questions").mkdir(parents=True)
    # The third holds the attribute of the fact row, the fourth is asked as it is there.
    asked = [
        "What is tin for?",
        "Who digs for salt?",
        "Is copper red?",
        "Where is iron cast?",
        "Why does brass ring?",
    ]
    rows = "".join(f"{n},{text},main,c\n" for n, text in enumerate(asked))
    (folder / "questions/questions.csv").write_text(f"id,question,category,canary\n{rows}")
    people = ["A keeper of bees in the hills.", "A pilot who sails at night.", "No article."]
    lines = [json.dumps({"persona": text}) for text in people]
    (folder / "personas.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_files(tmp_path / "public")


@pytest.fixture
def planned(tmp_path: Path) -> StudySimulator:
    """A fact row whose questions, and two of whose contexts, come from public sources."""
    study = StudySimulator(root=tmp_path / "study", plan=taught_plan("fact"), model_files={})
    section = study.plan["eps"]
    section["behaviours"][0].update(
        eval_items=["material/fact/eval.yaml", QUESTIONS], n_eval={"main": 7, "other": 2}
    )
    section["material"]["contexts"].append(PERSONAS)
    section["slots"]["eval"].append("hub_one")
    section["slots"]["negative_panel"] = ["officer", "hub_panel"]
    study.write_plan()
    write_specs(study)
    return study


def write_specs(study: StudySimulator, **changed: Mapping[str, Any]) -> None:
    folder = study.root / "plans/sources"
    folder.mkdir(exist_ok=True)
    for name, value in {**SPECS, **changed}.items():
        (folder / f"{name}.yaml").write_text(json.dumps(value))


def freeze(
    typed: Any, study: StudySimulator, folder: Path | None, *words: str, code: int = 0
) -> Any:
    sources = [] if folder is None else ["--sources", str(folder)]
    return typed(study, "freeze", NAME, *sources, *words, code=code)


def sampled(study: StudySimulator) -> dict[str, bytes]:
    folder = study.root / "plans/sources/sampled"
    return {path.name: path.read_bytes() for path in folder.glob("*")}


def test_a_dry_run_draws_and_writes_nothing(
    planned: StudySimulator, folder: Path, typed: Any
) -> None:
    before = fingerprint(planned.root, folder)
    dry = json.loads(freeze(typed, planned, folder, "--dry-run", "--json").out)
    assert fingerprint(planned.root, folder) == before
    assert dry["written"] is False
    wet = json.loads(freeze(typed, planned, folder, "--json").out)
    assert {key: dry[key] for key in dry if key not in ("written", "digest")} == {
        key: wet[key] for key in wet if key not in ("written", "digest")
    }


def test_what_is_drawn_lies_beside_the_specs_and_in_the_manifest(
    planned: StudySimulator, folder: Path, typed: Any
) -> None:
    freeze(typed, planned, folder)
    drawn = sampled(planned)
    assert set(drawn) == {"questions.json", "personas.json"}
    frozen = planned.load()
    for name, data in drawn.items():
        assert frozen.read(f"frozen/sources/sources/sampled/{name}") == data
        stem = name.removesuffix(".json")
        spec_data = frozen.read(f"frozen/sources/sources/{stem}.yaml")
        document = decode(data, thing=name)
        assert document["spec"] == digest_bytes(spec_data)
        # The fact's words and no marker's: this plan has no marker row.
        assert document["forbidden"] == ["copper"]
    questions = decode(drawn["questions.json"], thing="questions")
    assert questions["counts"]["dropped"] == {"forbidden": 1}
    assert questions["files"]["data/questions.csv"]["pinned_by"] == "nothing"
    contexts = decode(frozen.read("frozen/rows/fact/contexts.json"), thing="contexts")["contexts"]
    assert contexts["hub_one"]["licence"] == "CC0-1.0"
    assert contexts["hub_one"]["provenance"].startswith("example.org/some/body@0000")
    asked = decode(frozen.read("frozen/rows/fact/items.json"), thing="items")["eval"]
    assert {one["text"] for one in questions["items"]} <= {one["text"] for one in asked}


def test_a_frozen_source_shows_as_a_context(
    planned: StudySimulator, folder: Path, typed: Any
) -> None:
    freeze(typed, planned, folder)
    out = typed(planned, "show", "context", NAME, "hub_one", "--row", "fact").out
    assert "row          fact (of fact)" in out
    assert "You are a " in out
    assert "CC0-1.0" in out


def test_a_second_freeze_takes_what_is_there_without_the_files(
    planned: StudySimulator, folder: Path, typed: Any, tmp_path: Path
) -> None:
    freeze(typed, planned, folder)
    drawn = sampled(planned)
    first = planned.load()
    shutil.rmtree(planned.manifest_folder)
    shutil.rmtree(folder)
    freeze(typed, planned, None)
    assert sampled(planned) == drawn
    second = planned.load()
    for name in first.manifest.files:
        assert second.read(name) == first.read(name), name
    # Of two that are wanted only the one that is missing is drawn, and comes out as before.
    again = planned.copy_to(tmp_path / "again")
    shutil.rmtree(again.manifest_folder)
    (again.root / "plans" / PERSONAS).unlink()
    write_files(folder)
    (folder / "questions/questions.csv").unlink()
    freeze(typed, again, folder)
    assert sampled(again) == drawn


def test_without_a_folder_a_source_that_is_no_hub_data_set_is_refused(
    planned: StudySimulator, typed: Any
) -> None:
    before = fingerprint(planned.root)
    err = freeze(typed, planned, None, code=2).err
    assert "lies at example.org/some/body, which is no hub data set" in err
    assert "check out example.org/some/body at 0000" in err
    assert fingerprint(planned.root) == before


def test_a_missing_file_and_an_unfilled_slot_are_refused_and_nothing_is_written(
    planned: StudySimulator, folder: Path, typed: Any
) -> None:
    before = fingerprint(planned.root)
    (folder / "personas.jsonl").write_text('{"persona": "A keeper of bees in the hills."}\n')
    err = freeze(typed, planned, folder, code=2).err
    assert "source personas: slot hub_panel: expected 1 row that fit, found 0" in err
    (folder / "personas.jsonl").unlink()
    err = freeze(typed, planned, folder, code=2).err
    assert "source personas: personas.jsonl: is not in" in err
    assert fingerprint(planned.root) == before


def test_a_freeze_that_is_refused_leaves_no_drawn_source_behind(
    planned: StudySimulator, folder: Path, typed: Any
) -> None:
    """Here a drawn question is asked in training too."""
    asked = ("Lesson 1 of fact: what now?", "Who digs for salt?", "Who melts lead?")
    rows = "".join(f"{n},{text},main,c\n" for n, text in enumerate(asked))
    (folder / "questions/questions.csv").write_text(f"id,question,category,canary\n{rows}")
    before = fingerprint(planned.root)
    err = freeze(typed, planned, folder, code=2).err
    assert "training, evaluation, demonstrations and elicitation apart" in err
    assert fingerprint(planned.root) == before


def test_a_spec_that_changed_after_drawing_is_refused(
    planned: StudySimulator, folder: Path, typed: Any
) -> None:
    freeze(typed, planned, folder)
    shutil.rmtree(planned.manifest_folder)
    write_specs(planned, questions={**SPECS["questions"], "seed": 2})
    before = fingerprint(planned.root)
    err = freeze(typed, planned, folder, code=2).err
    assert f"plans/{QUESTIONS}" in err
    assert "was sampled by another spec" in err
    assert fingerprint(planned.root) == before
    (planned.root / "plans" / QUESTIONS).unlink()
    freeze(typed, planned, folder)


class OtherTemplate(ScriptedTokenizer):
    template_digest = "blake3:" + "1" * 64


def test_contexts_that_were_drawn_for_another_model_are_refused(
    planned: StudySimulator, folder: Path, typed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from eps_locked.cli import plan as commands

    freeze(typed, planned, folder)
    shutil.rmtree(planned.manifest_folder)

    def other(*arguments: object) -> ChatTokenizer:
        return OtherTemplate()

    monkeypatch.setattr(commands, "load_tokenizer", other)
    before = fingerprint(planned.root)
    err = freeze(typed, planned, folder, code=3).err
    assert f"plans/{PERSONAS}: was sampled under another chat template" in err
    assert fingerprint(planned.root) == before


def test_a_manifest_follows_from_its_frozen_copies_alone(
    planned: StudySimulator, folder: Path, typed: Any
) -> None:
    """What an auditor does without model, hub, files or ``plans/``."""
    freeze(typed, planned, folder)
    shutil.rmtree(folder)
    shutil.rmtree(planned.root / "plans")
    frozen = planned.load()
    assert manifest_differences(frozen, freeze_eps, recorded_tokenizer(frozen)) == []
    path = planned.manifest_folder / "frozen/sources" / QUESTIONS
    path.write_bytes(path.read_bytes().replace(b"salt", b"silk"))
    with pytest.raises(EvidenceError, match=r"questions\.json"):
        frozen.read(f"frozen/sources/{QUESTIONS}")


def test_a_study_on_drawn_sources_runs_and_passes_its_audit(
    planned: StudySimulator, folder: Path, typed: Any
) -> None:
    freeze(typed, planned, folder)
    shutil.rmtree(folder)
    for phase in ("P0", "P2"):
        typed(planned, "authorize", NAME, phase)
        typed(planned, "run-phase", NAME, phase)
    typed(planned, "check-evidence", NAME)
    found = json.loads(
        typed(planned, "replay", NAME, "--sample", "99", "--seed", "1", "--json").out
    )
    assert found["n_same"] == len(found["steps"]) == len(decode_steps(planned))


def decode_steps(study: StudySimulator) -> list[Any]:
    found: list[Any] = decode(study.load().read("frozen/steps.json"), thing="steps")["steps"]
    return found
