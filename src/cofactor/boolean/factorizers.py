"""Local Boolean factorizers as objects that methods can hold: they compare, hash and pickle.

They go over single bits and work in memory, also for rows that are on a device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cofactor.boolean import asso, elbmf, grecond, mebf, zhang
from cofactor.boolean.bits import check_boolean, error, pack
from cofactor.boolean.sweeps import polish
from cofactor.local import arrays
from cofactor.local.threads import each
from cofactor.types import Array, Data, Factorizer


@dataclass(frozen=True)
class Plain:
    """One algorithm with its options (name, value), as published."""

    algorithm: Callable[..., tuple[Array, Array]]
    options: tuple[tuple[str, Any], ...] = ()

    def __call__(self, X: Data, rank: int, rng: np.random.Generator, start: Array | None = None) -> tuple[Array, Array]:
        """Return Boolean (W, H); none of the algorithms can use a start."""
        return self.algorithm(arrays.in_memory(X), rank, rng, **dict(self.options))


@dataclass(frozen=True)
class Polished:
    """A factorizer, then a greedy refit and up to ``sweeps`` Boolean sweeps."""

    factorize: Factorizer
    sweeps: int = 3

    def __call__(self, X: Data, rank: int, rng: np.random.Generator, start: Array | None = None) -> tuple[Array, Array]:
        """Return the polished (W, H)."""
        X = arrays.in_memory(X)
        W, H = self.factorize(X, rank, rng)
        return polish(X, H, sweeps=self.sweeps, codes=W)


@dataclass(frozen=True)
class Asso:
    """ASSO whose threshold is chosen by the error *after* up to ``sweeps`` Boolean sweeps.

    Sweeps repair some thresholds more than others, so that the order before them says little (mushroom: .247 in the
    place of .254). All get one sweep, and the best third gets the others. Of many candidates only the best are looked
    at (:func:`~cofactor.boolean.asso.enough`).
    """

    sweeps: int = 3

    def __call__(self, X: Data, rank: int, rng: np.random.Generator, start: Array | None = None) -> tuple[Array, Array]:
        """Return the (W, H) of smallest |X xor (W o H)|."""
        X = arrays.in_memory(X)
        check_boolean(X)
        bits = pack(X)
        confidence = asso.association(X, least=min(asso.TAUS))

        def tried(tau: float) -> tuple[Array, Array]:
            W, H = asso.cover(bits, asso.candidates(confidence, tau), rank, keep=asso.enough(rank))
            return polish(bits, H, sweeps=min(self.sweeps, 1), codes=W)

        once = list(each(tried, asso.TAUS))
        best = sorted(once, key=lambda factors: error(bits, *factors))[: -(-len(once) // 3)]
        found = list(each(lambda factors: polish(bits, factors[1], sweeps=self.sweeps - 1, codes=factors[0]), best))
        return min(found, key=lambda factors: error(bits, *factors))


@dataclass(frozen=True)
class Adaptive:
    """The better of two factorizers for the data: both carry out the task where it is small (n m k <= ``small``).

    Elsewhere at most ``rows`` rows at a rank of ``trial`` decide; more components are told apart by the whole task only
    (40 planted ones: errors .57 and .58 at rank 10, .18 and .06 at rank 40). ``second`` must lower the error by more
    than the share ``margin`` to do the work: a small gain on the own rows is more often noise that was learned than a
    better pattern.
    """

    first: Factorizer
    second: Factorizer
    rows: int = 500
    trial: int = 10
    margin: float = 0.1
    small: float = 2e7

    def __call__(self, X: Data, rank: int, rng: np.random.Generator, start: Array | None = None) -> tuple[Array, Array]:
        """Return the (W, H) of the winner."""
        X = arrays.in_memory(X)
        whole = float(X.shape[0]) * X.shape[1] * rank <= self.small
        sample = X if whole else X[:: -(-X.shape[0] // self.rows)]
        tried = [solve(sample, rank if whole else min(rank, self.trial), rng) for solve in (self.first, self.second)]
        a, b = (error(sample, *factors) for factors in tried)
        better = int(b < (1 - self.margin) * a)
        return tried[better] if whole else (self.first, self.second)[better](X, rank, rng)


def catalog() -> dict[str, Plain]:
    """Return the published algorithms by name, with the defaults of their modules."""
    return {
        "asso": Plain(asso.factorize),
        "grecond": Plain(grecond.factorize),
        "mebf": Plain(mebf.factorize),
        "zhang": Plain(zhang.factorize),
        "elbmf": Plain(elbmf.factorize),
    }
