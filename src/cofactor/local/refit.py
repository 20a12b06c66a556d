"""The codes that belong to a final factor: every reported error and every ``transform`` uses these."""

from __future__ import annotations

import numpy as np

from cofactor.local import arrays, bpp
from cofactor.local.placed import to_host
from cofactor.local.stats import for_codes
from cofactor.local.updates import HALS
from cofactor.types import Array, Data, Stats

SOLVE = HALS(sweeps=200, tol=1e-6)
GAP = 1e-4
"""A row is solved when its squared error can be at most this much (of itself) above the lowest."""


def refit(X: Data, H: Array) -> Array:
    """``argmin_{W >= 0} 1/2 |X - W H|^2`` (n x k): by HALS, each row until a sweep moves it by 1e-6.

    Between components that are nearly collinear it creeps: rows that may still be far are solved by pivoting.
    """
    stats = for_codes(X, H.astype(X.dtype, copy=False))
    W = SOLVE(np.zeros_like(stats.cross), stats)
    norms = np.sqrt(np.diag(stats.gram).astype(np.float64))
    norms[norms == 0] = 1.0
    unit = Stats(stats.gram / np.outer(norms, norms), stats.cross / norms)  # as if components were at norm 1
    late = np.flatnonzero(_unsolved(X, W * norms, unit, eps=float(np.finfo(W.dtype).eps)))
    if late.size:
        W[late] = bpp.solve(*map(to_host, (unit.gram, unit.cross[late]))) / to_host(norms)
    return W


def _unsolved(X: Data, W: Array, stats: Stats, *, eps: float) -> Array:
    """Say which rows may not be at their optimum.

    With a slope s (of the coordinates that may move) the objective is at most ``|s|^2 / (2 lambda_min)`` above its
    lowest value, which is held against the objective itself, and against what rounding leaves of it.
    """
    lowest = max(float(np.linalg.eigvalsh(stats.gram)[0]), np.finfo(np.float64).tiny)
    slope = W @ stats.gram - stats.cross
    moving = np.where(W > 0, slope, np.minimum(slope, 0))
    squares = arrays.row_squares(X)
    value = squares - np.einsum("nk,nk->n", stats.cross, W) + np.einsum("nk,nk->n", slope, W)
    gap = np.einsum("nk,nk->n", moving, moving) / lowest
    rounding = (64 * eps) ** 2 * np.einsum("nk,nk->n", stats.cross, stats.cross) / lowest
    return gap > np.maximum(GAP * np.maximum(value, eps * squares), rounding)
