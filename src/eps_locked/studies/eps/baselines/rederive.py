"""Re-deriving what P3 claims, from stored bytes; pure, and handed to the audit with the rest.

What cannot be recomputed without the model: samples, their KL, and activations. Of those the parts
that must agree with frozen files and with each other are checked. Everything computed from them is
computed again: the vector, the projections, and every value of every predictor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eps_locked.domain.execution import StepInputs
from eps_locked.domain.ledger import Status
from eps_locked.domain.steps import Step
from eps_locked.studies.eps.analysis import parquet_rows
from eps_locked.studies.eps.baselines.cells import CellMeasures
from eps_locked.studies.eps.baselines.derive import (
    answer_with_end,
    elicitation_flags,
    expression_of,
    judged_prompts,
    measured_rows,
    probe_items,
)
from eps_locked.studies.eps.baselines.elicitation import read_elicitation
from eps_locked.studies.eps.baselines.measures import projection
from eps_locked.studies.eps.baselines.predictors import (
    PREDICTORS_FILE,
    PREDICTORS_PARQUET,
    build_predictors,
    flat_rows,
    read_predictors,
    slots_by_row,
)
from eps_locked.studies.eps.baselines.records import (
    HEAD_FILE,
    Activations,
    Divergences,
    Elicitation,
    Layer,
    Projection,
    stored_vector,
)
from eps_locked.studies.eps.baselines.rules import BaselineRules, SampleRules
from eps_locked.studies.eps.baselines.steps import compared_with
from eps_locked.studies.eps.plan import EpsPlan

__all__ = ["derive_baseline"]

Outputs = Mapping[str, Mapping[str, bytes]]
Derived = tuple[list[str], Status, tuple[str, ...]]

# Principal axes come from a library's decomposition, whose last digits follow its version and the
# processor: 4e-14 of the value between two of OpenBLAS's kernels, on clouds of 12 and 48 points.
# The vector is stored in float32, whose rounding may flip by 6e-8.
_RELATIVE, _ABSOLUTE = 1e-6, 1e-9
# A log-probability is a difference of logits and log Z, and may round to above 0.
_ROUNDING = 1e-6
_MOST = 20


def derive_baseline(
    step: Step, inputs: StepInputs, outputs: Outputs, section: EpsPlan, rules: BaselineRules
) -> Derived:
    """Differences found in a step of P3, and the status and flags that its stored bytes give."""
    match step.kind:
        case "activations":
            return _activations(step, inputs, outputs, rules), "done", ()
        case "divergence":
            return _divergence(step, inputs, outputs, section, rules), "done", ()
        case "elicitation":
            return _elicitation(step, inputs, outputs, section, rules)
        case "projection":
            return _projection(step, inputs, outputs, section, rules), "done", ()
        case "baselines":
            return _baselines(inputs, outputs, section, rules), "done", ()
    return [f"kind: {step.kind} is no kind of P3"], "done", ()


def _activations(
    step: Step, inputs: StepInputs, outputs: Outputs, rules: BaselineRules
) -> list[str]:
    files = outputs["activations"]
    record = Activations.from_files(files, step.id)
    items = probe_items(inputs, rules.geometry.n_items)
    prompts, _ = judged_prompts(inputs, ())
    return [
        *_equal("context", step.params["context"], record.context),
        *_equal("items", items, record.items),
        *_equal("n_tokens", tuple(len(prompts[item]) for item in items), record.n_tokens),
        *_layer(record.layer, rules),
        *_same_head(record.to_files(), files),
    ]


def _divergence(
    step: Step, inputs: StepInputs, outputs: Outputs, section: EpsPlan, rules: BaselineRules
) -> list[str]:
    files, context = outputs["divergence"], step.params["context"]
    record = Divergences.from_files(files, step.id)
    asked = _asked(probe_items(inputs, rules.divergence.n_items), rules.divergence.samples)
    differences = [
        *_equal("context", context, record.context),
        *_equal("samples", asked, [(one.item, one.draw) for one in record.samples]),
        *_same_head(record.to_files(), files),
    ]
    others = set(compared_with(section.slots_of(step.params["behaviour"]), context))
    contexts = inputs.frozen("contexts")
    for sample in record.samples:
        at, length = f"sample {sample.item}/{sample.draw}", len(sample.token_ids)
        differences += _stops(at, sample.stop_reason, length, rules.divergence.samples)
        n_tokens = len(answer_with_end(sample.token_ids, sample.stop_reason, contexts))
        differences += _equal(f"{at}: n_tokens", n_tokens, sample.n_tokens)
        differences += _equal(f"{at}: contexts", sorted(others), sorted(sample.kl_sum))
        differences += [
            f"{at}: {name}: expected a KL of at least 0, found {value}"
            for name, value in sample.kl_sum.items()
            if value < 0
        ]
        differences += [
            f"{at}: {name}: expected a log-probability of at most 0, found {value}"
            for name, value in (("own", sample.log_prob), *sample.log_probs.items())
            if value > _ROUNDING
        ]
    return differences


def _elicitation(
    step: Step, inputs: StepInputs, outputs: Outputs, section: EpsPlan, rules: BaselineRules
) -> Derived:
    files, behaviour = outputs["elicitation"], section.behaviour(step.params["behaviour"])
    record = Elicitation.from_files(files, step.id)
    prompts = read_elicitation(inputs.frozen("elicitation"), "frozen elicitation")
    sides = {prompt.key: prompt.side for prompt in prompts}
    asked = _asked([prompt.key for prompt in prompts], rules.persona.samples)
    differences = [
        *_equal("behaviour", behaviour.name, record.behaviour),
        *_equal("answers", asked, [(one.prompt, one.draw) for one in record.answers]),
        *_layer(record.layer, rules),
        *_same_head(record.to_files(), files),
        *_near("vector", record.vector(), stored_vector(files, record.layer, step.id)),
    ]
    for answer in record.answers:
        at = f"answer {answer.prompt}/{answer.draw}"
        differences += _stops(at, answer.stop_reason, len(answer.token_ids), rules.persona.samples)
        differences += _equal(f"{at}: side", sides.get(answer.prompt), answer.side)
        shown = expression_of(behaviour)(answer.text)
        differences += _equal(f"{at}: expressed", shown, answer.expressed)
    return differences, "done", elicitation_flags(record.answers)


def _projection(
    step: Step, inputs: StepInputs, outputs: Outputs, section: EpsPlan, rules: BaselineRules
) -> list[str]:
    files, behaviour = outputs["projection"], section.behaviour(step.params["behaviour"])
    record = Projection.from_files(files, step.id)
    rows = measured_rows(step, inputs, section, behaviour, rules.persona)
    elicited = inputs.artifact("elicitation")
    vector_D = stored_vector(elicited, record.layer, "elicitation")
    value = projection(record.differences_ND, vector_D, record.share, "vector")
    return [
        *_equal("behaviour", behaviour.name, record.behaviour),
        *_equal("context", step.params["context"], record.context),
        *_equal("layer", Elicitation.from_files(elicited, "elicitation").layer, record.layer),
        *_equal("rows", rows.digest, record.rows),
        *_equal("share", rows.share, record.share),
        *_equal("items", rows.items, record.items),
        *_equal("without_answer", rows.without_answer, record.without_answer),
        *_near("value", value, record.value),
        *_same_head(record.to_files(), files),
    ]


def _baselines(
    inputs: StepInputs, outputs: Outputs, section: EpsPlan, rules: BaselineRules
) -> list[str]:
    files = outputs["baselines"]
    cells = CellMeasures.read(inputs, section, rules)
    expected = build_predictors(cells, slots_by_row(section), rules)
    found = read_predictors(files, "baselines")
    differences = _equal("files", sorted((PREDICTORS_FILE, PREDICTORS_PARQUET)), sorted(files))
    differences += _equal(
        "predictors", [one["metric"] for one in expected], [one["metric"] for one in found]
    )
    for mine, theirs in zip(expected, found, strict=False):
        differences += _predictor(mine, theirs)
    if not differences and flat_rows(found) != parquet_rows(files[PREDICTORS_PARQUET]):
        differences.append(f"{PREDICTORS_PARQUET}: holds other values than {PREDICTORS_FILE}")
    return differences[:_MOST]


def _predictor(expected: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Heads the same, cells the same in order, values as near as two machines compute them."""
    metric, differences = expected["metric"], []
    for key in sorted({*expected, *found} - {"cells"}):
        differences += _equal(f"{metric}: {key}", expected.get(key), found.get(key))
    names = ("behaviour", "train", "eval")
    mine = [tuple(cell[name] for name in names) for cell in expected["cells"]]
    theirs = [tuple(cell[name] for name in names) for cell in found["cells"]]
    if mine != theirs:
        return [*differences, f"{metric}: cells: expected every cell in order, found others"]
    for one, other in zip(expected["cells"], found["cells"], strict=True):
        at = f"{metric}: {one['train']} -> {one['eval']}"
        if set(one) != set(other):
            differences.append(f"{at}: expected {sorted(one)}, found {sorted(other)}")
            continue
        for key in sorted(set(one) & {"value", "blind"}):
            differences += _near(f"{at}: {key}", one[key], other[key])
    return differences


