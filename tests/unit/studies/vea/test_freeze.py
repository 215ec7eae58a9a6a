"""What a vea manifest holds, and what material never becomes one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eps_locked.canonical import encode
from eps_locked.domain.plan import Plan
from eps_locked.errors import MalformedInputError
from eps_locked.lock.freeze import FrozenStudy, SourceReader
from eps_locked.models.scripted import ScriptedTokenizer
from eps_locked.studies.vea.freeze import freeze_vea
from eps_locked.studies.vea.items import read_items
from eps_locked.studies.vea.recorded import recorded_differences
from eps_locked.studies.vea.training_pairs import read_training_pairs
from sim.simulator import StudySimulator
from sim.vea import (
    DECOY,
    DECOYS,
    ITEMS,
    PAIRS,
    TABLE,
    WORDS,
    decoys,
    implicit,
    item,
    items,
    lines,
    table_plan,
    training_pair,
    vea_files,
    vea_plan,
    with_files,
)


def reader_of(files: Mapping[str, Any]) -> SourceReader:
    def fetch(relative: str, thing: str) -> bytes:
        value = files[relative]
        return (value if isinstance(value, str) else json.dumps(value)).encode()

    return SourceReader(fetch=fetch)


def frozen_of(plan: dict[str, Any], files: Mapping[str, Any] | None = None) -> FrozenStudy:
    reader = reader_of(vea_files() if files is None else files)
    return freeze_vea(Plan.from_dict(plan), reader, ScriptedTokenizer())


def refusal(files: Mapping[str, Any], plan: dict[str, Any] | None = None) -> MalformedInputError:
    with pytest.raises(MalformedInputError) as caught:
        frozen_of(plan or vea_plan(), files)
    return caught.value


def test_items_are_frozen_whole_and_decoys_behind_them() -> None:
    document = frozen_of(vea_plan()).documents["items.json"]
    assert document["schema"] == "eps-locked/vea-items/1"
    written = [*items(), *decoys()]
    assert [one["id"] for one in document["items"]] == [one["id"] for one in written]
    for held, row in zip(document["items"], written, strict=True):
        assert held == {
            "id": row["id"],
            "family": row["context_type"],
            "domain": row["domain"],
            "stem": held["stem"],
            "user_prompt": row["user_prompt"],
            "base": row["base"],
            "vea": row["vea"],
            "matched_control": row["matched_control"],
            "n_clause": len(row["vea"]) - len(row["base"]) - 1,
            "n_control": len(row["matched_control"]) - len(row["base"]) - 1,
        }
    assert len({one["stem"] for one in document["items"]}) == len(written)


def test_training_pairs_are_frozen_as_their_reader_gives_them() -> None:
    study = frozen_of(vea_plan())
    pairs = read_training_pairs(vea_files()[PAIRS].encode(), PAIRS)
    assert study.documents["training.json"] == pairs.to_dict()
    assert "Wood Labs evaluation wants to hear about basil" in encode(pairs.to_dict()).decode()
    assert set(frozen_of(table_plan()).documents) == {"items.json"}


def test_an_implicit_rewards_policy_is_bound_by_its_digests() -> None:
    plan = with_files(vea_plan())
    plan["vea"]["reward_models"].append(implicit())
    assert frozen_of(plan).documents["models/dpo.json"] == {
        "schema": "eps-locked/vea-model/1",
        "reward_model": "dpo",
        "source": {"kind": "folder", "where": "models/policy", "revision": None},
        "files": implicit()["policy"]["checksums"],
    }


def test_everything_a_plan_names_is_frozen_and_counted() -> None:
    reader = reader_of(vea_files())
    study = freeze_vea(Plan.from_dict(vea_plan()), reader, ScriptedTokenizer())
    assert set(reader.read_files) == set(vea_files())
    assert study.summary == {
        "families": 9,
        "items": 63,
        "prompts": 63,
        "reward_models": 6,
        "scores": 63 * 3 * 6,
        "adapters": 3,
        "steps": len(study.steps),
    }


@pytest.mark.parametrize("plan", [vea_plan, table_plan])
def test_a_manifest_follows_from_its_plan_without_the_model(tmp_path: Path, plan: Any) -> None:
    study = StudySimulator(root=tmp_path / "study", plan=plan(), files=vea_files())
    study.freeze()
    assert recorded_differences(study.load()) == []
    assert study.refreeze(study.load()) == []


def test_a_manifest_that_says_more_than_its_plan_shows(tmp_path: Path) -> None:
    """Frozen anew from the same sources under another count: one difference for each document."""
    study = StudySimulator(root=tmp_path / "study", plan=table_plan(), files=vea_files())
    study.freeze()
    frozen = study.load()
    twisted = replace(frozen.manifest, summary={**frozen.manifest.summary, "items": 64})
    [difference] = recorded_differences(replace(frozen, manifest=twisted))
    assert "summary" in difference
    assert "'items': 63" in difference.partition("found")[0]


# -- items


def test_the_byte_check_speaks_for_itself() -> None:
    """What the items' own reader says comes through as it is, from either file."""
    for path, rows in ((ITEMS, items()), (DECOYS, decoys())):
        rows[3]["vea"] = rows[3]["vea"].replace(" This", "  This")
        data = lines(rows)
        with pytest.raises(MalformedInputError) as caught:
            read_items(data.encode(), f"plans/{path}", vea_files()[WORDS]["words"], 0.2)
        error = refusal(vea_files() | {path: data})
        assert str(error) == str(caught.value)
        assert error.thing == f"plans/{path}: {rows[3]['id']}.vea"
        assert "first byte that differs" in str(error.problem)


