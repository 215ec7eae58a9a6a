"""Tries are bounded, counted and patient; final refusals stop everything; no key gets out."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from eps_locked.domain.judging import JudgePlan, JudgeRequest, Verdict
from eps_locked.errors import BackendError
from eps_locked.judges.parse import unscored, verdict_of
from eps_locked.judges.transport import JudgeLine as Line
from eps_locked.judges.transport import (
    ask_all,
    require_distinct,
    require_endpoint,
    require_key,
    require_transport,
)
from eps_locked.services.errors import read_error
from eps_locked.services.line import (
    GIVE_UP_AFTER,
    LONGEST_DELAY_S,
    LONGEST_RETRY_AFTER_S,
    Attempt,
)
from sim.judge_server import KEY, questions, small_plan

LOST = Attempt(status=None, headers={}, body=b"", problem="cut")


def answer(status: int, body: bytes = b"{}", **headers: str) -> Attempt:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Attempt(status=status, headers=named, body=body)


class Service:
    """Answers by script, and keeps what was slept in between."""

    def __init__(self, *script: Attempt, plan: JudgePlan | None = None, **options: Any) -> None:
        self.slept: list[float] = []
        self.n_asked = 0
        self._script = list(script)
        self.line = Line(plan or small_plan(), KEY, sleep=self.slept.append, **options)

    def send(self, identity: str = "a" * 64) -> Any:
        return self.line.send(identity, self._attempt, lambda body: body)

    def _attempt(self) -> Attempt:
        self.n_asked += 1
        return self._script.pop(0) if self._script else answer(200)


def test_reply_at_once_takes_one_try_and_no_sleep() -> None:
    service = Service(answer(200, b"hello"))
    sent = service.send()
    assert (sent.reply, sent.failure, sent.tries) == (b"hello", None, 1)
    assert (service.slept, service.line.n_sent) == ([], 1)


@pytest.mark.parametrize(
    ("failed", "status"),
    [
        (answer(429), "rate_limited"),
        (answer(529), "rate_limited"),
        (answer(500), "outage"),
        (answer(503), "outage"),
        (answer(599), "outage"),
        (answer(408), "outage"),
        (answer(409), "outage"),
        (LOST, "outage"),
    ],
)
def test_passing_failure_is_tried_again_and_then_named(failed: Attempt, status: str) -> None:
    mended = Service(failed, failed)
    assert mended.send().reply == b"{}"
    assert (mended.line.n_sent, len(mended.slept)) == (3, 2)

    lasting = Service(*[failed] * 9)
    sent = lasting.send()
    assert (sent.reply, sent.failure, sent.tries) == (None, status, 3)
    # No sleep after the last try: nothing is waited for.
    assert (lasting.n_asked, lasting.line.n_sent, len(lasting.slept)) == (3, 3, 2)


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": "0.25"}, 0.25),
        ({"retry_after_ms": "50"}, 0.05),
        ({"retry_after_ms": "50", "retry_after": "7"}, 0.05),
        ({"retry_after": "86400"}, LONGEST_RETRY_AFTER_S),
        ({"retry_after_ms": "1e300"}, LONGEST_RETRY_AFTER_S),
    ],
)
def test_service_says_how_long_to_wait_up_to_a_cap(headers: dict[str, str], wait: float) -> None:
    service = Service(answer(429, **headers))
    service.send()
    assert service.slept == [wait]


@pytest.mark.parametrize(
    "asked", ["", "soon", "nan", "inf", "-1", "0", "Wed, 21 Oct 2026 07:28:00 GMT"]
)
def test_senseless_retry_after_falls_back_to_our_own_delay(asked: str) -> None:
    service = Service(answer(429, retry_after=asked))
    service.send()
    assert len(service.slept) == 1
    assert 0.375 <= service.slept[0] <= 0.5


def test_delays_double_up_to_a_cap_with_a_jitter_of_the_request_alone() -> None:
    plan = small_plan(max_tries=12)
    service = Service(*[LOST] * 12, plan=plan)
    service.send("b" * 64)
    full = [min(0.5 * 2**n, LONGEST_DELAY_S) for n in range(11)]
    assert all(0.75 * one <= got <= one for got, one in zip(service.slept, full, strict=True))

    again, other = Service(*[LOST] * 12, plan=plan), Service(*[LOST] * 12, plan=plan)
    again.send("b" * 64)
    other.send("c" * 64)
    assert again.slept == service.slept
    assert other.slept != service.slept


def test_service_may_forbid_another_try() -> None:
    service = Service(answer(500, x_should_retry="false"), answer(200))
    sent = service.send()
    assert (sent.failure, sent.tries, service.n_asked) == ("outage", 1, 1)


@pytest.mark.parametrize(
    ("status", "named", "step"),
    [
        (400, "invalid_request_error", "plan"),
        (401, "authentication_error", "JUDGE_KEY"),
        (402, "billing_error", "account"),
        (403, "permission_error", "JUDGE_KEY"),
        (404, "not_found_error", "claude-sonnet-5-5"),
        (413, "HTTP 413", "endpoint"),
        (307, "HTTP 307", "endpoint"),
    ],
)
def test_final_refusal_stops_at_once_and_names_the_next_step(
    status: int, named: str, step: str
) -> None:
    body = f'{{"error": {{"type": "odd", "message": "no {KEY}, no entry"}}}}'.encode()
    service = Service(answer(status, body))
    with pytest.raises(BackendError) as caught:
        service.send()
    assert service.n_asked == 1
    assert service.slept == []
    text = str(caught.value)
    assert named in str(caught.value.found)
    assert step in (caught.value.next_step or "")
    assert KEY not in text
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    # A service that turns a key down may quote half of it.
    assert ("no entry" in text) == (status not in (401, 403))


def test_body_that_is_no_reply_counts_as_an_outage_and_is_asked_for_again() -> None:
    service = Service(answer(200, b"<html>"), answer(200, b"<html>"), answer(200, b"good"))

    def read(body: bytes) -> bytes:
        if body != b"good":
            raise ValueError(f"a page that quotes {KEY}")
        return body

    sent = service.line.send("d" * 64, service._attempt, read)
    assert (sent.reply, sent.tries) == (b"good", 3)
    for _ in range(3):
        service._script.append(answer(200, b"<html>"))
    lost = service.line.send("d" * 64, service._attempt, read)
    assert (lost.failure, lost.tries) == ("outage", 3)
    assert lost.note == "not a reply of the service: a page that quotes [key]"


def test_dead_line_is_given_up_and_comes_back_with_a_reply() -> None:
    service = Service(*[answer(429)] * (3 * GIVE_UP_AFTER))
    for _ in range(GIVE_UP_AFTER):
        assert service.send().tries == 3
    n_asked = service.n_asked
    sent = service.send()
    assert (sent.reply, sent.failure, sent.tries) == (None, "rate_limited", 0)
    assert sent.note.startswith("not sent: 10 requests in a row")
    assert service.n_asked == n_asked == service.line.n_sent

    patient = Service(*[answer(429)] * (3 * GIVE_UP_AFTER), gives_up=False)
    for _ in range(GIVE_UP_AFTER):
        patient.send()
    assert patient.send().reply == b"{}"

    wide = Service(*[answer(429)] * 90, plan=small_plan(max_concurrency=8))
    assert [wide.send().tries for _ in range(17)] == [3] * 16 + [0]

    healing = Service(*[answer(429)] * (3 * GIVE_UP_AFTER - 1))
    for _ in range(GIVE_UP_AFTER - 1):
        healing.send()
    assert healing.send().reply == b"{}"  # two lost tries, then a reply: the count begins anew
    healing._script += [answer(429)] * 3
    healing.send()
    assert healing.send().reply == b"{}"


def test_nothing_is_sent_after_the_call_is_over() -> None:
    service = Service(answer(500))
    service.line.stop.set()
    assert service.send().tries == 0
    assert service.line.n_sent == 0


def test_default_sleep_ends_when_the_call_is_over() -> None:
    line = Line(small_plan(), KEY)

    def attempt() -> Attempt:
        line.stop.set()
        return answer(429, retry_after="100")

    assert line.send("e" * 64, attempt, lambda body: body).tries == 1  # would sleep past the limit


def test_text_that_goes_on_is_clean() -> None:
    line = Line(small_plan(), KEY)
    assert line.clean(f"key\n {KEY}\tand \ud800 \x00 é") == "key [key] and \\ud800 \\x00 \\xe9"
    # The key goes before the cut, or half of it would stay.
    assert KEY[:8] not in line.clean("x" * 190 + KEY)
    assert len(line.clean("x" * 900)) == 200
    assert Line(small_plan(), None).clean("a") == "a"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b'{"type": "error", "error": {"type": "t", "message": "m"}}', ("t", "", "m")),
        (b'{"error": {"message": "m", "code": 3}}', ("", "", "m")),
        (b'{"error": {"message": "m", "type": null, "code": "c"}}', ("", "c", "m")),
        (b'{"error": {"type": "t", "details": {"error_code": "c"}}}', ("t", "c", "")),
        (b'{"error": "plain"}', ("", "", "plain")),
        (b'{"error": "plain", "type": "t"}', ("t", "", "plain")),
        (b'{"type": "error", "message": "m"}', ("error", "", "m")),
        (b'{"detail": "m"}', ("", "", "m")),
        (b'{"detail": [{"msg": "m"}]}', ("", "", "m")),
        (
            b'{"detail": [{"loc": ["body", 0], "msg": "m", "input": "i"}, 7, {"msg": "n"}]}',
            ("", "", "body.0: m; n"),
        ),
        (b'{"detail": [{"loc": "body"}]}', ("", "", "")),
        (b"<html>", ("", "", "")),
        (b"\xff\xfe", ("", "", "")),
        (b"", ("", "", "")),
        (b"[]", ("", "", "")),
    ],
)
def test_words_of_a_service_are_found_where_there_are_any(
    body: bytes, found: tuple[str, str, str]
) -> None:
    error = read_error(body)
    assert (error.type, error.code, error.message) == found
    assert not error.is_filter
    assert not error.is_spent


@pytest.mark.parametrize(
    "error",
    [
        {"message": "The prompt was filtered", "type": None, "code": "content_filter"},
        {"message": "litellm.BadRequestError: litellm.ContentPolicyViolationError: no"},
        {"message": "triggering Azure OpenAI's content management policy. Modify", "code": "400"},
        {"type": "invalid_request_error", "message": "Output blocked by content filtering policy"},
    ],
)
def test_content_filter_refuses_one_answer_and_not_the_plan(error: dict[str, Any]) -> None:
    service = Service(answer(400, json.dumps({"error": error}).encode()))
    sent = service.send()
    assert (sent.reply, sent.failure, sent.tries) == (None, "judge_refused", 1)
    assert sent.note.startswith("HTTP 400 ")
    assert service.n_asked == 1
    # It is a word of the judge, not of the line: the line lives.
    many = Service(*[answer(400, json.dumps({"error": error}).encode())] * 40)
    assert all(many.send().failure == "judge_refused" for _ in range(40))


@pytest.mark.parametrize(
    "error",
    [
        {"type": "insufficient_quota", "code": "insufficient_quota", "message": "m"},
        {"type": "rate_limit_error", "details": {"error_code": "enforced_spend_limit_reached"}},
        {"type": "rate_limit_error", "details": {"error_code": "contract_spend_limit_reached"}},
    ],
)
def test_spent_account_is_no_matter_of_patience(error: dict[str, Any]) -> None:
    service = Service(answer(429, json.dumps({"error": error}).encode()))
    with pytest.raises(BackendError, match="billing_error"):
        service.send()
    assert service.n_asked == 1


def test_verdict_that_quotes_the_key_is_struck() -> None:
    line = Line(small_plan(), KEY)
    told = unscored(questions(1)[0], "unreadable", f"found {KEY}", model=f"m {KEY}", tries=1)
    struck = line.without_key(told)
    assert (struck.note, struck.model) == ("found [key]", "m [key]")
    plain = scored(questions(1)[0])
    assert line.without_key(plain) is plain
    assert Line(small_plan(), None).without_key(told) is told


def scored(request: JudgeRequest) -> Verdict:
    return verdict_of(request, '{"label": "yes", "worth": 1}', model="m", tries=1)


def test_verdicts_come_in_the_order_of_the_requests_whatever_ends_first() -> None:
    requests = questions(8)
    first_may_end = threading.Event()

    def ask(request: JudgeRequest) -> Verdict:
        if request.key == "k0":
            first_may_end.wait()
        if request.key == "k7":
            first_may_end.set()
        return scored(request)

    verdicts = ask_all(requests, ask, max_concurrency=2, stop=threading.Event())
    assert [one.key for one in verdicts] == [f"k{n}" for n in range(8)]


@pytest.mark.parametrize("error", [BackendError("judge"), KeyboardInterrupt(), ValueError("ours")])
def test_first_error_stops_the_rest(error: BaseException) -> None:
    stop, asked = threading.Event(), []

    def ask(request: JudgeRequest) -> Verdict:
        asked.append(request.key)
        if request.key == "k1":
            raise error
        if request.key != "k0":
            stop.wait()  # ends because the error stops the call, and only then
        return scored(request)

    with pytest.raises(type(error)):
        ask_all(questions(50), ask, max_concurrency=2, stop=stop)
    assert stop.is_set()
    assert len(asked) <= 4
    assert not [one for one in threading.enumerate() if one.name.startswith("judge")]


def lost_verdicts(n_scored: int, *failures: str) -> list[Verdict]:
    requests = questions(n_scored + len(failures))
    return [
        *(scored(request) for request in requests[:n_scored]),
        *(
            unscored(request, status, "HTTP 503", tries=3)
            for request, status in zip(requests[n_scored:], failures, strict=True)
        ),
    ]


@pytest.mark.parametrize(
    ("share", "verdicts"),
    [
        (0.1, []),
        (0.0, lost_verdicts(3)),
        (0.1, lost_verdicts(9, "outage")),
        (0.29, lost_verdicts(71, *["rate_limited"] * 29)),
        (0.0, lost_verdicts(1, "unreadable", "judge_refused", "truncated")),
        (1.0, lost_verdicts(0, "outage")),
    ],
)
def test_as_many_lost_verdicts_as_the_plan_allows_are_recorded(
    share: float, verdicts: Sequence[Verdict]
) -> None:
    require_transport(small_plan(max_transport_share=share), verdicts)


@pytest.mark.parametrize(
    ("share", "verdicts", "found"),
    [
        (0.0, lost_verdicts(99, "outage"), "1 (1 outage)"),
        (0.1, lost_verdicts(8, "outage"), "1 (1 outage)"),
        (0.5, lost_verdicts(1, "outage", "rate_limited", "outage"), "3 (2 outage, 1 rate_limited)"),
    ],
)
def test_more_lost_verdicts_than_the_plan_allows_stop_the_step(
    share: float, verdicts: Sequence[Verdict], found: str
) -> None:
    with pytest.raises(BackendError) as caught:
        require_transport(small_plan(max_transport_share=share), verdicts)
    assert caught.value.found == found
    assert f"of {len(verdicts)}" in str(caught.value.expected)
    assert "nothing of this step was recorded" in str(caught.value)
    assert "HTTP 503" in str(caught.value)


def test_two_requests_that_are_one_are_refused() -> None:
    require_distinct(questions(3, draws=2))
    with pytest.raises(RuntimeError, match="same key, draw and content"):
        require_distinct([*questions(3), questions(2)[1]])


@pytest.mark.parametrize(
    "key", ["", "two words", "line\n", "tab\t", "na\u0131f", "nul\x00", "del\x7f"]
)
def test_key_that_fits_no_header_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(BackendError, match="JUDGE_KEY") as caught:
        require_key(small_plan(), key)
    assert not key or key not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:4000",
        "ftp://host/x",
        "https://",
        "https://user:secret@host/v1",
        "https://host/v1?key=secret",
        "https://host/v1#secret",
        "https://[::1",
    ],
)
def test_endpoint_that_is_none_or_holds_a_secret_is_refused(url: str) -> None:
    with pytest.raises(BackendError, match="endpoint") as caught:
        require_endpoint(small_plan(), url)
    assert "secret" not in str(caught.value)


def test_endpoint_of_the_web_is_taken_as_it_is() -> None:
    assert require_endpoint(small_plan(), "http://10.0.0.7:4000/v1") == "http://10.0.0.7:4000/v1"
