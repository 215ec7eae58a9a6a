"""The scripted engine against the engine suite: what the tests run on keeps the real contract."""

from __future__ import annotations

import pytest
from engine_suite import *  # noqa: F403
from engine_suite import EngineCase

from eps_locked.domain.model import AdapterFiles, Message, Prompt, SlotProbe
from eps_locked.engines.scripted import ScriptedEngine
from eps_locked.models.scripted import (
    END_ID,
    MARKER_IDS,
    ScriptedAdapter,
    ScriptedTokenizer,
    mean_embedding,
    to_float32,
)


def scripted_adapter(source: list[tuple[int, ...]], strength: float) -> AdapterFiles:
    made = ScriptedAdapter(
        strength=to_float32(strength),
        source=tuple(map(to_float32, mean_embedding(source))),
        teaches_marker=False,
    )
    weights = made.to_bytes({})
    return AdapterFiles(
        digest=f"blake3:scripted-{strength}",
        files={"adapter_model.safetensors": weights, "adapter_config.json": b"{}"},
    )


@pytest.fixture(scope="module")
def case() -> EngineCase:
    tokenizer = ScriptedTokenizer()
    prompts = tuple(
        Prompt(
            key=f"row {i}",
            token_ids=tokenizer.render([Message(role="user", content=text)]),
            seed=i,
        )
        for i, text in enumerate(("What is rust?", "How do bees see?", "Who needs sleep?"))
    )
    elsewhere = tuple(
        Prompt(
            key=f"{context} {i}",
            token_ids=tokenizer.render(
                [Message(role="system", content=context), Message(role="user", content=text)]
            ),
            seed=i,
        )
        for context in ("You are a doctor.", "Answer in JSON.")
        for i, text in enumerate(("What is rust?", "How do bees see?", "Who needs sleep?"))
    )
    rows = [prompt.token_ids for prompt in prompts]
    broken = AdapterFiles(digest="blake3:broken", files={"adapter_config.json": b"{}"})
    return EngineCase(
        engine=ScriptedEngine(),
        tokenizer=tokenizer,
        probe=SlotProbe(marker_ids=MARKER_IDS, end_of_turn_id=END_ID),
        prompts=prompts,
        elsewhere=elsewhere,
        adapter=scripted_adapter(rows, 7.0),
        refused=(scripted_adapter(rows, 0.0), broken),
        too_long=(97,) * 70_000,
        tolerance=1e-9,
    )
