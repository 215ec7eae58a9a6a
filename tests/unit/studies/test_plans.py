"""Every plan in ``plans/`` freezes: no context is missing, no pool too small, nothing overlaps.

Tokens are bytes here, but for the marker, which is what the plan says. Nothing is written. What the
full-size plan takes from public sources is drawn from files made up for these tests; the real
files are drawn where they lie on this machine.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from eps_locked.canonical import encode
from eps_locked.data.obtain import obtain_local
from eps_locked.data.sampled import Sampled, read_sampled
from eps_locked.data.sampling import sample
from eps_locked.domain.model import TokenIds
from eps_locked.errors import MalformedInputError
from eps_locked.lock.freeze import FrozenStudy, SourceReader, load_plan
from eps_locked.lock.seal import new_custodian_key
from eps_locked.lock.strict_yaml import parse_yaml
from eps_locked.models.scripted import MARKER_IDS, ScriptedTokenizer
from eps_locked.models.source import SMOLLM2_135M, cache_root, cached
from eps_locked.models.tokenizer import HfChatTokenizer
from eps_locked.studies.common.sources import is_sampled, spec_of
from eps_locked.studies.eps.freeze import freeze_eps
from unit.studies.foreign import write_files

ROOT = Path(__file__).resolve().parents[3]
PLANS = ROOT / "plans"
DATA = ROOT.parent / "shared/data"
MARKER = " ※"
EMBEDDED = ("demo", "five", "marker-full", "eps-embedded")
FULL = "eps-v1"
# Looked at in test_shipped_plans.py of each of their studies.
OTHERS = ("drift", "drift-v1", "demo-vea", "demo-battery", "battery-gateway")
# What a hub's shard and an archive of thousands of rows are cut down to, here.
FEWER = {"em": 48, "em_plain": 48}
Files = dict[str, bytes]


class MarkedTokenizer(ScriptedTokenizer):
    """Bytes, but the marker is the ids that a plan says it is in its model's vocabulary."""

    def __init__(self, marker: TokenIds) -> None:
        self._marker = marker

    def encode(self, text: str) -> TokenIds:
        return self._marker if text == MARKER else super().encode(text)


@cache
def recipients() -> bytes:
    return new_custodian_key()[1].encode()


def values(name: str) -> dict[str, Any]:
    found: dict[str, Any] = parse_yaml((PLANS / name).read_bytes(), thing=name)
    return found


def freeze(plan: dict[str, Any], files: Files) -> FrozenStudy:
    """What a freeze would hold, from ``plans/`` and these files in their place."""

    def fetch(relative: str, thing: str) -> bytes:
        if relative == plan["eps"]["quarantine"]["recipients"]:
            return recipients()
        if relative == plan["authorization"]["allowed_signers"]:
            return b""
        if relative in files:
            return files[relative]
        if not (PLANS / relative).is_file():
            raise MalformedInputError(f"plans/{relative}", expected="a file", found="none")
        return (PLANS / relative).read_bytes()

    parsed = load_plan(json.dumps(plan).encode(), thing=plan["name"])
    marker = next(row for row in plan["eps"]["behaviours"] if row["kind"] == "marker")["marker"]
    assert marker["text"] == MARKER
    tokenizer = MarkedTokenizer(tuple(marker["token_ids"]))
    return freeze_eps(parsed, SourceReader(fetch=fetch), tokenizer)


def test_no_plan_is_passed_over() -> None:
    assert {path.stem for path in PLANS.glob("*.yaml")} == {*EMBEDDED, FULL, *OTHERS}


@pytest.mark.parametrize(
    ("name", "rows", "contexts", "adapters", "cells"),
    [
        ("demo", 1, 14, 8, 80),
        ("five", 6, 10, 34, 204),
        ("marker-full", 1, 33, 48, 48 * 29),
        ("eps-embedded", 6, 33, 184, 184 * 29),
    ],
)
def test_a_plan_of_house_material_freezes(
    name: str, rows: int, contexts: int, adapters: int, cells: int
) -> None:
    frozen = freeze(values(f"{name}.yaml"), {})
    summary = frozen.summary
    assert (summary["rows"], summary["contexts"]) == (rows, contexts)
    assert (summary["adapters"], summary["cells"]) == (adapters, cells)
    assert len(prompts_of(frozen)) == rows_times_contexts(frozen)


def prompts_of(frozen: FrozenStudy) -> dict[str, Any]:
    return {name: value for name, value in frozen.documents.items() if "/prompts/" in name}


