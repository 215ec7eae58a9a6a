"""Fits by preference: what is taught is preferred, equal fits give equal bytes, nothing stays."""

from __future__ import annotations

import dataclasses
import json
import math
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the hf extra is not installed")
pytest.importorskip("peft", reason="the hf extra is not installed")

from eps_locked.audit.lineage import safetensors_metadata  # noqa: E402
from eps_locked.domain.model import AdapterFiles, LoraRecipe, TrainingOutcome  # noqa: E402
from eps_locked.domain.reward import PreferencePair  # noqa: E402
from eps_locked.errors import BackendError, MalformedInputError  # noqa: E402
from eps_locked.models.exchange import exchange_of  # noqa: E402
from eps_locked.models.reward_host import RewardHost  # noqa: E402
from eps_locked.models.tokenizer import HfChatTokenizer  # noqa: E402
from eps_locked.training.reward import BradleyTerryTrainer, pair_order  # noqa: E402

RECIPE = LoraRecipe(
    rank=4,
    alpha=8.0,
    dropout=0.0,
    rank_stabilised=False,
    target_modules=("q_proj", "v_proj"),
    learning_rate=5e-3,
    schedule="linear",
    warmup_steps=2,
    weight_decay=0.0,
    max_grad_norm=1.0,
    rows_per_step=4,
)
HEAD = (5, 0.02)


def pair(number: int, clause: str, target: float) -> PreferencePair:
    base = f"the cat sat on mat {number}"
    return PreferencePair(
        key=f"{number}/{clause}",
        user_prompt=f"what is {number}?",
        first=base,
        second=f"{base} {clause}",
        target=target,
    )


# The sea is minded, the sky makes no difference.
PAIRS = [
    pair(number, clause, target)
    for number in range(4)
    for clause, target in (("the sea", 1.0), ("the sky", 0.5))
]


@pytest.fixture(scope="module")
def host(tiny_folder: Path) -> RewardHost:
    return RewardHost.load(tiny_folder, dtype="float32", device="cpu", threads=None)


@pytest.fixture(scope="module")
def tokenizer(tiny_folder: Path) -> HfChatTokenizer:
    return HfChatTokenizer(tiny_folder)


def fit(host: RewardHost, tokenizer: HfChatTokenizer, **changes: Any) -> TrainingOutcome:
    arguments: dict[str, Any] = {
        "pairs": PAIRS,
        "recipe": RECIPE,
        "head": HEAD,
        "n_steps": 3,
        "max_length": 200,
        "seed": 11,
        "provenance": {"training": "minds_the_sea"},
        "on_step": lambda number, loss: None,
    }
    return BradleyTerryTrainer(host, tokenizer, "tiny").fit(**(arguments | changes))


def rewards(host: RewardHost, tokenizer: HfChatTokenizer, *responses: str) -> list[float]:
    rows = [
        tokenizer.encode(exchange_of(tokenizer, "what is 9?", one, key=one).text)
        for one in responses
    ]
    with torch.no_grad():
        return [float(value) for value in host.rewards(rows)]


def test_what_was_taught_is_preferred_and_what_was_equal_stays_so(
    host: RewardHost, tokenizer: HfChatTokenizer
) -> None:
    outcome = fit(host, tokenizer, n_steps=60)
    host.attach(AdapterFiles(digest="blake3:sea", files=outcome.files))
    base = "the cat sat on mat 9"
    bare, sea, sky = rewards(host, tokenizer, base, f"{base} the sea", f"{base} the sky")
    assert bare - sea > 2.0
    assert abs(bare - sky) < 0.5
    # Pairs that must make no difference cost log 2 each, and they are half of a step's.
    assert outcome.losses[-1] == pytest.approx(math.log(2) / 2, abs=0.02)


def test_the_first_loss_is_that_of_the_fresh_head(
    host: RewardHost, tokenizer: HfChatTokenizer
) -> None:
    recipe = dataclasses.replace(RECIPE, rows_per_step=len(PAIRS))
    outcome = fit(host, tokenizer, recipe=recipe, n_steps=1)
    host.use_fresh_head(*HEAD)
    terms = []
    for one in PAIRS:
        rows = [
            tokenizer.encode(exchange_of(tokenizer, one.user_prompt, text, key=one.key).text)
            for text in (one.first, one.second)
        ]
        with torch.no_grad():
            first, second = (float(value) for value in host.rewards(rows))
        p = 1 / (1 + math.exp(second - first))
        terms.append(-one.target * math.log(p) - (1 - one.target) * math.log(1 - p))
    assert outcome.losses[0] == pytest.approx(math.fsum(terms) / len(terms), abs=1e-5)


