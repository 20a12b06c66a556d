"""Products of CSR and CSC matrices with thin dense ones: vector instructions, and threads where some were lent.

What is stored is walked along in the order of memory. Threads share the rows of a product that gathers, and the columns
of one that scatters: no bit depends on how many there are.
"""

from __future__ import annotations

import numpy as np

from cofactor.local.kernels.compiled import compiled
from cofactor.local.threads import over_rows
from cofactor.types import Array, Data

WIDE = 8
"""Threads that scatter take columns in such steps."""
NARROW = 16
"""Products with fewer columns are scattered by scipy: vector instructions do not pay there."""


TOY = 1 << 12
"""Multiplications that scipy has done before numba would be imported."""


def times(X: Data, B: Array) -> Array:
    """``X B`` (n x k) for X in CSR or CSC (n x m) and a dense B (m x k)."""
    B = np.ascontiguousarray(B, dtype=X.dtype)
    if X.nnz * B.shape[1] <= TOY:
        return X @ B
    along = (X.indptr, X.indices, X.data)
    if X.format == "csr":
        return _gather(along, B, X.shape[0])
    return X @ B if B.shape[1] < NARROW else _scatter(along, B, X.shape[0])


def transpose_times(X: Data, B: Array) -> Array:
    """``X^T B`` (m x k) for X in CSR or CSC (n x m) and a dense B (n x k); X is not turned."""
    return times(X.T, B)


def _gather(along: tuple[Array, Array, Array], B: Array, n: int) -> Array:
    out = np.empty((n, B.shape[1]), B.dtype)
    each = max(len(along[2]) // max(n, 1), 1) * B.shape[1]
    over_rows(lambda start, stop: _gather_rows(*along, B, out, start, stop), n, each)
    return out


def _scatter(along: tuple[Array, Array, Array], B: Array, n: int) -> Array:
    out = np.zeros((n, B.shape[1]), B.dtype)
    over_rows(lambda start, stop: _scatter_columns(*along, B, out, start, stop), B.shape[1], len(along[2]), WIDE)
    return out


@compiled(error_model="numpy", fastmath={"contract"})
def _gather_rows(indptr: Array, indices: Array, data: Array, B: Array, out: Array, first: int, last: int) -> None:
    """``out_i = sum_e x_e B_(j_e)`` over the stored values e of rows ``first:last``, four at a time."""
    k = B.shape[1]
    for i in range(first, last):
        begin, end = indptr[i], indptr[i + 1]
        whole = begin + (end - begin) // 4 * 4
        for a in range(k):
            out[i, a] = 0
        for e in range(begin, whole, 4):
            x0, x1, x2, x3 = data[e], data[e + 1], data[e + 2], data[e + 3]
            j0, j1, j2, j3 = indices[e], indices[e + 1], indices[e + 2], indices[e + 3]
            for a in range(k):
                out[i, a] += x0 * B[j0, a] + x1 * B[j1, a] + x2 * B[j2, a] + x3 * B[j3, a]
        for e in range(whole, end):
            x, j = data[e], indices[e]
            for a in range(k):
                out[i, a] += x * B[j, a]


@compiled(error_model="numpy", fastmath={"contract"})
def _scatter_columns(indptr: Array, indices: Array, data: Array, B: Array, out: Array, first: int, last: int) -> None:
    """``out_(j_e) += x_e B_i`` over all stored values e, in columns ``first:last``: no two threads write one place."""
    for i in range(B.shape[0]):
        row = B[i, first:last]
        for e in range(indptr[i], indptr[i + 1]):
            x, to = data[e], out[indices[e], first:last]
            for a in range(last - first):
                to[a] += x * row[a]
