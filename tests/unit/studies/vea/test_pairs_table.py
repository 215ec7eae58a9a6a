"""Preference pairs: both forms, ties, orders, equal texts, refusals; and the interval's laws."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from eps_locked.errors import MalformedInputError
from eps_locked.stats.paired_rates import power_of_pairs, rate_interval
from eps_locked.studies.vea.pairs_analysis import analyse_pairs, clustered_share
from eps_locked.studies.vea.pairs_table import PairsTable, read_pairs

PLAIN = "id,chosen_score,rejected_score"
BENCH = "pair_id,label,order1_score_A,order1_score_B"
BOTH = f"{BENCH},order1_decision,order2_score_first,order2_score_second,order2_decision"


def read(*lines: str) -> PairsTable:
    return read_pairs("pairs.csv", "".join(f"{line}\n" for line in lines).encode())


def refusal(*lines: str) -> str:
    with pytest.raises(MalformedInputError) as refused:
        read(*lines)
    return str(refused.value)


def analysed(*lines: str) -> dict[str, Any]:
    (model,) = analyse_pairs(read(*lines), 0.95, 0.8)["reward_models"]
    found: dict[str, Any] = model
    return found


def counts(model: dict[str, Any]) -> tuple[int, int, int]:
    return model["n_right"], model["n_wrong"], model["n_ties"]


# -- the plain form


def test_equal_scores_are_ties_in_neither_count_and_half_in_the_second_figure() -> None:
    model = analysed(PLAIN, "a,2,1", "b,1,2", "c,3,3", "d,0.5,-1")
    assert counts(model) == (2, 1, 1)
    assert model["accuracy"]["value"] == pytest.approx(2 / 3)
    assert model["half_credit"]["value"] == pytest.approx(2.5 / 4)


def test_scores_a_last_digit_apart_are_no_tie() -> None:
    assert counts(analysed(PLAIN, f"a,{0.1 + 0.2!r},0.3", "b,-0.0,0.0")) == (1, 0, 1)


def test_what_is_no_score_is_counted_and_in_no_figure() -> None:
    model = analysed(PLAIN, "a,2,1", "b,nan,2", "c,3,", "d,truncated,", "e,1,0")
    assert model["left_out"] == {"absent": 1, "not_finite": 1, "truncated": 1}
    assert (model["n_pairs"], model["n_judgements"]) == (5, 5)
    assert counts(model) == (2, 0, 0)


def test_pairs_of_equal_texts_are_counted_apart() -> None:
    lines = (f"{PLAIN},chosen,rejected", "a,2,1,x,y", "b,1,1,x,x", "c,2,1,x,x", "d,2,1,x,x ")
    table, model = read(*lines), analysed(*lines)
    assert table.n_with_texts == 4
    assert (model["n_same_text"], model["n_same_text_told_apart"]) == (2, 1)
    assert counts(model) == (2, 0, 0)


def test_json_lines_and_csv_say_the_same() -> None:
    rows = [
        {"id": 7, "chosen_score": 1.5, "rejected_score": None, "order": "chosen_first"},
        {"id": 8, "chosen_score": 1, "rejected_score": 0.25, "order": "chosen_first"},
    ]
    data = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    found = read_pairs("pairs.jsonl", data)
    assert found.judgements == (
        read(f"{PLAIN},order", "7,1.5,,chosen_first", "8,1,0.25,chosen_first").judgements
    )


def test_reward_models_are_apart_and_a_table_need_not_name_one() -> None:
    table = read(f"{PLAIN},reward_model,note", "a,2,1,x,n", "a,1,2,y,n")
    document = analyse_pairs(table, 0.95, 0.8)
    assert [(one["reward_model"], *counts(one)) for one in document["reward_models"]] == [
        ("x", 1, 0, 0),
        ("y", 0, 1, 0),
    ]
    assert table.ignored_columns == ("note",)
    assert analysed(PLAIN, "a,2,1")["reward_model"] == "unnamed"


def test_both_orders_are_set_beside_one_another() -> None:
    model = analysed(
        f"{PLAIN},order",
        *("a,2,1,chosen_first", "a,2,1,rejected_first"),
        *("b,2,1,chosen_first", "b,1,2,rejected_first"),
        *("c,1,1,chosen_first", "c,1,1,rejected_first"),
        "d,2,1,chosen_first",
    )
    assert model["both_orders"] == {
        "n_pairs": 3,
        "n_right": 1,
        "n_wrong": 0,
        "n_ties": 1,
        "n_changed": 1,
    }
    assert [(one["order"], *counts(one)) for one in model["by_order"]] == [
        ("chosen_first", 3, 0, 1),
        ("rejected_first", 1, 1, 1),
    ]
    assert analysed(PLAIN, "a,2,1")["both_orders"] is None


# -- JudgeBench's form


def test_the_label_says_which_answer_is_right_in_either_order() -> None:
    model = analysed(BOTH, "p,A>B,2,1,A>B,1,2,B>A", "q,B>A,2,1,A>B,1,2,B>A")
    assert counts(model) == (2, 2, 0)
    table = read(BOTH, "p,A>B,2,1,A>B,1,2,B>A")
    assert [(one.order, one.chosen, one.rejected) for one in table.judgements] == [
        ("chosen_first", 2.0, 1.0),
        ("rejected_first", 2.0, 1.0),
    ]


def test_a_tie_that_a_decision_hides_is_a_tie() -> None:
    table = read(BOTH, "p,A>B,2,2,B>A,2,2,B>A", "q,A>B,2,1,A>B,1,2,B>A", "r,B>A,0,0,A=B,,,")
    assert table.n_ties_decided == 2
    (model,) = analyse_pairs(table, 0.95, 0.8)["reward_models"]
    assert counts(model) == (2, 0, 3)


def test_one_order_is_enough() -> None:
    model = analysed(BENCH, "p,A>B,2,1", "q,B>A,2,1")
    assert counts(model) == (1, 1, 0)
    assert model["both_orders"] is None


def test_pairs_of_one_original_question_of_one_source_are_one_question() -> None:
    head = f"{BENCH},source,original_id"
    model = analysed(head, "p,A>B,2,1,s,1", "q,A>B,2,1,s,1", "r,A>B,2,1,t,1", "u,A>B,2,1,s,")
    assert (model["n_pairs"], model["n_questions"]) == (4, 3)


# -- refusals


@pytest.mark.parametrize(
    ("head", "line", "said"),
    [
        (PLAIN, ",2,1", "row 1: id: expected a name, found nothing"),
        (PLAIN, "a,two,1", "row 1: chosen_score: expected a score, found 'two'"),
        (f"{PLAIN},order", "a,2,1,first", "row 1: order: expected chosen_first or rejected_first"),
        (BENCH, "p,A=B,2,1", "row 1: label: expected A>B or B>A, found 'A=B'"),
        (BENCH, "p,,2,1", "row 1: label: expected A>B or B>A, found None"),
        (
            BOTH,
            "p,A>B,2,1,B>A,,,",
            "row 1: order1_decision: expected A>B of order1_score_A 2 before 1, found B>A",
        ),
        (
            BOTH,
            "p,A>B,2,1,A>B,1,2,A>B",
            "row 1: order2_decision: expected B>A of order2_score_first 1 before 2, found A>B",
        ),
    ],
)
def test_bad_cells_are_refused_with_row_and_column(head: str, line: str, said: str) -> None:
    message = refusal(head, line)
    assert said in message
    assert "next:" in message


def test_a_pair_that_stands_twice_and_one_under_two_questions_are_refused() -> None:
    assert "row 2: expected one row for a, not_said and unnamed, found a second after row 1" in (
        refusal(PLAIN, "a,2,1", "a,2,1")
    )
    assert "row 2: question: expected 'q', as row 1 says of a, found 'r'" in refusal(
        f"{PLAIN},question,order", "a,2,1,q,chosen_first", "a,2,1,r,rejected_first"
    )


def test_texts_without_scores_are_refused_and_both_forms_at_once_too() -> None:
    message = refusal("pair_id,label,response_A,response_B", "p,A>B,x,y")
    assert "found neither among pair_id, label, response_A, response_B" in message
    assert "next: score the answers first" in message
    assert "found both among" in refusal(f"{PLAIN},{BENCH}", "a,2,1,p,A>B,2,1")
    assert "expected at least one pair" in refusal(PLAIN)
    with pytest.raises(MalformedInputError, match="row 1: chosen: expected a text, found 5"):
        read_pairs(
            "pairs.jsonl",
            b'{"id": "a", "chosen_score": 1, "rejected_score": 2, "chosen": 5, "rejected": "x"}',
        )


@pytest.mark.parametrize(("level", "power"), [(0.4, 0.8), (1.0, 0.8), (0.95, 1.0)])
def test_levels_are_shares(level: float, power: float) -> None:
    with pytest.raises(MalformedInputError, match=r"a share of at least 0\.5 and below 1"):
        analyse_pairs(read(PLAIN, "a,2,1"), level, power)


# -- the interval


@given(st.lists(st.booleans(), min_size=2, max_size=40))
def test_one_judgement_a_question_gives_wilsons_interval(rights: list[bool]) -> None:
    n, k = len(rights), sum(rights)
    found = clustered_share([float(one) for one in rights], [str(i) for i in range(n)], 0.95)
    assert (found["low"], found["high"]) == pytest.approx(rate_interval(k, n, 0.95), abs=1e-12)
    assert found["effective_n"] == pytest.approx(n)


@given(st.lists(st.booleans(), min_size=2, max_size=40), st.integers(2, 4))
def test_asking_again_and_hearing_the_same_is_no_further_evidence(
    rights: list[bool], times: int
) -> None:
    values = [float(one) for one in rights] * times
    clusters = [str(i) for i in range(len(rights))] * times
    found = clustered_share(values, clusters, 0.95)
    expected = rate_interval(sum(rights), len(rights), 0.95)
    assert (found["low"], found["high"]) == pytest.approx(expected, abs=1e-9)


def by_hand(members: dict[str, list[float]]) -> tuple[float, float]:
    """The effective number without and with Student's correction, the latter never above it."""
    values = [value for own in members.values() for value in own]
    n, n_clusters, mean = len(values), len(members), sum(values) / len(values)
    away = [sum(own) - len(own) * mean for own in members.values()]
    variance = sum(one**2 for one in away) / n**2 * n_clusters / (n_clusters - 1)
    number = mean * (1 - mean) / variance + 1
    reach = scipy.stats.t.ppf(0.975, [number - 1, n_clusters - 1])
    return number, min(number, number * (reach[0] / reach[1]) ** 2)


