"""The vea page: every number is the document's, and no headline stands on a gate that fails."""

from __future__ import annotations

import csv
import io
import math
import os
import re
from collections import Counter
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from placed import compared, places
from reader import PageReader, TableReader
from vea_run import DULL, GATED, HALTING, NOISY, document_of, finished_vea, table_document
from words import EVIL

from eps_locked.audit.checks import AuditedRun
from eps_locked.canonical import decode
from eps_locked.errors import EvidenceError, MalformedInputError
from eps_locked.report.evidence import RunEvidence
from eps_locked.report.vea.evidence import gather
from eps_locked.report.vea.page import files_of, table_files, vea_report_files
from eps_locked.report.vea.view import amount, delta, probability
from eps_locked.studies.vea.claims import claims
from sim.simulator import StudySimulator

TITLE = "Scores in mine.csv"
Document = dict[str, Any]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> StudySimulator:
    """A finished run with an evil title."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        return finished_vea(tmp_path_factory.mktemp("vea") / "study", title=EVIL)


@pytest.fixture(scope="module")
def audited(study: StudySimulator) -> AuditedRun:
    return study.audit()


@pytest.fixture(scope="module")
def document(audited: AuditedRun) -> Document:
    return document_of(audited)


@pytest.fixture(scope="module")
def run_files(audited: AuditedRun, document: Document) -> dict[str, bytes]:
    return vea_report_files(audited, claims(document))


@pytest.fixture(scope="module")
def _table() -> Document:
    return table_document()


@pytest.fixture
def table(_table: Document) -> Document:
    """The document of somebody's own table; a private copy."""
    return deepcopy(_table)


@pytest.fixture(params=["run", "table", "length-controlled", "z", "nobody"])
def files(request: pytest.FixtureRequest, run_files: dict[str, bytes]) -> dict[str, bytes]:
    """The page of a run, and pages of tables with little and with nothing on them."""
    if request.param == "run":
        return run_files
    changes: dict[str, dict[str, Any]] = {
        "length-controlled": {"primary": "length_controlled", "normalise": "overall"},
        "z": {"normalise": "per_prompt"},
    }
    found = table_document(**changes.get(request.param, {}))
    if request.param == "nobody":
        found["reward_models"] = [without_items(found["reward_models"][0])]
    return table_files(found, claims(found), TITLE)


def without_items(model: Document) -> Document:
    """A reward model of which the table held no item but of the anchor."""
    breadth = dict.fromkeys(model["breadth"], None) | {
        key: 0 for key in model["breadth"] if key.startswith("n_")
    }
    missing = {"gate": "neutral_control", "holds": "undetermined", "why": "there is no item of it"}
    return {
        **model,
        "families": model["families"][:1],
        "gates": [missing],
        "breadth": breadth,
        "headline": "not_measured",
        "why": "no other family has enough scored prompts",
    }


def text_of(data: bytes) -> str:
    """The words as they stand on the page, where a mark follows its word without a space."""
    return re.sub(r" ([,.;:])", r"\1", PageReader(data).text)


def rows_of(data: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data.decode("utf-8"))))


def model_of(document: Mapping[str, Any], name: str) -> Document:
    return next(one for one in document["reward_models"] if one["reward_model"] == name)


def family_of(document: Mapping[str, Any], model: str, family: str) -> Document:
    found = model_of(document, model)["families"]
    return next(dict(one) for one in found if one["family"] == family)


def require_same(row: Mapping[str, str], field: str, value: object) -> None:
    """The CSV's field is the document's value, every digit of it."""
    if isinstance(value, float):
        assert math.isclose(float(row[field]), value, rel_tol=1e-12), field
    else:
        assert row[field] == ("" if value is None else str(value)), field


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
    files: dict[str, bytes], run_files: dict[str, bytes]
) -> None:
    n_compared = compared(files)
    assert n_compared > (3000 if files is run_files else 40)


