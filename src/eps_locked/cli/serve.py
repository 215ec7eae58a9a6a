"""``serve``: a plan's base model, and adapters on it, on a loopback chat-completions endpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eps_locked import files
from eps_locked.cli.common import now, root_option, workspace_at
from eps_locked.cli.surroundings import ModelFolder
from eps_locked.domain.ledger import Artifact
from eps_locked.domain.model import AdapterFiles
from eps_locked.errors import BackendError, EvidenceError, MalformedInputError
from eps_locked.lock.freeze import read_plan
from eps_locked.lock.gate import verify_model
from eps_locked.lock.record import RunRecord, terms_of, verify_artifact
from eps_locked.lock.workspace import Workspace, describe_artifact
from eps_locked.studies.common.wiring import load_backends

if TYPE_CHECKING:
    from eps_locked.serving.rules import ServedRoute
    from eps_locked.serving.server import RunningServer

_ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")
# vLLM has to know the largest rank before it starts; the transformers engine takes any.
_RANKS = (64,)
_MAX_ADAPTER_BYTES = 1 << 34


@click.command("serve")
@click.argument("name")
@click.option(
    "--adapter",
    "adapters",
    multiple=True,
    metavar="ROUTE=WHERE",
    help="Serve an adapter under this name: a folder in PEFT layout, or run:NAME/STEP for the"
    " one that a step of a run recorded. Repeatable.",
)
@click.option(
    "--base-route", default="base", show_default=True, help="Name of the route without an adapter."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help="Port on 127.0.0.1; 0 takes a free one.",
)
@click.option(
    "--context-length",
    type=click.IntRange(min=1),
    help="Tokens of prompt and answer together; the model's own limit if not said.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(min=1),
    default=512,
    show_default=True,
    help="Tokens of an answer where a request does not say.",
)
@click.option(
    "--thinking-budget",
    type=click.IntRange(min=1),
    default=256,
    show_default=True,
    help="Tokens of reasoning where a request asks for it and does not say.",
)
@root_option
def serve_command(
    name: str,
    adapters: tuple[str, ...],
    base_route: str,
    port: int,
    context_length: int | None,
    max_tokens: int,
    thinking_budget: int,
    root: Path,
) -> int:
    """Serve the base model of plans/NAME.yaml in OpenAI's chat-completions form until Ctrl-C.

    For programs on this machine only: it listens on 127.0.0.1, asks for no key, and answers one
    request after the other, so that equal requests get equal bytes. docs/serving.md says which
    parts of the API it takes.
    """
    workspace = workspace_at(root)
    plan, _ = read_plan(workspace, name)
    model = ModelFolder(plan, workspace.root)
    wanted = [_split(word) for word in adapters]
    try:
        from eps_locked.serving.rules import ServedRoute, ServingRules, require_routes, window_of
        from eps_locked.serving.server import start_server
    except ImportError as error:
        raise BackendError(
            "serve",
            problem=f"is not installed ({error.name})",
            next_step="install the serve extra: pip install 'eps-locked[serve]'",
        ) from error
    routes = [
        ServedRoute(name=base_route, adapter=None),
        *(
            ServedRoute(name=route, adapter=_adapter(workspace, model, where))
            for route, where in wanted
        ),
    ]
    require_routes(routes)  # before the model is loaded, which takes its time
    window = window_of(model.path())
    if context_length is not None and context_length > window:
        raise MalformedInputError(
            "--context-length",
            expected=f"at most {window}, the model's own",
            found=context_length,
            next_step="ask for less, or leave it out for all that the model takes",
        )
    rules = ServingRules(
        context_length=context_length or window,
        max_tokens=max_tokens,
        thinking_budget=thinking_budget,
    )
    backends = load_backends(plan, model.path(), _RANKS)
    try:
        with start_server(
            backends.engine, backends.tokenizer, routes, rules=rules, port=port
        ) as running:
            return _until_ended(running, routes)
    finally:
        backends.close()


def _until_ended(running: RunningServer, routes: Sequence[ServedRoute]) -> int:
    """Say what is served, and wait. 0 after Ctrl-C, which is how a server is meant to end."""
    try:
        click.echo(running.url)
        for route in routes:
            digest = "the bare base" if route.adapter is None else route.adapter.digest
            click.echo(f"  {route.name}  {digest}")
        click.echo("Ctrl-C ends it", err=True)
        running.wait()
    except KeyboardInterrupt:
        click.echo("closed", err=True)
        return 0
    raise BackendError("server", problem="ended by itself", next_step="see the log above")


def _split(word: str) -> tuple[str, str]:
    route, equals, where = word.partition("=")
    if not (route and equals and where):
        raise MalformedInputError(
            "--adapter",
            expected="ROUTE=WHERE",
            found=word,
            next_step="name the route, and a folder in PEFT layout or run:NAME/STEP",
        )
    return route, where


def _adapter(workspace: Workspace, model: ModelFolder, where: str) -> AdapterFiles:
    if where.startswith("run:"):
        return _recorded(workspace, model, where.removeprefix("run:"))
    folder = Path(where)
    contents = {
        file: files.read_bytes(folder / file, limit=_MAX_ADAPTER_BYTES) for file in _ADAPTER_FILES
    }
    return AdapterFiles(digest=describe_artifact(contents).digest, files=contents)


def _recorded(workspace: Workspace, model: ModelFolder, where: str) -> AdapterFiles:
    """The adapter that a step recorded: ledger, artifact and base model verified."""
    name, _, step = where.partition("/")
    frozen = workspace.load_manifest(name)
    verify_model(frozen.manifest, model.records())
    run = workspace.run(name)
    done = RunRecord.load(run, terms_of(frozen), now).history.done
    outputs: Mapping[str, Artifact] = done[step].outputs if step in done else {}
    if "adapter" not in outputs:
        having = [id_ for id_, body in done.items() if "adapter" in body.outputs]
        raise EvidenceError(
            f"run {name}: step {step or '(none named)'}",
            expected="a finished step that recorded an adapter",
            found="none of that name",
            next_step=f"such steps are: {', '.join(having) or 'none'}",
        )
    artifact = outputs["adapter"]
    verify_artifact(run, artifact)
    contents = {file: run.artifact_file(artifact, file) for file in artifact.files}
    return AdapterFiles(digest=artifact.digest, files=contents)
