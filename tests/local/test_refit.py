"""Codes for a final factor: exact also where components are nearly collinear, as cheap as before where they are not."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_wine

from cofactor.local import refit as module
from cofactor.local.columns import SomeColumns
from cofactor.local.refit import refit
from cofactor.local.stats import normalize


def error(X, W, H):
    return np.linalg.norm(X - W @ H)


@pytest.mark.parametrize("spread", [1e-3, 1e-4])
def test_rank_one_data_under_nearly_equal_components(spread, rng, solve_nnls):
    """Coordinate descent alone reported errors up to 18 times too high."""
    u = rng.uniform(size=(1, 40))
    H = normalize(u + spread * rng.uniform(size=(5, 40)))
    X = rng.uniform(size=(60, 1)) @ u
    assert error(X, refit(X, H), H) <= 1.001 * error(X, solve_nnls(X, H), H) + 1e-9 * np.linalg.norm(X)


@pytest.mark.parametrize("form", ["dense", "csr", "some columns"])
def test_single_precision_is_no_reason_for_codes_that_fit_nothing(form, solve_nnls):
    """Statistics of collinear components in single precision gave codes that were off by a factor of 12."""
    X = normalize(load_wine().data)
    drawn = np.random.default_rng(3)
    H = normalize(np.maximum(X[drawn.choice(len(X), 10, replace=False)] + 1e-4 * drawn.normal(size=(10, 13)), 0))
    X = X[:60]
    narrow = X.astype(np.float32)
    data = sparse.csr_matrix(narrow) if form == "csr" else narrow
    data = SomeColumns(narrow, np.arange(13), 13) if form == "some columns" else data
    W = refit(data, H.astype(np.float32))
    assert W.dtype == np.float32
    assert error(X, W.astype(np.float64), H) <= 1.05 * error(X, solve_nnls(X, H), H) + 1e-5 * np.linalg.norm(X)


def test_nearly_as_many_components_as_features(rng, solve_nnls):
    H, X = normalize(rng.uniform(size=(100, 120))), rng.uniform(size=(80, 120))
    assert error(X, refit(X, H), H) <= 1.001 * error(X, solve_nnls(X, H), H)


def test_ordinary_factors_need_no_pivoting(rng, monkeypatch):
    def refuse(*_):
        raise AssertionError("pivoting was asked for")

    monkeypatch.setattr(module.bpp, "solve", refuse)
    H = normalize(rng.gamma(0.3, size=(20, 300)))
    X = rng.gamma(0.5, size=(500, 20)) @ H + 0.01 * rng.uniform(size=(500, 300))
    for dtype in (np.float64, np.float32):
        assert np.isfinite(refit(X.astype(dtype), H.astype(dtype))).all()


def test_zero_rows_and_zero_components_have_zero_codes(rng):
    H = normalize(rng.uniform(size=(3, 12)))
    H[1] = 0
    X = rng.uniform(size=(4, 12))
    X[2] = 0
    W = refit(X, H)
    assert not W[2].any()
    assert not W[:, 1].any()
    assert np.isfinite(W).all()
