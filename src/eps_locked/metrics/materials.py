"""Export of what a metric may see: a folder of canonical JSON, every file named by digest.

The predictive track gets the frozen material, the base model's answers of phase P0, and the
training rows that follow from them; of adapters, cells and the tensor nothing is opened here. The
post-hoc track gets adapters by path and the open cells besides. What is particular to a study
(how its readings and rows are spelled) comes in as functions; this room knows no study.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eps_locked import files
from eps_locked.canonical import decode, digest_bytes, encode
from eps_locked.domain.execution import StepInputs
from eps_locked.domain.ledger import Artifact
from eps_locked.domain.model import TrainingRow as ModelRow
from eps_locked.domain.steps import FILE_REF, STEP_REF, Step
from eps_locked.errors import RefusedError
from eps_locked.lock.freeze import load_plan
from eps_locked.lock.history import History
from eps_locked.lock.inputs import RecordedInputs
from eps_locked.lock.strict_yaml import parse_yaml
from eps_locked.lock.workspace import FrozenManifest, RunFolder
from eps_locked.metrics.interface import Reading, Track

__all__ = [
    "INDEX_FILE",
    "INDEX_SCHEMA",
    "StudyWords",
    "base_inputs_only",
    "collect",
    "export_materials",
]

INDEX_FILE = "index.json"
INDEX_SCHEMA = "eps-locked/metric-materials/1"
SOURCES = "frozen/sources/"
# The phase whose answers are material. All later ones hold what a metric is to predict.
BASE_PHASE = "P0"
# Fates of a cell that development may read; every other fate is the final test's.
OPEN_FATES = ("open", "diagonal")
# What a row's frozen folder holds beside its prompts that a metric gets.
_ROW_FILES = ("contexts.json", "items.json")
_SEALED_END = ".age"


@dataclass(frozen=True, kw_only=True, slots=True)
class StudyWords:
    """How one study spells what is exported.

    ``readings``: an artifact of a base step to readings. ``prior``: the same to the prior of a
    judged row, None where there is none. ``rows``: a fit step and its recorded inputs to the rows
    it trains on; it must read inputs of the base phase only. ``written``: a row's written answers
    by (side, item), side being positive or negative.
    """

    readings: Callable[[Mapping[str, bytes], str], Sequence[Reading]]
    prior: Callable[[Mapping[str, bytes], str], float | None]
    rows: Callable[[Step, StepInputs], Sequence[ModelRow]]
    written: Callable[[str], Mapping[tuple[str, str], str]]


def export_materials(
    out: Path,
    frozen: FrozenManifest,
    run: RunFolder,
    history: History,
    words: StudyWords,
    *,
    track: Track = "predictive",
) -> dict[str, Any]:
    """Write the materials of a run to the new folder ``out``; returns its index.

    Raises RefusedError if ``out`` exists, if P0 is not closed, or (post-hoc) if the tensor is not
    there yet; EvidenceError for any frozen file or artifact that is not the recorded one.
    """
    if os.path.lexists(out):
        raise RefusedError(
            str(out), problem="exists and is never overwritten", next_step="choose another name"
        )
    contents, index = collect(frozen, run, history, words, track=track)
    files.publish_folder(out, {**contents, INDEX_FILE: encode(index)})
    return index


def collect(
    frozen: FrozenManifest,
    run: RunFolder,
    history: History,
    words: StudyWords,
    *,
    track: Track = "predictive",
) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The files of an export and its index, in memory. Raises as ``export_materials`` does."""
    _require_closed(frozen, history)
    plan = load_plan(frozen.read("frozen/plan.yaml"), thing="frozen/plan.yaml")
    gathered = _Gathering(frozen=frozen, run=run, history=history, words=words)
    contents = dict(_frozen_material(frozen))
    contents["behaviours.json"] = encode(_behaviours(plan.study_section, frozen, contents))
    fates = decode(frozen.read("frozen/split.json"), thing="frozen/split.json")["cells"]
    contents["cells.json"] = encode(
        {"schema": "eps-locked/metric-cells/1", "cells": [name.split("/") for name in fates]}
    )
    # Which of the other cells are held out and which quarantined is no metric's business.
    contents["split.json"] = encode(
        {
            "schema": "eps-locked/metric-split/1",
            "open": [name for name, fate in fates.items() if fate in OPEN_FATES],
        }
    )
    origins: dict[str, dict[str, str]] = {}
    for name, data, origin in gathered.readings():
        contents[name], origins[name] = data, origin
    for name, data, origin in gathered.training(_texts(contents, words)):
        contents[name], origins[name] = data, origin
    if track == "post_hoc":
        contents["adapters.json"] = encode(gathered.adapters())
        contents["open_cells.json"] = encode(gathered.open_cells(fates))
    index = {
        "schema": INDEX_SCHEMA,
        "study": frozen.manifest.name,
        "track": track,
        "manifest": frozen.digest,
        "base_results": history.closed[BASE_PHASE].results,
        "base_model": {
            "name": plan.base_model.name,
            "licence": plan.base_model.licence,
            "files": {n: record.to_dict() for n, record in frozen.manifest.model_files.items()},
        },
        "licences": [*_licences(contents), _model_line(plan.base_model)],
        "origins": origins,
        "files": {
            name: {"digest": digest_bytes(data), "size": len(data)}
            for name, data in sorted(contents.items())
        },
    }
    return contents, index


