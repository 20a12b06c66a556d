"""Rows in the unit ball, whatever their size: what one record can add to a sum is at most 1."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from cofactor.privacy import bounded

SIZES = [5e-324, 1e-310, 1.5e-162, 1e-200, 2.6e-23, 1e-9, 1.0, 1e19, 1e155, 1e300, 1.7e308, 0.0]
BOUNDS = [None, 1.0, 3.0, 1e-300, 1e300]
LAYOUTS = {"dense": np.asarray, "csr": sparse.csr_matrix, "csc": sparse.csc_matrix}


def moved(X, bound):
    """How far the first row moves the released sum."""
    return np.linalg.norm(bounded.total(X, bound) - bounded.total(X[1:], bound))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("size", SIZES)
def test_no_row_leaves_the_unit_ball(layout, bound, size):
    """Entries of 1.5e-162 have squares that vanish: such rows passed with a norm of 5 to 30."""
    for m in (1, 30, 900):
        X = LAYOUTS[layout](np.vstack([np.full(m, size), np.ones(m)]))
        (block,) = bounded.blocks(X, bound)
        assert np.isfinite(block).all()
        assert np.linalg.norm(block, axis=1).max() <= 1 + 1e-9
        assert moved(X, bound) <= 1 + 1e-6


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [1e-45, 2.6e-23, 1e-10, 1e19, 3e38])
def test_single_precision_is_no_way_out(layout, size):
    X = LAYOUTS[layout](np.vstack([np.full(40, size), np.ones(40)]).astype(np.float32))
    (block,) = bounded.blocks(X, None)
    np.testing.assert_allclose(np.linalg.norm(block, axis=1), 1, rtol=1e-9)
    assert moved(X, None) <= 1 + 1e-6


@pytest.mark.parametrize("size", [s for s in SIZES if s > 0])
def test_rows_of_any_size_are_scaled_to_norm_one(size):
    row = size * np.array([[1.0, 0.5, 0.25, 0.0]]) if size > 1e-300 else np.array([[size, 0.0, 0.0, size]])
    (block,) = bounded.blocks(row, None)
    assert np.linalg.norm(block) == pytest.approx(1, rel=1e-9)


@settings(deadline=None, max_examples=200)
@given(
    hnp.arrays(np.float64, (3, 5), elements=st.floats(0, allow_nan=False, allow_infinity=False, allow_subnormal=True)),
    st.sampled_from(BOUNDS),
)
def test_for_every_finite_row_the_bound_holds(X, bound):
    for make in LAYOUTS.values():
        (block,) = bounded.blocks(make(X), bound)
        assert np.isfinite(block).all()
        assert np.linalg.norm(block, axis=1).max() <= 1 + 1e-9


def test_ordinary_rows_are_divided_by_their_norm(rng):
    X = rng.uniform(size=(6, 8))
    (block,) = bounded.blocks(X, None)
    np.testing.assert_allclose(block, X / np.linalg.norm(X, axis=1, keepdims=True), rtol=1e-15)
    (clipped,) = bounded.blocks(X, 1.5)
    np.testing.assert_allclose(clipped, X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.5), rtol=1e-15)
