"""Pushing: one commit per repository, of the compared bytes; the token goes nowhere else."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

hub = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")

from eps_locked.audit.checksums import Sums  # noqa: E402
from eps_locked.cli import publish as command  # noqa: E402
from eps_locked.cli.main import run as eps_locked  # noqa: E402
from eps_locked.errors import BackendError, MalformedInputError, RefusedError  # noqa: E402
from eps_locked.publishing.hub import (  # noqa: E402
    Target,
    push,
    require_repo,
    require_token,
)
from sim.forge import flip  # noqa: E402
from sim.simulator import NAME, StudySimulator  # noqa: E402

Published = tuple[StudySimulator, Path]
TOKEN = "hf_" + "t0kEn" * 7


class StubApi:
    """Remembers commits; may fail the way a client does, with the token in its words."""

    def __init__(self, error: Exception | None = None) -> None:
        self.commits: list[dict[str, Any]] = []
        self.error = error

    def create_commit(self, repo_id: str, operations: Any, **named: Any) -> Any:
        if self.error is not None:
            raise self.error
        contents = {one.path_in_repo: one.path_or_fileobj for one in operations}
        self.commits.append({"repo": repo_id, "contents": contents, **named})
        return SimpleNamespace(commit_url=f"https://hub.example/{repo_id}/commit/1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "up/sub").mkdir(parents=True)
    (tmp_path / "up/README.md").write_text("---\nlicense: mit\n---\n# A card\n")
    (tmp_path / "up/sub/data.jsonl").write_text('{"a":1}\n')
    (tmp_path / "up/stray.txt").write_text("not listed")
    return tmp_path / "up"


def target(folder: Path, *names: str) -> Target:
    listed = names or ("README.md", "sub/data.jsonl")
    sums = {name: Sums.of((folder / name).read_bytes()) for name in listed}
    return Target(repo="org/name", kind="dataset", folder=folder, files=sums)


def test_one_commit_holds_the_listed_files_and_no_other(folder: Path) -> None:
    api = StubApi()
    where = push(target(folder), api, token=TOKEN, message="at head 1")
    assert where == "https://hub.example/org/name/commit/1"
    (commit,) = api.commits
    assert commit == {
        "repo": "org/name",
        "contents": {
            "README.md": (folder / "README.md").read_bytes(),
            "sub/data.jsonl": b'{"a":1}\n',
        },
        "commit_message": "at head 1",
        "repo_type": "dataset",
        "token": TOKEN,
    }


def test_a_file_that_changed_since_it_was_compared_is_not_pushed(folder: Path) -> None:
    api, ready = StubApi(), target(folder)
    flip(folder / "sub/data.jsonl")
    with pytest.raises(RefusedError, match=r"data\.jsonl: is not what the run gives"):
        push(ready, api, token=TOKEN, message="m")
    assert api.commits == []


def test_a_large_file_is_handed_over_by_path_and_compared_all_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eps_locked.publishing.hub._AS_BYTES", 3)
    api, ready = StubApi(), target(folder)
    push(ready, api, token=TOKEN, message="m")
    assert api.commits[0]["contents"]["sub/data.jsonl"] == str(folder / "sub/data.jsonl")
    flip(folder / "sub/data.jsonl")
    with pytest.raises(RefusedError, match="is not what the run gives"):
        push(ready, api, token=TOKEN, message="m")


def test_a_link_and_a_name_that_leads_out_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (folder / "link").symlink_to(tmp_path / "secret")
    for name in ("link", "../secret"):
        ready = Target(repo="org/name", kind="model", folder=folder, files={name: Sums.of(b"x")})
        with pytest.raises(RefusedError):
            push(ready, StubApi(), token=TOKEN, message="m")


def test_an_error_of_the_client_never_shows_the_token(folder: Path) -> None:
    api = StubApi(error=ValueError(f"Illegal header value b'Bearer {TOKEN}'"))
    with pytest.raises(BackendError, match="dataset org/name: was not pushed") as caught:
        push(target(folder), api, token=TOKEN, message="m")
    shown: BaseException | None = caught.value
    while shown is not None:
        assert TOKEN not in repr(shown)
        shown = shown.__cause__ or shown.__context__


def test_without_a_token_nothing_is_pushed() -> None:
    assert require_token({"HF_TOKEN": f" {TOKEN}\n"}) == TOKEN
    for environ in ({}, {"HF_TOKEN": " "}, {"HUGGING_FACE_HUB_TOKEN": TOKEN}):
        with pytest.raises(RefusedError, match="HF_TOKEN"):
            require_token(environ)


@pytest.mark.parametrize(
    "name", ["", "name", "a/b/c", "org/..", "org/a b", "https://x/y", "o--x/n"]
)
def test_a_repository_is_an_organisation_and_a_name(name: str) -> None:
    assert require_repo("org/some.name-1", thing="--data-repo") == "org/some.name-1"
    with pytest.raises(MalformedInputError, match="--data-repo"):
        require_repo(name, thing="--data-repo")


# -- the real client against a loopback server -----------------------------------------------------


class Hub(ThreadingHTTPServer):
    """As much of a hub as one commit needs. ``status``: what the commit is answered with."""

    status = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, str, bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def commits(self) -> list[dict[str, Any]]:
        """Each commit's files by path, and its header."""
        found = []
        for path, _, body in self.asked:
            if "/commit/" in path:
                lines = [json.loads(line) for line in body.splitlines()]
                contents = {
                    line["value"]["path"]: base64.b64decode(line["value"]["content"])
                    for line in lines
                    if line["key"] == "file"
                }
                found.append({"path": path, "head": lines[0]["value"], "contents": contents})
        return found


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append((self.path, self.headers.get("Authorization", ""), body))
        if "/preupload/" in self.path:
            names = [one["path"] for one in json.loads(body)["files"]]
            files = [{"path": n, "uploadMode": "regular", "shouldIgnore": False} for n in names]
            self.answer(200, {"files": files})
        elif "/commit/" in self.path:
            done = {"success": True, "commitOid": "a" * 40, "commitUrl": f"{self.server.url}/c/1"}
            failed = {"error": "no write access"}
            self.answer(self.server.status, done if self.server.status == 200 else failed)
        else:
            self.answer(200, {})

    def answer(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    found = Hub()
    thread = threading.Thread(target=found.serve_forever, daemon=True)
    thread.start()
    yield found
    found.shutdown()
    found.server_close()
    thread.join()


def test_the_real_client_makes_one_commit_of_it(folder: Path, server: Hub) -> None:
    push(target(folder), hub.HfApi(endpoint=server.url), token=TOKEN, message="at head 1")
    (commit,) = server.commits()
    assert commit["path"].startswith("/api/datasets/org/name/commit/main")
    assert commit["head"]["summary"] == "at head 1"
    assert set(commit["contents"]) == {"README.md", "sub/data.jsonl"}
    for name, data in commit["contents"].items():
        expected = hashlib.sha256((folder / name).read_bytes()).digest()
        assert hashlib.sha256(data).digest() == expected
    asked = [(path, token) for path, token, _ in server.asked]
    assert {token for _, token in asked} == {f"Bearer {TOKEN}"}
    assert all(TOKEN not in path and TOKEN.encode() not in body for path, _, body in server.asked)


def test_a_refusing_hub_is_a_failure_of_the_backend(folder: Path, server: Hub) -> None:
    server.status = 403
    with pytest.raises(BackendError, match="was not pushed") as caught:
        push(target(folder), hub.HfApi(endpoint=server.url), token=TOKEN, message="m")
    assert TOKEN not in str(caught.value)


# -- the command -----------------------------------------------------------------------------------


@pytest.fixture
def commit_api(monkeypatch: pytest.MonkeyPatch) -> StubApi:
    api = StubApi()
    monkeypatch.setattr(command, "default_api", lambda: api)
    return api


REPOS = ("--data-repo", "org/data", "--model-repo", "org/models")


def published_by(study: StudySimulator, out: Path, *words: str) -> int:
    return eps_locked(["publish", NAME, "--root", str(study.root), "--out", str(out), *words])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "--dry-run or --push"),
        (("--dry-run", "--push"), "--dry-run or --push"),
        (("--push", "--data-repo", "org/data"), "--model-repo"),
        (("--push", "--data-repo", "data", "--model-repo", "org/models"), "--data-repo"),
    ],
)
def test_malformed_use_is_named(
    published: Published, tmp_path: Path, capsys: Any, words: tuple[str, ...], says: str
) -> None:
    assert published_by(published[0], tmp_path / "out", *words) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_push_needs_the_token_in_the_environment(
    published: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    assert published_by(published[0], tmp_path / "out", "--push", *REPOS) == 3
    assert "HF_TOKEN" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_run_that_is_not_for_publication_is_written_and_never_pushed(
    published: Published,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    commit_api: StubApi,
    capsys: Any,
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert published_by(published[0], tmp_path / "out", "--push", *REPOS) == 3
    assert "marks as not for publication" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert commit_api.commits == []


def test_the_command_writes_compares_and_pushes_both_repositories_once(
    published: Published,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    commit_api: StubApi,
    capsys: Any,
) -> None:
    study, out = published
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    # The scripted model is never for publication; everything else here is as it is.
    monkeypatch.setattr(command, "require_publishable", lambda audited: None)
    assert published_by(study, tmp_path / "out", "--push", *REPOS) == 0
    data, models = commit_api.commits
    assert (data["repo"], data["repo_type"]) == ("org/data", "dataset")
    assert (models["repo"], models["repo_type"]) == ("org/models", "model")
    for commit, part in ((data, "data"), (models, "models")):
        for name, content in commit["contents"].items():
            assert content == (out / part / name).read_bytes()
    said = capsys.readouterr()
    assert "pushed: dataset org/data" in said.out
    for text in (said.out, said.err, *(str(c["contents"]) for c in commit_api.commits)):
        assert TOKEN not in text
    assert not any(
        TOKEN.encode() in path.read_bytes()
        for path in (tmp_path / "out").rglob("*")
        if path.is_file()
    )
    # A second time nothing is written, and the bundle that lies there is verified.
    assert published_by(study, tmp_path / "out", "--push", *REPOS) == 0
    assert "lies there already" in capsys.readouterr().out
    assert [one["repo"] for one in commit_api.commits] == ["org/data", "org/models"] * 2
    # Somebody has had the folder in hand: refused before the hub is asked.
    flip(tmp_path / "out/data/items.jsonl")
    assert published_by(study, tmp_path / "out", "--push", *REPOS) == 3
    assert "is not what the run gives" in capsys.readouterr().err
    assert len(commit_api.commits) == 4


def test_a_dry_run_asks_no_hub_and_needs_no_token(
    published: Published,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    commit_api: StubApi,
) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    assert published_by(published[0], tmp_path / "out", "--dry-run") == 0
    assert commit_api.commits == []
    assert (tmp_path / "out/bundle/README.md").is_file()
