"""The arithmetic of the baselines against closed forms and hand-computed numbers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from eps_locked.errors import EvidenceError, MalformedInputError, StatsInputError
from eps_locked.studies.eps.baselines.arrays import array_bytes, read_array
from eps_locked.studies.eps.baselines.measures import (
    gaussian_kl,
    ngram_distance,
    one_cycle,
    persona_vector,
    projection,
    shrunk_covariance,
    symmetric_gaussian_kl,
    unit,
)


def rng(number: int = 0) -> np.random.Generator:
    return np.random.default_rng(number)


def cloud(n: int, d: int, number: int, shift: float = 0.0) -> np.ndarray:
    points = rng(number).normal(size=(n, d))
    points[:, 0] += shift
    return points


# --- KL of two normal distributions


def test_gaussian_kl_in_one_dimension_is_the_textbook_number() -> None:
    """KL(N(0, 1) || N(1, 4)) = ln 2 + (1 + 1) / 8 - 1/2."""
    kl = gaussian_kl(np.zeros(1), np.eye(1), np.ones(1), 4 * np.eye(1))
    assert kl == pytest.approx(np.log(2) + 2 / 8 - 0.5, abs=1e-14)


def test_gaussian_kl_agrees_with_numerical_integration() -> None:
    p, q = stats.norm(0.3, 1.1), stats.norm(-0.4, 0.7)
    by_hand, _ = integrate.quad(lambda x: p.pdf(x) * (p.logpdf(x) - q.logpdf(x)), -12, 12)
    kl = gaussian_kl(np.array([0.3]), np.array([[1.21]]), np.array([-0.4]), np.array([[0.49]]))
    assert kl == pytest.approx(by_hand, rel=1e-9)


def test_gaussian_kl_agrees_with_scipys_densities_in_five_dimensions() -> None:
    """KL = E_p[ln p - ln q], whose quadratic part scipy's exact entropy and moments give."""
    g = rng(1)
    a, b = g.normal(size=(5, 5)), g.normal(size=(5, 5))
    cov_p, cov_q = a @ a.T + np.eye(5), b @ b.T + np.eye(5)
    mean_p, mean_q = g.normal(size=5), g.normal(size=5)
    p, q = stats.multivariate_normal(mean_p, cov_p), stats.multivariate_normal(mean_q, cov_q)
    # E_p[ln q] is ln q at p's mean, less half the trace of the curvature.
    cross = q.logpdf(mean_p) - np.trace(np.linalg.inv(cov_q) @ cov_p) / 2
    assert gaussian_kl(mean_p, cov_p, mean_q, cov_q) == pytest.approx(
        -p.entropy() - cross, rel=1e-10
    )


def test_gaussian_kl_agrees_with_a_sample_mean_of_log_ratios() -> None:
    p = stats.multivariate_normal([0, 0], [[1, 0.5], [0.5, 2]])
    q = stats.multivariate_normal([1, -1], [[2, 0], [0, 1]])
    draws = p.rvs(size=200_000, random_state=rng(2))
    ratios = p.logpdf(draws) - q.logpdf(draws)
    kl = gaussian_kl(p.mean, p.cov, q.mean, q.cov)
    assert kl == pytest.approx(ratios.mean(), abs=4 * ratios.std() / np.sqrt(len(ratios)))


# --- the distance of two clouds


def test_two_clouds_on_one_line_have_the_distance_computed_by_hand() -> None:
    """Points -1, 1 and 3, 5 on a line: one axis, both variances 2, means 4 apart.

    Shrinking towards the common variance changes nothing, so KL = 4^2 / (2 * 2) = 4 both ways.
    """
    one, two = np.array([[-1.0, 0], [1, 0]]), np.array([[3.0, 0], [5, 0]])
    kl = symmetric_gaussian_kl(one, two, n_components=1, shrinkage=0.3)
    assert kl == pytest.approx(4.0, rel=1e-12)


def test_unequal_spreads_are_shrunk_and_symmetrised_by_hand() -> None:
    """Variances 2 and 8, common 5; with half shrinkage 3.5 and 6.5; means 0 and 6."""
    one, two = np.array([[-1.0], [1]]), np.array([[4.0], [8]])
    p, q, gap = 3.5, 6.5, 6.0
    there = (p / q + gap**2 / q - 1 + np.log(q / p)) / 2
    back = (q / p + gap**2 / p - 1 + np.log(p / q)) / 2
    kl = symmetric_gaussian_kl(one, two, n_components=1, shrinkage=0.5)
    assert kl == pytest.approx((there + back) / 2, rel=1e-12)


