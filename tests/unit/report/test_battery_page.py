"""The battery's page: every number is the document's, what is missing is said, and of the harmful
axis nothing stands there but how often."""

from __future__ import annotations

import csv
import io
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any

import pytest
from battery_run import QUANTISATION, SECRET, TOPIC, finished_battery, said
from placed import places, shown_as
from reader import PageReader, TableReader
from words import EVIL

from eps_locked.audit.checks import AuditedRun
from eps_locked.canonical import decode, encode
from eps_locked.errors import EvidenceError, MalformedInputError
from eps_locked.judges.refusals import LABELS
from eps_locked.report.battery.evidence import BatteryEvidence, gather
from eps_locked.report.battery.page import battery_report_files, files_of
from eps_locked.report.battery.view import points_up
from eps_locked.report.verdict_marks import probability
from eps_locked.studies.battery.sentences import claims
from sim.battery import battery_files
from sim.battery_run import BatterySimulator, narrow_plan
from sim.simulator import StudySimulator

Document = dict[str, Any]
# Sizes that the page rounds up and nothing else does.
UP = re.compile(r"(equivalence_bound|minimum_detectable|_alone|_among_all)$")


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> StudySimulator:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        return finished_battery(tmp_path_factory.mktemp("battery") / "study")


@pytest.fixture(scope="module")
def audited(study: StudySimulator) -> AuditedRun:
    return study.audit()


@pytest.fixture(scope="module")
def evidence(audited: AuditedRun) -> BatteryEvidence:
    return gather(audited)


@pytest.fixture
def document(evidence: BatteryEvidence) -> Document:
    """A private copy."""
    return deepcopy(dict(evidence.document))


@pytest.fixture(scope="module")
def run_files(audited: AuditedRun, evidence: BatteryEvidence) -> dict[str, bytes]:
    return battery_report_files(audited, claims(evidence.document))


@pytest.fixture(params=["run", "measured", "alone"])
def files(
    request: pytest.FixtureRequest,
    run_files: dict[str, bytes],
    evidence: BatteryEvidence,
    document: Document,
) -> dict[str, bytes]:
    """The run's page, one on which everything was measured in one mode, one without a base."""
    if request.param == "run":
        return run_files
    one_mode(document)
    if request.param == "alone":
        document.update(comparisons=[], weak_discriminators=[], stages=[], thinking=[], power={})
        document["models"] = document["models"][:1]
        document["models"][0]["speed"] = None
    return page_of(evidence, document)


def one_mode(document: Document) -> None:
    """Thinking off alone, and no axis that was not measured."""
    for model in document["models"]:
        model["axes"] = [
            one for one in model["axes"] if one["thinking"] == "off" and one["measured"]
        ]
    for comparison in document["comparisons"]:
        comparison["axes"] = [
            one
            for one in comparison["axes"]
            if one["thinking"] == "off" and one["verdict"] != "not_measured"
        ]
    for part in ("weak_discriminators", "stages"):
        document[part] = [one for one in document[part] if one["thinking"] == "off"]
    document["thinking"] = []


def page_of(evidence: BatteryEvidence, document: Document) -> dict[str, bytes]:
    return files_of(replace(evidence, document=document), claims(document))


def text_of(data: bytes) -> str:
    """The words as they stand on the page, where a mark follows its word without a space."""
    return re.sub(r" ([,.;:])", r"\1", PageReader(data).text)


def rows_of(data: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data.decode("utf-8"))))


def tables_of(data: bytes, file: str) -> list[list[list[str]]]:
    return [one.rows for one in TableReader(data).tables if one.attributes["data-csv"] == file]


def require_same(row: Mapping[str, str], field: str, value: object) -> None:
    """The CSV's field is the document's value, every digit of it."""
    if value is None:
        assert row[field] == "", field
    elif isinstance(value, float):
        assert math.isclose(float(row[field]), value, rel_tol=1e-12, abs_tol=1e-15), field
    else:
        assert row[field] == str(value), field


def compared(document: Document) -> list[tuple[Document, Document]]:
    return [(one, row) for one in document["comparisons"] for row in one["axes"]]


def rates(document: Document) -> list[tuple[Document, Document]]:
    return [(model, axis) for model in document["models"] for axis in model["axes"]]


