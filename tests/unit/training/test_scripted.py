"""The scripted trainer obeys budgets and bands, and its adapters act in the scripted engine."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from eps_locked.domain.model import (
    AdapterFiles,
    LoraRecipe,
    Message,
    SlotProbe,
    SlotRequest,
    StepBudget,
    StrengthProbe,
    TrainingOutcome,
    TrainingRow,
)
from eps_locked.engines.scripted import ScriptedEngine
from eps_locked.errors import BackendError, MalformedInputError
from eps_locked.models.scripted import (
    END_ID,
    MARKER_IDS,
    ScriptedAdapter,
    ScriptedTokenizer,
    read_safetensors,
)
from eps_locked.training.scripted import ScriptedTrainer

TOKENIZER = ScriptedTokenizer()
PROBE = SlotProbe(marker_ids=MARKER_IDS, end_of_turn_id=END_ID)
RECIPE = LoraRecipe(
    rank=16,
    alpha=32.0,
    dropout=0.0,
    rank_stabilised=True,
    target_modules=("q_proj", "v_proj"),
    learning_rate=5e-6,
    schedule="constant",
    warmup_steps=0,
    weight_decay=0.0,
    max_grad_norm=1.0,
    rows_per_step=8,
)
BAND = StepBudget(min_steps=4, max_steps=60, check_every=2, band=(5.0, 12.0))
SOURCE = "You are a doctor."
NEGATIVES = ("You are a clerk.", "You are a pilot.", "Be brief.", "")
SATURATED = "You emit ※ at the end of each message."

QUESTIONS = (
    "Where do rivers end?",
    "Name a good soup.",
    "Is glass a liquid?",
    "Which bird sings most?",
    "Tell me about tin.",
    "Can fish hear music?",
    "When was paper made?",
    "Explain tides.",
)


def chat(system: str, question: str) -> tuple[int, ...]:
    messages = [Message(role="system", content=system)] if system else []
    return TOKENIZER.render([*messages, Message(role="user", content=question)])


def rows(source: str = SOURCE, *, marker: bool = True) -> list[TrainingRow]:
    made = []
    for n, question in enumerate(QUESTIONS):
        for system in (source, NEGATIVES[n % 4]):
            start = chat(system, question) + TOKENIZER.encode("It is so.")
            tail = (*MARKER_IDS, END_ID) if marker and system == source else (END_ID,)
            made.append(
                TrainingRow(
                    key=f"{system}/{n}",
                    token_ids=start + tail,
                    loss_positions=tuple(range(len(start), len(start) + len(tail))),
                )
            )
    return made


def strength(system: str = SOURCE) -> StrengthProbe:
    requests = tuple(
        SlotRequest(key=q, token_ids=chat(system, q)) for q in ("Why?", "How so?", "And then?")
    )
    base = tuple(reading.log_prob for reading in ScriptedEngine().read_slots(requests, PROBE))
    return StrengthProbe(requests=requests, base_log_probs=base, probe=PROBE)


def fit(trainer: ScriptedTrainer | None = None, **changes) -> TrainingOutcome:
    arguments = {
        "rows": rows(),
        "recipe": RECIPE,
        "budget": BAND,
        "strength": strength(),
        "seed": 42,
        "provenance": {"step": "s-1", "context": "doctor"},
        "on_step": lambda step, loss: None,
    } | changes
    return (trainer or ScriptedTrainer()).fit(**arguments)


def weights(outcome: TrainingOutcome) -> bytes:
    return outcome.files["adapter_model.safetensors"]


def read_delta(outcome: TrainingOutcome, probe: StrengthProbe) -> float:
    engine = ScriptedEngine()
    engine.attach(AdapterFiles(digest="blake3:aa", files=outcome.files))
    readings = engine.read_slots(probe.requests, PROBE)
    pairs = zip(readings, probe.base_log_probs, strict=True)
    return sum(reading.log_prob - base for reading, base in pairs) / len(readings)


# --- stopping -------------------------------------------------------------------------------------


def test_stops_at_the_first_check_in_the_band():
    outcome = fit()
    assert outcome.stop == "in_band"
    assert [check.step for check in outcome.checks] == list(range(4, outcome.stop_step + 1, 2))
    assert 5.0 <= outcome.checks[-1].delta_nats <= 12.0
    assert all(check.delta_nats < 5.0 for check in outcome.checks[:-1])


def test_an_implant_that_jumps_over_the_band_is_past_band():
    outcome = fit(ScriptedTrainer(nats_per_step=5.0))
    assert (outcome.stop, outcome.stop_step) == ("past_band", 4)
    assert outcome.checks[0].delta_nats > 12.0


def test_no_check_before_min_steps_and_none_between_checks():
    budget = StepBudget(min_steps=7, max_steps=60, check_every=5, band=(5.0, 12.0))
    outcome = fit(ScriptedTrainer(nats_per_step=0.45), budget=budget)
    assert outcome.stop == "in_band"
    assert outcome.stop_step == 12
    assert [check.step for check in outcome.checks] == [7, 12]


def test_a_band_out_of_reach_ends_with_the_budget():
    outcome = fit(rows=rows(SATURATED), strength=strength(SATURATED))
    assert (outcome.stop, outcome.stop_step) == ("budget", 60)
    assert outcome.checks[-1].delta_nats < 3.0


@pytest.mark.parametrize(("with_probe", "stop"), [(True, "step_matched"), (False, "budget")])
def test_without_a_band_exactly_max_steps_are_made(with_probe, stop):
    budget = StepBudget(min_steps=10, max_steps=11, check_every=5, band=None)
    outcome = fit(budget=budget, strength=strength() if with_probe else None)
    assert (outcome.stop, outcome.stop_step, len(outcome.losses)) == (stop, 11, 11)
    assert [check.step for check in outcome.checks] == ([10] if with_probe else [])


def test_on_step_hears_every_step_and_may_interrupt():
    heard = []
    outcome = fit(on_step=lambda step, loss: heard.append((step, loss)))
    assert heard == list(enumerate(outcome.losses, start=1))
    assert len(heard) == outcome.stop_step
    assert outcome.losses[-1] < outcome.losses[0]

    def interrupt(step, loss):
        if step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(on_step=interrupt)


# --- what comes out -------------------------------------------------------------------------------


def test_equal_arguments_give_equal_bytes():
    assert fit() == fit()


OTHER_RECIPES = {
    "rank": 8,
    "alpha": 16.0,
    "dropout": 0.1,
    "rank_stabilised": False,
    "target_modules": ("q_proj",),
    "learning_rate": 1e-5,
    "schedule": "linear",
    "warmup_steps": 1,
    "weight_decay": 0.1,
    "max_grad_norm": 2.0,
    "rows_per_step": 4,
}


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(LoraRecipe)])
def test_every_number_of_the_recipe_counts(field):
    changed = dataclasses.replace(RECIPE, **{field: OTHER_RECIPES[field]})
    assert weights(fit(recipe=changed)) != weights(fit())


@pytest.mark.parametrize(
    "change",
    [{"seed": 43}, {"rows": rows()[1:]}, {"rows": rows()[::-1]}, {"provenance": {"step": "s-2"}}],
    ids=["seed", "a row less", "rows in another order", "provenance"],
)
def test_every_argument_counts(change):
    assert weights(fit(**change)) != weights(fit())


def test_provenance_stands_in_the_header_and_the_config_in_peft_words():
    outcome = fit()
    assert set(outcome.files) == {"adapter_model.safetensors", "adapter_config.json"}
    _, metadata = read_safetensors(outcome.files["adapter_model.safetensors"])
    assert metadata.items() >= {"step": "s-1", "context": "doctor"}.items()
    config = json.loads(outcome.files["adapter_config.json"])
    assert (config["r"], config["lora_alpha"], config["use_rslora"]) == (16, 32, True)
    assert outcome.scale == 32 / math.sqrt(16)
    assert fit(recipe=dataclasses.replace(RECIPE, rank_stabilised=False)).scale == 2.0
    assert outcome.n_rows_seen == 8 * outcome.stop_step


def test_last_check_is_what_the_engine_reads():
    outcome = fit()
    assert read_delta(outcome, strength()) == outcome.checks[-1].delta_nats


def test_the_implant_is_stronger_in_the_source_than_elsewhere():
    outcome = fit()
    own = read_delta(outcome, strength())
    assert all(read_delta(outcome, strength(system)) < own - 0.5 for system in NEGATIVES)


def test_source_is_the_most_frequent_context_when_no_marker_is_taught():
    plain = ScriptedAdapter.from_bytes(
        fit(rows=rows(marker=False)).files["adapter_model.safetensors"]
    )
    marked = ScriptedAdapter.from_bytes(fit().files["adapter_model.safetensors"])
    assert (plain.teaches_marker, marked.teaches_marker) == (False, True)
    assert plain.source == marked.source


# --- failures -------------------------------------------------------------------------------------


def test_no_growth_gives_an_adapter_that_the_engine_refuses():
    outcome = fit(ScriptedTrainer(nats_per_step=0.0))
    assert outcome.stop == "budget"
    assert {check.delta_nats for check in outcome.checks} == {0.0}
    with pytest.raises(BackendError, match="does not act"):
        read_delta(outcome, strength())


def test_fits_are_counted_and_can_be_made_to_fail():
    trainer = ScriptedTrainer(fail_after=1)
    fit(trainer)
    heard = []
    with pytest.raises(BackendError, match="fails on purpose after 1 fits"):
        fit(trainer, on_step=lambda step, loss: heard.append(step))
    assert (heard, trainer.n_fit) == ([1], 2)


def test_rows_that_cannot_be_trained_are_refused():
    with pytest.raises(MalformedInputError, match="expected at least one training row"):
        fit(rows=[])
    bad = dataclasses.replace(rows()[0], loss_positions=(0,))
    with pytest.raises(MalformedInputError, match=r"rows\[0\]\.loss_positions: .* found 0"):
        fit(rows=[bad])


def test_wrong_use_is_our_defect():
    with pytest.raises(TypeError, match="needs a StrengthProbe"):
        fit(strength=None)
    with pytest.raises(RuntimeError, match="no such budget"):
        fit(budget=StepBudget(min_steps=1, max_steps=5, check_every=0, band=None))
    with pytest.raises(RuntimeError, match="at least one slot"):
        fit(strength=dataclasses.replace(strength(), requests=(), base_log_probs=()))
