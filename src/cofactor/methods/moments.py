"""Private NMF from two moments: noisy mean, noisy centred second moment, and everything else is free.

What is computed from released numbers costs nothing more. The second moment of rows of norm 1 has sensitivity 1; around
the noisy mean, which is released first, rows are shorter, and clipped there to norm C it has sensitivity C^2: 0.08 for
faces, 0.6 for digits. Eigenvalues above the edge of the noise are kept and shrunk, and the server factorizes the twin
of the data (:mod:`cofactor.methods.twin`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from cofactor.local import symmetric
from cofactor.local.outliers import Outliers
from cofactor.local.refit import refit
from cofactor.local.stats import normalize
from cofactor.method import Traits, total
from cofactor.methods import twin
from cofactor.methods.twin import WIDEST
from cofactor.privacy import bounded, clip
from cofactor.privacy.accountant import Unit
from cofactor.privacy.allowance import Allowance, Privacy
from cofactor.types import Array, CofactorError, Data, Factorizer, Local, Message, Shared

MEAN, COUNT = 0.10, 0.01
"""Shares of the budget; the moment gets the rest. Flat: from .05 to .2 the loss moves by 2 %."""
CLIP = 0.85
"""Centred rows are clipped at this multiple of their root mean square, which the released mean tells. Flat, too."""
SMALLEST = 0.05


@dataclass(frozen=True)
class Moments:
    """Round 0: sum of the rows and their count. Round 1: second moment around the mean (packed, sensitivity C^2).

    Of very many features only the ``widest`` with the largest released mean enter the second moment: noise grows with
    the square root of their number, and rare features have little to say. For the unit client every client sends means
    over its rows, which the same bounds hold for. ``outliers`` are taken out of the codes.
    """

    rank: int
    allowance: Allowance
    factorize: Factorizer
    outliers: Outliers | None = None
    widest: int = WIDEST

    rounds = 2

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
        """``sum`` (m) and ``count``; then ``moment`` (packed)."""
        d = min(self.widest, n_features)
        shapes = {"sum": (n_features,), "count": (), "moment": (symmetric.size(d),)}
        return {name: shapes[name] for name in self.allowance.shares[t]}

    def bounds(self, shared: Shared, t: int) -> dict[str, float]:
        """Sensitivity of every array of round t."""
        return dict.fromkeys(self.allowance.shares[t], 1.0 if t == 0 else float(shared.extra["bound"]) ** 2)

    def start(self, n_features: int, rng: np.random.Generator, factor: Array | None = None) -> Shared:
        """Begin with nothing: the factor is empty until the last round."""
        if factor is not None:
            raise CofactorError("dp-moments takes no start: its factor comes from two released moments alone.")
        shared = twin.opened(self.rank, n_features, self.widest, rng)
        return shared._replace(extra={**shared.extra, "bound": np.float64(1.0)})

    def join(self, data: Data, shared: Shared, t: int, rng: np.random.Generator) -> Local:
        """Nothing to remember."""
        return Local(np.zeros((data.shape[0], 0)))

    def step(self, data: Data, shared: Shared, local: Local, t: int, rng: np.random.Generator) -> tuple[Local, Message]:
        """Sum over the rows, each inside its bound, and add noise."""
        sums = self._first(data) if t == 0 else self._centred(data, shared)
        n = data.shape[0] if self.allowance.privacy.unit is Unit.CLIENT else 1
        means = {name: a / n for name, a in sums.items()}
        return local, self.allowance.release(t, means, self.bounds(shared, t), rng)

    def _first(self, data: Data) -> dict[str, Array]:
        found = {"sum": bounded.total(data, self.allowance.privacy.clip), "count": np.asarray(float(data.shape[0]))}
        return {name: found[name] for name in self.allowance.shares[0]}

    def _centred(self, data: Data, shared: Shared) -> dict[str, Array]:
        center, bound, chosen = (shared.extra[name] for name in ("center", "bound", "features"))
        moment = np.zeros((len(chosen), len(chosen)))
        for block in bounded.blocks(data, self.allowance.privacy.clip, chosen if len(chosen) < len(center) else None):
            Y = clip.rows(block - center[chosen], float(bound))
            moment += Y.T @ Y
        return {"moment": symmetric.packed(moment)}

    def aggregate(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Find the centre, or draw the twin and factorize it."""
        sums = total(messages)
        if t == 0:
            return self._open(shared, sums)
        d = len(shared.extra["features"])
        sigma = self._sigma(1, "moment", self.bounds(shared, 1)["moment"], sums.weight)
        found = np.linalg.eigh(symmetric.unpacked(sums.arrays["moment"], d))
        values, vectors = signal(*found, symmetric.noise_edge(sigma, d))
        return shared._replace(
            factor=twin.factor_of(shared, values, vectors, rows=float(shared.memory["rows"]), factorize=self.factorize)
        )

    def _open(self, shared: Shared, sums: Message) -> Shared:
        """Return the state with the mean, and with the clip that a mean of such length leaves for the centred rows.

        ``E |x - c|^2 = E |x|^2 - |c|^2`` with ``|x| <= 1``; the noise in ``|c|^2`` is taken out.
        """
        rows = max(float(sums.arrays.get("count", sums.weight)), 1.0)
        mean = sums.arrays["sum"] / rows
        sigma = self._sigma(0, "sum", 1.0, sums.weight) / rows
        square = float(np.clip(mean @ mean - len(mean) * sigma**2, 0.0, 1.0))
        bound = max(CLIP * np.sqrt(1.0 - square), SMALLEST)
        new = twin.centred(shared, mean, self.widest)
        extra = {**new.extra, "bound": np.float64(bound)}
        return new._replace(extra=extra, memory={**shared.memory, "rows": np.float64(rows)})

    def _sigma(self, t: int, name: str, bound: float, messages: float) -> float:
        """Deviation of the noise in a sum of so many messages."""
        return self.allowance.sigma(t, name, bound, messages)

    def bench(self, features: int) -> tuple[Moments, None]:
        """One component is enough: what is released does not depend on the rank."""
        return replace(self, rank=1, widest=features, outliers=None), None

    def late(self, shared: Shared, t: int) -> Shared:
        """Centre the second round somewhere, with a bound that clips."""
        if t == 0:
            return shared
        m = len(shared.extra["center"])
        return shared._replace(extra={**shared.extra, "center": np.full(m, 0.5 / np.sqrt(m)), "bound": np.float64(0.5)})

    def noise_over_signal(self, *, units: int, features: int, clients: int) -> float:
        """Edge of the noise over ``n C^2 / k``, the eigenvalue of one of k equal components."""
        sigma = self._sigma(1, "moment", 1.0, clients)
        return symmetric.noise_edge(sigma, min(features, self.widest)) * self.rank / units

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


def moments(
    rank: int, *, privacy: Privacy, factorize: Factorizer, outliers: float | None = None, parts: int = 1
) -> Moments:
    """Return the method for a budget; ``factorize`` finds the factor of the twin.

    ``outliers`` is the threshold, in units of an average entry of a row, above which a residual is kept out of codes.
    """
    allowance = Allowance(privacy, (_first(privacy), {"moment": 1 - MEAN - COUNT}), parts)
    return Moments(rank, allowance, factorize, None if outliers is None else Outliers(outliers))


def _first(privacy: Privacy) -> dict[str, float]:
    """Release the mean, and for records their number; the number of clients is known to all."""
    return {"sum": MEAN, "count": COUNT} if privacy.unit is Unit.RECORD else {"sum": MEAN + COUNT}
