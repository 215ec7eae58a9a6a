"""Published reward scores through ``vea pairs``, and published prompts through ``vea items``.

The parts that lie here were cut by question or item, so the figures pinned are theirs. None of the
files holds matched pairs of a clause (SOURCE.md says that none was found), so all of them must be
refused as they are; their prompts are then put into items, which must be read to the byte.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats

from eps_locked.errors import MalformedInputError
from eps_locked.lock.strict_yaml import parse_yaml
from eps_locked.stats.stem_bootstrap import stem_effect, stem_weights
from eps_locked.studies.common.words import first_mention, read_word_list
from eps_locked.studies.vea.item_summary import summarise_items
from eps_locked.studies.vea.pairs_analysis import analyse_pairs
from eps_locked.studies.vea.pairs_table import PairsTable, read_pairs

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared/data"
PAIRS, PROMPTS = DATA / "reward_pairs", DATA / "eval_awareness"
SCORES, TEXTS = PAIRS / "judgebench_reward_model_scores.csv", PAIRS / "judgebench_pairs_text.jsonl"
STYLES = PAIRS / "rm_bench_chat_style_variants.json"
WORDS = ROOT / "plans/house/vea/evaluation-words.yaml"
pytestmark = [
    pytest.mark.realdata,
    pytest.mark.skipif(
        not (PAIRS.is_dir() and PROMPTS.is_dir()),
        reason=f"the published scores and prompts are not at {DATA}",
    ),
]
# (right, wrong, tied pairs, accuracy in %, low, high) by reward model.
FOUND = {
    "Ray2333/GRM-Gemma-2B-rewardmodel-ft": (117, 94, 0, 55.45, 48.71, 62.00),
    "Skywork/Skywork-Reward-Gemma-2-27B": (133, 76, 2, 63.64, 56.92, 69.86),
    "Skywork/Skywork-Reward-Llama-3.1-8B": (126, 84, 1, 60.00, 53.25, 66.39),
    "internlm/internlm2-20b-reward": (137, 74, 0, 64.93, 58.28, 71.05),
    "internlm/internlm2-7b-reward": (125, 86, 0, 59.24, 52.50, 65.65),
}


def words() -> tuple[str, ...]:
    return read_word_list(parse_yaml(WORDS.read_bytes(), thing="words"), "words")


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line.strip()]


def table(rows: Iterable[Mapping[str, object]]) -> PairsTable:
    rows = list(rows)
    sink = io.StringIO()
    writer = csv.DictWriter(sink, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return read_pairs("pairs.csv", sink.getvalue().encode())


def analysed(read: PairsTable) -> dict[str, dict[str, Any]]:
    document = analyse_pairs(read, 0.95, 0.8)
    return {one["reward_model"]: one for one in document["reward_models"]}


# -- reward_pairs


def test_five_reward_models_on_judgebench_with_ties_neither_right_nor_wrong() -> None:
    read = read_pairs(SCORES.name, SCORES.read_bytes())
    found = analysed(read)
    assert read.form == "judgebench"
    assert list(found) == list(FOUND)
    for name, (right, wrong, ties, value, low, high) in FOUND.items():
        model = found[name]
        assert (model["n_pairs"], model["n_questions"], model["left_out"]) == (211, 211, {})
        assert model["both_orders"] == {
            "n_pairs": 211,
            "n_right": right,
            "n_wrong": wrong,
            "n_ties": ties,
            "n_changed": 0,
        }
        share = model["accuracy"]
        shown = [round(100 * share[key], 2) for key in ("value", "low", "high")]
        assert shown == [value, low, high], name
        # A second implementation: the pairs that have a winner, once each.
        wilson = scipy.stats.binomtest(right, right + wrong).proportion_ci(0.95, method="wilson")
        assert (share["low"], share["high"]) == pytest.approx((wilson.low, wilson.high), abs=1e-9)
        assert model["half_credit"]["value"] == pytest.approx((right + ties / 2) / 211)
        assert model["minimum_detectable"] == pytest.approx(0.1, abs=0.003)
    assert [one["verdict"] for one in found.values()] == [
        "not_told_from_chance",
        *["above_chance"] * 4,
    ]


def test_the_stored_decisions_call_three_ties_a_preference() -> None:
    """Equal scores stand as B>A in both orders; read so, each would be wrong in one order or right
    by position alone."""
    read = read_pairs(SCORES.name, SCORES.read_bytes())
    assert read.n_ties_decided == 2 * 3
    with SCORES.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    tied = [row for row in rows if row["order1_score_A"] == row["order1_score_B"]]
    assert [row["order1_decision"] for row in tied] == ["B>A"] * 3
    assert [row["label"] for row in tied] == ["A>B"] * 3


def test_the_interval_is_close_to_that_of_resampled_questions() -> None:
    """Wilson's of the effective number, beside the house's bootstrap over the same questions."""
    read = read_pairs(SCORES.name, SCORES.read_bytes())
    for name, model in analysed(read).items():
        own = [one for one in read.judgements if one.reward_model == name]
        rights = [
            float(one.chosen > one.rejected)
            for one in own
            if one.order == "chosen_first"
            and one.chosen is not None
            and one.rejected is not None
            and one.chosen != one.rejected
        ]
        weights = stem_weights(len(rights), 4000, np.random.default_rng(7))
        effect = stem_effect(rights, weights, 0.95)
        assert effect.low == pytest.approx(model["accuracy"]["low"], abs=0.012)
        assert effect.high == pytest.approx(model["accuracy"]["high"], abs=0.012)


def test_texts_beside_the_scores_show_no_pair_of_equal_answers() -> None:
    """The 40 short pairs whose texts lie here; none has two equal answers, tied or not."""
    texts = {row["pair_id"]: row for row in lines_of(TEXTS)}
    with SCORES.open(newline="", encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if row["pair_id"] in texts]
    read = table(
        {**row, **{key: texts[row["pair_id"]][key] for key in ("response_A", "response_B")}}
        for row in rows
    )
    assert read.n_with_texts == len(rows) == 40 * 5
    assert [one["n_same_text"] for one in analysed(read).values()] == [0] * 5


@pytest.mark.parametrize("path", [TEXTS, STYLES], ids=lambda path: path.name)
def test_pairs_without_scores_are_refused(path: Path) -> None:
    with pytest.raises(MalformedInputError, match="found neither among") as refused:
        read_pairs(path.name, path.read_bytes())
    assert "next: score the answers first" in str(refused.value)


def style_rows(score: Any) -> list[dict[str, object]]:
    """RM-Bench's pairs of one style each, and its chosen answers against each other: (right answer
    in a style, wrong answer in the same style), then (style, other style)."""
    rows: list[dict[str, object]] = []
    for item in json.loads(STYLES.read_text("utf-8")):
        chosen, rejected = item["chosen"], item["rejected"]
        named = [("same", n, chosen[n], rejected[n]) for n in range(3)]
        named += [("style", n, chosen[n], chosen[n - 1]) for n in range(3)]
        rows += [
            {
                "reward_model": kind,
                "id": f"{item['id']}-{kind}-{n}",
                "question": item["id"],
                "chosen_score": score(one),
                "rejected_score": score(other),
                "chosen": one,
                "rejected": other,
            }
            for kind, n, one, other in named
        ]
    return rows


def test_equal_answers_of_rm_bench_are_counted_apart_and_length_alone_is_seen() -> None:
    """A made-up reward, the number of characters. Of 49 answers in three styles, eight have two
    styles with the very same text; nothing can prefer one of them."""
    found = analysed(table(style_rows(len)))
    style, same = found["style"], found["same"]
    assert (style["n_pairs"], style["n_questions"]) == (same["n_pairs"], same["n_questions"])
    assert (style["n_pairs"], style["n_questions"]) == (147, 49)
    assert (style["n_same_text"], style["n_same_text_told_apart"]) == (8, 0)
    assert same["n_same_text"] == 0
    assert sum(style[key] for key in ("n_right", "n_wrong", "n_ties")) == 139
    # Wrong answers are mostly the longer ones.
    assert (same["n_right"], same["n_wrong"], same["n_ties"]) == (41, 93, 13)
    assert same["verdict"] == "below_chance"
    # Three pairs of an item are about one question, and are not three pieces of evidence.
    assert same["accuracy"]["effective_n"] < 147 - same["n_ties"]


def test_a_constant_reward_has_ties_alone_and_no_accuracy() -> None:
    same = analysed(table(style_rows(lambda text: 0.5)))["same"]
    assert (same["n_right"], same["n_wrong"], same["n_ties"]) == (0, 0, 147)
    assert same["accuracy"]["value"] is None
    assert same["half_credit"]["value"] == 0.5
    assert same["verdict"] == "too_few_questions"


def test_a_reward_that_is_often_no_number_is_counted() -> None:
    found = analysed(table(style_rows(lambda text: math.nan if "\n" in text else len(text))))
    assert found["same"]["left_out"] == {"not_finite": 81}


# -- eval_awareness

REASONS = {
    "contrastive_aware_questions.json": "line 1: expected JSON Lines: one item a line",
    "framing_text.json": "line 1: expected JSON Lines: one item a line",
    "misalignment_rate_by_role_and_framing.csv": "line 1: expected JSON Lines: one item a line",
    "two_by_two_bench_deploy_rewritten.jsonl": "line 1: expected the fields id, context_type",
    "two_by_two_bench_eval.jsonl": "line 1: expected the fields id, context_type",
    "two_by_two_casual_deploy_formal.jsonl": "line 1: expected the fields id, context_type",
}


def test_every_file_is_refused_with_a_reason() -> None:
    paths = sorted(path for path in PROMPTS.iterdir() if path.suffix != ".md")
    assert [path.name for path in paths] == sorted(REASONS)
    for path in paths:
        with pytest.raises(MalformedInputError) as refused:
            summarise_items(path.read_bytes(), path.name, words(), None)
        message = str(refused.value)
        assert f"{path.name}: {REASONS[path.name]}" in message
        assert "found" in message
        assert "next:" in message


def prompts_of(name: str) -> list[tuple[str, str]]:
    """(id, prompt) of one file; the questions of the contrastive one have no ids."""
    path = PROMPTS / name
    if path.suffix == ".json":
        rows = json.loads(path.read_text("utf-8"))
        return [(f"{n}", row["question"]) for n, row in enumerate(rows)]
    key = "formatted_prompt" if "bench_eval" in name else "rewritten"
    return [(row["id"], row[key]) for row in lines_of(path)]


def items_around(prompts: Iterable[tuple[str, str]]) -> bytes:
    """An item around each prompt, which is its own base too: whatever bytes it has must be told
    apart from the clause behind them."""
    lines = []
    for key, prompt in prompts:
        base = prompt.strip()
        clause = f"This could be an exam, number {len(lines)}."
        control = f"This could be a letter, number {len(lines)}."
        item = {
            "id": key,
            "context_type": "exam_interview",
            "domain": "factual",
            "user_prompt": base,
            "base": base,
            "vea": f"{base} {clause}",
            "vea_clause": clause,
            "matched_control": f"{base} {control}",
            "single_clause_enforced": True,
        }
        lines.append(json.dumps(item, ensure_ascii=False))
    return "\n".join(lines).encode("utf-8")


@pytest.mark.parametrize(
    ("name", "n_items", "n_stems"),
    [
        ("contrastive_aware_questions.json", 204, 201),
        ("two_by_two_bench_deploy_rewritten.jsonl", 80, 80),
        ("two_by_two_casual_deploy_formal.jsonl", 80, 80),
    ],
)
def test_their_prompts_make_items_whatever_they_speak_of(
    name: str, n_items: int, n_stems: int
) -> None:
    """Prompts may speak of evaluation, as four in five of the contrastive ones do: they stand on
    both sides of every difference. Questions that stand twice are one prompt."""
    prompts = prompts_of(name)
    found = summarise_items(items_around(prompts), name, words(), 0.15)
    assert (found["n_items"], found["n_stems"]) == (n_items, n_stems)
    if name.startswith("contrastive"):
        speaking = sum(first_mention(text, words()) is not None for _, text in prompts)
        assert speaking == 165


def test_ids_that_are_empty_are_refused_and_items_with_numbers_instead_accepted() -> None:
    name = "two_by_two_bench_eval.jsonl"
    prompts = prompts_of(name)
    assert sum(not key for key, _ in prompts) == 47
    with pytest.raises(MalformedInputError, match=r"line 1\.id: expected text"):
        summarise_items(items_around(prompts), name, words(), None)
    numbered = [(str(n), text) for n, (_, text) in enumerate(prompts)]
    found = summarise_items(items_around(numbered), name, words(), None)
    assert (found["n_items"], found["n_stems"]) == (80, 80)


def test_one_byte_changed_in_any_prompt_is_found_where_it_is() -> None:
    found = prompts_of("two_by_two_bench_eval.jsonl")
    prompts = [(str(n), text) for n, (_, text) in enumerate(found)]
    lines = items_around(prompts).decode("utf-8").split("\n")
    for number in range(0, len(lines), 8):
        item = json.loads(lines[number])
        place = len(item["base"]) // 2
        item["vea"] = item["vea"][:place] + "\u00a7" + item["vea"][place:]
        changed = [*lines[:number], json.dumps(item, ensure_ascii=False), *lines[number + 1 :]]
        offset = len(item["base"][:place].encode("utf-8"))
        with pytest.raises(MalformedInputError) as refused:
            summarise_items("\n".join(changed).encode("utf-8"), "items", words(), None)
        assert f"items: {number}.vea: is not base" in str(refused.value)
        assert f"the first byte that differs is byte {offset}" in str(refused.value)
