"""Private NMF from two moments: noisy mean, noisy centred second moment, and everything else is free.

What is computed from released numbers costs nothing more. The second moment of rows of norm 1 has sensitivity 1; around
the noisy mean, which is released first, rows are shorter, and clipped there to norm C it has sensitivity C^2: 0.08 for
faces, 0.6 for digits. Eigenvalues above the edge of the noise are kept and shrunk, and the server factorizes rows that
it draws from a Gaussian with these two moments, the *twin* of the data. Its factor is that of the data to a few
percent, since the objective of NMF with unconstrained codes depends on the second moment alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from cofactor.local import symmetric
from cofactor.local.outliers import Outliers
from cofactor.local.refit import refit
from cofactor.local.stats import normalize
from cofactor.method import total
from cofactor.methods.alone import Alone
from cofactor.methods.summed import Summed
from cofactor.privacy import bounded, clip
from cofactor.privacy.accountant import Unit
from cofactor.privacy.plan import Plan, Privacy
from cofactor.types import Array, CofactorError, Data, Local, Message, Shared

MEAN, COUNT = 0.10, 0.01
"""Shares of the budget; the moment gets the rest. Flat: from .05 to .2 the loss moves by 2 %."""
CLIP = 0.85
"""Centred rows are clipped at this multiple of their root mean square, which the released mean tells. Flat, too."""
SMALLEST = 0.05
WHOLE_MOMENT = 2048
"""Up to so many features the m x m moment is released; beyond, its action on a narrow basis, in two rounds."""
POWERS, EXTRA = 2, 10
TWIN_ROWS, TWIN_ROUNDS = 4000, 300


@dataclass(frozen=True)
class Moments:
    """Round 0: sum of the rows and their count. Last round: second moment around the mean (packed, sensitivity C^2).

    With ``width`` (for many features) the rounds between send ``sum y (y^T Q)`` (m x width) for the last orthonormal
    basis Q, noisy power iterations, and the last one the second moment of ``Q^T y`` alone. For the unit client every
    client sends means over its rows, which the same bounds hold for. ``outliers`` are taken out of the codes.
    """

    rank: int
    plan: Plan
    width: int | None = None
    outliers: Outliers | None = None

    additive = True

    @property
    def rounds(self) -> int:
        """Two, and the power iterations."""
        return len(self.plan.shares)

    def rowwise(self, t: int) -> bool:
        """No: every client adds its own noise."""
        return False

    def partial(self) -> Self:
        """Absent clients are simply not in the sums."""
        return self

    def schema(self, n_features: int, t: int) -> dict[str, tuple[int, ...]]:
        """``sum`` (m) and ``count``; ``power`` (m x width); ``moment`` (packed)."""
        d = self.width or n_features
        shapes = {"sum": (n_features,), "count": (), "power": (n_features, d), "moment": (symmetric.size(d),)}
        return {name: shapes[name] for name in self.plan.shares[t]}

    def bounds(self, shared: Shared, t: int) -> dict[str, float]:
        """Sensitivity of every array of round t."""
        return dict.fromkeys(self.plan.shares[t], 1.0 if t == 0 else float(shared.extra["bound"]) ** 2)

    def start(self, n_features: int, rng: np.random.Generator, factor: Array | None = None) -> Shared:
        """Begin with a basis that reads no data; the factor is empty until the last round."""
        if factor is not None:
            raise CofactorError("dp-moments takes no start: its factor comes from two released moments alone.")
        width = self.width or 0
        if width > n_features:
            raise CofactorError(f"width: expected at most the {n_features} features. Found {width}.")
        basis = np.linalg.qr(rng.standard_normal((n_features, width)))[0]
        extra = {"center": np.zeros(n_features), "bound": np.float64(1.0), "basis": basis}
        return Shared(np.zeros((self.rank, n_features)), extra, {"seed": np.int64(rng.integers(1 << 62))})

    def join(self, data: Data, shared: Shared, rng: np.random.Generator) -> Local:
        """Nothing to remember."""
        return Local(np.zeros((data.shape[0], 0)))

    def step(self, data: Data, shared: Shared, local: Local, t: int, rng: np.random.Generator) -> tuple[Local, Message]:
        """Sum over the rows, each inside its bound, and add noise."""
        sums = self._first(data) if t == 0 else self._centred(data, shared, t)
        n = data.shape[0] if self.plan.privacy.unit is Unit.CLIENT else 1
        means = {name: a / n for name, a in sums.items()}
        return local, self.plan.release(t, means, self.bounds(shared, t), rng)

    def _first(self, data: Data) -> dict[str, Array]:
        sums = sum(block.sum(axis=0) for block in bounded.blocks(data, self.plan.privacy.clip))
        found = {"sum": np.asarray(sums), "count": np.asarray(float(data.shape[0]))}
        return {name: found[name] for name in self.plan.shares[0]}

    def _centred(self, data: Data, shared: Shared, t: int) -> dict[str, Array]:
        center, bound, Q = (shared.extra[name] for name in ("center", "bound", "basis"))
        last = t + 1 == self.rounds
        found: Any = 0.0
        for block in bounded.blocks(data, self.plan.privacy.clip):
            Y = clip.rows(block - center, float(bound))
            if last:
                Z = Y @ Q if Q.size else Y
                found = found + Z.T @ Z
            else:
                found = found + Y.T @ (Y @ Q)
        return {"moment": symmetric.packed(found)} if last else {"power": found}

    def aggregate(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Centre, turn the basis, or draw the twin and factorize it."""
        sums = total(messages)
        if t == 0:
            return self._open(shared, sums)
        if t + 1 < self.rounds:
            return shared._replace(extra={**shared.extra, "basis": np.linalg.qr(sums.arrays["power"])[0]})
        rows = float(shared.memory["rows"])
        twin = self._twin(shared, sums, t, rows)
        H = Alone(Summed(self.rank), TWIN_ROUNDS)(twin, self.rank, np.random.default_rng(int(shared.memory["seed"])))[1]
        return shared._replace(factor=H.astype(np.float64))

    def _open(self, shared: Shared, sums: Message) -> Shared:
        """Return the state with the mean, and with the clip that a mean of such length leaves for the centred rows.

        ``E |x - c|^2 = E |x|^2 - |c|^2`` with ``|x| <= 1``; the noise in ``|c|^2`` is taken out.
        """
        rows = max(float(sums.arrays.get("count", sums.weight)), 1.0)
        mean = sums.arrays["sum"] / rows
        sigma = self.plan.sigma(0, "sum", 1.0, sums.weight) / rows
        square = float(np.clip(mean @ mean - len(mean) * sigma**2, 0.0, 1.0))
        bound = max(CLIP * np.sqrt(1.0 - square), SMALLEST)
        extra = {**shared.extra, "center": np.maximum(mean, 0.0), "bound": np.float64(bound)}
        return shared._replace(extra=extra, memory={**shared.memory, "rows": np.float64(rows)})

    def _twin(self, shared: Shared, sums: Message, t: int, rows: float) -> Array:
        """Return rows from a Gaussian with the released mean and what of the moment stands out of the noise."""
        Q = shared.extra["basis"]
        d = self.width or len(shared.extra["center"])
        sigma = self.plan.sigma(t, "moment", self.bounds(shared, t)["moment"], sums.weight)
        values, vectors = np.linalg.eigh(symmetric.unpacked(sums.arrays["moment"], d))
        values, vectors = signal(values, vectors, symmetric.noise_edge(sigma, d))
        vectors = Q @ vectors if Q.size else vectors
        rng = np.random.default_rng([int(shared.memory["seed"]), 1])
        drawn = rng.standard_normal((TWIN_ROWS, len(values))) * np.sqrt(values / rows)
        return np.maximum(shared.extra["center"] + drawn @ vectors.T, 0.0).astype(np.float32)

    def factor(self, shared: Shared) -> Array:
        """Return the factor of the twin."""
        return normalize(shared.factor)

    def refit(self, data: Data, factor: Array) -> Array:
        """Codes for the final factor, outliers aside: they stay at the client."""
        return refit(data, factor) if self.outliers is None else self.outliers.refit(data, factor)


