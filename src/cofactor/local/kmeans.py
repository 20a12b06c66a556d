"""k-means on weighted rows: seeds spread by squared distance, then means of the nearest rows."""

from __future__ import annotations

import numpy as np

from cofactor.local import arrays
from cofactor.types import Array, Data

ALIKE = 1e-9
"""Restarts whose errors differ by a smaller share differ by rounding only."""
STEPS = 20


def distances(X: Data, H: Array) -> Array:
    """``|x_i - h_l|^2`` (n x k) without anything of size n x k x m.

    Dense rows and centres are first moved by the mean of the centres, in double precision: the squares of rows that lie
    together far from zero are so large that their differences, the distances, would be rounding errors.
    """
    if not arrays.has_dense_rows(X):
        cross = np.asarray(arrays.times_factor(X, H))
        return np.maximum(arrays.row_squares(X)[:, None] - 2 * cross + np.einsum("km,km->k", H, H), 0)
    middle = H.mean(axis=0, dtype=np.float64)
    moved = H - middle
    found = np.empty((X.shape[0], len(H)))
    step = max(1, arrays.BLOCK_CELLS // X.shape[1])
    for low in range(0, X.shape[0], step):
        rows = slice(low, min(low + step, X.shape[0]))
        near = arrays.row_block(X, rows) - middle
        found[rows] = arrays.row_squares(near)[:, None] - 2 * (near @ moved.T)
    return np.maximum(found + np.einsum("km,km->k", moved, moved), 0)


def seeds(X: Data, k: int, *, weights: Array, rng: np.random.Generator) -> Array:
    """k-means++ (Arthur and Vassilvitskii 2007), greedily: k rows of X (k x m).

    Each is the best of a few that are drawn by weight times squared distance to the seeds so far: the one that leaves
    least to explain.
    """
    trials = 2 + int(np.log(k))
    near = np.ones(X.shape[0])
    chosen = []
    for i in range(k):
        spread = weights * near
        mass = spread.sum()
        drawn = rng.choice(len(near), trials if i else 1, p=spread / mass if mass > 0 else None)
        left = distances(X, _dense(arrays.rows(X, drawn)))
        if i:
            left = np.minimum(left, near[:, None])
        best = int((weights @ left).argmin())
        near = left[:, best]
        chosen.append(drawn[best])
    return _dense(arrays.rows(X, np.array(chosen)))


def lloyd(X: Data, H: Array, *, weights: Array) -> tuple[Array, Array]:
    """Move every centre to the weighted mean of its rows, ``STEPS`` times or until no row changes its centre.

    Return centres and the weight of each.
    """
    mass: Array = np.zeros(len(H))
    before = None
    for _ in range(STEPS):
        labels = distances(X, H).argmin(axis=1)
        if before is not None and np.array_equal(labels, before):
            break
        before, mass = labels, np.bincount(labels, weights, len(H))
        W = np.zeros((len(weights), len(H)), X.dtype)
        W[np.arange(len(labels)), labels] = weights
        sums = np.asarray(arrays.times_codes(X, W)).T
        H = np.where(mass[:, None] > 0, sums / np.maximum(mass, 1e-300)[:, None], H)
    return H, mass


def fit(X: Data, k: int, *, weights: Array, rng: np.random.Generator, restarts: int = 1) -> tuple[Array, Array]:
    """Return the best centres (k x m) of some restarts, and the weight of each.

    Restarts that end alike but for rounding and the order of the centres are as good: the first of them is taken.
    """
    found = [lloyd(X, seeds(X, k, weights=weights, rng=rng), weights=weights) for _ in range(restarts)]
    left = np.array([float(weights @ distances(X, H).min(axis=1)) for H, _ in found])
    return found[int(np.flatnonzero(left <= left.min() * (1 + ALIKE))[0])]


def paired(X: Data, away: Array) -> Array:
    """Return the nearest centre of every row by its distances (n x k): no centre has a single row, of 2k or more.

    The nearest row of a centre that can spare one comes with it: far rows stay in sight, half as far.
    """
    labels = away.argmin(axis=1)
    counts = np.bincount(labels, minlength=away.shape[1])
    for centre in np.flatnonzero(counts == 1):
        if counts[centre] != 1:  # it has given its row, or got one
            continue
        alone = np.flatnonzero(labels == centre)
        beside = distances(X, _dense(arrays.rows(X, alone)))[:, 0]
        beside[counts[labels] == 2] = np.inf
        beside[alone] = np.inf
        nearest = int(beside.argmin())
        counts[labels[nearest]] -= 1
        counts[centre] += 1
        labels[nearest] = centre
    return labels


def _dense(X: Data) -> Array:
    return X if isinstance(X, np.ndarray) else np.asarray(X.todense())