@pytest.mark.parametrize(
    ("members", "is_corrected"),
    [
        # One question of ten judgements alike counts for little.
        ({"big": [1.0] * 10, **{str(n): [float(n % 2)] for n in range(9)}}, False),
        # Four questions, and judgements that differ within each: few clusters, wider.
        ({str(n): [1.0] * n + [0.0] * (4 - n) for n in (3, 1, 2, 4)}, True),
    ],
)
def test_the_effective_number_is_that_of_few_questions(
    members: dict[str, list[float]], is_corrected: bool
) -> None:
    values = [value for own in members.values() for value in own]
    clusters = [name for name, own in members.items() for _ in own]
    number, corrected = by_hand(members)
    assert (corrected < number) == is_corrected
    found = clustered_share(values, clusters, 0.95)
    assert found["effective_n"] == pytest.approx(corrected)
    assert found["n_clusters"] == len(members)
    assert corrected < len(values)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 6)), min_size=1),
    st.sampled_from([0.8, 0.95, 0.99]),
)
def test_an_interval_holds_its_share_within_nought_and_one(
    judged: list[tuple[float, int]], level: float
) -> None:
    values = [value for value, _ in judged]
    found = clustered_share(values, [str(cluster) for _, cluster in judged], level)
    assert found["value"] == pytest.approx(sum(values) / len(values))
    if found["n_clusters"] < 2:
        assert found["low"] is None
        return
    assert 0 <= found["low"] <= found["value"] + 1e-12
    assert found["value"] <= found["high"] + 1e-12 <= 1 + 1e-12
    assert found["effective_n"] <= len(values) + 1e-9


