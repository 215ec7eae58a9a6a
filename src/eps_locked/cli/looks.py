"""``submit`` and ``final-test``: freeze a metric's predictions, then look once, counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from eps_locked import files
from eps_locked.audit.checks import AuditedRun, verdict_payload
from eps_locked.canonical import decode, digest_value, short
from eps_locked.cli.check import audit
from eps_locked.cli.common import echo_json, json_option, now, root_option, workspace_at
from eps_locked.cli.predictors import predictor_options, read_predictor_file
from eps_locked.domain.ledger import SubmissionBody
from eps_locked.errors import EvidenceError, MalformedInputError, RefusedError
from eps_locked.lock.gate import read_manifest
from eps_locked.lock.looks import RESULT_FILE, Submitted, permit_look, submit
from eps_locked.lock.provenance import resolved_environment, source_tree
from eps_locked.lock.record import RunRecord, terms_of
from eps_locked.lock.seal import CustodianKey
from eps_locked.lock.workspace import FrozenManifest, RunFolder, Workspace
from eps_locked.runners.look import take_look
from eps_locked.scoring.predictor import (
    Predictor,
    predictor_bytes,
    require_coverage,
    tensor_cells,
)
from eps_locked.studies.eps.scores import FinishedRun

_SMALLEST, _LARGEST = 1e-100, 1e100

custodian_key_option = click.option(
    "--custodian-key",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="EPS_LOCKED_CUSTODIAN_KEY",
    required=True,
    show_envvar=True,
    help="File of the custodian's age identity or OpenSSH private key.",
)


@click.command("submit")
@click.argument("name")
@click.argument("predictor", type=click.Path(dir_okay=False, path_type=Path))
@predictor_options
@root_option
def submit_command(name: str, predictor: Path, root: Path, **options: Any) -> None:
    """Freeze PREDICTOR as a submission to NAME. It can be looked at from now on, not changed.

    PREDICTOR holds one value per (behaviour, train, eval): the JSON document of
    schemas/predictor.schema.json, or CSV/Parquet with --metric, --polarity, --track, --author.
    """
    workspace = workspace_at(root)
    body = submit_predictor(workspace, name, read_predictor_file(predictor, **options))
    before = body.looks_before
    click.echo(
        f"submitted: number {body.number}, {body.metric} by {body.author}, "
        f"{short(body.submission.digest)}"
    )
    if before["any"]:
        mark = "; any look at it will be marked as informed" if before["author"] else ""
        click.echo(
            f"  looks before it: {before['author']} by its author, {before['any']} in all{mark}"
        )
    click.echo(f"  next: just check-evidence {name}, then just final-test {name} {body.number}")


def submit_predictor(workspace: Workspace, name: str, predictor: Predictor) -> SubmissionBody:
    """Check that a predictor covers every cell of the run's tensors, and freeze it."""
    frozen = read_manifest(workspace, name)
    run = workspace.run(name)
    finished = finished_run(workspace, frozen)
    require_coverage(predictor, tensor_cells(finished.open_tensor()))
    _require_scorable(predictor)
    # A metric that cannot be scored in the open would only burn its look.
    finished.open_scores([predictor])
    submitted = Submitted(
        author=predictor.author,
        metric=predictor.metric,
        title=predictor.title,
        track="post_hoc" if predictor.track == "post_hoc" else "predictive",
        polarity=predictor.polarity,
    )
    return submit(frozen, run, submitted, predictor_bytes(predictor), clock=now)


def _require_scorable(predictor: Predictor) -> None:
    """Numbers that sums of squares can hold, and names that a terminal can show."""
    for key, value in predictor.values.items():
        if value != 0 and not _SMALLEST <= abs(value) <= _LARGEST:
            raise MalformedInputError(
                f"{predictor.metric}: {' '.join(key)}",
                expected=f"0, or a size from {_SMALLEST:g} to {_LARGEST:g}",
                found=value,
                next_step="rescale the metric; scores do not depend on its unit",
            )
    for name, text in (("author", predictor.author), ("title", predictor.title)):
        if not text.strip() or not text.isprintable():
            raise MalformedInputError(name, expected="printable words", found=repr(text)[:80])


@click.command("final-test")
@click.argument("name")
@click.argument("submission", type=click.IntRange(min=1))
@custodian_key_option
@root_option
@json_option
@click.option(
    "--expect-head",
    metavar="DIGEST",
    help="A ledger head you noted before: refuse unless it is still in this ledger.",
)
def final_test_command(
    name: str,
    submission: int,
    custodian_key: Path,
    root: Path,
    as_json: bool,
    expect_head: str | None,
) -> None:
    """Look at SUBMISSION (its number) on the sealed cells of NAME. Every look counts.

    Needs a verdict of check-evidence for exactly the present ledger head, with every check ok. The
    look is written down before anything is opened; one that fails or is interrupted counts too.
    """
    workspace = workspace_at(root)
    number, document, head = look(workspace, name, submission, custodian_key, expect_head)
    if as_json:
        echo_json({"name": name, "look": number, "scores": document, "ledger_head": head})
        return
    from eps_locked.report.score_text import final_text

    click.echo(final_text(document))
    click.echo(f"look {number} of {name} is recorded; note the ledger head now, and give it to")
    click.echo(f"--expect-head next time: {head}")


def look(
    workspace: Workspace,
    name: str,
    submission: int,
    custodian_key: Path,
    expect_head: str | None = None,
) -> tuple[int, dict[str, Any], str]:
    """Everything ``final-test`` does, for it and for the demo: (number of the look, scores as
    everybody may know them, ledger head after it)."""
    frozen = read_manifest(workspace, name)
    run = workspace.run(name)
    with files.exclusive_lock(run.folder):
        audited: list[AuditedRun] = []

        def verdict_now() -> dict[str, Any]:
            audited.append(audit(workspace, name))
            return verdict_payload(audited[-1], digest_value(source_tree()))

        finished = finished_run(workspace, frozen)
        if expect_head is not None:
            _require_head(run, expect_head)
        permit, record = permit_look(
            workspace,
            frozen,
            run,
            submission,
            verdict_now=verdict_now,
            code=source_tree(),
            environment=resolved_environment(),
            recipients=finished.recipients(),
            key=lambda: CustodianKey.read(
                files.read_bytes(custodian_key), thing=str(custodian_key)
            ),
            clock=now,
        )
        number = take_look(permit, record, finished.look)
        result = record.history.scores[number].result
        if result is None:
            raise EvidenceError(f"look {number}", expected="a result", found="none")
        document = decode(run.artifact_file(result, RESULT_FILE), thing=RESULT_FILE)
        return number, document["scores"], record.reader.head


def _require_head(run: RunFolder, expected: str) -> None:
    """A head noted before is one of this ledger's, or looks may have been cut from its end."""
    lines = run.ledger_lines()
    if not any(decode(line, thing="ledger")["digest"] == expected for line in lines):
        raise RefusedError(
            str(run.ledger_path),
            expected=f"an entry with the digest {expected}",
            found="none",
            next_step="ask for the ledger that has it: entries after it, looks perhaps, are gone",
        )


def finished_run(workspace: Workspace, frozen: FrozenManifest) -> FinishedRun:
    """A complete run with its chain verified. Raises RefusedError if it is not complete."""
    run = workspace.run(frozen.manifest.name)
    record = RunRecord.load(run, terms_of(frozen), now)
    return FinishedRun(frozen=frozen, run=run, history=record.history)
