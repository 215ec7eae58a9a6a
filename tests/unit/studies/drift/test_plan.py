"""The ``drift`` section: the schema for outsiders and the typed readers judge it alike."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from eps_locked.domain.plan import Plan
from eps_locked.errors import EpsLockedError, MalformedInputError, RefusedError
from eps_locked.lock.freeze import schema_problems
from eps_locked.studies.drift.freeze import checked_section
from eps_locked.studies.drift.plan import DriftPlan
from eps_locked.studies.eps.plan import EpsPlan
from sim.drift import drift_plan, small_drift_plan
from sim.simulator import default_plan

Path = tuple[str | int, ...]


def refused(plan: dict[str, Any]) -> bool:
    try:
        checked_section(Plan.from_dict(plan))
    except EpsLockedError:
        return True
    return False


def put(plan: dict[str, Any], path: Path, value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(plan)
    target: Any = changed
    for part in path[:-1]:
        target = target[part]
    target[path[-1]] = value
    return changed


def paths(value: Any, at: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Of a list the first entry alone, but every reasoning setting: their modes differ."""
    if at:
        yield at, value
    if isinstance(value, dict):
        for key, one in value.items():
            yield from paths(one, (*at, key))
    elif isinstance(value, list):
        for number, one in enumerate(value if at[-1] == "settings" else value[:1]):
            yield from paths(one, (*at, number))


ALL = list(paths(drift_plan()["drift"], ("drift",)))
MAPPINGS = [("drift",), *(path for path, value in ALL if isinstance(value, dict))]


@pytest.mark.parametrize("path", [path for path, _ in ALL], ids=lambda p: ".".join(map(str, p)))
def test_what_the_schema_refuses_the_typed_reader_refuses_too(path: Path) -> None:
    """The other way round does not hold: only the reader sees rules between fields."""
    for wrong in (None, True, 1.5, -3, 0, "", "word", "Two Words", "../x", [], [7], {}, {"a": 1}):
        plan = put(drift_plan(), path, wrong)
        if schema_problems(plan):
            assert refused(plan), (path, wrong)


@pytest.mark.parametrize("path", MAPPINGS, ids=lambda p: ".".join(map(str, p)))
def test_unknown_and_missing_fields_are_refused_at_both_doors(path: Path) -> None:
    value: Any = drift_plan()
    for part in path:
        value = value[part]
    for key in value:
        # What a judge must say depends on its kind.
        if key in ("endpoint", "temperature"):
            continue
        plan = drift_plan()
        target: Any = plan
        for part in path:
            target = target[part]
        del target[key]
        assert refused(plan), (path, key)
        assert schema_problems(plan), (path, key)
    plan = put(drift_plan(), (*path, "surprise"), 1)
    assert refused(plan)
    assert schema_problems(plan)


BATTERY: Path = ("drift", "batteries", 0)
ANALYSIS: Path = ("drift", "analysis")
SETTING: Path = ("drift", "reasoning", "settings")

