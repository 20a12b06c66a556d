"""Laws of every alignment: a permuted copy is undone, and each kind of plan is what its name says."""

import numpy as np
import ot
import pytest
from scipy.optimize import linear_sum_assignment

from cofactor import metrics
from cofactor.combine import align

ALL = align.catalog()
PERMUTATIONS = ["lap", "lap_rho", "knn"]


@pytest.fixture
def factor(rng):
    H = rng.uniform(size=(6, 40))
    return H / np.linalg.norm(H, axis=1, keepdims=True)


@pytest.fixture
def order():
    return np.array([3, 0, 5, 1, 4, 2])


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_permuted_copy_is_undone(name, dtype, factor, order):
    H = factor.astype(dtype)
    plan = ALL[name](H[order], H)
    np.testing.assert_allclose(plan @ H, H[order], atol=1e-6)
    assert align.drift(H[order], H, ALL[name]) < 1e-5


@pytest.mark.parametrize("name", PERMUTATIONS)
def test_hard_plan_of_a_permuted_copy_is_the_permutation(name, factor, order):
    np.testing.assert_array_equal(ALL[name](factor[order], factor), np.eye(6)[order])
    assert align.drift(factor[order], factor) == 0


@pytest.mark.parametrize("name", ALL)
def test_noise_does_not_change_the_partners(name, factor, order, rng):
    noisy = factor[order] + 0.02 * rng.uniform(size=factor.shape)
    np.testing.assert_array_equal(ALL[name](noisy, factor).argmax(axis=1), order)


@pytest.mark.parametrize("name", ALL)
def test_plans_are_nonnegative_and_rows_sum_to_one_or_zero(name, factor, rng):
    for reference in (rng.uniform(size=(6, 40)), factor + 0.05 * rng.uniform(size=(6, 40)), np.zeros((6, 40))):
        plan = ALL[name](factor, reference)
        sums = plan.sum(axis=1)
        assert plan.min() >= 0
        assert np.all(np.isclose(sums, 1) | (sums == 0))
        np.testing.assert_array_equal(align.partners(plan), sums > 0)
        if name in ("lap", "sinkhorn", "knn"):
            np.testing.assert_allclose(sums, 1)


def test_lap_is_a_permutation_with_the_least_cost(rng):
    A, B = rng.uniform(size=(5, 9)), rng.uniform(size=(5, 9))
    plan = align.Lap()(A, B)
    assert metrics.orthogonality_gap(plan) == 0
    distance = np.linalg.norm(A - plan @ B)
    for _ in range(200):
        assert distance <= np.linalg.norm(A - B[rng.permutation(5)]) + 1e-12


def test_lap_rho_is_a_partial_permutation(rng):
    H = rng.uniform(size=(6, 60))
    reference = np.vstack([H[[4, 1, 0]], rng.uniform(size=(3, 60))])
    plan = align.LapRho()(H, reference)
    assert set(np.unique(plan)) <= {0, 1}
    assert plan.sum(axis=0).max() == plan.sum(axis=1).max() == 1
    np.testing.assert_array_equal(np.argwhere(plan), [[0, 2], [1, 1], [4, 0]])


@pytest.mark.parametrize("m", [20, 100])
def test_independent_rows_rarely_find_a_partner(m, rng):
    """Bonferroni over k^2 pairs: a false match in at most 5 % of all comparisons (10 % leaves room for chance)."""
    draws = [align.LapRho()(rng.normal(size=(8, m)), rng.normal(size=(8, m))).any() for _ in range(300)]
    assert np.mean(draws) < 0.10


def test_admissible_pairs_follow_the_fisher_test():
    """k = 1, m = 103: r is significant at 5 % one-sided from tanh(1.645 / 10) = .163."""
    x, e = np.linalg.qr(np.random.default_rng(1).normal(size=(103, 3)) * [1, 1, 0] + [0, 0, 1])[0].T[:2]
    x, e = (v - v.mean() for v in (x, e))
    e -= x * (e @ x) / (x @ x)
    x, e = x / np.linalg.norm(x), e / np.linalg.norm(e)
    for r, expected in ((0.15, False), (0.18, True), (-0.9, False)):
        y = r * x + np.sqrt(1 - r * r) * e
        assert align.correlation(x[None], y[None])[0, 0] == pytest.approx(r)
        assert align.admissible(x[None], y[None])[0, 0] == expected


def test_correlation_is_pearsons_and_zero_for_constant_rows(rng):
    A, B = rng.uniform(size=(3, 20)), rng.uniform(size=(4, 20))
    np.testing.assert_allclose(align.correlation(A, B), np.corrcoef(A, B)[:3, 3:])
    constant = np.outer([0.1, 1 / 3, 0.7, 0.0], np.ones(20))
    np.testing.assert_array_equal(align.correlation(constant, np.vstack([constant, A])), 0)
    assert not align.admissible(constant, constant).any()


