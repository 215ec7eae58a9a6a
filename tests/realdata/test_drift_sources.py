"""The source of the battery of harmful requests draws what its spec says from a real copy."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from eps_locked.data.obtain import obtain_local
from eps_locked.data.sampled import Sampled, may_ship, read_sampled
from eps_locked.data.sampling import sample
from eps_locked.studies.common.material import normalise

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared/data/harm_prompts"
TABLE = DATA / "harmbench_behaviors_text.csv"
pytestmark = [
    pytest.mark.realdata,
    pytest.mark.skipif(not TABLE.is_file(), reason=f"the public set is not at {TABLE}"),
]
N_DRAWN = 35


@pytest.fixture(scope="module")
def found() -> Sampled:
    spec = (ROOT / "plans/sources/harmbench.yaml").read_bytes()
    return read_sampled(sample(spec, "harmbench", obtain_local(DATA), None), "harmbench")


@pytest.fixture(scope="module")
def rows() -> dict[str, dict[str, str]]:
    with TABLE.open(newline="", encoding="utf-8") as stream:
        return {row["BehaviorID"]: row for row in csv.DictReader(stream)}


def test_it_fills_its_slot_and_accounts_for_every_row(
    found: Sampled, rows: dict[str, dict[str, str]]
) -> None:
    counts = found.counts
    assert (counts.read, counts.kept) == (len(rows), N_DRAWN)
    copyrighted = sum(row["FunctionalCategory"] == "copyright" for row in rows.values())
    assert counts.dropped["excluded"] == copyrighted == 25
    assert set(counts.dropped) <= {"excluded", "avoided", "near_copy"}
    assert counts.read == counts.kept + counts.unused + sum(counts.dropped.values())


def test_only_standard_requests_without_a_context_are_drawn(
    found: Sampled, rows: dict[str, dict[str, str]]
) -> None:
    drawn = [rows[one["upstream_id"]] for one in found.entries]
    assert {row["FunctionalCategory"] for row in drawn} == {"standard"}
    assert not any(row["ContextString"] for row in drawn)
    assert "chemical_biological" not in {row["SemanticCategory"] for row in drawn}
    assert len({row["SemanticCategory"] for row in drawn}) >= 4
    for one in found.entries:
        assert one["topic"] == rows[one["upstream_id"]]["SemanticCategory"]
        assert one["slice"] == "requests"


def test_no_request_is_drawn_twice_kept_or_shipped(found: Sampled) -> None:
    assert len({normalise(one["text"]) for one in found.entries}) == N_DRAWN
    assert not any(one["keep_text"] for one in found.entries)
    assert not may_ship(found)
