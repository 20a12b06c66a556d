"""Products of dense matrices with thin ones, shared by the threads that were lent: by own kernels, or by BLAS."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cofactor.local.threads import LINE, over_rows, product
from cofactor.types import Array

LEAST = 1 << 20
"""Multiplications below which BLAS does it: some hundredths of a millisecond, which calls of ours take longer."""
ROWS, BYTES = 4, 256
"""The least rows, and bytes of a row, of own kernels."""
THIN = 128
"""The most columns of a thin matrix; BLAS is at its best with many."""
FEW = 1 << 11
"""Rows of which BLAS makes a gram at a time: no bit depends on how many threads share them."""


def times_factor(X: Array, H: Array) -> Array:
    """``X H^T`` (n x k).

    BLAS is a fifth faster in double precision when the long side of X is the one it streams along, as
    ``(H X^T)^T``; in single precision it is the other way round.
    """
    if X.size * len(H) < LEAST:
        return X @ H.T if X.dtype == np.float32 else (H @ X.T).T
    if (way := own_way(X, H, len(H))) is not None:
        from cofactor.local.kernels import thin

        return thin.times_factor(X, H) if way == "rows" else thin.transpose_times_codes(X.T, H.T).T
    return product(X, H.T) if X.dtype == np.float32 else _times_columns(H, X.T).T


def times_codes(X: Array, W: Array) -> Array:
    """``X^T W`` (m x k), as ``(W^T X)^T``: up to a third faster by BLAS, for the same reason."""
    if X.size * W.shape[1] < LEAST:
        return (W.T @ X).T
    if (way := own_way(X, W, W.shape[1])) is not None:
        from cofactor.local.kernels import thin

        return thin.transpose_times_codes(X, W).T if way == "rows" else thin.times_factor(X.T, W.T)
    return _times_columns(W.T, X).T


def times_picked(X: Array, index: Array, W: Array) -> Array:
    """``X[index]^T W`` (m x k); rows are multiplied where they are, as long as there is much to multiply."""
    if X.strides[1] == X.itemsize and _pays(len(index), X.shape[1], W.shape[1], X, W):
        from cofactor.local.kernels import thin

        return thin.transpose_times_codes(X, W, index).T
    return times_codes(X[index], W)


def gram(F: Array) -> Array:
    """``F^T F`` (k x k): that of some rows at a time, added in order."""
    (n, k), rows = F.shape, FEW
    make: Callable[..., object] = _grams
    if sums_grams(F):
        from cofactor.local.kernels import grams

        rows, make = grams.PART, grams.gram_rows
    elif n <= FEW:
        return F.T @ F
    parts = np.zeros((-(-n // rows), k, k), F.dtype)

    over_rows(lambda start, stop: make(parts[start // rows :], F, start, stop), n, k * k, rows)
    return parts.sum(axis=0)


def _grams(out: Array, F: Array, first: int, last: int) -> None:
    for made, start in zip(out, range(first, last, FEW), strict=False):
        part = F[start : min(start + FEW, last)]
        np.matmul(part.T, part, out=made)


def sums_grams(F: Array) -> bool:
    """Whether grams of such a matrix are summed by a kernel of our own."""
    n, k = F.shape
    if n * k * k < LEAST or k > THIN or not F.flags.c_contiguous or F.dtype not in (np.float32, np.float64):
        return False
    from cofactor.local.kernels import lines

    return lines.has_long_vectors()


def own_way(X: Array, B: Array, k: int) -> str | None:
    """Return whether X lies by "rows" or by "columns" for own kernels; None where these are not faster.

    That is so where vectors are short, and where there is little to multiply.
    """
    way = "rows" if X.flags.c_contiguous else "columns" if X.flags.f_contiguous else None
    n, m = X.shape if way == "rows" else X.shape[::-1]
    return way if way and _pays(n, m, k, X, B) else None


def _pays(n: int, m: int, k: int, X: Array, B: Array) -> bool:
    """Whether own kernels are faster for n rows of m numbers each; BLAS has other types."""
    if n * m * k < LEAST or k > THIN or X.dtype != B.dtype or X.dtype not in (np.float32, np.float64):
        return False
    if n < ROWS or m * X.itemsize < BYTES:
        return False
    from cofactor.local.kernels import lines

    return lines.has_long_vectors()


def _times_columns(A: Array, B: Array) -> Array:
    """``A B``, columns of B shared among the threads that were lent."""
    out = np.empty((A.shape[0], B.shape[1]), np.result_type(A, B))

    def some(start: int, stop: int) -> None:
        np.matmul(A, B[:, start:stop], out=out[:, start:stop])

    over_rows(some, B.shape[1], A.size, LINE)
    return out
