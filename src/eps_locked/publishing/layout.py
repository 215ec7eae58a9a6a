"""Where things lie in a finished ``eps`` run: the one module here that knows.

Everything is read through the manifest's and the ledger's digests, and training rows are derived
by the functions that the fits themselves called.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePosixPath
from typing import Any, TypeVar

from eps_locked.canonical import decode
from eps_locked.data.spec import SCHEMA as SPEC_SCHEMA
from eps_locked.domain.ledger import ENCRYPTED, Artifact
from eps_locked.domain.model import TokenIds
from eps_locked.domain.model import TrainingRow as ModelRow
from eps_locked.domain.plan import Plan
from eps_locked.domain.steps import STEP_REF, Step
from eps_locked.errors import EvidenceError, RefusedError
from eps_locked.lock.freeze import load_plan
from eps_locked.lock.inputs import RecordedInputs
from eps_locked.lock.looks import RESULT_FILE
from eps_locked.lock.seal import SEALED_FILE
from eps_locked.lock.strict_yaml import parse_yaml
from eps_locked.metrics.materials import OPEN_FATES
from eps_locked.publishing.parts import (
    Adapter,
    Cell,
    Context,
    Item,
    Messages,
    Row,
    Source,
    TrainingRow,
    TrainingSet,
)
from eps_locked.studies.common.sources import is_sampled
from eps_locked.studies.eps.analysis import TENSOR_FILE
from eps_locked.studies.eps.derive import derived_rows
from eps_locked.studies.eps.plan import MarkerBehaviour
from eps_locked.studies.eps.readings import READINGS_FILE, Readings
from eps_locked.studies.eps.scores import FinishedRun
from eps_locked.studies.eps.taught.derive import taught_rows
from eps_locked.studies.eps.taught.records import answers_from_files

T = TypeVar("T")
# Files below plans/ as they were frozen.
_SOURCES = "frozen/sources/"
_SUFFIXES = (".yaml", ".yml", ".json")
_FITS = ("fit", "train")
# Fields of a source that say how to obtain what may not be handed on, and no text of it.
_RECIPE_OF_FILE = ("dataset", "revision", "files", "spec", "seed")
_RECIPE_OF_ENTRY = ("row", "upstream_id")
# Parts of a source that are text of the data set.
_TEXT_PARTS = ("contexts", "items", "rows", "labelled", "elicitation")


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """Where a text comes from: its file, the entry in it, and how to obtain that entry."""

    source: Source
    entry: Mapping[str, Any]

    @property
    def recipe(self) -> dict[str, Any] | None:
        return {key: self.entry[key] for key in _RECIPE_OF_ENTRY if self.entry.get(key)} or None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunLayout:
    """A finished run, read for publication. ``memo`` keeps what was parsed."""

    finished: FinishedRun
    memo: dict[tuple[str, ...], Any] = field(default_factory=dict, repr=False, compare=False)

    # -- plan and rights

    @property
    def name(self) -> str:
        return self.finished.frozen.manifest.name

    def plan(self) -> Plan:
        return load_plan(self.finished.frozen.read("frozen/plan.yaml"), thing="frozen/plan.yaml")

    def model(self) -> Source:
        """The base model's rights; its answers and what is trained from it come under them."""
        model = self.plan().base_model
        where = " ".join(filter(None, (model.source.kind, model.source.where)))
        return Source(path=f"base model {model.name}", licence=model.licence, provenance=where)

    def sources(self) -> dict[str, Source]:
        """Every frozen file of material by its path below ``plans/``. Keys are no material.

        Raises RefusedError for a file that states no licence.
        """
        return {path: _source(path, value) for path, value in self._material().items()}

    def _material(self) -> dict[str, Mapping[str, Any]]:
        return self._once(("material",), self._read_material)

    def withheld_texts(self) -> Iterator[tuple[str, str]]:
        """Every text of a file that may not be handed on, and the file's path."""
        for path, value in self._material().items():
            if _source(path, value).withheld:
                for part in _TEXT_PARTS:
                    yield from ((text, path) for text in _texts(value.get(part)))

    def shared_texts(self) -> Iterator[str]:
        """Every text of the other files."""
        for path, value in self._material().items():
            if not _source(path, value).withheld:
                yield from _texts(value)

    def _read_material(self) -> dict[str, Mapping[str, Any]]:
        plan, frozen = self.plan(), self.finished.frozen
        keys = {plan.authorization.allowed_signers, self.finished.section.quarantine.recipients}
        found = {}
        for name in sorted(frozen.manifest.files):
            path = name.removeprefix(_SOURCES)
            if path in keys or not name.startswith(_SOURCES):
                continue
            if PurePosixPath(path).suffix not in _SUFFIXES:
                raise _states_no_licence(path, "a file of another kind")
            read = decode if is_sampled(path) else parse_yaml
            value = read(frozen.read(name), thing=name)
            if not isinstance(value, Mapping):
                raise _states_no_licence(path, type(value).__name__)
            # How a source is to be drawn is our own text; what was drawn lies beside it.
            if value.get("schema") != SPEC_SCHEMA:
                found[path] = value
        return found

    # -- material

    def rows(self) -> tuple[str, ...]:
        return tuple(behaviour.name for behaviour in self.finished.section.behaviours)

    def row(self, name: str) -> Row:
        behaviour, material = self.finished.section.behaviour(name), self._material()
        value = material[behaviour.file]
        elicitation = value["elicitation"]
        judged = None if isinstance(behaviour, MarkerBehaviour) else behaviour.rubric
        if judged is not None and _source(judged, material[judged]).withheld:
            judged = None
        return Row(
            name=name,
            kind=behaviour.kind,
            title=value["title"],
            description=value["description"],
            trait=elicitation["trait"],
            pairs=tuple(
                (pair["positive"], pair["negative"]) for pair in elicitation["instruction_pairs"]
            ),
            questions_extract=tuple(elicitation["questions_extract"]),
            questions_evaluate=tuple(elicitation["questions_evaluate"]),
            marker=value.get("marker"),
            rubric=None if judged is None else material[judged],
            source=_source(behaviour.file, value),
        )

    def contexts(self, row: str) -> dict[str, Context]:
        """Every context that the row trains in, is evaluated in, or is trained against, by id."""
        return self._once(("contexts", row), partial(self._read_contexts, row))

    def _read_contexts(self, row: str) -> dict[str, Context]:
        slots = self.finished.section.slots_of(row)
        roles = {
            "train": slots.train,
            "eval": slots.eval,
            "held_out": slots.held_out,
            "negative": slots.negative_panel,
        }
        found = {}
        for name, value in self._frozen(row, "contexts")["contexts"].items():
            messages = _messages(value)
            origin = self._origin(messages, f"context {name}")
            found[name] = Context(
                row=row,
                id=name,
                family=value["family"],
                behaviour=value["behaviour"],
                roles=tuple(role for role, names in roles.items() if name in names),
                digest=value["digest"],
                prefix_tokens=value["prefix_tokens"],
                alias_of=value["alias_of"],
                messages=messages,
                source=origin.source,
                recipe=origin.recipe,
            )
        return found

    def items(self, row: str) -> dict[tuple[str, str], Item]:
        """Every item of the row by (pool, id), in the frozen order."""
        return self._once(("items", row), partial(self._read_items, row))

    def _read_items(self, row: str) -> dict[tuple[str, str], Item]:
        value, found = self._frozen(row, "items"), {}
        for pool in ("train", "eval"):
            for one in value[pool]:
                origin = self._origin(one["text"], f"item {one['id']}")
                found[pool, one["id"]] = Item(
                    row=row,
                    pool=pool,
                    id=one["id"],
                    text=one["text"],
                    topic=one["topic"],
                    slice=one["slice"] or None,
                    keep_text=one["keep_text"] is True,
                    source=origin.source,
                    recipe=origin.recipe,
                )
        return found

    def prompts(self, row: str, context: str) -> tuple[TokenIds, dict[str, TokenIds]]:
        """Token ids that all prompts under a context begin with, and the rest by item."""
        value = self._frozen(row, f"prompts/{context}")
        return tuple(value["prefix"]), {k: tuple(v) for k, v in value["suffixes"].items()}

    def is_withheld(self, row: str, item: str) -> bool:
        """Whether the text of an item (by id) stays out."""
        items = self.items(row)
        found = [items.get((pool, item)) for pool in ("train", "eval")]
        return any(one is not None and one.source.withheld is not None for one in found)

    def _frozen(self, row: str, what: str) -> Mapping[str, Any]:
        name = f"frozen/rows/{row}/{what}.json"
        value: Mapping[str, Any] = decode(self.finished.frozen.read(name), thing=name)
        return value

    def _origin(self, key: str | Messages, thing: str) -> Origin:
        """The entry a text or a list of messages is from.

        Where the same text stands in several files, the one that may not be handed on counts.
        """
        found = self._once(("origins",), self._read_origins).get(key)
        if not found:
            raise EvidenceError(thing, expected="an entry of a frozen source", found="none")
        return min(found, key=lambda one: one.source.redistribute)

    def _read_origins(self) -> dict[str | Messages, list[Origin]]:
        found: dict[str | Messages, list[Origin]] = {}
        for path, value in self._material().items():
            source = _source(path, value)
            for part in ("contexts", "items", "rows"):
                for entry in value.get(part) or ():
                    key = _messages(entry) if part == "contexts" else entry.get("text")
                    if key is not None:
                        found.setdefault(key, []).append(Origin(source=source, entry=entry))
        return found

    # -- what was trained

    def training(self, row: str) -> Iterator[TrainingSet]:
        """What each adapter of the row was trained on, in the frozen order of steps."""
        for step in self._steps_of(row, _FITS):
            assert step.seed is not None
            yield TrainingSet(
                row=row,
                context=step.params["context"],
                seed=step.seed,
                step=step.id,
                read=partial(self._rows_of, step),
            )

    def _rows_of(self, step: Step) -> tuple[TrainingRow, ...]:
        row, train = step.params["behaviour"], step.params["context"]
        contexts, items = self.contexts(row), self.items(row)
        seen, answered = self._seen_by(step)
        found = []
        for one in seen:
            # Keys are positive/ITEM, answered under the source, and negative/CONTEXT/ITEM.
            role, *named, item = one.key.split("/")
            context = named[0] if named else train
            answer, source = answered(role, context, item)
            found.append(
                TrainingRow(
                    key=one.key,
                    role=role,
                    context=contexts[context],
                    item=items["train", item],
                    answer=answer,
                    answer_source=source,
                    token_ids=tuple(one.token_ids),
                    loss_positions=tuple(one.loss_positions),
                )
            )
        return tuple(found)

    def _seen_by(self, step: Step) -> tuple[tuple[ModelRow, ...], Answered]:
        """The rows of a fit, and what their answers are as text: (role, context, item) to it."""
        row, train = step.params["behaviour"], step.params["context"]
        section, inputs = self.finished.section, self._inputs(step)
        behaviour, items = section.behaviour(row), self.items(row)
        own = {
            (name.partition(":")[2] or train, item): text
            for name, reference in step.inputs.items()
            if name.partition(":")[0] == "answers" and reference.startswith(STEP_REF)
            for item, text in _answers(inputs.artifact(name), name)
        }
        if isinstance(behaviour, MarkerBehaviour):
            marker = behaviour.marker_text

            def after_marker(role: str, context: str, item: str) -> tuple[str, Source | None]:
                return own[context, item] + (marker if role == "positive" else ""), None

            return derived_rows(step, inputs, section, behaviour).rows, after_marker

        is_written = {"positive": True, "negative": behaviour.negatives == "written"}

        def written_or_own(role: str, context: str, item: str) -> tuple[str, Source | None]:
            if not is_written[role]:
                return own[context, item], None
            origin = self._origin(items["train", item].text, f"item {item}")
            return origin.entry[role], origin.source

        return taught_rows(step, inputs, section, behaviour).rows, written_or_own

    def adapters(self, row: str) -> Iterator[Adapter]:
        """Every adapter the row's cells were read with."""
        history = self.finished.history
        for step in self._steps_of(row):
            if set(step.outputs) != {"adapter", "record"}:
                continue
            assert step.seed is not None
            body = history.done[step.id]
            data = self.finished.run.artifact_file(body.outputs["record"], "record.json")
            yield Adapter(
                row=row,
                context=step.params["context"],
                seed=step.seed,
                step=step.id,
                artifact=body.outputs["adapter"],
                record=decode(data, thing=step.id),
                flags=tuple(body.flags),
            )

    def adapter_file(self, artifact: Artifact, name: str) -> bytes:
        return self.finished.run.artifact_file(artifact, name)

    # -- what was measured

    def tensor(self, row: str) -> dict[str, Any]:
        """The recorded tensor of a row, with whatever values it holds."""
        (step,) = self._steps_of(row, ("tensor",))
        artifact = self.finished.history.done[step.id].outputs["tensor"]
        value: dict[str, Any] = decode(
            self.finished.run.artifact_file(artifact, TENSOR_FILE), thing=step.id
        )
        return value

    def fates(self) -> dict[Cell, str]:
        """What the frozen split decided for each cell (row, train, eval)."""
        return self._once(("fates",), self._read_fates)

    def _read_fates(self) -> dict[Cell, str]:
        value = decode(self.finished.frozen.read("frozen/split.json"), thing="frozen/split.json")
        found = {}
        for name, fate in value["cells"].items():
            row, i, j = name.split("/")
            found[row, i, j] = fate
        return found

    def held_back(self) -> frozenset[Cell]:
        return frozenset(cell for cell, fate in self.fates().items() if fate not in OPEN_FATES)

    def look_results(self) -> dict[int, bytes]:
        """What everybody may know of each look, by its number."""
        return {
            number: self.finished.run.artifact_file(body.result, RESULT_FILE)
            for number, body in sorted(self.finished.history.scores.items())
            if body.result is not None
        }

    # -- for the scan: what must not be found

    def sealed_plaintexts(self) -> frozenset[str]:
        """Digests of every text that the run encrypted, from the commitments beside them."""
        found = set()
        for artifact in self.finished.history.artifacts():
            if SEALED_FILE in artifact.files:
                value = decode(self.finished.run.artifact_file(artifact, SEALED_FILE), thing="seal")
                found |= {one["plaintext"] for one in value["files"].values()}
        return frozenset(found)

    def recorded_documents(self) -> Iterator[tuple[bool, Any]]:
        """Every JSON document of the store in plain text: (of a held-back cell or not, its value).

        Tensors hold both kinds of cells and are left to the caller.
        """
        for step_id, body in self.finished.history.done.items():
            if self.finished.history.terms.steps[step_id].kind == "tensor":
                continue
            for output, artifact in body.outputs.items():
                back = self._is_held_back(step_id, output)
                for name in artifact.files:
                    if name.endswith(".json") and name != SEALED_FILE:
                        # Not all is ours: an adapter's configuration is as PEFT reads it.
                        yield back, json.loads(self.finished.run.artifact_file(artifact, name))

    def has_held_back_in_plain_text(self) -> bool:
        """Whether a held-back cell lies in the store unencrypted."""
        return any(
            self._is_held_back(step_id, output)
            and any(not name.endswith(ENCRYPTED) for name in set(artifact.files) - {SEALED_FILE})
            for step_id, body in self.finished.history.done.items()
            for output, artifact in body.outputs.items()
        )

    def _is_held_back(self, step_id: str, output: str) -> bool:
        params = self.finished.history.terms.steps[step_id].params
        kind, _, j = output.partition(":")
        fate = self.fates().get((params.get("behaviour", ""), params.get("train", ""), j))
        return kind == "cell" and fate not in OPEN_FATES

    # -- steps

    def _steps_of(self, row: str, kinds: tuple[str, ...] = ()) -> list[Step]:
        steps = [
            step
            for step in self.finished.history.terms.steps.values()
            if step.params.get("behaviour") == row and (not kinds or step.kind in kinds)
        ]
        if kinds and not steps:
            raise EvidenceError(f"row {row}", expected=f"a {' or '.join(kinds)} step", found="none")
        return steps

    def _inputs(self, step: Step) -> RecordedInputs:
        return RecordedInputs(
            step=step,
            frozen_manifest=self.finished.frozen,
            run=self.finished.run,
            done=self.finished.history.done,
        )

    def _once(self, key: tuple[str, ...], make: Callable[[], T]) -> T:
        if key not in self.memo:
            self.memo[key] = make()
        found: T = self.memo[key]
        return found


