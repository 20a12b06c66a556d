"""How long simulated clients of a stream take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np


class Speeds(Protocol):
    """How long clients take."""

    def __call__(self, client: int, rows: int, rng: np.random.Generator) -> float:
        """Return the simulated seconds of one step of a client with so many rows; inf: it never answers."""
        ...


@dataclass(frozen=True)
class ByRows:
    """``overhead + seconds_per_row * rows``, times ``exp(spread N(0, 1))``: clients with more rows are slower."""

    seconds_per_row: float = 1e-3
    overhead: float = 0.01
    spread: float = 0.1

    def __call__(self, client: int, rows: int, rng: np.random.Generator) -> float:
        """Return the time for these rows."""
        return float((self.overhead + self.seconds_per_row * rows) * np.exp(self.spread * rng.standard_normal()))


@dataclass(frozen=True)
class LogNormal:
    """``median exp(spread N(0, 1))`` whatever the rows."""

    median: float = 1.0
    spread: float = 0.5

    def __call__(self, client: int, rows: int, rng: np.random.Generator) -> float:
        """Return a time."""
        return float(self.median * np.exp(self.spread * rng.standard_normal()))


@dataclass(frozen=True)
class Fixed:
    """The same seconds in every step: one number per client."""

    seconds: tuple[float, ...]

    def __call__(self, client: int, rows: int, rng: np.random.Generator) -> float:
        """Return the client's own number."""
        return self.seconds[client]