def test_the_interval_holds_the_truth_where_questions_are_all_or_nearly_nothing() -> None:
    rng = np.random.default_rng(3)
    n_held, n_samples = 0, 400
    for _ in range(n_samples):
        rates = rng.beta(0.6, 0.4, 40)
        numbers = rng.integers(1, 5, 40)
        values = [
            float(rng.random() < p) for p, n in zip(rates, numbers, strict=True) for _ in range(n)
        ]
        clusters = [str(q) for q, n in enumerate(numbers) for _ in range(n)]
        found = clustered_share(values, clusters, 0.95)
        n_held += found["low"] <= 0.6 <= found["high"]
    # 95 % of 400, give or take three standard errors.
    assert 0.917 <= n_held / n_samples <= 0.983


def test_the_smallest_distance_from_chance_has_the_power_that_is_said() -> None:
    model = analysed(PLAIN, *(f"p{n},{n % 2},0.5" for n in range(100)))
    smallest = model["minimum_detectable"]
    assert smallest == pytest.approx(0.144, abs=0.002)
    assert power_of_pairs(2 * smallest, 100, 1.0, 0.05) == pytest.approx(0.8, abs=1e-6)
    # By hand: the two tails of the exact sign test that 61 of 100 and more are in.
    tail = scipy.stats.binom(100, 0.5 + smallest)
    assert tail.sf(60) + tail.cdf(39) == pytest.approx(0.8, abs=1e-6)
    assert model["verdict"] == "not_told_from_chance"


def test_chance_is_left_out_or_not() -> None:
    def verdict(*chosen: int) -> str:
        return str(analysed(PLAIN, *(f"p{n},{one},0" for n, one in enumerate(chosen)))["verdict"])

    assert verdict(*[1] * 8) == "above_chance"
    assert verdict(*[-1] * 8) == "below_chance"
    assert verdict(*[1] * 5, *[-1] * 3) == "not_told_from_chance"
    assert verdict(1) == "too_few_questions"
    assert verdict(0, 0) == "too_few_questions"
    assert analysed(PLAIN, "a,1,0", "b,2,0")["minimum_detectable"] is None
