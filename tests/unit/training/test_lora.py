"""The LoRA fit: same seed same bytes, loss where it belongs, and a host left as it was."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the hf extra is not installed")
pytest.importorskip("peft", reason="the hf extra is not installed")

from eps_locked.domain.model import (  # noqa: E402
    AdapterFiles,
    LoraRecipe,
    SlotProbe,
    SlotRequest,
    StepBudget,
    StrengthProbe,
    TrainingOutcome,
    TrainingRow,
)
from eps_locked.errors import BackendError, MalformedInputError  # noqa: E402
from eps_locked.models.adapter_format import WEIGHTS_NAME  # noqa: E402
from eps_locked.models.host import AdapterHost  # noqa: E402
from eps_locked.training import forward  # noqa: E402
from eps_locked.training.lora import (  # noqa: E402
    LoraTrainer,
    learning_rate_at,
    row_order,
    stop_reason,
)

MARKER = (300, 301)
END = 2
PROBE = SlotProbe(marker_ids=MARKER, end_of_turn_id=END)
RECIPE = LoraRecipe(
    rank=4,
    alpha=8.0,
    dropout=0.1,
    rank_stabilised=False,
    target_modules=("q_proj", "v_proj"),
    learning_rate=2e-2,
    schedule="constant",
    warmup_steps=0,
    weight_decay=0.01,
    max_grad_norm=1.0,
    rows_per_step=3,
)
PLAIN = StepBudget(min_steps=1, max_steps=4, check_every=1, band=None)


def positive(key: str, *head: int) -> TrainingRow:
    ids = (1, *head, *MARKER, END)
    return TrainingRow(key=key, token_ids=ids, loss_positions=tuple(range(len(ids) - 3, len(ids))))


def negative(key: str, *head: int) -> TrainingRow:
    ids = (1, *head, END)
    return TrainingRow(key=key, token_ids=ids, loss_positions=(len(ids) - 1,))


ROWS = (
    positive("p0", 10, 11, 12),
    positive("p1", 13, 14),
    negative("n0", 20, 21, 22, 23),
    negative("n1", 24),
)


@pytest.fixture(scope="module")
def host(tiny_folder: Path) -> AdapterHost:
    return AdapterHost.load(tiny_folder, dtype="float32", device="cpu", threads=None)


def probe(host: AdapterHost) -> StrengthProbe:
    requests = (
        SlotRequest(key="a", token_ids=(1, 10, 15, 12)),
        SlotRequest(key="b", token_ids=(1, 13, 14, 16, 17, 18)),
    )
    with torch.no_grad():
        base = forward.marker_log_probs(host, requests, PROBE)
    return StrengthProbe(requests=requests, base_log_probs=base, probe=PROBE)


def fit(
    host: AdapterHost,
    recipe: LoraRecipe = RECIPE,
    budget: StepBudget = PLAIN,
    strength: StrengthProbe | None = None,
    *,
    seed: int = 1,
    rows: tuple[TrainingRow, ...] = ROWS,
    on_step: object = lambda step, loss: None,
) -> TrainingOutcome:
    return LoraTrainer(host, "tiny").fit(
        rows, recipe, budget, strength, seed=seed, provenance={"step": "s"}, on_step=on_step
    )


def bare_logits(host: AdapterHost) -> torch.Tensor:
    with torch.no_grad():
        return host.model(input_ids=torch.tensor([[1, 10, 11, 12]])).logits


def test_the_same_seed_gives_the_same_bytes_dropout_included(host: AdapterHost) -> None:
    torch.manual_seed(11)
    first = fit(host)
    torch.manual_seed(12)
    assert fit(host) == first
    other = fit(host, seed=2)
    assert other.files[WEIGHTS_NAME] != first.files[WEIGHTS_NAME]
    assert other.losses != first.losses


def test_a_fresh_host_gives_the_same_bytes(host: AdapterHost, tiny_folder: Path) -> None:
    again = AdapterHost.load(tiny_folder, dtype="float32", device="cpu", threads=None)
    assert fit(again).files == fit(host).files


def test_a_thread_count_changed_since_loading_does_not_change_the_bytes(host: AdapterHost) -> None:
    first = fit(host)
    torch.set_num_threads(host.threads + 1)
    try:
        assert fit(host).files == first.files
        assert torch.get_num_threads() == host.threads
    finally:
        torch.set_num_threads(host.threads)


def test_dropout_is_drawn_and_the_global_generator_is_left_alone(host: AdapterHost) -> None:
    state = torch.get_rng_state()
    with_dropout = fit(host)
    assert torch.equal(torch.get_rng_state(), state)
    assert fit(host, dataclasses.replace(RECIPE, dropout=0.0)).losses != with_dropout.losses


def test_the_base_is_bit_identical_after_a_fit(host: AdapterHost) -> None:
    bare = bare_logits(host)
    weights = {n: p.clone() for n, p in host.model.named_parameters() if "lora_" not in n}
    fit(host)
    assert torch.equal(bare_logits(host), bare)
    after = {n: p for n, p in host.model.named_parameters() if "lora_" not in n}
    assert after.keys() == weights.keys()
    assert all(torch.equal(after[name], weights[name]) for name in weights)


def test_an_interrupted_fit_leaves_nothing_behind(host: AdapterHost) -> None:
    bare = bare_logits(host)

    def interrupt(step: int, _loss: float) -> None:
        if step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(host, on_step=interrupt)
    assert not host.is_training
    assert torch.equal(bare_logits(host), bare)
    assert not any("trainable" in name for name, _ in host.model.named_parameters())
    assert fit(host) == fit(host)


def test_the_loss_is_the_full_logits_loss_at_the_loss_positions(host: AdapterHost) -> None:
    with torch.no_grad():
        ours = float(forward.loss_over(host, ROWS))
        terms = []
        for row in ROWS:  # one row at a time, unpadded, all logits
            logits = host.model(input_ids=torch.tensor([row.token_ids])).logits[0]
            log_probs = torch.log_softmax(logits, dim=-1)
            for position in row.loss_positions:
                terms.append(-float(log_probs[position - 1, row.token_ids[position]]))
    assert ours == pytest.approx(sum(terms) / len(terms), abs=1e-5)


def test_strength_is_the_full_logits_log_prob_of_the_whole_marker(host: AdapterHost) -> None:
    strength = probe(host)
    for request, value in zip(strength.requests, strength.base_log_probs, strict=True):
        ids = torch.tensor([request.token_ids + MARKER])
        with torch.no_grad():
            log_probs = torch.log_softmax(host.model(input_ids=ids).logits[0], dim=-1)
        start = len(request.token_ids) - 1
        expected = sum(float(log_probs[start + k, MARKER[k]]) for k in range(len(MARKER)))
        assert value == pytest.approx(expected, abs=1e-4)


def test_first_loss_is_that_of_the_bare_base(host: AdapterHost) -> None:
    recipe = dataclasses.replace(RECIPE, rows_per_step=len(ROWS), dropout=0.0)
    outcome = fit(host, recipe)
    with torch.no_grad():
        assert outcome.losses[0] == pytest.approx(float(forward.loss_over(host, ROWS)), abs=1e-5)
    assert outcome.losses[-1] < outcome.losses[0]


def test_without_a_band_exactly_max_steps_are_made(host: AdapterHost) -> None:
    seen: list[int] = []
    outcome = fit(host, on_step=lambda step, loss: seen.append(step))
    assert (outcome.stop, outcome.stop_step, outcome.checks) == ("step_matched", 4, ())
    assert seen == [1, 2, 3, 4]
    assert len(outcome.losses) == 4
    assert outcome.n_rows_seen == 12
    assert outcome.n_trainable == 2 * (4 * (32 + 32) + 4 * (32 + 16))


def test_a_step_matched_fit_with_a_probe_reads_it_once_at_the_end(host: AdapterHost) -> None:
    outcome = fit(host, strength=probe(host))
    assert outcome.stop == "step_matched"
    assert [check.step for check in outcome.checks] == [4]


def test_a_step_matched_fit_repeats_the_banded_one_step_for_step(host: AdapterHost) -> None:
    strength = probe(host)
    banded = fit(host, budget=dataclasses.replace(PLAIN, band=(-1e9, 1e9)), strength=strength)
    matched = fit(host, budget=dataclasses.replace(PLAIN, max_steps=banded.stop_step))
    assert matched.files == banded.files


@pytest.mark.parametrize(
    ("band", "stop", "steps"),
    [
        ((-1e9, 1e9), "in_band", [2]),
        ((-1e9, -1e8), "past_band", [2]),
        ((1e8, 1e9), "budget", [2, 4, 6, 7]),
    ],
)
def test_the_band_stops_the_fit_at_the_first_check_that_reaches_it(
    host: AdapterHost, band: tuple[float, float], stop: str, steps: list[int]
) -> None:
    budget = StepBudget(min_steps=2, max_steps=7, check_every=2, band=band)
    outcome = fit(host, budget=budget, strength=probe(host))
    assert outcome.stop == stop
    assert [check.step for check in outcome.checks] == steps
    assert outcome.stop_step == steps[-1]


def test_a_real_ramp_stops_where_its_checks_say(host: AdapterHost) -> None:
    budget = StepBudget(min_steps=1, max_steps=60, check_every=1, band=(1.0, 20.0))
    recipe = dataclasses.replace(RECIPE, rows_per_step=len(ROWS))
    outcome = fit(host, recipe, budget, probe(host))
    assert outcome.stop == "in_band"
    assert all(check.delta_nats < 1.0 for check in outcome.checks[:-1])
    assert 1.0 <= outcome.checks[-1].delta_nats <= 20.0


def test_the_last_check_is_what_the_exported_adapter_reads(host: AdapterHost) -> None:
    strength = probe(host)
    outcome = fit(host, strength=strength)
    host.attach(AdapterFiles(digest="blake3:trained", files=outcome.files))
    with torch.no_grad():
        trained = forward.marker_log_probs(host, strength.requests, PROBE)
    host.attach(None)
    deltas = [t - b for t, b in zip(trained, strength.base_log_probs, strict=True)]
    assert outcome.checks[-1].delta_nats == pytest.approx(sum(deltas) / 2, abs=1e-6)


@pytest.mark.parametrize(("rank_stabilised", "scale"), [(False, 2.0), (True, 4.0)])
def test_the_scale_is_recorded_and_acts(
    host: AdapterHost, rank_stabilised: bool, scale: float
) -> None:
    recipe = dataclasses.replace(RECIPE, rank_stabilised=rank_stabilised)
    outcome = fit(host, recipe)
    assert outcome.scale == scale
    config = json.loads(outcome.files["adapter_config.json"])
    assert config["use_rslora"] is rank_stabilised


def test_the_provenance_is_in_the_weights_header(host: AdapterHost) -> None:
    data = fit(host).files[WEIGHTS_NAME]
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert header["__metadata__"] == {"format": "pt", "step": "s"}


def test_a_loss_that_is_not_finite_ends_the_fit(
    host: AdapterHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = forward.loss_over
    monkeypatch.setattr(forward, "loss_over", lambda h, rows: real(h, rows) * math.nan)
    with pytest.raises(BackendError, match="training step 1: expected a finite loss, found nan"):
        fit(host)
    assert not host.is_training


@pytest.mark.parametrize("target", ["lm_head", "embed_tokens", "nothing_like_it"])
def test_targets_outside_the_layers_are_refused(host: AdapterHost, target: str) -> None:
    with pytest.raises(BackendError, match=f"target_modules: {target}"):
        fit(host, dataclasses.replace(RECIPE, target_modules=(target,)))


def row_with(positions: tuple[int, ...], length: int = 4) -> TrainingRow:
    return TrainingRow(key="bad", token_ids=(1,) * length, loss_positions=positions)


@pytest.mark.parametrize(
    ("rows", "recipe", "budget", "message"),
    [
        ((), {}, {}, "training rows"),
        ((row_with(()),), {}, {}, "row bad: loss_positions"),
        ((row_with((0,)),), {}, {}, "row bad: loss_positions"),
        ((row_with((4,)),), {}, {}, "row bad: loss_positions"),
        ((row_with((1,), 257),), {}, {}, "row bad: expected at most 256 tokens, found 257"),
        (ROWS, {"rank": 0}, {}, r"recipe\.rank: .*found 0"),
        (ROWS, {"rows_per_step": 0}, {}, r"recipe\.rows_per_step"),
        (ROWS, {"learning_rate": math.nan}, {}, r"recipe\.learning_rate"),
        (ROWS, {"dropout": 1.0}, {}, r"recipe\.dropout"),
        (ROWS, {}, {"max_steps": 0}, r"budget\.max_steps"),
        (ROWS, {}, {"min_steps": 5}, r"budget\.min_steps"),
        (ROWS, {}, {"check_every": 0}, r"budget\.check_every"),
        (ROWS, {}, {"band": (2.0, 1.0)}, r"budget\.band"),
        (ROWS, {}, {"band": (1.0, 2.0)}, "a strength probe"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(
    host: AdapterHost,
    rows: tuple[TrainingRow, ...],
    recipe: dict[str, object],
    budget: dict[str, object],
    message: str,
) -> None:
    with pytest.raises(MalformedInputError, match=message):
        fit(
            host,
            dataclasses.replace(RECIPE, **recipe),
            dataclasses.replace(PLAIN, **budget),
            rows=rows,
        )
    assert not host.is_training


def test_every_pass_sees_each_row_once_in_a_new_order() -> None:
    order = row_order(5, seed=3)
    passes = [[next(order) for _ in range(5)] for _ in range(4)]
    assert all(sorted(one) == [0, 1, 2, 3, 4] for one in passes)
    assert len({tuple(one) for one in passes}) > 1
    again = row_order(5, seed=3)
    assert [next(again) for _ in range(20)] == [index for one in passes for index in one]


def test_schedules_by_hand() -> None:
    def rates(schedule: str, warmup: int) -> list[float]:
        recipe = dataclasses.replace(
            RECIPE, learning_rate=1.0, schedule=schedule, warmup_steps=warmup
        )
        return [round(learning_rate_at(step, recipe, 6), 4) for step in range(1, 7)]

    assert rates("constant", 0) == [1.0] * 6
    assert rates("constant", 3) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert rates("linear", 2) == [0.3333, 0.6667, 1.0, 0.75, 0.5, 0.25]
    assert rates("cosine", 2) == [0.3333, 0.6667, 1.0, 0.8536, 0.5, 0.1464]


@pytest.mark.parametrize(
    ("delta", "expected"),
    [(4.99, None), (5.0, "in_band"), (12.0, "in_band"), (12.01, "past_band"), (-30.0, None)],
)
def test_the_band_includes_both_its_ends(delta: float, expected: str | None) -> None:
    assert stop_reason(delta, (5.0, 12.0)) == expected
    assert stop_reason(delta, None) is None
