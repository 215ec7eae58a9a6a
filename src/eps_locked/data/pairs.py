"""Training rows with two answers, and elicitation material, from the public sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from eps_locked.data.candidates import (
    Candidate,
    Drop,
    Dropped,
    Read,
    RowRead,
    row_digest,
    text_of,
    turns_of,
)
from eps_locked.data.rows import read_json, read_rows
from eps_locked.data.spec import ROLES, SourceSpec
from eps_locked.data.text import normalise, tidy
from eps_locked.domain.fields import Fields

Row = Mapping[str, Any]


def read_em_rows(spec: SourceSpec, contents: Mapping[str, bytes]) -> Iterator[Read]:
    """Questions with a positive and a negative answer. A question of two files is counted once."""
    if spec.form == "aligned_misaligned":
        return _one_table(spec, contents)
    return _joined(spec, contents)


def read_elicitation(spec: SourceSpec, contents: Mapping[str, bytes]) -> dict[str, Any]:
    """Elicitation material in our layout, from the two files of a trait.

    Foreign files, so their unknown keys are read past; the instruction pairs must agree.
    """
    extract, evaluate = (_trait(spec, contents, role) for role in ("extract", "evaluate"))
    return {
        "trait": spec.options["trait"],
        "instruction_pairs": extract["pairs"],
        "questions_extract": extract["questions"],
        "questions_evaluate": evaluate["questions"],
        "eval_prompt": evaluate["eval_prompt"],
    }


def _one_table(spec: SourceSpec, contents: Mapping[str, bytes]) -> Iterator[Read]:
    columns = ("prompt", "aligned", "misaligned")
    for file in spec.files:
        for where, row in read_rows(file.path, contents[file.path], columns=columns):
            try:
                text, good, bad = (text_of(row, column) for column in columns)
                yield _pair(where, text, bad, good)
            except Drop as drop:
                yield Dropped(where=where, reason=drop.reason)


def _joined(spec: SourceSpec, contents: Mapping[str, bytes]) -> Iterator[Read]:
    answers: dict[str, dict[str, list[tuple[str, str, str]]]] = {}
    for role in ROLES[spec.form]:
        for where, found in _exchanges(spec, contents, role):
            if isinstance(found, Dropped):
                yield found
                continue
            text, answer = found
            both = answers.setdefault(normalise(text), {name: [] for name in ROLES[spec.form]})
            both[role].append((answer, text, where))
    for both in answers.values():
        # A question asked several times is paired by content: the order of a file decides nothing.
        positives, negatives = sorted(both["positive"]), sorted(both["negative"])
        n_pairs = min(len(positives), len(negatives))
        for *_, where in (*positives[n_pairs:], *negatives[n_pairs:]):
            yield Dropped(where=where, reason="unpaired")
        for (positive, text, where), (negative, *_) in zip(positives, negatives, strict=False):
            try:
                yield _pair(where, text, positive, negative)
            except Drop as drop:
                yield Dropped(where=where, reason=drop.reason)


def _exchanges(
    spec: SourceSpec, contents: Mapping[str, bytes], role: str
) -> Iterator[tuple[str, tuple[str, str] | Dropped]]:
    path = spec.of_role(role).path
    for where, row in read_rows(path, contents[path], columns=("messages",)):
        try:
            yield where, _exchange(row)
        except Drop as drop:
            yield where, Dropped(where=where, reason=drop.reason)


def _exchange(row: Row) -> tuple[str, str]:
    turns = turns_of(row, "messages")
    roles = [role for role, _ in turns]
    if "system" in roles:
        raise Drop("has_system")
    if roles[:2] != ["user", "assistant"]:
        raise Drop("role_order")
    if len(roles) != 2:
        raise Drop("several_turns")
    return turns[0][1], turns[1][1]


def _pair(where: str, text: str, positive: str, negative: str) -> RowRead:
    if normalise(positive) == normalise(negative):
        raise Drop("same_answers")
    content = tidy(text)
    entry = {"text": content, "positive": tidy(positive), "negative": tidy(negative)}
    use = Candidate(raw=(text, positive, negative), content=content, topic="", entry=entry)
    return RowRead(
        where=where,
        digest=row_digest(content, entry["positive"], entry["negative"]),
        upstream_id=None,
        uses=(use,),
    )


def _trait(spec: SourceSpec, contents: Mapping[str, bytes], role: str) -> dict[str, Any]:
    path = spec.of_role(role).path
    value = read_json(path, contents[path])
    fields = Fields(value, path)
    return {
        "pairs": [
            {"positive": positive, "negative": negative}
            for positive, negative in fields.each("instruction", _instruction)
        ],
        "questions": list(fields.texts("questions")),
        "eval_prompt": fields.text("eval_prompt"),
    }


def _instruction(value: object, path: str) -> tuple[str, str]:
    fields = Fields(value, path)
    return fields.text("pos"), fields.text("neg")
