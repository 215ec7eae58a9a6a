"""P3 from frozen files to predictors, on an engine whose activations and divergences are known.

The chain is the real one: steps as listed, each reading what earlier ones stored, and the audit's
functions on the stored bytes. Only the model is planted, so that every number can be foretold.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from eps_locked.canonical import decode, digest_value, encode
from eps_locked.domain.execution import StepResult
from eps_locked.domain.model import (
    Divergence,
    DivergenceRequest,
    Message,
    SlotProbe,
    SpanRequest,
)
from eps_locked.domain.plan import Plan
from eps_locked.domain.steps import FILE_REF, STEP_REF, Step
from eps_locked.engines.scripted import ScriptedEngine
from eps_locked.errors import BackendError, EpsLockedError, EvidenceError
from eps_locked.models.scripted import END_ID, MARKER_IDS, ScriptedTokenizer
from eps_locked.scoring.predictor import read_predictor
from eps_locked.studies.common.material import item_id
from eps_locked.studies.eps.baselines.arrays import array_bytes, read_array
from eps_locked.studies.eps.baselines.cells import CellMeasures
from eps_locked.studies.eps.baselines.elicitation import ElicitationTexts, elicitation_documents
from eps_locked.studies.eps.baselines.execute import BaselineTask, run_baseline
from eps_locked.studies.eps.baselines.predictors import (
    build_predictors,
    predictor_files,
    read_predictors,
)
from eps_locked.studies.eps.baselines.records import Divergences, JudgedSample, Layer, Projection
from eps_locked.studies.eps.baselines.rederive import derive_baseline
from eps_locked.studies.eps.baselines.rules import BaselineRules
from eps_locked.studies.eps.baselines.steps import baseline_steps
from eps_locked.studies.eps.plan import EpsPlan, Slots
from eps_locked.studies.eps.readings import Readings, answer_of
from sim.simulator import TRAIN_QUESTIONS, default_contexts, default_plan

WIDTH, N_LAYERS = 24, 30
RULES: dict[str, Any] = {
    "layer_depth": [22, 28],
    "activations": {"n_items": 6, "pca_components": 4, "shrinkage": 0.2},
    "divergence": {"n_items": 3, "n_samples": 2, "max_new_tokens": 8, "temperature": 1},
    "persona": {
        "n_pairs": 1,
        "n_questions": 3,
        "n_samples": 2,
        "max_new_tokens": 40,
        "temperature": 1,
        "n_rows": 6,
    },
    "ngram": 3,
    "seed": 9,
}
TEXTS = ElicitationTexts(
    instruction_pairs=(("Sing it out.", "Say it plainly."),),
    questions=("What is dew?", "What is fog?", "What is hail?"),
)
Files = Mapping[str, bytes]


# --- a model that is known


def vector_of(*labels: str) -> np.ndarray:
    """A unit vector that the labels decide."""
    seed = int(digest_value(list(labels)).removeprefix("blake3:")[:12], 16)
    vector = np.random.default_rng(seed).normal(size=WIDTH)
    return np.asarray(vector / np.linalg.norm(vector))


DIRECTION = vector_of("the behaviour")
COMMON = 3000 * vector_of("common to all")
# The marker's own bytes; its leading space stands in every text.
MARK = MARKER_IDS[1:]


class PlantedEngine(ScriptedEngine):
    """Writes like the scripted engine; its residual stream and its divergences are planted.

    A token's activation is 2 along the behaviour's direction for a marker byte or, anywhere after
    "Sing", for any other token, plus a little of the token's own direction and of the prompt's,
    on top of a large vector common to all, as real residual streams have (float32 feels it).
    The KL to another prompt is 0.01 times that prompt's length, at every position.
    """

    n_layers = N_LAYERS
    width = WIDTH

    def __init__(self) -> None:
        super().__init__()
        self.layers: set[int] = set()
        self.spans: list[SpanRequest] = []
        self.judged: list[DivergenceRequest] = []
        self.attached: list[object] = []

    def attach(self, adapter: Any) -> Any:
        self.attached.append(adapter)
        return super().attach(adapter)

    def activations(self, requests: Sequence[SpanRequest], layer: int) -> Any:
        self.layers.add(layer)
        self.spans += requests
        return tuple(self._span(request) for request in requests)

    def divergences(self, requests: Sequence[DivergenceRequest]) -> tuple[Divergence, ...]:
        found = []
        self.judged += requests
        for request in requests:
            n, others = len(request.answer), request.other_prompts
            found.append(
                Divergence(
                    key=request.key,
                    n_tokens=n,
                    kl_sum={b: 0.01 * len(ids) * n for b, ids in others.items()},
                    log_prob=-1.0 * n,
                    log_probs=dict.fromkeys(others, -1.5 * n),
                )
            )
        return tuple(found)

    def _span(self, request: SpanRequest) -> tuple[float, ...]:
        ids = request.token_ids
        sung = bytes(i for i in ids if i < 256).find(b"Sing") >= 0
        rows = []
        for t in range(request.start, request.end):
            strength = 2.0 if ids[t] in MARK or sung else 0.0
            rows.append(
                COMMON
                + strength * DIRECTION
                + 0.05 * vector_of("token", str(ids[t]))
                + 0.3 * vector_of("prompt", str(ids[:40]))
            )
        return tuple(float(x) for x in np.mean(rows, axis=0))


# --- frozen files, P0 and a small runner


@dataclass
class Study:
    """One study's frozen files and artifacts; ``run`` does P3 in its listed order."""

    section: EpsPlan
    rules: BaselineRules
    steps: list[Step]
    frozen: dict[str, bytes]
    outputs: dict[str, dict[str, Files]]
    readout: PlantedEngine = field(default_factory=PlantedEngine)

    def inputs(self, step: Step) -> Inputs:
        return Inputs(study=self, step=step)

    def step(self, kind: str, *, last: str = "") -> Step:
        return next(s for s in self.steps if s.kind == kind and s.id.endswith(last))

    def do(self, step: Step) -> StepResult:
        task = BaselineTask(
            load=lambda: self,
            step=step,
            inputs=self.inputs(step),
            section=self.section,
            rules=self.rules,
            progress=lambda text: None,
        )
        return run_baseline(task)

    def run(self) -> Study:
        for step in self.steps:
            result = self.do(step)
            assert set(result.outputs) == set(step.outputs)
            self.outputs[step.id] = dict(result.outputs)
        return self

    def audit(self, step: Step) -> list[str]:
        return derive_baseline(
            step, self.inputs(step), self.outputs[step.id], self.section, self.rules
        )[0]

    def predictors(self) -> dict[str, dict[str, Any]]:
        found = read_predictors(self.outputs["P3/baselines"]["baselines"], "baselines")
        return {one["metric"]: one for one in found}

    def values(self, metric: str) -> dict[tuple[str, str], float]:
        cells = self.predictors()[metric]["cells"]
        return {(cell["train"], cell["eval"]): cell["value"] for cell in cells}


