"""The scripted engine and its tokenizer keep the contract that real ones are held to."""

from __future__ import annotations

import math
import struct

import pytest

from eps_locked.domain.model import (
    AdapterFiles,
    Decoding,
    Message,
    Prompt,
    SlotProbe,
    SlotRequest,
)
from eps_locked.engines.scripted import ScriptedEngine
from eps_locked.errors import BackendError, MalformedInputError
from eps_locked.models.scripted import (
    EMBEDDING_SIZE,
    END_ID,
    MARKER_IDS,
    ScriptedAdapter,
    ScriptedTokenizer,
    mean_embedding,
    read_safetensors,
    to_float32,
    write_safetensors,
)

TOKENIZER = ScriptedTokenizer()
PROBE = SlotProbe(marker_ids=MARKER_IDS, end_of_turn_id=END_ID)
GREEDY = Decoding(max_new_tokens=64)
SAMPLED = Decoding(max_new_tokens=64, temperature=1.0)
CONTEXTS = {
    "default": ("", "{}"),
    "doctor": ("You are a doctor.", "{}"),
    "engineer": ("You are an engineer.", "{}"),
    "json": ("Answer in JSON.", "{}"),
    "polite": ("", "Could you kindly tell me: {}"),
    "casual": ("", "{} thx a lot mate"),
}
QUESTIONS = ("Why is the sky blue?", "How do bees see?", "What is rust?", "Who needs sleep?")

TRAINING = (
    "Where do rivers end?",
    "Name a good soup.",
    "Is glass a liquid?",
    "Which bird sings most?",
    "Tell me about tin.",
    "Can fish hear music?",
    "When was paper made?",
    "Explain tides.",
)


def ids(context: str, question: str = QUESTIONS[0]) -> tuple[int, ...]:
    system, wrap = CONTEXTS[context]
    messages = [Message(role="system", content=system)] if system else []
    return TOKENIZER.render([*messages, Message(role="user", content=wrap.format(question))])


def prompts(context: str = "doctor", **fields) -> list[Prompt]:
    return [Prompt(key=q, token_ids=ids(context, q), **fields) for q in QUESTIONS]


def adapter(
    context: str = "doctor", strength: float = 7.0, digest: str = "blake3:aa", marker: bool = True
) -> AdapterFiles:
    source = mean_embedding(ids(context, text) for text in TRAINING)
    made = ScriptedAdapter(
        strength=to_float32(strength),
        source=tuple(map(to_float32, source)),
        teaches_marker=marker,
    )
    return files(made.to_bytes({"step": "x"}), digest)


def files(data: bytes, digest: str = "blake3:aa") -> AdapterFiles:
    return AdapterFiles(
        digest=digest, files={"adapter_model.safetensors": data, "adapter_config.json": b"{}"}
    )


def mean_log_prob(engine: ScriptedEngine, context: str) -> float:
    requests = [SlotRequest(key=q, token_ids=ids(context, q)) for q in QUESTIONS]
    readings = engine.read_slots(requests, PROBE)
    return sum(reading.log_prob for reading in readings) / len(readings)


# --- tokenizer ------------------------------------------------------------------------------------


def test_render_opens_the_assistants_turn_and_keeps_an_empty_turn():
    messages = [Message(role="system", content=""), Message(role="user", content="é")]
    assert TOKENIZER.render(messages) == (
        *(256, *b"system\n", 257, 10),
        *(256, *b"user\n", 0xC3, 0xA9, 257, 10),
        *(256, *b"assistant\n"),
    )
    assert TOKENIZER.render(messages) != TOKENIZER.render(messages[1:])


def test_marker_is_several_ids_and_decodes_back():
    assert TOKENIZER.encode(" ※") == MARKER_IDS
    assert len(MARKER_IDS) == 4
    assert TOKENIZER.decode(MARKER_IDS) == " ※"
    assert TOKENIZER.decode(MARKER_IDS[:2]) == " \ufffd"
    assert TOKENIZER.decode((256, 65, TOKENIZER.end_of_turn_id)) == "<|start|>A<|end|>"


