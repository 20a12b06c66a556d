"""Numba kernels of Kullback-Leibler on CSR rows: a model's cells are computed where data are, and never kept."""

from __future__ import annotations

import math

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
