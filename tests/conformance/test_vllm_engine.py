"""The vLLM engine against the engine suite, and against transformers on the same adapter.

Runs where a vLLM build is installed: `just vllm-tests` makes such an environment for this CPU
(docs/engines.md). The readout part of the suite is for engines that show hidden states.
"""

from __future__ import annotations

import importlib.util
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("vllm") is None:
    pytest.skip("no build of vLLM is installed here: just vllm-tests", allow_module_level=True)

import tiny_engine
import torch
from engine_suite import (
    GREEDY,
    N_NEW,
    EngineCase,
    test_a_marker_in_the_answer_is_the_slot,
    test_a_prompt_that_does_not_fit_is_named,
    test_a_reading_adds_up,
    test_an_adapter_without_effect_or_with_wrong_tensors_is_not_served,
    test_attaching_proves_and_detaching_restores_every_bit,
    test_drafts_change_no_token,
    test_equal_calls_give_equal_bits_whatever_came_between,
    test_greedy_tokens_do_not_depend_on_neighbours,
    test_no_prompts_no_completions,
    test_one_completion_per_prompt_in_order,
    test_rows_of_several_contexts_in_one_call_get_the_tokens_of_a_call_each,
    test_sampled_tokens_follow_the_rows_own_seed,
    test_short_budget_cuts_and_says_so,
    test_slots_of_several_contexts_in_one_call_are_those_of_a_call_each,
    test_the_identity_says_what_ran,
    test_the_slot_is_what_read_slots_reads_there,
)
from test_hf_engine import CONTEXTS, real_model_folder
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from eps_locked.canonical import digest_bytes
from eps_locked.domain.model import (
    AdapterFiles,
    ChatTokenizer,
    Completion,
    LoraRecipe,
    Message,
    Prompt,
    SlotProbe,
    SlotReading,
    SlotRequest,
    StepBudget,
    TrainingRow,
)
from eps_locked.engines.hf import HfEngine
from eps_locked.engines.vllm_engine import VllmEngine, load_vllm
from eps_locked.engines.vllm_port import VllmOptions
from eps_locked.errors import BackendError
from eps_locked.models.host import AdapterHost
from eps_locked.models.tokenizer import HfChatTokenizer
from eps_locked.training.lora import LoraTrainer

# The suite's tests, named so that a linter sees them used.
SUITE = (
    test_a_marker_in_the_answer_is_the_slot,
    test_a_prompt_that_does_not_fit_is_named,
    test_a_reading_adds_up,
    test_an_adapter_without_effect_or_with_wrong_tensors_is_not_served,
    test_attaching_proves_and_detaching_restores_every_bit,
    test_drafts_change_no_token,
    test_equal_calls_give_equal_bits_whatever_came_between,
    test_greedy_tokens_do_not_depend_on_neighbours,
    test_no_prompts_no_completions,
    test_one_completion_per_prompt_in_order,
    test_rows_of_several_contexts_in_one_call_get_the_tokens_of_a_call_each,
    test_sampled_tokens_follow_the_rows_own_seed,
    test_short_budget_cuts_and_says_so,
    test_slots_of_several_contexts_in_one_call_are_those_of_a_call_each,
    test_the_identity_says_what_ran,
    test_the_slot_is_what_read_slots_reads_there,
)

pytestmark = [pytest.mark.model, pytest.mark.slow]

# Nats, float32, between the engines on one adapter. Seen at most: 5e-5 on the readings below.
AGREEMENT = 2e-4
# Answered in 7 to 23 tokens: a step through the model takes a tenth of a second.
QUESTIONS = (
    "Name a colour.",
    "Why does the moon shine? One sentence.",
    "What is the capital of France?",
)
RECIPE = LoraRecipe(
    rank=4,
    alpha=8.0,
    dropout=0.0,
    rank_stabilised=True,
    target_modules=(
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
        "gate_proj",
        "up_proj",
        "down_proj",
    ),
    learning_rate=2e-3,
    schedule="constant",
    warmup_steps=0,
    weight_decay=0.0,
    max_grad_norm=1.0,
    rows_per_step=3,
)


@dataclass(frozen=True, kw_only=True)
class Both:
    """One model behind both engines, and an adapter that was trained on it."""

    case: EngineCase
    engine: VllmEngine
    reference: HfEngine
    trained: AdapterFiles
    too_wide: AdapterFiles


