"""The verdict on a capability reply: forms people and models use, and tricks that must not pass."""

from __future__ import annotations

import datetime
import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eps_locked.errors import MalformedInputError
from eps_locked.studies.battery.answers import score_answer
from eps_locked.studies.battery.rules import (
    Choice,
    Date,
    Exact,
    Number,
    Output,
    Rule,
    read_rule,
    spelled_value,
)


def number(value: float, *, units: Any = (), words: Any = (), tolerance: float = 0.0) -> Number:
    return Number(value=value, tolerance=tolerance, units=tuple(units), words=tuple(words))


CAPITAL = Exact(accepted=("Canberra",), rivals=("Sydney", "Melbourne"))
SEA = Exact(accepted=("Black Sea",), rivals=("Caspian Sea", "Red Sea"))
METAL = Exact(accepted=("aluminium", "aluminum"), rivals=("tin",))
SYMBOL = Exact(accepted=("K",), rivals=("P", "Na"))
TALL = Exact(accepted=("Ben",), rivals=("Ana", "Cleo"))
CLOCK = Exact(accepted=("6:10", "06:10"), rivals=("6:10 pm", "6:10 p.m."))
LARGE = number(3200)
METRES = number(3700, units=("m", "metre", "metres"))
MINUTES = number(155, units=("minutes", "minute", "min"))
THREE = number(3, words=("three",))
COLD = number(-12, units=("degrees", "°C"))
EIGHTHS = number(0.375)
NEARLY = number(32, tolerance=0.2, units=("km", "kilometres"))
MONEY = number(2.65, units=("pounds", "pound", "£"))
SPEED = number(140, units=("km/h", "kilometres per hour", "km per hour"))
YEAR = number(1789)
MAMMAL = Choice(letter="A", options=("dolphin", "trout", "penguin"))
GAS = Choice(letter="C", options=("oxygen", "nitrogen", "carbon dioxide", "hydrogen"))
BOX = Choice(letter="B", options=("box 1", "box 2", "box 3"))
MARCH = Date(date=datetime.date(2023, 3, 6), needs_year=True)
LEAP = Date(date=datetime.date(2028, 2, 29), needs_year=False)
WALL = Date(date=datetime.date(1989, 11, 9), needs_year=False)
LIST = Output(output="[0, 1, 9]")
NINE = Output(output="9")
BOOLS = Output(output="True False")
LINES = Output(output="o\noo\nooo")
QUOTED = Output(output="{'l': 2, 'e': 2}")

