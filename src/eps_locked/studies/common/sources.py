"""Material that a plan takes from a public source: sampled once, frozen as it was sampled.

A plan names ``sources/sampled/NAME.json``; the spec it was drawn by is ``sources/NAME.yaml``. Both
are frozen with the manifest, so freezing again needs no download, and the digests of the files it
was drawn from are in the sampled document.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eps_locked import files
from eps_locked.data.obtain import Obtain
from eps_locked.data.sampled import (
    Sampled,
    as_contexts,
    as_items,
    as_labelled,
    as_written_rows,
    read_sampled,
    require_from,
)
from eps_locked.data.sampling import sample
from eps_locked.data.spec import read_spec
from eps_locked.domain.model import ChatTokenizer
from eps_locked.errors import MalformedInputError, RefusedError
from eps_locked.lock.freeze import SourceReader
from eps_locked.lock.workspace import Workspace

__all__ = [
    "SAMPLED",
    "draw_sources",
    "is_sampled",
    "read_labelled_value",
    "read_material_value",
    "require_template",
    "spec_of",
    "write_sources",
]

SAMPLED = "sources/sampled/"
_PARTS = {"contexts": as_contexts, "items": as_items, "rows": as_written_rows}


def is_sampled(relative: str) -> bool:
    """Whether a plan's path names material drawn from a public source."""
    return relative.startswith(SAMPLED)


def spec_of(relative: str) -> str:
    """The spec that a sampled document is drawn by, as a path below ``plans/``."""
    name = relative.removeprefix(SAMPLED).removesuffix(".json")
    if "/" in name or not relative.endswith(".json") or not name:
        raise MalformedInputError(
            f"plans/{relative}", expected=f"{SAMPLED}NAME.json", found=relative
        )
    return f"sources/{name}.yaml"


def read_material_value(reader: SourceReader, relative: str, *, thing: str, part: str) -> Any:
    """The value of a material file: strict YAML, or a part of a sampled document in its form.

    ``part``: contexts, items or rows.
    """
    if not is_sampled(relative):
        return reader.read_yaml(relative, thing=thing)
    return _PARTS[part](_sampled(reader, relative, thing))


def read_labelled_value(reader: SourceReader, relative: str, *, thing: str, rubric: str) -> Any:
    """The same for a set of labelled answers, labelled under this rubric."""
    if not is_sampled(relative):
        return reader.read_yaml(relative, thing=thing)
    return as_labelled(_sampled(reader, relative, thing), rubric)


def require_template(reader: SourceReader, relative: str, tokenizer: ChatTokenizer) -> None:
    """Require that token lengths were measured with the plan's own chat template."""
    if not is_sampled(relative):
        return
    found = _sampled(reader, relative, "sampled source").template
    if found is not None and found != tokenizer.template_digest:
        raise RefusedError(
            f"plans/{relative}",
            problem="was sampled under another chat template",
            expected=tokenizer.template_digest,
            found=found,
            next_step=f"remove plans/{relative} and draw it again for this model",
        )


def draw_sources(
    workspace: Workspace,
    wanted: Sequence[str],
    obtain: Obtain,
    tokenizer: ChatTokenizer,
    forbid: Sequence[str],
) -> dict[str, bytes]:
    """Sampled documents that are not there yet, drawn now; by path below ``plans/``."""
    drawn = {}
    for relative in wanted:
        if not is_sampled(relative) or _path(workspace, relative).exists():
            continue
        spec = spec_of(relative)
        data = workspace.read_source(spec, thing="source spec")
        drawn[relative] = sample(data, f"plans/{spec}", obtain, tokenizer, forbid=forbid)
    return drawn


def write_sources(workspace: Workspace, drawn: Mapping[str, bytes]) -> None:
    """File drawn documents in the workspace, where the next freeze finds them."""
    for relative, data in drawn.items():
        files.replace_file(_path(workspace, relative), data)


def _path(workspace: Workspace, relative: str) -> Path:
    return workspace.root / "plans" / relative


def _sampled(reader: SourceReader, relative: str, thing: str) -> Sampled:
    sampled = read_sampled(reader.read(relative, thing=thing), f"plans/{relative}")
    data = reader.read(spec_of(relative), thing="source spec")
    # Read, and not compared by digest alone: a spec that drawing would refuse freezes nothing.
    spec = read_spec(data, f"plans/{spec_of(relative)}")
    require_from(sampled, data, f"plans/{relative}")
    for key in ("dataset", "revision", "licence", "redistribute"):
        expected, found = getattr(spec, key), getattr(sampled, key)
        if expected != found:
            raise MalformedInputError(
                f"plans/{relative}: {key}",
                expected=expected,
                found=found,
                next_step=f"remove plans/{relative} and draw it again",
            )
    return sampled
