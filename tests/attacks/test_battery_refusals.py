"""A battery whose endpoint fails, spies or is asked what nobody may keep: nothing is made up, and
nothing leaks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eps_locked.domain.chat import ChatReply, ChatRequest
from eps_locked.errors import BackendError, EpsLockedError
from eps_locked.studies.battery.records import AskRecord
from sim.battery import battery_files, battery_plan
from sim.battery_run import BatterySimulator, Tell, harmful_files, lost, narrow_plan, reply
from sim.chat_server import (
    KEY,
    Answer,
    ChatServer,
    Seen,
    as_json,
    chunks,
    completion,
    failing,
    streamed,
)
from sim.forge import edit_output, payloads_of, steps_in
from sim.forge import output_files as files_of

SENTINEL = "sentinel-51c9-of-a-reply"
ROUTE = "vendor/stock"
LISTING = as_json({"object": "list", "data": [{"id": ROUTE}]})


def simulator(root: Path, plan: dict[str, Any], tell: Tell | None = None) -> BatterySimulator:
    files = battery_files()
    if any(one["axis"] == "harmful" for one in plan["battery"]["axes"]):
        files |= harmful_files()
    return BatterySimulator(root=root / "study", plan=plan, files=files, tell=tell)


def share_of(plan: dict[str, Any], share: float) -> dict[str, Any]:
    for endpoint in plan["battery"]["endpoints"]:
        endpoint["max_transport_share"] = share
    return plan


def run_to(study: BatterySimulator, last: str) -> None:
    """Freeze and run every phase up to ``last``, which fails or not."""
    study.freeze()
    for phase in study.plan["phases"]:
        study.authorize(phase)
        study.run(phase)
        if phase == last:
            return


def statuses(study: BatterySimulator) -> dict[str, tuple[str, list[str]]]:
    return {
        one["step"]: (one["status"], one["flags"])
        for one in steps_in(payloads_of(study))
        if one["step"].startswith("P2/")
    }


def output_files(study: BatterySimulator, step: str, output: str) -> dict[str, bytes]:
    return files_of(study, payloads_of(study), step, output)


def record_of(study: BatterySimulator, step: str) -> AskRecord:
    return AskRecord.from_files(output_files(study, step, "answers"), step)


def bytes_below(folder: Path) -> Iterator[tuple[Path, bytes]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path, path.read_bytes()


# -- what nobody may keep


def test_no_text_of_the_harmful_axis_is_anywhere_in_a_run(tmp_path: Path) -> None:
    """The whole study folder is searched, not the run alone."""

    def tell(request: ChatRequest) -> ChatReply:
        text = f"{SENTINEL}: I'm sorry, but I can't." if "anvil" in str(request) else SENTINEL
        whole = reply(request, text, reasoning=SENTINEL, model=f"m-{SENTINEL}", note=SENTINEL)
        return whole if "candle" not in str(request) else lost(request, "filtered", SENTINEL)

    study = simulator(tmp_path, narrow_plan("over_refusal", harmful=True))
    study.tell = lambda one: tell(one) if "Say who hid" in str(one.messages) else reply(one)
    study.run_all()
    assert list(study.audit().failures()) == []
    step = "P2/ask/untouched/harmful/off"
    counts = record_of(study, step).counts
    assert counts is not None
    assert (counts.n_items, counts.statuses["filtered"]) == (8, 1)
    assert counts.n_scored + counts.missing == 8
    assert len([one for one in study.asked if SENTINEL in str(tell(one))]) == 8 + 6
    for path, data in bytes_below(study.root):
        assert SENTINEL.encode() not in data, path
    for path, data in bytes_below(study.run_folder.folder):
        assert b"Say who hid" not in data, f"{path}: not even what was asked stands in a run"


def test_of_a_benign_axis_the_same_search_finds_the_reply(tmp_path: Path) -> None:
    """The search above can fail."""
    study = simulator(tmp_path, narrow_plan("capability"), lambda one: reply(one, SENTINEL))
    run_to(study, "P2")
    found = [path for path, data in bytes_below(study.root) if SENTINEL.encode() in data]
    assert [path.name for path in found] == ["answers.json"]


def test_the_key_comes_from_the_environment_and_reaches_no_file(tmp_path: Path) -> None:
    def spying(seen: Seen) -> Answer:
        return streamed(chunks(completion(f"Your key is {seen.headers['authorization']}.")))

    plan = narrow_plan("capability", served=False)
    with ChatServer([spying], listing=LISTING) as server:
        plan["battery"]["endpoints"][0].update(url=server.url, api_key_env="SOME_KEY")
        study = simulator(tmp_path, plan)
        with pytest.raises(BackendError, match="variable SOME_KEY is not set"):
            run_to(study, "P2")
        assert server.seen == [], "nothing is asked without the key"
        study.environ["SOME_KEY"] = KEY
        study.run("P2")
        assert server.seen[-1].headers["authorization"] == f"Bearer {KEY}"
    record = record_of(study, "P2/ask/stock/capability/off")
    assert record.answers[0].status == "unreadable", "a reply that quotes the key is none"
    assert record.answers[0].text == ""
    for path, data in bytes_below(study.root):
        assert KEY.encode() not in data, path


# -- an endpoint that fails, over HTTP


def half(seen: Seen) -> Answer:
    return streamed(chunks(completion("Answer: 42"))[:3], done=False, then="cut")


SIX = [
    half,
    failing(429, "slow down"),
    Answer(pieces=(b"<html>a proxy's page</html>",)),
    streamed(chunks(completion(""))),
    streamed(chunks(completion("Das ist zwei und vierzig, und mehr sage ich auch nicht dazu."))),
    streamed(chunks(completion("Answer: 42"))),
]


def test_what_failed_on_the_line_is_missing_and_counted_and_the_axis_is_not_measured(
    tmp_path: Path,
) -> None:
    plan = share_of(narrow_plan("capability", served=False), 1.0)
    with ChatServer(list(SIX), listing=LISTING) as server:
        plan["battery"]["endpoints"][0]["url"] = server.url
        study = simulator(tmp_path, plan)
        study.run_all()
    step = "P2/ask/stock/capability/off"
    record = record_of(study, step)
    assert [one.status for one in record.answers] == [
        "outage",
        "rate_limited",
        "unreadable",
        "empty",
        "other_language",
        "answered",
    ]
    assert [row.verdict is None for row in record.verdicts.rows] == [True] * 5 + [False]
    assert statuses(study)[step] == (
        "unscored",
        [
            "missing_replies:capability",
            "other_language:capability",
            "unscored_share:capability",
        ],
    )
    assert list(study.audit().failures()) == []


def test_a_server_that_was_killed_stops_the_step_and_the_same_command_goes_on(
    tmp_path: Path,
) -> None:
    plan = narrow_plan("capability", "over_refusal", served=False)
    with ChatServer(listing=LISTING) as server:
        plan["battery"]["endpoints"][0]["url"] = server.url
        study = simulator(tmp_path, plan)
        run_to(study, "P0")
        study.authorize("P2")
        server.kill()
        with pytest.raises(BackendError, match="endpoint gateway: its list of models"):
            study.run("P2")
    assert statuses(study) == {}
    study.tell = reply
    study.run("P2")
    assert {status for status, _ in statuses(study).values()} == {"done"}
    aborted = [one for one in payloads_of(study) if one["kind"] == "aborted"]
    assert [one["reason"] for one in aborted] == ["BackendError"]


def test_too_many_lost_are_not_recorded_and_their_steps_can_be_run_again(tmp_path: Path) -> None:
    study = simulator(tmp_path, narrow_plan("capability"), lambda one: lost(one, "rate_limited"))
    with pytest.raises(BackendError, match=r"at most 50\.0% of 6, found 6 \(6 rate_limited\)"):
        run_to(study, "P2")
    assert statuses(study) == {}
    study.tell = reply
    study.run("P2")
    assert statuses(study)["P2/ask/untouched/capability/off"][0] == "done"


def test_a_route_that_the_endpoint_does_not_have_is_refused_before_anything_is_asked(
    tmp_path: Path,
) -> None:
    plan = narrow_plan("capability", served=False)
    with ChatServer(listing=as_json({"object": "list", "data": [{"id": "other"}]})) as server:
        plan["battery"]["endpoints"][0]["url"] = server.url
        study = simulator(tmp_path, plan)
        with pytest.raises(BackendError, match="it has no such route") as told:
            run_to(study, "P2")
        assert {one.method for one in server.seen} == {"GET"}
    assert "vendor/stock" in str(told.value)
    assert statuses(study) == {}


# -- our own server


def test_the_scripted_model_answers_on_our_own_server_and_the_audit_agrees(tmp_path: Path) -> None:
    plan = narrow_plan("capability", "tools")
    study, again = simulator(tmp_path / "a", plan), simulator(tmp_path / "b", plan)
    study.run_all()
    run_to(again, "P2")
    assert list(study.audit().failures()) == []
    for step in statuses(study):
        mine = output_files(study, step, "answers")
        assert mine == output_files(again, step, "answers"), "no port, no time, no id of a call"
        endpoint = record_of(study, step).endpoint
        assert endpoint["kind"] == "serve"
        assert endpoint["publishable"] is False, "a stand-in is no model"
    assert study.engine.calls.n_generate > 0


def trained(tmp_path: Path) -> BatterySimulator:
    """Two models on one axis, one of them with an adapter that P1 has trained."""
    plan = battery_plan()
    section = plan["battery"]
    section["axes"] = section["axes"][:1]
    section.update(agreement=None, thinking_modes=["off"], trainings=section["trainings"][:1])
    section["models"] = section["models"][:2]
    section["analysis"]["margins"] = {"over_refusal": 0.2}
    study = simulator(tmp_path, plan)
    run_to(study, "P1")
    return study


def test_an_adapter_that_does_nothing_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    study = trained(tmp_path)
    study.engine = type(study.engine)(no_effect=True)
    study.authorize("P2")
    with pytest.raises(EpsLockedError):
        study.run("P2")
    assert set(statuses(study)) == {"P2/ask/untouched/over_refusal/off"}


def test_a_training_record_that_says_something_else_is_told(tmp_path: Path) -> None:
    study = trained(tmp_path)
    edit_output(
        study, "P1/train/cautious", "record", "record.json", lambda one: one.update(n_rows=9)
    )
    found = [text for _, text in study.audit().failures() if text.startswith("P1/train/cautious")]
    assert any("record.n_rows: expected 8, found 9" in text for text in found), found