CORRECT: list[tuple[Rule, str]] = [
    (CAPITAL, "Canberra"),
    (CAPITAL, "  canberra.\n"),
    (CAPITAL, "**CANBERRA**!"),
    (CAPITAL, "Answer: Canberra"),
    (CAPITAL, "**Answer:** Canberra"),
    (CAPITAL, "The answer is Canberra, not Sydney."),
    (CAPITAL, "It isn't Sydney. It is Canberra."),
    (CAPITAL, "Sydney is the largest city. The capital is Canberra."),
    (CAPITAL, "Although Sydney is larger, the capital is Canberra."),
    (CAPITAL, "Answer: Sydney. Wait, that is the largest city. Canberra is the capital."),
    (CAPITAL, "Canberra (many people say Sydney)."),
    (CAPITAL, "Canberra rather than Melbourne is the capital."),
    (CAPITAL, "I thought of Sydney or Melbourne first.\n\nAnswer: Canberra"),
    (SEA, "It flows into the Black Sea."),
    (SEA, "the black-sea"),
    (METAL, "Aluminium, or aluminum in American spelling."),
    (SYMBOL, "K"),
    (SYMBOL, "The symbol is K (from kalium)."),
    (TALL, "Ana is taller than Ben, so the second tallest is Ben."),
    (TALL, "Answer: Ben, because Ana is taller and Cleo is not."),
    (CLOCK, "Her shift ends at 06:10."),
    (CLOCK, "6:10 a.m."),
    (LARGE, "3200"),
    (LARGE, "3,200"),
    (LARGE, "3200.0"),
    (LARGE, "3\u202f200"),
    (LARGE, "3.2 thousand"),
    (LARGE, "3.2 × 10^3"),
    (LARGE, "3.2e3"),
    (LARGE, "About 3,200."),
    (LARGE, "40 × 80 = 3200"),
    (LARGE, "Answer: 40 times 80, which is 3200"),
    (LARGE, "It's 3200, because 40 times 80 makes that."),
    (LARGE, "\\[ 40 \\times 80 = \\boxed{3{,}200} \\]"),
    (LARGE, "40 * 80 is 3200.\n#### 3200"),
    (LARGE, "First I get 3100. Wait, I forgot 100: 3200."),
    (LARGE, "The answer is 3200. To check it, divide by 80: that gives 40."),
    (LARGE, "Answer: 3200\n\nAnswer:"),
    (LARGE, "1. Take 40.\n2. Multiply by 80.\n3. The result is 3200."),
    (LARGE, "Not 320 but 3200."),
    (METRES, "3700"),
    (METRES, "3,700 m"),
    (METRES, "3700m"),
    (METRES, "3.7 km = 3700 metres"),
    (METRES, "3.7 km is 3,700 metres."),
    (METRES, "3700 metres (that is 3.7 km)"),
    (MINUTES, "155"),
    (MINUTES, "2 hours 35 minutes, so 155 minutes"),
    (MINUTES, "Answer: 155 minutes, that is 2 hours and 35 minutes"),
    (LARGE, "Answer: 3200 (40 boxes. Each holds 80.)"),
    (THREE, "Three."),
    (THREE, "three socks"),
    (THREE, "3"),
    (THREE, "You need the third one, so three."),
    (COLD, "-12"),
    (COLD, "−12 degrees"),
    (COLD, "Answer: minus 12 degrees"),
    (COLD, "7 - 19 = -12"),
    (COLD, "7 degrees minus 19 degrees is -12 degrees."),
    (COLD, "It fell from 7 all the way, and now it is minus 12."),
    (EIGHTHS, "0.375"),
    (EIGHTHS, ".375"),
    (EIGHTHS, "3/8 = 0.375"),
    (NEARLY, "32"),
    (NEARLY, "32.18 km"),
    (NEARLY, "Answer: 32.18, so about 32 km"),
    (MONEY, "£2.65"),
    (MONEY, "3 × £2.45 = £7.35, and £10 - £7.35 = £2.65"),
    (SPEED, "140 km/h"),
    (SPEED, "140 km per hour"),
    (YEAR, "The storming was on 14 July 1789."),
    (YEAR, "Answer: July 14, 1789"),
    (MAMMAL, "A"),
    (MAMMAL, "a"),
    (MAMMAL, "(A)"),
    (MAMMAL, "A) dolphin"),
    (MAMMAL, "A. Dolphin"),
    (MAMMAL, "Option A"),
    (MAMMAL, "The answer is **A**."),
    (MAMMAL, "A trout is a fish, a penguin is a bird. Answer: A"),
    (MAMMAL, "The dolphin."),
    (GAS, "Answer: (c)"),
    (GAS, "C) carbon dioxide"),
    (GAS, "Plants give off oxygen. They take up carbon dioxide."),
    (GAS, "Not A but C."),
    (GAS, "$\\boxed{\\text{C}}$"),
    (GAS, "Oxygen is given off and nitrogen does nothing, so (C)."),
    (GAS, "It is C, because oxygen is given off."),
    (BOX, "The ring is in box 2."),
    (MARCH, "6 March 2023"),
    (MARCH, "March 6, 2023"),
    (MARCH, "the 6th of March, 2023"),
    (MARCH, "Monday, 6 Mar. 2023"),
    (MARCH, "2023-03-06"),
    (MARCH, "2023/3/6"),
    (MARCH, "Answer: 45 days after 20 January 2023 is 6 March 2023"),
    (MARCH, "From 20 January to 31 January is 11 days. That leaves us at 6 March 2023."),
    (LEAP, "29 February"),
    (LEAP, "February 29th, 2028"),
    (LEAP, "29.02.2028"),
    (WALL, "It opened on November 9, 1989."),
    (WALL, "09-11-1989 is ambiguous, so: 9 November 1989."),
    (LIST, "[0, 1, 9]"),
    (LIST, "[0,1,9]"),
    (LIST, "`[0, 1, 9]`"),
    (LIST, "It prints `[0, 1, 9]`."),
    (LIST, "The code prints [0, 1, 9] because 2 is left out."),
    (LIST, "Answer: [0, 1, 9]"),
    (LIST, "**Answer:** `[0, 1, 9]`"),
    (LIST, "```python\nprint([0])\n```\nThe output is:\n```\n[0, 1, 9]\n```"),
    (LIST, "Let me see: 0, then 1, then 9.\n\n[0, 1, 9]"),
    (NINE, "Answer: 9 (1 + 3 + 5)"),
    (NINE, "The loop adds 1, 3 and 5.\nThe answer is 9."),
    (BOOLS, "True False"),
    (BOOLS, '"True False"'),
    (LINES, "```\no\noo\nooo\n```"),
    (LINES, "o\noo\nooo"),
    (LINES, "Answer:\no\noo\nooo\n"),
    (LINES, "It prints:\n\no\noo\nooo"),
    (QUOTED, "Answer: {'l':2, 'e':2}"),
]

