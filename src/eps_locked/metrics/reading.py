"""Reads an exported materials folder back into the types a metric sees. Runs inside the box too.

Every file is required to be the one its index names before it is parsed; a file the index does not
list is refused, since nobody would know where it came from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eps_locked import files
from eps_locked.canonical import decode, digest_bytes
from eps_locked.errors import EvidenceError, MalformedInputError
from eps_locked.metrics.interface import (
    AdapterView,
    BaseModel,
    BehaviourMaterials,
    ContextView,
    InstructionPair,
    Item,
    Materials,
    OpenCell,
    Reading,
    TrainingData,
    TrainingRow,
)

__all__ = ["read_materials"]

_INDEX_FILE = "index.json"
_INDEX_SCHEMA = "eps-locked/metric-materials/1"


def read_materials(folder: Path, model_folder: Path | None) -> tuple[Materials, BaseModel]:
    """The materials of an exported folder, and the handle of the base model they belong to.

    Raises EvidenceError naming a file that is missing, changed or not listed, MalformedInputError
    for a folder that is no export.
    """
    index = decode(files.read_bytes(folder / _INDEX_FILE), thing=_INDEX_FILE)
    if not isinstance(index, dict) or index.get("schema") != _INDEX_SCHEMA:
        raise MalformedInputError(
            str(folder), expected=f"an index of schema {_INDEX_SCHEMA}", found="another"
        )
    documents = _verified(folder, index["files"])
    model = BaseModel(
        name=index["base_model"]["name"],
        licence=index["base_model"]["licence"],
        folder=model_folder,
    )
    return _materials(index["study"], documents), model


def _verified(folder: Path, listed: Mapping[str, Any]) -> dict[str, Any]:
    """Every listed JSON file, parsed from the very bytes whose digest was compared."""
    present = set(files.walk_files(folder)) - {_INDEX_FILE}
    for name in sorted(present ^ set(listed)):
        raise EvidenceError(
            str(folder / name),
            expected="listed and present",
            found="not listed" if name in present else "missing",
            next_step="export the materials again into a new folder",
        )
    documents = {}
    for name, record in listed.items():
        data = files.read_bytes(folder / name, limit=1 << 34)
        digest = digest_bytes(data)
        if digest != record["digest"]:
            raise EvidenceError(
                str(folder / name),
                expected=record["digest"],
                found=digest,
                next_step="export the materials again into a new folder",
            )
        if name.endswith(".json"):
            documents[name] = decode(data, thing=name)
    return documents


def _materials(study: str, documents: Mapping[str, Any]) -> Materials:
    rows = [one["name"] for one in documents["behaviours.json"]["behaviours"]]
    items = {row: documents[f"rows/{row}/items.json"] for row in rows}
    contexts = {row: documents[f"rows/{row}/contexts.json"] for row in rows}
    training: dict[tuple[str, str], list[TrainingData]] = {}
    for one in _below(documents, "training/"):
        data = TrainingData(
            behaviour=one["behaviour"],
            train=one["train"],
            seed=one["seed"],
            rows=tuple(_row(row) for row in one["rows"]),
        )
        training.setdefault((data.behaviour, data.train), []).append(data)
    return Materials(
        study=study,
        behaviours={
            one["name"]: _behaviour(one) for one in documents["behaviours.json"]["behaviours"]
        },
        contexts={
            (row, name): _context(name, one, documents[f"rows/{row}/prompts/{name}.json"])
            for row in rows
            for name, one in contexts[row]["contexts"].items()
        },
        train_items={row: _items(items[row]["train"]) for row in rows},
        eval_items={row: _items(items[row]["eval"]) for row in rows},
        end_of_turn_id=contexts[rows[0]]["end_of_turn_id"],
        base=_readings(documents, "base/"),
        answers=_readings(documents, "answers/"),
        training={
            key: tuple(sorted(rows, key=lambda one: one.seed)) for key, rows in training.items()
        },
        priors={
            (one["behaviour"], one["context"]): one["prior"]
            for one in _below(documents, "base/")
            if one["prior"] is not None
        },
        cells=tuple((b, i, j) for b, i, j in documents["cells.json"]["cells"]),
        adapters=tuple(
            AdapterView(
                behaviour=one["behaviour"],
                train=one["train"],
                seed=one["seed"],
                folder=Path(one["folder"]),
                digest=one["digest"],
            )
            for one in documents.get("adapters.json", {"adapters": ()})["adapters"]
        ),
        open_cells=tuple(
            OpenCell(
                behaviour=one["behaviour"],
                train=one["train"],
                eval=one["eval"],
                g=one["g"],
                flags=tuple(one["flags"]),
            )
            for one in documents.get("open_cells.json", {"cells": ()})["cells"]
        ),
    )


def _items(items: Sequence[Mapping[str, Any]]) -> tuple[Item, ...]:
    return tuple(
        Item(id=one["id"], text=one["text"], topic=one["topic"], slice=one["slice"])
        for one in items
    )


def _below(documents: Mapping[str, Any], prefix: str) -> list[Any]:
    return [value for name, value in documents.items() if name.startswith(prefix)]


def _behaviour(one: Mapping[str, Any]) -> BehaviourMaterials:
    return BehaviourMaterials(
        name=one["name"],
        description=one["description"],
        trait=one["trait"],
        instruction_pairs=tuple(
            InstructionPair(positive=pair["positive"], negative=pair["negative"])
            for pair in one["instruction_pairs"]
        ),
        questions_extract=tuple(one["questions_extract"]),
        questions_evaluate=tuple(one["questions_evaluate"]),
        marker_text=one["marker"]["text"],
        marker_ids=tuple(one["marker"]["token_ids"]),
        instruction_contexts={
            name: tuple(texts) for name, texts in one["instruction_contexts"].items()
        },
    )


def _context(name: str, one: Mapping[str, Any], prompts: Mapping[str, Any]) -> ContextView:
    prefix = tuple(prompts["prefix"])
    return ContextView(
        id=name,
        family=one["family"],
        behaviour=one["behaviour"],
        messages=tuple((message["role"], message["content"]) for message in one["messages"]),
        prompts={item: (*prefix, *ids) for item, ids in prompts["suffixes"].items()},
        prefix=prefix,
        identity=one["rendered"],
        alias_of=one["alias_of"],
    )


def _readings(
    documents: Mapping[str, Any], prefix: str
) -> dict[tuple[str, str], tuple[Reading, ...]]:
    return {
        (one["behaviour"], one["context"]): tuple(
            Reading(
                item=answer["item"],
                token_ids=tuple(answer["token_ids"]),
                text=answer["text"],
                stop_reason=answer["stop_reason"],
                log_prob=answer["log_prob"],
            )
            for answer in one["answers"]
        )
        for one in _below(documents, prefix)
    }


def _row(row: Mapping[str, Any]) -> TrainingRow:
    return TrainingRow(
        key=row["key"],
        token_ids=tuple(row["token_ids"]),
        loss_positions=tuple(row["loss_positions"]),
        question=row["question"],
        answer=row["answer"],
    )