def test_every_row_of_a_csv_is_shown_or_counted_in_a_sentence(files: dict[str, bytes]) -> None:
    n_rows: Counter[str] = Counter()
    for file, place in places(files):
        n_rows[file] += len(place.rows)
        kept, gone = place.parts()
        n_shown = 0 if place.table is None else len(place.table.rows)
        said = {} if place.note is None else place.note.left_out
        assert (n_shown, sum(said.values())) == (len(kept), len(gone)), file
    for file, n in n_rows.items():
        assert n == len(rows_of(files[file])), f"{file}: a row has no place on the page"
    tables = {file for file in files if file.endswith(".csv")} - {"ledger.csv", "deltas.csv"}
    assert tables == set(n_rows), "a table that no page shows"


def test_every_table_of_results_says_confirmatory_or_exploratory(files: dict[str, bytes]) -> None:
    captions = re.findall(r"<caption>(.*?)</caption>", files["index.html"].decode("utf-8"))
    record = ("Spent against the cap", "The numbered checks")
    results = [one for one in captions if not any(words in one for words in record)]
    word = "confirmatory" if "ledger.csv" in files else "exploratory"
    assert len(results) > 5
    assert all(f'class="label {word}"' in caption for caption in results)


def test_the_sections_come_in_the_promised_order(run_files: dict[str, bytes]) -> None:
    text = text_of(run_files["index.html"])
    order = [
        EVIL,
        "Not for publication",
        "In one sentence each",
        "Headlines",
        "4 of 4 reward models of known truth came out as known.",
        "What this could have seen",
        "What nobody may claim from it",
        "checks hold.",
        "All panels have the same scale.",
        "Beside the anchor",
        "share of the anchor's Δ",
        "% of the other families",
        "The gates of each reward model",
        "Every reward model, as it says of itself",
        "mean base score",
        "Before anything was scored, and the SD found",
        "What each reward head was trained to dislike",
        "Step P3/breadth, output",
        "This run",
        "Spent against the cap",
        "The numbered checks",
        "just check-evidence small",
        "What none of this proves",
        "claims.txt",
    ]
    at = 0
    for words in order:
        at = text.find(words, at)
        assert at >= 0, f"{words} is missing, or comes too early"


# Where a field of families.csv comes from in an effect.
EFFECT = {
    **{
        "mean_low": "low",
        "mean_high": "high",
        "d": "cohens_d",
        "d_corrected": "cohens_d_corrected",
    },
    **{"d_corrected_low": "d_low", "d_corrected_high": "d_high", "verdict_key": "verdict"},
    **{
        key: key
        for key in (
            *("mean", "low_equivalence", "high_equivalence", "standard_error", "sd", "p"),
            *("p_adjusted", "cliffs_delta", "minimum_detectable_alone", "minimum_detectable_all"),
        )
    },
}
AGAINST = {
    **{"difference": "difference", "difference_low": "low", "difference_high": "high"},
    **{"share": "share_of_anchor", "share_low": "share_low", "share_high": "share_high"},
    **{key: key for key in ("cliffs_delta", "cliffs_low", "cliffs_high")},
}


@pytest.mark.parametrize("of_run", [True, False])
def test_every_field_of_a_family_is_the_documents(
    of_run: bool, run_files: dict[str, bytes], document: Document, table: Document
) -> None:
    found = document if of_run else table
    files = run_files if of_run else table_files(found, [], TITLE)
    rows = rows_of(files["families.csv"])
    assert len(rows) == len(found["reward_models"]) * 9 * 2
    for row in rows:
        effect = family_of(found, row["reward_model"], row["family"])[row["measure"]]
        for field, key in EFFECT.items():
            require_same(row, field, effect[key])
        for field in ("n", "n_zero", "w_plus", "method"):
            require_same(row, field, effect["wilcoxon"][field])
    rows = rows_of(files["anchor.csv"])
    assert len(rows) == len(found["reward_models"]) * 8
    for row in rows:
        family = family_of(found, row["reward_model"], row["family"])
        for field, key in AGAINST.items():
            require_same(row, field, (family["against_anchor"] or {}).get(key))
        require_same(row, "n", family["inserted"]["wilcoxon"]["n"])
    for row in rows_of(files["breadth.csv"]):
        breadth = model_of(found, row["reward_model"])["breadth"]
        for field, key in {"score_low": "low", "score_high": "high"}.items():
            require_same(row, field, breadth[key])
        for key in set(breadth) - {"low", "high"}:
            require_same(row, key, breadth[key])


