"""Files to a ``ScoreTensor``: our own tensor documents, and tables that others measured.

Everything wrong with the files is listed at once, and nothing is guessed: a g that is not finite, a
cell twice, a hole in the grid or a second unit is a refusal, not a repair.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from eps_locked.canonical import decode
from eps_locked.errors import MalformedInputError
from eps_locked.scoring.contexts import SPLITS, ContextFacts
from eps_locked.scoring.tables import Problems, Row, number_or_none, read_rows, text_or_none
from eps_locked.scoring.tensor import BehaviourTable, Cell, ScoreTensor

__all__ = ["TENSOR_SCHEMA", "TableOptions", "read_tensor", "tensor_from_documents"]

TENSOR_SCHEMA = "eps-locked/eps-tensor/1"
UNSTATED = "unstated"
RATE = "rate"
_TEXTS = (
    "behaviour",
    "train",
    "eval",
    "seed",
    "unit",
    "train_family",
    "eval_family",
    "split",
    "flags",
    "alias_of",
)
_NUMBERS = (
    "g",
    "se",
    "n",
    "base",
    "trained",
    "lower",
    "upper",
    "prefix_tokens",
    "realised_strength",
)
# g is often stored rounded; beyond this the three columns are not of one measurement.
_ROUNDED = 1e-3


@dataclass(frozen=True, kw_only=True, slots=True)
class TableOptions:
    """What a table does not say itself. docs/scoring.md S1.3 to S1.8 gives each one's meaning."""

    behaviour: str | None = None
    unit: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    direction: str = "up"
    rates: bool = False
    room: float = 0.9
    implant_threshold: float | None = None
    contexts: Mapping[str, ContextFacts] | None = None

    def __post_init__(self) -> None:
        if self.direction not in ("up", "down"):
            raise MalformedInputError("direction", expected="up or down", found=self.direction)
        if not 0 <= self.room <= 1:
            raise MalformedInputError("room", expected="a share in [0, 1]", found=self.room)
        unknown = sorted(set(self.columns) - set(_TEXTS) - set(_NUMBERS))
        if unknown:
            raise MalformedInputError(
                f"column {unknown[0]}",
                problem="is not one a tensor has",
                next_step=f"known: {', '.join(_TEXTS + _NUMBERS)}",
            )


def read_tensor(
    sources: Sequence[tuple[str, bytes]], options: TableOptions | None = None
) -> ScoreTensor:
    """One tensor from files, each given as (name, bytes); the ending of a name tells its kind.

    Raises MalformedInputError as docs/scoring.md S1.9 says, for a behaviour that stands in two
    files, and for no file.
    """
    options = options or TableOptions()
    tables: list[BehaviourTable] = []
    ignored: dict[str, None] = {}
    for name, data in sources:
        kind = name.rpartition(".")[2].lower()
        if kind == "json" and data.lstrip()[:1] == b"{":
            tables.append(_from_document(decode(data, thing=name), name, options))
        else:
            found, extra = _from_table(data, kind, name, options)
            tables += found
            ignored.update(dict.fromkeys(extra))
    return _joined(tables, tuple(ignored))


def tensor_from_documents(
    documents: Sequence[Mapping[str, Any]], options: TableOptions | None = None
) -> ScoreTensor:
    """The same from decoded tensor documents of ours, one per behaviour."""
    options = options or TableOptions()
    return _joined([_from_document(one, "tensor.json", options) for one in documents], ())


def _joined(tables: Sequence[BehaviourTable], ignored: tuple[str, ...]) -> ScoreTensor:
    names = [table.behaviour for table in tables]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled or not names:
        raise MalformedInputError(
            "tensor", expected="each behaviour once, at least one", found=doubled or "none"
        )
    return ScoreTensor(tables=tuple(tables), ignored=ignored)


# --- our documents --------------------------------------------------------------------------------


