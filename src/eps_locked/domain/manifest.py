"""A manifest: the frozen bytes of an intention. Immutable; everything else points at its digest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from eps_locked.domain.clock import format_time, parse_time
from eps_locked.domain.fields import Fields
from eps_locked.domain.ledger import FileRecord, digest_field

MANIFEST_SCHEMA = "eps-locked/manifest/1"


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """What ``manifests/NAME/manifest.json`` says.

    ``files``: every frozen copy by its path below the manifest folder. ``sources``: the files they
    were copied from, by their path below ``plans/``; a run requires those unchanged as well.
    ``model_files``: the base model's files by name. ``code`` and ``environment`` are digests of
    the two frozen lists of the same name. ``summary`` holds counts for people and decides nothing.
    """

    name: str
    title: str
    study: str
    author: str
    frozen_at: datetime
    plan: str
    phases: tuple[str, ...]
    files: Mapping[str, FileRecord]
    sources: Mapping[str, FileRecord]
    model_files: Mapping[str, FileRecord]
    code: str
    environment: str
    self_authorization: bool
    auto_approve_ms: int
    publication: bool
    summary: Mapping[str, int]

    def to_payload(self) -> dict[str, Any]:
        return {
            "schema": MANIFEST_SCHEMA,
            "name": self.name,
            "title": self.title,
            "study": self.study,
            "author": self.author,
            "frozen_at": format_time(self.frozen_at),
            "plan": self.plan,
            "phases": list(self.phases),
            "files": _records_to_dict(self.files),
            "sources": _records_to_dict(self.sources),
            "model_files": _records_to_dict(self.model_files),
            "code": self.code,
            "environment": self.environment,
            "self_authorization": self.self_authorization,
            "auto_approve_ms": self.auto_approve_ms,
            "publication": self.publication,
            "summary": dict(self.summary),
        }

    @classmethod
    def from_payload(cls, value: object, path: str) -> Manifest:
        with Fields(value, path) as fields:
            fields.text("schema", one_of=(MANIFEST_SCHEMA,))
            summary = fields.sub("summary")
            with summary:
                counts = {key: summary.integer(key) for key in fields.mapping("summary")}
            return cls(
                name=fields.text("name"),
                title=fields.text("title"),
                study=fields.text("study"),
                author=fields.text("author"),
                frozen_at=parse_time(fields.text("frozen_at"), thing=f"{path}.frozen_at"),
                plan=digest_field(fields, "plan"),
                phases=fields.texts("phases"),
                files=_records(fields, "files"),
                sources=_records(fields, "sources"),
                model_files=_records(fields, "model_files"),
                code=digest_field(fields, "code"),
                environment=digest_field(fields, "environment"),
                self_authorization=fields.flag("self_authorization"),
                auto_approve_ms=fields.integer("auto_approve_ms", low=0),
                publication=fields.flag("publication"),
                summary=counts,
            )


def _records(fields: Fields, key: str) -> dict[str, FileRecord]:
    return {
        name: FileRecord.from_dict(item, f"{fields.path(key)}.{name}")
        for name, item in fields.mapping(key).items()
    }


def _records_to_dict(records: Mapping[str, FileRecord]) -> dict[str, Any]:
    return {name: record.to_dict() for name, record in records.items()}