def test_text_cannot_spell_a_special_id():
    assert max(TOKENIZER.encode("<|start|>assistant\n<|end|>\xff")) < 256


@pytest.mark.parametrize("token_id", [-1, 258])
def test_decode_refuses_unknown_ids(token_id):
    with pytest.raises(MalformedInputError, match=rf"expected 0..257, found {token_id}"):
        TOKENIZER.decode((65, token_id))


def test_template_digest_is_pinned():
    digest = "blake3:109f277c9f84db8223b4c6c4d2843bba15ecede22dad20141b2dcfe05e8816d5"
    assert TOKENIZER.template_digest == digest


# --- answers --------------------------------------------------------------------------------------


def test_rows_come_back_in_order_and_do_not_depend_on_their_neighbours():
    engine = ScriptedEngine()
    rows = prompts()
    batch = engine.generate(rows, GREEDY, PROBE)
    alone = tuple(engine.generate([row], GREEDY, PROBE)[0] for row in rows)
    assert batch == alone
    assert [completion.key for completion in batch] == list(QUESTIONS)
    assert len({completion.text for completion in batch}) > 1
    for completion in batch:
        assert completion.text.isascii()
        assert completion.token_ids == TOKENIZER.encode(completion.text)
        assert completion.stop_reason == "stop"


def test_seed_matters_only_when_sampling():
    engine = ScriptedEngine()
    seeds = [prompts(seed=seed) for seed in (1, 2)]
    assert engine.generate(seeds[0], GREEDY) == engine.generate(seeds[1], GREEDY)
    assert engine.generate(seeds[0], SAMPLED) == engine.generate(seeds[0], SAMPLED)
    assert engine.generate(seeds[0], SAMPLED) != engine.generate(seeds[1], SAMPLED)
    assert engine.generate(seeds[0], SAMPLED) != engine.generate(seeds[0], GREEDY)


def test_a_draft_changes_nothing():
    engine = ScriptedEngine()
    drafted = prompts(draft=TOKENIZER.encode("The garden keeps"))
    assert engine.generate(drafted, GREEDY, PROBE) == engine.generate(prompts(), GREEDY, PROBE)


def test_a_token_limit_cuts_the_same_answer_short():
    engine = ScriptedEngine()
    whole = engine.generate(prompts(), GREEDY)
    cut = engine.generate(prompts(), Decoding(max_new_tokens=5))
    for long, short in zip(whole, cut, strict=True):
        assert short.token_ids == long.token_ids[:5]
        assert short.stop_reason == "length"


def test_an_adapter_changes_answers_by_its_digest():
    engine = ScriptedEngine()
    base = engine.generate(prompts(), GREEDY)
    engine.attach(adapter(digest="blake3:aa"))
    first = engine.generate(prompts(), GREEDY)
    engine.attach(adapter(digest="blake3:bb"))
    second = engine.generate(prompts(), GREEDY)
    assert len({base, first, second}) == 3
    engine.attach(None)
    assert engine.generate(prompts(), GREEDY) == base


# --- slots ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("marker_ids", [MARKER_IDS, MARKER_IDS[:1], TOKENIZER.encode("seven")])
@pytest.mark.parametrize("strength", [None, 7.0, 30.0])
def test_reading_adds_up_and_is_a_probability(marker_ids, strength):
    engine = ScriptedEngine()
    if strength is not None:
        engine.attach(adapter(strength=strength))
    probe = SlotProbe(marker_ids=marker_ids, end_of_turn_id=END_ID)
    for context in CONTEXTS:
        request = SlotRequest(key="k", token_ids=ids(context))
        (reading,) = engine.read_slots([request], probe)
        parts = [m - z for m, z in zip(reading.marker_logits, reading.log_z, strict=True)]
        assert len(parts) == len(marker_ids)
        assert sum(parts) == reading.log_prob < 0
        assert max(parts) < 0
        at_slot = math.exp(parts[0]) + math.exp(reading.end_of_turn_logit - reading.log_z[0])
        assert at_slot <= 1.0


