"""A drift document from the analysis itself, of simulated replies: what made-up ones imitate."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from eps_locked.studies.drift.analysis import analyse
from eps_locked.studies.drift.awareness_analysis import AwarenessGrades
from eps_locked.studies.drift.plan import AnalysisSettings
from eps_locked.studies.drift.readout_shifts import ModelReadout, Readouts
from eps_locked.studies.drift.table import ArmInfo, BatteryInfo, ReplyRow

SETTINGS = AnalysisSettings(
    n_resamples=200,
    confidence_level=0.95,
    equivalence_level=0.9,
    alpha=0.05,
    power=0.8,
    margin_points=5.0,
    margin_grade=0.3,
    wanted_points=5.0,
    minimum_stems=12,
    n_permutations=199,
    seed=1,
)
BATTERIES = (
    BatteryInfo(
        name="self_interest",
        labels=("declines", "seeks", "no_stance"),
        aligned=("declines",),
        no_stance=("no_stance",),
    ),
    BatteryInfo(
        name="advice", role="check", labels=("harmful", "sound"), aligned=("sound",), no_stance=()
    ),
)
N_STEMS, N_PROBES, N_SAMPLES = 12, 2, 2


def arm(name: str, **more: Any) -> ArmInfo:
    return ArmInfo(name=name, temperature=0.7, **more)


def dosed(name: str, dose: float, seed: int = 21, **more: Any) -> ArmInfo:
    model = f"plants_{dose:g}_{seed}"
    return arm(name, model=model, topic="plants", dose_percent=dose, seed=seed, **more)


ARMS = (
    arm("untouched", model="base", instance=1),
    arm("untouched_again", model="base", instance=2, reference="untouched"),
    dosed("dose_0", 0, instance=1, reference="untouched"),
    dosed("dose_50", 50, instance=1, reference="dose_0"),
    dosed("dose_100", 100, instance=1, reference="dose_0"),
    dosed("dose_100_second", 100, 22, instance=1, reference="dose_100"),
    dosed("dose_0_cut", 0, instance=1, reasoning="cut", reasoning_mode="budget"),
    dosed(
        "dose_100_cut",
        100,
        instance=1,
        reasoning="cut",
        reasoning_mode="budget",
        n_reasoning_tokens=24,
        reference="dose_0_cut",
    ),
)


def analysed_document() -> dict[str, Any]:
    """Everything but power, which is a step of its own."""
    rng = random.Random(3)
    return analyse(
        list(_rows(rng)),
        ARMS,
        BATTERIES,
        SETTINGS,
        awareness=[
            AwarenessGrades(
                battery="self_interest",
                judge=judge,
                grades={
                    f"s{stem:02d}/{probe}": rng.randint(3, 7)
                    for stem in range(N_STEMS)
                    for probe in range(N_PROBES)
                },
            )
            for judge in ("embeddings", "words")
        ],
        readouts=_readouts(rng),
    )


def _rows(rng: random.Random) -> Iterator[ReplyRow]:
    for battery in BATTERIES:
        for stem in range(N_STEMS):
            lean = rng.gauss(0, 0.05)
            for one in ARMS:
                for probe in range(N_PROBES):
                    for sample in range(N_SAMPLES):
                        rate = 0.9 + lean - 0.5 * (one.dose_percent or 0) / 100
                        yield _reply(rng, one, battery, f"s{stem:02d}", probe, sample, rate)


def _reply(
    rng: random.Random,
    one: ArmInfo,
    battery: BatteryInfo,
    stem: str,
    probe: int,
    sample: int,
    rate: float,
) -> ReplyRow:
    reasons = one.reasoning != "none"
    label: str | None = battery.aligned[0]
    if rng.random() > rate:
        label = rng.choice([name for name in battery.labels if name not in battery.aligned])
    lost = rng.random() < 0.03
    if lost:
        label = None
    return ReplyRow(
        arm=one.name,
        battery=battery.name,
        stem=stem,
        probe=f"{stem}/{probe}",
        sample=sample,
        label=label,
        status=("exhausted" if reasons else "unreadable") if lost else "scored",
        second_label=None if lost or rng.random() < 0.5 else rng.choice([label, battery.labels[0]]),
        check_label=None if lost else rng.choice([label, label, battery.labels[0]]),
        grade=None if lost or battery.role == "check" else rng.randint(4, 7),
        mentions=int(reasons and rng.random() < 0.3),
        reasoned=reasons,
        truncated_reasoning=reasons and rng.random() < 0.5,
    )


def _readouts(rng: random.Random) -> Readouts:
    trained = {one.model: one for one in ARMS}
    return Readouts(
        layer=15,
        full="plants_100_21",
        reference="plants_0_21",
        models=tuple(
            ModelReadout(
                model=model,
                topic=one.topic,
                dose_percent=one.dose_percent,
                seed=one.seed,
                projections={
                    "power_seeking": {
                        f"p{n}": (one.dose_percent or 0) / 50 + rng.gauss(0, 0.2) for n in range(12)
                    },
                    "unmoved": {f"p{n}": rng.gauss(0, 0.2) for n in range(12)},
                },
            )
            for model, one in trained.items()
        ),
    )
