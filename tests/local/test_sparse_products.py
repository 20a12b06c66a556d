"""Products of sparse matrices against scipy's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from cofactor.local import arrays, threads
from cofactor.local.kernels import lines, sparse_products
from cofactor.local.threads import lend


@settings(max_examples=40, deadline=None)
@given(
    st.tuples(st.integers(1, 30), st.integers(1, 30), st.integers(1, 40)),
    st.floats(0, 1),
    st.sampled_from(["csr", "csc"]),
    st.sampled_from([np.float32, np.float64]),
    st.integers(0, 9),
)
def test_equal_to_scipy(sides, density, form, dtype, seed):
    n, m, k = sides
    X = sparse.random(n, m, density, format=form, random_state=seed, dtype=dtype)
    rng = np.random.default_rng(seed)
    H, W = rng.normal(size=(k, m)).astype(dtype), rng.normal(size=(n, k)).astype(dtype)
    close = {"rtol": 0, "atol": 1e-4 if dtype == np.float32 else 1e-12}
    np.testing.assert_allclose(sparse_products.times(X, H.T), X @ H.T, **close)
    np.testing.assert_allclose(sparse_products.transpose_times(X, W), X.T @ W, **close)
    assert sparse_products.times(X, H.T).dtype == dtype


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_long_indices(form):
    X = sparse.random(20, 10, 0.3, format=form, random_state=0)
    X.indptr, X.indices = X.indptr.astype(np.int64), X.indices.astype(np.int64)
    B = np.random.default_rng(0).normal(size=(10, 20))
    np.testing.assert_allclose(sparse_products.times(X, B), X @ B)


def test_rows_of_a_large_matrix_that_are_asked_for_ahead():
    """Long rows, scattered over more than the caches hold, by one thread and by two."""
    X = sparse.random(60, 30_000, 0.004, format="csr", random_state=0)
    W = np.random.default_rng(0).normal(size=(60, 64))
    alone = sparse_products.transpose_times(X, W)
    np.testing.assert_allclose(alone, X.T @ W, rtol=0, atol=1e-12)
    with pytest.MonkeyPatch.context() as patch, lend(2):
        patch.setattr(threads, "WORTH", 1)
        np.testing.assert_array_equal(sparse_products.transpose_times(X, W), alone)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [1, 7, 8, 9, 24, 31, 64, 100])
def test_rows_of_any_number_of_lines(k, dtype):
    """Rows that fill lines of cache, nearly do, or need one more; empty ones too; by one thread and by three."""
    X = sparse.random(200, 90, 0.1, format="csr", random_state=0, dtype=dtype)
    X = sparse.vstack([X[:50], sparse.csr_matrix((10, 90), dtype=dtype), X[60:]], format="csr")
    H = np.random.default_rng(0).normal(size=(k, 90)).astype(dtype)
    assert X.nnz * k > sparse_products.TOY or k == 1
    alone = sparse_products.times(X, H.T)
    close = {"rtol": 0, "atol": 1e-5 if dtype == np.float32 else 1e-13}
    np.testing.assert_allclose(alone, X @ H.T, **close)
    with pytest.MonkeyPatch.context() as patch, lend(3):
        patch.setattr(threads, "WORTH", 1)
        np.testing.assert_array_equal(sparse_products.times(X, H.T), alone)
        patch.setattr(sparse_products, "READ_OFTEN", X.nnz)  # rows as they are, not in whole lines
        np.testing.assert_array_equal(sparse_products.times(X, H.T), alone)
    W = np.random.default_rng(1).normal(size=(200, k)).astype(dtype)
    np.testing.assert_allclose(sparse_products.transpose_times(X, W), X.T @ W, **close)


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_processors_without_masks(form, monkeypatch):
    """There numbers are added one by one, with as many threads."""
    monkeypatch.setattr(lines, "has_masks", lambda: False)
    X = sparse.random(300, 90, 0.2, format=form, random_state=0)
    B, C = np.random.default_rng(0).normal(size=(90, 21)), np.random.default_rng(1).normal(size=(300, 21))
    found = sparse_products.times(X, B), sparse_products.transpose_times(X, C)
    np.testing.assert_allclose(found[0], X @ B, rtol=0, atol=1e-13)
    np.testing.assert_allclose(found[1], X.T @ C, rtol=0, atol=1e-13)
    monkeypatch.setattr(threads, "WORTH", 1)
    with lend(3):
        np.testing.assert_array_equal(sparse_products.times(X, B), found[0])
        np.testing.assert_array_equal(sparse_products.transpose_times(X, C), found[1])


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_room_behind_what_is_stored(form):
    """Arrays may be longer than the matrix: what lies behind its last value is not part of it."""
    X = sparse.random(300, 90, 0.1, format=form, random_state=0)
    B, C = np.random.default_rng(0).normal(size=(90, 20)), np.random.default_rng(1).normal(size=(300, 20))
    of_rows = arrays.row_squares(X)
    np.testing.assert_allclose(of_rows, arrays.row_squares(X.toarray()), rtol=1e-14)
    wanted = sparse_products.times(X, B), sparse_products.transpose_times(X, C)
    X.data, X.indices = np.r_[X.data, np.full(40, np.nan)], np.r_[X.indices, np.full(40, 10**6, X.indices.dtype)]
    np.testing.assert_array_equal(sparse_products.times(X, B), wanted[0])
    np.testing.assert_array_equal(sparse_products.transpose_times(X, C), wanted[1])
    np.testing.assert_array_equal(arrays.row_squares(X), of_rows)


@pytest.mark.parametrize("form", ["csr", "csc"])
@pytest.mark.parametrize("behind", [np.nan, -1.0, 1e300])
def test_nobody_looks_at_what_lies_behind_what_is_stored(form, behind):
    """Data were refused for a value, in a row that they do not have."""
    X = sparse.random(300, 90, 0.1, format=form, random_state=0)
    wanted = X.toarray()
    X.data, X.indices = np.r_[X.data, behind], np.r_[X.indices, np.zeros(1, X.indices.dtype)]
    found = arrays.check(X)
    np.testing.assert_array_equal(found.toarray(), wanted)
    assert len(found.data) == X.nnz < len(X.data)
