"""Freezing a ``battery``: items drawn by seed and stratum, requests complete, material apart."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eps_locked.canonical import decode, digest_bytes, encode
from eps_locked.data.obtain import obtain_local
from eps_locked.data.sampling import sample
from eps_locked.domain.ledger import FileRecord
from eps_locked.domain.model import Message
from eps_locked.domain.plan import Plan
from eps_locked.errors import BackendError, MalformedInputError
from eps_locked.lock.freeze import FrozenStudy, SourceReader
from eps_locked.models.scripted import ScriptedTokenizer
from eps_locked.studies.battery.axes import AxisItem, FrozenAxis, draw
from eps_locked.studies.battery.freeze import freeze_battery
from eps_locked.studies.battery.recorded import recorded_differences, recorded_tokenizer
from eps_locked.studies.battery.rules import Number
from eps_locked.studies.battery.teaching import FrozenRows
from eps_locked.studies.common.wiring import load_tokenizer
from sim.battery import (
    FOLDER,
    battery_files,
    battery_plan,
    capability_file,
    gateway_plan,
    harmful_axis,
    over_refusal_file,
    tools_file,
)
from sim.simulator import StudySimulator

Files = dict[str, Any]


def frozen_of(plan: dict[str, Any], files: Files | None = None, tokenizer: Any = None) -> Any:
    return frozen_and_read(plan, files, tokenizer)[0]


def frozen_and_read(
    plan: dict[str, Any], files: Files | None = None, tokenizer: Any = None
) -> tuple[FrozenStudy, SourceReader]:
    material = battery_files() if files is None else files

    def fetch(relative: str, thing: str) -> bytes:
        value = material[relative]
        return value if isinstance(value, bytes) else json.dumps(value).encode()

    reader = SourceReader(fetch=fetch)
    study = freeze_battery(Plan.from_dict(plan), reader, tokenizer or ScriptedTokenizer())
    return study, reader


def axis_of(plan: dict[str, Any], name: str, files: Files | None = None) -> FrozenAxis:
    document = frozen_of(plan, files).documents[f"axes/{name}.json"]
    return FrozenAxis.read(encode(document), name)


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


# -- requests


def test_a_request_is_a_plain_user_turn_with_what_scoring_needs() -> None:
    plan = battery_plan()
    texts = {one["id"]: one["text"] for one in over_refusal_file()["items"]}
    axis = axis_of(plan, "over_refusal")
    assert (axis.benign, len(axis.items)) == (True, 6)
    for item in axis.items:
        assert item.messages == (user(texts[item.id]),)
        assert item.asked == texts[item.id]
    file = capability_file()
    sums = {one["id"]: one for one in file["items"]}
    for item in axis_of(plan, "capability").items:
        assert item.messages == (user(f"{sums[item.id]['text']}\n\n{file['closing']}"),)
        assert isinstance(item.rule, Number)
        assert item.rule.value == sums[item.id]["rule"]["value"]
        assert item.reference == sums[item.id]["reference"]
    premise = axis_of(plan, "sycophancy").items[0]
    assert premise.premise is not None
    assert premise.reference is not None


def test_a_tool_case_is_frozen_with_its_tools_and_calls() -> None:
    cases = {one["id"]: one for one in tools_file()["cases"]}
    axis = axis_of(battery_plan(), "tools")
    assert len(axis.items) == 8
    for item in axis.items:
        assert item.case is not None
        assert item.messages == tuple(cases[item.id]["messages"])
        assert item.case.tool_names == tuple(cases[item.id]["tools"])
        assert item.case.kind == cases[item.id]["case"]
        assert item.case.tools == item.tools
        assert [call.tool for call in item.case.calls] == [
            call["tool"] for call in cases[item.id]["calls"]
        ]


def test_a_system_prompt_stands_before_what_has_none() -> None:
    plan, files = battery_plan(), battery_files()
    plan["battery"]["system_prompt"] = "Answer briefly."
    ours = {"role": "system", "content": "Answer briefly."}
    own = {"role": "system", "content": "You are an assistant."}
    files[f"{FOLDER}/tools.yaml"]["cases"][0]["messages"].insert(0, own)
    for name in ("over_refusal", "capability", "sycophancy", "speed"):
        for item in axis_of(plan, name, files).items:
            assert [one["role"] for one in item.messages] == ["system", "user"]
            assert item.messages[0] == ours
    first = {item.id: item.messages[0] for item in axis_of(plan, "tools", files).items}
    assert first.pop("lyon") == own
    assert all(one == ours for one in first.values())


def test_what_trains_an_adapter_is_asked_as_it_will_be_asked() -> None:
    tokenizer = ScriptedTokenizer()
    texts = [row["text"] for row in battery_files()[f"{FOLDER}/cautious-rows.yaml"]["rows"]]
    for system_prompt in (None, "Answer briefly."):
        plan = battery_plan()
        plan["battery"]["system_prompt"] = system_prompt
        document = frozen_of(plan).documents["trainings/cautious.json"]
        rows = FrozenRows.read(encode(document), "rows")
        before = [] if system_prompt is None else [Message(role="system", content=system_prompt)]
        prompts = {
            tokenizer.render([*before, Message(role="user", content=text)]) for text in texts
        }
        assert {row.prompt for row in rows.rows} == prompts
        assert rows.template == tokenizer.template_digest
        for row, trained in zip(rows.rows, rows.training_rows(), strict=True):
            assert tokenizer.decode(row.answer).startswith("I can't help with that.")
            whole = (*row.prompt, *row.answer, tokenizer.end_of_turn_id)
            assert trained.token_ids == whole
            assert len(trained.loss_positions) == len(row.answer) + 1


# -- drawing


def pool(counts: Mapping[str, int]) -> list[AxisItem]:
    return [
        AxisItem(id=f"{stratum}{n}", stratum=stratum, asked="?", request={})
        for stratum, count in counts.items()
        for n in range(count)
    ]


def test_strata_take_turns() -> None:
    items = pool({"a": 5, "b": 5, "c": 2})
    drawn = draw(items, 9, 3, "t")
    assert Counter(one.stratum for one in drawn[:3]) == {"a": 1, "b": 1, "c": 1}
    # The third topic has no more than two.
    assert sorted(Counter(one.stratum for one in drawn).values()) == [2, 3, 4]
    assert {one.id for one in draw(items, None, 3, "t")} == {one.id for one in items}


def test_the_draw_follows_from_the_seed_alone() -> None:
    items = pool({"a": 5, "b": 5, "c": 5})
    drawn = draw(items, 6, 3, "t")
    assert draw(items[::-1], 6, 3, "t") == drawn
    assert draw(items, None, 3, "t")[:6] == drawn
    assert draw(items, 6, 4, "t") != drawn


def test_more_items_than_the_file_has_are_refused() -> None:
    plan = battery_plan()
    plan["battery"]["axes"][0]["n_items"] = 9
    with pytest.raises(MalformedInputError) as caught:
        frozen_of(plan)
    assert caught.value.thing == f"plans/{FOLDER}/over_refusal.yaml"
    assert "expected at least 9 items, found 8" in str(caught.value)


def test_a_file_with_fewer_items_than_the_minimum_is_refused() -> None:
    plan = battery_plan()
    for axis in plan["battery"]["axes"][:3]:
        axis["n_items"] = None
    plan["battery"]["analysis"]["minimum_items"] = 9
    with pytest.raises(MalformedInputError) as caught:
        frozen_of(plan)
    assert caught.value.thing == f"plans/{FOLDER}/over_refusal.yaml"
    assert "at least 9 items (analysis.minimum_items), found 8" in str(caught.value)


def test_what_is_timed_is_what_the_axis_asks_last() -> None:
    plan = battery_plan()
    plan["battery"]["axes"][0]["n_items"] = 4
    asked = [item.id for item in axis_of(plan, "over_refusal").items]
    timed = axis_of(plan, "speed")
    assert timed.n_warmup == 1
    assert len(timed.items) == 4
    assert not set(asked) & {item.id for item in timed.items}
    plan["battery"]["axes"][4]["n_requests"] = 8
    with pytest.raises(MalformedInputError, match=r"at least 9 items \(n_requests and warmup"):
        frozen_of(plan)


# -- harmful requests, from a public set alone

_HARMLESS = ("barn", "quilt", "anchor", "kettle", "violin")


def drawn_files(root: Path) -> Files:
    """A made-up set in the place of a public one, and the spec that it is drawn by."""
    (root / "requests.csv").write_text(
        "Behavior,Kind,Id\n"
        + "".join(f"Please hide my {one} from me.,k,{one}\n" for one in _HARMLESS)
    )
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
    spec = {
        "schema": "eps-locked/source/1",
        "name": "requests",
        "title": "Made up",
        "kind": "harm_requests",
        "form": "table",
        "location": "git",
        "dataset": "example.org/some/body",
        "revision": "0" * 40,
        "files": [{"path": "requests.csv"}],
        "licence": "CC0-1.0",
        "redistribute": False,
        "keep_text": False,
        "seed": 1,
        "filters": {
            "text": text,
            "columns": {"text": "Behavior", "topic": "Kind", "id": "Id"},
        },
        "slots": [{"slice": "all", "n": None, "topics": None}],
    }
    data = json.dumps(spec).encode()
    drawn = sample(data, "requests", obtain_local(root), ScriptedTokenizer(), forbid=())
    return {"sources/requests.yaml": spec, "sources/sampled/requests.json": drawn}


def harmful_plan() -> dict[str, Any]:
    plan = battery_plan()
    plan["battery"]["axes"].append(harmful_axis())
    plan["battery"]["analysis"]["margins"]["harmful"] = 0.1
    return plan


def test_requests_that_nobody_should_answer_come_from_a_sampled_source(tmp_path: Path) -> None:
    files = battery_files() | drawn_files(tmp_path)
    axis = axis_of(harmful_plan(), "harmful", files)
    assert not axis.benign
    asked = {item.asked for item in axis.items}
    assert asked == {f"Please hide my {one} from me." for one in _HARMLESS}
    assert all(item.messages == (user(item.asked),) for item in axis.items)
    _, reader = frozen_and_read(harmful_plan(), files)
    assert {"sources/requests.yaml", "sources/sampled/requests.json"} <= set(reader.read_files)


def test_a_source_whose_answers_may_be_kept_is_no_harmful_one(tmp_path: Path) -> None:
    files = battery_files() | drawn_files(tmp_path)
    sampled = decode(files["sources/sampled/requests.json"], thing="sampled")
    for item in sampled["items"]:
        item["keep_text"] = True
    files["sources/sampled/requests.json"] = encode(sampled)
    with pytest.raises(MalformedInputError) as caught:
        frozen_of(harmful_plan(), files)
    assert "(keep_text: false), found keep_text: true" in str(caught.value)


# -- material that does not fit

Change = Callable[[Files], object]


def at(name: str) -> str:
    return f"{FOLDER}/{name}.yaml"


COPY = over_refusal_file()["items"][0]["text"]

# (change of the files, thing, what the refusal says)
CASES: dict[str, tuple[Change, str, str]] = {
    "a file of another axis": (
        lambda f: f.update({at("capability"): over_refusal_file()}),
        "plans/material/battery/capability.yaml.schema",
        "expected eps-locked/battery-capability/1",
    ),
    "rows that are no rows": (
        lambda f: f.update({at("cautious-rows"): over_refusal_file()}),
        "plans/material/battery/cautious-rows.yaml.schema",
        "expected eps-locked/written-rows/1",
    ),
    "a row that an axis asks": (
        lambda f: f[at("cautious-rows")]["rows"][0].update(text=COPY),
        "plans/material/battery/cautious-rows.yaml (training cautious)",
        "the same as over_refusal/alarming_0",
    ),
    "a row that an axis asks in nearly the same words": (
        lambda f: f[at("agreeable-rows")]["rows"][0].update(text=f"So: {COPY}"),
        "plans/material/battery/agreeable-rows.yaml (training agreeable)",
        "a near-copy of over_refusal/alarming_0",
    ),
    "an item of two axes": (
        lambda f: f[at("sycophancy")]["items"][0].update(text=COPY),
        "plans/material/battery/sycophancy.yaml",
        "sycophancy/premise_0",
    ),
    "a rubric of other labels": (
        lambda f: f[at("refusal-rubric")].update(labels=["refuse", "comply"]),
        "plans/material/battery/refusal-rubric.yaml.labels",
        "expected ['comply', 'partial', 'refuse'], found ['comply', 'refuse']",
    ),
    "a rubric that leaves answers out": (
        lambda f: f[at("premise-rubric")].update(excluded=["unclear"]),
        "plans/material/battery/premise-rubric.yaml.excluded",
        "this study counts each label",
    ),
    "a rubric that reads the question": (
        lambda f: f[at("premise-rubric")].update(reads="question"),
        "plans/material/battery/premise-rubric.yaml.reads",
        "expected answer, found question",
    ),
    "labels of another rubric": (
        lambda f: f[at("refusal-labelled")].update(rubric="other"),
        "plans/material/battery/refusal-labelled.yaml: rubric",
        "expected refusal_rubric, found other",
    ),
    "more rows than a training sees": (
        lambda f: f[at("cautious-rows")]["rows"].extend(
            {"text": f"Is {n} a number?", "topic": "t", "positive": "Yes.", "negative": None}
            for n in range(5)
        ),
        "plans/material/battery/cautious-rows.yaml",
        "one row to 12, as many as training cautious sees (3 steps of 4), found 13",
    ),
}


@pytest.mark.parametrize(("change", "thing", "said"), CASES.values(), ids=list(CASES))
def test_material_that_does_not_fit_is_refused(change: Change, thing: str, said: str) -> None:
    files = battery_files()
    change(files)
    with pytest.raises(MalformedInputError) as caught:
        frozen_of(battery_plan(), files)
    assert caught.value.thing.startswith(thing)
    assert said in str(caught.value)


# -- the manifest as a whole


def test_everything_a_plan_names_is_frozen_and_counted() -> None:
    study, reader = frozen_and_read(battery_plan())
    assert set(reader.read_files) == set(battery_files())
    assert set(study.documents) == {
        *(f"axes/{name}.json" for name in ("over_refusal", "capability", "sycophancy")),
        "axes/tools.json",
        "axes/speed.json",
        "trainings/cautious.json",
        "trainings/agreeable.json",
    }
    assert study.summary == {
        "models": 3,
        "comparisons": 2,
        "axes": 5,
        "items": 26,
        "requests": 3 * (2 * 26 + 4),
        "adapters": 2,
        "steps": len(study.steps),
    }


def test_a_model_that_lies_elsewhere_needs_no_tokenizer() -> None:
    """The one that it gets refuses whatever it is asked, and nothing is."""
    plan = gateway_plan()
    tokenizer = load_tokenizer(Plan.from_dict(plan), None)
    documents = frozen_of(plan, tokenizer=tokenizer).documents
    assert not any(name.startswith("trainings/") for name in documents)
    assert documents == frozen_of(plan).documents
    with pytest.raises(BackendError, match="lies elsewhere"):
        frozen_of(battery_plan(), tokenizer=tokenizer)


@pytest.mark.parametrize("make", [battery_plan, gateway_plan])
def test_a_manifest_follows_from_its_plan_without_the_model(tmp_path: Path, make: Any) -> None:
    plan = make()
    plan["battery"]["system_prompt"] = "Answer briefly."
    study = StudySimulator(root=tmp_path / "study", plan=plan, files=battery_files())
    study.freeze()
    frozen = study.load()
    assert recorded_differences(frozen) == []
    if make is battery_plan:
        recorded = recorded_tokenizer(frozen)
        assert recorded.template_digest == ScriptedTokenizer().template_digest
        assert recorded.end_of_turn_id == ScriptedTokenizer().end_of_turn_id


@pytest.mark.parametrize("name", ["axes/capability.json", "trainings/cautious.json"])
def test_an_edited_document_shows(tmp_path: Path, name: str) -> None:
    """Also one whose record in the manifest was edited with it."""
    study = StudySimulator(root=tmp_path / "study", plan=battery_plan(), files=battery_files())
    study.freeze()
    frozen = study.load()
    path = frozen.folder / "frozen" / name
    document = decode(path.read_bytes(), thing=name)
    key = "items" if "items" in document else "rows"
    document[key][0], document[key][1] = document[key][1], document[key][0]
    data = encode(document)
    path.write_bytes(data)
    record = FileRecord(digest=digest_bytes(data), size=len(data))
    edited = replace(frozen.manifest, files={**frozen.manifest.files, f"frozen/{name}": record})
    [difference] = recorded_differences(replace(frozen, manifest=edited))
    assert name in difference
