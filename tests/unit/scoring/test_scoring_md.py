"""docs/scoring.md names what the code reads, refuses and writes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click
import pytest

from eps_locked.cli.score import score_command
from eps_locked.scoring import reading
from eps_locked.scoring.tensor import ALWAYS_OUT, RELEASABLE

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/scoring.md").read_text("utf-8")


def test_every_column_a_table_may_have_is_on_the_page() -> None:
    table = "\n".join(line for line in PAGE.splitlines() if line.startswith("| `"))
    named = set(re.findall(r"`(\w+)`", table))
    assert {*reading._TEXTS, *reading._NUMBERS} <= named


def test_every_reason_to_leave_a_cell_out_is_on_the_page() -> None:
    section = PAGE.split("## S3 ")[1].split("## S4 ")[0]
    for reason in (*ALWAYS_OUT, *RELEASABLE):
        assert f"`{reason}`" in section


def test_options_that_shape_what_is_read_are_on_the_page_and_all_have_help() -> None:
    options = [p for p in score_command.params if isinstance(p, click.Option)]
    assert all(option.help for option in options)
    for name in ("column", "contexts", "context-column", "unit", "direction", "rates", "room"):
        assert f"--{name}" in {opt for option in options for opt in option.opts}
        assert f"--{name}" in PAGE


@pytest.mark.parametrize("name", ["scores", "final-scores", "predictor"])
def test_top_level_fields_of_the_schemas_are_on_the_page(name: str) -> None:
    schema: dict[str, Any] = json.loads((ROOT / f"schemas/{name}.schema.json").read_text("utf-8"))
    assert f"schemas/{name}.schema.json" in PAGE
    assert schema["properties"]["schema"]["const"] in PAGE
    blocks = [
        schema["properties"],
        *(
            schema.get("$defs", {}).get(k, {}).get("properties", {})
            for k in ("behaviour", "predictor", "score")
        ),
    ]
    words = set(re.findall(r"\w+", PAGE))
    for block in blocks:
        assert set(block) - {"schema", "n", "role", "reason", "behaviour", "unit"} <= words
