"""The ``eps.baselines`` part of a plan: how much is asked of the base model, and every constant."""

from __future__ import annotations

from dataclasses import dataclass

from eps_locked.domain.fields import Fields
from eps_locked.domain.model import Decoding
from eps_locked.errors import MalformedInputError

__all__ = ["BaselineRules", "DivergenceRules", "GeometryRules", "PersonaRules", "SampleRules"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleRules:
    """How the base model writes: ``n_samples`` draws per prompt, at most ``max_new_tokens`` each.

    The temperature is above 0: expectations under the model's own distribution are wanted, and a
    greedy answer is no draw from it. Only at 1 are they the model's own.
    """

    n_samples: int
    max_new_tokens: int
    temperature: float

    def decoding(self) -> Decoding:
        return Decoding(max_new_tokens=self.max_new_tokens, temperature=self.temperature)

    @classmethod
    def read(cls, fields: Fields) -> SampleRules:
        return cls(
            n_samples=fields.integer("n_samples", low=1),
            max_new_tokens=fields.integer("max_new_tokens", low=1),
            temperature=fields.number("temperature", above=0),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class GeometryRules:
    """Activation clouds: ``n_items`` prompts per context, projected on ``pca_components`` axes.

    ``shrinkage`` in (0, 1] is the share of the scaled identity in each covariance; above 0, so
    that a cloud of few points still has an invertible one.
    """

    n_items: int
    pca_components: int
    shrinkage: float

    @classmethod
    def from_dict(cls, value: object, path: str) -> GeometryRules:
        with Fields(value, path) as fields:
            rules = cls(
                n_items=fields.integer("n_items", low=2),
                pca_components=fields.integer("pca_components", low=1),
                shrinkage=fields.number("shrinkage", above=0, high=1),
            )
        if rules.pca_components >= rules.n_items:
            raise MalformedInputError(
                f"{path}.pca_components",
                expected=f"fewer than the {rules.n_items} points of a cloud (n_items)",
                found=rules.pca_components,
                next_step="more axes than a cloud has spread would hold nothing but shrinkage",
            )
        return rules


@dataclass(frozen=True, kw_only=True, slots=True)
class DivergenceRules:
    """Output KL: own samples on ``n_items`` prompts per context."""

    n_items: int
    samples: SampleRules

    @classmethod
    def from_dict(cls, value: object, path: str) -> DivergenceRules:
        with Fields(value, path) as fields:
            return cls(n_items=fields.integer("n_items", low=1), samples=SampleRules.read(fields))


@dataclass(frozen=True, kw_only=True, slots=True)
class PersonaRules:
    """The behaviour's direction, and how many training rows are projected on it.

    The first ``n_pairs`` instruction pairs and ``n_questions`` extraction questions of the
    behaviour's file are used; ``n_rows`` bounds the positives read per train context.
    """

    n_pairs: int
    n_questions: int
    samples: SampleRules
    n_rows: int

    @classmethod
    def from_dict(cls, value: object, path: str) -> PersonaRules:
        with Fields(value, path) as fields:
            return cls(
                n_pairs=fields.integer("n_pairs", low=1),
                n_questions=fields.integer("n_questions", low=1),
                samples=SampleRules.read(fields),
                n_rows=fields.integer("n_rows", low=1),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class BaselineRules:
    """The whole part.

    ``layer_depth`` (22, 28) names the layer by its relative depth in the model in which the
    in-house Gaussian KL was chosen. ``ngram`` is the length of the character n-grams of the
    content-free text overlap, ``seed`` decides the permutation control and nothing else.
    """

    layer_depth: tuple[int, int]
    geometry: GeometryRules
    divergence: DivergenceRules
    persona: PersonaRules
    ngram: int
    seed: int

    def layer(self, n_layers: int) -> int:
        """The layer to read in a model of ``n_layers`` blocks: 22 of 28 is 24 of 30.

        The nearest whole one, halves up, in whole numbers: no float decides which layer it is.
        """
        depth, of = self.layer_depth
        return max(1, (2 * depth * n_layers + of) // (2 * of))

    def check_items(self, n_train_items: int, path: str) -> None:
        """Require that the frozen train items are enough. Raises MalformedInputError."""
        for name, n_items in (
            ("activations", self.geometry.n_items),
            ("divergence", self.divergence.n_items),
        ):
            if n_items > n_train_items:
                raise MalformedInputError(
                    f"{path}.{name}.n_items",
                    expected=f"at most the {n_train_items} train items",
                    found=n_items,
                )

    @property
    def n_items(self) -> int:
        """How many of the frozen train items every evaluated context is rendered with."""
        return max(self.geometry.n_items, self.divergence.n_items)

    @classmethod
    def from_dict(cls, value: object, path: str) -> BaselineRules:
        """Raises MalformedInputError naming the field."""
        with Fields(value, path) as fields:
            depth = fields.integers("layer_depth", low=1)
            rules = cls(
                layer_depth=_depth(depth, fields.path("layer_depth")),
                geometry=GeometryRules.from_dict(
                    fields.mapping("activations"), fields.path("activations")
                ),
                divergence=DivergenceRules.from_dict(
                    fields.mapping("divergence"), fields.path("divergence")
                ),
                persona=PersonaRules.from_dict(fields.mapping("persona"), fields.path("persona")),
                ngram=fields.integer("ngram", low=1),
                seed=fields.integer("seed", low=0),
            )
        return rules


def _depth(depth: tuple[int, ...], path: str) -> tuple[int, int]:
    if len(depth) != 2 or depth[0] > depth[1]:
        raise MalformedInputError(
            path, expected="[layer, of layers], the first at most the second", found=list(depth)
        )
    return (depth[0], depth[1])
