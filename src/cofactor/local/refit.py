"""The codes that belong to a final factor: every reported error and every ``transform`` uses these."""

from __future__ import annotations

from typing import Any

import numpy as np

from cofactor.local import arrays, bpp
from cofactor.local.columns import SomeColumns, columns_of
from cofactor.local.placed import to_host
from cofactor.local.stats import for_codes
from cofactor.local.updates import HALS
from cofactor.types import Array, Data, Stats

SOLVE = HALS(sweeps=200, tol=1e-6)
GAP = 1e-4
"""A row is solved when its squared error can be at most this much (of itself) above the lowest."""


def refit(X: Data, H: Array, beside: Array | None = None) -> Array:
    """``argmin_{W >= 0} 1/2 |X - W H|^2`` (n x k): by HALS, each row until a sweep moves it by 1e-6.

    Between components that are nearly collinear it creeps: rows that may still be far are solved by pivoting.
    ``beside`` (k x m) adds ``1/2 |W beside|^2``.
    """
    stats = for_codes(X, H.astype(X.dtype, copy=False))
    if beside is not None:
        stats = Stats(stats.gram + arrays.gram(beside[:, columns_of(X)].T), stats.cross)
    W = SOLVE(np.zeros_like(stats.cross), stats)
    norms = np.sqrt(np.diag(stats.gram).astype(np.float64))
    norms[norms == 0] = 1.0
    unit = Stats(stats.gram / np.outer(norms, norms), stats.cross / norms)  # as if components were at norm 1
    late = np.flatnonzero(_unsolved(X, W * norms, unit, eps=float(np.finfo(W.dtype).eps)))
    if late.size:
        W[late] = _solved(X, _of_host(H), to_host(norms), late, to_host(W[late]), beside=_of_host(beside))
    return W


def _solved(X: Data, H: Array, norms: Array, late: Array, near: Array, *, beside: Array | None) -> Array:
    """Solve some rows by pivoting; ``near`` are their codes so far, which stay where they are as good.

    Pivoting is exact, and so as good as its statistics: those of nearly collinear components mean nothing in single
    precision, in which the data may be.
    """
    unit = H[:, columns_of(X)] / norms[:, None]
    gram, step = unit @ unit.T, max(1, arrays.BLOCK_CELLS // X.shape[1])
    if beside is not None:
        more = beside[:, columns_of(X)] / norms[:, None]
        gram += more @ more.T
    found, known = np.array(near, np.float64), X.inner if isinstance(X, SomeColumns) else X
    for low in range(0, len(late), step):
        here = slice(low, low + step)
        rows = arrays.rows(known, late[here])
        cross = np.asarray(arrays.row_block(rows, slice(0, rows.shape[0])).astype(np.float64) @ unit.T)
        old, new = found[here] * norms, bpp.solve(gram, cross)
        better = _value(new, gram, cross) < _value(old, gram, cross)
        found[here] = np.where(better[:, None], new, old) / norms
    return found.astype(near.dtype)


def _of_host(a: Array | None) -> Any:
    return None if a is None else to_host(a).astype(np.float64)


def _value(W: Array, gram: Array, cross: Array) -> Array:
    """``1/2 |x - w H|^2 - 1/2 |x|^2`` of every row (n)."""
    return np.einsum("nk,nk->n", 0.5 * (W @ gram) - cross, W)


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
