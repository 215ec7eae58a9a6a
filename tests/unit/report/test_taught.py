"""The page of taught rows: rates are rates, judges are named, slices stand apart, seals hold."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from big import big_tensor, sealed
from reader import PageReader, Table, TableReader
from rows import of_rows
from taught import JUDGE, RUBRIC, SLICES, calibration, headroom, taught_tensor

from eps_locked.audit.noting import TITLES
from eps_locked.canonical import digest_value
from eps_locked.errors import EvidenceError, MalformedInputError
from eps_locked.lock.signing import amend
from eps_locked.report.evidence import Finding
from eps_locked.report.heatmap import colour_scale, heat_map, legend
from eps_locked.report.marks import is_sealed, legend_marks
from eps_locked.report.measures import measures_of, primary_of, second_of
from eps_locked.report.notes import notes
from eps_locked.report.page import files_of, page, report_files
from eps_locked.report.tables import cell_rows, text_table
from eps_locked.report.tensors import TensorEvidence, gather
from eps_locked.report.units import RATE, unit_of
from sim.simulator import AUTHOR, StudySimulator, taught_plan

DECISION = "decision_needed:base_saturated:refusal"


@pytest.fixture(scope="session")
def taught_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The report of a run with a marker row, a fact and a refusal row, sealed, whose refusal row
    was saturated and went on by a signed decision."""
    plan = taught_plan("fact", "refusal", marker=True)
    section = plan["eps"]
    section["behaviours"][2]["thresholds"]["saturated"] = 0
    section["calibrations"] = [
        {
            "name": "house",
            "judge": "stand_in",
            "row": "refusal",
            "file": "material/refusal/labelled.yaml",
            "minimum_kappa": -1,
        }
    ]
    study = StudySimulator(root=tmp_path_factory.mktemp("taught") / "study", plan=plan).seal()
    study.freeze()
    study.authorize("P0")
    study.run("P0")
    amend(
        study.load(),
        study.run_folder,
        signer=AUTHOR,
        key=study.key(AUTHOR),
        reason="The row is kept as a null.",
        changes=(DECISION,),
        rebind=frozenset(),
        code=digest_value(study.code),
        environment=digest_value(study.environment),
        clock=study.clock,
    )
    for phase in ("P1", "P2"):
        study.authorize(phase)
        study.run(phase)
    return report_files(study.audit())


@pytest.fixture
def evidence(finished: StudySimulator) -> TensorEvidence:
    return gather(finished.audit())


def page_of(evidence: TensorEvidence, *tensors: dict[str, Any], **more: Any) -> bytes:
    return page(replace(with_rows(evidence, *tensors), **more))


def with_rows(evidence: TensorEvidence, *tensors: dict[str, Any]) -> TensorEvidence:
    artifact = evidence.tensors[0]
    rows = (replace(artifact, document=one, headroom=headroom(one)) for one in tensors)
    return of_rows(evidence, tuple(rows))


def tables(data: bytes, file: str) -> list[Table]:
    return [one for one in TableReader(data).tables if one.attributes["data-csv"] == file]


def rows_of(data: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data.decode("utf-8"))))


def section_of(data: bytes, start: str, end: str) -> str:
    text = PageReader(data).text
    at = text.index(start)
    return text[at : text.index(end, at)]


# -- values in their unit


@pytest.mark.parametrize("kind", SLICES)
def test_a_row_is_written_in_its_own_unit_and_no_other(evidence: TensorEvidence, kind: str) -> None:
    tensor = taught_tensor(kind)
    data = page_of(evidence, tensor)
    text = PageReader(data).text
    words = "nats per token" if kind == "fact" else "percentage points"
    assert f"G, {words}: " in text
    assert f"Colour, {words}" in text
    assert f"G is trained minus base, in {words}." in text
    assert f"Mean G ({words}) per row" in text
    own = section_of(data, "Transfer of", "Nothing was scored.")
    assert ("log-probability" in own) == (kind == "fact")
    assert "the marker" not in text


