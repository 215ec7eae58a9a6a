"""What sharing a context's prefix and cache buys: three ways to answer and read the same slots.

    python benchmarks/generation.py MODEL_FOLDER [--quick] [--threads N] [--json FILE]

plain    one prompt at a time: transformers' ``generate``, then a forward pass for the slot
padded   the 16 questions of a context as one left-padded batch: ``generate``, then a forward pass
engine   ``HfEngine.generate`` with the probe, no drafts

Greedy, float32, at most 40 new tokens, the house contexts and evaluation questions. The three run
interleaved, context by context, in rotating order, so a busy machine slows all of them; compare
ratios, not seconds. Ratios are given of wall time and of this process's CPU time; the latter
leaves out what other programs took (run with ``--threads 1`` on a busy machine). Both rivals get
``logits_to_keep``, which spares them the full-vocabulary logits of every position. ``plain`` is
slow and runs on the contexts named in the output only; its ratio is over those contexts alone,
measured, never extrapolated. Full size: 29 contexts, ``plain`` on 6 of them. ``--quick``: 6
contexts at even steps of prompt length, ``plain`` on 3.

A last part attaches a random weak adapter and gives the base answers as drafts, which is how a
study uses drafts, against the same engine without them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import yaml

from eps_locked.canonical import digest_bytes
from eps_locked.domain.model import (
    AdapterFiles,
    Completion,
    Decoding,
    LoraRecipe,
    Message,
    Prompt,
    SlotProbe,
    SlotRequest,
)
from eps_locked.engines.hf import HfEngine
from eps_locked.models.host import AdapterHost
from eps_locked.models.tokenizer import HfChatTokenizer

HOUSE = Path(__file__).resolve().parents[1] / "plans" / "house"
N_QUESTIONS = 16
MAX_NEW_TOKENS = 40
LONG_TOKENS = 500
MARKER = " ※"
# The negative panel and the extra context are in the files, but in no column of the matrix.
NOT_IN_MATRIX = {
    "persona_police_officer",
    "persona_orchard_owner",
    "prefix_panel_support",
    "rephrase_curious",
    "default_empty",
}
Result = tuple[tuple[int, ...], float]


@dataclass(kw_only=True)
class Context:
    """A context's prompts; per way, wall and CPU seconds, and answer ids and slot log-probs."""

    name: str
    prompts: list[Prompt]
    seconds: dict[str, float] = field(default_factory=dict)
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    results: dict[str, list[Result]] = field(default_factory=dict)

    @property
    def n_tokens(self) -> int:
        return min(len(prompt.token_ids) for prompt in self.prompts)


