"""``score`` from outside: tables anybody may bring, what it prints, and files it must not write."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eps_locked.canonical import decode
from eps_locked.cli.main import run
from eps_locked.scoring.predictor import predictor_bytes
from unit.scoring.worlds import noise, predictor, table, world

QUICK = ("--permutations", "49", "--resamples", "100")
GRID = table(world(1), n_train=6, n_eval=9)
Said = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = [f"{c.train},{c.eval},{c.g}" for c in GRID.cells]
    (tmp_path / "cells.csv").write_text("\n".join(["from,to,delta", *lines]) + "\n")
    families = [f"{name},{family}" for name, family in GRID.families.items()]
    (tmp_path / "contexts.csv").write_text("\n".join(["context_id,family", *families]) + "\n")
    own = noise(3)
    values = [f"{c.train},{c.eval},{own('marker', c.train, c.eval)}" for c in GRID.cells]
    (tmp_path / "kl.csv").write_text("\n".join(["train,eval,value", *values]) + "\n")
    metric = predictor([GRID], noise(4), metric="other")
    (tmp_path / "other.json").write_bytes(predictor_bytes(metric))
    return tmp_path


@pytest.fixture
def said(folder: Path, capsys: pytest.CaptureFixture[str]) -> Said:
    """``said(*more)`` -> (exit code, standard output, standard error)."""

    def call(*more: str) -> tuple[int, str, str]:
        code = run(
            [
                "score",
                "--tensor",
                str(folder / "cells.csv"),
                *("--column", "train=from", "--column", "eval=to", "--column", "g=delta"),
                *("--behaviour", "marker", "--contexts", str(folder / "contexts.csv")),
                *QUICK,
                *more,
            ]
        )
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_tables_and_documents_are_scored_side_by_side(folder: Path, said: Said) -> None:
    code, out, err = said(
        "--predictor",
        str(folder / "kl.csv"),
        "--polarity",
        "more",
        "--predictor",
        str(folder / "other.json"),
    )
    assert (code, err) == (0, "")
    lines = out.splitlines()
    first, second, *beyond = [line for line in lines if line.startswith(("  kl ", "  other "))]
    assert len(beyond) == 2
    assert first.startswith("  kl")
    assert re.search(r"\] +48 ", first)
    assert "[" in first
    assert second.startswith("  other")
    assert "48 of 54 cells (out: 6 diagonal)" in out


def test_json_and_the_written_document_say_the_same(folder: Path, said: Said) -> None:
    out_path = folder / "scores.json"
    options = ("--predictor", str(folder / "other.json"), "--out", str(out_path))
    code, out, _ = said(*options, "--json")
    assert code == 0
    assert json.loads(out) == decode(out_path.read_bytes(), thing="scores.json")


def test_without_a_predictor_the_tensor_itself_is_described(said: Said) -> None:
    code, out, _ = said()
    assert code == 0
    assert "mirror pairs: antisymmetric" in out
    assert "proximity in G" in out


def test_an_existing_file_is_not_overwritten(folder: Path, said: Said) -> None:
    (folder / "scores.json").write_text("mine")
    code, _, err = said("--out", str(folder / "scores.json"))
    assert (code, "exists" in err) == (3, True)
    assert (folder / "scores.json").read_text() == "mine"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--predictor", "kl.csv"), "--polarity"),
        (("--predictor", "kl.csv", "--polarity", "larger"), "larger"),
        (
            ("--predictor", "kl.csv", "--polarity", "more", "--metric", "a", "--metric", "b"),
            "--metric",
        ),
        (("--column", "delta"), "OURS=THEIRS"),
        (("--column", "colour=delta"), "is not one a tensor has"),
        (("--permutations", "3"), "n_permutations"),
        (("--role", "reader=other"), "roles"),
    ],
)
def test_malformed_use_is_named_and_writes_nothing(
    folder: Path, said: Said, more: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())
    code, out, err = said(*more, "--out", "scores.json")
    assert (code, out) == (2, "")
    assert words in err
    assert sorted(folder.iterdir()) == before


def test_a_document_of_ours_needs_no_options(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from eps_locked.canonical import encode

    cells: list[dict[str, Any]] = [
        {"train": c.train, "eval": c.eval, "g": c.g, "flags": [], "split": "open"}
        for c in GRID.cells
    ]
    document = {
        "schema": "eps-locked/eps-tensor/1",
        "behaviour": "marker",
        "unit": "nats",
        "train": list(GRID.train),
        "eval": list(GRID.eval),
        "cells": cells,
    }
    (folder / "tensor.json").write_bytes(encode(document))
    code = run(
        [
            "score",
            "--tensor",
            str(folder / "tensor.json"),
            "--predictor",
            str(folder / "other.json"),
            *QUICK,
        ]
    )
    assert code == 0
    assert "marker: " in capsys.readouterr().out