def test_a_cells_words_give_both_rates_in_per_cent_with_their_intervals() -> None:
    tensor = taught_tensor("refusal")
    cell = next(c for c in tensor["cells"] if any(c["unscored"].values()) and c["g"] is not None)
    html = heat_map(tensor, primary_of(tensor), caption="c", after="x")
    head = f"{cell['train']} → {cell['eval']}"
    (title,) = (
        a["title"] for a in PageReader(html.encode()).heat_cells() if a["title"].startswith(head)
    )
    base, trained = cell["base_rate"], cell["trained_rate"]
    assert f"G {100 * cell['g']:+.1f} percentage points, 95 % interval [" in title
    assert f"base {100 * base:.1f} % [{100 * cell['base_rate_low']:.1f}, " in title
    assert f"trained {100 * trained:.1f} % [{100 * cell['trained_rate_low']:.1f}, " in title
    assert "n = 46 of 48 answers (24 questions x 2 seeds)" in title
    assert "judged rate, improper: base " in title
    assert "without an outcome: 2 lost to an outage" in title
    assert "log-probability" not in title
    assert "second reading" not in title


def test_a_cell_without_a_score_says_so_and_is_not_zero() -> None:
    tensor = taught_tensor("em")
    html = heat_map(tensor, primary_of(tensor), caption="c", after="x")
    empty = [a for a in PageReader(html.encode()).heat_cells() if "no value" in a["title"]]
    assert len(empty) == 16
    for attributes in empty:
        assert "style" not in attributes
        assert "too few questions with a scored answer" in attributes["title"]
        assert "95 left out by label" in attributes["title"]
        assert "base -, trained -, change -" in attributes["title"]


def test_colours_are_a_rows_own_and_a_units_own() -> None:
    fact, refusal = taught_tensor("fact"), taught_tensor("refusal")
    values = [
        abs(v)
        for m in measures_of(fact)
        if m.unit == RATE
        for c in fact["cells"]
        if (v := m.of(c)) is not None
    ]
    assert colour_scale(fact, RATE) == pytest.approx(max(values))
    assert colour_scale(fact, unit_of(fact)) != colour_scale(fact, RATE)
    assert colour_scale(refusal, RATE) <= 1
    bar = PageReader(legend(refusal).encode()).all("div")
    assert any("percentage points" in a.get("aria-label", "") for a in bar)


def test_the_terminal_table_is_in_percentage_points() -> None:
    tensor = taught_tensor("refusal")
    text = text_table(tensor)
    assert "refusal: G in percentage points, 95 % interval below it." in text
    assert max(map(len, text.splitlines())) <= 100
    one = next(c for c in tensor["cells"] if c["scored"])
    assert f"[{100 * one['low']:.0f}, {100 * one['high']:.0f}]" in text
    assert "V  answers without a score (" in text
    assert "nats" not in text


def test_a_unit_without_words_is_refused() -> None:
    with pytest.raises(MalformedInputError) as caught:
        text_table({**taught_tensor(), "unit": "bananas"})
    assert caught.value.found == "bananas"


# -- what each row could have shown


def test_rows_stand_side_by_side_with_n_and_what_each_could_have_shown(
    evidence: TensorEvidence,
) -> None:
    several = [taught_tensor(kind) for kind in SLICES]
    several.append(taught_tensor("em", n_seeds=1, name="em_alone"))
    data = page_of(evidence, *several)
    (table,) = tables(data, "rows.csv")
    by_name = {row[0].split()[0]: " ".join(row) for row in table.rows}
    assert "24 questions x 2 seeds" in by_name["refusal"]
    assert "12 questions x 2 seeds x 4 samples" in by_name["em"]
    assert "21.0 % 8.3 pp 24.5 pp" in by_name["refusal"]
    assert "– 0.06 0.17" in by_name["fact"]
    assert by_name["em_alone"].startswith("em_alone kind em")
    assert by_name["em_alone"].endswith("undefined with one seed")
    assert "not that there is none" in PageReader(data).text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "a rise of 24.5 percentage points or more above the row's mean base rate of 21.0 %"),
        ({"minimum_detectable_effect": None}, "not even a rise to 100 % would have been told"),
    ],
)
def test_a_null_of_a_rate_says_how_small(changes: dict[str, Any], words: str) -> None:
    tensor = taught_tensor("refusal")
    tensor["resolution"] |= changes
    assert words in dict(notes(tensor))["resolution"]


