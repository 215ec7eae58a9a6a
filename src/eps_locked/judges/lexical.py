"""A second judge without a language model: which words an answer shares with a rubric's examples.

Multinomial naive Bayes over words and pairs of neighbouring words, fitted on the rubric's
prototypes and on nothing else; before it, any phrase of the rubric decides by itself. It knows
nothing of what words mean, so it errs on other answers than a judge of embeddings does: the two
stand beside each other to check one another. It needs no package, key, network or GPU. Its
verdicts are not for publication, and docs/judges.md has what was measured of them.

The same rubric and text give the same verdict anywhere; repeated draws never differ.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from eps_locked.domain.judging import JudgeIdentity, JudgePlan, JudgeRequest, Rubric, Verdict
from eps_locked.errors import MalformedInputError
from eps_locked.judges.plain import Phrases, lacks, plain, require_named, why_unreadable

__all__ = ["FAMILY", "METHOD_VERSION", "MODEL", "LexicalJudge"]

FAMILY: Final = "naive-bayes"
MODEL: Final = "multinomial-nb-1"
# Counts changes that may move a verdict; stands in the identity beside every set of them.
METHOD_VERSION: Final = "1"
# Added to every count (Laplace). From 0.1 to 1 the labels of the house sets come out about alike.
_ADDED: Final = 1.0
# Labels closer than this are equal: the last bits of a logarithm differ between processors.
_DECIMALS: Final = 9
_WORD = re.compile(r"[^\W_]+(?:['\-][^\W_]+)*")
# Stands before the first word, so that what an answer opens with is a pair of its own.
_OPENING: Final = "^"


class LexicalJudge:
    """Serves ``domain.judging.Judge`` for plans of kind ``lexical``.

    Raises MalformedInputError for a plan that names another model or family than the one inside.
    """

    def __init__(self, plan: JudgePlan) -> None:
        require_named(plan, kind="lexical", family=FAMILY, model=MODEL)
        self._fitted: dict[str, _FittedRubric] = {}
        self._latest: tuple[Rubric, _FittedRubric] | None = None

    @property
    def identity(self) -> JudgeIdentity:
        return JudgeIdentity(
            kind="lexical",
            model=MODEL,
            family=FAMILY,
            version=METHOD_VERSION,
            settings={"added": str(_ADDED), "method": METHOD_VERSION},
            publishable=False,
        )

    def judge(self, requests: Sequence[JudgeRequest]) -> tuple[Verdict, ...]:
        """Raises MalformedInputError for a rubric with scores, or without examples."""
        return tuple(self._judge_one(request) for request in requests)

    def _judge_one(self, request: JudgeRequest) -> Verdict:
        fitted = self._fit(request.rubric)
        text, problem = request.judged, None
        label = fitted.phrases.label(text)
        if label is None:
            problem = why_unreadable(text, request.rubric.reads)
        if label is None and problem is None:
            label = fitted.label(text)
            if label is None:
                problem = f"no word of the {request.rubric.reads} stands in the rubric's examples"
        return Verdict(
            key=request.key,
            draw=request.draw,
            status="scored" if label is not None else "unreadable",
            label=label,
            scores={},
            model=MODEL,
            note=problem or "",
            tries=1,
        )

    def _fit(self, rubric: Rubric) -> _FittedRubric:
        # Requests come in runs under one rubric, whose digest costs more than an answer does.
        if self._latest is None or self._latest[0] is not rubric:
            key = rubric.digest
            if key not in self._fitted:
                self._fitted[key] = _FittedRubric.fit(rubric)
            self._latest = (rubric, self._fitted[key])
        return self._latest[1]


def _pieces(text: str) -> Counter[str]:
    """How often each word and each pair of neighbours occurs, the opening included."""
    words = _WORD.findall(plain(text))
    return Counter([*words, *(" ".join(pair) for pair in pairwise([_OPENING, *words]))])


@dataclass(frozen=True, kw_only=True, slots=True)
class _FittedRubric:
    """``labels`` are those with prototypes, in the rubric's order; ``weights`` the logarithm of
    each known piece's probability under each of them. All labels are equally likely beforehand."""

    labels: tuple[str, ...]
    weights: Mapping[str, tuple[float, ...]]
    phrases: Phrases

    @classmethod
    def fit(cls, rubric: Rubric) -> _FittedRubric:
        _require_examples(rubric)
        labels = tuple(label for label in rubric.labels if rubric.prototypes.get(label))
        counts = [
            sum((_pieces(text) for text in rubric.prototypes[label]), Counter()) for label in labels
        ]
        known = sorted({piece for one in counts for piece in one})
        totals = [sum(one.values()) + _ADDED * len(known) for one in counts]
        return cls(
            labels=labels,
            weights={
                piece: tuple(
                    math.log((one[piece] + _ADDED) / total)
                    for one, total in zip(counts, totals, strict=True)
                )
                for piece in known
            },
            phrases=Phrases.of(rubric),
        )

    def label(self, text: str) -> str | None:
        """The likeliest label, of equal ones the first; None if no word of the text is known."""
        found = {piece: n for piece, n in _pieces(text).items() if piece in self.weights}
        if not found:
            return None
        likelihoods = [
            round(
                math.fsum(n * self.weights[piece][place] for piece, n in found.items()), _DECIMALS
            )
            for place in range(len(self.labels))
        ]
        return self.labels[likelihoods.index(max(likelihoods))]


def _require_examples(rubric: Rubric) -> None:
    if rubric.scores:
        raise MalformedInputError(
            f"rubric {rubric.name}.scores",
            expected="none: a judge of kind lexical gives labels alone",
            found=", ".join(rubric.scores),
            next_step="name another kind of judge, or a rubric without scores",
        )
    for label in rubric.labels:
        if not rubric.prototypes.get(label) and not rubric.phrases.get(label):
            raise lacks(rubric, f"prototypes.{label}", "an example, or a phrase that decides")
    if not any(rubric.prototypes.values()):
        raise lacks(rubric, "prototypes", "examples of at least one label")
