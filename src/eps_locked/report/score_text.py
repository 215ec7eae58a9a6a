"""The open scores for a terminal: who predicts G, by how much, and beside what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eps_locked.report.marks import interval, percent, plain_text, signed
from eps_locked.report.score_rows import (
    FINAL_SCHEMA,
    Group,
    Scores,
    best_first,
    groups,
    require_scores,
)

_NONE = "-"
_FAR = 99
_SIGNS = {"passed": "+", "failed": "-", "undetermined": "?"}


def score_text(scores: Scores) -> str:
    """A compact leaderboard for every behaviour and the pool: plain text, no escape codes."""
    require_scores(scores)
    lines = [
        f"{scores['label']} scores; {percent(scores['settings']['confidence_level'])} intervals, "
        "contexts resampled",
        "R2: out of fold, two contexts out. null: mean R2 of the relabelled metric.",
        "additive: R2 of row + column effects alone; gain: what the metric adds to them.",
        "gates: + passed, - failed, ? undetermined.",
    ]
    for group in groups(scores):
        lines += ["", *_group(group)]
    reason = scores["pooled"]["reason"]
    if reason is not None:
        lines += ["", f"not pooled: {reason}"]
    return "\n".join(plain_text(line).rstrip() for line in lines) + "\n"


def final_text(scores: Scores) -> str:
    """What one look found, for a terminal: the submission first, the shipped baselines below."""
    require_scores(scores, FINAL_SCHEMA)
    level = percent(scores["settings"]["confidence_level"])
    lines = [
        f"{scores['label']}; lines fitted on open cells, judged on sealed ones; {level} intervals",
        "open R2: the same fit on the cells it was made from, two contexts out.",
    ]
    for group in groups(scores):
        held_back = group["cells"]["held_back"]
        lines += ["", f"{group['behaviour']}: {held_back['all']} sealed cells with a value"]
        lines += _aligned(
            ("predictor", "", "open R2", "Spearman", "R2", "null", "p"),
            [_final_row(one) for one in group["scores"]],
        )
        submitted = [one for one in group["scores"] if one["role"] == "submission"]
        lines += [f"  {one['metric']}: {one['overfit_gap']['statement']}" for one in submitted]
    return "\n".join(plain_text(line).rstrip() for line in lines) + "\n"


def _final_row(one: Mapping[str, Any]) -> list[str]:
    found = one["splits"]["all"]
    return [
        one["metric"],
        "submission" if one["role"] == "submission" else "",
        _number(one["open"]["r2"]["value"]),
        _with_interval(found.get("spearman")),
        _with_interval(found.get("r2")),
        _null(found.get("r2")),
        _p(found.get("r2")),
    ]


def _group(group: Group) -> Iterator[str]:
    yield _title(group)
    yield from _aligned(
        ("predictor", "Spearman", "R2", "null", "p", "Holm", "additive", "gain", "gates"),
        [_predictor(group, one) for one in best_first(group)],
    )
    if group["combiners"]:
        yield ""
        yield from _aligned(
            ("combiner", "R2", "best single", "gain", "null", "p"),
            [_combiner(one) for one in group["combiners"]],
        )


def _title(group: Group) -> str:
    cells = group.get("cells")
    if cells is None:
        return f"{group['behaviour']}: {group['n']} cells"
    out = ", ".join(f"{n} {reason}" for reason, n in cells["excluded"].items() if n)
    text = f"{group['behaviour']}: {cells['scored']} of {cells['in_table']} cells"
    text += f" (out: {out})" if out else ""
    found = group["decomposition"]
    if found["reason"] is None and found["antisymmetric_share"] is not None:
        text += f"; antisymmetric {found['antisymmetric_share'] * 100:.1f} %"
    return text


def _predictor(group: Group, one: Mapping[str, Any]) -> list[str]:
    r2, additive = one["r2"]["leave_two_out"], one["over_additive"]
    holm = {row["metric"]: row["holm"] for row in group["multiplicity"]}
    gates = one["gates"] or {}
    return [
        one["metric"],
        _with_interval(one["spearman"]),
        _with_interval(r2),
        _null(r2),
        _p(r2),
        _number(holm.get(one["metric"]), 3),
        _number(additive["additive_out_of_fold_r2"]),
        _with_interval(additive["delta_r2"]),
        ", ".join(f"{name} {_SIGNS[gate['status']]}" for name, gate in gates.items()),
    ]


def _combiner(one: Mapping[str, Any]) -> list[str]:
    if one["reason"] is not None:
        return [one["name"], one["reason"], "", "", "", ""]
    return [
        one["name"],
        _with_interval(one["r2"]),
        _with_interval((one["best_single"] or {}).get("r2")),
        _with_interval(one["delta_r2"]),
        _null(one["delta_r2"]),
        _p(one["delta_r2"]),
    ]


def _with_interval(score: Mapping[str, Any] | None) -> str:
    if score is None or score["value"] is None:
        return _NONE
    ends = _ends(score["low"], score["high"])
    return f"{_signed(score['value'])} {ends}".rstrip()


def _ends(low: float | None, high: float | None) -> str:
    if low is None or high is None or max(abs(low), abs(high)) <= _FAR:
        return interval(low, high, 2)
    return f"[{_signed(low)}, {_signed(high)}]"


def _signed(value: float) -> str:
    """An R2 has no lower end: far below 0 only that it is far says something."""
    return (
        signed(value, 2)
        if abs(value) <= _FAR
        else f"below -{_FAR}"
        if value < 0
        else f"{value:.0f}"
    )


def _null(score: Mapping[str, Any] | None) -> str:
    null = (score or {}).get("null")
    return _NONE if null is None else _signed(null["mean"])


def _p(score: Mapping[str, Any] | None) -> str:
    null = (score or {}).get("null")
    return _NONE if null is None else _number(null["p"], 3)


def _number(value: float | None, digits: int = 2) -> str:
    if value is None:
        return _NONE
    return f"{value:.{digits}f}" if abs(value) <= _FAR else _signed(value)


def _aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines with columns two blanks apart, two blanks in."""
    widths = [max(len(plain_text(row[n])) for row in (head, *rows)) for n in range(len(head))]
    for row in (head, *rows):
        cells = zip(row, widths, strict=True)
        yield "  " + "  ".join(plain_text(text).ljust(width) for text, width in cells).rstrip()
