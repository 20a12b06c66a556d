"""The factor of a Gaussian with the mean and the second moment of the data: all that sums over rows can tell.

The objective of NMF with unconstrained codes depends on the second moment alone, so the *twin*, rows drawn from that
Gaussian and cut at zero, has nearly the factor of the data, however the rows are spread over clients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cofactor.local import arrays, symmetric
from cofactor.method import total
from cofactor.methods.from_sums import FromSums
from cofactor.types import Array, CofactorError, Data, Factorizer, Local, Message, Shared

WIDEST = 2048
"""Of more features than these only the ones with the largest mean enter the second moment."""
ROWS, ROUNDS = 4000, 300
"""Rows of the twin, and rounds in which it is factorized."""


@dataclass(frozen=True)
class Twin(FromSums):
    """Two rounds of sums: the rows, then their second moment around the mean (packed), of the most frequent features.

    It needs sums only, and is a start for :class:`~cofactor.methods.summed.Summed`: where no client's own components
    may be seen, it finds patterns that only one client has. :class:`~cofactor.methods.moments.Moments` is this with
    noise.
    """

    factorize: Factorizer
    widest: int = WIDEST

    def schema(self, n_features: int, t: int) -> dict[str, tuple[int, ...]]:
        """``sum`` (m); then ``moment`` (packed)."""
        d = min(self.widest, n_features)
        return {"sum": (n_features,)} if t == 0 else {"moment": (symmetric.size(d),)}

    def start(self, n_features: int, rng: np.random.Generator, factor: Array | None = None) -> Shared:
        """Begin with nothing: the factor is empty until the last round."""
        if factor is not None:
            raise CofactorError("a factor of moments takes no start: it comes from two sums alone.")
        return opened(self.rank, n_features, self.widest, rng)

    def step(self, data: Data, shared: Shared, local: Local, t: int, rng: np.random.Generator) -> tuple[Local, Message]:
        """Sum over the rows."""
        center, chosen = shared.extra["center"], shared.extra["features"]
        found = np.zeros(len(center)) if t == 0 else np.zeros((len(chosen), len(chosen)))
        for _, block in arrays.blocks(data):
            Y = block[:, chosen] - center[chosen]
            found += block.sum(axis=0) if t == 0 else Y.T @ Y
        name, sums = ("sum", found) if t == 0 else ("moment", symmetric.packed(found))
        return local, Message({name: sums.astype(data.dtype, copy=False)}, data.shape[0])

    def aggregate(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Find the centre, or the factor of the twin."""
        sums = total(messages)
        if t == 0:
            return centred(shared, sums.arrays["sum"] / sums.weight, self.widest)
        values, vectors = np.linalg.eigh(symmetric.unpacked(sums.arrays["moment"], len(shared.extra["features"])))
        H = factor_of(shared, np.maximum(values, 0.0), vectors, rows=sums.weight, factorize=self.factorize)
        return shared._replace(factor=H.astype(sums.dtype("moment")))


def opened(rank: int, n_features: int, widest: int, rng: np.random.Generator) -> Shared:
    """Return a state without a centre; its seed is that of the twin."""
    extra = {"center": np.zeros(n_features), "features": np.arange(min(widest, n_features))}
    return Shared(np.zeros((rank, n_features)), extra, {"seed": np.int64(rng.integers(1 << 62))})


def centred(shared: Shared, mean: Array, widest: int) -> Shared:
    """Return the state with its centre, and with the features of the largest means for the second moment."""
    chosen = np.sort(np.argsort(-mean, kind="stable")[:widest])
    return shared._replace(extra={**shared.extra, "center": np.maximum(mean, 0.0), "features": chosen})


def factor_of(shared: Shared, values: Array, vectors: Array, *, rows: float, factorize: Factorizer) -> Array:
    """Draw the twin of so many rows with these eigenvalues of their centred second moment, and factorize it (k x m).

    Features outside the moment do not vary, so one column of the same norm, the last, stands for all of them; columns
    that are multiples of one share its loadings.
    """
    center, chosen = shared.extra["center"], shared.extra["features"]
    rest = center.copy()
    rest[chosen] = 0.0
    length = float(np.linalg.norm(rest))
    seed, rank = int(shared.memory["seed"]), len(shared.factor)
    drawn = np.random.default_rng([seed, 1]).standard_normal((ROWS, len(values))) * np.sqrt(values / rows)
    varying = np.maximum(center[chosen] + drawn @ vectors.T, 0.0)
    twin = np.hstack([varying, np.full((ROWS, 1), length)]).astype(np.float32)
    H = factorize(twin, rank, np.random.default_rng(seed))[1].astype(np.float64)
    spread = np.outer(H[:, -1], rest / max(length, 1e-300))
    spread[:, chosen] = H[:, :-1]
    return spread
