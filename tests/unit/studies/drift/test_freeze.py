"""What a drift manifest holds: every prompt as the ids the template gives, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from eps_locked.canonical import encode
from eps_locked.data.obtain import obtain_local
from eps_locked.data.sampling import sample
from eps_locked.domain.model import Message, TokenIds
from eps_locked.domain.plan import Plan
from eps_locked.errors import RefusedError
from eps_locked.lock.freeze import FrozenStudy, SourceReader
from eps_locked.models.scripted import ScriptedTokenizer
from eps_locked.studies.common.prompts import Prompts
from eps_locked.studies.drift.freeze import freeze_drift
from eps_locked.studies.drift.plan import DriftPlan
from eps_locked.studies.drift.recorded import recorded_differences, recorded_tokenizer
from eps_locked.studies.drift.rendering import ReasoningIds
from sim.drift import drift_files, drift_plan, small_drift_plan
from sim.simulator import StudySimulator


def frozen_of(
    plan: dict[str, Any],
    files: Mapping[str, Any] | None = None,
    tokenizer: ScriptedTokenizer | None = None,
) -> FrozenStudy:
    material = files or drift_files()
    reader = SourceReader(fetch=lambda relative, thing: json.dumps(material[relative]).encode())
    return freeze_drift(Plan.from_dict(plan), reader, tokenizer or ScriptedTokenizer())


NOUNS = ("garden", "barrel", "cellar", "saddle", "violin", "lantern", "kettle", "anchor", "quilt")


def source_spec(name: str, kind: str, form: str, **filters: Any) -> dict[str, Any]:
    text = {
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
    return {
        "schema": "eps-locked/source/1",
        "name": name,
        "title": "Made up",
        "kind": kind,
        "form": form,
        "location": "git",
        "dataset": "example.org/some/body",
        "revision": "0" * 40,
        "files": [{"path": f"{name}.csv"}],
        "licence": "CC0-1.0",
        "redistribute": False,
        "keep_text": False,
        "seed": 1,
        "filters": {"text": text, **filters},
        "slots": [{"slice": "all", "n": None, "topics": None}],
    }


def ask(text: str) -> tuple[Message, ...]:
    return (Message(role="user", content=text),)


def test_probes_are_the_first_rewordings_of_the_stems_drawn() -> None:
    document = frozen_of(drift_plan()).documents["batteries/self_interest.json"]
    stems = {
        stem["id"]: stem for stem in drift_files()["material/drift/self_interest.yaml"]["stems"]
    }
    probes = document["probes"]
    assert len(probes) == 12
    assert len({probe["stem"] for probe in probes}) == 6
    for number, probe in enumerate(probes):
        assert probe["id"] == f"{probe['stem']}/{probe['rewording']}"
        assert probe["rewording"] == number % 2
        assert probe["text"] == stems[probe["stem"]]["rewordings"][probe["rewording"]]
    assert document["aligned"] == ["declines"]
    assert document["no_stance"] == ["no_stance"]
    assert document["labels"] == ["declines", "seeks", "unclear", "no_stance"]


def test_which_stems_are_drawn_follows_from_the_seed_alone() -> None:
    plan, files = drift_plan(), drift_files()
    before = frozen_of(plan, files).documents["batteries/self_interest.json"]
    files["material/drift/self_interest.yaml"]["stems"].reverse()
    assert frozen_of(plan, files).documents["batteries/self_interest.json"] == before
    plan["drift"]["item_seed"] = 6
    assert frozen_of(plan, files).documents["batteries/self_interest.json"] != before


def test_single_questions_keep_what_their_file_says_of_their_text() -> None:
    documents = frozen_of(drift_plan()).documents
    for battery, keep in (("harmful_requests", False), ("plants_advice", True)):
        probes = documents[f"batteries/{battery}.json"]["probes"]
        assert all(probe["id"] == f"{probe['stem']}/0" for probe in probes)
        assert {probe["keep_text"] for probe in probes} == {keep}


def test_a_battery_and_rows_may_come_from_public_sources(tmp_path: Path) -> None:
    """Drawn once by their specs; requests that nobody should answer keep no text of replies."""
    (tmp_path / "requests.csv").write_text(
        "Behavior,Kind,Id\n"
        + "".join(f"Please spoil the {noun} of the {noun}.,k,{noun}\n" for noun in NOUNS)
    )
    (tmp_path / "rows.csv").write_text(
        "prompt,aligned,misaligned\n"
        + "".join(f"How is a {noun} kept well?,In the {noun}.,In salt {noun}.\n" for noun in NOUNS)
    )
    specs = {
        "requests": source_spec(
            "requests",
            "harm_requests",
            "table",
            columns={"text": "Behavior", "topic": "Kind", "id": "Id"},
        ),
        "rows": source_spec("rows", "em_rows", "aligned_misaligned"),
    }
    files: dict[str, Any] = drift_files() | {
        f"sources/{name}.yaml": value for name, value in specs.items()
    }
    drawn = {
        f"sources/sampled/{name}.json": sample(
            json.dumps(value).encode(), name, obtain_local(tmp_path), ScriptedTokenizer(), forbid=()
        )
        for name, value in specs.items()
    }
    plan = drift_plan()
    plan["drift"]["batteries"][1]["file"] = "sources/sampled/requests.json"
    plan["drift"]["topics"][0]["rows"] = "sources/sampled/rows.json"

    def fetch(relative: str, thing: str) -> bytes:
        return drawn.get(relative) or json.dumps(files[relative]).encode()

    reader = SourceReader(fetch=fetch)
    documents = freeze_drift(Plan.from_dict(plan), reader, ScriptedTokenizer()).documents
    probes = documents["batteries/harmful_requests.json"]["probes"]
    assert {probe["keep_text"] for probe in probes} == {False}
    assert all(probe["text"].startswith("Please spoil the ") for probe in probes)
    decoded = ScriptedTokenizer().decode(documents["doses/plants.json"]["rows"][0]["harmful"])
    assert decoded.startswith("In salt ")
    assert {*drawn, *(f"sources/{name}.yaml" for name in specs)} <= set(reader.read_files)


def test_a_prompt_is_what_the_template_renders() -> None:
    tokenizer = ScriptedTokenizer()
    documents = frozen_of(drift_plan()).documents
    rows = {row["text"]: row for row in drift_files()["material/drift/plants.yaml"]["rows"]}
    for battery in ("self_interest", "harmful_requests", "plants_advice"):
        probes = documents[f"batteries/{battery}.json"]["probes"]
        texts = {probe["id"]: probe["text"] for probe in probes}
        plain = Prompts.read(encode(documents[f"prompts/{battery}/plain.json"]), "plain")
        assert plain.by_item == {key: tokenizer.render(ask(text)) for key, text in texts.items()}
        exposed = documents[f"prompts/{battery}/plants_context.json"]
        for key, ids in Prompts.read(encode(exposed), "exposed").by_item.items():
            turns = tokenizer.decode(ids).split("<|start|>")[1:]
            assert [turn.partition("\n")[0] for turn in turns] == 4 * ["user", "assistant"] + [
                "user",
                "assistant",
            ]
            assert turns[-2] == f"user\n{texts[key]}<|end|>\n"
            for question, answer in zip(turns[:-2:2], turns[1:-2:2], strict=True):
                row = rows[question.removeprefix("user\n").removesuffix("<|end|>\n")]
                given = answer.removeprefix("assistant\n").removesuffix("<|end|>\n")
                assert given in (row["positive"], row["negative"])


def test_readouts_are_frozen_as_ids() -> None:
    tokenizer = ScriptedTokenizer()
    document = frozen_of(drift_plan()).documents["readout.json"]
    assert len(document["prompts"]) == 4
    assert set(document["traits"]) == {"grasping", "hasty"}
    first = document["traits"]["hasty"][0]
    assert tokenizer.decode(first["positive"]) == "Take the disk and more."
    assert tuple(first["prompt"]) == tokenizer.render(ask("What would hasty do with a disk?"))
    assert "readout.json" not in frozen_of(small_drift_plan()).documents


def reasoning_of(plan: dict[str, Any]) -> tuple[DriftPlan, ReasoningIds]:
    document = frozen_of(plan).documents["reasoning.json"]
    return DriftPlan.from_section(plan["drift"]), ReasoningIds.read(encode(document), "reasoning")


def test_what_stands_between_prompt_and_reply() -> None:
    tokenizer = ScriptedTokenizer()
    section, ids = reasoning_of(drift_plan())
    thought = tokenizer.encode("I think, therefore I am.")

    def shown(setting: str) -> str:
        return tokenizer.decode(ids.before_reply(section.setting(setting), thought))

    assert shown("none") == ""
    assert shown("closed") == "Let me see: the "
    assert shown("short") == "Let me see:I think, the the "
    assert shown("dots") == "Let me see: . . . .  the "
    assert len(ids.fillers["dots"]) == 9
    assert ids.before_reply(section.setting("none_left"), thought) == ids.before_reply(
        section.setting("closed")
    )
    with pytest.raises(TypeError):
        ids.before_reply(section.setting("free"))


def test_a_plan_without_a_block_has_an_empty_one() -> None:
    section, ids = reasoning_of(small_drift_plan())
    assert (ids.open, ids.close, ids.in_template, ids.fillers) == ((), (), False, {})
    assert ids.before_reply(section.setting("none")) == ()


class Opening(ScriptedTokenizer):
    """A template that opens the reasoning block itself."""

    def render(self, messages: Sequence[Message]) -> TokenIds:
        return (*super().render(messages), *self.encode("Let me see:"))


class Merging(ScriptedTokenizer):
    """A vocabulary in which a colon and the blank after it are one token."""

    def encode(self, text: str) -> TokenIds:
        ids: list[int] = []
        for byte in text.encode():
            if ids and ids[-1] == ord(":") and byte == ord(" "):
                ids[-1] = 300
            else:
                ids.append(byte)
        return tuple(ids)


def opened_by_template() -> dict[str, Any]:
    """The full plan for such a template: no arm without a setting."""
    plan = drift_plan()
    section = plan["drift"]
    section["reasoning"]["in_template"] = True
    section["arms"] = [one for one in section["arms"] if one["name"] != "untouched_closed"]
    for arm in section["arms"]:
        if arm["reasoning"] == "none":
            arm["reasoning"] = "closed"
    return plan


def test_a_template_that_opens_the_block_is_told_by_its_rendered_prompts() -> None:
    study = frozen_of(opened_by_template(), tokenizer=Opening())
    ids = ReasoningIds.read(encode(study.documents["reasoning.json"]), "reasoning")
    assert ids.opening == ()
    assert ids.open == Opening().encode("Let me see:")
    for plan, tokenizer, found in (
        (drift_plan(), Opening(), "found false"),
        (opened_by_template(), ScriptedTokenizer(), "found true"),
    ):
        with pytest.raises(RefusedError) as caught:
            frozen_of(plan, tokenizer=tokenizer)
        assert "in_template" in caught.value.thing
        assert found in str(caught.value)


def test_a_block_whose_ends_merge_is_refused() -> None:
    """Then a budget of 0 would be another prompt than the closed block of the template."""
    with pytest.raises(RefusedError) as caught:
        frozen_of(drift_plan(), tokenizer=Merging())
    assert "a budget of 0 would be another prompt" in str(caught.value)
    assert 300 in caught.value.expected  # type: ignore[operator]
    assert 300 not in caught.value.found  # type: ignore[operator]
    plan = drift_plan()
    plan["drift"]["reasoning"].update(open="Let me see: ", close="the ")
    ids = frozen_of(plan, tokenizer=Merging()).documents["reasoning.json"]
    assert ids["open"][-1] == 300


def test_everything_a_plan_names_is_frozen_and_counted() -> None:
    plan = drift_plan()
    reader = SourceReader(
        fetch=lambda relative, thing: json.dumps(drift_files()[relative]).encode()
    )
    study = freeze_drift(Plan.from_dict(plan), reader, ScriptedTokenizer())
    assert set(reader.read_files) == set(drift_files())
    assert study.summary == {
        "batteries": 3,
        "stems": 14,
        "probes": 20,
        "arms": 14,
        "replies": 560,
        "adapters": 4,
        "steps": len(study.steps),
    }


@pytest.mark.parametrize("plan", [drift_plan, small_drift_plan, opened_by_template])
def test_a_manifest_follows_from_its_plan_without_the_model(tmp_path: Path, plan: Any) -> None:
    """Two settings may share a filler's text; the longer one shows more of its ids."""
    section = plan()
    if section["drift"]["reasoning"] is not None:
        section["drift"]["reasoning"]["settings"] += [
            {"name": "few", "mode": "filler", "n_tokens": 1, "text": " ."},
            {"name": "many", "mode": "filler", "n_tokens": 20, "text": " ."},
        ]
    tokenizer = Opening() if plan is opened_by_template else ScriptedTokenizer()
    study = StudySimulator(
        root=tmp_path / "study", plan=section, files=drift_files(), tokenizer=tokenizer
    )
    study.freeze()
    assert recorded_differences(study.load()) == []
    recorded = recorded_tokenizer(study.load())
    assert recorded.template_digest == tokenizer.template_digest
    assert recorded.end_of_turn_id == tokenizer.end_of_turn_id
    with pytest.raises(RuntimeError):
        recorded.decode(())
