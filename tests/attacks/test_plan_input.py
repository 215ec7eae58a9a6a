"""What a plan file may not be: the strict subset of YAML, seen through ``read_plan`` and freeze."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from eps_locked.errors import MalformedInputError, RefusedError
from eps_locked.lock.freeze import read_plan
from sim.simulator import StudySimulator

BILLION = "a: &a [x,x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)},*{chr(97 + n)}]\n" for n in range(24)
)


def as_yaml(study: StudySimulator) -> str:
    return yaml.safe_dump(study.plan, allow_unicode=True, sort_keys=False)


def publish(study: StudySimulator, data: bytes) -> Path:
    study.write_plan()
    path = study.root / "plans/small.yaml"
    path.write_bytes(data)
    return path


def test_a_plan_in_block_style_is_the_same_plan(study: StudySimulator) -> None:
    publish(study, as_yaml(study).encode())
    plan, _ = read_plan(study.workspace, "small")
    assert plan.seeds == (11, 12)
    study.freeze()


# (what stands in the file, what the refusal says)
BAD: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "is not of type 'object'"),
    "only a comment": ("# nothing yet\n", "is not of type 'object'"),
    "a list": ("- a\n- b\n", "is not of type 'object'"),
    "a word": ("plan\n", "is not of type 'object'"),
    "duplicate key": ("name: a\ntitle: b\nname: c\n", "small.yaml:3: has the key 'name' twice"),
    "duplicate key deep": ("a:\n  - {b: 1, b: 1}\n", "has the key 'b' twice"),
    "not a number": ("a: .nan\n", "small.yaml:1: has the value .nan"),
    "infinity": ("a: .inf\n", "has the value .inf"),
    "minus infinity": ("a: -.INF\n", "has the value -.INF"),
    "too large a number": ("a: 1e999\n", "not finite"),
    "a billion laughs": (BILLION, "uses an anchor or alias"),
    "an alias of itself": ("a: &a [*a]\n", "uses an anchor or alias"),
    "a merge key": ("a: &b {c: 1}\nd:\n  <<: *b\n", "uses an anchor or alias"),
    "a tag": ("a: !!python/object/apply:os.system [echo]\n", "uses the tag"),
    "a harmless tag": ("a: !!str 7\n", "uses the tag"),
    "a local tag": ("a: !mine 7\n", "uses the tag"),
    "several documents": ("a: 1\n---\nb: 2\n", "more than one document"),
    "deep nesting": ("[" * 40 + "]" * 40, "nested deeper than 32"),
    "very deep nesting": ("[" * 100_000, "nesting depth"),
    "deep mappings": ("".join(" " * n + "a:\n" for n in range(50)), "nested deeper than 32"),
    "a number as key": ("7: a\n", "has the key 7"),
    "a truth as key": ("true: a\n", "has the key True"),
    "nothing as key": ("~: a\n", "has the key None"),
    "a list as key": ("? [a]\n: b\n", "has the key ['a']"),
    "windows line ends": ("name: a\r\ntitle: b\r\n", "small.yaml:1: has a carriage return"),
    "old mac line ends": ("name: a\rtitle: b\r", "has a carriage return"),
    "a byte order mark": (b"\xef\xbb\xbfname: a\n", "byte order mark"),
    "latin 1": ("title: caf\xe9\n".encode("latin-1"), "byte 0xe9 at 10"),
    "utf-16": ("name: a\n".encode("utf-16"), "UTF-8"),
    "a zero byte": (b"name: a\x00b\n", "is not YAML"),
    "an escape": (b"name: a\x1bb\n", "is not YAML"),
    "a tab": ("a:\n\t- b\n", "is not YAML"),
    "an open quote": ('a: "b\n', "is not YAML"),
    "ten megabytes": ("title: " + "x" * 10_000_000 + "\n", "expected at most 4194304 bytes"),
    "a directive": ("%YAML 9.9\n---\na: 1\n", "is not YAML"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_is_no_plan_is_malformed_and_says_where(
    study: StudySimulator, refuses: Any, name: str
) -> None:
    text, problem = BAD[name]
    publish(study, text if isinstance(text, bytes) else text.encode())
    with refuses(study, MalformedInputError) as caught:
        study.freeze()
    assert problem in str(caught.value)
    assert "small.yaml" in str(caught.value)
    assert len(str(caught.value)) < 6000, "a refusal is read by people"


def test_a_three_megabyte_field_is_refused_in_few_words(
    study: StudySimulator, refuses: Any
) -> None:
    study.plan["name"] = "x" * 3_000_000
    study.write_plan()
    with refuses(study, MalformedInputError) as caught:
        study.freeze()
    assert len(str(caught.value)) < 2000


def test_no_is_a_string_and_so_is_half_past_one(study: StudySimulator) -> None:
    """Norway, and sexagesimal times: YAML 1.1 would make a truth and a number of these."""
    study.plan["title"] = "TITLE"
    text = as_yaml(study).replace("title: TITLE", "title: no")
    publish(study, text.encode())
    assert read_plan(study.workspace, "small")[0].title == "no"
    publish(study, text.replace("title: no", "title: 12:30").encode())
    assert read_plan(study.workspace, "small")[0].title == "12:30"
    publish(study, text.replace("publication: false", "publication: no").encode())
    with pytest.raises(MalformedInputError, match="publication: 'no' is not of type 'boolean'"):
        read_plan(study.workspace, "small")


def test_several_problems_are_listed_at_once_each_with_its_path(
    study: StudySimulator, refuses: Any
) -> None:
    study.plan["seeds"] = ["eleven", 12]
    study.plan["engine"]["threads"] = 0
    study.plan["eps"]["behaviours"][0]["recipe"]["rank"] = True
    study.plan["eps"]["slots"]["train"] = ["../up"]
    study.plan["surprise"] = 1
    study.write_plan()
    with refuses(study, MalformedInputError) as caught:
        study.freeze()
    text = "\n".join(caught.value.details)
    assert "has 5 problems" in str(caught.value)
    for path in (
        "seeds[0]:",
        "engine.threads:",
        "eps.behaviours[0].recipe.rank:",
        "eps.slots.train[0]:",
        "plan: Additional properties",
    ):
        assert path in text


@pytest.mark.parametrize(
    "where",
    [("phases", "P0"), ("base_model", "source"), ("eps", "quarantine"), ("eps", "decoding"), ()],
)
def test_an_unknown_key_is_named(study: StudySimulator, refuses: Any, where: tuple[str]) -> None:
    target = study.plan
    for part in where:
        target = target[part]
    target["sedes"] = 1
    study.write_plan()
    with refuses(study, MalformedInputError) as caught:
        study.freeze()
    assert "sedes" in str(caught.value)


PATHS = {
    "material": ("eps", "material", "eval_items"),
    "behaviour": ("eps", "behaviours", 0, "file"),
    "signers": ("authorization", "allowed_signers"),
    "contexts": ("eps", "material", "contexts", 0),
}


@pytest.mark.parametrize(
    "path",
    [
        "../secret.yaml",
        "material/../../secret.yaml",
        "/etc/passwd",
        "..",
        "material\\eval.yaml",
        "./material/eval.yaml",
        "material//eval.yaml",
        "",
        ".",
        "material/",
        "a\x00b",
    ],
)
@pytest.mark.parametrize("field", PATHS)
def test_a_path_that_leaves_plans_is_refused(
    study: StudySimulator, refuses: Any, field: str, path: str
) -> None:
    target: Any = study.plan
    *parents, last = PATHS[field]
    for part in parents:
        target = target[part]
    target[last] = path
    study.write_plan()
    (study.root / "secret.yaml").write_text("{}")
    with pytest.raises((MalformedInputError, RefusedError)) as first:
        study.freeze()
    with refuses(study, type(first.value)) as caught:
        study.freeze()
    said = str(caught.value)
    assert path in said or json.dumps(path).strip('"') in said or repr(path).strip("'") in said


@pytest.mark.parametrize("relative", ["small.yaml", "material/eval.yaml", "keys/allowed_signers"])
def test_a_linked_source_is_not_followed(
    study: StudySimulator, refuses: Any, relative: str
) -> None:
    study.write_plan()
    path = study.root / "plans" / relative
    path.rename(study.root / "elsewhere")
    path.symlink_to(study.root / "elsewhere")
    with refuses(study) as caught:
        study.freeze()
    assert path.name in str(caught.value)


@pytest.mark.parametrize("relative", ["material/eval.yaml", "keys/allowed_signers"])
def test_a_missing_or_odd_source_is_named(
    study: StudySimulator, refuses: Any, relative: str
) -> None:
    study.write_plan()
    path = study.root / "plans" / relative
    path.unlink()
    with refuses(study, MalformedInputError) as caught:
        study.freeze()
    assert path.name in str(caught.value)
    path.mkdir()
    with refuses(study, MalformedInputError) as caught:
        study.freeze()
    assert path.name in str(caught.value)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "a mapping"),
        (b"[]", "a mapping"),
        (b"items: 7\n", "schema: is missing"),
        (b"\xff", "UTF-8"),
        (b"a: &a 1\n", "anchor"),
    ],
)
@pytest.mark.parametrize("relative", ["contexts", "train", "eval", "marker"])
def test_material_that_is_none_is_malformed_by_name(
    study: StudySimulator, refuses: Any, relative: str, data: bytes, problem: str
) -> None:
    study.write_plan()
    (study.root / f"plans/material/{relative}.yaml").write_bytes(data)
    with refuses(study, MalformedInputError) as caught:
        study.freeze()
    assert problem in str(caught.value)
    assert f"material/{relative}.yaml" in str(caught.value)


def test_the_plan_answers_to_its_files_name(study: StudySimulator, refuses: Any) -> None:
    study.plan["name"] = "large"
    study.write_plan()
    with refuses(study, MalformedInputError) as caught:
        study.freeze()
    assert (caught.value.expected, caught.value.found) == ("small", "large")
