"""How the battery reads refusals, beside XSTest's people; and what words miss of capitulations.

Both stand-in judges are fitted on the battery's house rubric alone; nothing of these files goes
into it. Its examples were written before the judges were run on them, and none was changed
afterwards. Our two lists of phrases (of refusing, of giving way) were written after a look at some
of these replies. Run with ``-s`` to see the tables.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eps_locked.domain.judging import JudgePlan, Rubric
from eps_locked.judges.language import is_other_language
from eps_locked.judges.make import make_judge
from eps_locked.judges.pushback import gives_way, is_capitulation
from eps_locked.judges.refusals import (
    LABELS,
    Spoken,
    Staged,
    disagreements,
    stage_agreement,
    two_stage,
)
from eps_locked.lock.strict_yaml import parse_yaml
from eps_locked.stats.agreement import cohen_kappa, confusion_matrix

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared/data"
XSTEST, PUSHBACK = DATA / "xstest", DATA / "sycophancy_pushback"
HOUSE = ROOT / "plans/house/battery/refusal-rubric.yaml"
pytestmark = [
    pytest.mark.realdata,
    pytest.mark.skipif(
        not (XSTEST.is_dir() and PUSHBACK.is_dir()),
        reason=f"the published labels are not at {DATA}",
    ),
]
NAMES = {"2_full_refusal": "refuse", "3_partial_refusal": "partial", "1_full_compliance": "comply"}
MODELS = ("gpt4", "llama2new", "llama2orig", "mistralguard", "mistralinstruct")
JUDGES = {
    "prototype": ("wordllama", "wordllama-l2-supercat-256"),
    "lexical": ("naive-bayes", "multinomial-nb-1"),
}


# -- refusals


@dataclass(frozen=True, kw_only=True)
class Completion:
    model: str
    prompt_id: int
    prompt: str
    text: str
    human: str


@cache
def completions() -> tuple[Completion, ...]:
    found = []
    for model in MODELS:
        path = XSTEST / f"xstest_v2_completions_{model}.csv"
        with path.open(newline="", encoding="utf-8") as stream:
            found += [
                Completion(
                    model=model,
                    prompt_id=int(row["id"].removeprefix("v2-")),
                    prompt=row["prompt"],
                    text=row["completion"],
                    human=NAMES[row["final_label"]],
                )
                for row in csv.DictReader(stream)
            ]
    return tuple(found)


@cache
def staged(kind: str) -> tuple[Staged, ...]:
    """Both stages of every completion, in order; ``kind`` of the second."""
    if kind == "prototype":
        pytest.importorskip("wordllama", reason="the extra prototype is not installed")
    family, model = JUDGES[kind]
    plan = JudgePlan.from_dict(
        {
            "name": "stand_in",
            "kind": kind,
            "family": family,
            "model": model,
            "max_concurrency": 1,
            "max_tries": 1,
            "timeout_seconds": 1,
            "batch_from": None,
            "max_transport_share": 0,
        },
        "judge",
    )
    rubric = Rubric.from_dict(parse_yaml(HOUSE.read_bytes(), thing=HOUSE.name), HOUSE.name)
    spoken = [
        Spoken(key=str(number), question=one.prompt, text=one.text)
        for number, one in enumerate(completions())
    ]
    return tuple(two_stage(spoken, rubric, make_judge(plan, {}).judge).values())


def said_by(reader: str) -> list[str | None]:
    """Labels in the order of the completions; None where a reader says nothing.

    "KIND" is the judge (whose word is the verdict), "both KIND" what both stages say alike.
    """
    if reader == "keyword":
        return [one.keyword for one in staged("lexical")]
    rows = staged(reader.removeprefix("both "))
    if reader.startswith("both "):
        return [None if one.differs else one.verdict for one in rows]
    return [one.verdict for one in rows]


def table(reader: str, *, half: str = "all", model: str | None = None) -> Any:
    """Rows: people. Columns: the reader, over refuse, comply, partial. No label: left out."""
    kept = [
        (one.human, label)
        for one, label in zip(completions(), said_by(reader), strict=True)
        if label is not None
        and (model is None or one.model == model)
        and {"all": True, "even": one.prompt_id % 2 == 0, "odd": one.prompt_id % 2 == 1}[half]
    ]
    return confusion_matrix([one for one, _ in kept], [label for _, label in kept], LABELS)


def kappas(counts: Any) -> tuple[float, float]:
    """Over three labels, and of a full refusal against the rest (what the rate counts)."""
    refused = np.array(
        [
            [counts[0, 0], counts[0, 1:].sum()],
            [counts[1:, 0].sum(), counts[1:, 1:].sum()],
        ]
    )
    three, two = cohen_kappa(counts).value, cohen_kappa(refused).value
    assert three is not None
    assert two is not None
    return three, two


READERS = ("keyword", "prototype", "both prototype", "lexical", "both lexical")
# Every completion: people's labels down, the reader's across; refuse, comply, partial.
TABLES: dict[str, list[list[int]]] = {
    "keyword": [[451, 86, 0], [23, 624, 0], [67, 39, 0]],
    "prototype": [[495, 33, 9], [88, 529, 30], [64, 27, 15]],
    "both prototype": [[442, 29, 0], [21, 527, 0], [53, 24, 0]],
    "lexical": [[510, 17, 10], [188, 390, 69], [87, 9, 10]],
    "both lexical": [[445, 13, 0], [21, 389, 0], [60, 6, 0]],
}
# half -> reader -> (kappa of three labels, of refuse against the rest)
KAPPAS: dict[str, dict[str, tuple[float, float]]] = {
    "even": {
        "keyword": (0.694, 0.749),
        "prototype": (0.675, 0.732),
        "both prototype": (0.796, 0.843),
        "lexical": (0.489, 0.550),
        "both lexical": (0.824, 0.836),
    },
    "odd": {
        "keyword": (0.681, 0.687),
        "prototype": (0.625, 0.663),
        "both prototype": (0.767, 0.773),
        "lexical": (0.492, 0.544),
        "both lexical": (0.772, 0.759),
    },
}


def show(reader: str, half: str, counts: Any) -> None:
    three, two = kappas(counts)
    share = np.trace(counts) / counts.sum()
    print(
        f"\n{reader}, {half}: n {counts.sum()}, agreement {share:.3f}, kappa {three:.3f}, "
        f"refuse against the rest {two:.3f}"
    )
    print(f"{'people':>10} " + " ".join(f"{label:>8}" for label in LABELS))
    for label, row in zip(LABELS, counts, strict=True):
        print(f"{label:>10} " + " ".join(f"{count:>8}" for count in row))


@pytest.mark.parametrize("reader", READERS)
def test_the_confusion_with_people_is_the_documented_one(reader: str) -> None:
    found = table(reader)
    show(reader, "all", found)
    if "prototype" in reader:
        # Sums of floats: a few texts on the edge may fall to either side on another processor.
        assert np.abs(found - TABLES[reader]).sum() <= 20
    else:
        assert found.tolist() == TABLES[reader]


@pytest.mark.parametrize("half", ["even", "odd"])
@pytest.mark.parametrize("reader", READERS)
def test_kappa_on_each_half_is_the_documented_one(reader: str, half: str) -> None:
    found = table(reader, half=half)
    show(reader, half, found)
    near = 0.02 if "prototype" in reader else 0.0006
    assert kappas(found) == pytest.approx(KAPPAS[half][reader], abs=near)


def test_people_and_judges_read_as_many_texts_as_there_are() -> None:
    assert len(completions()) == 5 * 258
    assert Counter(one.human for one in completions()) == {
        "refuse": 537,
        "comply": 647,
        "partial": 106,
    }
    for kind in JUDGES:
        assert all(one.verdict is not None for one in staged(kind))


@pytest.mark.parametrize(
    ("kind", "n_listed", "n_wrong", "n_wrong_listed"),
    [("prototype", 194, 251, 124), ("lexical", 356, 380, 280)],
)
def test_what_is_listed_holds_half_or_more_of_what_the_judge_got_wrong(
    kind: str, n_listed: int, n_wrong: int, n_wrong_listed: int
) -> None:
    rows = dict(enumerate(staged(kind)))
    listed = {int(key) for key in disagreements({str(n): one for n, one in rows.items()})}
    wrong = {n for n, one in rows.items() if one.verdict != completions()[n].human}
    found = (len(listed), len(wrong), len(listed & wrong))
    print(f"\n{kind}: {found[0]} listed, {found[1]} wrong, {found[2]} of them listed")
    assert found == pytest.approx((n_listed, n_wrong, n_wrong_listed), abs=10)
    # A text that is listed is wrong far more often than one that is not.
    rest = len(rows) - len(listed)
    assert len(listed & wrong) / len(listed) > 3 * len(wrong - listed) / rest


@pytest.mark.parametrize(("kind", "kappa"), [("prototype", 0.713), ("lexical", 0.505)])
def test_agreement_of_the_two_stages_with_each_other(kind: str, kappa: float) -> None:
    found = stage_agreement(staged(kind), rng=np.random.default_rng(3), n_resamples=200)
    assert found.n == 1290
    assert found.kappa.value == pytest.approx(kappa, abs=0.01)


# Kappa of three labels in the file of each model, in their order above.
BY_MODEL = {
    "keyword": (0.900, 0.695, 0.597, 0.533, 0.230),
    "prototype": (0.808, 0.694, 0.515, 0.556, 0.348),
    "lexical": (0.671, 0.561, 0.393, 0.416, 0.178),
}


@pytest.mark.parametrize("reader", BY_MODEL)
def test_kappa_in_the_file_of_each_model_is_the_documented_one(reader: str) -> None:
    found = [kappas(table(reader, model=model))[0] for model in MODELS]
    for model, kappa in zip(MODELS, found, strict=True):
        print(f"\n{reader}, {model}: kappa {kappa:.3f}")
    near = 0.03 if reader == "prototype" else 0.0006
    assert found == pytest.approx(list(BY_MODEL[reader]), abs=near)


# -- another language


def test_no_published_english_reply_is_taken_for_another_language() -> None:
    assert [one.text for one in completions() if is_other_language(one.text)] == []
    replies = [
        row[key]
        for name in PUSHED
        for row in pushed(name, "claude")
        for key in ("initial_response", "final_response")
        if row[key] is not None
    ]
    assert len(replies) == 2 * (375 + 300)
    assert [text for text in replies if is_other_language(text)] == []


# -- giving up a right answer when pressed

PUSHED = ("llama1b", "qwen7b")


@cache
def pushed(name: str, judge: str) -> tuple[dict[str, Any], ...]:
    path = PUSHBACK / f"{name}_baseline_{judge}_judge.jsonl"
    return tuple(json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())


# model -> how many of the capitulations that the LLM judge found, and how many others, a rule of
# words calls so: the published one by substring, ours, and phrases of giving way alone.
FOUND = {
    "llama1b": {"published": (62, 8), "ours": (68, 7), "phrases": (20, 16)},
    "qwen7b": {"published": (27, 0), "ours": (39, 2), "phrases": (42, 92)},
}
N_PUSHED = {"llama1b": (105, 195), "qwen7b": (57, 243)}


@pytest.mark.parametrize("name", PUSHED)
def test_rules_of_words_miss_a_third_to_half_of_the_capitulations(name: str) -> None:
    pairs = [
        (row, other)
        for row, other in zip(pushed(name, "claude"), pushed(name, "heuristic"), strict=True)
        if row["final_response"] is not None
    ]
    assert all(
        (row["qid"], row["pushback_type"]) == (other["qid"], other["pushback_type"])
        for row, other in pairs
    )
    rules = {
        "published": [bool(other["capitulated"]) for _, other in pairs],
        "ours": [
            is_capitulation(row["initial_response"], row["final_response"], row["correct_answer"])
            for row, _ in pairs
        ],
        "phrases": [gives_way(row["final_response"]) for row, _ in pairs],
    }
    judged = [bool(row["capitulated"]) for row, _ in pairs]
    n_given_up, n_kept = sum(judged), len(judged) - sum(judged)
    assert (n_given_up, n_kept) == N_PUSHED[name]
    for rule, called in rules.items():
        hits = sum(one and truth for one, truth in zip(called, judged, strict=True))
        alarms = sum(one and not truth for one, truth in zip(called, judged, strict=True))
        print(
            f"\n{name}, {rule}: {hits} of {n_given_up} found ({hits / n_given_up:.0%}), "
            f"{alarms} of {n_kept} others called so"
        )
        assert (hits, alarms) == FOUND[name][rule]
    for rule in ("published", "ours"):
        assert 0.45 < FOUND[name][rule][0] / n_given_up < 0.7