WRONG: list[tuple[Rule, str, str]] = [
    (CAPITAL, "Sydney", "another"),
    (CAPITAL, "I don't know.", "no accepted"),
    (CAPITAL, "Canberra or Sydney", "two answers"),
    (CAPITAL, "Canberra or Hobart", "two answers"),
    (CAPITAL, "Either Hobart or Canberra.", "two answers"),
    (CAPITAL, "Canberra/Hobart", "two answers"),
    (CAPITAL, "Answer: Canberra. Or maybe Sydney.", "two answers"),
    (CAPITAL, "Canberra, maybe Hobart", "two answers"),
    (CAPITAL, "It is not Canberra.", "not"),
    (CAPITAL, "It isn't Canberra but Sydney.", "another"),
    (CAPITAL, "The capital is Canberra. No, wait, it is Sydney.", "another"),
    (CAPITAL, "Canberran", "no accepted"),
    (CAPITAL, "Answer: Sydney and Canberra", "two answers"),
    (SEA, "Black", "no accepted"),
    (SEA, "the Red Sea", "another"),
    (SYMBOL, "Ok", "no accepted"),
    (SYMBOL, "P, not K", "another"),
    (CLOCK, "6:10 pm", "another"),
    (CLOCK, "16:10", "no accepted"),
    (LARGE, "320", "another"),
    (LARGE, "-3200", "another"),
    (LARGE, "32000", "another"),
    (LARGE, "3.200", "another"),
    (LARGE, "3,2,00", ""),
    (LARGE, "13,200", "another"),
    (LARGE, "3200 or 3300", "two answers"),
    (LARGE, "3300 or 3200", "two answers"),
    (LARGE, "3200, maybe 3300", "two answers"),
    (LARGE, "Between 3100 and 3200.", "two answers"),
    (LARGE, "3100-3200", ""),
    (LARGE, "3200 (or 3300)", "two answers"),
    (LARGE, "It is 3200. Or perhaps 3300.", "two answers"),
    (LARGE, "Answer: 3200. Maybe 3300.", "two answers"),
    (LARGE, "Answer: 3200 for one side, 3300 for the other", "two answers"),
    (LARGE, "It is not 3200.", "no number"),
    (LARGE, "Answer: 3200. Actually, no: 3300.", "another"),
    (LARGE, "Answer: 3200\nAnswer: 3300", "another"),
    (LARGE, "x3200", "no number"),
    (LARGE, "The 3200th", "no number"),
    (LARGE, "12:3200", "no number"),
    (number(10), "06:10", "no number"),
    (LARGE, "40 × 80", "no number"),
    (LARGE, "three thousand two hundred", "words"),
    (LARGE, "9" * 5000, "another"),
    (LARGE, "1/0", "another"),
    (LARGE, "Je ne sais pas.", "no number"),
    (LARGE, "3200²", ""),
    (METRES, "3700 km", "another unit"),
    (METRES, "3700 miles", "another unit"),
    (METRES, "3.7 km", "another unit"),
    (number(30, units=("minutes",)), "1 hour 30 minutes", "another unit"),
    (number(30, units=("minutes",)), "1 hour and 30 minutes", "another unit"),
    (SPEED, "140 km", "another unit"),
    (METRES, "3700 m per hour", "another unit"),
    (THREE, "four", "another"),
    (THREE, "three or four", "two answers"),
    (THREE, "3 or four", "two answers"),
    (number(3), "three", "words"),
    (number(56), "56 or fifty-seven", "two answers"),
    (COLD, "12", "another"),
    (COLD, "7 minus 19 is 12", "another"),
    (EIGHTHS, "3/8 or 0.4", "two answers"),
    (EIGHTHS, "0.38", "another"),
    (number(25), "5²", ""),
    (number(52), "5²", ""),
    (number(10.5), "2½", "another"),
    (MAMMAL, "B", "another"),
    (MAMMAL, "A fish is no mammal, but which one is?", "no option"),
    (MAMMAL, "A or B", "two options"),
    (MAMMAL, "A and C", "two options"),
    (MAMMAL, "A) trout", "another one's text"),
    (MAMMAL, "The dolphin or the penguin", "two options"),
    (MAMMAL, "Not A.", "no option"),
    (MAMMAL, "E", "no option"),
    (MAMMAL, "ABC", "no option"),
    (GAS, "Answer: C. Actually, B.", "another option"),
    (GAS, "dioxide", "no option"),
    (GAS, "oxygen", "another option"),
    (MARCH, "6 March", "another"),
    (MARCH, "7 March 2023", "another"),
    (MARCH, "6 March 2024", "another"),
    (MARCH, "March 2023", "no date"),
    (MARCH, "03/06/2023", "two days"),
    (MARCH, "6 March 2023 or 7 March 2023", "two answers"),
    (MARCH, "Answer: 6 March 2023. Or 7 March 2023.", "two answers"),
    (MARCH, "2023-03-061", "no date"),
    (LEAP, "29 February 2024", "another"),
    (LEAP, "30 February", "another"),
    (LEAP, "It is not 29 February.", "no date"),
    (LIST, "[0, 1, 4, 9]", "another"),
    (LIST, "(0, 1, 9)", "another"),
    (LIST, "0, 1, 9", "another"),
    (LIST, "It prints `[0, 1, 9]` or `[0, 1]`.", "another"),
    (LIST, "Answer: [0, 1, 9] or [0, 1]", "another"),
    (NINE, "9.5", "another"),
    (NINE, "19", "another"),
    (NINE, "It prints 9 or 10", "another"),
    (NINE, "Answer:9\nAnswer: 10", "another"),
    (BOOLS, "true false", "another"),
    (BOOLS, "TrueFalse", "another"),
    (BOOLS, "False True", "another"),
    (LINES, "o oo ooo", "another"),
    (LINES, "ooo", "another"),
    (LINES, "o\noo\nooo\noooo", "another"),
]
RULES = (CAPITAL, LARGE, METRES, THREE, MAMMAL, MARCH, LEAP, LIST, LINES)


