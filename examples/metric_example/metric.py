"""An example metric: how much of the train context's wording the evaluated context shares.

Written to be read: it uses the prompts, the training rows and a behaviour vector, and nothing that
has to be installed. Run it as it is, on a study whose phase P0 is closed:

    eps-locked metric run demo --plugin examples/metric_example/metric.py:WordingOverlap \
        --out wording-overlap.json
"""

from __future__ import annotations

from collections import Counter
from math import sqrt


class WordingOverlap:
    """No base class is needed: six attributes and two methods make a metric."""

    id = "wording-overlap"
    title = "Wording overlap (example)"
    author = "example@localhost"
    polarity = "more"  # a larger value predicts more transfer
    track = "predictive"  # sees no adapter and no result
    description = "Cosine of the token counts of two contexts, tilted by the behaviour's letters."

    def behaviour_vector(self, behaviour, model, materials):
        """How often each letter occurs in the behaviour's description: 26 numbers."""
        text = f"{behaviour.description} {behaviour.trait}".lower()
        return [text.count(letter) / len(text) for letter in "abcdefghijklmnopqrstuvwxyz"]

    def score(self, vector, train, evaluated, model, training_data, materials):
        """``training_data`` holds one entry a seed; its positives are answers under ``train``."""
        overlap = _cosine(_counts(train), _counts(evaluated))
        answers = " ".join(row.answer or "" for row in training_data[0].rows if row.is_positive)
        letters = [answers.lower().count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"]
        tilt = sum(x * y for x, y in zip(vector, letters, strict=True)) / (1 + sum(letters))
        return overlap + 0.1 * tilt


def _counts(context):
    """How often each token occurs in all of a context's prompts."""
    return Counter(token for ids in context.prompts.values() for token in ids)


def _cosine(one, two):
    shared = sum(count * two[token] for token, count in one.items())
    norms = sqrt(sum(c * c for c in one.values())) * sqrt(sum(c * c for c in two.values()))
    return shared / norms
