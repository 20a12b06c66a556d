"""Beta-divergences: against scikit-learn, dense against sparse, and steps that never raise them."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.decomposition._nmf import _beta_divergence

from cofactor.local import divergence

BETAS = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0]


@pytest.fixture
def counts():
    draw = np.random.default_rng(0)
    X = draw.poisson(draw.gamma(0.5, size=(40, 3)) @ draw.gamma(0.5, size=(3, 17)) * 4).astype(float)
    return X, draw.uniform(0.1, 1, (40, 3)), draw.uniform(0.1, 1, (3, 17))


@pytest.mark.parametrize("beta", BETAS)
def test_the_divergence_is_that_of_scikit_learn(counts, beta):
    X, W, H = counts
    X = X + 0.1 if beta < 1 else X
    assert divergence.divergence(X, W @ H, beta) == pytest.approx(_beta_divergence(X, W, H, beta), rel=1e-12)
    assert divergence.for_factor(X, W, H, beta).loss == pytest.approx(_beta_divergence(X, W, H, beta), rel=1e-12)


@pytest.mark.parametrize("beta", [1.0, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("form", [sparse.csr_matrix, sparse.csc_matrix, sparse.csr_array])
def test_sparse_is_dense(counts, beta, form):
    X, W, H = counts
    for a, b in zip(divergence.for_factor(form(X), W, H, beta), divergence.for_factor(X, W, H, beta), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    for a, b in zip(divergence.for_codes(form(X), W, H, beta), divergence.for_codes(X, W, H, beta), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize("beta", [1.0, 1.5])
def test_blocks_of_rows_add_up(counts, beta, monkeypatch):
    X, W, H = counts
    whole = divergence.for_factor(X, W, H, beta), divergence.for_codes(X, W, H, beta)
    monkeypatch.setattr(divergence.arrays, "BLOCK_CELLS", 40)
    for a, b in zip(divergence.for_factor(X, W, H, beta), whole[0], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    for a, b in zip(divergence.for_codes(X, W, H, beta), whole[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize("beta", BETAS)
def test_a_step_never_raises_it(counts, beta):
    X, W, H = counts
    X = X + 0.1 if beta < 1 else X
    losses = []
    for _ in range(20):
        losses.append(divergence.for_factor(X, W, H, beta).loss)
        W = divergence.move_codes(X, W, H, beta)
    assert (np.diff(losses) <= 1e-12 * losses[0]).all()


@pytest.mark.parametrize("beta", [1.0, 2.0])
def test_codes_are_solved(counts, beta):
    """No small change of the codes lowers the divergence: the slope is 0 where codes are above 0, else not below."""
    X, _, H = counts
    W = divergence.solve_codes(X, H, beta, sweeps=20000, tol=1e-12)
    up, down = divergence.for_codes(X, W, H, beta)
    slope = down - up
    scale = np.abs(up).max()
    assert np.abs(slope * (W > 1e-6)).max() < 1e-3 * scale
    assert slope.min() > -1e-3 * scale


def test_single_precision_stays(counts):
    X, W, H = (a.astype(np.float32) for a in counts)
    for form in (np.asarray, sparse.csr_matrix):
        assert divergence.move_codes(form(X), W, H, 1.0).dtype == np.float32
        assert divergence.move_codes(form(X), W, H, 1.5).dtype == np.float32


def test_zero_rows_and_zero_factors(counts):
    X, _, H = counts
    X[3], H[1] = 0, 0
    W = divergence.solve_codes(X, H, 1.0)
    assert np.isfinite(W).all()
    np.testing.assert_array_equal(W[3], 0)
    assert np.isfinite(divergence.for_factor(X, W, H, 1.0).loss)
