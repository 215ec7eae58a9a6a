"""The ``eps-locked`` command: words to calls to exit codes. No rule lives here.

Exit codes: 0 ok, 1 a check failed, 2 malformed input, 3 the lock refused, 4 a backend failed,
130 interrupted. Command modules are imported when their command runs, so that ``--help`` is quick.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from eps_locked import __version__
from eps_locked.errors import BackendError, EpsLockedError

_COMMANDS = {
    "plan": ("eps_locked.cli.plan", "plan", "Check a plan before freezing it."),
    "freeze": ("eps_locked.cli.plan", "freeze_command", "Freeze plans/NAME.yaml."),
    "model": ("eps_locked.cli.model", "model_command", "Fetch a plan's base model now."),
    "keys": ("eps_locked.cli.sign", "keys", "Make a signing key, or the custodian's key."),
    "authorize": ("eps_locked.cli.sign", "authorize_command", "Sign leave to run one phase."),
    "amend": ("eps_locked.cli.sign", "amend_command", "Sign and record a deviation."),
    "run-phase": ("eps_locked.cli.run", "run_phase_command", "Run or resume a phase."),
    "status": ("eps_locked.cli.run", "status_command", "Say how far a run has come."),
    "check-evidence": (
        "eps_locked.cli.check",
        "check_evidence_command",
        "Re-derive a run's claims from its bytes.",
    ),
    "judge": ("eps_locked.cli.judge", "judge", "Judge again with another; calibrate a judge."),
    "drift": (
        "eps_locked.cli.drift_group",
        "drift",
        "Analyse replies; people and judge.",
    ),
    "vea": (
        "eps_locked.cli.vea",
        "vea",
        "Matched pairs, preference pairs and their scores, ours or anybody's.",
    ),
    "score": ("eps_locked.cli.score", "score_command", "Score metrics on open cells."),
    "metric": ("eps_locked.cli.metric", "metric", "Run a metric plug-in; export its materials."),
    "submit": ("eps_locked.cli.looks", "submit_command", "Freeze a metric's predictions."),
    "final-test": (
        "eps_locked.cli.looks",
        "final_test_command",
        "Look once at a submission on the sealed cells.",
    ),
    "replay": ("eps_locked.cli.replay", "replay_command", "Do recorded steps again, compare."),
    "report": ("eps_locked.cli.check", "report_command", "Write the page of a checked run."),
    "bundle": ("eps_locked.cli.bundle", "bundle_command", "Write a folder to hand over."),
    "publish": ("eps_locked.cli.publish", "publish_command", "Write what a hub upload holds."),
    "audit": ("eps_locked.cli.bundle", "audit_command", "Verify a bundle offline."),
    "serve": (
        "eps_locked.cli.serve",
        "serve_command",
        "Serve a plan's model and adapters on loopback.",
    ),
    "show": ("eps_locked.cli.show", "show", "Show a manifest, a context, a step or the ledger."),
    "battery": (
        "eps_locked.cli.battery",
        "battery",
        "Each model against its base, and all models in one table.",
    ),
    "demo": ("eps_locked.cli.demo", "demo_command", "Play a whole study on the embedded model."),
}


class _LazyGroup(click.Group):
    """Knows every command's name and one-line help without importing it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, attribute, _ = _COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in _COMMANDS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="eps-locked")
def cli() -> None:
    """A research harness locked by pre-registration.

    A plan is frozen into a manifest, a phase runs under a signed authorization and only while
    every byte still matches, and anyone can check the record afterwards.

    \b
    Exit codes: 0 ok, 1 a check failed, 2 malformed input, 3 the lock refused,
    4 a backend failed, 130 interrupted.
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with the documented code."""
    sys.exit(run(arguments))


def run(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit code instead of exiting."""
    try:
        result: Any = cli.main(args=arguments, prog_name="eps-locked", standalone_mode=False)
    except click.exceptions.Abort:
        return _interrupted()
    except KeyboardInterrupt:
        return _interrupted()
    except click.ClickException as error:
        error.show()
        return 2
    except EpsLockedError as error:
        word = {3: "refused", 2: "malformed", 1: "check failed", 4: "failed"}[error.exit_code]
        click.echo(f"{word}: {error}", err=True)
        return error.exit_code
    except OSError as error:
        # A disk, a permission or a pipe that nobody below has put into words of its own.
        where = f"{error.filename}: " if error.filename else ""
        click.echo(f"failed: {where}{error.strerror or error}", err=True)
        return BackendError.exit_code
    return result if isinstance(result, int) else 0


def _interrupted() -> int:
    click.echo("interrupted: what was finished is recorded; the same command resumes", err=True)
    return 130


if __name__ == "__main__":
    main()
