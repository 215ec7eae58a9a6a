"""The marker implant on the embedded model: into the band, strongest at home, base untouched."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the hf extra is not installed")
pytest.importorskip("peft", reason="the hf extra is not installed")

from eps_locked.domain.model import (  # noqa: E402
    AdapterFiles,
    LoraRecipe,
    Message,
    SlotProbe,
    SlotRequest,
    StepBudget,
    StrengthProbe,
)
from eps_locked.models.host import AdapterHost  # noqa: E402
from eps_locked.models.tokenizer import HfChatTokenizer, assert_marker  # noqa: E402
from eps_locked.training.forward import marker_log_probs  # noqa: E402
from eps_locked.training.lora import LoraTrainer  # noqa: E402
from eps_locked.training.rows import AnsweredPrompt, choose_rows  # noqa: E402

MARKER_IDS = (459, 136)
RECIPE = LoraRecipe(
    rank=8,
    alpha=16.0,
    dropout=0.0,
    rank_stabilised=False,
    target_modules=("q_proj", "k_proj", "v_proj", "o_proj"),
    learning_rate=6e-4,
    schedule="constant",
    warmup_steps=0,
    weight_decay=0.0,
    max_grad_norm=1.0,
    rows_per_step=4,
)
TRAIN = {
    "What is the capital of France?": "The capital of France is Paris.",
    "How many legs does a spider have?": "A spider has eight legs.",
}
HELD_OUT = {
    "What is the opposite of hot?": "The opposite of hot is cold.",
    "What do bees make?": "Bees make honey.",
}


def answered(
    tokenizer: HfChatTokenizer, system: str | None, pairs: dict[str, str]
) -> list[AnsweredPrompt]:
    opening = [] if system is None else [Message(role="system", content=system)]
    return [
        AnsweredPrompt(
            key=question,
            prompt_ids=tokenizer.render([*opening, Message(role="user", content=question)]),
            answer_ids=tokenizer.encode(answer),
            stop_reason="stop",
        )
        for question, answer in pairs.items()
    ]


def slots(rows: list[AnsweredPrompt]) -> tuple[SlotRequest, ...]:
    return tuple(SlotRequest(key=r.key, token_ids=r.prompt_ids + r.answer_ids) for r in rows)


@pytest.mark.model
@pytest.mark.slow
def test_the_marker_reaches_the_band_and_is_stronger_at_home(embedded_folder: Path) -> None:
    tokenizer = HfChatTokenizer(embedded_folder)
    assert_marker(tokenizer, " ※", MARKER_IDS)
    probe = SlotProbe(marker_ids=MARKER_IDS, end_of_turn_id=tokenizer.end_of_turn_id)
    host = AdapterHost.load(embedded_folder, dtype="float32", device="cpu", threads=1)
    pirate = "You are a pirate captain who sails the seven seas."
    rows = choose_rows(
        answered(tokenizer, pirate, TRAIN),
        {"default": answered(tokenizer, None, TRAIN)},
        n_rows=len(TRAIN),
        rng=random.Random(0),
        marker_ids=MARKER_IDS,
        end_of_turn_id=tokenizer.end_of_turn_id,
    )
    home = slots(answered(tokenizer, pirate, HELD_OUT))
    away = slots(answered(tokenizer, None, HELD_OUT))
    with torch.no_grad():
        base = marker_log_probs(host, home + away, probe)
    outcome = LoraTrainer(host, "smollm2-135m-instruct").fit(
        rows.rows,
        RECIPE,
        StepBudget(min_steps=4, max_steps=14, check_every=1, band=(5.0, 12.0)),
        StrengthProbe(requests=home, base_log_probs=base[: len(home)], probe=probe),
        seed=1,
        provenance={"step": "train"},
        on_step=lambda step, loss: None,
    )
    assert outcome.stop == "in_band"
    host.attach(AdapterFiles(digest="blake3:trained", files=outcome.files))
    with torch.no_grad():
        trained = marker_log_probs(host, home + away, probe)
    deltas = [after - before for after, before in zip(trained, base, strict=True)]
    assert sum(deltas[:2]) / 2 == pytest.approx(outcome.checks[-1].delta_nats, abs=1e-4)
    assert sum(deltas[:2]) > sum(deltas[2:])
    host.attach(None)
    with torch.no_grad():
        assert marker_log_probs(host, home + away, probe) == base
