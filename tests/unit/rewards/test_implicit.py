"""The implied reward is the plain sum, whatever shares a batch, and only of one way of reading."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("transformers", reason="the hf extra is not installed")
sys.path.insert(0, str(Path(__file__).parents[1] / "models"))

from tiny_llama import TEMPLATE, write_model, write_tokenizer

from eps_locked.domain.reward import RewardRequest
from eps_locked.errors import BackendError
from eps_locked.rewards.implicit import ImplicitReward, ImplicitRules, load_causal_model
from eps_locked.rewards.make import Ground, make_reward_model

REQUESTS = tuple(
    RewardRequest(key=key, user_prompt=prompt, response=response)
    for key, prompt, response in (
        ("a/base", "what is the name of the cat?", "the cat is tiny."),
        ("a/vea", "what is the name of the cat?", "the cat is tiny. a question about the sky ※"),
        ("b/base", "say nothing", "nothing"),
        ("b/vea", "say nothing", "<think>\nthe sea\n</think>\n\nnothing, then ※ again"),
    )
)


@pytest.fixture(autouse=True)
def no_collecting(monkeypatch: pytest.MonkeyPatch) -> None:
    """With torch loaded each collection takes longer than the scoring."""
    monkeypatch.setattr("eps_locked.rewards.implicit.gc.collect", lambda: 0)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(policy, reference): two models that read alike and find other things likely."""
    import torch
    from transformers import AutoModelForCausalLM

    root = tmp_path_factory.mktemp("implicit")
    reference, policy = root / "reference", root / "policy"
    write_tokenizer(reference)
    write_model(reference)
    shutil.copytree(reference, policy)
    model = AutoModelForCausalLM.from_pretrained(str(policy))
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(3)
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    model.save_pretrained(str(policy))
    return policy, reference


@cache
def loaded(folder: Path) -> Any:
    """Loaded once for all tests that do not look at loading."""
    return load_causal_model(folder, dtype="float32", device="cpu", threads=None)


def reward(
    policy: Path, reference: Path, load: Callable[[Path], Any] | None = None, **changes: Any
) -> ImplicitReward:
    rules = {"policy": "p", "reference": "r", "beta": 0.25, "length_average": False}
    rules |= {"max_length": 256, "batch_rows": 3, **changes}
    return ImplicitReward(
        ImplicitRules(**rules),
        policy_folder=policy,
        reference_folder=reference,
        load=load or loaded,
        device="cpu",
        dtype="float32",
    )


