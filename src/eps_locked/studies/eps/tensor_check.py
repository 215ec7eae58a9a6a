"""A stored tensor beside the one that its readings give, of whatever kind its row is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eps_locked.canonical import decode
from eps_locked.studies.eps.analysis import (
    PARQUET_FILE,
    TENSOR_FILE,
    flat_rows,
    parquet_rows,
    tensor_files,
)

__all__ = ["tensor_differences"]


def tensor_differences(tensor: Mapping[str, Any], stored: Mapping[str, bytes]) -> list[str]:
    """One sentence per difference; the JSON byte for byte, the Parquet value for value."""
    differences = []
    if tensor_files(tensor)[TENSOR_FILE] != stored.get(TENSOR_FILE):
        differences += _named(tensor, decode(stored[TENSOR_FILE], thing=TENSOR_FILE))
    if flat_rows(tensor) != parquet_rows(stored[PARQUET_FILE]):
        differences.append(f"{PARQUET_FILE}: holds other values than {TENSOR_FILE}")
    return differences


def _named(expected: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Names the first fields and cells that differ; always at least one sentence."""
    differences = [
        f"{TENSOR_FILE}: {key}: expected {expected.get(key)}, found {found.get(key)}"
        for key in sorted({*expected, *found} - {"cells"})
        if expected.get(key) != found.get(key)
    ]
    for mine, theirs in zip(expected["cells"], found.get("cells", ()), strict=False):
        for key, value in mine.items():
            if theirs.get(key) != value:
                differences.append(
                    f"cell {mine['train']} -> {mine['eval']}: {key}: "
                    f"expected {value}, found {theirs.get(key)}"
                )
    return differences[:20] or [f"{TENSOR_FILE}: expected {len(expected['cells'])} other cells"]