Answered = Callable[[str, str, str], tuple[str, Source | None]]


def _answers(files: Mapping[str, bytes], thing: str) -> list[tuple[str, str]]:
    """(item, text) of the base model's answers: read at a slot for the marker, else sampled."""
    if READINGS_FILE in files:
        return [(one.item, one.text) for one in Readings.from_files(files, thing).answers]
    return [(one.item, one.text) for one in answers_from_files(files, thing)[2]]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            if key not in (*_RECIPE_OF_ENTRY, "licence", "provenance"):
                yield from _texts(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one)


def _messages(entry: Mapping[str, Any]) -> Messages:
    return tuple((one["role"], one["content"]) for one in entry["messages"])


def _source(path: str, value: Mapping[str, Any]) -> Source:
    licence, provenance = value.get("licence"), value.get("provenance")
    if not isinstance(licence, str) or not licence.strip():
        raise _states_no_licence(path, repr(licence))
    if provenance is None and "dataset" in value:
        provenance = f"{value['dataset']}@{value.get('revision')}"
    recipe = {key: value[key] for key in _RECIPE_OF_FILE if value.get(key) is not None}
    return Source(
        path=path,
        licence=licence.strip(),
        provenance=provenance if isinstance(provenance, str) else "",
        # Anything but a plain "true" keeps the text in.
        redistribute=value.get("redistribute", True) is True,
        recipe=recipe if "dataset" in recipe else None,
    )


def _states_no_licence(path: str, found: str) -> RefusedError:
    return RefusedError(
        path,
        problem="may not be published",
        expected="material that states its licence",
        found=found,
        next_step="write its licence and provenance into the file and freeze anew",
    )
