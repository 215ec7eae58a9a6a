"""The open scores for a terminal: who predicts G, by how much, and beside what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eps_locked.report.marks import plain_text
from eps_locked.report.score_rows import (
    FINAL_SCHEMA,
    Group,
    Scores,
    best_first,
    groups,
    require_scores,
)
from eps_locked.report.units import FAR, interval, percent, score_signed

_NONE = "-"
_SIGNS = {"passed": "+", "failed": "-", "undetermined": "?"}


def score_text(scores: Scores) -> str:
    """A compact leaderboard for every behaviour and the pool: plain text, no escape codes."""
    require_scores(scores)
    settings = scores["settings"]
    lines = [
        f"{scores['label']} scores; seed {settings['seed']}, {settings['n_permutations']} "
        f"relabellings, {percent(settings['confidence_level'])} intervals over contexts",
        "R2: out of fold, two contexts out; * beside an interval: simulated coverage not reached.",
        "null, p: the relabelled metric, mean and share as good. gates: + passed, - failed, ? open",
        "rows + columns: R2 without any metric; gain: what the metric adds to it.",
        "anti, inter: R2 on the antisymmetric part, on what rows and columns leave (beside it the",
        "95 % quantile of its null); 0! by construction",
    ]
    lines += [f"column {column} was not read" for column in scores["ignored_columns"]]
    for group in groups(scores):
        lines += ["", *_group(group)]
    reason = scores["pooled"]["reason"]
    if reason is not None:
        lines += ["", f"not pooled: {reason}"]
    return "\n".join(plain_text(line).rstrip() for line in lines) + "\n"


def final_text(scores: Scores) -> str:
    """What one look found, for a terminal, as far as everybody may know it."""
    require_scores(scores, FINAL_SCHEMA)
    level = percent(scores["settings"]["confidence_level"])
    lines = [
        f"{scores['label']}; lines fitted on open cells, judged on sealed ones; {level} intervals",
        "open R2: the same fit on the cells it was made from, two contexts out. *: simulated",
        "coverage not reached at a design of this size. Rounded: exact scores, and those of the",
        "baselines, are sealed to the custodian, since they are equations in the sealed values.",
    ]
    for group in groups(scores):
        held_back = group["cells"]["held_back"]
        lines += ["", f"{group['behaviour']}: {held_back['all']} sealed cells with a value"]
        lines += _aligned(
            ("predictor", "", "open R2", "Spearman", "R2", "null", "p"),
            [_final_row(one) for one in group["scores"]],
        )
        rank = group["rank"]
        if rank["by_r2"] is not None and rank["of"] > 1:
            lines.append(
                f"  place {rank['by_r2']} of {rank['of']} by R2, the shipped baselines included"
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
    if "cells" in group:
        yield from (f"  {line}" for line in _facts(group))
    if group["predictors"]:
        yield from _aligned(
            ("predictor", "Spearman", "n", "R2", "null", "p", "Holm"),
            [_predictor(group, one) for one in best_first(group)],
        )
        yield ""
        yield from _aligned(
            ("predictor", "rows + columns", "gain", "anti", "inter", "gates"),
            [_beyond(one) for one in best_first(group)],
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
    return text + (f" (out: {out})" if out else "")


def _facts(group: Group) -> Iterator[str]:
    """What G itself is made of, before any metric."""
    found = group["decomposition"]
    if found["reason"] is not None or found["antisymmetric_share"] is None:
        yield f"decomposition: none ({found['reason'] or 'G does not vary'})"
    else:
        text = (
            f"{found['n_pairs']} mirror pairs: antisymmetric {found['antisymmetric_share']:.2%}, "
            f"symmetric cap {found['symmetric_cap']:.3f}, rows + columns {found['additive_r2']:.3f}"
        )
        noise = found["noise"]
        if noise is not None and noise["antisymmetric_share"] is not None:
            text += f"; less noise: antisymmetric {noise['antisymmetric_share']:.2%}"
        yield text
    for pair in group["replication"]["pairs"]:
        if pair["pearson"] is not None:
            yield (
                f"seeds {pair['seeds'][0]} and {pair['seeds'][1]}: Pearson {pair['pearson']:.5f}, "
                f"RMS {pair['rms']:.5f} over {pair['n']} cells"
            )
    for alias in group["aliases"]:
        if alias["n"]:
            yield (
                f"same cell twice, {alias['alias']} less {alias['of']}: mean "
                f"{alias['mean_difference']:+.3f}, RMS {alias['rms_difference']:.3f} "
                f"over {alias['n']} rows"
            )
    for name, gate in group["gates"].items():
        yield f"{name} in G: {_gate_in_g(gate)}"


def _gate_in_g(gate: Mapping[str, Any]) -> str:
    parts = [gate["status"]]
    if gate["effect"] is not None:
        parts.append(f"effect {gate['effect']:+.3f} {_ends(gate['low'], gate['high'])}".rstrip())
    if gate["p"] is not None:
        parts.append(f"p {gate['p']:.3f}")
    if gate.get("default_mean") is not None and gate.get("instruction_mean") is not None:
        parts.append(
            f"default row {gate['default_mean']:.3f}, instructed row {gate['instruction_mean']:.3f}"
        )
    if gate["reason"]:
        parts.append(f"({gate['reason']})")
    return ", ".join(parts)


def _predictor(group: Group, one: Mapping[str, Any]) -> list[str]:
    r2 = one["r2"]["leave_two_out"]
    holm = {row["metric"]: row["holm"] for row in group["multiplicity"]}
    return [
        one["metric"],
        _with_interval(one["spearman"]),
        str(one["spearman"]["n"]),
        _with_interval(r2),
        _null(r2),
        _p(r2),
        _number(holm.get(one["metric"]), 3),
    ]


def _beyond(one: Mapping[str, Any]) -> list[str]:
    additive, parts, gates = one["over_additive"] or {}, one["parts"], one["gates"] or {}
    return [
        one["metric"],
        _number(additive.get("additive_out_of_fold_r2")),
        _with_interval(additive.get("delta_r2")),
        _part(parts["antisymmetric"]),
        _part(parts["interaction"]),
        ", ".join(f"{name} {_SIGNS[gate['status']]}" for name, gate in gates.items()),
    ]


def _part(part: Mapping[str, Any]) -> str:
    r2 = part["r2"]
    if r2["value"] is None:
        return _NONE
    if part["zero_by_construction"]:
        return "0!"
    beside = "" if r2["null"] is None else f" ({score_signed(r2['null']['high'])})"
    return f"{score_signed(r2['value'])}{beside}"


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
    mark = "*" if ends and score.get("coverage_reached") is False else ""
    return f"{score_signed(score['value'])} {ends}{mark}".rstrip()


def _ends(low: float | None, high: float | None) -> str:
    if low is None or high is None or max(abs(low), abs(high)) <= FAR:
        return interval(low, high, 2)
    return f"[{score_signed(low)}, {score_signed(high)}]"


def _null(score: Mapping[str, Any] | None) -> str:
    null = (score or {}).get("null")
    return _NONE if null is None else score_signed(null["mean"])


def _p(score: Mapping[str, Any] | None) -> str:
    null = (score or {}).get("null")
    return _NONE if null is None else _number(null["p"], 3)


def _number(value: float | None, digits: int = 2) -> str:
    if value is None:
        return _NONE
    return f"{value:.{digits}f}" if abs(value) <= FAR else score_signed(value)


def _aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines with columns two blanks apart, two blanks in."""
    widths = [max(len(plain_text(row[n])) for row in (head, *rows)) for n in range(len(head))]
    for row in (head, *rows):
        cells = zip(row, widths, strict=True)
        yield "  " + "  ".join(plain_text(text).ljust(width) for text, width in cells).rstrip()
