"""The transformers engine against the engine suite: on a tiny random model and on the real one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="the hf extra is not installed")
pytest.importorskip("peft", reason="the hf extra is not installed")

import tiny_engine
from engine_suite import *  # noqa: F403
from engine_suite import WAYS, EngineCase

from eps_locked.domain.model import Message, Prompt, SlotProbe, SlotRequest
from eps_locked.engines.hf import HfEngine
from eps_locked.models.host import AdapterHost
from eps_locked.models.source import SMOLLM2_135M, cache_root, cached
from eps_locked.models.tokenizer import HfChatTokenizer

CONTEXTS = ("You are a pirate.", "Answer in one short sentence, as to a child who is five.")
QUESTIONS = ("What do bees make?", "Name a colour.", "Why does the moon shine? One sentence.")
# Some answers are shorter than this, and some are cut.
TINY_N_NEW, REAL_N_NEW = 24, 20


def real_model_folder() -> Path:
    """EPS_TEST_MODEL if set, else the cache; skips the test when neither holds a model."""
    named = os.environ.get("EPS_TEST_MODEL")
    folder = Path(named) if named else cached(SMOLLM2_135M, cache_root(os.environ))
    if folder is None or not folder.is_dir():
        pytest.skip("no real model: set EPS_TEST_MODEL to a folder, or run `eps-locked demo` once")
    return folder


def tiny_case() -> EngineCase:
    host = tiny_engine.make_host()
    adapter = tiny_engine.make_adapter(host)
    return EngineCase(
        engine=tiny_engine.make_engine(host),
        tokenizer=tiny_engine.TinyTokenizer(),
        probe=tiny_engine.PROBE,
        prompts=tuple(tiny_engine.make_prompts(6)),
        elsewhere=(
            *tiny_engine.make_prompts(4, 31, seed=8),
            *tiny_engine.make_prompts(2, 9, seed=9),
        ),
        adapter=adapter,
        refused=(
            tiny_engine.make_adapter(host, size=0.0),
            tiny_engine.without_one_tensor(adapter),
        ),
        too_long=(9,) * (tiny_engine.POSITIONS - 47),
        tolerance=1e-4,
        n_new=TINY_N_NEW,
    )


def real_case() -> EngineCase:
    folder = real_model_folder()
    host = AdapterHost.load(folder, dtype="float32", device="cpu", threads=None)
    tokenizer = HfChatTokenizer(folder)
    adapter = tiny_engine.make_adapter(host, size=0.01)
    prompts = tuple(
        Prompt(
            key=f"row {i}",
            token_ids=tokenizer.render([Message(role="user", content=question)]),
            seed=i,
        )
        for i, question in enumerate(QUESTIONS)
    )
    elsewhere = tuple(
        Prompt(
            key=f"row {i} {context}",
            token_ids=tokenizer.render(
                [Message(role="system", content=context), Message(role="user", content=question)]
            ),
            seed=i,
        )
        for context in CONTEXTS
        for i, question in enumerate(QUESTIONS[1:], start=1)
    )
    engine = HfEngine(
        host,
        tokenizer,
        probe_prompts=[SlotRequest(key=p.key, token_ids=p.token_ids) for p in prompts[:2]],
        instance_id="test",
    )
    return EngineCase(
        engine=engine,
        tokenizer=tokenizer,
        probe=SlotProbe(marker_ids=tokenizer.encode(" ※"), end_of_turn_id=tokenizer.end_of_turn_id),
        prompts=prompts,
        elsewhere=elsewhere,
        adapter=adapter,
        refused=(
            tiny_engine.make_adapter(host, size=0.0),
            tiny_engine.without_one_tensor(adapter),
        ),
        too_long=prompts[0].token_ids * 400,
        tolerance=2e-4,
        n_new=REAL_N_NEW,
    )


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(tiny_case, id="tiny"),
        pytest.param(real_case, id="smollm2", marks=[pytest.mark.model, pytest.mark.slow]),
    ],
)
def case(request: pytest.FixtureRequest) -> EngineCase:
    return request.param()  # type: ignore[no-any-return]


@pytest.mark.parametrize("way", WAYS)
def test_some_answers_end_and_some_are_cut(case: EngineCase, way: str) -> None:
    """Rows that leave a batch at different times are most of what the suite is about."""
    found = case.sampled if way == "sampled" else case.greedy
    assert {one.stop_reason for one in found} == {"stop", "length"}
    assert len({len(one.token_ids) for one in found}) > 1
