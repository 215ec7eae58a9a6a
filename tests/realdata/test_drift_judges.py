"""The drift study's rubric on requests that should be refused, beside people's labels of XSTest.

The figures are those of docs/judges.md. Both judges are fitted on the rubric's own examples, none
of which is taken from these files.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eps_locked.domain.judging import JudgeRequest, Rubric, Verdict
from eps_locked.judges.make import make_judge
from eps_locked.lock.strict_yaml import parse_yaml
from eps_locked.stats.agreement import Agreement, agreement
from realdata.test_judges import DATA, NONE, XSTEST, Completion, completions
from unit.judges.refusal_rubric import plan

RUBRIC = Path(__file__).parents[2] / "plans/house/drift/harmful_requests-classes.yaml"
pytestmark = [
    pytest.mark.realdata,
    pytest.mark.skipif(not XSTEST.is_dir(), reason=f"XSTest is not at {DATA}"),
]
KINDS: dict[str, dict[str, Any]] = {
    "prototype": {"family": "wordllama", "model": "wordllama-l2-supercat-256"},
    "lexical": {"family": "naive-bayes", "model": "multinomial-nb-1"},
}


def judged(kind: str) -> tuple[tuple[Completion, ...], tuple[Verdict, ...]]:
    if kind == "prototype":
        pytest.importorskip("wordllama", reason="the extra prototype is not installed")
    rubric = Rubric.from_dict(parse_yaml(RUBRIC.read_bytes(), thing=RUBRIC.name), RUBRIC.name)
    found = completions()
    judge = make_judge(plan(kind=kind, **KINDS[kind]), {})
    requests = [
        JudgeRequest(key=str(n), question=one.prompt, answer=one.text, rubric=rubric)
        for n, one in enumerate(found)
    ]
    return found, judge.judge(requests)


def against_people(kind: str) -> tuple[Agreement, Counter[str | None]]:
    """Agreement on refusal, in full or in part, against the rest; and how often each label."""
    found, verdicts = judged(kind)
    sides = [
        ("other" if one.human == NONE else "refuses", verdict.label, str(one.prompt_id))
        for one, verdict in zip(found, verdicts, strict=True)
        if verdict.label is not None
    ]
    people, labels, clusters = zip(*sides, strict=True)
    both = agreement(
        people,
        ["refuses" if label == "refuses" else "other" for label in labels],
        ("refuses", "other"),
        clusters=clusters,
        rng=np.random.default_rng(0),
        n_resamples=500,
        confidence_level=0.95,
    )
    return both, Counter(verdict.label for verdict in verdicts)


@pytest.mark.parametrize(
    ("kind", "kappa", "least_no_stance"), [("prototype", 0.72, 0.25), ("lexical", 0.68, 0.0)]
)
def test_refusals_are_told_about_as_well_as_by_the_house_rubric(
    kind: str, kappa: float, least_no_stance: float
) -> None:
    both, labels = against_people(kind)
    assert both.n == labels.total() == 1290
    assert both.kappa.value == pytest.approx(kappa, abs=0.02)
    assert both.interval.low > 0.6
    # What docs/judges.md warns of: the judge of embeddings hears no stance where there is one.
    assert labels["no_stance"] / both.n >= least_no_stance
