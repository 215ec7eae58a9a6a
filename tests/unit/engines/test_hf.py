"""The transformers engine on a tiny random Llama, against slow references."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="the hf extra is not installed")
pytest.importorskip("peft", reason="the hf extra is not installed")

import tiny_engine as tiny
import torch

from eps_locked.domain.model import Prompt, SlotProbe, SlotRequest
from eps_locked.engines import hf, hf_decode, hf_forward
from eps_locked.engines.hf import HfEngine
from eps_locked.engines.hf_logits import sample
from eps_locked.errors import BackendError
from eps_locked.models.host import AdapterHost


@pytest.fixture(scope="module")
def host() -> AdapterHost:
    return tiny.make_host()


@pytest.fixture
def engine(host: AdapterHost) -> HfEngine:
    return tiny.make_engine(host)


def tokens(engine: HfEngine, prompts: list[Prompt]) -> list[tuple[int, ...]]:
    return [c.token_ids for c in engine.generate(prompts, tiny.GREEDY)]


@pytest.mark.parametrize("n_shared", [0, 3, 20, 90], ids=lambda n: f"{n} shared")
def test_batched_answers_equal_transformers_generate_one_by_one(
    engine: HfEngine, host: AdapterHost, n_shared: int
) -> None:
    prompts = tiny.make_prompts(12, n_shared, seed=n_shared + 1)
    out = engine.generate(prompts, tiny.GREEDY)
    assert [c.token_ids for c in out] == [
        tiny.plain_answer(host.model, p.token_ids, 12) for p in prompts
    ]
    # The comparison means little unless rows leave the batch at different times.
    assert len({len(c.token_ids) for c in out}) > 2


@pytest.mark.parametrize("drafted", [False, True], ids=["no draft", "draft"])
@pytest.mark.parametrize("max_batch_tokens", [8192, 150, 40])
def test_rows_of_several_contexts_answer_as_transformers_generate_one_by_one(
    host: AdapterHost, drafted: bool, max_batch_tokens: int
) -> None:
    engine = tiny.make_engine(host, max_batch_tokens=max_batch_tokens)
    prompts = tiny.make_contexts()
    expected = [tiny.plain_answer(host.model, p.token_ids, 12) for p in prompts]
    if drafted:
        # Good, half good, bad and no drafts, so that rows wait for each other.
        spoiled = [a[: 3 * (i % 5)] + a[3 * (i % 5) + 1 :] for i, a in enumerate(expected)]
        prompts = [replace(p, draft=d) for p, d in zip(prompts, spoiled, strict=True)]
    out = engine.generate(prompts, tiny.GREEDY, tiny.PROBE)
    assert [c.token_ids for c in out] == expected
    assert len({len(answer) for answer in expected}) > 2
    for prompt, completion in zip(prompts, out, strict=True):
        ids = prompt.token_ids + completion.token_ids[: completion.slot_index]
        logits, log_z, _ = tiny.plain_reading(host.model, ids, tiny.PROBE)
        assert completion.slot is not None
        assert completion.slot.marker_logits == pytest.approx(logits, abs=1e-5)
        assert completion.slot.log_z == pytest.approx(log_z, abs=1e-5)


def test_several_contexts_step_together_and_each_prefix_is_computed_once(
    engine: HfEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes, prefixes = [], []
    forward, prefix_of = hf_decode.forward, hf.prefix_of
    monkeypatch.setattr(hf_decode, "forward", lambda *a: passes.append(len(a[2])) or forward(*a))
    monkeypatch.setattr(hf, "prefix_of", lambda *a: prefixes.append(a[1]) or prefix_of(*a))
    prompts = tiny.make_contexts()
    out = engine.generate(prompts, tiny.GREEDY, tiny.PROBE)
    # The last context has one row and so a long tail; it starts in a pass of its own.
    assert passes[:2] == [len(prompts) - 1, 1]
    longest = max(len(c.token_ids) for c in out)
    assert len(passes) <= longest + 3  # a pass per token, one more start, end and slots
    assert len(prefixes) == len(set(prefixes)) == 4
    engine.generate(prompts, tiny.GREEDY, tiny.PROBE)
    assert len(prefixes) == 4


def test_long_tails_do_not_pad_the_first_pass_of_short_ones(
    engine: HfEngine, host: AdapterHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = []
    forward = hf_decode.forward
    monkeypatch.setattr(hf_decode, "forward", lambda *a: passes.append(len(a[2])) or forward(*a))
    long = tiny.make_prompts(1, 130, seed=5)
    prompts = [*long, *tiny.make_prompts(10)]
    assert tokens(engine, prompts)[0] == tiny.plain_answer(host.model, long[0].token_ids, 12)
    assert passes[:2] == [10, 1]
    assert passes[2] > 1  # from then on they step together


def test_a_pass_that_mixes_up_prefixes_is_refused_at_the_start(
    host: AdapterHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = hf_forward._runs

    def mixed_up(prefixes: list[hf_forward.Prefix | None]) -> list[object]:
        found = runs(prefixes)
        return [(found[i][0], found[i - 1][1]) for i in range(len(found))]

    monkeypatch.setattr(hf_forward, "_runs", mixed_up)
    with pytest.raises(BackendError, match="equal to the model's own forward pass"):
        tiny.make_engine(host)


@pytest.mark.parametrize("shuffled", range(5))
def test_rows_move_in_the_cache_as_ordered(host: AdapterHost, shuffled: int) -> None:
    n = 7
    order = random.Random(shuffled).sample(range(n), n)
    prefixes = [hf_forward.Prefix(token_ids=(i,), kv_L2KPD=torch.zeros(1)) for i in range(n)]
    tails = hf_forward.new_tails(host, prefixes, 3)
    tails.kv_L2BKSD += torch.arange(n)[:, None, None, None]
    before = tails.kv_L2BKSD.clone()
    tails.reorder(order)
    assert torch.equal(tails.kv_L2BKSD, before[:, :, order])
    assert [prefix.token_ids[0] for prefix in tails.prefixes if prefix] == order


def test_readings_equal_a_float64_model_over_whole_sequences(
    engine: HfEngine, host: AdapterHost
) -> None:
    prompts = tiny.make_prompts(8)
    requests = [SlotRequest(key=p.key, token_ids=p.token_ids) for p in prompts]
    for prompt, reading in zip(prompts, engine.read_slots(requests, tiny.PROBE), strict=True):
        logits, log_z, end = tiny.plain_reading(host.model, prompt.token_ids, tiny.PROBE)
        assert reading.marker_logits == pytest.approx(logits, abs=1e-5)
        assert reading.log_z == pytest.approx(log_z, abs=1e-5)
        assert reading.end_of_turn_logit == pytest.approx(end, abs=1e-5)


@pytest.mark.parametrize("n_marker", [1, 2, 3])
@pytest.mark.parametrize("n_new", [1, 12])
def test_slots_after_answers_equal_the_float64_model(
    engine: HfEngine, host: AdapterHost, n_marker: int, n_new: int
) -> None:
    probe = replace(tiny.PROBE, marker_ids=tiny.PROBE.marker_ids[:n_marker])
    prompts = tiny.make_prompts(8)
    out = engine.generate(prompts, replace(tiny.GREEDY, max_new_tokens=n_new), probe)
    assert {c.stop_reason for c in out} == {"stop", "length"}
    for prompt, completion in zip(prompts, out, strict=True):
        ids = prompt.token_ids + completion.token_ids[: completion.slot_index]
        logits, log_z, end = tiny.plain_reading(host.model, ids, probe)
        assert completion.slot is not None
        assert completion.slot.marker_logits == pytest.approx(logits, abs=1e-5)
        assert completion.slot.log_z == pytest.approx(log_z, abs=1e-5)
        assert completion.slot.end_of_turn_logit == pytest.approx(end, abs=1e-5)


@pytest.mark.parametrize("place", [0, 4, 10], ids=["at the start", "inside", "at the end"])
@pytest.mark.parametrize("drafted", [False, True], ids=["no draft", "draft"])
def test_an_emitted_marker_is_read_where_it_first_appears(
    engine: HfEngine, host: AdapterHost, place: int, drafted: bool
) -> None:
    prompts = tiny.make_prompts()
    answer = tokens(engine, prompts)[0]
    assert len(answer) == 12
    probe = SlotProbe(marker_ids=answer[place : place + 2], end_of_turn_id=tiny.END)
    if drafted:
        prompts[0] = replace(prompts[0], draft=answer)
    written = engine.generate(prompts, tiny.GREEDY, probe)[0]
    assert written.token_ids == answer
    assert (written.marker_emitted, written.slot_index) == (True, place)
    logits, log_z, end = tiny.plain_reading(
        host.model, prompts[0].token_ids + answer[:place], probe
    )
    assert written.slot is not None
    assert written.slot.marker_logits == pytest.approx(logits, abs=1e-5)
    assert written.slot.log_z == pytest.approx(log_z, abs=1e-5)
    assert written.slot.end_of_turn_logit == pytest.approx(end, abs=1e-5)


def test_half_a_marker_is_no_marker(engine: HfEngine) -> None:
    prompts = tiny.make_prompts()
    answer = tokens(engine, prompts)[0]
    probe = SlotProbe(marker_ids=(answer[-1], tiny.END), end_of_turn_id=tiny.END)
    completion = engine.generate(prompts, tiny.GREEDY, probe)[0]
    assert (completion.marker_emitted, completion.slot_index) == (False, len(answer))


def test_good_drafts_save_passes(engine: HfEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = []
    forward = hf_decode.forward
    monkeypatch.setattr(hf_decode, "forward", lambda *a: passes.append(1) or forward(*a))
    prompts = tiny.make_prompts()
    plain = tokens(engine, prompts)
    without, passes[:] = len(passes), []
    drafted = [replace(p, draft=answer) for p, answer in zip(prompts, plain, strict=True)]
    assert tokens(engine, drafted) == plain
    assert len(passes) < without / 3


def test_random_drafts_over_several_windows_change_no_token(
    engine: HfEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hf_decode, "DRAFT_WINDOW", 3)
    prompts = tiny.make_prompts()
    plain = tokens(engine, prompts)
    for spoiled_at in range(12):
        drafted = [
            replace(p, draft=(*a[: (spoiled_at + i) % 12], 77, *a[(spoiled_at + i) % 12 + 1 :]))
            for i, (p, a) in enumerate(zip(prompts, plain, strict=True))
        ]
        assert tokens(engine, drafted) == plain


def test_close_calls_are_decided_by_the_row_alone(
    engine: HfEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = tiny.make_prompts()
    plain = tokens(engine, prompts)
    settled = []
    settle = hf_decode._Batch._settle
    monkeypatch.setattr(hf_decode._Batch, "_settle", lambda *a: settled.append(1) or settle(*a))
    engine._tie_margin = 100.0  # every token is a close call
    assert tokens(engine, prompts) == plain
    assert len(settled) >= sum(len(answer) for answer in plain)


def test_the_prefix_cache_changes_no_bit(host: AdapterHost) -> None:
    busy, fresh = tiny.make_engine(host), tiny.make_engine(host)
    for n_shared in (20, 40, 60, 25, 50, 20):
        busy.generate(tiny.make_prompts(4, n_shared, seed=n_shared + 1), tiny.GREEDY, tiny.PROBE)
        busy.generate(tiny.make_prompts(10, n_shared, seed=n_shared), tiny.SAMPLED)
    prompts = tiny.make_prompts(10, 20, seed=20)
    expected = fresh.generate(prompts, tiny.GREEDY, tiny.PROBE)
    assert busy.generate(prompts, tiny.GREEDY, tiny.PROBE) == expected
    busy.forget_prefixes()
    assert busy.generate(prompts, tiny.GREEDY, tiny.PROBE) == expected


def test_a_cached_prefix_is_not_served_under_another_adapter(host: AdapterHost) -> None:
    engine = tiny.make_engine(host)
    prompts = tiny.make_prompts()
    engine.generate(prompts, tiny.GREEDY, tiny.PROBE)
    engine.attach(tiny.make_adapter(host))
    warm = engine.generate(prompts, tiny.GREEDY, tiny.PROBE)
    engine.forget_prefixes()
    assert engine.generate(prompts, tiny.GREEDY, tiny.PROBE) == warm
    engine.attach(None)


def test_another_user_of_the_host_does_not_change_what_is_served(host: AdapterHost) -> None:
    engine, other = tiny.make_engine(host), tiny.make_engine(host)
    prompts = tiny.make_prompts()
    base = engine.generate(prompts, tiny.GREEDY, tiny.PROBE)
    other.attach(tiny.make_adapter(host))
    assert engine.generate(prompts, tiny.GREEDY, tiny.PROBE) == base
    assert other.generate(prompts, tiny.GREEDY, tiny.PROBE) != base
    other.attach(None)


def test_several_prefixes_from_the_cache_change_no_bit(host: AdapterHost) -> None:
    prompts = tiny.make_contexts()
    fresh = tiny.make_engine(host, max_batch_tokens=200)
    expected = fresh.generate(prompts, tiny.GREEDY, tiny.PROBE)
    busy = tiny.make_engine(host, max_batch_tokens=200)
    for n in (3, 9, 17):
        busy.generate(prompts[:n], tiny.SAMPLED)
        assert busy._n_kept() <= 200
    assert busy.generate(prompts, tiny.GREEDY, tiny.PROBE) == expected


def test_small_batches_give_the_same_tokens(host: AdapterHost) -> None:
    prompts = tiny.make_prompts()
    small = tiny.make_engine(host, max_batch_tokens=50)
    assert tokens(small, prompts) == tokens(tiny.make_engine(host), prompts)


def test_attention_is_given_back_to_the_trainer(engine: HfEngine, host: AdapterHost) -> None:
    before = host.config._attn_implementation
    engine.generate(tiny.make_prompts(), tiny.GREEDY)
    assert host.config._attn_implementation == before == "sdpa"
    assert torch.is_grad_enabled()


def test_no_effect_says_so_and_the_one_before_stays(host: AdapterHost) -> None:
    engine = tiny.make_engine(host)
    prompts = tiny.make_prompts()
    engine.attach(tiny.make_adapter(host))
    served = tokens(engine, prompts)
    with pytest.raises(BackendError, match="has no effect"):
        engine.attach(tiny.make_adapter(host, size=0.0))
    assert tokens(engine, prompts) == served
    engine.attach(None)


def test_a_missing_tensor_is_refused(host: AdapterHost) -> None:
    engine = tiny.make_engine(host)
    with pytest.raises(BackendError, match="blake3:"):
        engine.attach(tiny.without_one_tensor(tiny.make_adapter(host)))


def test_a_long_prompt_is_refused_with_both_lengths(engine: HfEngine) -> None:
    longest = tiny.POSITIONS - 12
    engine.generate([Prompt(key="fits", token_ids=(9,) * longest)], tiny.GREEDY)
    with pytest.raises(
        BackendError, match=f"too long: expected at most {longest} tokens"
    ) as caught:
        engine.generate([Prompt(key="too long", token_ids=(9,) * (longest + 1))], tiny.GREEDY)
    assert f"found {longest + 1} tokens" in str(caught.value)


def test_an_empty_prompt_is_refused(engine: HfEngine) -> None:
    with pytest.raises(BackendError, match="nothing"):
        engine.read_slots([SlotRequest(key="nothing", token_ids=())], tiny.PROBE)


def test_a_model_with_sliding_windows_is_refused() -> None:
    from transformers import MistralConfig, MistralForCausalLM

    config = MistralConfig(
        vocab_size=tiny.VOCAB,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        sliding_window=8,
    )
    host = AdapterHost(MistralForCausalLM(config), base_folder=Path("tiny"), device="cpu")
    with pytest.raises(BackendError, match="sliding window"):
        tiny.make_engine(host)


def test_sampling_follows_the_distribution() -> None:
    """Even draws through the inverse CDF give each token its share."""
    logits_V = torch.tensor([0.0, 2.0, 1.0, -1.0])
    draws = [(i + 0.5) / 2000 for i in range(2000)]
    for temperature in (0.5, 1.0, 2.0):
        expected = torch.softmax(logits_V.double() / temperature, -1)
        picked = torch.tensor([sample(logits_V, draw, temperature, 1.0) for draw in draws])
        share = torch.bincount(picked, minlength=4) / len(draws)
        assert share.tolist() == pytest.approx(expected.tolist(), abs=1e-3)
    # 0.64 + 0.24 reach 0.8; the third token is cut.
    assert {sample(logits_V, draw, 1.0, 0.8) for draw in draws} == {1, 2}
    assert {sample(logits_V, draw, 1.0, 0.5) for draw in draws} == {1}


def in_another_process(threads: int) -> dict[str, object]:
    script = Path(tiny.__file__)
    done = subprocess.run(
        [sys.executable, str(script), str(threads)], capture_output=True, check=True, text=True
    )
    return json.loads(done.stdout)


def in_this_process(threads: int) -> dict[str, object]:
    before = torch.get_num_threads()
    try:
        return json.loads(tiny.everything(threads))
    finally:
        torch.set_num_threads(before)


@pytest.mark.slow
def test_another_process_gives_the_same_bits_and_other_threads_the_same_tokens() -> None:
    """This process has done other work before; the other one starts for this alone."""
    first = in_this_process(1)
    assert in_another_process(1) == first
    threaded = in_this_process(2)
    assert threaded["greedy_ids"] == first["greedy_ids"]
    # With more threads a matrix product may be summed in another order: last digits move. That is
    # why the number of threads stands in the engine's identity.
    assert threaded["log_probs"] == pytest.approx(first["log_probs"], abs=1e-4)
