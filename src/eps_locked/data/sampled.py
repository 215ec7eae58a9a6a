"""The sampled document: what a source gave, in the form that a manifest freezes.

Whoever freezes, publishes or audits reads it here. It stands alone: the files it was drawn from
are named by digest and not needed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from eps_locked.canonical import decode, digest_bytes, is_digest
from eps_locked.data.reasons import REASONS
from eps_locked.data.spec import KINDS
from eps_locked.domain.fields import Fields
from eps_locked.errors import MalformedInputError

SCHEMA = "eps-locked/sampled/1"


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """Every row read was kept, or not needed, or dropped under one reason."""

    read: int
    kept: int
    unused: int
    dropped: Mapping[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampled:
    """A sampled document, checked. ``entries`` are those of its one part."""

    name: str
    kind: str
    spec: str
    dataset: str
    revision: str
    licence: str
    redistribute: bool
    seed: int
    files: Mapping[str, Mapping[str, Any]]
    forbidden: tuple[str, ...]
    template: str | None
    topic_screen: str | None
    counts: Counts
    part: str
    entries: tuple[Mapping[str, Any], ...]
    digest: str

    @property
    def provenance(self) -> str:
        return f"{self.dataset}@{self.revision}"


def read_sampled(data: bytes, thing: str) -> Sampled:
    """A sampled document from its canonical bytes. Raises MalformedInputError naming the field."""
    with Fields(decode(data, thing=thing), thing) as fields:
        fields.text("schema", one_of=(SCHEMA,))
        kind = fields.text("kind", one_of=tuple(KINDS))
        part = KINDS[kind]
        sampled = Sampled(
            name=fields.text("name"),
            kind=kind,
            spec=_digest(fields, "spec"),
            dataset=fields.text("dataset"),
            revision=fields.text("revision"),
            licence=fields.text("licence"),
            redistribute=fields.flag("redistribute"),
            seed=fields.integer("seed", low=0),
            files=_files(fields),
            forbidden=fields.texts("forbidden"),
            template=fields.text_or_none("template"),
            topic_screen=fields.text_or_none("topic_screen"),
            counts=_counts(fields.sub("counts"), fields.path("counts")),
            part=part,
            entries=_entries(fields, part),
            digest=digest_bytes(data),
        )
    _require_distinct(sampled, thing)
    return sampled


def require_from(sampled: Sampled, spec_bytes: bytes, thing: str) -> None:
    """Require that a document was sampled by this very spec. Raises MalformedInputError."""
    digest = digest_bytes(spec_bytes)
    if sampled.spec != digest:
        raise MalformedInputError(
            f"{thing}: sampled {sampled.name}",
            problem="was sampled by another spec",
            expected=digest,
            found=sampled.spec,
            next_step="sample it again",
        )


def licence_of(sampled: Sampled) -> str:
    """The licence of everything in the document."""
    return sampled.licence


def may_ship(sampled: Sampled) -> bool:
    """Whether the licence, as the spec's author read it, lets others have the text."""
    return sampled.redistribute


def as_contexts(sampled: Sampled) -> dict[str, Any]:
    """The contexts as the value of a file of schema eps-locked/contexts/1."""
    _require_part(sampled, "contexts")
    keys = ("id", "family", "messages")
    return _file("contexts", sampled, keys)


def as_items(sampled: Sampled) -> dict[str, Any]:
    """The items as the value of a file of schema eps-locked/items/2."""
    _require_part(sampled, "items")
    return _file("items", sampled, ("text", "topic", "slice", "keep_text"), version=2)


def as_written_rows(sampled: Sampled) -> dict[str, Any]:
    """The training rows as the value of a file of schema eps-locked/written-rows/1."""
    _require_part(sampled, "rows")
    return _file("rows", sampled, ("text", "topic", "positive", "negative"), schema="written-rows")


def as_labelled(sampled: Sampled, rubric: str) -> dict[str, Any]:
    """The labelled answers as the value of a file of schema eps-locked/labelled/1."""
    _require_part(sampled, "labelled")
    value = _file("labelled", sampled, ("question", "answer", "label"))
    rows = value.pop("labelled")
    return {**value, "rows": rows, "rubric": rubric}


def as_elicitation(sampled: Sampled) -> dict[str, Any]:
    """The ``elicitation`` part of a behaviour file (schema eps-locked/behaviour/1)."""
    _require_part(sampled, "elicitation")
    return {key: value for key, value in sampled.entries[0].items() if key != "eval_prompt"}


def as_dataset(sampled: Sampled) -> Any:
    """The entries as a ``datasets.Dataset``, from memory: no cache, no guessed types.

    Needs the ``data`` extra. Nested parts become JSON text, so that every row has one shape.
    """
    import json

    from datasets import Dataset

    def flat(entry: Mapping[str, Any]) -> dict[str, Any]:
        return {
            key: json.dumps(value, ensure_ascii=False, sort_keys=True)
            if isinstance(value, Mapping)
            else value
            for key, value in entry.items()
        }

    return Dataset.from_list([flat(entry) for entry in sampled.entries])


def _file(
    part: str,
    sampled: Sampled,
    keys: Iterable[str],
    *,
    schema: str | None = None,
    version: int = 1,
) -> dict[str, Any]:
    return {
        "schema": f"eps-locked/{schema or part}/{version}",
        "title": f"{sampled.name}: drawn from {sampled.dataset}",
        "provenance": f"{sampled.provenance}, sampled {sampled.digest}",
        "licence": sampled.licence,
        part: [{key: entry[key] for key in keys} for entry in sampled.entries],
    }


