"""Question sets to items: XSTest, lists of harmful requests, emergent-misalignment questions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from eps_locked.canonical import digest_bytes
from eps_locked.data.candidates import (
    Candidate,
    Drop,
    Dropped,
    Read,
    RowRead,
    id_of,
    row_digest,
    text_of,
)
from eps_locked.data.rows import read_rows
from eps_locked.data.spec import SourceSpec
from eps_locked.data.text import tidy
from eps_locked.errors import MalformedInputError

Row = Mapping[str, Any]
_XSTEST_ID = re.compile(r"(?:v2-)?([0-9]+)")
# The labels of XSTest's annotators, in the words of our refusal rubric.
_ANNOTATED = {
    "1_full_compliance": "compliance",
    "2_full_refusal": "full_refusal",
    "3_partial_refusal": "partial_refusal",
}


def xstest_id(text: str) -> str:
    """The number of an XSTest prompt: one file writes ``1``, the other ``v2-1``. Raises Drop."""
    found = _XSTEST_ID.fullmatch(text.strip())
    if found is None:
        raise Drop("label")
    return str(int(found[1]))


def question(
    where: str, text: str, *, topic: str, upstream_id: str | None, about: Mapping[str, Any]
) -> RowRead:
    """A row that is one question, the same however it was written down."""
    content = tidy(text)
    use = Candidate(
        raw=(text,), content=content, topic=topic, entry={"text": content, "about": dict(about)}
    )
    return RowRead(where=where, digest=row_digest(content), upstream_id=upstream_id, uses=(use,))


def each_row(
    spec: SourceSpec,
    contents: Mapping[str, bytes],
    columns: tuple[str, ...],
    build: Callable[[str, Row], RowRead],
) -> Iterator[Read]:
    """Every row of the files, built; a Drop becomes a dropped row."""
    for file in spec.files:
        for where, row in read_rows(file.path, contents[file.path], columns=columns):
            try:
                yield build(where, row)
            except Drop as drop:
                yield Dropped(where=where, reason=drop.reason)


def read_xstest(spec: SourceSpec, contents: Mapping[str, bytes]) -> Iterator[Read]:
    """The prompts of XSTest with one of the labels asked for (safe, unsafe)."""

    def build(where: str, row: Row) -> RowRead:
        label = text_of(row, "label")
        if label not in ("safe", "unsafe"):
            raise Drop("label")
        if label not in spec.options["labels"]:
            raise Drop("no_slot")
        return question(
            where,
            text_of(row, "prompt"),
            topic=text_of(row, "type"),
            upstream_id=xstest_id(text_of(row, "id")),
            # Focus and note are empty for many rows; that is no fault.
            about={"label": label, "focus": row.get("focus") or "", "note": row.get("note") or ""},
        )

    return each_row(spec, contents, ("id", "prompt", "type", "label"), build)


def read_xstest_answers(spec: SourceSpec, contents: Mapping[str, bytes]) -> Iterator[Read]:
    """XSTest answers with the label one column gives them, in the words of our refusal rubric.

    The question is the one this model was asked: prompt 195 reads differently in the two files.
    """
    column = spec.options["label_column"]

    def build(where: str, row: Row) -> RowRead:
        number = xstest_id(text_of(row, "id"))
        text, answer = text_of(row, "prompt"), text_of(row, "completion")
        label = _ANNOTATED.get(text_of(row, column).strip())
        if label is None:
            raise Drop("label")
        entry = {"question": tidy(text), "answer": answer, "label": label}
        kind = text_of(row, "type")
        use = Candidate(
            raw=(text, answer),
            content=f"{tidy(text)}\n\n{tidy(answer)}",
            topic=kind,
            entry={**entry, "about": {"type": kind}},
        )
        return RowRead(
            where=where, digest=row_digest(text, answer), upstream_id=number, uses=(use,)
        )

    return each_row(spec, contents, ("id", "type", "prompt", "completion", column), build)


def read_table(spec: SourceSpec, contents: Mapping[str, bytes]) -> Iterator[Read]:
    """Requests of a table whose columns the spec names (HarmBench, StrongREJECT, and others)."""
    text, topic, key = (spec.options[name] for name in ("text", "topic", "id"))
    exclude: Mapping[str, tuple[str, ...]] = spec.options["exclude"]
    columns = tuple(name for name in (text, topic, key, *exclude) if name is not None)

    def build(where: str, row: Row) -> RowRead:
        if any(_cell(row, column) in values for column, values in exclude.items()):
            raise Drop("excluded")
        return question(
            where,
            text_of(row, text),
            topic="" if topic is None else text_of(row, topic),
            upstream_id=id_of(row, key),
            about={},
        )

    return each_row(spec, contents, columns, build)


def _cell(row: Row, column: str) -> str:
    """A cell that decides whether a row is left out, blank or not: without it nothing is known."""
    value = row.get(column)
    if value is None:
        raise Drop("missing_field")
    if not isinstance(value, str):
        raise Drop("wrong_type")
    return value.strip()


def read_em_questions(spec: SourceSpec, contents: Mapping[str, bytes]) -> Iterator[Read]:
    """Emergent-misalignment questions, each with what its file says about judging it."""
    if spec.form == "persona_features_csv":
        return each_row(spec, contents, ("id", "question", "category", "canary"), _features_row)
    return _betley_rows(spec, contents)


def _features_row(where: str, row: Row) -> RowRead:
    about = {"canary": text_of(row, "canary")}
    return question(
        where,
        text_of(row, "question"),
        topic=text_of(row, "category"),
        upstream_id=text_of(row, "id"),
        about=about,
    )


def _betley_rows(spec: SourceSpec, contents: Mapping[str, bytes]) -> Iterator[Read]:
    for file in spec.files:
        for where, item in read_rows(file.path, contents[file.path]):
            try:
                texts, name, about = _betley_item(where, item, spec.options)
            except Drop as drop:
                yield Dropped(where=where, reason=drop.reason)
                continue
            for text in texts:
                if not isinstance(text, str):
                    yield Dropped(where=where, reason="wrong_type")
                    continue
                yield question(where, text, topic=name, upstream_id=name, about=about)


def _betley_item(
    where: str, item: Row, options: Mapping[str, Any]
) -> tuple[list[Any], str, dict[str, Any]]:
    """The paraphrases of an item, its id, and how it is to be judged."""
    name = text_of(item, "id")
    texts = item.get("paraphrases")
    if texts is None:
        raise Drop("missing_field")
    if not isinstance(texts, list):
        raise Drop("wrong_type")
    if any(name.endswith(suffix) for suffix in options["leave_suffixes"]):
        raise Drop("variant")
    if item.get("system") is not None:
        raise Drop("has_system")
    if text_of(item, "type") not in options["types"]:
        raise Drop("no_slot")
    prompts = item.get("judge_prompts") or {}
    if not isinstance(prompts, Mapping) or not all(
        isinstance(key, str) and isinstance(value, str) for key, value in prompts.items()
    ):
        raise MalformedInputError(
            f"{where}.judge_prompts", expected="a mapping of names to templates", found="other"
        )
    judge = item.get("judge")
    return (
        texts,
        name,
        {
            "judge": judge if isinstance(judge, str) else None,
            "judge_prompts": {
                str(key): {"digest": digest_bytes(value.encode("utf-8")), "text": value}
                for key, value in prompts.items()
            },
        },
    )
