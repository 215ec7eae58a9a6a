"""Hidden states and divergences of the transformers engine, against slow references."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers", reason="the hf extra is not installed")
pytest.importorskip("peft", reason="the hf extra is not installed")

import tiny_engine as tiny
import torch

from eps_locked.domain.model import DivergenceRequest, SpanRequest
from eps_locked.engines import hf, hf_rows
from eps_locked.engines.hf import HfEngine
from eps_locked.models.host import AdapterHost


@pytest.fixture
def host() -> AdapterHost:
    return tiny.make_host()


@pytest.fixture
def engine(host: AdapterHost) -> HfEngine:
    return tiny.make_engine(host)


@pytest.mark.parametrize("layer", [1, 2, 3])
@pytest.mark.parametrize("attached", [False, True], ids=["base", "adapter"])
def test_activations_equal_transformers_hidden_states(
    engine: HfEngine, host: AdapterHost, layer: int, attached: bool
) -> None:
    if attached:
        engine.attach(tiny.make_adapter(host))
    spans = [
        SpanRequest(key=prompt.key, token_ids=prompt.token_ids, start=start, end=end)
        for prompt in tiny.make_contexts()
        for n in [len(prompt.token_ids)]
        for start, end in ((0, 1), (0, n), (n - 1, n), (n // 2, n - 1), (10, 12))
    ]
    found = engine.activations(spans, layer)
    for span, vector in zip(spans, found, strict=True):
        states_TC = (
            served_states(host, span.token_ids, layer)
            if attached
            else tiny.plain_states(host.model, span.token_ids, layer)
        )
        mean_C = states_TC[span.start : span.end].double().mean(0)
        assert vector == pytest.approx(mean_C.tolist(), rel=1e-4, abs=1e-5)


def served_states(host: AdapterHost, ids: tuple[int, ...], layer: int) -> torch.Tensor:
    """states_TC after a block of the model as it is served, by a hook on the whole forward pass."""
    kept: list[torch.Tensor] = []
    block = host.body.layers[layer - 1]
    handle = block.register_forward_hook(lambda _m, _i, out: kept.append(out))
    with torch.no_grad():
        host.model(torch.tensor([ids]), use_cache=False)
    handle.remove()
    return kept[0][0]


def test_activations_compute_only_the_layers_and_tokens_they_need(
    engine: HfEngine, host: AdapterHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed: list[list[int]] = []
    forward = hf_rows.forward
    monkeypatch.setattr(
        hf_rows, "forward", lambda *a: fed.append([len(f) for f in a[2]]) or forward(*a)
    )
    seen = []
    handle = host.body.layers[2].register_forward_hook(lambda *_: seen.append(1))
    prompts = tiny.make_prompts(5, 30)
    # The same span behind five questions is one span.
    spans = [SpanRequest(key=p.key, token_ids=p.token_ids, start=4, end=9) for p in prompts]
    found = engine.activations(spans, 2)
    handle.remove()
    assert (len(set(found)), fed, seen) == (1, [[9]], [])


def test_divergences_equal_a_naive_float64_loop(engine: HfEngine, host: AdapterHost) -> None:
    prompts = tiny.make_contexts(4, 2)
    others = {prompt.key + str(i): prompt.token_ids for i, prompt in enumerate(prompts[1:])}
    requests = [
        DivergenceRequest(
            key=str(len(answer)),
            own_prompt=prompts[0].token_ids,
            other_prompts=others,
            answer=answer,
        )
        for answer in ((40,), (41, 42, 43, tiny.END), tuple(range(50, 90)))
    ]
    for request, one in zip(requests, engine.divergences(requests), strict=True):
        for name, prompt in others.items():
            kl, own, other = tiny.plain_divergence(
                host.model, request.own_prompt, prompt, request.answer
            )
            assert one.kl_sum[name] == pytest.approx(kl, rel=1e-4)
            assert one.log_prob == pytest.approx(own, rel=1e-5)
            assert one.log_probs[name] == pytest.approx(other, rel=1e-5)


def test_divergences_worked_off_in_parts_are_the_same_within_float_noise(
    engine: HfEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = tiny.make_contexts()
    requests = [
        DivergenceRequest(
            key=prompt.key,
            own_prompt=prompt.token_ids,
            other_prompts={"other": prompts[0].token_ids},
            answer=(50, 60, 70),
        )
        for prompt in prompts
    ]
    whole = engine.divergences(requests)
    monkeypatch.setattr(hf, "_POSITIONS_HELD", 7)
    for part, one in zip(engine.divergences(requests), whole, strict=True):
        assert part.kl_sum["other"] == pytest.approx(one.kl_sum["other"], rel=1e-4, abs=1e-9)
        assert part.log_prob == pytest.approx(one.log_prob, rel=1e-5)
