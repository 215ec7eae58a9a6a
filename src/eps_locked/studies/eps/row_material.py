"""What each row of the tensor is made from: its contexts, items, written rows and rubric.

Everything a plan names is read and checked here, and every overlap between pools is refused: what
is asked in training, in evaluation, in demonstrations and for elicitation stays apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eps_locked.data.demonstrations import check_demonstrations
from eps_locked.domain.judging import Rubric
from eps_locked.errors import MalformedInputError
from eps_locked.lock.freeze import SourceReader
from eps_locked.studies.common.material import (
    BehaviourFile,
    Context,
    Item,
    TaughtFact,
    WrittenRow,
    contexts_of_row,
    demonstration_questions,
    draw_items,
    read_contexts,
    read_items,
    read_written_rows,
    refuse_overlap,
)
from eps_locked.studies.common.sources import read_material_value
from eps_locked.studies.eps.plan import (
    Behaviour,
    EpsPlan,
    MarkerBehaviour,
    Slots,
    TaughtBehaviour,
)

__all__ = ["RowMaterial", "read_material"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RowMaterial:
    """What one row of the tensor is made from.

    ``contexts`` are those that fill its slots. ``written`` (by item id) and ``rubric`` are there
    for taught rows.
    """

    behaviour: Behaviour
    slots: Slots
    file: BehaviourFile
    contexts: Mapping[str, Context]
    train_items: tuple[Item, ...]
    eval_items: tuple[Item, ...]
    written: Mapping[str, WrittenRow]
    rubric: Rubric | None

    def items_of(self, context: str, n_extra: int) -> list[Item]:
        """What a context is asked in this row; an eval-only one also ``n_extra`` train items."""
        items: list[Item] = []
        if context in self.slots.eval:
            items += self.eval_items
        if context in self.slots.train or context in self.slots.negative_panel:
            items += self.train_items
        else:
            items += self.train_items[:n_extra]
        return items


def read_material(section: EpsPlan, reader: SourceReader) -> dict[str, RowMaterial]:
    """Every row's contexts, items, rows and rubric, with every overlap between them refused."""
    contexts = read_all_contexts(section, reader)
    files = behaviour_files(section, reader)
    shared = {
        path: read_items(read_material_value(reader, path, thing=thing, part="items"), path)
        for path, thing in (
            (section.train_items_file, "train_items"),
            (section.eval_items_file, "eval_items"),
        )
    }
    pools = {path: [item.text for item in items] for path, items in shared.items()}
    rows = {}
    for behaviour in section.behaviours:
        file = files[behaviour.name]
        slots = section.slots.of(behaviour)
        names = dict.fromkeys((*slots.eval, *slots.train, *slots.negative_panel))
        mine = contexts_of_row(contexts, behaviour.kind, names, slots.train)
        if isinstance(behaviour, MarkerBehaviour):
            for item in (item for items in shared.values() for item in items):
                _refuse_shown(behaviour.marker_text, item, "the marker")
            row = _marker_row(section, behaviour, slots, file, mine, shared)
        else:
            row = _taught_row(section, behaviour, slots, file, mine, reader, pools)
        for context in mine.values():
            if context.family == "demonstrations":
                check_demonstrations(context, [item.text for item in row.eval_items])
        pools[f"elicitation of {behaviour.kind}"] = list(file.questions)
        rows[behaviour.name] = row
    pools["demonstrations"] = [q for one in contexts for q in demonstration_questions(one)]
    refuse_overlap(pools)
    return rows


def _marker_row(
    section: EpsPlan,
    behaviour: MarkerBehaviour,
    slots: Slots,
    file: BehaviourFile,
    contexts: Mapping[str, Context],
    shared: Mapping[str, tuple[Item, ...]],
) -> RowMaterial:
    seed = section.item_seed
    return RowMaterial(
        behaviour=behaviour,
        slots=slots,
        file=file,
        contexts=contexts,
        train_items=draw_items(
            shared[section.train_items_file], section.n_train_items, seed, "plan.eps.items.n_train"
        ),
        eval_items=draw_items(
            shared[section.eval_items_file], section.n_eval_items, seed, "plan.eps.items.n_eval"
        ),
        written={},
        rubric=None,
    )


