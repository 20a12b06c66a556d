"""Matrices row by row in memory, by the threads that were lent."""

from __future__ import annotations

import numpy as np

from cofactor.local.threads import LINE, TURNED, copy_rows, over_rows
from cofactor.types import Array

SMALL = 1 << 16
"""Numbers for which nothing is compiled."""


def as_lies(A: Array, other: Array) -> Array:
    """Return A (n x k) column by column where another matrix lies so, else row by row: as it is, or a copy."""
    columns = other.flags.f_contiguous and not other.flags.c_contiguous
    return by_rows(A.T).T if columns else by_rows(A)


def by_rows(A: Array) -> Array:
    """Return A (n x k) row by row in memory: as it is, or a copy."""
    if A.flags.c_contiguous or A.ndim != 2:
        return np.ascontiguousarray(A)
    out = np.empty(A.shape, A.dtype)
    if A.size > SMALL and A.flags.f_contiguous and A.dtype in (np.float32, np.float64):
        from cofactor.local.kernels.turning import turn_out

        lines, (n, k) = A.T, A.shape
        over_rows(lambda start, stop: turn_out(out, lines, start, stop - start, start), n, TURNED * k, LINE)
    else:
        copy_rows(out, A)
    return out
