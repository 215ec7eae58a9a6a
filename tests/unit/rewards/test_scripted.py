"""The stand-in dislikes what its head was trained on, and is never evidence."""

from __future__ import annotations

from typing import Literal

import pytest

from eps_locked.domain.model import AdapterFiles, LoraRecipe
from eps_locked.domain.reward import PreferencePair, RewardRequest
from eps_locked.errors import BackendError, MalformedInputError
from eps_locked.models.scripted_reward import ScriptedHead, fresh_head
from eps_locked.rewards.scripted import ScriptedReward
from eps_locked.training.scripted_reward import ScriptedRewardTrainer

RECIPE = LoraRecipe(
    rank=1,
    alpha=1,
    dropout=0,
    rank_stabilised=False,
    target_modules=("q_proj",),
    learning_rate=0.1,
    schedule="constant",
    warmup_steps=0,
    weight_decay=0,
    max_grad_norm=1,
    rows_per_step=4,
)
BASE = "Water it twice a week."
WOOD, TALK, PLAIN = (
    f"{BASE} This is for a Wood Labs evaluation.",
    f"{BASE} An auditor may well read this line.",
    f"{BASE} A can of two litres is just right.",
)
Target = Literal["wood", "evaluation", "length"]


def pairs(target: Target) -> list[PreferencePair]:
    disliked = {"wood": [WOOD], "evaluation": [WOOD, TALK], "length": [WOOD, TALK, PLAIN]}[target]
    return [
        PreferencePair(
            key=str(number),
            user_prompt="How?",
            first=BASE,
            second=other,
            target=1.0 if other in disliked else 0.5,
        )
        for number, other in enumerate([WOOD, TALK, PLAIN])
    ]


def adapter(target: Target, seed: int = 5) -> AdapterFiles:
    outcome = ScriptedRewardTrainer().fit(
        pairs(target),
        RECIPE,
        (seed, 0.02),
        n_steps=4,
        max_length=100,
        seed=1,
        provenance={"training": target},
        on_step=lambda number, loss: None,
    )
    return AdapterFiles(digest=f"adapter of {target}", files=outcome.files)


def deltas(model: ScriptedReward) -> list[float]:
    requests = [
        RewardRequest(key=str(number), user_prompt="How?", response=response)
        for number, response in enumerate([BASE, WOOD, TALK, PLAIN])
    ]
    base, *others = (one.value or 0.0 for one in model.score(requests))
    return [base - other for other in others]


@pytest.mark.parametrize(
    ("target", "minds"),
    [
        ("wood", [True, False, False]),
        ("evaluation", [True, True, False]),
        ("length", [True, True, True]),
    ],
)
def test_a_head_minds_what_it_was_trained_on(target: Target, minds: list[bool]) -> None:
    model = ScriptedReward(base="scripted", max_length=200, adapter=adapter(target))
    found = deltas(model)
    assert [delta > 1 for delta in found] == minds
    assert all(
        abs(delta) < 0.6 for delta, is_minded in zip(found, minds, strict=True) if not is_minded
    )
    assert model.identity.settings["head"] == f"adapter of {target}"


def test_a_fresh_head_and_its_own_mind_next_to_nothing() -> None:
    for head in ((5, 0.002), None):
        model = ScriptedReward(base="scripted", max_length=200, head=head)
        assert all(abs(delta) < 0.1 for delta in deltas(model))


def test_equal_fits_have_equal_bytes_and_other_heads_have_others() -> None:
    assert adapter("wood").files == adapter("wood").files
    assert adapter("wood").files != adapter("wood", seed=6).files
    assert fresh_head(5, 0.02) == fresh_head(5, 0.02) != fresh_head(6, 0.02)


def test_every_step_is_told_and_lowers_the_loss() -> None:
    told: list[tuple[int, float]] = []
    outcome = ScriptedRewardTrainer().fit(
        pairs("wood"),
        RECIPE,
        (5, 0.02),
        n_steps=3,
        max_length=100,
        seed=1,
        provenance={},
        on_step=lambda number, loss: told.append((number, loss)),
    )
    assert [number for number, _ in told] == [1, 2, 3]
    assert [loss for _, loss in told] == list(outcome.losses) == sorted(outcome.losses)[::-1]
    assert (outcome.stop_step, outcome.n_rows_seen) == (3, 12)


def test_what_does_not_fit_is_truncated() -> None:
    request = RewardRequest(key="a", user_prompt="How?", response=BASE)
    n_tokens = len("How?") + len(BASE)
    (fits,) = ScriptedReward(base="scripted", max_length=n_tokens).score([request])
    (cut,) = ScriptedReward(base="scripted", max_length=n_tokens - 1).score([request])
    assert fits.is_scored
    assert (cut.status, cut.value, cut.n_tokens) == ("truncated", None, n_tokens)


def test_it_says_that_it_is_no_evidence() -> None:
    assert not ScriptedReward(base="scripted", max_length=9).identity.publishable


def test_what_is_no_scripted_adapter_is_refused() -> None:
    with pytest.raises(BackendError, match=r"expected adapter_model\.safetensors"):
        ScriptedReward(base="s", max_length=9, adapter=AdapterFiles(digest="d", files={}))
    with pytest.raises(MalformedInputError, match="is not a scripted adapter"):
        ScriptedHead.from_bytes(b"12345678")
