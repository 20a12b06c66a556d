"""The start from two sums: singular vectors of all rows, whoever holds them, from every seed the same."""

import numpy as np
import pytest
from scipy import sparse

from cofactor import FederatedNMF, run
from cofactor.local.stats import normalize
from cofactor.methods import catalog
from cofactor.methods.build import Facts, build
from cofactor.methods.spanned import WIDE, Spanned
from cofactor.plan import Plan


@pytest.fixture
def X(rng):
    return rng.uniform(size=(60, 5)) ** 3 @ rng.uniform(size=(5, 30)) ** 3


def test_it_is_the_parts_of_the_singular_vectors(X):
    """Data of the rank of the sketch: what it spans is all there is."""
    V = np.linalg.svd(X)[2]
    H = run(Spanned(5), [X[:20], X[20:]]).factor
    assert H[0] == pytest.approx(np.abs(V[0]))
    for i in (1, 2):
        pair = normalize(np.stack([np.maximum(V[i], 0), np.maximum(-V[i], 0)]))
        found = H[2 * i - 1 : 2 * i + 1]
        assert np.allclose(found, pair) or np.allclose(found, pair[::-1])


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_matrix, lambda X: X.astype(np.float32)])
def test_how_rows_are_spread_does_not_matter(X, convert):
    whole = run(Spanned(4), [convert(X)], seed=0).factor
    parts = run(Spanned(4), [convert(X[rows]) for rows in np.split(np.arange(60), [3, 40])], seed=7).factor
    assert np.allclose(whole, parts, atol=1e-4 if whole.dtype == np.float32 else 1e-9)


def test_one_client_gives_the_same_components_from_every_seed(X):
    a, b = (FederatedNMF(4, random_state=seed).fit(X + 0.1).components_ for seed in (0, 1))
    assert np.array_equal(a, b)


def test_directions_that_are_not_there_are_drawn():
    """Rank one: every other direction is rounding, and none is empty."""
    X = np.outer(np.arange(1.0, 9.0), np.ones(6))
    assert run(Spanned(6), [X]).factor.any(axis=1).all()
    assert run(Spanned(3), [np.zeros((8, 6))]).factor.any(axis=1).all()
    assert FederatedNMF(1, random_state=0).fit(X).reconstruction_err_ < 1e-6


@pytest.mark.parametrize(
    ("clients", "rows", "features", "options"),
    [(1, 900, 50, {"restarts": 8}), (1, 900, WIDE, {"start": "svd"}), (1, 15, 50, {"start": "svd"}), (3, 9, WIDE, {})],
)
def test_it_is_the_start_of_one_client_with_wide_data_or_few_rows(clients, rows, features, options):
    made = build("exact", 4, Plan(), Facts(clients, features, rows))[0]
    assert made == catalog.make("exact", 4, **options)


def test_wide_data_give_one_part_of_each_singular_vector(rng):
    X = rng.uniform(size=(40, 4)) ** 3 @ rng.uniform(size=(4, WIDE)) ** 3
    V = np.linalg.svd(X, full_matrices=False)[2][:4]
    H = run(Spanned(4), [X]).factor
    sides = np.stack([np.maximum(V, 0), np.maximum(-V, 0)])
    stronger = np.where(np.linalg.norm(sides[0], axis=1)[:, None] >= np.linalg.norm(sides[1], axis=1)[:, None], *sides)
    assert H == pytest.approx(normalize(stronger), abs=1e-6)