def _asked(names: Sequence[str], rules: SampleRules) -> list[tuple[str, int]]:
    return [(name, draw) for name in names for draw in range(rules.n_samples)]


def _stops(at: str, stop_reason: str, length: int, rules: SampleRules) -> list[str]:
    """An answer was cut exactly if it has as many tokens as it could; the end takes one too."""
    limit = rules.max_new_tokens
    fits = length == limit if stop_reason == "length" else length < limit
    return [] if fits else [f"{at}: {length} tokens of {limit}, but stop reason {stop_reason}"]


def _layer(layer: Layer, rules: BaselineRules) -> list[str]:
    return _equal("layer", rules.layer(layer.of), layer.number)


def _equal(thing: str, expected: object, found: object) -> list[str]:
    if expected == found:
        return []
    shown = [
        text if len(text) <= 200 else f"{text[:197]}..." for text in map(str, (expected, found))
    ]
    return [f"{thing}: expected {shown[0]}, found {shown[1]}"]


def _near(thing: str, expected: Any, found: Any) -> list[str]:
    if np.allclose(found, expected, rtol=_RELATIVE, atol=_ABSOLUTE):
        return []
    if np.ndim(expected):
        return [f"{thing}: holds other values than its inputs give"]
    return [f"{thing}: expected {expected}, found {found}"]


def _same_head(expected: Mapping[str, bytes], found: Mapping[str, bytes]) -> list[str]:
    """What a head repeats for readers (means, counts) follows from what it lists."""
    if expected[HEAD_FILE] == found.get(HEAD_FILE):
        return []
    return [f"{HEAD_FILE}: its summary is not that of what it lists"]
