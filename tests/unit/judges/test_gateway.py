"""The gateway judge against a service on this machine, and the making of judges from plans."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from typing import Any

import openai
import pytest

from eps_locked.domain.judging import Verdict
from eps_locked.errors import BackendError
from eps_locked.judges import prototype
from eps_locked.judges.anthropic_client import AnthropicJudge
from eps_locked.judges.gateway import GatewayJudge
from eps_locked.judges.make import make_judge
from eps_locked.judges.scripted import ScriptedJudge
from sim.judge_server import (
    BROKEN,
    BUSY,
    KEY,
    Answer,
    JudgeServer,
    as_json,
    completion,
    expected,
    failing,
    questions,
    small_plan,
)

MODEL = "llama-3.3-70b-instruct"


def gateway_at(server: JudgeServer, key: str | None = KEY, **changes: Any) -> GatewayJudge:
    slept: list[float] = []
    values = {"model": "team/llama", "family": "llama", "endpoint": f"{server.url}/v1", **changes}
    return GatewayJudge(small_plan("gateway", **values), key, sleep=slept.append)


def ask_once(answer: Answer, *, tries: int = 1, **changes: Any) -> Verdict:
    with JudgeServer([answer] * tries) as server:
        judge = gateway_at(server, **changes)
        (verdict,) = judge.judge(questions(1))
    assert len(server.seen) == judge.n_sent == verdict.tries == tries
    assert (verdict.label is None) == (not verdict.is_scored)
    assert Verdict.from_dict(verdict.to_dict(), "verdict") == verdict
    return verdict


def test_every_request_gets_its_own_verdict_and_draws_stay_apart() -> None:
    requests = questions(12, draws=2)
    with JudgeServer([BUSY, BROKEN]) as server:
        judge = gateway_at(server)
        verdicts = judge.judge(requests)
    assert [(one.key, one.draw) for one in verdicts] == [(one.key, one.draw) for one in requests]
    for verdict in verdicts:
        assert (verdict.label, verdict.scores) == expected(int(verdict.key[1:]))
        assert verdict.model == MODEL
    assert sum(one.tries for one in verdicts) == len(server.seen) == judge.n_sent == 26


def test_request_says_what_the_plan_locks_and_nothing_more() -> None:
    with JudgeServer() as server:
        gateway_at(server).judge(questions(1))
        gateway_at(server, temperature=None, effort="high").judge(questions(1))
    first, second = (one.body for one in server.seen)
    assert set(first) == {"model", "max_tokens", "messages", "response_format", "temperature"}
    assert (first["model"], first["temperature"], first["max_tokens"]) == ("team/llama", 0, 600)
    form = first["response_format"]
    assert (form["type"], form["json_schema"]["strict"]) == ("json_schema", True)
    assert form["json_schema"]["schema"]["additionalProperties"] is False
    assert "temperature" not in second
    assert second["reasoning_effort"] == "high"


def test_key_is_sent_if_there_is_one_and_nothing_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "of-the-machine")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    with JudgeServer() as server:
        assert gateway_at(server).judge(questions(1))[0].is_scored
        assert gateway_at(server, None).judge(questions(1))[0].is_scored
    with_key, without = (one.headers for one in server.seen)
    assert with_key["authorization"] == f"Bearer {KEY}"
    assert "authorization" not in without
    assert "of-the-machine" not in json.dumps([with_key, dict(without)], default=dict)


@pytest.mark.parametrize(
    ("body", "status", "note"),
    [
        (completion('{"label": "yes", "worth": 9}', "length"), "truncated", "length"),
        (completion("", "content_filter"), "judge_refused", "content_filter"),
        (completion(None, "stop", refusal="I would rather not"), "judge_refused", "stop"),
        (
            completion('{"label": "yes", "worth": 9}', "stop", refusal="no"),
            "judge_refused",
            "stop",
        ),
        (completion("", "stop"), "unreadable", "empty"),
        (completion(None, "stop"), "unreadable", "no text"),
        (completion(None, "tool_calls"), "unreadable", "tool_calls"),
        (completion('{"label": "yes", "worth": 9}', None), "unreadable", "None"),
        (completion('{"label": "yes", "worth": 9}', "eos"), "unreadable", "eos"),
        (completion("It is a yes."), "unreadable", "not one JSON object"),
        (completion('{"label": "yes", "worth": 900}'), "unreadable", "0 to 100"),
        (completion([{"type": "text", "text": "x"}]), "unreadable", "no text"),
    ],
)
def test_reply_without_a_verdict_is_named_and_not_asked_for_again(
    body: dict[str, Any], status: str, note: str
) -> None:
    verdict = ask_once(as_json(body))
    assert verdict.status == status
    assert note in verdict.note
    assert (verdict.scores, verdict.model) == ({}, MODEL)


@pytest.mark.parametrize("refusal", [None, ""])
def test_empty_refusal_is_none(refusal: str | None) -> None:
    body = completion('{"label": "no", "worth": 9}', "stop", refusal=refusal)
    assert ask_once(as_json(body)).scores == {"worth": 9.0}


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (BUSY, "rate_limited"),
        (failing(529, "overloaded"), "rate_limited"),
        (BROKEN, "outage"),
        (failing(502, "bad_gateway", f"upstream said {KEY}"), "outage"),
        (Answer(body=json.dumps(completion("{}")).encode(), drop_after=25), "outage"),
        (Answer(body=b"<html>"), "outage"),
        (Answer(body=b'{"choices": [1, 2'), "outage"),
        (as_json({"error": {"message": "upstream is down", "code": 502}}), "outage"),
        (as_json({**completion("{}"), "choices": []}), "outage"),
        (as_json({**completion("{}"), "choices": completion("{}")["choices"] * 2}), "outage"),
        (as_json({**completion("{}"), "choices": [None]}), "outage"),
        (as_json({**completion("{}"), "model": None}), "outage"),
    ],
)
def test_lasting_trouble_is_a_status_and_no_score(answer: Answer, status: str) -> None:
    verdict = ask_once(answer, tries=3)
    assert (verdict.status, verdict.model) == (status, "")
    assert KEY not in verdict.note


def test_service_that_never_answers_is_an_outage() -> None:
    verdict = ask_once(Answer(hangs=True), tries=2, max_tries=2, timeout_seconds=0.2)
    assert (verdict.status, verdict.note) == ("outage", "no whole reply in time")


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (failing(400, "bad", "response_format is not supported"), "takes response_format"),
        (failing(400, "bad", "Unknown guided json_schema"), "takes response_format"),
        (failing(400, "bad", "temperature must be 1"), "temperature must be 1"),
        (failing(401, "auth", f"Incorrect API key provided: {KEY}"), "JUDGE_KEY"),
        (failing(403, "auth", f"{KEY} may not"), "JUDGE_KEY"),
        (failing(404, "nope", "no such model"), "team/llama"),
        (Answer(status=307, headers={"location": "http://127.0.0.1:9/"}), "HTTP 307"),
    ],
)
def test_final_refusal_stops_the_call(
    answer: Answer, named: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with JudgeServer([answer] * 30) as server:
        judge = gateway_at(server, max_concurrency=2)
        with pytest.raises(BackendError) as caught:
            judge.judge(questions(30))
    assert named in str(caught.value)
    assert KEY not in f"{caught.value} {caplog.text}"
    assert len(server.seen) == judge.n_sent <= 4


def test_wrong_key_is_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with JudgeServer() as server, pytest.raises(BackendError, match="JUDGE_KEY") as caught:
        gateway_at(server, "sk-wrong-secret").judge(questions(1))
    assert "secret" not in f"{caught.value} {vars(caught.value)} {caplog.text}"
    assert caught.value.__context__ is None


def test_identity_tells_all_that_is_locked() -> None:
    plan = small_plan("gateway", endpoint="http://gateway.example/v1", temperature=0.5)
    identity = GatewayJudge(plan, None).identity
    assert (identity.kind, identity.publishable) == ("gateway", True)
    assert identity.version == f"openai {openai.__version__}, chat completions"
    assert identity.settings == {
        "effort": "not set",
        "endpoint": "http://gateway.example/v1",
        "max_concurrency": "4",
        "max_tries": "3",
        "output_format": "json_schema",
        "temperature": "0.5",
        "timeout_seconds": "30",
    }


# --- make_judge


def test_plan_makes_the_judge_of_its_kind_with_the_key_of_its_variable() -> None:
    environ = {"JUDGE_KEY": KEY}
    assert isinstance(make_judge(small_plan(), environ), AnthropicJudge)
    with JudgeServer() as server:
        plan = small_plan("gateway", endpoint=f"{server.url}/v1")
        assert make_judge(plan, environ).judge(questions(1))[0].is_scored
        keyless = small_plan("gateway", endpoint=f"{server.url}/v1", api_key_env=None)
        assert make_judge(keyless, {"OPENAI_API_KEY": "other"}).judge(questions(1))[0].is_scored
    assert [one.headers.get("authorization") for one in server.seen] == [f"Bearer {KEY}", None]


def test_judges_that_ask_no_service_need_no_key() -> None:
    assert isinstance(make_judge(small_plan("scripted"), {}), ScriptedJudge)
    plan = small_plan("prototype", family=prototype.FAMILY, model=prototype.MODEL)
    assert isinstance(make_judge(plan, {}), prototype.PrototypeJudge)


@pytest.mark.parametrize("kind", ["anthropic", "gateway"])
@pytest.mark.parametrize("environ", [{}, {"JUDGE_KEY": ""}, {"OTHER_KEY": "secret"}])
def test_key_that_is_not_set_is_named_by_its_variable(kind: str, environ: dict[str, str]) -> None:
    plan = small_plan(kind, endpoint="http://127.0.0.1:9/v1")
    with pytest.raises(BackendError, match="JUDGE_KEY is not set") as caught:
        make_judge(plan, environ)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "variable"),
    [("anthropic", "ANTHROPIC_CUSTOM_HEADERS"), ("gateway", "OPENAI_CUSTOM_HEADERS")],
)
def test_headers_that_no_plan_names_are_refused(kind: str, variable: str) -> None:
    plan = small_plan(kind, endpoint="http://127.0.0.1:9/v1")
    with pytest.raises(BackendError, match=f"unset {variable}") as caught:
        make_judge(plan, {"JUDGE_KEY": KEY, variable: "x-secret: 1"})
    assert "x-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "package", "module"),
    [("anthropic", "anthropic", "anthropic_client"), ("gateway", "openai", "gateway")],
)
def test_missing_extra_is_named_with_its_install_line(
    kind: str, package: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, f"eps_locked.judges.{module}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    plan = small_plan(kind, endpoint="http://127.0.0.1:9/v1")
    with pytest.raises(BackendError, match=r"pip install 'eps-locked\[judges\]'") as caught:
        make_judge(plan, {"JUDGE_KEY": KEY})
    assert package in str(caught.value)


def test_vendors_are_imported_only_when_a_judge_of_theirs_is_made() -> None:
    program = (
        "import sys, eps_locked.judges.make, eps_locked.judges.transport; "
        "print(sorted({'anthropic', 'openai', 'httpx2'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
