"""Products of dense matrices with thin ones against those of numpy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cofactor.local import arrays, threads
from cofactor.local.kernels import dense_products, lines, thin
from cofactor.local.threads import lend


def made(n, m, k, dtype, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=side).astype(dtype) for side in ((n, m), (k, m), (n, k))]


@settings(max_examples=40, deadline=None)
@given(
    st.tuples(st.integers(4, 300), st.integers(64, 400), st.integers(1, 40)),
    st.sampled_from([np.float32, np.float64]),
    st.integers(0, 9),
)
def test_equal_to_numpy(sides, dtype, seed):
    X, H, W = made(*sides, dtype, seed)
    close = {"rtol": 0, "atol": 2e-4 if dtype == np.float32 else 1e-12}
    np.testing.assert_allclose(thin.times_factor(X, H), X @ H.T, **close)
    np.testing.assert_allclose(thin.transpose_times_codes(X, W), W.T @ X, **close)


def test_a_factor_in_panels(monkeypatch):
    """One that does not stay in cache is multiplied a panel of columns at a time; the last one is a little longer."""
    X, H, _ = made(50, 3 * 64 + 7, 9, np.float64)
    monkeypatch.setattr(thin, "PANEL", 1)
    np.testing.assert_allclose(thin.times_factor(X, H), X @ H.T, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_threads_change_no_bit(dtype, monkeypatch):
    X, H, W = made(203, 333, 13, dtype)
    monkeypatch.setattr(threads, "WORTH", 1)
    alone = thin.times_factor(X, H), thin.transpose_times_codes(X, W)
    for count in (2, 3, 7):
        with lend(count):
            np.testing.assert_array_equal(thin.times_factor(X, H), alone[0])
            np.testing.assert_array_equal(thin.transpose_times_codes(X, W), alone[1])


@pytest.mark.parametrize("turn", [np.asfortranarray, lambda X: X[:, ::2], lambda X: X.astype(np.float32)])
def test_other_orders_and_types(turn, monkeypatch):
    """Columns one after the other are multiplied the other way round; BLAS has what lies apart or has another type."""
    monkeypatch.setattr(dense_products, "LEAST", 1)
    monkeypatch.setattr(lines, "has_long_vectors", lambda: True)
    X, H, W = made(40, 200, 5, np.float64)
    X, H = turn(X), H[:, :100] if turn(X).shape[1] == 100 else H
    np.testing.assert_allclose(arrays.times_factor(X, H), X @ H.T, atol=1e-4)
    np.testing.assert_allclose(arrays.times_codes(X, W), X.T @ W, atol=1e-4)


def test_both_ways_agree(monkeypatch):
    """Machines with long vectors and those without."""
    X, H, W = made(400, 300, 40, np.float64)
    assert X.size * 40 >= dense_products.LEAST
    found = []
    for long in (True, False):
        monkeypatch.setattr(lines, "has_long_vectors", lambda long=long: long)
        found.append((arrays.times_factor(X, H), arrays.times_codes(X, W)))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("where", [np.ascontiguousarray, lambda X: np.hstack([X, X])[:, 3 : 3 + X.shape[1]]])
def test_picked_rows_are_those_of_a_copy(dtype, where, monkeypatch):
    """Also those of columns of a larger matrix; no thread changes that."""
    close = {"rtol": 0, "atol": 2e-4 if dtype == np.float32 else 1e-12}
    monkeypatch.setattr(threads, "WORTH", 1)
    for n, m, k, d in ((300, 333, 13, 150), (90, 64, 3, 5), (400, 270, 30, 400)):
        X, _, W = made(n, m, k, dtype)
        X, index = where(X), np.sort(np.random.default_rng(1).choice(n, d, replace=False))
        for long in (True, False):
            monkeypatch.setattr(lines, "has_long_vectors", lambda long=long: long)
            np.testing.assert_allclose(arrays.times_picked(X, index, W[index]), X[index].T @ W[index], **close)
        alone = thin.transpose_times_codes(X, W[index], index)
        np.testing.assert_array_equal(alone, thin.transpose_times_codes(X[index], W[index]))
        with lend(3):
            np.testing.assert_array_equal(thin.transpose_times_codes(X, W[index], index), alone)
