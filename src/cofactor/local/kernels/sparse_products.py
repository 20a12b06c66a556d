"""Products of CSR and CSC matrices with thin dense ones: vector instructions, and threads where some were lent.

What is stored is walked along in the order of memory. Threads share the rows of a product, as many values each: no bit
depends on how many there are.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from cofactor.local.kernels.orders import by_rows
from cofactor.local.threads import PIECES, each, worth
from cofactor.types import Array, Data

SAMPLE = 1 << 10
"""Stored values by which rows that are scattered to are shared evenly."""
NARROW = 16
"""Products with fewer columns are scattered by scipy: vector instructions do not pay there."""


TOY = 1 << 12
"""Multiplications that scipy has done before numba would be imported."""


def times(X: Data, B: Array) -> Array:
    """``X B`` (n x k) for X in CSR or CSC (n x m) and a dense B (m x k)."""
    B = B.astype(X.dtype, copy=False)
    if X.nnz * B.shape[1] <= TOY:
        return X @ by_rows(B)
    along = (X.indptr, X.indices, X.data)
    if X.format == "csr":
        return _gather(along, B, X.shape[0])
    B = by_rows(B)
    return X @ B if B.shape[1] < NARROW else _scatter(along, B, X.shape[0], X.has_sorted_indices)


def transpose_times(X: Data, B: Array) -> Array:
    """``X^T B`` (m x k) for X in CSR or CSC (n x m) and a dense B (n x k); X is not turned."""
    turned = X.T
    turned.has_sorted_indices = X.has_sorted_indices  # which X remembers
    return times(turned, B)


def _gather(along: tuple[Array, Array, Array], B: Array, n: int) -> Array:
    from cofactor.local.kernels.lines import in_lines
    from cofactor.local.kernels.scattered import gather_rows

    out, lined = np.empty((n, B.shape[1]), B.dtype), in_lines(B)
    pieces = worth(along[2].size * B.shape[1])
    pieces *= PIECES if pieces > 1 else 1
    cuts = np.searchsorted(along[0], np.linspace(0, along[2].size, pieces + 1)[1:-1]).tolist()
    _share(lambda rows: gather_rows(*along, lined, out, np.empty_like(lined[:1]), *rows), [0, *cuts, n])
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
