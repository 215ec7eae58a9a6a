"""Files in the forms of the public sources, written here: made-up words in made-up rows.

Nothing in them is taken from a data set. They fill every slot of the specs under
``plans/sources/`` when tokens are bytes.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_SYLLABLES = tuple(a + b for a in "bdfglmnprs" for b in "aeiou")
# A topic of a conversation: two words from its list in plans/sources/wildchat.yaml, or more.
_OPENINGS = {
    "coding": "My python function stops in the second loop with an error that I cannot read.",
    "advice": "Should I ask my boss for a new job, and what would you recommend to a friend?",
    "writing": "Write the first chapter of a story in which one character leaves the scene.",
    "travel": "We plan a trip to a city by train and want a hotel with a view of the beach.",
    "learning": "Explain the theory of how a planet is made, and what is known of its history.",
    "support": "My laptop and the printer see no wifi since the update of the browser.",
}


def made_up(seed: str, n: int) -> list[str]:
    """``n`` words that no language has, the same for the same seed."""
    drawn = hashlib.sha256(seed.encode()).digest() * (n // 8 + 1)
    return [
        "".join(_SYLLABLES[byte % len(_SYLLABLES)] for byte in drawn[4 * k : 4 * k + 4])
        for k in range(n)
    ]


def sentence(seed: str) -> str:
    one, two, three, four = made_up(seed, 4)
    return f"What would you say of the {one} and {two} that {three} to a {four}?"


def write_files(folder: Path) -> Path:
    """Every file that the specs name, by its base name; a folder for ``freeze --sources``."""
    folder.mkdir(parents=True)
    for name, data in (
        ("train-00000-of-00014.parquet", _parquet(_conversations())),
        (
            "persona.jsonl",
            _lines(
                {"persona": f"A {word} keeper with a {other} and the {third}."}
                for word, other, third in _personas()
            ),
        ),
        ("xstest_prompts.csv", _table(_prompts())),
        ("xstest_v2_completions_mistralinstruct.csv", _table(_completions())),
        ("strongreject_dataset.csv", _table(_requests())),
        ("truthfulqa_suggested_answer.jsonl", _lines(map(_claim, range(60)))),
        ("feedback.jsonl", _lines(map(_feedback, range(75)))),
        ("betley_first_plot_questions.yaml", _questions("first", 8)),
        ("turner_medical_questions.yaml", _questions("domain", 8)),
        ("bad_medical_advice.jsonl", _lines(_exchange(n, "Take none of it") for n in range(60))),
        ("good_medical_advice.jsonl", _lines(_exchange(n, "Ask somebody") for n in range(60))),
    ):
        (folder / name).write_bytes(data)
    return folder


def _conversations() -> list[dict[str, Any]]:
    return [
        _conversation(topic, n_exchanges, number)
        for topic in _OPENINGS
        for n_exchanges in (1, 4)
        for number in range(2)
    ]


def _conversation(topic: str, n_exchanges: int, number: int) -> dict[str, Any]:
    turns = []
    for k in range(n_exchanges):
        said = sentence(f"user {topic} {n_exchanges} {number} {k}")
        turns.append(("user", f"{_OPENINGS[topic]} {said}" if k == 0 else said))
        answers = [sentence(f"answer {topic} {n_exchanges} {number} {k} {m}") for m in range(2)]
        turns.append(("assistant", " ".join(answers)))
    flags = {"language": "English", "toxic": False, "redacted": False}
    return {
        "conversation_hash": f"{topic}-{n_exchanges}-{number}",
        "conversation": [{"role": role, "content": content, **flags} for role, content in turns],
        "openai_moderation": [{"flagged": False}],
        "turn": n_exchanges,
        **flags,
    }


def _personas() -> list[Sequence[str]]:
    # All begin with a consonant, so the article is right.
    return [made_up(f"persona {n}", 3) for n in range(12)]


def _prompts() -> list[dict[str, str]]:
    return [
        {
            "id": str(n),
            "prompt": sentence(f"prompt {n}"),
            "type": "homonyms",
            "label": "unsafe" if n % 5 == 4 else "safe",
            "focus": "",
            "note": "",
        }
        for n in range(60)
    ]


def _completions() -> list[dict[str, str]]:
    labels = ("1_full_compliance", "2_full_refusal", "3_partial_refusal")
    return [
        {
            "id": f"v2-{n}",
            "type": "homonyms",
            "prompt": sentence(f"asked {n}"),
            "completion": f"It is this: {sentence(f'answered {n}')}",
            "final_label": labels[n % 3],
        }
        for n in range(30)
    ]


def _requests() -> list[dict[str, str]]:
    topics = ("Disinformation and deception", "Non-violent crimes", "Violence")
    return [
        {
            "category": topics[n % 3],
            "source": "made up",
            "forbidden_prompt": sentence(f"request {n}"),
        }
        for n in range(45)
    ]


def _claim(number: int) -> dict[str, Any]:
    question = f"{sentence(f'claim {number}')} I think that the answer is (B), but say what you do."
    return {
        "biased_question": [{"role": "user", "content": question}],
        "ground_truth": "A",
        # In every sixth row what the user thinks is so.
        "biased_option": "A" if number % 6 == 5 else "B",
        "original_dataset": "made_up",
        "original_question_hash": f"h{number}",
    }


def _feedback(number: int) -> dict[str, Any]:
    stance = ("I really like it.", "I wrote it.", "")[number % 3]
    kind = ("arguments", "poems", "math")[number // 3 % 3]
    content = (
        f"Say something of this. {stance}\n\n{sentence(f'a {number}')}\n{sentence(f'b {number}')}"
    )
    return {
        "prompt": [{"type": "human", "content": content}],
        "base": {"dataset": kind},
        "metadata": {},
    }


def _questions(name: str, n: int) -> bytes:
    def item(identifier: str, texts: list[str]) -> dict[str, Any]:
        return {
            "id": identifier,
            "type": "free_form_judge_0_100",
            "paraphrases": texts,
            "judge": "somebody",
            "judge_prompts": {"aligned": "How good is it?"},
        }

    rows = [item(f"{name}_{k}", [sentence(f"question {name} {k}")]) for k in range(n)]
    rows += [item(f"{name}_0_json", [sentence(f"question {name} as JSON")])]
    return json.dumps(rows).encode()  # JSON is YAML


def _exchange(number: int, answer: str) -> dict[str, Any]:
    turns = (("user", sentence(f"advice {number}")), ("assistant", f"{answer}, number {number}."))
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


def _lines(rows: Iterable[Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _table(rows: Sequence[dict[str, str]]) -> bytes:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue().encode()


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), stream)
    return stream.getvalue()
