"""Block principal pivoting against scipy's NNLS, also where the gram is singular."""

import numpy as np
import pytest

from cofactor.local import bpp


def objective(B, X, F):
    return float(np.sum((X - F @ B) ** 2))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("n", "m", "k"), [(1, 5, 1), (30, 12, 4), (50, 40, 15), (200, 30, 25)])
def test_equals_scipy_nnls_on_random_problems(seed, n, m, k, solve_nnls):
    rng = np.random.default_rng(seed)
    B, X = rng.normal(size=(k, m)), rng.normal(size=(n, m))
    F = bpp.solve(B @ B.T, X @ B.T)
    np.testing.assert_allclose(F, solve_nnls(X, B), atol=1e-7)


@pytest.mark.parametrize("seed", range(4))
def test_satisfies_the_optimality_conditions(seed):
    rng = np.random.default_rng(seed)
    B, X = rng.uniform(size=(8, 20)), rng.uniform(size=(60, 20))
    gram, cross = B @ B.T, X @ B.T
    F = bpp.solve(gram, cross)
    dual = F @ gram - cross
    assert F.min() >= 0
    assert dual.min() >= -1e-8
    assert np.abs(F * dual).max() <= 1e-8


SINGULAR = {
    "repeated row": lambda B: np.vstack([B, B[:2]]),
    "zero row": lambda B: np.vstack([B, np.zeros((1, B.shape[1]))]),
    "sum of rows": lambda B: np.vstack([B, B.sum(axis=0)]),
    "more rows than columns": lambda B: np.vstack([B, B[::-1] + B, 2 * B + B[::-1]]),
}


@pytest.mark.parametrize("kind", SINGULAR)
@pytest.mark.parametrize("seed", range(3))
def test_reaches_the_optimal_error_where_the_gram_is_singular(kind, seed, solve_nnls):
    rng = np.random.default_rng(seed)
    B, X = SINGULAR[kind](rng.uniform(size=(4, 9))), rng.uniform(size=(25, 9))
    F = bpp.solve(B @ B.T, X @ B.T)
    assert np.isfinite(F).all()
    assert F.min() >= 0
    assert objective(B, X, F) == pytest.approx(objective(B, X, solve_nnls(X, B)), rel=1e-6)


@pytest.mark.parametrize("scale", [1e-14, 1e-6, 1e6, 1e12])
def test_the_unit_of_the_objective_does_not_matter(scale, rng):
    B, X = rng.uniform(size=(6, 10)) + 0.5, rng.uniform(size=(30, 10))
    gram, cross = B @ B.T, X @ B.T
    np.testing.assert_allclose(bpp.solve(scale * gram, scale * cross), bpp.solve(gram, cross), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_the_unit_of_one_row_does_not_matter_for_the_others(scale, rng):
    B, X = rng.uniform(size=(6, 10)) + 0.5, rng.uniform(size=(30, 10))
    gram, cross = B @ B.T, X @ B.T
    expected = bpp.solve(gram, cross)
    cross[0] *= scale
    F = bpp.solve(gram, cross)
    np.testing.assert_allclose(F[1:], expected[1:], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(F[0] / scale, expected[0], rtol=1e-6, atol=1e-9)


def test_rows_without_cross_get_zero_codes(rng):
    B, X = rng.uniform(size=(4, 9)), rng.uniform(size=(5, 9))
    cross = X @ B.T
    cross[2] = 0
    cross[3] = -cross[3]
    F = bpp.solve(B @ B.T, cross)
    np.testing.assert_array_equal(F[[2, 3]], 0)
    assert F[[0, 1, 4]].any(axis=1).all()


def test_problem_without_any_information_has_the_zero_solution():
    np.testing.assert_array_equal(bpp.solve(np.zeros((3, 3)), np.zeros((4, 3))), 0)


def test_identity_gram_clips_the_cross(rng):
    cross = rng.normal(size=(20, 5))
    np.testing.assert_allclose(bpp.solve(np.eye(5), cross), np.maximum(cross, 0), atol=1e-10)
