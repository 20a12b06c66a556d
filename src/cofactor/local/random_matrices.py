"""Matrices S (n x d) that sketches have drawn, each in the form in which it is applied; see sketch.py."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import scipy  # scipy.linalg loads when it is named
from scipy import sparse

from cofactor.types import Array, Data

DENSE_ROWS = 512
"""Rows of a sparse matrix that are made dense at a time by the Hadamard transform."""


class Drawn(Protocol):
    """One S (n x d): what :meth:`Sketch.draw` returns."""

    @property
    def n(self) -> int:
        """Rows of S: the length of the sketched side."""
        ...

    @property
    def d(self) -> int:
        """Columns of S: the length after the sketch."""
        ...

    def right(self, X: Data) -> Data:
        """``X S`` (rows x d) of a dense, CSR or CSC matrix with n columns, in its dtype."""
        ...

    def matrix(self, rows: slice = slice(None)) -> Data:
        """Return S, or some of its rows, explicitly: dense, or CSR where S is sparse."""
        ...


def power(n: int) -> int:
    """Return the power of two that is at least n."""
    return 1 << max(n - 1, 0).bit_length()


@dataclass(frozen=True, eq=False)
class Normal:
    """A dense S."""

    S: Array

    @property
    def n(self) -> int:
        """Rows of S."""
        return self.S.shape[0]

    @property
    def d(self) -> int:
        """Columns of S."""
        return self.S.shape[1]

    def right(self, X: Data) -> Array:
        """``X S`` as a product."""
        return X @ self.S.astype(X.dtype, copy=False)

    def matrix(self, rows: slice = slice(None)) -> Array:
        """Return S."""
        return self.S[rows]


@dataclass(frozen=True, eq=False)
class Picked:
    """The coordinates ``index``, times ``sqrt(n/d)``."""

    n: int
    index: Array

    @property
    def d(self) -> int:
        """How many coordinates."""
        return len(self.index)

    def right(self, X: Data) -> Data:
        """Return these columns of X, scaled; where they are rows in memory, they are taken as rows."""
        if not isinstance(X, np.ndarray):  # sparse, or on a device
            return X[:, self.index] * self.scale(X)
        # of what is part of a larger matrix, ``take`` would copy all first
        out = X.take(self.index, axis=1) if X.flags.c_contiguous else X.T[self.index].T
        out *= self.scale(X)
        return out

    def scale(self, X: Data) -> Any:
        """Return ``sqrt(n/d)`` in the dtype of X."""
        return X.dtype.type(np.sqrt(self.n / self.d))

    def matrix(self, rows: slice = slice(None)) -> Any:
        """Return S in CSR form."""
        values = np.full(self.d, np.sqrt(self.n / self.d))
        return sparse.csr_array((values, (self.index, np.arange(self.d))), shape=(self.n, self.d))[rows]


@dataclass(frozen=True, eq=False)
class Counted:
    """Coordinate i goes into sum ``bucket[i]`` with ``sign[i]``."""

    d: int
    bucket: Array
    sign: Array

    @property
    def n(self) -> int:
        """How many coordinates."""
        return len(self.bucket)

    def right(self, X: Data) -> Data:
        """``X S`` with the n nonzeros of S."""
        S = self._sparse.astype(X.dtype)
        return X @ S if sparse.issparse(X) else np.ascontiguousarray((S.T @ X.T).T)

    def matrix(self, rows: slice = slice(None)) -> Any:
        """Return S in CSR form."""
        return self._sparse[rows]

    @cached_property
    def _sparse(self) -> Any:
        return sparse.csr_array((self.sign, self.bucket, np.arange(self.n + 1)), shape=(self.n, self.d))


@dataclass(frozen=True, eq=False)
class Transformed:
    """Signs, the fast Hadamard transform, and the columns ``index`` of it."""

    sign: Array
    index: Array

    @property
    def n(self) -> int:
        """How many coordinates."""
        return len(self.sign)

    @property
    def d(self) -> int:
        """How many columns."""
        return len(self.index)

    def right(self, X: Data) -> Array:
        """Transform the rows of X, a few at a time where X is sparse."""
        if not sparse.issparse(X):
            return self._transform(X)
        X = X.tocsr()
        starts = range(0, X.shape[0], DENSE_ROWS)
        return np.vstack([self._transform(X[i : i + DENSE_ROWS].toarray()) for i in starts])

    def _transform(self, X: Array) -> Array:
        """``X D Q P sqrt(N/d)``, the N x N matrix as a Kronecker product of two of side about sqrt(N)."""
        N = power(self.n)
        a = 1 << (N.bit_length() // 2)
        outer, inner = (scipy.linalg.hadamard(s, dtype=X.dtype) for s in (N // a, a))
        padded = np.zeros((X.shape[0], N), X.dtype)
        np.multiply(X, self.sign, out=padded[:, : self.n], casting="same_kind")
        blocks = outer @ (padded.reshape(-1, a) @ inner).reshape(-1, N // a, a)
        return blocks.reshape(-1, N)[:, self.index] / X.dtype.type(np.sqrt(self.d))

    def matrix(self, rows: slice = slice(None)) -> Array:
        """Return S: entry (i, c) is ``sign_i (-1)^(number of ones in i & index_c) / sqrt(d)``."""
        shared = np.arange(self.n)[rows, None] & self.index
        for shift in (32, 16, 8, 4, 2, 1):
            shared = shared ^ (shared >> shift)
        return self.sign[rows, None] * (1 - 2.0 * (shared & 1)) / np.sqrt(self.d)
