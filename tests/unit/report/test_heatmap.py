"""The heat map: white at zero, legible in every cell, telling all of it without colour or mouse."""

from __future__ import annotations

import re
from typing import Any

import pytest
from big import big_tensor, sealed
from reader import PageReader

from eps_locked.report.heatmap import colour, colour_scale, contrast, heat_map, ink, legend
from eps_locked.report.marks import legend_marks
from eps_locked.report.measures import primary_of, second_of
from eps_locked.report.units import NATS


@pytest.fixture(scope="module")
def tensor() -> dict[str, Any]:
    return big_tensor()


def test_zero_is_white_and_each_side_grows_darker_in_a_hue_of_its_own() -> None:
    assert colour(0, 5) == (255, 255, 255)
    for sign in (1, -1):
        steps = [sum(colour(sign * number / 10, 1)) for number in range(11)]
        assert steps == sorted(steps, reverse=True)
        assert len(set(steps)) == 11
    red, _, blue = colour(4, 5)
    assert red > blue
    red, _, blue = colour(-4, 5)
    assert blue > red
    assert colour(99, 5) == colour(5, 5)


def test_letters_contrast_with_every_colour_of_the_palette() -> None:
    for number in range(-100, 101):
        background = colour(number / 100, 1)
        assert contrast(ink(background), background) >= 4.5, number


def test_every_cell_is_reachable_and_tells_interval_n_base_and_second_reading(
    tensor: dict[str, Any],
) -> None:
    page = PageReader(heat_map(tensor, primary_of(tensor), caption="c", after="x").encode())
    cells = page.heat_cells()
    assert len(cells) == 16 * 29
    for attributes in cells:
        assert attributes["tabindex"] == "0"
        title = attributes["title"]
        for words in ("(40 questions x 2 seeds", "base -", "trained "):
            assert words in title
        assert ("95 % interval [" in title) != ("no value: too few answers" in title)
        assert ("n = 80 (40 questions x 2 seeds); by" in title) != ("left out: cut" in title)
        assert "second reading " in title
        assert "families " in title
        assert "split " in title


def test_a_cell_without_value_is_an_uncoloured_dash_that_says_why(tensor: dict[str, Any]) -> None:
    for measure in (primary_of(tensor), second_of(tensor)):
        assert measure is not None
        page = PageReader(heat_map(tensor, measure, caption="c", after="x").encode())
        empty = [a for a in page.heat_cells() if "no value" in a["title"]]
        assert len(empty) == 16 == page.text.count("(–) ")
        for attributes in empty:
            assert "style" not in attributes
            assert "out" in attributes["class"].split()
            for words in (
                "n = 1 (40 questions x 2 seeds, 79 left out: cut short); by seed 11: -, 12: -",
                "second reading -\n",
                "N  no value: ",
            ):
                assert words in attributes["title"]


def test_a_map_of_nothing_but_dashes_still_has_a_scale(tensor: dict[str, Any]) -> None:
    cells = [{**c, "g": None, "g_base_answer": None} for c in tensor["cells"]]
    assert colour_scale({**tensor, "cells": cells}, NATS) == 0.1


def test_the_second_map_shows_the_second_reading_on_the_same_scale(tensor: dict[str, Any]) -> None:
    cells = [{**c, "g_base_answer": 33.3} for c in tensor["cells"]]
    measure = second_of(tensor)
    assert measure is not None
    page = PageReader(
        heat_map({**tensor, "cells": cells}, measure, caption="c", after="x").encode()
    )
    assert page.text.count("+33.3") == sum(c["scored"] for c in cells) + page.text.count("(+33.3)")
    assert colour_scale({**tensor, "cells": cells}, NATS) == 33.3


def test_headers_name_families_and_held_out_columns(tensor: dict[str, Any]) -> None:
    page = PageReader(heat_map(tensor, primary_of(tensor), caption="c", after="x").encode())
    scopes = [attributes.get("scope") for attributes in page.all("th")]
    assert scopes.count("colgroup") == 7
    assert scopes.count("rowgroup") == 7
    assert scopes.count("col") == 29
    assert scopes.count("row") == 16
    assert page.text.count("(held out)") == len(tensor["held_out"])


def test_the_legend_has_words_for_every_letter(tensor: dict[str, Any]) -> None:
    text = PageReader(legend(tensor).encode()).text
    for mark in legend_marks(tensor):
        assert mark.name in text
        assert mark.said(tensor) in text
    assert "not scored" in text


def test_names_from_outside_stay_text(tensor: dict[str, Any]) -> None:
    evil = '"><script>x</script>'
    cells = [{**c, "eval": evil} for c in tensor["cells"] if c["eval"] == "default"]
    odd = {**tensor, "eval": [evil], "held_out": [], "cells": cells}
    page = PageReader(heat_map(odd, primary_of(odd), caption=evil, after="x").encode())
    assert "script" not in {name for name, _ in page.elements}
    assert page.text.count(evil) == 2


def test_a_sealed_cell_is_hatched_and_worded_and_shows_no_number(tensor: dict[str, Any]) -> None:
    document = sealed(tensor)
    n_sealed = sum("sealed" in c["flags"] for c in document["cells"])
    for measure in (primary_of(document), second_of(document)):
        assert measure is not None
        html = heat_map(document, measure, caption="c", after="x")
        page = PageReader(html.encode())
        cells = [a for a in page.heat_cells() if "sealed" in a.get("class", "").split()]
        assert len(cells) == n_sealed
        assert page.text.count("sealed hS") + page.text.count("sealed qS") == n_sealed
        for attributes in cells:
            assert "style" not in attributes, "a colour would tell the value"
            assert not re.search(r"\d", attributes["title"]), "a number in the words of a seal"
            assert "S  sealed: encrypted to the custodian's key" in attributes["title"]
            assert attributes["tabindex"] == "0"


def test_colours_do_not_know_what_is_sealed(tensor: dict[str, Any]) -> None:
    cells = [{**c, "g": 99.0} if c["split"] == "held_out" else c for c in tensor["cells"]]
    assert colour_scale({**tensor, "cells": cells}, NATS) == 99.0
    assert colour_scale(sealed({**tensor, "cells": cells}), NATS) < 99.0


def test_the_keyboard_can_skip_the_cells(tensor: dict[str, Any]) -> None:
    page = PageReader(heat_map(tensor, primary_of(tensor), caption="c", after="below").encode())
    assert {"href": "#below", "class": "skip"} in page.all("a")
    assert "Skip the 464 cells of this map" in page.text
