"""A finished run as the folder that is published: composed, scanned, written once, compared.

The same run gives the same bytes. Every file is made twice: once to be scanned and measured, once
to be written; weights are never all in memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eps_locked import files
from eps_locked.audit.checksums import B3SUMS, SHA256SUMS, Sums, checksum_lists, name_trouble
from eps_locked.canonical import digest_bytes
from eps_locked.errors import EvidenceError, RefusedError
from eps_locked.publishing.cards import CardFacts, data_card, model_card
from eps_locked.publishing.data_repo import Config, Lazy, data_repo, licence_table
from eps_locked.publishing.layout import RunLayout
from eps_locked.publishing.licences import hub_licences, require_shareable
from eps_locked.publishing.model_repo import model_repo
from eps_locked.publishing.withheld import forbidden
from eps_locked.studies.eps.scores import FinishedRun

DATA, MODELS, BUNDLE = "data", "models", "bundle"
README = "README.md"


@dataclass(frozen=True, kw_only=True, slots=True)
class Publication:
    """What would be published. ``sums``: of every file of each repository, the lists included.

    ``left_out``: what of the material is withheld, for people. ``bundle_trouble``: why the
    evidence bundle may not lie beside the repositories; None if it may.
    """

    files: Mapping[str, Lazy]
    sums: Mapping[str, Sums]
    left_out: tuple[str, ...]
    bundle_trouble: str | None
    configs: tuple[Config, ...]
    n_adapters: int

    def of(self, repo: str) -> dict[str, Sums]:
        """Sums of one repository's files by their names in it."""
        return {
            name.removeprefix(f"{repo}/"): sums
            for name, sums in self.sums.items()
            if name.startswith(f"{repo}/")
        }

    def digest(self, repo: str) -> str:
        """One number for a repository: that of its SHA256SUMS."""
        return digest_bytes(self.files[f"{repo}/{SHA256SUMS}"]())


def compose(
    finished: FinishedRun, verdict: Mapping[str, Any], *, machine: tuple[str, ...] = ()
) -> Publication:
    """Everything that would be published, scanned; nothing is written.

    ``verdict``: the audit's, of exactly this run, all checks ok. ``machine``: paths and secrets of
    this process that must stand in no file. Raises RefusedError naming file and licence, or file
    and find.
    """
    layout = RunLayout(finished=finished)
    sources = layout.sources()
    require_shareable(sources.values(), model=layout.model())
    data = data_repo(layout, verdict)
    models, records = model_repo(layout, data.trained_on)
    facts = _facts(layout, verdict)
    data_files: dict[str, Lazy] = {
        **data.files,
        README: _constant(data_card(facts, data.configs, len(finished.history.looks))),
    }
    model_files: dict[str, Lazy] = {**models, README: _constant(model_card(facts, records))}
    scan = forbidden(layout, machine=machine)
    contents: dict[str, Lazy] = {}
    sums: dict[str, Sums] = {}
    for repo, made in ((DATA, data_files), (MODELS, model_files)):
        found = {}
        for name in sorted(made):
            trouble = name_trouble(name)
            if trouble is not None:
                raise RefusedError(repr(name), problem=trouble)
            content = made[name]()
            scan.require_absent(f"{repo}/{name}", content)
            found[name] = Sums.of(content)
        for name, content in checksum_lists(found).items():
            made[name], found[name] = _constant(content), Sums.of(content)
        contents |= {f"{repo}/{name}": made[name] for name in made}
        sums |= {f"{repo}/{name}": one for name, one in found.items()}
    return Publication(
        files=contents,
        sums=sums,
        left_out=tuple(source.withheld for source in sources.values() if source.withheld),
        bundle_trouble=_bundle_trouble(layout),
        configs=data.configs,
        n_adapters=len(records),
    )


def write(publication: Publication, folder: Path) -> bool:
    """Write the folder, whole or not at all. False if it lies there already, byte for byte.

    Raises RefusedError if something else lies there: nothing is ever overwritten.
    """
    if os.path.lexists(folder):
        require_same(publication, folder)
        return False
    files.publish_folder(folder, _Contents(publication=publication))
    return True


def require_same(publication: Publication, folder: Path) -> None:
    """Require that both repositories in ``folder`` are what the run gives, and nothing more."""
    present = {
        f"{repo}/{name}" for repo in (DATA, MODELS) for name in files.walk_files(folder / repo)
    }
    expected = set(publication.sums)
    details = [f"{name}: is missing" for name in sorted(expected - present)]
    details += [f"{name}: the run gives no such file" for name in sorted(present - expected)]
    for name in sorted(expected & present):
        if Sums.of_file(folder / name) != publication.sums[name]:
            details.append(f"{name}: holds other bytes than the run gives")
    beside = {path.name for path in folder.iterdir()} - {DATA, MODELS, BUNDLE}
    details += [f"{name}: the run gives no such file" for name in sorted(beside)]
    if details:
        raise RefusedError(
            str(folder),
            problem="is not what the run gives",
            details=tuple(details[:20]),
            next_step="move it away and write it again: eps-locked publish NAME --dry-run",
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Contents(Mapping[str, bytes]):
    """The files by name, made again when asked for. Lists of sums come last."""

    publication: Publication

    def __iter__(self) -> Iterator[str]:
        lists = (B3SUMS, SHA256SUMS)
        yield from sorted(self.publication.files, key=lambda n: (n.endswith(lists), n))

    def __len__(self) -> int:
        return len(self.publication.files)

    def __getitem__(self, name: str) -> bytes:
        data = self.publication.files[name]()
        if Sums.of(data) != self.publication.sums[name]:
            raise EvidenceError(
                name,
                problem="changed while it was being written",
                next_step="find out what writes into the run, then publish again",
            )
        return data


def _facts(layout: RunLayout, verdict: Mapping[str, Any]) -> CardFacts:
    frozen = layout.finished.frozen
    sources = [*layout.sources().values(), layout.model()]
    rows = {name: layout.row(name) for name in layout.rows()}
    return CardFacts(
        name=layout.name,
        title=frozen.manifest.title,
        author=frozen.manifest.author,
        manifest=frozen.digest,
        ledger_head=verdict["ledger_head"],
        n_entries=verdict["n_entries"],
        publishable=verdict["publishable"],
        base_model=layout.plan().base_model,
        licences=tuple(hub_licences(sources)),
        sources=licence_table(layout)["sources"],
        behaviours={name: row.title for name, row in rows.items()},
        n_held_back=len(layout.held_back()),
        n_cells=len(layout.fates()),
    )


def _bundle_trouble(layout: RunLayout) -> str | None:
    """A bundle holds the run as it is, every frozen source and every artifact of it."""
    withheld = [path for path, source in layout.sources().items() if source.withheld]
    if withheld:
        return f"it would hold the text of {', '.join(withheld)}, which may not be handed on"
    if layout.has_held_back_in_plain_text():
        return "it would hold cells of the final test in plain text: this plan does not seal them"
    return None


def _constant(data: bytes) -> Lazy:
    return lambda: data