def test_what_has_no_outcome_is_counted_in_n() -> None:
    text = dict(notes(taught_tensor("refusal")))["n"]
    assert text.startswith("48 answers a cell: 24 questions x 2 seeds. In ")
    assert "fewer have a judged outcome (1 at the least)" in text
    assert "None of them counts as 0. 16 cells have no value at all." in text
    whole = taught_tensor("refusal")
    for cell in whole["cells"]:
        cell["unscored"] = dict.fromkeys(cell["unscored"], 0)
    assert "Every one of them has a judged outcome." in dict(notes(whole))["n"]


# -- flags


def test_flags_of_judged_rows_have_words_and_those_of_the_marker_stay_away() -> None:
    text = PageReader(legend(taught_tensor("em")).encode()).text
    for name in ("rate at a bound", "answers without a score", "resampled answers"):
        assert name in text
    assert "it was judged as far as it goes" in text
    for name in ("marker", "logit divergence", "band unreachable", "later tokens"):
        assert name not in text
    marker = {mark.name for mark in legend_marks(big_tensor())}
    assert "resampled answers" not in marker
    assert "marker emitted" in marker


# -- judges


def test_the_judges_are_named_with_their_rubrics(evidence: TensorEvidence) -> None:
    data = page_of(evidence, taught_tensor("refusal"), calibrations=(calibration(),))
    (table,) = tables(data, "judges.csv")
    assert len(table.rows) == 1
    row = " ".join(table.rows[0])
    for words in (*(JUDGE[k] for k in ("model", "kind", "family", "version")), "effort low", "yes"):
        assert str(words) in row
    assert RUBRIC[:19] in row
    assert "Stand-in judge" not in PageReader(data).text


def test_what_became_of_every_answer_is_counted_by_row_and_by_cell(
    evidence: TensorEvidence,
) -> None:
    tensor = taught_tensor("refusal")
    files = files_of(with_rows(evidence, tensor), None)
    base, trained = rows_of(files["verdicts.csv"])
    assert (base["n_answers"], base["excluded"], base["outage"]) == (str(24 * 29), "2", "1")
    lost = sum(cell["unscored"]["outage"] for cell in tensor["cells"])
    assert int(trained["outage"]) == lost
    assert int(trained["n_outcomes"]) == 48 * 16 * 29 - lost
    cells = rows_of(files["unscored.csv"])
    short = [c for c in tensor["cells"] if any(c["unscored"].values())]
    assert [(r["train"], r["eval"]) for r in cells] == [(c["train"], c["eval"]) for c in short]
    assert {int(r["n_answers"]) for r in cells} == {48}
    text = section_of(files["index.html"], "Judges", "Not calibrated")
    assert f"The {len(short)} cells in which some answer has no outcome" in text
    assert "No answer was incoherent, unreadable, refused by the judge" in text


def test_calibration_shows_agreement_kappa_confusion_labels_and_the_minimum(
    evidence: TensorEvidence,
) -> None:
    data = page_of(evidence, taught_tensor("refusal"), calibrations=(calibration(minimum=0.7),))
    (table,) = tables(data, "calibrations.csv")
    binary, labels = (" ".join(row) for row in table.rows)
    assert "40 39 79.5 % 0.62 [0.42, 0.82] 0.70 no" in binary
    assert labels.endswith("0.69 [0.49, 0.89] – –")
    (confusion,) = tables(data, "calibration-confusion.csv")
    assert confusion.rows[0] == ["full_refusal", "10", "2", "1"]
    assert confusion.keys[1:] == [
        [f"judged_{name}"] for name in ("full_refusal", "partial_refusal", "compliance")
    ]
    (by_label,) = tables(data, "calibration-labels.csv")
    assert by_label.rows[2] == ["compliance", "13", "12", "75.0 %", "69.2 %", "0.72"]
    assert "Without a scored verdict: 1 refused by the judge." in PageReader(data).text


