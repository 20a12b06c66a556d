"""Implicit feedback: both halves equal dense weighted least squares, and nothing of size n x m is needed for it."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse

from cofactor import ratings, run
from cofactor.methods import catalog
from cofactor.ratings import Layout
from cofactor.types import CofactorError

EVERY = pytest.mark.parametrize("name", catalog.names("ratings"))
LAYOUT = Layout(3, biases=False, ridge=0.7, alpha=4.0)


@pytest.fixture(scope="module")
def R():
    """Counts of 40 users and 15 items in two groups of taste; user 3 and item 5 have none, and one count is 0."""
    draw = np.random.default_rng(0)
    alike = (np.arange(40) % 2)[:, None] == np.arange(15) % 2
    counts = draw.poisson(np.where(alike, 1.2, 0.1))
    counts[3], counts[:, 5] = 0, 0
    X = sparse.csr_matrix(counts.astype(float))
    X.data[0] = 0
    return X


@pytest.fixture(scope="module")
def dense(R):
    """Confidence and preference of every cell."""
    X = R.toarray()
    return 1 + LAYOUT.alpha * X, (X > 0).astype(float)


def weighted(F, c, p):
    return np.linalg.solve(F.T @ (c[:, None] * F) + LAYOUT.ridge * np.eye(3), F.T @ (c * p))


def objective(dense, W, H):
    C, P = dense
    return 0.5 * np.sum(C * (P - W @ H) ** 2) + 0.5 * LAYOUT.ridge * (np.sum(W**2) + np.sum(H**2))


def test_codes_are_each_rows_weighted_regression_over_all_cells(R, dense, rng):
    H = rng.normal(size=(3, 15))
    expected = [weighted(H.T, c, p) for c, p in zip(*dense)]
    W = ratings.solve_codes(R, H, LAYOUT)
    np.testing.assert_allclose(W, expected, atol=1e-10)
    np.testing.assert_array_equal(W[3], 0)


def test_one_round_of_als_is_a_weighted_regression_of_every_item(R, dense):
    method = catalog.make("exact-als", 3, ridge=0.7, alpha=4.0)
    for parts in ([R], [R[:10], R[10:11], R[11:]], [R[u] for u in range(40)]):
        before, after = (run(method, parts, rounds=r) for r in (4, 5))
        W = np.vstack(before.codes)
        np.testing.assert_allclose(after.factor.T, [weighted(W, c, p) for c, p in zip(dense[0].T, dense[1].T)])
        assert after.history[-1].loss == pytest.approx(objective(dense, W, after.factor))


def test_losses_are_those_of_all_cells(R, dense, rng):
    W, H = rng.normal(size=(40, 3)), rng.normal(size=(3, 15))
    expected = np.sum(dense[0] * (dense[1] - W @ H) ** 2, axis=1)
    np.testing.assert_allclose(ratings.losses(R, W, H, LAYOUT), expected)


def test_pulls_are_the_gradient_over_all_cells(R, dense, rng):
    W, H = rng.normal(size=(40, 3)), rng.normal(size=(3, 15))
    pull = ratings.pulls(R, W, H, LAYOUT)
    np.testing.assert_allclose(pull[:, :-1], (dense[0] * (dense[1] - W @ H)).T @ W, atol=1e-10)
    np.testing.assert_allclose(pull[:, -1], dense[0].T @ np.sum(W**2, axis=1))


def test_als_never_rises_and_fedmavg_comes_near_it(R):
    als, mavg = (run(catalog.make(n, 3, ridge=0.7, alpha=4.0), [R], rounds=400) for n in catalog.names("ratings"))
    losses = [line.loss for line in als.history]
    assert max(b - a for a, b in pairwise(losses)) <= 1e-10 * losses[0]
    assert mavg.history[-1].loss <= 1.02 * losses[-1]


@EVERY
def test_clients_that_are_absent_now_and_then_change_little(name, R):
    method = catalog.make(name, 3, ridge=0.7, alpha=4.0)
    full, part = (run(method, [R[u] for u in range(40)], rounds=300, participation=p) for p in (1.0, 0.5))
    a, b = (0.5 * ratings.losses(R, np.vstack(o.codes), o.factor, LAYOUT).sum() for o in (full, part))
    assert b <= 1.1 * a


@pytest.mark.parametrize("alpha", [0, -1.0, np.inf])
def test_wrong_options_are_named(alpha):
    with pytest.raises(CofactorError, match="alpha must be a number > 0"):
        catalog.make("exact-als", 2, alpha=alpha)
    with pytest.raises(CofactorError, match=r"implicit feedback \(alpha\) has none"):
        catalog.make("exact-als", 2, alpha=1.0, biases=True)