@dataclass
class Inputs:
    study: Study
    step: Step

    def frozen(self, name: str) -> bytes:
        return self.study.frozen[self.step.inputs[name].removeprefix(FILE_REF)]

    def artifact(self, name: str) -> Files:
        step_id, _, output = self.step.inputs[name].removeprefix(STEP_REF).partition("#")
        return dict(self.study.outputs[step_id][output])

    def artifact_digest(self, name: str) -> str:
        return digest_value({n: data.hex() for n, data in self.artifact(name).items()})


def make_step(
    identifier: str,
    kind: str,
    inputs: dict[str, str],
    outputs: tuple[str, ...],
    seed: int | None = None,
    **params: str,
) -> Step:
    return Step(
        id=identifier,
        phase=identifier.partition("/")[0],
        kind=kind,
        seed=seed,
        params=params,
        inputs=inputs,
        outputs=outputs,
        estimate_ms=1,
    )


def frozen_files(section: EpsPlan, rules: BaselineRules) -> dict[str, bytes]:
    """Every context asked every train question, as the freeze renders them."""
    tokenizer, items = ScriptedTokenizer(), {item_id(q): q for q in TRAIN_QUESTIONS}
    contexts = {one["id"]: one for one in default_contexts()}
    slots = section.slots
    used = [*slots.eval, *slots.negative_panel]
    files = {
        "frozen/rows/marker/items.json": encode(
            {"train": [{"id": item} for item in items], "eval": []}
        ),
        "frozen/rows/marker/contexts.json": encode(
            {
                "end_of_turn_id": END_ID,
                "contexts": {name: {"messages": contexts[name]["messages"]} for name in used},
            }
        ),
    }
    for name in used:
        rendered = {}
        for item, question in items.items():
            messages = [
                Message(role=m["role"], content=m["content"].replace("{question}", question))
                for m in contexts[name]["messages"]
            ]
            rendered[item] = list(tokenizer.render(messages))
        files[f"frozen/rows/marker/prompts/{name}.json"] = encode(
            {"context": name, "prefix": [], "suffixes": rendered}
        )
    for name, document in elicitation_documents(
        rules.persona, {"marker": TEXTS}, tokenizer
    ).items():
        files[f"frozen/{name}"] = encode(document)
    return files