def _require_part(sampled: Sampled, part: str) -> None:
    if sampled.part != part:
        raise MalformedInputError(
            f"sampled {sampled.name}", expected=part, found=f"{sampled.part} ({sampled.kind})"
        )


def _digest(fields: Fields, key: str) -> str:
    value = fields.text(key)
    if not is_digest(value):
        raise MalformedInputError(fields.path(key), expected="a digest", found=repr(value)[:60])
    return value


def _files(fields: Fields) -> dict[str, dict[str, Any]]:
    found = {}
    for name, value in fields.mapping("files").items():
        with Fields(value, f"{fields.path('files')}.{name}") as record:
            found[name] = {
                "digest": _digest(record, "digest"),
                "size": record.integer("size", low=0),
                "pinned_by": record.text("pinned_by", one_of=("sha256", "blake3", "nothing")),
            }
    return found


def _counts(fields: Fields, path: str) -> Counts:
    with fields:
        dropped = fields.mapping("dropped")
        with fields.sub("dropped") as reasons:
            counts = Counts(
                read=fields.integer("read", low=0),
                kept=fields.integer("kept", low=0),
                unused=fields.integer("unused", low=0),
                dropped={reason: reasons.integer(reason, low=1) for reason in dropped},
            )
    unknown = sorted(set(dropped) - set(REASONS))
    if unknown:
        raise MalformedInputError(
            f"{path}.dropped", expected="known reasons", found=", ".join(unknown)
        )
    total = counts.kept + counts.unused + sum(counts.dropped.values())
    if total != counts.read:
        raise MalformedInputError(
            path, problem="do not add up", expected=f"{counts.read} rows", found=total
        )
    return counts


def _entries(fields: Fields, part: str) -> tuple[Mapping[str, Any], ...]:
    if part == "elicitation":
        return (_elicitation(fields.raw("elicitation"), fields.path("elicitation")),)
    return fields.each(part, _ENTRIES[part])


def _origin(fields: Fields) -> dict[str, Any]:
    return {"row": _digest(fields, "row"), "upstream_id": fields.text_or_none("upstream_id")}


def _context(value: object, path: str) -> dict[str, Any]:
    with Fields(value, path) as fields:
        described = fields.optional("description", _text)
        entry = {
            "id": fields.text("id"),
            "family": fields.text("family", one_of=("persona", "prefix")),
            "behaviour": fields.text_or_none("behaviour"),
            "messages": list(fields.each("messages", _message)),
            "licence": fields.text("licence"),
            "provenance": fields.text("provenance"),
            "bin": fields.text_or_none("bin"),
            "topic": fields.text_or_none("topic"),
            "n_tokens": fields.integer("n_tokens", low=1),
            "tidied": fields.flag("tidied"),
            **_origin(fields),
        }
    return entry if described is None else {**entry, "description": described}


def _message(value: object, path: str) -> dict[str, str]:
    with Fields(value, path) as fields:
        role = fields.text("role", one_of=("system", "user", "assistant"))
        return {"role": role, "content": fields.text("content")}


def _item(value: object, path: str) -> dict[str, Any]:
    with Fields(value, path) as fields:
        return {
            "text": fields.text("text"),
            "topic": fields.text("topic"),
            "slice": fields.text("slice"),
            "keep_text": fields.flag("keep_text"),
            "about": fields.mapping("about"),
            **_origin(fields),
        }


def _row(value: object, path: str) -> dict[str, Any]:
    with Fields(value, path) as fields:
        return {
            "text": fields.text("text"),
            "topic": fields.text("topic"),
            "positive": fields.text("positive"),
            "negative": fields.text("negative"),
            "slice": fields.text("slice"),
            **_origin(fields),
        }


def _labelled(value: object, path: str) -> dict[str, Any]:
    with Fields(value, path) as fields:
        return {
            "question": fields.text("question"),
            "answer": fields.text("answer"),
            "label": fields.text("label"),
            "slice": fields.text("slice"),
            "about": fields.mapping("about"),
            **_origin(fields),
        }


def _elicitation(value: object, path: str) -> dict[str, Any]:
    def pair(item: object, at: str) -> dict[str, str]:
        with Fields(item, at) as fields:
            return {"positive": fields.text("positive"), "negative": fields.text("negative")}

    with Fields(value, path) as fields:
        return {
            "trait": fields.text("trait"),
            "instruction_pairs": list(fields.each("instruction_pairs", pair)),
            "questions_extract": list(fields.texts("questions_extract")),
            "questions_evaluate": list(fields.texts("questions_evaluate")),
            "eval_prompt": fields.text("eval_prompt"),
        }


_ENTRIES: dict[str, Callable[[object, str], dict[str, Any]]] = {
    "contexts": _context,
    "items": _item,
    "rows": _row,
    "labelled": _labelled,
}


def _text(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise MalformedInputError(path, expected="a string", found=repr(value)[:60])
    return value


def _require_distinct(sampled: Sampled, thing: str) -> None:
    rows = [entry["row"] for entry in sampled.entries if "row" in entry]
    if len(set(rows)) != len(rows):
        raise MalformedInputError(
            thing, problem="holds a row twice", expected=f"{len(rows)} rows", found=len(set(rows))
        )
    if sampled.part != "elicitation" and len(rows) != sampled.counts.kept:
        raise MalformedInputError(
            f"{thing}.counts.kept", expected=len(rows), found=sampled.counts.kept
        )
