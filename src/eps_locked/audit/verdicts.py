"""C13: earlier verdicts on this run, kept beside it."""

from __future__ import annotations

from eps_locked import files
from eps_locked.audit.noting import TITLES, Check, Noting
from eps_locked.domain.fields import Fields
from eps_locked.domain.ledger import digest_field
from eps_locked.errors import EvidenceError
from eps_locked.lock.envelope import open_document
from eps_locked.lock.ledger import Line
from eps_locked.lock.workspace import FrozenManifest, RunFolder

VERDICT_SCHEMA = "eps-locked/verdict/1"


def check_verdicts(
    run: RunFolder,
    name: str,
    frozen: FrozenManifest,
    lines: list[Line | None],
    check: Check,
) -> None:
    """A verdict names a head this ledger had after so many entries, and says what its checks say.

    One on a head that never was, or on a longer ledger, tells that the ledger was replaced or cut.
    """
    for relative in files.walk_files(run.verdicts):
        with Noting(check):
            path = run.verdicts / relative
            payload, _ = open_document(
                files.read_bytes(path), thing=str(path), schema=VERDICT_SCHEMA
            )
            with Fields(payload, str(path)) as fields:
                fields.text("schema")
                fields.flag("complete")
                fields.flag("publishable")
                digest_field(fields, "code")
                checks = dict(fields.each("checks", _check_of_verdict))
                n_entries = fields.integer("n_entries", low=1)
                line = lines[n_entries - 1] if n_entries <= len(lines) else None
                for field, expected, found in (
                    ("name", name, fields.text("name")),
                    ("manifest", frozen.digest, digest_field(fields, "manifest")),
                    (
                        "ledger_head",
                        line.digest if line else f"a head after {n_entries} entries",
                        digest_field(fields, "ledger_head"),
                    ),
                    ("checks", list(TITLES), list(checks)),
                    ("ok", all(checks.values()), fields.flag("ok")),
                ):
                    if expected != found:
                        raise EvidenceError(f"{path}: {field}", expected=expected, found=found)
    check.n_examined = 1  # all of them together: see C12


def _check_of_verdict(value: object, path: str) -> tuple[int, bool]:
    """Number of a check, and whether it was ok; which it was exactly if it found no failure."""
    with Fields(value, path) as fields:
        number = fields.integer("number", low=1)
        fields.text("title")
        fields.integer("n_examined", low=0)
        ok = fields.flag("ok")
        if ok == bool(fields.texts("failures")):
            raise EvidenceError(f"{path}.ok", expected=not ok, found=ok)
    return number, ok