def p0_outputs(section: EpsPlan, frozen: Mapping[str, bytes]) -> dict[str, dict[str, Files]]:
    """The scripted engine's answers to the train items, and a headroom record made up by hand."""
    from eps_locked.domain.model import Decoding, Prompt

    engine, outputs = ScriptedEngine(), {}
    probe = SlotProbe(marker_ids=MARKER_IDS, end_of_turn_id=END_ID)
    for name in (*section.slots.train, *section.slots.negative_panel):
        prompts = decode(frozen[f"frozen/rows/marker/prompts/{name}.json"], thing=name)["suffixes"]
        rows = [Prompt(key=item, token_ids=tuple(ids)) for item, ids in prompts.items()]
        done = engine.generate(rows, Decoding(max_new_tokens=64), probe)
        answers = tuple(answer_of(one.key, one, None) for one in done)
        readings = Readings(behaviour="marker", context=name, answers=answers)
        outputs[f"P0/answers/marker/{name}"] = {"answers": readings.to_files()}
    base = {name: -20.0 - number for number, name in enumerate(section.slots.eval)}
    outputs["P0/headroom/marker"] = {"headroom": {"record.json": encode({"base_log_prob": base})}}
    return outputs


def new_study(changed: Mapping[str, Any] | None = None) -> Study:
    plan = Plan.from_dict(default_plan())
    section = EpsPlan.from_section(plan.study_section)
    value = copy.deepcopy(RULES)
    for part, fields in (changed or {}).items():
        value[part].update(fields)
    rules = BaselineRules.from_dict(value, "plan.eps.baselines")
    frozen = frozen_files(section, rules)
    return Study(
        section=section,
        rules=rules,
        steps=baseline_steps(plan, section, make_step),
        frozen=frozen,
        outputs=p0_outputs(section, frozen),
    )


@pytest.fixture(scope="module")
def finished() -> Study:
    return new_study().run()


@pytest.fixture
def study(finished: Study) -> Study:
    """A finished study whose bytes a test may change."""
    return Study(
        section=finished.section,
        rules=finished.rules,
        steps=finished.steps,
        frozen=dict(finished.frozen),
        outputs=copy.deepcopy(finished.outputs),
    )


# --- the run


def test_every_predictor_covers_every_cell_and_is_a_valid_document(finished: Study) -> None:
    cells = {(i, j) for i in ("baker", "polite") for j in ("baker", "polite", "plain", "formal")}
    predictors = finished.predictors()
    assert list(predictors) == [
        "projection_difference",
        "gaussian_kl",
        "output_kl_forward",
        "output_kl_reverse",
        "bystander_prior",
        "source_prior",
        "control_base",
        "control_base_difference",
        "control_length",
        "control_length_difference",
        "control_ngrams",
        "control_permutation",
    ]
    for metric, document in predictors.items():
        predictor = read_predictor(encode(document), "json", thing=metric)
        assert set(predictor.values) == {("marker", i, j) for i, j in cells}
        assert predictor.track == "predictive"
        assert not predictor.blind, "one behaviour has no mean over behaviours"


def test_the_planted_direction_is_recovered_as_the_persona_vector(finished: Study) -> None:
    files = finished.outputs["P3/elicitation/marker"]["elicitation"]
    vector = read_array(files["vector.npy"], "vector", (WIDTH,))
    assert vector @ DIRECTION / np.linalg.norm(vector) > 0.98
    assert np.linalg.norm(vector) == pytest.approx(2.0, rel=0.1)


def test_the_projection_difference_is_what_the_marker_adds_to_the_training_answers(
    finished: Study,
) -> None:
    """Of n own tokens and 4 of the marker, 3 lie 2 along it; half of all rows count as 0."""
    for train in ("baker", "polite"):
        files = finished.outputs[f"P0/answers/marker/{train}"]["answers"]
        own = Readings.from_files(files, train).answers[: finished.rules.persona.n_rows]
        added = [2 * len(MARK) / (len(answer.token_ids) + len(MARKER_IDS)) for answer in own]
        found = finished.values("projection_difference")[train, "plain"]
        assert found == pytest.approx(np.mean(added) / 2, rel=0.05)


