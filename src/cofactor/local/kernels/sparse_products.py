"""Products of CSR and CSC matrices with thin dense ones: vector instructions, and threads where some were lent.

What is stored is walked along in the order of memory. Threads share the rows of a product, as many values each: no bit
depends on how many there are.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from cofactor.local.kernels.compiled import compiled
from cofactor.local.threads import by_rows, each, worth
from cofactor.types import Array, Data

SAMPLE = 1 << 10
"""Stored values by which rows that are scattered to are shared evenly."""
NARROW = 16
"""Products with fewer columns are scattered by scipy: vector instructions do not pay there."""


TOY = 1 << 12
"""Multiplications that scipy has done before numba would be imported."""


def times(X: Data, B: Array) -> Array:
    """``X B`` (n x k) for X in CSR or CSC (n x m) and a dense B (m x k)."""
    B = by_rows(B.astype(X.dtype, copy=False))
    if X.nnz * B.shape[1] <= TOY:
        return X @ B
    along = (X.indptr, X.indices, X.data)
    if X.format == "csr":
        return _gather(along, B, X.shape[0])
    return X @ B if B.shape[1] < NARROW else _scatter(along, B, X.shape[0], X.has_sorted_indices)


def transpose_times(X: Data, B: Array) -> Array:
    """``X^T B`` (m x k) for X in CSR or CSC (n x m) and a dense B (n x k); X is not turned."""
    turned = X.T
    turned.has_sorted_indices = X.has_sorted_indices  # which X remembers
    return times(turned, B)


def _gather(along: tuple[Array, Array, Array], B: Array, n: int) -> Array:
    out = np.empty((n, B.shape[1]), B.dtype)
    pieces = worth(along[2].size * B.shape[1])
    cuts = np.searchsorted(along[0], np.linspace(0, along[2].size, pieces + 1)[1:-1]).tolist()
    _share(lambda rows: _gather_rows(*along, B, out, *rows), [0, *cuts, n])
    return out


def _scatter(along: tuple[Array, Array, Array], B: Array, n: int, in_order: bool) -> Array:
    from cofactor.local.kernels.scattered import scatter_rows

    out = np.zeros((n, B.shape[1]), B.dtype)
    pieces = worth(along[2].size * B.shape[1]) if in_order else 1
    drawn = np.sort(along[1][:: -(-along[1].size // SAMPLE)]) if pieces > 1 else along[1][:0]
    cuts = [int(drawn[i * len(drawn) // pieces]) for i in range(1, pieces)]
    _share(lambda rows: scatter_rows(*along, B, out, *rows), [0, *cuts, n])
    return out


def _share(work: Callable[[tuple[int, int]], None], cuts: list[int]) -> None:
    """Let threads that were lent do the rows between two cuts each."""
    list(each(work, list(pairwise(cuts))))


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
