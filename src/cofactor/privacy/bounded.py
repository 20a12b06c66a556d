"""Rows inside the unit ball, block by block: what makes a sum over records have a finite sensitivity."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy import sparse

from cofactor.local import arrays
from cofactor.privacy import clip
from cofactor.types import Array, Data

LEAST, MOST = 1e-20, 1e20
"""Sums of squares between these have all their digits, in single precision too; other rows are measured scaled."""
SLACK = 1 + 1e-9


class Scales(NamedTuple):
    """What brings rows into the unit ball: ``x / top * scale``; ``top`` is 1 but for rows of extreme size."""

    top: Array
    scale: Array

    def of(self, rows: slice) -> Scales:
        """Return those of some rows, ready for their columns."""
        return Scales(self.top[rows, None], self.scale[rows, None])


def blocks(X: Data, bound: float | None, columns: Array | None = None) -> Iterator[Array]:
    """Yield dense float64 blocks of rows, every row in the unit ball; of ``columns`` only, if some are named.

    Rows are scaled to norm 1 (zero rows stay) if ``bound`` is None, and otherwise clipped to norm ``bound`` and divided
    by it. It is the norm of the whole row that counts.
    """
    scales = scales_of(X, bound)
    if columns is not None and sparse.issparse(X):
        X, columns = X.tocsc()[:, columns].tocsr(), None
    for here, block in arrays.blocks(X):
        top, scale = scales.of(here)
        yield _inside((block if columns is None else block[:, columns]) / top * scale)


def around(X: Data, bound: float | None, center: Array, radius: float, columns: Array | None = None) -> Iterator[Array]:
    """Yield :func:`blocks` less a centre (m), every row clipped to norm ``radius``; of ``columns`` only, if named."""
    some = None if columns is None or len(columns) == len(center) else columns
    origin = center if columns is None else center[columns]
    for block in blocks(X, bound, some):
        yield clip.rows(block - origin, radius)


def total(X: Data, bound: float | None) -> Array:
    """Return the sum of all rows, each in the unit ball (m)."""
    if sparse.issparse(X):
        top, scale = scales_of(X, bound)
        return _divided(X, top).T @ scale
    return sum((block.sum(axis=0) for block in blocks(X, bound)), np.zeros(X.shape[1]))


def scales_of(X: Data, bound: float | None) -> Scales:
    """Return what brings each row into the unit ball (n), for every finite row of any size.

    Squares of entries near 1e-162 vanish and those near 1e155 overflow (1e-23 and 1e19 in single precision), so that
    rows whose sum of squares is out of the ordinary are divided by their largest entry first. Of a cell that is stored
    in parts it is their sum that is squared.
    """
    X = arrays.canonical(X) if sparse.issparse(X) else X
    with np.errstate(over="ignore", under="ignore"):
        squares = arrays.row_squares(X)
    top, ordinary = np.ones(len(squares)), (squares > LEAST) & (squares < MOST)
    if not ordinary.all():
        odd = np.flatnonzero(~ordinary)
        top[odd], squares[odd] = _measured(arrays.rows(X, odd))
    norms = np.sqrt(squares)  # of rows divided by their top
    unit = 1 / np.where(norms > 0, norms, 1.0)
    if bound is None:
        return Scales(top, unit)
    with np.errstate(over="ignore"):  # where that happens, or the row is zero, it is not used
        short = (top * norms <= bound) & (norms > 0)
        return Scales(top, np.where(short, top / bound, unit))


def _measured(X: Data) -> tuple[Array, Array]:
    """Return the largest entry of every row (1 for zero rows), and the sum of squares of the row divided by it."""
    top, squares = np.ones(X.shape[0]), np.zeros(X.shape[0])
    for here, block in arrays.blocks(X):
        largest = np.abs(block).max(axis=1)
        top[here] = np.where(largest > 0, largest, 1.0)
        squares[here] = np.square(block / top[here, None]).sum(axis=1)
    return top, squares


def _divided(X: Data, top: Array) -> Data:
    """Return sparse rows divided by their top; a product with 1 / top would overflow for the smallest."""
    rows = X.tocsr().astype(np.float64)
    values = rows.data / np.repeat(top, np.diff(rows.indptr))
    return sparse.csr_matrix((values, rows.indices, rows.indptr), shape=rows.shape)


def _inside(block: Array) -> Array:
    """Return rows that are in the unit ball: measured, not assumed; what lies outside is shortened."""
    norms = np.sqrt(np.einsum("ij,ij->i", block, block))
    outside = norms > SLACK
    if outside.any():
        block[outside] /= norms[outside, None]
    return block