def _require_closed(frozen: FrozenManifest, history: History) -> None:
    if BASE_PHASE in history.closed:
        return
    name = frozen.manifest.name
    left = len(history.remaining(BASE_PHASE))
    raise RefusedError(
        f"{name}: phase {BASE_PHASE}",
        expected="closed: the base model's answers are part of what a metric gets",
        found=f"{left} steps to go",
        next_step=f"just authorize {name} {BASE_PHASE}, then just run-phase {name} {BASE_PHASE}",
    )


def _frozen_material(frozen: FrozenManifest) -> Iterator[tuple[str, bytes]]:
    """The frozen files a metric gets as they are; the sources carry their licence lines."""
    listed = frozen.manifest.files
    rows = [
        name
        for name in listed
        if name.startswith("frozen/rows/")
        and ("/prompts/" in name or name.rpartition("/")[2] in _ROW_FILES)
    ]
    sources = [name for name in listed if name.startswith(SOURCES) and name.endswith(".yaml")]
    for name in (*rows, *sources):
        yield name.removeprefix("frozen/"), frozen.read(name)


def _behaviours(
    section: Mapping[str, Any], frozen: FrozenManifest, contents: Mapping[str, bytes]
) -> dict[str, Any]:
    """Elicitation material of each behaviour of the plan, in the plan's order."""
    rows = []
    for behaviour in section["behaviours"]:
        source = f"{SOURCES}{behaviour['file']}"
        file = parse_yaml(frozen.read(source), thing=source)
        marker = behaviour.get("marker") or {"text": None, "token_ids": []}
        thing = f"rows/{behaviour['name']}/contexts.json"
        contexts = decode(contents[thing], thing=thing)["contexts"]
        rows.append(
            {
                "name": behaviour["name"],
                "description": file["description"],
                **file["elicitation"],
                "marker": {"text": marker["text"], "token_ids": marker["token_ids"]},
                "instruction_contexts": {
                    name: [message["content"] for message in context["messages"]]
                    for name, context in contexts.items()
                    if context["family"] == "instruction"
                    and context["behaviour"] == behaviour["kind"]
                },
            }
        )
    return {"schema": "eps-locked/metric-behaviours/1", "behaviours": rows}


def _licences(contents: Mapping[str, bytes]) -> list[dict[str, str]]:
    """One line for each source file that states its rights; the freeze required that it does."""
    lines = []
    for name, data in sorted(contents.items()):
        if name.startswith("sources/"):
            value = parse_yaml(data, thing=name)
            if isinstance(value, Mapping) and "licence" in value:
                lines.append(
                    {
                        "what": name,
                        "licence": value["licence"],
                        "provenance": value.get("provenance", ""),
                    }
                )
    return lines


