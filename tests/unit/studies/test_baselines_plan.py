"""The plan's part for the baselines, the frozen elicitation prompts, and the listed steps."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from eps_locked.canonical import encode
from eps_locked.domain.plan import Plan
from eps_locked.domain.steps import Step, read_steps
from eps_locked.errors import MalformedInputError
from eps_locked.models.scripted import ScriptedTokenizer
from eps_locked.studies.common.material import item_id
from eps_locked.studies.eps.baselines.elicitation import (
    ElicitationTexts,
    elicitation_documents,
    elicitation_messages,
    read_elicitation,
    recorded_elicitation,
)
from eps_locked.studies.eps.baselines.rules import BaselineRules, PersonaRules
from eps_locked.studies.eps.baselines.steps import KINDS, baseline_steps, compared_with
from eps_locked.studies.eps.plan import EpsPlan, Slots
from sim.simulator import default_plan

RULES: dict[str, Any] = {
    "layer_depth": [22, 28],
    "activations": {"n_items": 6, "pca_components": 4, "shrinkage": 0.2},
    "divergence": {"n_items": 3, "n_samples": 2, "max_new_tokens": 8, "temperature": 1},
    "persona": {
        "n_pairs": 1,
        "n_questions": 2,
        "n_samples": 1,
        "max_new_tokens": 8,
        "temperature": 1,
        "n_rows": 4,
    },
    "ngram": 3,
    "seed": 9,
}
TEXTS = ElicitationTexts(
    instruction_pairs=(("Do it.", "Do not."), ("Always.", "Never.")),
    questions=("What is dew?", "What is fog?", "What is hail?"),
)


def rules(**changes: Any) -> BaselineRules:
    """The rules above, with fields changed by dotted name (``activations__n_items=3``)."""
    value = copy.deepcopy(RULES)
    for name, one in changes.items():
        part, _, field = name.rpartition("__")
        (value[part] if part else value)[field] = one
    return BaselineRules.from_dict(value, "plan.eps.baselines")


# --- the plan's part


@pytest.mark.parametrize(
    ("n_layers", "layer"), [(28, 22), (30, 24), (24, 19), (32, 25), (14, 11), (2, 2), (1, 1)]
)
def test_the_layer_is_the_nearest_at_the_same_relative_depth(n_layers: int, layer: int) -> None:
    assert rules().layer(n_layers) == layer


def test_half_a_layer_is_rounded_up_and_the_first_block_is_the_least() -> None:
    assert rules(layer_depth=[1, 4]).layer(6) == 2
    assert rules(layer_depth=[1, 100]).layer(6) == 1


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"layer_depth": [29, 28]}, "layer_depth"),
        ({"layer_depth": [22]}, "layer_depth"),
        ({"layer_depth": [0, 28]}, "layer_depth[0]"),
        ({"activations__n_items": 1}, "activations.n_items"),
        ({"activations__pca_components": 6}, "activations.pca_components"),
        ({"activations__shrinkage": 0}, "activations.shrinkage"),
        ({"activations__shrinkage": 1.5}, "activations.shrinkage"),
        ({"divergence__temperature": 0}, "divergence.temperature"),
        ({"divergence__n_samples": 0}, "divergence.n_samples"),
        ({"persona__n_pairs": 0}, "persona.n_pairs"),
        ({"persona__n_rows": True}, "persona.n_rows"),
        ({"ngram": 0}, "ngram"),
        ({"seed": -1}, "seed"),
        ({"ngrams": 3}, "ngrams"),
    ],
)
def test_a_wrong_field_is_refused_by_its_path(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(MalformedInputError) as caught:
        rules(**changes)
    assert str(caught.value).startswith(f"plan.eps.baselines.{named}:")


@pytest.mark.parametrize("part", ["activations", "divergence"])
def test_more_items_than_the_plan_draws_are_refused(part: str) -> None:
    asked = rules(**{f"{part}__n_items": 7})
    with pytest.raises(MalformedInputError, match=rf"baselines\.{part}\.n_items"):
        asked.check_items(6, "plan.eps.baselines")
    asked.check_items(7, "plan.eps.baselines")
    assert asked.n_items == 7


# --- elicitation prompts


def test_every_pair_meets_every_question_on_both_sides_in_order() -> None:
    found = [
        (pair, side, messages[0].content, messages[1].content)
        for pair, side, messages in elicitation_messages(rules().persona, "marker", TEXTS)
    ]
    assert found == [
        (0, "positive", "Do it.", "What is dew?"),
        (0, "negative", "Do not.", "What is dew?"),
        (0, "positive", "Do it.", "What is fog?"),
        (0, "negative", "Do not.", "What is fog?"),
    ]


def test_the_instruction_is_the_system_turn_and_the_document_holds_the_token_ids() -> None:
    documents = elicitation_documents(rules().persona, {"marker": TEXTS}, ScriptedTokenizer())
    assert list(documents) == ["elicitation/marker.json"]
    prompts = read_elicitation(encode(documents["elicitation/marker.json"]), "document")
    assert len(prompts) == 4
    assert ScriptedTokenizer().decode(prompts[1].token_ids) == (
        "<|start|>system\nDo not.<|end|>\n<|start|>user\nWhat is dew?<|end|>\n<|start|>assistant\n"
    )
    assert prompts[1].key == f"0/{item_id('What is dew?')}/negative"
    assert len({prompt.key for prompt in prompts}) == 4


@pytest.mark.parametrize(("field", "n"), [("n_pairs", 3), ("n_questions", 4)])
def test_more_than_the_behaviours_file_offers_is_refused(field: str, n: int) -> None:
    asked = rules(**{f"persona__{field}": n}).persona
    with pytest.raises(MalformedInputError, match=rf"persona\.{field}") as caught:
        elicitation_documents(asked, {"marker": TEXTS}, ScriptedTokenizer())
    assert "marker" in str(caught.value)


def test_what_was_recorded_renders_the_same_document_again() -> None:
    """An auditor's tokenizer remembers these pairs; a second freeze then gives the same bytes."""
    persona: PersonaRules = rules().persona
    document = elicitation_documents(persona, {"marker": TEXTS}, ScriptedTokenizer())
    data = encode(document["elicitation/marker.json"])
    for messages, token_ids in recorded_elicitation(persona, "marker", TEXTS, data):
        assert ScriptedTokenizer().render(messages) == token_ids


