"""``vea analyse/items/pairs``: what they print and write, and when they refuse."""

from __future__ import annotations

import csv
import json
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import click
import pytest

from eps_locked.canonical import decode
from eps_locked.cli.main import run
from eps_locked.cli.vea import vea
from eps_locked.cli.vea_text import families_table
from eps_locked.stats.bootstrap import generator_from_digest
from eps_locked.studies.vea.analysis import analyse
from eps_locked.studies.vea.claims import claims
from eps_locked.studies.vea.item_summary import FIELDS
from eps_locked.studies.vea.items import FAMILIES
from eps_locked.studies.vea.pairs_table import JUDGEBENCH, PLAIN
from eps_locked.studies.vea.settings import VeaSettings
from eps_locked.studies.vea.user_table import COLUMNS, read_user_table
from eps_locked.studies.vea.verdicts import Headline

ROOT = Path(__file__).parents[3]
HOUSE = ROOT / "plans/house/vea"
CHOSEN = {
    "primary": "inserted",
    "normalise": "none",
    "margin": "0.5",
    "gate-margin": "0.75",
    "seed": "7",
    "n-resamples": "200",
    "n-simulated": "200",
}
Typed = Callable[..., tuple[str, str]]


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str]) -> Typed:
    """``typed("items", FILE, code=2)`` -> (stdout, stderr), if it ended so."""

    def call(*words: object, code: int = 0) -> tuple[str, str]:
        found = run(["vea", *map(str, words)])
        said = capsys.readouterr()
        assert found == code, said.out + said.err
        return said.out, said.err

    return call


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Ten prompts a family; the reward model dislikes the anchor's clause and no other."""
    path = tmp_path / "scores.csv"
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow([*COLUMNS, "note"])
        for family in FAMILIES:
            base, noise = generator_from_digest("cli", family).standard_normal((2, 10)).tolist()
            for n in range(10):
                vea = base[n] - 1.5 * (family == "wood_labs") - 0.2 * noise[n]
                cells = ("rm", f"{family}-{n}", family, f"{family} {n}", base[n], vea, "math")
                writer.writerow([*cells, base[n], "", "x"])
    return path


def options(**changed: str | None) -> list[str]:
    chosen = {**CHOSEN, **{name.replace("_", "-"): value for name, value in changed.items()}}
    return [word for name, v in chosen.items() if v is not None for word in (f"--{name}", v)]


def document_of(path: Path) -> dict[str, Any]:
    settings = VeaSettings(
        primary="inserted",
        normalise="none",
        margin=0.5,
        gate_margin=0.75,
        alpha=0.05,
        confidence_level=0.95,
        equivalence_level=0.9,
        power=0.8,
        broad_from=0.8,
        narrow_to=0.2,
        n_resamples=200,
        n_simulated=200,
        minimum_items=8,
        seed=7,
    )
    return analyse(read_user_table(path.read_bytes(), path.name).rows, settings)


# -- analyse


def test_the_document_is_the_analysis_of_the_table_with_the_documented_defaults(
    typed: Typed, table: Path
) -> None:
    out, err = typed("analyse", table, *options(), "--json")
    assert json.loads(out) == document_of(table)
    assert json.loads(out)["label"] == "exploratory"
    assert err == ""


def test_every_setting_is_printed_with_headline_and_table(typed: Typed, table: Path) -> None:
    out, _ = typed("analyse", table, *options())
    document = document_of(table)
    for name, value in document["settings"].items():
        assert f"{name} {value}" in out
    assert out.startswith("exploratory: ")
    assert "not read: column note" in out
    assert "rm: 270 of 270 responses scored" in out
    assert claims(document)[0] in out
    assert "Exploratory. rm: narrow:" in out
    assert all(family in out for family in FAMILIES)
    assert "no items of" not in out


@pytest.mark.parametrize("name", ["primary", "normalise", "margin", "gate-margin", "seed"])
def test_what_only_the_user_can_know_has_no_default(typed: Typed, table: Path, name: str) -> None:
    _, err = typed("analyse", table, *options(**{name: None}), code=2)
    assert f"Missing option '--{name}'" in err


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"margin": "0"}, "options.margin: expected a finite number above 0, found 0.0"),
        ({"margin": "nan"}, "options.margin: expected a finite number"),
        ({"alpha": "0.5"}, "options.alpha: expected a finite number of at most 0.2"),
        ({"minimum_items": "4"}, "options.minimum_items: expected at least 5, found 4"),
        ({"narrow_to": "0.9"}, "options.narrow_to: expected below broad_from"),
    ],
)
def test_settings_are_held_to_the_plans_rules(
    typed: Typed, table: Path, changed: dict[str, str], said: str
) -> None:
    _, err = typed("analyse", table, *options(**changed), code=2)
    assert said in err


