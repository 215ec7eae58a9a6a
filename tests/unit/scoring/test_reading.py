"""Files to tensors: what a table may say, what is averaged, flagged and turned, and refused."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from eps_locked.canonical import encode
from eps_locked.errors import MalformedInputError
from eps_locked.scoring.contexts import read_contexts
from eps_locked.scoring.reading import TENSOR_SCHEMA, TableOptions, read_tensor
from eps_locked.scoring.tensor import ScoreTensor

HEAD = "train,eval,g"
ROWS = ["a,a,9", "a,b,1", "b,a,2", "b,b,8"]


def read(*lines: str, head: str = HEAD, **options: Any) -> ScoreTensor:
    text = "\n".join([head, *(lines or ROWS)]) + "\n"
    options.setdefault("behaviour", "marker")
    return read_tensor([("table.csv", text.encode())], TableOptions(**options))


def cell(tensor: ScoreTensor, i: str, j: str) -> Any:
    (found,) = [c for c in tensor.tables[0].cells if (c.train, c.eval) == (i, j)]
    return found


def refusal(*lines: str, **options: Any) -> str:
    with pytest.raises(MalformedInputError) as caught:
        read(*lines, **options)
    return str(caught.value)


def test_a_plain_table_is_read_in_its_order_and_the_diagonal_is_not_scored() -> None:
    tensor = read()
    assert tensor.tables[0].train == ("a", "b")
    assert [c.g for c in tensor.tables[0].cells] == [9, 1, 2, 8]
    assert cell(tensor, "a", "a").reasons() == ("diagonal",)
    assert cell(tensor, "a", "b").reasons() == ()


def test_seeds_of_a_cell_are_averaged_and_kept() -> None:
    lines = [f"{i},{j},{s},{v + s}" for i, j, v in (("a", "b", 1), ("b", "b", 5)) for s in (1, 3)]
    found = cell(read(*lines, head="train,eval,seed,g"), "a", "b")
    assert found.g == 3
    assert found.by_seed == {"1": 2.0, "3": 4.0}


def test_standard_errors_of_seeds_become_that_of_their_mean() -> None:
    lines = ["a,b,1,0,3", "a,b,2,0,4"]
    assert cell(read(*lines, head="train,eval,seed,g,se"), "a", "b").se == 2.5


def test_parquet_and_json_records_say_what_csv_says() -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{"train": i, "eval": j, "g": float(g)} for i, j, g in (r.split(",") for r in ROWS)]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    options = TableOptions(behaviour="marker")
    expected = read().tables
    assert read_tensor([("t.parquet", sink.getvalue())], options).tables == expected
    assert read_tensor([("t.json", json.dumps(rows).encode())], options).tables == expected


def test_columns_are_renamed_and_what_nobody_names_is_listed() -> None:
    tensor = read(
        "a,b,1,x",
        head="from,to,delta,colour",
        columns={"train": "from", "eval": "to", "g": "delta"},
    )
    assert cell(tensor, "a", "b").g == 1
    assert tensor.ignored == ("colour",)


def test_one_column_may_be_read_as_two() -> None:
    tensor = read(
        "a,b,0", head="train,eval,rate", columns={"g": "rate", "trained": "rate"}, rates=True
    )
    assert "floor" in cell(tensor, "a", "b").flags


def test_a_direction_of_down_turns_g_its_seeds_and_its_bounds() -> None:
    tensor = read("a,b,7,-0.25,-0.75,0.25", head="train,eval,seed,g,lower,upper", direction="down")
    found = cell(tensor, "a", "b")
    assert (found.g, found.lower, found.upper) == (0.25, -0.25, 0.75)
    assert found.by_seed == {"7": 0.25}


@pytest.mark.parametrize(
    ("base", "trained", "direction", "flags"),
    [
        (0.0, 0.0, "up", {"floor"}),
        (0.0, 1.0, "up", {"ceiling"}),
        (0.05, 0.5, "up", set()),
        (0.2, 0.5, "up", {"ceiling", "base_ceiling"}),
        (1.0, 1.0, "down", {"floor"}),
        (0.9, 0.0, "down", {"ceiling"}),
        (0.5, 0.4, "down", {"ceiling", "base_ceiling"}),
    ],
)
def test_shares_at_an_end_and_bases_without_room_are_flagged(
    base: float, trained: float, direction: str, flags: set[str]
) -> None:
    tensor = read(
        f"a,b,{trained - base},{base},{trained}",
        head="train,eval,g,base,trained",
        rates=True,
        direction=direction,
        room=0.9,
    )
    assert set(cell(tensor, "a", "b").flags) == flags


def test_the_bounds_of_a_rate_are_what_its_base_leaves() -> None:
    tensor = read("a,b,0.25,0.25,0.5", head="train,eval,g,base,trained", rates=True)
    assert (cell(tensor, "a", "b").lower, cell(tensor, "a", "b").upper) == (-0.25, 0.75)


def test_a_row_whose_diagonal_stays_low_has_failed_and_only_that_row() -> None:
    tensor = read("a,a,0.1", "a,b,1", "b,a,1", "b,b,4", implant_threshold=0.5)
    failed = {(c.train, c.eval) for c in tensor.tables[0].cells if "implant_failed" in c.flags}
    assert failed == {("a", "a"), ("a", "b")}


def test_an_empty_g_is_an_unscored_cell_and_no_error() -> None:
    assert cell(read("a,a,1", "a,b,", "b,a,2", "b,b,3"), "a", "b").reasons() == ("unscored",)


def test_a_table_of_contexts_gives_families_groups_and_held_out_columns() -> None:
    contexts = read_contexts(
        b"id,family,group,held_out\na,persona,,0\nb,prefix,a,1\n", "csv", thing="contexts.csv"
    )
    tensor = read(contexts=contexts)
    assert tensor.tables[0].families == {"a": "persona", "b": "prefix"}
    assert tensor.tables[0].groups == {"a": "a", "b": "a"}
    assert cell(tensor, "a", "b").reasons() == ("set_apart",)
    assert cell(tensor, "a", "b").reasons(final=True) == ()


def document(**changes: Any) -> dict[str, Any]:
    def one(i: str, j: str, g: float | None, **more: Any) -> dict[str, Any]:
        return {
            "train": i,
            "eval": j,
            "train_family": "persona",
            "eval_family": "persona",
            "split": "open",
            "g": g,
            "flags": [],
            "alias_of": None,
            "prefix_tokens": 12,
            "realised_strength": 7.5,
            "by_seed": [{"seed": 1, "g": g}],
            **more,
        }

    sealed = one("a", "c", None, flags=["sealed"], split="held_out", by_seed=[])
    alias = one("a", "d", 5.5, flags=["alias"], alias_of="a")
    return {
        "schema": TENSOR_SCHEMA,
        "behaviour": "marker",
        "unit": "nats",
        "train": ["a"],
        "eval": ["a", "b", "c", "d"],
        "cells": [one("a", "a", 5.0), one("a", "b", 1.0), sealed, alias],
        **changes,
    }


def read_document(value: Any, **options: Any) -> ScoreTensor:
    return read_tensor([("tensor.json", encode(value))], TableOptions(**options))


def test_our_own_document_is_read_with_seals_aliases_seeds_and_covariates() -> None:
    tensor = read_document(document(), unit="nats")
    table = tensor.tables[0]
    assert [c.reasons() for c in table.cells] == [("diagonal",), (), ("sealed",), ("alias",)]
    assert table.groups["d"] == "a"
    assert cell(tensor, "a", "b").prefix_tokens == 12
    assert cell(tensor, "a", "b").realised_strength == 7.5
    assert table.seeds == ("1",)


def test_several_files_make_one_tensor_but_a_behaviour_stands_once() -> None:
    both = [("t.json", encode(document())), ("u.json", encode(document(behaviour="fact")))]
    assert read_tensor(both).behaviours == ("marker", "fact")
    with pytest.raises(MalformedInputError, match="each behaviour once"):
        read_tensor([both[0], both[0]])


@pytest.mark.parametrize(
    ("lines", "options", "words"),
    [
        (["a,a,1", "a,b,1", "b,a,1"], {}, "row b misses 1 of 2 eval contexts (b)"),
        (["a,a,1", "a,a,1"], {}, "cell a -> a stands twice"),
        (["a,a,nan"], {}, "expected a finite number, found 'nan'"),
        (["a,a,inf"], {}, "expected a finite number"),
        (["a,a,high"], {}, "expected a number, found 'high'"),
        (["a,,1"], {}, "a row without train or eval context"),
        (["a,a,1,nats", "a,b,1,rate"], {"head": HEAD + ",unit"}, "units nats and rate"),
        (["a,a,1,nats"], {"head": HEAD + ",unit", "unit": "rate"}, "unit nats, expected rate"),
        (["a,a,1,nats"], {"head": HEAD + ",unit", "rates": True}, "--rates was given"),
        (["a,b,40"], {"rates": True}, "g is 40.0, expected a change of a share"),
        (["a,b,0.2,0.1,0.2"], {"head": HEAD + ",base,trained"}, "but trained - base is 0.1"),
        (["a,b,1,-1"], {"head": HEAD + ",se"}, "se is -1.0, below 0"),
        (["a,b,1,secret"], {"head": HEAD + ",split"}, "split secret, expected open or"),
        (["a,b,1,sealed"], {"head": HEAD + ",flags"}, "is sealed and holds a value"),
        (
            ["a,a,1,x,x", "a,b,1,y,x", "b,a,1,x,x", "b,b,1,x,x"],
            {"head": HEAD + ",train_family,eval_family"},
            "context a is of family x and y",
        ),
    ],
)
def test_what_is_wrong_with_a_table_is_named(
    lines: list[str], options: dict[str, Any], words: str
) -> None:
    assert words in refusal(*lines, **options)


def test_all_problems_are_listed_at_once() -> None:
    message = refusal("a,a,nan", "a,b,1", "a,b,2", "b,a,x")
    for words in ("cell a -> b stands twice", "row b misses 1", "found 'nan'", "found 'x'"):
        assert words in message
    assert "(4 problems)" in message


def test_a_context_that_the_table_of_contexts_lacks_is_refused() -> None:
    contexts = read_contexts(b"id,family\na,persona\n", "csv", thing="contexts.csv")
    assert "context b is not in the table of contexts" in refusal(contexts=contexts)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schema": "eps-locked/eps-tensor/2"}, "expected schema eps-locked/eps-tensor/1"),
        ({"eval": ["a", "b", "c", "d", "e"]}, "cell a -> e of its own lists is missing"),
        ({"eval": ["a", "b", "c"]}, "cell a -> d is not in its own lists"),
        ({"cells": [{}]}, "is no tensor document"),
        ({"cells": 5}, "is no tensor document"),
    ],
)
def test_a_document_that_is_not_what_it_says_is_refused(
    changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(MalformedInputError, match=words.replace("->", "-.")):
        read_document(document(**changes))


@pytest.mark.parametrize(
    ("data", "name", "words"),
    [
        (b"train,eval,g\na,b\n", "t.csv", "line 2 has 2 fields"),
        (b"train,train,g\na,b,1\n", "t.csv", "column train stands twice"),
        (b"", "t.csv", "holds no rows"),
        (b"\xff\xfe", "t.csv", "no readable csv table"),
        (b"PAR1", "t.parquet", "no readable parquet table"),
        (b"[1]", "t.json", "expected a list of objects"),
        (b'[{"g":NaN}]', "t.json", "NaN is not JSON"),
        (b'[{"g":1,"g":2}]', "t.json", "a key twice"),
        (b"x", "t.xlsx", "expected csv or parquet or json"),
    ],
)
def test_a_file_that_is_no_table_is_refused(data: bytes, name: str, words: str) -> None:
    with pytest.raises(MalformedInputError, match=words):
        read_tensor([(name, data)], TableOptions(behaviour="marker"))
