"""One client alone: no more components than its rows may show, and a few plain rounds for a start."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cofactor.local import arrays
from cofactor.local.half_steps import nearly
from cofactor.local.init import random_factor
from cofactor.local.kernels.descent import extrapolate
from cofactor.local.space import Space
from cofactor.local.stats import for_codes, for_factor, unit_rows
from cofactor.local.updates import HALS
from cofactor.types import Array, Data, Factorizer

ROWS_PER_COMPONENT = 2
"""A client factorizes at a rank of at most half its rows: with more components than that, H_j is its rows."""
SAMPLE = 20_000
"""Rows that a client learns its factor from, if it has at least twice as many."""
SWEEPS, MOMENTUM = 3, 0.5
"""Of the half-steps of :class:`Brief`, and how far each goes ahead."""


def padded(
    factorize: Factorizer, X: Data, rank: int, rng: np.random.Generator, start: Array | None = None
) -> tuple[Array, Array]:
    """Return (W, H) of a client alone, padded with zeros where it has too few rows for the rank."""
    n, m = X.shape
    W, H = arrays.zeros((n, rank), X), arrays.zeros((rank, m), X)
    r = min(rank, n // ROWS_PER_COMPONENT, m)
    if r > 0:
        W[:, :r], H[:r] = factorize(X, r, rng, None if start is None else start[:r])
        H[~W.any(axis=0)] = 0
    return W, H


def measured(
    factorize: Factorizer, X: Data, rank: int, rng: np.random.Generator, start: Array | None = None, *, space: Space
) -> tuple[Array, Array, float]:
    """Return (W, H) of a client alone (:func:`padded`) and their objective."""
    W, H = padded(factorize, X, rank, rng, start)
    return W, H, space.objective(X, W, H)


@dataclass(frozen=True)
class Brief:
    """A :class:`~cofactor.types.Factorizer` of a few rounds of extrapolated coordinate descent, for a start.

    All is in the precision of the data, nothing is measured on the way, and codes are those of the last round. Of many
    more features than ``columns`` it sees those that hold most. H is 0 in the others: the first round on all rows,
    which a start is made for, finds them for less than it would take here.
    """

    rounds: int
    columns: int

    def __call__(self, X: Data, rank: int, rng: np.random.Generator, start: Array | None = None) -> tuple[Array, Array]:
        """Return (W, H), rows of H at norm 1."""
        some = some_rows(X, max(SAMPLE, 10 * rank), rng)
        index = _widest(some, self.columns)
        seen = some if index is None else arrays.columns(some, index)
        first = (
            random_factor(rank, seen.shape[1], rng) if start is None else start if index is None else start[:, index]
        )
        W, H = unit_rows(*self._alternated(seen, first.astype(X.dtype)))
        if index is not None:
            found, H = H, arrays.zeros((rank, X.shape[1]), X)
            H[:, index] = found
        return W if some is X else nearly(X, H), H

    def _alternated(self, X: Data, H: Array) -> tuple[Array, Array]:
        """Return (W, H) after the rounds, from H; from the second on, both factors go ahead of themselves."""
        W = codes = nearly(X, H)
        H = ahead = _renewed(X, codes, H)
        for _ in range(self.rounds - 1):
            before, W = W, HALS(SWEEPS)(W, for_codes(X, ahead))
            codes = extrapolate(W, before, MOMENTUM)
            old, H = H, _renewed(X, codes, ahead)
            ahead = extrapolate(H, old, MOMENTUM)
        return codes, H


def _renewed(X: Data, W: Array, H: Array) -> Array:
    """Return H after a few sweeps for the codes."""
    return arrays.contiguous(HALS(SWEEPS)(H.T, for_factor(X, W)).T)


def _widest(X: Data, count: int) -> Array | None:
    """Return the ``count`` columns with the largest sums, in order, if X has at least twice as many; else None."""
    if X.shape[1] < 2 * count or (arrays.is_held(X) and not arrays.is_placed(X)):
        return None
    sums = arrays.times_codes(X, np.ones((X.shape[0], 1), X.dtype)).ravel()
    return np.sort(np.argsort(-sums, kind="stable")[:count])


def some_rows(X: Data, count: int, rng: np.random.Generator) -> Data:
    """Return X, or ``count`` of its rows if it has at least twice as many."""
    n = X.shape[0]
    return X if n < 2 * count else arrays.rows(X, np.sort(rng.choice(n, count, replace=False)))
