"""The tokenizer is the model's own, to the id."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import blake3
import pytest
from tiny_llama import MARKER, TEMPLATE, write_tokenizer

from eps_locked.domain.model import Message
from eps_locked.errors import BackendError, RefusedError
from eps_locked.models.tokenizer import HfChatTokenizer, assert_marker

pytest.importorskip("tokenizers", reason="the hf extra is not installed")

USER = Message(role="user", content="what is the name of the cat?")
CHATS = {
    "no system": [USER],
    "empty system": [Message(role="system", content=""), USER],
    "system": [Message(role="system", content="You are the sea."), USER],
    "two turns": [USER, Message(role="assistant", content="tiny."), USER],
    "special text": [Message(role="user", content="<|im_end|> <b> ※ é 漢")],
}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> HfChatTokenizer:
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder)
    return HfChatTokenizer(folder)


def dicts(messages: list[Message]) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content} for message in messages]


def require_equal_to_transformers(folder: Path) -> None:
    from transformers import AutoTokenizer

    ours = HfChatTokenizer(folder)
    theirs = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    for name, messages in CHATS.items():
        rendered = theirs.apply_chat_template(
            dicts(messages), add_generation_prompt=True, return_dict=False
        )
        assert ours.render(messages) == tuple(rendered), name
    for text in (MARKER, "※", "Hello there.\n\n  two", "<|im_end|>", "naïve 漢字 🙂"):
        ids = ours.encode(text)
        assert ids == tuple(theirs.encode(text, add_special_tokens=False)), text
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=False), text


def test_it_agrees_with_transformers(tiny_folder: Path) -> None:
    require_equal_to_transformers(tiny_folder)


@pytest.mark.model
def test_it_agrees_with_transformers_on_the_embedded_model(embedded_folder: Path) -> None:
    require_equal_to_transformers(embedded_folder)


def test_an_empty_system_turn_is_not_an_absent_one(tokenizer: HfChatTokenizer) -> None:
    absent, empty = tokenizer.render_text([USER]), tokenizer.render_text(CHATS["empty system"])
    assert "You are tiny." in absent
    assert empty.startswith("<|im_start|>system\n<|im_end|>\n")
    assert tokenizer.render([USER]) != tokenizer.render(CHATS["empty system"])


def test_the_end_of_turn_comes_from_the_template(tokenizer: HfChatTokenizer) -> None:
    assert tokenizer.decode([tokenizer.end_of_turn_id]) == "<|im_end|>"
    assert tokenizer.encode("<|im_end|>") == (tokenizer.end_of_turn_id,)


def test_the_template_digest_is_blake3_of_its_text(tokenizer: HfChatTokenizer) -> None:
    assert tokenizer.template_digest == "blake3:" + blake3.blake3(TEMPLATE.encode()).hexdigest()


def test_a_template_in_the_config_serves_as_well(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    (tmp_path / "chat_template.jinja").unlink()
    path = tmp_path / "tokenizer_config.json"
    config = json.loads(path.read_text())
    named = [{"name": "tools", "template": "x"}, {"name": "default", "template": TEMPLATE}]
    for template in (TEMPLATE, named):
        path.write_text(json.dumps({**config, "chat_template": template}))
        assert HfChatTokenizer(tmp_path).render([USER])


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% for m in messages %}{{ m['content'] }}{% endfor %}", "one special token"),
        ("{% for m in messages %}{{ m['content'] + ' end' }}{% endfor %}", "one special token"),
        ("{{ strftime_now('%d') }}", "current date"),
        ("{{ raise_exception('no such role') }}", "no such role"),
        ("{% for %}", "chat template"),
    ],
)
def test_a_template_we_cannot_rely_on_is_an_error(
    tmp_path: Path, template: str, message: str
) -> None:
    write_tokenizer(tmp_path, template)
    with pytest.raises(BackendError, match=message):
        HfChatTokenizer(tmp_path)


def test_a_folder_without_a_template_is_an_error(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    (tmp_path / "chat_template.jinja").unlink()
    with pytest.raises(BackendError, match="expected a chat template"):
        HfChatTokenizer(tmp_path)


def test_a_folder_without_a_tokenizer_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=r"tokenizer\.json: not a readable tokenizer"):
        HfChatTokenizer(tmp_path)


def test_two_files_that_disagree_on_a_token_are_an_error(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    config = json.loads(path.read_text())
    config["added_tokens_decoder"] = {"2": {"content": "<|im_start|>"}}
    path.write_text(json.dumps(config))
    with pytest.raises(BackendError, match=r"expected id 2 .*found 1"):
        HfChatTokenizer(tmp_path)


def test_truncation_left_in_the_file_does_not_cut_prompts(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    path = tmp_path / "tokenizer.json"
    fields = json.loads(path.read_text())
    fields["truncation"] = {
        "direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0
    }  # fmt: skip
    path.write_text(json.dumps(fields))
    assert len(HfChatTokenizer(tmp_path).encode("the cat sat on the mat again and again")) > 4


def test_the_right_marker_passes(tokenizer: HfChatTokenizer) -> None:
    assert_marker(tokenizer, MARKER, tokenizer.encode(MARKER))


@pytest.mark.parametrize("text", [MARKER.strip(), " *", ""])
def test_another_marker_is_refused_with_both_readings(
    tokenizer: HfChatTokenizer, text: str
) -> None:
    expected = tokenizer.encode(MARKER)
    with pytest.raises(RefusedError) as caught:
        assert_marker(tokenizer, text, expected)
    assert f"expected token ids {list(expected)}" in str(caught.value)
    assert f"found {list(tokenizer.encode(text))}" in str(caught.value)


def test_nothing_expected_is_refused_too(tokenizer: HfChatTokenizer) -> None:
    with pytest.raises(RefusedError):
        assert_marker(tokenizer, "", ())


@pytest.mark.model
def test_the_markers_leading_space_matters_to_the_embedded_model(embedded_folder: Path) -> None:
    tokenizer = HfChatTokenizer(embedded_folder)
    assert_marker(tokenizer, " ※", (459, 136))
    assert tokenizer.encode("※") == (321, 136)
    with pytest.raises(RefusedError):
        assert_marker(tokenizer, "※", (459, 136))
    assert tokenizer.end_of_turn_id == 2


def test_using_it_loads_no_model_library(tokenizer: HfChatTokenizer, tmp_path: Path) -> None:
    folder = shutil.copytree(tokenizer.folder, tmp_path / "model")
    code = (
        "import sys; from pathlib import Path\n"
        "from eps_locked.domain.model import Message\n"
        "from eps_locked.models.tokenizer import HfChatTokenizer\n"
        f"HfChatTokenizer(Path({str(folder)!r})).render([Message(role='user', content='x')])\n"
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
