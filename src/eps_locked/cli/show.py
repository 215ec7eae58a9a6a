"""``show``: a manifest, a context, the steps or the ledger, for reading. Nothing here writes.

Every byte shown was verified on its way: frozen files against the manifest, the ledger by its
chain and history. Only a step's artifacts are not read; ``check-evidence`` does that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from eps_locked.canonical import short
from eps_locked.cli.common import echo_json, json_option, now, root_option, workspace_at
from eps_locked.errors import EvidenceError, MalformedInputError
from eps_locked.lock.history import History
from eps_locked.lock.ledger import ChainReader
from eps_locked.lock.record import RunRecord, terms_of, verify_head
from eps_locked.lock.workspace import FrozenManifest, RunFolder
from eps_locked.report.marks import plain_text
from eps_locked.report.summaries import (
    battery_summary,
    context_summary,
    ledger_row,
    manifest_summary,
    step_row,
    step_summary,
    unknown,
)


@click.group("show")
def show() -> None:
    """Show a manifest, a context or battery, the steps or the ledger. Verifies what it shows."""


@show.command("manifest")
@click.argument("name")
@root_option
@json_option
def manifest_command(name: str, root: Path, as_json: bool) -> None:
    """What NAME promised: digest, phases, counts, files, signers, quarantine, model, seeds."""
    document = manifest_summary(workspace_at(root).load_manifest(name))
    if as_json:
        echo_json(document)
        return
    files, model = document["files"], document["model"]
    _echo_pairs(
        [
            ("title", document["title"]),
            ("digest", document["digest"]),
            ("study", f"{document['study']}, by {document['author']}"),
            ("frozen", document["frozen_at"]),
            ("phases", ", ".join(f"{p}: {n} steps" for p, n in document["phases"].items())),
            ("counts", _joined(document["counts"])),
            ("seeds", ", ".join(map(str, document["seeds"]))),
            ("analyses", ", ".join(document["analyses"]) or "none"),
            ("publication", "yes" if document["publication"] else "no"),
            ("signers", ", ".join(document["signers"])),
            ("alone", document["self_authorization"]),
            *_set_apart(document),
            ("model", f"{model['name']}, licence {model['licence']}"),
            *(("", f"{short(one['digest'])}  {one['name']}") for one in model["files"]),
            ("files", f"{len(files)}, every one verified just now"),
            *(("", f"{short(one['digest'])}  {one['name']}") for one in files),
        ]
    )


@show.command("context")
@click.argument("name")
@click.argument("context_id", metavar="ID")
@click.option("--row", help="The row whose context and questions to show; the first if not said.")
@root_option
@json_option
def context_command(name: str, context_id: str, row: str | None, root: Path, as_json: bool) -> None:
    """Context ID of NAME as it was frozen: messages, token counts, token ids, alias."""
    document = context_summary(workspace_at(root).load_manifest(name), context_id, row)
    if as_json:
        echo_json(document)
        return
    _echo_pairs(
        [
            ("context", document["id"]),
            ("row", f"{document['row']} (of {', '.join(document['rows'])})"),
            ("family", document["family"]),
            ("roles", ", ".join(document["roles"])),
            ("identity", document["rendered"]),
            ("alias of", document["alias_of"] or "none"),
            ("provenance", f"{document['provenance']} Licence {document['licence']}."),
            ("tokens", _token_counts(document)),
        ]
    )
    for message in document["messages"]:
        click.echo(f"\n{message['role']}:")
        for line in message["content"].split("\n"):
            click.echo(f"  {plain_text(line)}".rstrip())
    _echo_example(document)


@show.command("battery")
@click.argument("name")
@click.argument("battery")
@click.option("--exposure", help="The exchanges before the probe; without it there are none.")
@root_option
@json_option
def battery_command(
    name: str, battery: str, exposure: str | None, root: Path, as_json: bool
) -> None:
    """BATTERY of the drift study NAME as it was frozen: classes, stems, wordings, token ids."""
    document = battery_summary(workspace_at(root).load_manifest(name), battery, exposure)
    if as_json:
        echo_json(document)
        return
    _echo_pairs(
        [
            ("battery", f"{document['battery']} ({document['role']})"),
            ("classes", ", ".join(document["labels"])),
            ("aligned", ", ".join(document["aligned"])),
            ("no stance", ", ".join(document["no_stance"]) or "none"),
            ("exposure", f"{document['exposure']} (of {', '.join(document['exposures'])})"),
        ]
    )
    for probe in document["probes"]:
        text = probe["text"] if probe["keep_text"] else "(not shown: from a set not to be shipped)"
        click.echo(plain_text(f"  {probe['id']}  {text}"))
    if all(probe["keep_text"] for probe in document["probes"]):
        _echo_example(document)


@show.command("steps")
@click.argument("name")
@click.option("--phase", help="Only the steps of this phase.")
@root_option
@json_option
def steps_command(name: str, phase: str | None, root: Path, as_json: bool) -> None:
    """Every step NAME promised, in order, and how far each has come."""
    workspace = workspace_at(root)
    frozen = workspace.load_manifest(name)
    if phase is not None and phase not in frozen.manifest.phases:
        raise MalformedInputError(
            "--phase", expected=" or ".join(frozen.manifest.phases), found=phase
        )
    history = _history(workspace.run(name), frozen)
    rows = [
        step_row(step, history.done.get(step.id))
        for step in history.terms.steps.values()
        if phase in (None, step.phase)
    ]
    if as_json:
        echo_json({"name": name, "steps": rows})
        return
    width = max((len(row["step"]) for row in rows), default=0)
    for row in rows:
        spent = "" if row["compute_ms"] is None else f"{row['compute_ms']} ms"
        line = f"{row['step']:<{width}}  {row['status']:<14}  {spent:>10}  "
        click.echo(plain_text(line + " ".join(row["flags"])).rstrip())
    n_open = sum(row["status"] == "open" for row in rows)
    click.echo(f"{len(rows)} steps, {len(rows) - n_open} finished, {n_open} open")


@show.command("step")
@click.argument("name")
@click.argument("step_id")
@root_option
@json_option
def step_command(name: str, step_id: str, root: Path, as_json: bool) -> None:
    """Step STEP_ID of NAME: what it reads, what it wrote, by digest, and how it went."""
    workspace = workspace_at(root)
    frozen = workspace.load_manifest(name)
    history = _history(workspace.run(name), frozen)
    steps = history.terms.steps
    if step_id not in steps:
        raise unknown("step", step_id, steps, next_step=f"eps-locked show steps {name}")
    document = step_summary(steps[step_id], history)
    if as_json:
        echo_json(document)
        return
    _echo_pairs(
        [
            ("step", document["step"]),
            ("kind", document["kind"]),
            ("seed", "none" if document["seed"] is None else document["seed"]),
            ("parameters", _joined(document["params"]) or "none"),
            ("status", document["status"]),
            ("flags", ", ".join(document["flags"]) or "none"),
            ("aborted", f"{document['aborted']} attempts"),
            *_timing(document),
        ]
    )
    click.echo("inputs:")
    width = max(map(len, document["inputs"]))
    for key, one in document["inputs"].items():
        digest = short(one["digest"])
        click.echo(plain_text(f"  {digest:<19}  {key:<{width}}  {one['reference']}"))
    click.echo("outputs:")
    for key, one in document["outputs"].items():
        click.echo(plain_text(f"  {short(one['digest']):<19}  {key}"))
        for file, record in one["files"].items():
            digest, size = short(record["digest"]), record["size"]
            click.echo(plain_text(f"    {digest:<19}  {file} ({size} bytes)"))


@show.command("ledger")
@click.argument("name")
@click.option("--last", type=click.IntRange(min=1), help="Only the last so many entries.")
@root_option
@json_option
def ledger_command(name: str, last: int | None, root: Path, as_json: bool) -> None:
    """One line an entry. The chain is verified while it prints; a break ends it with status 1."""
    workspace = workspace_at(root)
    frozen = workspace.load_manifest(name)
    run = workspace.run(name)
    reader = ChainReader(frozen.digest, run.root, thing=str(run.ledger_path))
    kept: deque[dict[str, Any]] = deque(maxlen=last)
    streaming = last is None and not as_json
    for row in _ledger_rows(run, reader):
        if streaming:
            _echo_entry(row)
        else:
            kept.append(row)
    if as_json:
        echo_json(
            {
                "name": name,
                "ledger_head": reader.head,
                "n_entries": reader.n_read,
                "entries": list(kept),
            }
        )
        return
    for row in kept:
        _echo_entry(row)
    click.echo(f"{reader.n_read} entries, chain whole, head {reader.head}")


def _ledger_rows(run: RunFolder, reader: ChainReader) -> Iterable[dict[str, Any]]:
    """Entries as they verify; after the last one the head file and the end of the file are."""
    last_two: deque[tuple[int, str]] = deque([(-2, ""), (-1, reader.head)], maxlen=2)
    for line in run.ledger_lines():
        accepted = reader.accept(line)
        last_two.append((accepted.entry.seq, accepted.digest))
        yield {**ledger_row(accepted.entry), "digest": accepted.digest}
    verify_head(run, before_last=last_two[0], last=last_two[1])
    torn = run.torn_end()
    if torn:
        raise EvidenceError(
            str(run.ledger_path),
            problem="ends in a torn line",
            expected="a newline at the end",
            found=f"{len(torn)} bytes after the last one",
            next_step="resume the phase; it sets the torn line aside and redoes the step",
        )


def _history(run: RunFolder, frozen: FrozenManifest) -> History:
    return RunRecord.load(run, terms_of(frozen), now).history


def _set_apart(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    split = document["split"]
    if split is None:
        return [("set apart", "nothing")]
    return [
        ("set apart", f"seal {split['seal']}"),
        *(
            ("", f"{fate}: {cell}")
            for fate in ("held_out", "quarantined")
            for cell, found in split["cells"].items()
            if found == fate
        ),
    ]


def _token_counts(document: Mapping[str, Any]) -> str:
    shared, longest = document["prefix_tokens"], document["longest_prompt_tokens"]
    return f"{shared} that all its prompts begin with, {longest} in the longest prompt"


def _timing(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    if not document["finished"]:
        return [("estimate", f"{document['estimate_ms']} ms")]
    return [
        ("time", f"{document['started']} to {document['ended']}"),
        ("charged", f"{document['compute_ms']} ms (estimate {document['estimate_ms']} ms)"),
        ("engine", document["engine"]),
    ]


def _joined(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items())


def _echo_pairs(pairs: Sequence[tuple[str, object]]) -> None:
    for key, value in pairs:
        click.echo(plain_text(f"{key:<12} {value}").rstrip())


def _echo_entry(row: Mapping[str, Any]) -> None:
    spent = "" if row["compute_ms"] is None else f"{row['compute_ms']} ms"
    parts = [row["about"], row["status"] or "", spent, " ".join(row["flags"])]
    about = "  ".join(part for part in parts if part)
    click.echo(plain_text(f"{row['seq']:>6}  {row['at']}  {row['kind']:<9}  {about}"))


def _echo_example(document: Mapping[str, Any]) -> None:
    """The token ids of one prompt: what all share, then its own."""
    click.echo("\ntoken ids of the shared prefix:")
    _echo_ids(document["prefix"])
    click.echo(f"then, for {document['example']['item']}:")
    click.echo(f"  ({plain_text(document['example']['text'])})")
    _echo_ids(document["example"]["token_ids"])


def _echo_ids(token_ids: Sequence[int]) -> None:
    line = "  "
    for number in map(str, token_ids):
        if len(line) + len(number) > 96:
            click.echo(line.rstrip())
            line = "  "
        line += number + " "
    click.echo(line.rstrip())