def _from_document(document: Any, name: str, options: TableOptions) -> BehaviourTable:
    schema = document.get("schema") if isinstance(document, Mapping) else None
    if schema != TENSOR_SCHEMA:
        raise MalformedInputError(name, expected=f"schema {TENSOR_SCHEMA}", found=schema)
    rows: list[Row] = []
    problems = Problems(name)
    try:
        behaviour, unit = str(document["behaviour"]), str(document["unit"])
        promised = {(i, j) for i in document["train"] for j in document["eval"]}
        for number, cell in enumerate(document["cells"], start=1):
            row = {
                **cell,
                "se": cell.get("standard_error", cell.get("se")),
                "flags": " ".join(cell["flags"]),
                # The diagonal is open; that it is not scored follows from train and eval.
                "split": "open" if cell["split"] == "diagonal" else cell["split"],
                "seed": None,
            }
            seeds = {str(one["seed"]): number_or_none(one["g"]) for one in cell.get("by_seed", ())}
            rows.append({**_parsed(row, number, problems), "seeds": seeds})
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise MalformedInputError(name, problem=f"is no tensor document ({error!r})") from error
    _require_unit(unit, options, problems)
    found = {(row["train"], row["eval"]) for row in rows}
    for i, j in sorted(promised - found):
        problems.add(f"cell {i} -> {j} of its own lists is missing")
    for i, j in sorted(found - promised):
        problems.add(f"cell {i} -> {j} is not in its own lists")
    # The study has set its flags by its frozen rules; none is added here.
    own = replace(options, rates=False, direction="up", implant_threshold=None)
    table = _table(behaviour, unit, rows, own, problems)
    problems.raise_if_any("is no tensor that can be scored")
    if table is None:
        raise RuntimeError("a table was refused without a problem")
    return replace(table, groups=_merged(table.groups, document.get("near_duplicates", ())))


def _merged(groups: Mapping[str, str], alike: Sequence[Sequence[str]]) -> dict[str, str]:
    """Groups with those of near-duplicates joined under the first one's name."""
    joined = dict(groups)
    for names in alike:
        target = joined[names[0]]
        old = {joined[name] for name in names}
        joined = {name: target if group in old else group for name, group in joined.items()}
    return joined


# --- tables ---------------------------------------------------------------------------------------


def _from_table(
    data: bytes, kind: str, name: str, options: TableOptions
) -> tuple[list[BehaviourTable], list[str]]:
    rows = read_rows(data, kind, thing=name, renamed=options.columns)
    columns = rows[0].keys()
    problems = Problems(name)
    for needed in ("train", "eval", "g"):
        if needed not in columns:
            problems.add(f"column {needed} is missing")
    problems.raise_if_any(
        "is no tensor", next_step=f"name the columns with --column; it has: {', '.join(columns)}"
    )
    if "behaviour" not in columns and options.behaviour is None:
        raise MalformedInputError(
            name, problem="has no behaviour column", next_step="name the behaviour: --behaviour"
        )
    by_behaviour: dict[str, list[Row]] = {}
    for number, row in enumerate(rows, start=1):
        parsed = _parsed(row, number, problems)
        behaviour = parsed.get("behaviour") or options.behaviour
        if behaviour is None:
            problems.add(f"row {number}: no behaviour")
            continue
        by_behaviour.setdefault(behaviour, []).append(parsed)
    tables = []
    for behaviour, found in by_behaviour.items():
        units = sorted({row["unit"] for row in found if row.get("unit")})
        if len(units) > 1:
            problems.add(f"{behaviour}: units {' and '.join(units)} in one behaviour")
        unit = units[0] if units else options.unit or (RATE if options.rates else UNSTATED)
        _require_unit(unit, options, problems, behaviour)
        rates = options.rates or unit == RATE
        table = _table(behaviour, unit, found, replace(options, rates=rates), problems)
        if table is not None:
            tables.append(table)
    problems.raise_if_any("is no tensor that can be scored")
    known = {*_TEXTS, *_NUMBERS}
    return tables, [column for column in columns if column not in known]


