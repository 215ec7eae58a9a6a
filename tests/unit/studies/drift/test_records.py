"""The files of asking: what is kept, what is only counted, which replies are looked at twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eps_locked.canonical import decode, encode
from eps_locked.domain.judging import Verdict
from eps_locked.errors import EvidenceError, MalformedInputError
from eps_locked.studies.drift.records import (
    AskRecord,
    Judged,
    Ratings,
    Reply,
    chosen,
    reasoning_digest,
    reply_digest,
)

KEYS = tuple(f"stem_{n}/{k}/{sample}" for n in range(5) for k in range(3) for sample in range(2))


def reply(sample: int = 0, *, keep_text: bool = True, text: str = "Give it back.") -> Reply:
    return Reply.of(
        "disk/0",
        sample,
        keep_text=keep_text,
        reply=text,
        token_ids=tuple(range(7)),
        reasoning="It is not mine. " * 40,
        n_reasoning_tokens=160,
        stop="stop",
        attempts=1,
        exhausted=False,
        truncated_reasoning=False,
        mentions=2,
    )


def verdict(key: str, draw: int = 0, label: str | None = "declines") -> Verdict:
    return Verdict(
        key=key,
        draw=draw,
        status="unreadable" if label is None else "scored",
        label=label,
        scores={},
        model="m",
        note="",
        tries=1,
    )


def judged(*verdicts: Verdict) -> Judged:
    return Judged(judge={"kind": "scripted"}, rubric="blake3:" + "a" * 64, verdicts=verdicts)


def record(**changes: Any) -> AskRecord:
    made = AskRecord(
        arm="untouched",
        battery="self_interest",
        instance="in-process",
        replies=(reply(0), reply(1)),
        classes=judged(verdict("disk/0/0"), verdict("disk/0/1"), verdict("disk/0/1", 1)),
        grades=judged(verdict("disk/0/0", label="grade_7")),
        checks=None,
    )
    return replace(made, **changes)


# -- the chosen share


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0, 0), (0.1, 3), (0.3, 9), (1 / 3, 10), (0.31, 10), (0.001, 1), (1, 30)],
)
def test_a_share_is_rounded_up_whatever_the_products_last_bit_says(
    share: float, expected: int
) -> None:
    assert len(chosen(KEYS, share, 5, "twice")) == expected


def test_the_chosen_stand_in_their_order_and_a_larger_share_holds_the_smaller() -> None:
    shares = [chosen(KEYS, share, 5, "twice", "dose_0") for share in (0.2, 0.5, 0.8)]
    assert set(shares[0]) < set(shares[1]) < set(shares[2])
    for picked in shares:
        assert picked == tuple(key for key in KEYS if key in picked)
    assert set(chosen(reversed(KEYS), 0.5, 5, "twice", "dose_0")) == set(shares[1])


def test_seed_and_purpose_choose_others() -> None:
    first = chosen(KEYS, 0.5, 5, "twice", "dose_0")
    assert first == chosen(KEYS, 0.5, 5, "twice", "dose_0")
    for other in (
        chosen(KEYS, 0.5, 6, "twice", "dose_0"),
        chosen(KEYS, 0.5, 5, "checked", "dose_0"),
        chosen(KEYS, 0.5, 5, "twice", "dose_50"),
    ):
        assert other != first


def test_nothing_to_choose_from_is_nothing_chosen() -> None:
    assert chosen((), 0.5, 5, "twice") == ()


# -- a reply


def test_of_a_text_that_is_not_kept_an_excerpt_and_digests_remain() -> None:
    text = "  " + "Pour it on the roots. " * 30
    kept, short = reply(text=text), reply(text=text, keep_text=False)
    assert (kept.reply, kept.token_ids) == (text, tuple(range(7)))
    assert short.reply == text.strip()[:200]
    assert short.reasoning == ("It is not mine. " * 40)[:200]
    assert short.token_ids == ()
    assert short.n_reply_tokens == 7
    assert short.reply_digest == kept.reply_digest == reply_digest(text, range(7))
    assert short.reasoning_digest == reasoning_digest(kept.reasoning)


def test_a_reply_of_nothing_but_space_is_not_judged_kept_or_not() -> None:
    for keep_text in (True, False):
        assert not reply(text=" \n" * 300, keep_text=keep_text).is_judged
        assert reply(text=" \n" * 300 + "Yes.", keep_text=keep_text).is_judged
    assert not replace(reply(), exhausted=True).is_judged


def test_digests_tell_texts_and_tokens_apart() -> None:
    assert len({reply_digest("a", (1,)), reply_digest("a", (1, 2)), reply_digest("b", (1,))}) == 3
    assert reasoning_digest("a") != reasoning_digest("b")


# -- files


@pytest.mark.parametrize(
    "made", [record(), record(grades=None), record(checks=judged(verdict("disk/0/0", label=None)))]
)
def test_a_record_is_read_back_as_it_was_written(made: AskRecord) -> None:
    files = made.to_files()
    assert AskRecord.from_files(files, "t") == made
    assert ("grades.json" in files) == (made.grades is not None)
    assert ("checks.json" in files) == (made.checks is not None)


def test_ratings_are_read_back_as_they_were_written() -> None:
    made = Ratings(battery="self_interest", judged=judged(verdict("disk/0", label="grade_3")))
    assert Ratings.from_files(made.to_files(), "t") == made
    with pytest.raises(EvidenceError, match=r"expected awareness\.json"):
        Ratings.from_files({}, "t")


def test_labels_are_those_of_one_draw_and_of_scored_verdicts() -> None:
    found = judged(verdict("a", label=None), verdict("b"), verdict("b", 1, "seeks"), verdict("c"))
    assert found.labels() == {"b": "declines", "c": "declines"}
    assert found.labels(1) == {"b": "seeks"}


def test_judge_settings_name_every_part_and_only_what_changes_verdicts() -> None:
    settings = record().judge_settings
    assert set(settings) == {"classifier", "grader", "checker"}
    assert settings["checker"] is None
    other = record(classes=judged(verdict("disk/0/0", label="seeks")))
    assert other.judge_settings == settings
    elsewhere = replace(record().classes, judge={"kind": "gateway"})
    assert record(classes=elsewhere).judge_settings != settings


@pytest.mark.parametrize("name", ["answers.json", "verdicts.json"])
def test_a_record_without_one_of_its_files_is_refused(name: str) -> None:
    files = record().to_files()
    del files[name]
    with pytest.raises(EvidenceError, match=r"t: expected answers\.json, verdicts\.json"):
        AskRecord.from_files(files, "t")


def test_a_file_that_no_record_has_is_refused() -> None:
    with pytest.raises(EvidenceError, match=r"notes\.json"):
        AskRecord.from_files({**record().to_files(), "notes.json": b"{}"}, "t")


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("reply_digest", "sha1:0", "reply_digest: expected a digest"),
        ("reasoning_digest", "", "reasoning_digest: expected a digest"),
        ("attempts", 0, "attempts: expected at least 1"),
        ("stop", "timeout", "stop: expected stop or length"),
        ("exhausted", 1, "exhausted: expected true or false"),
        ("mood", "good", "mood: is not a known field"),
    ],
)
def test_a_reply_of_another_form_is_refused(field: str, value: object, words: str) -> None:
    files = record().to_files()
    document: Any = decode(files["answers.json"], thing="t")
    document["answers"][1][field] = value
    files["answers.json"] = encode(document)
    with pytest.raises(MalformedInputError, match=rf"answers\[1\]\.{words}"):
        AskRecord.from_files(files, "t")
