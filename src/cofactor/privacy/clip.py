"""Clipping: the bound that makes a sensitivity finite. Shrinks, never grows; directions stay."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from cofactor.privacy.errors import NotFiniteError, OutOfRangeError
from cofactor.privacy.gaussian import check_positive
from cofactor.types import Array, Data


def norm(x: Array, bound: float) -> Array:
    """Return ``x min(1, bound / |x|)`` with the Frobenius norm."""
    check_positive("clip", bound)
    length = _norm(x)
    return np.asarray(x, dtype=np.float64) * (1.0 if length <= bound else bound / length)


def rows(X: Data, bound: float) -> Data:
    """Return X with every row x shrunk to ``x min(1, bound / |x|)``; sparse stays sparse."""
    check_positive("clip", bound)
    if sparse.issparse(X):
        return (sparse.diags(_row_scale(sparse.csr_matrix(X), bound)) @ X).tocsr()
    X = np.asarray(X, dtype=np.float64)
    return X * _row_scale(X, bound)[:, None]


def require(x: Array, bound: float) -> None:
    """Raise :class:`OutOfRangeError` if a message that was to be clipped is longer than its bound."""
    length = _norm(x)
    if length > bound * (1 + 1e-9):
        raise OutOfRangeError(f"a message clipped to norm {bound:g} was expected. Found norm {length:g}.")


def _norm(x: Array) -> float:
    """The Frobenius norm, scaled by the largest entry so that squares cannot overflow."""
    flat = np.asarray(x, dtype=np.float64).ravel()
    if not np.isfinite(flat).all():
        raise NotFiniteError("a message has NaN or infinite values; they cannot be clipped.")
    top = float(np.abs(flat).max(initial=0.0))
    return top * float(np.sqrt(np.sum((flat / top) ** 2))) if top > 0 else 0.0


def _row_scale(X: Data, bound: float) -> Array:
    """Return ``min(1, bound / |x|)`` of every row (n); rows are measured divided by their largest entry."""
    if not np.isfinite(X.data if sparse.issparse(X) else X).all():
        raise NotFiniteError("X has NaN or infinite values; its rows cannot be clipped.")
    largest = abs(X).max(axis=1)
    top = np.asarray(largest.toarray() if sparse.issparse(largest) else largest, dtype=np.float64).ravel()
    top = np.where(top > 0, top, 1.0)
    if sparse.issparse(X):  # divided entry by entry: a product with 1 / top would overflow for the smallest
        owner = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
        squares = np.bincount(owner, np.square(X.data / top[owner]), X.shape[0])
    else:
        scaled = X / top[:, None]
        squares = np.einsum("ij,ij->i", scaled, scaled)
    with np.errstate(over="ignore"):  # a row so short that this is infinite stays as it is
        return np.minimum(1.0, bound / top / np.sqrt(np.maximum(squares, 1.0)))