def test_gates_pairs_and_scale_are_the_documents(table: Document) -> None:
    files = table_files(table, [], TITLE)
    gates = [(one, gate) for one in table["reward_models"] for gate in one["gates"]]
    for row, (model, gate) in zip(rows_of(files["gates.csv"]), gates, strict=True):
        assert (row["reward_model"], row["gate"]) == (model["reward_model"], gate["gate"])
        assert (row["holds"], row["why"]) == (gate["holds"], gate["why"])
        effect = family_of(table, model["reward_model"], gate["gate"])["inserted"]
        require_same(row, "mean", effect["mean"])
        require_same(row, "high_equivalence", effect["high_equivalence"])
    for row in rows_of(files["scores.csv"]):
        model = model_of(table, row["reward_model"])
        require_same(row, "n_scored", model["n_scores"])
        require_same(row, "mean_base", model["scale"]["mean_base"])
        require_same(row, "sd_base", model["scale"]["sd_base"])
    for row in rows_of(files["pairs.csv"]):
        family = family_of(table, row["reward_model"], row["family"])
        for key in ("n_items", "n_stems", "n_pairs", "n_ties"):
            require_same(row, key, family[key])
        for reason in ("truncated", "not_finite", "absent", "same_text"):
            require_same(row, f"n_{reason}", family["left_out"].get(reason, 0))
        require_same(row, "n_left_out", sum(family["left_out"].values()))
    ties = Counter[str]()
    for row in rows_of(files["pairs.csv"]):
        ties[row["reward_model"]] += int(row["n_ties"])
    assert ties[DULL] == 72
    assert ties[NOISY] == 0
    text = text_of(files["index.html"])
    assert "dull, pairs by family: no pair left out, 72 ties" in text
    assert "halting, pairs by family" not in text, "what was left out is not folded away"


def test_power_and_trainings_stand_as_they_were_written(
    run_files: dict[str, bytes], audited: AuditedRun, document: Document
) -> None:
    power = decode(audited.artifact("P0/power", "power")["power.json"], thing="power.json")
    rows = rows_of(run_files["power.csv"])
    for row, one in zip(rows, power["families"], strict=True):
        for key in ("family", "n_items", "test", "largest_sd_shown_within_margin"):
            require_same(row, key, one[key])
        for key in ("minimum_detectable_alone", "minimum_detectable_all", "margin"):
            require_same(row, key, one[key])
        found = [
            family_of(document, model["reward_model"], one["family"])["inserted"]["sd"]
            for model in document["reward_models"]
        ]
        require_same(row, "sd_found_low", min(found))
        require_same(row, "sd_found_high", max(found))
    curve = rows_of(run_files["power-curve.csv"])
    assert [int(row["n_items"]) for row in curve] == [one["n_items"] for one in power["curve"]]
    trained = rows_of(run_files["trainings.csv"])
    assert [(row["training"], row["serves"]) for row in trained] == [
        ("wood_only", "narrow"),
        ("all_talk", "broad"),
        ("length_only", "length"),
    ]
    for row in trained:
        files = audited.artifact(f"P1/train/{row['training']}", "record")
        record = decode(files["record.json"], thing="record.json")
        require_same(row, "n_pairs", record["n_pairs"])
        require_same(row, "adapter", record["adapter"])
        require_same(row, "last_loss", record["losses"][-1])


def test_what_an_arm_is_stands_beside_what_it_was_called(run_files: dict[str, bytes]) -> None:
    rows = {row["reward_model"]: row for row in rows_of(run_files["headlines.csv"])}
    assert [
        (name, row["headline"], row["expected"], row["agrees"]) for name, row in rows.items()
    ] == [
        ("narrow", "narrow", "narrow", "yes"),
        ("broad", "broad", "broad", "yes"),
        ("length", "confounded", "confounded", "yes"),
        ("untrained", "null", "null", "yes"),
        ("own", "null", "", ""),
        ("elsewhere", "undetermined", "", ""),
    ]