def test_with_all_axes_the_projection_changes_nothing() -> None:
    """In as many axes as the data has, the distance is that of the unprojected Gaussians."""
    one, two, shrinkage = cloud(40, 3, 3), cloud(40, 3, 4, shift=1.5), 0.1
    covs = [np.cov(points.T) for points in (one, two)]
    variance = (np.trace(covs[0]) + np.trace(covs[1])) / 6
    p, q = (shrunk_covariance(cov, shrinkage, variance) for cov in covs)
    means = one.mean(0), two.mean(0)
    by_hand = (gaussian_kl(means[0], p, means[1], q) + gaussian_kl(means[1], q, means[0], p)) / 2
    kl = symmetric_gaussian_kl(one, two, n_components=3, shrinkage=shrinkage)
    assert kl == pytest.approx(by_hand, rel=1e-10)


def test_equal_clouds_are_at_distance_exactly_zero() -> None:
    one = cloud(6, 50, 5)
    assert symmetric_gaussian_kl(one, one.copy(), n_components=4, shrinkage=0.2) == 0.0


def test_the_distance_does_not_depend_on_the_order_of_clouds_or_points() -> None:
    one, two = cloud(8, 30, 6), cloud(8, 30, 7, shift=2)
    kl = symmetric_gaussian_kl(one, two, n_components=5, shrinkage=0.2)
    assert symmetric_gaussian_kl(two, one, n_components=5, shrinkage=0.2) == pytest.approx(kl)
    assert symmetric_gaussian_kl(one[::-1], two, n_components=5, shrinkage=0.2) == pytest.approx(kl)


def test_a_rotation_of_the_whole_space_changes_nothing() -> None:
    one, two = cloud(8, 12, 8), cloud(8, 12, 9, shift=2)
    turn = np.linalg.qr(rng(10).normal(size=(12, 12)))[0]
    plain = symmetric_gaussian_kl(one, two, n_components=5, shrinkage=0.2)
    turned = symmetric_gaussian_kl(one @ turn, two @ turn, n_components=5, shrinkage=0.2)
    assert turned == pytest.approx(plain, rel=1e-9)


def test_farther_clouds_are_farther() -> None:
    one = cloud(12, 40, 11)
    near, far = (
        symmetric_gaussian_kl(one, cloud(12, 40, 12, shift=s), n_components=6, shrinkage=0.2)
        for s in (1.0, 10.0)
    )
    assert far > near > 0


@pytest.mark.parametrize("n", [2, 3])
def test_few_points_in_many_dimensions_stay_finite(n: int) -> None:
    """More axes than points: without shrinkage the covariance would have no inverse."""
    one, two = cloud(n, 500, 13), cloud(n, 500, 14, shift=3)
    kl = symmetric_gaussian_kl(one, two, n_components=16, shrinkage=0.05)
    assert np.isfinite(kl)
    assert kl > 0


def test_clouds_without_spread_of_their_own_take_the_pooled_variance() -> None:
    """All points 0 in one cloud, all 2 in the other: the pooled cloud has variance 8/7."""
    one, two = np.zeros((4, 3)), np.zeros((4, 3))
    two[:, 0] = 2.0
    kl = symmetric_gaussian_kl(one, two, n_components=2, shrinkage=0.5)
    assert kl == pytest.approx(4 / (2 * 0.5 * 8 / 7), rel=1e-12)


def test_all_points_in_one_place_are_at_distance_zero() -> None:
    assert symmetric_gaussian_kl(np.ones((2, 3)), np.ones((3, 3)), n_components=2, shrinkage=1) == 0


@pytest.mark.parametrize(
    ("one", "two", "components", "shrinkage"),
    [
        (np.zeros((1, 3)), np.zeros((4, 3)), 1, 0.5),
        (np.zeros((4, 3)), np.zeros((4, 2)), 1, 0.5),
        (np.full((4, 3), np.nan), np.zeros((4, 3)), 1, 0.5),
        (np.zeros((4, 3)), np.ones((4, 3)), 0, 0.5),
        (np.zeros((4, 3)), np.ones((4, 3)), 1, 0.0),
        (np.zeros(4), np.ones((4, 3)), 1, 0.5),
    ],
)
def test_clouds_without_a_distance_are_refused(
    one: np.ndarray, two: np.ndarray, components: int, shrinkage: float
) -> None:
    with pytest.raises(StatsInputError):
        symmetric_gaussian_kl(one, two, n_components=components, shrinkage=shrinkage)


# --- directions


def test_a_persona_vector_is_the_difference_of_the_sides_means() -> None:
    vector = persona_vector(np.array([[1.0, 0], [3, 0]]), np.array([[0.0, 4], [0, 6]]))
    np.testing.assert_array_equal(vector, [2.0, -5.0])