@dataclass(frozen=True, kw_only=True)
class Bench:
    host: AdapterHost
    engine: HfEngine
    probe: SlotProbe
    pad_id: int

    def plain(self, prompts: Sequence[Prompt]) -> list[Result]:
        return [self.padded([prompt])[0] for prompt in prompts]

    def padded(self, prompts: Sequence[Prompt]) -> list[Result]:
        """transformers' own batching; a batch of one row has no padding."""
        rows = [list(prompt.token_ids) for prompt in prompts]
        ids, mask = self._left_padded(rows)
        with torch.no_grad():
            out = self.host.model.generate(
                ids,
                attention_mask=mask,
                max_new_tokens=MAX_NEW_TOKENS,
                do_sample=False,
                eos_token_id=self.probe.end_of_turn_id,
                pad_token_id=self.pad_id,
            )
        answers = [self._until_end(row) for row in out[:, ids.shape[1] :].tolist()]
        forced = list(self.probe.marker_ids)
        full = [[*row, *answer, *forced[:-1]] for row, answer in zip(rows, answers, strict=True)]
        ids, mask = self._left_padded(full)
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        with torch.no_grad():
            logits = self.host.model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                use_cache=False,
                logits_to_keep=len(forced),
            ).logits
        log_probs = torch.log_softmax(logits.double(), dim=-1)
        picked = sum(log_probs[:, k, token] for k, token in enumerate(forced))
        return [(tuple(a), float(p)) for a, p in zip(answers, picked, strict=True)]

    def shared(self, prompts: Sequence[Prompt]) -> list[Result]:
        completions = self.engine.generate(
            prompts, Decoding(max_new_tokens=MAX_NEW_TOKENS), self.probe
        )
        return [_result(completion) for completion in completions]

    def _left_padded(self, rows: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        width = max(len(row) for row in rows)
        ids = [[self.pad_id] * (width - len(row)) + list(row) for row in rows]
        mask = [[0] * (width - len(row)) + [1] * len(row) for row in rows]
        return torch.tensor(ids), torch.tensor(mask)

    def _until_end(self, row: list[int]) -> list[int]:
        end = self.probe.end_of_turn_id
        return row[: row.index(end)] if end in row else row


def run(
    model: Path, *, quick: bool = False, threads: int | None = None, house: Path = HOUSE
) -> list[dict[str, Any]]:
    """Measure and return the rows that ``main`` prints."""
    host = AdapterHost.load(model, dtype="float32", device="cpu", threads=threads)
    tokenizer = HfChatTokenizer(model)
    probe = SlotProbe(marker_ids=tokenizer.encode(MARKER), end_of_turn_id=tokenizer.end_of_turn_id)
    contexts = _contexts(house, tokenizer)
    contexts = _spread(contexts, 6) if quick else contexts
    n_plain = 3 if quick else 6
    plain_names = {context.name for context in _spread(contexts, n_plain)}
    probe_prompts = [
        SlotRequest(key=prompt.key, token_ids=prompt.token_ids)
        for prompt in contexts[0].prompts[:2]
    ]
    engine = HfEngine(host, tokenizer, probe_prompts=probe_prompts, instance_id="benchmark")
    bench = Bench(host=host, engine=engine, probe=probe, pad_id=tokenizer.end_of_turn_id)
    ways = {"engine": bench.shared, "padded": bench.padded, "plain": bench.plain}
    for way in ("padded", "engine"):  # first-use costs belong to nobody
        ways[way](contexts[0].prompts[:2])
    for i, context in enumerate(contexts):
        names = [way for way in ways if way != "plain" or context.name in plain_names]
        for way in names[i % len(names) :] + names[: i % len(names)]:
            seconds, cpu, context.results[way] = _timed(ways[way], context.prompts)
            context.seconds[way], context.cpu_seconds[way] = seconds, cpu
        print(_line(context), file=sys.stderr, flush=True)
    return [*_summary(contexts, engine), _drafts(bench, contexts)]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path, help="folder of a converted instruction model")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--house", type=Path, default=HOUSE)
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args(argv)
    rows = run(options.model, quick=options.quick, threads=options.threads, house=options.house)
    for row in rows:
        print(json.dumps(row, ensure_ascii=False))
    if options.json:
        options.json.write_text(json.dumps(rows, ensure_ascii=False, indent=1) + "\n")
    return 0


def _contexts(house: Path, tokenizer: HfChatTokenizer) -> list[Context]:
    questions = [
        item["text"]
        for item in yaml.safe_load((house / "questions-eval.yaml").read_text("utf-8"))["items"]
    ][:N_QUESTIONS]
    found = []
    for path in (
        house / "contexts.yaml",
        house / "prefixes.yaml",
        house / "marker" / "contexts.yaml",
    ):
        for entry in yaml.safe_load(path.read_text("utf-8"))["contexts"]:
            if entry["id"] in NOT_IN_MATRIX:
                continue
            prompts = [
                Prompt(
                    key=f"{entry['id']}/{i}",
                    token_ids=tokenizer.render(
                        [
                            Message(
                                role=turn["role"],
                                content=turn["content"].replace("{question}", question),
                            )
                            for turn in entry["messages"]
                        ]
                    ),
                )
                for i, question in enumerate(questions)
            ]
            found.append(Context(name=entry["id"], prompts=prompts))
    return found


def _spread(contexts: list[Context], n: int) -> list[Context]:
    """n contexts at even steps of prompt length, the shortest and the longest among them."""
    ranked = sorted(contexts, key=lambda context: (context.n_tokens, context.name))
    if n >= len(ranked):
        return ranked
    return [ranked[round(i * (len(ranked) - 1) / (n - 1))] for i in range(n)]


def _timed(
    way: Callable[[list[Prompt]], list[Result]], prompts: list[Prompt]
) -> tuple[float, float, list[Result]]:
    """Wall seconds, CPU seconds (all threads of this process) and the results."""
    start, cpu_start = time.perf_counter(), time.process_time()
    results = way(prompts)
    return time.perf_counter() - start, time.process_time() - cpu_start, results


def _result(completion: Completion) -> Result:
    assert completion.slot is not None
    return completion.token_ids, completion.slot.log_prob


def _line(context: Context) -> str:
    seconds = "  ".join(
        f"{way} {s:.1f} s (CPU {context.cpu_seconds[way]:.1f})"
        for way, s in sorted(context.seconds.items())
    )
    return f"{context.name} ({context.n_tokens} tokens): {seconds}"