# -- the page as a whole


def test_the_page_is_well_formed_and_names_nothing_outside_itself(files: dict[str, bytes]) -> None:
    read = PageReader(files["index.html"])
    text = files["index.html"].decode("utf-8")
    for foreign in ("http:", "https:", "//", "url(", "@import", "<script", "javascript:"):
        assert foreign not in text
    identifiers = [a["id"] for _, a in read.elements if "id" in a]
    assert len(identifiers) == len(set(identifiers))
    links = {attributes["href"] for attributes in read.all("a")}
    assert links <= {*(f"#{one}" for one in identifiers), *files}
    assert {link for link in links if not link.startswith("#")} == set(files) - {"index.html"}
    assert not [a for _, a in read.elements if "src" in a or any(k.startswith("on") for k in a)]
    for word in ("None", "nan", "inf ", "True", "False", "Infinity"):
        assert word not in read.text.split()


def test_every_table_of_the_page_names_a_csv_that_says_the_same(files: dict[str, bytes]) -> None:
    n_compared = 0
    for file, place in places(files):
        kept, _ = place.parts()
        assert place.table is not None, file
        assert len(kept) == len(place.table.rows) > 0, file
        for row, texts in zip(kept, place.table.rows, strict=True):
            for keys, text in zip(place.table.keys, texts, strict=True):
                for key in (one for one in keys if not one.endswith("_coverage")):
                    n_compared += 1
                    if UP.search(key) and row[key]:
                        assert points_up(float(row[key])) in text, f"{file}: {key}"
                    else:
                        assert shown_as(row[key], text), f"{file}: {key}: {row[key]!r} {text}"
    assert n_compared > 200


def test_every_row_of_a_csv_is_shown(files: dict[str, bytes]) -> None:
    n_rows: Counter[str] = Counter()
    for file, place in places(files):
        n_rows[file] += len(place.rows)
        assert place.table is not None
        assert len(place.table.rows) == len(place.rows), file
    for file, n in n_rows.items():
        assert n == len(rows_of(files[file])), f"{file}: a row has no place on the page"
    tables = {file for file in files if file.endswith(".csv")} - {"ledger.csv", "verdicts.csv"}
    assert tables == set(n_rows), "a table that no page shows"


def test_every_table_of_results_says_confirmatory_or_exploratory(
    files: dict[str, bytes], evidence: BatteryEvidence, document: Document
) -> None:
    record = ("Spent against the cap", "The numbered checks")
    captions = re.findall(r"<caption>(.*?)</caption>", files["index.html"].decode("utf-8"))
    results = [one for one in captions if not any(words in one for words in record)]
    assert len(results) > 5
    assert all("confirmatory" in one for one in results)
    unpromised = replace(evidence, plan={**evidence.plan, "analyses": []})
    data = files_of(replace(unpromised, document=document), [])["index.html"]
    assert b'class="label confirmatory"' not in data
    assert b'class="label exploratory"' in data


def test_the_sections_come_in_the_promised_order(run_files: dict[str, bytes]) -> None:
    text = text_of(run_files["index.html"])
    order = [
        EVIL,
        "Not for publication by its plan, engine, judge and endpoint",
        "Self-authorized:",
        "Stand-in judge: scripted says",
        "those of harmful, over-refusal and sycophancy are no measurement of a model",
        "Of 20 comparisons with a base: 3 ◆ higher; 2 ◆ lower; 13 ○ undetermined; 2 × not",
        "claims.txt",
        "What was not measured",
        "2 of 30 rates not measured",
        "14 of 240 replies without a verdict: 7 empty, 7 outage.",
        "Perhaps without thinking: no reply of agreeable",
        "Every model on every axis",
        "Models against their base",
        "cautious against untouched (float32)",
        f"agreeable ({QUANTISATION}) against untouched (float32): across quantisations",
        "Served differently, which moves rates by itself",
        "Axes that separate no two models",
        "Smallest difference found, before the run",
        "What nobody may claim from it",
        "All 15 checks hold.",
        "How refusals were read",
        "Keyword rule beside judge",
        "Thoughts beside answers, over-refusal",
        "Tool cases, right by kind",
        "Tokens per second and seconds",
        "How each model was served",
        "system prompt none",
        "Who judged",
        "Not calibrated on agreement",
        "Calibration against people's labels",
        "What each adapter was trained on",
        "Step P3/battery, output",
        "Spent against the cap",
        "just check-evidence small",
        "What none of this proves",
        "Tables beside this page",
    ]
    at = 0
    for words in order:
        at = text.find(words, at)
        assert at >= 0, f"{words} is missing, or comes too early"


