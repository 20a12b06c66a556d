"""The two half-problems of observed-entries factorization with biases, both the same ridge regression.

``x_ui ~ w_u h_i + b_u + c_i + mean`` is written as one product ``W H`` of extended codes and an extended factor:

    row of W:    [w_u, b_u, 1, 1]          (n x (k + 3))
    column of H: [h_i, 1, c_i, mean]       ((k + 3) x m)

Each half is free in k + 1 of them, ``[w_u, b_u]`` or ``[h_i, c_i]``; the rest is a known offset. Without biases W and H
are n x k and k x m, and everything is free.

Implicit feedback (Hu, Koren and Volinsky 2008) has confidence ``1 + a_ui``, ``a_ui = alpha x_ui``, in the target 1
where something was observed, and weight 1 and target 0 in all other cells. Since

    (1 + a) (1 - p)^2 = p^2 + a ((1 + a) / a - p)^2 - (1 + a) / a,

that is observed entries of weight a and value ``(1 + a) / a``, and one gram of all rows (``every``), the same for every
half-problem: nothing of size n x m is made.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from cofactor.local.threads import over_rows
from cofactor.ratings import row_solver
from cofactor.types import Array, Data, DataError


class ColumnStats(NamedTuple):
    """Sums over the rows that observed item i: ``gram`` (m x p(p+1)/2, upper triangles) and ``cross`` (m x p)."""

    gram: Array
    cross: Array


@dataclass(frozen=True)
class Layout:
    """Where rank, biases and mean lie in extended codes and factors; ``ridge`` and ``bias_ridge`` hold them back.

    ``alpha`` makes it the model of implicit feedback, which has no biases; None is for ratings.
    """

    rank: int
    biases: bool = True
    ridge: float = 1.0
    bias_ridge: float = 1.0
    alpha: float | None = None

    @property
    def implicit(self) -> bool:
        """Whether all cells count."""
        return self.alpha is not None

    @property
    def width(self) -> int:
        """Rows of the extended factor."""
        return self.rank + 3 if self.biases else self.rank

    @property
    def free(self) -> int:
        """Unknowns per row and per column, p."""
        return self.rank + 1 if self.biases else self.rank

    @property
    def code_columns(self) -> Array:
        """Places of ``[w_u, b_u]`` in a row of W: what a client solves for."""
        return np.arange(self.free)

    @property
    def factor_rows(self) -> Array:
        """Places of ``[h_i, c_i]`` in a column of H: what the server solves for."""
        return np.append(np.arange(self.rank), self.rank + 1) if self.biases else np.arange(self.rank)

    @property
    def penalties(self) -> Array:
        """Ridge of every unknown."""
        return np.append(np.full(self.rank, self.ridge), [self.bias_ridge] * self.biases)

    def extend_factor(self, H: Array, mean: float = 0.0) -> Array:
        """Return H (k x m) with a row of ones, item biases of zero and the mean."""
        if not self.biases:
            return H
        ones = np.ones((1, H.shape[1]), H.dtype)
        return np.vstack([H, ones, 0 * ones, H.dtype.type(mean) * ones])

    def empty_codes(self, n: int, dtype: Any) -> Array:
        """Return the codes of rows without any rating: the mean and the item biases speak."""
        codes = np.zeros((n, self.width), dtype)
        if self.biases:
            codes[:, self.rank + 1 :] = 1
        return codes

    def unknown_item(self, H: Array) -> Array:
        """Return the column of an item that nobody rated: the mean, and the user bias speaks."""
        column = np.zeros(self.width)
        if self.biases:
            column[[self.rank, self.rank + 2]] = 1, H[self.rank + 2, 0]
        return column

    def penalty(self, F: Array) -> float:
        """``1/2 sum ridge F^2`` of unknowns (rows x p)."""
        return 0.5 * float(np.sum(self.penalties * np.square(F, dtype=np.float64)))

    def says_nothing(self, codes: Array) -> bool:
        """Whether all items have the same score: without biases, codes of zeros make none of any."""
        return not self.biases and not codes.any()

    def arrays(self) -> dict[str, Array]:
        """Return the settings as arrays, for a file; what is None is left out."""
        return {name: np.array(value) for name, value in asdict(self).items() if value is not None}

    def entries(self, R: Any) -> row_solver.Entries:
        """Return values and weights of the observed entries of CSR data: as they are, or as implicit feedback has them.

        An implicit entry of 0 says nothing: it has weight 0, like a cell that is not stored.
        """
        if self.alpha is None:
            return R.indptr, R.indices, R.data, np.ones(len(R.data))
        weights = self.alpha * R.data.astype(np.float64)
        values = np.divide(1 + weights, weights, out=np.zeros_like(weights), where=weights > 0)
        return R.indptr, R.indices, values, weights


def observed(X: Data) -> Any:
    """Return X as CSR: stored entries are the observed ones, stored zeros too."""
    if not sparse.issparse(X):
        raise DataError(
            f"expected a sparse matrix whose stored entries are the observed ones, found {type(X).__name__}; "
            "a dense matrix does not say what is missing: use scipy.sparse.csr_matrix((ratings, (users, items)))."
        )
    return X.tocsr()


def every(F: Array) -> Array:
    """``F^T F`` of all rows (p x p): what implicit feedback adds to each half-problem of the other side."""
    F = F.astype(np.float64, copy=False)
    return F.T @ F


def solve_codes(X: Data, H: Array, layout: Layout) -> Array:
    """Client: the best extended codes (n x width) of its rows for the extended factor H."""
    R, places, p = observed(X), layout.code_columns, layout.free
    codes = layout.empty_codes(R.shape[0], R.dtype)
    offset = H[p:].sum(axis=0, dtype=np.float64)
    unknowns = np.empty((R.shape[0], p))
    features = np.ascontiguousarray(H[places].T, dtype=np.float64)
    prior = np.diag(layout.penalties) + (every(features) if layout.implicit else 0.0)
    indptr, *stored = layout.entries(R)

    def some(start: int, stop: int) -> None:
        entries = (indptr[start : stop + 1], *stored)
        row_solver.solve_rows(entries, features, offset, prior, row_solver.room(p), unknowns[start:stop])

    over_rows(some, R.shape[0], p * p * (p // 3 + R.nnz // max(R.shape[0], 1)))
    codes[:, places] = unknowns
    return codes


def column_stats(X: Data, W: Array, H: Array, layout: Layout) -> ColumnStats:
    """Client: statistics of every item's half-problem for its extended codes W."""
    R, p = observed(X), layout.free
    stats = ColumnStats(np.zeros((R.shape[1], p * (p + 1) // 2)), np.zeros((R.shape[1], p)))
    features, offset = item_features(W, H, layout)
    row_solver.add_column_stats(layout.entries(R), features, offset, *stats)
    return stats


def known_square(X: Data, W: Array, H: Array, layout: Layout) -> float:
    """``sum (x_ui - b_u - mean)^2``: the loss before items say anything."""
    known = np.array(W)
    known[:, layout.factor_rows] = 0
    return float(losses(X, known, H, layout).sum())


def item_features(W: Array, H: Array, layout: Layout) -> tuple[Array, Array]:
    """Return what items are regressed on, ``[w_u, 1]`` (n x p), and what is known before, ``b_u + mean`` (n)."""
    features = np.ascontiguousarray(W[:, layout.factor_rows], dtype=np.float64)
    if not layout.biases:
        return features, np.zeros(len(W))
    return features, W[:, layout.rank].astype(np.float64) + float(H[layout.rank + 2, 0])


def solve_factor(stats: ColumnStats, H: Array, layout: Layout) -> tuple[Array, float]:
    """Server: the best ``[h_i, c_i]`` of every item (0 without ratings), and what the objective gains over zeros."""
    out = np.empty_like(stats.cross)
    gains, p = np.empty(len(out)), layout.free

    def some(start: int, stop: int) -> None:
        gram, cross = stats.gram[start:stop], stats.cross[start:stop]
        row_solver.solve_columns(gram, cross, layout.penalties, row_solver.room(p), out[start:stop], gains[start:stop])

    over_rows(some, len(out), p**3 // 3 + p * p)
    new = H.astype(np.float64)
    new[layout.factor_rows] = out.T
    return new, float(gains.sum())


def pulls(X: Data, W: Array, H: Array, layout: Layout) -> Array:
    """Client: gradient of every item's ``-1/2 sum (x_ui - w_u h_i)^2``, then ``sum |v_u|^2`` (m x (p + 1)).

    Both are weighted; of implicit feedback every row pulls every item.
    """
    R, p = observed(X), layout.free
    features, offset = item_features(W, H, layout)
    factor = np.ascontiguousarray(H[layout.factor_rows].T, dtype=np.float64)
    out = np.zeros((R.shape[1], p + 1))
    row_solver.add_pulls(layout.entries(R), features, offset, factor, out)
    if layout.implicit:
        gram = every(features)
        out[:, :p] -= factor @ gram
        out[:, p] += np.trace(gram)
    return out


def losses(X: Data, W: Array, H: Array, layout: Layout) -> Array:
    """Twice the fit term of every row's objective (n): squared residuals, or of implicit feedback over all cells."""
    if not layout.implicit:
        return residual_squares(X, W, H)
    R = observed(X)
    entries = layout.entries(R)
    fit = row_solver.residual_square(entries, W, np.ascontiguousarray(H.T))
    constants = sparse.csr_matrix((entries[2], R.indices, R.indptr), shape=R.shape).sum(axis=1)
    return fit + np.einsum("up,pq,uq->u", W, every(H.T), W) - np.asarray(constants).ravel()


def residual_squares(X: Data, W: Array, H: Array) -> Array:
    """``sum_i (x_ui - w_u h_i)^2`` over the observed entries of every row (n)."""
    R = observed(X)
    entries = R.indptr, R.indices, R.data, np.ones(len(R.data))
    return row_solver.residual_square(entries, W, np.ascontiguousarray(H.T))