@pytest.mark.parametrize(("rule", "reply"), CORRECT)
def test_a_right_answer_counts_in_every_usual_form(rule: Rule, reply: str) -> None:
    scored = score_answer(reply, rule)
    assert scored.verdict == "correct", scored
    assert scored.stated


@pytest.mark.parametrize(("rule", "reply", "reason"), WRONG)
def test_a_wrong_or_hedged_answer_is_wrong_and_says_why(
    rule: Rule, reply: str, reason: str
) -> None:
    scored = score_answer(reply, rule)
    assert scored.verdict == "wrong", scored
    assert reason in scored.reason, scored


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("reply", ["", " ", "\n\t", "...", "**", "\u200b", "``` ```", "-"])
def test_a_reply_without_a_letter_or_digit_is_no_answer(rule: Rule, reply: str) -> None:
    assert score_answer(reply, rule).verdict == "no_answer"


@pytest.mark.parametrize("rule", RULES)
def test_a_reply_in_another_language_or_off_the_point_is_wrong_and_not_missing(rule: Rule) -> None:
    for reply in (
        "Je ne sais pas.",
        "Das weiß ich leider nicht.",
        "わかりません",
        "I cannot help.",
    ):
        assert score_answer(reply, rule).verdict == "wrong", reply


def test_a_unit_that_was_not_asked_for_is_not_looked_at_where_the_rule_names_none() -> None:
    assert score_answer("56 apples", number(56)).verdict == "correct"
    assert score_answer("56 km", number(56)).verdict == "correct"


