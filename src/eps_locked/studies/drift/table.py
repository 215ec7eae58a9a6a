"""Rows of scored replies to arrays, one set for each battery, or a refusal.

A row is one reply. What every statistic of this study needs is decided here once: which stems,
probes and samples a battery has, what counts as aligned, and what has no score. Nothing is
averaged here and nothing is guessed: a row that does not fit is refused by name.

Shape letters: A arms, S stems, P rewordings of a stem, K samples of a probe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eps_locked.errors import MalformedInputError
from eps_locked.stats.checks import BoolArray, FloatArray
from eps_locked.studies.drift.rows import (
    EXHAUSTED,
    MISSING,
    SCORED,
    TOP_GRADE,
    ArmInfo,
    BatteryInfo,
    ReplyRow,
    check_row,
    where,
)

__all__ = [
    "EXHAUSTED",
    "MISSING",
    "SCORED",
    "TOP_GRADE",
    "ArmInfo",
    "BatteryInfo",
    "BatteryTable",
    "ReplyRow",
    "require_same_judges",
    "tabulate",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class BatteryTable:
    """All replies of one battery as arrays of shape (A, S, P, K), padded where stems differ.

    ``outcome``: 1 aligned, 0 not (or the score), NaN without one. ``no_stance``: replies that take
    no position; their outcome is 0. ``second_outcome``: of the second classification. ``grade``:
    1 to 7 or NaN. ``samples`` are the sample numbers that occur, ascending.
    """

    battery: BatteryInfo
    arms: tuple[ArmInfo, ...]
    stems: tuple[str, ...]
    probes: tuple[tuple[str, ...], ...]
    samples: tuple[int, ...]
    outcome: FloatArray
    no_stance: BoolArray
    second_outcome: FloatArray
    grade: FloatArray
    rows: Mapping[str, tuple[ReplyRow, ...]]

    def place(self, arm: str) -> int:
        return next(n for n, one in enumerate(self.arms) if one.name == arm)

    def has(self, arm: str | None) -> bool:
        return arm in self.rows

    @property
    def n_probes(self) -> int:
        return sum(len(of_stem) for of_stem in self.probes)

    @property
    def without_no_stance(self) -> FloatArray:
        """The outcomes with the replies that take no position left out."""
        return np.where(self.no_stance, np.nan, self.outcome)


def tabulate(
    rows: Iterable[ReplyRow],
    arms: Sequence[ArmInfo],
    batteries: Sequence[BatteryInfo],
    *,
    null_tests: bool = True,
    not_measured: Collection[tuple[str, str]] = (),
) -> dict[str, BatteryTable]:
    """One table for each battery that was asked, in the order of ``batteries``.

    With ``null_tests`` every probe needs two samples in every arm. ``not_measured``: (arm, battery)
    whose rows are not given on purpose, so that nothing is compared with them.

    Raises MalformedInputError for a row of an unknown arm, battery or class, a reply that stands
    twice, a probe of two stems, a status that does not fit, a grade outside 1 to 7, a score beside
    a label, a stem with fewer rewordings (or a probe with fewer samples) than promised, and a
    reference that is missing.
    """
    known = _arms_by_name(arms)
    by_battery: dict[str, list[ReplyRow]] = {one.name: [] for one in batteries}
    for row in rows:
        if row.battery not in by_battery:
            raise _unknown("battery", row.battery, by_battery, row)
        if row.arm not in known:
            raise _unknown("arm", row.arm, known, row)
        by_battery[row.battery].append(row)
    tables = {
        battery.name: _table(battery, arms, by_battery[battery.name], null_tests)
        for battery in batteries
        if by_battery[battery.name]
    }
    if not tables:
        raise MalformedInputError("replies", expected="at least one row", found="none")
    for arm in arms:
        _require_reference(arm, tables, not_measured)
    _require_one_kind(tables)
    return tables


def require_same_judges(settings: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
    """Refuse arms of one battery that were judged by different judge settings.

    ``settings``: battery -> arm -> everything that can change a verdict (the judge's identity and
    the rubric's digest, for each part the judge plays). A drift between two judges is no drift of
    the model. Raises MalformedInputError naming the battery, both arms and what differs.
    """
    for battery, by_arm in settings.items():
        names = list(by_arm)
        for name in names[1:]:
            first, other = by_arm[names[0]], by_arm[name]
            differ = sorted(key for key in {*first, *other} if first.get(key) != other.get(key))
            if differ:
                key = differ[0]
                raise MalformedInputError(
                    f"battery {battery}: judge settings of arm {name}",
                    problem=f"{', '.join(differ)} differ from arm {names[0]}'s",
                    expected=f"{key} {first.get(key)}",
                    found=other.get(key),
                    next_step="judge every arm of a battery with one judge and one rubric",
                )


def _arms_by_name(arms: Sequence[ArmInfo]) -> dict[str, ArmInfo]:
    known = {arm.name: arm for arm in arms}
    if len(known) != len(arms):
        twice = next(name for name, n in Counter(arm.name for arm in arms).items() if n > 1)
        raise MalformedInputError(f"arm {twice}", problem="is described twice")
    for arm in arms:
        if arm.reference is not None and (arm.reference not in known or arm.reference == arm.name):
            raise MalformedInputError(
                f"arm {arm.name}: reference",
                expected=f"another arm of {', '.join(known)}",
                found=arm.reference,
                next_step="name an arm that was asked the same questions",
            )
    return known


def _table(
    battery: BatteryInfo, arms: Sequence[ArmInfo], rows: Sequence[ReplyRow], null_tests: bool
) -> BatteryTable:
    stem_of: dict[str, str] = {}
    probes: dict[str, list[str]] = {}
    by_arm: dict[str, list[ReplyRow]] = {}
    for row in rows:
        check_row(row, battery)
        if row.probe not in stem_of:
            stem_of[row.probe] = row.stem
            probes.setdefault(row.stem, []).append(row.probe)
        elif stem_of[row.probe] != row.stem:
            raise MalformedInputError(
                f"battery {battery.name}: probe {row.probe}",
                problem="belongs to two stems",
                expected=stem_of[row.probe],
                found=row.stem,
            )
        by_arm.setdefault(row.arm, []).append(row)
    # Sorted, so that the order of the rows never changes which resample draws which stem.
    stems = tuple(sorted(probes))
    ordered = tuple(tuple(sorted(probes[stem])) for stem in stems)
    samples = tuple(sorted({row.sample for row in rows}))
    asked = tuple(arm for arm in arms if arm.name in by_arm)
    shape = (len(asked), len(stems), max(map(len, ordered)), len(samples))
    outcome, second, grade = (np.full(shape, np.nan) for _ in range(3))
    no_stance, present = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
    place = {probe: (s, p) for s, of_stem in enumerate(ordered) for p, probe in enumerate(of_stem)}
    sample_place = {sample: k for k, sample in enumerate(samples)}
    aligned, apart = frozenset(battery.aligned), frozenset(battery.no_stance)
    for a, arm in enumerate(asked):
        for row in by_arm[arm.name]:
            at = (a, *place[row.probe], sample_place[row.sample])
            if present[at]:
                raise MalformedInputError(where(row), problem="stands twice")
            present[at] = True
            if row.label is not None:
                outcome[at] = row.label in aligned
                no_stance[at] = row.label in apart
            elif row.score is not None:
                outcome[at] = row.score
            if row.second_label is not None:
                second[at] = row.second_label in aligned
            if row.grade is not None:
                grade[at] = row.grade
    _require_promises(battery, asked, stems, ordered, present)
    if null_tests:
        _require_two_samples(battery, asked, ordered, present)
    return BatteryTable(
        battery=battery,
        arms=asked,
        stems=stems,
        probes=ordered,
        samples=samples,
        outcome=outcome,
        no_stance=no_stance,
        second_outcome=second,
        grade=grade,
        rows={arm.name: tuple(sorted(by_arm[arm.name], key=_by_place)) for arm in asked},
    )


def _by_place(row: ReplyRow) -> tuple[str, str, int]:
    return (row.stem, row.probe, row.sample)


def _require_promises(
    battery: BatteryInfo,
    arms: Sequence[ArmInfo],
    stems: Sequence[str],
    probes: Sequence[Sequence[str]],
    present: BoolArray,
) -> None:
    if battery.n_rewordings is not None:
        n_ASP = present.any(axis=3).sum(axis=2)
        for a, s in np.argwhere(n_ASP != battery.n_rewordings)[:1]:
            raise MalformedInputError(
                f"battery {battery.name}: stem {stems[s]} in arm {arms[a].name}",
                expected=f"{battery.n_rewordings} rewordings, as promised",
                found=int(n_ASP[a, s]),
                next_step="ask every rewording of every stem in every arm",
            )
    if battery.n_samples is not None:
        n_ASPK = present.sum(axis=3)
        for a, s, p in np.argwhere((n_ASPK != battery.n_samples) & (n_ASPK > 0))[:1]:
            raise MalformedInputError(
                f"battery {battery.name}: probe {probes[s][p]} in arm {arms[a].name}",
                expected=f"{battery.n_samples} samples, as promised",
                found=int(n_ASPK[a, s, p]),
            )


def _require_two_samples(
    battery: BatteryInfo,
    arms: Sequence[ArmInfo],
    probes: Sequence[Sequence[str]],
    present: BoolArray,
) -> None:
    for a, s, p in np.argwhere(present.sum(axis=3) == 1)[:1]:
        raise MalformedInputError(
            f"battery {battery.name}: probe {probes[s][p]} in arm {arms[a].name}",
            expected="at least two samples: without a second one noise cannot be told from drift",
            found="one sample",
            next_step="ask every probe twice; drift analyse takes one sample with --no-null, which "
            "leaves the null tests out and says so",
        )


def _require_reference(
    arm: ArmInfo, tables: Mapping[str, BatteryTable], not_measured: Collection[tuple[str, str]]
) -> None:
    for name, table in tables.items():
        if (arm.reference, name) in not_measured:
            continue
        if arm.reference is not None and table.has(arm.name) and not table.has(arm.reference):
            raise MalformedInputError(
                f"battery {name}: reference {arm.reference} of arm {arm.name}",
                expected="replies of the reference",
                found="none",
                next_step="ask the reference arm the same battery, in the same run",
            )


def _require_one_kind(tables: Mapping[str, BatteryTable]) -> None:
    """Labels or scores, not both: points and score units cannot stand in one document."""
    kinds = {
        row.score is not None
        for table in tables.values()
        for rows in table.rows.values()
        for row in rows
        if row.status == SCORED
    }
    if len(kinds) > 1:
        raise MalformedInputError("replies", expected="labels or scores", found="some of each")


def _unknown(what: str, name: str, known: Iterable[str], row: ReplyRow) -> MalformedInputError:
    return MalformedInputError(
        f"{where(row)}: {what}", expected=f"one of {', '.join(known)}", found=name
    )
