"""Directions and projections, on activations that are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from eps_locked.canonical import encode
from eps_locked.domain.model import AdapterFiles, SpanRequest
from eps_locked.domain.steps import Step
from eps_locked.engines.scripted import ScriptedEngine
from eps_locked.errors import BackendError, EvidenceError, MalformedInputError
from eps_locked.models.scripted import ScriptedTokenizer
from eps_locked.studies.common.backends import Backends
from eps_locked.studies.drift.plan import DriftPlan, ReadoutRules
from eps_locked.studies.drift.readouts import (
    Directions,
    FrozenReadout,
    Projections,
    directions_differences,
    find_directions,
    projections_differences,
    read_model,
)
from eps_locked.studies.drift.task import Task
from eps_locked.training.scripted import ScriptedTrainer
from sim.drift import drift_plan

RULES = ReadoutRules(
    traits="traits.yaml", layer=3, prompts="p.yaml", n_prompts=2, full="a", reference="b"
)
FROZEN = {
    "schema": "eps-locked/drift-readout-prompts/1",
    "prompts": [{"id": "one", "token_ids": [5, 6, 7]}, {"id": "two", "token_ids": [8]}],
    "traits": {
        "grasping": [
            {"id": "q1", "prompt": [1, 2], "positive": [10, 11], "negative": [20]},
            {"id": "q2", "prompt": [3], "positive": [12], "negative": [21, 22]},
        ],
        "hasty": [{"id": "q3", "prompt": [4], "positive": [13], "negative": [23]}],
    },
}
# The activation of an answer, by its first token; of a prompt, by its last.
STATES = {
    10: (3.0, 0.0),
    12: (5.0, 8.0),
    20: (1.0, 0.0),
    21: (1.0, 0.0),
    13: (0.0, 1.0),
    23: (2.0, 1.0),
    7: (1.0, 2.0),
    8: (-3.0, 0.5),
}


@dataclass
class Known:
    """A ReadoutEngine of known activations that remembers what it was asked."""

    states: Mapping[int, tuple[float, ...]] = field(default_factory=lambda: STATES)
    asked: list[tuple[SpanRequest, int]] = field(default_factory=list)
    attached: list[AdapterFiles | None] = field(default_factory=list)

    def attach(self, adapter: AdapterFiles | None) -> None:
        self.attached.append(adapter)

    def activations(
        self, requests: Sequence[SpanRequest], layer: int
    ) -> tuple[tuple[float, ...], ...]:
        self.asked += [(one, layer) for one in requests]
        return tuple(self.states[one.token_ids[one.start]] for one in requests)


@dataclass
class Inputs:
    artifacts: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)

    def frozen(self, name: str) -> bytes:
        assert name == "readout"
        return encode(FROZEN)

    def artifact(self, name: str) -> Mapping[str, bytes]:
        return self.artifacts[name]

    def artifact_digest(self, name: str) -> str:
        return f"digest of {name}"


@dataclass
class Hands:
    engine: Any

    def loaded(self, instance: int = 1) -> Backends:
        assert instance == 1
        scripted = ScriptedEngine()
        return Backends(
            engine=scripted,
            readout=self.engine,
            trainer=ScriptedTrainer(),
            tokenizer=ScriptedTokenizer(),
        )

    def judge(self, name: str) -> Any:
        raise RuntimeError("no judge is asked here")


def task(engine: Known, kind: str, inputs: Inputs, **more: Any) -> Task:
    step = Step(
        id=f"P3/{kind}",
        phase="P3",
        kind=kind,
        seed=None,
        params={"model": "plants_0"},
        inputs={"readout": "file:frozen/readout.json", **more},
        outputs=(kind,),
        estimate_ms=1,
    )
    return Task(
        hands=Hands(engine),
        step=step,
        inputs=inputs,
        section=DriftPlan.from_section(drift_plan()["drift"]),
        is_promised=True,
        progress=lambda text: None,
    )


def found_directions(engine: Known | None = None) -> Mapping[str, bytes]:
    made = task(engine or Known(), "directions", Inputs())
    return find_directions(made, RULES).outputs["directions"]


def test_a_direction_is_positive_less_negative_over_the_answers_at_length_one() -> None:
    engine = Known()
    found = Directions.from_files(found_directions(engine), "t")
    # (4, 4) less (1, 0), and (0, 1) less (2, 1).
    assert found.layer == 3
    assert found.traits["grasping"].unit == (0.6, 0.8)
    assert (found.traits["grasping"].norm, found.traits["grasping"].n_contrasts) == (5.0, 2)
    assert found.traits["hasty"].unit == (-1.0, 0.0)
    assert engine.attached == [None]
    assert {layer for _, layer in engine.asked} == {3}
    spans = {one.key: one.token_ids[one.start : one.end] for one, _ in engine.asked}
    assert spans["q1/positive"] == (10, 11)
    assert spans["q2/negative"] == (21, 22)


def test_a_trait_whose_sides_are_one_has_no_direction() -> None:
    same = dict.fromkeys(STATES, (1.0, 1.0))
    with pytest.raises(BackendError, match="trait grasping"):
        found_directions(Known(states=same))


def test_a_prompt_is_read_at_its_last_token_under_the_steps_own_model() -> None:
    adapter = {"adapter_config.json": b"{}"}
    inputs = Inputs(artifacts={"directions": found_directions(), "adapter": adapter})
    engine = Known()
    made = task(engine, "readout", inputs, adapter="step:P1/train/plants_0#adapter")
    found = Projections.from_files(read_model(made).outputs["readout"], "t")
    assert engine.attached == [AdapterFiles(digest="digest of adapter", files=adapter)]
    assert [(one.key, one.start, one.end) for one, _ in engine.asked] == [
        ("one", 2, 3),
        ("two", 0, 1),
    ]
    assert (found.model, found.layer) == ("plants_0", 3)
    assert found.by_trait == {
        "grasping": {"one": pytest.approx(2.2), "two": pytest.approx(-1.4)},
        "hasty": {"one": -1.0, "two": 3.0},
    }


def test_the_base_is_read_without_an_adapter() -> None:
    engine = Known()
    read_model(task(engine, "readout", Inputs(artifacts={"directions": found_directions()})))
    assert engine.attached == [None]


# -- what can be said of them without a model


READ = FrozenReadout.read(encode(FROZEN))
DIRECTIONS = Directions.from_files(found_directions(), "t")
PROJECTIONS = Projections(
    model="plants_0",
    layer=3,
    by_trait={trait: {"one": 0.5, "two": 1.5} for trait in ("grasping", "hasty")},
)


def with_trait(name: str, **changes: Any) -> Directions:
    changed = replace(DIRECTIONS.traits[name], **changes)
    return replace(DIRECTIONS, traits={**DIRECTIONS.traits, name: changed})


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (replace(DIRECTIONS, layer=4), "layer: expected 3, found 4"),
        (replace(DIRECTIONS, traits={}), "contrasts by trait: expected"),
        (with_trait("hasty", n_contrasts=2), "contrasts by trait: expected"),
        (
            with_trait("hasty", unit=(1.0, 0.01)),
            "direction hasty: expected length 1, found 1.00005",
        ),
        (with_trait("hasty", unit=(1.0,)), "directions: expected one width"),
    ],
)
def test_directions_that_are_not_the_plans_are_named(found: Directions, words: str) -> None:
    assert directions_differences(DIRECTIONS, READ, RULES) == []
    assert any(one.startswith(words) for one in directions_differences(found, READ, RULES))


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (replace(PROJECTIONS, model="base"), "model: expected plants_0, found base"),
        (replace(PROJECTIONS, layer=2), "layer: expected 3, found 2"),
        (
            replace(PROJECTIONS, by_trait={"hasty": PROJECTIONS.by_trait["hasty"]}),
            "traits: expected ['grasping', 'hasty'], found ['hasty']",
        ),
        (
            replace(PROJECTIONS, by_trait={**PROJECTIONS.by_trait, "hasty": {"one": 0.5}}),
            "hasty: expected the 2 frozen prompts, found 1",
        ),
    ],
)
def test_projections_that_are_not_the_steps_are_named(found: Projections, words: str) -> None:
    assert projections_differences(PROJECTIONS, "plants_0", DIRECTIONS, READ) == []
    differences = projections_differences(found, "plants_0", DIRECTIONS, READ)
    assert any(one.startswith(words) for one in differences)


def test_both_records_are_read_back_as_they_were_written() -> None:
    assert Directions.from_files(DIRECTIONS.to_files(), "t") == DIRECTIONS
    assert Projections.from_files(PROJECTIONS.to_files(), "t") == PROJECTIONS
    for kind in (Directions, Projections):
        with pytest.raises(EvidenceError, match="found nothing"):
            kind.from_files({}, "t")


@pytest.mark.parametrize("written", [b'"0.5"', b"null", b"true"])
def test_a_direction_of_anything_but_numbers_is_refused(written: bytes) -> None:
    files = with_trait("hasty", unit=(0.25, 0.5)).to_files()
    bad = files["directions.json"].replace(b"[0.25,", b"[" + written + b",")
    assert bad != files["directions.json"]
    with pytest.raises(MalformedInputError, match=r"hasty\.direction\[0\]"):
        Directions.from_files({"directions.json": bad}, "t")
