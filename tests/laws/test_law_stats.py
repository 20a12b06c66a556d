"""Errors from statistics equal the dense |X - W H|^2 for every kind of matrix, and never make one."""

import numpy as np
import pytest
from scipy import sparse

from cofactor import metrics, run
from cofactor.local import arrays
from cofactor.local import stats as st
from cofactor.methods import catalog

KINDS = {
    "dense": lambda X: X,
    "fortran": np.asfortranarray,
    "csr_matrix": sparse.csr_matrix,
    "csc_matrix": sparse.csc_matrix,
    "csr_array": sparse.csr_array,
    "csc_array": sparse.csc_array,
    "coo": sparse.coo_matrix,
}
TOLERANCE = {np.float32: 1e-4, np.float64: 1e-10}
PRECISION = pytest.mark.parametrize("dtype", TOLERANCE)


@pytest.fixture
def triple(rng):
    X = rng.uniform(size=(37, 21)) * (rng.uniform(size=(37, 21)) < 0.4)
    X[5], X[:, 3] = 0, 0
    return X, rng.uniform(size=(37, 4)), rng.uniform(size=(4, 21))


@PRECISION
@pytest.mark.parametrize("kind", KINDS)
def test_gain_and_residual_equal_the_dense_error(kind, dtype, triple):
    dense, W, H = (a.astype(dtype) for a in triple)
    X = arrays.check(KINDS[kind](dense))
    error = float(np.sum((dense.astype(float) - W.astype(float) @ H) ** 2))
    half_square = 0.5 * float(np.sum(dense.astype(float) ** 2))
    tol = TOLERANCE[dtype]
    assert metrics.residual(X, W, H) == pytest.approx(error, rel=tol)
    assert half_square + st.gain(st.for_codes(X, H), W) == pytest.approx(error / 2, rel=tol)
    assert half_square + st.gain(st.for_factor(X, W), H.T) == pytest.approx(error / 2, rel=tol)


@PRECISION
@pytest.mark.parametrize("kind", KINDS)
def test_squares_equal_the_dense_squares(kind, dtype, triple):
    dense = triple[0].astype(dtype)
    X = arrays.check(KINDS[kind](dense))
    np.testing.assert_allclose(arrays.row_squares(X), np.sum(dense.astype(float) ** 2, axis=1), rtol=1e-6)
    assert arrays.square(X) == pytest.approx(float(np.sum(dense.astype(float) ** 2)), rel=1e-6)


def test_what_single_precision_leaves_is_that_of_the_cells():
    draw = np.random.default_rng(0)
    W, H = draw.random((60, 3)).astype(np.float32), draw.random((3, 20)).astype(np.float32)
    X = (W @ H * (1 + 1e-5 * draw.random((60, 20)))).astype(np.float32)
    rest = np.sum((X.astype(float) - W.astype(float) @ H.astype(float)) ** 2)
    assert metrics.residual(X, W, H) == pytest.approx(rest, rel=1e-6)


def test_squares_of_a_sparse_matrix_with_duplicate_entries_are_those_of_its_sums():
    twice = sparse.csr_matrix((np.array([1.0, 1.0, 3.0]), np.array([0, 0, 1]), np.array([0, 2, 3])), shape=(2, 2))
    dense = np.array([[2.0, 0.0], [0.0, 3.0]])
    X = arrays.check(twice)
    assert arrays.square(X) == np.sum(dense**2)
    np.testing.assert_array_equal(arrays.row_squares(X), [4, 9])
    assert metrics.residual(X, dense, np.eye(2)) == pytest.approx(0, abs=1e-12)
    assert twice.nnz == 3, "the caller's matrix must stay as it is"


@PRECISION
@pytest.mark.parametrize("kind", KINDS)
def test_statistics_are_the_products_in_the_dtype_of_the_data(kind, dtype, triple):
    dense, W, H = (a.astype(dtype) for a in triple)
    X = arrays.check(KINDS[kind](dense))
    for stats, gram, cross in (
        (st.for_codes(X, H), H @ H.T, dense @ H.T),
        (st.for_factor(X, W), W.T @ W, dense.T @ W),
    ):
        assert stats.gram.dtype == stats.cross.dtype == dtype
        np.testing.assert_allclose(stats.gram, gram, rtol=1e-5)
        np.testing.assert_allclose(stats.cross, cross, rtol=1e-4, atol=1e-6)


def test_metrics_are_their_formulas(triple):
    X, W, H = triple
    Xs, Ws = [X[:10], X[10:]], [W[:10], W[10:]]
    deviations = [np.sqrt(np.mean((A - B @ H) ** 2)) for A, B in zip(Xs, Ws)]
    assert metrics.rmsd(Xs[0], Ws[0], H) == pytest.approx(deviations[0])
    assert metrics.sum_rmsd(Xs, Ws, H) == pytest.approx(sum(deviations))
    relative = np.linalg.norm(X - W @ H) / np.linalg.norm(X)
    assert metrics.relative_error(X, W, H) == pytest.approx(relative)
    assert metrics.pooled_error(Xs, Ws, H) == pytest.approx(relative)
    assert metrics.relative_error(0 * X, 0 * W, H) == 0
    assert metrics.pooled_error([0 * X], [0 * W], H) == 0
    assert metrics.orthogonality_gap(np.eye(3)[[2, 0, 1]]) == 0
    assert metrics.orthogonality_gap(np.full((2, 2), 0.5)) == pytest.approx(1.0)


def test_error_of_an_exact_fit_is_zero_not_nan(triple):
    _, W, H = triple
    assert metrics.rmsd(W @ H, W, H) == pytest.approx(0, abs=1e-6)
    assert metrics.residual(W @ H, W, H) >= 0


def test_unit_rows_keep_the_product_and_leave_zero_rows(triple):
    _, W, H = triple
    H = H * np.array([0, 1, 1e-9, 1e9])[:, None]
    V, N = st.unit_rows(W, H)
    np.testing.assert_allclose(V @ N, W @ H, rtol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(N, axis=1), [0, 1, 1, 1])


@pytest.mark.parametrize("name", ["exact", "oneshot", "fedavg", "fnmf-lap"])
def test_a_sparse_matrix_is_never_made_dense(name, rng):
    """100 000 x 100 000 would be 80 GB dense."""
    n = 100_000
    X = sparse.csr_matrix((rng.uniform(size=1000), rng.integers(n, size=(2, 1000))), shape=(n, n))
    result = run(catalog.make(name, 2, **({"sweeps": 2} if name in ("fedavg", "fnmf-lap") else {})), [X, X], rounds=2)
    assert result.factor.shape == (2, n)
    assert metrics.pooled_error([X, X], result.codes, result.factor) <= 1
