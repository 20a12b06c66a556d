"""One client's mathematics where it adds a part of its own to the shared factor: ``X ~ W (H + V)``.

``min_{W, V >= 0} 1/2 |X - W (H + V)|^2 + weight/2 |W V|^2``: integrative NMF (Yang and Michailidis 2016, LIGER). All
three half-problems are least squares, so every update solves them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cofactor.local import arrays
from cofactor.local.refit import refit
from cofactor.local.stats import gain
from cofactor.local.updates import HALS
from cofactor.types import Array, Data, Stats

SOLVED = HALS(200, 1e-6)
TURNS = 300
"""The most turns of codes and own part for a factor that stays; 20 to 60 are usual."""
STILL = 1e-6
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
    return _own(W.T @ W, arrays.times_codes(X, W).T, H, weight, np.zeros_like(H))


def codes(X: Data, H: Array, V: Array, weight: float) -> Array:
    """Return the codes of rows for a factor and an own part that stay (n x k)."""
    H, V = (a.astype(X.dtype, copy=False) for a in (H, V))
    return refit(X, H + V, H.dtype.type(np.sqrt(weight)) * V)


def solve(X: Data, H: Array, weight: float) -> tuple[Array, Array]:
    """Return codes and own part for a factor that stays: each solved in turn, from no own part, until they stand still.

    Turns alone creep where both can say the same, and a pair that is still on its way is none: codes would be those of
    the own part before. So the own part is extrapolated (Nesterov), from the last good one where the objective rises.
    """
    H = H.astype(X.dtype, copy=False)
    W, V = np.zeros((X.shape[0], len(H)), X.dtype), np.zeros_like(H)
    ahead, pace, lowest, square = V, 1.0, np.inf, arrays.square(X)
    for _ in range(TURNS):
        before, W = W, SOLVED(W, for_codes(X, H, ahead, weight))
        gram, cross = W.T @ W, arrays.times_codes(X, W).T
        new = _own(gram, cross, H, weight, ahead)
        half = for_shared(gram, cross, new, weight, square)
        value = half.square / 2 + gain(Stats(half.gram, half.cross.T), H.T)
        if value > lowest:
            ahead, pace, lowest = V, 1.0, np.inf
            continue
        faster = (1 + np.sqrt(1 + 4 * pace**2)) / 2
        ahead = np.maximum(new + H.dtype.type((pace - 1) / faster) * (new - V), 0)
        V, pace, lowest = new, faster, value
        if np.linalg.norm(W - before) <= STILL * np.linalg.norm(W):
            break
    return codes(X, H, V, weight), V


def _own(gram: Array, cross: Array, H: Array, weight: float, V: Array) -> Array:
    """Return the own part of codes by their statistics, found from V."""
    return SOLVED(arrays.contiguous(V.T), for_own(gram, cross, H, weight)).T