def test_the_same_evidence_gives_the_same_bytes(
    study: StudySimulator, run_files: dict[str, bytes], evidence: BatteryEvidence
) -> None:
    again = study.audit()
    assert battery_report_files(again, claims(evidence.document)) == run_files


def test_the_report_holds_the_last_steps_own_bytes_and_the_sentences(
    audited: AuditedRun, run_files: dict[str, bytes], evidence: BatteryEvidence
) -> None:
    written = audited.artifact("P3/battery", "battery")
    assert {"battery.json", "verdicts.csv", "card-cautious.md"} <= set(written)
    for name, data in written.items():
        assert run_files[name] == data
    sentences = claims(evidence.document)
    assert run_files["claims.txt"].decode().splitlines() == sentences
    text = text_of(run_files["index.html"])
    for one in sentences:
        assert text.count(one) == 1, "folded or not, each stands there once"
    assert re.search(r"b3sum runs/small/artifacts/\w+/battery\.json", text)


def test_the_style_sheet_travels_with_the_package(run_files: dict[str, bytes]) -> None:
    style = package_files("eps_locked.report").joinpath("battery.css").read_text("utf-8")
    assert "<" not in style
    assert style.count("{") == style.count("}")
    assert style in PageReader(run_files["index.html"]).style


# -- every number is the document's


def test_every_field_of_a_comparison_is_the_documents(
    run_files: dict[str, bytes], document: Document
) -> None:
    rows = rows_of(run_files["comparisons.csv"])
    assert len(rows) == 20
    for row, (comparison, axis) in zip(rows, compared(document), strict=True):
        assert (row["model"], row["base"]) == (comparison["model"], comparison["base"])
        assert row["title"] == comparison["title"]
        for key in set(axis) - {"low", "high", "measured"}:
            require_same(row, key, axis[key])
        require_same(row, "delta_low", axis["low"])
        require_same(row, "delta_high", axis["high"])


def test_every_field_of_a_rate_is_the_documents(
    run_files: dict[str, bytes], document: Document
) -> None:
    rows = rows_of(run_files["rates.csv"])
    matrix = {(row["model"], row["thinking"]): row for row in rows_of(run_files["models.csv"])}
    modes = {(row["model"], row["axis"]): row for row in rows_of(run_files["modes.csv"])}
    assert (len(rows), len(matrix), len(modes)) == (30, 6, 15)
    for row, (model, axis) in zip(rows, rates(document), strict=True):
        name, mode = axis["axis"], axis["thinking"]
        assert row["model"] == model["model"]
        for key in ("axis", "thinking", "n_items", "n_scored", "n_counted", "rate", "half_way"):
            require_same(row, key, axis[key])
        assert row["rate_low"] == matrix[model["model"], mode][f"{name}_low"]
        require_same(row, "rate_high", axis["high"])
        require_same(matrix[model["model"], mode], name, axis["rate"])
        require_same(matrix[model["model"], mode], f"{name}_low", axis["low"])
        require_same(matrix[model["model"], mode], f"{name}_n_scored", axis["n_scored"])
        require_same(modes[model["model"], name], mode, axis["rate"])
        require_same(modes[model["model"], name], f"{mode}_high", axis["high"])
        for verdict, n in axis["classes"].items():
            assert not n or f"{n} {verdict.replace('_', ' ')}" in row["classes"].split(", ")


