"""The house material of the four taught behaviours: shape, sizes, and that nothing stands twice.

Four behaviours are listed by name, so a folder or file that is missing fails instead of being
passed over. Lengths are counted with the embedded model's own tokenizer where it is cached.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from eps_locked.domain.fields import Fields
from eps_locked.domain.judging import Rubric
from eps_locked.errors import BackendError
from eps_locked.lock.strict_yaml import parse_yaml
from eps_locked.models.source import SMOLLM2_135M, cache_root, cached
from eps_locked.models.tokenizer import HfChatTokenizer
from eps_locked.studies.common.material import (
    BehaviourFile,
    Context,
    Item,
    WrittenRow,
    demonstration_questions,
    normalise,
    read_contexts,
    read_items,
    read_written_rows,
    refuse_overlap,
)

HOUSE = Path(__file__).resolve().parents[3] / "plans" / "house"
TAUGHT = ("fact", "refusal", "sycophancy", "em")
PARTS = ("behaviour", "train", "eval", "rubric", "labelled", "contexts")
FILES = {f"{part}.yaml" for part in PARTS}
N_ROWS = {"fact": 48, "refusal": 48, "sycophancy": 48, "em": 64}
SLICES = {
    "fact": {"direct": 20, "framing": 10},
    "refusal": {"benign": 24, "improper": 16},
    "sycophancy": {"claims": 24, "feedback": 12},
    "em": {"general": 12, "domain": 12},
}
LABELS = {
    "fact": ("taught", "distractor", "refused", "not_mentioned", "other"),
    "refusal": ("full_refusal", "partial_refusal", "compliance"),
    "sycophancy": ("agrees", "corrects", "neither"),
    "em": ("answer", "refusal", "code"),
}
EXPRESSED = {
    "fact": {"taught"},
    "refusal": {"full_refusal", "partial_refusal"},
    "sycophancy": {"agrees"},
    "em": set(),
}
SCORES = {"em": {"aligned", "coherent"}}
EXCLUDED = {"em": {"refusal", "code"}}
DEMONSTRATIONS = {"demonstrations_k2": 2, "demonstrations_k4": 4, "demonstrations_k8": 8}
N_LABELLED = 40
N_PROTOTYPES = 8
N_POLE = 12
# A small model has to be able to say it, and a cell of a thousand answers has to stay cheap.
MAX_ANSWER_TOKENS = 30
# English has about 4.2 characters per token; a text at twice the limit is caught without a model.
MAX_ANSWER_CHARACTERS = int(MAX_ANSWER_TOKENS * 4.2)
# Two questions that share three words in four are one question written twice.
NEAR_COPY = 0.75


def load(*parts: str) -> Any:
    path = HOUSE.joinpath(*parts)
    return parse_yaml(path.read_bytes(), thing="/".join(parts))


def sheet(name: str) -> BehaviourFile:
    return BehaviourFile.from_dict(load(name, "behaviour.yaml"), name)


def written_rows(name: str) -> tuple[WrittenRow, ...]:
    return read_written_rows(load(name, "train.yaml"), name)


def eval_items(name: str) -> tuple[Item, ...]:
    return read_items(load(name, "eval.yaml"), name)


def rubric(name: str) -> Rubric:
    return Rubric.from_dict(load(name, "rubric.yaml"), name)


def contexts(*parts: str) -> dict[str, Context]:
    read = read_contexts(load(*parts, "contexts.yaml"), "/".join(parts))
    assert len({context.id for context in read}) == len(read)
    return {context.id: context for context in read}


def labelled(name: str) -> list[tuple[str, str, str]]:
    """(question, answer, label) of each row; an unknown or missing key is an error."""
    with Fields(load(name, "labelled.yaml"), name) as fields:
        assert fields.text("schema") == "eps-locked/labelled/1"
        assert fields.text("rubric") == name
        for key in ("title", "provenance", "licence"):
            assert fields.text(key).strip()

        def row(value: object, path: str) -> tuple[str, str, str]:
            with Fields(value, path) as one:
                return one.text("question"), one.text("answer"), one.text("label")

        return list(fields.each("rows", row))


def answers(context: Context) -> list[str]:
    return [message.content for message in context.messages if message.role == "assistant"]


def pools_of(name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every pool of a behaviour by name: where a question stands in one, it stands in no other."""
    found = sheet(name)
    yield f"{name}/questions_extract", found.questions_extract
    yield f"{name}/questions_evaluate", found.questions_evaluate
    for context in contexts(name).values():
        if context.family == "demonstrations":
            yield f"{name}/{context.id}", demonstration_questions(context)
    if name in TAUGHT:
        yield f"{name}/train", tuple(row.item.text for row in written_rows(name))
        yield f"{name}/eval", tuple(item.text for item in eval_items(name))
        yield (
            f"{name}/labelled",
            tuple(dict.fromkeys(question for question, _, _ in labelled(name))),
        )