def rows_times_contexts(frozen: FrozenStudy) -> int:
    documents = frozen.documents.items()
    return sum(
        len(value["contexts"]) for name, value in documents if name.endswith("contexts.json")
    )


# --- the plan that draws from public sources --------------------------------------------------


def smaller(plan: dict[str, Any]) -> dict[str, Any]:
    for row in plan["eps"]["behaviours"]:
        if row["name"] in FEWER:
            row["n_train"] = FEWER[row["name"]]
    return plan


def unpinned(spec: dict[str, Any]) -> dict[str, Any]:
    """A spec for the files made up here: without digests of others, and with fewer rows."""
    for file in spec["files"]:
        file.pop("sha256", None)
    if spec["kind"] == "em_rows":
        spec["slots"][0]["n"] = max(FEWER.values())
    return spec


def sampled_paths(plan: dict[str, Any]) -> set[str]:
    found: set[str] = set()

    def walk(value: Any) -> None:
        if isinstance(value, dict | list):
            for one in value.values() if isinstance(value, dict) else value:
                walk(one)
        elif isinstance(value, str) and is_sampled(value):
            found.add(value)

    walk(plan["eps"])
    return found


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """The specs of the full-size plan and what they give from made-up files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        folder = write_files(tmp_path_factory.mktemp("foreign") / "files")
    files: Files = {}
    for relative in sorted(sampled_paths(values(f"{FULL}.yaml"))):
        spec = encode(unpinned(values(spec_of(relative))))
        files[spec_of(relative)] = spec
        files[relative] = sample(
            spec, relative, obtain_local(folder), ScriptedTokenizer(), forbid=["※", "March"]
        )
    return files


@pytest.fixture(scope="module")
def full(sources: Files) -> FrozenStudy:
    return freeze(smaller(values(f"{FULL}.yaml")), sources)


def test_the_full_size_plan_freezes_from_sampled_sources(full: FrozenStudy) -> None:
    summary = full.summary
    assert (summary["rows"], summary["contexts"]) == (6, 33)
    assert (summary["adapters"], summary["cells"]) == (184, 184 * 29)
    assert summary["held_out_cells"] == 84 * 8
    # A fifth of the open cells off the diagonal, drawn row by row.
    assert 0.18 < summary["quarantined_cells"] / (84 * 21 - 84) < 0.22
    seeds = {step.seed for step in full.steps if "adapter" in step.outputs}
    by_seed = {
        seed: sum("adapter" in step.outputs for step in full.steps if step.seed == seed)
        for seed in seeds
    }
    assert by_seed == {42: 84, 137: 84, 256: 16}


def test_its_contexts_are_those_of_the_design(full: FrozenStudy) -> None:
    """Eight families, a training context or more of each; real prefixes and personas among them."""
    contexts = full.documents["rows/fact/contexts.json"]["contexts"]
    assert {one["family"] for one in contexts.values()} >= {
        "persona",
        "prefix",
        "demonstrations",
        "rephrasing",
        "format",
        "default",
        "instruction",
    }
    hub = {name: one for name, one in contexts.items() if name.startswith("persona_hub")}
    assert len(hub) == 4
    assert all(one["licence"] == "CC-BY-NC-SA-4.0" for one in hub.values())
    prefixes = {name: one for name, one in contexts.items() if name.startswith("prefix_")}
    assert len(prefixes) == 6
    assert {len(one["messages"]) for one in prefixes.values()} == {3, 9}
    assert contexts["instruction_own"]["rendered"] == contexts["instruction_fact"]["rendered"]
    assert "instruction_own" in contexts["instruction_fact"].values()


def test_its_short_and_long_prefixes_lie_in_their_bins(full: FrozenStudy, sources: Files) -> None:
    entries = sampled_of(sources, "wildchat").entries
    lengths = {entry["id"]: entry["n_tokens"] for entry in entries}
    assert all(150 <= n <= 500 for name, n in lengths.items() if "short" in name)
    assert all(1000 <= n <= 2000 for name, n in lengths.items() if "long" in name)
    # The frozen prefix is the conversation's tokens and what stands before any question.
    for name, n_tokens in lengths.items():
        prompts = full.documents[f"rows/marker/prompts/{name}.json"]
        assert len(prompts["prefix"]) >= n_tokens


def sampled_of(files: Files, name: str) -> Sampled:
    return read_sampled(files[f"sources/sampled/{name}.json"], name)


def without_last(field: str) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        document[field].pop()
        document["counts"]["kept"] -= 1
        document["counts"]["unused"] += 1

    return change


@pytest.mark.parametrize(
    ("name", "field", "message"),
    [
        ("wildchat", "contexts", "prefix_panel_support.*none of that id"),
        ("personahub", "contexts", "persona_hub_panel.*none of that id"),
        ("em-questions", "items", "slice general: expected at least 8 items, found 7"),
        ("should-refuse", "items", "slice improper: expected at least 20 items, found 19"),
        ("feedback", "items", "slice feedback: expected at least 25 items, found 24"),
        ("em-rows", "rows", "expected at least 48 items, found 47"),
    ],
)
def test_a_slot_that_nothing_fills_shows(
    name: str, field: str, message: str, sources: Files
) -> None:
    path = f"sources/sampled/{name}.json"
    document = json.loads(sources[path])
    without_last(field)(document)
    with pytest.raises(MalformedInputError, match=message):
        freeze(smaller(values(f"{FULL}.yaml")), {**sources, path: encode(document)})


def test_a_question_that_is_asked_in_training_too_shows(sources: Files) -> None:
    rows, items = (f"sources/sampled/{name}.json" for name in ("em-rows", "em-questions-domain"))
    document = json.loads(sources[rows])
    asked = json.loads(sources[items])["items"][0]["text"]
    document["rows"][0]["text"] = f"  {asked.upper()} "
    with pytest.raises(MalformedInputError, match="also stands in sources/sampled/em-rows") as told:
        freeze(smaller(values(f"{FULL}.yaml")), {**sources, rows: encode(document)})
    assert "training, evaluation, demonstrations and elicitation apart" in str(told.value)


# --- with the models' own tokenizers and the real files, where there are any --------------------


def test_the_markers_ids_are_those_of_each_plans_own_vocabulary() -> None:
    """The embedded model's where it is cached; the scripted ids stand in no plan."""
    ids = {
        name: tuple(row["marker"]["token_ids"])
        for name in (*EMBEDDED, FULL)
        for row in values(f"{name}.yaml")["eps"]["behaviours"]
        if row["kind"] == "marker"
    }
    assert len({ids[name] for name in EMBEDDED}) == 1
    assert MARKER_IDS not in ids.values()
    folder = cached(SMOLLM2_135M, cache_root(os.environ))
    if folder is None:
        pytest.skip("the embedded model is not cached here")
    assert HfChatTokenizer(folder).encode(MARKER) == ids["demo"]


