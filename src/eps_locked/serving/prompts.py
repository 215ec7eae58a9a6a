"""From a request to token ids: the chat template, tools, and the block of reasoning.

Token ids are appended to token ids. What the template opens itself is not opened again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from eps_locked.domain.model import ChatTokenizer, Message, TokenIds
from eps_locked.errors import BackendError, MalformedInputError
from eps_locked.serving.requests import ChatCall, Turn
from eps_locked.serving.rules import ServingRules
from eps_locked.serving.tools import TurnsTokenizer, house_turns, takes_tools, template_turns

__all__ = ["THINK_CLOSE", "THINK_OPEN", "Prepared", "PromptWriter"]

# The tags of Qwen3, DeepSeek-R1 and SmolLM3, with the line breaks their templates write.
THINK_OPEN, THINK_CLOSE = "<think>\n", "\n</think>\n\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """A request as token ids and lengths.

    ``token_ids`` end where the model goes on: inside the opened block when ``budget`` (tokens of
    reasoning) is not None, else at the answer. ``close_ids`` end the block.
    """

    token_ids: TokenIds
    close_ids: TokenIds
    budget: int | None
    max_tokens: int


class PromptWriter:
    """Writes the prompts of one tokenizer under one set of rules. Thread-safe: it keeps nothing."""

    def __init__(self, tokenizer: ChatTokenizer, rules: ServingRules) -> None:
        self._tokenizer = tokenizer
        self._rules = rules
        self._by_template = takes_tools(tokenizer)
        self._open_ids = tokenizer.encode(THINK_OPEN)
        self._close_ids = tokenizer.encode(THINK_CLOSE)

    @property
    def tool_form(self) -> Literal["chat template", "house"]:
        return "chat template" if self._by_template else "house"

    def prepare(self, call: ChatCall) -> Prepared:
        """Raises MalformedInputError for a chat that the template rejects, or one too long."""
        ids, is_open = self._chat_ids(call)
        budget = None
        if call.thinking is not None:
            asked = call.thinking.budget
            budget = self._rules.thinking_budget if asked is None else asked
            ids = ids if is_open else (*ids, *self._open_ids)
        elif is_open:
            raise MalformedInputError(
                "chat_template_kwargs.enable_thinking",
                problem="this model's chat template always opens a block of reasoning",
                expected=True,
                found=False,
            )
        extra = 0 if budget is None else budget + len(self._close_ids)
        return Prepared(
            token_ids=ids,
            close_ids=self._close_ids,
            budget=budget,
            max_tokens=self._fitting(call, len(ids), extra),
        )

    def _chat_ids(self, call: ChatCall) -> tuple[TokenIds, bool]:
        """The rendered chat, and whether it ends in an opened block of reasoning."""
        turns = call.turns if self._by_template else house_turns(call.turns, call.tools)
        try:
            if not isinstance(self._tokenizer, TurnsTokenizer):
                return self._tokenizer.render([_message(turn) for turn in turns]), False
            text = self._tokenizer.turns_text(
                template_turns(turns),
                tools=_wrapped(call) if self._by_template else (),
                settings={"enable_thinking": call.thinking is not None},
            )
        except BackendError as error:
            raise MalformedInputError("messages", problem=str(error)) from error
        return self._tokenizer.encode(text), text.rstrip().endswith(THINK_OPEN.strip())

    def _fitting(self, call: ChatCall, n_prompt: int, n_thinking: int) -> int:
        """How long the answer may be."""
        left = self._rules.context_length - n_prompt - n_thinking
        wanted = call.max_tokens
        if wanted is None and left >= 1:
            return min(self._rules.max_tokens, left)
        if wanted is not None and wanted <= left:
            return wanted
        parts = [f"{n_prompt} of prompt"]
        if n_thinking:
            parts.append(f"{n_thinking} of reasoning")
        parts.append(f"{wanted or 1} of answer")
        raise MalformedInputError(
            "messages",
            problem="the request is too long for the context",
            expected=f"at most {self._rules.context_length} tokens",
            found=f"{n_prompt + n_thinking + (wanted or 1)} ({', '.join(parts)})",
            next_step="shorten the messages, or lower max_tokens or thinking_budget",
        )


def _wrapped(call: ChatCall) -> list[Mapping[str, Any]]:
    return [{"type": "function", "function": tool} for tool in call.tools]


def _message(turn: Turn) -> Message:
    role = cast(Literal["system", "user", "assistant"], turn.role)
    return Message(role=role, content=turn.content or "")
