"""The page's sections about one behaviour's tensor."""

from __future__ import annotations

from eps_locked.report.evidence import RunEvidence, TensorArtifact
from eps_locked.report.heatmap import heat_map, legend
from eps_locked.report.html import Child, Html, join, section, table, tag
from eps_locked.report.marks import Tensor, notes, typeset
from eps_locked.report.sections import label, source_line
from eps_locked.report.tables import Mean, alias_rows, base_rows, means, training_rows

# Analyses this page adds to what the plan can promise. Named, so that the label is computed.
_MEANS, _NULL = "breadth-means", "same-cell-null"


def behaviour_sections(evidence: RunEvidence, artifact: TensorArtifact, number: int) -> Html:
    """Everything about one tensor; ``number`` keeps the anchors of several apart."""
    tensor = artifact.document
    name = tensor["behaviour"]
    confirmatory = label(evidence, "tensor")
    second = "the base model's answer"
    return join(
        section(
            f"tensor-{number}",
            f"Transfer of “{name}”",
            heat_map(
                tensor,
                second=False,
                caption=join(
                    confirmatory,
                    f" G, {tensor['unit']}, after each model's own answer (primary reading)",
                ),
            ),
            legend(tensor),
            tag("dl", [join(tag("dt", k), tag("dd", text)) for k, text in notes(tensor)]),
            tag(
                "p", f"{source_line(artifact, evidence)}. Contexts stand by family.", class_="small"
            ),
        ),
        section(
            f"contexts-{number}",
            "By context",
            tag(
                "div",
                _means(evidence, tensor, "train"),
                _means(evidence, tensor, "eval"),
                _training(tensor, confirmatory),
                _base(artifact, confirmatory),
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
                caption=join(confirmatory, f" G, {tensor['unit']}, after {second}"),
            ),
        ),
        _aliases(evidence, tensor, number),
    )


def _means(evidence: RunEvidence, tensor: Tensor, side: str) -> Html:
    what = "row: how far a train context spreads"
    if side == "eval":
        what = "column: how much an eval context receives"
    found = means(tensor, side)
    n_missing = sum(one.n_missing for one in found)
    missing = f" {n_missing} without a value are in neither mean." if n_missing else ""
    return tag(
        "div",
        table(
            ("context", "mean G, all", "n", "mean G, scored", "n"),
            [_mean_row(one) for one in found],
            caption=join(label(evidence, _MEANS), f" Mean G per {what}"),
            numeric=range(1, 5),
        ),
        tag(
            "p",
            "Plain means over off-diagonal cells, aliases left out, of this page's making. Scored "
            f"cells exclude floors, so their mean is that of the cells that moved.{missing}",
            class_="small",
        ),
    )


def _mean_row(one: Mean) -> list[Child]:
    return [
        one.context,
        "none" if one.all is None else typeset(one.all, 2),
        one.n_all,
        "none" if one.scored is None else typeset(one.scored, 2),
        one.n_scored,
    ]


def _training(tensor: Tensor, confirmatory: Html) -> Html:
    rows: list[list[Child]] = [
        [
            row["train"],
            row["seed"],
            row["stop_step"],
            typeset(row["realised_strength"], 2),
            row["band"],
            typeset(row["diagonal_g"], 2),
            row["implant"],
        ]
        for row in training_rows(tensor)
    ]
    head = ("context", "seed", "stop step", "strength", "band", "diagonal G", "implant")
    return tag(
        "div",
        table(
            head,
            rows,
            caption=join(confirmatory, " Training, per seed"),
            numeric=(1, 2, 3, 5),
        ),
        tag(
            "p",
            f"Strength is what training saw at its own slots when it stopped, in "
            f"{tensor['unit']}; the diagonal is measured afterwards on other questions.",
            class_="small",
        ),
    )


def _base(artifact: TensorArtifact, confirmatory: Html) -> Html:
    rows: list[list[Child]] = [
        [
            row["eval"],
            row["family"],
            typeset(row["base_log_prob"], 2),
            row["prefix_tokens"],
            _role(row["held_out"], row["alias_of"]),
        ]
        for row in base_rows(artifact.document, artifact.base)
    ]
    return tag(
        "div",
        table(
            ("context", "family", "base log-prob", "prefix tokens", "role"),
            rows,
            caption=join(confirmatory, " Headroom: the base model's own value"),
            numeric=(2, 3),
        ),
        tag(
            "p",
            "Mean log-probability of the marker before any training, over the answers that ended "
            "by themselves. 0 is certainty: a base near it leaves no room for transfer to show.",
            class_="small",
        ),
    )


def _role(held_out: bool, alias_of: str | None) -> str:
    words = ["held out"] if held_out else []
    return ", ".join([*words, f"alias of {alias_of}"] if alias_of else words)


def _aliases(evidence: RunEvidence, tensor: Tensor, number: int) -> Html | None:
    rows = alias_rows(tensor)
    if not rows:
        return None
    shown: list[list[Child]] = [
        [
            row["train"],
            row["alias"],
            row["twin"],
            typeset(row["g_alias"], 3),
            typeset(row["g_twin"], 3),
            typeset(row["difference"], 3),
        ]
        for row in rows
    ]
    return section(
        f"null-{number}",
        "Same-cell null",
        tag(
            "p",
            "An alias has the same tokens as its twin and was measured as a cell of its own. The "
            "difference is what measuring twice does by itself; every effect must be seen "
            "beside it.",
        ),
        table(
            ("trained in", "alias", "twin", "G alias", "G twin", "difference"),
            shown,
            caption=join(label(evidence, _NULL), f" One cell measured twice, {tensor['unit']}"),
            numeric=range(3, 6),
        ),
    )
