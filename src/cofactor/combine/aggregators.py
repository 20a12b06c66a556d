"""Aggregators: one factor from the factors ``H_j`` (message array ``factor``) and weights of many clients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cofactor.combine import summaries
from cofactor.combine.align import mean_drift
from cofactor.combine.barycenter import Barycenter
from cofactor.combine.consensus import DENSITY
from cofactor.local.stacked import Summary
from cofactor.local.stats import normalize
from cofactor.local.unions import DRAWN
from cofactor.method import total
from cofactor.types import Aggregator, Array, Message


def factors(messages: list[Message]) -> list[Array]:
    """Return the factor of every message."""
    return [m.arrays["factor"] for m in messages]


@dataclass(frozen=True)
class Mean:
    """Mean of the factors, rows back at norm 1. Clients send ``w_j H_j`` and ``w_j``, so sums are enough.

    ``weighted=True`` takes the rows of the client as its weight, as FedAvg does; with ``energy`` its weight is
    ``|W_j|^2``, the scale of its half-problem of H: clients whose proximal steps are relative to it are then on the way
    to the minimum of their sum. A row that no client has stays as it was, so that a component can come back.
    """

    weighted: bool = True
    energy: bool = False
    additive = True
    streams = False

    def noisy(self) -> Mean:
        """Return the mean by rows: it takes noise."""
        return Mean(self.weighted)

    def schema(self, rank: int, n_features: int) -> dict[str, tuple[int, ...]]:
        """``factor`` (k x m), times the weight."""
        return {"factor": (rank, n_features)}

    def message(self, W: Array, H: Array) -> Message:
        """Client: the factor times its weight."""
        rows = float(len(W)) if self.weighted else 1.0
        weight = float(np.vdot(W, W)) if self.energy else rows
        return Message({"factor": H * H.dtype.type(weight)}, weight)

    def __call__(self, messages: list[Message], current: Array, t: int) -> Array:
        """Return the mean."""
        sums = total(messages)
        H = normalize(sums.arrays["factor"] / sums.weight) if sums.weight > 0 else np.zeros(current.shape)
        return np.where(H.any(axis=1, keepdims=True), H, current).astype(sums.dtype("factor"))


@dataclass(frozen=True)
class Barycentric:
    """Align every factor to a common centre first (see :mod:`cofactor.combine.barycenter`)."""

    barycenter: Barycenter
    weighted: bool = True
    additive = False
    streams = False

    def noisy(self) -> Barycentric:
        """Return itself: noisy factors are matched like others."""
        return self

    def schema(self, rank: int, n_features: int) -> dict[str, tuple[int, ...]]:
        """``factor`` (k x m)."""
        return {"factor": (rank, n_features)}

    def message(self, W: Array, H: Array) -> Message:
        """Client: the factor and its weight."""
        return Message({"factor": H}, float(len(W)) if self.weighted else 1.0)

    def __call__(self, messages: list[Message], current: Array, t: int) -> Array:
        """Return the barycenter of the factors, started at ``current``."""
        Hs, weights = factors(messages), np.array([m.weight for m in messages])
        return self.barycenter(Hs, weights, current, t).astype(Hs[0].dtype)


@dataclass(frozen=True)
class Calmed:
    """``H <- (1 - w) H + w A(messages)`` with ``w = rho / (rho + t)``, rows at norm 1: for rounds with absent clients.

    What some of the clients make of the factor is not what all would; moved towards them less and less, it ends near
    the mean of these, and not at those of the last round.
    """

    inner: Aggregator
    rho: float = 10.0
    streams = False

    @property
    def additive(self) -> bool:
        """As the inner one says."""
        return self.inner.additive

    def noisy(self) -> Aggregator | None:
        """As the inner one does."""
        return self.inner.noisy()

    def schema(self, rank: int, n_features: int) -> dict[str, tuple[int, ...]]:
        """As the inner one says."""
        return self.inner.schema(rank, n_features)

    def message(self, W: Array, H: Array) -> Message:
        """As the inner one does."""
        return self.inner.message(W, H)

    def __call__(self, messages: list[Message], current: Array, t: int) -> Array:
        """Return the factor, moved."""
        found, w = self.inner(messages, current, t), self.rho / (self.rho + t)
        return found if w == 1 else normalize((1 - w) * current + w * found).astype(found.dtype)


@dataclass(frozen=True)
class Union:
    """Factorize the union of the clients' summaries (see :mod:`cofactor.combine.summaries`).

    Where every summary is empty (clients of one row), it is an error, or the current factor stays if not ``required``.
    A few more than ``iterations`` are on ``drawn`` rows for each component; 0 keeps codes in the clients' cones.
    """

    rank: int
    restarts: int = 8
    required: bool = True
    iterations: int = 200
    drawn: int = DRAWN
    additive = False
    streams = False

    def noisy(self) -> None:
        """There is none: no bound is known for grams of codes that a solver found."""

    def schema(self, rank: int, n_features: int) -> dict[str, tuple[int, ...]]:
        """``factor`` (r x m) and ``gram`` (r x r) of the client's own factorization."""
        return {"factor": (rank, n_features), "gram": (rank, rank)}

    def message(self, W: Array, H: Array) -> Message:
        """Client: its factor and the gram of its codes."""
        return Message({"factor": H, "gram": W.T @ W}, float(len(W)))

    def search(self, messages: list[Message]) -> summaries.Fitted | None:
        """Return the factor of the union with what the search has told of it; None where nothing was said."""
        if not self.required and not any(m.arrays["gram"].any() for m in messages):
            return None
        union, restarts, iterations = _union(messages), self.restarts, self.iterations
        found = summaries.search(
            union, self.rank, restarts=restarts, iterations=iterations, drawn=self.drawn, renews=True
        )
        return _apart(found, messages)

    def __call__(self, messages: list[Message], current: Array, t: int) -> Array:
        """Return the factor of the union."""
        found = self.search(messages)
        return current if found is None else found.factor.astype(factors(messages)[0].dtype)


