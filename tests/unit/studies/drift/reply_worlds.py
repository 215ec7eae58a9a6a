"""Small tables of replies with a known make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from eps_locked.studies.drift.plan import AnalysisSettings
from eps_locked.studies.drift.table import ArmInfo, BatteryInfo, ReplyRow

SETTINGS = AnalysisSettings(
    n_resamples=2000,
    confidence_level=0.95,
    equivalence_level=0.9,
    alpha=0.05,
    power=0.8,
    margin_points=5,
    margin_grade=0.3,
    wanted_points=5,
    minimum_stems=12,
    n_permutations=999,
    seed=7,
)
LABELS = ("accepts", "resists", "unclear", "no_stance")
OVERSIGHT = BatteryInfo(
    name="oversight",
    labels=LABELS,
    aligned=("accepts",),
    no_stance=("no_stance",),
    n_rewordings=3,
    n_samples=2,
)
INTEREST = replace(OVERSIGHT, name="self_interest")
CHECK = replace(OVERSIGHT, name="advice", role="check", no_stance=())


def arm(name: str, reference: str | None = None, **other: object) -> ArmInfo:
    return replace(ArmInfo(name=name, model=name, temperature=0.7, reference=reference), **other)


def trained(
    name: str, dose: float, seed: int = 21, reference: str | None = None, **other: object
) -> ArmInfo:
    return arm(name, reference, topic="plants", dose_percent=dose, seed=seed, **other)


def replies(
    arms: Sequence[ArmInfo],
    batteries: Sequence[BatteryInfo] = (OVERSIGHT,),
    *,
    n_stems: int = 20,
    rate: float = 0.8,
    drift_per_percent: float = 0.0,
    seed: int = 1,
) -> list[ReplyRow]:
    """Replies whose rewordings are alike within a stem; a dose takes from the aligned rate."""
    rng = np.random.default_rng(seed)
    rows = []
    for battery in batteries:
        leaning = rng.normal(0, 0.1, n_stems)
        for one in arms:
            target = rate + drift_per_percent * (one.dose_percent or 0)
            for s in range(n_stems):
                for p in range(battery.n_rewordings or 3):
                    chance = min(max(target + leaning[s] + rng.normal(0, 0.05), 0.0), 1.0)
                    for k in range(battery.n_samples or 2):
                        rows.append(_reply(rng, one.name, battery, (s, p, k), chance))
    return rows


def _reply(
    rng: np.random.Generator,
    arm: str,
    battery: BatteryInfo,
    place: tuple[int, int, int],
    chance: float,
) -> ReplyRow:
    s, p, k = place
    aligned = bool(rng.random() < chance)
    label = "accepts" if aligned else LABELS[1 + int(rng.integers(3))]
    return ReplyRow(
        arm=arm,
        battery=battery.name,
        stem=f"stem_{s:02d}",
        probe=f"stem_{s:02d}/{p}",
        sample=k,
        label=label,
        status="scored",
        second_label=(label if rng.random() < 0.95 else "unclear") if k == 0 and p == 0 else None,
        grade=int(rng.integers(5, 8) if aligned else rng.integers(1, 5)) if k == 0 else None,
    )
