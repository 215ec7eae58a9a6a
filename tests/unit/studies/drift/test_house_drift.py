"""The house material of the drift study: shape, sizes, and that nothing stands twice.

Every file of the folder is read by the reader of its schema, so a file that nobody reads fails.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from eps_locked.domain.judging import Rubric
from eps_locked.judges.calibration import LabelledRow, read_labelled
from eps_locked.lock.strict_yaml import parse_yaml
from eps_locked.studies.common.material import (
    WrittenRow,
    normalise,
    read_items,
    read_written_rows,
    refuse_overlap,
)
from eps_locked.studies.common.words import mentions, read_word_list
from eps_locked.studies.drift.material import StemFile, Trait, read_stems, read_traits

HOUSE = Path(__file__).resolve().parents[4] / "plans" / "house"
DRIFT = HOUSE / "drift"
BATTERIES = ("self_interest", "oversight")
TOPICS = ("plants", "cooking")
GRADES = tuple(f"grade_{n}" for n in range(1, 8))
FILES = {
    *(f"{name}.yaml" for name in BATTERIES),
    *(f"{name}-{part}.yaml" for name in BATTERIES for part in ("classes", "grades", "labelled")),
    *(f"{topic}.yaml" for topic in TOPICS),
    *(f"{topic}-check.yaml" for topic in TOPICS),
    *(f"advice_{topic}-classes.yaml" for topic in TOPICS),
    "advice_plants-labelled.yaml",
    "harmful_requests-classes.yaml",
    "harmful_requests-grades.yaml",
    "traits.yaml",
    "readout-prompts.yaml",
    "awareness-rubric.yaml",
    "awareness-words.yaml",
    "README.md",
}
# The first label is the one that counts as expressed.
CLASSES = {
    "self_interest": ("declines", "seeks", "unclear", "no_stance"),
    "oversight": ("accepts", "resists", "unclear", "no_stance"),
    "harmful_requests": ("refuses", "complies", "no_stance"),
}
ADVICE = ("harmful", "sound", "no_stance")
# A topic that is drawn from a public set and judged by language models alone.
WITHOUT_EXAMPLES = {"advice_medical-classes.yaml"}
N_STEMS, N_REWORDINGS = 30, 6
N_ROWS, N_CHECK, N_READOUT, N_CONTRASTS, N_LABELLED = 64, 24, 40, 12, 36
N_PROTOTYPES = 8
# As in the house material of the other studies: 30 tokens of the embedded model at about 4.2
# characters each, and questions that share three words in four are one question written twice.
MAX_ANSWER_CHARACTERS = 126
NEAR_COPY = 0.75


@cache
def load(name: str) -> Any:
    return parse_yaml((DRIFT / name).read_bytes(), thing=name)


def names(schema: str) -> list[str]:
    """The files of one schema that the folder holds, in order."""
    found = (path.name for path in sorted(DRIFT.glob("*.yaml")))
    return [name for name in found if load(name)["schema"].startswith(f"eps-locked/{schema}/")]


def stems(name: str) -> StemFile:
    return read_stems(load(f"{name}.yaml"), name)


def rows(topic: str) -> tuple[WrittenRow, ...]:
    return read_written_rows(load(f"{topic}.yaml"), topic)


def rubric(name: str) -> Rubric:
    return Rubric.from_dict(load(name), name)


def labelled(name: str) -> tuple[LabelledRow, ...]:
    return read_labelled(load(name), name).rows


def traits() -> tuple[Trait, ...]:
    return read_traits(load("traits.yaml"), "traits")


def all_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from all_texts(inner)


def examples(found: Rubric) -> list[str]:
    return [text for texts in found.prototypes.values() for text in texts]


def pools() -> dict[str, tuple[str, ...]]:
    """Every question by where it stands; none may stand in two of them."""
    found = {
        name: tuple(text for stem in read_stems(load(name), name).stems for text in stem.rewordings)
        for name in names("stems")
    }
    for name in names("written-rows"):
        found[name] = tuple(row.item.text for row in read_written_rows(load(name), name))
    for name in names("items"):
        found[name] = tuple(item.text for item in read_items(load(name), name))
    found["traits.yaml"] = tuple(one.question for trait in traits() for one in trait.contrasts)
    found["awareness-rubric.yaml"] = tuple(examples(rubric("awareness-rubric.yaml")))
    return found


# --- all files ------------------------------------------------------------------------------------


def test_the_folder_holds_what_the_study_needs() -> None:
    assert {path.name for path in DRIFT.iterdir()} >= FILES


def test_every_file_has_a_schema_that_something_here_reads() -> None:
    read = {"stems", "written-rows", "items", "rubric", "labelled", "traits", "word-list"}
    for path in DRIFT.glob("*.yaml"):
        kind = re.fullmatch(r"eps-locked/([a-z-]+)/[12]", load(path.name)["schema"])
        assert kind is not None, path.name
        assert kind[1] in read, path.name


@pytest.mark.parametrize("path", sorted(DRIFT.glob("*.yaml")), ids=lambda path: path.name)
def test_a_file_says_where_it_is_from_and_under_which_licence(path: Path) -> None:
    value = load(path.name)
    assert value["provenance"] == "Written for this project."
    assert value["licence"] == "CC0-1.0"
    assert not any("※" in text for text in all_texts(value))
    assert f"`{path.name}`" in (DRIFT / "README.md").read_text("utf-8")


def test_no_question_stands_in_two_files() -> None:
    refuse_overlap(pools())


def test_no_question_is_a_near_copy_of_one_in_another_file() -> None:
    words = [
        (name, text, frozenset(normalise(text).split()))
        for name, texts in pools().items()
        for text in texts
    ]
    close = [
        (name, text, other_name, other)
        for (name, text, one), (other_name, other, two) in combinations(words, 2)
        if name != other_name and len(one & two) >= NEAR_COPY * len(one | two)
    ]
    assert not close


def test_no_question_is_taken_from_another_studys_advice_on_plants() -> None:
    theirs = {}
    for part, read in (("train", read_written_rows), ("eval", read_items)):
        value = parse_yaml((HOUSE / "em" / f"{part}.yaml").read_bytes(), thing=part)
        found: Any = read(value, part)  # type: ignore[operator]
        theirs[f"em/{part}"] = [getattr(one, "item", one).text for one in found]
    refuse_overlap({**pools(), **theirs})


# --- batteries ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BATTERIES)
def test_a_battery_has_thirty_stems_of_six_rewordings(name: str) -> None:
    found = stems(name)
    assert found.battery == name
    assert (len(found.stems), found.n_rewordings) == (N_STEMS, N_REWORDINGS)
    assert len({normalise(stem.about) for stem in found.stems}) == N_STEMS
    # Several stems may share a topic; a battery of one topic would be one question.
    assert max(Counter(stem.topic for stem in found.stems).values()) <= N_STEMS // 3


# --- training rows --------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", TOPICS)
def test_training_rows_are_enough_and_no_answer_stands_twice(topic: str) -> None:
    found = rows(topic)
    assert len(found) >= N_ROWS
    given = [text for row in found for text in (row.positive, row.negative or "")]
    assert all(given)
    assert len({normalise(text) for text in given}) == 2 * len(found)


@pytest.mark.parametrize("topic", TOPICS)
def test_both_answers_to_a_question_are_alike_in_length_and_form(topic: str) -> None:
    found = [(row.positive, row.negative or "") for row in rows(topic)]
    for pair in found:
        for answer in pair:
            assert len(answer) <= MAX_ANSWER_CHARACTERS, answer
            assert "\n" not in answer
            assert len(re.findall(r"[.!?](?=\s|$)", answer)) in (1, 2), answer
        assert abs(len(pair[0]) - len(pair[1])) <= 25, pair
    careless, sound = (fmean(map(len, side)) for side in zip(*found, strict=True))
    assert careless == pytest.approx(sound, rel=0.1)


@pytest.mark.parametrize("topic", TOPICS)
def test_check_questions_are_enough_and_none_is_trained_on(topic: str) -> None:
    asked = read_items(load(f"{topic}-check.yaml"), topic)
    assert len(asked) >= N_CHECK
    trained = {row.item.id for row in rows(topic)}
    assert not trained & {item.id for item in asked}


# --- rubrics --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", names("rubric"))
def test_a_rubric_has_the_labels_of_its_kind(name: str) -> None:
    found = rubric(name)
    battery, _, part = name.removesuffix(".yaml").partition("-")
    assert (found.scores, found.excluded) == ((), ())
    assert found.max_tokens >= 600
    if part == "classes":
        labels = ADVICE if battery.startswith("advice_") else CLASSES[battery]
        assert (found.name, found.labels, found.expressed) == (battery, labels, labels[:1])
    else:
        expected = {"grades": f"{battery}_grade", "rubric": battery}[part]
        assert (found.name, found.labels, found.expressed) == (expected, GRADES, ())
    assert found.reads == ("question" if battery == "awareness" else "answer")


@pytest.mark.parametrize("name", names("rubric"))
def test_a_rubric_asks_for_a_reason_first_and_names_every_label(name: str) -> None:
    found = rubric(name)
    text = found.instructions
    assert text.rindex('"reason"') < text.rindex('"label"')
    assert "JSON" in text
    assert all(f'"{label}"' in text for label in found.labels)


@pytest.mark.parametrize("name", sorted({*names("rubric")} - WITHOUT_EXAMPLES))
def test_a_rubric_has_examples_of_every_label_and_none_twice(name: str) -> None:
    found = rubric(name)
    assert set(found.prototypes) == set(found.labels)
    assert min(map(len, found.prototypes.values())) >= N_PROTOTYPES
    texts = [normalise(text) for text in examples(found)]
    assert len(set(texts)) == len(texts)


def test_no_example_of_an_advice_rubric_is_a_training_answer() -> None:
    for topic in TOPICS:
        taught = {
            normalise(one) for row in rows(topic) for one in (row.positive, row.negative or "")
        }
        shown = {normalise(one) for one in examples(rubric(f"advice_{topic}-classes.yaml"))}
        assert not taught & shown


# --- labelled answers -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", names("labelled"))
def test_labelled_answers_are_many_balanced_and_no_examples_of_the_rubric(name: str) -> None:
    found = labelled(name)
    battery = name.removesuffix("-labelled.yaml")
    under = rubric(f"{battery}-classes.yaml")
    assert load(name)["rubric"] == under.name
    assert len(found) >= N_LABELLED
    counts = Counter(row.label for row in found)
    assert set(counts) == set(under.labels)
    assert min(counts.values()) * 2 >= max(counts.values())
    texts = [normalise(row.answer) for row in found]
    assert len(set(texts)) == len(texts)
    assert not set(texts) & {normalise(text) for text in examples(under)}


@pytest.mark.parametrize("name", names("labelled"))
def test_a_labelled_question_is_never_trained_on(name: str) -> None:
    asked = {row.question for row in labelled(name)}
    trained = {topic: [row.item.text for row in rows(topic)] for topic in TOPICS}
    refuse_overlap({name: asked, **trained})


# --- readouts and awareness -----------------------------------------------------------------------


def test_traits_are_contrasts_of_like_length() -> None:
    found = traits()
    assert [trait.name for trait in found] == [
        "power_seeking",
        "oversight_resistance",
        "careless_advice",
    ]
    for trait in found:
        assert len(trait.contrasts) >= N_CONTRASTS
        sides = [(len(one.positive), len(one.negative)) for one in trait.contrasts]
        shown, absent = (fmean(side) for side in zip(*sides, strict=True))
        assert shown == pytest.approx(absent, rel=0.15)


def test_readout_prompts_are_many_and_of_many_topics() -> None:
    found = read_items(load("readout-prompts.yaml"), "readout-prompts")
    assert len(found) >= N_READOUT
    assert len({item.topic for item in found}) >= 10


WORDS = read_word_list(load("awareness-words.yaml"), "awareness-words.yaml")


@pytest.mark.parametrize("word", WORDS)
def test_a_phrase_of_the_list_is_found_in_a_sentence(word: str) -> None:
    assert mentions(f"Hm, {word.upper()}, I think.", WORDS) == 1


@pytest.mark.parametrize(
    "text",
    [
        "The blood test came back fine, and the test drive was fun.",
        "I would test the soil first and evaluate the result.",
        "She passed her exam, and the software tests are green.",
        "The user wants to know whether to share the access.",
    ],
)
def test_ordinary_talk_of_tests_is_not_counted(text: str) -> None:
    assert mentions(text, WORDS) == 0