def _parsed(row: Row, number: int, problems: Problems) -> dict[str, Any]:
    parsed: dict[str, Any] = {}
    for keys, read in ((_TEXTS, text_or_none), (_NUMBERS, number_or_none)):
        for key in keys:
            try:
                parsed[key] = read(row.get(key))
            except ValueError as error:
                parsed[key] = None
                problems.add(
                    f"row {number}, {row.get('train')} -> {row.get('eval')}: {key}: {error}"
                )
    return parsed


def _require_unit(
    unit: str, options: TableOptions, problems: Problems, behaviour: str = ""
) -> None:
    where = f"{behaviour}: " if behaviour else ""
    if options.unit is not None and unit != options.unit:
        problems.add(f"{where}unit {unit}, expected {options.unit}")
    if options.rates and unit not in (RATE, UNSTATED):
        problems.add(f"{where}unit {unit}, expected {RATE}: --rates was given")


# --- cells ----------------------------------------------------------------------------------------


def _table(
    behaviour: str, unit: str, rows: Sequence[Row], options: TableOptions, problems: Problems
) -> BehaviourTable | None:
    """The table of one behaviour, or None when problems were found."""
    before = len(problems)
    merged: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        i, j = row.get("train"), row.get("eval")
        if not isinstance(i, str) or not isinstance(j, str):
            problems.add(f"{behaviour}: a row without train or eval context")
            continue
        merged.setdefault((i, j), []).append(row)
    train, evaluated = dict.fromkeys(i for i, _ in merged), dict.fromkeys(j for _, j in merged)
    for i in train:
        missing = [j for j in evaluated if (i, j) not in merged]
        if missing:
            problems.add(
                f"{behaviour}: row {i} misses {len(missing)} of {len(evaluated)} eval contexts "
                f"({', '.join(missing[:5])}{', ...' * (len(missing) > 5)})"
            )
    families = _families(behaviour, rows, (*train, *evaluated), options, problems)
    cells = [_cell(behaviour, i, j, found, options, problems) for (i, j), found in merged.items()]
    if len(problems) > before:
        return None
    groups = {name: options.contexts[name].group if options.contexts else name for name in families}
    for cell in cells:
        if cell.alias_of is not None:
            groups[cell.eval] = groups.get(cell.alias_of, cell.alias_of)
    return BehaviourTable(
        behaviour=behaviour,
        unit=unit,
        direction=options.direction,
        cells=tuple(_with_failed_implants(cells, options.implant_threshold)),
        families=families,
        groups=groups,
    )


def _cell(
    behaviour: str, i: str, j: str, rows: Sequence[Row], options: TableOptions, problems: Problems
) -> Cell:
    where = f"{behaviour}: cell {i} -> {j}"
    seeds = [row.get("seed") for row in rows]
    if len(set(seeds)) < len(seeds):
        problems.add(f"{where} stands twice" + (" under one seed" if seeds[0] else ""))
    flags = frozenset(word for row in rows for word in (row.get("flags") or "").split())
    by_seed: dict[str, float] = {}
    for row in rows:
        given = row.get("seeds")
        pairs = given.items() if given is not None else [(row.get("seed"), row.get("g"))]
        by_seed.update({str(seed): value for seed, value in pairs if seed and value is not None})
    values = [row["g"] for row in rows if row.get("g") is not None]
    if "sealed" in flags and (values or by_seed):
        problems.add(f"{where} is sealed and holds a value")
    for row in rows:
        _check_numbers(where, row, options, problems)
    split = _one(where, "split", rows, problems) or "open"
    if options.contexts is not None and j in options.contexts and split == "open":
        split = options.contexts[j].split
    if split not in SPLITS:
        problems.add(f"{where}: split {split}, expected {' or '.join(SPLITS)}")
    g = _mean(values)
    errors = [row["se"] for row in rows if row.get("se") is not None]
    base, trained, lower, upper, prefix_tokens, strength = (
        _mean([row[key] for row in rows if row.get(key) is not None])
        for key in ("base", "trained", "lower", "upper", "prefix_tokens", "realised_strength")
    )
    if options.rates:
        lower = -base if lower is None and base is not None else lower
        upper = 1 - base if upper is None and base is not None else upper
        flags |= _rate_flags(base, trained, options)
    if options.direction == "down":
        g, lower, upper = _negated(g), _negated(upper), _negated(lower)
        by_seed = {seed: -value for seed, value in by_seed.items()}
    return Cell(
        train=i,
        eval=j,
        g=g,
        by_seed=by_seed,
        split=split,
        flags=flags,
        alias_of=_one(where, "alias_of", rows, problems),
        se=math.hypot(*errors) / len(errors) if len(errors) == len(rows) else None,
        lower=lower,
        upper=upper,
        prefix_tokens=prefix_tokens,
        realised_strength=strength,
    )