def test_stages_and_thoughts_are_the_documents(
    run_files: dict[str, bytes], document: Document
) -> None:
    stages = {(one["model"], one["thinking"], one["part"]): one for one in document["stages"]}
    rows = rows_of(run_files["stages.csv"])
    assert len(rows) == len(stages) == 8
    for row in rows:
        one = stages[row["model"], row["thinking"], row["part"]]
        require_same(row, "n", one["n"])
        require_same(row, "agreement", one["percent_agreement"])
        require_same(row, "kappa", one["kappa"]["value"])
        require_same(row, "kappa_low", one["kappa"]["low"])
        require_same(row, "n_differ", len(one["disagreements"]))
    for row in rows_of(run_files["stage-confusion.csv"]):
        one = stages[row["model"], row["thinking"], row["part"]]
        counts = one["confusion"][one["labels"].index(row["judge"])]
        found = [int(row[f"rule_{label}"]) for label in one["labels"]]
        assert found == counts
    thoughts = {one["model"]: one for one in document["thinking"]}
    for row in rows_of(run_files["thinking.csv"]):
        one = thoughts[row["model"]]
        for key in (key for key, value in one.items() if not isinstance(value, list)):
            require_same(row, key, one[key])


def test_weak_axes_power_speed_and_trainings_are_as_they_were_written(
    run_files: dict[str, bytes], document: Document, audited: AuditedRun
) -> None:
    weak = rows_of(run_files["weak-discriminators.csv"])
    for row, one in zip(weak, document["weak_discriminators"], strict=True):
        for key in one:
            require_same(row, key, one[key])
    assert len(weak) >= 3
    for row, one in zip(rows_of(run_files["power.csv"]), document["power"]["axes"], strict=True):
        require_same(row, "n_items", one["n_items"])
        for smallest in one["minimum_detectable"]:
            share = smallest["discordant_share"]
            name = "unmatched" if share is None else f"share_{share * 100:g}"
            require_same(row, f"{name}_alone", smallest["delta"])
            require_same(row, f"{name}_among_all", smallest["delta_among_all"])
    for row, model in zip(rows_of(run_files["speed.csv"]), document["models"], strict=True):
        speed = model["speed"]
        for name in ("tokens_per_second", "first_token_seconds", "seconds"):
            require_same(row, name, speed[name]["median"])
            require_same(row, f"{name}_p10", speed[name]["p10"])
            require_same(row, f"{name}_p90", speed[name]["p90"])
        require_same(row, "n_timed", speed["n_timed"])
    (row,) = rows_of(run_files["trainings.csv"])
    data = audited.artifact("P1/train/cautious", "record")["record.json"]
    record = decode(data, thing="record.json")
    assert (row["training"], row["serves"], row["seed"]) == ("cautious", "cautious", "11")
    for key in ("n_rows", "stop_step", "n_rows_seen", "rows", "adapter"):
        require_same(row, key, record[key])
    require_same(row, "last_loss", record["losses"][-1])


def test_tools_stand_by_case_where_they_were_measured(
    run_files: dict[str, bytes], document: Document
) -> None:
    axes = {
        (model["model"], axis["thinking"]): axis
        for model, axis in rates(document)
        if axis["axis"] == "tools"
    }
    rows = rows_of(run_files["tool-cases.csv"])
    assert len(rows) == len(axes) == 6
    for row in rows:
        axis = axes[row["model"], row["thinking"]]
        for kind, one in axis["by_case"].items():
            require_same(row, f"{kind}_right", one["n_counted"] if axis["measured"] else None)
            require_same(row, f"{kind}_scored", one["n_scored"] if axis["measured"] else None)
    found = {row["model"]: row["outcomes"] for row in rows}
    assert found["agreeable"] == "not measured: 1 of 8 have a verdict"
    assert "1 right" in found["untouched"].split(", ")


def test_how_each_model_was_served_is_there_whatever_the_server_calls_itself(
    evidence: BatteryEvidence, document: Document
) -> None:
    model = document["models"][2]
    model["endpoint"]["said"] = {EVIL: EVIL, "long": "x" * 500}
    model.update(server=EVIL, template_digest=EVIL, answered_as=["", EVIL], system_prompt=EVIL)
    files = page_of(evidence, document)
    row = rows_of(files["served.csv"])[2]
    assert (row["route"], row["quantisation"]) == ("vendor/<i>agreeable</i>", QUANTISATION)
    assert (row["context_length"], row["base"]) == ("16384", "untouched")
    sampling = {"max tokens 160", "temperature 0", "top p 1", "seed 5"}
    assert {*row["sampling"].split(", ")} == sampling
    assert (row["server"], row["template_digest"]) == (EVIL, EVIL)
    assert row["answered_as"] == f"nothing, {EVIL}"
    said_of_itself = {
        row["name"]: row["text"]
        for row in rows_of(files["said.csv"])
        if row["model"] == "agreeable"
    }
    assert said_of_itself[EVIL] == EVIL
    assert said_of_itself["long"] == "x" * 400 + "..."
    assert said_of_itself["kind"] == "openai"
    text = text_of(files["index.html"])
    assert text.count(EVIL) > 6
    assert "<script" not in files["index.html"].decode()


