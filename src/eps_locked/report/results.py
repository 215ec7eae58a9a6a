"""The page's sections about one behaviour's tensor, and the tables behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from eps_locked.report.evidence import RunEvidence, TensorArtifact
from eps_locked.report.heatmap import heat_map, legend
from eps_locked.report.html import Child, Html, join, section, tag
from eps_locked.report.marks import SEALED, Tensor, notes
from eps_locked.report.sections import label, source_line
from eps_locked.report.sheets import (
    Column,
    Row,
    Sheet,
    count,
    figure,
    number,
    sheet_table,
    words,
)
from eps_locked.report.tables import alias_rows, base_rows, means, training_rows

# Analyses this page adds to what the plan can promise. Named, so that the label is computed.
_MEANS, _NULL = "breadth-means", "same-cell-null"


def transfer_section(evidence: RunEvidence, artifact: TensorArtifact, number: int) -> Html:
    """The heat map of the primary reading with all that must be known to read it."""
    tensor = artifact.document
    return section(
        f"tensor-{number}",
        f"Transfer of “{tensor['behaviour']}”",
        heat_map(
            tensor,
            second=False,
            after=f"after-tensor-{number}",
            caption=join(
                label(evidence, "tensor"),
                f" G, {tensor['unit']}, after each model's own answer (primary reading)",
            ),
        ),
        tag("div", legend(tensor), id=f"after-tensor-{number}"),
        tag("dl", [join(tag("dt", k), tag("dd", text)) for k, text in notes(tensor)]),
        tag("p", f"{source_line(artifact, evidence)}. Contexts stand by family.", class_="small"),
    )


def detail_sections(
    evidence: RunEvidence, artifact: TensorArtifact, sheets: dict[str, Sheet], number: int
) -> Html:
    """By context, the second reading, the same-cell null; ``number`` keeps anchors apart."""
    tensor = artifact.document
    name = tensor["behaviour"]
    promised = label(evidence, "tensor")
    second = "the base model's answer"
    return join(
        section(
            f"contexts-{number}",
            f"“{name}” by context",
            tag(
                "div",
                _means(evidence, tensor, sheets["breadth"], "train"),
                _means(evidence, tensor, sheets["breadth"], "eval"),
                _training(tensor, sheets["training"], promised),
                _base(tensor, sheets["headroom"], promised),
                class_="columns",
            ),
        ),
        section(
            f"second-{number}",
            f"Second reading of “{name}”",
            tag(
                "p",
                f"The same marker slot, but after {second} for both models: what the weights do "
                "to the marker when the words before it stay the same. Colours as above; marks "
                "and parentheses are those of the primary reading.",
            ),
            heat_map(
                tensor,
                second=True,
                after=f"after-second-{number}",
                caption=join(promised, f" G, {tensor['unit']}, after {second}"),
            ),
            tag("p", id=f"after-second-{number}"),
        ),
        _aliases(evidence, tensor, sheets["same-cell-null"], number),
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
                number("mean G, all", "mean_all", sign=True),
                count("n", "n_all"),
                number("mean G, scored", "mean_scored", sign=True),
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
                number("strength", "realised_strength", sign=True),
                words("band", "band"),
                number("diagonal G", "diagonal_g", sign=True),
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
                number("base log-prob", "base_log_prob", sign=True),
                count("prefix tokens", "prefix_tokens"),
                Column(head="role", keys=("held_out", "alias_of"), show=_role),
            ),
            rows=_rows(tensors, lambda one: base_rows(one.document, one.base)),
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
                number("difference", "difference", 3, sign=True),
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
        return SEALED if side in row["sealed"].split() else figure(row[key], 3, sign=True)

    return Column(head=head, keys=(key,), show=show, kind="num")


def _means(evidence: RunEvidence, tensor: Tensor, sheet: Sheet, side: str) -> Html:
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
        sheet_table(shown, join(label(evidence, _MEANS), f" Mean G per {what}")),
        tag(
            "p",
            "Plain means over off-diagonal cells, aliases left out, of this page's making. Scored "
            f"cells exclude floors, so their mean is that of the cells that moved.{missing}",
            class_="small",
        ),
    )


def _training(tensor: Tensor, sheet: Sheet, promised: Html) -> Html:
    return tag(
        "div",
        sheet_table(
            sheet.where(behaviour=tensor["behaviour"]), join(promised, " Training, per seed")
        ),
        tag(
            "p",
            f"Strength is what training saw at its own slots when it stopped, in "
            f"{tensor['unit']}; the diagonal is measured afterwards on other questions.",
            class_="small",
        ),
    )


def _base(tensor: Tensor, sheet: Sheet, promised: Html) -> Html:
    return tag(
        "div",
        sheet_table(
            sheet.where(behaviour=tensor["behaviour"]),
            join(promised, " Headroom: the base model's own value"),
        ),
        tag(
            "p",
            "Mean log-probability of the marker before any training, over the answers that ended "
            "by themselves. 0 is certainty: a base near it leaves no room for transfer to show.",
            class_="small",
        ),
    )


def _aliases(evidence: RunEvidence, tensor: Tensor, sheet: Sheet, number: int) -> Html | None:
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
            join(label(evidence, _NULL), f" One cell measured twice, {tensor['unit']}"),
        ),
    )
