"""Local Boolean factorizers as objects that methods can hold: they compare, hash and pickle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cofactor.boolean import asso, elbmf, grecond, mebf, zhang
from cofactor.boolean.bits import error, pack
from cofactor.boolean.sweeps import polish
from cofactor.types import Array, CofactorError, Data, Factorizer


@dataclass(frozen=True)
class Plain:
    """One algorithm with its options (name, value), as published."""

    algorithm: Callable[..., tuple[Array, Array]]
    options: tuple[tuple[str, Any], ...] = ()

    def __call__(self, X: Data, rank: int, rng: np.random.Generator, start: Array | None = None) -> tuple[Array, Array]:
        """Return Boolean (W, H); none of the algorithms can use a start."""
        return self.algorithm(X, rank, rng, **dict(self.options))


@dataclass(frozen=True)
class Best:
    """The best of several factorizers by error, each after a greedy refit and up to ``sweeps`` Boolean sweeps.

    A later candidate must lower the error by more than the share ``margin`` to win: a small gain on the own rows
    is more often noise that was learned than a better pattern.
    """

    candidates: tuple[Factorizer, ...]
    sweeps: int = 3
    margin: float = 0.0

    def __call__(self, X: Data, rank: int, rng: np.random.Generator, start: Array | None = None) -> tuple[Array, Array]:
        """Return the (W, H) of smallest |X xor (W o H)|, up to the margin."""
        bits, best, lowest = pack(X), None, np.inf
        for factorize in self.candidates:
            W, H = factorize(X, rank, rng)
            found = polish(bits, H, sweeps=self.sweeps, codes=W)
            wrong = error(bits, *found)
            if best is None or wrong < (1 - self.margin) * lowest:
                best, lowest = found, wrong
        if best is None:
            raise CofactorError("Best: expected at least one candidate, found none.")
        return best


def catalog() -> dict[str, Plain]:
    """Return the published algorithms by name, with the defaults of their modules."""
    return {
        "asso": Plain(asso.factorize),
        "grecond": Plain(grecond.factorize),
        "mebf": Plain(mebf.factorize),
        "zhang": Plain(zhang.factorize),
        "elbmf": Plain(elbmf.factorize),
    }
