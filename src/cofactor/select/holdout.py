"""Held-out cells: which cells a client hides from its own factorization, and its data without them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse

from cofactor.types import Array, Data

ZEROS_PER_NONZERO = 4
"""Sparse data hold out at most this many zeros for each nonzero, so that the work follows the nonzeros."""


class Holdout(NamedTuple):
    """Held-out cells in row order: ``rows``, ``columns`` (cells), ``weights`` (cells), how many cells each stands for.

    The weighted sum of a quantity over these cells estimates its sum over all n m cells.
    """

    rows: Array
    columns: Array
    weights: Array

    def starts(self, n: int) -> Array:
        """Where the cells of each of the n rows begin (n + 1)."""
        return np.searchsorted(self.rows, np.arange(n + 1))

    def by_column(self, m: int) -> tuple[Array, Array]:
        """Where the cells of each of the m columns begin (m + 1), and the rows of all of them in that order."""
        order = np.argsort(self.columns, kind="stable")
        return np.searchsorted(self.columns[order], np.arange(m + 1)), self.rows[order]


def draw(X: Data, share: float, rng: np.random.Generator) -> Holdout:
    """Hold out a random ``share`` of the cells of X (n x m), whatever X is stored as.

    Every row of a matrix with at least a fifth of nonzeros hides ``share * m`` cells, rounded at random, and
    keeps at least one. Sparser matrices hide a share of their nonzeros and four zeros for each of them.
    """
    n, m = X.shape
    nonzeros = np.count_nonzero(X.data if sparse.issparse(X) else X)
    if nonzeros * (1 + ZEROS_PER_NONZERO) >= n * m:
        return _uniform(n, m, share, rng)
    return _stratified(_flat_nonzeros(X), (n, m), share, rng)


def values(X: Data, held: Holdout) -> Array:
    """Return the held-out values in double precision (cells)."""
    if not len(held.rows):
        return np.zeros(0)  # for which sparse matrices give a matrix
    return np.asarray(X[held.rows, held.columns], dtype=np.float64).ravel()


def kept(X: Data, held: Holdout) -> Data:
    """Return X with zeros in place of the held-out cells; sparse data stay sparse."""
    return fill(X, held, np.zeros(len(held.rows)))


def fill(X: Data, held: Holdout, new: Array) -> Data:
    """Return X with ``new`` (cells) in place of the held-out cells; sparse data stay sparse."""
    if not sparse.issparse(X):
        out = X.copy()
        out[held.rows, held.columns] = new
        return out
    change = (new - values(X, held)).astype(X.dtype)
    out = X + sparse.csr_array((change, (held.rows, held.columns)), shape=X.shape, dtype=X.dtype)
    np.maximum(out.data, 0, out=out.data)
    out.eliminate_zeros()
    return out


def union(held: Holdout, more: Holdout, shape: tuple[int, int]) -> tuple[Holdout, Array]:
    """Return all cells of two holdouts, and which of them only ``more`` has (cells); weights as in ``more``, or 0."""
    flat, extra = (h.rows * shape[1] + h.columns for h in (held, more))
    both = np.sort(np.concatenate([flat, extra]), kind="stable")  # two runs in order: merged, not sorted
    both = both[np.append(True, both[1:] != both[:-1])] if len(both) else both
    weights = np.zeros(len(both))
    weights[np.searchsorted(both, extra)] = more.weights
    more_only = np.searchsorted(flat, both, side="right") == np.searchsorted(flat, both)
    return Holdout(both // shape[1], both % shape[1], weights), more_only


def first_guess(known: Data, held: Holdout) -> Array:
    """Values of the held-out cells if rows and columns were independent: row mean x column mean / mean (cells).

    ``known`` are the data without these cells (:func:`kept`).
    """
    n, m = known.shape
    by_row, by_column = (np.asarray(known.sum(axis=a), dtype=np.float64).ravel() for a in (1, 0))
    in_row = m - np.bincount(held.rows, minlength=n)
    in_column = np.maximum(n - np.bincount(held.columns, minlength=m), 1)
    mean = by_row.sum() / max(in_row.sum(), 1)
    row, column = (by_row / np.maximum(in_row, 1))[held.rows], (by_column / in_column)[held.columns]
    return row * column / mean if mean > 0 else np.zeros(len(held.rows))


def _uniform(n: int, m: int, share: float, rng: np.random.Generator) -> Holdout:
    """Hide the same number of random cells in every row, up to rounding."""
    count = np.minimum((share * m + rng.random(n)).astype(np.intp), m - 1)
    columns = [np.sort(rng.choice(m, c, replace=False)) for c in count]
    rows = np.repeat(np.arange(n), count)
    weight = n * m / max(len(rows), 1)
    return Holdout(rows, np.concatenate(columns), np.full(len(rows), weight))


def _stratified(nonzeros: Array, shape: tuple[int, int], share: float, rng: np.random.Generator) -> Holdout:
    """Hide a share of the nonzeros and some zeros; each kind stands for all cells of its kind."""
    n, m = shape
    chosen = nonzeros[rng.random(len(nonzeros)) < share]
    zeros = _draw_zeros(nonzeros, n * m, ZEROS_PER_NONZERO * max(len(chosen), 1), rng)
    flat = np.concatenate([chosen, zeros])
    weights = np.concatenate([
        np.full(len(chosen), len(nonzeros) / max(len(chosen), 1)),
        np.full(len(zeros), (n * m - len(nonzeros)) / len(zeros)),
    ])  # fmt: skip
    order = np.argsort(flat)
    return Holdout(flat[order] // m, flat[order] % m, weights[order])


def _draw_zeros(nonzeros: Array, cells: int, count: int, rng: np.random.Generator) -> Array:
    """Draw up to ``count`` distinct cells that are not among the sorted nonzeros (at most a fifth of the cells)."""
    drawn = np.unique(rng.integers(0, cells, 2 * count))
    place = np.minimum(np.searchsorted(nonzeros, drawn), max(len(nonzeros) - 1, 0))
    zeros = drawn[nonzeros[place] != drawn] if len(nonzeros) else drawn
    return np.sort(rng.choice(zeros, min(count, len(zeros)), replace=False))


def _flat_nonzeros(X: Data) -> Array:
    """Row-major positions of the nonzeros, sorted."""
    if not sparse.issparse(X):
        return np.flatnonzero(X)
    table = X.tocoo()
    flat = table.row.astype(np.int64) * X.shape[1] + table.col
    return np.sort(flat[table.data != 0])