@pytest.mark.parametrize("noise", [0.02, 0.2])
def test_sinkhorn_is_pots_plan(noise, factor, order, rng):
    H = factor[order] + noise * rng.uniform(size=factor.shape)
    table = 0.5 * ot.dist(H, factor, "sqeuclidean")
    uniform = np.full(6, 1 / 6)
    way = {"method": "sinkhorn_log", "numItermax": 3000, "stopThr": 1e-9, "warn": False}
    expected = 6 * ot.sinkhorn(uniform, uniform, table, 0.01 * table.mean(), **way)
    np.testing.assert_allclose(align.Sinkhorn()(H, factor), expected, atol=1e-3)


@pytest.mark.parametrize("far", [3, 40, 1e3, 1e6])
def test_sinkhorn_is_pots_plan_for_costs_of_any_range(far, factor, order):
    """Components that lie far from all others: exponentials vanish, and the plan is found in the log domain."""
    H, reference = factor[order] + 0.01, factor.copy()
    H[0], reference[order[0]] = far * H[0], 1.1 * far * H[0]
    table = 0.5 * ot.dist(H, reference, "sqeuclidean")
    way = {"method": "sinkhorn_log", "numItermax": 300, "stopThr": 1e-6, "warn": False}
    expected = ot.sinkhorn([], [], table, 0.01 * table.mean(), **way)
    expected = expected / expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(align.Sinkhorn()(H, reference), expected, atol=1e-3)


def test_sinkhorn_entropy_is_at_most_three_percent(factor, rng):
    other = rng.uniform(size=factor.shape)
    np.testing.assert_array_equal(align.Sinkhorn(0.5)(factor, other), align.Sinkhorn(0.03)(factor, other))
    assert not np.array_equal(align.Sinkhorn(0.01)(factor, other), align.Sinkhorn(0.03)(factor, other))


def test_sinkhorn_rho_uses_admissible_pairs_only(rng):
    H = rng.uniform(size=(6, 60))
    reference = np.vstack([H[[4, 1, 0]], rng.uniform(size=(3, 60))])
    plan = align.SinkhornRho()(H, reference)
    assert not plan[~align.admissible(H, reference)].any()
    np.testing.assert_array_equal(align.partners(plan), [True, True, False, False, True, False])
    assert not align.SinkhornRho()(H, rng.permuted(np.roll(H[::-1], 7, axis=1), axis=1)).any()


@pytest.mark.parametrize("neighbours", [1, 2, 3, 9])
def test_knn_averages_the_nearest_rows(neighbours, factor, rng):
    H = rng.uniform(size=(4, 40))
    plan = align.Knn(neighbours)(H, factor)
    q = min(neighbours, 6)
    distances = np.linalg.norm(H[:, None] - factor[None], axis=2)
    for row, distance in zip(plan, distances):
        np.testing.assert_array_equal(np.flatnonzero(row), np.sort(np.argsort(distance)[:q]))
        np.testing.assert_allclose(row[row > 0], 1 / q)


def test_pull_moves_matched_rows_by_gamma_and_leaves_the_others(factor, order):
    plan = np.eye(6)[order]
    plan[2] = 0
    H = factor + 0.1
    pulled = align.pull(H, factor, plan, 0.25)
    np.testing.assert_allclose(np.delete(pulled, 2, axis=0), np.delete((H + 0.25 * factor[order]) / 1.25, 2, axis=0))
    np.testing.assert_allclose(pulled[2], H[2])


@pytest.mark.parametrize("name", ALL)
def test_ranks_may_differ(name, factor):
    small, large = ALL[name](factor[:4], factor), ALL[name](factor, factor[:4])
    assert small.shape == (4, 6)
    assert large.shape == (6, 4)
    np.testing.assert_array_equal(ALL[name](factor[:4], factor)[:, :4].argmax(axis=1), np.arange(4))


@pytest.mark.parametrize("name", ALL)
def test_what_a_plan_carries_is_its_product(name, factor, order, rng):
    reference = factor[order][:5] + 0.1 * rng.random((5, 40))
    plan = ALL[name](factor, reference)
    np.testing.assert_allclose(align.carried(plan, reference), plan @ reference, atol=1e-15)


@pytest.mark.parametrize("shape", [(2, 2), (4, 2), (3, 4), (4, 4), (7, 7), (6, 9), (9, 6)])
def test_the_assignment_of_least_cost_is_that_of_scipy(rng, shape):
    """Also where the nearest partners or all permutations answer before scipy is asked."""
    for H, reference in ((rng.uniform(size=(n, 20)) for n in shape) for _ in range(20)):
        plan = align.Lap()(H, reference)
        rows, columns = linear_sum_assignment(align.cost(H, reference))
        np.testing.assert_array_equal(np.argwhere(plan), np.stack([rows, columns], 1))
