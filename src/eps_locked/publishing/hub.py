"""Pushing a written folder to a hub: one commit per repository, of exactly the listed files.

The client library is imported when something is pushed. The token goes to it and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from eps_locked import files
from eps_locked.audit.checksums import Sums
from eps_locked.errors import BackendError, EpsLockedError, MalformedInputError, RefusedError
from eps_locked.lock.workspace import safe_join

TOKEN = "HF_TOKEN"
_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
# Smaller files are handed over as the very bytes that were compared; larger ones by path, with the
# digest that the client measured compared again.
_AS_BYTES = 8 << 20


class Api(Protocol):
    """The one method of ``huggingface_hub.HfApi`` that is used."""

    def create_commit(
        self,
        repo_id: str,
        operations: Any,
        *,
        commit_message: str,
        repo_type: str,
        token: str,
    ) -> Any: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """One repository to push: ``files`` are names in ``folder`` with their sums."""

    repo: str
    kind: str
    folder: Path
    files: Mapping[str, Sums]


def require_repo(name: str, *, thing: str) -> str:
    if not _REPO.fullmatch(name) or ".." in name or "--" in name:
        raise MalformedInputError(thing, expected="ORG/NAME", found=repr(name))
    return name


def require_token(environ: Mapping[str, str]) -> str:
    """The token of the environment. Raises RefusedError if there is none."""
    token = environ.get(TOKEN, "").strip()
    if not token:
        raise RefusedError(
            TOKEN,
            expected="an access token in the environment",
            found="none",
            next_step=f"put a token with write access into {TOKEN}, for this command only",
        )
    return token


def default_api() -> Api:
    """The real client. Raises BackendError if it is not installed."""
    try:
        from huggingface_hub import HfApi
    except ImportError as error:
        raise BackendError(
            "huggingface_hub",
            problem="is not installed",
            next_step="install the hf extra: pip install 'eps-locked[hf]'",
        ) from error
    api: Api = HfApi()
    return api


def push(target: Target, api: Api, *, token: str, message: str) -> str:
    """One commit with every file of the target; returns where it can be seen.

    Raises RefusedError for a file that is not the listed one, BackendError for what the hub says;
    neither repeats the token.
    """
    operations = [_operation(target, name, sums) for name, sums in sorted(target.files.items())]
    problem = None
    try:
        done = api.create_commit(
            target.repo,
            operations,
            commit_message=message,
            repo_type=target.kind,
            token=token,
        )
    except EpsLockedError:
        raise
    except Exception as error:
        # A client may repeat the header it could not send. What is raised here keeps no link to
        # the original: a traceback would print it.
        problem = f"{type(error).__name__}: {' '.join(str(error).split())}".replace(token, "***")
    if problem is not None:
        raise BackendError(
            f"{target.kind} {target.repo}",
            problem=f"was not pushed ({problem[:400]})",
            next_step="see that the repository exists and the token may write there, then push "
            "again; a commit is whole or not there",
        )
    return str(getattr(done, "commit_url", "") or target.repo)


def _operation(target: Target, name: str, sums: Sums) -> Any:
    from huggingface_hub import CommitOperationAdd

    path = safe_join(target.folder, name, thing=name)
    if path.stat().st_size <= _AS_BYTES:
        data = files.read_bytes(path)
        same = Sums.of(data) == sums
        operation = CommitOperationAdd(path_in_repo=name, path_or_fileobj=data)
    else:
        operation = CommitOperationAdd(path_in_repo=name, path_or_fileobj=str(path))
        same = operation.upload_info.sha256.hex() == sums.sha256
    if not same:
        raise RefusedError(
            str(path),
            problem="is not what the run gives",
            next_step="move the folder away and write it again: eps-locked publish NAME --dry-run",
        )
    return operation
