"""Leave to run: this phase, this manifest, this time, by this person, up to this cap."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from eps_locked.errors import MalformedInputError, RefusedError
from sim.forge import document_payload, resign, strangers_key
from sim.simulator import AUTHOR, COLLEAGUE, NOW, StudySimulator, make_key

OTHER = "blake3:" + "7" * 64


def p1(study: StudySimulator) -> Any:
    return study.run_folder.folder / "authorizations" / "P1-0001"


def test_without_an_authorization_nothing_runs(half_way: StudySimulator, refuses: Any) -> None:
    shutil.rmtree(p1(half_way))
    with refuses(half_way) as caught:
        half_way.run("P1")
    assert caught.value.found == "none"
    assert caught.value.next_step == "just authorize small P1"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"phase": "P0"}, "authorization for P1"),
        ({"manifest": OTHER}, "manifest"),
        ({"lock_head": OTHER}, "lock_head"),
        ({"name": "large"}, "name"),
        ({"signer": COLLEAGUE}, COLLEAGUE),
        ({"signer": "nobody@example"}, "nobody@example"),
        ({"signer": "*"}, "a plain name"),
        ({"signer": "author@example,colleague@example"}, "a plain name"),
        ({"signer": "a\x00b"}, "a plain name"),
        ({"signer": ""}, "signer"),
        ({"self_authorized": False}, "self_authorized"),
        ({"cap_ms": 3_600_001}, "cap_ms"),
        ({"cap_ms": 0}, "cap_ms"),
        ({"cap_ms": -5}, "cap_ms"),
        ({"cap_ms": 1.5}, "cap_ms"),
        ({"cap_ms": True}, "cap_ms"),
        ({"expires_at": "2026-06-09T12:00:00Z"}, "validity"),
        ({"issued_at": "2026-06-09T12:00:01Z"}, "validity"),
        ({"issued_at": "2026-06-09 12:00:00"}, "issued_at"),
        ({"expires_at": "2026-06-31T12:00:00Z"}, "expires_at"),
        ({"expires_at": 17}, "expires_at"),
        ({"schema": "eps-locked/amendment/1"}, "schema"),
        ({"note": "please"}, "note"),
        ({"phase": None}, "phase"),
        ({"root": "smoke"}, "root"),
    ],
)
def test_a_document_of_the_authors_own_making_is_still_held_to_the_rules(
    half_way: StudySimulator, refuses: Any, change: dict[str, Any], text: str
) -> None:
    """The author signs a document that the authorize command would never have written."""
    payload = {**document_payload(p1(half_way)), **change}
    resign(p1(half_way), payload, key=half_way.key(AUTHOR))
    with refuses(half_way) as caught:
        half_way.run("P1")
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "field", ["name", "root", "manifest", "signer", "cap_ms", "self_authorized"]
)
def test_every_field_of_a_document_has_to_be_there(
    half_way: StudySimulator, refuses: Any, field: str
) -> None:
    payload = document_payload(p1(half_way))
    del payload[field]
    resign(p1(half_way), payload, key=half_way.key(AUTHOR))
    with refuses(half_way) as caught:
        half_way.run("P1")
    assert field in str(caught.value)


def test_a_strangers_signature_is_none(half_way: StudySimulator, refuses: Any) -> None:
    key = strangers_key(half_way)
    resign(p1(half_way), document_payload(p1(half_way)), key=key)
    with refuses(half_way) as caught:
        half_way.run("P1")
    assert "document.json.sig" in str(caught.value)
    payload = {**document_payload(p1(half_way)), "signer": "stranger@example"}
    resign(p1(half_way), payload, key=key)
    with refuses(half_way):
        half_way.run("P1")


def test_a_colleague_cannot_sign_in_the_authors_name_nor_the_author_in_theirs(
    half_way: StudySimulator, refuses: Any
) -> None:
    resign(p1(half_way), document_payload(p1(half_way)), key=half_way.key(COLLEAGUE))
    with refuses(half_way) as caught:
        half_way.run("P1")
    assert AUTHOR in str(caught.value)
    payload = {**document_payload(p1(half_way)), "signer": COLLEAGUE, "self_authorized": False}
    resign(p1(half_way), payload, key=half_way.key(AUTHOR))
    with refuses(half_way) as caught:
        half_way.run("P1")
    assert COLLEAGUE in str(caught.value)


@pytest.mark.parametrize("namespace", ["eps-locked-amendment", "git", "file", "eps-locked"])
def test_a_signature_for_another_purpose_opens_nothing(
    half_way: StudySimulator, refuses: Any, namespace: str
) -> None:
    resign(
        p1(half_way),
        document_payload(p1(half_way)),
        key=half_way.key(AUTHOR),
        namespace=namespace,
    )
    with refuses(half_way) as caught:
        half_way.run("P1")
    assert "eps-locked-authorization" in str(caught.value)


def test_a_document_signed_under_another_document_is_none(
    half_way: StudySimulator, refuses: Any
) -> None:
    other = half_way.run_folder.folder / "authorizations" / "P0-0001"
    shutil.copyfile(other / "document.json.sig", p1(half_way) / "document.json.sig")
    with refuses(half_way) as caught:
        half_way.run("P1")
    assert "P1-0001" in str(caught.value)


@pytest.mark.parametrize(
    ("days", "runs"), [(0, True), (1, False), (400, False), (-1, False)], ids=str
)
def test_an_authorization_is_valid_from_its_first_second_to_before_its_last(
    half_way: StudySimulator, refuses: Any, days: int, runs: bool
) -> None:
    half_way.now = NOW + timedelta(days=days)
    if runs:
        half_way.now += timedelta(hours=23, minutes=59, seconds=59)
        assert half_way.run("P1")
        return
    with refuses(half_way) as caught:
        half_way.run("P1")
    assert "validity" in str(caught.value)


def test_an_amendment_makes_every_older_authorization_worthless(
    half_way: StudySimulator, refuses: Any
) -> None:
    half_way.amend()
    with refuses(half_way) as caught:
        half_way.run("P1")
    assert "lock_head" in str(caught.value)
    half_way.authorize("P1")
    assert half_way.run("P1")
    assert half_way.audit().ok


def test_the_author_alone_is_held_to_the_auto_approve_cap(
    half_way: StudySimulator, refuses: Any
) -> None:
    with refuses(half_way) as caught:
        half_way.authorize("P1", cap_gpu_hours=1.01)
    assert "ask another allowed signer" in str(caught.value)
    shutil.rmtree(p1(half_way))
    half_way.authorize("P1", signer=COLLEAGUE, cap_gpu_hours=50)
    assert half_way.run("P1")
    audited = half_way.audit()
    assert audited.ok
    assert [body.self_authorized for body in audited.history.opens] == [True, False]


def test_a_plan_may_forbid_self_authorization(study: StudySimulator, refuses: Any) -> None:
    study.plan["authorization"]["self_authorization"] = False
    study.freeze()
    with refuses(study) as caught:
        study.authorize("P0")
    assert "forbids self-authorization" in str(caught.value)
    study.authorize("P0", signer=COLLEAGUE)
    assert study.run("P0")


def test_two_valid_documents_must_be_told_apart_by_name(
    half_way: StudySimulator, refuses: Any
) -> None:
    half_way.authorize("P1", cap_gpu_hours=0.4)
    with refuses(half_way) as caught:
        half_way.run("P1")
    assert caught.value.found == "P1-0001, P1-0002"
    assert "--authorization" in str(caught.value)
    for wrong in ("P1-0003", "P0-0001", "../P1-0001", ""):
        with refuses(half_way):
            half_way.run("P1", authorization=wrong)
    assert half_way.run("P1", authorization="P1-0002")
    assert half_way.audit().history.opens[-1].cap_ms == 1_440_000


def test_an_expired_document_does_not_stand_in_the_way_of_a_valid_one(
    half_way: StudySimulator,
) -> None:
    half_way.now = NOW + timedelta(days=2)
    half_way.authorize("P1")
    assert half_way.run("P1")


# One signature has one spelling: whoever sees the digest of a .sig file knows the signature.
def _reflow(armour: bytes) -> bytes:
    first, *body, last = armour.splitlines()
    text = b"".join(body)
    return b"\n".join([first, *(text[i : i + 64] for i in range(0, len(text), 64)), last, b""])


def _pad(armour: bytes) -> bytes:
    first, *body, last = armour.splitlines()
    blob = base64.b64decode(b"".join(body)) + b"\x00" * 3
    text = base64.b64encode(blob)
    return b"\n".join([first, *(text[i : i + 70] for i in range(0, len(text), 70)), last, b""])


ARMOUR: dict[str, Callable[[bytes], bytes]] = {
    "trailing newline": lambda a: a + b"\n",
    "trailing text": lambda a: a + b"hello\n",
    "leading newline": lambda a: b"\n" + a,
    "leading text": lambda a: b"hello\n" + a,
    "no last newline": lambda a: a[:-1],
    "windows line ends": lambda a: a.replace(b"\n", b"\r\n"),
    "other line length": _reflow,
    "a space in a line": lambda a: a.replace(b"\n", b" \n", 2),
    "a second signature": lambda a: a + a,
    "bytes after the blob": _pad,
    "empty": lambda a: b"",
    "no armour": lambda a: b"".join(a.splitlines()[1:-1]),
    "only armour": lambda a: a.splitlines()[0] + b"\n" + a.splitlines()[-1] + b"\n",
    "binary": lambda a: base64.b64decode(b"".join(a.splitlines()[1:-1])),
}


@pytest.mark.parametrize("name", ARMOUR)
def test_a_signature_has_exactly_one_spelling(
    half_way: StudySimulator, refuses: Any, name: str
) -> None:
    path = p1(half_way) / "document.json.sig"
    path.write_bytes(ARMOUR[name](path.read_bytes()))
    with refuses(half_way) as caught:
        half_way.run("P1")
    assert "document.json.sig" in str(caught.value)


@pytest.mark.parametrize("name", ["document.json", "document.json.sig"])
def test_half_a_document_refuses_by_name(half_way: StudySimulator, refuses: Any, name: str) -> None:
    (p1(half_way) / name).unlink()
    with refuses(half_way, MalformedInputError) as caught:
        half_way.run("P1")
    assert name in str(caught.value)
    assert any(name in failure for failure in half_way.audit().checks[5].failures)


def test_a_key_whose_time_is_over_cannot_open_by_a_document_dated_back(
    study: StudySimulator, refuses: Any
) -> None:
    study.write_plan()
    path = study.root / "plans/keys/allowed_signers"
    lines = [
        line.replace(" ", ' valid-before="20260610"', 1).replace('"20260610"', '"20260610" ')
        for line in path.read_text().splitlines()
    ]
    path.write_text("\n".join(lines) + "\n")
    study.freeze()
    study.authorize("P0", valid_for=timedelta(days=9))
    study.now = NOW + timedelta(days=3)
    with refuses(study) as caught:
        study.run("P0")
    assert "document.json.sig" in str(caught.value)


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (lambda line: line.replace("author@example", "*@example", 1), "plain name"),
        (lambda line: line.replace("author@example", "author@example,x@example", 1), "plain name"),
        (lambda line: line.replace("author@example", "!author@example", 1), "plain name"),
        (lambda line: line + line.replace("author@example", "friend@example", 1), "the key of"),
        (lambda line: "# nobody\n", "allowed signer"),
        (lambda line: "\xff\xfe", "allowed signer"),
    ],
)
def test_a_key_answers_to_one_plain_name(
    study: StudySimulator, refuses: Any, edit: Callable[[str], str], text: str
) -> None:
    """A pattern, or a key under two names, would let the author sign as their own colleague."""
    study.write_plan()
    path = study.root / "plans/keys/allowed_signers"
    line = path.read_text().splitlines(keepends=True)[0]
    path.write_bytes(edit(line).encode("latin-1"))
    with refuses(study, MalformedInputError) as caught:
        study.freeze()
    assert text in str(caught.value) or "UTF-8" in str(caught.value)


def test_a_closed_phase_is_not_authorized_again(half_way: StudySimulator, refuses: Any) -> None:
    with refuses(half_way) as caught:
        half_way.authorize("P0")
    assert caught.value.found == "a complete one"


@pytest.mark.parametrize("phase", ["P2", "p0", "", "P0/../..", "P" * 40])
def test_a_phase_that_is_none_is_malformed(
    half_way: StudySimulator, refuses: Any, phase: str
) -> None:
    with refuses(half_way, MalformedInputError):
        half_way.run(phase)
    with refuses(half_way, MalformedInputError):
        half_way.authorize(phase)


def test_a_key_that_cannot_sign_leaves_nothing_behind(
    half_way: StudySimulator, refuses: Any
) -> None:
    from eps_locked.errors import BackendError

    half_way.key(AUTHOR).write_text("no key\n")
    with refuses(half_way, BackendError) as caught:
        half_way.authorize("P1")
    assert "no key" not in str(caught.value)


def test_an_unlisted_key_cannot_even_authorize(half_way: StudySimulator, refuses: Any) -> None:
    key = half_way.key(AUTHOR)
    for path in (key, key.with_suffix(".pub")):
        path.unlink()
    make_key(key, AUTHOR)
    with refuses(half_way, RefusedError) as caught:
        half_way.authorize("P1")
    assert AUTHOR in str(caught.value)
