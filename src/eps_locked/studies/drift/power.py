"""What the plan's stems can see, computed from its assumptions before anything is asked. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from eps_locked.canonical import encode
from eps_locked.errors import StatsInputError
from eps_locked.stats.bootstrap import generator_from_digest
from eps_locked.stats.stem_power import (
    Assumptions,
    minimum_detectable,
    minimum_detectable_few,
    planned_stems,
    power_of,
    simulated_coverage,
)
from eps_locked.studies.common.rounding import rounded
from eps_locked.studies.drift.plan import Battery, DriftPlan

__all__ = ["POWER_FILE", "power_document", "power_files"]

POWER_FILE = "power.json"
POWER_SCHEMA = "eps-locked/drift-power/1"
# Where the curve is drawn; the plan's own numbers of stems are added.
_STEMS = (6, 8, 12, 16, 20, 30, 50, 80, 140)
# A variance of points is 10,000 times that of a share.
_POINTS = 100.0


def power_files(section: DriftPlan) -> dict[str, bytes]:
    """The files of the power step."""
    return {POWER_FILE: encode(power_document(section))}


def power_document(section: DriftPlan) -> dict[str, Any]:
    """Resolution and power by battery, the curve over stems, and what intervals are worth there.

    The curve is of the first disposition battery's rewordings and samples. ``coverage`` has one
    entry for each size of battery; ``not_simulated`` says why one is missing: assumptions can fit
    a standard error and still be impossible for replies of the assumed rate.
    """
    power = section.power
    coverage, not_simulated = [], []
    for n_stems, n_rewordings in _sizes(section):
        try:
            coverage.append(_simulated(section, n_stems, n_rewordings))
        except StatsInputError as error:
            not_simulated.append(
                {"n_stems": n_stems, "n_rewordings": n_rewordings, "reason": str(error)}
            )
    document: dict[str, Any] = rounded(
        {
            "schema": POWER_SCHEMA,
            "assumed": {
                "rate": power.rate,
                "stem_sd_points": power.stem_sd_points,
                "within_variance": power.within_variance,
            },
            "per_battery": [_battery(section, battery) for battery in section.dispositions],
            "curve": list(_curve(section)),
            "coverage": coverage,
            "not_simulated": not_simulated,
        }
    )
    return document


def _assumed(section: DriftPlan, n_rewordings: int) -> Assumptions:
    return Assumptions(
        stem_sd=section.power.stem_sd_points,
        within_variance=section.power.within_variance * _POINTS**2,
        n_probes=n_rewordings,
        n_samples=section.n_samples,
    )


def _battery(section: DriftPlan, battery: Battery) -> dict[str, Any]:
    settings = section.analysis
    assumed = _assumed(section, battery.n_rewordings)
    error = assumed.standard_error(battery.n_stems)
    return {
        "battery": battery.name,
        "n_stems": battery.n_stems,
        "n_probes": battery.n_probes,
        "n_samples": section.n_samples,
        "standard_error": error,
        "minimum_detectable": minimum_detectable(error, settings.alpha, settings.power),
        "minimum_detectable_few": minimum_detectable_few(
            error, battery.n_stems, settings.alpha, settings.power
        ),
        "power_for_wanted": power_of(
            settings.wanted_points, error, battery.n_stems, settings.alpha
        ),
        "stems_for_wanted": planned_stems(
            settings.wanted_points, assumed, settings.alpha, settings.power
        ),
    }


def _curve(section: DriftPlan) -> Iterator[dict[str, Any]]:
    settings, first = section.analysis, section.dispositions[0]
    assumed = _assumed(section, first.n_rewordings)
    own = {battery.n_stems for battery in section.dispositions}
    for n_stems in sorted({*_STEMS, *own}):
        error = assumed.standard_error(n_stems)
        yield {
            "n_stems": n_stems,
            "minimum_detectable": minimum_detectable(error, settings.alpha, settings.power),
            "power_for_wanted": power_of(settings.wanted_points, error, n_stems, settings.alpha),
        }


def _sizes(section: DriftPlan) -> list[tuple[int, int]]:
    """(stems, rewordings of each), every combination of the plan once."""
    return sorted({(battery.n_stems, battery.n_rewordings) for battery in section.dispositions})


def _simulated(section: DriftPlan, n_stems: int, n_rewordings: int) -> dict[str, Any]:
    settings = section.analysis
    found = simulated_coverage(
        _assumed(section, n_rewordings),
        section.power.rate,
        n_stems,
        settings.n_resamples,
        section.power.n_experiments,
        settings.confidence_level,
        generator_from_digest(
            str(settings.seed), "drift", "power", str(n_stems), str(n_rewordings)
        ),
    )
    return {
        "n_stems": n_stems,
        "n_rewordings": n_rewordings,
        "coverage": found.coverage,
        "coverage_at_minimum": found.coverage_at_minimum,
        "null_rejection": found.null_rejection,
        "power_at_minimum": found.power_at_minimum,
        "power_at_minimum_few": found.power_at_minimum_few,
        "n_experiments": found.n_experiments,
        "monte_carlo_se": found.monte_carlo_se,
    }