def _summary(contexts: list[Context], engine: HfEngine) -> list[dict[str, Any]]:
    plain = [context for context in contexts if "plain" in context.seconds]
    long = [context for context in contexts if context.n_tokens >= LONG_TOKENS]
    head = {
        "what": "setting",
        "version": engine.identity.version,
        "flags": dict(engine.identity.flags),
        "n_contexts": len(contexts),
        "n_questions": N_QUESTIONS,
        "max_new_tokens": MAX_NEW_TOKENS,
        "plain_measured_on": [context.name for context in plain],
    }
    return [
        head,
        _ratio("plain / engine", plain, "plain"),
        _ratio("padded / engine, all contexts", contexts, "padded"),
        _ratio(f"padded / engine, contexts of {LONG_TOKENS} tokens or more", long, "padded"),
        _ratio(
            f"plain / engine, contexts of {LONG_TOKENS} tokens or more",
            [c for c in long if c in plain],
            "plain",
        ),
    ]


def _ratio(what: str, contexts: list[Context], rival: str) -> dict[str, Any]:
    rows = [
        (theirs, ours)
        for context in contexts
        for theirs, ours in zip(context.results[rival], context.results["engine"], strict=True)
    ]
    if not rows:
        return {"what": what, "n_prompts": 0}
    theirs_s = sum(context.seconds[rival] for context in contexts)
    ours_s = sum(context.seconds["engine"] for context in contexts)
    return {
        "what": what,
        "ratio": round(theirs_s / ours_s, 2),
        "cpu_ratio": round(
            sum(context.cpu_seconds[rival] for context in contexts)
            / sum(context.cpu_seconds["engine"] for context in contexts),
            2,
        ),
        f"{rival}_s_per_prompt": round(theirs_s / len(rows), 3),
        "engine_s_per_prompt": round(ours_s / len(rows), 3),
        "n_contexts": len(contexts),
        "n_prompts": len(rows),
        "rows_with_other_tokens": sum(theirs[0] != ours[0] for theirs, ours in rows),
        # The marker may stand inside an answer; there the rivals read another slot.
        "max_slot_difference_nats": max(
            (abs(t[1] - o[1]) for t, o in rows if t[0] == o[0]), default=None
        ),
    }


def _drafts(bench: Bench, contexts: list[Context]) -> dict[str, Any]:
    """A weak random adapter, with and without the base answers as drafts."""
    adapter = _random_adapter(bench.host)
    proof = bench.engine.attach(adapter)
    assert proof is not None
    wall, cpu = {"with": 0.0, "without": 0.0}, {"with": 0.0, "without": 0.0}
    n_other = n_kept = n_rows = 0
    for i, context in enumerate(_spread(contexts, 6)):
        drafted = [
            replace(prompt, draft=answer)
            for prompt, (answer, _) in zip(context.prompts, context.results["engine"], strict=True)
        ]
        runs: dict[str, list[Result]] = {}
        for way in ("without", "with") if i % 2 else ("with", "without"):
            bench.engine.forget_prefixes()
            prompts = drafted if way == "with" else context.prompts
            seconds, cpu_seconds, runs[way] = _timed(bench.shared, prompts)
            wall[way] += seconds
            cpu[way] += cpu_seconds
        n_rows += len(drafted)
        n_other += sum(a[0] != b[0] for a, b in zip(runs["with"], runs["without"], strict=True))
        n_kept += sum(p.draft == a[0] for p, a in zip(drafted, runs["without"], strict=True))
    bench.engine.attach(None)
    return {
        "what": "engine without drafts / with base answers as drafts, a weak adapter attached",
        "ratio": round(wall["without"] / wall["with"], 2),
        "cpu_ratio": round(cpu["without"] / cpu["with"], 2),
        "n_prompts": n_rows,
        "rows_where_the_adapter_kept_the_base_answer": n_kept,
        "rows_with_other_tokens": n_other,
        "probe_change_nats": round(proof.max_abs_log_prob_change, 3),
    }


def _random_adapter(host: AdapterHost) -> AdapterFiles:
    """Rank 8 on q and v with a small random B: moves log-probabilities, changes some answers."""
    recipe = LoraRecipe(
        rank=8,
        alpha=16,
        dropout=0.0,
        rank_stabilised=False,
        target_modules=("q_proj", "v_proj"),
        learning_rate=1e-4,
        schedule="constant",
        warmup_steps=0,
        weight_decay=0.0,
        max_grad_norm=1.0,
        rows_per_step=1,
    )
    generator = torch.Generator().manual_seed(0)
    parameters = host.new_trainable(recipe, seed=0)
    try:
        with torch.no_grad():
            for parameter in parameters:
                if not parameter.any():
                    noise = torch.randn(parameter.shape, generator=generator)
                    parameter.copy_(0.002 * noise)
        files = host.export(recipe, {}, model_name="benchmark")
    finally:
        host.discard_trainable()
    digest = digest_bytes(b"".join(files[name] for name in sorted(files)))
    return AdapterFiles(digest=digest, files=files)


if __name__ == "__main__":
    sys.exit(main())
