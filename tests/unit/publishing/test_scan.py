"""The scan finds what must not be published, in every form a file can hold it in."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from eps_locked.canonical import digest_bytes
from eps_locked.errors import RefusedError
from eps_locked.lock.seal import new_custodian_key, seal_files
from eps_locked.publishing.scan import Forbidden, joined

SCAN = Forbidden(
    held_back=frozenset({("marker", "a", "b")}),
    plaintexts=frozenset({digest_bytes(b'{"plain":"text"}')}),
    numbers=frozenset({-3.141592653589793}),
    texts=frozenset({"An answer that only a held-back cell has, word for word."}),
    passages={"the quiet harbour of a private diary": "outside.yaml"},
    runs={joined((11, 12, 13, 14, 15, 16, 17, 18)): "outside.yaml"},
    machine=("/srv/lab/study-7",),
)


def parquet(rows: list[dict[str, Any]]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return sink.getvalue()


def weights(header: dict[str, Any]) -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + b"\0" * 16


def as_json(value: Any) -> tuple[str, bytes]:
    return "f.json", json.dumps({"deep": [value]}).encode()


def as_lines(value: Any) -> tuple[str, bytes]:
    return "f.jsonl", b'{"other":1}\n' + json.dumps({"deep": [value]}).encode() + b"\n"


def as_table(value: Any) -> tuple[str, bytes]:
    return "f.parquet", parquet([{"other": 1, "found": value}])


FORMS = pytest.mark.parametrize("form", [as_json, as_lines, as_table])
Form = Callable[[Any], tuple[str, bytes]]


@FORMS
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (-3.141592653589793, "number that only a held-back cell has"),
        ("An answer that only a held-back cell has, word for word.", "must not be shown in full"),
        ("He wrote: the quiet harbour of a private diary, and so on", "outside.yaml"),
        ([9, 11, 12, 13, 14, 15, 16, 17, 18, 9], "token ids of outside.yaml"),
    ],
)
def test_values_texts_and_token_ids_are_found(form: Form, value: Any, words: str) -> None:
    with pytest.raises(RefusedError, match=words) as caught:
        SCAN.require_absent(*form(value))
    assert str(value) not in str(caught.value), "a refusal repeats what it hides"


@FORMS
@pytest.mark.parametrize(
    "value",
    [
        -3.14159265358979,
        "An answer that only a held-back cell has",
        "the quiet harbour",
        [11, 12, 13, 14, 15, 16, 17],
        [1, 11, 12, 13, 14, 15, 16, 17, 180],
        {"train": "a", "eval": "b", "flags": "sealed", "g": None},
        {"train": "b", "eval": "a", "flags": "", "g": 2.5},
    ],
)
def test_what_only_looks_alike_passes(form: Form, value: Any) -> None:
    SCAN.require_absent(*form(value))


@pytest.mark.parametrize("behaviour", [{}, {"behaviour": "marker"}])
def test_a_value_of_a_held_back_cell_is_found_whatever_the_value(behaviour: dict[str, str]) -> None:
    cell = {"train": "a", "eval": "b", "g": 0.5, "flags": ["sealed"], **behaviour}
    with pytest.raises(RefusedError, match="g of the held-back cell a -> b"):
        SCAN.require_absent("tensor.json", json.dumps({"cells": [cell]}).encode())


def test_a_cell_of_another_row_is_not_the_held_back_one() -> None:
    cell = {"behaviour": "fact", "train": "a", "eval": "b", "g": 0.5, "flags": []}
    SCAN.require_absent("tensor.json", json.dumps(cell).encode())


def test_sealed_files_and_their_plain_texts_are_found_under_any_name() -> None:
    _, recipients = new_custodian_key()
    sealed = seal_files({"readings.json": b"{}"}, recipients.encode())
    for name, data in (
        ("a/readings.json.age", b"anything"),
        ("a/notes.txt", sealed["readings.json.age"]),
        ("a/notes.txt", b"-----BEGIN AGE ENCRYPTED FILE-----\n..."),
    ):
        with pytest.raises(RefusedError, match="a sealed artifact"):
            SCAN.require_absent(name, data)
    with pytest.raises(RefusedError, match="plain text of a sealed artifact"):
        SCAN.require_absent("innocent.json", b'{"plain":"text"}')


@pytest.mark.parametrize(
    "secret",
    [
        "hf_" + "aB3" * 11,
        "sk-ant-" + "x9" * 16,
        "ghp_" + "A1" * 18,
        "AKIA" + "ABCDEFGH12345678",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\n",
        "AGE-SECRET-KEY-1" + "Q" * 58,
        "cache in /home/someone/.cache",
        "cache in /root/.cache",
        '"/Users/some.one/x"',
        "C:\\Users\\someone",
        "see /srv/lab/study-7/runs",
    ],
)
@pytest.mark.parametrize("name", ["README.md", "f.json", "w.safetensors"])
def test_keys_tokens_and_paths_of_people_are_found(secret: str, name: str) -> None:
    data = {
        "README.md": f"text\n{secret}\n".encode(),
        "f.json": json.dumps([secret]).encode(),
        "w.safetensors": weights({"__metadata__": {"note": secret}}),
    }[name]
    with pytest.raises(RefusedError) as caught:
        SCAN.require_absent(name, data)
    assert caught.value.thing == name
    assert secret not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "https://example.org/home/page and https://example.org/Users/x",
        "the square/root of 2, risk-averse, task-sk-1",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG5vdGhpbmcgc2VjcmV0 a@b",
        "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kudsj8h0slhqv3e",
    ],
)
def test_public_keys_and_addresses_pass(text: str) -> None:
    SCAN.require_absent("README.md", text.encode())


def test_weights_are_not_read_as_text() -> None:
    SCAN.require_absent("w.safetensors", weights({"a": 1}) + b"/root/ hf_" + b"a" * 40)
