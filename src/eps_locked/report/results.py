"""The page's sections about one behaviour's tensor, and the tables behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from eps_locked.report.heatmap import heat_map, legend
from eps_locked.report.html import Child, Html, join, section, tag
from eps_locked.report.marks import SEALED, Tensor, is_taught
from eps_locked.report.measures import primary_of, second_of, shown_words, slice_words
from eps_locked.report.notes import notes
from eps_locked.report.sections import decided_words, label, source_line
from eps_locked.report.sheets import (
    Column,
    Row,
    Sheet,
    change,
    count,
    level,
    number,
    sheet_table,
    words,
)
from eps_locked.report.tables import alias_rows, base_rows, means, training_rows
from eps_locked.report.tensors import TensorArtifact, TensorEvidence
from eps_locked.report.units import unit_named, unit_of

# Analyses this page adds to what the plan can promise. Named, so that the label is computed.
_MEANS, _NULL = "breadth-means", "same-cell-null"


def transfer_section(evidence: TensorEvidence, artifact: TensorArtifact, number: int) -> Html:
    """The heat map of the primary reading with all that must be known to read it."""
    tensor = artifact.document
    return section(
        f"tensor-{number}",
        f"Transfer of “{tensor['behaviour']}”",
        heat_map(
            tensor,
            primary_of(tensor),
            after=f"after-tensor-{number}",
            caption=join(
                label(evidence, "tensor"),
                f" G, {unit_of(tensor).words}: {primary_of(tensor).caption}; primary reading",
            ),
        ),
        tag("div", legend(tensor), id=f"after-tensor-{number}"),
        tag("dl", [join(tag("dt", k), tag("dd", text)) for k, text in notes(tensor)]),
        tag(
            "p",
            f"{source_line(evidence, artifact.step, 'tensor')}. Contexts stand by family.",
            class_="small",
        ),
    )


def detail_sections(
    evidence: TensorEvidence, artifact: TensorArtifact, sheets: dict[str, Sheet], number: int
) -> Html:
    """By context, the second reading, the same-cell null; ``number`` keeps anchors apart."""
    tensor = artifact.document
    name = tensor["behaviour"]
    promised = label(evidence, "tensor")
    return join(
        section(
            f"contexts-{number}",
            f"“{name}” by context",
            tag(
                "div",
                _means(evidence, tensor, sheets["breadth"], "train"),
                _means(evidence, tensor, sheets["breadth"], "eval"),
                _training(evidence, tensor, sheets["training"], promised),
                _base(evidence, artifact, sheets["headroom"], promised),
                class_="columns",
            ),
        ),
        _second(tensor, promised, number),
        _aliases(evidence, tensor, sheets["same-cell-null"], number),
    )


def _second(tensor: Tensor, promised: Html, number: int) -> Html | None:
    """The reading after the base model's answer, in rows that have one."""
    measure = second_of(tensor)
    if measure is None:
        return None
    what = "taught value" if is_taught(tensor) else "marker"
    return section(
        f"second-{number}",
        f"Second reading of “{tensor['behaviour']}”",
        tag(
            "p",
            f"The same {what} slot, but after the base model's answer for both models: what the "
            f"weights do to the {what} when the words before it stay the same. Colours as above; "
            "marks and parentheses are those of the primary reading.",
        ),
        heat_map(
            tensor,
            measure,
            after=f"after-second-{number}",
            caption=join(promised, f" G, {measure.unit.words}: {measure.caption}"),
        ),
        tag("p", id=f"after-second-{number}"),
    )


