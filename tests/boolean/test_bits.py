from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from cofactor.boolean import bits
from cofactor.types import DataError

matrices = hnp.arrays(np.uint8, st.tuples(st.integers(0, 9), st.integers(0, 140)), elements=st.integers(0, 1))


def naive_product(W, H):
    return (W.astype(int) @ H.astype(int) > 0).astype(np.uint8)


@settings(max_examples=60, deadline=None)
@given(matrices)
def test_pack_and_unpack_are_inverse(X):
    packed = bits.pack(X)
    assert packed.shape == X.shape
    assert packed.ones == X.sum()
    np.testing.assert_array_equal(bits.unpack(packed), X)


FORMS = [
    np.asfortranarray,
    lambda X: X.astype(bool),
    lambda X: X.astype(np.float64),
    sparse.csr_matrix,
    sparse.csc_array,
    sparse.coo_array,
    lambda X: sparse.csr_array(X.astype(bool)),
]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_packs_to_the_same_words(form, tiles):
    X = tiles(noise=0.05)[0]
    np.testing.assert_array_equal(bits.pack(form(X)).words, bits.pack(X).words)
    bits.check_boolean(form(X))


def test_stored_zeros_are_zeros_and_the_input_stays():
    X = sparse.csr_array((np.array([0, 1, 1]), np.array([2, 0, 2]), np.array([0, 2, 3])), shape=(2, 3))
    np.testing.assert_array_equal(bits.unpack(bits.pack(X)), [[1, 0, 0], [0, 0, 1]])
    assert X.nnz == 3


@pytest.mark.parametrize(("n", "m", "k"), [(40, 70, 5), (7, 64, 66), (3, 1, 1), (0, 5, 2)])
def test_product_and_counts_equal_numpy(n, m, k, rng):
    X, W, H = ((rng.random(shape) < 0.3).astype(np.uint8) for shape in [(n, m), (n, k), (k, m)])
    R = naive_product(W, H)
    np.testing.assert_array_equal(bits.unpack(bits.product(W, H)), R)
    assert bits.error(X, W, H) == (X != R).sum()
    if X.any():
        assert bits.loss(X, W, H) == (X != R).sum() / X.sum()
        assert bits.tally(X, W, H).recall == (X & R).sum() / X.sum()
        assert bits.tally(X, W, H).similarity == pytest.approx((X == R).mean())


def test_tallies_add_up_over_clients(tiles):
    X, W, H = tiles(noise=0.1)
    parts = [bits.tally(X[rows], W[rows], H) for rows in (slice(0, 50), slice(50, None))]
    assert sum(parts, bits.Tally()) == bits.tally(X, W, H)


def test_loss_without_ones():
    zeros, one = np.zeros((2, 3), np.uint8), np.ones((2, 1), np.uint8)
    assert bits.loss(zeros, one, np.zeros((1, 3), np.uint8)) == 0
    assert bits.loss(zeros, one, np.ones((1, 3), np.uint8)) == np.inf
    assert bits.tally(zeros, one, np.ones((1, 3), np.uint8)).recall == 1


def test_columns_are_the_csc_lists(tiles):
    X = tiles(noise=0.1)[0]
    indptr, rows = bits.columns(bits.pack(X))
    expected = sparse.csc_array(X)
    np.testing.assert_array_equal(indptr, expected.indptr)
    np.testing.assert_array_equal(rows, expected.indices)


@pytest.mark.parametrize("value", [2.0, -1.0, 0.5, np.nan])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, sparse.csc_matrix])
def test_other_values_name_the_first_cell_and_binarize(form, value):
    X = np.zeros((4, 5))
    X[3, 0], X[2, 3] = value, value
    with pytest.raises(DataError, match=r"row 2, column 3 at client b.*binarize"):
        bits.check_boolean(form(X), client="b")


def test_a_cell_stored_twice_is_two():
    X = sparse.csr_array((np.ones(2), np.array([1, 1]), np.array([0, 2])), shape=(1, 3))
    with pytest.raises(DataError, match=r"Found 2 in row 0, column 1"):
        bits.check_boolean(X)


@pytest.mark.parametrize("X", [np.zeros(3), np.array([["a"]]), [[0, 1]]])
def test_what_is_not_a_numeric_matrix_is_refused(X):
    with pytest.raises(DataError, match="Boolean data must be"):
        bits.check_boolean(X)