def _model_line(model: Any) -> dict[str, str]:
    return {
        "what": f"base model {model.name}",
        "licence": model.licence,
        "provenance": f"{model.source.kind} {model.source.where}",
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class _Texts:
    """What the token ids of a training row say, as far as the export holds it."""

    questions: Mapping[str, str]
    answers: Mapping[tuple[str, str, str], str]
    written: Mapping[tuple[str, str, str], str]

    def row(self, row: ModelRow, behaviour: str, train: str) -> dict[str, Any]:
        # Keys are positive/ITEM, answered under the source, and negative/CONTEXT/ITEM.
        side, *named, item = row.key.split("/")
        context = named[0] if named else train
        answer = self.written.get((behaviour, side, item))
        return {
            "key": row.key,
            "token_ids": list(row.token_ids),
            "loss_positions": list(row.loss_positions),
            "question": self.questions.get(item),
            "answer": answer or self.answers.get((behaviour, context, item)),
        }


def _texts(contents: Mapping[str, bytes], words: StudyWords) -> _Texts:
    questions: dict[str, str] = {}
    answers: dict[tuple[str, str, str], str] = {}
    written: dict[tuple[str, str, str], str] = {}
    for name, data in contents.items():
        if name.startswith("rows/") and name.endswith("/items.json"):
            items = decode(data, thing=name)
            for one in (*items["train"], *items["eval"]):
                questions[one["id"]] = one["text"]
            row = name.split("/")[1]
            written |= {(row, *key): text for key, text in words.written(row).items()}
        if name.startswith("answers/"):
            document = decode(data, thing=name)
            for one in document["answers"]:
                key = (document["behaviour"], document["context"], one["item"])
                answers[key] = one["text"]
    return _Texts(
        questions=questions,
        answers=answers,
        written=written,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Gathering:
    """One run's record, read for export."""

    frozen: FrozenManifest
    run: RunFolder
    history: History
    words: StudyWords

    def readings(self) -> Iterator[tuple[str, bytes, dict[str, str]]]:
        """Base answers on eval items (``base/``) and on train items (``answers/``)."""
        for step in self.history.terms.of_phase(BASE_PHASE):
            if step.kind not in ("base", "answers"):
                continue
            artifact = self.history.done[step.id].outputs[step.kind]
            # A sealed reading is the custodian's; the rest of the export does without it.
            if any(name.endswith(_SEALED_END) for name in artifact.files):
                continue
            behaviour, context = step.params["behaviour"], step.params["context"]
            files_of = self._files(artifact)
            document = {
                "schema": "eps-locked/metric-readings/1",
                "behaviour": behaviour,
                "context": context,
                "prior": self.words.prior(files_of, step.id),
                "answers": [
                    {
                        "item": one.item,
                        "token_ids": list(one.token_ids),
                        "text": one.text,
                        "stop_reason": one.stop_reason,
                        "log_prob": one.log_prob,
                    }
                    for one in self.words.readings(files_of, step.id)
                ],
            }
            origin = {"step": step.id, "artifact": artifact.digest}
            yield f"{step.kind}/{behaviour}/{context}.json", encode(document), origin

    def training(self, texts: _Texts) -> Iterator[tuple[str, bytes, dict[str, str]]]:
        """The rows of every promised fit, derived as the fit derives them, run or not yet run."""
        for step in self.history.terms.steps.values():
            if step.kind not in ("fit", "train"):
                continue
            behaviour, train = step.params["behaviour"], step.params["context"]
            inputs = RecordedInputs(
                step=base_inputs_only(step),
                frozen_manifest=self.frozen,
                run=self.run,
                done=self.history.done,
            )
            document = {
                "schema": "eps-locked/metric-training/1",
                "behaviour": behaviour,
                "train": train,
                "seed": step.seed,
                "rows": [texts.row(row, behaviour, train) for row in self.words.rows(step, inputs)],
            }
            name = f"training/{behaviour}/{train}/s{step.seed}.json"
            yield name, encode(document), {"step": step.id}

    def adapters(self) -> dict[str, Any]:
        """Where each adapter lies, by step; for the post-hoc track."""
        rows = []
        for step in self._finished(lambda step: "adapter" in step.outputs):
            artifact = self.history.done[step.id].outputs["adapter"]
            rows.append(
                {
                    "behaviour": step.params["behaviour"],
                    "train": step.params["context"],
                    "seed": step.seed,
                    "folder": str(self.run.artifact_folder(artifact.digest).resolve()),
                    "digest": artifact.digest,
                }
            )
        return {"schema": "eps-locked/metric-adapters/1", "adapters": rows}

    def open_cells(self, fates: Mapping[str, str]) -> dict[str, Any]:
        """Values of the cells whose fate in the frozen split is open; for the post-hoc track."""
        rows = []
        for step in self._finished(lambda step: step.kind == "tensor"):
            artifact = self.history.done[step.id].outputs["tensor"]
            tensor = decode(self.run.artifact_file(artifact, "tensor.json"), thing=step.id)
            for cell in tensor["cells"]:
                name = f"{tensor['behaviour']}/{cell['train']}/{cell['eval']}"
                if fates[name] in OPEN_FATES and "sealed" not in cell["flags"]:
                    rows.append(
                        {
                            "behaviour": tensor["behaviour"],
                            "train": cell["train"],
                            "eval": cell["eval"],
                            "g": cell["g"],
                            "flags": cell["flags"],
                        }
                    )
        return {"schema": "eps-locked/metric-open-cells/1", "cells": rows}

    def _finished(self, is_wanted: Callable[[Step], bool]) -> list[Step]:
        """Every promised step that is wanted. Raises RefusedError unless all have been run."""
        steps = [step for step in self.history.terms.steps.values() if is_wanted(step)]
        left = [step.id for step in steps if step.id not in self.history.done]
        if left:
            name, phase = self.frozen.manifest.name, steps[0].phase
            raise RefusedError(
                f"{name}: {left[0]}",
                expected="recorded: the post-hoc track is given adapters and open cells",
                found=f"{len(left)} such steps to go",
                next_step=f"just run-phase {name} {phase}, or use the predictive track",
            )
        return steps

    def _files(self, artifact: Artifact) -> dict[str, bytes]:
        return {name: self.run.artifact_file(artifact, name) for name in artifact.files}


def base_inputs_only(step: Step) -> Step:
    """The step without inputs from later phases: reading one of those is then a KeyError here,
    before it could become a leak."""
    kept = {
        name: reference
        for name, reference in step.inputs.items()
        if reference.startswith((FILE_REF, f"{STEP_REF}{BASE_PHASE}/"))
    }
    return replace(step, inputs=kept)