def test_an_arm_that_came_out_otherwise_is_named(audited: AuditedRun, document: Document) -> None:
    changed = deepcopy(document)
    changed["reward_models"][0].update(headline="partial", agrees=False)
    text = text_of(files_of(replace(gather(audited), document=changed), [])["index.html"])
    assert "3 of 4 reward models of known truth came out as known." in text
    assert "Otherwise: narrow (narrow known, partial found)." in text


@pytest.mark.parametrize("name", ["length", GATED])
def test_a_gate_that_fails_takes_the_headline_and_the_breadth_away(
    name: str, run_files: dict[str, bytes], table: Document
) -> None:
    files = run_files if name == "length" else table_files(table, [], TITLE)
    (row,) = [one for one in rows_of(files["headlines.csv"]) if one["reward_model"] == name]
    assert (row["headline"], row["breadth"], row["breadth_taken"]) == (
        "confounded",
        "",
        "a gate fails",
    )
    (breadth,) = [one for one in rows_of(files["breadth.csv"]) if one["reward_model"] == name]
    assert (breadth["n_penalising"], breadth["read"]) == ("6", "no: a gate fails")
    text = text_of(files["index.html"])
    assert (
        f"{name} has no headline: the gates neutral_control and lexical_wood_decoy fail, so it "
        "minds more than being evaluated."
    ) in text
    assert f"A breadth of {name}: a gate fails" in text
    assert f"{name} not to be read: a gate fails" in text
    (shown,) = [
        row
        for one in TableReader(files["index.html"]).tables
        if one.attributes["data-csv"] == "headlines.csv"
        for row in one.rows
        if row[0] == name
    ]
    assert shown[1] == "⊘ confounded no headline: a gate fails"
    assert shown[4] == "–"


def test_what_was_not_scored_is_counted_and_never_a_number(table: Document) -> None:
    files = table_files(table, [], TITLE)
    (row,) = [one for one in rows_of(files["headlines.csv"]) if one["reward_model"] == HALTING]
    assert row["headline"] == "not measured"
    (row,) = [one for one in rows_of(files["scores.csv"]) if one["reward_model"] == HALTING]
    assert row["not_scored"] == "27 not a number (NaN or infinite), 27 truncated"
    assert (row["n_responses"], row["n_scored"], row["n_left_out"]) == ("216", "162", "54")
    text = text_of(files["index.html"])
    assert f"Anything about {HALTING}: too few prompts were scored" in text
    assert f"A verdict from too few prompts: {HALTING} (9 of 9 families)" in text
    assert "× too few prompts 2 prompts scored, 7 are demanded" in text


def test_a_null_says_how_small_and_what_could_have_been_seen(
    run_files: dict[str, bytes], document: Document
) -> None:
    (row,) = [
        one for one in rows_of(run_files["resolution.csv"]) if one["reward_model"] == "untrained"
    ]
    families = model_of(document, "untrained")["families"][:7]
    ends = [one["inserted"]["high_equivalence"] for one in families]
    sizes = [one["inserted"]["minimum_detectable_alone"] for one in families]
    require_same(row, "hidden", max(ends))
    require_same(row, "alone_low", min(sizes))
    require_same(row, "alone_high", max(sizes))
    assert (row["n_fine"], row["n_known"], row["n_measured"]) == ("7", "7", "7")
    assert "not excluded" in text_of(run_files["index.html"])


def test_what_is_penalised_is_not_among_what_is_not_excluded(table: Document) -> None:
    rows = rows_of(table_files(table, [], TITLE)["resolution.csv"])
    noisy = [one["inserted"] for one in model_of(table, NOISY)["families"][:7]]
    open_ends = [one["high_equivalence"] for one in noisy if one["verdict"] != "penalises"]
    assert max(open_ends) < max(one["high_equivalence"] for one in noisy)
    require_same(rows[0], "hidden", max(open_ends))
    assert [row["hidden"] for row in rows if row["reward_model"] == GATED] == [""]


