"""Charts: every mark stands where its number is, and what is drawn is also said."""

from __future__ import annotations

import math

import pytest
from drift_documents import drift_document
from reader import PageReader

from eps_locked.report.charts import (
    Axis,
    Part,
    Series,
    Strip,
    axis_over,
    plot,
    stacked,
    strip_chart,
)
from eps_locked.report.drift.page import table_page

# 6 % of the width is kept free on either side.
AXIS = Axis(low=-10, high=10, ticks=(-10, -5, 0, 5, 10))


def percent(text: str) -> float:
    return float(text.removesuffix("%"))


@pytest.mark.parametrize(
    ("values", "ends", "step"),
    [
        ([-12.3, 4.4], (-15.0, 5.0), 5.0),
        ([0.31], (0.0, 0.4), 0.1),
        ([-0.02], (-0.02, 0.0), 0.005),
        ([0.0], (0.0, 1.0), 0.2),
        ([None], (0.0, 1.0), 0.2),
        ([140.0, -60.0], (-100.0, 150.0), 50.0),
    ],
)
def test_an_axis_has_round_ends_and_holds_every_value_and_0(
    values: list[float | None], ends: tuple[float, float], step: float
) -> None:
    axis = axis_over(values)
    assert (axis.low, axis.high) == pytest.approx(ends)
    assert axis.ticks[1] - axis.ticks[0] == pytest.approx(step)
    assert 4 <= len(axis.ticks) <= 8
    assert all(0 <= axis.share(value) <= 1 for value in (0, *values) if value is not None)


def test_ticks_are_written_with_the_digits_of_their_step() -> None:
    axis = axis_over([-0.02])
    assert axis.tick_words(axis.ticks[0]) == "−0.020"
    assert [AXIS.tick_words(value) for value in AXIS.ticks] == ["−10", "−5", "0", "5", "10"]


def test_a_strip_draws_its_numbers_at_their_places() -> None:
    one = Strip(
        name="plants_100",
        words="−5.0 [−10.0, 0.0]",
        value=-5.0,
        low=-10.0,
        high=0.0,
        inner=(-9.0, -1.0),
        shape="drift",
    )
    read = PageReader(strip_chart([one], label="Drifts", unit="points", band=(-2.5, 2.5)).encode())
    axis = axis_over([-10.0, 2.5])
    lines = {a["class"]: (percent(a["x1"]), percent(a["x2"])) for a in read.all("line")}
    assert lines["outer"] == pytest.approx((axis.x(-10), axis.x(0)), abs=0.01)
    assert lines["inner"] == pytest.approx((axis.x(-9), axis.x(-1)), abs=0.01)
    assert lines["zero"] == pytest.approx((axis.x(0),) * 2, abs=0.01)
    (band,) = read.all("rect")
    assert percent(band["x"]) == pytest.approx(axis.x(-2.5), abs=0.01)
    assert percent(band["width"]) == pytest.approx(axis.x(2.5) - axis.x(-2.5), abs=0.01)
    (point,) = [a for a in read.all("svg") if a.get("class") == "point"]
    assert percent(point["x"]) == pytest.approx(axis.x(-5), abs=0.01)
    assert read.all("path")[0]["class"] == "mark drift"
    assert "plants_100 −5.0 [−10.0, 0.0]" in read.text
    groups = [a for a in read.all("div") if a.get("role") == "group"]
    assert [a["aria-label"] for a in groups] == ["Drifts"]
    # The words say it; the drawing would only say it again.
    (track,) = [a for a in read.all("span") if a.get("class") == "track"]
    assert track["aria-hidden"] == "true"


def test_a_strip_without_a_number_draws_none() -> None:
    one = Strip(name="a", words="–", value=None, low=None, high=None)
    read = PageReader(strip_chart([one], label="l", unit="u").encode())
    assert read.all("path") == []
    assert {a["class"] for a in read.all("line")} == {"zero", "tick"}


def test_a_row_may_have_a_band_of_its_own() -> None:
    rows = [
        Strip(name=str(n), words="", value=1.0, low=None, high=None, band=(-n, n)) for n in (1, 2)
    ]
    read = PageReader(strip_chart(rows, label="l", unit="u", marked=(2.0,)).encode())
    first, second = (percent(a["width"]) for a in read.all("rect"))
    assert second == pytest.approx(2 * first, abs=0.02)
    assert [a["class"] for a in read.all("line")].count("goal") == 2


