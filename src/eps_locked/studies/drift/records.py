"""The JSON that asking writes: replies, and verdicts apart from them.

Replies and verdicts are separate files: a verdict can be read, counted and made again by another
judge without the text, and a text can be withheld without losing its verdict.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eps_locked.canonical import decode, digest_bytes, digest_value, encode, is_digest
from eps_locked.domain.fields import Fields
from eps_locked.domain.judging import EXCERPT_LENGTH, Verdict
from eps_locked.domain.model import StopReason, TokenIds
from eps_locked.errors import EvidenceError, MalformedInputError
from eps_locked.studies.common.judging import VERDICTS_FILE

__all__ = [
    "ANSWERS_FILE",
    "CHECKS_FILE",
    "GRADES_FILE",
    "AskRecord",
    "Judged",
    "Ratings",
    "Reply",
    "chosen",
    "excerpt",
]

ANSWERS_FILE = "answers.json"
GRADES_FILE = "grades.json"
CHECKS_FILE = "checks.json"
AWARENESS_FILE = "awareness.json"
ANSWERS_SCHEMA = "eps-locked/drift-answers/1"
VERDICTS_SCHEMA = "eps-locked/drift-verdicts/1"
AWARENESS_SCHEMA = "eps-locked/drift-awareness/1"


def chosen(keys: Iterable[str], share: float, seed: int, *labels: str) -> tuple[str, ...]:
    """The share of ``keys``, rounded up, that a frozen seed picks for a purpose; in their order.

    Nothing but names decides, so that who has the record knows which keys had to be picked.
    """
    keys = tuple(keys)
    ranked = sorted(keys, key=lambda key: digest_bytes(encode([seed, *labels, key])))
    # 0.1 of 30 is 3, whatever the product's last bit says.
    picked = set(ranked[: math.ceil(share * len(keys) - 1e-9)])
    return tuple(key for key in keys if key in picked)


def excerpt(text: str) -> str:
    """What is kept of a text that is not; empty exactly if the text is nothing but space."""
    return text.strip()[:EXCERPT_LENGTH]


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """One reply to one probe, and the reasoning before it.

    ``reasoning`` is what the model itself wrote in its block: empty where the block was closed,
    or filled by us. ``reply_digest`` is of the reply's text and token ids, ``reasoning_digest`` of
    the reasoning's text. Of a probe whose texts are not kept, ``token_ids`` are empty and both
    texts excerpts. ``exhausted``: every attempt ran out before there was a reply.
    ``truncated_reasoning``: the budget cut it off. ``mentions``: frozen words in the reasoning.
    """

    probe: str
    sample: int
    reply: str
    reply_digest: str
    reasoning: str
    reasoning_digest: str
    n_reasoning_tokens: int
    n_reply_tokens: int
    stop: str
    attempts: int
    exhausted: bool
    truncated_reasoning: bool
    mentions: int
    token_ids: TokenIds

    @property
    def key(self) -> str:
        """The reply as verdicts name it."""
        return f"{self.probe}/{self.sample}"

    @property
    def is_judged(self) -> bool:
        """Whether there is anything to judge: of nothing no verdict is asked, and none invented."""
        return not self.exhausted and bool(self.reply.strip())

    @classmethod
    def of(
        cls,
        probe: str,
        sample: int,
        *,
        keep_text: bool,
        reply: str,
        token_ids: TokenIds,
        reasoning: str,
        n_reasoning_tokens: int,
        stop: StopReason,
        attempts: int,
        exhausted: bool,
        truncated_reasoning: bool,
        mentions: int,
    ) -> Reply:
        """The record of a reply; texts that are not to be kept go no further than here."""
        return cls(
            probe=probe,
            sample=sample,
            reply=reply if keep_text else excerpt(reply),
            reply_digest=reply_digest(reply, token_ids),
            reasoning=reasoning if keep_text else excerpt(reasoning),
            reasoning_digest=reasoning_digest(reasoning),
            n_reasoning_tokens=n_reasoning_tokens,
            n_reply_tokens=len(token_ids),
            stop=stop,
            attempts=attempts,
            exhausted=exhausted,
            truncated_reasoning=truncated_reasoning,
            mentions=mentions,
            token_ids=token_ids if keep_text else (),
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "probe": self.probe,
            "sample": self.sample,
            "reply": self.reply,
            "reply_digest": self.reply_digest,
            "reasoning": self.reasoning,
            "reasoning_digest": self.reasoning_digest,
            "n_reasoning_tokens": self.n_reasoning_tokens,
            "n_reply_tokens": self.n_reply_tokens,
            "stop": self.stop,
            "attempts": self.attempts,
            "exhausted": self.exhausted,
            "truncated_reasoning": self.truncated_reasoning,
            "mentions": self.mentions,
            "token_ids": list(self.token_ids),
        }

    @classmethod
    def from_dict(cls, value: object, path: str) -> Reply:
        with Fields(value, path) as fields:
            reply = cls(
                probe=fields.text("probe"),
                sample=fields.integer("sample", low=0),
                reply=fields.text("reply"),
                reply_digest=fields.text("reply_digest"),
                reasoning=fields.text("reasoning"),
                reasoning_digest=fields.text("reasoning_digest"),
                n_reasoning_tokens=fields.integer("n_reasoning_tokens", low=0),
                n_reply_tokens=fields.integer("n_reply_tokens", low=0),
                stop=fields.text("stop", one_of=("stop", "length")),
                attempts=fields.integer("attempts", low=1),
                exhausted=fields.flag("exhausted"),
                truncated_reasoning=fields.flag("truncated_reasoning"),
                mentions=fields.integer("mentions", low=0),
                token_ids=fields.integers("token_ids", low=0),
            )
        for key in ("reply_digest", "reasoning_digest"):
            if not is_digest(getattr(reply, key)):
                raise MalformedInputError(
                    f"{path}.{key}", expected="a digest", found=getattr(reply, key)
                )
        return reply


def reply_digest(text: str, token_ids: Sequence[int]) -> str:
    return digest_value([text, list(token_ids)])


def reasoning_digest(text: str) -> str:
    return digest_value(text)


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """One judge's verdicts under one rubric, in a fixed order.

    ``judge`` is the judge's identity as it gave it, ``rubric`` the digest of what it was asked.
    """

    judge: Mapping[str, Any]
    rubric: str
    verdicts: tuple[Verdict, ...]

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that can change a verdict."""
        return {"judge": dict(self.judge), "rubric": self.rubric}

    def labels(self, draw: int = 0) -> dict[str, str]:
        """The label of every key that has one in this draw."""
        return {v.key: v.label for v in self.verdicts if v.draw == draw and v.label is not None}

    def to_dict(self) -> dict[str, Any]:
        return {
            "judge": dict(self.judge),
            "rubric": self.rubric,
            "verdicts": [verdict.to_dict() for verdict in self.verdicts],
        }

    @classmethod
    def from_fields(cls, fields: Fields) -> Judged:
        return cls(
            judge=fields.mapping("judge"),
            rubric=fields.text("rubric"),
            verdicts=fields.each("verdicts", Verdict.from_dict),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class AskRecord:
    """What one arm said to one battery, and every verdict on it.

    ``instance`` names what served it. ``grades`` and ``checks`` are None where the plan has none.
    """

    arm: str
    battery: str
    instance: str
    replies: tuple[Reply, ...]
    classes: Judged
    grades: Judged | None
    checks: Judged | None

    @property
    def judge_settings(self) -> dict[str, Any]:
        """By the part that a judge plays; arms that are compared must agree in all of it."""
        parts = {"classifier": self.classes, "grader": self.grades, "checker": self.checks}
        return {name: None if one is None else one.settings for name, one in parts.items()}

    def to_files(self) -> dict[str, bytes]:
        document = {
            "schema": ANSWERS_SCHEMA,
            "arm": self.arm,
            "battery": self.battery,
            "instance": self.instance,
            "answers": [reply.to_dict() for reply in self.replies],
        }
        files = {ANSWERS_FILE: encode(document), VERDICTS_FILE: _verdicts_bytes(self.classes)}
        for name, part in ((GRADES_FILE, self.grades), (CHECKS_FILE, self.checks)):
            if part is not None:
                files[name] = _verdicts_bytes(part)
        return files

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], thing: str) -> AskRecord:
        """Raises EvidenceError or MalformedInputError naming the file and field."""
        needed = {ANSWERS_FILE, VERDICTS_FILE}
        if not needed <= set(files) <= needed | {GRADES_FILE, CHECKS_FILE}:
            raise EvidenceError(
                thing,
                expected=", ".join(sorted(needed)),
                found=", ".join(sorted(files)) or "nothing",
            )
        with Fields(decode(files[ANSWERS_FILE], thing=thing), f"{thing}: answers") as fields:
            fields.text("schema", one_of=(ANSWERS_SCHEMA,))
            arm, battery = fields.text("arm"), fields.text("battery")
            instance = fields.text("instance")
            replies = fields.each("answers", Reply.from_dict)

        def optional(name: str) -> Judged | None:
            return _read_verdicts(files[name], f"{thing}: {name}") if name in files else None

        return cls(
            arm=arm,
            battery=battery,
            instance=instance,
            replies=replies,
            classes=_read_verdicts(files[VERDICTS_FILE], f"{thing}: {VERDICTS_FILE}"),
            grades=optional(GRADES_FILE),
            checks=optional(CHECKS_FILE),
        )