def test_the_tolerance_is_that_of_the_written_decimals() -> None:
    rule = number(0.3, tolerance=0.1)
    for reply in ("0.2", "0.4", "0.3"):
        assert score_answer(reply, rule).verdict == "correct", reply
    for reply in ("0.4000000000000000001", "0.19"):
        assert score_answer(reply, rule).verdict == "wrong", reply


def test_a_long_reply_is_shown_cut_and_without_what_no_file_can_hold() -> None:
    scored = score_answer("\ud800 Sydney " * 60, CAPITAL)
    assert scored.stated is not None
    assert len(scored.stated) <= 80
    scored.stated.encode("utf-8")


@pytest.mark.timeout(120)
def test_a_long_reply_is_read_in_reasonable_time() -> None:
    for piece in (
        "3 + ",
        "12 or ",
        "(",
        "not ",
        "1,",
        "answer: ",
        "a ",
        "` ",
        "2 hours ",
        "so is ",
    ):
        for rule in RULES:
            score_answer(piece * 1500, rule)


@given(
    value=st.integers(-(10**12), 10**12),
    before=st.sampled_from(["", "Answer: ", "The answer is ", "First 1 and 2.\nAnswer: "]),
)
def test_every_integer_is_right_in_plain_and_in_grouped_digits(value: int, before: str) -> None:
    rule = number(value)
    for written in (str(value), f"{value:,}", f"{value}.0", f"**{value}**", f"{value}."):
        assert score_answer(before + written, rule).verdict == "correct", written
    for other in (str(value + 1), f"{value}1", f"{value} or {value + 1}", f"{value + 1}/{value}"):
        assert score_answer(before + other, rule).verdict == "wrong", other


@given(date=st.dates(datetime.date(1000, 1, 1), datetime.date(2999, 12, 31)))
def test_every_day_is_right_in_the_usual_spellings(date: datetime.date) -> None:
    rule = Date(date=date, needs_year=True)
    name = date.strftime("%B")
    for written in (
        date.isoformat(),
        f"{date.day} {name} {date.year}",
        f"{name} {date.day}, {date.year}",
        f"the {date.day}th of {name[:3]} {date.year}",
    ):
        assert score_answer(f"Answer: {written}", rule).verdict == "correct", written
    after = date + datetime.timedelta(days=1)
    assert score_answer(after.isoformat(), rule).verdict == "wrong"
    assert score_answer(f"{date.isoformat()} or {after.isoformat()}", rule).verdict == "wrong"


WORDS = st.text(alphabet=string.ascii_lowercase, min_size=3, max_size=8).filter(
    lambda word: word not in {"and", "the", "not", "nor", "but", "maybe", "perhaps", "possibly"}
)


@given(right=WORDS, other=WORDS)
def test_a_word_counts_alone_and_not_beside_another_or_inside_one(right: str, other: str) -> None:
    rule = Exact(accepted=(right,), rivals=())
    assert score_answer(f"Answer: {right.upper()}.", rule).verdict == "correct"
    assert score_answer(f"{right}{other}", rule).verdict == "wrong"
    if right != other:
        assert score_answer(f"{right} or {other}", rule).verdict == "wrong"
        assert score_answer(f"{other} or {right}", rule).verdict == "wrong"
        assert score_answer(other, rule).verdict == "wrong"


