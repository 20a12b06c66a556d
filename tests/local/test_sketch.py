"""Laws of every sketch: identity on average, the same product in every form, sizes that make sense."""

import pickle
import tracemalloc

import numpy as np
import pytest
from scipy import sparse

from cofactor.local import sketch
from cofactor.local.columns import SomeColumns
from cofactor.local.stats import for_codes
from cofactor.types import CofactorError

EVERY = pytest.mark.parametrize("kind", sketch.catalog().values(), ids=sketch.catalog())
N, D, K = 21, 8, 3


@pytest.fixture
def X(rng):
    return rng.uniform(size=(30, N)) * (rng.uniform(size=(30, N)) < 0.4)


def explicit(drawn):
    S = drawn.matrix()
    return S.toarray() if sparse.issparse(S) else S


@EVERY
def test_the_product_with_its_transpose_is_the_identity_on_average(kind, rng):
    draws = 4000
    mean = sum(S @ S.T for S in (explicit(kind(D).draw(N, K, rng)) for _ in range(draws))) / draws
    np.testing.assert_allclose(mean, np.eye(N), atol=0.12)
    assert np.trace(mean) == pytest.approx(N, rel=0.02)


@EVERY
@pytest.mark.parametrize("n", [8, 9, 21, 64, 100])
def test_applying_equals_the_explicit_product_on_both_sides(kind, n, rng):
    drawn = kind(D).draw(n, K, rng)
    S, X, Y = explicit(drawn), rng.uniform(size=(5, n)), rng.uniform(size=(n, 4))
    assert (drawn.n, drawn.d) == S.shape == (n, D)
    np.testing.assert_allclose(sketch.right(drawn, X), X @ S, atol=1e-12)
    np.testing.assert_allclose(sketch.left(drawn, Y), S.T @ Y, atol=1e-12)


@EVERY
@pytest.mark.parametrize("form", [sparse.csr_matrix, sparse.csc_matrix, sparse.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sparse_equals_dense_in_the_dtype_of_the_data(kind, form, dtype, X, rng):
    X = X.astype(dtype)
    for apply, n in ((sketch.right, N), (sketch.left, 30)):
        drawn = kind(D).draw(n, K, rng)
        dense, thin = apply(drawn, X), apply(drawn, form(X))
        assert dense.dtype == thin.dtype == dtype
        np.testing.assert_allclose(thin.toarray() if sparse.issparse(thin) else thin, dense, atol=1e-5)


@pytest.mark.parametrize("kind", [sketch.Subsampling, sketch.CountSketch])
def test_sparse_stays_sparse_where_the_structure_allows(kind, X, rng):
    assert sparse.issparse(sketch.right(kind(D).draw(N, K, rng), sparse.csr_matrix(X)))


@EVERY
def test_data_with_missing_features_have_zeros_there(kind, X, rng):
    index = np.arange(0, N, 2)
    filled = np.zeros_like(X)
    filled[:, index] = X[:, index]
    held = SomeColumns(X[:, index], index, N)
    drawn = kind(D).draw(N, K, rng)
    np.testing.assert_allclose(sketch.right(drawn, held), sketch.right(drawn, filled), atol=1e-12)


@EVERY
def test_rows_of_the_matrix_are_rows_of_the_matrix(kind, rng):
    drawn = kind(D).draw(N, K, rng)
    part = drawn.matrix(slice(5, 12))
    np.testing.assert_array_equal(part.toarray() if sparse.issparse(part) else part, explicit(drawn)[5:12])


@EVERY
def test_one_address_gives_one_sketch(kind):
    a, b, c = (explicit(kind(D).draw(N, K, np.random.default_rng(s))) for s in (1, 1, 2))
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)
    assert pickle.loads(pickle.dumps(kind(D))) == kind(D)


@EVERY
def test_sketched_statistics_are_right_on_average(kind, X, rng):
    H, draws = rng.uniform(size=(K, N)), 3000
    sums = [0.0, 0.0]
    for _ in range(draws):
        drawn = kind(D).draw(N, K, rng)
        stats = sketch.sketched_stats(sketch.right(drawn, X), sketch.right(drawn, H))
        sums = [a + b / draws for a, b in zip(sums, stats)]
    for mean, exact in zip(sums, for_codes(X, H)):
        np.testing.assert_allclose(mean, exact, atol=0.05 * np.abs(exact).max())


@EVERY
@pytest.mark.parametrize(
    "form", [np.asfortranarray, np.ascontiguousarray, lambda X: X.repeat(2, 1)[:, ::2], sparse.csc_matrix]
)
def test_statistics_and_squares_are_those_of_the_sketched_matrix(kind, form, X, rng):
    H, squares = rng.uniform(size=(K, N)), (X**2).sum(axis=0)
    for drawn in (kind(D).draw(N, K, rng), None):
        XS, HS = (X, H) if drawn is None else (sketch.right(drawn, A) for A in (X, H))
        stats, square = sketch.sketched(drawn, form(X), HS, squares)
        np.testing.assert_allclose(stats.gram, HS @ HS.T)
        np.testing.assert_allclose(stats.cross, XS @ HS.T, atol=1e-12)
        assert square == pytest.approx((XS**2).sum())


def test_rows_of_a_part_of_a_matrix_are_picked_without_a_copy_of_it(rng):
    part = rng.uniform(size=(1000, 600))[:, :300]
    drawn, W = sketch.Subsampling(20).draw(1000, K, rng), rng.uniform(size=(K, 20))
    tracemalloc.start()
    picked = sketch.left(drawn, part)
    sketch.sketched(drawn, part.T, W, np.zeros(1000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(picked, part[drawn.index] * np.sqrt(50))
    assert peak < part.nbytes / 4


@EVERY
def test_sizes_below_the_rank_or_above_the_side_are_refused(kind, rng):
    with pytest.raises(CofactorError, match=r"at least the rank 3\. Found 2"):
        kind(2).draw(N, K, rng)
    with pytest.raises(CofactorError, match=r"at most the sketched side 21\. Found 22"):
        kind(22).draw(N, K, rng)
    for share in (0.0, -0.5, 1.5, np.nan):
        with pytest.raises(CofactorError, match=f"share.*{share}"):
            kind(share).draw(N, K, rng)


@EVERY
def test_a_share_keeps_four_columns_per_component_and_is_no_sketch_on_a_short_side(kind, rng):
    assert kind(0.5).draw(200, K, rng).d == 100
    assert kind(0.01).draw(200, K, rng).d == 4 * K
    assert kind(0.1).draw(4 * K, K, rng) is None
    assert kind(N).draw(N, K, rng).d == N


def test_subsampling_everything_is_a_copy(X, rng):
    np.testing.assert_allclose(sketch.right(sketch.Subsampling(N).draw(N, K, rng), X), X)