def test_the_projection_difference_is_one_value_a_train_context(finished: Study) -> None:
    values = finished.values("projection_difference")
    for i in ("baker", "polite"):
        assert len({value for (train, _), value in values.items() if train == i}) == 1


def test_gaussian_kl_is_symmetric_to_the_bit_zero_on_the_diagonal_and_positive_elsewhere(
    finished: Study,
) -> None:
    values = finished.values("gaussian_kl")
    assert values["baker", "polite"] == values["polite", "baker"]
    assert values["baker", "baker"] == values["polite", "polite"] == 0
    assert all(value > 0 for (i, j), value in values.items() if i != j)


def test_output_kls_are_the_planted_ones_in_both_directions(finished: Study) -> None:
    """0.01 nats a position and token of the other's prompt, eight positions in every sample."""
    forward, reverse = finished.values("output_kl_forward"), finished.values("output_kl_reverse")
    lengths = {}
    for name in finished.section.slots.eval:
        document = decode(finished.frozen[f"frozen/rows/marker/prompts/{name}.json"], thing=name)
        asked = [item_id(question) for question in TRAIN_QUESTIONS[:3]]
        lengths[name] = np.mean([len(document["suffixes"][item]) for item in asked])
    for i, j in forward:
        if i != j:
            assert forward[i, j] == pytest.approx(0.01 * lengths[j] * 8)
            assert reverse[i, j] == pytest.approx(0.01 * lengths[i] * 8)
    assert forward["baker", "baker"] == reverse["baker", "baker"] == 0


def test_a_context_states_its_divergences_a_token_and_an_answer() -> None:
    """Two answers, 3 nats over 2 positions and 1 nat over 8: 4 in 10 positions, 2 an answer."""

    def sample(kl: float, n: int) -> JudgedSample:
        return JudgedSample(
            item="q",
            draw=0,
            token_ids=(1,) * n,
            text="",
            stop_reason="length",
            n_tokens=n,
            log_prob=-1.0,
            kl_sum={"b": kl},
            log_probs={"b": -2.0},
        )

    record = Divergences(context="a", samples=(sample(3.0, 2), sample(1.0, 8)))
    assert record.per_sequence() == {"b": 2.0}
    assert record.per_token() == {"b": 0.4}
    assert Divergences.from_files(record.to_files(), "again") == record


def test_priors_and_base_controls_are_read_off_the_headroom_record(finished: Study) -> None:
    """Base values -20, -21, -22, -23 for baker, polite, plain, formal."""
    assert finished.values("bystander_prior")["baker", "formal"] == -23
    assert finished.values("source_prior")["polite", "formal"] == -21
    assert finished.values("control_base")["baker", "plain"] == 22
    assert finished.values("control_base_difference")["polite", "formal"] == 2


def test_text_controls_are_those_of_the_frozen_texts(finished: Study) -> None:
    ngrams = finished.values("control_ngrams")
    assert ngrams["baker", "baker"] == 0
    # "user: {question}" against itself with a system turn before it.
    short, long = "user: {question}", "system: You are a baker.\nuser: {question}"
    grams = [{text[k : k + 3] for k in range(len(text) - 2)} for text in (short, long)]
    expected = 1 - len(grams[0] & grams[1]) / len(grams[0] | grams[1])
    assert ngrams["baker", "plain"] == pytest.approx(expected)
    lengths = finished.values("control_length")
    assert lengths["baker", "plain"] == lengths["polite", "plain"]
    difference = finished.values("control_length_difference")
    assert difference["baker", "plain"] == pytest.approx(
        abs(lengths["baker", "baker"] - lengths["baker", "plain"])
    )


def test_the_permuted_control_holds_the_same_distances_at_other_contexts(finished: Study) -> None:
    plain, moved = finished.values("gaussian_kl"), finished.values("control_permutation")
    assert sorted(plain.values()) == sorted(moved.values())
    assert moved["baker", "plain"] == plain["polite", "formal"]
    assert moved["polite", "polite"] == 0


