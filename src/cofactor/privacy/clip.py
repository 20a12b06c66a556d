"""Clipping: the bound that makes a sensitivity finite. Shrinks, never grows; directions stay."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy import sparse

from cofactor.privacy.errors import NotFiniteError, OutOfRangeError
from cofactor.privacy.gaussian import check_positive
from cofactor.types import Array, Data


def norm(x: Array, bound: float) -> Array:
    """Return ``x min(1, bound / |x|)`` with the Frobenius norm."""
    return joint({"x": x}, bound)["x"]


def joint(arrays: Mapping[str, Array], bound: float) -> dict[str, Array]:
    """Return all arrays times ``min(1, bound / |(a, b, ...)|)``: one clip of everything a client sends."""
    check_positive("clip", bound)
    length = _norm(arrays)
    scale = 1.0 if length <= bound else bound / length
    return {name: np.asarray(a, dtype=np.float64) * scale for name, a in arrays.items()}


def rows(X: Data, bound: float) -> Data:
    """Return X with every row x shrunk to ``x min(1, bound / |x|)``; sparse stays sparse."""
    check_positive("clip", bound)
    if sparse.issparse(X):
        return (sparse.diags(_row_scale(sparse.csr_matrix(X), bound)) @ X).tocsr()
    X = np.asarray(X, dtype=np.float64)
    return X * _row_scale(X, bound)[:, None]


def require(arrays: Mapping[str, Array], bound: float) -> None:
    """Raise :class:`OutOfRangeError` if a message that was to be clipped is longer than its bound."""
    length = _norm(arrays)
    if length > bound * (1 + 1e-9):
        raise OutOfRangeError(f"a message clipped to norm {bound:g} was expected. Found norm {length:g}.")


def _norm(arrays: Mapping[str, Array]) -> float:
    """The joint Frobenius norm, scaled by the largest entry so that squares cannot overflow."""
    flat = [np.asarray(a, dtype=np.float64).ravel() for a in arrays.values()]
    for name, a in zip(arrays, flat):
        if not np.isfinite(a).all():
            raise NotFiniteError(f"array {name!r} has NaN or infinite values; they cannot be clipped.")
    top = max((float(np.abs(a).max(initial=0.0)) for a in flat), default=0.0)
    return top * float(np.sqrt(sum(float(np.sum((a / top) ** 2)) for a in flat))) if top > 0 else 0.0


def _row_scale(X: Data, bound: float) -> Array:
    values = X.data if sparse.issparse(X) else X
    if not np.isfinite(values).all():
        raise NotFiniteError("X has NaN or infinite values; its rows cannot be clipped.")
    largest = abs(X).max(axis=1)
    top = np.asarray(largest.toarray() if sparse.issparse(largest) else largest, dtype=np.float64).ravel()
    top = np.where(top > 0, top, 1.0)
    scaled = sparse.diags(1 / top) @ X if sparse.issparse(X) else X / top[:, None]
    squares = scaled.multiply(scaled) if sparse.issparse(scaled) else scaled**2
    length = top * np.sqrt(np.asarray(squares.sum(axis=1)).ravel())
    return np.where(length > bound, bound / np.where(length > 0, length, 1.0), 1.0)