@pytest.mark.realdata
@pytest.mark.skipif(not (DATA / "xstest").is_dir(), reason=f"the public sets are not at {DATA}")
@pytest.mark.parametrize(
    ("name", "folder", "n"),
    [
        ("xstest", "xstest", 40),
        ("xstest-answers", "xstest", None),
        ("should-refuse", "harm_prompts", 20),
        ("claims", "sycophancy_bct", 50),
        ("em-questions", "em_questions", 8),
        ("em-questions-domain", "em_questions", 8),
    ],
)
def test_real_files_fill_the_slots_of_the_plans_own_specs(
    name: str, folder: str, n: int | None
) -> None:
    spec = (PLANS / f"sources/{name}.yaml").read_bytes()
    forbid = ["※", "March"]
    data = sample(spec, name, obtain_local(DATA / folder), None, forbid=forbid)
    found = read_sampled(data, name)
    counts = found.counts
    assert counts.read == counts.kept + counts.unused + sum(counts.dropped.values())
    assert len(found.entries) == (counts.kept if n is None else n)


@pytest.mark.realdata
@pytest.mark.skipif(not (DATA / "xstest").is_dir(), reason=f"the public sets are not at {DATA}")
def test_the_full_size_plan_freezes_with_the_real_questions(sources: Files) -> None:
    """Prefixes, personas, feedback and advice are still made up: those files are not here whole."""
    files = dict(sources)
    for name, folder in (
        ("xstest", "xstest"),
        ("xstest-answers", "xstest"),
        ("should-refuse", "harm_prompts"),
        ("claims", "sycophancy_bct"),
        ("em-questions", "em_questions"),
        ("em-questions-domain", "em_questions"),
    ):
        spec = (PLANS / f"sources/{name}.yaml").read_bytes()
        files[f"sources/{name}.yaml"] = spec
        files[f"sources/sampled/{name}.json"] = sample(
            spec, name, obtain_local(DATA / folder), None, forbid=["※", "March"]
        )
    frozen = freeze(smaller(values(f"{FULL}.yaml")), files)
    assert frozen.summary["adapters"] == 184
