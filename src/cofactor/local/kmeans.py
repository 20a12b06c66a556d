"""k-means on weighted rows: seeds spread by squared distance, then means of the nearest rows."""

from __future__ import annotations

import numpy as np

from cofactor.local import arrays
from cofactor.types import Array, Data


def distances(X: Data, H: Array) -> Array:
    """``|x_i - h_l|^2`` (n x k) without anything of size n x k x m."""
    cross = np.asarray(arrays.times_factor(X, H))
    return np.maximum(arrays.row_squares(X)[:, None] - 2 * cross + np.einsum("km,km->k", H, H), 0)


def seeds(X: Data, k: int, *, weights: Array, rng: np.random.Generator) -> Array:
    """k-means++ (Arthur and Vassilvitskii 2007): rows drawn by weight times squared distance to the seeds (k x m)."""
    chosen: list[int] = []
    spread = weights.astype(np.float64)
    for _ in range(k):
        mass = spread.sum()
        chosen.append(int(rng.choice(len(spread), p=spread / mass if mass > 0 else None)))
        H = _dense(arrays.rows(X, np.array(chosen)))
        spread = weights * distances(X, H).min(axis=1)
    return H


def lloyd(X: Data, H: Array, *, weights: Array, steps: int = 20) -> tuple[Array, Array]:
    """Move every centre to the weighted mean of its rows, ``steps`` times; return centres and the weight of each."""
    mass: Array = np.zeros(len(H))
    for _ in range(steps):
        labels = distances(X, H).argmin(axis=1)
        mass = np.bincount(labels, weights, len(H))
        W = np.zeros((len(weights), len(H)), X.dtype)
        W[np.arange(len(labels)), labels] = weights
        sums = np.asarray(arrays.times_codes(X, W)).T
        H = np.where(mass[:, None] > 0, sums / np.maximum(mass, 1e-300)[:, None], H)
    return H, mass


def fit(X: Data, k: int, *, weights: Array, rng: np.random.Generator, restarts: int = 1) -> tuple[Array, Array]:
    """Return the best centres (k x m) of some restarts, and the weight of each."""
    found = [lloyd(X, seeds(X, k, weights=weights, rng=rng), weights=weights) for _ in range(restarts)]
    return min(found, key=lambda pair: float(weights @ distances(X, pair[0]).min(axis=1)))


def _dense(X: Data) -> Array:
    return X if isinstance(X, np.ndarray) else np.asarray(X.todense())