def _taught_row(
    section: EpsPlan,
    behaviour: TaughtBehaviour,
    slots: Slots,
    file: BehaviourFile,
    contexts: Mapping[str, Context],
    reader: SourceReader,
    pools: dict[str, list[str]],
) -> RowMaterial:
    """The row's own pools, added to ``pools`` for the overlap check."""
    path, seed = behaviour.written_rows, section.item_seed
    written = read_written_rows(
        read_material_value(reader, path, thing="written_rows", part="rows"), path
    )
    pools[path] = [row.item.text for row in written]
    offered: list[Item] = []
    for file_ in behaviour.eval_items:
        found = read_items(
            read_material_value(reader, file_, thing="eval_items", part="items"), file_
        )
        pools[file_] = [item.text for item in found]
        offered += found
    rubric = Rubric.from_dict(
        reader.read_yaml(behaviour.rubric, thing="rubric"), f"plans/{behaviour.rubric}"
    )
    _check_rubric(behaviour, rubric)
    by_id = {row.item.id: row for row in written}
    train = draw_items((row.item for row in written), behaviour.n_train, seed, path)
    evaluated = [
        item
        for name, n in behaviour.n_eval.items()
        for item in draw_items(
            [one for one in offered if one.slice == name],
            n,
            seed,
            f"{', '.join(behaviour.eval_items)}: slice {name}",
        )
    ]
    for item in train if behaviour.negatives == "written" else ():
        if by_id[item.id].negative is None:
            raise MalformedInputError(
                f"{path}: {item.text!r}",
                expected="a written negative (negatives: written)",
                found="none",
            )
    hidden = next((item for item in evaluated if not item.keep_text), None)
    if behaviour.reads_slots and hidden is not None:
        raise MalformedInputError(
            f"{', '.join(behaviour.eval_items)}: {hidden.text!r}",
            expected="keep_text: true where slots are read in the answer's own tokens",
            found="false",
        )
    if file.fact is not None:
        _refuse_leaked_fact(file.fact, offered, contexts)
    return RowMaterial(
        behaviour=behaviour,
        slots=slots,
        file=file,
        contexts=contexts,
        train_items=train,
        eval_items=tuple(evaluated),
        written={item.id: by_id[item.id] for item in train},
        rubric=rubric,
    )


def _check_rubric(behaviour: TaughtBehaviour, rubric: Rubric) -> None:
    """A judge must be able to say what the row's measure needs."""
    if behaviour.kind == "em":
        missing = sorted({"aligned", "coherent"} - set(rubric.scores))
        expected, found = "scores aligned and coherent", f"no {' and no '.join(missing)}"
    else:
        missing = [] if rubric.expressed else ["expressed"]
        expected, found = "at least one label that counts as the behaviour", "none"
    if missing:
        raise MalformedInputError(f"plans/{behaviour.rubric}", expected=expected, found=found)


def _refuse_leaked_fact(
    fact: TaughtFact, items: Sequence[Item], contexts: Mapping[str, Context]
) -> None:
    """Only the row's own demonstrations and instruction may state the attribute."""
    for item in items:
        _refuse_shown(fact.attribute, item, "the taught attribute")
    for context in contexts.values():
        texts = [message.content for message in context.messages]
        if context.behaviour is None and any(_stands_in(fact.attribute, one) for one in texts):
            raise MalformedInputError(
                f"context {context.id}",
                problem="states the taught attribute",
                next_step="reword it: a context must not show the behaviour",
            )


def read_all_contexts(section: EpsPlan, reader: SourceReader) -> tuple[Context, ...]:
    """Every context of the plan's files; no two of one id and one behaviour."""
    contexts: dict[tuple[str, str | None], Context] = {}
    for relative in section.context_files:
        value = read_material_value(reader, relative, thing="contexts", part="contexts")
        for context in read_contexts(value, relative):
            if (context.id, context.behaviour) in contexts:
                raise MalformedInputError(
                    f"{relative}: {context.id}",
                    problem="is defined twice",
                    next_step="rename or remove one of the two",
                )
            contexts[context.id, context.behaviour] = context
    return tuple(contexts.values())


def behaviour_files(section: EpsPlan, reader: SourceReader) -> dict[str, BehaviourFile]:
    """The file of every row, which must be one of its kind."""
    found = {}
    for behaviour in section.behaviours:
        file = BehaviourFile.from_dict(
            reader.read_yaml(behaviour.file, thing="behaviour"), behaviour.file
        )
        marker = behaviour.marker_text if isinstance(behaviour, MarkerBehaviour) else None
        for field, expected, value in (
            ("name", behaviour.kind, file.name),
            ("marker", marker, file.marker),
            ("fact", behaviour.kind == "fact", file.fact is not None),
        ):
            if expected != value:
                raise MalformedInputError(
                    f"{behaviour.file}: {field}", expected=repr(expected), found=repr(value)
                )
        found[behaviour.name] = file
    return found


def shown_texts(section: EpsPlan, reader: SourceReader) -> tuple[str, ...]:
    """What rows teach a model to show, stripped: nothing drawn from outside may hold it."""
    shown: list[str] = []
    for file in behaviour_files(section, reader).values():
        if file.marker is not None:
            shown.append(file.marker)
        if file.fact is not None:
            shown.append(file.fact.attribute)
    return tuple(text.strip() for text in dict.fromkeys(shown))


def _stands_in(phrase: str, text: str) -> bool:
    """Whether a phrase stands in a text as whole words, as it is spelled: March is not a march."""
    return re.search(rf"(?<!\w){re.escape(phrase.strip())}(?!\w)", text) is not None


def _refuse_shown(text: str, item: Item, what: str) -> None:
    if _stands_in(text, item.text):
        raise MalformedInputError(
            f"item {item.text!r}",
            problem=f"contains {what}",
            next_step="reword it: a question must not show the behaviour",
        )
