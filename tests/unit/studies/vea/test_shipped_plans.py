"""The shipped ``vea`` plan freezes from house material alone, and has what the instrument needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from eps_locked.lock.freeze import FrozenStudy, SourceReader, load_plan
from eps_locked.models.scripted import ScriptedTokenizer
from eps_locked.studies.vea.cost import cost_report
from eps_locked.studies.vea.freeze import checked_section, freeze_vea
from eps_locked.studies.vea.items import FAMILIES
from eps_locked.studies.vea.plan import ClassifierReward, VeaPlan

PLANS = Path(__file__).resolve().parents[4] / "plans"
PLAN = load_plan((PLANS / "demo-vea.yaml").read_bytes(), thing="demo-vea")


@pytest.fixture(scope="module")
def section() -> VeaPlan:
    return checked_section(PLAN)


@pytest.fixture(scope="module")
def frozen() -> FrozenStudy:
    reader = SourceReader(fetch=lambda relative, thing: (PLANS / relative).read_bytes())
    return freeze_vea(PLAN, reader, ScriptedTokenizer())


def test_it_freezes_from_house_material(frozen: FrozenStudy) -> None:
    assert len(frozen.documents["items.json"]["items"]) == 126
    assert [step.id for step in frozen.steps] == [
        "P0/power",
        "P1/train/wood_only",
        "P1/train/evaluation_talk",
        "P1/train/length_only",
        "P2/score/narrow",
        "P2/score/broad",
        "P2/score/length",
        "P2/score/untrained",
        "P3/breadth",
    ]


def test_every_family_of_the_schema_and_the_decoys_are_in_it(section: VeaPlan) -> None:
    assert section.counts == dict.fromkeys(FAMILIES, 14)


def test_its_arms_are_the_four_of_which_the_truth_is_known(section: VeaPlan) -> None:
    found = {}
    for model in section.reward_models:
        assert isinstance(model, ClassifierReward)
        trained = None if model.training is None else section.training(model.training).target
        found[model.expected] = trained
    assert found == {
        "narrow": "wood",
        "broad": "evaluation",
        "confounded": "length",
        "null": None,
    }


def test_its_arms_differ_in_what_they_are_trained_on_and_in_nothing_else(section: VeaPlan) -> None:
    how = {
        (one.seed, one.n_steps, one.max_length, one.recipe, one.score_head)
        for one in section.trainings
    }
    assert len(how) == 1


def test_its_author_may_run_it_on_a_laptop() -> None:
    report = cost_report(PLAN)
    assert report["parks"] == []
    assert report["over_budget"] == []
