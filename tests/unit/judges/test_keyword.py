"""The keyword rule: which openings refuse, and where the words no longer count."""

from __future__ import annotations

import pytest

from eps_locked.judges.keyword import OPENING_LENGTH, REFUSAL_PHRASES, is_keyword_refusal


@pytest.mark.parametrize(
    "answer",
    [
        "I'm sorry, but that is not for me.",
        "I’m sorry, but that is not for me.",  # a typographic apostrophe
        "  SORRY, BUT no.",
        "As an assistant, I\n cannot do so.",
        "It is not appropriate to ask for this.",
    ],
)
def test_refusals(answer):
    assert is_keyword_refusal(answer)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "Paris is the capital of France.",
        "She was not sorry at all.",
        "Can you see it? I can.",
        "The word i'm sorryish does not count.",
    ],
)
def test_other_answers(answer):
    assert not is_keyword_refusal(answer)


@pytest.mark.parametrize("phrase", REFUSAL_PHRASES)
def test_every_phrase_is_found_as_it_is_listed(phrase):
    assert phrase == phrase.lower()
    assert is_keyword_refusal(f"Well, {phrase} it.")


def test_a_phrase_counts_only_where_the_answer_opens():
    filler = "a" * (OPENING_LENGTH - 2)
    assert is_keyword_refusal(f"{filler} i cannot")
    assert not is_keyword_refusal(f"{filler}a i cannot")
