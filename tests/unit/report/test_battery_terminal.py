"""The table of models: every number is there at any width, and no text of a server steers it."""

from __future__ import annotations

from typing import Any

import pytest

from eps_locked.report.battery.terminal import models_table, rate_words

AXES = ("over_refusal", "capability", "sycophancy", "tools", "harmful")


def axis(name: str, thinking: str = "off", **changes: Any) -> dict[str, Any]:
    found = {
        "axis": name,
        "thinking": thinking,
        "measured": True,
        "rate": 0.125,
        "low": 0.0432,
        "high": 0.31,
        "n_scored": 24,
        "n_items": 30,
    }
    return {**found, **changes}


def model(
    name: str = "stock", *axes: dict[str, Any], speed: float | None = 12.34
) -> dict[str, Any]:
    return {
        "model": name,
        "quantisation": "q4_1 weights in float32",
        "axes": list(axes or (axis("capability"),)),
        "speed": None if speed is None else {"tokens_per_second": {"median": speed}},
    }


def words(text: str) -> str:
    return " ".join(text.split())


def test_a_rate_stands_with_interval_and_number_and_without_one_says_how_many() -> None:
    assert rate_words(axis("tools")) == "12% [4,31] n=24"
    assert rate_words(axis("tools", measured=False, rate=None, n_scored=3)) == "not measured 3/30"


def test_one_run_and_one_mode_have_no_column_of_their_own() -> None:
    found = words(models_table([("", model())], 100))
    assert found.startswith("model ┃ weights ┃ correct ┃ tokens/s") or "model" in found
    assert "thinking" not in found
    assert "run" not in found
    assert "12.3" in found


def test_several_runs_and_modes_are_named_and_each_mode_has_its_line() -> None:
    both = model("stock", axis("tools"), axis("tools", "on", rate=0.5, low=0.3, high=0.7))
    text = models_table([("first", both), ("second", model("other"))], 120)
    assert "run" in text
    assert "thinking" in text
    lines = [line for line in text.splitlines() if "stock" in line]
    assert len(lines) == 2
    assert "12% [4,31]" in lines[0]
    assert "50% [30,70]" in lines[1]
    # Timed in one mode alone.
    assert "12.3" in lines[0]
    assert "12.3" not in lines[1]
    assert "-" in next(line for line in text.splitlines() if "other" in line)


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_no_number_is_cut_off_or_broken_at_any_width(width: int) -> None:
    axes = [axis(name, mode) for name in AXES for mode in ("off", "on")]
    text = models_table([("a_run", model("a_model_with_a_long_name", *axes))], width)
    assert "…" not in text
    rates = [line for line in text.splitlines() if "12%" in line]
    assert max(map(len, rates)) <= width
    for word in ("12%", "[4,31]", "n=24"):
        assert text.count(word) == 10
    assert text.count("a_model_with_a_long_name") == 2


def test_a_list_says_what_a_table_says() -> None:
    text = models_table([("a_run", model("stock", axis("tools"), axis("tools", "on")))], 30)
    assert text == (
        "a_run, stock, weights q4_1 weights in float32, thinking off\n"
        "  tools     12% [4,31] n=24\n"
        "  tokens/s  12.3\n"
        "a_run, stock, weights q4_1 weights in float32, thinking on\n"
        "  tools     12% [4,31] n=24\n"
        "  tokens/s  -\n"
    )


def test_a_model_without_speed_or_rate_has_a_dash_or_a_reason() -> None:
    text = models_table([("", model("a", axis("tools", measured=False, n_scored=0), speed=None))])
    assert "not measured" in words(text)
    assert "0/30" in text
    untimed = {**model("b"), "speed": {"tokens_per_second": None}}
    assert "-" in models_table([("", untimed)], 100)


def test_what_would_steer_a_terminal_is_a_question_mark() -> None:
    one = {**model(), "quantisation": "q4\x1b[31m [bold]x[/bold]"}
    text = models_table([("", one)], 120)
    assert "\x1b" not in text
    assert "[bold]" in text, "no markup of ours either"