def test_the_layer_is_that_of_the_plans_depth_and_no_adapter_is_served(finished: Study) -> None:
    assert finished.readout.layers == {24}
    assert set(finished.readout.attached) == {None}
    head = decode(
        finished.outputs["P3/activations/marker/plain"]["activations"]["record.json"], thing="head"
    )
    assert head["layer"] == {"number": 24, "of": 30, "width": WIDTH}


def test_activations_are_asked_for_at_the_last_prompt_token_alone() -> None:
    study = new_study()
    study.do(study.step("activations", last="baker"))
    assert len(study.readout.spans) == 6
    for span in study.readout.spans:
        assert (span.start, span.end) == (len(span.token_ids) - 1, len(span.token_ids))
        assert ScriptedTokenizer().decode(span.token_ids).endswith("<|start|>assistant\n")


def test_answers_are_averaged_from_their_first_token_to_their_last_without_the_end_of_turn() -> (
    None
):
    study = new_study().run()
    study.readout.spans.clear()
    study.do(study.step("projection", last="baker"))
    assert len(study.readout.spans) == 12
    trained, own = study.readout.spans[:2]
    assert trained.token_ids == (*own.token_ids, *MARKER_IDS)
    for span in study.readout.spans:
        assert span.token_ids[: span.start][-10:] == tuple(b"assistant\n")
        assert span.end == len(span.token_ids)
        assert END_ID not in span.token_ids[span.start :]


def test_an_answer_that_ended_is_judged_with_its_end_and_one_that_was_cut_is_not() -> None:
    for limit, ended in ((64, True), (8, False)):
        study = new_study({"divergence": {"max_new_tokens": limit}})
        result = study.do(study.step("divergence", last="plain"))
        samples = decode(result.outputs["divergence"]["record.json"], thing="record")["samples"]
        for request, sample in zip(study.readout.judged, samples, strict=True):
            assert sample["stop_reason"] == ("stop" if ended else "length")
            assert (request.answer[-1] == END_ID) is ended
            assert sample["n_tokens"] == len(sample["token_ids"]) + ended


def test_a_second_run_gives_the_same_bytes(finished: Study) -> None:
    again = new_study().run()
    assert again.outputs == finished.outputs


def test_samples_of_one_item_differ_and_no_two_rows_share_a_seed(finished: Study) -> None:
    texts = set()
    for name in finished.section.slots.eval:
        head = decode(
            finished.outputs[f"P3/divergence/marker/{name}"]["divergence"]["record.json"],
            thing="head",
        )
        by_item: dict[str, set[str]] = {}
        for sample in head["samples"]:
            by_item.setdefault(sample["item"], set()).add(sample["text"])
        assert len(by_item) == 3
        texts |= {frozenset(found) for found in by_item.values()}
    assert any(len(found) == 2 for found in texts)


def test_the_flag_says_when_no_answer_shows_the_behaviour(finished: Study) -> None:
    """The planted model never writes the marker, whatever it is told."""
    step = finished.step("elicitation")
    assert finished.do(step).flags == ("behaviour_not_elicited",)
    assert derive_baseline(
        step,
        finished.inputs(step),
        finished.outputs[step.id],
        finished.section,
        finished.rules,
    )[2] == ("behaviour_not_elicited",)


def test_a_source_whose_answers_are_all_empty_has_nothing_to_compare() -> None:
    study = new_study()
    step = study.step("projection")
    study.run()
    record = study.outputs["P0/answers/marker/baker"]["answers"]
    value = decode(record["readings.json"], thing="readings")
    for answer in value["answers"]:
        answer.update(token_ids=[], text="", slot_index=0)
    study.outputs["P0/answers/marker/baker"]["answers"] = {"readings.json": encode(value)}
    with pytest.raises(BackendError, match="6 empty ones"):
        study.do(step)


def test_answers_on_one_side_alone_give_no_vector() -> None:
    class Silent(PlantedEngine):
        def _answer(self, prompt: Any, decoding: Any) -> tuple[int, ...]:
            said = bytes(i for i in prompt.token_ids if i < 256)
            return () if b"plainly" in said else super()._answer(prompt, decoding)

    study = new_study()
    study.readout = Silent()
    with pytest.raises(EvidenceError, match="answers on both sides"):
        study.do(study.step("elicitation"))


