"""A score document as plain text: every number with its n, interval and null beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["leaderboard_lines"]

_HEAD = (
    "metric",
    "Spearman",
    "R2 out of fold",
    "null: mean, 95 %",
    "p",
    "beyond rows + columns",
    "antisymmetric",
    "interaction",
    "gates",
)


def leaderboard_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Lines for a terminal, one behaviour after the other, the pooled scores last.

    Metrics stand by their primary R2 (leave two contexts out), best first; one without comes last.
    """
    settings = document["settings"]
    yield (
        f"{document['label']}; seed {settings['seed']}, "
        f"{settings['n_permutations']} relabellings, intervals at "
        f"{settings['confidence_level']:.0%}"
    )
    for column in document["ignored_columns"]:
        yield f"column {column} was not read"
    for block in document["behaviours"]:
        yield ""
        yield from _behaviour(block)
    pooled = document["pooled"]
    yield ""
    if pooled["reason"] is not None:
        yield f"pooled: none ({pooled['reason']})"
        return
    yield f"pooled over {', '.join(pooled['behaviours'])}, z-normalised: {pooled['n']} cells"
    yield from _metrics(pooled["predictors"])
    yield from _combiners(pooled["combiners"])


def _behaviour(block: Mapping[str, Any]) -> Iterator[str]:
    cells = block["cells"]
    yield f"{block['behaviour']} ({block['unit']}; more of it means {block['direction']})"
    out = ", ".join(f"{reason} {n}" for reason, n in cells["excluded"].items() if n)
    yield f"  cells: {cells['scored']} of {cells['in_table']} scored; out: {out or 'none'}"
    yield f"  {_decomposition(block['decomposition'])}"
    for pair in block["replication"]["pairs"]:
        if pair["pearson"] is not None:
            yield (
                f"  seeds {pair['seeds'][0]} and {pair['seeds'][1]}: Pearson "
                f"{pair['pearson']:.5f}, RMS {pair['rms']:.5f} over {pair['n']} cells"
            )
    for alias in block["aliases"]:
        if alias["n"]:
            yield (
                f"  same cell twice, {alias['alias']} less {alias['of']}: mean "
                f"{alias['mean_difference']:+.3f}, RMS {alias['rms_difference']:.3f} "
                f"over {alias['n']} rows"
            )
    for name, gate in block["gates"].items():
        yield f"  {name} in G: {_gate(gate)}"
    yield from _metrics(block["predictors"])
    yield from _combiners(block["combiners"])


def _decomposition(found: Mapping[str, Any]) -> str:
    if found["reason"] is not None:
        return f"decomposition: none ({found['reason']})"
    if found["antisymmetric_share"] is None:
        return "decomposition: none (G does not vary)"
    text = (
        f"{found['n_pairs']} mirror pairs: antisymmetric share {found['antisymmetric_share']:.4f}, "
        f"symmetric cap {found['symmetric_cap']:.3f}, rows + columns R2 {found['additive_r2']:.3f}"
    )
    noise = found["noise"]
    if noise is not None and noise["antisymmetric_share"] is not None:
        text += f"; less noise ({noise['basis']}): share {noise['antisymmetric_share']:.4f}"
    return text


def _gate(gate: Mapping[str, Any]) -> str:
    parts = [gate["status"]]
    if gate["effect"] is not None:
        parts.append(f"effect {gate['effect']:+.3f}")
    if gate["low"] is not None:
        parts.append(f"[{gate['low']:+.3f}, {gate['high']:+.3f}]")
    if gate["p"] is not None:
        parts.append(f"p {gate['p']:.3f}" if gate["p"] >= 0.0005 else "p < 0.001")
    if gate.get("default_mean") is not None and gate.get("instruction_mean") is not None:
        parts.append(
            f"default row {gate['default_mean']:.3f}, instructed row {gate['instruction_mean']:.3f}"
        )
    if gate["reason"]:
        parts.append(f"({gate['reason']})")
    return ", ".join(parts)


def _metrics(scores: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not scores:
        return
    order = sorted(scores, key=_primary, reverse=True)
    rows = [_HEAD, *(_row(score) for score in order)]
    yield from _table(rows)


def _primary(score: Mapping[str, Any]) -> float:
    value = score["r2"]["leave_two_out"]["value"]
    return -float("inf") if value is None else float(value)


def _row(score: Mapping[str, Any]) -> tuple[str, ...]:
    r2, parts = score["r2"]["leave_two_out"], score["parts"]
    null = r2["null"]
    beyond = score["over_additive"]
    return (
        score["metric"],
        f"{_measure(score['spearman'])} n {score['spearman']['n']}",
        _measure(r2),
        "none" if null is None else f"{null['mean']:+.3f}, {null['high']:+.3f}",
        "none" if null is None else f"{null['p']:.3f}",
        "none"
        if beyond is None or beyond["delta_r2"]["value"] is None
        else f"{beyond['additive_out_of_fold_r2']:.3f} {beyond['delta_r2']['value']:+.4f}",
        _part(parts["antisymmetric"]),
        _part(parts["interaction"]),
        " ".join(f"{name[0]}:{gate['status']}" for name, gate in score["gates"].items()),
    )


def _part(part: Mapping[str, Any]) -> str:
    if part["r2"]["value"] is None:
        return "none"
    if part["zero_by_construction"]:
        return "0 (by construction)"
    null = part["r2"]["null"]
    beside = "" if null is None else f" (null {null['high']:+.3f})"
    return f"{part['r2']['value']:+.3f}{beside}"


def _measure(measure: Mapping[str, Any]) -> str:
    if measure["value"] is None:
        return f"none ({measure['reason']})"
    if measure["low"] is None:
        return f"{measure['value']:+.4f}"
    mark = "" if measure["coverage_reached"] is not False else "*"
    return f"{measure['value']:+.4f} [{measure['low']:+.3f}, {measure['high']:+.3f}]{mark}"


def _combiners(blocks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for block in blocks:
        if block["reason"] is not None:
            yield f"  {block['name']}: not fitted ({block['reason']})"
            continue
        delta, best = block["delta_r2"], block["best_single"]["r2"]
        null = delta["null"]
        beside = "" if null is None else f", null {null['high']:+.3f}, p {null['p']:.3f}"
        anti = (
            ""
            if block["parts"] is None
            else (
                f"; antisymmetric {_signed(block['parts']['antisymmetric']['r2'])} "
                f"over {_signed(block['parts']['antisymmetric']['best_single_r2'])}"
            )
        )
        yield (
            f"  {block['name']}: R2 {_signed(block['r2']['value'])}, best single "
            f"{_signed(best['value'])}, Delta {_measure(delta)}{beside}; rows + columns "
            f"{_signed(block['additive_r2'])}{anti}"
        )


def _signed(value: float | None) -> str:
    return "none" if value is None else f"{value:+.3f}"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield f"  {line}".rstrip()