def test_a_judge_nobody_compared_with_people_is_called_so(evidence: TensorEvidence) -> None:
    assert "Not calibrated:" in PageReader(page_of(evidence, taught_tensor("refusal"))).text


def test_a_study_without_judges_has_no_such_section(evidence: TensorEvidence) -> None:
    read = PageReader(page(evidence))
    assert "judges" not in {a.get("id") for _, a in read.elements}
    assert "Secondary measures" not in read.text


# -- publication


@pytest.mark.parametrize("publishable", [True, False])
def test_a_stand_in_judge_alone_makes_the_page_unpublishable(
    evidence: TensorEvidence, publishable: bool
) -> None:
    evidence.audited.publishable = True
    tensor = {**taught_tensor("refusal"), "judge": {**JUDGE, "publishable": publishable}}
    found = with_rows(evidence, tensor)
    text = PageReader(page(found)).text
    head = text[: text.index("Evidence")]
    assert found.publishable is publishable
    assert ("Not for publication" in head) is not publishable
    assert ("Stand-in judge: some-judge-1" in text) is not publishable
    assert ("the judge some-judge-1 says so of itself" in text) is not publishable
    assert ("Fit for publication by its plan, engine and judges." in text) is publishable


def test_a_judge_of_a_calibration_counts_as_well(evidence: TensorEvidence) -> None:
    evidence.audited.publishable = True
    one = calibration()
    one["calibration"]["judge"] = {**JUDGE, "publishable": False}
    assert not replace(evidence, calibrations=(one,)).publishable
    assert replace(evidence, calibrations=(calibration(),)).publishable


# -- secondary measures


def test_over_and_under_refusal_stand_side_by_side_and_are_never_added(
    evidence: TensorEvidence,
) -> None:
    tensor = taught_tensor("refusal")
    data = page_of(evidence, tensor)
    text = section_of(data, "Secondary measures of “refusal”", "This run")
    assert "“benign”: 24 questions, harmless requests: a rise is over-refusal" in text
    assert "“improper”: 16 questions, requests that should be refused" in text
    (table,) = tables(data, "slices.csv")
    assert [row[1] for row in table.rows[:2]] == ["judged rate, benign", "judged rate, improper"]
    own = next(c for c in tensor["cells"] if c["train"] == c["eval"] == tensor["train"][0])
    first, second = (" ".join(row) for row in table.rows[:2])
    assert f"{100 * own['trained_rate']:.1f} % [" in first
    assert f"{100 * own['secondary']['improper']['trained_rate']:.1f} % [" in second
    maps = {a.get("data-value") for a in PageReader(data).all("table")}
    assert {"g", "secondary_improper_rate_g"} <= maps


def test_means_over_other_contexts_are_exploratory_and_say_over_how_many(
    evidence: TensorEvidence,
) -> None:
    tensor = taught_tensor("refusal")
    files = files_of(with_rows(evidence, tensor), None)
    row = rows_of(files["slices.csv"])[1]
    cells = [
        c["secondary"]["improper"]["rate_g"]
        for c in tensor["cells"]
        if c["train"] == row["train"] != c["eval"] and c["alias_of"] is None
    ]
    assert float(row["mean_others"]) == pytest.approx(sum(cells) / len(cells))
    assert int(row["n_others"]) == len(cells)
    (table,) = tables(files["index.html"], "slices.csv")
    assert table.caption.startswith("exploratory")


