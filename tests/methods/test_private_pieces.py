"""The pieces of private methods: packed symmetric matrices, the edge of the noise, and outliers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cofactor import Privacy, metrics, run
from cofactor.local import symmetric
from cofactor.local.outliers import Outliers
from cofactor.local.refit import refit
from cofactor.methods.dp_nmf import dp_nmf, floored
from cofactor.methods.moments import signal
from cofactor.types import CofactorError


def test_one_column_stands_for_all_that_do_not_vary(rng):
    """The best factor of a matrix with proportional columns comes from the matrix with these merged into one."""
    c = rng.uniform(size=5)
    X = rng.uniform(size=(30, 6))
    wide = np.hstack([X, np.tile(c, (30, 1))])
    merged = np.hstack([X, np.full((30, 1), np.linalg.norm(c))])
    W, H = rng.uniform(size=(30, 3)), rng.uniform(size=(3, 7))
    spread = np.hstack([H[:, :-1], np.outer(H[:, -1], c / np.linalg.norm(c))])
    assert np.isclose(np.linalg.norm(wide - W @ spread), np.linalg.norm(merged - W @ H))


@given(st.integers(1, 9), st.integers(0, 1000))
def test_packed_symmetric_matrices_keep_their_norm(d, seed):
    M = np.random.default_rng(seed).standard_normal((d, d))
    M = M + M.T
    assert np.isclose(np.linalg.norm(symmetric.packed(M)), np.linalg.norm(M))
    np.testing.assert_allclose(symmetric.unpacked(symmetric.packed(M), d), M)


def test_the_edge_of_the_noise_is_where_its_eigenvalues_end(rng):
    d = 400
    values = np.linalg.eigvalsh(symmetric.unpacked(2.0 * rng.standard_normal(symmetric.size(d)), d))
    assert np.isclose(values[-1], symmetric.noise_edge(2.0, d), rtol=0.05)


def test_shrinkage_gives_a_planted_eigenvalue_back(rng):
    d, planted = 400, 150.0
    u = rng.standard_normal(d)
    u /= np.linalg.norm(u)
    noise = symmetric.unpacked(2.0 * rng.standard_normal(symmetric.size(d)), d)
    found, vectors = signal(*np.linalg.eigh(planted * np.outer(u, u) + noise), symmetric.noise_edge(2.0, d))
    assert len(found) == 1
    assert np.isclose(found[0], planted, rtol=0.05)
    assert abs(vectors[:, 0] @ u) > 0.9


def test_eigenvalues_of_a_noisy_gram_are_lifted(rng):
    M = rng.standard_normal((5, 5))
    values = np.linalg.eigvalsh(floored(M + M.T, 1.5))
    assert values.min() >= 1.5 - 1e-9


def test_outliers_follow_the_formula_of_the_paper():
    m = 4
    found = Outliers(0.5, 1.0)(np.array([[0.1, -0.1, 0.5, -2.0]]))
    np.testing.assert_allclose(found, [[0, 0, 0.25, -1.0 / np.sqrt(m)]])


def test_codes_without_outliers_are_near_those_of_the_clean_rows(rng):
    H = rng.uniform(size=(3, 100))
    W = rng.uniform(0.5, 1, size=(20, 3))
    X = W @ H
    hit = rng.random(X.shape) < 0.1
    dirty = np.where(hit, X + 3.0, X)
    plain, robust = (np.linalg.norm(V - W) for V in (refit(dirty, H), Outliers(0.1).refit(dirty, H)))
    assert robust < 0.3 * plain


def test_outliers_of_nonsense_are_refused():
    with pytest.raises(CofactorError, match="expected a threshold and a bound >= 0"):
        Outliers(-1.0)


def test_clean_sparse_rows_are_no_outliers(rng):
    """Against an average of all entries, zeros too, the few that a sparse row has were outliers: 1.12 to 1.16."""
    programs = rng.gamma(1.0, size=(4, 200)) * (rng.uniform(size=(4, 200)) < 0.08)
    X = rng.gamma(0.3, size=(400, 4)) @ programs * rng.gamma(20.0, 0.05, size=(400, 200))
    asked = Privacy(1e4, 1e-6, insecure_seed=1)
    found = [run(dp_nmf(4, privacy=asked, **more), [X]).factor for more in ({}, {"outliers": None})]
    default, none = (metrics.relative_error(X, refit(X, H), H) for H in found)
    assert default <= 1.01 * none
