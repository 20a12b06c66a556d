"""A client on its own: any method becomes a local factorizer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cofactor.local import arrays
from cofactor.local.half_steps import nearly
from cofactor.local.stats import for_factor, normalize, unit_rows
from cofactor.local.updates import HALS
from cofactor.method import Method
from cofactor.types import Array, Data

PATIENCE, TOL = 5, 1e-4
SAMPLE = 20_000
SPREADING = 3


@dataclass(frozen=True)
class Alone:
    """A :class:`~cofactor.types.Factorizer` made of a method: run it with one client that keeps everything.

    It stops after ``rounds``, or when the loss falls by less than ``TOL`` of itself in five rounds. A client with many
    more rows than that learns H from ``SAMPLE`` of them, and the codes of all rows belong to that H. Of many more
    features than ``columns`` it sees those that hold most, and the factor of all of them belongs to the codes. Without
    ``refits`` codes are nearly right, after a few sweeps.
    """

    method: Any
    rounds: int = 200
    columns: int | None = None
    refits: bool = True

    def __call__(self, X: Data, rank: int, rng: np.random.Generator, start: Array | None = None) -> tuple[Array, Array]:
        """Return (W, H), rows of H at norm 1."""
        method: Method = replace(self.method, rank=rank)
        whole, X = X, _some_rows(X, max(SAMPLE, 10 * rank), rng)
        every, index = X, _widest(X, self.columns)
        if index is not None:
            X, start = arrays.columns(X, index), None if start is None else start[:, index]
        shared = method.start(X.shape[1], rng, start)
        local = method.join(X, shared, 0, rng)
        losses: list[float] = []
        for t in range(self.rounds):
            local, message = method.step(X, shared, local, t, rng)
            shared = method.aggregate(shared, [message], t)
            losses.append(shared.loss)
            if t >= PATIENCE and losses[-1 - PATIENCE] - losses[-1] <= TOL * losses[-1]:
                break
        H = method.factor(shared)
        if index is not None:
            H = _spread(every, H, nearly(X, H), index)
        codes = method.refit(whole, H) if self.refits else nearly(whole, H)
        return unit_rows(codes, H)


def _widest(X: Data, count: int | None) -> Array | None:
    """Return the ``count`` columns with the largest sums, in order, if X has at least twice as many; else None."""
    if count is None or X.shape[1] < 2 * count or (arrays.is_held(X) and not arrays.is_placed(X)):
        return None
    sums = arrays.times_codes(X, np.ones((X.shape[0], 1), X.dtype)).ravel()
    return np.sort(np.argsort(-sums, kind="stable")[:count])


def _spread(X: Data, H: Array, W: Array, index: Array) -> Array:
    """Return the factor (rows at norm 1) of all columns for the codes of some of them, at ``index``, where it is H."""
    F = np.zeros((X.shape[1], len(H)), H.dtype, like=H)
    F[index] = H.T
    return normalize(HALS(SPREADING)(F, for_factor(X, W)).T)


def _some_rows(X: Data, count: int, rng: np.random.Generator) -> Data:
    """Return X, or ``count`` of its rows if it has at least twice as many."""
    n = X.shape[0]
    return X if n < 2 * count else arrays.rows(X, np.sort(rng.choice(n, count, replace=False)))
