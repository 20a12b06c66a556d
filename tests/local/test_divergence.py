"""Beta-divergences: against scikit-learn, dense against sparse, and steps that never raise them."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.decomposition import non_negative_factorization
from sklearn.decomposition._nmf import _beta_divergence

from cofactor.local import divergence, threads
from cofactor.local.penalties import Penalty
from cofactor.local.weighted import Weighted

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


@pytest.mark.parametrize("penalty", [Penalty(), Penalty(0.3), Penalty(0.1, 0.2)])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix, "gaps", "weights"])
def test_codes_are_solved(counts, form, penalty):
    """No change of the codes lowers Kullback-Leibler: the slope is 0 where they are above 0, else not below."""
    X, _, H = counts
    X[1], X[2, 1:] = 0, 0
    rng = np.random.default_rng(5)
    if form == "gaps":
        data = np.where(rng.random(X.shape) < 0.2, np.nan, X)
    else:
        data = Weighted(X, rng.uniform(0, 2, X.shape)) if form == "weights" else form(X)
    gaps = form in ("gaps", "weights")
    W = divergence.solve_codes(data, H, 1.0, penalty, gaps=gaps)
    up, down = divergence.for_codes(data, W, H, 1.0, gaps=gaps)
    slope, scale = down + penalty.slope(W) - up, np.abs(up).max()
    assert np.abs(slope * (W > 0)).max() < 1e-6 * scale
    assert slope.min() > -1e-6 * scale
    np.testing.assert_array_equal(W[1], 0)


@pytest.mark.parametrize("beta", [0.5, 1.5, 2.0, 3.0])
def test_codes_of_other_divergences_are_nearly_solved(counts, beta):
    X, _, H = counts
    X = X @ np.diag(H.max(axis=0)) + 0.1
    W = divergence.solve_codes(X, H, beta)
    found = divergence.for_factor(X, W, H, beta).loss
    for _ in range(3000):
        W = divergence.move_codes(X, W, H, beta)
    assert found <= divergence.for_factor(X, W, H, beta).loss * (1 + 1e-3)


def test_codes_are_those_of_scikit_learn(counts):
    """Where the best code is 0, it is 0."""
    X, _, H = counts
    W = divergence.solve_codes(X, H, 1.0)
    far = {"beta_loss": "kullback-leibler", "solver": "mu", "max_iter": 20000, "tol": 1e-12}
    theirs = non_negative_factorization(X, H=H, n_components=len(H), init="custom", update_H=False, **far)[0]
    np.testing.assert_allclose(W, theirs, atol=1e-3 * W.max())
    assert (W == 0).any()
    assert divergence.for_factor(X, W, H, 1.0).loss <= divergence.for_factor(X, theirs, H, 1.0).loss * (1 + 1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_codes_of_a_row_do_not_depend_on_others_or_on_threads(counts, dtype):
    X, H = counts[0].astype(dtype), counts[2].astype(dtype)
    W = divergence.solve_codes(X, H, 1.0)
    assert W.dtype == dtype
    near = {"rtol": 100 * np.finfo(dtype).eps, "atol": 0}
    np.testing.assert_allclose(divergence.solve_codes(X[4:5], H, 1.0), W[4:5], **near)
    with threads.lend(2):
        many = divergence.solve_codes(np.tile(X, (500, 1)), H, 1.0)
    np.testing.assert_allclose(many[-len(X) :], W, **near)


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
