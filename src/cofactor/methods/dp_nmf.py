"""Private NMF by noisy statistics, with outliers: the paper DP-NMF at totals that are true, for any number of clients.

``X = W H + R`` with sparse R. The curator's sums ``A = sum w w^T`` and ``B = sum (x - r) w^T`` get Gaussian noise in
every round; the server takes projected steps on H, rows in the unit ball. One client is the paper's curator; with
secure summation several clients are one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from cofactor.local import symmetric
from cofactor.local.init import random_factor
from cofactor.local.outliers import Outliers
from cofactor.local.sets import UnitBall
from cofactor.local.stats import for_codes, lipschitz, normalize
from cofactor.local.updates import HALS
from cofactor.method import total
from cofactor.methods.released import Released
from cofactor.privacy import bounded, clip
from cofactor.privacy.allowance import WHOLE, Allowance, Parts, Privacy
from cofactor.privacy.errors import OutOfRangeError
from cofactor.types import Array, CofactorError, Data, Message, Shared

BALL = UnitBall()
FAINT = 1e-3
"""Shorter components are as good as erased. Codes of a row divide by their length: what the last bits of products make
of them, which depend on how many rows there are, would be as large as codes (1e-18: 30 times the bound of a row)."""
CLEAN = 1.5
"""Default threshold of outliers: clean rows, sparse ones too, end within 1 % of what they reach without any."""


@dataclass(frozen=True)
class NoisyStatistics(Released):
    """Every round releases ``gram`` (packed) and ``cross``, both of sensitivity 1: x - r and w are in unit balls.

    A client alternates ``sweeps`` times between its codes and its outliers, from codes of zero, so that every round
    depends on the released factor alone; R is never held, only blocks of it. The server lifts the eigenvalues of the
    gram to ``2 sigma sqrt k``, the size of the noise, and takes ``steps`` projected gradient steps.
    """

    sweeps: int = 10
    steps: int = 50

    def schema(self, n_features: int, t: int) -> dict[str, tuple[int, ...]]:
        """``gram`` (packed, k (k + 1) / 2) and ``cross`` (k x m)."""
        return {"gram": (symmetric.size(self.rank),), "cross": (self.rank, n_features)}

    def start(self, n_features: int, rng: np.random.Generator, factor: Array | None = None) -> Shared:
        """Begin at a random factor, or at a public one: never at one that has seen the data."""
        return Shared(normalize(random_factor(self.rank, n_features, rng) if factor is None else factor))

    def check(self, shared: Shared, n_features: int) -> None:
        """Refuse components that are too short for codes, too; a component may be zero."""
        super().check(shared, n_features)
        if np.any(_faint(shared.factor) & shared.factor.any(axis=1)):
            raise OutOfRangeError(f"components of length 0, or at least {FAINT:g}, were expected. Found shorter ones.")

    def sums(self, data: Data, shared: Shared, t: int) -> dict[str, Array]:
        """Codes and outliers for the broadcast factor, and their statistics: rows and codes are in unit balls."""
        k, m = shared.factor.shape
        gram, cross = np.zeros((k, k)), np.zeros((k, m))
        for block in bounded.blocks(data, self.allowance.privacy.clip):
            W, Z = self._explain(block, shared.factor)
            W = BALL.project(W)
            gram += W.T @ W
            cross += W.T @ clip.rows(Z, 1.0)
        return {"gram": symmetric.packed(gram), "cross": cross}

    def _explain(self, X: Array, H: Array) -> tuple[Array, Array]:
        """Return the codes and the rows without their outliers."""
        if self.outliers is not None:
            return self.outliers.explain(X, H, self.sweeps)
        return HALS(self.sweeps)(np.zeros((len(X), len(H))), for_codes(X, H)), X

    def merge(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Floor the eigenvalues of the noisy gram, then improve H on the noisy statistics."""
        sums, H = total(messages), shared.factor.astype(np.float64)
        sigma = self.sigma(t, "gram", 1.0, sums)
        gram = floored(symmetric.unpacked(sums.arrays["gram"], self.rank), 2 * sigma * np.sqrt(self.rank))
        cross = sums.arrays["cross"]
        L = lipschitz(gram)
        for _ in range(self.steps):
            H = BALL.project(np.maximum(H - (gram @ H - cross) / L, 0.0))
        erased = _faint(H)[:, None]  # a component that noise has erased stays as it was
        return Shared(np.where(erased, shared.factor, H))

    def bench(self, features: int) -> tuple[NoisyStatistics, Array]:
        """One component per feature."""
        return replace(self, rank=features, outliers=None), np.eye(features)

    def noise_over_signal(self, *, units: int, features: int, clients: int) -> float:
        """Noise of the cross statistics over ``n / k``, what one of k equal components has of them."""
        sigma = self.planned(self.rounds - 1, "cross", clients)
        return sigma * (math.sqrt(self.rank) + math.sqrt(features)) * self.rank / units


def _faint(H: Array) -> Array:
    """Return which components are too short for codes (k)."""
    return np.asarray(np.linalg.norm(H, axis=1) < FAINT)


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
    parts: Parts = WHOLE,
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
    taken = None if outliers is None else Outliers(outliers, bound)
    return NoisyStatistics(rank, allowance, sweeps, steps, outliers=taken)