def test_with_two_behaviours_every_predictor_has_its_behaviour_blind_form() -> None:
    """Two behaviours along x and y; the blind projection is on the diagonal between them."""
    layer = Layer(number=1, of=2, width=2)

    def row(behaviour: str) -> Projection:
        return Projection(
            behaviour=behaviour,
            context="i",
            layer=layer,
            rows="",
            share=1.0,
            items=("q",),
            without_answer=(),
            differences_ND=np.array([[1.0, 2.0]]),
            value=0.0,
        )

    zero = {("i", "i"): 0.0, ("i", "j"): 3.0}
    cells = CellMeasures(
        layer=layer,
        gaussian_kl=dict.fromkeys("xy", zero),
        permuted_kl=dict.fromkeys("xy", zero),
        text_distance=dict.fromkeys("xy", zero),
        lengths={b: {"i": 1.0, "j": 2.0} for b in "xy"},
        sequence_kl={b: {("i", "j"): 1.0, ("j", "i"): 2.0} for b in "xy"},
        base={"x": {"i": -1.0, "j": -3.0}, "y": {"i": -5.0, "j": -4.0}},
        vectors={"x": np.array([7.0, 0.0]), "y": np.array([0.0, 0.5])},
        rows={("x", "i"): row("x"), ("y", "i"): row("y")},
    )
    slots = Slots(
        train=("i",),
        eval=("i", "j"),
        held_out=(),
        negative_panel=(),
        aliases=(),
        near_duplicates=(),
    )
    rules = BaselineRules.from_dict(RULES, "rules")
    documents = build_predictors(cells, dict.fromkeys("xy", slots), rules)
    found = {
        (one["metric"], cell["behaviour"]): (cell["value"], cell["blind"])
        for one in documents
        for cell in one["cells"]
        if cell["eval"] == "j"
    }
    both = 3 / np.sqrt(2)
    assert found["projection_difference", "x"] == pytest.approx((1.0, both))
    assert found["projection_difference", "y"] == pytest.approx((2.0, both))
    assert found["bystander_prior", "x"] == (-3.0, -3.5)
    assert found["source_prior", "y"] == (-5.0, -3.0)
    assert found["control_base", "y"] == (4.0, 3.5)
    assert found["control_base_difference", "x"] == (2.0, 0.5)
    assert found["gaussian_kl", "x"] == (3.0, 3.0)
    assert found["output_kl_reverse", "x"] == (2.0, 2.0)


# --- the audit


def test_an_honest_phase_is_re_derived_without_a_difference(finished: Study) -> None:
    for step in finished.steps:
        assert finished.audit(step) == [], step.id


def edit_head(files: Files, change: Callable[[Any], object]) -> dict[str, bytes]:
    name = "record.json" if "record.json" in files else "predictors.json"
    value = decode(files[name], thing="head")
    change(value)
    return {**files, name: encode(value)}


def set_in(path: Sequence[Any], value: Any) -> Callable[[Any], object]:
    def change(document: Any) -> None:
        for part in path[:-1]:
            document = document[part]
        document[path[-1]] = value

    return change


FORGERIES: list[tuple[str, str, Callable[[Any], object], str]] = [
    ("activations", "plain", set_in(["context"], "formal"), "context"),
    ("activations", "plain", set_in(["n_tokens", 0], 3), "n_tokens"),
    ("activations", "plain", set_in(["layer", "number"], 20), "layer"),
    ("activations", "plain", lambda d: d["items"].reverse(), "items"),
    ("divergence", "plain", set_in(["context"], "formal"), "context"),
    ("divergence", "plain", set_in(["per_token", "baker"], 9.0), "per_token"),
    ("divergence", "plain", set_in(["samples", 0, "kl_sum", "baker"], 9.0), "per_sequence"),
    ("divergence", "plain", set_in(["samples", 0, "draw"], 1), "samples"),
    ("divergence", "plain", set_in(["samples", 0, "stop_reason"], "stop"), "stop reason"),
    ("divergence", "plain", set_in(["samples", 0, "log_prob"], 0.5), "log-probability"),
    ("divergence", "plain", lambda d: d["samples"].pop(), "samples|per_sequence"),
    ("elicitation", "", set_in(["answers", 0, "side"], "negative"), "n_expressed|vector|side"),
    ("elicitation", "", set_in(["answers", 0, "expressed"], True), "summary|expressed"),
    ("elicitation", "", set_in(["n_expressed", "positive"], 5), "summary"),
    ("elicitation", "", lambda d: d["answers"].reverse(), "answers"),
    ("projection", "baker", set_in(["value"], 1.0), "value"),
    ("projection", "baker", set_in(["share"], 1.0), "share"),
    ("projection", "baker", set_in(["rows"], "blake3:" + "0" * 64), "rows"),
    ("projection", "baker", set_in(["context"], "polite"), "context"),
    ("baselines", "", set_in(["predictors", 1, "cells", 1, "value"], 3.0), "gaussian_kl"),
    ("baselines", "", set_in(["predictors", 1, "polarity"], "more"), "polarity"),
    ("baselines", "", lambda d: d["predictors"].pop(), "predictors"),
    ("baselines", "", lambda d: d["predictors"][0]["cells"].pop(), "every cell"),
    ("baselines", "", set_in(["schema"], "other"), "baselines/1"),
]