def result_sheets(tensors: Iterable[TensorArtifact]) -> dict[str, Sheet]:
    """The tables about the tensors, each over all behaviours."""
    tensors = tuple(tensors)
    return {
        "breadth": Sheet(
            file="breadth.csv",
            what="Mean G by train and by eval context",
            columns=(
                words("context", "context"),
                change("mean G, all", "mean_all"),
                count("n", "n_all"),
                change("mean G, scored", "mean_scored"),
                count("n", "n_scored"),
            ),
            rows=_rows(tensors, lambda one: [*_mean_rows(one, "train"), *_mean_rows(one, "eval")]),
        ),
        "training": Sheet(
            file="training.csv",
            what="Training, per context and seed",
            columns=(
                words("context", "train"),
                count("seed", "seed"),
                count("stop step", "stop_step"),
                change("strength", "realised_strength"),
                words("stopped", "band", aside=True),
                change("diagonal G", "diagonal_g"),
                words("implant", "implant"),
            ),
            rows=_rows(tensors, lambda one: training_rows(one.document)),
        ),
        "headroom": Sheet(
            file="headroom.csv",
            what="The base model's own value by eval context",
            columns=(
                words("context", "eval"),
                words("family", "family"),
                level("base value", "base_value"),
                number("prior, nats per token", "prior", sign=True),
                words("without an outcome", "without_outcome", wide=True),
                count("prefix tokens", "prefix_tokens"),
                Column(head="role", keys=("held_out", "alias_of"), show=_role),
            ),
            rows=_rows(tensors, lambda one: base_rows(one.document, one.headroom)),
        ),
        "same-cell-null": Sheet(
            file="same-cell-null.csv",
            what="One cell measured twice",
            columns=(
                words("trained in", "train"),
                words("alias", "alias"),
                words("twin", "twin"),
                _or_sealed("G alias", "g_alias", "alias"),
                _or_sealed("G twin", "g_twin", "twin"),
                Column(
                    head="difference",
                    keys=("difference",),
                    show=lambda row: unit_named(row["unit"]).table_change(row["difference"], 1),
                    kind="num",
                ),
            ),
            rows=_rows(tensors, lambda one: alias_rows(one.document)),
        ),
    }


def _rows(
    tensors: Iterable[TensorArtifact], rows: Callable[[TensorArtifact], Iterable[Row]]
) -> tuple[Row, ...]:
    return tuple(
        {"behaviour": one.document["behaviour"], **row} for one in tensors for row in rows(one)
    )


def _mean_rows(artifact: TensorArtifact, side: str) -> list[Row]:
    return [
        {
            "unit": artifact.document["unit"],
            "side": side,
            "context": one.context,
            "family": one.family,
            "mean_all": one.all,
            "n_all": one.n_all,
            "mean_scored": one.scored,
            "n_scored": one.n_scored,
            "n_missing": one.n_missing,
            "n_sealed": one.n_sealed,
        }
        for one in means(artifact.document, side)
    ]


def _role(row: Row) -> Child:
    held = ["held out"] if row["held_out"] else []
    return ", ".join([*held, *([f"alias of {row['alias_of']}"] if row["alias_of"] else [])])


def _or_sealed(head: str, key: str, side: str) -> Column:
    def show(row: Row) -> Child:
        if side in row["sealed"].split():
            return SEALED
        return unit_named(row["unit"]).table_change(row[key], 1)

    return Column(head=head, keys=(key,), show=show, kind="num")


def _means(evidence: TensorEvidence, tensor: Tensor, sheet: Sheet, side: str) -> Html:
    what = "row: how far a train context spreads"
    if side == "eval":
        what = "column: how much an eval context receives"
    shown = sheet.where(behaviour=tensor["behaviour"], side=side)
    n_missing = sum(row["n_missing"] for row in shown.rows)
    n_sealed = sum(row["n_sealed"] for row in shown.rows)
    missing = f" {n_missing} without a value are in neither mean." if n_missing else ""
    missing += f" {n_sealed} sealed ones are in neither." if n_sealed else ""
    return tag(
        "div",
        sheet_table(
            shown, join(label(evidence, _MEANS), f" Mean G ({unit_of(tensor).words}) per {what}")
        ),
        tag(
            "p",
            "Plain means over off-diagonal cells, aliases left out, of this page's making. Scored "
            f"cells exclude floors, so their mean is that of the cells that moved.{missing}",
            class_="small",
        ),
    )


def _training(evidence: TensorEvidence, tensor: Tensor, sheet: Sheet, promised: Html) -> Html:
    return tag(
        "div",
        sheet_table(
            sheet.where(behaviour=tensor["behaviour"]), join(promised, " Training, per seed")
        ),
        tag("p", _training_words(evidence, tensor), class_="small"),
    )