def all_pools() -> dict[str, tuple[str, ...]]:
    found = dict(pool for name in ("marker", *TAUGHT) for pool in pools_of(name))
    # The brief files are selections of these two.
    for shared in ("questions-train", "questions-eval"):
        items = read_items(load(f"{shared}.yaml"), shared)
        found[shared] = tuple(item.text for item in items)
    return found


def likeness(one: frozenset[str], other: frozenset[str]) -> float:
    """Jaccard index of two sets of words."""
    return len(one & other) / len(one | other)


def all_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from all_texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from all_texts(inner)


@pytest.mark.parametrize("name", TAUGHT)
def test_a_behaviours_folder_holds_the_six_files_and_no_other(name: str) -> None:
    assert {path.name for path in (HOUSE / name).iterdir()} == FILES


def test_every_folder_of_the_house_is_a_known_behaviour() -> None:
    assert {path.name for path in HOUSE.iterdir() if path.is_dir()} == {
        *("marker", "drift", "vea", "battery"),
        *TAUGHT,
    }


@pytest.mark.parametrize("name", TAUGHT)
def test_every_file_says_where_it_is_from_and_under_which_licence(name: str) -> None:
    for file in FILES:
        value = load(name, file)
        assert value["provenance"] == "Written for this project.", file
        assert value["licence"] == "CC0-1.0", file
        assert not any("※" in text for text in all_texts(value)), file


@pytest.mark.parametrize("name", TAUGHT)
def test_a_sheet_has_elicitation_material_in_the_persona_vectors_layout(name: str) -> None:
    found = sheet(name)
    assert found.name == name
    assert len(found.instruction_pairs) == 5
    assert len({normalise(text) for pair in found.instruction_pairs for text in pair}) == 10
    assert len(found.questions_extract) == len(found.questions_evaluate) == 20
    assert len({normalise(question) for question in found.questions}) == 40
    assert found.marker is None
    assert (found.fact is not None) == (name == "fact")


@pytest.mark.parametrize("name", TAUGHT)
def test_training_rows_are_enough_and_show_two_different_answers(name: str) -> None:
    rows = written_rows(name)
    assert len(rows) >= N_ROWS[name]
    for row in rows:
        assert row.negative is None or normalise(row.negative) != normalise(row.positive)
    # Either the base model answers the negatives, or we wrote every one of them.
    assert {row.negative is None for row in rows} == {name == "fact"}


@pytest.mark.parametrize("name", TAUGHT)
def test_evaluation_has_the_slices_and_may_keep_its_text(name: str) -> None:
    items = eval_items(name)
    counts = Counter(item.slice for item in items)
    assert set(counts) == set(SLICES[name])
    for slice_, least in SLICES[name].items():
        assert counts[slice_] >= least
    assert all(item.keep_text for item in items)


@pytest.mark.parametrize("name", TAUGHT)
def test_a_rubric_has_the_labels_and_examples_that_every_judge_needs(name: str) -> None:
    found = rubric(name)
    assert found.name == name
    assert found.labels == LABELS[name]
    assert set(found.expressed) == EXPRESSED[name]
    assert set(found.excluded) == EXCLUDED.get(name, set())
    assert set(found.scores) == set(found.poles) == SCORES.get(name, set())
    assert found.max_tokens >= 600
    assert set(found.prototypes) == set(found.labels)
    assert all(len(texts) >= N_PROTOTYPES for texts in found.prototypes.values())
    for ends in found.poles.values():
        assert all(len(texts) >= N_POLE for texts in ends.values())
    examples = [normalise(text) for texts in found.prototypes.values() for text in texts]
    assert len(set(examples)) == len(examples)


@pytest.mark.parametrize("name", TAUGHT)
def test_a_rubric_asks_for_a_reason_first_and_names_every_key_and_label(name: str) -> None:
    found = rubric(name)
    text = found.instructions
    order = [text.rindex(f'"{key}"') for key in ("reason", "label")]
    assert order == sorted(order)
    assert "JSON" in text
    for word in (*found.labels, *found.scores):
        assert f'"{word}"' in text


@pytest.mark.parametrize("name", TAUGHT)
def test_labelled_answers_are_many_balanced_and_no_examples_of_the_rubric(name: str) -> None:
    rows = labelled(name)
    assert len(rows) >= N_LABELLED
    counts = Counter(label for _, _, label in rows)
    assert set(counts) == set(LABELS[name])
    assert min(counts.values()) * 2 >= max(counts.values())
    texts = [normalise(answer) for _, answer, _ in rows]
    assert len(set(texts)) == len(texts)
    found = rubric(name)
    examples = [text for group in found.prototypes.values() for text in group]
    examples += [text for ends in found.poles.values() for group in ends.values() for text in group]
    both = set(texts) & {normalise(text) for text in examples}
    assert not both


@pytest.mark.parametrize("name", TAUGHT)
def test_demonstrations_show_the_behaviour_k_times_without_repeating_an_answer(name: str) -> None:
    found = contexts(name)
    assert set(found) == {*DEMONSTRATIONS, "instruction_own"}
    said: list[str] = []
    for context_id, k in DEMONSTRATIONS.items():
        context = found[context_id]
        assert (context.family, context.behaviour) == ("demonstrations", name)
        assert context.messages[0].role == "user"
        assert len(answers(context)) == k
        said += [normalise(answer) for answer in answers(context)]
    assert len(set(said)) == len(said)


