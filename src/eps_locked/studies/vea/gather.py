"""Everything a ``vea`` plan names, read, checked against the plan, and held apart.

What trains a head is measured nowhere: a reward model that has seen an item's words would be asked
what it remembers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from eps_locked.errors import MalformedInputError
from eps_locked.lock.freeze import SourceReader
from eps_locked.rewards.table import TableReward as Table
from eps_locked.rewards.table import read_table
from eps_locked.studies.common.likeness import require_no_copies
from eps_locked.studies.common.material import normalise
from eps_locked.studies.common.words import read_word_list
from eps_locked.studies.vea.derive import FrozenItem, requests_of
from eps_locked.studies.vea.items import NEUTRAL, VeaItem, read_items, require_counts
from eps_locked.studies.vea.plan import ItemFile, TableReward, VeaPlan
from eps_locked.studies.vea.training_pairs import TrainingPairs, read_training_pairs

__all__ = ["NEAR_COPY", "VeaMaterial", "frozen_item", "gather"]

# Two texts of which so many word triples are the same say the same thing. Clauses of one cue share
# the cue, which is a few triples of many; prompts and bases have no reason to share any.
NEAR_COPY: Final = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class VeaMaterial:
    """What a study is made from: items, then decoys, in the order of their files."""

    items: tuple[VeaItem, ...]
    pairs: TrainingPairs | None


def gather(section: VeaPlan, reader: SourceReader) -> VeaMaterial:
    """Read it all. Raises MalformedInputError naming the file, item or line at fault."""
    words = read_word_list(reader.read_yaml(section.words, thing="words"), f"plans/{section.words}")
    items = [
        item
        for file in (section.items, section.decoys)
        if file is not None
        for item in _read(section, file, words, reader)
    ]
    _require_one_set(items)
    _require_evidence(section, items)
    for model in section.reward_models:
        if isinstance(model, TableReward):
            _require_scores(model, items, reader)
    return VeaMaterial(items=tuple(items), pairs=_pairs(section, items, reader))


def frozen_item(item: VeaItem) -> FrozenItem:
    """An item as it is frozen."""
    return FrozenItem(
        id=item.id,
        family=item.family,
        domain=item.domain,
        stem=item.stem,
        user_prompt=item.user_prompt,
        base=item.base,
        vea=item.vea,
        matched_control=item.matched_control,
        n_clause=len(item.vea_clause),
        n_control=len(item.control_clause),
    )


def _read(
    section: VeaPlan, file: ItemFile, words: Sequence[str], reader: SourceReader
) -> tuple[VeaItem, ...]:
    thing = f"plans/{file.file}"
    items = read_items(reader.read(file.file, thing="items"), thing, words, section.tolerance)
    require_counts(items, file.counts, thing)
    return items


def _require_one_set(items: Sequence[VeaItem]) -> None:
    """No id, pair or (of two families) clause twice, whichever of the two files it stands in."""
    ids: set[str] = set()
    pairs: dict[tuple[str, str], VeaItem] = {}
    clauses: dict[str, VeaItem] = {}
    for item in items:
        thing = f"item {item.id}"
        if item.id in ids:
            raise MalformedInputError(
                thing,
                problem="has an id of items and decoys both",
                expected="an id of its own",
                found=item.id,
                next_step="rename one of the two",
            )
        ids.add(item.id)
        twin = pairs.setdefault((normalise(item.user_prompt), normalise(item.vea)), item)
        if twin is not item:
            raise MalformedInputError(
                thing,
                problem=f"is the pair of {twin.id} again",
                expected="another prompt, response or clause",
                found=repr(item.vea_clause),
                next_step="remove one of the two: a pair counts once",
            )
        owner = clauses.setdefault(normalise(item.vea_clause), item)
        if item.vea_clause and owner.family != item.family:
            raise MalformedInputError(
                f"{thing}.vea_clause",
                problem=f"also stands in {owner.id}, of {owner.family}",
                expected="clauses of one family each",
                found=repr(item.vea_clause),
                next_step="reword one of the two",
            )


def _require_evidence(section: VeaPlan, items: Sequence[VeaItem]) -> None:
    """What counts must be able to count: prompts are the clusters, and a gate must be able to
    fail."""
    minimum = section.analysis.minimum_items
    for family in section.counts:
        stems = {item.stem for item in items if item.family == family}
        if len(stems) < minimum:
            raise MalformedInputError(
                f"items of {family}",
                expected=f"at least {minimum} prompts (analysis.minimum_items)",
                found=len(stems),
                next_step="ask more prompts: items of one prompt are no further evidence",
            )
    inserting = [item for item in items if item.family == NEUTRAL and item.vea_clause]
    if len(inserting) < minimum:
        raise MalformedInputError(
            f"items of {NEUTRAL}",
            expected=f"at least {minimum} that insert a clause (analysis.minimum_items)",
            found=len(inserting),
            next_step="insert neutral clauses: two equal responses differ by 0 whatever the "
            "reward model, and a gate of them cannot fail",
        )


def _require_scores(model: TableReward, items: Sequence[VeaItem], reader: SourceReader) -> None:
    """A table has a row for every response of the plan, and for nothing else."""
    thing = f"plans/{model.file}"
    data = reader.read(model.file, thing="table")
    requests = requests_of([frozen_item(item) for item in items])
    rows = read_table(data, thing)
    missing = [request.key for request in requests if request.key not in rows]
    if missing:
        raise MalformedInputError(
            f"{thing} (reward model {model.name})",
            expected=f"a row for each of {len(requests)} responses",
            found=f"none for {missing[0]}"
            + (f" and {len(missing) - 1} others" if len(missing) > 1 else ""),
            next_step="add the rows; a score that could not be had is an empty cell",
        )
    # Refuses a row of another item or text; what the scores are is for the run to say.
    Table(data, name=model.name, thing=thing).score(requests)


def _pairs(
    section: VeaPlan, items: Sequence[VeaItem], reader: SourceReader
) -> TrainingPairs | None:
    """The pairs that heads are trained on, if any are; none shares its words with an item."""
    if section.training_pairs is None:
        return None
    thing = f"plans/{section.training_pairs}"
    pairs = read_training_pairs(reader.read(section.training_pairs, thing="training pairs"), thing)
    for trained, measured in zip(_trained_texts(pairs), _measured_texts(items), strict=True):
        require_no_copies(trained, measured, NEAR_COPY, thing)
    return pairs


def _measured_texts(items: Sequence[VeaItem]) -> Iterator[list[tuple[str, str]]]:
    """Prompts, bases and clauses of the items, each with the name of where it stands."""
    yield [(f"{item.id}.user_prompt", item.user_prompt) for item in items]
    yield [(f"{item.id}.base", item.base) for item in items]
    clauses = [(f"{item.id}.vea_clause", item.vea_clause) for item in items]
    controls = [(f"{item.id}.matched_control", item.control_clause) for item in items]
    yield [(name, text) for name, text in (*clauses, *controls) if text]


def _trained_texts(pairs: TrainingPairs) -> Iterator[list[tuple[str, str]]]:
    """The same of the training pairs."""
    yield [(f"{row.id}.user_prompt", row.user_prompt) for row in pairs.rows]
    yield [(f"{row.id}.base", row.base) for row in pairs.rows]
    yield [(f"{row.id}: {name}", text) for row in pairs.rows for name, text in row.clauses.items()]
