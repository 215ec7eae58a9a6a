"""Specs and foreign files written in the tests, and a tokenizer that counts words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from eps_locked.data.obtain import Obtain
from eps_locked.data.sampled import Sampled, read_sampled
from eps_locked.data.sampling import sample
from eps_locked.data.spec import SourceSpec
from eps_locked.domain.model import Message

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TEXT: dict[str, Any] = {
    "characters": [1, 4000],
    "min_latin": 0.9,
    "min_english_words": 0.1,
    "max_newlines": 3,
    "max_blank_lines": 2,
    "noise_phrases": ["Copy code"],
    "forbid": ["※"],
    "avoid": ["weapons"],
    "near_copy": 0.8,
}
ALL: list[dict[str, Any]] = [{"slice": "all", "n": None, "topics": None}]


class WordTokenizer:
    """One token for each word of a message, and one for its role."""

    template_digest = "blake3:" + "0" * 64
    end_of_turn_id = 0

    def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return tuple(n for one in messages for n in (1, *self.encode(one.content)))

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(range(len(text.split())))

    def decode(self, token_ids: Sequence[int]) -> str:
        raise AssertionError("no test asks for it")


def spec_value(kind: str, form: str, /, **changes: Any) -> dict[str, Any]:
    """A whole spec of that kind; ``text`` and ``options`` change parts of its filters."""
    text = {**TEXT, **changes.pop("text", {})}
    options = changes.pop("options", {})
    value: dict[str, Any] = {
        "schema": "eps-locked/source/1",
        "name": "made",
        "title": "Made up",
        "kind": kind,
        "form": form,
        "location": "git",
        "dataset": "example.org/some/body",
        "revision": COMMIT,
        "files": [{"path": "rows.jsonl"}],
        "licence": "CC0-1.0",
        "redistribute": True,
        "keep_text": True,
        "seed": 1,
        "filters": {"text": text, **options},
        "slots": ALL,
    }
    return value | changes


def spec_bytes(kind: str, form: str, /, **changes: Any) -> bytes:
    # JSON in ASCII is strict YAML; a letter beyond the first plane would be two halves there.
    return json.dumps(spec_value(kind, form, **changes)).encode("utf-8")


def given(**contents: bytes) -> Obtain:
    """These files; ``rows_jsonl=...`` is rows.jsonl."""

    def obtain(spec: SourceSpec) -> Mapping[str, bytes]:
        return {file.path: contents[file.path.replace(".", "_")] for file in spec.files}

    return obtain


def jsonl(rows: Sequence[Any]) -> bytes:
    return b"".join(json.dumps(row, ensure_ascii=False).encode("utf-8") + b"\n" for row in rows)


def drawn(spec: bytes, rows: Sequence[Any], **arguments: Any) -> Sampled:
    """What ``sample`` makes of these rows of rows.jsonl."""
    obtain = given(rows_jsonl=jsonl(rows))
    data = sample(spec, "plans/made.yaml", obtain, WordTokenizer(), **arguments)
    return read_sampled(data, "made.json")


def chat(*turns: str, **changes: Any) -> dict[str, Any]:
    """A WildChat row; turns alternate, the user first."""
    conversation = [
        {
            "role": "assistant" if number % 2 else "user",
            "content": content,
            "language": "English",
            "toxic": False,
            "redacted": False,
            "hashed_ip": "1234",
        }
        for number, content in enumerate(turns)
    ]
    row = {
        "conversation_hash": "c0ffee",
        "model": "some-model",
        "conversation": conversation,
        "turn": len(turns) // 2,
        "language": "English",
        "openai_moderation": [{"flagged": False}],
        "toxic": False,
        "redacted": False,
        "country": "Nowhere",
    }
    return row | changes


PREFIXES: dict[str, Any] = {
    "language": "English",
    "bins": {
        "short": {"exchanges": 1, "tokens": [10, 60]},
        "long": {"exchanges": 2, "tokens": [20, 120]},
    },
    "topics": {"garden": ["plant", "soil", "c++"], "kitchen": ["bread", "oven", "bake it"]},
    "min_topic_words": 2,
}
