"""The few sentences at the head of a behaviour's scores: how much, who is best, and beyond what.

Read off the score document; only Holm's adjustment is made here, over the predictors, for the
measures that the document does not adjust itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eps_locked.report.absent import listed
from eps_locked.report.html import Child, Html, tag
from eps_locked.report.score_rows import Group, Scores, below, best_first, beyond
from eps_locked.report.sheets import figure, per_cent, score_figure
from eps_locked.stats.multiplicity import holm

Predictor = Mapping[str, Any]
_R2, _SPEARMAN, _GAIN = "R²", "Spearman", "gain over rows and columns"


@dataclass(frozen=True, kw_only=True, slots=True)
class Tested:
    """One measure of all predictors against its null: Holm p by metric, over those with a null.

    floor: the smallest Holm p that the number of relabellings leaves room for.
    """

    name: str
    holm: Mapping[str, float]
    values: Mapping[str, float]
    n_null: int

    @property
    def floor(self) -> float:
        return min(1.0, len(self.holm) / (self.n_null + 1))

    def passed(self, alpha: float) -> list[str]:
        """The metrics that differ from their null."""
        return [metric for metric, p in self.holm.items() if p <= alpha]


def in_short(scores: Scores, group: Group) -> Html:
    """The sentences, the finding in bold."""
    return tag("p", [tag("span", one, " ") for one in _sentences(scores, group)], class_="lead")


def _sentences(scores: Scores, group: Group) -> Iterator[Child]:
    yield _cells(group)
    predictors = best_first(group)
    if not predictors:
        return
    tests = [test for test in tests_of(group) if test.holm or test.values]
    by_name = {test.name: test for test in tests}
    titles = {one["metric"]: one["title"] for one in scores["predictors"]}
    if predictors[0]["r2"]["leave_two_out"]["value"] is None:
        yield tag("b", f"No R² out of fold: {predictors[0]['r2']['leave_two_out']['reason']}.")
    else:
        yield _best(predictors[0], titles, by_name[_R2], len(predictors))
    yield from _finding(scores["settings"]["alpha"], tests, titles)
    yield _resolution(predictors)
    yield _additive(predictors, titles, by_name.get(_GAIN))


def tests_of(group: Group) -> tuple[Tested, ...]:
    """R² as the document adjusts it; the other measures, and the combiners, by Holm here."""
    found = {one["metric"]: one for one in group["predictors"]}
    mixed = {one["name"]: one for one in group["combiners"]}
    r2 = {metric: one["r2"]["leave_two_out"] for metric, one in found.items()}
    return (
        _tested(_R2, r2, {one["metric"]: one["holm"] for one in group["multiplicity"]}),
        _tested(_SPEARMAN, {metric: one["spearman"] for metric, one in found.items()}),
        _tested(_GAIN, {metric: beyond(one)["delta_r2"] for metric, one in found.items()}),
        _tested("combiner's R²", {name: one["r2"] or {} for name, one in mixed.items()}),
        _tested("combiner's gain", {name: one["delta_r2"] or {} for name, one in mixed.items()}),
    )


def _tested(
    name: str, measures: Mapping[str, Mapping[str, Any]], known: Mapping[str, float] | None = None
) -> Tested:
    nulls = {metric: one["null"] for metric, one in measures.items() if one.get("null")}
    adjusted = known
    if adjusted is None:
        p = holm([null["p"] for null in nulls.values()])
        adjusted = dict(zip(nulls, map(float, p), strict=True))
    values = {m: one["value"] for m, one in measures.items() if one.get("value") is not None}
    n_null = min((null["n"] for null in nulls.values()), default=0)
    return Tested(name=name, holm=adjusted, values=values, n_null=n_null)


def _cells(group: Group) -> str:
    if "cells" not in group:
        return f"{group['n']} cells of {len(group['behaviours'])} behaviours are pooled."
    return f"{group['cells']['scored']} of {group['cells']['in_table']} cells are scored."


def _best(one: Predictor, titles: Mapping[str, str], test: Tested, n: int) -> str:
    r2 = one["r2"]["leave_two_out"]
    text = f"Best of {n} predictors" if n > 1 else "The one predictor"
    text += f" by R² out of fold: {titles[one['metric']]}, {score_figure(r2['value'])}"
    if r2["low"] is None or r2["high"] is None:
        text += " (no interval)"
    else:
        text += f" [{score_figure(r2['low'])}, {score_figure(r2['high'])}]"
        if r2["coverage_reached"] is False and r2["simulated_coverage"] is not None:
            text += f" (covers {per_cent(r2['simulated_coverage'])})"
    if r2["null"] is None:
        return f"{text}; no null."
    null, adjusted = r2["null"], test.holm.get(one["metric"])
    text += f"; permuted {score_figure(null['mean'])}, 95 % {below(null['high'])}"
    return f"{text}; Holm p {_p(adjusted)}."


def _finding(alpha: float, tests: list[Tested], titles: Mapping[str, str]) -> Iterator[Child]:
    """What differs from its null after Holm; plainly, if nothing does, and what never could."""
    tests = [test for test in tests if test.holm]
    if not tests:
        return
    passed = [(test, metrics) for test in tests if (metrics := test.passed(alpha))]
    if passed:
        said = [
            f"{test.name}: {', '.join(titles.get(one, one) for one in metrics)}"
            f"{' (none above 0)' if _none_above_0(test, metrics) else ''}"
            for test, metrics in passed
        ]
        yield tag("b", f"After Holm (p ≤ {alpha:g}) these differ from their null:")
        yield f"{'; '.join(said)}."
    else:
        names = listed([test.name for test in tests], "or")
        yield tag("b", "Nothing here is distinguishable from its null:")
        yield f"no {names} has a Holm p of {alpha:g} or less."
    hopeless = [
        f"no {test.name} could ({test.n_null} relabellings leave it at {_p(test.floor)} or more)"
        for test in tests
        if test.floor > alpha
    ]
    if hopeless:
        text = "; ".join(hopeless)
        yield f"{text[0].upper()}{text[1:]}."


def _none_above_0(test: Tested, metrics: list[str]) -> bool:
    return test.name != _SPEARMAN and all(test.values.get(one, 0) <= 0 for one in metrics)


def _resolution(predictors: list[Predictor]) -> str | None:
    sizes = [one["resolution"]["minimum_detectable"] for one in predictors]
    known = sorted(size for size in sizes if size is not None)
    if not known:
        return None
    low, high = score_figure(known[0]), score_figure(known[-1])
    by = "" if low == high else f" to {high}, by predictor"
    return f"The smallest Spearman that could have been seen (power 80 %, before Holm): {low}{by}."


def _additive(
    predictors: list[Predictor], titles: Mapping[str, str], gains: Tested | None
) -> str | None:
    """Whether anything reaches, or adds to, what rows and columns give without a metric."""
    alone = next(
        (v for one in predictors if (v := beyond(one)["additive_out_of_fold_r2"]) is not None), None
    )
    if alone is None:
        return None
    above = [
        titles[one["metric"]]
        for one in predictors
        if (value := one["r2"]["leave_two_out"]["value"]) is not None and value > alone
    ]
    text = f"Rows and columns alone reach an R² of {score_figure(alone)}; "
    text += f"above that: {listed(above)}" if above else "no predictor's own R² does"
    if gains is None or not gains.values:
        return f"{text}."
    best = max(gains.values, key=lambda metric: gains.values[metric])
    if gains.values[best] <= 0:
        return f"{text}, and none adds to it."
    adjusted = gains.holm.get(best)
    return (
        f"{text}; the largest gain on top is that of {titles[best]}, "
        f"{score_figure(gains.values[best], sign=True)} (Holm p {_p(adjusted)})."
    )


def _p(value: float | None) -> str:
    return figure(value, 4 if value is not None and value < 0.001 else 3)
