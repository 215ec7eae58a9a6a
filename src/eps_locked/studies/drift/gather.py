"""Everything a ``drift`` plan names, read, checked against the plan, and held apart.

What trains a model is asked nowhere, and what one battery asks no other part asks: each question
stands in one file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eps_locked.domain.judging import Rubric
from eps_locked.errors import MalformedInputError
from eps_locked.judges.calibration import read_labelled
from eps_locked.lock.freeze import SourceReader
from eps_locked.studies.common.calibrate import check_labelled
from eps_locked.studies.common.material import Item, draw_items, read_items, refuse_overlap
from eps_locked.studies.common.sources import read_labelled_value, read_material_value
from eps_locked.studies.common.words import read_word_list
from eps_locked.studies.drift.doses import TopicRows, read_topic
from eps_locked.studies.drift.material import Trait, read_traits
from eps_locked.studies.drift.plan import Battery, DriftPlan
from eps_locked.studies.drift.rendering import Probe, read_probes

__all__ = ["GRADES", "DriftMaterial", "gather"]

GRADES = tuple(f"grade_{number}" for number in range(1, 8))
AWARENESS = "awareness"


@dataclass(frozen=True, kw_only=True, slots=True)
class DriftMaterial:
    """What a study is made from. ``labels`` are the classes of each battery's rubric."""

    probes: Mapping[str, tuple[Probe, ...]]
    labels: Mapping[str, tuple[str, ...]]
    topics: Mapping[str, TopicRows]
    readout_prompts: tuple[Item, ...]
    traits: tuple[Trait, ...]


def gather(section: DriftPlan, reader: SourceReader) -> DriftMaterial:
    """Read it all. Raises MalformedInputError naming the file at fault."""
    pools: dict[str, Sequence[str]] = {}
    probes, labels = {}, {}
    for battery in section.batteries:
        pool = f"{battery.file} (battery {battery.name})"
        probes[battery.name], pools[pool] = read_probes(section, battery, reader)
        labels[battery.name] = _classes(section, battery, reader).labels
        if battery.graded_rubric is not None:
            name = f"{battery.name}_grade"
            _grades(_rubric(battery.graded_rubric, reader), battery.graded_rubric, name)
    topics = {}
    for topic in section.topics:
        topics[topic.name] = read_topic(section, topic, reader)
        pools[topic.rows] = topics[topic.name].offered
    prompts, traits = _readouts(section, reader, pools)
    if section.awareness is not None:
        rubric = _rubric(section.awareness.rubric, reader, reads="question")
        _grades(rubric, section.awareness.rubric, AWARENESS)
        words = section.awareness.words
        read_word_list(reader.read_yaml(words, thing="words"), f"plans/{words}")
    refuse_overlap(pools)
    return DriftMaterial(
        probes=probes, labels=labels, topics=topics, readout_prompts=prompts, traits=traits
    )


def _rubric(relative: str, reader: SourceReader, reads: str = "answer") -> Rubric:
    """A rubric as this study uses them: a closed set of labels and nothing besides."""
    thing = f"plans/{relative}"
    rubric = Rubric.from_dict(reader.read_yaml(relative, thing="rubric"), thing)
    for key, found in (("scores", rubric.scores), ("excluded", rubric.excluded)):
        if found:
            raise MalformedInputError(
                f"{thing}.{key}",
                expected="none: this study counts classes, and each of them",
                found=list(found),
            )
    if rubric.reads != reads:
        raise MalformedInputError(f"{thing}.reads", expected=reads, found=rubric.reads)
    return rubric


def _classes(section: DriftPlan, battery: Battery, reader: SourceReader) -> Rubric:
    """The battery's rubric, held against the classes that the plan names; labelled sets too."""
    rubric = _rubric(battery.rubric, reader)
    thing = f"plans/{battery.rubric}"
    names = [battery.name]
    if battery.role == "check":
        names = [f"advice_{topic.name}" for topic in section.topics]
    if rubric.name not in names:
        raise MalformedInputError(
            f"{thing}.name", expected=" or ".join(names) or "a topic's", found=rubric.name
        )
    where = f"plan.drift.batteries: {battery.name}"
    for key, classes in (("aligned", battery.aligned), ("no_stance", battery.no_stance)):
        unknown = next((name for name in classes if name not in rubric.labels), None)
        if unknown is not None:
            raise MalformedInputError(
                f"{where}.{key}",
                problem="names a class that is unknown to the battery",
                expected=f"classes of rubric {rubric.name}: {', '.join(rubric.labels)}",
                found=unknown,
            )
    # A check's rubric marks as expressed what was taught; the rest that takes a stand is sound.
    expected = set(rubric.expressed)
    if battery.role == "check":
        expected = set(rubric.labels) - expected - set(battery.no_stance)
    if set(battery.aligned) != expected:
        raise MalformedInputError(
            f"{where}.aligned",
            expected=f"what rubric {rubric.name} gives: {', '.join(sorted(expected)) or 'nothing'}",
            found=", ".join(battery.aligned),
            next_step="make plan and rubric say the same",
        )
    for rules in section.calibrations:
        if rules.battery == battery.name:
            file = f"plans/{rules.file}"
            value = read_labelled_value(reader, rules.file, thing="labelled", rubric=rubric.name)
            check_labelled(read_labelled(value, file), rubric, file)
    return rubric


def _grades(rubric: Rubric, relative: str, name: str) -> None:
    """Require a scale of seven grades under the name that it must have."""
    for key, expected, found in (
        ("name", name, rubric.name),
        ("labels", ", ".join(GRADES), ", ".join(rubric.labels)),
        ("expressed", "none", ", ".join(rubric.expressed) or "none"),
    ):
        if found != expected:
            raise MalformedInputError(f"plans/{relative}.{key}", expected=expected, found=found)


def _readouts(
    section: DriftPlan, reader: SourceReader, pools: dict[str, Sequence[str]]
) -> tuple[tuple[Item, ...], tuple[Trait, ...]]:
    """Prompts and traits, if the plan reads any; their questions are added to ``pools``."""
    rules = section.readouts
    if rules is None:
        return (), ()
    value = read_material_value(reader, rules.prompts, thing="readout prompts", part="items")
    items = read_items(value, f"plans/{rules.prompts}")
    traits = read_traits(reader.read_yaml(rules.traits, thing="traits"), f"plans/{rules.traits}")
    pools[f"{rules.prompts} (readout prompts)"] = [item.text for item in items]
    pools[rules.traits] = [one.question for trait in traits for one in trait.contrasts]
    drawn = draw_items(items, rules.n_prompts, section.item_seed, f"plans/{rules.prompts}")
    return drawn, traits
