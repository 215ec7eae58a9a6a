"""What a judge is asked and what it answers: rubrics, requests, verdicts, and the judge's own name.

No vendor type appears here. A verdict has a status, and only ``scored`` is a measurement: a judge
that refused, rambled, was cut off, was rate-limited or was down has said nothing about the answer,
and each of these is kept apart from the others and from zero.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast, get_args

from eps_locked.canonical import digest_value
from eps_locked.domain.fields import Fields
from eps_locked.errors import MalformedInputError

RUBRIC_SCHEMA = "eps-locked/rubric/1"
VerdictStatus = Literal[
    "scored", "unreadable", "judge_refused", "rate_limited", "outage", "truncated"
]
STATUSES: tuple[str, ...] = get_args(VerdictStatus)
# Statuses that say something about the line to the judge and nothing about the answer.
TRANSPORT_STATUSES = frozenset({"rate_limited", "outage"})
EXCERPT_LENGTH = 200
# What a rubric judges: an answer in view of its question, or a question by itself.
Reads = Literal["answer", "question"]
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_PLACES = ("{question}", "{answer}")
_SOMETHING = re.compile(r".*\S.*", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rubric:
    """A frozen question to a judge, and the closed set of what it may answer.

    One verdict is one label of ``labels`` and a number from 0 to 100 for each name of ``scores``.
    ``expressed``: labels that count as the behaviour. ``excluded``: labels that leave an answer out
    of every rate. ``instructions`` hold ``{question}`` and ``{answer}`` once each.

    The rest serves judges without a language model: ``prototypes`` (label to example answers),
    ``poles`` (score to examples of its low and high end) and ``phrases`` (label to phrases that
    decide for it by themselves).

    ``reads`` says which of the two texts is judged, for judges that look at one alone. A rubric
    that reads the question is asked with an empty answer. Absent from a file, it means the answer.
    """

    name: str
    instructions: str
    labels: tuple[str, ...]
    scores: tuple[str, ...]
    expressed: tuple[str, ...]
    excluded: tuple[str, ...]
    max_tokens: int
    prototypes: Mapping[str, tuple[str, ...]]
    poles: Mapping[str, Mapping[str, tuple[str, ...]]]
    phrases: Mapping[str, tuple[str, ...]]
    licence: str
    provenance: str
    reads: Reads = "answer"

    @property
    def digest(self) -> str:
        """Identity by content, whatever the file is called."""
        return digest_value(
            {
                # Only where it says something new: rubrics that read answers keep the digests
                # they had before there was a choice.
                **({"reads": self.reads} if self.reads != "answer" else {}),
                "name": self.name,
                "instructions": self.instructions,
                "labels": list(self.labels),
                "scores": list(self.scores),
                "expressed": list(self.expressed),
                "excluded": list(self.excluded),
                "max_tokens": self.max_tokens,
                "prototypes": {key: list(texts) for key, texts in self.prototypes.items()},
                "poles": {
                    score: {end: list(texts) for end, texts in ends.items()}
                    for score, ends in self.poles.items()
                },
                "phrases": {key: list(texts) for key, texts in self.phrases.items()},
            }
        )

    def ask(self, question: str, answer: str) -> str:
        """The instructions with question and answer in place; neither is interpreted."""
        head, tail = self.instructions.split("{question}")
        if "{answer}" in head:
            before, after = head.split("{answer}")
            return f"{before}{answer}{after}{question}{tail}"
        before, after = tail.split("{answer}")
        return f"{head}{question}{before}{answer}{after}"

    @classmethod
    def from_dict(cls, value: object, thing: str) -> Rubric:
        """Raises MalformedInputError naming the field."""
        with Fields(value, thing) as fields:
            fields.text("schema", one_of=(RUBRIC_SCHEMA,))
            fields.text("title")
            rubric = cls(
                name=fields.text("name", shape=_NAME),
                instructions=fields.text("instructions"),
                labels=fields.texts("labels", shape=_NAME),
                scores=fields.texts("scores", shape=_NAME),
                expressed=fields.texts("expressed"),
                excluded=fields.texts("excluded"),
                max_tokens=fields.integer("max_tokens", low=1),
                prototypes=_texts_by_name(fields, "prototypes"),
                poles=_poles(fields.sub("poles"), tuple(fields.mapping("poles"))),
                phrases=_texts_by_name(fields, "phrases"),
                licence=fields.text("licence", shape=_SOMETHING),
                provenance=fields.text("provenance", shape=_SOMETHING),
                reads=fields.optional("reads", _reads) or "answer",
            )
        rubric._check(thing)
        return rubric

    def _check(self, thing: str) -> None:
        for place in _PLACES:
            if self.instructions.count(place) != 1:
                raise MalformedInputError(
                    f"{thing}.instructions",
                    expected=f"{place} once",
                    found=f"{self.instructions.count(place)} times",
                )
        for key, names in (("labels", self.labels), ("scores", self.scores)):
            if len(set(names)) != len(names) or (key == "labels" and not names):
                raise MalformedInputError(
                    f"{thing}.{key}", expected="distinct names", found=list(names)
                )
        for name in self.scores:
            if name in ("label", "reason"):
                raise MalformedInputError(
                    f"{thing}.scores",
                    expected="names that no verdict has already (label, reason)",
                    found=name,
                )
        for key, used in (
            ("expressed", self.expressed),
            ("excluded", self.excluded),
            ("prototypes", tuple(self.prototypes)),
            ("phrases", tuple(self.phrases)),
        ):
            unknown = sorted(set(used) - set(self.labels))
            if unknown:
                raise MalformedInputError(
                    f"{thing}.{key}", expected=f"labels of {list(self.labels)}", found=unknown[0]
                )
        both = sorted(set(self.expressed) & set(self.excluded))
        if both:
            raise MalformedInputError(
                f"{thing}.excluded", expected="no label that counts", found=both[0]
            )
        for score, ends in self.poles.items():
            if score not in self.scores or set(ends) != {"low", "high"}:
                raise MalformedInputError(
                    f"{thing}.poles.{score}",
                    expected="a score of the rubric, with examples of low and high",
                    found=f"{score}: {', '.join(sorted(ends)) or 'nothing'}",
                )


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgeRequest:
    """One answer to judge. ``draw`` counts repeated verdicts on the same answer from 0."""

    key: str
    question: str
    answer: str
    rubric: Rubric
    draw: int = 0

    @property
    def judged(self) -> str:
        """The text that the rubric is about."""
        return self.question if self.rubric.reads == "question" else self.answer

    @property
    def identity(self) -> str:
        """Distinct for every (key, draw, content): what a batch's or a cache's key is made of."""
        return digest_value(
            [self.key, self.draw, self.rubric.digest, self.question, self.answer]
        ).removeprefix("blake3:")


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What came back for one request.

    ``label`` and ``scores`` are there exactly if ``status`` is ``scored``. ``model`` is what the
    judge says it is, ``note`` at most 200 characters on why there is no score. ``tries`` counts
    requests sent, a batch as one.
    """

    key: str
    draw: int
    status: VerdictStatus
    label: str | None
    scores: Mapping[str, float]
    model: str
    note: str
    tries: int

    @property
    def is_scored(self) -> bool:
        return self.status == "scored"

    def to_dict(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "draw": self.draw,
            "status": self.status,
            "label": self.label,
            "scores": dict(self.scores),
            "model": self.model,
            "note": self.note,
            "tries": self.tries,
        }

    @classmethod
    def from_dict(cls, value: object, path: str) -> Verdict:
        with Fields(value, path) as fields:
            scores = fields.mapping("scores")
            with fields.sub("scores") as numbers:
                read = {name: numbers.number(name, low=0, high=100) for name in scores}
            verdict = cls(
                key=fields.text("key"),
                draw=fields.integer("draw", low=0),
                status=cast(VerdictStatus, fields.text("status", one_of=STATUSES)),
                label=fields.text_or_none("label"),
                scores=read,
                model=fields.text("model"),
                note=fields.text("note"),
                tries=fields.integer("tries", low=0),
            )
        if verdict.is_scored != (verdict.label is not None):
            raise MalformedInputError(
                f"{path}.label",
                expected="a label exactly if scored",
                found=f"{verdict.status} with {verdict.label}",
            )
        if verdict.scores and not verdict.is_scored:
            raise MalformedInputError(
                f"{path}.scores", expected="none unless scored", found=dict(verdict.scores)
            )
        return verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgeIdentity:
    """Which judge spoke, as far as it can tell. All of it stands beside every set of verdicts."""

    kind: str
    model: str
    family: str
    version: str
    settings: Mapping[str, str]
    publishable: bool

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "model": self.model,
            "family": self.family,
            "version": self.version,
            "settings": dict(self.settings),
            "publishable": self.publishable,
        }


