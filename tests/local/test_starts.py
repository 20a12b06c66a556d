"""Starts and the final codes: random factor and codes, refit."""

import numpy as np
import pytest
from scipy import sparse

from cofactor.data import synthetic
from cofactor.local.init import random_codes, random_factor
from cofactor.local.refit import refit
from cofactor.local.stats import for_codes


@pytest.fixture
def X():
    return synthetic.blocks(1, 80, features=40, rank=6, seed=2).Xs[0]


def test_random_factor_is_positive_with_unit_rows(rng):
    H = random_factor(5, 30, rng)
    assert H.shape == (5, 30)
    assert H.min() >= 0
    np.testing.assert_allclose(np.linalg.norm(H, axis=1), 1)


def test_random_codes_are_positive_and_scaled_to_the_data(X, rng):
    H = random_factor(6, 40, rng)
    for scale in (1e-6, 1.0, 1e6):
        W = random_codes(for_codes(scale * X, H), rng)
        assert W.min() > 0
        best = np.sum(scale * X * (W @ H)) / np.sum((W @ H) ** 2)
        assert best == pytest.approx(1)


def test_random_codes_of_zero_data_are_zero_and_of_zero_factor_finite(X, rng):
    H = random_factor(6, 40, rng)
    np.testing.assert_array_equal(random_codes(for_codes(0 * X, H), rng), 0)
    assert np.isfinite(random_codes(for_codes(X, 0 * H), rng)).all()


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.csc_matrix])
def test_refit_is_nnls_row_by_row(kind, X, rng, solve_nnls):
    H = random_factor(6, 40, rng) * (rng.uniform(size=(6, 40)) < 0.5)
    np.testing.assert_allclose(refit(kind(X), H), solve_nnls(X, H), atol=1e-4)


def test_refit_does_not_depend_on_the_scale_of_the_factor(X, rng):
    H = random_factor(6, 40, rng) * (rng.uniform(size=(6, 40)) < 0.5)
    scale = np.array([1e-3, 1, 10, 1e3, 1, 1])[:, None]
    np.testing.assert_allclose(refit(X, scale * H) @ (scale * H), refit(X, H) @ H, atol=1e-3)


def test_refit_of_zero_rows_and_zero_components_is_zero(X, rng):
    X, H = X.copy(), random_factor(6, 40, rng)
    X[3], H[2] = 0, 0
    W = refit(X, H)
    np.testing.assert_array_equal(W[3], 0)
    np.testing.assert_array_equal(W[:, 2], 0)


def test_refit_keeps_the_dtype_of_the_data(X, rng):
    H = random_factor(6, 40, rng)
    assert refit(X.astype(np.float32), H).dtype == np.float32
