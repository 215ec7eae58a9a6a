"""From what P3 stored to the shipped predictors: one number for every cell, held out or not.

All of it is read off the base model, so no cell of it is a secret. Pure: the run's last step of
the phase and the auditor call the same functions.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from eps_locked.canonical import decode, encode
from eps_locked.errors import EvidenceError
from eps_locked.studies.eps.baselines.cells import CellMeasures
from eps_locked.studies.eps.baselines.records import Layer
from eps_locked.studies.eps.baselines.rules import BaselineRules
from eps_locked.studies.eps.plan import EpsPlan, Slots

__all__ = [
    "AUTHOR",
    "BASELINES_SCHEMA",
    "PREDICTORS_FILE",
    "PREDICTORS_PARQUET",
    "build_predictors",
    "flat_rows",
    "predictor_files",
    "read_predictors",
    "slots_by_row",
]

PREDICTORS_FILE = "predictors.json"
PREDICTORS_PARQUET = "predictors.parquet"
BASELINES_SCHEMA = "eps-locked/baselines/1"
PREDICTOR_SCHEMA = "eps-locked/predictor/1"
AUTHOR = "eps-locked"

# A number for a cell (behaviour, train, eval).
Measure = Callable[[str, str, str], float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Baseline:
    """One shipped predictor. ``polarity``: whether a larger value means more or less transfer.

    ``blind`` is the same measure with the behaviour averaged away; absent where the measure does
    not look at the behaviour and is its own blind form.
    """

    metric: str
    title: str
    polarity: Literal["more", "less"]
    description: str
    measure: Measure
    blind: Measure | None = None


def slots_by_row(section: EpsPlan) -> dict[str, Slots]:
    """The slots of every row: the cells that a predictor speaks of."""
    return {behaviour.name: section.slots.of(behaviour) for behaviour in section.behaviours}


def build_predictors(
    cells: CellMeasures, slots: Mapping[str, Slots], rules: BaselineRules
) -> list[dict[str, Any]]:
    """The predictor documents, in the order in which the baselines are listed here."""
    baselines = (
        _projection_difference(cells, rules),
        _gaussian_kl(cells, rules),
        *_output_kls(cells, rules),
        *_priors(cells),
        *_base_controls(cells),
        *_text_controls(cells, rules),
        _permutation(cells, rules),
    )
    return [_document(baseline, slots) for baseline in baselines]


def predictor_files(documents: Sequence[Mapping[str, Any]]) -> dict[str, bytes]:
    """The artifact: every document, and the same cells as one Parquet table."""
    document = {"schema": BASELINES_SCHEMA, "predictors": list(documents)}
    return {PREDICTORS_FILE: encode(document), PREDICTORS_PARQUET: _parquet(documents)}


def read_predictors(files: Mapping[str, bytes], thing: str) -> list[dict[str, Any]]:
    """The predictor documents of such an artifact, as decoded; their own reader checks each."""
    if PREDICTORS_FILE not in files:
        raise EvidenceError(
            thing, expected=PREDICTORS_FILE, found=", ".join(sorted(files)) or "nothing"
        )
    document = decode(files[PREDICTORS_FILE], thing=f"{thing}: {PREDICTORS_FILE}")
    found = document.get("schema") if isinstance(document, dict) else type(document).__name__
    if found != BASELINES_SCHEMA:
        raise EvidenceError(f"{thing}: {PREDICTORS_FILE}", expected=BASELINES_SCHEMA, found=found)
    predictors: list[dict[str, Any]] = document["predictors"]
    return predictors


def flat_rows(documents: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row a cell and predictor, for tables."""
    return [
        {
            "metric": document["metric"],
            "track": document["track"],
            "polarity": document["polarity"],
            "behaviour": cell["behaviour"],
            "train": cell["train"],
            "eval": cell["eval"],
            "value": float(cell["value"]),
            "blind": float(cell["blind"]) if "blind" in cell else None,
        }
        for document in documents
        for cell in document["cells"]
    ]