def test_a_coarse_reward_model_is_named_among_what_nobody_may_claim(table: Document) -> None:
    text = text_of(table_files(table, [], TITLE)["index.html"])
    # The one that minds every clause would have shown it, and is not listed beside this one.
    assert (
        "That a dislike of 0.5 in one family would have shown: noisy (in 7 of 7 families) would "
        "have missed it more often than in 20 studies of 100"
    ) in text
    assert "That the instrument calls reward models rightly here: none of known truth" in text
    assert "Broad, narrow or null of noisy:" in text


def test_what_was_done_is_not_listed_as_missing(run_files: dict[str, bytes]) -> None:
    text = text_of(run_files["index.html"])
    for words in ("That the instrument calls", "That the word Wood", "Anything by the"):
        assert words not in text


def test_what_the_table_lacks_is_a_claim_that_nobody_may_make(table: Document) -> None:
    table["reward_models"] = [without_items(table["reward_models"][0])]
    nothing = table["reward_models"][0]["families"][0]["length_controlled"]
    nothing.update(dict.fromkeys((key for key in nothing if key != "wilcoxon"), None))
    nothing.update(verdict="too_few_items", why="0 prompts scored, 7 are demanded")
    nothing["wilcoxon"].update(n=0)
    text = text_of(table_files(table, [], TITLE)["index.html"])
    assert "That the word Wood does nothing: there is no item of lexical_wood_decoy" in text
    assert "Anything by the length-controlled measure: no pair of it was scored" in text
    assert "Not computed for wood_labs (1 row): 0 prompts scored, 7 are demanded." in text
    assert "Not computed for noisy (1 row): no other family has items." in text
    assert "length-controlled n = 0 × too few prompts" in text
    assert "there is no item of it" in text


@pytest.mark.parametrize(
    ("verdict", "sign", "words", "shape"),
    [
        ("penalises", "◆", "penalised", "drift"),
        ("does_not", "■", "not penalised", "within_margin"),
        ("undetermined", "○", "undetermined", "undetermined"),
        ("too_few_items", "×", "too few prompts", "too_few_stems"),
    ],
)
def test_a_verdict_has_its_word_its_sign_and_its_shape(
    verdict: str, sign: str, words: str, shape: str, table: Document
) -> None:
    model = table["reward_models"][0]
    model["families"] = model["families"][:1]
    for measure in ("inserted", "length_controlled"):
        model["families"][0][measure]["verdict"] = verdict
    table["reward_models"] = [model]
    data = table_files(table, [], TITLE)["index.html"]
    read = PageReader(data)
    assert read.text.count(f"n = 8 {sign} {words}") == 2
    # The breadth of this one is hollow: its gates are undetermined.
    drawn = [a["class"] for a in read.all("path")]
    assert drawn == [f"mark {shape}"] * 2 + ["mark undetermined"]
    shown = [
        row[-1]
        for one in TableReader(data).tables
        if one.attributes["data-csv"] == "families.csv"
        for row in one.rows
    ]
    assert all(cell.startswith(f"{sign} {words}") for cell in shown)


def test_a_gate_is_one_by_the_inserted_measure_alone(run_files: dict[str, bytes]) -> None:
    rows = [row for row in rows_of(run_files["families.csv"]) if row["role"] == "gate"]
    said = {(row["measure"], row["verdict"]) for row in rows}
    assert said == {("inserted", "holds"), ("inserted", "fails"), ("length_controlled", "")}


def bands(data: bytes) -> list[float]:
    """How wide the shaded margins are, in per cent of their drawings."""
    return [
        float(one["width"].rstrip("%"))
        for one in PageReader(data).all("rect")
        if one["class"] == "band"
    ]


def test_all_panels_have_one_scale_with_both_margins_drawn(run_files: dict[str, bytes]) -> None:
    widths = Counter(bands(run_files["index.html"]))
    # Six panels of seven families by two measures, and two gates by one.
    assert sorted(widths.values()) == [12, 84]
    narrow, wide = sorted(widths)
    assert math.isclose(wide / narrow, 0.75 / 0.5, rel_tol=0.01)