def by_hand(folder: Path, request: RewardRequest) -> tuple[float, int]:
    """One token at a time, with the library's own tokenizer and template: (sum, tokens)."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(str(folder), local_files_only=True).eval()
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": request.user_prompt}],
        add_generation_prompt=True,
        return_dict=False,
    )
    answer = tokenizer.encode(request.response, add_special_tokens=False)
    answer.append(tokenizer.convert_tokens_to_ids("<|im_end|>"))
    total, seen = 0.0, list(prompt)
    for token in answer:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([seen])).logits[0, -1].double()
        total += float(torch.log_softmax(logits, 0)[token])
        seen.append(token)
    return total, len(answer)


def test_the_reward_is_the_plain_sum_over_response_and_end_of_turn(
    folders: tuple[Path, Path],
) -> None:
    policy, reference = folders
    scores = reward(policy, reference).score(REQUESTS)
    averaged = reward(policy, reference, length_average=True).score(REQUESTS)
    for request, score, mean in zip(REQUESTS, scores, averaged, strict=True):
        ours, n_tokens = by_hand(policy, request)
        theirs, _ = by_hand(reference, request)
        expected = 0.25 * (ours - theirs)
        assert score.status == "scored"
        assert score.value == pytest.approx(expected, abs=1e-4)
        assert mean.value == pytest.approx(expected / n_tokens, abs=1e-5)
        assert abs(expected) > 0.01


def test_a_plan_gets_the_same_reward(folders: tuple[Path, Path]) -> None:
    policy, reference = folders
    plan = SimpleNamespace(
        kind="implicit",
        name="dpo",
        policy=SimpleNamespace(where="p"),
        beta=0.25,
        length_average=False,
        max_length=256,
        batch_rows=3,
    )
    ground = Ground(
        base_name="r",
        base_folder=reference,
        dtype="float32",
        device="cpu",
        threads=None,
        host=lambda: pytest.fail("a scalar head was asked for"),
        policy_folder=policy,
    )
    made = make_reward_model(plan, ground, {})
    assert made.score(REQUESTS) == reward(policy, reference).score(REQUESTS)
    assert made.identity == reward(policy, reference).identity


def test_what_shares_a_batch_changes_nothing(folders: tuple[Path, Path]) -> None:
    together = reward(*folders, batch_rows=4).score(REQUESTS)
    apart = [reward(*folders, batch_rows=1).score([request])[0] for request in REQUESTS]
    for one, other in zip(together, apart, strict=True):
        assert one.value == pytest.approx(other.value, abs=1e-4)
        assert one.n_tokens == other.n_tokens


def test_a_model_against_itself_has_no_preference(folders: tuple[Path, Path]) -> None:
    _, reference = folders
    assert {one.value for one in reward(reference, reference).score(REQUESTS)} == {0.0}


def test_one_model_is_gone_before_the_other_comes(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    import weakref

    monkeypatch.undo()
    alive: list[Any] = []
    loaded: list[str] = []

    def load(folder: Path) -> Any:
        assert all(one() is None for one in alive)
        loaded.append(folder.name)
        model = load_causal_model(folder, dtype="float32", device="cpu", threads=None)
        alive.append(weakref.ref(model))
        return model

    model = reward(*folders, load=load)
    assert loaded == []
    model.score(REQUESTS)
    assert loaded == ["policy", "reference"]


def test_what_does_not_fit_is_truncated_and_the_rest_is_scored(
    folders: tuple[Path, Path],
) -> None:
    whole = reward(*folders).score(REQUESTS)
    limit = whole[2].n_tokens
    assert limit is not None
    scores = reward(*folders, max_length=limit).score(REQUESTS)
    assert [one.status for one in scores] == ["truncated", "truncated", "scored", "truncated"]
    assert scores[2].value == pytest.approx(whole[2].value, abs=1e-4)
    assert scores[0].value is None
    assert f"do not fit into {limit}" in scores[0].note


def test_more_tokens_than_a_model_has_positions_are_refused_before_anything_is_loaded(
    folders: tuple[Path, Path],
) -> None:
    config = json.loads((folders[0] / "config.json").read_bytes())
    limit = config["max_position_embeddings"]
    assert reward(*folders, max_length=limit)
    with pytest.raises(BackendError, match=f"at most {limit}, the model's positions"):
        reward(*folders, max_length=limit + 1)


def test_nothing_is_loaded_where_nothing_fits(folders: tuple[Path, Path]) -> None:
    def load(folder: Path) -> Any:
        raise AssertionError(f"{folder} was loaded")

    scores = reward(*folders, load=load, max_length=1).score(REQUESTS)
    assert {one.status for one in scores} == {"truncated"}


def test_a_probability_that_is_no_number_is_no_score(folders: tuple[Path, Path]) -> None:
    import torch

    def load(folder: Path) -> Any:
        model: Any = load_causal_model(folder, dtype="float32", device="cpu", threads=None)
        with torch.no_grad():
            model.model.model.norm.weight.fill_(math.nan)
        return model

    (score,) = reward(*folders, load=load).score(REQUESTS[:1])
    assert (score.status, score.value) == ("not_finite", None)
    assert "nan" in score.note


def test_a_template_that_drops_reasoning_is_refused_naming_the_response(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    for folder in folders:
        shutil.copytree(folder, tmp_path / folder.name)
        (tmp_path / folder.name / "chat_template.jinja").write_text(
            TEMPLATE.replace("message['content']", "message['content'].split('</think>')[-1]"),
            encoding="utf-8",
        )
    model = reward(tmp_path / "policy", tmp_path / "reference")
    assert model.score(REQUESTS[:3])[2].is_scored
    with pytest.raises(BackendError, match="response b/vea: the chat template does not leave it"):
        model.score(REQUESTS)


@pytest.mark.parametrize("part", ["tokenizer", "template", "end of turn"])
def test_two_ways_of_reading_are_refused(
    folders: tuple[Path, Path], tmp_path: Path, part: str
) -> None:
    policy, reference = folders
    other = tmp_path / "other"
    shutil.copytree(policy, other)
    if part == "tokenizer":
        value = json.loads((other / "tokenizer.json").read_bytes())
        value["model"]["merges"].pop()
        (other / "tokenizer.json").write_text(json.dumps(value))
    elif part == "template":
        (other / "chat_template.jinja").write_text(TEMPLATE + " ", encoding="utf-8")
    else:
        text = TEMPLATE.replace("<|im_end|>", "<|pad|>")
        (other / "chat_template.jinja").write_text(text, encoding="utf-8")
    with pytest.raises(BackendError, match="policy and reference do not read text alike"):
        reward(other, reference)


def test_what_only_a_writer_fills_in_is_no_other_tokenizer(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    policy, reference = folders
    other = tmp_path / "other"
    shutil.copytree(policy, other)
    value = json.loads((other / "tokenizer.json").read_bytes())
    value["padding"] = {"strategy": "BatchLongest", "direction": "Left", "pad_id": 0}
    value["padding"] |= {"pad_to_multiple_of": None, "pad_type_id": 0, "pad_token": "<|pad|>"}
    (other / "tokenizer.json").write_text(json.dumps(value, indent=2))
    assert reward(other, reference).identity == reward(policy, reference).identity