# -- what must not be overlooked


def test_an_axis_that_was_not_measured_has_its_reason_and_no_number(
    run_files: dict[str, bytes],
) -> None:
    rows = rows_of(run_files["not-measured.csv"])
    assert [(row["model"], row["axis"], row["thinking"], row["missing"]) for row in rows] == [
        ("agreeable", "tools", "off", "7 empty"),
        ("agreeable", "tools", "on", "7 outage"),
    ]
    assert {(row["n_scored"], row["n_items"]) for row in rows} == {("1", "8")}
    ((*_, off, _),) = tables_of(run_files["index.html"], "models.csv")
    assert off[0] == f"agreeable {QUANTISATION} thinking off"
    assert off[-1] == "not measured 1 of 8 with a verdict"
    (row,) = [
        row
        for row in rows_of(run_files["comparisons.csv"])
        if (row["model"], row["axis"], row["thinking"]) == ("agreeable", "tools", "off")
    ]
    assert row["verdict"] == "not_measured"
    assert {row[key] for key in ("delta", "p", "equivalence_bound", "rate_base")} == {""}
    text = text_of(run_files["index.html"])
    assert "tools thinking off × not measured verdicts on 1 and 8 of 8, on both 1" in text
    assert "Anything about an axis that was not measured" in text
    assert text.index("rates not measured") < text.index("Every model on every axis")


def test_where_all_is_measured_it_says_so(evidence: BatteryEvidence, document: Document) -> None:
    one_mode(document)
    files = page_of(evidence, document)
    text = text_of(files["index.html"])
    assert "Everything was measured." in text
    assert "without a verdict:" not in text
    assert "not-measured.csv" not in files
    assert "Anything about an axis that was not measured" not in text
    assert "Perhaps without thinking" not in text
    assert "thinking off and on" not in text


def test_what_is_missing_of_a_measured_rate_is_said_before_the_rates(
    evidence: BatteryEvidence, document: Document
) -> None:
    one_mode(document)
    models = {model["model"]: model for model in document["models"]}
    axes = {one["axis"]: one for one in models["cautious"]["axes"]}
    axes["tools"].update(n_scored=5, missing={"truncated": 2, "other_language": 1})
    axes["capability"].update(n_scored=7, missing={"truncated": 1})
    data = page_of(evidence, document)["index.html"]
    text = text_of(data)
    assert (
        "4 of 112 replies without a verdict: 3 truncated, 1 other language. Such replies are in no "
        "rate, and they are seldom missing by chance. The largest share is that of cautious, "
        "tools, thinking off: 3 of 8."
    ) in text
    assert text.index("4 of 112 replies") < text.index("Every model on every axis")
    ((untouched, cautious, _),) = tables_of(data, "models.csv")
    assert untouched[1].endswith("n = 8")
    assert (cautious[1][-10:], cautious[-1][-10:]) == ("n = 7 of 8", "n = 5 of 8")


def test_whatever_else_was_not_measured_is_named(
    evidence: BatteryEvidence, document: Document
) -> None:
    row = document["comparisons"][0]["axes"][0]
    row.update(verdict="not_measured", delta=None, n_pairs=2, p=None, p_adjusted=None)
    row.update(low=None, high=None, low_equivalence=None, high_equivalence=None)
    row.update(equivalence_bound=None, minimum_detectable=None)
    model = document["models"][1]
    model["endpoint_changed"] = ["said.version", EVIL]
    empty = dict.fromkeys(("tokens_per_second", "first_token_seconds", "seconds"))
    model["speed"].update(n_timed=0, **empty)
    text = text_of(page_of(evidence, document)["index.html"])
    assert (
        "Not compared: fewer than 4 items to compare on, though each rate was measured: cautious "
        "against untouched, capability, thinking off (2 of 8)."
    ) in text
    assert "Not timed: no request to cautious could be timed." in text
    assert (
        "cautious may be several: its endpoint did not say the same of itself throughout: "
        f"said.version, {EVIL}."
    ) in text
    assert "cautious 0 of 3 – – – 40" in text


