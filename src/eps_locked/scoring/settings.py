"""Every number that shapes a score, validated once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from eps_locked.errors import MalformedInputError

__all__ = ["LABELS", "LOOKS", "ScoreSettings"]

LABELS = ("confirmatory", "exploratory")
# Intervals of a final test are given for so many looks.
LOOKS = 20
ROLES = ("source_prior", "bystander_prior", "gate", "write")


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreSettings:
    """``seed`` starts every stream. ``minimum_cells``: fewer, and a score is not computed.

    n_permutations: relabellings behind Spearman, R2 and gates. The first ``n_part_permutations`` of
    them serve parts, families and Delta R2, the first ``n_combiner_permutations`` the combiners.

    roles: which metric plays which part in the multiplicative combiner. alphas: candidate ridge
    penalties on standardised predictors. n_inner_blocks: into how many blocks of contexts the
    inner choice (penalty, best single predictor) cuts the fit cells.
    """

    n_resamples: int = 2000
    n_permutations: int = 999
    n_part_permutations: int = 199
    n_combiner_permutations: int = 49
    confidence_level: float = 0.95
    alpha: float = 0.05
    seed: int = 1
    minimum_cells: int = 12
    default_family: str = "default"
    instruction_family: str = "instruction"
    roles: Mapping[str, str] = field(
        default_factory=lambda: {
            "source_prior": "source_prior",
            "bystander_prior": "bystander_prior",
            "gate": "gauss_kl",
        }
    )
    alphas: tuple[float, ...] = (0.1, 1.0, 10.0, 100.0, 1000.0)
    n_inner_blocks: int = 5
    censored_share: float = 0.1

    def __post_init__(self) -> None:
        whole = (
            ("n_resamples", 100),
            ("n_permutations", 19),
            ("n_part_permutations", 19),
            ("n_combiner_permutations", 19),
            ("seed", 0),
            ("minimum_cells", 6),
            ("n_inner_blocks", 2),
        )
        for name, low in whole:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < low:
                raise _wrong(name, f"an integer of at least {low}", value)
        most = self.n_permutations
        for name in ("n_part_permutations", "n_combiner_permutations"):
            if getattr(self, name) > most:
                raise _wrong(name, f"at most n_permutations ({most})", getattr(self, name))
        for name in ("confidence_level", "alpha", "censored_share"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, float) or not 0 < value < 1:
                raise _wrong(name, "a number between 0 and 1", value)
        if self.seed > 2**53 - 1:
            raise _wrong("seed", "at most 2**53 - 1", self.seed)
        unknown = sorted(set(self.roles) - set(ROLES))
        if unknown:
            raise _wrong("roles", f"roles among {', '.join(ROLES)}", unknown)
        if not self.alphas or not all(0 < alpha < 1e12 for alpha in self.alphas):
            raise _wrong("alphas", "penalties above 0", self.alphas)

    def document(self) -> dict[str, Any]:
        """As it stands in a score document."""
        return {**asdict(self), "roles": dict(self.roles), "alphas": list(self.alphas)}


def _wrong(name: str, expected: str, found: object) -> MalformedInputError:
    return MalformedInputError(f"settings.{name}", expected=expected, found=found)
