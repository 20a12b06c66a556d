"""Non-negative least squares by block principal pivoting, all rows at once, grouped by passive set."""

from __future__ import annotations

import numpy as np

from cofactor.types import Array

FULL_EXCHANGES = 3
"""How often a row may fail to improve before single exchanges (which cannot cycle) take over."""


def solve(gram: Array, cross: Array, *, max_passes: int = 500) -> Array:
    """Return ``argmin_{F >= 0} 1/2 tr(F gram F^T) - tr(F cross^T)`` (rows x k).

    Kim and Park, SIAM J. Sci. Comput. 33(6), 2011. A tiny ridge keeps singular grams solvable.
    """
    n, k = cross.shape
    scale = max(float(np.trace(gram)) / k, np.finfo(np.float64).tiny)
    gram = gram.astype(np.float64) + 1e-13 * scale * np.eye(k)
    cross = cross.astype(np.float64)
    tol = 1e-12 * np.abs(cross).max(axis=1, keepdims=True, initial=0)
    passive = np.zeros((n, k), bool)
    F, dual = np.zeros((n, k)), -cross
    patience, fewest = np.full(n, FULL_EXCHANGES), np.full(n, k + 1)
    for _ in range(max_passes):
        wrong = np.where(passive, F < -1e-12 * np.abs(F).max(axis=1, keepdims=True, initial=0), dual < -tol)
        count = wrong.sum(1)
        active = np.flatnonzero(count)
        if active.size == 0:
            break
        passive[active] ^= _exchange(wrong, count, active, patience, fewest)
        F[active] = _solve_grouped(gram, cross[active], passive[active])
        dual[active] = F[active] @ gram - cross[active]
    return np.maximum(F, 0)


def _exchange(wrong: Array, count: Array, active: Array, patience: Array, fewest: Array) -> Array:
    """Choose which variables change sides: all wrong ones, or the last one of rows that are out of patience."""
    better = count[active] < fewest[active]
    fewest[active[better]] = count[active[better]]
    patience[active] = np.where(better, FULL_EXCHANGES, patience[active] - 1)
    single = patience[active] < 0
    flips = wrong[active].copy()
    k = wrong.shape[1]
    last = k - 1 - np.argmax(flips[:, ::-1], axis=1)
    flips[single] = np.arange(k) == last[single, None]
    return flips


def _solve_grouped(gram: Array, cross: Array, passive: Array) -> Array:
    """Solve the unconstrained problem on each row's passive set; rows with the same set share one solve."""
    F = np.zeros_like(cross)
    packed = np.packbits(passive, axis=1)
    keys, group = np.unique(packed, axis=0, return_inverse=True)
    order = np.argsort(group.ravel(), kind="stable")
    bounds = np.searchsorted(group.ravel()[order], np.arange(len(keys) + 1))
    for g in range(len(keys)):
        rows = order[bounds[g] : bounds[g + 1]]
        free = np.flatnonzero(passive[rows[0]])
        if free.size:
            F[np.ix_(rows, free)] = np.linalg.solve(gram[np.ix_(free, free)], cross[np.ix_(rows, free)].T).T
    return F
