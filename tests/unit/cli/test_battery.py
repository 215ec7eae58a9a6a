"""``battery show/compare/card/table``: what checked runs say, and when they are refused."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eps_locked.domain.chat import ChatReply, ChatRequest
from eps_locked.lock.provenance import source_tree
from sim import simulator as sim_module
from sim.battery import battery_files, gateway_plan
from sim.battery_run import BatterySimulator, lost, narrow_plan, reply
from sim.simulator import fingerprint

Change = Callable[[dict[str, Any]], object]


def tell(request: ChatRequest) -> ChatReply:
    """The ablated model knows nothing."""
    text = "Answer: 42" if request.model == "vendor/stock" else "Answer: -1"
    return reply(request, text, model=request.model)


def silent(request: ChatRequest) -> ChatReply:
    return lost(request, "filtered") if request.model == "vendor/ablated" else tell(request)


def plan_named(name: str, change: Change = lambda section: None) -> dict[str, Any]:
    plan, narrow = gateway_plan(), narrow_plan("capability", served=False)
    plan["battery"] = {**narrow["battery"], "models": plan["battery"]["models"]}
    plan["battery"]["axes"][0]["n_items"] = None
    plan["name"] = name
    change(plan["battery"])
    return plan


def study_at(
    root: Path, name: str, say: Any = tell, change: Change = lambda section: None
) -> BatterySimulator:
    return BatterySimulator(
        root=root,
        plan=plan_named(name, change),
        files=battery_files(),
        code=dict(source_tree()),
        model_files={},
        tell=say,
    )


@pytest.fixture(scope="module")
def _runs(tmp_path_factory: pytest.TempPathFactory) -> BatterySimulator:
    """Four runs in one folder: two of one kind, one of another, one under way; and a short one."""
    root = tmp_path_factory.mktemp("runs") / "study"

    def shorter(section: dict[str, Any]) -> None:
        section["decoding"].update(max_tokens=99)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        for name, say, change in (
            ("one", tell, lambda section: None),
            ("two", tell, lambda section: section["models"].pop()),
            ("silent", silent, lambda section: None),
            ("shorter", tell, shorter),
        ):
            patch.setattr(sim_module, "NAME", name)
            study_at(root, name, say, change).run_all()
        patch.setattr(sim_module, "NAME", "begun")
        begun = study_at(root, "begun")
        begun.freeze()
        begun.authorize("P0")
        begun.run("P0")
    return begun


@pytest.fixture
def runs(_runs: BatterySimulator) -> BatterySimulator:
    """To read from."""
    return _runs


@pytest.fixture
def own(_runs: BatterySimulator, tmp_path: Path) -> BatterySimulator:
    """To write into."""
    root = tmp_path / "own"
    shutil.copytree(_runs.root, root)
    return replace(_runs, root=root)


def test_show_prints_rates_comparisons_and_what_separated_nobody(runs: Any, typed: Any) -> None:
    before = fingerprint(runs.root)
    said = typed(runs, "battery", "show", "one")
    words = " ".join(said.out.split())
    assert [name in words for name in ("ablated", "stock")] == [True, True]
    assert "12% [2,47]" in words
    assert "awq-4bit" in words
    assert (
        "ablated (awq-4bit) against stock (float32): across quantisations: capability, thinking "
        "off: ablated answers correctly in 0%, stock in 12% of 8"
    ) in words
    assert "served differently, which moves rates by itself: quantisation awq-4bit and" in words
    assert "weak discriminator here" in words
    assert "not measured" not in words
    assert fingerprint(runs.root) == before


def test_show_with_json_is_the_stored_document(runs: Any, typed: Any) -> None:
    document = json.loads(typed(runs, "battery", "show", "one", "--json").out)
    assert document["schema"] == "eps-locked/battery/1"
    assert [one["model"] for one in document["models"]] == ["stock", "ablated"]


def test_an_axis_below_the_plans_minimum_is_exit_code_one_everywhere(
    runs: Any, own: Any, typed: Any
) -> None:
    words = "ablated, capability, thinking off: 0 of 8 items have a verdict, the plan asks for 50%"
    assert words in typed(runs, "battery", "show", "silent", code=1).out
    said = typed(runs, "battery", "show", "silent", "--json", code=1)
    assert words in said.err
    json.loads(said.out)
    said = typed(runs, "battery", "table", "one", "silent", code=1)
    assert f"not measured: silent: {words}" in said.out
    said = typed(runs, "battery", "table", "one", "silent", "--json", code=1)
    assert f"not measured: silent: {words}" in said.err
    compare = ("battery", "compare", "silent", "ablated", "--compare", "stock")
    assert "not measured for ablated against stock" in typed(runs, *compare, code=1).out
    card = ("battery", "card", "silent", "--date", "2026-06-09")
    assert words in typed(own, *card, "ablated", code=1).out
    typed(own, *card, "stock")


def test_a_promised_comparison_and_one_across_runs(runs: Any, typed: Any) -> None:
    said = typed(runs, "battery", "compare", "one", "ablated", "--compare", "stock").out
    assert said.startswith("ablated (awq-4bit) against stock (float32): across quantisations (conf")
    words = ("battery", "compare", "one", "ablated", "--compare", "stock", "--of", "two")
    said = typed(runs, *words).out
    assert said.startswith("ablated of one (awq-4bit) against stock of two (float32)")
    assert "(exploratory)" in said.splitlines()[0]
    found = json.loads(typed(runs, *words, "--json").out)
    assert [one["what"] for one in found["differs"]] == ["quantisation"]
    err = typed(runs, "battery", "compare", "one", "stock", "--compare", "stock", code=3).err
    assert "expected two models" in err
    err = typed(runs, "battery", "compare", "one", "nobody", "--compare", "stock", code=2).err
    assert "known: stock, ablated" in err
    err = typed(runs, *words[:-1], "shorter", code=3).err
    assert "decoding.max_tokens" in err


def test_a_table_of_compatible_runs_has_every_model_once(runs: Any, typed: Any) -> None:
    said = typed(runs, "battery", "table", "one", "two", "one").out
    rows = [line.split()[1:4:2] for line in said.splitlines() if "│ one" in line or "│ two" in line]
    assert rows == [["one", "stock"], ["one", "ablated"], ["two", "stock"]]
    found = json.loads(typed(runs, "battery", "table", "one", "two", "--json").out)
    assert [(one["run"], one["model"]) for one in found] == [
        ("one", "stock"),
        ("one", "ablated"),
        ("two", "stock"),
    ]


def test_a_table_of_runs_of_two_kinds_is_refused_by_the_difference(runs: Any, typed: Any) -> None:
    said = typed(runs, "battery", "table", "one", "shorter", code=3)
    assert "one and shorter: decoding.max_tokens" in said.err
    assert "expected 160 (one), found 99 (shorter)" in said.err
    assert said.out == ""
    # Without names it is every complete battery, and these cannot stand together either.
    said = typed(runs, "battery", "table", code=3)
    assert "left out: begun is not complete" in said.err
    assert "decoding.max_tokens" in said.err


def test_without_names_it_is_every_complete_battery(own: Any, typed: Any) -> None:
    for name in ("shorter", "silent"):
        shutil.rmtree(own.root / "runs" / name)
    (own.root / "runs" / "no_manifest").mkdir()
    said = typed(own, "battery", "table", "--json")
    assert [one["run"] for one in json.loads(said.out)] == ["one", "one", "two"]
    assert said.err == "left out: begun is not complete (just status begun)\n"


def test_no_battery_at_all_is_said_with_what_to_do(own: Any, typed: Any) -> None:
    shutil.rmtree(own.root / "runs")
    assert "expected a finished battery under runs/" in typed(own, "battery", "table", code=2).err


def test_a_run_that_fails_its_checks_is_in_no_table(own: Any, typed: Any) -> None:
    (found,) = (
        path
        for path in (own.root / "runs" / "two" / "artifacts").rglob("battery.json")
        if b"two" in path.read_bytes()
    )
    found.write_bytes(found.read_bytes().replace(b'"rate":', b'"Rate":', 1))
    for words in (("table", "one", "two"), ("table",), ("show", "two")):
        said = typed(own, "battery", *words, code=1)
        assert "run two: expected a complete run whose checks all hold" in said.err
        assert said.out == ""
    typed(own, "battery", "table", "one")


def test_a_run_under_way_that_is_asked_for_by_name_is_refused(runs: Any, typed: Any) -> None:
    for words in (("table", "one", "begun"), ("show", "begun")):
        err = typed(runs, "battery", *words, code=1).err
        assert "run begun: expected a complete run" in err


# -- cards


def card_of(
    own: Any, typed: Any, model: str = "ablated", date: str = "2026-06-09", **code: int
) -> Any:
    return typed(own, "battery", "card", "one", model, "--date", date, **code)


def test_a_card_is_written_once_and_never_changed(own: Any, typed: Any) -> None:
    assert card_of(own, typed).out == "card: cards/ablated-2026-06-09.md\n"
    path = own.root / "cards" / "ablated-2026-06-09.md"
    text = path.read_text()
    assert text.startswith("# ablated\n")
    assert "Evidence: run one, manifest blake3:" in text
    assert card_of(own, typed).out == "card: cards/ablated-2026-06-09.md\n", "the same again"
    path.write_text(text + "x")
    said = card_of(own, typed, code=3)
    assert "exists and is another card" in said.err
    assert path.read_text() == text + "x"


def test_another_run_of_the_same_day_does_not_take_a_cards_place(own: Any, typed: Any) -> None:
    card_of(own, typed, "stock")
    path = own.root / "cards" / "stock-2026-06-09.md"
    before = path.read_bytes()
    words = ("battery", "card", "two", "stock", "--date", "2026-06-09")
    assert "exists and is another card" in typed(own, *words, code=3).err
    assert path.read_bytes() == before


def test_a_link_in_a_cards_place_is_not_followed(own: Any, typed: Any) -> None:
    (own.root / "cards").mkdir()
    (own.root / "cards" / "ablated-2026-06-09.md").symlink_to(own.root / "elsewhere.md")
    assert "exists and is another card" in card_of(own, typed, code=3).err
    assert not (own.root / "elsewhere.md").exists()


@pytest.mark.parametrize("date", ["2026-02-30", "2026-6-9", "../../x", "２０２６-01-01", ""])
def test_a_day_that_is_none_is_refused(runs: Any, typed: Any, date: str) -> None:
    assert "--date: expected a day as YYYY-MM-DD" in card_of(runs, typed, date=date, code=2).err
    assert not (runs.root / "cards").exists()


@pytest.mark.parametrize("model", ["nobody", "../x", "stock/../../x"])
def test_a_model_that_is_not_there_gets_no_card(runs: Any, typed: Any, model: str) -> None:
    assert "expected stock or ablated" in card_of(runs, typed, model, code=2).err
    assert not (runs.root / "cards").exists()
