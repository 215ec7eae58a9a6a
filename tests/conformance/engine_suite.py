"""What every ReadoutEngine must do, whatever is behind it.

A test module imports these functions (``from engine_suite import *``) and provides a fixture
``case`` that returns an ``EngineCase``. Numbers are compared with a tolerance only where the
contract allows float noise: between batches of different shape, never between equal calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pytest

from eps_locked.domain.model import (
    AdapterFiles,
    ChatTokenizer,
    Completion,
    Decoding,
    DivergenceRequest,
    Prompt,
    ReadoutEngine,
    SlotProbe,
    SlotRequest,
    SpanRequest,
    TokenIds,
)
from eps_locked.errors import BackendError

N_NEW = 48
GREEDY = Decoding(max_new_tokens=N_NEW)
SAMPLED = Decoding(max_new_tokens=N_NEW, temperature=0.9, top_p=0.95)
WAYS = ("greedy", "sampled")


@dataclass(frozen=True, kw_only=True)
class EngineCase:
    """An engine on its bare base and what to ask it.

    ``prompts``: three or more of one context, different. ``elsewhere``: as many of two or more
    other contexts. ``adapter`` acts; each of ``refused`` must not be served. ``too_long`` does not
    fit. ``tolerance`` (nats, or numbers of an activation) between batch shapes. ``n_new``: the most
    tokens of an answer.
    """

    engine: ReadoutEngine
    tokenizer: ChatTokenizer
    probe: SlotProbe
    prompts: tuple[Prompt, ...]
    elsewhere: tuple[Prompt, ...]
    adapter: AdapterFiles
    refused: tuple[AdapterFiles, ...]
    too_long: TokenIds
    tolerance: float
    n_new: int = N_NEW

    def way(self, name: str) -> Decoding:
        return replace(SAMPLED if name == "sampled" else GREEDY, max_new_tokens=self.n_new)

    @cached_property
    def greedy(self) -> tuple[Completion, ...]:
        """The bare base's greedy answers to ``prompts``, with ``probe``. Made once: that equal
        calls give equal bits has a test of its own."""
        return self.engine.generate(self.prompts, self.way("greedy"), self.probe)

    @cached_property
    def sampled(self) -> tuple[Completion, ...]:
        """The same, sampled."""
        return self.engine.generate(self.prompts, self.way("sampled"), self.probe)


def tokens(completions: Sequence[Completion]) -> list[TokenIds]:
    return [completion.token_ids for completion in completions]


def test_one_completion_per_prompt_in_order(case: EngineCase) -> None:
    out = case.greedy
    assert [completion.key for completion in out] == [prompt.key for prompt in case.prompts]
    for completion in out:
        assert completion.text == case.tokenizer.decode(completion.token_ids)
        assert case.tokenizer.end_of_turn_id not in completion.token_ids
        assert len(completion.token_ids) <= case.n_new
        assert completion.stop_reason == "stop" or len(completion.token_ids) == case.n_new


def test_no_prompts_no_completions(case: EngineCase) -> None:
    assert case.engine.generate((), case.way("greedy"), case.probe) == ()
    assert case.engine.read_slots((), case.probe) == ()


@pytest.mark.parametrize("way", WAYS)
def test_equal_calls_give_equal_bits_whatever_came_between(case: EngineCase, way: str) -> None:
    decoding = case.way(way)
    first = case.engine.generate(case.prompts, decoding, case.probe)
    case.engine.generate(case.prompts[:2], replace(SAMPLED, max_new_tokens=8))
    backwards = tuple(reversed(case.prompts))
    case.engine.generate(backwards, replace(GREEDY, max_new_tokens=8), case.probe)
    assert case.engine.generate(case.prompts, decoding, case.probe) == first


def test_greedy_tokens_do_not_depend_on_neighbours(case: EngineCase) -> None:
    greedy = case.way("greedy")
    alone = [tokens(case.engine.generate((prompt,), greedy))[0] for prompt in case.prompts]
    backwards = tokens(case.engine.generate(tuple(reversed(case.prompts)), greedy))
    assert tokens(case.greedy) == alone == backwards[::-1]


@pytest.mark.parametrize("way", WAYS)
def test_rows_of_several_contexts_in_one_call_get_the_tokens_of_a_call_each(
    case: EngineCase, way: str
) -> None:
    decoding = case.way(way)
    apart = tokens(case.sampled if way == "sampled" else case.greedy)
    apart += tokens(case.engine.generate(case.elsewhere, decoding, case.probe))
    rows = (*case.prompts, *case.elsewhere)
    out = case.engine.generate(rows, decoding, case.probe)
    assert tokens(out) == apart
    assert [completion.key for completion in out] == [row.key for row in rows]
    mixed = rows[::2] + rows[1::2]
    assert tokens(case.engine.generate(mixed, decoding)) == apart[::2] + apart[1::2]


def test_slots_of_several_contexts_in_one_call_are_those_of_a_call_each(case: EngineCase) -> None:
    rows = [SlotRequest(key=p.key, token_ids=p.token_ids) for p in case.prompts + case.elsewhere]
    together = case.engine.read_slots(rows, case.probe)
    for row, reading in zip(rows, together, strict=True):
        (alone,) = case.engine.read_slots([row], case.probe)
        assert reading.log_prob == pytest.approx(alone.log_prob, abs=case.tolerance)
    assert case.engine.read_slots(rows, case.probe) == together


def test_sampled_tokens_follow_the_rows_own_seed(case: EngineCase) -> None:
    together, sampled = tokens(case.sampled), case.way("sampled")
    alone = [tokens(case.engine.generate((prompt,), sampled))[0] for prompt in case.prompts]
    assert together == alone
    reseeded = tuple(replace(prompt, seed=prompt.seed + 999) for prompt in case.prompts)
    assert tokens(case.engine.generate(reseeded, sampled)) != together


def test_drafts_change_no_token(case: EngineCase) -> None:
    plain = tokens(case.greedy)
    other = plain[0][:1] or (case.probe.marker_ids[0],)
    for make in (
        lambda ids: ids,
        lambda ids: ids[: len(ids) // 2] + other + ids[len(ids) // 2 :],
        lambda ids: other * 5,
        lambda ids: ids[:3],
        lambda ids: (*ids, case.tokenizer.end_of_turn_id, *other),
        lambda ids: (),
    ):
        drafted = tuple(
            replace(prompt, draft=make(answer))
            for prompt, answer in zip(case.prompts, plain, strict=True)
        )
        assert tokens(case.engine.generate(drafted, case.way("greedy"), case.probe)) == plain


def test_short_budget_cuts_and_says_so(case: EngineCase) -> None:
    cut = case.engine.generate(case.prompts, replace(GREEDY, max_new_tokens=2), case.probe)
    for long, short in zip(case.greedy, cut, strict=True):
        assert short.token_ids == long.token_ids[:2]
        assert short.stop_reason == ("length" if len(short.token_ids) == 2 else "stop")
        assert short.slot is not None


def test_the_slot_is_what_read_slots_reads_there(case: EngineCase) -> None:
    out = case.greedy
    requests = [
        SlotRequest(
            key=prompt.key,
            token_ids=prompt.token_ids + completion.token_ids[: completion.slot_index],
        )
        for prompt, completion in zip(case.prompts, out, strict=True)
    ]
    for completion, reading in zip(out, case.engine.read_slots(requests, case.probe), strict=True):
        assert completion.slot is not None
        assert completion.slot.log_prob == pytest.approx(reading.log_prob, abs=case.tolerance)
        assert completion.slot.log_z == pytest.approx(reading.log_z, abs=case.tolerance)
        assert completion.slot.end_of_turn_logit == pytest.approx(
            reading.end_of_turn_logit, abs=case.tolerance
        )


def test_a_reading_adds_up(case: EngineCase) -> None:
    requests = [SlotRequest(key=p.key, token_ids=p.token_ids) for p in case.prompts]
    for reading in case.engine.read_slots(requests, case.probe):
        assert len(reading.marker_logits) == len(reading.log_z) == len(case.probe.marker_ids)
        parts = [m - z for m, z in zip(reading.marker_logits, reading.log_z, strict=True)]
        assert reading.log_prob == pytest.approx(sum(parts), abs=1e-9)
        assert all(part < 0 for part in parts)
        assert reading.end_of_turn_logit < reading.log_z[0]


def test_a_marker_in_the_answer_is_the_slot(case: EngineCase) -> None:
    answers = tokens(case.greedy)
    answer = max(answers, key=len)
    n_marker = min(2, len(answer))
    probe = replace(case.probe, marker_ids=answer[-n_marker:])
    out = case.engine.generate(case.prompts, case.way("greedy"), probe)
    assert tokens(out) == answers
    for completion in out:
        ids = completion.token_ids
        first = [i for i in range(len(ids)) if ids[i : i + n_marker] == probe.marker_ids]
        assert completion.marker_emitted == bool(first)
        assert completion.slot_index == (first[0] if first else len(ids))
        assert completion.slot is not None
    # Greedy decoding wrote the marker, so each of its tokens was the most probable one.
    assert out[answers.index(answer)].marker_emitted


def spans(case: EngineCase) -> list[SpanRequest]:
    """The first token, the last one, a middle part and the whole of prompts of all contexts."""
    found = []
    for prompt in (*case.prompts, *case.elsewhere):
        n = len(prompt.token_ids)
        for start, end in ((0, 1), (n - 1, n), (n // 3, n - 1), (0, n)):
            found.append(
                SpanRequest(
                    key=f"{prompt.key} {start}", token_ids=prompt.token_ids, start=start, end=end
                )
            )
    return found


def test_activations_are_one_vector_per_span_whatever_the_batch(case: EngineCase) -> None:
    assert case.engine.activations((), 1) == ()
    requests = spans(case)
    for layer in (1, case.engine.n_layers):
        together = case.engine.activations(requests, layer)
        assert {len(vector) for vector in together} == {case.engine.width}
        assert case.engine.activations(requests, layer) == together
        for request, vector in list(zip(requests, together, strict=True))[::3]:
            (alone,) = case.engine.activations([request], layer)
            assert vector == pytest.approx(alone, rel=1e-4, abs=case.tolerance)
    assert case.engine.activations(requests, 1) != together


def test_an_activation_is_the_mean_over_its_span_and_later_tokens_have_no_part(
    case: EngineCase,
) -> None:
    ids = case.prompts[0].token_ids
    for layer in (1, case.engine.n_layers):
        parts = [SpanRequest(key="part", token_ids=ids, start=i, end=i + 1) for i in (0, 1)]
        (both,) = case.engine.activations(
            [SpanRequest(key="both", token_ids=ids[:2], start=0, end=2)], layer
        )
        (more,) = case.engine.activations(
            [SpanRequest(key="both", token_ids=ids, start=0, end=2)], layer
        )
        assert more == both
        first, second = case.engine.activations(parts, layer)
        mean = [(a + b) / 2 for a, b in zip(first, second, strict=True)]
        assert both == pytest.approx(mean, rel=1e-4, abs=case.tolerance)


def test_bad_spans_and_layers_are_refused_by_name(case: EngineCase) -> None:
    ids = case.prompts[0].token_ids
    good = SpanRequest(key="good", token_ids=ids, start=0, end=1)
    for start, end in ((0, 0), (3, 2), (-1, 2), (0, len(ids) + 1)):
        bad = SpanRequest(key="the bad one", token_ids=ids, start=start, end=end)
        with pytest.raises(BackendError, match="the bad one"):
            case.engine.activations([good, bad], 1)
    with pytest.raises(BackendError, match="the bad one"):
        case.engine.activations(
            [good, SpanRequest(key="the bad one", token_ids=case.too_long * 2, start=0, end=1)], 1
        )
    for layer in (0, -1, case.engine.n_layers + 1):
        with pytest.raises(BackendError, match="layer"):
            case.engine.activations([good], layer)


def divergence_requests(case: EngineCase) -> list[DivergenceRequest]:
    answers = [ids[:8] for ids in tokens(case.sampled)]
    return [
        DivergenceRequest(
            key=prompt.key,
            own_prompt=prompt.token_ids,
            other_prompts={
                "same": prompt.token_ids,
                **{other.key: other.token_ids for other in case.elsewhere},
            },
            answer=(*answer, case.tokenizer.end_of_turn_id),
        )
        for prompt, answer in zip(case.prompts, answers, strict=True)
    ]


def test_divergences_are_positive_but_for_equal_prompts(case: EngineCase) -> None:
    assert case.engine.divergences(()) == ()
    requests = divergence_requests(case)
    found = case.engine.divergences(requests)
    assert case.engine.divergences(requests) == found
    for request, one in zip(requests, found, strict=True):
        assert (one.key, one.n_tokens) == (request.key, len(request.answer))
        assert set(one.kl_sum) == set(one.log_probs) == set(request.other_prompts)
        assert one.kl_sum["same"] == 0.0
        assert one.log_probs["same"] == one.log_prob < 0
        assert all(one.kl_sum[other.key] > 0 for other in case.elsewhere)
        assert all(value < 0 for value in one.log_probs.values())


def test_a_divergence_does_not_depend_on_the_other_requests(case: EngineCase) -> None:
    requests = divergence_requests(case)
    for request, one in zip(requests, case.engine.divergences(requests), strict=True):
        for name, prompt in request.other_prompts.items():
            single = replace(request, other_prompts={name: prompt})
            (alone,) = case.engine.divergences([single])
            assert alone.kl_sum[name] == pytest.approx(one.kl_sum[name], rel=1e-3, abs=1e-3)
            assert alone.log_prob == pytest.approx(one.log_prob, rel=1e-4)
            assert alone.log_probs[name] == pytest.approx(one.log_probs[name], rel=1e-4)


def test_bad_divergence_requests_are_refused_by_name(case: EngineCase) -> None:
    (good, *_) = divergence_requests(case)
    for bad in (
        replace(good, key="the bad one", answer=()),
        replace(good, key="the bad one", own_prompt=()),
        replace(good, key="the bad one", other_prompts={"x": ()}),
        replace(good, key="the bad one", own_prompt=case.too_long * 2),
        replace(good, key="the bad one", other_prompts={"x": case.too_long * 2}),
    ):
        with pytest.raises(BackendError, match="the bad one"):
            case.engine.divergences([good, bad])


def test_readouts_are_of_the_adapter_that_is_attached(case: EngineCase) -> None:
    # Of every prompt some spans, and every kind of span; what is compared, of two answers.
    requests, compared = spans(case)[::3], divergence_requests(case)[:2]
    layer = case.engine.n_layers
    before = case.engine.activations(requests, layer), case.engine.divergences(compared)
    case.engine.attach(case.adapter)
    during = case.engine.activations(requests, layer), case.engine.divergences(compared)
    case.engine.attach(None)
    assert during[0] != before[0]
    assert during[1] != before[1]
    assert {one.kl_sum["same"] for one in during[1]} == {0.0}
    after = case.engine.activations(requests, layer), case.engine.divergences(compared)
    assert after == before


def test_attaching_proves_and_detaching_restores_every_bit(case: EngineCase) -> None:
    requests = [SlotRequest(key=p.key, token_ids=p.token_ids) for p in case.prompts]
    base = case.engine.read_slots(requests, case.probe)
    proof = case.engine.attach(case.adapter)
    assert proof is not None
    assert proof.adapter_digest == case.adapter.digest
    assert proof.n_tensors_loaded == proof.n_tensors_in_file > 0
    assert proof.max_abs_log_prob_change > 1e-4
    assert case.engine.read_slots(requests, case.probe) != base
    assert case.engine.attach(None) is None
    assert case.engine.read_slots(requests, case.probe) == base


def test_an_adapter_without_effect_or_with_wrong_tensors_is_not_served(case: EngineCase) -> None:
    requests = [SlotRequest(key=p.key, token_ids=p.token_ids) for p in case.prompts]
    base = case.engine.read_slots(requests, case.probe)
    for adapter in case.refused:
        with pytest.raises(BackendError):
            case.engine.attach(adapter)
        assert case.engine.read_slots(requests, case.probe) == base


def test_a_prompt_that_does_not_fit_is_named(case: EngineCase) -> None:
    prompts = (*case.prompts[:1], Prompt(key="the long one", token_ids=case.too_long))
    with pytest.raises(BackendError, match="the long one"):
        case.engine.generate(prompts, GREEDY)


def test_the_identity_says_what_ran(case: EngineCase) -> None:
    identity = case.engine.identity
    assert identity.name
    assert identity.version
    assert identity.device
    assert identity.dtype
    assert identity == case.engine.identity
