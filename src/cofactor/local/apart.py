"""One client's mathematics where it adds a part of its own to the shared factor: ``X ~ W (H + V)``.

``min_{W, V >= 0} 1/2 |X - W (H + V)|^2 + weight/2 |W V|^2``: integrative NMF (Yang and Michailidis 2016, LIGER). All
three half-problems are least squares, so every update solves them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cofactor.local import arrays
from cofactor.local.updates import HALS
from cofactor.types import Array, Data, Stats

SOLVED = HALS(200, 1e-6)
TURNS = 30
"""Turns of codes and own part for a factor that stays."""
STILL = 1e-4
"""Share of the codes that a turn must move for another one to follow."""


class Half(NamedTuple):
    """What a client's rows say of the shared factor: gram (k x k), cross (k x m), and the objective at H = 0, twice."""

    gram: Array
    cross: Array
    square: float


def for_codes(X: Data, H: Array, V: Array, weight: float) -> Stats:
    """Statistics of the codes, ``gram = (H + V)(H + V)^T + weight V V^T``."""
    whole = H + V
    return Stats(whole @ whole.T + weight * (V @ V.T), arrays.times_factor(X, whole))


def for_own(gram: Array, cross: Array, H: Array, weight: float) -> Stats:
    """Statistics of the own part, from ``W^T W`` and ``W^T X``: those of ``X - W H``, the gram times 1 + weight."""
    return Stats((1 + weight) * gram, (cross - gram @ H).T)


def for_shared(gram: Array, cross: Array, V: Array, weight: float, square: float) -> Half:
    """Statistics of the shared factor: those of ``X - W V``."""
    energy = arrays.inner(gram @ V, V)
    return Half(gram, cross - gram @ V, square - 2 * arrays.inner(cross, V) + (1 + weight) * energy)


def own_part(X: Data, W: Array, H: Array, weight: float) -> Array:
    """Return the own part V (k x m) that belongs to codes and factor."""
    H = H.astype(W.dtype, copy=False)
    stats = for_own(W.T @ W, arrays.times_codes(X, W).T, H, weight)
    return SOLVED(np.zeros_like(H.T), stats).T


def codes(X: Data, H: Array, V: Array, weight: float) -> Array:
    """Return the codes of rows for a factor and an own part that stay (n x k)."""
    H, V = (a.astype(X.dtype, copy=False) for a in (H, V))
    return SOLVED(np.zeros((X.shape[0], len(H)), X.dtype), for_codes(X, H, V, weight))


def solve(X: Data, H: Array, weight: float) -> tuple[Array, Array]:
    """Return codes and own part for a factor that stays: each solved in turn, from no own part."""
    H = H.astype(X.dtype, copy=False)
    W, V = np.zeros((X.shape[0], len(H)), X.dtype), np.zeros_like(H)
    for _ in range(TURNS):
        before, W = W, SOLVED(W, for_codes(X, H, V, weight))
        V = own_part(X, W, H, weight)
        if np.linalg.norm(W - before) <= STILL * np.linalg.norm(W):
            break
    return W, V
