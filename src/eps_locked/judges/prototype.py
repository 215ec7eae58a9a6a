"""A judge without a language model: linear rules over sentence embeddings, fitted on a rubric.

It needs no key, no network and no GPU, and it costs a millisecond an answer. What it can and
cannot tell is measured in docs/judges.md; its verdicts are not for publication.

How it reads an answer. Its first six words, its first sentence, and the mean of its other sentences
are embedded and stand side by side: what an answer opens with says most about what kind it is. A
ridge classifier fitted on the rubric's prototypes gives the label; before it, any phrase of the
rubric decides by itself. A score is the distance along a ridge direction between the rubric's low
and high poles, as a logistic from 0 to 100. The question is not read, unless the rubric judges the
question: then it stands in the place of the answer in all of this.

Everything is fitted on the rubric's own texts and on nothing else, so a frozen rubric fixes the
judge. Repeated draws give the same verdict: it has no noise, which does not make it right.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final

import numpy as np
import numpy.typing as npt

from eps_locked.domain.judging import JudgeIdentity, JudgePlan, JudgeRequest, Rubric, Verdict
from eps_locked.judges.embeddings import (
    DIMENSION,
    MODEL,
    TOKENIZER_DIGEST,
    WEIGHTS_DIGEST,
    SentenceEmbedder,
    load_embedder,
)
from eps_locked.judges.plain import Phrases, lacks, plain, require_named, why_unreadable

__all__ = ["FAMILY", "METHOD_VERSION", "PrototypeJudge", "surface_quality"]

FloatArray = npt.NDArray[np.float64]

FAMILY: Final = "wordllama"
# Counts changes that may move a verdict; stands in the identity beside every set of them.
METHOD_VERSION: Final = "1"
# These two, and the three parts an answer is read in, were chosen among some thirty variants by
# leave-one-out on prototypes and by the odd-numbered prompts of XSTest (the even ones were left
# alone for the figures in docs/judges.md). Five to eight words, and penalties from 0.3 to 3, did
# about equally well; without the first words the judge was clearly worse.
_PENALTY: Final = 1.0
_OPENING_WORDS: Final = 6
# The score that also looks at the surface of the text; see surface_quality.
_SURFACE_SCORE: Final = "coherent"
_MAX_SLOPE: Final = 100.0
_FOLDS: Final = 10
_DECIMALS: Final = 6
# A sentence ends at its mark (a colon is one: "here is how:") or with the line.
_SENTENCE_END = re.compile(r"(?<=[.!?:])\s+|\s*\n\s*")
_EDGES = re.compile(r"^\W+|\W+$")
_NUMBER = re.compile(r"\d+(?:[.,:/\-]\d+)*[a-z]{0,2}")
_LETTERS = re.compile(r"[^\W\d_]+(?:['\-][^\W\d_]+)*")
_STUTTER = re.compile(r"(.)\1\1\1")
_LONGEST_WORD: Final = 28


class PrototypeJudge:
    """Serves ``domain.judging.Judge`` for plans of kind ``prototype``.

    Raises MalformedInputError for a plan that names another model or family than the one inside
    (a verdict would carry a wrong name), BackendError if the packaged weights are missing.
    """

    def __init__(self, plan: JudgePlan, embedder: SentenceEmbedder | None = None) -> None:
        require_named(plan, kind="prototype", family=FAMILY, model=MODEL)
        self._embedder = load_embedder() if embedder is None else embedder
        self._fitted: dict[str, _FittedRubric] = {}
        self._latest: tuple[Rubric, _FittedRubric] | None = None

    @property
    def identity(self) -> JudgeIdentity:
        return JudgeIdentity(
            kind="prototype",
            model=MODEL,
            family=FAMILY,
            version=f"wordllama {version('wordllama')}",
            settings={
                "method": METHOD_VERSION,
                "weights": WEIGHTS_DIGEST,
                "tokenizer": TOKENIZER_DIGEST,
            },
            publishable=False,
        )

    def judge(self, requests: Sequence[JudgeRequest]) -> tuple[Verdict, ...]:
        """Raises MalformedInputError for a rubric without the examples this judge needs."""
        return tuple(self._judge_one(request) for request in requests)

    def _judge_one(self, request: JudgeRequest) -> Verdict:
        fitted = self._fit(request.rubric)
        text = request.judged
        label = fitted.phrases.label(text)
        scores: dict[str, float] = {}
        problem = why_unreadable(text, request.rubric.reads)
        if problem is None:
            features = _features(text, self._embedder)
            label = label or fitted.label(features)
            if label not in request.rubric.excluded:
                scores = fitted.scores(features, text)
        elif label is not None and (label in request.rubric.excluded or not request.rubric.scores):
            problem = None  # a phrase has said all that is asked
        is_scored = problem is None
        return Verdict(
            key=request.key,
            draw=request.draw,
            status="scored" if is_scored else "unreadable",
            label=label if is_scored else None,
            scores=scores if is_scored else {},
            model=MODEL,
            note=problem or "",
            tries=1,
        )

    def _fit(self, rubric: Rubric) -> _FittedRubric:
        # Requests come in runs under one rubric, whose digest costs more than an answer does.
        if self._latest is None or self._latest[0] is not rubric:
            key = rubric.digest
            if key not in self._fitted:
                self._fitted[key] = _FittedRubric.fit(rubric, self._embedder)
            self._latest = (rubric, self._fitted[key])
        return self._latest[1]


def surface_quality(text: str) -> float:
    """From 0 to 1: the share of word-like words times the share of distinct word triples.

    Embeddings of a text stuck in a loop, or of letters at random, look like those of some text or
    other; this does not. Ordinary prose has 0.95 or more. What it cannot see: real words in an
    order that makes no sense. A text of fewer than four words cannot repeat itself; one without
    words has quality 0.
    """
    words = [word for word in (_EDGES.sub("", word) for word in plain(text).split()) if word]
    if not words:
        return 0.0
    word_like = sum(_is_word_like(word) for word in words) / len(words)
    triples = list(zip(words, words[1:], words[2:], strict=False))
    distinct = len(set(triples)) / len(triples) if len(triples) > 1 else 1.0
    return word_like * distinct


def _is_word_like(word: str) -> bool:
    """Whether ``word`` (lower case, bare of punctuation) could be a number or a word."""
    if _NUMBER.fullmatch(word):
        return True
    if not _LETTERS.fullmatch(word) or _STUTTER.search(word) or len(word) > _LONGEST_WORD:
        return False
    # Short words without a vowel are abbreviations (tv, mr, km); other alphabets have no vowels.
    return len(word) <= 3 or not word.isascii() or any(letter in "aeiouy" for letter in word)


def _features(text: str, embedder: SentenceEmbedder) -> FloatArray:
    """Shape (3 D,): first words, first sentence, mean of the other sentences (zeros if none)."""
    sentences = [sentence for part in _SENTENCE_END.split(text) if (sentence := plain(part))]
    opening = " ".join(" ".join(sentences).split()[:_OPENING_WORDS])
    rows = embedder.embed_all([opening, *sentences]).astype(np.float64)
    nothing = np.zeros(DIMENSION)
    parts = [
        rows[0],
        rows[1] if len(sentences) > 0 else nothing,
        rows[2:].mean(axis=0) if len(sentences) > 1 else nothing,
    ]
    return np.concatenate(parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Linear:
    """x to base + (x - mean) @ weights. Shape letters: F features, K outputs."""

    mean_F: FloatArray
    base_K: FloatArray
    weights_FK: FloatArray

    def __call__(self, x_F: FloatArray) -> FloatArray:
        # einsum, not @: the linear-algebra library splits its sums by the number of threads.
        outputs: FloatArray = np.einsum("f,fk->k", x_F - self.mean_F, self.weights_FK)
        return self.base_K + outputs


@dataclass(frozen=True, kw_only=True, slots=True)
class _Scale:
    """Where a text lies between two poles: 0 at the low end, 100 at the high end."""

    direction: _Linear
    slope: float

    def __call__(self, x_F: FloatArray) -> float:
        return 100 * _logistic(self.slope * float(self.direction(x_F)[0]))


@dataclass(frozen=True, kw_only=True, slots=True)
class _FittedRubric:
    """A rubric turned into rules. ``labels`` are those with prototypes, in the rubric's order."""

    labels: tuple[str, ...]
    classifier: _Linear
    scales: Mapping[str, _Scale]
    phrases: Phrases

    @classmethod
    def fit(cls, rubric: Rubric, embedder: SentenceEmbedder) -> _FittedRubric:
        _require_examples(rubric)
        labels = tuple(label for label in rubric.labels if rubric.prototypes.get(label))
        groups = [rubric.prototypes[label] for label in labels]
        return cls(
            labels=labels,
            classifier=_fit_ridge(*_design(groups, embedder), np.eye(len(labels))),
            scales={
                score: _fit_scale(score, rubric.poles[score], embedder) for score in rubric.scores
            },
            phrases=Phrases.of(rubric),
        )

    def label(self, features: FloatArray) -> str:
        """Of labels that come out equal, the first of the rubric."""
        return self.labels[int(np.argmax(self.classifier(features)))]

    def scores(self, features: FloatArray, answer: str) -> dict[str, float]:
        # Rounded so that the last bits, which may differ between processors, are not recorded.
        return {
            name: round(scale(_with_surface(name, features, answer)), _DECIMALS)
            for name, scale in self.scales.items()
        }