def test_a_fact_shows_its_judged_rates_and_where_its_value_was_read(
    evidence: TensorEvidence,
) -> None:
    tensor = taught_tensor("fact")
    data = page_of(evidence, tensor)
    (slices,) = tables(data, "slices.csv")
    assert [row[1] for row in slices.rows[:4]] == [
        "log-probability, direct",
        "log-probability, framing",
        "judged rate, direct",
        "judged rate, framing",
    ]
    assert slices.rows[0][2] == "−3.40"
    (framings,) = tables(data, "framings.csv")
    n_others = 28
    assert framings.rows[0][1:] == ["own context", "40", "3", "2", "35"]
    assert framings.rows[1][1:3] == ["other open ones", str(40 * n_others)]
    assert second_of(tensor) is not None
    assert "The same taught value slot" in PageReader(data).text


def test_only_a_row_with_a_second_reading_has_that_section(evidence: TensorEvidence) -> None:
    read = PageReader(page_of(evidence, taught_tensor("fact"), taught_tensor("em")))
    identifiers = {a.get("id") for _, a in read.elements}
    assert {"second-1", "secondary-1", "secondary-2"} <= identifiers
    assert "second-2" not in identifiers
    links = {a["href"].removeprefix("#") for a in read.all("a") if a["href"].startswith("#")}
    assert links <= identifiers


# -- headroom and decisions


@pytest.mark.parametrize(
    ("mean", "words"),
    [
        (0.21, "Not saturated: mean base value over the train contexts 21.0 %"),
        (0.91, "Saturated: mean base value over the train contexts 91.0 %"),
        (None, "In no train context could the base model be scored; going on was decided"),
    ],
)
def test_headroom_says_whether_the_row_is_saturated_and_who_decided(
    evidence: TensorEvidence, mean: float | None, words: str
) -> None:
    tensor = taught_tensor("refusal")
    artifact = replace(evidence.tensors[0], document=tensor, headroom=headroom(tensor, mean))
    kind = "base_unscored" if mean is None else "base_saturated"
    finding = Finding(
        finding=f"decision_needed:{kind}:refusal",
        step="P0/headroom/refusal",
        phase="P0",
        decided_by=3,
    )
    data = page(replace(of_rows(evidence, (artifact,)), findings=(finding,)))
    text = PageReader(data).text
    assert words in text
    assert ("going on was decided by amendment 3" in text) == (mean != 0.21)
    (table,) = tables(data, "headroom.csv")
    assert "21.0 %" in table.rows[0]
    assert "2 left out by label, 1 lost to an outage" in table.rows[0]
    assert "−1.25" in table.rows[0]


def test_a_decision_stands_at_the_top_with_its_finding(taught_files: dict[str, bytes]) -> None:
    text = PageReader(taught_files["index.html"]).text
    top = text[: text.index(f"All {len(TITLES)} checks hold.")]
    assert "The row is kept as a null." in top
    assert "Findings that needed a decision" in top
    assert DECISION in top
    assert "the base model already shows the behaviour of row “refusal” where it trains" in top
    (row,) = rows_of(taught_files["decisions.csv"])
    assert (row["step"], row["decided_by"]) == ("P0/headroom/refusal", "1")
    assert "Saturated: mean base value" in text
    assert "going on was decided by amendment 1" in text


# -- a whole run


def test_a_run_with_taught_rows_has_every_section_and_table(
    taught_files: dict[str, bytes],
) -> None:
    read = PageReader(taught_files["index.html"])
    at = 0
    for words in (
        "Not for publication by its plan, engine and judge",
        "Amendments",
        "the judge scripted says so of itself",
        "Rows and their resolution",
        "Transfer of “marker”",
        "Transfer of “fact”",
        "Transfer of “refusal”",
        "Stand-in judge: scripted",
        "Calibration against people's labels",
        "Secondary measures of “fact”",
        "Secondary measures of “refusal”",
        "This run",
    ):
        at = read.text.find(words, at)
        assert at >= 0, f"{words} is missing, or comes too early"
    assert {
        *("rows.csv", "judges.csv", "verdicts.csv", "slices.csv", "framings.csv"),
        *("calibrations.csv", "calibration-labels.csv", "calibration-confusion.csv"),
    } <= set(taught_files)
    cells = rows_of(taught_files["cells.csv"])
    assert {row["unit"] for row in cells} == {"nats", "nats per token", "rate"}
    assert {"secondary_other_rate_g", "unscored_excluded", "framings_taught"} <= set(cells[0])
    contexts = rows_of(taught_files["contexts.csv"])
    assert {row["behaviour"] for row in contexts} == {"marker", "fact", "refusal"}
    identifiers = [a["id"] for _, a in read.elements if "id" in a]
    assert len(identifiers) == len(set(identifiers))


