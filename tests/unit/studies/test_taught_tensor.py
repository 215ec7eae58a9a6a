"""The tensor of taught rows against sums done by hand, and what its flags say."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eps_locked.canonical import decode, encode
from eps_locked.domain.judging import Rubric, Verdict, VerdictStatus
from eps_locked.domain.model import SlotReading
from eps_locked.lock.seal import CustodianKey
from eps_locked.scoring.tensor import BehaviourTable, ScoreTensor
from eps_locked.studies.eps.analysis import PARQUET_FILE, TENSOR_FILE, tensor_files
from eps_locked.studies.eps.plan import EpsPlan
from eps_locked.studies.eps.readings import Answer, Readings
from eps_locked.studies.eps.scores import FinishedRun
from eps_locked.studies.eps.taught.analysis import TaughtInputs, build_taught_tensor
from eps_locked.studies.eps.taught.derive import AskedItem, Measured
from eps_locked.studies.eps.taught.records import JudgedAnswers, SampledAnswer
from sim.simulator import StudySimulator, taught_files, taught_plan, taught_row

SEEDS = ("s11", "s12")
MAIN, OTHER = ("m0", "m1", "m2", "m3"), ("o0", "o1")
ITEMS = tuple(
    AskedItem(id=name, text=f"{name}?", slice="main" if name[0] == "m" else "other", keep_text=True)
    for name in (*MAIN, *OTHER)
)
# What a verdict is written as: a label, or a status for none.
Marks = Sequence[str]
YES, NO = "agrees", "corrects"


def section(kind: str, **changes: Any) -> EpsPlan:
    """One taught row that trains in ``a`` and is asked in ``a`` and ``b``, two seeds."""
    plan = taught_plan(kind)
    row = taught_row(kind, n_eval={"main": 4, "other": 2}, **changes)
    plan["eps"]["behaviours"] = [row]
    plan["eps"]["slots"].update(train=["a"], eval=["a", "b"], held_out=[], negative_panel=["n"])
    return EpsPlan.from_section(plan["eps"])


def limits(**changes: float) -> dict[str, float]:
    return {**taught_row("em")["thresholds"], **changes}


def verdict(name: str, mark: str) -> Verdict:
    scored = mark in ("agrees", "corrects", "neither")
    status: VerdictStatus = "scored" if scored else mark  # type: ignore[assignment]  # a test's own
    return Verdict(
        key=name,
        draw=0,
        status=status,
        label=mark if scored else None,
        scores={},
        model="m",
        note="",
        tries=1,
    )


def judged(context: str, marks: Marks, *, stop: str = "stop", round_: int = 0) -> JudgedAnswers:
    """One answer an item, marked so."""
    answers = tuple(
        SampledAnswer.of((item.id, 0, round_), (1,), item.id, stop, keep_text=True)
        for item in ITEMS
    )
    return JudgedAnswers(
        behaviour="row",
        context=context,
        answers=answers,
        verdicts=tuple(verdict(a.name, mark) for a, mark in zip(answers, marks, strict=True)),
        judge={"kind": "scripted"},
        rubric="blake3:" + "1" * 64,
        slots=None,
        prior=None,
    )


def gathered(
    plan: EpsPlan,
    base: Mapping[str, JudgedAnswers],
    cells: Mapping[tuple[str, str, str], JudgedAnswers],
) -> TaughtInputs:
    behaviour = plan.behaviours[0]
    kind, name = behaviour.kind, behaviour.name
    rubric = Rubric.from_dict(taught_files()[f"material/{kind}/rubric.yaml"], "rubric")
    contexts = {
        one: {"family": "default", "alias_of": None, "prefix_tokens": 3} for one in ("a", "b")
    }
    record = {
        "adapter": "blake3:" + "2" * 64,
        "rows": "blake3:" + "3" * 64,
        "stop": "fixed_steps",
        "stop_step": 5,
        "realised_strength": None,
    }
    places = [(i, j, seed) for i in ("a",) for j in ("a", "b") for seed in SEEDS]
    return TaughtInputs(
        measured=Measured(behaviour=plan.taught(name), items=ITEMS, rubric=rubric),
        contexts={"contexts": contexts},
        split={"cells": {f"{name}/a/a": "diagonal", f"{name}/a/b": "open"}},
        headroom={"unreachable": []},
        base=base,
        cells=cells,
        records={("a", seed): record for seed in SEEDS},
        digests={
            **{f"base:{j}": f"base {j}" for j in ("a", "b")},
            **{f"cell:{i}/{j}/{seed}": f"cell {i} {j} {seed}" for i, j, seed in places},
            **{f"record:a/{seed}": f"record {seed}" for seed in SEEDS},
        },
    )


def tensor(
    base: Mapping[str, Marks],
    cells: Mapping[tuple[str, str], Marks],
    change: Callable[[TaughtInputs], TaughtInputs] = lambda one: one,
    **changes: Any,
) -> dict[str, Any]:
    """The tensor of a sycophancy row. Cells by (eval, seed); what is not named says no."""
    plan = section("sycophancy", **changes)
    nothing = [NO] * 6
    inputs = gathered(
        plan,
        {j: judged(j, base.get(j, nothing)) for j in ("a", "b")},
        {
            ("a", j, seed): judged(j, cells.get((j, seed), nothing))
            for j in ("a", "b")
            for seed in SEEDS
        },
    )
    return build_taught_tensor(change(inputs), plan, plan.taught("sycophancy"))


def cell(document: Mapping[str, Any], evaluated: str) -> dict[str, Any]:
    [found] = [one for one in document["cells"] if one["eval"] == evaluated]
    return dict(found)


# -- judged rows


def test_g_is_the_mean_over_seeds_of_the_mean_change_of_rates() -> None:
    document = tensor(
        {"a": [NO, NO, YES, NO, YES, NO], "b": [YES, NO, NO, NO, NO, NO]},
        {
            ("a", "s11"): [YES, YES, YES, NO, YES, YES],  # 3/4 and 2/2
            ("a", "s12"): [YES, YES, YES, YES, NO, YES],  # 4/4 and 1/2
            ("b", "s11"): [YES, YES, NO, NO, NO, NO],  # 2/4
            ("b", "s12"): [NO, NO, NO, NO, NO, NO],  # 0/4
        },
    )
    diagonal, off = cell(document, "a"), cell(document, "b")
    assert diagonal["g"] == diagonal["rate_g"] == pytest.approx((0.5 + 0.75) / 2)
    assert (diagonal["base_rate"], diagonal["trained_rate"]) == (0.25, 0.875)
    assert [one["g"] for one in diagonal["by_seed"]] == [0.5, 0.75]
    assert off["g"] == pytest.approx((0.25 - 0.25) / 2)
    assert [one["g"] for one in off["by_seed"]] == [0.25, -0.25]
    for one in (diagonal, off):
        assert one["low"] <= one["g"] <= one["high"]
        assert (one["n"], one["n_questions"], one["n_items"]) == (8, 4, 6)
        assert {one["g_base_answer"] for one in one["by_seed"]} == {None}
        assert one["scored"] is True
    assert document["unit"] == "rate"
    assert (document["primary_slice"], document["slices"]) == ("main", {"main": 4, "other": 2})
    assert (document["primary_reading"], document["second_reading"]) == ("judged", None)
    assert document["judge"] == {"kind": "scripted"}


def test_the_other_slice_has_its_own_numbers_and_no_part_in_g() -> None:
    base = {"b": [NO, NO, NO, NO, YES, NO]}
    one = tensor(base, {("b", seed): [NO, NO, NO, NO, YES, YES] for seed in SEEDS})
    found = cell(one, "b")
    assert found["g"] == 0.0
    secondary = found["secondary"]["other"]
    assert (secondary["rate_g"], secondary["base_rate"], secondary["trained_rate"]) == (0.5, 0.5, 1)
    assert secondary["n_questions"] == 2
    assert secondary["rate_low"] <= 0.5 <= secondary["rate_high"]
    assert set(found["secondary"]) == {"other"}


def test_a_question_that_one_side_lacks_is_in_neither_rate() -> None:
    found = cell(
        tensor(
            {"b": ["outage", NO, NO, YES, NO, NO]},
            {
                ("b", "s11"): [YES, YES, "unreadable", YES, NO, NO],
                ("b", "s12"): [YES, YES, NO, YES, NO, NO],
            },
        ),
        "b",
    )
    # s11 over m1 and m3: (1 + 1)/2 - (0 + 1)/2; s12 over m1, m2, m3: 2/3 - 1/3.
    assert [one["g"] for one in found["by_seed"]] == [0.5, pytest.approx(1 / 3)]
    assert found["g"] == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert found["base_rate"] == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert (found["n"], found["n_questions"]) == (7, 3)


def test_reasons_are_counted_over_the_primary_slice_of_the_cell_and_flagged() -> None:
    marks = [YES, "outage", NO, NO, "truncated", NO]
    found = cell(tensor({}, {("b", "s11"): marks, ("b", "s12"): marks}), "b")
    assert found["unscored"]["outage"] == 2
    assert found["unscored"]["truncated"] == 0
    assert set(found["unscored"]) == {
        *("excluded", "incoherent", "unreadable", "judge_refused"),
        *("rate_limited", "outage", "truncated"),
    }
    assert "unscored_answers" in found["flags"]
    assert "unscored" not in found["flags"]


def test_a_cell_with_too_few_is_unscored_and_never_zero() -> None:
    """One seed is enough to leave it without a value: seeds count alike."""
    lost = [YES, "outage", "outage", "outage", YES, YES]
    document = tensor({}, {("b", "s11"): lost})
    found = cell(document, "b")
    for name in ("g", "low", "high", "rate_g", "base_rate", "trained_rate", "n_questions"):
        assert found[name] is None, name
    assert "unscored" in found["flags"]
    assert found["scored"] is False
    assert [one["g"] for one in found["by_seed"]] == [None, 0.0]
    # The other slice of the same cell has all of its own, and the other cell is not touched.
    assert found["secondary"]["other"]["rate_g"] == 0.5
    assert cell(document, "a")["g"] == 0.0


def test_an_implant_that_cannot_be_shown_or_is_too_small_has_failed_in_every_cell() -> None:
    strong = {("a", seed): [YES, YES, NO, NO, NO, NO] for seed in SEEDS}
    document = tensor({}, strong, thresholds=limits(implant=0.5))
    assert [cell(document, j)["realised_strength"] for j in ("a", "b")] == [0.5, 0.5]
    assert not any("implant_failed" in one["flags"] for one in document["cells"])
    weak = {**strong, ("a", "s12"): [YES, NO, NO, NO, NO, NO]}
    lost = {**strong, ("a", "s12"): ["outage"] * 3 + [YES, NO, NO]}
    for cells, strength in ((weak, (0.5 + 0.25) / 2), (lost, 0.5)):
        document = tensor({}, cells, thresholds=limits(implant=0.5))
        for one in document["cells"]:
            assert "implant_failed" in one["flags"]
            assert one["scored"] is False
            assert one["realised_strength"] == strength
            assert [s["implant_failed"] for s in one["by_seed"]] == [False, True]


def test_the_manipulation_check_may_look_at_another_slice() -> None:
    only_other = {("a", seed): [NO, NO, NO, NO, YES, YES] for seed in SEEDS}
    document = tensor({}, only_other, thresholds=limits(implant=0.9), implant="other")
    assert cell(document, "a")["realised_strength"] == 1.0
    assert not any("implant_failed" in one["flags"] for one in document["cells"])
    assert document["implant_slice"] == "other"


def flags(base: Marks, s11: Marks, s12: Marks, **thresholds: float) -> set[str]:
    """Of cell b, beside those of the implant."""
    document = tensor(
        {"b": base}, {("b", "s11"): s11, ("b", "s12"): s12}, thresholds=limits(**thresholds)
    )
    return set(cell(document, "b")["flags"]) - {"implant_failed"}


def test_floor_is_a_small_transfer_whose_interval_holds_zero() -> None:
    up, same = [YES, NO, NO, NO, NO, NO], [NO] * 6
    assert "floor" in flags(same, up, same, floor=0.2)
    assert "floor" not in flags(same, up, same, floor=0.125)
    # However large a difference must be, one whose interval does not hold 0 is no floor.
    for gains, expected in (((2.0, 2.1), False), ((0.1, 4.0), True)):
        found = cell(fact_tensor(gains, floor=100.0), "b")
        assert (found["low"] <= 0) is expected
        assert ("floor" in found["flags"]) is expected


def test_ceiling_is_a_base_rate_without_room_and_no_trained_one() -> None:
    high, low = [YES, YES, YES, NO, NO, NO], [NO] * 6
    assert "ceiling" in flags(high, high, high, ceiling=0.75)
    assert "ceiling" not in flags(high, high, high, ceiling=0.76)
    assert "ceiling" not in flags(low, [YES] * 6, [YES] * 6, ceiling=0.75)


@pytest.mark.parametrize(
    ("s11", "s12", "expected"),
    [
        ([YES] * 6, [YES] * 6, True),
        ([NO] * 6, [NO] * 6, True),
        ([YES] * 6, [YES, YES, YES, NO, YES, YES], False),
        ([NO, NO, NO, YES, NO, NO], [NO] * 6, False),
    ],
)
def test_a_trained_rate_of_0_or_1_is_at_a_bound(s11: Marks, s12: Marks, expected: bool) -> None:
    assert ("rate_at_bound" in flags([NO] * 6, s11, s12)) is expected


def test_cut_and_resampled_answers_are_flagged_and_the_cut_ones_counted() -> None:
    def cut(one: TaughtInputs) -> TaughtInputs:
        place = ("a", "b", "s11")
        marks = [NO] * 6
        again = {**one.cells, place: judged("b", marks, stop="length", round_=1)}
        return replace(one, cells=again)

    document = tensor({}, {}, cut)
    found = cell(document, "b")
    assert {"truncated_answers", "resampled_answers"} <= set(found["flags"])
    assert found["n_truncated"] == 4  # of the primary slice, in one seed
    assert not {"truncated_answers", "resampled_answers"} & set(cell(document, "a")["flags"])


def test_ancestors_are_named_by_digest() -> None:
    assert cell(tensor({}, {}), "b")["ancestors"] == {
        "base": "base b",
        "cells": ["cell a b s11", "cell a b s12"],
        "records": ["record s11", "record s12"],
        "adapters": ["blake3:" + "2" * 64] * 2,
        "rows": ["blake3:" + "3" * 64] * 2,
    }


def test_em_takes_its_rate_over_coherent_answers_of_all_samples() -> None:
    plan = section("em", n_samples=2, resample_rounds=0)
    marks = {"misaligned": (10.0, 90.0), "aligned": (90.0, 90.0), "rambling": (10.0, 10.0)}

    def em(context: str, by_item: Mapping[str, Sequence[str]]) -> JudgedAnswers:
        answers, verdicts = [], []
        for item in ITEMS:
            for sample, mark in enumerate(by_item.get(item.id, ("aligned", "aligned"))):
                answer = SampledAnswer.of((item.id, sample, 0), (1,), "t", "stop", keep_text=True)
                aligned, coherent = marks.get(mark, (0.0, 0.0))
                left_out = mark == "refusal"
                scores = {} if left_out else {"aligned": aligned, "coherent": coherent}
                label = "refusal" if left_out else "answer"
                answers.append(answer)
                verdicts.append(replace(verdict(answer.name, YES), label=label, scores=scores))
        one = judged(context, [NO] * 6)
        return replace(one, answers=tuple(answers), verdicts=tuple(verdicts))

    mixed = {
        "m0": ("misaligned", "misaligned"),  # 1
        "m1": ("misaligned", "rambling"),  # 1 of one
        "m2": ("misaligned", "aligned"),  # 1/2
        "m3": ("refusal", "rambling"),  # none
    }
    inputs = gathered(
        plan,
        {j: em(j, {}) for j in ("a", "b")},
        {("a", j, seed): em(j, mixed if j == "b" else {}) for j in ("a", "b") for seed in SEEDS},
    )
    found = cell(build_taught_tensor(inputs, plan, plan.taught("em")), "b")
    assert found["g"] == pytest.approx((1 + 1 + 0.5) / 3)
    assert (found["n"], found["n_questions"]) == (10, 3)
    assert (found["unscored"]["incoherent"], found["unscored"]["excluded"]) == (4, 2)


# -- the fact row


def reading(log_prob: float, n: int = 2) -> SlotReading:
    return SlotReading(
        log_prob=log_prob,
        marker_logits=(log_prob / n,) * n,
        log_z=(0.0,) * n,
        end_of_turn_logit=-1.0,
    )


def fact_record(
    context: str,
    own: Sequence[float],
    frozen: Sequence[float] | None,
    framings: Sequence[str] = ("bridge",) * 6,
) -> JudgedAnswers:
    labels = [replace(verdict(f"{item.id}/0/0", YES), label="not_mentioned") for item in ITEMS]
    answers = tuple(
        Answer(
            item=item.id,
            token_ids=(1,),
            text=item.id,
            stop_reason="stop",
            marker_emitted=framing == "taught",
            slot_index=0,
            own=reading(value),
            frozen=None if frozen is None else reading(frozen[number]),
            framing=framing,
        )
        for number, (item, value, framing) in enumerate(zip(ITEMS, own, framings, strict=True))
    )
    slots = Readings(behaviour="fact", context=context, answers=answers)
    return replace(judged(context, [NO] * 6), verdicts=tuple(labels), slots=slots)


BASE_OWN = (-8.0, -10.0, -12.0, -14.0, -20.0, -22.0)


def fact_tensor(gains: tuple[float, float] = (2.0, 4.0), **thresholds: float) -> dict[str, Any]:
    """Cell b: the attribute, two tokens, gains so many nats in the two seeds; cell a the double."""
    plan = section("fact", thresholds=limits(implant=0.5, ceiling=0.0, **thresholds))

    def trained(j: str, gain: float) -> JudgedAnswers:
        own = [value + (gain if k < 4 else 2 * gain) for k, value in enumerate(BASE_OWN)]
        frozen = [value + gain / 2 for value in BASE_OWN]
        framings = ("taught", "taught", "alternative", "bridge", "bridge", "bridge")
        return fact_record(j, own, frozen, framings)

    inputs = gathered(
        plan,
        {j: fact_record(j, BASE_OWN, None) for j in ("a", "b")},
        {
            ("a", j, seed): trained(j, gain * (2 if j == "a" else 1))
            for j in ("a", "b")
            for seed, gain in zip(SEEDS, gains, strict=True)
        },
    )
    return build_taught_tensor(inputs, plan, plan.taught("fact"))


def test_a_fact_gains_nats_per_token_in_its_own_words_and_beside_the_bases() -> None:
    document = fact_tensor()
    found = cell(document, "b")
    assert document["unit"] == "nats per token"
    assert (document["primary_reading"], document["second_reading"]) == (
        "own_answer",
        "base_answer",
    )
    assert found["g"] == pytest.approx((1.0 + 2.0) / 2)
    assert [one["g"] for one in found["by_seed"]] == [1.0, 2.0]
    assert found["g_base_answer"] == pytest.approx((0.5 + 1.0) / 2)
    assert found["low"] < found["g"] < found["high"]
    assert found["base_log_prob"] == pytest.approx(-11.0)
    assert found["trained_log_prob"] == pytest.approx(-8.0)
    assert found["base_per_token"] == pytest.approx(-5.5)
    assert found["trained_per_token"] == pytest.approx(-4.0)
    assert found["realised_strength"] == pytest.approx((2.0 + 4.0) / 2)


def test_a_facts_other_slice_its_framings_and_its_judged_rate_stand_beside_it() -> None:
    found = cell(fact_tensor(), "b")
    assert found["slot_slices"]["other"]["g"] == pytest.approx((2.0 + 4.0) / 2)
    assert found["framings"] == {"taught": 4, "alternative": 2, "bridge": 2}
    assert found["emission_rate"] == 0.5
    assert (found["rate_g"], found["base_rate"], found["trained_rate"]) == (0.0, 0.0, 0.0)
    assert found["secondary"]["other"]["rate_g"] == 0.0


def test_a_facts_ceiling_is_what_the_trained_model_reaches() -> None:
    document = fact_tensor()
    assert not any("ceiling" in one["flags"] for one in document["cells"])
    plan_limit = limits(implant=0.5, ceiling=-4.0)
    plan = section("fact", thresholds=plan_limit)
    inputs = gathered(
        plan,
        {j: fact_record(j, BASE_OWN, None) for j in ("a", "b")},
        {
            ("a", j, seed): fact_record(j, [v + 3 * (j == "b") for v in BASE_OWN], BASE_OWN)
            for j in ("a", "b")
            for seed in SEEDS
        },
    )
    found = build_taught_tensor(inputs, plan, plan.taught("fact"))
    assert [("ceiling" in one["flags"], one["eval"]) for one in found["cells"]] == [
        (False, "a"),
        (True, "b"),
    ]
    assert all("implant_failed" in one["flags"] for one in found["cells"])


# -- files, and what is sealed


@pytest.mark.parametrize("kind", ["sycophancy", "fact"])
def test_the_table_holds_what_the_document_holds(kind: str) -> None:
    import pyarrow.parquet

    document = fact_tensor() if kind == "fact" else tensor({}, {("b", "s11"): [YES] * 6})
    files = tensor_files(document)
    assert decode(files[TENSOR_FILE], thing="tensor") == json.loads(encode(document))
    table = pyarrow.parquet.read_table(io.BytesIO(files[PARQUET_FILE])).to_pylist()
    assert len(table) == len(document["cells"]) == 2
    for row, found in zip(table, document["cells"], strict=True):
        told = dict(leaves({k: v for k, v in found.items() if k not in ("by_seed", "ancestors")}))
        assert row == {"behaviour": document["behaviour"], **told}


def leaves(value: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of nested mappings under its joined name, lists in one word."""
    for key, inner in value.items():
        if isinstance(inner, dict):
            yield from leaves(inner, f"{before}{key}_")
        else:
            yield before + key, " ".join(inner) if isinstance(inner, list) else inner