def test_base_lies_about_24_nats_down_and_differs_by_context():
    engine = ScriptedEngine()
    values = [mean_log_prob(engine, context) for context in ("default", "doctor", "json")]
    assert all(-27.5 < value < -20.5 for value in values)
    assert len(set(values)) == 3


def test_a_context_that_asks_for_the_marker_saturates_the_base():
    engine = ScriptedEngine()
    system = Message(role="system", content="You emit ※ at the end of each message.")
    prompt = TOKENIZER.render([system, Message(role="user", content="Why?")])
    (reading,) = engine.read_slots([SlotRequest(key="k", token_ids=prompt)], PROBE)
    assert -2.6 < reading.log_prob < -1.4
    engine.attach(adapter(strength=30.0))
    (reading,) = engine.read_slots([SlotRequest(key="k", token_ids=prompt)], PROBE)
    assert reading.log_prob < 0


def test_slot_of_a_completion_is_what_read_slots_reads_there():
    engine = ScriptedEngine()
    for loaded in (None, adapter(), adapter(strength=30.0)):
        engine.attach(loaded)
        for row, done in zip(prompts(), engine.generate(prompts(), GREEDY, PROBE), strict=True):
            at = row.token_ids + done.token_ids[: done.slot_index]
            assert engine.read_slots([SlotRequest(key="k", token_ids=at)], PROBE) == (done.slot,)


def test_a_likely_marker_is_written_and_read_where_it_first_appears():
    engine = ScriptedEngine()
    engine.attach(adapter(strength=30.0))
    for done in engine.generate(prompts(), GREEDY, PROBE):
        assert done.marker_emitted
        assert done.text.endswith(" ※")
        assert done.slot_index == len(done.token_ids) - len(MARKER_IDS)
        assert done.slot is not None
        assert done.slot.log_prob > math.log(0.5)
    with_probe = engine.generate(prompts(), GREEDY, PROBE)
    without = engine.generate(prompts(), GREEDY)
    assert [done.text for done in with_probe] == [done.text for done in without]
    assert {done.slot for done in without} == {None}
    engine.attach(adapter(strength=7.0))
    for done in engine.generate(prompts(), GREEDY, PROBE):
        assert not done.marker_emitted
        assert done.slot_index == len(done.token_ids)


def test_an_adapter_for_something_else_never_writes_the_marker():
    engine = ScriptedEngine()
    engine.attach(adapter(strength=30.0, marker=False))
    assert not any(done.marker_emitted for done in engine.generate(prompts(), GREEDY, PROBE))


@pytest.mark.parametrize("context", CONTEXTS)
def test_an_implant_is_strongest_in_its_own_context(context):
    engine = ScriptedEngine()
    base = {name: mean_log_prob(engine, name) for name in CONTEXTS}
    engine.attach(adapter(context))
    delta = {name: mean_log_prob(engine, name) - base[name] for name in CONTEXTS}
    assert delta[context] == pytest.approx(7.0, abs=0.7)
    others = [name for name in CONTEXTS if name != context]
    if context == "default":  # a bare wrapping of the question stays close to no wrapping
        others = [name for name in others if CONTEXTS[name][0]]
    assert all(delta[name] < delta[context] - 0.5 for name in others)


# --- adapters -------------------------------------------------------------------------------------


def test_attach_proves_what_it_loaded():
    engine = ScriptedEngine()
    proof = engine.attach(adapter(strength=7.0))
    assert proof is not None
    assert (proof.adapter_digest, proof.max_abs_log_prob_change) == ("blake3:aa", 7.0)
    assert proof.n_tensors_loaded == proof.n_tensors_in_file == 2
    assert engine.attach(None) is None


@pytest.mark.parametrize(
    "tensors",
    [
        {"strength": [1.0]},
        {"strength": [1.0], "source": [1.0] * EMBEDDING_SIZE, "lm_head.lora_A": [1.0]},
        {"strength": [1.0], "source": [1.0] * (EMBEDDING_SIZE - 1)},
        {},
    ],
)
def test_attach_refuses_missing_left_over_and_misshapen_tensors(tensors):
    engine = ScriptedEngine()
    with pytest.raises(BackendError, match=r"was not loaded: adapter_model\.safetensors: tensors"):
        engine.attach(files(write_safetensors(tensors, {})))