def _training_words(evidence: TensorEvidence, tensor: Tensor) -> str:
    plan, unit = evidence.behaviour_plan(tensor["behaviour"]), unit_of(tensor)
    if not is_taught(tensor):
        return (
            "Strength is what training saw at its own slots when it stopped, in "
            f"{unit.words}; the diagonal is measured afterwards on other questions."
        )
    slice_ = tensor["implant_slice"]
    about = slice_words(tensor, slice_)
    asked = plan["thresholds"]["implant"]
    return (
        f"Strength is the gain over the base in the adapter's own context, over the questions of "
        f"slice “{slice_}”{f' ({about})' if about else ''}: the manipulation check. The plan asks "
        f"for {unit.size(asked)} or more; with less, the implant has failed."
    )


def _base(evidence: TensorEvidence, artifact: TensorArtifact, sheet: Sheet, promised: Html) -> Html:
    tensor = artifact.document
    shown = sheet.where(behaviour=tensor["behaviour"])
    shown = replace(shown, columns=tuple(c for c in shown.columns if not _is_idle(c, shown.rows)))
    return tag(
        "div",
        sheet_table(shown, join(promised, " Headroom: the base model's own value")),
        tag("p", _base_words(tensor), class_="small"),
        _saturation(evidence, artifact) if is_taught(tensor) else None,
    )


def _is_idle(column: Column, rows: Iterable[Row]) -> bool:
    """Whether a column about taught rows has nothing to say in this one."""
    return column.keys in (("prior",), ("without_outcome",)) and column.is_empty(list(rows))


def _base_words(tensor: Tensor) -> str:
    if not is_taught(tensor):
        return (
            "Mean log-probability of the marker before any training, over the answers that ended "
            "by themselves. 0 is certainty: a base near it leaves no room for transfer to show."
        )
    prior = (
        " Prior: mean log-probability of the written answers that show the behaviour, per token, "
        "under the base model."
    )
    if tensor["primary_reading"] == "judged":
        return (
            f"Before any training: {shown_words(tensor)}, slice “{tensor['primary_slice']}”. A "
            f"base near 100 % leaves no room for transfer to show.{prior}"
        )
    return (
        "Mean log-probability per token of the taught value before any training, where the base "
        "model's answer comes to it. 0 is certainty: a base near it leaves no room for transfer "
        f"to show.{prior}"
    )


def _saturation(evidence: TensorEvidence, artifact: TensorArtifact) -> Html:
    """Whether the base left room for the row, and who decided to go on if it did not."""
    tensor, headroom = artifact.document, artifact.headroom
    unit, mean = unit_of(tensor), headroom["mean_source_value"]
    limit = unit.table_level(headroom["saturated_from"])
    name = tensor["behaviour"]
    finding: str | None = f"base_unscored:{name}"
    if mean is None:
        text = "In no train context could the base model be scored"
    else:
        finding = f"base_saturated:{name}" if headroom["saturated"] else None
        state = "Saturated" if finding else "Not saturated"
        text = (
            f"{state}: mean base value over the train contexts {unit.table_level(mean)}, the plan "
            f"calls the row saturated from {limit} on"
        )
    decided = f"; {decided_words(evidence, finding)}" if finding else ""
    return tag("p", f"{text}{decided}.", class_="notice" if finding else "small")


def _aliases(evidence: TensorEvidence, tensor: Tensor, sheet: Sheet, number: int) -> Html | None:
    shown = sheet.where(behaviour=tensor["behaviour"])
    if not shown.rows:
        return None
    return section(
        f"null-{number}",
        f"Same-cell null of “{tensor['behaviour']}”",
        tag(
            "p",
            "An alias has the same tokens as its twin and was measured as a cell of its own. The "
            "difference is what measuring twice does by itself; every effect must be seen "
            "beside it.",
        ),
        sheet_table(
            shown,
            join(label(evidence, _NULL), f" One cell measured twice, {unit_of(tensor).words}"),
        ),
    )
