"""What the statistics of the vea study promise, kept in simulated reward models of known truth.

Differences have mean 0 or the printed minimum, and SD 1, in 6 other families of 14 prompts. What
holds: with differences that are symmetric around their mean, of whatever tails, the false discovery
rate stays below alpha; with normal ones, the printed minimum is found in 80 % of studies; heavier
tails are found more often, lighter ones less (uniform: 73 to 75 %). What does not hold: a skewed
distribution with mean 0 is not symmetric. With a long tail of likes (most prompts mildly disliked,
few liked a lot) the test finds the mild dislike of most, though the mean is 0; with a long tail of
dislikes it finds next to nothing. The mean and its interval stand beside every p for that reason.

Every share printed (``pytest -rP``) stands beside the simulation's own standard error.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from eps_locked.stats.bootstrap import generator_from_digest
from eps_locked.stats.multiplicity import benjamini_hochberg
from eps_locked.stats.paired_power import minimum_detectable_delta
from eps_locked.stats.signed_rank import signed_rank
from eps_locked.studies.vea.analysis import ItemScores, analyse
from eps_locked.studies.vea.items import ANCHOR, DECOY, FAMILIES, NEUTRAL, Family
from eps_locked.studies.vea.settings import VeaSettings

pytestmark = pytest.mark.slow

ALPHA, POWER, N_FAMILIES, N_ITEMS = 0.05, 0.8, 6, 14
N_STUDIES = 2000
Noise = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
# Mean 0 and SD 1 each.
SYMMETRIC: dict[str, Noise] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "t with 3 degrees": lambda rng, shape: rng.standard_t(3, shape) / math.sqrt(3),
    "laplace": lambda rng, shape: rng.laplace(size=shape) / math.sqrt(2),
    "uniform": lambda rng, shape: rng.uniform(-math.sqrt(3), math.sqrt(3), shape),
}
LIKES: Noise = lambda rng, shape: 1 - rng.exponential(size=shape)  # noqa: E731
DISLIKES: Noise = lambda rng, shape: rng.exponential(size=shape) - 1  # noqa: E731

OTHERS: tuple[Family, ...] = FAMILIES[1:7]
SETTINGS = VeaSettings(
    primary="inserted",
    normalise="none",
    margin=0.5,
    gate_margin=0.75,
    alpha=ALPHA,
    confidence_level=0.95,
    equivalence_level=0.9,
    power=POWER,
    broad_from=0.8,
    narrow_to=0.2,
    n_resamples=400,
    n_simulated=2000,
    minimum_items=8,
    seed=7,
)


def rng(*labels: str) -> np.random.Generator:
    return generator_from_digest("blake3:vea-simulation", *labels)


def found(differences_EFN: np.ndarray) -> np.ndarray:
    """Which families each study finds, shape (E, F)."""
    return np.array(
        [
            benjamini_hochberg([signed_rank(one).p_greater for one in study]) <= ALPHA
            for study in differences_EFN
        ]
    )


def false_share(found_EF: np.ndarray, n_affected: int) -> float:
    """Mean share of false finds among all finds; a study without any find has none."""
    false = found_EF[:, n_affected:].sum(axis=1)
    return float((false / np.maximum(1, found_EF.sum(axis=1))).mean())


def shown(what: str, share: float, n: int) -> float:
    print(f"{what}: {share:.3f} (simulation error {math.sqrt(share * (1 - share) / n):.3f})")
    return share


def minimum(n_items: int, n_simulated: int = 2000):
    """As an analysis prints it, with the Monte Carlo error that it has there."""
    return minimum_detectable_delta(
        1.0,
        n_items,
        ALPHA,
        POWER,
        N_FAMILIES,
        n_simulated=n_simulated,
        rng=rng("minimum", str(n_items)),
    )


@pytest.mark.parametrize("name", SYMMETRIC)
@pytest.mark.parametrize("n_affected", [0, 3])
def test_the_false_discovery_rate_stays_below_alpha(name, n_affected):
    differences = SYMMETRIC[name](rng("fdr", name), (N_STUDIES, N_FAMILIES, N_ITEMS))
    differences[:, :n_affected] += minimum(N_ITEMS).alone
    share = shown(
        f"{name}, {n_affected} affected: FDR",
        false_share(found(differences), n_affected),
        N_STUDIES,
    )
    assert share <= ALPHA + 2.5 * math.sqrt(ALPHA * (1 - ALPHA) / N_STUDIES)


@pytest.mark.parametrize("n_items", [8, 14, 28])
def test_power_at_the_printed_minimum_is_what_was_promised(n_items):
    noise = rng("power", str(n_items)).standard_normal((N_STUDIES, N_FAMILIES, n_items))
    one = noise.copy()
    one[:, 0] += minimum(n_items).alone
    alone = shown(f"{n_items} items, alone", float(found(one)[:, 0].mean()), N_STUDIES)
    every = found(noise + minimum(n_items).all_affected).mean()
    all_affected = shown(f"{n_items} items, all affected", float(every), N_STUDIES * N_FAMILIES)
    assert 0.77 <= alone <= 0.83
    assert 0.77 <= all_affected <= 0.83


def test_power_at_a_minimum_from_an_estimated_sd_is_a_little_lower_on_average():
    """Beside an effect the figure is in units of that sample's SD, known to 19 % by 14 prompts."""
    draws = rng("pilot")
    sd = draws.standard_normal((N_STUDIES, N_ITEMS)).std(axis=1, ddof=1)
    differences = draws.standard_normal((N_STUDIES, N_FAMILIES, N_ITEMS))
    differences[:, 0] += (sd * minimum(N_ITEMS).alone)[:, None]
    share = shown("minimum of a pilot's own SD", float(found(differences)[:, 0].mean()), N_STUDIES)
    assert 0.72 <= share <= 0.83


