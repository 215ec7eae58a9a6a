"""docs/sources.md names every kind, form, reason and shipped spec as the code does."""

from __future__ import annotations

import re
from pathlib import Path

from eps_locked.data.reasons import REASONS
from eps_locked.data.spec import FORMS, KINDS, read_spec

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/sources.md").read_text("utf-8")


def test_every_reason_stands_in_the_page_with_its_sentence() -> None:
    section = PAGE.split("## Reasons")[1].split("## Licences")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE))
    assert rows == REASONS


def test_every_kind_stands_in_the_page_with_its_forms_and_part() -> None:
    section = PAGE.split("### Prefixes")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| (\w+) \|", section, re.MULTILINE)
    found = {kind: (tuple(re.findall(r"`(\w+)`", forms)), part) for kind, forms, part in rows}
    assert found == {kind: (FORMS[kind], part) for kind, part in KINDS.items()}


def test_the_table_of_licences_is_that_of_the_shipped_specs() -> None:
    section = PAGE.split("## Licences")[1]
    rows = dict(re.findall(r"^\| `([\w-]+)` \| [^|]+ \| (yes|no)\b", section, re.MULTILINE))
    specs = [
        read_spec(path.read_bytes(), path.name) for path in (ROOT / "plans/sources").glob("*.yaml")
    ]
    assert rows == {spec.name: "yes" if spec.redistribute else "no" for spec in specs}