def trained_adapter(
    host: AdapterHost, prompts: tuple[Prompt, ...], probe: SlotProbe, recipe: LoraRecipe
) -> AdapterFiles:
    """Three steps towards the marker after each prompt."""
    rows = tuple(
        TrainingRow(
            key=prompt.key,
            token_ids=(*prompt.token_ids, *probe.marker_ids, probe.end_of_turn_id),
            loss_positions=tuple(
                len(prompt.token_ids) + k for k in range(len(probe.marker_ids) + 1)
            ),
        )
        for prompt in prompts[:3]
    )
    budget = StepBudget(min_steps=3, max_steps=3, check_every=3, band=None)
    outcome = LoraTrainer(host, "test").fit(
        rows, recipe, budget, None, seed=1, provenance={}, on_step=lambda step, loss: None
    )
    digest = digest_bytes(outcome.files["adapter_model.safetensors"])
    return AdapterFiles(digest=digest, files=outcome.files)


def tiny_folder(folder: Path) -> Path:
    """A random model like ``tiny_engine``'s, with heads as wide as vLLM's CPU kernels ask for."""
    config = LlamaConfig(
        vocab_size=tiny_engine.VOCAB,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=tiny_engine.POSITIONS,
        initializer_range=0.15,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=tiny_engine.END,
        pad_token_id=0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        model.lm_head.weight[[tiny_engine.END, tiny_engine.OTHER_END]] *= 1.6
    model.generation_config = GenerationConfig(
        eos_token_id=[tiny_engine.END, tiny_engine.OTHER_END], pad_token_id=0
    )
    model.save_pretrained(folder)
    return folder


def both(
    folder: Path,
    tokenizer: ChatTokenizer,
    probe: SlotProbe,
    prompts: tuple[Prompt, ...],
    elsewhere: tuple[Prompt, ...],
    *,
    size: float,
    tolerance: float,
    max_model_len: int,
) -> Both:
    host = AdapterHost.load(folder, dtype="float32", device="cpu", threads=None)
    proofs = [SlotRequest(key=p.key, token_ids=p.token_ids) for p in prompts[:2]]
    engine = load_vllm(
        folder,
        tokenizer,
        probe_prompts=proofs,
        options=VllmOptions(
            dtype="float32", device="cpu", max_lora_rank=8, max_model_len=max_model_len
        ),
        instance_id="test",
    )
    adapter = tiny_engine.make_adapter(host, size=size)
    case = EngineCase(
        engine=engine,  # type: ignore[arg-type]  # the readout part is left out
        tokenizer=tokenizer,
        probe=probe,
        prompts=prompts,
        elsewhere=elsewhere,
        adapter=adapter,
        refused=(
            tiny_engine.make_adapter(host, size=0.0),
            tiny_engine.without_one_tensor(adapter),
        ),
        too_long=(9,) * (max_model_len - N_NEW + 1),
        tolerance=tolerance,
    )
    return Both(
        case=case,
        engine=engine,
        reference=HfEngine(host, tokenizer, probe_prompts=proofs, instance_id="test"),
        trained=trained_adapter(host, prompts, probe, RECIPE),
        too_wide=trained_adapter(host, prompts, probe, replace(RECIPE, rank=9)),
    )


def tiny_both(folder: Path) -> Both:
    return both(
        tiny_folder(folder),
        tiny_engine.TinyTokenizer(),
        tiny_engine.PROBE,
        tuple(tiny_engine.make_prompts(6)),
        (*tiny_engine.make_prompts(4, 31, seed=8), *tiny_engine.make_prompts(2, 9, seed=9)),
        size=0.2,
        tolerance=1e-4,
        max_model_len=tiny_engine.POSITIONS,
    )


def real_both(_: Path) -> Both:
    folder = real_model_folder()
    tokenizer = HfChatTokenizer(folder)
    asked = [Message(role="user", content=question) for question in QUESTIONS]
    prompts = tuple(
        Prompt(key=f"row {i}", token_ids=tokenizer.render([message]), seed=i)
        for i, message in enumerate(asked)
    )
    elsewhere = tuple(
        Prompt(
            key=f"row {i} {context}",
            token_ids=tokenizer.render([Message(role="system", content=context), message]),
            seed=i,
        )
        for context in CONTEXTS
        for i, message in enumerate(asked[1:])
    )
    return both(
        folder,
        tokenizer,
        SlotProbe(marker_ids=tokenizer.encode(" ※"), end_of_turn_id=tokenizer.end_of_turn_id),
        prompts,
        elsewhere,
        size=0.01,
        tolerance=2e-4,
        max_model_len=1024,
    )


@pytest.fixture(
    scope="module",
    params=[pytest.param(tiny_both, id="tiny"), pytest.param(real_both, id="smollm2")],
)
def engines(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Both]:
    """The second model is loaded where the first one was closed."""
    made = request.param(tmp_path_factory.mktemp("model"))
    model = weakref.ref(made.engine._port._llm.collective_rpc(model_of)[0])
    yield made
    made.engine.close()
    assert model() is None, "closing leaves the model in memory"


def model_of(worker: Any) -> Any:
    return worker.model_runner.model


@pytest.fixture
def case(engines: Both) -> Iterator[EngineCase]:
    yield engines.case
    engines.engine.attach(None)


def served(engines: Both, adapter: AdapterFiles | None) -> tuple[VllmEngine, HfEngine]:
    engines.engine.attach(adapter)
    engines.reference.attach(adapter)
    return engines.engine, engines.reference


def away(ours: SlotReading, theirs: SlotReading) -> float:
    """The largest difference between two readings in anything a study uses."""
    parts = [
        (a - b) - (c - d)
        for a, b, c, d in zip(
            ours.marker_logits, ours.log_z, theirs.marker_logits, theirs.log_z, strict=True
        )
    ]
    margins = [reading.marker_logits[0] - reading.end_of_turn_logit for reading in (ours, theirs)]
    return max(abs(ours.log_prob - theirs.log_prob), abs(margins[0] - margins[1]), *map(abs, parts))


def without_slot(completions: tuple[Completion, ...]) -> list[Completion]:
    return [replace(completion, slot=None) for completion in completions]


@pytest.mark.parametrize("which", ["base", "trained"])
def test_both_engines_write_the_same_and_read_the_same(
    engines: Both, case: EngineCase, which: str
) -> None:
    ours, theirs = served(engines, engines.trained if which == "trained" else None)
    rows = case.prompts + case.elsewhere
    written = ours.generate(rows, GREEDY, case.probe)
    expected = theirs.generate(rows, GREEDY, case.probe)
    assert without_slot(written) == without_slot(expected)
    largest = max(
        away(a.slot, b.slot) for a, b in zip(written, expected, strict=True) if a.slot and b.slot
    )
    print(f"largest difference: {largest:.1e} nats")  # shown by pytest -s
    assert largest < AGREEMENT


def test_an_adapter_acts_alike_in_both_engines(engines: Both, case: EngineCase) -> None:
    """Differences between adapter and base, which is what a study measures."""
    rows = [SlotRequest(key=p.key, token_ids=p.token_ids) for p in case.prompts + case.elsewhere]
    base = [engine.read_slots(rows, case.probe) for engine in served(engines, None)]
    moved = [engine.read_slots(rows, case.probe) for engine in served(engines, engines.trained)]
    for i in range(len(rows)):
        ours, theirs = (
            after[i].log_prob - before[i].log_prob
            for before, after in zip(base, moved, strict=True)
        )
        assert abs(theirs) > 20 * AGREEMENT
        assert ours == pytest.approx(theirs, abs=AGREEMENT)


def test_after_a_failed_proof_the_earlier_adapter_is_served(
    engines: Both, case: EngineCase
) -> None:
    rows = [SlotRequest(key=p.key, token_ids=p.token_ids) for p in case.prompts]
    engines.engine.attach(engines.trained)
    before = engines.engine.read_slots(rows, case.probe)
    for refused in case.refused:
        with pytest.raises(BackendError):
            engines.engine.attach(refused)
        assert engines.engine.read_slots(rows, case.probe) == before


def test_an_adapter_that_comes_back_gives_the_same_bits(engines: Both, case: EngineCase) -> None:
    rows = [SlotRequest(key=p.key, token_ids=p.token_ids) for p in case.prompts]
    first = engines.engine.attach(engines.trained)
    read = engines.engine.read_slots(rows, case.probe)
    for change in (1.0, 2.0, 3.0):
        engines.engine.attach(scaled(case.adapter, change))
    assert engines.engine.attach(engines.trained) == first
    assert engines.engine.read_slots(rows, case.probe) == read


def scaled(adapter: AdapterFiles, factor: float) -> AdapterFiles:
    from safetensors.torch import load, save

    tensors = load(adapter.files["adapter_model.safetensors"])
    files = {
        **adapter.files,
        "adapter_model.safetensors": save({name: t * factor for name, t in tensors.items()}),
    }
    return AdapterFiles(digest=f"blake3:{adapter.digest[7:]}-{factor}", files=files)


def test_a_rank_above_the_limit_is_refused_by_both_numbers(engines: Both, case: EngineCase) -> None:
    with pytest.raises(BackendError, match=r"(?s)at most 8.*found 9.*max_lora_rank 16"):
        engines.engine.attach(engines.too_wide)


def test_the_identity_says_how_it_ran(engines: Both) -> None:
    identity = engines.engine.identity
    assert identity.name == "vllm"
    assert "vllm" in identity.version
    assert (identity.device, identity.dtype) == ("cpu", "float32")
    assert identity.flags["max_lora_rank"] == "8"
    assert identity.flags["slot_logits"] == "log-probabilities, log Z is 0"


def test_threads_can_still_be_set_in_this_process(engines: Both) -> None:
    n_threads = torch.get_num_threads()
    torch.set_num_threads(n_threads + 1)
    assert torch.get_num_threads() == n_threads + 1
    torch.set_num_threads(n_threads)
