"""Inertial proximal steps of a relaxed Boolean factor, as an update of the half-problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cofactor.boolean.elbmf import DEFAULT, Relaxation, descend
from cofactor.local.graphs import replayed
from cofactor.types import Array, Stats


@dataclass(frozen=True)
class Binary:
    """``steps`` iPALM steps with a binary prox; t counts updates, so step s of update t is ``t steps + s``."""

    params: Relaxation = DEFAULT
    steps: int = 1

    def __call__(self, F: Array, stats: Stats, t: int = 0, previous: Array | None = None) -> Array:
        """Return F (rows x k) in [0, 1]; without ``previous`` there is no inertia yet."""
        old = F if previous is None else previous
        return replayed(self._steps, None, self, F, old, *stats, t)[0]

    def _steps(self, F: Array, old: Array, gram: Array, cross: Array, t: Any) -> tuple[Array]:
        for s in range(self.steps):
            new = descend(F, old, gram=gram, cross=cross, t=t * self.steps + s, params=self.params)
            old, F = F, new
        return (F,)
