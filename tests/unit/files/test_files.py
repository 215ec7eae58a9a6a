"""How bytes reach the disk, and how they are read back."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from eps_locked import files
from eps_locked.errors import BackendError, MalformedInputError, RefusedError


class Stop(Exception):
    """Ends an act at one of its write points, as a crash would."""


def stop_at(monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    def stops(path: Path, reached: str) -> None:
        if reached == stage:
            raise Stop

    monkeypatch.setattr(files, "write_point", stops)


@pytest.mark.parametrize("there", ["file", "empty file", "folder", "link", "dangling link"])
def test_write_once_never_overwrites(tmp_path: Path, there: str) -> None:
    path = tmp_path / "a"
    other = tmp_path / "other"
    other.write_text("other")
    if there == "folder":
        path.mkdir()
    elif there == "link":
        path.symlink_to(other)
    elif there == "dangling link":
        path.symlink_to(tmp_path / "nowhere")
    else:
        path.write_text("" if there == "empty file" else "old")
    with pytest.raises(RefusedError, match="never overwritten"):
        files.write_once(path, b"new")
    assert other.read_text() == "other"
    assert not (tmp_path / "nowhere").exists()
    assert sorted(os.listdir(tmp_path)) == ["a", "other"]


def test_write_once_makes_the_folders_it_needs(tmp_path: Path) -> None:
    files.write_once(tmp_path / "a/b/c", b"data")
    assert (tmp_path / "a/b/c").read_bytes() == b"data"


@pytest.mark.parametrize("stage", ["write", "rename"])
def test_replace_is_the_old_file_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    path = tmp_path / "a"
    files.replace_file(path, b"old")
    stop_at(monkeypatch, stage)
    with pytest.raises(Stop):
        files.replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    monkeypatch.undo()
    files.replace_file(path, b"newer")
    assert path.read_bytes() == b"newer"
    assert os.listdir(tmp_path) == ["a"]


def test_replace_puts_a_file_where_a_link_was_and_leaves_its_target(tmp_path: Path) -> None:
    target, path = tmp_path / "target", tmp_path / "a"
    target.write_text("target")
    path.symlink_to(target)
    files.replace_file(path, b"new")
    assert target.read_text() == "target"
    assert not path.is_symlink()


@pytest.mark.parametrize("stage", ["mkdir", "write", "rename"])
def test_a_folder_is_published_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    path = tmp_path / "folder"
    contents = {"a.json": b"a", "deep/b.json": b"b"}
    stop_at(monkeypatch, stage)
    with pytest.raises(Stop):
        files.publish_folder(path, contents)
    assert not path.exists()
    monkeypatch.undo()
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    files.publish_folder(path, contents)
    assert {name: (path / name).read_bytes() for name in contents} == contents
    assert all(p.read_bytes() == data for p, data in before.items()), "what was left is kept"


def test_a_published_folder_is_not_replaced(tmp_path: Path) -> None:
    files.publish_folder(tmp_path / "folder", {"a": b"old"})
    with pytest.raises(BackendError):
        files.publish_folder(tmp_path / "folder", {"a": b"new"})
    assert (tmp_path / "folder/a").read_bytes() == b"old"


@pytest.mark.parametrize(("stage", "left"), [("append", b"one\n"), ("append-half", b"one\ntw")])
def test_an_append_that_is_cut_leaves_a_recognisably_torn_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, left: bytes
) -> None:
    path = tmp_path / "log"
    files.append_line(path, b"one")
    stop_at(monkeypatch, stage)
    with pytest.raises(Stop):
        files.append_line(path, b"twoo")
    assert path.read_bytes() == left


def test_an_append_that_does_not_fit_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    files.append_line(path, b"one")

    def full(path: Path, stage: str) -> None:
        if stage == "append-half":
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "write_point", full)
    with pytest.raises(BackendError, match="No space left"):
        files.append_line(path, b"two")
    assert path.read_bytes() == b"one\n"


def test_a_line_holds_no_newline(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="newline"):
        files.append_line(tmp_path / "log", b"a\nb")
    assert not (tmp_path / "log").exists()


def test_an_append_does_not_follow_a_link(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("x")
    (tmp_path / "log").symlink_to(tmp_path / "target")
    with pytest.raises(BackendError, match="log"):
        files.append_line(tmp_path / "log", b"one")
    assert (tmp_path / "target").read_text() == "x"


def test_the_tail_is_cut_by_so_many_bytes(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"one\ntw")
    files.truncate_tail(tmp_path / "log", 2)
    assert (tmp_path / "log").read_bytes() == b"one\n"


def test_what_is_set_aside_is_kept_each_time(tmp_path: Path) -> None:
    shelf = tmp_path / "aside"
    for text in ("first", "second", "third"):
        (tmp_path / ".a.incoming").write_text(text)
        files.set_aside(tmp_path / ".a.incoming", shelf)
    kept = {path.name: path.read_text() for path in shelf.iterdir()}
    assert kept == {
        "0001-a.incoming": "first",
        "0002-a.incoming": "second",
        "0003-a.incoming": "third",
    }


def test_what_is_set_aside_may_be_a_folder_or_a_link(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/a").write_text("a")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("folder", "link"):
        files.set_aside(tmp_path / name, tmp_path / "aside")
    assert (tmp_path / "aside/0001-folder/a").read_text() == "a"
    assert (tmp_path / "aside/0001-link").is_symlink()


def test_removing_what_is_gone_is_no_error(tmp_path: Path) -> None:
    files.remove_file(tmp_path / "a")
    (tmp_path / "a").write_text("")
    files.remove_file(tmp_path / "a")
    assert not (tmp_path / "a").exists()
    (tmp_path / "a").mkdir()
    with pytest.raises(BackendError):
        files.remove_file(tmp_path / "a")


READERS: list[Any] = [files.read_bytes, files.digest_file]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    ("there", "kind"),
    [
        ("nothing", MalformedInputError),
        ("folder", MalformedInputError),
        ("pipe", MalformedInputError),
        ("link", RefusedError),
        ("dangling", RefusedError),
        ("below a file", MalformedInputError),
    ],
)
def test_only_a_regular_file_is_read(
    tmp_path: Path, read: Any, there: str, kind: type[Exception]
) -> None:
    path = tmp_path / "a"
    (tmp_path / "target").write_text("x")
    if there == "folder":
        path.mkdir()
    elif there == "pipe":
        os.mkfifo(path)
    elif there == "link":
        path.symlink_to(tmp_path / "target")
    elif there == "dangling":
        path.symlink_to(tmp_path / "nowhere")
    elif there == "below a file":
        path = tmp_path / "target" / "a"
    with pytest.raises(kind) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert type(caught.value) is kind


def test_a_file_over_the_limit_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert files.read_bytes(tmp_path / "a", limit=5) == b"12345"
    with pytest.raises(MalformedInputError, match="expected at most 4 bytes, found 5 bytes"):
        files.read_bytes(tmp_path / "a", limit=4)


@pytest.mark.parametrize("size", [0, 1, 4096, (1 << 20) - 1, 1 << 20, (1 << 20) + 1])
def test_large_and_small_files_have_the_digest_of_their_bytes(tmp_path: Path, size: int) -> None:
    from eps_locked.canonical import digest_bytes

    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    (tmp_path / "a").write_bytes(data)
    assert files.digest_file(tmp_path / "a") == (digest_bytes(data), size)


def test_a_walk_sees_hidden_files_and_does_not_enter_links(tmp_path: Path) -> None:
    (tmp_path / "root/.hidden").mkdir(parents=True)
    (tmp_path / "root/.hidden/a").write_text("")
    (tmp_path / "root/b").write_text("")
    (tmp_path / "root/link").symlink_to(tmp_path)
    assert list(files.walk_files(tmp_path / "root")) == [".hidden/a", "b", "link"]
    assert list(files.walk_files(tmp_path / "nowhere")) == []


def test_a_folder_that_cannot_be_listed_is_not_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(BackendError, match="cannot be listed"):
        list(files.walk_files(tmp_path))


def test_permissions_are_a_backends_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*arguments: Any, **named: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", denied)
    for act in (
        lambda: files.read_bytes(tmp_path / "a"),
        lambda: files.replace_file(tmp_path / "a", b""),
        lambda: files.append_line(tmp_path / "a", b""),
    ):
        with pytest.raises(BackendError, match="Permission denied"):
            act()
