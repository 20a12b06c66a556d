"""Rows inside the unit ball, block by block: what makes a sum over records have a finite sensitivity."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import sparse

from cofactor.local import arrays
from cofactor.types import Array, Data


def blocks(X: Data, bound: float | None, columns: Array | None = None) -> Iterator[Array]:
    """Yield dense float64 blocks of rows, every row in the unit ball; of ``columns`` only, if some are named.

    Rows are scaled to norm 1 (zero rows stay) if ``bound`` is None, and otherwise clipped to norm ``bound`` and divided
    by it. It is the norm of the whole row that counts.
    """
    scale = scales(X, bound)
    if columns is not None and sparse.issparse(X):
        X, columns = X.tocsc()[:, columns].tocsr(), None
    for here, block in arrays.blocks(X):
        yield (block if columns is None else block[:, columns]) * scale[here, None]


def total(X: Data, bound: float | None) -> Array:
    """Return the sum of all rows, each in the unit ball (m)."""
    if sparse.issparse(X):
        return X.astype(np.float64).T @ scales(X, bound)
    return np.sum([block.sum(axis=0) for block in blocks(X, bound)], axis=0)


def scales(X: Data, bound: float | None) -> Array:
    """Return the factor that brings each row into the unit ball (n)."""
    squares = X.astype(np.float64).power(2).sum(axis=1) if sparse.issparse(X) else arrays.row_squares(X)
    norms = np.sqrt(np.asarray(squares, dtype=np.float64).ravel())
    return 1 / (np.maximum(norms, bound) if bound is not None else np.where(norms > 0, norms, 1.0))
