"""What the predictors need of every pair of contexts, from the stored parts of P3. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from eps_locked.canonical import decode
from eps_locked.domain.execution import StepInputs
from eps_locked.errors import EvidenceError
from eps_locked.studies.eps.baselines.arrays import FloatArray
from eps_locked.studies.eps.baselines.measures import (
    ngram_distance,
    one_cycle,
    projection,
    symmetric_gaussian_kl,
    unit,
)
from eps_locked.studies.eps.baselines.records import (
    Activations,
    Divergences,
    Elicitation,
    Layer,
    Projection,
    stored_vector,
)
from eps_locked.studies.eps.baselines.rules import BaselineRules
from eps_locked.studies.eps.plan import EpsPlan, Slots

__all__ = ["CellMeasures"]

Pairs = Mapping[tuple[str, str], float]


@dataclass(frozen=True, kw_only=True, slots=True)
class CellMeasures:
    """Numbers by behaviour and context, or by behaviour and (train, eval).

    A row asks its own questions and fills some slots with its own contexts, so all of them are the
    row's own. ``lengths``: mean prompt tokens. ``sequence_kl``: by (own, other), nats per answer.
    ``base``: nats. ``rows``: by (behaviour, train).
    """

    layer: Layer
    gaussian_kl: Mapping[str, Pairs]
    permuted_kl: Mapping[str, Pairs]
    text_distance: Mapping[str, Pairs]
    lengths: Mapping[str, Mapping[str, float]]
    sequence_kl: Mapping[str, Pairs]
    base: Mapping[str, Mapping[str, float]]
    vectors: Mapping[str, FloatArray]
    rows: Mapping[tuple[str, str], Projection]

    @property
    def behaviours(self) -> tuple[str, ...]:
        return tuple(self.base)

    def output_kl(self, behaviour: str, own: str, other: str) -> float:
        """KL(own || other); 0 from a context to itself, which is not sampled."""
        return 0.0 if own == other else self.sequence_kl[behaviour][own, other]

    def mean_base(self, context: str) -> float:
        """Base value with the behaviour averaged away."""
        return sum(values[context] for values in self.base.values()) / len(self.base)

    def projected(self, behaviour: str, train: str) -> float:
        row = self.rows[behaviour, train]
        vector_D = self.vectors[behaviour]
        return projection(row.differences_ND, vector_D, row.share, f"vector of {behaviour}")

    def projected_blind(self, behaviour: str, train: str) -> float:
        """The same rows on the direction of the mean of the behaviours' unit vectors."""
        row = self.rows[behaviour, train]
        units = [unit(vector, f"vector of {b}") for b, vector in self.vectors.items()]
        mean_D = np.asarray(np.mean(units, axis=0), dtype=np.float64)
        return projection(row.differences_ND, mean_D, row.share, "mean vector")

    @classmethod
    def read(cls, inputs: StepInputs, section: EpsPlan, rules: BaselineRules) -> CellMeasures:
        """From the inputs of the ``baselines`` step. Raises EvidenceError if layers differ."""
        slots = {one.name: section.slots.of(one) for one in section.behaviours}
        clouds = {
            b: {j: _activations(inputs, b, j) for j in mine.eval} for b, mine in slots.items()
        }
        elicited = {b: inputs.artifact(f"elicitation:{b}") for b in slots}
        layers = {b: Elicitation.from_files(files, b).layer for b, files in elicited.items()}
        rows = {(b, i): _projection(inputs, b, i) for b in slots for i in slots[b].train}
        layer = next(iter(layers.values()))
        read_at = [*layers.values(), *(one.layer for one in rows.values())]
        for found in (*read_at, *(one.layer for row in clouds.values() for one in row.values())):
            _require_layer(found, layer)
        gauss = {
            b: _gaussian({j: one.cloud_ND for j, one in clouds[b].items()}, mine, rules)
            for b, mine in slots.items()
        }
        texts = {
            b: _texts(decode(inputs.frozen(f"contexts:{b}"), thing=f"contexts of {b}"))
            for b in slots
        }
        return cls(
            layer=layer,
            gaussian_kl=gauss,
            permuted_kl={b: _permuted(pairs, slots[b], rules) for b, pairs in gauss.items()},
            text_distance={
                b: {(i, j): ngram_distance(texts[b][i], texts[b][j], rules.ngram) for i, j in pairs}
                for b, pairs in gauss.items()
            },
            lengths={
                b: {j: sum(one.n_tokens) / len(one.n_tokens) for j, one in row.items()}
                for b, row in clouds.items()
            },
            sequence_kl={b: _sequence_kl(inputs, b, mine) for b, mine in slots.items()},
            base={b: _base(inputs, b, mine) for b, mine in slots.items()},
            vectors={b: stored_vector(elicited[b], layers[b], b) for b in slots},
            rows=rows,
        )


def _permuted(pairs: Pairs, slots: Slots, rules: BaselineRules) -> Pairs:
    moved = one_cycle(_sides(slots), rules.seed, "baselines", "permutation")
    return {(i, j): pairs[moved[i], moved[j]] for i, j in pairs}


def _activations(inputs: StepInputs, behaviour: str, context: str) -> Activations:
    thing = f"activations:{behaviour}/{context}"
    return Activations.from_files(inputs.artifact(thing), thing)


def _projection(inputs: StepInputs, behaviour: str, train: str) -> Projection:
    thing = f"projection:{behaviour}/{train}"
    return Projection.from_files(inputs.artifact(thing), thing)


def _require_layer(found: Layer, expected: Layer) -> None:
    if found != expected:
        raise EvidenceError("P3 activations", expected=expected.to_dict(), found=found.to_dict())


def _sequence_kl(inputs: StepInputs, behaviour: str, slots: Slots) -> dict[tuple[str, str], float]:
    found = {}
    for own in slots.eval:
        thing = f"divergence:{behaviour}/{own}"
        record = Divergences.from_files(inputs.artifact(thing), thing)
        for other, value in record.per_sequence().items():
            found[own, other] = value
    return found


def _gaussian(
    clouds: Mapping[str, FloatArray], slots: Slots, rules: BaselineRules
) -> dict[tuple[str, str], float]:
    """Computed once for a pair and used for both of its cells: symmetric to the last bit."""
    found: dict[tuple[str, str], float] = {}
    for i in slots.train:
        for j in slots.eval:
            if (j, i) in found:
                found[i, j] = found[j, i]
                continue
            found[i, j] = symmetric_gaussian_kl(
                clouds[i],
                clouds[j],
                n_components=rules.geometry.pca_components,
                shrinkage=rules.geometry.shrinkage,
            )
    return found


def _sides(slots: Slots) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Train contexts, and those that are only evaluated: a permuted cell must be a cell too."""
    return slots.train, tuple(name for name in slots.eval if name not in slots.train)


def _base(inputs: StepInputs, behaviour: str, slots: Slots) -> dict[str, float]:
    """Base value of the behaviour in every eval context, from the P0 headroom record."""
    thing = f"headroom:{behaviour}"
    record = decode(inputs.artifact(thing)["record.json"], thing=thing)
    return {name: float(record["base_log_prob"][name]) for name in slots.eval}


def _texts(document: Mapping[str, Any]) -> dict[str, str]:
    """A context's messages as one text, roles included."""
    return {
        name: "\n".join(f"{m['role']}: {m['content']}" for m in context["messages"])
        for name, context in document["contexts"].items()
    }