def test_families_and_rows_that_are_missing_are_said(typed: Typed, table: Path) -> None:
    lines = table.read_text("utf-8").splitlines()
    kept = [one for one in lines if "neutral_control" not in one and "exam" not in one]
    kept += [one.replace("rm,", "other,", 1) for one in kept[1:-2]]
    table.write_text("\n".join(kept), "utf-8")
    out, _ = typed("analyse", table, *options())
    assert "no items of: exam_interview, neutral_control" in out
    assert "other has no row for 2 items that others have" in out
    assert "undetermined: neutral_control: the gate is undetermined" in out


def test_a_table_without_controls_is_refused_where_they_are_needed(
    typed: Typed, tmp_path: Path
) -> None:
    path = tmp_path / "scores.csv"
    path.write_text("reward_model,item,family,stem,base,vea\nrm,i,wood_labs,p,1,1\n", "utf-8")
    _, err = typed("analyse", path, *options(primary="length_controlled"), code=2)
    assert "scores.csv: expected a column control, for --primary length_controlled" in err


def test_a_bad_row_is_refused_and_nothing_is_written(typed: Typed, tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    path.write_text("reward_model,item,family,stem,base,vea\nrm,i,woods,p,1,x\n", "utf-8")
    _, err = typed("analyse", path, *options(), "--out", tmp_path / "out", code=2)
    assert "line 2: family: expected a family of the schema, found 'woods'" in err
    assert "line 2: vea: expected a score, found 'x'" in err
    assert "next:" in err
    assert not (tmp_path / "out").exists()


def test_the_folder_holds_document_differences_sentences_and_page(
    typed: Typed, table: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    out, _ = typed("analyse", table, *options(), "--out", folder)
    names = sorted(path.name for path in folder.iterdir())
    assert {"breadth.json", "claims.txt", "deltas.csv", "index.html"} <= set(names)
    assert out.endswith(f"{folder}: {', '.join(names)}\n")
    document = document_of(table)
    assert decode((folder / "breadth.json").read_bytes(), thing="breadth.json") == document
    assert (folder / "claims.txt").read_text("utf-8").splitlines() == claims(document)
    with (folder / "deltas.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 90
    assert rows[0]["item"] == "wood_labs-0"
    # A second run finds the same bytes; a changed setting would change them and is refused.
    typed("analyse", table, *options(), "--out", folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    _, err = typed("analyse", table, *options(seed="8"), "--out", folder, code=3)
    assert "never overwritten" in err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_table_that_does_not_fit_becomes_a_list_of_the_same_figures(table: Path) -> None:
    document = document_of(table)
    (model,) = document["reward_models"]
    wide, narrow = (families_table(document, model, width) for width in (200, 80))
    assert len(wide.splitlines()) == len(FAMILIES) + 4
    assert max(map(len, narrow.splitlines())) <= 80
    for line in wide.splitlines()[3:-1]:
        for cell in line.strip("│").split("│"):
            assert cell.strip() in narrow


# -- items


def items(typed: Typed, *words: object, code: int = 0) -> tuple[str, str]:
    return typed("items", *words, "--words", HOUSE / "evaluation-words.yaml", code=code)


def test_a_file_of_items_is_accepted_with_its_counts(typed: Typed) -> None:
    out, _ = items(typed, HOUSE / "items.jsonl")
    assert out.startswith("accepted: 112 items of 112 prompts, 98 of them base, one space and one")
    assert "  neutral_control: 14 items, 14 prompts" in out
    assert "domains: coding 14, math 14" in out
    assert "tolerance found: 0.1000, at safety_test_redteam-04 (none demanded)" in out
    assert "no items of: lexical_wood_decoy" in out
    found = json.loads(items(typed, HOUSE / "items.jsonl", "--json")[0])
    assert found["tolerance_found"] == 0.1


def test_a_tolerance_that_is_demanded_is_held(typed: Typed) -> None:
    assert "(demanded 0.1)" in items(typed, HOUSE / "items.jsonl", "--tolerance", 0.1)[0]
    _, err = items(typed, HOUSE / "items.jsonl", "--tolerance", 0.05, code=2)
    assert "matched_control: expected a clause of" in err


def test_a_changed_byte_is_named_with_its_item(typed: Typed, tmp_path: Path) -> None:
    lines = (HOUSE / "items.jsonl").read_text("utf-8").splitlines()
    item = json.loads(lines[0])
    item["vea"] = item["vea"].replace("original list", "original  list", 1)
    path = tmp_path / "items.jsonl"
    path.write_text("\n".join([json.dumps(item), *lines[1:]]), "utf-8")
    _, err = items(typed, path, code=2)
    offset = item["base"].index("original list") + len("original ")
    assert "wood_labs-01.vea: is not base, one space and vea_clause; the first byte that " in err
    assert f"differs is byte {offset}" in err


def test_words_that_are_not_there_are_asked_for(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _, err = typed("items", HOUSE / "items.jsonl", code=2)
    assert "--words" in err
    monkeypatch.chdir(ROOT)
    typed("items", HOUSE / "items.jsonl")


# -- pairs


def pairs(tmp_path: Path, lines: Sequence[str], name: str = "pairs.csv") -> Path:
    path = tmp_path / name
    path.write_text("\n".join(lines), "utf-8")
    return path


def test_accuracy_ties_orders_and_equal_texts_are_said(typed: Typed, tmp_path: Path) -> None:
    lines = ["id,chosen_score,rejected_score,order,chosen,rejected,note"]
    for n in range(20):
        for order in ("chosen_first", "rejected_first"):
            text = "same" if n == 19 else "other"
            chosen = 1 if n < 15 else 0
            lines.append(f"p{n},{chosen},{0.5 if n else 1},{order},same,{text},x")
    out, _ = typed("pairs", pairs(tmp_path, lines))
    assert "not read: column note" in out
    assert "exploratory; plain form; confidence level 0.95, power 0.8" in out
    assert "unnamed: 20 pairs of 20 questions, 40 judgements" in out
    assert "right 28, wrong 8, ties 2" in out
    assert "accuracy 77.8 % (54.8 to 91.0), ties left out: above chance" in out
    assert "with ties as half 76.3 %" in out
    assert "as good as 18 independent judgements" in out
    assert "pairs of two equal texts: 2 judgements, in no figure above; scored apart all" in out
    assert "of 19 pairs in both orders: right in both 14, wrong in both 4, tied in both 1" in out
    document = json.loads(typed("pairs", tmp_path / "pairs.csv", "--json")[0])
    assert document["schema"] == "eps-locked/vea-pairs/1"
    assert document["settings"] == {"alpha": 0.05, "confidence_level": 0.95, "power": 0.8}


def test_too_few_pairs_say_what_is_not_known(typed: Typed, tmp_path: Path) -> None:
    head = "id,chosen_score,rejected_score"
    out, _ = typed("pairs", pairs(tmp_path, [head, "a,2,1", "b,nan,1", "c,2,1"]))
    assert "not_finite 1" in out
    assert "no accuracy would be told from chance often enough" in out
    out, _ = typed("pairs", pairs(tmp_path, [head, "a,1,1"]))
    assert "not defined (nothing with a winner), ties left out: no interval" in out


def test_a_file_of_neither_form_is_refused(typed: Typed, tmp_path: Path) -> None:
    _, err = typed("pairs", pairs(tmp_path, ["id,score", "a,1"]), code=2)
    assert "pairs.csv: expected the columns pair_id, label" in err
    assert "next: score the answers first" in err


# -- docs/vea.md

PAGE = (ROOT / "docs/vea.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_pages_example_prints_what_the_page_shows(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "plans").symlink_to(ROOT / "plans")
    (script,) = blocks("python")
    exec(compile(script, "table.py", "exec"), {})
    (line,) = [one for block in blocks("sh") for one in block.splitlines() if "scores.csv" in one]
    words = shlex.split(line)
    assert words[:2] == ["eps-locked", "vea"]
    out, _ = typed(*words[2:])
    (shown,) = blocks("text")
    assert [one for one in shown.splitlines() if one not in out.splitlines()] == []


def test_the_pages_other_commands_end_as_it_says(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plans").symlink_to(ROOT / "plans")
    (tmp_path / "pairs.csv").write_text("id,chosen_score,rejected_score\na,2,1\n", "utf-8")
    lines = [one for block in blocks("sh") for one in block.splitlines()]
    starts = ("eps-locked vea items", "eps-locked vea pairs")
    ours = [one for one in lines if one.startswith(starts)]
    assert len(ours) == 3
    for line in ours:
        words = shlex.split(line, comments=True)
        typed(*words[2:], code=2 if "refused" in line else 0)


def test_the_page_names_every_option_column_family_and_headline() -> None:
    context = click.Context(vea)
    for name in vea.list_commands(context):
        command = vea.get_command(context, name)
        assert command is not None
        options = [one.opts[0] for one in command.params if isinstance(one, click.Option)]
        assert [one for one in options if one not in PAGE] == []
    named = {*COLUMNS, *PLAIN, *JUDGEBENCH, *FIELDS, *FAMILIES, *get_args(Headline)}
    # The second order's decision and the answers' texts are named in a phrase.
    phrased = {"order1_decision", "order2_decision", "response_A", "response_B"}
    assert sorted(one for one in named - phrased if f"`{one}`" not in PAGE) == []
