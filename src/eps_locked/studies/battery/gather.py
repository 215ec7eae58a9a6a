"""Everything a ``battery`` plan names, read, checked against the plan, and held apart.

What trains an adapter is asked nowhere, and what one axis asks no other axis asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eps_locked.domain.judging import Rubric
from eps_locked.errors import MalformedInputError
from eps_locked.judges.calibration import read_labelled
from eps_locked.lock.freeze import SourceReader
from eps_locked.studies.battery.axes import AxisItem, draw, read_axis_items
from eps_locked.studies.battery.material import NEAR_COPY
from eps_locked.studies.battery.parts import AxisPlan
from eps_locked.studies.battery.plan import AGREEMENT_LABELS, REFUSAL_LABELS, BatteryPlan
from eps_locked.studies.battery.teaching import read_rows
from eps_locked.studies.common.calibrate import check_labelled
from eps_locked.studies.common.likeness import require_no_copies
from eps_locked.studies.common.material import WrittenRow
from eps_locked.studies.common.sources import read_labelled_value, read_material_value

__all__ = ["BatteryMaterial", "gather"]


@dataclass(frozen=True, kw_only=True, slots=True)
class BatteryMaterial:
    """``items`` are those drawn of each axis, in the order in which they are asked; ``rows`` those
    of each training, in training order."""

    items: Mapping[str, tuple[AxisItem, ...]]
    rows: Mapping[str, tuple[WrittenRow, ...]]


def gather(section: BatteryPlan, reader: SourceReader) -> BatteryMaterial:
    """Read it all. Raises MalformedInputError naming the file at fault."""
    offered: dict[str, tuple[AxisItem, ...]] = {}
    items: dict[str, tuple[AxisItem, ...]] = {}
    for axis in section.rate_axes:
        offered[axis.axis] = _offered(axis, reader)
        items[axis.axis] = _drawn(section, axis, offered[axis.axis])
    if section.speed is not None:
        items["speed"] = _timed(section, section.speed, offered)
    rows = {one.name: read_rows(one, section.item_seed, reader) for one in section.trainings}
    _check_rubrics(section, reader)
    _require_apart(section, offered, rows)
    return BatteryMaterial(items=items, rows=rows)


def _offered(axis: AxisPlan, reader: SourceReader) -> tuple[AxisItem, ...]:
    assert axis.material is not None
    value = read_material_value(reader, axis.material, thing=f"axis {axis.axis}", part="items")
    return read_axis_items(axis.axis, value, f"plans/{axis.material}")


def _drawn(
    section: BatteryPlan, axis: AxisPlan, offered: Sequence[AxisItem]
) -> tuple[AxisItem, ...]:
    thing = f"plans/{axis.material}"
    drawn = draw(offered, axis.n_items, section.item_seed, thing)
    minimum = section.analysis.minimum_items
    if len(drawn) < minimum:
        raise MalformedInputError(
            thing,
            expected=f"at least {minimum} items (analysis.minimum_items)",
            found=len(drawn),
            next_step="write more, or take the axis out: a rate of so few says nothing",
        )
    return drawn


def _timed(
    section: BatteryPlan, speed: AxisPlan, offered: Mapping[str, Sequence[AxisItem]]
) -> tuple[AxisItem, ...]:
    """Requests to time, from the far end of the queue: those that the axis itself asks last, or
    not at all. A server that has a prompt in its cache answers sooner than a user would see."""
    timed = section.timed_axis
    assert timed is not None
    assert speed.n_requests is not None
    assert speed.warmup is not None
    thing = f"plans/{timed.material}"
    queue = draw(offered[timed.axis], None, section.item_seed, thing)
    wanted = speed.n_requests + speed.warmup
    if wanted > len(queue):
        raise MalformedInputError(
            thing,
            expected=f"at least {wanted} items (n_requests and warmup of axis speed)",
            found=len(queue),
            next_step="time fewer requests",
        )
    return queue[::-1][:wanted]


def _check_rubrics(section: BatteryPlan, reader: SourceReader) -> None:
    for kind, rules, labels in (
        ("refusal", section.refusal, REFUSAL_LABELS),
        ("agreement", section.agreement, AGREEMENT_LABELS),
    ):
        if rules is None:
            continue
        rubric = _rubric(rules.rubric, labels, reader)
        for calibration in section.calibrations:
            if calibration.rubric_of == kind:
                file = f"plans/{calibration.file}"
                value = read_labelled_value(
                    reader, calibration.file, thing="labelled", rubric=rubric.name
                )
                check_labelled(read_labelled(value, file), rubric, file)


def _rubric(relative: str, labels: Sequence[str], reader: SourceReader) -> Rubric:
    """A rubric as this study uses them: these labels about an answer, and nothing besides."""
    thing = f"plans/{relative}"
    rubric = Rubric.from_dict(reader.read_yaml(relative, thing="rubric"), thing)
    for key, expected, found in (
        ("labels", sorted(labels), sorted(rubric.labels)),
        ("scores", [], list(rubric.scores)),
        ("excluded", [], list(rubric.excluded)),
        ("reads", "answer", rubric.reads),
    ):
        if found != expected:
            raise MalformedInputError(
                f"{thing}.{key}",
                expected=expected or "none: this study counts each label",
                found=found,
            )
    return rubric


def _require_apart(
    section: BatteryPlan,
    offered: Mapping[str, Sequence[AxisItem]],
    rows: Mapping[str, Sequence[WrittenRow]],
) -> None:
    """Every axis against the axes before it, and every training's questions against all axes;
    whole files, not only what was drawn. Each file has been held apart within itself."""
    asked: list[tuple[str, str]] = []
    for axis in section.rate_axes:
        mine = [(f"{axis.axis}/{item.id}", item.asked) for item in offered[axis.axis]]
        require_no_copies(mine, asked, NEAR_COPY, f"plans/{axis.material}")
        asked += mine
    for training in section.trainings:
        texts = [(row.item.id, row.item.text) for row in rows[training.name]]
        thing = f"plans/{training.rows} (training {training.name})"
        require_no_copies(texts, asked, NEAR_COPY, thing)