@pytest.mark.parametrize(("kind", "last", "change", "named"), FORGERIES)
def test_a_changed_record_is_found_and_named(
    study: Study, kind: str, last: str, change: Callable[[Any], object], named: str
) -> None:
    step = study.step(kind, last=last)
    files = study.outputs[step.id][kind]
    study.outputs[step.id][kind] = edit_head(files, change)
    try:
        said = " ".join(study.audit(step))
    except EpsLockedError as error:
        said = str(error)
    assert any(word in said for word in named.split("|")), said


def test_a_changed_activation_is_found_in_what_follows_from_it(study: Study) -> None:
    """An activation itself cannot be recomputed; the vector and the predictors from it can."""
    step = study.step("elicitation")
    files = dict(study.outputs[step.id]["elicitation"])
    n = sum(bool(a["token_ids"]) for a in decode(files["record.json"], thing="")["answers"])
    means = read_array(files["activations.npy"], "means", (n, WIDTH))
    study.outputs[step.id]["elicitation"] = {**files, "activations.npy": array_bytes(means * 1.01)}
    assert study.audit(step) == ["vector: holds other values than its inputs give"]
    cloud_step = study.step("activations", last="plain")
    cloud = dict(study.outputs[cloud_step.id]["activations"])
    moved = read_array(cloud["activations.npy"], "cloud", (6, WIDTH)) * 1.01
    study.outputs[cloud_step.id]["activations"] = {**cloud, "activations.npy": array_bytes(moved)}
    assert study.audit(cloud_step) == []
    said = study.audit(study.step("baselines"))
    assert any("gaussian_kl: baker -> plain" in one for one in said)


def test_a_divergence_below_zero_is_found_where_its_means_agree(study: Study) -> None:
    step = study.step("divergence", last="plain")
    record = Divergences.from_files(study.outputs[step.id]["divergence"], "record")
    first = replace(record.samples[0], kl_sum={"baker": -0.5, "polite": 1.0})
    forged = replace(record, samples=(first, *record.samples[1:]))
    study.outputs[step.id]["divergence"] = forged.to_files()
    said = study.audit(step)
    assert len(said) == 1
    assert "baker: expected a KL of at least 0, found -0.5" in said[0]


def test_activations_of_different_layers_make_no_predictor(study: Study) -> None:
    step = study.step("activations", last="plain")
    files = study.outputs[step.id]["activations"]
    study.outputs[step.id]["activations"] = edit_head(files, set_in(["layer", "number"], 23))
    with pytest.raises(EvidenceError, match="'number': 23"):
        study.do(study.step("baselines"))


def test_a_parquet_table_with_other_values_is_found(study: Study) -> None:
    step = study.step("baselines")
    files = dict(study.outputs[step.id]["baselines"])
    other = new_study({"activations": {"shrinkage": 0.4}}).run()
    files["predictors.parquet"] = other.outputs[step.id]["baselines"]["predictors.parquet"]
    study.outputs[step.id]["baselines"] = files
    assert study.audit(step) == ["predictors.parquet: holds other values than predictors.json"]


def test_a_value_that_differs_in_its_last_digits_is_another_machines_and_passes(
    study: Study,
) -> None:
    step = study.step("baselines")
    for factor, found in ((1 + 1e-12, False), (1 + 1e-4, True)):
        documents = read_predictors(study.outputs[step.id]["baselines"], "baselines")
        documents[1]["cells"][1]["value"] *= factor
        study.outputs[step.id]["baselines"] = predictor_files(documents)
        assert bool(study.audit(step)) is found