def _document(baseline: Baseline, slots: Mapping[str, Slots]) -> dict[str, Any]:
    rows = []
    for b in sorted(slots):
        for i in sorted(slots[b].train):
            for j in sorted(slots[b].eval):
                row: dict[str, Any] = {"behaviour": b, "train": i, "eval": j}
                row["value"] = baseline.measure(b, i, j)
                # With one behaviour the mean over behaviours is that behaviour: no ablation.
                if len(slots) > 1:
                    row["blind"] = (baseline.blind or baseline.measure)(b, i, j)
                rows.append(row)
    return {
        "schema": PREDICTOR_SCHEMA,
        "metric": baseline.metric,
        "title": baseline.title,
        "author": AUTHOR,
        "track": "predictive",
        "polarity": baseline.polarity,
        "description": baseline.description,
        "cells": rows,
    }


def _projection_difference(cells: CellMeasures, rules: BaselineRules) -> Baseline:
    persona, samples = rules.persona, rules.persona.samples
    return Baseline(
        metric="projection_difference",
        title="Persona-vector projection difference",
        polarity="more",
        description=(
            "Mean over the training rows of the projection, on the unit persona vector, of the "
            f"mean activation {_at(cells.layer)} over the training answer less that over the "
            f"model's own answer (at most {persona.n_rows} positives read; negatives are the "
            "model's own answers and count as 0). Persona vector: positive less negative mean "
            f"answer activation, {persona.n_pairs} instruction pairs x {persona.n_questions} "
            f"questions x {samples.n_samples} samples a side, at most {samples.max_new_tokens} "
            f"tokens at temperature {samples.temperature:g}, no answer filtered out. One value a "
            "train context, the same for every eval context."
        ),
        measure=lambda b, i, _j: cells.projected(b, i),
        blind=lambda b, i, _j: cells.projected_blind(b, i),
    )


def _gaussian_kl(cells: CellMeasures, rules: BaselineRules) -> Baseline:
    geometry = rules.geometry
    return Baseline(
        metric="gaussian_kl",
        title="Symmetric Gaussian KL of activation clouds",
        polarity="less",
        description=(
            "Mean of both directions of the KL between Gaussians fitted to the residual stream "
            f"{_at(cells.layer)} at the last prompt token of {geometry.n_items} training "
            f"questions: {geometry.pca_components} principal axes of the two pooled clouds, "
            f"covariances with {geometry.shrinkage:g} of the scaled identity; nats."
        ),
        measure=lambda b, i, j: cells.gaussian_kl[b][i, j],
    )


def _output_kls(cells: CellMeasures, rules: BaselineRules) -> tuple[Baseline, Baseline]:
    samples = rules.divergence.samples
    how = (
        "Exact full-vocabulary KL at each position, summed over an answer of at most "
        f"{samples.max_new_tokens} tokens and its end of turn, mean over {samples.n_samples} "
        f"samples at temperature {samples.temperature:g} for each of {rules.divergence.n_items} "
        "training questions; nats per answer."
    )
    return (
        Baseline(
            metric="output_kl_forward",
            title="Output KL from source to eval",
            polarity="less",
            description=f"KL(train || eval), answers sampled in the train context. {how}",
            measure=lambda b, i, j: cells.output_kl(b, i, j),
        ),
        Baseline(
            metric="output_kl_reverse",
            title="Output KL from eval to source",
            polarity="less",
            description=f"KL(eval || train), answers sampled in the eval context. {how}",
            measure=lambda b, i, j: cells.output_kl(b, j, i),
        ),
    )


_PRIOR = (
    "Mean log-probability of the behaviour in the base model (P0): of the marker at the end of its "
    "answers to evaluation questions, or per token of written answers to training questions"
)