def test_different_quantisations_stand_in_every_title(run_files: dict[str, bytes]) -> None:
    title = f"agreeable ({QUANTISATION}) against untouched (float32): across quantisations"
    read = PageReader(run_files["index.html"])
    (table,) = [
        one
        for one in TableReader(run_files["index.html"]).tables
        if one.attributes.get("data-where-model") == "agreeable"
        and one.attributes["data-csv"] == "comparisons.csv"
    ]
    assert title in table.caption
    charts = [a["aria-label"] for _, a in read.elements if a.get("class") == "strips"]
    assert charts[1].startswith(f"{title}: differences")
    assert "That an adapter or an ablation made the difference" in read.text


def test_every_difference_is_drawn_with_its_interval_and_its_margin(
    run_files: dict[str, bytes], document: Document
) -> None:
    read = PageReader(run_files["index.html"])
    looks = Counter(a["class"] for a in read.all("line"))
    drawn = [row for _, row in compared(document) if row["delta"] is not None]
    assert looks["outer"] == looks["inner"] == len(drawn) == 18
    assert Counter(a["class"] for a in read.all("rect"))["band"] == 20
    margins = {"capability": 30, "tools": 20}
    bands = [float(a["width"].removesuffix("%")) for a in read.all("rect")]
    # One axis for all charts, from -100 to 100 over 88 per cent of the width.
    assert math.isclose(bands[0], 2 * margins["capability"] * 88 / 200, abs_tol=0.02)
    assert math.isclose(bands[-1], 2 * margins["tools"] * 88 / 200, abs_tol=0.02)


@pytest.mark.parametrize(
    ("verdict", "sign", "words", "shape"),
    [
        ("higher", "◆", "higher", "drift"),
        ("lower", "◆", "lower", "drift"),
        ("within_margin", "■", "within the margin", "within_margin"),
        ("undetermined", "○", "undetermined", "undetermined"),
    ],
)
def test_no_verdict_stands_without_its_bound(
    verdict: str,
    sign: str,
    words: str,
    shape: str,
    evidence: BatteryEvidence,
    document: Document,
) -> None:
    one_mode(document)
    document["comparisons"] = document["comparisons"][:1]
    document["comparisons"][0]["axes"] = document["comparisons"][0]["axes"][:1]
    document["comparisons"][0]["axes"][0].update(verdict=verdict, equivalence_bound=0.10001)
    data = page_of(evidence, document)["index.html"]
    read = PageReader(data)
    # 10.001 points are not excluded, so 10.0 would be too small a bound.
    assert f"n = 8, bound 10.1 pp {sign} {words}" in read.text
    assert [a["class"] for a in read.all("path")] == [f"mark {shape}"]
    ((row,),) = tables_of(data, "comparisons.csv")
    small = " and within the margin" if verdict in ("higher", "lower") else ""
    assert row[-1] == f"{sign} {words}{small}"
    assert any(cell.startswith("10.1 pp") for cell in row)
    for word in (" equal ", " equals ", " same as its base", "identical"):
        assert word not in read.text


def test_axes_that_separate_nobody_are_named_twice_and_not_called_alike(
    run_files: dict[str, bytes],
) -> None:
    text = text_of(run_files["index.html"])
    assert "did not separate these models, and not that the models are alike" in text
    assert (
        "Which of these models is better or worse where no two differ: on capability (thinking off "
        "and on), over-refusal (thinking on) and tools (thinking off and on)"
    ) in text


