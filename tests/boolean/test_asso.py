from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from cofactor.boolean import asso, pack, polish, unpack


def naive_cover(X, basis, rank, plus, minus):
    covered = np.zeros(X.shape, bool)
    W, H = np.zeros((X.shape[0], rank), np.uint8), np.zeros((rank, X.shape[1]), np.uint8)
    value = np.where(X == 1, plus, -minus)
    for component in range(rank):
        gains = np.where(covered, 0, value) @ basis.T
        best = np.maximum(gains, 0).sum(axis=0).argmax()
        used = gains[:, best] > 0
        W[used, component], H[component] = 1, basis[best]
        covered |= np.outer(used, basis[best] == 1)
    return W, H


def test_association_is_the_confidence_between_columns(tiles):
    X = tiles(noise=0.05)[0].astype(float)
    expected = X.T @ X / X.sum(axis=0)[:, None]
    for form in (np.asarray, sparse.csr_array, sparse.csc_matrix):
        np.testing.assert_allclose(asso.association(form(X)).toarray(), expected, rtol=1e-6)


def test_candidates_are_the_distinct_associations(tiles):
    X = tiles(noise=0.05)[0]
    confidence = asso.association(X)
    expected = np.unique(confidence.toarray() >= 0.5, axis=0)
    found = unpack(asso.candidates(confidence, 0.5))
    np.testing.assert_array_equal(np.unique(found, axis=0), expected)


@pytest.mark.parametrize("cells", [0, 10**6])
def test_incremental_gains_choose_as_the_definition_does(cells, tiles, monkeypatch):
    monkeypatch.setattr(asso, "CELLS", cells)
    X = tiles(80, 66, 5, noise=0.08)[0]
    basis = asso.candidates(asso.association(X), 0.4)
    for weights in [(1.0, 1.0), (2.0, 1.0)]:
        W, H = asso.cover(pack(X), basis, 6, weights=weights)
        expected_W, expected_H = naive_cover(X, unpack(basis), 6, *weights)
        np.testing.assert_array_equal(H, expected_H)
        np.testing.assert_array_equal(W, expected_W)


def test_rows_that_count_several_times_are_rows_that_stand_there_several_times(tiles, rng):
    X = tiles(80, 66, 5, noise=0.08)[0]
    usage = rng.integers(0, 5, 80)
    stacked = np.repeat(X, usage, axis=0)
    for form in (np.asarray, sparse.csr_array):
        weighted = asso.association(form(X), usage).toarray()
        np.testing.assert_allclose(weighted, asso.association(stacked).toarray(), rtol=1e-12)
    basis = asso.candidates(asso.association(stacked), 0.4)
    W, H = asso.cover(pack(X), basis, 6, usage=usage)
    expected_W, expected_H = asso.cover(pack(stacked), basis, 6)
    np.testing.assert_array_equal(H, expected_H)
    np.testing.assert_array_equal(np.repeat(W, usage, axis=0), expected_W)
    for a, b in zip(polish(X, H, codes=W, usage=usage), polish(stacked, H, codes=expected_W)):
        np.testing.assert_array_equal(np.repeat(a, usage, axis=0) if len(a) == 80 else a, b)


def test_few_candidates_are_those_that_gain_most_alone(tiles):
    X = tiles(80, 66, 5, noise=0.08)[0]
    basis = asso.candidates(asso.association(X), 0.4)
    alone = np.maximum(unpack(basis) @ (2.0 * X.T - 1), 0).sum(axis=1)
    kept = np.sort(np.argsort(-alone, kind="stable")[:12])
    few = pack(unpack(basis)[kept])
    for a, b in zip(asso.cover(pack(X), basis, 6, keep=12), asso.cover(pack(X), few, 6)):
        np.testing.assert_array_equal(a, b)
