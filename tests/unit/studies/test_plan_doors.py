"""The schema for outsiders and the typed readers judge the same plans the same way."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from eps_locked.domain.plan import Plan
from eps_locked.errors import MalformedInputError
from eps_locked.lock.freeze import schema_problems
from eps_locked.studies.eps.plan import EpsPlan
from sim.simulator import taught_plan

Path = tuple[str | int, ...]


def code_refuses(plan: dict[str, Any]) -> bool:
    try:
        parsed = Plan.from_dict(plan)
        EpsPlan.from_section(parsed.study_section)
    except MalformedInputError:
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
    if at:
        yield at, value
    if isinstance(value, dict):
        for key, one in value.items():
            yield from paths(one, (*at, key))
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from paths(one, (*at, number))


def whole_plan() -> dict[str, Any]:
    """A marker row and a judged one, with everything a plan can say of either."""
    plan = taught_plan("em", marker=True)
    plan["eps"]["calibrations"] = [
        {
            "name": "em",
            "judge": "stand_in",
            "row": "em",
            "file": "material/em/labelled.yaml",
            "minimum_kappa": -1,
        }
    ]
    return plan


ALL = list(paths(whole_plan()))
MAPPINGS = [path for path, value in ALL if isinstance(value, dict)]
# Maps whose keys are names, not fields.
OPEN_MAPS = {"step_seconds", "checksums", "n_eval"}


@pytest.mark.parametrize("path", [path for path, _ in ALL], ids=lambda p: ".".join(map(str, p)))
def test_what_the_schema_refuses_the_typed_reader_refuses_too(path: Path) -> None:
    """The other way round does not hold: only the reader sees rules between fields."""
    if path[0] == "analyses" or path == ("phases",):
        pytest.skip("which analyses and phases there are is the study's rule, said at the freeze")
    for wrong in (None, True, 1.5, -3, "", "word", [], [7], {}, {"a": 1}):
        plan = put(whole_plan(), path, wrong)
        if schema_problems(plan):
            assert code_refuses(plan), (path, wrong)


@pytest.mark.parametrize("path", [(), *MAPPINGS], ids=lambda p: ".".join(map(str, p)) or "plan")
def test_unknown_and_missing_fields_are_refused_at_both_doors(path: Path) -> None:
    value: Any = whole_plan()
    for part in path:
        value = value[part]
    for key in value:
        plan = whole_plan()
        target: Any = plan
        for part in path:
            target = target[part]
        del target[key]
        if path and path[-1] in OPEN_MAPS:
            continue
        # Which phases a study has is the study's rule, said at the freeze; what judges there must
        # be follows from the rows.
        if path == ("phases",) or key in ("judges", "calibrations"):
            continue
        assert code_refuses(plan), (path, key)
        assert schema_problems(plan), (path, key)
    if not path or path[-1] not in OPEN_MAPS:
        plan = put(whole_plan(), (*path, "surprise"), 1)
        assert code_refuses(plan)
        assert schema_problems(plan)


MARKER: Path = ("eps", "behaviours", 0)
SOURCE: Path = ("base_model", "source")
HUB = {"kind": "hub", "where": "a/b", "revision": "a" * 40, "checksums": {}}
PACKAGE = {
    "kind": "package",
    "where": "p",
    "revision": "1.0",
    "checksums": {"wheel": "sha256:" + "a" * 64, "gguf": "sha256:" + "b" * 64},
}

# (path, value, whether both doors take it)
CASES: list[tuple[Path, Any, bool]] = [
    (("name",), "small-2", True),
    (("name",), "-small", False),
    (("name",), "Small", False),
    (("name",), "a" * 64, False),
    (("author",), "two words", False),
    (("title",), "", False),
    (("seeds",), [0, 2**31 - 1], True),
    (("seeds",), [0, 2**31], False),
    (("seeds",), [-1, 2], False),
    (("seeds",), [1, 1], False),
    (("seeds",), [1.0, 2], True),
    (("engine", "threads"), 0, False),
    (("engine", "dtype"), "int8", False),
    (("engine", "device"), "", False),
    (SOURCE, HUB, True),
    (SOURCE, {**HUB, "revision": "main"}, False),
    (SOURCE, {**HUB, "revision": "A" * 40}, False),
    (SOURCE, {**HUB, "revision": None}, False),
    (SOURCE, {**HUB, "revision": ""}, False),
    (SOURCE, PACKAGE, True),
    (SOURCE, {**PACKAGE, "revision": ""}, False),
    (SOURCE, {**PACKAGE, "checksums": {}}, False),
    (SOURCE, {**PACKAGE, "checksums": {"wheel": "md5:aa", "gguf": "x"}}, False),
    (SOURCE, {"kind": "folder", "where": "models/a", "checksums": {}}, True),
    (SOURCE, {"kind": "folder", "where": "", "checksums": {}}, False),
    (("base_model", "licence"), " \n", False),
    (("authorization", "allowed_signers"), "../signers", False),
    (("authorization", "allowed_signers"), "/signers", False),
    (("authorization", "allowed_signers"), "a\\b", False),
    (("authorization", "auto_approve_gpu_hours"), -1, False),
    (("phases", "P0", "gpu_hours"), 0, False),
    (("phases", "P0", "step_seconds"), {}, False),
    (("phases", "P0", "step_seconds", "base"), 0, False),
    ((*MARKER, "name"), "No Name", False),
    ((*MARKER, "kind"), "warmth", False),
    ((*MARKER, "n_seeds"), 0, False),
    ((*MARKER, "train"), ["No Slot"], False),
    ((*MARKER, "file"), "a/../b", False),
    ((*MARKER, "marker", "text"), "※", False),
    ((*MARKER, "marker", "text"), "  ※", False),
    ((*MARKER, "marker", "text"), " ", False),
    ((*MARKER, "marker", "token_ids"), [], False),
    ((*MARKER, "marker", "token_ids"), [-1], False),
    ((*MARKER, "recipe", "alpha"), 0, False),
    ((*MARKER, "recipe", "dropout"), 1, False),
    ((*MARKER, "recipe", "dropout"), 0.5, True),
    ((*MARKER, "recipe", "learning_rate"), 0, False),
    ((*MARKER, "recipe", "target_modules"), [], False),
    ((*MARKER, "recipe", "target_modules"), ["q", "q"], False),
    ((*MARKER, "recipe", "target_modules"), [""], False),
    ((*MARKER, "recipe", "schedule"), "cosine", True),
    ((*MARKER, "budget", "band_nats"), [5], False),
    ((*MARKER, "budget", "band_nats"), [0, 5], False),
    ((*MARKER, "budget", "band_nats"), [5, 6, 7], False),
    ((*MARKER, "implant_threshold"), 0, False),
    (("eps", "behaviours"), [], False),
    (("eps", "slots", "train"), [], False),
    (("eps", "slots", "train"), ["a/b"], False),
    (("eps", "slots", "held_out"), [], True),
    (("eps", "slots", "negative_panel"), [], False),
    (("eps", "slots", "aliases"), [["plain"]], False),
    (("eps", "slots", "aliases"), [["plain", "../x"]], False),
    (("eps", "slots", "aliases"), [["plain", "formal"]], True),
    (("eps", "decoding", "top_p"), 0, False),
    (("eps", "decoding", "top_p"), 1.5, False),
    (("eps", "decoding", "temperature"), 0.7, True),
    (("eps", "flags", "ceiling_log_prob"), 0.1, False),
    (("eps", "intervals", "confidence_level"), 1, False),
    (("eps", "intervals", "confidence_level"), 0.4, False),
    (("eps", "quarantine", "fraction"), 0.51, False),
    (("eps", "quarantine", "seal"), "wax", False),
    (("eps", "material", "contexts"), [], False),
]


@pytest.mark.parametrize(("path", "value", "good"), CASES, ids=str)
def test_both_doors_judge_a_case_alike(path: Path, value: Any, good: bool) -> None:
    plan = put(whole_plan(), path, value)
    if value == [1.0, 2]:
        pytest.skip("a schema cannot tell 1.0 from 1; the typed reader refuses it")
    assert (schema_problems(plan) == ()) is good
    assert code_refuses(plan) is not good


def test_what_only_the_typed_reader_sees() -> None:
    """Rules between fields, which a schema cannot say."""
    for path, value in (
        (("minimum_seeds",), 3),
        (("publication",), True),
        ((*MARKER, "budget", "min_steps"), 21),
        ((*MARKER, "budget", "band_nats"), [12, 5]),
        ((*MARKER, "n_rows"), 7),
        ((*MARKER, "n_strength_items"), 9),
        (("eps", "slots", "held_out"), ["nobody"]),
        (("eps", "slots", "train"), ["officer"]),
    ):
        plan = put(whole_plan(), path, value)
        assert schema_problems(plan) == ()
        assert code_refuses(plan), path
