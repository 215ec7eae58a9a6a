"""docs/lock.md and the code name the same rules, checks, exit codes and commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import eps_locked.errors as errors
from eps_locked.audit import checks
from eps_locked.canonical import digest_bytes
from eps_locked.cli import main
from eps_locked.lock import gate
from eps_locked.lock.envelope import seal_document

ROOT = Path(__file__).parents[3]
LOCK = (ROOT / "docs/lock.md").read_text("utf-8")


def section(title: str) -> str:
    """The text of one ``## L.. title`` section."""
    return re.split(r"^## ", LOCK.split(f"{title}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def error_classes() -> dict[str, int]:
    """Every class of the tree below the root, with its exit code."""
    found: dict[str, int] = {}
    queue = list(errors.EpsLockedError.__subclasses__())
    while queue:
        kind = queue.pop()
        queue += kind.__subclasses__()
        found[kind.__name__] = kind.exit_code
    return found


def test_the_exit_code_table_is_the_error_tree() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", section("## L20 Exit codes"), re.MULTILINE)
    assert {name: int(code) for code, name in rows} == error_classes()


def test_ok_and_interrupted_have_codes_and_no_class() -> None:
    rows = re.findall(r"^\| (\d+) \| +\|", section("## L20 Exit codes"), re.MULTILINE)
    assert rows == ["0", "130"]


@pytest.mark.parametrize(
    ("title", "letter", "code"),
    [("## L18 The gate", "G", gate.__doc__), ("## L19 The audit", "C", checks.__doc__)],
)
def test_rules_of_the_code_are_the_rules_of_the_page(title: str, letter: str, code: str) -> None:
    documented = re.findall(rf"^\| \*\*({letter}\d+)\*\* \|", section(title), re.MULTILINE)
    implemented = re.findall(rf"^    ({letter}\d+) ", code, re.MULTILINE)
    assert documented == implemented


def test_every_check_has_a_number_on_the_page() -> None:
    documented = re.findall(r"^\| \*\*C(\d+)\*\* \|", section("## L19 The audit"), re.MULTILINE)
    assert [int(number) for number in documented] == list(checks.TITLES)


def test_no_rule_is_named_anywhere_that_the_page_does_not_define() -> None:
    sources = [*(ROOT / "src").rglob("*.py"), ROOT / "tests/conformance/second_verifier.py"]
    anchors = set(re.findall(r"\*\*(L[\d.]+|[GCH]\d+)\*\*", LOCK))
    anchors |= set(re.findall(r"^## (L\d+) ", LOCK, re.MULTILINE))
    named = {
        rule
        for path in sources
        for rule in re.findall(
            r"(?<![\w.])(?:[GC]\d{1,2}(?=  )|L\d+\.\d+|(?<=\[)L\d+(?=[\],]))",
            path.read_text("utf-8"),
        )
    }
    assert {rule for rule in named if rule not in anchors} == set()


def test_no_anchor_is_defined_twice() -> None:
    anchors = re.findall(r"(?:^- |^\| )\*\*(L[\d.]+|[GCH]\d+)\*\*", LOCK, re.MULTILINE)
    assert len(anchors) == len(set(anchors))


def test_every_reference_on_the_page_has_its_anchor() -> None:
    anchors = set(re.findall(r"\*\*(L[\d.]+|[GCH]\d+)\*\*", LOCK))
    anchors |= set(re.findall(r"^## (L\d+) ", LOCK, re.MULTILINE))
    named = {rule.rstrip(".") for rule in re.findall(r"(?<![\w*.])L\d+(?:\.\d+)?", LOCK)}
    assert named <= anchors


def test_schemas_named_in_the_code_stand_on_the_page() -> None:
    code = "".join(path.read_text("utf-8") for path in (ROOT / "src/eps_locked/lock").glob("*.py"))
    code += "".join(
        path.read_text("utf-8") for path in (ROOT / "src/eps_locked/domain").glob("*.py")
    )
    schemas = set(re.findall(r"\"(eps-locked/[a-z-]+/\d)\"", code)) - {"eps-locked/plan/1"}
    assert schemas
    assert {schema for schema in schemas if schema not in LOCK} == set()


def test_the_offsets_of_the_stock_tool_command_are_right() -> None:
    data, digest = seal_document({"schema": "eps-locked/head/1", "seq": 0, "digest": "x"})
    assert "tail -c +95" in LOCK
    assert digest_bytes(data[94:-1]) == digest
    assert data[:82][-64:].decode() == digest.removeprefix("blake3:")


def test_every_command_is_mentioned() -> None:
    pages = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    text = "".join(page.read_text("utf-8") for page in pages if page.exists())
    assert [name for name in main._COMMANDS if not re.search(rf"\b{name}\b", text)] == []


def test_the_readme_mentions_every_command() -> None:
    readme = ROOT / "README.md"
    if not readme.exists():
        pytest.skip("there is no README.md yet")
    text = readme.read_text("utf-8")
    assert [name for name in main._COMMANDS if name not in text] == []


def test_decision_records_are_numbered_without_a_gap_and_say_what_was_turned_down() -> None:
    records = sorted((ROOT / "docs/adr").glob("*.md"))
    assert [path.name[:4] for path in records] == [f"{n:04d}" for n in range(1, len(records) + 1)]
    for path in records:
        text = path.read_text("utf-8")
        assert text.startswith(f"# {int(path.name[:4])}. "), path.name
        for heading in ("## Context", "## Decision", "## Turned down", "## Price"):
            assert heading in text, f"{path.name}: {heading}"