def _verdicts_bytes(judged: Judged) -> bytes:
    return encode({"schema": VERDICTS_SCHEMA, **judged.to_dict()})


def _read_verdicts(data: bytes, thing: str) -> Judged:
    with Fields(decode(data, thing=thing), thing) as fields:
        fields.text("schema", one_of=(VERDICTS_SCHEMA,))
        return Judged.from_fields(fields)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ratings:
    """How much each probe of a battery looks like a test, to one judge; keys are probe ids."""

    battery: str
    judged: Judged

    def to_files(self) -> dict[str, bytes]:
        document = {
            "schema": AWARENESS_SCHEMA,
            "battery": self.battery,
            **self.judged.to_dict(),
        }
        return {AWARENESS_FILE: encode(document)}

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], thing: str) -> Ratings:
        """Raises EvidenceError or MalformedInputError naming the file and field."""
        if set(files) != {AWARENESS_FILE}:
            raise EvidenceError(
                thing, expected=AWARENESS_FILE, found=", ".join(sorted(files)) or "nothing"
            )
        with Fields(decode(files[AWARENESS_FILE], thing=thing), thing) as fields:
            fields.text("schema", one_of=(AWARENESS_SCHEMA,))
            return cls(battery=fields.text("battery"), judged=Judged.from_fields(fields))