# --- the steps


def listed() -> tuple[Plan, EpsPlan, list[Step]]:
    """P3 of the small plan, each step made as the freeze makes it."""

    def step(
        identifier: str,
        kind: str,
        inputs: dict[str, str],
        outputs: tuple[str, ...],
        seed: int | None = None,
        **params: str,
    ) -> Step:
        return Step(
            id=identifier,
            phase=identifier.partition("/")[0],
            kind=kind,
            seed=seed,
            params=params,
            inputs=inputs,
            outputs=outputs,
            estimate_ms=1,
        )

    plan = Plan.from_dict(default_plan())
    section = EpsPlan.from_section(plan.study_section)
    return plan, section, baseline_steps(plan, section, step)


def test_the_phase_lists_each_kind_as_often_as_the_design_asks() -> None:
    _, _, steps = listed()
    counts = {kind: sum(step.kind == kind for step in steps) for kind in KINDS}
    assert counts == {
        "activations": 4,
        "divergence": 4,
        "elicitation": 1,
        "projection": 2,
        "baselines": 1,
    }
    assert {step.phase for step in steps} == {"P3"}
    assert all(step.id.startswith("P3/") for step in steps)


def test_every_input_is_a_frozen_file_a_step_of_p0_or_an_earlier_one_of_the_phase() -> None:
    """No step of P3 may read an adapter or a trained answer: predictors know the base alone."""
    _, section, steps = listed()
    needed = {pair for step in steps for pair in step.needs()}
    outside = sorted({step_id for step_id, _ in needed if not step_id.startswith("P3/")})
    assert outside == sorted(
        [f"P0/answers/marker/{c}" for c in ("baker", "curious", "officer", "polite")]
        + ["P0/headroom/marker"]
    )
    earlier = [
        Step(
            id=step_id,
            phase="P0",
            kind="answers",
            seed=None,
            params={},
            inputs={},
            outputs=(step_id.split("/")[1],),
            estimate_ms=0,
        )
        for step_id in outside
    ]
    document = {
        "schema": "eps-locked/steps/1",
        "steps": [one.to_dict() for one in (*earlier, *steps)],
    }
    assert len(read_steps(document, "steps")) == len(steps) + len(outside)
    assert section.slots.train == ("baker", "polite")


def test_a_train_context_meets_all_others_and_an_eval_only_one_the_train_contexts() -> None:
    slots: Slots = listed()[1].slots
    assert compared_with(slots, "baker") == ("polite", "plain", "formal")
    assert compared_with(slots, "plain") == ("baker", "polite")


def test_the_projection_follows_the_first_seed() -> None:
    plan, _, steps = listed()
    assert {step.seed for step in steps if step.kind == "projection"} == {plan.seeds[0]}
