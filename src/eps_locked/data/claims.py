"""Wrong claims and invitations to flatter, from the public sycophancy sets.

An item is what the user says in one turn. Where the set knows the truth it is kept beside the
item; a claim that is true, a question without a claim and a matter of opinion measure nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from eps_locked.data.candidates import (
    Drop,
    Read,
    RowRead,
    id_of,
    single_question,
    text_of,
    turns_of,
)
from eps_locked.data.requests import each_row, question
from eps_locked.data.spec import SourceSpec

Row = Mapping[str, Any]
_LETTER = re.compile(r"[A-Z]")
# Prompts that were rendered for one model already; another model must never see its tokens.
_LLAMA3_TURN = re.compile(
    r"(?:<\|begin_of_text\|>)?<\|start_header_id\|>user<\|end_header_id\|>\n\n(.*?)<\|eot_id\|>"
    r"(?:<\|start_header_id\|>assistant<\|end_header_id\|>\s*)?",
    re.DOTALL,
)


def read_claims(spec: SourceSpec, contents: Mapping[str, bytes]) -> Iterator[Read]:
    """Requests in which the user claims something wrong."""
    opinions = spec.options["opinions"]
    builders: dict[str, Callable[[str, Row], RowRead]] = {
        "suggested_answer": _suggested_answer,
        "sharma_answer": _sharma_answer,
        "gcd": _gcd,
        "model_written": lambda where, row: _model_written(where, row, opinions),
    }
    return each_row(spec, contents, (), builders[spec.form])


def read_feedback(spec: SourceSpec, contents: Mapping[str, bytes]) -> Iterator[Read]:
    """Requests for feedback in which the user takes one of the stances asked for."""
    stances = spec.options["stances"]

    def build(where: str, row: Row) -> RowRead:
        text = single_question(turns_of(row, "prompt"))
        base = _part(row, "base")
        # The stance stands before the text to comment on, which may hold such words itself.
        opening = text.split("\n")[0]
        stance = next((phrase for phrase in stances if phrase in opening), None)
        if stance is None:
            raise Drop("no_claim")
        return question(
            where,
            text,
            topic=text_of(base, "dataset"),
            upstream_id=None,
            about={"stance": stance},
        )

    return each_row(spec, contents, (), build)


def strip_llama3(text: str) -> str:
    """The user's words of a prompt rendered for Llama 3. Raises Drop if it holds other tokens."""
    found = _LLAMA3_TURN.fullmatch(text)
    if found is not None:
        text = found[1]
    if "<|" in text:
        raise Drop("template_tokens")
    return text


def _suggested_answer(where: str, row: Row) -> RowRead:
    text = single_question(turns_of(row, "biased_question"))
    truth, pushed = text_of(row, "ground_truth"), text_of(row, "biased_option")
    if not _LETTER.fullmatch(truth) or not _LETTER.fullmatch(pushed):
        raise Drop("label")
    if truth == pushed:
        raise Drop("claim_is_true")
    return question(
        where,
        text,
        topic=text_of(row, "original_dataset"),
        upstream_id=id_of(row, "original_question_hash"),
        about={"truth": truth, "pushed": pushed},
    )


def _sharma_answer(where: str, row: Row) -> RowRead:
    text = single_question(turns_of(row, "prompt"))
    base, metadata = _part(row, "base"), _part(row, "metadata")
    template = text_of(metadata, "prompt_template")
    if "{incorrect_answer}" not in template:
        asserted = "{correct_answer}" in template and "don't think" not in template
        raise Drop("claim_is_true" if asserted else "no_claim")
    return question(
        where,
        text,
        topic=text_of(base, "dataset"),
        upstream_id=None,
        about={
            "truth": text_of(base, "correct_answer"),
            "pushed": text_of(base, "incorrect_answer"),
        },
    )


def _gcd(where: str, row: Row) -> RowRead:
    given = row.get("user_provides_answer")
    if given not in (None, "true", "false"):
        raise Drop("label")
    if given != "false":
        raise Drop("no_claim" if given is None else "claim_is_true")
    turns = turns_of(row, "messages")
    if [role for role, _ in turns[-1:]] == ["assistant"]:
        turns = turns[:-1]  # the recorded good answer
    return question(
        where,
        single_question(turns),
        topic=text_of(row, "label"),
        upstream_id=id_of(row, "_id"),
        about={"truth": text_of(row, "answer")},
    )


def _model_written(where: str, row: Row, opinions: bool) -> RowRead:
    text = strip_llama3(text_of(row, "biased_prompt"))
    pushed = text_of(row, "sycophantic_target").strip()
    if not opinions:
        # The "honest target" is merely the option that the biography does not favour.
        raise Drop("no_truth")
    return question(
        where,
        text,
        topic=text_of(_part(row, "metadata"), "category"),
        upstream_id=id_of(row, "sample_id"),
        about={"pushed": pushed},
    )


def _part(row: Row, key: str) -> Row:
    value = row.get(key)
    if value is None:
        raise Drop("missing_field")
    if not isinstance(value, Mapping):
        raise Drop("wrong_type")
    return value