def _priors(cells: CellMeasures) -> tuple[Baseline, Baseline]:
    return (
        Baseline(
            metric="bystander_prior",
            title="Bystander prior log P(behaviour | eval)",
            polarity="more",
            description=f"{_PRIOR}, eval context; nats.",
            measure=lambda b, _i, j: cells.base[b][j],
            blind=lambda _b, _i, j: cells.mean_base(j),
        ),
        Baseline(
            metric="source_prior",
            title="Source prior log P(behaviour | train)",
            polarity="less",
            description=(
                f"{_PRIOR}, train context; nats. The more the source does it already, the less "
                "there is to write."
            ),
            measure=lambda b, i, _j: cells.base[b][i],
            blind=lambda _b, i, _j: cells.mean_base(i),
        ),
    )


def _base_controls(cells: CellMeasures) -> tuple[Baseline, Baseline]:
    return (
        Baseline(
            metric="control_base",
            title="Control: minus the eval base value",
            polarity="less",
            description=(
                f"Content-free: minus base(eval). {_PRIOR}; nats. Where the base value is that "
                "log-probability, this is the bystander prior turned round."
            ),
            measure=lambda b, _i, j: -cells.base[b][j],
            blind=lambda _b, _i, j: -cells.mean_base(j),
        ),
        Baseline(
            metric="control_base_difference",
            title="Control: distance of base values",
            polarity="less",
            description=f"Content-free: |base(train) - base(eval)|. {_PRIOR}; nats.",
            measure=lambda b, i, j: abs(cells.base[b][i] - cells.base[b][j]),
            blind=lambda _b, i, j: abs(cells.mean_base(i) - cells.mean_base(j)),
        ),
    )


def _text_controls(cells: CellMeasures, rules: BaselineRules) -> tuple[Baseline, ...]:
    n_items = rules.geometry.n_items
    return (
        Baseline(
            metric="control_length",
            title="Control: eval prompt length",
            polarity="less",
            description=(
                f"Content-free: mean tokens of the prompts of {n_items} training questions, eval "
                "context."
            ),
            measure=lambda b, _i, j: cells.lengths[b][j],
        ),
        Baseline(
            metric="control_length_difference",
            title="Control: difference of prompt lengths",
            polarity="less",
            description=(
                "Content-free: |tokens(train) - tokens(eval)|, mean tokens of the prompts of "
                f"{n_items} training questions."
            ),
            measure=lambda b, i, j: abs(cells.lengths[b][i] - cells.lengths[b][j]),
        ),
        Baseline(
            metric="control_ngrams",
            title="Control: text overlap",
            polarity="less",
            description=(
                f"Content-free: 1 - Jaccard index of the character {rules.ngram}-grams of the two "
                "contexts' messages, roles included, a placeholder where the question goes."
            ),
            measure=lambda b, i, j: cells.text_distance[b][i, j],
        ),
    )


def _permutation(cells: CellMeasures, rules: BaselineRules) -> Baseline:
    return Baseline(
        metric="control_permutation",
        title="Control: permuted Gaussian KL",
        polarity="less",
        description=(
            f"The Gaussian KL of the wrong contexts: one cycle (seed {rules.seed}) through the "
            "train contexts and one through the others, so that no context keeps its place in a "
            "group of two or more."
        ),
        measure=lambda b, i, j: cells.permuted_kl[b][i, j],
    )


def _at(layer: Layer) -> str:
    return f"after block {layer.number} of {layer.of}"


def _parquet(documents: Sequence[Mapping[str, Any]]) -> bytes:
    """Its bytes depend on the pyarrow version; its values do not."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = ("metric", "track", "polarity", "behaviour", "train", "eval")
    columns = [(name, pa.string()) for name in texts]
    columns += [(name, pa.float64()) for name in ("value", "blind")]
    table = pa.Table.from_pylist(flat_rows(documents), schema=pa.schema(columns))
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="none")
    return sink.getvalue()
