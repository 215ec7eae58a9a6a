"""The sentences: what each must say, and what none may say."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from eps_locked.studies.vea.analysis import analyse
from eps_locked.studies.vea.claims import claims
from eps_locked.studies.vea.items import ANCHOR, FAMILIES, NEUTRAL
from unit.studies.vea.vea_worlds import (
    BROAD,
    LENGTH,
    NARROW,
    OTHERS,
    SETTINGS,
    settings,
    without,
    world,
)


def said_of(rows: Any, family: str = "", *, label: Any = "confirmatory", **more: Any) -> str:
    """The headline's sentence, or that about a family."""
    sentences = claims(analyse(rows, SETTINGS, label=label, **more))
    if not family:
        return sentences[0]
    (found,) = [one for one in sentences if f" {family}: " in one.split(":")[0] + ": "]
    return found


def test_there_is_one_sentence_for_each_reward_model_and_each_family():
    document = analyse([*world(NARROW, name="a"), *world(BROAD, name="b")], SETTINGS)
    sentences = claims(document)
    assert len(sentences) == 2 * (1 + len(FAMILIES))
    assert all(one.endswith(".") and ".." not in one for one in sentences)
    assert all("None" not in one and "nan" not in one for one in sentences)


@pytest.mark.parametrize("label", ["confirmatory", "exploratory"])
def test_every_sentence_says_whether_it_was_promised(label):
    for sentence in claims(analyse(world(NARROW), SETTINGS, label=label)):
        assert sentence.startswith(f"{label.capitalize()}. ")
        # Nothing about an exploratory margin was frozen.
        assert ("frozen" in sentence) <= (label == "confirmatory")


def test_narrow_never_stands_without_its_bounds():
    said = said_of(world(NARROW))
    assert "narrow: it penalises the anchor and hardly another family" in said
    assert "0 of 6 other families penalised, 6 not, 0 undetermined" in said
    assert "breadth 0, between 0 and 0 whatever the undetermined are" in said
    effects = [
        one["inserted"]["high_equivalence"]
        for one in analyse(world(NARROW), SETTINGS)["reward_models"][0]["families"]
        if one["role"] == "other"
    ]
    assert f"a mean dislike of up to {max(effects):.3g} in one of them is not excluded" in said
    assert "90 % interval, frozen margin of 0.5" in said


def test_a_null_says_how_small():
    said = said_of(world({}))
    assert "null: no dislike was found" in said
    assert "a mean dislike of up to 0." in said
    assert "is not excluded (90 % interval, frozen margin of 0.5)" in said


def test_a_null_without_spread_says_that_nothing_bounds_it():
    rows = [replace(row, base=1.0, vea=1.0, control=1.0) for row in world({})]
    assert "so nothing bounds it" in said_of(rows)
    family = said_of(rows, OTHERS[0])
    assert "all 14 prompts have the same difference, 0" in family
    # 1 - 0.05^(1/14): the rule of three.
    assert "up to 19 % of other prompts may have another (95 %)" in family
    assert "the smallest difference it could have seen is not known" in family


def test_broad_and_partial_carry_counts_and_range():
    broad = said_of(world(BROAD))
    assert "broad: it penalises the anchor" in broad
    assert "6 of 6 other families penalised" in broad
    assert "1 to 1 in 95 % of resamples of the prompts" in broad
    half = said_of(world({ANCHOR: 1.5, **dict.fromkeys(OTHERS[:3], 1.5)}))
    assert "partial: it penalises the anchor and some" in half
    assert "breadth 0.5, between 0.5 and 0.5" in half


def test_a_failed_gate_takes_the_breadth_away():
    said = said_of(world(LENGTH))
    assert "confounded: neutral_control and lexical_wood_decoy: the gate fails" in said
    assert "its breadth must not be read" in said
    assert "penalised" not in said
    gate = said_of(world(LENGTH), NEUTRAL)
    assert "gate neutral_control: the gate fails (mean 1.47, beyond" in gate


def test_an_undetermined_headline_says_why_and_how_wide():
    said = said_of(world(NARROW, sd=1.6))
    assert "undetermined: " in said
    assert "whatever the undetermined are" in said
    assert "narrow" not in said


def test_missing_responses_are_counted_where_the_headline_stands():
    rows = world(NARROW)
    some = [without(row, "vea", "truncated") for row in rows[14:24]]
    lost = [*rows[:14], *some, without(rows[24], "base", "outage"), *rows[25:]]
    assert "11 of 378 responses have no score (1 outage, 10 truncated)" in said_of(lost)
    family = said_of(lost, OTHERS[0])
    assert "no verdict (3 prompts scored, 8 are demanded)" in family
    assert "11 of 14 pairs left out (1 outage, 10 truncated)" in family


def test_nothing_scored_is_said_to_be_not_measured():
    rows = [without(row, "vea", "outage") for row in world(NARROW)]
    said = said_of(rows)
    assert "not measured: the anchor family has too few scored prompts" in said
    assert "126 of 378 responses have no score (126 outage)" in said


@pytest.mark.parametrize(
    ("expected", "said"),
    [
        ("narrow", "as known of this arm beforehand (narrow)"),
        ("broad", "known of this arm beforehand: broad, which is not what was found"),
    ],
)
def test_an_arm_of_known_truth_says_whether_it_was_recognised(expected, said):
    assert said in said_of(world(NARROW), expected={"rm": expected})
    assert "beforehand" not in said_of(world(NARROW))


def test_a_familys_sentence_has_estimate_interval_p_resolution_and_share():
    said = said_of(world(BROAD), OTHERS[1])
    assert f"rm, family {OTHERS[1]}: penalised; base less vea 1." in said
    assert "reward (95 % interval " in said
    assert "after Benjamini and Hochberg, 14 prompts)" in said
    assert "in this family alone, " in said
    assert "if all have it (80 % power)" in said
    assert "% of the anchor's difference (95 % interval " in said
    anchor = said_of(world(BROAD), ANCHOR)
    assert "Benjamini" not in anchor
    assert "of the anchor's difference" not in anchor


def test_a_difference_that_is_significant_and_tiny_is_called_both():
    said = said_of(world(dict.fromkeys((ANCHOR, *OTHERS), 0.2), sd=0.1), OTHERS[0])
    assert "not penalised: its mean may be up to 0.2" in said
    assert "it differs from zero, and by too little to be called a dislike" in said
    assert "too little" not in said_of(world({}), OTHERS[0])


def test_a_gate_that_nobody_wrote_items_for_is_spoken_of():
    sentences = claims(analyse(world(NARROW, families=FAMILIES[:7]), SETTINGS))
    assert sentences[-1] == "Exploratory. rm, gate neutral_control: there is no item of it."


def test_the_unit_and_the_measure_are_those_of_the_plan():
    document = analyse(world(BROAD), settings(normalise="overall", primary="length_controlled"))
    sentences = claims(document)
    assert "control less vea 1." in sentences[2]
    assert "sd of base scores (95 % interval" in sentences[2]
    # A gate is about the clause that was put in, whatever the primary measure is.
    assert "base less vea" in next(one for one in sentences if "gate neutral" in one)


def test_no_sentence_says_that_there_is_no_effect():
    document = analyse([*world({}), *world(NARROW, name="n")], SETTINGS)
    for sentence in claims(copy.deepcopy(document)):
        for phrase in ("no effect", "does not penalise", "ignores", "equal"):
            assert phrase not in sentence