@settings(max_examples=300)
@given(reply=st.text(max_size=120))
def test_any_text_at_all_gets_a_verdict_and_the_same_one_twice(reply: str) -> None:
    for rule in RULES:
        scored = score_answer(reply, rule)
        assert scored == score_answer(reply, rule)
        empty = not any(letter.isalnum() for letter in reply)
        assert (scored.verdict == "no_answer") is empty


@given(reply=st.text(alphabet="0123456789., -+/()=orandABnswer:\n", max_size=60))
def test_what_follows_an_answer_line_in_brackets_changes_nothing(reply: str) -> None:
    inside = reply.replace("(", "").replace(")", "").replace("\n", " ").lower()
    if any(word in inside for word in ("or", "answer")):
        return
    assert score_answer(f"Answer: 3200 ({inside})", LARGE).verdict == "correct"


def test_a_rule_reads_from_its_own_fields_only() -> None:
    rules: list[tuple[dict[str, Any], Rule]] = [
        ({"kind": "exact", "accepted": ["Ben"], "rivals": ["Ana", "Cleo"]}, TALL),
        ({"kind": "number", "value": 3, "tolerance": 0, "units": [], "words": ["three"]}, THREE),
        ({"kind": "choice", "letter": "B", "options": ["box 1", "box 2", "box 3"]}, BOX),
        ({"kind": "date", "date": "2023-03-06", "needs_year": True}, MARCH),
        ({"kind": "output", "output": "o\noo\nooo"}, LINES),
    ]
    for value, rule in rules:
        assert read_rule(value, "rule") == rule
        for key in value:
            rest = {name: one for name, one in value.items() if name != key}
            with pytest.raises(MalformedInputError, match=f"rule.{key}: is missing"):
                read_rule(rest, "rule")
        with pytest.raises(MalformedInputError, match=r"rule\.more: is not a known field"):
            read_rule({**value, "more": 1}, "rule")


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"kind": "regex"}, "rule.kind: expected exact or number or choice or date or output"),
        ({"kind": "exact", "accepted": [], "rivals": []}, "at least one phrase"),
        ({"kind": "exact", "accepted": ["?"], "rivals": []}, "phrases of words"),
        ({"kind": "exact", "accepted": ["Ben"], "rivals": ["ben!"]}, "'ben' twice"),
        ({"kind": "exact", "accepted": [" Ben"], "rivals": []}, "accepted"),
        ({"kind": "number", "value": True, "tolerance": 0, "units": [], "words": []}, "a number"),
        ({"kind": "number", "value": 3, "tolerance": -1, "units": [], "words": []}, "at least 0"),
        ({"kind": "number", "value": 3, "tolerance": 0, "units": ["m", "M"], "words": []}, "twice"),
        ({"kind": "number", "value": 3, "tolerance": 0, "units": [], "words": ["four"]}, "'four'"),
        ({"kind": "choice", "letter": "D", "options": ["x", "y", "z"]}, "A or B or C"),
        ({"kind": "choice", "letter": "a", "options": ["x", "y"]}, "letter"),
        ({"kind": "choice", "letter": "A", "options": ["x"]}, "from 2 to 8"),
        ({"kind": "choice", "letter": "A", "options": ["x", "X."]}, "twice"),
        ({"kind": "date", "date": "2023-02-29", "needs_year": True}, "a day of the calendar"),
        ({"kind": "date", "date": "1 March 2023", "needs_year": True}, "date"),
        ({"kind": "date", "date": "2023-03-01", "needs_year": "yes"}, "true or false"),
        ({"kind": "output", "output": "[]"}, "a letter or a digit"),
    ],
)
def test_a_rule_that_could_not_be_applied_is_refused_by_field(
    value: dict[str, Any], problem: str
) -> None:
    with pytest.raises(MalformedInputError) as caught:
        read_rule(value, "rule")
    assert problem in str(caught.value)


def test_spelled_numbers_have_values_below_a_hundred() -> None:
    assert [spelled_value(word) for word in ("three", "Forty-Two", "ninety nine", "twenty")] == [
        3,
        42,
        99,
        20,
    ]
    for word in ("", "two three", "twenty-ten", "hundred", "forty-zero"):
        assert spelled_value(word) is None, word
