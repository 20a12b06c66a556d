from __future__ import annotations

import numpy as np

from cofactor.boolean import grecond, product, unpack


def naive_component(X, left):
    """Return (rows, columns) of the greedy concept, straight from the definition."""
    columns, best = np.zeros(X.shape[1], bool), 0
    while True:
        trials = []
        for j in np.flatnonzero(~columns):
            rows = X[:, columns | (np.arange(X.shape[1]) == j)].all(axis=1)
            shared = X[rows].all(axis=0)
            trials.append((left[np.ix_(rows, shared)].sum(), rows, shared))
        count, rows, shared = max(trials, key=lambda trial: trial[0], default=(0, None, None))
        if count <= best:
            return X[:, columns].all(axis=1), columns
        best, columns = count, shared


def test_components_are_the_greedy_concepts(tiles):
    X = tiles(60, 30, 4, noise=0.05)[0].astype(bool)
    W, H = grecond.factorize(X, 8)
    left = X.copy()
    for component in range(8):
        rows, columns = naive_component(X, left)
        np.testing.assert_array_equal(W[:, component], rows)
        np.testing.assert_array_equal(H[component], columns)
        left &= ~np.outer(rows, columns)


def test_no_zero_is_covered(tiles):
    X = tiles(noise=0.1)[0]
    W, H = grecond.factorize(X, 10)
    assert not (unpack(product(W, H)) & (1 - X)).any()