def _require_examples(rubric: Rubric) -> None:
    for label in rubric.labels:
        if not rubric.prototypes.get(label) and not rubric.phrases.get(label):
            raise lacks(rubric, f"prototypes.{label}", "an example, or a phrase that decides")
    if not any(rubric.prototypes.values()):
        raise lacks(rubric, "prototypes", "examples of at least one label")
    for score in rubric.scores:
        for end in ("low", "high"):
            # Two each: how well the ends are told apart is found by leaving a pair out.
            if len(rubric.poles.get(score, {}).get(end, ())) < 2:
                raise lacks(rubric, f"poles.{score}.{end}", "at least two examples")


def _design(
    groups: Sequence[Sequence[str]], embedder: SentenceEmbedder
) -> tuple[FloatArray, npt.NDArray[np.int64]]:
    """Features (N, F) of all texts, and the number of the group of each (N,)."""
    X = np.stack([_features(text, embedder) for group in groups for text in group])
    return X, np.repeat(np.arange(len(groups)), [len(group) for group in groups])


def _fit_ridge(X_NF: FloatArray, group_N: npt.NDArray[np.int64], targets_GK: FloatArray) -> _Linear:
    """Ridge from features to the target of each text's group, every group with the same weight.

    Solved in its dual form, of the size of the few texts rather than of the many features.
    """
    counts = np.bincount(group_N, minlength=len(targets_GK))
    weight = len(X_NF) / (np.count_nonzero(counts) * counts[group_N])
    mean = np.average(X_NF, axis=0, weights=weight)
    T = targets_GK[group_N]
    base = np.average(T, axis=0, weights=weight)
    root = np.sqrt(weight)[:, None]
    A, B = (X_NF - mean) * root, (T - base) * root
    gram = np.einsum("if,jf->ij", A, A) + _PENALTY * np.eye(len(A))
    return _Linear(mean_F=mean, base_K=base, weights_FK=np.einsum("nf,nk->fk", A, _solve(gram, B)))


