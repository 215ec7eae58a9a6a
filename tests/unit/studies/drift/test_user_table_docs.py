"""docs/drift-tables.md: its example is run, and its tables name what the code knows."""

from __future__ import annotations

import re
import shlex
import textwrap
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from eps_locked.canonical import decode
from eps_locked.cli.drift import analyse_command, drift
from eps_locked.studies.drift.user_table import COLUMNS

PAGE = (Path(__file__).parents[4] / "docs/drift-tables.md").read_text("utf-8")


def block(language: str) -> str:
    (found,) = re.findall(rf"^ *```{language}\n(.*?)^ *```$", PAGE, re.MULTILINE | re.DOTALL)
    return textwrap.dedent(found)


def names(first_cells: list[str]) -> list[str]:
    return [name for cell in first_cells for name in re.findall(r"`([^` ]+)[^`]*`", cell)]


def first_column(head: str) -> list[str]:
    lines = PAGE.split(head, 1)[1].split("\n\n", 1)[0].splitlines()
    return names([line.split("|")[1] for line in lines if line.startswith("| ") and "`" in line])


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Path]:
    """What the page's command prints on the page's table, and where it wrote."""
    monkeypatch.chdir(tmp_path)
    exec(compile(block("python"), "replies.py", "exec"), {})
    words = shlex.split(block("sh"))
    assert words[:2] == ["eps-locked", "drift"]
    result = CliRunner().invoke(drift, words[2:])
    assert result.exit_code == 0
    return result.output, tmp_path / "found"


def test_the_example_prints_what_the_page_shows(example: tuple[str, Path]) -> None:
    assert example[0] == block("text")


def test_the_example_writes_the_keys_that_the_page_describes(example: tuple[str, Path]) -> None:
    document: Any = decode((example[1] / "drift.json").read_bytes(), thing="drift.json")
    assert {*first_column("| key | holds |\n"), "schema"} == set(document)
    effect = document["comparisons"][0]["batteries"]["all"]
    assert effect["noise"]["n_twice"] == 0
    assert effect["noise"]["classifier"] is None


def test_the_page_names_every_column_and_option() -> None:
    assert sorted(first_column("| column | | meaning |\n")) == sorted(COLUMNS)
    options = {
        option for one in analyse_command.params for option in one.opts if option.startswith("--")
    }
    assert isinstance(analyse_command, click.Command)
    named = set(re.findall(r"`(--[a-z-]+)", PAGE))
    assert options == named
