"""Sketches: random matrices S (n x d) with ``E[S S^T] = I`` that shrink one side of a half-problem from n to d.

``min_F 1/2 |X - F B|^2`` becomes ``min_F 1/2 |X S - F (B S)|^2``, whose gradient is the same on average (Qian et al.,
"Fast and secure distributed nonnegative matrix factorization", section 3.4). S is drawn from an addressed generator
wherever it is needed and never sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import scipy  # scipy.linalg loads when it is named
from scipy import sparse

from cofactor.local import arrays
from cofactor.types import Array, CofactorError, Data, Stats

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


class Sketch(Protocol):
    """A kind of random matrix and its size: a whole number d, or a share of n."""

    @property
    def size(self) -> float:
        """The size; see :func:`size_of`."""
        ...

    def draw(self, n: int, rank: int, rng: np.random.Generator) -> Drawn | None:
        """Return S for the side of length n; None where a share of n is no smaller than n: no sketch there."""
        ...


def size_of(size: float, n: int, rank: int) -> int:
    """Return d: a whole number as it is (k <= d <= n or an error), a share of n with at least 4 k columns.

    >>> size_of(50, 1000, 10), size_of(0.1, 1000, 10), size_of(0.1, 100, 10), size_of(0.1, 20, 10)
    (50, 100, 40, 20)
    """
    if isinstance(size, (int, np.integer)) and not isinstance(size, bool):
        if size < rank:
            raise CofactorError(f"sketch size must be at least the rank {rank}. Found {size}.")
        if size > n:
            raise CofactorError(f"sketch size must be at most the sketched side {n}. Found {size}.")
        return int(size)
    if not 0 < size <= 1:
        raise CofactorError(f"sketch size must be a whole number >= 1 or a share in (0, 1]. Found {size}.")
    return min(n, max(round(size * n), 4 * rank))


def left(drawn: Drawn, X: Data) -> Data:
    """``S^T X`` (d x columns) of a matrix with n rows."""
    return arrays.times_codes(X, _dense(drawn, X)).T if arrays.is_held(X) else drawn.right(X.T).T


def right(drawn: Drawn, X: Data) -> Data:
    """``X S`` (rows x d), also of data that keep their rows elsewhere."""
    return arrays.times_factor(X, _dense(drawn, X).T) if arrays.is_held(X) else drawn.right(X)


def _dense(drawn: Drawn, X: Data) -> Array:
    S = drawn.matrix()
    return np.asarray(S.toarray() if sparse.issparse(S) else S, dtype=X.dtype)


def fold(drawn: Drawn, F: Array, rows: slice) -> Array:
    """``F^T S[rows]`` (k x d) for a part F (rows x k) of a factor, in its dtype; picked coordinates are taken."""
    if not isinstance(drawn, Picked):
        return np.ascontiguousarray((drawn.matrix(rows).T @ F).T.astype(F.dtype, copy=False))
    first, last = np.searchsorted(drawn.index, (rows.start, rows.stop))
    out = np.zeros((F.shape[1], drawn.d), F.dtype)
    out[:, first:last] = F[drawn.index[first:last] - rows.start].T * F.dtype.type(np.sqrt(drawn.n / drawn.d))
    return out


def sketched_stats(XS: Data, BS: Array) -> Stats:
    """Statistics of ``min_F 1/2 |X S - F B S|^2``: gram (B S)(B S)^T (k x k), cross (X S)(B S)^T (rows x k)."""
    return Stats(BS @ BS.T, arrays.contiguous(arrays.times_factor(XS, BS)))


@dataclass(frozen=True)
class Gaussian:
    """Independent entries N(0, 1/d): the most even sketch, and the only one whose product costs as much as X itself."""

    size: float = 0.1

    def draw(self, n: int, rank: int, rng: np.random.Generator) -> Drawn | None:
        """Draw n d normal numbers."""
        d = size_of(self.size, n, rank)
        return None if _useless(self.size, d, n) else Normal(rng.standard_normal((n, d)) / np.sqrt(d))


@dataclass(frozen=True)
class Subsampling:
    """d of the n coordinates without replacement, times ``sqrt(n/d)``; sparse stays sparse.

    The paper prints it without the factor, for which ``E[S S^T]`` is ``d/n I``.
    """

    size: float = 0.1

    def draw(self, n: int, rank: int, rng: np.random.Generator) -> Drawn | None:
        """Draw the coordinates; they are kept in ascending order, which changes no product S S^T."""
        d = size_of(self.size, n, rank)
        return None if _useless(self.size, d, n) else Picked(n, np.sort(rng.choice(n, d, replace=False)))


@dataclass(frozen=True)
class CountSketch:
    """Every coordinate goes, with a random sign, into one of d sums (Clarkson and Woodruff 2013); O(nnz) to apply."""

    size: float = 0.1

    def draw(self, n: int, rank: int, rng: np.random.Generator) -> Drawn | None:
        """Draw a sum and a sign for every coordinate."""
        d = size_of(self.size, n, rank)
        return None if _useless(self.size, d, n) else Counted(d, rng.integers(d, size=n), _signs(n, rng))


@dataclass(frozen=True)
class SRHT:
    """Subsampled randomized Hadamard transform (Tropp 2011): ``S = D Q P sqrt(N/d)``, N the power of two >= n.

    D are random signs, Q the first n rows of the orthogonal Hadamard matrix (N x N), P picks d of its columns.
    """

    size: float = 0.1

    def draw(self, n: int, rank: int, rng: np.random.Generator) -> Drawn | None:
        """Draw the signs and the columns."""
        d = size_of(self.size, n, rank)
        if _useless(self.size, d, n):
            return None
        return Transformed(_signs(n, rng), np.sort(rng.choice(_power(n), d, replace=False)))


def _useless(size: float, d: int, n: int) -> bool:
    """A share that leaves all n coordinates is no sketch; a whole number is what was asked for."""
    return d == n and not isinstance(size, (int, np.integer))


def _signs(n: int, rng: np.random.Generator) -> Array:
    return 2.0 * rng.integers(2, size=n) - 1


def _power(n: int) -> int:
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
        scale = X.dtype.type(np.sqrt(self.n / self.d))
        if not isinstance(X, np.ndarray):  # sparse, or on a device
            return X[:, self.index] * scale
        out = X.T.take(self.index, axis=0).T if X.flags.f_contiguous else X.take(self.index, axis=1)
        out *= scale
        return out

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
        N = _power(self.n)
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


def catalog() -> dict[str, Any]:
    """Return every kind of sketch by name: the list that the common laws run over."""
    return {"gaussian": Gaussian, "subsampling": Subsampling, "count": CountSketch, "srht": SRHT}