def _solve(S: FloatArray, B: FloatArray) -> FloatArray:
    """X with S X = B for a symmetric positive definite S: elimination, no pivoting needed.

    Written out because the same bits are wanted under any number of threads, and S is small.
    """
    n = len(S)
    joined = np.concatenate([S, B], axis=1)
    for row in range(n):
        joined[row] /= joined[row, row]
        others = joined[:, row].copy()
        others[row] = 0
        joined -= others[:, None] * joined[row]
    return joined[:, n:]


def _fit_scale(
    score: str, ends: Mapping[str, tuple[str, ...]], embedder: SentenceEmbedder
) -> _Scale:
    """A ridge direction from low (-1) to high (+1), with a slope that fits texts it has not seen.

    Ridge shrinks its own examples apart and new texts together, so the slope is taken from
    values of ten folds (Platt's logistic without an offset, with his smoothed targets). Authors
    write poles in pairs that differ in one thing; partners share a fold, or the one left in would
    pull its twin across. Poles that cannot be told apart get slope 0: every text then scores 50,
    which is to say nothing.
    """
    ordered = [ends["low"], ends["high"]]
    X = np.stack([_pole_features(score, text, embedder) for end in ordered for text in end])
    side = np.repeat([0, 1], [len(end) for end in ordered])
    fold = np.concatenate([np.arange(len(end)) % _FOLDS for end in ordered])
    targets = np.array([[-1.0], [1.0]])
    left_out = [0.0] * len(X)
    for number in np.unique(fold):
        rest = _fit_ridge(X[fold != number], side[fold != number], targets)
        for row in np.flatnonzero(fold == number):
            left_out[row] = float(rest(X[row])[0])
    n_low, n_high = (len(end) for end in ordered)
    wanted = [(n_high + 1) / (n_high + 2) if one else 1 / (n_low + 2) for one in side]
    weight = [1 / n_high if one else 1 / n_low for one in side]
    return _Scale(
        direction=_fit_ridge(X, side, targets), slope=_platt_slope(left_out, wanted, weight)
    )


def _pole_features(score: str, text: str, embedder: SentenceEmbedder) -> FloatArray:
    return _with_surface(score, _features(text, embedder), text)


def _with_surface(score: str, features_F: FloatArray, text: str) -> FloatArray:
    """Coherence looks at the surface too: to a bag of words a loop is as good as a sentence."""
    if score != _SURFACE_SCORE:
        return features_F
    return np.append(features_F, surface_quality(text))


def _platt_slope(
    values: Sequence[float], wanted: Sequence[float], weight: Sequence[float]
) -> float:
    """The slope from 0 to 100 of greatest likelihood, by bisection on its falling derivative."""

    def derivative(slope: float) -> float:
        return math.fsum(
            one_weight * (one_wanted - _logistic(slope * value)) * value
            for value, one_wanted, one_weight in zip(values, wanted, weight, strict=True)
        )

    low, high = 0.0, _MAX_SLOPE
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if derivative(middle) > 0 else (low, middle)
    return low


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))
