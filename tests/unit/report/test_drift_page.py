"""The drift page: what could have been seen comes first, and every number has its place."""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from analysed import analysed_document
from drift_documents import (
    OF_THREE,
    agreeing_document,
    bare_document,
    claims_of,
    drift_document,
    lone_document,
    score_document,
    small_document,
)
from drift_run import ASK, CHECKER, drift_evidence, with_drift
from placed import compared, places
from reader import PageReader, TableReader
from taught import JUDGE, RUBRIC
from words import EVIL

from eps_locked.audit.noting import TITLES
from eps_locked.canonical import decode, encode
from eps_locked.errors import EvidenceError, MalformedInputError
from eps_locked.report.drift.evidence import gather
from eps_locked.report.drift.nulls import chance_range
from eps_locked.report.drift.page import (
    drift_report_files,
    files_of,
    table_files,
    table_page,
)
from eps_locked.report.verdict_marks import p_column
from eps_locked.studies.drift.claims import claims
from sim.drift import drift_files as drift_study_files
from sim.drift import drift_plan
from sim.simulator import StudySimulator

SPARSE = {
    "small": small_document,
    "score": score_document,
    "agreeing": agreeing_document,
    "lone": lone_document,
    "bare": bare_document,
}


@pytest.fixture(scope="module")
def run_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The report of a run of the study itself, with the scripted model."""
    root = tmp_path_factory.mktemp("drift") / "study"
    study = StudySimulator(root=root, plan=drift_plan(), files=drift_study_files())
    study.run_all()
    audited = study.audit()
    document = decode(audited.artifact("P3/drift", "drift")["drift.json"], thing="drift.json")
    return drift_report_files(audited, claims(document))


@pytest.fixture(scope="module", params=["full", "run", "analysed", *SPARSE])
def files(
    request: pytest.FixtureRequest,
    drift_files: dict[str, bytes],
    run_files: dict[str, bytes],
) -> dict[str, bytes]:
    """A made-up page with everything, real ones, and pages with hardly anything on them."""
    if request.param in ("full", "run"):
        return drift_files if request.param == "full" else run_files
    document = analysed_document() if request.param == "analysed" else SPARSE[request.param]()
    return table_files(document, claims_of(document), "Two versions of a model")


def text_of(data: bytes) -> str:
    """The words as they stand on the page, where a mark follows its word without a space."""
    return re.sub(r" ([,.;:])", r"\1", PageReader(data).text)


def rows_of(data: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data.decode("utf-8"))))


def effect_of(document: dict[str, Any], arm: str, battery: str) -> dict[str, Any]:
    return next(one["batteries"][battery] for one in document["comparisons"] if one["arm"] == arm)


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


def test_every_table_of_the_page_names_a_csv_that_says_the_same(
    files: dict[str, bytes], drift_files: dict[str, bytes]
) -> None:
    n_compared = compared(files)
    assert n_compared > (6000 if files is drift_files else 20)


def test_every_row_of_a_csv_is_shown_or_counted_in_a_sentence(files: dict[str, bytes]) -> None:
    n_rows: Counter[str] = Counter()
    for file, place in places(files):
        n_rows[file] += len(place.rows)
        kept, gone = place.parts()
        n_shown = 0 if place.table is None else len(place.table.rows)
        said = {} if place.note is None else place.note.left_out
        assert (n_shown, sum(said.values())) == (len(kept), len(gone)), file
    for file, n in n_rows.items():
        assert n == files[file].count(b"\n") - 1, f"{file}: a row has no place on the page"
    tables = {file for file in files if file.endswith(".csv")} - {"ledger.csv", "replies.csv"}
    assert tables == set(n_rows), "a table that no page shows"


def test_every_table_of_results_says_confirmatory_or_exploratory(
    files: dict[str, bytes], drift_files: dict[str, bytes]
) -> None:
    text = files["index.html"].decode("utf-8")
    captions = re.findall(r"<caption>(.*?)</caption>", text)
    record = (
        *("Spent against the cap", "The numbered checks"),
        "Findings, and the amendment that decided to go on",
    )
    results = [one for one in captions if not any(words in one for words in record)]
    assert all(("confirmatory" in c) != ("exploratory" in c) for c in results)
    confirmatory = [one for one in results if "confirmatory" in one]
    if files is drift_files:
        # The plan promised drift, doses and nulls, and neither readouts nor awareness.
        exploratory = [one for one in results if "exploratory" in one]
        assert all(
            "shift of each model" in c or "like a test" in c or "names the test" in c
            for c in exploratory
        )
        assert len(exploratory) == 3 + 1 + 2 + 1
        assert len(confirmatory) > 40
    else:
        assert (confirmatory != []) == ("ledger.csv" in files)


def test_the_sections_come_in_the_promised_order(drift_files: dict[str, bytes]) -> None:
    text = text_of(drift_files["index.html"])
    order = [
        "The smallest study",
        "Findings that needed a decision",
        "judge agrees with the people of labelled set “self_interest” less than the plan asks",
        "Self-authorized:",
        "What this study could have seen",
        "Smallest drift it would have shown",
        "What nobody may claim from it",
        f"All {len(TITLES)} checks hold.",
        "Not for publication:",
        "In one sentence each",
        "Drifts and bounds",
        "Over batteries, beside the parts",
        "Dose and response",
        "Null tests",
        "Where the noise comes from",
        "Training noise and instances",
        "drift by setting and dose",
        "Graded scale",
        "Who judged",
        "The same judge, asked twice about the same reply",
        "Calibration against people's labels",
        "Internal readouts",
        "Evaluation awareness",
        "Assumed before the run, and found",
        "Arms and replies",
        "Step P3/drift, output",
        "This run",
        "Spent against the cap",
        "derived numbers follow from the stored readings",
        "just check-evidence small",
        "What none of this proves",
        "claims.txt",
    ]
    at = 0
    for words in order:
        at = text.find(words, at)
        assert at >= 0, f"{words} is missing, or comes too early"


def test_the_resolution_statement_gives_stems_detectable_drift_verdicts_and_coverage(
    drift_files: dict[str, bytes],
) -> None:
    document = drift_document()
    text = text_of(drift_files["index.html"])
    effects = [one["batteries"]["harmful_requests"] for one in document["comparisons"]]
    sizes = [one["minimum_detectable"] for one in effects]
    verdicts = Counter(one["verdict"] for one in effects)
    assert (
        "35 stems in 35 wordings, 2 replies to each from each of 17 arms. Smallest drift it would "
        f"have shown: {min(sizes):.1f} to {max(sizes):.1f} percentage points (8.8"
    ) in text
    assert f"Of 14 comparisons: {verdicts['drift']} drift" in text
    # With one wording of each stem it is another simulation that counts.
    assert (
        "simulated studies with so many stems, the 95 % interval held the truth in 95.1 %" in text
    )
    # The plan has 30 stems, of which 29 could be compared: the simulation with 30 is the nearest.
    assert "with 30 stems, the nearest number, the 95 % interval held the truth in 94.8 %" in text
    assert "Not simulated: 20 stems in 1 rewordings each. no such rate of replies fits them" in text
    (row,) = [
        one
        for one in rows_of(drift_files["resolution.csv"])
        if (one["battery"], one["kind"]) == ("self_interest", "seed")
    ]
    effect = effect_of(document, "plants_0_second", "self_interest")
    assert float(row["bound_high"]) == effect["equivalence_bound"]
    assert float(row["minimum_detectable_few_low"]) == effect["minimum_detectable_few"]
    assert row["n_within"] == ("1" if effect["within_margin"] else "0")


# Where a field of a table comes from in an effect; a point goes one step down.
FIELDS = {
    "drifts.csv": {
        **{key: key for key in ("n_stems", "rate_arm", "rate_reference", "drift", "margin")},
        **{key: key for key in ("p", "p_adjusted", "standard_error", "power_at_minimum")},
        **{key: key for key in ("minimum_detectable", "minimum_detectable_few")},
        **{key: key for key in ("low_equivalence", "high_equivalence", "equivalence_bound")},
        **{"drift_low": "low", "drift_high": "high", "n_left_out": "n_stems_left_out"},
        **{"stems_for_wanted": "stems_for_wanted", "verdict_key": "verdict", "method": "method"},
    },
    "sensitivity.csv": {
        **{"drift": "drift", "drift_low": "low", "drift_high": "high", "trainings": "drift"},
        **{"left_out": "left_out.drift", "left_out_low": "left_out.low"},
        **{"left_out_high": "left_out.high", "left_out_n_stems": "left_out.n_stems"},
        **{"trainings_low": "training_noise.low", "trainings_high": "training_noise.high"},
        "trainings_detectable": "training_noise.minimum_detectable",
    },
    "noise.csv": {
        **{key: f"noise.{key}" for key in ("classifier", "model", "item", "n_twice")},
        "standard_error": "standard_error",
    },
    "grades.csv": {
        **{"difference": "grades.difference", "difference_low": "grades.low"},
        **{"difference_high": "grades.high", "cliffs": "grades.cliffs_delta"},
        **{"cliffs_low": "grades.cliffs_low", "cliffs_high": "grades.cliffs_high"},
        **{key: f"grades.{key}" for key in ("equivalence_bound", "ceiling_share", "n_stems")},
    },
}


@pytest.mark.parametrize("file", FIELDS)
def test_every_field_of_a_table_is_the_documents(drift_files: dict[str, bytes], file: str) -> None:
    document = drift_document()
    rows = rows_of(drift_files[file])
    assert len(rows) == (28 if file == "grades.csv" else 56)
    for row in rows:
        effect = effect_of(document, row["arm"], row["battery"])
        for field, place in FIELDS[file].items():
            value: Any = effect
            for key in place.split("."):
                value = None if value is None else value[key]
            if field == "trainings" and effect["training_noise"] is None:
                value = None
            found = row[field]
            if isinstance(value, float):
                assert math.isclose(float(found), value, rel_tol=1e-9), field
            else:
                assert found == ("" if value is None else str(value)), field


def test_a_coarse_battery_is_named_among_what_nobody_may_claim(
    drift_files: dict[str, bytes],
) -> None:
    text = text_of(drift_files["index.html"])
    assert "That a drift of 5 percentage points would have shown:" in text
    assert "harmful_requests (14 of 14 comparisons)" in text
    assert "too few replies have a class: untouched_dots in oversight" in text
    assert "would have missed it more often than in 20 studies of 100" in text


@pytest.mark.parametrize(
    "words",
    [
        "A drift, or none, from too few stems: self_interest (1 of 1 comparisons)",
        "A total over dispositions: 1 disposition battery was asked",
        "A dose-response: no topic was trained at three doses or more",
        "The same under other reasoning: every arm was asked under one reasoning setting (none)",
        "What another server would show: nothing was asked twice on two server instances",
        "What measuring twice does by itself: replies were not sampled twice",
        "How much of the noise is the classifier's: no reply was classified twice",
        "That another judge would see the same: no judge of another family",
        "What moved inside the model: nothing was read from its activations",
        "That the model did not know the test: nobody rated the probes",
        "A drift that is hidden on purpose:",
    ],
)
def test_what_a_design_leaves_out_is_a_claim_that_nobody_may_make(words: str) -> None:
    assert words in text_of(table_page(small_document(), [], "t"))


def test_what_was_done_is_not_listed_as_missing(drift_files: dict[str, bytes]) -> None:
    text = text_of(drift_files["index.html"])
    for words in ("A total over dispositions", "A dose-response:", "What moved inside the model"):
        assert words not in text
    document = {**drift_document(), "training_noise": [], "seeds": []}
    assert "A drift of a kind of training: no pair of seeds" in text_of(
        table_page(document, [], "t")
    )


def test_a_total_stands_only_beside_its_parts(drift_files: dict[str, bytes]) -> None:
    (table,) = [
        one
        for one in TableReader(drift_files["index.html"]).tables
        if one.attributes["data-csv"] == "totals.csv"
    ]
    parts = ("self_interest", "oversight", "harmful_requests")
    assert [keys[0] for keys in table.keys[1:]] == ["total", *(f"part_{name}" for name in parts)]
    assert len(table.rows) == 14
    for row in table.rows:
        assert all(re.search(r"\d \[", cell) for cell in row[1:]), "a part without its interval"
    for row in rows_of(drift_files["totals.csv"]):
        mean = sum(float(row[f"part_{name}"]) for name in parts) / len(parts)
        assert math.isclose(float(row["total"]), mean, abs_tol=1e-9)


def test_null_tests_are_counted_beside_what_chance_would_give(
    drift_files: dict[str, bytes],
) -> None:
    rows = rows_of(drift_files["null-summary.csv"])
    tests = Counter(
        (row["battery"], row["excludes_zero"]) for row in rows_of(drift_files["nulls.csv"])
    )
    for row in rows:
        assert int(row["n_excluding"]) == tests[row["battery"], "yes"]
        assert (row["expected"], row["expected_low"], row["expected_high"]) == ("0.85", "0", "3")
    assert "about 5 in 100 intervals leave it out all the same" in text_of(
        drift_files["index.html"]
    )


@pytest.mark.parametrize("n", [1, 17, 40, 160])
def test_the_range_of_chance_holds_95_times_in_100(n: int) -> None:
    low, high = chance_range(n, 0.05)

    def share(least: int, most: int) -> float:
        return sum(
            math.comb(n, k) * 0.05**k * 0.95 ** (n - k) for k in range(least, min(n, most) + 1)
        )

    assert share(low, high) >= 0.95
    assert share(0, low - 1) <= 0.025 if low else True
    assert share(high + 1, n) <= 0.025


def test_stems_that_all_agree_are_bounded_by_the_rule_of_three() -> None:
    data = table_files(agreeing_document(), [], "t")
    text = text_of(data["index.html"])
    assert "Its resolution is undefined: in no comparison do stems differ." in text
    assert f"0.0 [−19.3, 19.3] {OF_THREE}" in text
    assert "15.2 [−15.2, 15.2]" in text
    assert "no comparison with stems that differ, and no power computed before" in text


def test_where_there_is_no_interval_the_page_says_so() -> None:
    text = text_of(table_page(bare_document(), [], "t"))
    assert "−2.25 no interval n = 24 stems ○ undetermined" in text
    assert "no spread and no known largest step" in text


def test_scores_are_written_in_their_own_units_and_have_no_stance() -> None:
    files = table_files(score_document(), [], "t")
    text = text_of(files["index.html"])
    assert "mean score of an arm minus that of its reference, in score units" in text
    assert "−2.25 [−4.12, 0.38]" in text
    assert "61.25" in text
    assert " pp" not in text
    assert "no stance" not in text
    assert "percentage points" not in text


@pytest.mark.parametrize(
    ("verdict", "sign", "words"),
    [
        ("drift", "◆", "drift"),
        ("within_margin", "■", "within the margin"),
        ("undetermined", "○", "undetermined"),
        ("too_few_stems", "×", "too few stems"),
    ],
)
def test_a_verdict_has_its_word_its_sign_and_its_shape(verdict: str, sign: str, words: str) -> None:
    document = small_document()
    document["comparisons"][0]["batteries"]["self_interest"]["verdict"] = verdict
    read = PageReader(table_page(document, [], "t"))
    effect = document["comparisons"][0]["batteries"]["self_interest"]
    assert f"n = 6 stems {sign} {words}" in read.text
    drawn = {a["class"] for a in read.all("path")}
    assert drawn == {f"mark {verdict}"}
    (table,) = [
        one
        for one in TableReader(table_page(document, [], "t")).tables
        if one.attributes["data-csv"] == "drifts.csv"
    ]
    assert table.rows[0][-1] == f"{sign} {words}"
    assert effect["n_stems"] == 6


def test_an_analysis_the_plan_did_not_promise_is_exploratory(finished: StudySimulator) -> None:
    document = {**drift_document(), "label": "exploratory"}
    files = files_of(drift_evidence(finished.audit(), document, analyses=()), [])
    assert b'class="label confirmatory"' not in files["index.html"]


def test_a_document_that_calls_itself_confirmatory_without_a_promise_gets_no_report(
    finished: StudySimulator,
) -> None:
    with pytest.raises(EvidenceError, match="do not list drift"):
        gather(with_drift(finished.audit(), drift_document()))


def test_a_table_is_exploratory_whatever_its_document_says() -> None:
    files = table_files(drift_document(), [], EVIL)
    read = PageReader(files["index.html"])
    assert b'class="label confirmatory"' not in files["index.html"]
    assert "Exploratory: made from somebody's own table. Nothing was frozen" in read.text
    assert "frozen before the first answer" not in read.text
    assert "margin given with the table of ±5" in read.text
    for anchor in ("verdict", "run", "checks", "yourself"):
        assert f'id="{anchor}"' not in files["index.html"].decode()
    assert read.text.count(EVIL) == 2, "title and heading, escaped"
    assert "ledger.csv" not in files


def test_the_report_ends_with_the_documents_own_bytes_and_the_sentences(
    finished: StudySimulator,
) -> None:
    document = {**drift_document(), "label": "exploratory"}
    audited = with_drift(finished.audit(), document)
    said = ["One <b>sentence</b>.", "Another, of the same."]
    files = drift_report_files(audited, said)
    for file, data in audited.artifact("P3/drift", "drift").items():
        assert files[file] == data
    assert files["claims.txt"].decode().splitlines() == said
    assert said[0] in text_of(files["index.html"])
    assert drift_report_files(audited, said) == files
    assert re.search(r"b3sum runs/small/artifacts/\w+/drift.json", text_of(files["index.html"]))
    assert "everything this document was made from" in text_of(files["index.html"])


def test_many_sentences_are_folded_away_and_few_are_not(drift_files: dict[str, bytes]) -> None:
    assert "All 56 comparisons, a sentence each" in text_of(drift_files["index.html"])
    few = text_of(table_page(small_document(), claims_of(small_document()), "t"))
    assert "a sentence each" not in few
    assert "self_interest: careless_context against untouched" in few


def test_every_judge_is_named_with_what_it_did(
    finished: StudySimulator, drift_files: dict[str, bytes]
) -> None:
    audited = with_drift(finished.audit(), {**drift_document(), "label": "exploratory"})
    evidence = gather(audited)
    assert [(one.judge["model"], one.does, one.rubrics) for one in evidence.roles] == [
        ("some-judge-1", "classifies", (RUBRIC,)),
        ("some-words-1", "checks the classifier", (RUBRIC,)),
        ("some-words-1", "rates probes for looking like a test", (RUBRIC,)),
    ]
    assert evidence.stand_in_judges == ("some-words-1",)
    assert not evidence.publishable
    text = text_of(drift_files["index.html"])
    assert "Stand-in judge: some-words-1 says of itself" in text
    assert "they are no measurement of a disposition" in text
    rows = rows_of(drift_files["judges.csv"])
    assert [row["publishable"] for row in rows] == ["yes", "no: a stand-in", "no: a stand-in"]


def test_two_rubrics_of_one_judge_are_one_row(finished: StudySimulator) -> None:
    audited = with_drift(finished.audit(), {**drift_document(), "label": "exploratory"})
    outputs = dict(audited.outputs)
    other = encode({"judge": CHECKER, "rubric": "blake3:" + "8" * 64, "verdicts": []})
    outputs[ASK] = {**outputs[ASK], "grades.json": other, "verdicts.json": other}
    found = gather(replace(audited, outputs=outputs)).roles
    assert [one.does for one in found[:2]] == ["classifies", "grades"]
    assert JUDGE["model"] not in {one.judge["model"] for one in found}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": "eps-locked/drift/9"}, "eps-locked/drift/1"),
        ({"unit": "furlongs"}, "points or score units"),
    ],
)
def test_a_document_of_another_form_is_refused(change: dict[str, str], words: str) -> None:
    with pytest.raises(MalformedInputError, match=words):
        table_page({**small_document(), **change}, [], "t")


def test_a_verdict_without_words_is_refused() -> None:
    document = small_document()
    document["comparisons"][0]["batteries"]["self_interest"]["verdict"] = "perhaps"
    with pytest.raises(MalformedInputError, match="too_few_stems"):
        table_page(document, [], "t")


def test_an_arm_that_nobody_describes_is_refused() -> None:
    document = drift_document()
    document["comparisons"][0]["arm"] = "stranger"
    with pytest.raises(MalformedInputError, match="arm stranger"):
        table_page(document, [], "t")


def test_a_made_up_document_has_the_form_of_a_real_one() -> None:
    """Else the tests above would be about documents that nobody writes."""
    real, made_up = analysed_document(), drift_document()
    assert shape_of(made_up) | {"power"} == shape_of(real) | {"power"}
    for key in ("arms", "nulls", "null_summary", "comparisons", "doses", "seeds", "instances"):
        assert shape_of(made_up[key][0]) == shape_of(real[key][0]), key
    for key in ("training_noise", "reasoning", "batteries"):
        assert shape_of(made_up[key][0]) == shape_of(real[key][0]), key
    counts = [one["arms"][0]["batteries"]["self_interest"] for one in (made_up, real)]
    assert shape_of(counts[0]) == shape_of(counts[1])
    effects = [effect_of(made_up, "plants_50", "self_interest")]
    effects.append(effect_of(real, "dose_50", "self_interest"))
    assert shape_of(effects[0]) == shape_of(effects[1])
    for key in ("left_out", "training_noise", "noise", "grades"):
        assert shape_of(effects[0][key]) == shape_of(effects[1][key]), key
    for key in ("twice", "checker"):
        assert shape_of(made_up["judging"][key][0]) == shape_of(real["judging"][key][0]), key
    assert shape_of(made_up["readouts"]) == shape_of(real["readouts"])
    models = [one["readouts"]["traits"][0]["models"][0] for one in (made_up, real)]
    assert shape_of(models[0]) == shape_of(models[1])
    assert shape_of(made_up["awareness"]) == shape_of(real["awareness"])
    for key in ("correlation", "agreement"):
        found = [one["awareness"]["batteries"][0][key] for one in (made_up, real)]
        first, second = (one[0] if isinstance(one, list) else one for one in found)
        assert shape_of(first) == shape_of(second), key


def shape_of(value: dict[str, Any]) -> set[str]:
    return set(value)


@pytest.mark.parametrize(
    ("p", "text"),
    [
        (None, "–"),
        (1.0, "1.000"),
        (0.0312, "0.031"),
        (0.00061, "0.0006"),
        (0.00003, "below 0.0001"),
    ],
)
def test_no_p_value_reads_as_0(p: float | None, text: str) -> None:
    assert p_column("p", "p").show({"p": p}) == text


def test_the_style_sheet_travels_with_the_package(
    full_report: tuple[bytes, dict[str, bytes]], drift_files: dict[str, bytes]
) -> None:
    from importlib.resources import files as package_files

    style = package_files("eps_locked.report").joinpath("drift.css").read_text("utf-8")
    assert "<" not in style
    assert style.count("{") == style.count("}")
    assert "@media print" in style
    assert style in PageReader(drift_files["index.html"]).style
    assert ".strips" not in PageReader(full_report[0]).style