@dataclass(frozen=True)
class Agreed:
    """What many starts on the union of the clients' summaries agree on (see :mod:`cofactor.combine.consensus`)."""

    rank: int
    starts: int = 100
    density: float = DENSITY
    additive = False
    streams = False

    def noisy(self) -> None:
        """There is none, as for summaries."""

    def schema(self, rank: int, n_features: int) -> dict[str, tuple[int, ...]]:
        """As for summaries."""
        return Union(self.rank).schema(rank, n_features)

    def message(self, W: Array, H: Array) -> Message:
        """As for summaries."""
        return Union(self.rank).message(W, H)

    def search(self, messages: list[Message]) -> summaries.Fitted:
        """Return the consensus, with how far every component stands apart from the others."""
        return _apart(summaries.agreed(_union(messages), self.rank, starts=self.starts, density=self.density), messages)

    def __call__(self, messages: list[Message], current: Array, t: int) -> Array:
        """Return the consensus."""
        return self.search(messages).factor.astype(factors(messages)[0].dtype)


def _apart(found: summaries.Fitted, messages: list[Message]) -> summaries.Fitted:
    """Say how far the clients' factors are from the one that was found."""
    return found._replace(drift=mean_drift(factors(messages), found.factor))


def _union(messages: list[Message]) -> list[Summary]:
    """Return the summaries that messages hold."""
    return [Summary(m.arrays["factor"], m.arrays["gram"], m.weight, _square(m)) for m in messages]


def _square(message: Message) -> float:
    """``|X_j|^2`` of a summary: what it explains, and what the client says that it misses."""
    H, gram = (message.arrays[name].astype(np.float64) for name in ("factor", "gram"))
    return float(np.vdot(gram, H @ H.T)) + 2 * float(message.arrays.get("loss", 0.0))


def catalog() -> dict[str, Aggregator]:
    """Return every aggregator by name: the list that the common laws run over."""
    from cofactor.combine import align, barycenter

    named: dict[str, Aggregator] = {"mean": Mean(weighted=False), "weighted-mean": Mean()}
    centers = barycenter.catalog() | {f"fixed-point-{n}": barycenter.FixedPoint(a) for n, a in align.catalog().items()}
    return named | {name: Barycentric(b) for name, b in centers.items()}
