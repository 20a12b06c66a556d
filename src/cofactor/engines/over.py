"""When a run is over: by what its method can be judged by, once all clients are in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cofactor.engines.history import Round
from cofactor.method import Method
from cofactor.plan import ByShare, Plan
from cofactor.types import Array


class Over:
    """Reads the history of the last stage. A method with a plan of its own (one upload, a schedule) runs all of it.

    With absent clients patience is for as many rounds as it takes to hear all of them; and where the server keeps
    running sums, its loss grows with every client that joins, so that losses compare from the round on in which the
    last one did.
    """

    def __init__(self, method: Method, plan: Plan, clients: int) -> None:
        self.rounds, self.traits = method.rounds, method.traits
        share = 1.0 if isinstance(plan.participation, ByShare) else float(plan.participation)
        patience = math.ceil(plan.rule.patience / share)
        self.rule = plan.rule if share == 1 else replace(plan.rule, patience=patience)
        self.silent = np.ones(clients, bool)
        self.first = 0 if not self.traits.running else math.inf

    def heard(self, t: int, clients: Array) -> None:
        """Note who took part in round t; in a new stage everybody is new."""
        if t in self.traits.stages:
            self.silent[:] = True
        self.silent[clients] = False
        if self.traits.running and not self.silent.any():
            self.first = min(self.first, t)

    def __call__(self, history: Sequence[Round], *, ended: bool = False) -> bool:
        """Say whether it is over; once it has ``ended``, whether that was where it should."""
        if self.rounds is not None:
            return ended
        last = len(self.traits.stages) - 1
        lines = [line for line in history if line.stage == last and line.round >= self.first]
        return self.rule(lines, self.traits.judged)


def moved(before: Array, after: Array) -> float:
    """Return how far the row that moved most has come, over the norm of the longest; NaN where they do not compare."""
    if before.shape != after.shape or not after.size:
        return math.nan
    steps = np.linalg.norm(after.astype(np.float64) - before, axis=1)
    return float(steps.max() / max(np.linalg.norm(after, axis=1).max(), np.finfo(np.float64).tiny))