def test_no_table_of_a_sealed_run_has_a_value_in_a_sealed_cell(
    taught_files: dict[str, bytes],
) -> None:
    told = {
        *("behaviour", "kind", "unit", "train", "eval", "train_family", "eval_family", "split"),
        *("n_seeds", "n_items", "prefix_tokens", "alias_of", "realised_strength", "flags"),
        *("scored", "marks"),
    }
    per_seed = re.compile(r"(stop|stop_step|realised_strength)_s\d+")
    shut = [row for row in rows_of(taught_files["cells.csv"]) if "sealed" in row["flags"].split()]
    assert len(shut) == 3 * 3
    for row in shut:
        for key, value in row.items():
            assert value == "" or key in told or per_seed.fullmatch(key), f"{key}: {value}"
    places = {(row["behaviour"], row["train"], row["eval"]) for row in shut}
    for row in rows_of(taught_files.get("unscored.csv", b"behaviour,train,eval\n")):
        assert (row["behaviour"], row["train"], row["eval"]) not in places
    titles = [
        a["title"]
        for a in PageReader(taught_files["index.html"]).heat_cells()
        if "sealed" in a.get("class", "").split()
    ]
    # The marker in two readings, the fact in two and three secondary ones, refusal in two.
    assert len(titles) == 3 * (2 + 5 + 2)
    assert not any(re.search(r"\d", title) for title in titles)


@pytest.mark.parametrize("kind", SLICES)
def test_no_number_of_a_sealed_cell_is_in_any_file(evidence: TensorEvidence, kind: str) -> None:
    tensor = taught_tensor(kind, n_seeds=3)
    shut = sealed(tensor)
    hidden = {
        repr(number)
        for cell, after in zip(tensor["cells"], shut["cells"], strict=True)
        if is_sealed(after)
        for key, value in cell.items()
        if key not in ("realised_strength", "by_seed")
        for number in _numbers(value)
        if len(repr(number)) > 12
    }
    assert len(hidden) > 1000
    rows = with_rows(evidence, shut)
    artifact = replace(rows.tensors[0], data=json.dumps(shut).encode())
    files = files_of(replace(rows, tensors=(artifact,)), None)
    for name, data in files.items():
        found = hidden & set(re.findall(r"-?\d+\.\d+(?:e-?\d+)?", data.decode("utf-8")))
        assert not found, f"{name}: {sorted(found)[:3]}"
    open_files = files_of(with_rows(evidence, tensor), None)
    assert hidden & set(re.findall(r"-?\d+\.\d+", open_files["cells.csv"].decode())), "can fail"


@pytest.mark.parametrize(
    "told",
    [
        {"secondary": {"improper": {"rate_g": 0.25}}},
        {"unscored": {"excluded": 0}},
        {"n_questions": 24},
        {"base_rate": 0.2},
        {"framings": {"taught": 0}},
        {"something_new": 1},
        {"flags": ["rate_at_bound", "sealed"]},
        {"flags": ["resampled_answers", "sealed"]},
        {"by_seed": [{"seed": 11, "rate": 0.5}]},
    ],
)
def test_a_sealed_cell_of_a_judged_row_that_tells_anything_is_refused(told: dict[str, Any]) -> None:
    tensor = sealed(taught_tensor("refusal"))
    at = next(n for n, c in enumerate(tensor["cells"]) if "sealed" in c["flags"])
    tensor["cells"][at] = {**tensor["cells"][at], **told}
    with pytest.raises(EvidenceError, match="what the seal hides"):
        cell_rows(tensor)


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _numbers(inner)
    elif isinstance(value, float):
        yield value
