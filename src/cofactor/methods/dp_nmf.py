"""Private NMF by noisy statistics, with outliers: the paper DP-NMF at totals that are true, for any number of clients.

``X = W H + R`` with sparse R. The curator's sums ``A = sum w w^T`` and ``B = sum (x - r) w^T`` get Gaussian noise in
every round; the server takes projected steps on H, rows in the unit ball. One client is the paper's curator; with
secure summation several clients are one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from cofactor.local import symmetric
from cofactor.local.init import random_factor
from cofactor.local.outliers import Outliers
from cofactor.local.sets import UnitBall
from cofactor.local.stats import for_codes, lipschitz, normalize
from cofactor.local.updates import HALS
from cofactor.method import Traits, total
from cofactor.methods import untold
from cofactor.privacy import bounded, clip
from cofactor.privacy.accountant import Unit
from cofactor.privacy.allowance import Allowance, Privacy
from cofactor.types import Array, CofactorError, Data, Local, Message, Shared

BALL = UnitBall()
CLEAN = 1.5
"""Default threshold of outliers: clean rows, sparse ones too, end within 1 % of what they reach without any."""
BOUNDS = {"gram": 1.0, "cross": 1.0}
"""Sensitivities: rows and codes are in unit balls."""


@dataclass(frozen=True)
class NoisyStatistics:
    """Every round releases ``gram`` (packed) and ``cross``, both of sensitivity 1: x - r and w are in unit balls.

    A client alternates ``sweeps`` times between its codes and its outliers, from codes of zero, so that every round
    depends on the released factor alone; R is never held, only blocks of it. The server lifts the eigenvalues of the
    gram to ``2 sigma sqrt k``, the size of the noise, and takes ``steps`` projected gradient steps. For the unit
    client, clients send means over their rows, which the same bounds hold for.
    """

    rank: int
    allowance: Allowance
    outliers: Outliers | None = None
    sweeps: int = 10
    steps: int = 50

    @property
    def rounds(self) -> int:
        """As many as were paid for."""
        return len(self.allowance.shares)

    @cached_property
    def traits(self) -> Traits:
        """Sums are enough; every client adds its own noise."""
        return Traits(additive=True, allowance=self.allowance)

    def partial(self) -> Self:
        """Absent clients are simply not in the sums."""
        return self

    def private(self, privacy: Privacy, *, rounds: int, parts: int) -> Self:
        """It is private already, for the budget that it was made with."""
        return self

    def schema(self, n_features: int, t: int) -> dict[str, tuple[int, ...]]:
        """``gram`` (packed, k (k + 1) / 2) and ``cross`` (k x m)."""
        return {"gram": (symmetric.size(self.rank),), "cross": (self.rank, n_features)}

    def start(self, n_features: int, rng: np.random.Generator, factor: Array | None = None) -> Shared:
        """Begin at a random factor, or at a public one: never at one that has seen the data."""
        return Shared(normalize(random_factor(self.rank, n_features, rng) if factor is None else factor))

    def join(self, data: Data, shared: Shared, t: int, rng: np.random.Generator) -> Local:
        """Nothing to remember."""
        return Local(np.zeros((data.shape[0], 0)))

    def step(self, data: Data, shared: Shared, local: Local, t: int, rng: np.random.Generator) -> tuple[Local, Message]:
        """Codes and outliers for the broadcast factor, their statistics, and noise."""
        k, m = shared.factor.shape
        gram, cross = np.zeros((k, k)), np.zeros((k, m))
        for block in bounded.blocks(data, self.allowance.privacy.clip):
            W, Z = self._explain(block, shared.factor)
            W = BALL.project(W)
            gram += W.T @ W
            cross += W.T @ clip.rows(Z, 1.0)
        n = max(data.shape[0], 1) if self.allowance.privacy.unit is Unit.CLIENT else 1
        sums = {"gram": symmetric.packed(gram) / n, "cross": cross / n}
        return local, self.allowance.release(t, sums, BOUNDS, rng)

    def _explain(self, X: Array, H: Array) -> tuple[Array, Array]:
        """Return the codes and the rows without their outliers."""
        if self.outliers is not None:
            return self.outliers.explain(X, H, self.sweeps)
        return HALS(self.sweeps)(np.zeros((len(X), len(H))), for_codes(X, H)), X

    def aggregate(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Floor the eigenvalues of the noisy gram, then improve H on the noisy statistics."""
        sums, H = total(messages), shared.factor.astype(np.float64)
        sigma = self.allowance.sigma(t, "gram", 1.0, sums.weight)
        gram = floored(symmetric.unpacked(sums.arrays["gram"], self.rank), 2 * sigma * np.sqrt(self.rank))
        cross = sums.arrays["cross"]
        L = lipschitz(gram)
        for _ in range(self.steps):
            H = BALL.project(np.maximum(H - (gram @ H - cross) / L, 0.0))
        alive = H.any(axis=1, keepdims=True)  # a component that noise has erased stays as it was
        return Shared(np.where(alive, H, shared.factor))

    def bench(self, features: int) -> tuple[NoisyStatistics, Array]:
        """One component per feature."""
        return replace(self, rank=features, outliers=None), np.eye(features)

    def late(self, shared: Shared, t: int) -> tuple[Shared, ...]:
        """Any state will do: rows and codes are always in unit balls."""
        return (shared,)

    def drowns(self, *, units: float, features: int, clients: float) -> bool:
        """It does what it does, whatever the noise."""
        return False

    def remark(self, shared: Shared) -> str:
        """Nothing has to be said of its factor."""
        return ""

    def noise_over_signal(self, *, units: int, features: int, clients: int) -> float:
        """Noise of the cross statistics over ``n / k``, what one of k equal components has of them."""
        sigma = self.allowance.sigma(self.rounds - 1, "cross", 1.0, clients)
        return sigma * (math.sqrt(self.rank) + math.sqrt(features)) * self.rank / units

    def factor(self, shared: Shared) -> Array:
        """Return H, rows at norm 1."""
        return normalize(shared.factor)

    def refit(self, data: Data, factor: Array) -> Array:
        """Codes for the final factor, outliers aside: they stay at the client."""
        return untold.codes(data, factor, self.outliers)


def floored(gram: Array, floor: float) -> Array:
    """Return the gram with every eigenvalue at least ``floor``."""
    values, vectors = np.linalg.eigh(gram)
    return (vectors * np.maximum(values, floor)) @ vectors.T


def dp_nmf(
    rank: int,
    *,
    privacy: Privacy,
    rounds: int = 4,
    outliers: float | None = CLEAN,
    bound: float = np.inf,
    gram_share: float = 0.1,
    sweeps: int = 10,
    steps: int = 50,
    parts: int = 1,
) -> NoisyStatistics:
    """NMF with outliers from noisy statistics (paper DP-NMF), in few rounds.

    ``outliers`` and ``bound`` are lambda and M in units of an average nonzero entry of a row; None leaves out outliers.
    ``gram_share`` is the part of each round's budget that A gets.
    """
    if rounds < 1:
        raise CofactorError(f"rounds must be at least 1. Found {rounds}.")
    if not 0 < gram_share < 1:
        raise CofactorError(f"gram_share: expected a part of the budget in (0, 1). Found {gram_share}.")
    allowance = Allowance(privacy, ({"gram": gram_share, "cross": 1 - gram_share},) * rounds, parts)
    return NoisyStatistics(rank, allowance, None if outliers is None else Outliers(outliers, bound), sweeps, steps)
