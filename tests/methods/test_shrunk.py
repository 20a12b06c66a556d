"""A factor of pieces of the mean row: never worse than the row, and no piece is wasted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cofactor.local.refit import refit
from cofactor.methods.shrunk import pieces


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 500))
def test_pieces_are_disjoint_and_add_up_to_the_row(rank, m, seed):
    rng = np.random.default_rng(seed)
    row = rng.gamma(0.1, size=m) * (rng.uniform(size=m) < 0.7)
    rank = min(rank, m)
    H = pieces(row, rank)
    cut = H[:-1] if 1 < rank < m else H
    assert ((cut > 0).sum(axis=0) <= 1).all()
    assert cut.any(axis=1).all()  # none is empty
    np.testing.assert_allclose(np.where(row > 0, cut.sum(axis=0), 0), row)
    assert np.ptp(H[-1]) == 0 or not 1 < rank < m


def test_pieces_of_even_rows_have_equal_shares():
    H = pieces(np.ones(90), 10)
    np.testing.assert_array_equal((H[:-1] > 0).sum(axis=1), [10] * 9)


def test_pieces_that_a_heavy_feature_leaves_over_go_to_the_next_heaviest():
    """They went to its neighbours: the second heaviest feature had none of its own, and one fit in ten was lost."""
    row = np.full(13, 0.01)
    row[4], row[12] = 0.14, 0.99
    found = [np.flatnonzero(h).tolist() for h in pieces(row, 10)]
    assert [4] in found
    assert [12] in found


@pytest.mark.parametrize("m", [1, 2, 4])
def test_as_many_components_as_features_fit_everything(rng, m):
    X = rng.uniform(size=(7, m))
    H = pieces(rng.uniform(size=m), m)
    np.testing.assert_allclose(refit(X, H) @ H, X, atol=1e-6)