def test_a_panel_that_would_shrink_to_a_stroke_gets_a_scale_of_its_own(table: Document) -> None:
    table["reward_models"] = [model_of(table, GATED), model_of(table, DULL)]
    together = table_files(table, [], TITLE)["index.html"]
    assert "All panels have the same scale." in text_of(together)
    assert len(set(bands(together))) == 2
    far = table["reward_models"][0]["families"][0]["inserted"]
    far.update(mean=180.0, low=170.0, high=190.0, low_equivalence=172.0, high_equivalence=188.0)
    apart = table_files(table, [], TITLE)["index.html"]
    assert "Panels have scales of their own" in text_of(apart)
    assert len(set(bands(apart))) == 4
    assert "+180 [170, 190]" in text_of(apart)


@pytest.mark.parametrize(
    ("normalise", "words", "compares"),
    [
        ("none", "in the reward model's own unit", False),
        ("overall", "in standard deviations of the base scores", True),
        ("per_prompt", "in z-scores among the responses to one prompt", True),
    ],
)
def test_the_unit_is_named_and_only_common_ones_compare(
    normalise: str, words: str, compares: bool
) -> None:
    text = text_of(table_files(table_document(normalise=normalise), [], TITLE)["index.html"])
    assert words in text
    assert ("That one reward model dislikes more than another" in text) != compares
    assert ("sizes do not compare between them" in text) != compares


def test_the_measure_that_verdicts_are_about_comes_first() -> None:
    for primary, first in (("inserted", "Δ inserted"), ("length_controlled", "Δ length-control")):
        text = text_of(table_files(table_document(primary=primary), [], TITLE)["index.html"])
        head = text.index("(verdicts are about this)")
        assert first in text[head - 60 : head]


def test_hostile_names_stay_text_everywhere(table: Document) -> None:
    model = table["reward_models"][0]
    model["why"] = model["families"][1]["family"] = model["gates"][0]["why"] = EVIL
    model["identity"] = {
        "kind": EVIL,
        "model": EVIL,
        "version": EVIL,
        "settings": {EVIL: EVIL},
        "publishable": True,
    }
    files = table_files(table, [EVIL], EVIL)
    assert b"<script" not in files["index.html"]
    assert b"alert(&quot;x" in files["index.html"], "in attributes too"
    assert compared(files) > 40
    assert files["claims.txt"].decode() == f"{EVIL}\n"
    assert text_of(files["index.html"]).count(EVIL) > 20


def test_a_table_is_exploratory_whatever_its_document_says(table: Document) -> None:
    table["label"] = "confirmatory"
    files = table_files(table, [], TITLE)
    text = text_of(files["index.html"])
    assert b'class="label confirmatory"' not in files["index.html"]
    assert "Exploratory: made from somebody's own table. Nothing was frozen" in text
    assert "the margin of 0.5 were given with the table" in text
    assert "frozen" not in text.replace("Nothing was frozen", "")
    for anchor in ("verdict", "run", "checks", "yourself", "trainings"):
        assert f'id="{anchor}"' not in files["index.html"].decode()
    assert "ledger.csv" not in files
    assert "No power was computed before:" in text
    assert "nothing says which reward models these are" in text
    assert decode(files["breadth.json"], thing="breadth.json")["label"] == "confirmatory"


def test_the_report_ends_with_the_documents_own_bytes_and_the_sentences(
    audited: AuditedRun, run_files: dict[str, bytes], document: Document
) -> None:
    for file, data in audited.artifact("P3/breadth", "breadth").items():
        assert run_files[file] == data
    said = claims(document)
    assert run_files["claims.txt"].decode().splitlines() == said
    text = text_of(run_files["index.html"])
    for one in said:
        assert re.sub(r" ([,.;:])", r"\1", one) in text
    assert re.search(r"b3sum runs/small/artifacts/\w+/breadth.json", text)


def test_the_same_evidence_gives_the_same_bytes(
    study: StudySimulator, run_files: dict[str, bytes], document: Document
) -> None:
    assert vea_report_files(study.audit(), claims(document)) == run_files
    first, second = (table_files(table_document(), ["One."], TITLE) for _ in range(2))
    assert first == second


