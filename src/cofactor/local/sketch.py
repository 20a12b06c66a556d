"""Sketches: random matrices S (n x d) with ``E[S S^T] = I`` that shrink one side of a half-problem from n to d.

``min_F 1/2 |X - F B|^2`` becomes ``min_F 1/2 |X S - F (B S)|^2``, whose gradient is the same on average (Qian et al.,
"Fast and secure distributed nonnegative matrix factorization", section 3.4). S is drawn from an addressed generator
wherever it is needed and never sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from cofactor.local import arrays
from cofactor.local.random_matrices import Counted, Drawn, Normal, Picked, Transformed, power
from cofactor.types import Array, CofactorError, Data, Stats


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
    here, by_columns = drawn.index[first:last] - rows.start, isinstance(F, np.ndarray) and F.flags.f_contiguous
    out[:, first:last] = F.T.take(here, axis=1) if by_columns else F[here].T
    out[:, first:last] *= drawn.scale(F)
    return out


def sketched_stats(XS: Data, BS: Array) -> Stats:
    """Statistics of ``min_F 1/2 |X S - F B S|^2``: gram (B S)(B S)^T (k x k), cross (X S)(B S)^T (rows x k)."""
    return Stats(BS @ BS.T, arrays.times_factor(XS, BS))


def sketched(drawn: Drawn | None, X: Data, BS: Array, squares: Array) -> tuple[Stats, float]:
    """Return these statistics of X and ``|X S|^2``; ``squares`` are those of the columns of X. None is no sketch.

    Columns that are rows in memory are multiplied where they are.
    """
    if drawn is None:
        return sketched_stats(X, BS), float(squares.sum())
    if not isinstance(drawn, Picked):
        XS = right(drawn, X)
        return sketched_stats(XS, BS), arrays.square(XS)
    square = float(squares[drawn.index].sum()) * drawn.n / drawn.d
    if isinstance(X, np.ndarray) and X.strides[0] == X.itemsize:
        return Stats(BS @ BS.T, arrays.times_picked(X.T, drawn.index, BS.T * drawn.scale(X))), square
    return sketched_stats(right(drawn, X), BS), square


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
        return Transformed(_signs(n, rng), np.sort(rng.choice(power(n), d, replace=False)))


def _useless(size: float, d: int, n: int) -> bool:
    """A share that leaves all n coordinates is no sketch; a whole number is what was asked for."""
    return d == n and not isinstance(size, (int, np.integer))


def _signs(n: int, rng: np.random.Generator) -> Array:
    return 2.0 * rng.integers(2, size=n) - 1


def catalog() -> dict[str, Any]:
    """Return every kind of sketch by name: the list that the common laws run over."""
    return {"gaussian": Gaussian, "subsampling": Subsampling, "count": CountSketch, "srht": SRHT}
