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
READ_OFTEN = 32
"""Stored values for each row of a dense matrix from which on they gain more by whole lines than these cost."""
TOY = 1 << 12
"""Multiplications that scipy has done before numba would be imported."""


def times(X: Data, B: Array) -> Array:
    """``X B`` (n x k) for X in CSR or CSC (n x m) and a dense B (m x k)."""
    B = B.astype(X.dtype, copy=False)
    if X.nnz * B.shape[1] <= TOY:
        return X @ by_rows(B)
    return _gathered(X, B, X.shape[0]) if X.format == "csr" else _scattered(X, B, X.shape[0])


def transpose_times(X: Data, B: Array) -> Array:
    """``X^T B`` (m x k) for X in CSR or CSC (n x m) and a dense B (n x k); X is not turned."""
    B = B.astype(X.dtype, copy=False)
    if X.nnz * B.shape[1] <= TOY:
        return X.T @ by_rows(B)
    return _gathered(X, B, X.shape[1]) if X.format == "csc" else _scattered(X, B, X.shape[1])


def _gathered(X: Data, B: Array, n: int) -> Array:
    """Return the product whose n rows are gathered: what is stored goes along them."""
    from cofactor.local.kernels.lines import has_masks, in_lines
    from cofactor.local.kernels.scattered import gather_numbers, gather_rows

    gather = gather_rows if has_masks() else gather_numbers
    B, out = (in_lines if X.nnz > READ_OFTEN * B.shape[0] else by_rows)(B), np.empty((n, B.shape[1]), B.dtype)
    pieces = worth(X.nnz * out.shape[1])
    even = np.linspace(0, X.nnz, pieces * PIECES + 1)[1:-1] if pieces > 1 else np.empty(0)
    cuts = np.searchsorted(X.indptr, even).tolist()
    _share(lambda rows: gather(X.indptr, X.indices, X.data, B, out, *rows), [0, *cuts, n])
    return out


def _scattered(X: Data, B: Array, n: int) -> Array:
    """Return the product to whose n rows is scattered: what is stored goes across them."""
    from cofactor.local.kernels.lines import has_masks
    from cofactor.local.kernels.scattered import scatter_numbers, scatter_rows

    scatter = scatter_rows if has_masks() else scatter_numbers
    B, out = by_rows(B), np.zeros((n, B.shape[1]), B.dtype)
    pieces = worth(X.nnz * out.shape[1])
    pieces = pieces if pieces > 1 and X.has_sorted_indices else 1
    drawn = np.sort(X.indices[:: -(-X.nnz // SAMPLE)]) if pieces > 1 else X.indices[:0]
    cuts = [int(drawn[i * len(drawn) // pieces]) for i in range(1, pieces)]
    _share(lambda rows: scatter(X.indptr, X.indices, X.data, B, out, *rows), [0, *cuts, n])
    return out


def _share(work: Callable[[tuple[int, int]], None], cuts: list[int]) -> None:
    """Let threads that were lent do the rows between two cuts each."""
    list(each(work, list(pairwise(cuts))))