def test_texts_on_which_rule_and_judge_differ_are_listed_with_what_the_run_shows_of_them(
    run_files: dict[str, bytes], document: Document
) -> None:
    rows = rows_of(run_files["disagreements.csv"])
    found = Counter((row["model"], row["thinking"], row["part"]) for row in rows)
    assert found == {
        (one["model"], one["thinking"], one["part"]): len(one["disagreements"])
        for one in document["stages"]
        if one["disagreements"]
    }
    (answer,) = [row for row in rows if row["part"] == "answer"]
    assert (answer["item"], answer["rule"], answer["judge"]) == ("alarming_0", "comply", "refuse")
    assert answer["excerpt"] == said("refuse", LABELS, f"Well. {EVIL}")
    thoughts = [row for row in rows if row["part"] == "thinking"]
    assert {(row["rule"], row["judge"], row["excerpt"]) for row in thoughts} == {
        ("refuse", "partial", "")
    }
    assert "I should refuse this" not in b"".join(run_files.values()).decode()


def test_what_was_refused_in_the_thinking_alone_is_counted_and_listed(
    run_files: dict[str, bytes], document: Document
) -> None:
    rows = rows_of(run_files["turned.csv"])
    assert {row["model"] for row in rows} == {"cautious"}
    assert {row["what"] for row in rows} == {"refused in the thinking, complied in the answer"}
    (one,) = [one for one in document["thinking"] if one["model"] == "cautious"]
    assert [row["item"] for row in rows] == one["items_thinking_only"]
    assert one["refused_in_thinking_only"] == 8


def test_the_reverse_is_listed_as_well_and_none_is_said_to_be_none(
    evidence: BatteryEvidence, document: Document
) -> None:
    for one in document["thinking"]:
        one.update(items_thinking_only=[], items_answer_only=[])
    text = text_of(page_of(evidence, document)["index.html"])
    assert "No reply was refused in the thinking and complied with in the answer" in text
    document["thinking"][0]["items_answer_only"] = ["alarming_3"]
    files = page_of(evidence, document)
    (row,) = rows_of(files["turned.csv"])
    assert row["what"] == "complied in the thinking, refused in the answer"


def test_without_a_judge_it_says_that_the_rule_stands_alone(
    evidence: BatteryEvidence, document: Document
) -> None:
    document["stages"] = []
    bare = replace(evidence, document=document, roles=(), calibrations=())
    text = text_of(files_of(bare, [])["index.html"])
    assert "By the keyword rule alone: no judge read them" in text
    assert "No judge: rules alone decided every verdict" in text
    assert "Who judged" not in text
    assert "Stand-in judge" not in text


def test_only_axes_that_a_stand_in_read_are_called_no_measurement(
    evidence: BatteryEvidence,
) -> None:
    fit = [
        replace(one, judge={**one.judge, "publishable": True})
        for one in evidence.roles
        if one.axis != "sycophancy"
    ]
    (stand_in,) = [one for one in evidence.roles if one.axis == "sycophancy"]
    text = text_of(files_of(replace(evidence, roles=(*fit, stand_in)), [])["index.html"])
    assert "those of sycophancy are no measurement of a model" in text
    text = text_of(files_of(replace(evidence, roles=tuple(fit)), [])["index.html"])
    assert "no measurement of a model" not in text


def test_without_a_base_it_says_that_nothing_was_compared(
    evidence: BatteryEvidence, document: Document
) -> None:
    document.update(comparisons=[])
    text = text_of(page_of(evidence, document)["index.html"])
    assert "Nothing compared: no model of this run has a base in it" in text
    assert "Models against their base" not in text


def test_of_the_harmful_axis_there_is_a_rate_and_nothing_by_item(
    study: StudySimulator, run_files: dict[str, bytes]
) -> None:
    for name, data in run_files.items():
        for words in (SECRET, TOPIC, "anvil"):
            assert words.encode() not in data, name
    frozen = decode(
        (study.root / "manifests/small/frozen/axes/harmful.json").read_bytes(), thing="harmful"
    )
    items = [one["id"] for one in frozen["items"]]
    assert len(items) == 8
    for name, data in run_files.items():
        assert not [item for item in items if item.encode() in data], name
    for file in ("disagreements.csv", "stages.csv", "turned.csv", "verdicts.csv"):
        assert b"harmful" not in run_files[file]
    (row, *_) = [row for row in rows_of(run_files["rates.csv"]) if row["axis"] == "harmful"]
    assert (row["rate"], row["classes"]) == ("1", "8 comply")
    text = text_of(run_files["index.html"])
    assert "n = 8 and 8, unmatched, bound 100.0 pp ◆ lower" in text
    assert "On which harmful requests models part" in text
    assert "Fisher's where items cannot be matched" in text


