"""Observed-entries mathematics: kernels equal brute force on a dense mask, and biases alone their closed forms."""

import numpy as np
import pytest
from scipy import sparse

from cofactor import ratings
from cofactor.ratings import Layout
from cofactor.types import DataError

LAYOUTS = pytest.mark.parametrize("layout", [Layout(3), Layout(3, False, 0.7), Layout(2, True, 0.5, 2.0)], ids=str)


@pytest.fixture
def rated(rng):
    """Ratings, a dense copy and the mask; row 3 and column 5 are empty and one rating is a stored zero."""
    mask = rng.uniform(size=(12, 9)) < 0.5
    mask[3], mask[:, 5] = False, False
    mask[0, 0] = True
    values = rng.uniform(1, 5, size=mask.shape)
    values[0, 0] = 0
    rows, columns = np.nonzero(mask)
    return sparse.csr_matrix((values[mask], (rows, columns)), shape=mask.shape), values, mask


@pytest.fixture
def factor(rng):
    def make(layout):
        H = layout.extend_factor(rng.normal(size=(layout.rank, 9)), 3.1)
        if layout.biases:
            H[layout.rank + 1] = rng.normal(size=9)
        return H

    return make


def ridge_regression(A, y, penalties):
    return np.linalg.solve(A.T @ A + np.diag(penalties), A.T @ y)


@LAYOUTS
def test_codes_are_each_rows_ridge_regression(layout, rated, factor):
    R, X, mask = rated
    H = factor(layout)
    W = ratings.solve_codes(R, H, layout)
    p = layout.free
    for u in range(12):
        seen = mask[u]
        expected = ridge_regression(H[:p, seen].T, X[u, seen] - H[p:, seen].sum(axis=0), layout.penalties)
        np.testing.assert_allclose(W[u, :p], expected, atol=1e-10)
    np.testing.assert_array_equal(W[:, p:], 1)
    np.testing.assert_array_equal(W[3, :p], 0)


@LAYOUTS
def test_statistics_and_solution_of_items_equal_brute_force(layout, rated, factor, rng):
    R, X, mask = rated
    H = factor(layout)
    W = ratings.solve_codes(R, H, layout)
    V, offset = ratings.item_features(W, H, layout)
    gram, cross = ratings.column_stats(R, W, H, layout)
    new, gain = ratings.solve_factor(ratings.ColumnStats(gram, cross), H, layout)
    for i in range(9):
        seen = mask[:, i]
        A, y = V[seen], (X[:, i] - offset)[seen]
        np.testing.assert_allclose(gram[i], (A.T @ A)[np.triu_indices(layout.free)], atol=1e-10)
        np.testing.assert_allclose(cross[i], A.T @ y, atol=1e-10)
        np.testing.assert_allclose(new[layout.factor_rows, i], ridge_regression(A, y, layout.penalties), atol=1e-10)
    objective = 0.5 * np.sum((mask * (X - W @ new)) ** 2) + layout.penalty(new[layout.factor_rows].T)
    assert 0.5 * ratings.known_square(R, W, H, layout) + gain == pytest.approx(objective)


@LAYOUTS
def test_pulls_are_the_gradient_on_the_dense_mask(layout, rated, factor):
    R, X, mask = rated
    H = factor(layout)
    W = ratings.solve_codes(R, H, layout)
    V, _ = ratings.item_features(W, H, layout)
    pull = ratings.pulls(R, W, H, layout)
    np.testing.assert_allclose(pull[:, :-1], (mask * (X - W @ H)).T @ V, atol=1e-10)
    np.testing.assert_allclose(pull[:, -1], mask.T @ np.sum(V**2, axis=1), atol=1e-10)


@LAYOUTS
def test_residuals_count_observed_entries_only(layout, rated, factor):
    R, X, mask = rated
    H = factor(layout)
    W = ratings.solve_codes(R, H, layout)
    np.testing.assert_allclose(ratings.residual_squares(R, W, H), np.sum((mask * (X - W @ H)) ** 2, axis=1), atol=1e-10)


@LAYOUTS
def test_statistics_of_clients_add_up_to_those_of_the_stacked_rows(layout, rated, factor):
    R, H = rated[0], factor(layout)
    W = ratings.solve_codes(R, H, layout)
    whole = ratings.column_stats(R, W, H, layout)
    parts = [ratings.column_stats(R[rows], W[rows], H, layout) for rows in (slice(0, 5), slice(5, 6), slice(6, 12))]
    for name in ("gram", "cross"):
        np.testing.assert_allclose(sum(getattr(p, name) for p in parts), getattr(whole, name), atol=1e-12)


def test_without_ridge_unseen_directions_are_zero_not_infinite(rated, factor):
    layout = Layout(3, True, 0.0, 0.0)
    W = ratings.solve_codes(rated[0], factor(layout), layout)
    assert np.isfinite(W).all()
    np.testing.assert_array_equal(W[3, : layout.free], 0)


def test_the_product_of_extended_codes_and_factor_is_the_prediction(rated, factor):
    layout = Layout(3)
    H = factor(layout)
    W = ratings.solve_codes(rated[0], H, layout)
    w, b, h, c, mean = W[:, :3], W[:, 3], H[:3], H[4], H[5, 0]
    np.testing.assert_allclose(W @ H, w @ h + b[:, None] + c + mean, atol=1e-12)
    np.testing.assert_allclose(layout.empty_codes(1, float) @ H, [c + mean])
    np.testing.assert_allclose(W @ layout.unknown_item(H), b + mean)


def test_dense_data_are_refused_because_they_do_not_say_what_is_missing():
    with pytest.raises(DataError, match="stored entries are the observed ones, found ndarray"):
        ratings.observed(np.ones((2, 2)))