class Judge(Protocol):
    """Reads answers under a rubric. One verdict per request, in order; none lost, none invented."""

    @property
    def identity(self) -> JudgeIdentity: ...

    def judge(self, requests: Sequence[JudgeRequest]) -> tuple[Verdict, ...]:
        """Raises BackendError only for what no retry could mend (no key, a model that is not
        there); everything else is the status of a verdict."""
        ...


JudgeKind = Literal["prototype", "lexical", "anthropic", "gateway", "scripted"]
_WORDS = re.compile(r"\S+")


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgePlan:
    """One judge as a plan names it: everything that can be locked about it.

    ``api_key_env`` names the environment variable that holds the key; the key itself is never
    written anywhere. ``batch_from``: from so many requests in one call on, the Message Batches
    service is used; None never. ``max_transport_share``: with more rate-limited or outage verdicts
    than this share in one call, the step stops instead of recording them.
    """

    name: str
    kind: JudgeKind
    family: str
    model: str
    endpoint: str | None
    api_key_env: str | None
    api_version: str | None
    temperature: float | None
    effort: str | None
    max_concurrency: int
    max_tries: int
    timeout_seconds: float
    batch_from: int | None
    max_transport_share: float

    @classmethod
    def from_dict(cls, value: object, path: str) -> JudgePlan:
        with Fields(value, path) as fields:
            plan = cls(
                name=fields.text("name", shape=_NAME),
                kind=cast(JudgeKind, fields.text("kind", one_of=get_args(JudgeKind))),
                family=fields.text("family", shape=_WORDS),
                model=fields.text("model", shape=_SOMETHING),
                endpoint=fields.text_or_none("endpoint"),
                api_key_env=fields.text_or_none("api_key_env"),
                api_version=fields.text_or_none("api_version"),
                temperature=fields.optional("temperature", _number),
                effort=fields.text_or_none("effort"),
                max_concurrency=fields.integer("max_concurrency", low=1),
                max_tries=fields.integer("max_tries", low=1),
                timeout_seconds=fields.number("timeout_seconds", above=0),
                batch_from=fields.integer_or_none("batch_from"),
                max_transport_share=fields.number("max_transport_share", low=0, high=1),
            )
        plan._check(path)
        return plan

    def _check(self, path: str) -> None:
        if self.batch_from is not None and self.batch_from < 0:
            raise MalformedInputError(
                f"{path}.batch_from", expected="at least 0, or null", found=self.batch_from
            )
        needs = {
            "anthropic": ("api_key_env", "api_version"),
            "gateway": ("endpoint",),
        }.get(self.kind, ())
        for key in needs:
            if getattr(self, key) is None:
                raise MalformedInputError(
                    f"{path}.{key}",
                    expected=f"a value for a judge of kind {self.kind}",
                    found="null",
                )
        if self.kind == "anthropic" and self.temperature is not None:
            raise MalformedInputError(
                f"{path}.temperature",
                expected="none: this service takes no sampling temperature",
                found=self.temperature,
                next_step="leave it out; repeated draws measure the judge's noise",
            )


def family_overlap(generator: str, judges: Sequence[JudgePlan]) -> JudgePlan | None:
    """The first judge of the generator's own family, which may not judge it; names without case."""
    mine = generator.casefold().strip()
    return next((one for one in judges if one.family.casefold().strip() == mine), None)


def _reads(value: object, path: str) -> Reads:
    if value not in get_args(Reads):
        raise MalformedInputError(path, expected="answer or question", found=repr(value)[:60])
    return cast(Reads, value)


def _texts_by_name(fields: Fields, key: str) -> dict[str, tuple[str, ...]]:
    names = fields.mapping(key)
    with fields.sub(key) as inner:
        return {name: inner.texts(name, shape=_SOMETHING) for name in names}


def _poles(fields: Fields, names: tuple[str, ...]) -> dict[str, Mapping[str, tuple[str, ...]]]:
    with fields:
        return {name: _texts_by_name(fields, name) for name in names}


def _number(value: object, path: str) -> float:
    with Fields({"value": value}, path) as fields:
        return fields.number("value", low=0)