def test_a_planted_direction_is_recovered_and_the_projection_says_how_far() -> None:
    """Positives lie 3 units along a direction, training answers 1.5 along it, others beside it."""
    g, d = rng(20), 64
    direction = unit(g.normal(size=d), "planted")
    negative = g.normal(scale=0.05, size=(400, d))
    positive = g.normal(scale=0.05, size=(400, d)) + 3 * direction
    vector = persona_vector(positive, negative)
    assert float(unit(vector, "found") @ direction) > 0.999
    beside = g.normal(size=d)
    beside -= (beside @ direction) * direction
    along = g.normal(scale=0.05, size=(50, d)) + 1.5 * direction
    across = g.normal(scale=0.05, size=(50, d)) + 1.5 * unit(beside, "beside")
    # Half of the rows are negatives and count as 0.
    assert projection(along, vector, 0.5, "v") == pytest.approx(0.75, abs=0.02)
    assert projection(across, vector, 0.5, "v") == pytest.approx(0.0, abs=0.02)
    assert projection(-along, vector, 0.5, "v") == pytest.approx(-0.75, abs=0.02)


def test_the_length_of_a_vector_does_not_change_a_projection() -> None:
    rows, vector = cloud(5, 8, 21), rng(22).normal(size=8)
    assert projection(rows, 7 * vector, 1.0, "v") == pytest.approx(
        projection(rows, vector, 1.0, "v")
    )


def test_a_vector_of_zero_length_has_no_direction() -> None:
    with pytest.raises(StatsInputError, match="not zero"):
        unit(np.zeros(4), "vector of marker")


# --- content-free


def test_ngram_distance_is_computed_by_hand() -> None:
    """abcd: abc bcd; bcde: bcd cde; one of three shared."""
    assert ngram_distance("abcd", "bcde", 3) == pytest.approx(2 / 3)


@pytest.mark.parametrize("text", ["", "a", "the same text"])
def test_equal_texts_are_at_ngram_distance_zero(text: str) -> None:
    assert ngram_distance(text, text, 3) == 0


def test_texts_without_a_common_gram_are_at_distance_one() -> None:
    assert ngram_distance("aaaa", "bbbb", 3) == 1
    assert ngram_distance("", "bbbb", 3) == 1


@pytest.mark.parametrize("seed", range(20))
def test_one_cycle_moves_every_name_within_its_group(seed: int) -> None:
    groups = (("a", "b", "c", "d"), ("p", "q", "r"), ("z",))
    moved = one_cycle(groups, seed, "label")
    assert all(moved[name] != name for name in "abcdpqr")
    assert moved["z"] == "z"
    for group in groups:
        assert sorted(moved[name] for name in group) == list(group)


def test_one_cycle_follows_its_seed_and_reaches_every_cycle() -> None:
    found = {tuple(one_cycle([("a", "b", "c", "d")], seed, "l").values()) for seed in range(200)}
    assert len(found) == 6  # (4 - 1)! cycles
    assert one_cycle([("a", "b", "c")], 5, "l") == one_cycle([("a", "b", "c")], 5, "l")


# --- arrays on disk


def test_an_array_comes_back_as_it_was_rounded() -> None:
    values = rng(30).normal(size=(3, 5))
    data = array_bytes(values)
    np.testing.assert_array_equal(read_array(data, "a", (3, 5)), values.astype("<f4"))
    assert array_bytes(read_array(data, "a", (3, 5))) == data


def test_numpys_own_reader_reads_the_file(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "a.npy"
    path.write_bytes(array_bytes([[1.5, 2.5]]))
    np.testing.assert_array_equal(np.load(path), np.array([[1.5, 2.5]], dtype="float32"))


@pytest.mark.parametrize("wrong", ["shape", "cut", "longer", "header", "nan", "pickle", "zip"])
def test_an_array_file_that_is_not_as_written_is_refused(wrong: str) -> None:
    data = array_bytes(np.ones((2, 3)))
    if wrong == "shape":
        data = array_bytes(np.ones((3, 2)))
    elif wrong == "cut":
        data = data[:-4]
    elif wrong == "longer":
        data = data + b"\0\0\0\0"
    elif wrong == "header":
        data = data.replace(b"<f4", b">f4")
    elif wrong == "nan":
        data = data[:-4] + np.array([np.nan], dtype="<f4").tobytes()
    elif wrong == "pickle":
        data = data.replace(b"<f4'", b"|O' ")
    else:
        data = b"PK\x03\x04" + data[4:]
    with pytest.raises(EvidenceError):
        read_array(data, "array", (2, 3))


def test_an_array_with_a_nan_is_not_written() -> None:
    with pytest.raises(MalformedInputError, match="finite"):
        array_bytes([1.0, float("nan")])
