"""Numba kernels of Kullback-Leibler on CSR rows: a model's cells are computed where data are, and never kept."""

from __future__ import annotations

import math

import numpy as np

from cofactor.local.kernels.compiled import compiled
from cofactor.types import Array

Rows = tuple[Array, Array, Array]
"""The three arrays of a CSR matrix: where rows begin, columns, values."""
TINY = 1e-30
"""The least value of a model's cell: keeps ratios finite where nothing explains a cell."""


@compiled(error_model="numpy", fastmath={"contract", "reassoc"})
def codes(rows: Rows, W: Array, Ht: Array, out: Array) -> None:
    """``out_i += sum_j x_ij / (W H)_ij h_j`` for every row i (n x k); ``Ht`` is the factor's transpose (m x k)."""
    indptr, indices, data = rows
    k = W.shape[1]
    for i in range(W.shape[0]):
        for entry in range(indptr[i], indptr[i + 1]):
            j = indices[entry]
            y = W.dtype.type(0)
            for a in range(k):
                y += W[i, a] * Ht[j, a]
            ratio = data[entry] / max(y, W.dtype.type(TINY))
            for a in range(k):
                out[i, a] += ratio * Ht[j, a]


@compiled(error_model="numpy", fastmath={"contract", "reassoc"})
def factor(rows: Rows, W: Array, Ht: Array, out: Array) -> float:
    """``out_j += sum_i x_ij / (W H)_ij w_i`` (m x k); returns ``sum x log(x / y) - x`` over what is stored."""
    indptr, indices, data = rows
    k = W.shape[1]
    loss = 0.0
    for i in range(W.shape[0]):
        for entry in range(indptr[i], indptr[i + 1]):
            j, x = indices[entry], data[entry]
            y = W.dtype.type(0)
            for a in range(k):
                y += W[i, a] * Ht[j, a]
            y = max(y, W.dtype.type(TINY))
            ratio = x / y
            for a in range(k):
                out[j, a] += ratio * W[i, a]
            if x > 0:
                loss += x * math.log(ratio) - x
    return loss


@compiled(error_model="numpy", fastmath={"contract", "reassoc"})
def settle(rows: Rows, W: Array, Ht: Array, slopes: Array, bend: float, sweeps: int, tol: float) -> None:
    """Minimize ``w s_i + bend/2 |w|^2 - sum_j x_ij log(w h_j)`` over w >= 0 in place, one entry of a row at a time.

    ``slopes`` (n x k) are the s. In one entry the slope is concave: from below, Newton's steps never pass the minimum;
    from above they might, so 0 is tried first, and an entry falls to no less than a tenth in a step.
    """
    indptr, indices, data = rows
    k, widest = W.shape[1], 0
    for i in range(W.shape[0]):
        widest = max(widest, indptr[i + 1] - indptr[i])
    B, x, y = np.empty((k, widest), W.dtype), np.empty(widest, W.dtype), np.empty(widest, W.dtype)
    zero, tiny = W.dtype.type(0), W.dtype.type(TINY)
    for i in range(W.shape[0]):
        first, count = indptr[i], indptr[i + 1] - indptr[i]
        for e in range(count):
            x[e], y[e] = data[first + e], zero
            for a in range(k):
                B[a, e] = Ht[indices[first + e], a]
                y[e] += W[i, a] * B[a, e]
        for _ in range(sweeps):
            moved = top = zero
            for a in range(k):
                w, slope, curve, least = W[i, a], zero, zero, zero
                for e in range(count):
                    pull = B[a, e] / max(y[e], tiny)
                    slope += x[e] * pull
                    curve += x[e] * pull * pull
                slope, curve = slopes[i, a] + bend * w - slope, curve + bend
                new = w
                if slope < 0 and curve > 0:
                    new = w - slope / curve
                elif slope > 0 and w > 0:
                    for e in range(count):
                        least += x[e] * B[a, e] / max(y[e] - w * B[a, e], tiny)
                    new = zero if least <= slopes[i, a] else max(w - slope / curve, w / 10)
                if new != w:
                    W[i, a] = new
                    for e in range(count):
                        y[e] = max(y[e] + (W[i, a] - w) * B[a, e], zero)
                moved, top = max(moved, abs(W[i, a] - w)), max(top, W[i, a])
            if moved <= tol * top:
                break
