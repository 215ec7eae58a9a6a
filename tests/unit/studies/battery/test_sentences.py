"""No sentence calls two models alike without the bound on what may still differ."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import pytest

from eps_locked.studies.battery.comparing import compare, keys_of, weak_discriminators
from eps_locked.studies.battery.outcomes import COUNTED, AxisOutcomes
from eps_locked.studies.battery.sentences import AXIS_WORDS, claims, sentence, served_words
from unit.studies.battery.outcome_worlds import counted, outcomes, settings
from unit.studies.battery.world import section

MODEL, BASE = section().model("cautious"), section().model("untouched")
FORBIDDEN = re.compile(r"\b(equal|equals|equally|same|identical|no change|unchanged|alike)\b", re.I)


def said(model: AxisOutcomes, base: AxisOutcomes, **changes: Any) -> tuple[str, dict[str, Any]]:
    numbers = settings(**changes)
    (row,) = compare(MODEL, BASE, keys_of([model]), keys_of([base]), numbers)["axes"]
    return sentence("cautious", "untouched", row, numbers), row


def bound_in(text: str) -> float:
    found = re.search(r"(?:no larger than|up to|no more than) (\d+\.\d) points", text)
    assert found is not None, text
    return float(found.group(1))


def test_every_axis_has_its_words() -> None:
    assert set(AXIS_WORDS) == set(COUNTED)


def many() -> list[tuple[AxisOutcomes, AxisOutcomes]]:
    """Every number of items that go up and down, in small and in large sets, matched or not."""
    found = [
        (outcomes([1] * up + [0] * (n - up)), outcomes([0] * (n - down) + [1] * down))
        for n in (4, 5, 9, 30)
        for up, down in product(range(0, n + 1, max(1, n // 6)), repeat=2)
    ]
    found += [(outcomes([None] * 6), outcomes([1] * 6))]
    found += [
        (counted(a, n), counted(b, m))
        for n, m in ((4, 60), (60, 60))
        for a in (0, 4)
        for b in (0, 4)
    ]
    return found


def test_alike_is_never_said_and_what_was_not_found_has_its_bound() -> None:
    verdicts = set()
    for model, base in many():
        text, row = said(model, base)
        verdicts.add(row["verdict"])
        assert not FORBIDDEN.search(text), text
        assert "nan" not in text
        assert "None" not in text
        assert "-0.0" not in text
        if row["verdict"] in ("within_margin", "undetermined"):
            assert bound_in(text) >= row["equivalence_bound"] * 100 - 1e-6, "never rounded down"
    assert verdicts == {"higher", "lower", "within_margin", "undetermined", "not_measured"}


def test_a_difference_is_told_with_both_rates_interval_p_and_resolution() -> None:
    text, row = said(outcomes([1] * 9 + [0] * 3), outcomes([0] * 12))
    assert text.startswith(
        "capability, thinking off: cautious answers correctly in 75%, untouched in 0% of 12 "
        "(difference +75.0 points, 95% interval +"
    )
    assert "p 0.0039; a difference of " in text
    assert text.endswith("): higher.")
    assert row["minimum_detectable"] * 100 <= float(
        re.findall(r"of (\d+\.\d) points would", text)[0]
    )


def test_a_difference_within_the_margin_says_that_it_is() -> None:
    model, base = outcomes([1] * 12 + [0] * 188), outcomes([0] * 200)
    text, row = said(model, base)
    assert (row["verdict"], row["equivalence_bound"] <= 0.2) == ("higher", True)
    assert text.endswith(
        f"higher, by no more than {bound_in(text)} points, within the margin of 20."
    )


def test_a_bound_at_its_margin_does_not_grow_past_it_by_a_floats_dust() -> None:
    _, row = said(outcomes([1, 0] * 50), outcomes([1, 0] * 50))
    row.update(equivalence_bound=0.1 + 0.2, margin=0.3, verdict="within_margin")
    text = sentence("a", "b", row, settings())
    assert "no larger than 30.0 points either way, within the margin of 30." in text


def test_few_items_are_told_to_be_few() -> None:
    text, _ = said(outcomes([1] * 4), outcomes([1] * 4))
    assert "no difference would have been found with so few items" in text
    assert "undetermined: up to " in text


def test_what_is_missing_is_told_side_by_side() -> None:
    text, _ = said(outcomes([1, None, None, None, 1]), outcomes([None, 0, 1, 1, 1]))
    assert text == (
        "capability, thinking off: not measured for cautious against untouched: cautious has a "
        "verdict on 2 of 5 items, untouched on 4, on both 1; the plan asks for its share of each "
        "and for 4 to compare."
    )


def test_unmatched_rates_have_each_their_own_number_of_items() -> None:
    text, _ = said(counted(3, 10), counted(3, 12))
    assert "cautious complies with harmful requests in 30% of 10, untouched in 25% of 12" in text
    assert "without matching" in text


def test_what_was_served_differently_is_told_in_one_sentence() -> None:
    assert served_words({"differs": []}) == []
    (text,) = served_words({"differs": [{"what": "chat template", "model": "a1", "base": "b2"}]})
    assert text == "served differently, which moves rates by itself: chat template a1 and b2."


@pytest.mark.parametrize("label", ["confirmatory", "exploratory"])
def test_claims_carry_title_and_label_and_name_the_weak(label: str) -> None:
    found = {"m": [outcomes([1, 0] * 6)], "b": [outcomes([0, 1] * 6)]}
    by_model = {name: keys_of(one) for name, one in found.items()}
    entry = compare(MODEL, BASE, by_model["m"], by_model["b"], settings())
    for row in entry["axes"]:
        row["sentence"] = sentence("cautious", "untouched", row, settings())
    differs = [{"what": "server", "model": "x 1", "base": "x 2"}]
    texts = claims(
        {
            "label": label,
            "comparisons": [{**entry, "differs": differs}],
            "weak_discriminators": weak_discriminators(by_model, settings()),
        }
    )
    assert len(texts) == 3
    assert all(one.endswith(f" ({label})") for one in texts)
    assert texts[0].startswith("cautious against untouched (float32): capability, thinking off: ")
    assert "server x 1 and x 2" in texts[1]
    assert texts[2].startswith("capability, thinking off is a weak discriminator here: ")
