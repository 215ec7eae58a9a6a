"""``keys``, ``authorize`` and ``amend``: keys, and the acts that people sign."""

from __future__ import annotations

import os
import subprocess
from datetime import timedelta
from pathlib import Path

import click

from eps_locked import files
from eps_locked.canonical import digest_value
from eps_locked.cli.common import at_option, moment, now, root_option, workspace_at
from eps_locked.domain.clock import Clock
from eps_locked.domain.plan import MS_PER_HOUR
from eps_locked.errors import BackendError, MalformedInputError, RefusedError
from eps_locked.lock.freeze import load_plan
from eps_locked.lock.gate import read_manifest
from eps_locked.lock.provenance import resolved_environment, source_tree
from eps_locked.lock.seal import new_custodian_key
from eps_locked.lock.signatures import (
    AMENDMENT_NAMESPACE,
    AUTHORIZATION_NAMESPACE,
    is_plain_principal,
)
from eps_locked.lock.signing import amend, authorize

MAX_VALID_HOURS = 100 * 366 * 24

_key_option = click.option(
    "--key",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="EPS_LOCKED_KEY",
    required=True,
    show_envvar=True,
    help="SSH private key, or the .pub of one that your ssh-agent holds.",
)
_signer_option = click.option(
    "--signer", help="Principal to sign as.  [default: the plan's author]"
)


@click.group("keys")
def keys() -> None:
    """Signing keys (ordinary SSH keys; any you have will do) and the custodian's key."""


@keys.command("new")
@click.argument("principal")
@click.option(
    "--key",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="Where to write the private key (outside the repository is best).",
)
@click.option(
    "--allowed-signers",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="Allowed-signers file to create or extend, below plans/.",
)
def keys_new(principal: str, key: Path, allowed_signers: Path) -> None:
    """Make an ed25519 key for PRINCIPAL and allow it to sign.

    The key gets no passphrase; for real custody make one with ssh-keygen and add its line.
    """
    make_key(principal, key, allowed_signers)
    click.echo(f"key: {key}\nallowed: {principal} in {allowed_signers}")


@keys.command("custodian")
@click.option(
    "--key",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="Where to write the secret key: with the custodian, outside this folder.",
)
@click.option(
    "--recipients",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="Recipients file to write, below plans/.",
)
def keys_custodian(key: Path, recipients: Path) -> None:
    """Make the key that opens what a study seals.

    Whoever has it can read the sealed cells: it belongs to a person who does not run the study. An
    SSH key or an age key they have will do as well; then write its public half into the file.
    """
    make_custodian_key(key, recipients)
    click.echo(f"secret key: {key} (the custodian's; nobody else's)\nrecipients: {recipients}")


def make_custodian_key(key: Path, recipients: Path) -> None:
    """Create an X25519 pair for age. Never overwrites a file."""
    for path in (key, recipients):
        if path.exists():
            raise RefusedError(
                str(path), problem="exists and is never overwritten", next_step="name another file"
            )
    identity, public = new_custodian_key()
    key.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(identity)
    files.replace_file(recipients, public.encode("utf-8"))


def make_key(principal: str, key: Path, allowed_signers: Path) -> None:
    """Create a key pair and add its line to an allowed-signers file. Never overwrites a key."""
    if not is_plain_principal(principal):
        raise MalformedInputError(
            "principal", expected="one word, no pattern and no list", found=repr(principal)
        )
    if key.exists():
        raise RefusedError(
            str(key), problem="exists and is never overwritten", next_step="name another file"
        )
    key.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    result = subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", principal, "-f", str(key)],
        capture_output=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if result.returncode != 0:
        raise BackendError("ssh-keygen", problem=result.stderr.decode("utf-8", "replace").strip())
    kind, blob = key.with_name(key.name + ".pub").read_text("utf-8").split()[:2]
    namespaces = f'namespaces="{AUTHORIZATION_NAMESPACE},{AMENDMENT_NAMESPACE}"'
    line = f"{principal} {namespaces} {kind} {blob}\n"
    before = allowed_signers.read_bytes() if allowed_signers.exists() else b""
    files.replace_file(allowed_signers, before + line.encode("utf-8"))


