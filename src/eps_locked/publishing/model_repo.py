"""The model repository: one folder per adapter, in the layout PEFT loads, with its record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from eps_locked.canonical import encode
from eps_locked.publishing.data_repo import Lazy
from eps_locked.publishing.layout import RunLayout
from eps_locked.publishing.parts import Adapter, Source

RECORD = "record.json"


def adapter_folder(adapter: Adapter) -> str:
    return f"{adapter.row}/{adapter.context}/s{adapter.seed}"


def model_repo(
    layout: RunLayout, trained_on: Mapping[tuple[str, str, int], Sequence[Source]]
) -> tuple[dict[str, Lazy], list[dict[str, Any]]]:
    """Files by name, and the record of each adapter for the card.

    ``trained_on``: by (row, context, seed), as the data repository found it.
    """
    files: dict[str, Lazy] = {}
    records = []
    for row in layout.rows():
        tensor = layout.tensor(row)
        for adapter in layout.adapters(row):
            sources = trained_on[row, adapter.context, adapter.seed]
            record = _record(adapter, tensor, sources)
            folder = adapter_folder(adapter)
            for name in sorted(adapter.artifact.files):
                files[f"{folder}/{name}"] = partial(layout.adapter_file, adapter.artifact, name)
            files[f"{folder}/{RECORD}"] = partial(encode, record)
            records.append({"folder": folder, **record})
    index = {"schema": "eps-locked/published-adapters/1", "adapters": records}
    files["adapters.json"] = partial(encode, index)
    return files, records


def _record(
    adapter: Adapter, tensor: Mapping[str, Any], sources: Sequence[Source]
) -> dict[str, Any]:
    (own,) = (
        one
        for cell in tensor["cells"]
        if (cell["train"], cell["eval"]) == (adapter.context, adapter.context)
        for one in cell["by_seed"]
        if one["seed"] == adapter.seed
    )
    return {
        "schema": "eps-locked/published-adapter/1",
        "behaviour": adapter.row,
        "train_context": adapter.context,
        "seed": adapter.seed,
        "step": adapter.step,
        "realised_strength": own["realised_strength"],
        "implant_failed": own["implant_failed"],
        "flags": list(adapter.flags),
        "artifact": adapter.artifact.digest,
        "files": {
            name: record.to_dict() for name, record in sorted(adapter.artifact.files.items())
        },
        "training": dict(adapter.record),
        "trained_on": [
            {"source": one.path, "licence": one.licence, "text_published": one.redistribute}
            for one in sources
        ],
    }