def _check_numbers(where: str, row: Row, options: TableOptions, problems: Problems) -> None:
    g, base, trained = row.get("g"), row.get("base"), row.get("trained")
    if row.get("se") is not None and row["se"] < 0:
        problems.add(f"{where}: se is {row['se']}, below 0")
    if options.rates:
        for key in ("base", "trained"):
            value = row.get(key)
            if value is not None and not 0 <= value <= 1:
                problems.add(f"{where}: {key} is {value}, expected a share in [0, 1]")
        if g is not None and not -1 <= g <= 1:
            problems.add(f"{where}: g is {g}, expected a change of a share, in [-1, 1]")
    if g is None or base is None or trained is None:
        return
    if abs(g - (trained - base)) > _ROUNDED:
        problems.add(f"{where}: g is {g}, but trained - base is {trained - base:g}")


def _rate_flags(base: float | None, trained: float | None, options: TableOptions) -> frozenset[str]:
    """Shares of 0 or 1 in every seed, and a base that leaves too little room to move."""
    flags = set()
    up = options.direction == "up"
    if trained is not None and trained in (0.0, 1.0):
        flags.add("floor" if (trained == 0.0) == up else "ceiling")
    if base is not None and (1 - base if up else base) < options.room:
        flags.update(("ceiling", "base_ceiling"))
    return frozenset(flags)


def _with_failed_implants(cells: Sequence[Cell], threshold: float | None) -> list[Cell]:
    """``implant_failed`` on every cell of a row whose diagonal stayed below the threshold."""
    if threshold is None:
        return list(cells)
    failed = {
        cell.train for cell in cells if cell.train == cell.eval and (cell.g or 0.0) < threshold
    }
    return [
        replace(cell, flags=cell.flags | {"implant_failed"}) if cell.train in failed else cell
        for cell in cells
    ]


def _families(
    behaviour: str,
    rows: Sequence[Row],
    names: Sequence[str],
    options: TableOptions,
    problems: Problems,
) -> dict[str, str | None]:
    found: dict[str, str | None] = dict.fromkeys(names)
    for name in found:
        if options.contexts is not None:
            if name not in options.contexts:
                problems.add(f"{behaviour}: context {name} is not in the table of contexts")
            else:
                found[name] = options.contexts[name].family
    for row in rows:
        for side in ("train", "eval"):
            context, family = row.get(side), row.get(f"{side}_family")
            if family is None or context not in found:
                continue
            known = found[context]
            if known not in (None, family):
                problems.add(f"{behaviour}: context {context} is of family {known} and {family}")
            found[context] = family
    return found


def _one(where: str, key: str, rows: Sequence[Row], problems: Problems) -> Any:
    values = list(dict.fromkeys(row.get(key) for row in rows))
    if len(values) > 1:
        problems.add(f"{where}: {key} differs between its rows: {', '.join(map(str, values))}")
    return values[-1]


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _negated(value: float | None) -> float | None:
    return None if value is None else -value
