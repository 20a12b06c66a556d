"""A client on its own: any method becomes a local factorizer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cofactor.local import arrays
from cofactor.local.stats import unit_rows
from cofactor.method import Method
from cofactor.types import Array, Data

PATIENCE = 5


@dataclass(frozen=True)
class Alone:
    """A :class:`~cofactor.types.Factorizer` made of a method: run it with one client that keeps everything.

    ``start(X, rank, rng)`` may read the data, since nothing leaves the client. It stops after ``rounds``, or
    when the loss falls by less than ``tol`` of itself in five rounds. A client with many more rows than that
    learns H from ``sample`` of them, and the codes of all rows belong to that H.
    """

    method: Any
    rounds: int = 200
    tol: float = 1e-4
    start: Any = None
    sample: int = 20_000

    def __call__(self, X: Data, rank: int, rng: np.random.Generator, start: Array | None = None) -> tuple[Array, Array]:
        """Return (W, H), rows of H at norm 1."""
        method: Method = replace(self.method, rank=rank)
        whole, X = X, _some_rows(X, max(self.sample, 10 * rank), rng)
        if start is None and self.start is not None:
            start = self.start(X, rank, rng)
        shared = method.start(X.shape[1], rng, start)
        local = method.join(X, shared, 0, rng)
        losses: list[float] = []
        for t in range(self.rounds):
            local, message = method.step(X, shared, local, t, rng)
            shared = method.aggregate(shared, [message], t)
            losses.append(shared.loss)
            if t >= PATIENCE and losses[-1 - PATIENCE] - losses[-1] <= self.tol * losses[-1]:
                break
        H = method.factor(shared)
        return unit_rows(method.refit(whole, H), H)


def _some_rows(X: Data, count: int, rng: np.random.Generator) -> Data:
    """Return X, or ``count`` of its rows if it has at least twice as many."""
    n = X.shape[0]
    return X if n < 2 * count else arrays.rows(X, np.sort(rng.choice(n, count, replace=False)))
