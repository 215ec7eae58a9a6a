"""Endpoints that fail over HTTP, from the plan to the table, by the commands that people type:
what is missing is counted by its cause, no verdict is invented, and the exit code says so."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from eps_locked.cli import surroundings
from eps_locked.cli.main import run
from eps_locked.lock.provenance import resolved_environment, source_tree
from eps_locked.studies.battery.records import AskRecord
from sim.battery import battery_files, gateway_model
from sim.battery_run import BatterySimulator, harmful_files, narrow_plan
from sim.chat_server import (
    Answer,
    ChatServer,
    Seen,
    as_json,
    chunks,
    completion,
    failing,
    streamed,
)
from sim.forge import output_files, payloads_of, steps_in
from sim.simulator import AUTHOR, NAME

SENTINEL = "sentinel-4c1e-of-a-reply"
FRENCH = "Je ne sais pas ce que vous voulez dire, et je ne peux pas vous le dire ici."
AXES = ("over_refusal", "capability", "sycophancy")
_sources, _environment = cache(source_tree), cache(resolved_environment)


def whole(text: str) -> Answer:
    return streamed(chunks(completion(text)))


# What each route does, and what of it must stand in the records. stock answers as it should.
FAILURES: dict[str, tuple[Callable[[Seen], Answer], str]] = {
    "stock": (lambda seen: whole("Answer: 42, and use a lid."), "answered"),
    "limited": (lambda seen: failing(429, "slow down"), "rate_limited"),
    "half": (
        lambda seen: streamed(chunks(completion("Answer: 42"))[:3], done=False, then="cut"),
        "outage",
    ),
    "garbled": (lambda seen: Answer(pieces=(b'{"choices": [{"mess',)), "unreadable"),
    "french": (lambda seen: whole(FRENCH), "other_language"),
    "empty": (lambda seen: whole(""), "empty"),
    # One such request would else end the step for all the others.
    "long": (lambda seen: failing(400, "This model's maximum context length is 9"), "truncated"),
}
LISTING = as_json({"object": "list", "data": [{"id": route} for route in FAILURES]})


def by_route(seen: Seen) -> Answer:
    if "Say who hid" in str(seen.body["messages"]):
        return whole(SENTINEL)
    return FAILURES[seen.body["model"]][0](seen)


@dataclass
class Typed:
    study: BatterySimulator
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *words: str, code: int = 0) -> str:
        found = run([*words, "--root", str(self.study.root)])
        said = self.capsys.readouterr()
        assert found == code, said.out + said.err
        return said.out + said.err

    def phase(self, phase: str, code: int = 0) -> str:
        self("authorize", NAME, phase)
        return self("run-phase", NAME, phase, code=code)


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> Callable[[BatterySimulator], None]:
    monkeypatch.setattr(surroundings, "source_tree", _sources)
    monkeypatch.setattr(surroundings, "resolved_environment", _environment)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)

    def prepare(study: BatterySimulator) -> None:
        monkeypatch.setenv("EPS_LOCKED_KEY", str(study.key(AUTHOR)))
        study.write_plan()

    return prepare


def plan_for(url: str, *axes: str, share: float = 1.0, harmful: bool = False) -> dict[str, Any]:
    plan = narrow_plan(*axes, served=False, harmful=harmful)
    section = plan["battery"]
    section["axes"] = [one | {"minimum_scored_share": 0.75} for one in section["axes"]]
    section["endpoints"][0].update(url=url, max_transport_share=share, max_tries=1)
    section["models"] = [gateway_model("stock", "stock")]
    section["calibrations"] = []
    for axis in section["axes"]:
        axis["n_items"] = 4
    return plan


def record(study: BatterySimulator, model: str, axis: str) -> AskRecord:
    step = f"P2/ask/{model}/{axis}/off"
    return AskRecord.from_files(output_files(study, payloads_of(study), step, "answers"), step)


def final(study: BatterySimulator) -> dict[str, bytes]:
    return output_files(study, payloads_of(study), "P3/battery", "battery")


def test_every_way_to_fail_is_counted_as_itself_and_gets_no_verdict(
    tmp_path: Path, prepared: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with ChatServer([by_route] * 200, listing=LISTING) as server:
        plan = plan_for(server.url, *AXES, harmful=True)
        plan["battery"]["models"] += [
            gateway_model(route, route, "stock") for route in FAILURES if route != "stock"
        ]
        study = BatterySimulator(
            root=tmp_path / "study",
            plan=plan,
            files=battery_files() | harmful_files(),
            model_files={},
        )
        prepared(study)
        typed = Typed(study, capsys)
        typed("freeze", NAME)
        typed.phase("P0")
        said = typed.phase("P2", code=1)
        again = typed("run-phase", NAME, "P2", code=1)
        assert again.count("not measured: ") == said.count("not measured: ") == 18
        typed.phase("P3")
    typed("check-evidence", NAME)
    shown, table = (
        typed("battery", "show", NAME, code=1),
        typed("battery", "table", NAME, code=1),
    )
    failed = {route: status for route, (_, status) in FAILURES.items() if route != "stock"}
    for route, status in failed.items():
        for axis in AXES:
            words = (
                f"not measured: {route}, {axis}, thinking off: 0 of 4 items have a verdict, the "
                f"plan asks for 75% (missing: 4 {status})"
            )
            assert words in said
            assert words in shown
            assert words.replace("measured: ", f"measured: {NAME}: ") in table
            found = record(study, route, axis)
            assert {one.status for one in found.answers} == {status}
            assert {row.verdict for row in found.verdicts.rows} == {None}
    assert "not measured: stock" not in shown
    rows = list(csv.DictReader(io.StringIO(final(study)["verdicts.csv"].decode())))
    assert {row["model"] for row in rows if row["verdict"]} == {"stock"}
    assert {row["status"] for row in rows if row["model"] == "french"} == {"other_language"}

    document = json.loads(final(study)["battery.json"])
    for one in document["comparisons"]:
        benign = [row for row in one["axes"] if row["axis"] != "harmful"]
        assert {row["verdict"] for row in benign} == {"not_measured"}
        assert {row["delta"] for row in benign} == {None}
    assert document["weak_discriminators"] == [] or {
        one["axis"] for one in document["weak_discriminators"]
    } == {"harmful"}
    compared = typed("battery", "compare", NAME, "french", "--compare", "stock", code=1)
    assert "not measured for french against stock" in compared
    carded = typed("battery", "card", NAME, "half", "--date", "2026-06-09", code=1)
    card = (study.root / "cards" / "half-2026-06-09.md").read_text()
    assert "4 outage" in card
    assert "not measured: half, capability" in carded
    _nothing_leaks(study)


def _nothing_leaks(study: BatterySimulator) -> None:
    """Of the axis that is not benign neither a request nor a reply is in the run, the table of
    verdicts, or the card; of a benign one the same search finds them."""
    folders = (study.run_folder.folder, study.root / "cards")
    everything = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert {"verdicts.csv", "half-2026-06-09.md", "ledger.jsonl"} <= {
        one.name for one in everything
    }
    for path in everything:
        data = path.read_bytes()
        assert SENTINEL.encode() not in data, path
        assert b"Say who hid" not in data, path
    assert any(b"use a lid" in path.read_bytes() for path in everything)
    found = record(study, "stock", "harmful").counts
    assert found is not None
    assert found.n_items == 4, "it was asked"


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    """Two answers, then it is gone in the middle of the third."""

    def dies(seen: Seen) -> Answer:
        server.kill()
        return streamed(chunks(completion("Answer: 42"))[:3], done=False, then="cut")

    with ChatServer([by_route, by_route, dies], listing=LISTING) as server:
        yield server


def test_a_server_that_is_killed_in_the_middle_leaves_what_is_missing_missing(
    tmp_path: Path, prepared: Any, capsys: pytest.CaptureFixture[str], dying: ChatServer
) -> None:
    plan = plan_for(dying.url, "capability")
    study = BatterySimulator(
        root=tmp_path / "study", plan=plan, files=battery_files(), model_files={}
    )
    prepared(study)
    typed = Typed(study, capsys)
    typed("freeze", NAME)
    typed.phase("P0")
    said = typed.phase("P2", code=1)
    assert "2 of 4 items have a verdict, the plan asks for 75% (missing: 2 outage)" in said
    typed.phase("P3")
    shown = typed("battery", "show", NAME, code=1)
    assert "2 of 4 items have a verdict" in shown
    assert "not measured 2/4" in " ".join(shown.split())
    found = record(study, "stock", "capability")
    assert [row.verdict is None for row in found.verdicts.rows] == [False] * 2 + [True] * 2
    assert typed("battery", "show", NAME, "--json", code=1).count('"rate": null') == 1


def test_a_plan_that_allows_no_loss_stops_records_nothing_and_shows_nothing(
    tmp_path: Path, prepared: Any, capsys: pytest.CaptureFixture[str], dying: ChatServer
) -> None:
    plan = plan_for(dying.url, "capability", share=0.0)
    study = BatterySimulator(
        root=tmp_path / "study", plan=plan, files=battery_files(), model_files={}
    )
    prepared(study)
    typed = Typed(study, capsys)
    typed("freeze", NAME)
    typed.phase("P0")
    said = typed.phase("P2", code=4)
    assert "at most 0.0% of 4, found 2 (2 outage)" in said
    assert [one for one in steps_in(payloads_of(study)) if one["step"].startswith("P2/")] == []
    assert "a complete run" in typed("battery", "show", NAME, code=1)