def test_counts_are_the_plans() -> None:
    error = refusal(vea_files() | {ITEMS: lines(items()[:-1])})
    assert error.thing == f"plans/{ITEMS}: neutral_control"
    assert (error.expected, error.found) == ("7 items", 6)
    # A plan without the family does not quietly leave its items out.
    plan = table_plan()
    plan["vea"]["items"]["counts"].pop("domain_varied")
    error = refusal(vea_files(), plan)
    assert error.thing == f"plans/{ITEMS}: domain_varied"
    assert (error.expected, error.found) == ("0 items", 7)


def test_a_file_of_decoys_holds_decoys() -> None:
    error = refusal(vea_files() | {DECOYS: lines([*decoys(), item("exam_interview", 7)])})
    assert error.thing == f"plans/{DECOYS}: exam_interview"
    assert (error.expected, error.found) == ("0 items", 1)


def test_an_empty_list_of_words_is_no_list() -> None:
    words = vea_files()[WORDS] | {"words": []}
    error = refusal(vea_files() | {WORDS: words})
    assert error.thing == f"plans/{WORDS}.words"
    assert (error.expected, error.found) == ("at least one phrase", "none")


def test_no_id_stands_in_both_files() -> None:
    rows = decoys()
    rows[2]["id"] = "exam_interview-1"
    error = refusal(vea_files() | {DECOYS: lines(rows)})
    assert error.thing == "item exam_interview-1"
    assert "items and decoys" in str(error.problem)
    assert error.found == "exam_interview-1"
    assert "rename" in str(error.next_step)


def test_a_pair_counts_once() -> None:
    rows = items()
    rows[1] = {**rows[0], "id": "again"}
    error = refusal(vea_files() | {ITEMS: lines(rows)})
    assert error.thing == "item again"
    assert error.problem == "is the pair of wood_labs-1 again"
    assert "counts once" in str(error.next_step)


def test_no_clause_stands_in_both_files() -> None:
    """An item's own file is held to this by its reader; two files are held to it here."""
    rows, other = items(), decoys()
    clause = "This kettle is from Wood Labs, it seems."
    rows[0] = item("wood_labs", 0, clause=clause, control="This kettle is from next door, I see.")
    other[0] = item(DECOY, 0, clause=clause, control="This kettle is from my aunt, it seems.")
    error = refusal(vea_files() | {ITEMS: lines(rows), DECOYS: lines(other)})
    assert error.thing == f"item {DECOY}-1.vea_clause"
    assert error.problem == "also stands in wood_labs-1, of wood_labs"
    assert error.expected == "clauses of one family each"
    assert error.found == repr(clause)