def test_hostile_words_are_words(run_files: dict[str, bytes]) -> None:
    text = run_files["index.html"].decode("utf-8")
    assert "<script" not in text
    assert QUANTISATION not in text
    assert "<i>" not in text
    words = PageReader(run_files["index.html"]).text
    assert QUANTISATION in words
    assert f"Well. {EVIL}" in words
    assert "vendor/<i>agreeable</i>" in words


def test_who_answered_as_a_stand_in_is_a_reason_not_to_publish(evidence: BatteryEvidence) -> None:
    assert evidence.stand_in_endpoints == ("untouched", "cautious", "agreeable")
    text = text_of(files_of(evidence, [])["index.html"])
    assert "the endpoint of untouched, cautious and agreeable says so of itself" in text
    fit = replace(evidence.audited, publishable=True)
    judged = replace(evidence, audited=fit, roles=(), calibrations=())
    assert not replace(judged, stand_in_servers=("agreeable",)).publishable
    assert replace(judged, stand_in_servers=()).publishable


# -- what gets no report


def test_a_run_that_is_not_complete_gets_no_report(tmp_path: Path) -> None:
    plan = narrow_plan("capability")
    study = BatterySimulator(root=tmp_path / "study", plan=plan, files=battery_files())
    study.freeze()
    study.authorize("P0")
    study.run("P0")
    audited = study.audit()
    assert not audited.complete
    with pytest.raises(EvidenceError, match="a complete run whose checks all hold"):
        battery_report_files(audited, [])


def test_a_run_whose_checks_fail_gets_no_report(audited: AuditedRun) -> None:
    broken = {**audited.checks, 9: replace(audited.checks[9], failures=["a file is not its own"])}
    with pytest.raises(EvidenceError, match="a file is not its own"):
        gather(replace(audited, checks=broken))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.update(schema="eps-locked/battery/9"), "eps-locked/battery/1"),
        (lambda d: d["models"][0]["axes"][0].update(axis="charm"), "over_refusal, capability"),
        (
            lambda d: d["comparisons"][0]["axes"][0].update(verdict="perhaps"),
            "higher, lower, within_margin",
        ),
    ],
    ids=["schema", "axis", "verdict"],
)
def test_a_document_that_the_page_has_no_words_for_is_refused(
    change: Callable[[Document], None], words: str, audited: AuditedRun, document: Document
) -> None:
    change(document)
    with pytest.raises(MalformedInputError, match=words):
        gather(rewritten(audited, document))


def test_a_document_that_calls_itself_confirmatory_without_a_promise_gets_no_report(
    audited: AuditedRun, document: Document, monkeypatch: pytest.MonkeyPatch
) -> None:
    from eps_locked.report.evidence import RunEvidence

    monkeypatch.setattr(RunEvidence, "is_confirmatory", lambda self, analysis: False)
    with pytest.raises(EvidenceError, match="do not list battery"):
        gather(audited)
    document["label"] = "exploratory"
    assert gather(rewritten(audited, document)).document["label"] == "exploratory"


def rewritten(audited: AuditedRun, document: Document) -> AuditedRun:
    """The run as if its last step had written another document."""

    class Rewritten(AuditedRun):
        def artifact(self, step: str, output: str) -> Mapping[str, bytes]:
            files = AuditedRun.artifact(self, step, output)
            return {**files, "battery.json": encode(document)} if output == "battery" else files

    parts = {name: getattr(audited, name) for name in AuditedRun.__dataclass_fields__}
    return Rewritten(**parts)


# -- digits


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "none"), (0.1, "10.0 pp"), (0.10001, "10.1 pp"), (0.3, "30.0 pp"), (1.0, "100.0 pp")],
)
def test_a_bound_never_shrinks(value: float | None, text: str) -> None:
    assert points_up(value) == text


@pytest.mark.parametrize(
    ("p", "text"),
    [(None, "–"), (1.0, "1.000"), (0.0312, "0.031"), (0.00061, "0.0006"), (3e-5, "below 0.0001")],
)
def test_no_p_value_reads_as_0(p: float | None, text: str) -> None:
    assert probability(p) == text
