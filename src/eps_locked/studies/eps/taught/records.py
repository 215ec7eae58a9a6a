"""The JSON that a taught row's steps write: sampled answers, verdicts apart from them, priors.

Texts and verdicts are separate files: a verdict can be read, counted and made again by another
judge without the text, and a text can be withheld without losing its verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eps_locked.canonical import decode, digest_value, encode, is_digest
from eps_locked.domain.fields import Fields
from eps_locked.domain.judging import EXCERPT_LENGTH, Verdict
from eps_locked.errors import EvidenceError, MalformedInputError
from eps_locked.studies.common.judging import VERDICTS_FILE
from eps_locked.studies.eps.readings import READINGS_FILE, Readings

__all__ = [
    "COMPLETIONS_FILE",
    "PRIOR_FILE",
    "AnswerKey",
    "JudgedAnswers",
    "PriorReading",
    "SampledAnswer",
]

COMPLETIONS_FILE = "completions.json"
PRIOR_FILE = "prior.json"
COMPLETIONS_SCHEMA = "eps-locked/eps-completions/1"
VERDICTS_SCHEMA = "eps-locked/eps-verdicts/1"
PRIOR_SCHEMA = "eps-locked/eps-prior/1"

# (item, sample, round)
AnswerKey = tuple[str, int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class SampledAnswer:
    """One answer. ``round`` counts how often this sample had been drawn again before.

    ``digest`` is of the token ids. Of an item whose text is not kept, ``token_ids`` are empty and
    ``text`` is at most 200 characters of it.
    """

    item: str
    sample: int
    round: int
    token_ids: tuple[int, ...]
    text: str
    stop_reason: str
    digest: str

    @property
    def key(self) -> AnswerKey:
        return (self.item, self.sample, self.round)

    @property
    def name(self) -> str:
        """The key as one word, as verdicts name it."""
        return f"{self.item}/{self.sample}/{self.round}"

    @classmethod
    def of(
        cls,
        key: AnswerKey,
        token_ids: tuple[int, ...],
        text: str,
        stop_reason: str,
        *,
        keep_text: bool,
    ) -> SampledAnswer:
        item, sample, round_ = key
        return cls(
            item=item,
            sample=sample,
            round=round_,
            token_ids=token_ids if keep_text else (),
            text=text if keep_text else text[:EXCERPT_LENGTH],
            stop_reason=stop_reason,
            digest=digest_value(list(token_ids)),
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "item": self.item,
            "sample": self.sample,
            "round": self.round,
            "token_ids": list(self.token_ids),
            "text": self.text,
            "stop_reason": self.stop_reason,
            "digest": self.digest,
        }

    @classmethod
    def from_dict(cls, value: object, path: str) -> SampledAnswer:
        with Fields(value, path) as fields:
            answer = cls(
                item=fields.text("item"),
                sample=fields.integer("sample", low=0),
                round=fields.integer("round", low=0),
                token_ids=fields.integers("token_ids", low=0),
                text=fields.text("text"),
                stop_reason=fields.text("stop_reason", one_of=("stop", "length")),
                digest=fields.text("digest"),
            )
        if not is_digest(answer.digest):
            raise MalformedInputError(f"{path}.digest", expected="a digest", found=answer.digest)
        return answer


@dataclass(frozen=True, kw_only=True, slots=True)
class PriorReading:
    """Log-probability (nats) of a written answer, its end included, under the base model."""

    item: str
    n_tokens: int
    log_prob: float

    def to_dict(self) -> dict[str, Any]:
        return {"item": self.item, "n_tokens": self.n_tokens, "log_prob": self.log_prob}

    @classmethod
    def from_dict(cls, value: object, path: str) -> PriorReading:
        with Fields(value, path) as fields:
            return cls(
                item=fields.text("item"),
                n_tokens=fields.integer("n_tokens", low=1),
                log_prob=fields.number("log_prob", high=1e-6),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedAnswers:
    """All answers of one context by one model, and every verdict on them, in a fixed order.

    ``judge`` is the judge's identity as it gave it, ``rubric`` the digest of what it was asked.
    ``slots`` are a fact row's readings (one an item), ``prior`` those of the base step.
    """

    behaviour: str
    context: str
    answers: tuple[SampledAnswer, ...]
    verdicts: tuple[Verdict, ...]
    judge: Mapping[str, Any]
    rubric: str
    slots: Readings | None
    prior: tuple[PriorReading, ...] | None

    def to_files(self) -> dict[str, bytes]:
        heading = {"behaviour": self.behaviour, "context": self.context}
        files = {
            COMPLETIONS_FILE: encode(
                {
                    "schema": COMPLETIONS_SCHEMA,
                    **heading,
                    "answers": [answer.to_dict() for answer in self.answers],
                }
            ),
            VERDICTS_FILE: encode(
                {
                    "schema": VERDICTS_SCHEMA,
                    **heading,
                    "judge": dict(self.judge),
                    "rubric": self.rubric,
                    "verdicts": [verdict.to_dict() for verdict in self.verdicts],
                }
            ),
        }
        if self.slots is not None:
            files |= self.slots.to_files()
        if self.prior is not None:
            rows = [one.to_dict() for one in self.prior]
            files[PRIOR_FILE] = encode({"schema": PRIOR_SCHEMA, **heading, "rows": rows})
        return files

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], thing: str) -> JudgedAnswers:
        """Raises EvidenceError or MalformedInputError naming the file and field."""
        needed = {COMPLETIONS_FILE, VERDICTS_FILE}
        allowed = needed | {READINGS_FILE, PRIOR_FILE}
        if not needed <= set(files) <= allowed:
            raise EvidenceError(
                thing,
                expected=", ".join(sorted(needed)),
                found=", ".join(sorted(files)) or "nothing",
            )
        behaviour, context, answers = _completions(files[COMPLETIONS_FILE], thing)
        with Fields(decode(files[VERDICTS_FILE], thing=thing), f"{thing}: verdicts") as fields:
            fields.text("schema", one_of=(VERDICTS_SCHEMA,))
            _same_heading(fields, behaviour, context)
            judge, rubric = fields.mapping("judge"), fields.text("rubric")
            verdicts = fields.each("verdicts", Verdict.from_dict)
        slots = None
        if READINGS_FILE in files:
            slots = Readings.from_files({READINGS_FILE: files[READINGS_FILE]}, thing)
        prior = None
        if PRIOR_FILE in files:
            with Fields(decode(files[PRIOR_FILE], thing=thing), f"{thing}: prior") as fields:
                fields.text("schema", one_of=(PRIOR_SCHEMA,))
                _same_heading(fields, behaviour, context)
                prior = fields.each("rows", PriorReading.from_dict)
        return cls(
            behaviour=behaviour,
            context=context,
            answers=answers,
            verdicts=verdicts,
            judge=judge,
            rubric=rubric,
            slots=slots,
            prior=prior,
        )


def answers_to_files(
    behaviour: str, context: str, answers: tuple[SampledAnswer, ...]
) -> dict[str, bytes]:
    """Answers alone, unjudged: what the base model says to train questions."""
    document = {
        "schema": COMPLETIONS_SCHEMA,
        "behaviour": behaviour,
        "context": context,
        "answers": [answer.to_dict() for answer in answers],
    }
    return {COMPLETIONS_FILE: encode(document)}


def answers_from_files(
    files: Mapping[str, bytes], thing: str
) -> tuple[str, str, tuple[SampledAnswer, ...]]:
    """(behaviour, context, answers) of such an artifact."""
    if set(files) != {COMPLETIONS_FILE}:
        raise EvidenceError(
            thing, expected=COMPLETIONS_FILE, found=", ".join(sorted(files)) or "nothing"
        )
    return _completions(files[COMPLETIONS_FILE], thing)


def _completions(data: bytes, thing: str) -> tuple[str, str, tuple[SampledAnswer, ...]]:
    with Fields(decode(data, thing=thing), f"{thing}: completions") as fields:
        fields.text("schema", one_of=(COMPLETIONS_SCHEMA,))
        behaviour, context = fields.text("behaviour"), fields.text("context")
        return behaviour, context, fields.each("answers", SampledAnswer.from_dict)


def _same_heading(fields: Fields, behaviour: str, context: str) -> None:
    fields.text("behaviour", one_of=(behaviour,))
    fields.text("context", one_of=(context,))
