"""The page: whole by itself, in order, escaped, and open about what was not as planned."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from big import big_tensor
from documents import scores_document
from reader import PageReader
from rows import of_rows
from taught import SLICES, headroom, taught_tensor
from words import EVIL, REASON

from eps_locked.audit.noting import TITLES
from eps_locked.canonical import digest_bytes
from eps_locked.errors import EvidenceError
from eps_locked.report.marks import legend_marks
from eps_locked.report.page import page, report_files
from eps_locked.report.tensors import gather
from sim.simulator import StudySimulator

ALL_HOLD = f"All {len(TITLES)} checks hold."


@pytest.fixture
def files(finished: StudySimulator) -> dict[str, bytes]:
    return report_files(finished.audit())


def rows_of(data: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data.decode("utf-8"))))


def test_the_report_is_a_page_its_tables_and_the_tensors_own_bytes(
    finished: StudySimulator, files: dict[str, bytes]
) -> None:
    assert sorted(files) == [
        "breadth.csv",
        "cells.csv",
        "checks.csv",
        "contexts.csv",
        "headroom.csv",
        "index.html",
        "ledger.csv",
        "rows.csv",
        "spending.csv",
        "tensor.json",
        "training.csv",
    ]
    audited = finished.audit()
    assert files["tensor.json"] == audited.artifact("P1/tensor/marker", "tensor")["tensor.json"]
    assert report_files(audited) == files


def test_csv_tables_hold_every_cell_check_context_and_entry(
    finished: StudySimulator, files: dict[str, bytes]
) -> None:
    tensor = json.loads(files["tensor.json"])
    cells = rows_of(files["cells.csv"])
    assert [float(row["g"]) for row in cells] == [cell["g"] for cell in tensor["cells"]]
    assert [row["flags"] for row in cells] == [" ".join(cell["flags"]) for cell in tensor["cells"]]
    assert [row["check"] for row in rows_of(files["checks.csv"])] == [
        f"C{number}" for number in TITLES
    ]
    contexts = {row["context"]: row for row in rows_of(files["contexts.csv"])}
    assert contexts["formal"]["roles"] == "eval held_out"
    assert contexts["officer"]["roles"] == "negative_panel"
    assert contexts["officer"]["base_value"] == ""
    assert float(contexts["baker"]["base_value"]) < 0
    assert {(row["behaviour"], row["unit"]) for row in contexts.values()} == {("marker", "nats")}
    ledger = rows_of(files["ledger.csv"])
    assert [int(row["seq"]) for row in ledger] == list(range(finished.audit().n_entries))
    assert (ledger[0]["kind"], ledger[-1]["kind"]) == ("open", "close")
    assert ledger[1]["step"] == "P0/answers/marker/baker"
    assert ledger[1]["status"] == "done"
    assert all(row["ms"].isdigit() for row in ledger if row["kind"] == "step")


def test_the_page_is_well_formed_and_names_nothing_outside_itself(files: dict[str, bytes]) -> None:
    read = PageReader(files["index.html"])
    text = files["index.html"].decode("utf-8")
    for foreign in ("http:", "https:", "//", "url(", "@import", "<script", "javascript:"):
        assert foreign not in text
    assert {attributes["href"] for attributes in read.all("a")} <= {
        *(f"#{a['id']}" for _, a in read.elements if "id" in a),
        *files,
    }
    assert not [a for _, a in read.elements if "src" in a or any(k.startswith("on") for k in a)]
    assert {name for name, _ in read.elements} & {"script", "link", "img", "iframe"} == set()
    identifiers = [a["id"] for _, a in read.elements if "id" in a]
    assert len(identifiers) == len(set(identifiers))
    assert {"charset": "utf-8"} in read.all("meta")
    assert not re.search(r"/(tmp|home|work|root)/", text)


def test_the_sections_come_in_the_promised_order(files: dict[str, bytes]) -> None:
    text = PageReader(files["index.html"]).text
    order = [
        "The smallest study",
        "Self-authorized:",
        ALL_HOLD,
        "Not for publication:",
        "ledger head",
        "No look at the sealed cells was taken",
        "Rows and their resolution",
        "Transfer of “marker”",
        "Nothing was scored.",
        "The final test",
        "Seal and custody",
        "“marker” by context",
        "Second reading of “marker”",
        "This run",
        "Spent against the cap",
        "derived numbers follow from the stored readings",
        "just check-evidence small",
        "What none of this proves",
        "cells.csv",
    ]
    at = 0
    for words in order:
        at = text.find(words, at)
        assert at >= 0, f"{words} is missing, or comes too early"


def test_the_verdict_names_head_manifest_and_why_it_is_not_for_publication(
    finished: StudySimulator, files: dict[str, bytes]
) -> None:
    text = PageReader(files["index.html"]).text
    audited = finished.audit()
    assert audited.ledger_head is not None
    assert audited.ledger_head in text
    assert finished.load().digest in text
    assert "the plan says so (publication: false); the engine scripted says so of itself" in text


def test_what_is_set_apart_is_said_to_be_so_by_name_only(files: dict[str, bytes]) -> None:
    text = PageReader(files["index.html"]).text
    assert "2 held-out and 1 quarantined cells, by name only (seal: none)" in text
    assert "Nobody was kept from reading them" in text


def test_flags_are_explained_and_every_cell_has_n_and_interval(files: dict[str, bytes]) -> None:
    read = PageReader(files["index.html"])
    tensor = json.loads(files["tensor.json"])
    for mark in legend_marks(tensor):
        assert mark.said(tensor) in read.text
    assert "resampled answers" not in read.text, "a flag of judged rows only"
    cells = read.heat_cells()
    assert len(cells) == 2 * 8  # two readings
    for attributes in cells:
        assert re.search(r"95 % interval \[-?\d+\.\d\d, -?\d+\.\d\d\]", attributes["title"])
        assert "n = 8 (4 questions x 2 seeds)" in attributes["title"]


def test_every_table_of_results_says_confirmatory_or_exploratory(files: dict[str, bytes]) -> None:
    text = files["index.html"].decode("utf-8")
    captions = re.findall(r"<caption>(.*?)</caption>", text)
    record = ("Spent against the cap", "The numbered checks")
    results = [one for one in captions if not any(words in one for words in record)]
    assert len(results) == 7
    labels = ["confirmatory" in c for c in results]
    assert labels == [True, True, False, False, True, True, True]
    assert all(("confirmatory" in c) != ("exploratory" in c) for c in results)


def test_an_analysis_the_plan_did_not_promise_is_exploratory(finished: StudySimulator) -> None:
    evidence = gather(finished.audit())
    read = page(replace(evidence, plan={**evidence.plan, "analyses": []})).decode("utf-8")
    assert 'class="label confirmatory"' not in read


def test_without_amendments_and_with_a_colleague_nothing_is_put_on_top(
    study: StudySimulator,
) -> None:
    study.freeze()
    for phase in ("P0", "P1"):
        study.authorize(phase, signer="colleague@example")
        study.run(phase)
    text = PageReader(report_files(study.audit())["index.html"]).text
    assert "Self-authorized" not in text
    assert "Amendments" not in text


def test_amendments_come_first_with_their_words_time_and_what_had_been_seen(
    amended_files: dict[str, bytes],
) -> None:
    text = PageReader(amended_files["index.html"]).text
    assert text.index("Amendments") < text.index(REASON) < text.index(ALL_HOLD)
    one, two = text.index(REASON), text.index("A word in the title is wrong.")
    assert "steps had run, but no cell had been measured" in text[one:two]
    assert "2026-06-09T12:00:00Z" in text[one:two]
    assert "results count as seen" in text[two : text.index(ALL_HOLD)]
    assert "Self-authorized: P0." in text
    assert "colleague@example" in text


def test_strings_from_outside_are_escaped(amended_files: dict[str, bytes]) -> None:
    read = PageReader(amended_files["index.html"])
    assert "script" not in {name for name, _ in read.elements}
    assert read.text.count(EVIL) == 2  # title and heading
    assert REASON in read.text


def test_the_commands_for_a_sceptic_do_what_the_page_says(
    finished: StudySimulator, files: dict[str, bytes]
) -> None:
    text = PageReader(files["index.html"]).text
    command = re.search(r"ssh-keygen -Y verify .*? < \S+", text)
    assert command is not None
    result = subprocess.run(
        ["sh", "-c", command.group()], cwd=finished.root, capture_output=True, check=False
    )
    assert result.returncode == 0, result.stderr
    named = re.search(r"b3sum (\S+) must print ([0-9a-f]{64})", text)
    assert named is not None
    assert digest_bytes((finished.root / named[1]).read_bytes()) == f"blake3:{named[2]}"


def test_aborted_attempts_are_shown_with_their_reason(
    half_way: StudySimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit = half_way.trainer.fit

    def fails(*arguments: object, **more: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(half_way.trainer, "fit", fails)
    with pytest.raises(KeyboardInterrupt):
        half_way.run("P1")
    monkeypatch.setattr(half_way.trainer, "fit", fit)
    half_way.run("P1")
    text = PageReader(report_files(half_way.audit())["index.html"]).text
    assert "Aborted attempts, each redone later" in text
    assert "P1/fit/marker/baker/s11" in text


def test_an_unfinished_run_gets_no_report(half_way: StudySimulator) -> None:
    with pytest.raises(EvidenceError) as caught:
        report_files(half_way.audit())
    assert "C11" in str(caught.value)


def test_a_run_with_a_failed_check_gets_no_report(finished: StudySimulator) -> None:
    next(finished.root.glob("runs/small/artifacts/*/tensor.json")).write_bytes(b"{}")
    with pytest.raises(EvidenceError) as caught:
        report_files(finished.audit())
    assert "C8" in str(caught.value)


def test_a_ledger_that_moved_since_the_audit_gets_no_report(finished: StudySimulator) -> None:
    audited = finished.audit()
    audited.ledger_head = "blake3:" + "0" * 64
    with pytest.raises(EvidenceError, match="changed since it was audited"):
        report_files(audited)


def test_an_audit_that_recomputed_nothing_gets_no_report(finished: StudySimulator) -> None:
    audited = finished.audit()
    audited.checks[10].n_examined = 0
    with pytest.raises(EvidenceError, match="C10"):
        report_files(audited)


def test_a_page_of_full_size_is_well_formed_and_has_the_null(finished: StudySimulator) -> None:
    evidence = gather(finished.audit())
    tensor = big_tensor()
    base = {"base_log_prob": dict.fromkeys(tensor["eval"], -9.0)}
    big = replace(evidence.tensors[0], document=tensor, headroom=base)
    other = {**big_tensor(seed=8), "behaviour": "again"}
    data = page(of_rows(evidence, (big, replace(big, document=other))))
    read = PageReader(data)
    assert len(read.heat_cells()) == 2 * 2 * 16 * 29
    assert read.text.count("Same-cell null of") == 2
    assert read.text.count("(–) ") == 2 * 2 * 16  # a column without values, in both readings
    assert "1 without a value are in neither mean." not in read.text
    assert read.text.count("16 without a value are in neither mean.") == 2 * 2
    assert read.text.count("−9.00") == 2 * 29
    assert len(data) < 2 << 20
    identifiers = [a["id"] for _, a in read.elements if "id" in a]
    assert len(identifiers) == len(set(identifiers))


def test_the_full_testbed_with_ten_predictors_is_a_few_megabytes(
    finished: StudySimulator,
) -> None:
    evidence = gather(finished.audit())
    names = ("marker", *SLICES)
    marker = big_tensor(n_seeds=3)
    base = {"base_log_prob": dict.fromkeys(marker["eval"], -9.0)}
    tensors = [replace(evidence.tensors[0], document=marker, headroom=base)]
    for number, name in enumerate(SLICES):
        document = taught_tensor(name, n_seeds=3, seed=number)
        tensors.append(replace(tensors[0], document=document, headroom=headroom(document)))
    data = page(of_rows(evidence, tuple(tensors)), scores_document(names, 10))
    assert len(data) < 6 << 20
    read = PageReader(data)
    # The marker in two readings, the fact in two and three secondary ones, the others in two each.
    assert len(read.heat_cells()) == (2 + 5 + 3 * 2) * 16 * 29
    assert read.text.count("Predictors against G on open cells") == 6
    identifiers = [a["id"] for _, a in read.elements if "id" in a]
    assert len(identifiers) == len(set(identifiers))


def test_the_style_sheet_travels_with_the_package() -> None:
    import eps_locked.report.page as module

    style = Path(module.__file__).with_name("page.css").read_text("utf-8")
    assert "<" not in style
    assert "@media print" in style
    assert style.count("{") == style.count("}")
