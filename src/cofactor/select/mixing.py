"""How well clients mix in the codes: the local inverse Simpson index (LISI, Korsunsky et al. 2019).

Around every row its neighbours have weights ``p_j ~ exp(-b d_j^2)`` whose entropy is that of ``perplexity`` equal ones;
the index is ``1 / sum_c (sum of p_j over neighbours with label c)^2``: how many labels a row sees. Over clients (iLISI)
higher is better mixed, over kinds of rows (cLISI) 1 is best kept apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cofactor.types import Array, CofactorError

NEIGHBOURS = 3
"""Neighbours that are looked at, times the perplexity."""
STEPS = 50
"""Bisections of the width of a neighbourhood."""


def lisi(codes: Array, labels: Any, *, perplexity: float = 30.0) -> Array:
    """Return the index of every row (n): the number of labels among its neighbours, from 1 to all there are.

    >>> codes = np.repeat([[0.0], [9.0]], 20, axis=0) + np.linspace(0, 1, 40)[:, None]
    >>> mixed, apart = lisi(codes, [0, 1] * 20, perplexity=5), lisi(codes, [0] * 20 + [1] * 20, perplexity=5)
    >>> round(float(mixed.mean()), 1), round(float(apart.mean()), 1)
    (1.8, 1.0)
    """
    from sklearn.neighbors import NearestNeighbors

    W, (_, number) = np.asarray(codes, np.float64), np.unique(np.asarray(labels), return_inverse=True)
    if W.ndim != 2 or len(number) != len(W):
        raise CofactorError(f"labels: expected one for each of the rows of codes {W.shape}, found {len(number)}.")
    if not 1 < perplexity < len(W) - 1:
        raise CofactorError(f"perplexity: expected a number between 1 and {len(W) - 1}, found {perplexity!r}.")
    near = min(round(NEIGHBOURS * perplexity), len(W) - 1)
    distances, index = NearestNeighbors(n_neighbors=near + 1).fit(W).kneighbors(W)
    weights = _weights(distances[:, 1:] ** 2, np.log(perplexity))
    sums = np.stack([np.where(number[index[:, 1:]] == c, weights, 0).sum(axis=1) for c in range(number.max() + 1)])
    return 1 / np.sum(sums**2, axis=0)


def _weights(squares: Array, entropy: float) -> Array:
    """Return weights (n x neighbours) that sum to 1 in every row, of this entropy."""
    squares = squares - squares[:, :1]
    scale = np.maximum(squares.mean(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    low, high = np.full(scale.shape, 1e-6), np.full(scale.shape, 1e6)
    for _ in range(STEPS):
        middle = np.sqrt(low * high)
        p = np.exp(-middle * squares / scale)
        p /= p.sum(axis=1, keepdims=True)
        wide = -np.sum(p * np.log(np.maximum(p, 1e-300)), axis=1, keepdims=True) > entropy
        low, high = np.where(wide, middle, low), np.where(wide, high, middle)
    return p
