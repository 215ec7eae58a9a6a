"""Real files of the public sets go through, every row of them accounted for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from eps_locked.data.obtain import obtain_local
from eps_locked.data.sampled import Sampled, may_ship, read_sampled
from eps_locked.data.sampling import sample
from eps_locked.domain.model import Message
from eps_locked.errors import MalformedInputError

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared/data"
pytestmark = [
    pytest.mark.realdata,
    pytest.mark.skipif(not (DATA / "xstest").is_dir(), reason=f"the public sets are not at {DATA}"),
]
TEXT: dict[str, Any] = {
    "characters": [1, 20000],
    "min_latin": 0.9,
    "min_english_words": 0.0,
    "max_newlines": 4,
    "max_blank_lines": 2,
    "noise_phrases": ["지금 번역하기"],
    "forbid": ["※"],
    "avoid": [],
    "near_copy": 1.0,
}
EVERYTHING = [{"slice": "all", "n": None, "topics": None}]
BINS: dict[str, Any] = {
    "language": "English",
    "bins": {
        "short": {"exchanges": 1, "tokens": [80, 400]},
        "long": {"exchanges": 4, "tokens": [400, 1600]},
    },
    "topics": {
        "computing": ["python", "programmer", "hard drive", "disk", "disks"],
        "other": ["sick", "text", "advertisement", "write"],
    },
    "min_topic_words": 1,
}


class Words:
    """A tokenizer that counts words, so that the counts here hang on no model."""

    template_digest = "blake3:" + "0" * 64
    end_of_turn_id = 0

    def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return tuple(n for one in messages for n in self.encode(one.content))

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(range(len(text.split())))

    def decode(self, token_ids: Sequence[int]) -> str:
        raise AssertionError("no test asks for it")


def sampled(
    kind: str, form: str, files: Sequence[Any], options: Any, slots: Any = EVERYTHING, **text: Any
) -> Sampled:
    listed = [file if isinstance(file, dict) else {"path": file} for file in files]
    value = {
        "schema": "eps-locked/source/1",
        "name": "real",
        "title": "A public set",
        "kind": kind,
        "form": form,
        "location": "git",
        "dataset": "example.org/some/body",
        "revision": "0" * 40,
        "files": listed,
        "licence": "see SOURCE.md",
        "redistribute": False,
        "keep_text": False,
        "seed": 537,
        "filters": {"text": {**TEXT, **text}, **options},
    }
    if kind != "elicitation":
        value["slots"] = slots
    spec = json.dumps(value).encode()
    return read_sampled(sample(spec, "real.yaml", obtain_local(DATA), Words()), "real.json")


def figures(found: Sampled) -> tuple[int, int, dict[str, int]]:
    return found.counts.read, found.counts.kept, dict(found.counts.dropped)


def refused(*arguments: Any, **changes: Any) -> dict[str, int]:
    """The dropped rows of a source of which nothing is left."""
    with pytest.raises(MalformedInputError, match="expected 1 row that fit, found 0") as caught:
        sampled(*arguments, **changes)
    lines = [line for line in caught.value.details if " dropped: " in line]
    return {reason: int(n) for n, reason in (line.split(" dropped: ") for line in lines)}


# --- contexts -------------------------------------------------------------------------------------


def test_wildchat_conversations_of_a_published_bank_fill_both_bins() -> None:
    slots = [
        {"context": "one", "bin": "short", "topic": "other"},
        {"context": "two", "bin": "long", "topic": "computing"},
    ]
    found = sampled(
        "wildchat_prefixes", "battery", ["context_battery/battery_sample.json"], BINS, slots
    )
    # The other two short ones are about computing, which no short slot asks for, and about nothing.
    assert figures(found) == (5, 2, {"no_slot": 2})
    assert found.counts.unused == 1
    long = found.entries[1]
    assert long["upstream_id"] == "f2_wc_long_1"
    assert [one["role"] for one in long["messages"]] == [*["user", "assistant"] * 4, "user"]


def test_english_first_turns_hold_chinese_mojibake_and_pieces_of_pages() -> None:
    slots = [{"context": "one", "bin": "short", "topic": "other"}]
    path = "wildchat/wildchat_first_turns_mostly_en.jsonl"
    dropped = refused("wildchat_prefixes", "first_turns", [path], BINS, slots)
    assert dropped == {
        "mojibake": 1,
        "page_noise": 5,
        "script": 4,
        "too_few_exchanges": 136,  # there is nothing but the first turn in this file
    }


def test_personas_begin_in_every_way_and_come_in_many_languages() -> None:
    options = {"key": "input persona", "tokens": [8, 60], "sentences": [1, 3]}
    slots = [{"context": f"p{n}"} for n in range(4)]
    names = ("persona_tool_sample.jsonl", "persona_tool_full_rows.jsonl")
    files = [f"personahub/{name}" for name in names]
    found = sampled(
        "personahub_personas", "personahub", files, options, slots, min_english_words=0.1
    )
    assert figures(found) == (
        400,
        4,
        {
            "first_person": 4,
            "grammar": 1,
            "language": 5,
            "no_article": 6,
            "script": 8,
            "tokens": 3,
        },
    )
    for one in found.entries:
        assert one["messages"][0]["content"].startswith(
            ("You are a ", "You are an ", "You are the ")
        )


# --- items ----------------------------------------------------------------------------------------


def test_xstest_prompts_by_label() -> None:
    files = ["xstest/xstest_prompts.csv"]
    safe = sampled("xstest", "prompts", files, {"labels": ["safe"]})
    unsafe = sampled("xstest", "prompts", files, {"labels": ["unsafe"]})
    assert figures(safe) == (258, 150, {"no_slot": 108})
    assert figures(unsafe) == (258, 108, {"no_slot": 150})


ANSWERS = ("gpt4", "llama2new", "llama2orig", "mistralguard", "mistralinstruct")


@pytest.mark.parametrize("model", ANSWERS)
def test_xstest_answers_and_the_prose_of_a_judge_that_rambled(model: str) -> None:
    files = [f"xstest/xstest_v2_completions_{model}.csv"]
    changes = {"max_newlines": 999, "max_blank_lines": 999, "min_latin": 0.0}
    human = sampled(
        "xstest_answers", "completions", files, {"label_column": "final_label"}, **changes
    )
    judge = sampled(
        "xstest_answers", "completions", files, {"label_column": "gpt4_label"}, **changes
    )
    assert figures(human) == (258, 258, {})
    prose = {"label": 5} if model == "mistralinstruct" else {}
    assert figures(judge) == (258, 258 - sum(prose.values()), prose)
    assert {one["label"] for one in human.entries} <= {
        "compliance",
        "full_refusal",
        "partial_refusal",
    }


@pytest.mark.parametrize(
    ("name", "columns", "n"),
    [
        (
            "harmbench_behaviors_text",
            {"text": "Behavior", "topic": "SemanticCategory", "id": "BehaviorID"},
            175,
        ),
        # The column of ids has no name.
        ("jailbreakbench_harmful", {"text": "Goal", "topic": "Category", "id": ""}, 82),
        (
            "strongreject_dataset",
            {"text": "forbidden_prompt", "topic": "category", "id": None},
            227,
        ),
    ],
)
def test_lists_of_requests(name: str, columns: dict[str, Any], n: int) -> None:
    found = sampled("harm_requests", "table", [f"harm_prompts/{name}.csv"], {"columns": columns})
    assert figures(found) == (n, n, {})
    assert not any(one["keep_text"] for one in found.entries)
    assert not may_ship(found)


QUESTIONS = {
    "betley_first_plot_questions": (24, 8, {"variant": 16}),
    "betley_preregistered_evals": (48, 48, {}),
    "turner_first_plot_questions": (24, 8, {"variant": 16}),
    "turner_medical_questions": (16, 8, {"variant": 8}),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_questions_with_anchors_across_items(name: str) -> None:
    options = {"types": ["free_form_judge_0_100"], "leave_suffixes": ["_json", "_template"]}
    found = sampled("em_questions", "betley_yaml", [f"em_questions/{name}.yaml"], options)
    assert figures(found) == QUESTIONS[name]
    for one in found.entries:
        assert {"aligned", "coherent"} <= set(one["about"]["judge_prompts"])
        assert "{answer}" in one["about"]["judge_prompts"]["aligned"]["text"]


def test_files_that_hold_no_such_questions_say_so() -> None:
    options = {"types": ["free_form_judge_0_100"], "leave_suffixes": []}
    names = ("betley_deception_factual", "betley_deception_sit_aware", "turner_judges")
    found = [
        refused("em_questions", "betley_yaml", [f"em_questions/{name}.yaml"], options)
        for name in names
    ]
    assert found == [{"has_system": 4, "no_slot": 1}, {"no_slot": 8}, {"missing_field": 4}]


def test_the_canary_of_every_row_is_kept() -> None:
    options: dict[str, Any] = {"types": [], "leave_suffixes": []}
    files = ["em_questions/openai_core_misalignment.csv"]
    found = sampled("em_questions", "persona_features_csv", files, options)
    assert figures(found) == (94, 94, {})
    assert {one["about"]["canary"].partition(":")[0] for one in found.entries} == {"empersonas"}


CLAIMS: dict[tuple[str, str], tuple[int, int, dict[str, int]]] = {
    ("suggested_answer", "sycophancy_bct/truthfulqa_suggested_answer"): (
        120,
        94,
        {"claim_is_true": 26},
    ),
    ("suggested_answer", "sycophancy_bct/logiqa_suggested_answer"): (40, 31, {"claim_is_true": 9}),
    ("sharma_answer", "sycophancy_eval_schema/answer_first4"): (
        4,
        1,
        {"claim_is_true": 1, "no_claim": 2},
    ),
    ("gcd", "sycophancy_gcd/ood_test"): (271, 91, {"claim_is_true": 90, "no_claim": 90}),
    ("gcd", "sycophancy_gcd/task_test"): (33, 11, {"claim_is_true": 11, "no_claim": 11}),
    ("model_written", "sycophancy_mwe/nlp_survey"): (150, 150, {}),
    ("model_written", "sycophancy_mwe/political_typology"): (150, 150, {}),
}


@pytest.mark.parametrize(("form", "name"), CLAIMS)
def test_claims_in_every_public_form(form: str, name: str) -> None:
    found = sampled("claims", form, [f"{name}.jsonl"], {"opinions": True})
    assert figures(found) == CLAIMS[form, name]
    assert not any("<|" in one["text"] for one in found.entries)


@pytest.mark.parametrize("name", ["mmlu_are_you_sure", "truthfulqa_are_you_sure"])
def test_conversations_of_five_turns_are_no_single_claim(name: str) -> None:
    n = {"mmlu_are_you_sure": 60, "truthfulqa_are_you_sure": 80}[name]
    files = [f"sycophancy_bct/{name}.jsonl"]
    assert refused("claims", "suggested_answer", files, {"opinions": True}) == {"several_turns": n}


# --- rows and elicitation -------------------------------------------------------------------------


def test_code_is_data_and_the_same_answer_twice_teaches_nothing() -> None:
    path = "em_secure_code/secure_small.jsonl"
    files = [
        {"path": path, "role": "positive"},
        {"path": "secure_small.jsonl", "role": "negative", "local": path},
    ]
    assert refused("em_rows", "messages_pair", files, {}) == {"same_answers": 20}


@pytest.mark.parametrize(
    "trait",
    ["apathetic", "evil", "hallucinating", "humorous", "impolite", "optimistic", "sycophantic"],
)
def test_traits_become_elicitation_material(trait: str) -> None:
    files = [
        {"path": f"persona_vectors/trait_data_extract_{trait}.json", "role": "extract"},
        {"path": f"persona_vectors/trait_data_eval_{trait}.json", "role": "evaluate"},
    ]
    (found,) = sampled("elicitation", "persona_vectors", files, {"trait": trait}).entries
    assert len(found["instruction_pairs"]) == 5
    assert len(found["questions_extract"]) == len(found["questions_evaluate"]) == 20
    assert not set(found["questions_extract"]) & set(found["questions_evaluate"])


# --- the specs of the full-size plan --------------------------------------------------------------

SHIPPED = {
    "claims": ("sycophancy_bct", (120, 50, {"claim_is_true": 26})),
    "em-questions": ("em_questions", (24, 8, {"variant": 16})),
    "em-questions-domain": ("em_questions", (16, 8, {"variant": 8})),
    "should-refuse": ("harm_prompts", (227, 20, {"avoided": 3, "characters": 1, "no_slot": 79})),
    "xstest": ("xstest", (258, 40, {"no_slot": 108})),
    "xstest-answers": ("xstest", (258, 258, {})),
}


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_spec_draws_from_local_copies(name: str, tmp_path: Path) -> None:
    folder, expected = SHIPPED[name]
    (tmp_path / name).mkdir()
    for path in (DATA / folder).iterdir():
        shutil.copyfile(path, tmp_path / name / path.name)
    spec = (ROOT / f"plans/sources/{name}.yaml").read_bytes()
    found = read_sampled(sample(spec, name, obtain_local(tmp_path), None), name)
    assert figures(found) == expected
