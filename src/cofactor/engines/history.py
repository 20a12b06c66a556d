"""What a run writes down: one line per round, and the rule that reads them to stop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Round(NamedTuple):
    """One line of the history. ``loss`` is the method's own objective ``sum_j 1/2 |X_j - W_j H|^2`` in that round.

    Methods that average factors report the clients' losses with their own factors; ``drift`` is how far these
    were apart. Errors of the final factor come from the refitted codes instead. ``epsilon`` is what all releases up to
    this round cost together; NaN for a method without noise.
    """

    round: int
    loss: float
    drift: float
    bytes_up: int
    bytes_down: int
    seconds: float
    participants: int
    epsilon: float = math.nan


@dataclass(frozen=True)
class Stop:
    """End a run when the best loss fell by less than ``tol`` of itself over ``patience`` rounds; 0 never stops."""

    tol: float = 0.0
    patience: int = 3

    def __call__(self, history: Sequence[Round]) -> bool:
        """Say whether the run is over."""
        losses = [r.loss for r in history]
        if self.tol <= 0 or len(losses) <= self.patience:
            return False
        before, now = min(losses[: -self.patience]), min(losses)
        return bool(before - now <= self.tol * abs(before))
