"""A random three-layer Llama behind the real engine, and slow references to hold it against."""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from eps_locked.canonical import digest_bytes
from eps_locked.domain.model import (
    AdapterFiles,
    Decoding,
    LoraRecipe,
    Message,
    Prompt,
    SlotProbe,
    SlotRequest,
    TokenIds,
)
from eps_locked.engines.hf import HfEngine
from eps_locked.models.host import AdapterHost

VOCAB = 200
POSITIONS = 160
END = 3
OTHER_END = 5
PROBE = SlotProbe(marker_ids=(11, 12, 13), end_of_turn_id=END)
GREEDY = Decoding(max_new_tokens=12)
SAMPLED = Decoding(max_new_tokens=12, temperature=1.0, top_p=0.9)


class TinyTokenizer:
    """Ids are letters of an alphabet of code points; END ends a turn."""

    end_of_turn_id = END
    template_digest = digest_bytes(b"tiny")

    def render(self, messages: Sequence[Message]) -> TokenIds:
        return tuple(i for message in messages for i in (1, *self.encode(message.content), END))

    def encode(self, text: str) -> TokenIds:
        return tuple(20 + ord(letter) % (VOCAB - 20) for letter in text)

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(chr(0x2800 + token_id) for token_id in token_ids)


def make_model(seed: int = 0) -> LlamaForCausalLM:
    """Spread-out logits, and end tokens that are likely enough to end some answers early."""
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=POSITIONS,
        initializer_range=0.15,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=END,
        pad_token_id=0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        model.lm_head.weight[[END, OTHER_END]] *= 1.6
    model.generation_config = GenerationConfig(eos_token_id=[END, OTHER_END], pad_token_id=0)
    return model


def make_host(seed: int = 0) -> AdapterHost:
    return AdapterHost(make_model(seed), base_folder=Path("tiny"), device="cpu")


def make_engine(host: AdapterHost | None = None, **options: int) -> HfEngine:
    return HfEngine(
        host or make_host(),
        TinyTokenizer(),
        probe_prompts=[SlotRequest(key="probe", token_ids=(1, 30, 40, 50))],
        instance_id="test",
        **options,
    )


def make_prompts(n: int = 10, n_shared: int = 20, seed: int = 0) -> list[Prompt]:
    """n prompts of one context and different lengths."""
    rng = random.Random(seed)
    shared = [rng.randrange(20, VOCAB) for _ in range(n_shared)]
    return [
        Prompt(
            key=f"row {i}",
            token_ids=(*shared, *(rng.randrange(20, VOCAB) for _ in range(rng.randrange(1, 9)))),
            seed=100 + i,
        )
        for i in range(n)
    ]


def make_contexts(n: int = 5, n_rows: int = 4) -> list[Prompt]:
    """Rows of n contexts of different lengths, the last of one row, ordered by question."""
    contexts = [make_prompts(n_rows, 25 + 17 * c, seed=40 + c) for c in range(n)]
    rows = [rows[i] for i in range(n_rows) for rows in contexts[:-1]]
    return [*rows, contexts[-1][0]]


def plain_states(model: LlamaForCausalLM, ids: TokenIds, layer: int) -> torch.Tensor:
    """states_TC after a block by transformers' own ``output_hidden_states``, float64 weights."""
    double = make_model_like(model)
    # The last one it returns has been through the final norm; ours has not.
    double.model.norm = torch.nn.Identity()
    with torch.no_grad():
        found = double(torch.tensor([ids]), output_hidden_states=True).hidden_states
    return found[layer][0]


def plain_divergence(
    model: LlamaForCausalLM, own: TokenIds, other: TokenIds, answer: TokenIds
) -> tuple[float, float, float]:
    """(KL sum, log-prob after own, log-prob after other), one position after the other."""
    double = make_model_like(model)
    kl = own_log_prob = other_log_prob = 0.0
    for k, token in enumerate(answer):
        with torch.no_grad():
            p, q = (
                torch.softmax(double(torch.tensor([[*prompt, *answer[:k]]])).logits[0, -1], -1)
                for prompt in (own, other)
            )
        kl += sum(float(a) * math.log(float(a) / float(b)) for a, b in zip(p, q, strict=True))
        own_log_prob += math.log(float(p[token]))
        other_log_prob += math.log(float(q[token]))
    return kl, own_log_prob, other_log_prob


def make_adapter(host: AdapterHost, *, size: float = 0.2) -> AdapterFiles:
    """An adapter with B = ``size`` everywhere (0: trained on nothing)."""
    recipe = LoraRecipe(
        rank=2,
        alpha=4.0,
        dropout=0.0,
        rank_stabilised=False,
        target_modules=("q_proj", "v_proj"),
        learning_rate=1e-3,
        schedule="constant",
        warmup_steps=0,
        weight_decay=0.0,
        max_grad_norm=1.0,
        rows_per_step=1,
    )
    for parameter in host.new_trainable(recipe, seed=1):
        if not parameter.any():
            parameter.data.fill_(size)
    files = host.export(recipe, {}, model_name="tiny")
    host.discard_trainable()
    return AdapterFiles(digest=digest_bytes(files["adapter_model.safetensors"]), files=files)


def without_one_tensor(adapter: AdapterFiles) -> AdapterFiles:
    from safetensors.torch import load, save

    tensors = load(adapter.files["adapter_model.safetensors"])
    tensors.pop(min(tensors))
    files = {**adapter.files, "adapter_model.safetensors": save(tensors)}
    return AdapterFiles(digest=digest_bytes(files["adapter_model.safetensors"]), files=files)


def plain_answer(model: LlamaForCausalLM, ids: TokenIds, n: int) -> TokenIds:
    """transformers' own greedy generate, one prompt, end tokens cut off."""
    with torch.no_grad():
        out = model.generate(
            torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            max_new_tokens=n,
            do_sample=False,
        )[0, len(ids) :].tolist()
    return tuple(out[:-1] if out[-1] in (END, OTHER_END) else out)


def plain_reading(
    model: LlamaForCausalLM, ids: TokenIds, probe: SlotProbe
) -> tuple[list[float], list[float], float]:
    """(marker logits, log Z, end-of-turn logit) by whole sequences in float64 weights."""
    double = make_model_like(model)
    logits, log_z = [], []
    end = 0.0
    for k, token in enumerate(probe.marker_ids):
        with torch.no_grad():
            row = double(torch.tensor([[*ids, *probe.marker_ids[:k]]])).logits[0, -1]
        logits.append(float(row[token]))
        log_z.append(float(torch.log(torch.exp(row - row.max()).sum()) + row.max()))
        end = float(row[probe.end_of_turn_id]) if k == 0 else end
    return logits, log_z, end


def make_model_like(model: LlamaForCausalLM) -> LlamaForCausalLM:
    double = LlamaForCausalLM(model.config).double().eval()
    double.load_state_dict(model.state_dict())
    return double


def everything(threads: int) -> str:
    """Every bit of one engine's work, for comparing processes."""
    torch.set_num_threads(threads)
    engine = make_engine()
    greedy = engine.generate(make_prompts(), GREEDY, PROBE)
    sampled = engine.generate(make_prompts(), SAMPLED, PROBE)
    requests = [SlotRequest(key=p.key, token_ids=p.token_ids) for p in make_prompts(6)]
    read = engine.read_slots(requests, PROBE)
    return json.dumps(
        {
            "greedy_ids": [completion.token_ids for completion in greedy],
            "log_probs": [reading.log_prob for reading in read],
            "all": repr((greedy, sampled, read)),
        }
    )


if __name__ == "__main__":
    print(everything(int(sys.argv[1])))