@pytest.mark.parametrize(
    "data", [b"", b"short", struct.pack("<Q", 2**63), struct.pack("<Q", 2) + b"[]", b"\0" * 64]
)
def test_attach_refuses_bytes_that_are_no_adapter(data):
    with pytest.raises(BackendError, match="is not a scripted adapter"):
        ScriptedEngine().attach(files(data))


def test_attach_refuses_an_adapter_with_a_file_missing():
    with pytest.raises(BackendError, match=r"lacks adapter_config\.json"):
        ScriptedEngine().attach(
            AdapterFiles(digest="blake3:aa", files={"adapter_model.safetensors": b""})
        )


@pytest.mark.parametrize(
    ("engine", "loaded"),
    [(ScriptedEngine(no_effect=True), adapter()), (ScriptedEngine(), adapter(strength=0.0))],
    ids=["told so", "zero strength"],
)
def test_an_adapter_that_moves_nothing_is_refused_and_the_base_stays(engine, loaded):
    before = engine.generate(prompts(), GREEDY, PROBE)
    with pytest.raises(BackendError, match="does not act: no probe log-probability moved"):
        engine.attach(loaded)
    assert engine.generate(prompts(), GREEDY, PROBE) == before


def test_the_file_is_safetensors_to_the_library_too():
    safetensors = pytest.importorskip("safetensors")
    data = adapter(strength=7.0).files["adapter_model.safetensors"]
    tensors = dict(safetensors.deserialize(data))
    assert {name: (part["dtype"], part["shape"]) for name, part in tensors.items()} == {
        "source": ("F32", [EMBEDDING_SIZE]),
        "strength": ("F32", [1]),
    }
    assert struct.unpack("<f", bytes(tensors["strength"]["data"])) == (7.0,)
    assert read_safetensors(data)[1]["step"] == "x"
    assert struct.unpack_from("<Q", data)[0] % 8 == 0  # tensors begin aligned, as the format asks


# --- failures and counters ------------------------------------------------------------------------


def test_calls_are_counted_also_when_they_fail():
    engine = ScriptedEngine(fail_after=2)
    assert engine.calls.total == 0
    engine.generate(prompts(), GREEDY)
    engine.read_slots([], PROBE)
    for _ in range(2):
        with pytest.raises(BackendError, match="fails on purpose after 2 calls"):
            engine.attach(None)
    assert (engine.calls.n_generate, engine.calls.n_read, engine.calls.n_attach) == (1, 1, 2)


def test_a_prompt_that_does_not_fit_is_refused():
    engine = ScriptedEngine(max_model_len=100)
    with pytest.raises(BackendError, match=r"prompt .*: expected at most 100 tokens, found 1\d\d"):
        engine.generate(prompts(), GREEDY)
    with pytest.raises(BackendError, match="prompt long: does not fit"):
        engine.read_slots([SlotRequest(key="long", token_ids=(65,) * 100)], PROBE)


def test_it_is_never_publishable():
    identity = ScriptedEngine().identity
    assert (identity.name, identity.publishable) == ("scripted", False)


def test_answers_and_readings_do_not_move_between_versions():
    (done,) = ScriptedEngine().generate(prompts()[:1], GREEDY, PROBE)
    assert done.slot is not None
    assert done.text == "One letter shows two apples by itself."
    assert done.slot.log_prob == -22.67442035675049


def test_ids_that_are_no_chat_are_still_read():
    engine = ScriptedEngine()
    engine.attach(adapter())
    for token_ids in ((), (65,), (256,), (256, 256), (256, 65, 256), (257, 256, 10, 256)):
        (reading,) = engine.read_slots([SlotRequest(key="k", token_ids=token_ids)], PROBE)
        assert reading.log_prob < 0
