"""How the open score document becomes rows: what every table of the scores needs.

Pure functions of the document (``docs/scoring.md``). Nothing is estimated here; a number that the
document does not have stays None, and its reason stands in the row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from eps_locked.errors import MalformedInputError
from eps_locked.report.html import Child, join, tag
from eps_locked.report.sheets import Column, Row, figure, score_figure

Scores = Mapping[str, Any]
Group = Mapping[str, Any]
SCORES_SCHEMA = "eps-locked/scores/1"
FINAL_SCHEMA = "eps-locked/final-scores/1"
# The name under which scores of all behaviours together stand in the tables.
POOLED = "all behaviours, pooled"


def require_scores(scores: Scores, schema: str = SCORES_SCHEMA) -> None:
    """Raises MalformedInputError for a document of another form, or without a known label."""
    if scores.get("schema") != schema:
        raise MalformedInputError("scores: schema", expected=schema, found=scores.get("schema"))
    if scores["label"] not in ("confirmatory", "exploratory"):
        raise MalformedInputError(
            "scores: label", expected="confirmatory or exploratory", found=scores["label"]
        )


def groups(scores: Scores) -> list[Group]:
    """The behaviours in order and, where it could be made, the pool of all of them."""
    found: list[Group] = list(scores["behaviours"])
    if scores["pooled"]["reason"] is None:
        found.append({**scores["pooled"], "behaviour": POOLED})
    return found


def flat(prefix: str, score: Mapping[str, Any] | None) -> dict[str, Any]:
    """A score with its interval, its null and what is said of them, as fields of a row."""
    score = score or {}
    null = score.get("null") or {}
    plain = score.get("bootstrap") or {}
    return {
        prefix: score.get("value"),
        f"{prefix}_low": score.get("low"),
        f"{prefix}_high": score.get("high"),
        f"{prefix}_coverage": score.get("simulated_coverage"),
        f"{prefix}_coverage_reached": score.get("coverage_reached"),
        f"{prefix}_bootstrap_low": plain.get("low"),
        f"{prefix}_bootstrap_high": plain.get("high"),
        f"{prefix}_null": null.get("mean"),
        f"{prefix}_null_high": null.get("high"),
        f"{prefix}_p": null.get("p"),
        f"{prefix}_reason": score.get("reason"),
    }


def beyond(one: Mapping[str, Any]) -> Mapping[str, Any]:
    """A predictor's block about the additive model, with every field also where none was made."""
    found: Mapping[str, Any] | None = one["over_additive"]
    if found is not None:
        return found
    none = dict.fromkeys(("additive_r2", "additive_out_of_fold_r2", "with_predictor_r2"))
    return {**none, "delta_r2": {"reason": one["r2"]["leave_two_out"]["reason"]}}


def best_first(group: Group) -> list[Mapping[str, Any]]:
    """Predictors by out-of-fold R², the undefined ones last, in a stable order."""

    def place(one: Mapping[str, Any]) -> tuple[bool, float]:
        value = one["r2"]["leave_two_out"]["value"]
        return value is None, 0.0 if value is None else -value

    return sorted(group["predictors"], key=place)


def p_value(head: str, key: str) -> Column:
    """A column of p values: three decimals, more for the small ones."""

    def show(row: Row) -> Child:
        value = row[key]
        return figure(value, 4 if value is not None and value < 0.001 else 3)

    return Column(head=head, keys=(key,), show=show, kind="num")


def null_column(head: str, key: str) -> Column:
    """What the permuted metric gets: its mean, and the value that 5 % of permutations pass."""

    def show(row: Row) -> Child:
        mean, high = row[f"{key}_null"], row[f"{key}_null_high"]
        if mean is None:
            return figure(None)
        return join(score_figure(mean), " ", tag("small", f"95 % {below(high)}"))

    return Column(head=head, keys=(f"{key}_null", f"{key}_null_high"), show=show, kind="num")


def below(high: float | None) -> str:
    """``below 0.59``, also where that itself reads "below"."""
    text = score_figure(high)
    return text if text.startswith("below") else f"below {text}"


def predictor_column(head: str = "predictor") -> Column:
    """The predictor's title over its id."""

    def show(row: Row) -> Child:
        return join(row["title"], " ", tag("small", row["metric"]))

    return Column(head=head, keys=("title", "metric"), show=show)


def named(scores: Scores, group: Group, metric: str) -> dict[str, Any]:
    titles = {one["metric"]: one["title"] for one in scores["predictors"]}
    return {"behaviour": group["behaviour"], "metric": metric, "title": titles[metric]}


def each(
    scores: Scores, rows: Callable[[Mapping[str, Any]], Iterator[dict[str, Any]]]
) -> tuple[Row, ...]:
    """Rows of every predictor of every group, best predictor first."""
    return tuple(
        {**named(scores, group, one["metric"]), **row}
        for group in groups(scores)
        for one in best_first(group)
        for row in rows(one)
    )