def signal(values: Array, vectors: Array, edge: float) -> tuple[Array, Array]:
    """Return the eigenvalues above the edge of the noise (at least one), shrunk by what noise adds to them.

    A true eigenvalue v shows up at ``v + (edge/2)^2 / v`` (Benaych-Georges and Nadakuditi 2011); this is solved for v.
    """
    keep = values > edge
    keep[np.argmax(values)] = True
    found = np.maximum(values[keep], edge)
    return (found + np.sqrt(found**2 - edge**2)) / 2, vectors[:, keep]


def moments(rank: int, *, privacy: Privacy, n_features: int, outliers: float | None = None, parts: int = 1) -> Moments:
    """Private NMF by released moments: a noisy mean, a noisy centred second moment, the factor of their twin.

    ``outliers`` is the threshold, in units of an average entry of a row, above which a residual is kept out of codes.
    """
    model = None if outliers is None else Outliers(outliers)
    first = _first(privacy)
    if n_features <= WHOLE_MOMENT:
        return Moments(rank, Plan(privacy, (first, {"moment": 1 - MEAN - COUNT}), parts), outliers=model)
    each = (1 - MEAN - COUNT) / (POWERS + 1)
    shares: tuple[Mapping[str, float], ...] = (first, *[{"power": each}] * POWERS, {"moment": each})
    return Moments(rank, Plan(privacy, shares, parts), min(2 * rank + EXTRA, n_features), model)


def _first(privacy: Privacy) -> dict[str, float]:
    """Release the mean, and for records their number; the number of clients is known to all."""
    return {"sum": MEAN, "count": COUNT} if privacy.unit is Unit.RECORD else {"sum": MEAN + COUNT}
