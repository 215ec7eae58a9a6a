"""Tensors and predictors made to mislead: refused whole, by name, and nothing is written.

What each tries: drop an inconvenient row, mix percentages with shares, slip in a context nobody
measured, answer a cell twice, fill a hole with NaN, read a sealed value, answer where it is easy.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from eps_locked.canonical import encode
from eps_locked.cli.main import run
from eps_locked.scoring.predictor import predictor_bytes
from unit.scoring.worlds import noise, predictor, table, world

GRID = table(world(1), n_train=5, n_eval=8)
Rows = list[dict[str, str]]
Edit = Callable[[Rows], object]


def rows() -> Rows:
    return [
        {"behaviour": "marker", "train": c.train, "eval": c.eval, "g": str(c.g), "unit": "nats"}
        for c in GRID.cells
    ]


def written(table_rows: Rows) -> bytes:
    head = list(table_rows[0])
    lines = [",".join(row[key] for key in head) for row in table_rows]
    return ("\n".join([",".join(head), *lines]) + "\n").encode()


def attempt(folder: Path, tensor: bytes, values: bytes) -> int:
    (folder / "cells.csv").write_bytes(tensor)
    (folder / "metric.json").write_bytes(values)
    contexts = "\n".join(["id,family", *(f"{n},{f}" for n, f in GRID.families.items())])
    (folder / "contexts.csv").write_text(contexts + "\n")
    options = ["--unit", "nats", "--permutations", "49", "--resamples", "100"]
    return run(
        [
            "score",
            *("--tensor", str(folder / "cells.csv"), "--predictor", str(folder / "metric.json")),
            *("--contexts", str(folder / "contexts.csv"), "--out", str(folder / "scores.json")),
            *options,
        ]
    )


METRIC = predictor([GRID], noise(4))
GOOD = predictor_bytes(METRIC)


def test_the_honest_pair_is_scored(tmp_path: Path) -> None:
    """Else every refusal below would prove nothing."""
    assert attempt(tmp_path, written(rows()), GOOD) == 0
    assert (tmp_path / "scores.json").exists()


TENSORS: dict[str, tuple[Edit, str]] = {
    "a missing cell": (lambda r: r.pop(13), "row c01 misses 1 of 8 eval contexts (c05)"),
    "a wrong unit in one row": (
        lambda r: r[3].update(unit="percent"),
        "units nats and percent in one behaviour",
    ),
    "another unit throughout": (
        lambda r: [row.update(unit="rate") for row in r],
        "unit rate, expected nats",
    ),
    "an unknown context": (
        lambda r: [row.update(eval="c99") for row in r if row["eval"] == "c07"],
        "context c99 is not in the table of contexts",
    ),
    "a cell twice": (lambda r: r.append(dict(r[4], g="9")), "cell c00 -> c04 stands twice"),
    "NaN": (lambda r: r[5].update(g="nan"), "expected a finite number"),
    "infinity": (lambda r: r[5].update(g="1e999"), "expected a finite number"),
    "a value behind a seal": (
        lambda r: [row.update(flags="sealed" if n == 6 else "") for n, row in enumerate(r)],
        "is sealed and holds a value",
    ),
    "a split of its own": (
        lambda r: [row.update(split="open" if n else "hidden") for n, row in enumerate(r)],
        "split hidden",
    ),
}


@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_with(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit, words = TENSORS[name]
    changed = rows()
    edit(changed)
    assert attempt(tmp_path, written(changed), GOOD) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "scores.json").exists()


def test_a_whole_row_gone_is_found_by_the_predictor_that_covers_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table cannot know how many rows there should be; a metric frozen for all of them does."""
    changed = [row for row in rows() if row["train"] != "c02"]
    assert attempt(tmp_path, written(changed), GOOD) == 2
    assert "c02 is no train context of the tensor" in capsys.readouterr().err
    assert not (tmp_path / "scores.json").exists()


def edited(change: Callable[[list[dict[str, object]]], object]) -> bytes:
    from eps_locked.canonical import decode

    document = decode(GOOD, thing="metric")
    change(document["cells"])
    return encode(document)


PREDICTORS: dict[str, tuple[bytes, str]] = {
    "a cell left out": (edited(lambda c: c.pop(7)), "cell c00 -> c07 has no value"),
    "a cell twice": (edited(lambda c: c.append(dict(c[0], value=5))), "stands twice"),
    "an invented cell": (
        edited(lambda c: c.append({**c[0], "eval": "c50"})),
        "c50 is no eval context",
    ),
    "another behaviour": (
        edited(lambda c: c.append({**c[0], "behaviour": "fact"})),
        "behaviour fact is not in the tensor",
    ),
    "a field nobody reads": (edited(lambda c: c[0].update(weight=3)), "is not a known field"),
    "a text for a value": (edited(lambda c: c[0].update(value="high")), "expected a finite number"),
    "NaN": (GOOD.replace(b'"value":', b'"value":NaN,"v":', 1), "NaN is not JSON"),
    "a key twice": (GOOD.replace(b'"value":', b'"value":1,"value":', 1), "duplicate key"),
}


@pytest.mark.parametrize("name", PREDICTORS)
def test_a_predictor_with(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values, words = PREDICTORS[name]
    assert values != GOOD
    assert attempt(tmp_path, written(rows()), values) == 2
    error = capsys.readouterr().err
    assert words in error or words.replace("a finite number", "a number") in error
    assert not (tmp_path / "scores.json").exists()


def test_all_problems_are_listed_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = rows()
    changed[1].update(g="nan")
    changed[2].update(unit="percent")
    changed.append(dict(changed[9]))
    changed.pop(20)
    assert attempt(tmp_path, written(changed), GOOD) == 2
    error = capsys.readouterr().err
    for words in ("finite number", "units nats and percent", "stands twice", "misses 1 of 8"):
        assert words in error
