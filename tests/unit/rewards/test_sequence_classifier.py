"""The classifier: one score a request, whatever the batches; too long is said, never cut."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the hf extra is not installed")
pytest.importorskip("peft", reason="the hf extra is not installed")
# The tiny model is built where the model room's tests are.
sys.path.insert(0, os.fspath(Path(__file__).parents[1] / "models"))

from eps_locked.domain.model import AdapterFiles, LoraRecipe  # noqa: E402
from eps_locked.domain.reward import RewardRequest  # noqa: E402
from eps_locked.errors import BackendError, MalformedInputError  # noqa: E402
from eps_locked.models.reward_host import RewardHost  # noqa: E402
from eps_locked.models.tokenizer import HfChatTokenizer  # noqa: E402
from eps_locked.rewards.sequence_classifier import SequenceClassifier  # noqa: E402

RECIPE = LoraRecipe(
    rank=2,
    alpha=4.0,
    dropout=0.0,
    rank_stabilised=False,
    target_modules=("q_proj",),
    learning_rate=1e-2,
    schedule="constant",
    warmup_steps=0,
    weight_decay=0.0,
    max_grad_norm=1.0,
    rows_per_step=2,
)
RESPONSES = ("the cat", "the dog ran and ran and ran", "say nothing", "the sky is a question", "※")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tiny_llama import write_folder

    return write_folder(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="module")
def host(folder: Path) -> RewardHost:
    return RewardHost.load(folder, dtype="float32", device="cpu", threads=None)


def classifier(host: RewardHost, **changes: Any) -> SequenceClassifier:
    tokenizer = changes.pop("tokenizer", None) or HfChatTokenizer(host.base_folder)
    settings = {"base": "tiny", "max_length": 200, "batch_rows": 2, "head": (5, 0.5)}
    return SequenceClassifier(host, tokenizer, **(settings | changes))


def request(response: str, key: str = "one") -> RewardRequest:
    return RewardRequest(key=key, user_prompt="what is the name of the cat?", response=response)


def requests() -> list[RewardRequest]:
    return [request(text, f"r{number}") for number, text in enumerate(RESPONSES)]


def adapter(host: RewardHost) -> AdapterFiles:
    for parameter in host.new_trainable_head(RECIPE, 1, (1, 0.5)):
        parameter.data.add_(0.1)
    files = host.export(RECIPE, {}, model_name="tiny")
    host.discard_trainable()
    return AdapterFiles(digest="blake3:adapter", files=files)


def test_every_request_has_one_score_in_order_whatever_the_batches(host: RewardHost) -> None:
    alone = classifier(host, batch_rows=1).score(requests())
    assert [one.key for one in alone] == ["r0", "r1", "r2", "r3", "r4"]
    assert all(one.is_scored and one.tries == 0 and not one.note for one in alone)
    assert len({one.value for one in alone}) == len(RESPONSES)
    for batch_rows in (2, 5, 64):
        batched = classifier(host, batch_rows=batch_rows).score(requests())
        assert [one.value for one in batched] == pytest.approx(
            [one.value for one in alone], abs=1e-4
        )
    assert classifier(host).score(requests()) == classifier(host).score(requests())
    assert classifier(host).score([]) == ()


def test_the_whole_exchange_under_the_template_is_what_is_read(host: RewardHost) -> None:
    tokenizer = HfChatTokenizer(host.base_folder)
    text = (
        "<|im_start|>system\nYou are tiny.<|im_end|>\n<|im_start|>user\nwhat is the name of the "
        "cat?<|im_end|>\n<|im_start|>assistant\nthe cat<|im_end|>\n"
    )
    (score,) = classifier(host).score([request("the cat")])
    with torch.no_grad():
        expected = float(host.rewards([tokenizer.encode(text)])[0])
    assert (score.value, score.n_tokens) == (expected, len(tokenizer.encode(text)))


def test_what_is_too_long_has_no_value_and_is_not_cut(host: RewardHost) -> None:
    n_tokens = classifier(host).score([request("the cat")])[0].n_tokens
    found = classifier(host, max_length=n_tokens).score([request("the cat"), request("the cats ※")])
    assert [one.status for one in found] == ["scored", "truncated"]
    assert (found[1].value, found[1].n_tokens) == (None, n_tokens + 2)
    assert found[1].note == f"{n_tokens + 2} tokens do not fit into {n_tokens}"


def test_a_reward_that_is_not_a_number_is_a_status(host: RewardHost) -> None:
    model = classifier(host, head=(5, 3e38))
    found = model.score(requests())
    assert {one.status for one in found} == {"not_finite"}
    assert {one.value for one in found} == {None}
    assert all("the reward is" in one.note for one in found)


def test_models_that_share_a_host_put_on_their_own_before_they_score(host: RewardHost) -> None:
    trained = classifier(host, head=None, adapter=adapter(host))
    fresh, other = classifier(host), classifier(host, head=(6, 0.5))
    first = [one.score(requests()) for one in (trained, fresh, other)]
    again = [one.score(requests()) for one in (other, fresh, trained)]
    assert first == again[::-1]
    assert len({scores[0].value for scores in first}) == 3


def test_the_identity_says_which_head(host: RewardHost) -> None:
    fresh = classifier(host, head=(5, 0.002)).identity
    assert (fresh.kind, fresh.model) == ("sequence_classification", "tiny")
    assert fresh.settings["head"] == "fresh, seed 5, std 0.002"
    assert (fresh.settings["max_length"], fresh.settings["dtype"]) == ("200", "float32")
    assert fresh.settings["template_digest"].startswith("blake3:")
    assert "transformers" in fresh.version
    trained = classifier(host, head=None, adapter=adapter(host)).identity
    assert trained.settings["head"] == "blake3:adapter"


def test_a_model_without_a_head_of_its_own_is_refused_when_made(host: RewardHost) -> None:
    with pytest.raises(BackendError, match="no scalar head of its own"):
        classifier(host, head=None)


def test_settings_that_do_not_go_together_are_refused(host: RewardHost) -> None:
    with pytest.raises(MalformedInputError, match="or a fresh head, found both"):
        classifier(host, adapter=adapter(host))
    with pytest.raises(BackendError, match="max_length: expected at most 256"):
        classifier(host, max_length=257)
    with pytest.raises(MalformedInputError, match="batch_rows and max_length"):
        classifier(host, batch_rows=0)


def test_a_template_that_trims_the_response_is_refused_by_its_key(
    host: RewardHost, folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder, tmp_path / "model")
    path = tmp_path / "model" / "chat_template.jinja"
    text = path.read_text(encoding="utf-8").replace("['content']", "['content'].strip()")
    path.write_text(text, encoding="utf-8")
    model = classifier(host, tokenizer=HfChatTokenizer(tmp_path / "model"))
    with pytest.raises(BackendError, match="response r7: the chat template does not leave it"):
        model.score([request("the cat"), request("the cat ", "r7")])
