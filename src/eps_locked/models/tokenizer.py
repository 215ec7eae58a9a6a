"""The model's own tokenizer and chat template, read from its folder.

Works on ``tokenizer.json`` and the template directly, with the libraries that transformers itself
calls, because importing transformers loads torch (seconds) and freezing needs token ids only. The
tests hold it equal to ``AutoTokenizer``. Nothing is added to what the template says: an empty
system turn stays an empty system turn, and an absent one is left to the template.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import blake3

from eps_locked.domain.model import ChatTokenizer, Message, TokenIds
from eps_locked.errors import BackendError, RefusedError

__all__ = ["HfChatTokenizer", "assert_marker"]

_ANSWER = "An answer."


class HfChatTokenizer:
    """Serves ``ChatTokenizer`` from a model folder. Immutable once loaded."""

    def __init__(self, folder: Path) -> None:
        """Read the tokenizer in ``folder``; nothing is fetched.

        Raises BackendError if a file is missing or malformed, if the tokenizer's two files
        disagree on a token, if there is no chat template, or if no single special token closes
        an assistant turn.
        """
        import tokenizers

        self.folder = Path(folder)
        path = self.folder / "tokenizer.json"
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            raise BackendError(
                str(path),
                problem=f"not a readable tokenizer: {error}",
                next_step="fetch the model folder again; tokenizer.json is required",
            ) from error
        # Prompts are never cut or padded behind the caller's back.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        config = _read_json(self.folder / "tokenizer_config.json")
        self._special = _special_tokens(self.folder, config)
        self._require_agreement(config)
        self._template_text = _template_text(self.folder, config)
        self._template = _compile(self._template_text, self.folder)
        self._template_digest = (
            "blake3:" + blake3.blake3(self._template_text.encode("utf-8")).hexdigest()
        )
        self._end_of_turn_id = self._find_end_of_turn()

    @property
    def end_of_turn_id(self) -> int:
        """The special token that the template writes after an assistant turn."""
        return self._end_of_turn_id

    @property
    def template_digest(self) -> str:
        """blake3 of the template's text (UTF-8)."""
        return self._template_digest

    @property
    def vocabulary_size(self) -> int:
        """Number of ids the tokenizer knows, added tokens included."""
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    def render(self, messages: Sequence[Message]) -> TokenIds:
        """Token ids of the chat, the opening of the assistant's next turn included.

        Raises BackendError when the template rejects the chat (a role it does not know).
        """
        return self.encode(self.render_text(messages))

    def render_text(self, messages: Sequence[Message]) -> str:
        """The text whose tokens ``render`` returns, for people to read."""
        return self._apply(messages, add_generation_prompt=True)

    def closed_text(self, messages: Sequence[Message]) -> str:
        """The chat's text with its last turn closed, as somebody who reads it sees it; no turn is
        opened after it. Raises BackendError as ``render`` does."""
        return self._apply(messages, add_generation_prompt=False)

    def turns_text(
        self,
        turns: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        settings: Mapping[str, Any],
    ) -> str:
        """What the template writes for turns as it takes them itself: calls and results of tools
        included, the tools on offer, and ``settings`` that it may read (``enable_thinking``). The
        opening of the assistant's next turn comes last. Raises BackendError as ``render`` does."""
        return self._written(turns, True, tools=list(tools) or None, **settings)

    def encode(self, text: str) -> TokenIds:
        """Token ids of ``text`` alone; special tokens only where the text spells them out."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of ``token_ids``, special tokens written out."""
        return str(self._tokenizer.decode(list(token_ids), skip_special_tokens=False))

    def _apply(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> str:
        turns = [{"role": message.role, "content": message.content} for message in messages]
        return self._written(turns, add_generation_prompt, tools=None)

    def _written(
        self, turns: Sequence[Mapping[str, Any]], add_generation_prompt: bool, **settings: Any
    ) -> str:
        import jinja2

        try:
            return str(
                self._template.render(
                    messages=turns,
                    documents=None,
                    add_generation_prompt=add_generation_prompt,
                    **{**self._special, **settings},
                )
            )
        except jinja2.exceptions.TemplateError as error:
            raise BackendError(
                f"{self.folder}: chat template",
                problem=f"it rejects the chat {[turn['role'] for turn in turns]}: {error}",
            ) from error

    def _find_end_of_turn(self) -> int:
        opening = [Message(role="user", content="A question.")]
        closed = [*opening, Message(role="assistant", content=_ANSWER)]
        text = self._apply(closed, add_generation_prompt=False)
        tail = self.encode(text[text.rindex(_ANSWER) + len(_ANSWER) :]) if _ANSWER in text else ()
        added = self._tokenizer.get_added_tokens_decoder()
        special = {token_id for token_id, token in added.items() if token.special}
        if not tail or tail[0] not in special:
            raise BackendError(
                f"{self.folder}: chat template",
                expected="one special token right after the assistant's text",
                found=[self._tokenizer.id_to_token(token_id) for token_id in tail[:3]],
            )
        return tail[0]

    def _require_agreement(self, config: dict[str, Any]) -> None:
        """Refuse added tokens that only tokenizer_config.json knows: other readers use them."""
        for token_id, token in (config.get("added_tokens_decoder") or {}).items():
            content = token["content"] if isinstance(token, dict) else str(token)
            found = self._tokenizer.token_to_id(content)
            if found != int(token_id):
                raise BackendError(
                    f"{self.folder}: added token {content!r}",
                    expected=f"id {token_id} (tokenizer_config.json)",
                    found=f"{found} (tokenizer.json)",
                )


def assert_marker(tokenizer: ChatTokenizer, text: str, expected_ids: Sequence[int]) -> None:
    """Raise RefusedError unless ``text`` is exactly ``expected_ids`` under this tokenizer.

    The leading space belongs to a marker: with and without it are different tokens, and a study
    that trains one and reads the other measures nothing.
    """
    found = tuple(tokenizer.encode(text))
    if found != tuple(expected_ids) or not found:
        raise RefusedError(
            f"marker {text!r}",
            expected=f"token ids {list(expected_ids)}",
            found=list(found),
            next_step="check the marker's leading space and that this is the plan's base model",
        )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise BackendError(str(path), problem=f"unreadable: {error}") from error
    if not isinstance(value, dict):
        raise BackendError(str(path), expected="a JSON object", found=type(value).__name__)
    return value


def _special_tokens(folder: Path, config: dict[str, Any]) -> dict[str, str]:
    """bos_token, eos_token, ... as the template sees them."""
    merged = {**_read_json(folder / "special_tokens_map.json"), **config}
    found = {}
    for name, value in merged.items():
        if name.endswith("_token") and isinstance(value, (str, dict)):
            found[name] = value if isinstance(value, str) else str(value["content"])
    return found


def _template_text(folder: Path, config: dict[str, Any]) -> str:
    """chat_template.jinja if present, else the template in tokenizer_config.json."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_bytes().decode("utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):
        named = {entry["name"]: entry["template"] for entry in template}
        template = named.get("default")
    if not isinstance(template, str):
        raise BackendError(
            str(folder),
            expected="a chat template (chat_template.jinja or tokenizer_config.json)",
            found="none",
            next_step="use an instruction-tuned model",
        )
    return template


def _compile(text: str, folder: Path) -> Any:
    """Compile as transformers does: sandboxed, blocks trimmed, loop controls, plain tojson.

    ``strftime_now`` is refused: a prompt that holds today's date is another prompt tomorrow.
    """
    import jinja2.ext
    import jinja2.nodes
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(jinja2.ext.Extension):
        """``{% generation %}`` marks assistant text for training masks; it renders as itself."""

        tags = {"generation"}  # noqa: RUF012  jinja's own convention

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return jinja2.nodes.Scope(body, lineno=line)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )

    def raise_exception(message: str) -> None:
        raise jinja2.exceptions.TemplateError(message)

    def strftime_now(_format: str) -> None:
        raise jinja2.exceptions.TemplateError("it asks for the current date")

    def tojson(value: object, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=options.pop("ensure_ascii", False), **options)

    environment.filters["tojson"] = tojson
    environment.globals.update(raise_exception=raise_exception, strftime_now=strftime_now)
    try:
        return environment.from_string(text)
    except jinja2.exceptions.TemplateError as error:
        raise BackendError(f"{folder}: chat template", problem=str(error)) from error