@click.command("authorize")
@click.argument("name")
@click.argument("phase")
@click.option("--cap-gpu-hours", type=float, help="[default: the plan's budget for the phase]")
@click.option(
    "--valid-hours", type=float, default=72.0, show_default=True, help="Until it expires."
)
@click.option("--smoke", is_flag=True, help="For a smoke run (run-phase --limit), not evidence.")
@_signer_option
@_key_option
@at_option
@root_option
def authorize_command(
    name: str,
    phase: str,
    cap_gpu_hours: float | None,
    valid_hours: float,
    smoke: bool,
    signer: str | None,
    key: Path,
    at: str | None,
    root: Path,
) -> None:
    """Sign leave to run PHASE of NAME: a cap, an expiry, and this manifest's digest."""
    workspace = workspace_at(root)
    frozen = read_manifest(workspace, name)
    plan = load_plan(frozen.read("frozen/plan.yaml"), thing="frozen/plan.yaml")
    if phase not in plan.phases:
        raise MalformedInputError("phase", expected=" or ".join(plan.phases), found=phase)
    cap = plan.phases[phase].gpu_hours if cap_gpu_hours is None else cap_gpu_hours
    # At least a millisecond and a second, the units in which they are signed.
    if not 1 <= cap * MS_PER_HOUR < 2**53 or not 1 / 3600 <= valid_hours <= MAX_VALID_HOURS:
        raise MalformedInputError(
            "cap and validity",
            expected=f"positive hours, and at most {MAX_VALID_HOURS} until it expires",
            found=f"{cap}, {valid_hours}",
        )
    path = authorize(
        frozen,
        workspace.run(name, "smoke" if smoke else "runs"),
        phase,
        signer=signer or frozen.manifest.author,
        key=key,
        cap_gpu_hours=cap,
        valid_for=timedelta(hours=valid_hours),
        clock=_clock(at),
    )
    who = signer or frozen.manifest.author
    alone = " (self-authorized)" if who == frozen.manifest.author else ""
    click.echo(f"authorized: {phase} of {name} by {who}{alone}, cap {cap:g} device-hours")
    click.echo(f"  document: {path.relative_to(workspace.root)}")
    click.echo(f"  next: just run-phase {name} {phase}{' --limit N' if smoke else ''}")


@click.command("amend")
@click.argument("name")
@click.option("--reason", required=True, help="Why, in a sentence; the report prints it.")
@click.option("--change", "changes", multiple=True, help="What deviates (repeatable).")
@click.option(
    "--rebind",
    type=click.Choice(["code", "environment"]),
    multiple=True,
    help="Bind our present sources or installed versions instead of the frozen ones.",
)
@_signer_option
@_key_option
@at_option
@root_option
def amend_command(
    name: str,
    reason: str,
    changes: tuple[str, ...],
    rebind: tuple[str, ...],
    signer: str | None,
    key: Path,
    at: str | None,
    root: Path,
) -> None:
    """Sign and record a deviation from NAME. Every earlier authorization stops being valid."""
    workspace = workspace_at(root)
    frozen = read_manifest(workspace, name)
    path = amend(
        frozen,
        workspace.run(name),
        signer=signer or frozen.manifest.author,
        key=key,
        reason=reason,
        changes=changes,
        rebind=frozenset(rebind),
        code=digest_value(source_tree()),
        environment=digest_value(resolved_environment()),
        clock=_clock(at),
    )
    click.echo(f"amended: {path.relative_to(workspace.root)}")
    click.echo("  earlier authorizations are void; authorize the next phase again")


def _clock(at: str | None) -> Clock:
    if at is None:
        return now
    fixed = moment(at)
    return lambda: fixed
