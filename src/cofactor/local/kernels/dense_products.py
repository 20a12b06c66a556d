"""Products of dense matrices with thin ones, shared by the threads that were lent: by own kernels, or by BLAS."""

from __future__ import annotations

import numpy as np

from cofactor.local.threads import LINE, over_rows, product
from cofactor.types import Array

LEAST = 1 << 20
"""Multiplications below which BLAS does it: some hundredths of a millisecond, which calls of ours take longer."""
ROWS, BYTES = 4, 256
"""The least rows, and bytes of a row, of own kernels."""
THIN = 128
"""The most columns of a thin matrix; BLAS is at its best with many."""


def times_factor(X: Array, H: Array) -> Array:
    """``X H^T`` (n x k).

    BLAS is a fifth faster in double precision when the long side of X is the one it streams along, as
    ``(H X^T)^T``; in single precision it is the other way round.
    """
    if _is_thin(X, H, len(H)):
        from cofactor.local.kernels import thin

        return thin.times_factor(X, H)
    return product(X, H.T) if X.dtype == np.float32 else _times_columns(H, X.T).T


def times_codes(X: Array, W: Array) -> Array:
    """``X^T W`` (m x k), as ``(W^T X)^T``: up to a third faster by BLAS, for the same reason."""
    if _is_thin(X, W, W.shape[1]):
        from cofactor.local.kernels import thin

        return thin.transpose_times_codes(X, W).T
    return _times_columns(W.T, X).T


def _is_thin(X: Array, B: Array, k: int) -> bool:
    """Whether own kernels are faster: where vectors are long."""
    n, m = X.shape
    if not (n * m * k >= LEAST and n >= ROWS and m * X.itemsize >= BYTES and k <= THIN):
        return False
    if not (X.flags.c_contiguous and X.dtype == B.dtype and X.dtype in (np.float32, np.float64)):
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