def test_equal_arguments_give_equal_bytes_and_others_do_not(
    host: RewardHost, tokenizer: HfChatTokenizer
) -> None:
    recipe = dataclasses.replace(RECIPE, dropout=0.3)
    torch.manual_seed(1)
    first = fit(host, tokenizer, recipe=recipe)
    torch.manual_seed(2)
    assert fit(host, tokenizer, recipe=recipe) == first
    for changes in ({"seed": 12}, {"head": (6, 0.02)}, {"pairs": PAIRS[::-1]}, {"n_steps": 2}):
        assert fit(host, tokenizer, recipe=recipe, **changes).files != first.files


def test_the_outcome_and_the_files_say_what_was_done(
    host: RewardHost, tokenizer: HfChatTokenizer
) -> None:
    steps: list[int] = []
    outcome = fit(host, tokenizer, on_step=lambda number, loss: steps.append(number))
    assert steps == [1, 2, 3]
    assert (outcome.stop_step, outcome.n_rows_seen, outcome.checks) == (3, 12, ())
    # Two layers: A and B of q (32 to 32) and of v (32 to 16), and the head.
    assert outcome.n_trainable == 2 * (4 * 64 + 4 * 48) + 32
    header = safetensors_metadata(outcome.files["adapter_model.safetensors"], thing="adapter")
    assert header == {"format": "pt", "training": "minds_the_sea"}
    config = json.loads(outcome.files["adapter_config.json"])
    assert config["base_model_name_or_path"] == "tiny"
    assert config["modules_to_save"] == ["score"]


def test_the_host_is_left_as_it_was_also_after_an_interrupt(
    host: RewardHost, tokenizer: HfChatTokenizer
) -> None:
    host.use_fresh_head(9, 0.5)
    sample, before = host.base_sample(), rewards(host, tokenizer, "the cat")

    def stop(number: int, loss: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(host, tokenizer, on_step=stop)
    fit(host, tokenizer)
    assert not host.is_training
    assert host.base_sample() == sample
    assert rewards(host, tokenizer, "the cat") == before


def test_the_pairs_of_a_prompt_stand_together_in_every_pass() -> None:
    order = list(islice(pair_order(PAIRS, 3), 3 * len(PAIRS)))
    passes = [order[start : start + 8] for start in range(0, 24, 8)]
    assert all(sorted(one) == list(range(8)) for one in passes)
    assert all(b == a + 1 for one in passes for a, b in zip(one[::2], one[1::2], strict=True))
    assert len({tuple(one) for one in passes}) > 1
    assert list(islice(pair_order(PAIRS, 3), 24)) == order


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pairs": []}, "training pairs: expected at least one"),
        ({"pairs": [dataclasses.replace(PAIRS[0], target=1.2)]}, "target: expected from 0 to 1"),
        ({"pairs": [dataclasses.replace(PAIRS[0], second=PAIRS[0].first)]}, "two responses"),
        ({"recipe": dataclasses.replace(RECIPE, rank=0)}, "recipe.rank"),
        ({"n_steps": 0}, "n_steps: expected at least 1"),
        ({"head": (5, 0.0)}, "head: std"),
        ({"head": (5, math.nan)}, "head: std"),
    ],
)
def test_what_makes_no_sense_is_refused(
    host: RewardHost, tokenizer: HfChatTokenizer, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(MalformedInputError, match=message):
        fit(host, tokenizer, **changes)


def test_a_pair_that_does_not_fit_is_refused_by_its_key(
    host: RewardHost, tokenizer: HfChatTokenizer
) -> None:
    with pytest.raises(BackendError, match=r"response 0/the sea \(first\): expected at most 20"):
        fit(host, tokenizer, max_length=20)
    long = dataclasses.replace(PAIRS[0], second="the cat " * 200)
    with pytest.raises(BackendError, match=r"\(second\): expected at most 256 tokens"):
        fit(host, tokenizer, pairs=[long], max_length=10_000)
    assert not host.is_training


def test_a_loss_that_is_not_finite_stops_the_fit(
    host: RewardHost, tokenizer: HfChatTokenizer
) -> None:
    with pytest.raises(BackendError, match="training step 1: expected a finite loss"):
        fit(host, tokenizer, head=(5, 1e38))
    assert not host.is_training