# (path, value, whether both doors take it)
CASES: list[tuple[Path, Any, bool]] = [
    (("drift", "samples"), 1, False),
    (("drift", "samples"), 3, True),
    (("drift", "item_seed"), -1, False),
    (("drift", "decoding", "top_p"), 0, False),
    (("drift", "decoding", "max_new_tokens"), 0, False),
    (("drift", "batteries"), [], False),
    (("drift", "arms"), [], False),
    ((*BATTERY, "role"), "control", False),
    ((*BATTERY, "n_stems"), 1, False),
    ((*BATTERY, "n_rewordings"), 0, False),
    ((*BATTERY, "aligned"), [], False),
    ((*BATTERY, "no_stance"), [], True),
    ((*BATTERY, "file"), "/etc/stems.yaml", False),
    ((*BATTERY, "graded_rubric"), "a/../b", False),
    ((*BATTERY, "graded_rubric"), None, True),
    ((*BATTERY, "name"), "Self", False),
    ((*ANALYSIS, "margin_points"), 0, False),
    ((*ANALYSIS, "margin_points"), 0.1, True),
    ((*ANALYSIS, "margin_grade"), -0.3, False),
    ((*ANALYSIS, "confidence_level"), 1, False),
    ((*ANALYSIS, "confidence_level"), 0.49, False),
    ((*ANALYSIS, "equivalence_level"), 0.8, True),
    ((*ANALYSIS, "alpha"), 0, False),
    ((*ANALYSIS, "power"), 1, False),
    ((*ANALYSIS, "wanted_points"), 0, False),
    ((*ANALYSIS, "minimum_stems"), 1, False),
    ((*ANALYSIS, "n_resamples"), 99, False),
    (("drift", "power", "rate"), 1, False),
    (("drift", "power", "within_variance"), 0.26, False),
    (("drift", "power", "within_variance"), 0.25, True),
    (("drift", "power", "n_experiments"), 99, False),
    (("drift", "readouts", "layer"), 0, False),
    (("drift", "readouts", "n_prompts"), 1, False),
    (("drift", "awareness", "judges"), [], False),
    (("drift", "awareness", "judges"), ["second", "second"], False),
    (("drift", "judging", "twice_share"), 1.1, False),
    (("drift", "judging", "minimum_scored_share"), 0, False),
    (("drift", "trainings", 0, "dose_percent"), 101, False),
    (("drift", "exposures", 0, "n_exchanges"), 0, False),
    (("drift", "arms", 0, "instance"), 0, False),
    (("drift", "arms", 0, "temperature"), -0.1, False),
    ((*SETTING, 0), {"name": "closed", "mode": "closed", "n_tokens": 0}, False),
    ((*SETTING, 0), {"name": "closed", "mode": "none"}, False),
    ((*SETTING, 0), {"name": "closed", "mode": "ajar"}, False),
    ((*SETTING, 1, "max_tokens"), 0, False),
    ((*SETTING, 1, "retries"), 0, True),
    ((*SETTING, 2, "n_tokens"), -1, False),
    ((*SETTING, 2, "n_tokens"), 0, True),
    ((*SETTING, 4, "n_tokens"), 0, False),
    ((*SETTING, 4, "text"), "", False),
    (SETTING, [], False),
    (("drift", "reasoning", "open"), "", False),
    (("study",), "eps", False),
    (("study",), "vea", False),
    (("analyses",), ["drift"], True),
    (("analyses",), ["weather"], False),
]


@pytest.mark.parametrize(("path", "value", "good"), CASES, ids=str)
def test_both_doors_judge_a_case_alike(path: Path, value: Any, good: bool) -> None:
    plan = put(drift_plan(), path, value)
    if path == (*BATTERY, "graded_rubric"):
        plan["drift"]["calibrations"] = []
    assert (schema_problems(plan) == ()) is good
    assert refused(plan) is not good


def test_a_plan_has_the_section_of_its_study_and_no_other() -> None:
    both = {**drift_plan(), "eps": default_plan()["eps"]}
    for plan in (both, {**both, "study": "eps"}):
        assert schema_problems(plan)
        with pytest.raises(MalformedInputError):
            Plan.from_dict(plan)


def test_a_study_reads_its_own_plans_alone() -> None:
    drift, eps = Plan.from_dict(drift_plan()), Plan.from_dict(default_plan())
    with pytest.raises(RefusedError, match="study drift, found eps"):
        DriftPlan.of(eps)
    with pytest.raises(RefusedError, match="study eps, found drift"):
        EpsPlan.of(drift)


def test_what_the_parts_say_of_each_other() -> None:
    section = checked_section(Plan.from_dict(drift_plan()))
    assert [one.name for one in section.dispositions] == ["self_interest", "harmful_requests"]
    assert section.doses_of("plants") == (0, 50, 100)
    assert section.setting("none").mode == "none"
    assert section.setting("dots").n_tokens == 9
    assert section.arm("dose_50").reference == "dose_0"
    with pytest.raises(MalformedInputError, match="known: closed, free"):
        section.setting("open")
    assert section.material_files == (
        "material/drift/self_interest.yaml",
        "material/drift/harmful_requests.yaml",
        "material/drift/plants_advice.yaml",
        "material/drift/plants.yaml",
        "material/drift/self_interest-labelled.yaml",
        "material/drift/readout-prompts.yaml",
        "material/drift/traits.yaml",
        "material/drift/awareness-words.yaml",
    )


def test_the_smallest_plan_passes_both_doors() -> None:
    plan = small_drift_plan()
    assert schema_problems(plan) == ()
    assert checked_section(Plan.from_dict(plan)).reasoning is None