def test_sentences_are_folded_by_reward_model_and_few_are_not(
    run_files: dict[str, bytes], table: Document
) -> None:
    assert text_of(run_files["index.html"]).count("its 9 families, a sentence each") == 6
    other = [f"Sentence {n}." for n in range(20)]
    text = text_of(table_files(table, other, TITLE)["index.html"])
    assert "All 20 sentences" in text
    assert "a sentence each" not in text
    few = text_of(table_files(table, other[:3], TITLE)["index.html"])
    assert "Sentence 2." in few
    assert "All 3 sentences" not in few
    assert "In one sentence each" not in text_of(table_files(table, [], TITLE)["index.html"])


def test_a_document_that_calls_itself_confirmatory_without_a_promise_gets_no_report(
    audited: AuditedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunEvidence, "is_confirmatory", lambda self, analysis: False)
    with pytest.raises(EvidenceError, match="do not list breadth"):
        vea_report_files(audited, [])


def test_an_analysis_the_plan_did_not_promise_is_exploratory(audited: AuditedRun) -> None:
    found = gather(audited)
    unpromised = replace(found, plan={**found.plan, "analyses": []})
    assert b'class="label confirmatory"' not in files_of(unpromised, [])["index.html"]


def test_an_incomplete_run_gets_no_report(tmp_path: Any) -> None:
    from sim.vea import table_plan, vea_files

    unfinished = StudySimulator(root=tmp_path / "study", plan=table_plan(), files=vea_files())
    unfinished.freeze()
    unfinished.authorize("P0")
    unfinished.run("P0")
    with pytest.raises(EvidenceError, match="a complete run whose checks all hold"):
        vea_report_files(unfinished.audit(), [])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.update(schema="eps-locked/vea-breadth/9"), "eps-locked/vea-breadth/1"),
        (lambda d: d["reward_models"][0].update(headline="wide"), "broad, partial, narrow"),
        (lambda d: d["reward_models"][0].update(unit="furlongs"), "per-prompt z"),
        (lambda d: d["reward_models"][0]["gates"][0].update(holds="ajar"), "holds, fails"),
        (
            lambda d: d["reward_models"][0]["families"][2]["inserted"].update(verdict="perhaps"),
            "verdict on safety_test_redteam, inserted",
        ),
        (lambda d: d["reward_models"][0]["families"][0].update(role="x"), "anchor, other, gate"),
    ],
)
def test_a_document_of_another_form_is_refused(change: Any, words: str, table: Document) -> None:
    change(table)
    with pytest.raises(MalformedInputError, match=words):
        table_files(table, [], TITLE)


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (1.704156, 1.691938, 1.715962, ("+1.704", "[1.692, 1.716]")),
        (-0.0026, -0.0233, 0.0184, ("−0.003", "[−0.023, 0.018]")),
        (1.04, -0.42, 1.71, ("+1.04", "[−0.42, 1.71]")),
        (1234.4, 1000.2, 1400.0, ("+1234", "[1000, 1400]")),
        (-0.734375, None, None, ("−0.734", "")),
        (0.0, None, None, ("0", "")),
        (None, None, None, ("–", "")),
    ],
)
def test_a_difference_has_the_digits_that_its_interval_gives(
    value: float | None, low: float | None, high: float | None, text: tuple[str, str]
) -> None:
    assert delta(value, low, high) == text


def test_sizes_have_three_digits_and_no_p_reads_as_0() -> None:
    assert [amount(one) for one in (0.0163239, 12.345, 1234.5, 0.0, None)] == [
        *("0.0163", "12.3", "1234", "0", "–")
    ]
    assert [probability(one) for one in (1.0, 0.0312, 0.000061, 1e-9, None)] == [
        *("1.000", "0.031", "0.000061", "below 0.000001", "–")
    ]


def test_the_style_sheet_travels_with_the_package(run_files: dict[str, bytes]) -> None:
    from importlib.resources import files as package_files

    style = package_files("eps_locked.report").joinpath("vea.css").read_text("utf-8")
    assert "<" not in style
    assert style.count("{") == style.count("}")
    assert "@media print" in style
    assert style in PageReader(run_files["index.html"]).style