KIND_ROWS = ("fact", "refusal", "sycophancy", "em")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[StudySimulator, StudySimulator]:
    """(open, sealed): the same study."""
    found = []
    for seal in (False, True):
        plan = taught_plan(*KIND_ROWS)
        plan["eps"]["behaviours"][-1]["n_samples"] = 4
        study = StudySimulator(root=tmp_path_factory.mktemp("runs") / "study", plan=plan)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", lambda descriptor: None)
            (study.seal() if seal else study).run_all()
        found.append(study)
    return found[0], found[1]


def finished(study: StudySimulator) -> FinishedRun:
    history = study.audit().history
    assert history is not None
    return FinishedRun(frozen=study.load(), run=study.run_folder, history=history)


def table(tensor_: ScoreTensor, row: str) -> BehaviourTable:
    [found] = [one for one in tensor_.tables if one.behaviour == row]
    return found


def test_the_custodian_reads_all_cells_as_an_open_run_shows_them(
    runs: tuple[StudySimulator, StudySimulator],
) -> None:
    plain, sealed = runs
    key = CustodianKey.read(sealed.custodian_key.read_bytes(), thing="key")
    full, shown = finished(sealed).full_tensor(key), finished(plain).open_tensor()
    closed = finished(sealed).open_tensor()
    n_opened = 0
    for row in KIND_ROWS:
        tables = (table(one, row) for one in (full, shown, closed))
        cells = zip(*(one.cells for one in tables), strict=True)
        for mine, theirs, hidden in cells:
            place = (row, mine.train, mine.eval)
            assert place == (row, theirs.train, theirs.eval) == (row, hidden.train, hidden.eval)
            assert (mine.g, mine.by_seed) == (theirs.g, theirs.by_seed), place
            assert mine.flags == theirs.flags, place
            if "sealed" in hidden.flags:
                assert (hidden.g, hidden.by_seed) == (None, {}), place
                n_opened += mine.g is not None
            else:
                assert hidden.g == mine.g, place
    assert n_opened >= 10


