"""The two documents people sign: an authorization for one phase, and an amendment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, cast, get_args

from eps_locked.canonical import is_digest
from eps_locked.domain.clock import format_time, parse_time
from eps_locked.domain.fields import Fields
from eps_locked.domain.ledger import Root, digest_field
from eps_locked.errors import MalformedInputError

AUTHORIZATION_SCHEMA = "eps-locked/authorization/1"
AMENDMENT_SCHEMA = "eps-locked/amendment/1"

Seen = Literal["nothing_run", "run_unseen", "seen"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Authorization:
    """Leave to run one phase of one manifest, up to a cap in device-milliseconds.

    ``root`` says whether it is leave for evidence (``runs``) or for a try-out (``smoke``).
    ``lock_head`` is the manifest's digest, or the digest after its last amendment: an amendment
    makes every older authorization worthless.
    """

    name: str
    root: Root
    manifest: str
    lock_head: str
    phase: str
    cap_ms: int
    signer: str
    self_authorized: bool
    issued_at: datetime
    expires_at: datetime

    def to_payload(self) -> dict[str, Any]:
        return {
            "schema": AUTHORIZATION_SCHEMA,
            "name": self.name,
            "root": self.root,
            "manifest": self.manifest,
            "lock_head": self.lock_head,
            "phase": self.phase,
            "cap_ms": self.cap_ms,
            "signer": self.signer,
            "self_authorized": self.self_authorized,
            "issued_at": format_time(self.issued_at),
            "expires_at": format_time(self.expires_at),
        }

    @classmethod
    def from_payload(cls, value: object, path: str) -> Authorization:
        with Fields(value, path) as fields:
            fields.text("schema", one_of=(AUTHORIZATION_SCHEMA,))
            return cls(
                name=fields.text("name"),
                root=cast(Root, fields.text("root", one_of=get_args(Root))),
                manifest=digest_field(fields, "manifest"),
                lock_head=digest_field(fields, "lock_head"),
                phase=fields.text("phase"),
                cap_ms=fields.integer("cap_ms", low=1),
                signer=fields.text("signer"),
                self_authorized=fields.flag("self_authorized"),
                issued_at=parse_time(fields.text("issued_at"), thing=f"{path}.issued_at"),
                expires_at=parse_time(fields.text("expires_at"), thing=f"{path}.expires_at"),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Amendment:
    """A deviation, told before it takes effect.

    ``rebind`` may name a new digest for ``code`` or ``environment`` (a mended defect, an updated
    library); nothing else in a manifest can be rebound: a changed plan is a new plan. ``seen`` is
    computed from the ledger at the time of writing, not claimed by the author.
    """

    name: str
    manifest: str
    number: int
    previous_lock_head: str
    ledger_head: str
    signer: str
    at: datetime
    reason: str
    changes: tuple[str, ...]
    rebind: Mapping[str, str]
    seen: Seen

    def to_payload(self) -> dict[str, Any]:
        return {
            "schema": AMENDMENT_SCHEMA,
            "name": self.name,
            "manifest": self.manifest,
            "number": self.number,
            "previous_lock_head": self.previous_lock_head,
            "ledger_head": self.ledger_head,
            "signer": self.signer,
            "at": format_time(self.at),
            "reason": self.reason,
            "changes": list(self.changes),
            "rebind": dict(self.rebind),
            "seen": self.seen,
        }

    @classmethod
    def from_payload(cls, value: object, path: str) -> Amendment:
        with Fields(value, path) as fields:
            fields.text("schema", one_of=(AMENDMENT_SCHEMA,))
            rebind = fields.text_map("rebind")
            for key, digest in rebind.items():
                if key not in ("code", "environment") or not is_digest(digest):
                    raise MalformedInputError(
                        f"{path}.rebind.{key}",
                        expected="code or environment, with a digest",
                        found=digest,
                    )
            return cls(
                name=fields.text("name"),
                manifest=digest_field(fields, "manifest"),
                number=fields.integer("number", low=1),
                previous_lock_head=digest_field(fields, "previous_lock_head"),
                ledger_head=digest_field(fields, "ledger_head"),
                signer=fields.text("signer"),
                at=parse_time(fields.text("at"), thing=f"{path}.at"),
                reason=fields.text("reason"),
                changes=fields.texts("changes"),
                rebind=rebind,
                seen=cast(Seen, fields.text("seen", one_of=get_args(Seen))),
            )
