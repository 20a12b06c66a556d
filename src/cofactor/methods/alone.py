"""A client on its own: any method becomes a local factorizer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cofactor.local.brief import SAMPLE, some_rows
from cofactor.local.stats import unit_rows
from cofactor.method import Method
from cofactor.types import Array, Data

PATIENCE, TOL = 5, 1e-4


@dataclass(frozen=True)
class Alone:
    """A :class:`~cofactor.types.Factorizer` made of a method: run it with one client that keeps everything.

    It stops after ``rounds``, or when the loss falls by less than ``TOL`` of itself in five rounds. A client with many
    more rows than that learns H from ``SAMPLE`` of them, and the codes of all rows belong to that H.
    """

    method: Any
    rounds: int = 200

    def __call__(self, X: Data, rank: int, rng: np.random.Generator, start: Array | None = None) -> tuple[Array, Array]:
        """Return (W, H), rows of H at norm 1."""
        method: Method = replace(self.method, rank=rank)
        whole, X = X, some_rows(X, max(SAMPLE, 10 * rank), rng)
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
        return unit_rows(method.refit(whole, H), H)