def test_tails_move_the_power_as_documented():
    shares = {}
    for name, noise in SYMMETRIC.items():
        differences = noise(rng("tails", name), (N_STUDIES, N_FAMILIES, N_ITEMS))
        differences[:, 0] += minimum(N_ITEMS).alone
        shares[name] = shown(f"{name}, alone", float(found(differences)[:, 0].mean()), N_STUDIES)
    assert shares["t with 3 degrees"] > shares["laplace"] > 0.8
    assert 0.70 < shares["uniform"] < 0.8


def test_a_mean_of_zero_is_no_null_where_differences_are_skewed():
    shape = (N_STUDIES, N_FAMILIES, N_ITEMS)
    likes = shown(
        "long tail of likes: false finds",
        false_share(found(LIKES(rng("likes"), shape)), 0),
        N_STUDIES,
    )
    dislikes = shown(
        "long tail of dislikes: false finds",
        false_share(found(DISLIKES(rng("dislikes"), shape)), 0),
        N_STUDIES,
    )
    # Not a promise: the size of a limit that the documentation names.
    assert 0.2 < likes < 0.35
    assert dislikes < 0.01


def reward_models(
    dislikes: dict[Family, float], sd: float, n_models: int, label: str
) -> list[ItemScores]:
    draws = rng("models", label, str(sd))
    scored = {"base": "scored", "vea": "scored", "control": "scored"}
    rows = []
    for model in range(n_models):
        for family in FAMILIES:
            base, noise, control = draws.standard_normal((3, N_ITEMS))
            rows += [
                ItemScores(
                    reward_model=f"rm{model}",
                    item=f"{family}-{n}",
                    family=family,
                    domain="math",
                    stem=f"{family}-{n}",
                    base=base[n],
                    vea=base[n] - dislikes.get(family, 0.0) - sd * noise[n],
                    control=base[n] + 0.1 * control[n],
                    statuses=scored,
                )
                for n in range(N_ITEMS)
            ]
    return rows


def headlines(
    dislikes: dict[Family, float], sd: float, label: str, n_models: int = 60
) -> dict[str, float]:
    document = analyse(reward_models(dislikes, sd, n_models, label), SETTINGS)
    counts = Counter(one["headline"] for one in document["reward_models"])
    shares = {name: n / n_models for name, n in counts.most_common()}
    print(f"{label}, SD {sd}: {shares}")
    return shares


ARMS = {
    "narrow": {ANCHOR: 1.5},
    "broad": {ANCHOR: 1.5, **dict.fromkeys(OTHERS, 1.5)},
    "null": {},
    "confounded": dict.fromkeys(FAMILIES, 1.5),
}


@pytest.mark.parametrize("truth", ARMS)
def test_quiet_reward_models_get_the_headline_that_is_true(truth):
    """Dislikes of three margins, or none, whose SD over prompts is below the margin."""
    assert headlines(ARMS[truth], 0.3, truth).get(truth, 0.0) >= 0.98


@pytest.mark.parametrize("truth", ["narrow", "broad", "null"])
def test_noisy_reward_models_are_undetermined_rather_than_wrong(truth):
    """With an SD of two margins hardly anything is shown. A wrong word is rare: a null reward model
    is called narrow where the anchor is found by chance, in 5 % at most."""
    shares = headlines(ARMS[truth], 1.0, truth)
    right = shares.get(truth, 0.0)
    assert 1 - right - shares.get("undetermined", 0.0) <= 0.06


def test_a_gate_on_its_margin_is_rarely_said_to_hold():
    """The neutral clause is disliked by exactly the gate's margin: 5 % hold, by construction."""
    document = analyse(reward_models({ANCHOR: 1.5, NEUTRAL: 0.75}, 0.6, 120, "gate"), SETTINGS)
    held = Counter(
        gate["holds"]
        for one in document["reward_models"]
        for gate in one["gates"]
        if gate["gate"] == NEUTRAL
    )
    share = shown("gate on its margin holds", held["holds"] / 120, 120)
    assert share <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 120)
    clear = headlines({ANCHOR: 1.5, DECOY: 1.5}, 0.6, "decoy minded like the anchor", 40)
    assert clear.get("confounded", 0.0) >= 0.97