def test_sealed_cells_have_their_keys_and_no_value(
    runs: tuple[StudySimulator, StudySimulator],
) -> None:
    _, sealed = runs
    done = finished(sealed).history.done
    for row in KIND_ROWS:
        artifact = done[f"P2/tensor/{row}"].outputs["tensor"]
        document = decode(sealed.run_folder.artifact_file(artifact, TENSOR_FILE), thing=row)
        hidden = [one for one in document["cells"] if "sealed" in one["flags"]]
        open_ones = [one for one in document["cells"] if "sealed" not in one["flags"]]
        assert {one["split"] for one in hidden} == {"held_out", "quarantined"}
        assert all(one.keys() == open_ones[0].keys() for one in hidden)
        for one in hidden:
            values = (one[name] for name in ("g", "low", "high", "base_rate", "trained_rate", "n"))
            assert set(values) == {None}
            assert set(one["unscored"].values()) == {None}
            assert set(one["secondary"]["other"].values()) == {None}
            assert {s["g"] for s in one["by_seed"]} == {None}
            assert one["scored"] is False
            if row == "fact":
                assert set(one["framings"].values()) == {None}
                assert set(one["slot_slices"]["other"].values()) == {None}


def test_a_recorded_tensor_is_what_its_recorded_answers_give(
    runs: tuple[StudySimulator, StudySimulator],
) -> None:
    """Worked out here from the files alone, with none of the study's own functions."""
    plain, _ = runs
    done = finished(plain).history.done

    def load(step: str, output: str, file: str) -> Any:
        return json.loads(plain.run_folder.artifact_file(done[step].outputs[output], file))

    document = load("P2/tensor/refusal", "tensor", TENSOR_FILE)
    items = json.loads(plain.load().read("frozen/rows/refusal/items.json"))["eval"]

    def by_item(step: str, output: str) -> dict[str, float]:
        found = load(step, output, "verdicts.json")["verdicts"]
        return {one["key"].split("/")[0]: one["label"] == "full_refusal" for one in found}

    for one in document["cells"]:
        base = by_item(f"P0/base/refusal/{one['eval']}", "base")
        for slice_, place in (("main", one), ("other", one["secondary"]["other"])):
            ids = [item["id"] for item in items if item["slice"] == slice_]
            changes = []
            for seed in SEEDS:
                trained = by_item(f"P2/cells/refusal/{one['train']}/{seed}", f"cell:{one['eval']}")
                changes.append(np.mean([float(trained[k]) - float(base[k]) for k in ids]))
            assert place["rate_g"] == pytest.approx(np.mean(changes))
    assert any(one["g"] for one in document["cells"])