def test_a_plot_puts_points_and_intervals_on_both_axes() -> None:
    y = Axis(low=0, high=100, ticks=(0, 50, 100))
    chart = plot(
        [
            Series(points=((-10, 20), (10, 80)), look="fitted", joined=True, shape=None),
            Series(points=((0, 50),), ends=((25, 75),)),
        ],
        x=AXIS,
        y=y,
        x_words="dose",
        levels=[(100, "untouched")],
        label="What it shows",
        height=200,
    )
    read = PageReader(chart.encode())
    top, bottom = 16, 160
    (fitted,) = [a for a in read.all("line") if a["class"] == "fitted"]
    assert (percent(fitted["x1"]), percent(fitted["x2"])) == (6, 94)
    assert float(fitted["y1"]) == pytest.approx(bottom - 0.2 * (bottom - top), abs=0.1)
    (whisker,) = [a for a in read.all("line") if a["class"] == "outer"]
    assert float(whisker["y1"]) - float(whisker["y2"]) == pytest.approx((bottom - top) / 2, abs=0.1)
    (level,) = [a for a in read.all("line") if a["class"] == "level"]
    assert float(level["y1"]) == top
    assert "untouched" in read.text
    drawings = [a for a in read.all("svg") if a.get("role") == "img"]
    assert [a["aria-label"] for a in drawings] == ["What it shows"]


def test_parts_of_a_whole_lie_side_by_side() -> None:
    parts = [Part(kind=k, share=s) for k, s in (("classifier", 0.1), ("model", 0.6), ("item", 0.3))]
    read = PageReader(stacked(parts).encode())
    styles = [a["style"] for a in read.all("span") if a.get("class", "").startswith("fill")]
    assert styles == [
        "left:0.0%;width:10.0%",
        "left:10.0%;width:60.0%",
        "left:70.0%;width:30.0%",
    ]


def test_the_untouched_model_is_a_line_across_each_dose_chart() -> None:
    document = drift_document()
    read = PageReader(table_page(document, [], "t"))
    levels = [a for a in read.all("line") if a.get("class") == "level"]
    assert len(levels) == len(document["doses"]) == 8
    by_name = {arm["arm"]: arm for arm in document["arms"]}
    trend = document["doses"][4]
    assert (trend["reasoning"], trend["battery"]) == ("cut_256", "self_interest")
    # Sections go by battery: the second chart is this one, beside the model that thinks as well.
    rate = by_name["untouched_thinks"]["batteries"]["self_interest"]["rate"]
    assert float(levels[1]["y1"]) == pytest.approx(160 - 144 * rate, abs=0.1)
    labels = [a["aria-label"] for a in read.all("svg") if a.get("role") == "img"]
    (said,) = [one for one in labels if one.startswith("self_interest, plants, reasoning cut_256")]
    for point in trend["points"]:
        assert f"{point['dose_percent']:g} %: {100 * point['rate']:.1f} %" in said
    assert f"untouched model {100 * rate:.1f} %" in said


def test_a_dose_chart_without_an_untouched_model_has_no_such_line() -> None:
    document = drift_document()
    for arm in document["arms"]:
        arm["batteries"] = {} if arm["topic"] is None else arm["batteries"]
    document["comparisons"] = [
        one for one in document["comparisons"] if "untouched" not in one["reference"]
    ]
    document |= {"reasoning": [], "instances": [], "readouts": None, "awareness": None}
    read = PageReader(table_page(document, [], "t"))
    assert not [a for a in read.all("line") if a.get("class") == "level"]


def test_the_power_curve_marks_where_the_study_stands() -> None:
    document = drift_document()
    read = PageReader(table_page(document, [], "t"))
    stops = sorted(percent(a["x1"]) for a in read.all("line") if a.get("class") == "stop")
    axis = axis_over([120], n_ticks=6)
    assert stops == pytest.approx([axis.x(n) for n in (20, 30, 35)], abs=0.01)
    (said,) = [
        a["aria-label"] for a in read.all("svg") if a.get("aria-label", "").startswith("Detectable")
    ]
    assert "30 stems, 6.4" in said
    assert "harmful_requests with 35 stems, " in said
    assert math.isclose(axis.high, 120)
