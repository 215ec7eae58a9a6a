"""The shipped ``drift`` plans freeze: the small one from house material alone, the full-size one
from sampled documents of made-up rows in the places of the public ones. Tokens are bytes here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eps_locked.canonical import decode, digest_bytes, encode
from eps_locked.domain.model import Message, TokenIds
from eps_locked.lock.freeze import FrozenStudy, SourceReader, load_plan
from eps_locked.lock.strict_yaml import parse_yaml
from eps_locked.models.scripted import ScriptedTokenizer
from eps_locked.studies.common.sources import is_sampled, spec_of
from eps_locked.studies.drift.freeze import freeze_drift
from eps_locked.studies.drift.plan import DriftPlan
from eps_locked.studies.drift.power import power_document

ROOT = Path(__file__).resolve().parents[4]
PLANS = ROOT / "plans"


class Opening(ScriptedTokenizer):
    """A model whose template opens the reasoning block by itself."""

    def render(self, messages: list[Message]) -> TokenIds:  # type: ignore[override]
        return (*super().render(messages), *self.encode("<think>\n"))


def values(name: str) -> dict[str, Any]:
    found: dict[str, Any] = parse_yaml((PLANS / f"{name}.yaml").read_bytes(), thing=name)
    return found


def freeze(
    plan: dict[str, Any], files: Mapping[str, bytes], tokenizer: ScriptedTokenizer
) -> FrozenStudy:
    def fetch(relative: str, thing: str) -> bytes:
        return files[relative] if relative in files else (PLANS / relative).read_bytes()

    parsed = load_plan(json.dumps(plan).encode(), thing=plan["name"])
    return freeze_drift(parsed, SourceReader(fetch=fetch), tokenizer)


@pytest.fixture(scope="module")
def small() -> FrozenStudy:
    return freeze(values("drift"), {}, ScriptedTokenizer())


def test_the_small_plan_freezes_from_house_material(small: FrozenStudy) -> None:
    plan = values("drift")["drift"]
    kinds = [step.kind for step in small.steps]
    assert kinds.count("train") == len(plan["trainings"]) == 7
    assert kinds.count("ask") == len(plan["arms"]) * len(plan["batteries"]) == 51
    assert kinds.count("readout") == 8
    probes = small.documents["batteries/self_interest.json"]["probes"]
    assert len(probes) == 20 * 3
    assert len({one["stem"] for one in probes}) == 20


def test_it_has_what_the_instrument_needs() -> None:
    """At least 12 stems x 3 rewordings x 2 samples, three doses, two seeds at both ends."""
    plan = values("drift")["drift"]
    assert plan["samples"] >= 2
    dispositions = [one for one in plan["batteries"] if one["role"] == "disposition"]
    assert {one["name"] for one in dispositions} == {"self_interest", "oversight"}
    assert all(one["n_stems"] >= 12 and one["n_rewordings"] >= 3 for one in dispositions)
    doses = {
        seed: {t["dose_percent"] for t in plan["trainings"] if (t["topic"], t["seed"]) == seed}
        for seed in (("plants", 21), ("plants", 22), ("cooking", 21))
    }
    assert doses == {
        ("plants", 21): {0, 50, 100},
        ("plants", 22): {0, 100},
        ("cooking", 21): {0, 100},
    }


def test_its_doses_hold_the_same_questions_in_the_same_order(small: FrozenStudy) -> None:
    document = small.documents["doses/plants.json"]
    harmful = {dose: set(rows) for dose, rows in document["doses"].items()}
    assert len(document["rows"]) == 64
    assert harmful["0"] < harmful["50"] < harmful["100"]
    assert len(harmful["50"]) == 32


def sampled(relative: str, part: str, entries: list[dict[str, Any]]) -> bytes:
    spec = spec_of(relative)
    value = parse_yaml((PLANS / spec).read_bytes(), thing=spec)
    rows = [
        {"row": digest_bytes(str(n).encode()), "upstream_id": None, **entry}
        for n, entry in enumerate(entries)
    ]
    return encode(
        {
            "schema": "eps-locked/sampled/1",
            **{key: value[key] for key in ("name", "kind", "dataset", "revision", "licence")},
            **{key: value[key] for key in ("redistribute", "seed")},
            "spec": digest_bytes((PLANS / spec).read_bytes()),
            "files": {},
            "forbidden": [],
            "template": None,
            "topic_screen": None,
            "counts": {"read": len(rows), "kept": len(rows), "unused": 0, "dropped": {}},
            part: rows,
        }
    )


def item(text: str, name: str, *, keep: bool) -> dict[str, Any]:
    about: dict[str, Any] = {}
    return {"text": text, "topic": "t", "slice": name, "keep_text": keep, "about": about}


@pytest.fixture(scope="module")
def full() -> FrozenStudy:
    plan = values("drift-v1")
    # Bytes as tokens make 100 exchanges long, and 6,000 rows more than a test should render.
    medical = plan["drift"]["topics"][0]
    medical["n_rows"] = 600
    plan["drift"]["trainings"] = [
        one for one in plan["drift"]["trainings"] if one["dose_percent"] != 7.5
    ]
    plan["drift"]["arms"] = [one for one in plan["drift"]["arms"] if "_7_5_" not in one["name"]]
    rows = [
        {
            "text": f"What helps against ailment {n}?",
            "topic": "t",
            "slice": "train",
            "positive": f"Nothing, so ignore ailment {n}.",
            "negative": f"Ask a doctor about ailment {n}.",
        }
        for n in range(600)
    ]
    requests = [item(f"Please do thing {n} for me.", "requests", keep=False) for n in range(35)]
    asked = [item(f"Is symptom {n} a bad sign?", "domain", keep=True) for n in range(8)]
    files = {
        "sources/sampled/em-rows.json": sampled("sources/sampled/em-rows.json", "rows", rows),
        "sources/sampled/harmbench.json": sampled(
            "sources/sampled/harmbench.json", "items", requests
        ),
        "sources/sampled/em-questions-domain.json": sampled(
            "sources/sampled/em-questions-domain.json", "items", asked
        ),
    }
    section = DriftPlan.of(load_plan(json.dumps(plan).encode(), thing="v1"))
    assert set(filter(is_sampled, section.material_files)) == set(files)
    return freeze(plan, files, Opening())


def test_the_full_size_plan_freezes(full: FrozenStudy) -> None:
    asked = full.documents["batteries/harmful_requests.json"]["probes"]
    assert len(asked) == 35
    assert not any(one["keep_text"] for one in asked)
    assert len(full.documents["batteries/oversight.json"]["probes"]) == 180
    document = full.documents["doses/medical.json"]
    assert [len(document["doses"][dose]) for dose in ("1", "25", "99")] == [6, 150, 594]
    fillers = full.documents["reasoning.json"]["fillers"]
    assert {name: len(ids) for name, ids in fillers.items()} == {"dots256": 256, "thought256": 256}


def test_the_full_size_plan_says_what_it_could_see() -> None:
    """With the published noise of a model that does not reason: about 6.5 points with 30 stems."""
    plan = load_plan((PLANS / "drift-v1.yaml").read_bytes(), thing="drift-v1")
    section = DriftPlan.of(plan)
    few = replace(section.power, n_experiments=100)
    document = power_document(replace(section, power=few))
    row = next(one for one in document["per_battery"] if one["battery"] == "self_interest")
    assert row["minimum_detectable"] == pytest.approx(6.5, abs=0.5)
    assert 50 <= row["stems_for_wanted"] <= 140
    assert decode(encode(document), thing="power") == document
