"""Foreign files to rows: JSON Lines, JSON, CSV, Parquet and YAML, from the bytes that were hashed.

Nothing is guessed: a CSV cell stays text, a null stays None, and no library's cache stands between
the digest and the value. A file that is not what its name says is an error that names file and
row; what a row holds is judged by whoever reads it.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from eps_locked.errors import MalformedInputError

Row = tuple[str, Mapping[str, Any]]
_LARGEST_CELL = 1 << 26
_LARGEST_YAML = 1 << 20
_YamlLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_rows(
    name: str,
    data: bytes,
    *,
    columns: Sequence[str] = (),
    optional: Sequence[str] = (),
    key: str | None = None,
) -> Iterator[Row]:
    """The rows of a file, each with where it stands ("file: row 3"), counted from 1.

    ``columns`` are required of a table's header and ``optional`` read where they exist; other
    columns of a Parquet file are never touched. ``key`` names the list inside a JSON object.
    Raises MalformedInputError naming file, row and what was expected.
    """
    suffix = name.rpartition(".")[2].lower()
    if suffix in ("jsonl", "ndjson"):
        return _json_lines(name, data)
    if suffix == "json":
        return _json_list(name, data, key)
    if suffix == "csv":
        return _csv_rows(name, data, columns)
    if suffix == "parquet":
        return _parquet_rows(name, data, columns, optional)
    if suffix in ("yaml", "yml"):
        return _yaml_list(name, data)
    raise MalformedInputError(
        name, expected="a .jsonl, .json, .csv, .parquet or .yaml file", found=f".{suffix}"
    )


def read_json(name: str, data: bytes) -> Any:
    """The value of a foreign JSON file; NaN and infinities, which some writers use, become None."""
    return _parse_json(name, _decode(name, data))


def _json_lines(name: str, data: bytes) -> Iterator[Row]:
    # Split on LF alone: texts hold U+2028, U+0085 and bare CR, which splitlines would cut at.
    for number, line in enumerate(_decode(name, data).split("\n"), start=1):
        if line.strip():
            where = f"{name}: row {number}"
            yield where, _mapping(where, _parse_json(where, line))


def _json_list(name: str, data: bytes, key: str | None) -> Iterator[Row]:
    value = read_json(name, data)
    if key is not None:
        value = _mapping(name, value).get(key)
    if not isinstance(value, list):
        where = name if key is None else f"{name}: {key}"
        raise MalformedInputError(where, expected="a list of objects", found=_kind(value))
    for number, row in enumerate(value, start=1):
        where = f"{name}: row {number}"
        yield where, _mapping(where, row)


def _csv_rows(name: str, data: bytes, columns: Sequence[str]) -> Iterator[Row]:
    # newline="": cells span lines, and CRLF inside one belongs to it.
    stream = io.StringIO(_decode(name, data), newline="")
    before = csv.field_size_limit(_LARGEST_CELL)
    try:
        reader = csv.reader(stream, strict=True)
        header = next(reader, [])
        _require_columns(name, columns, header)
        table = list(enumerate(reader, start=1))
    except csv.Error as error:
        raise MalformedInputError(
            f"{name}: line {reader.line_num}", problem=f"is not CSV ({error})"
        ) from error
    finally:
        csv.field_size_limit(before)
    for number, cells in table:
        where = f"{name}: row {number}"
        if not cells:
            continue
        if len(cells) != len(header):
            raise MalformedInputError(
                where,
                expected=f"{len(header)} cells",
                found=len(cells),
                next_step="look for a quote that is not closed, or get the file again",
            )
        yield where, dict(zip(header, cells, strict=True))


def _parquet_rows(
    name: str, data: bytes, columns: Sequence[str], optional: Sequence[str]
) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(pa.BufferReader(data))
        held = table.schema_arrow.names
        _require_columns(name, columns, held)
        wanted = [column for column in held if column in {*columns, *optional}]
        number = 0
        for batch in table.iter_batches(batch_size=1024, columns=wanted or None):
            for row in batch.to_pylist():
                number += 1
                yield f"{name}: row {number}", row
    except (pa.ArrowException, OSError) as error:
        raise MalformedInputError(name, problem=f"is not Parquet ({error})") from error


def _yaml_list(name: str, data: bytes) -> Iterator[Row]:
    """Foreign YAML, anchors and aliases resolved. Safe tags only, and a bounded size.

    Aliases share one object in memory, so a file that multiplies them costs nothing until somebody
    walks it; only named fields of each item are read.
    """
    if len(data) > _LARGEST_YAML:
        raise MalformedInputError(
            name, expected=f"at most {_LARGEST_YAML} bytes of YAML", found=len(data)
        )
    try:
        value = yaml.load(_decode(name, data), Loader=_YamlLoader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        problem = " ".join(str(error).split())
        raise MalformedInputError(name, problem=f"is not YAML ({problem})") from error
    if not isinstance(value, list):
        raise MalformedInputError(name, expected="a list of items", found=_kind(value))
    for number, row in enumerate(value, start=1):
        where = f"{name}: row {number}"
        yield where, _mapping(where, row)


def _decode(name: str, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = data[: error.start].count(b"\n") + 1
        raise MalformedInputError(
            f"{name}: line {row}", expected="UTF-8", found=f"byte {data[error.start]:#04x}"
        ) from error


def _parse_json(where: str, text: str) -> Any:
    try:
        return json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:
        raise MalformedInputError(where, expected="JSON", found=f"an error ({error})") from error


def _mapping(where: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise MalformedInputError(where, expected="an object", found=_kind(value))
    return value


def _require_columns(name: str, columns: Sequence[str], held: Sequence[str]) -> None:
    missing = [column for column in columns if column not in held]
    if missing:
        raise MalformedInputError(
            f"{name}: header",
            expected=f"the columns {', '.join(columns)}",
            found=f"no {', '.join(missing)} among {', '.join(held) or 'nothing'}",
        )


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