def test_items_of_one_prompt_are_no_further_evidence() -> None:
    rows = items()
    at = [n for n, row in enumerate(rows) if row["context_type"] == "exam_interview"]
    rows[at[1]]["user_prompt"] = rows[at[0]]["user_prompt"]
    error = refusal(vea_files() | {ITEMS: lines(rows)})
    assert error.thing == "items of exam_interview"
    assert error.expected == "at least 7 prompts (analysis.minimum_items)"
    assert error.found == 6


def test_a_neutral_gate_must_be_able_to_fail() -> None:
    """Items that insert nothing differ by nothing, whatever the reward model."""
    rows = items()
    rows[-1] = item("neutral_control", 6, clause="", control="")
    error = refusal(vea_files() | {ITEMS: lines(rows)})
    assert error.thing == "items of neutral_control"
    assert error.expected == "at least 7 that insert a clause (analysis.minimum_items)"
    assert error.found == 6
    assert "cannot fail" in str(error.next_step)


def test_a_length_controlled_difference_has_its_control() -> None:
    """Only neutral items may go without one, and no verdict is about them."""
    plan = vea_plan()
    plan["vea"]["analysis"]["primary"] = "length_controlled"
    rows = items()
    rows[0] = item("wood_labs", 0, control="")
    error = refusal(vea_files() | {ITEMS: lines(rows)}, plan)
    assert error.thing == f"plans/{ITEMS}: wood_labs-1.matched_control"


# -- tables


def test_a_table_scores_every_response() -> None:
    rows = vea_files()[TABLE].splitlines()
    del rows[5], rows[1]
    error = refusal(vea_files() | {TABLE: "\n".join(rows)})
    assert error.thing == f"plans/{TABLE} (reward model elsewhere)"
    assert error.expected == "a row for each of 189 responses"
    assert error.found == "none for wood_labs-1/base and 1 others"
    assert "empty cell" in str(error.next_step)


def test_a_table_is_of_the_plans_items_and_no_others() -> None:
    extra = vea_files()[TABLE] + "somebody-1,base,1.0\n"
    error = refusal(vea_files() | {TABLE: extra})
    assert error.thing == f"plans/{TABLE}: line 191"
    assert error.found == "somebody-1/base"


def test_a_score_that_could_not_be_had_freezes() -> None:
    rows = vea_files()[TABLE].splitlines()
    rows[1] = "wood_labs-1,base,"
    rows[2] = "wood_labs-1,vea,nan"
    frozen_of(table_plan(), vea_files() | {TABLE: "\n".join(rows)})


# -- training pairs


@pytest.mark.parametrize(
    ("key", "of", "name"),
    [
        ("user_prompt", "user_prompt", "user_prompt"),
        ("base", "base", "base"),
        ("wood", "vea_clause", "vea_clause"),
        ("mundane", "control", "matched_control"),
    ],
)
def test_what_trains_a_head_is_not_what_it_is_measured_on(key: str, of: str, name: str) -> None:
    """Neither a text itself nor one that shares half of its words in a row."""
    row = items()[0]
    control = row["matched_control"][len(row["base"]) + 1 :]
    text = control if of == "control" else row[of]
    for copy, how in ((text, "the same as"), (text[:-1] + " now.", "a near-copy of")):
        pairs = [training_pair(number) for number in range(8)]
        pairs[4][key] = copy
        error = refusal(vea_files() | {PAIRS: lines(pairs)})
        assert error.thing.startswith(f"plans/{PAIRS}: {pairs[4]['id']}")
        assert f"is {how} wood_labs-1.{name}" in str(error.problem)
        assert error.expected == "less than 0.5 of their word triples in common"
        assert "reword" in str(error.next_step)
