"""Clients that lack features: their matrix has all columns by name, and only some by value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from cofactor.local import arrays
from cofactor.types import Array, Data, DataError


@dataclass(frozen=True, eq=False)
class SomeColumns:
    """A matrix (n x m) of which only the columns ``index`` are known; the others are missing, not zero.

    Every product and every error leaves the missing columns out: a client fits ``X ~ W H[:, index]``.
    """

    inner: Data
    index: Array
    n_features: int

    ndim = 2

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features, missing ones too."""
        return self.inner.shape[0], self.n_features

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the known values."""
        return self.inner.dtype

    def times_factor(self, H: Array) -> Array:
        """``X H^T`` over the known columns (n x k)."""
        return arrays.times_factor(self.inner, arrays.contiguous(H[:, self.index]))

    def times_codes(self, W: Array) -> Array:
        """``X^T W`` (m x k), rows of zeros where the client has nothing to say."""
        out = np.zeros((self.n_features, W.shape[1]), W.dtype, like=W)
        out[self.index] = arrays.times_codes(self.inner, W)
        return out

    def row_squares(self) -> Array:
        """``|x_i|^2`` of every row."""
        return arrays.row_squares(self.inner)

    def rows(self, index: Array) -> SomeColumns:
        """Return the rows at ``index``."""
        return SomeColumns(arrays.rows(self.inner, index), self.index, self.n_features)

    def check(self, *, client: object = 0, signed: bool = False) -> SomeColumns:
        """Check the known values."""
        try:
            return SomeColumns(arrays.check(self.inner, client=client, signed=signed), self.index, self.n_features)
        except DataError as error:
            if error.column is None:
                raise
            there = int(self.index[error.column])
            text = str(error).replace(f"column {error.column}", f"column {there}", 1)
            raise DataError(text, there) from None

    def parted(self, change: Callable[[Data], Data]) -> SomeColumns:
        """Change what is known."""
        return SomeColumns(change(self.inner), self.index, self.n_features)

    def astype(self, dtype: Any) -> SomeColumns:
        """Convert the known values."""
        return SomeColumns(self.inner.astype(dtype), self.index, self.n_features)


def columns_of(X: Data) -> Any:
    """Return the columns that X knows: an index, or all."""
    return X.index if isinstance(X, SomeColumns) else slice(None)


def column_sums(X: Data) -> tuple[Array, Array]:
    """Return ``sum_i x_i`` and ``sum_i x_i^2`` of every column (m) in double precision; 0 where a column is missing."""
    if isinstance(X, SomeColumns):
        out = np.zeros((2, X.n_features))
        out[:, X.index] = column_sums(X.inner)
        return out[0], out[1]
    if sparse.issparse(X):
        X = X.tocsc()
        values, column = X.data.astype(np.float64), np.repeat(np.arange(X.shape[1]), np.diff(X.indptr))
        first, second = (np.bincount(column, v, minlength=X.shape[1]) for v in (values, values**2))
        return first, second
    total, squares = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for _, block in arrays.blocks(X):
        total += block.sum(axis=0)
        squares += np.einsum("ij,ij->j", block, block)
    return total, squares


def groups(known: Sequence[Array], n_features: int) -> tuple[int, ...]:
    """Number the features so that those with the same set of clients share a number.

    >>> groups([np.array([0, 1, 2]), np.array([1, 2, 3])], 4)
    (0, 1, 1, 2)
    """
    has = np.zeros((len(known), n_features), bool)
    for j, index in enumerate(known):
        has[j, index] = True
    _, first, number = np.unique(has, axis=1, return_index=True, return_inverse=True)
    order = np.argsort(np.argsort(first))
    return tuple(order[number.ravel()].tolist())