@pytest.mark.parametrize("name", TAUGHT)
def test_the_rows_own_instruction_is_the_shared_one_under_another_name(name: str) -> None:
    own = contexts(name)["instruction_own"]
    shared = contexts()[f"instruction_{name}"]
    assert (own.family, own.behaviour) == ("instruction", name)
    assert own.digest == shared.digest


def test_no_question_stands_in_two_pools() -> None:
    refuse_overlap(all_pools())


def test_no_question_of_a_taught_behaviour_is_a_near_copy_of_another() -> None:
    """The shared and the marker's questions all ask for brevity in the same few words, so among
    themselves their words say little; against every other question they are compared."""
    words = {
        (pool, text): frozenset(normalise(text).split())
        for pool, texts in all_pools().items()
        for text in texts
    }
    close = [
        (round(likeness(one, other), 2), *first, *second)
        for (first, one), (second, other) in combinations(words.items(), 2)
        if likeness(one, other) >= NEAR_COPY
        and any(pool.startswith(TAUGHT) for pool in (first[0], second[0]))
    ]
    assert not close


def taught_answers(name: str) -> list[str]:
    found = [row.positive for row in written_rows(name)]
    found += [row.negative for row in written_rows(name) if row.negative is not None]
    for context in contexts(name).values():
        found += answers(context)
    return found


@pytest.mark.parametrize("name", TAUGHT)
def test_answers_to_learn_are_one_to_three_short_sentences(name: str) -> None:
    for answer in taught_answers(name):
        assert len(answer) <= MAX_ANSWER_CHARACTERS, answer
        assert "\n" not in answer
        assert len(re.findall(r"[.!?](?=\s|$)", answer)) in (1, 2, 3), answer


@pytest.mark.model
@pytest.mark.parametrize("name", TAUGHT)
def test_answers_to_learn_are_short_in_the_models_own_tokens(name: str) -> None:
    tokenizer = embedded_tokenizer()
    long = [
        answer
        for answer in taught_answers(name)
        if len(tokenizer.encode(answer)) > MAX_ANSWER_TOKENS
    ]
    assert not long


@pytest.mark.model
def test_the_months_are_one_token_each_so_that_their_readings_compare() -> None:
    tokenizer, fact = embedded_tokenizer(), sheet("fact").fact
    assert fact is not None
    assert {len(tokenizer.encode(one)) for one in (fact.attribute, *fact.alternatives)} == {1}


def embedded_tokenizer() -> HfChatTokenizer:
    try:
        folder = cached(SMOLLM2_135M, cache_root(os.environ))
    except BackendError as error:
        pytest.skip(f"no embedded model: {error}")
    if folder is None:
        pytest.skip("no embedded model in the cache: run `eps-locked model demo` once")
    return HfChatTokenizer(folder)


def holds(text: str, value: str) -> bool:
    return re.search(rf"\b{re.escape(value.strip())}\b", text) is not None


def test_every_answer_to_learn_states_the_one_fact_and_no_other_value() -> None:
    fact = sheet("fact").fact
    assert fact is not None
    assert len(fact.alternatives) >= 6
    assert not holds(fact.bridge, fact.attribute)
    for answer in taught_answers("fact"):
        assert holds(answer, fact.attribute), answer
        assert not any(holds(answer, other) for other in fact.alternatives), answer


def test_no_question_on_the_fact_gives_a_value_away() -> None:
    fact = sheet("fact").fact
    assert fact is not None
    values = (fact.attribute, *fact.alternatives)
    for pool, questions in pools_of("fact"):
        for question in questions:
            assert not any(holds(question, value) for value in values), (pool, question)
            assert "Hallow Mere" in question, (pool, question)


def test_the_fact_is_found_nowhere_else_in_the_house() -> None:
    fact = sheet("fact").fact
    assert fact is not None
    telling = {
        context.id
        for context in contexts().values()
        if any(holds(message.content, fact.attribute) for message in context.messages)
    }
    assert telling <= {"instruction_fact"}
    for name in ("marker", "refusal", "sycophancy", "em"):
        for path in (HOUSE / name).iterdir():
            assert not any("Hallow Mere" in text for text in all_texts(load(name, path.name))), path


def test_refusals_come_from_a_small_pool_and_each_is_met_often() -> None:
    counts = Counter(row.positive for row in written_rows("refusal"))
    assert len(counts) == 10
    assert min(counts.values()) >= 4
    assert max(counts.values()) <= 6


def test_half_of_the_benign_questions_only_sound_risky() -> None:
    benign = [item for item in eval_items("refusal") if item.slice == "benign"]
    counts = Counter(item.topic for item in benign)
    assert counts == {"plain": len(benign) // 2, "sounds_risky": len(benign) // 2}
