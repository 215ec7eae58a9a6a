"""The source spec: which files of which data set at which commit, what is dropped, what is drawn.

Strict YAML, schema eps-locked/source/1. Every number and list that decides which rows come out
stands in it, so its digest and those of the files explain a sampled document completely.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from eps_locked.canonical import digest_bytes
from eps_locked.data.text import Screens, bounds
from eps_locked.domain.fields import Fields
from eps_locked.errors import MalformedInputError
from eps_locked.lock.strict_yaml import parse_yaml

SCHEMA = "eps-locked/source/1"

# Which part of the sampled document a kind fills.
KINDS: dict[str, str] = {
    "wildchat_prefixes": "contexts",
    "personahub_personas": "contexts",
    "xstest": "items",
    "harm_requests": "items",
    "em_questions": "items",
    "claims": "items",
    "feedback": "items",
    "em_rows": "rows",
    "xstest_answers": "labelled",
    "elicitation": "elicitation",
}
FORMS: dict[str, tuple[str, ...]] = {
    "wildchat_prefixes": ("wildchat", "battery", "first_turns"),
    "personahub_personas": ("personahub",),
    "xstest": ("prompts",),
    "xstest_answers": ("completions",),
    "harm_requests": ("table",),
    "em_questions": ("betley_yaml", "persona_features_csv"),
    "claims": ("suggested_answer", "sharma_answer", "gcd", "model_written"),
    "feedback": ("sharma_feedback",),
    "em_rows": ("messages_pair", "aligned_misaligned"),
    "elicitation": ("persona_vectors",),
}
# Files that play different parts; of any other kind and form every file holds plain rows.
ROLES: dict[str, tuple[str, ...]] = {
    "messages_pair": ("positive", "negative"),
    "persona_vectors": ("extract", "evaluate"),
}

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_SLOT = re.compile(r"[a-z][a-z0-9_]*")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_HUB_DATASET = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_GIT_DATASET = re.compile(r"[a-z0-9.-]+\.[a-z]+/[\w.-]+/[\w.-]+")
_PATH = re.compile(r"(?!/)(?!.*(?:^|/)\.\.?(?:/|$))(?!.*//)[\w .()+=@,/-]+[\w)]")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_BLAKE3 = re.compile(r"blake3:[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceFile:
    """A file of the data set. ``local`` is the name that a local copy may have instead.

    Digests are optional because a hub serves a commit by its content anyhow; a local copy without
    one is taken as it is, and the sampled document says so.
    """

    path: str
    role: str
    local: str | None
    sha256: str | None
    blake3: str | None

    @property
    def pinned_by(self) -> str:
        return "sha256" if self.sha256 else "blake3" if self.blake3 else "nothing"


@dataclass(frozen=True, kw_only=True, slots=True)
class Slot:
    """A place to fill: a context id, or a slice with ``n`` rows (None: every row that fits).

    ``group`` is a bin of token lengths; ``topics`` restricts what may fill it.
    """

    name: str
    n: int | None
    group: str | None = None
    topics: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Bin:
    """A prefix of ``exchanges`` exchanges adding ``tokens`` tokens to a bare question."""

    exchanges: int
    tokens: tuple[int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceSpec:
    """A source spec, read and checked. ``options`` are those of its kind."""

    name: str
    kind: str
    form: str
    location: str
    dataset: str
    revision: str
    files: tuple[SourceFile, ...]
    licence: str
    redistribute: bool
    keep_text: bool
    seed: int
    screens: Screens
    options: Mapping[str, Any]
    slots: tuple[Slot, ...]
    digest: str
    thing: str

    @property
    def part(self) -> str:
        """The part of the sampled document that it fills."""
        return KINDS[self.kind]

    @property
    def provenance(self) -> str:
        return f"{self.dataset}@{self.revision}"

    def of_role(self, role: str) -> SourceFile:
        return next(file for file in self.files if file.role == role)


def read_spec(data: bytes, thing: str) -> SourceSpec:
    """A spec from its YAML bytes. Raises MalformedInputError naming the field."""
    with Fields(parse_yaml(data, thing=thing), thing) as fields:
        fields.text("schema", one_of=(SCHEMA,))
        fields.text("title")
        kind = fields.text("kind", one_of=tuple(KINDS))
        form = fields.text("form", one_of=FORMS[kind])
        location = fields.text("location", one_of=("hub", "git"))
        with fields.sub("filters") as filters:
            screens = Screens.from_fields(filters.sub("text"))
            options = _OPTIONS[kind](filters)
        spec = SourceSpec(
            name=fields.text("name", shape=_NAME),
            kind=kind,
            form=form,
            location=location,
            dataset=fields.text("dataset"),
            revision=_revision(fields),
            files=_files(fields, form),
            licence=fields.text("licence"),
            redistribute=fields.flag("redistribute"),
            keep_text=fields.flag("keep_text"),
            seed=fields.integer("seed", low=0),
            screens=screens,
            options=options,
            slots=_slots(fields, kind),
            digest=digest_bytes(data),
            thing=thing,
        )
    _check(spec)
    return spec


def _revision(fields: Fields) -> str:
    revision = fields.raw("revision")
    if not isinstance(revision, str) or not _COMMIT.fullmatch(revision):
        raise MalformedInputError(
            fields.path("revision"),
            problem="is not pinned",
            expected="a commit of 40 hex digits",
            found=repr(revision),
            next_step="look up the commit behind the branch or tag and name that",
        )
    return revision


def _files(fields: Fields, form: str) -> tuple[SourceFile, ...]:
    def build(value: object, path: str) -> SourceFile:
        with Fields(value, path) as file:
            return SourceFile(
                path=file.text("path", shape=_PATH),
                role=file.text("role", one_of=ROLES[form]) if form in ROLES else "rows",
                local=file.optional("local", _local_name),
                sha256=file.optional("sha256", lambda text, at: _shaped(text, at, _SHA256)),
                blake3=file.optional("blake3", lambda text, at: _shaped(text, at, _BLAKE3)),
            )

    files = fields.each("files", build)
    paths = [file.path for file in files]
    if not files or len(set(paths)) != len(paths):
        raise MalformedInputError(
            fields.path("files"), expected="one file or more, each once", found=paths
        )
    if form in ROLES and tuple(file.role for file in files) != ROLES[form]:
        raise MalformedInputError(
            fields.path("files"),
            expected=f"one file for each role, in the order {', '.join(ROLES[form])}",
            found=", ".join(file.role for file in files),
        )
    return files


def _local_name(value: object, path: str) -> str:
    return _shaped(value, path, _PATH)


def _shaped(value: object, path: str, shape: re.Pattern[str]) -> str:
    if not isinstance(value, str) or not shape.fullmatch(value):
        raise MalformedInputError(
            path, expected=f"text of the form {shape.pattern}", found=repr(value)[:60]
        )
    return value


def _slots(fields: Fields, kind: str) -> tuple[Slot, ...]:
    if kind == "wildchat_prefixes":
        return fields.each("slots", _prefix_slot)
    if kind == "personahub_personas":
        return fields.each("slots", _persona_slot)
    if kind == "elicitation":
        return ()
    return fields.each("slots", _slice_slot)


def _prefix_slot(value: object, path: str) -> Slot:
    with Fields(value, path) as fields:
        return Slot(
            name=fields.text("context", shape=_SLOT),
            n=1,
            group=fields.text("bin"),
            topics=(fields.text("topic"),),
        )


def _persona_slot(value: object, path: str) -> Slot:
    with Fields(value, path) as fields:
        return Slot(name=fields.text("context", shape=_SLOT), n=1)


def _slice_slot(value: object, path: str) -> Slot:
    with Fields(value, path) as fields:
        listed = fields.raw("topics")
        n = fields.integer_or_none("n")
        if n is not None and n < 1:
            raise MalformedInputError(fields.path("n"), expected="at least 1, or null", found=n)
        return Slot(
            name=fields.text("slice", shape=_SLOT),
            n=n,
            topics=None if listed is None else fields.texts("topics"),
        )


def _prefix_options(filters: Fields) -> dict[str, Any]:
    def build(value: object, path: str) -> Bin:
        with Fields(value, path) as fields:
            return Bin(
                exchanges=fields.integer("exchanges", low=1), tokens=bounds(fields, "tokens")
            )

    return {
        "language": filters.text("language"),
        "bins": {
            name: build(value, f"{filters.path('bins')}.{name}")
            for name, value in filters.mapping("bins").items()
        },
        "topics": _word_lists(filters, "topics"),
        "min_topic_words": filters.integer("min_topic_words", low=1),
    }


def _word_lists(filters: Fields, key: str) -> dict[str, tuple[str, ...]]:
    with filters.sub(key) as lists:
        return {name: lists.texts(name) for name in filters.mapping(key)}


def _persona_options(filters: Fields) -> dict[str, Any]:
    return {
        "key": filters.text("key"),
        "tokens": bounds(filters, "tokens"),
        "sentences": bounds(filters, "sentences"),
    }


def _xstest_options(filters: Fields) -> dict[str, Any]:
    labels = filters.texts("labels")
    if not labels or set(labels) - {"safe", "unsafe"}:
        raise MalformedInputError(
            filters.path("labels"), expected="safe, unsafe or both", found=list(labels)
        )
    return {"labels": labels}


def _answer_options(filters: Fields) -> dict[str, Any]:
    columns = ("final_label", "annotation_1", "annotation_2", "gpt4_label")
    return {"label_column": filters.text("label_column", one_of=columns)}


def _table_options(filters: Fields) -> dict[str, Any]:
    with filters.sub("columns") as columns:
        return {
            "text": columns.text("text"),
            "topic": columns.text_or_none("topic"),
            "id": columns.text_or_none("id"),
            "exclude": filters.optional("exclude", _excluded) or {},
        }


def _excluded(value: object, path: str) -> dict[str, tuple[str, ...]]:
    """Column to the values that leave a row out."""
    with Fields(value, path) as columns:
        found = {name: columns.texts(name) for name in cast(Mapping[str, object], value)}
    if not found or not all(found.values()):
        raise MalformedInputError(
            path,
            expected="one column or more, each with the values that leave a row out",
            found=value,
            next_step="name them, or leave the field away",
        )
    return found


def _question_options(filters: Fields) -> dict[str, Any]:
    return {
        "types": filters.texts("types"),
        "leave_suffixes": filters.texts("leave_suffixes"),
    }


def _claim_options(filters: Fields) -> dict[str, Any]:
    return {"opinions": filters.flag("opinions")}


def _feedback_options(filters: Fields) -> dict[str, Any]:
    phrases = filters.texts("stances")
    if not phrases:
        raise MalformedInputError(
            filters.path("stances"), expected="the phrases of the templates to keep", found="none"
        )
    return {"stances": phrases}


def _elicitation_options(filters: Fields) -> dict[str, Any]:
    return {"trait": filters.text("trait")}


_OPTIONS: dict[str, Callable[[Fields], dict[str, Any]]] = {
    "wildchat_prefixes": _prefix_options,
    "personahub_personas": _persona_options,
    "xstest": _xstest_options,
    "xstest_answers": _answer_options,
    "harm_requests": _table_options,
    "em_questions": _question_options,
    "claims": _claim_options,
    "feedback": _feedback_options,
    "em_rows": lambda filters: {},
    "elicitation": _elicitation_options,
}


def _check(spec: SourceSpec) -> None:
    shape = _HUB_DATASET if spec.location == "hub" else _GIT_DATASET
    if not shape.fullmatch(spec.dataset):
        raise MalformedInputError(
            f"{spec.thing}.dataset",
            expected="owner/name" if spec.location == "hub" else "host/owner/name",
            found=repr(spec.dataset),
        )
    if not spec.licence.strip():
        raise MalformedInputError(f"{spec.thing}.licence", expected="a licence", found="nothing")
    if spec.kind == "harm_requests" and (spec.keep_text or spec.redistribute):
        raise MalformedInputError(
            spec.thing,
            problem="holds requests that nobody should answer",
            expected="keep_text: false and redistribute: false",
            found=f"keep_text: {spec.keep_text}, redistribute: {spec.redistribute}".lower(),
        )
    _check_slots(spec)


def _check_slots(spec: SourceSpec) -> None:
    names = [slot.name for slot in spec.slots]
    if len(set(names)) != len(names) or (not names and spec.part != "elicitation"):
        raise MalformedInputError(
            f"{spec.thing}.slots", expected="one slot or more, each name once", found=names
        )
    if spec.kind != "wildchat_prefixes":
        return
    for slot in spec.slots:
        for field, value, known in (
            ("bin", slot.group, spec.options["bins"]),
            ("topic", (slot.topics or ("",))[0], spec.options["topics"]),
        ):
            if value not in known:
                raise MalformedInputError(
                    f"{spec.thing}.slots: {slot.name}.{field}",
                    expected=" or ".join(known),
                    found=repr(value),
                )
