"""Boolean coordinate sweeps as rounds after another method: additive counts, and the error never rises."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from cofactor.boolean.bits import Bits, error, pack
from cofactor.boolean.refit import greedy_refit
from cofactor.boolean.sweeps import Changes, changes, choose_all
from cofactor.method import Method, total
from cofactor.types import Array, CofactorError, Data, Local, Message, Shared

SWEEPING = {"sweeping": np.bool_(True)}


@dataclass(frozen=True)
class Swept:
    """A plan: ``first`` rounds of a Boolean method, then ``sweeps`` rounds of Boolean sweeps of its final factor.

    In a sweep each client refits its codes (a row keeps its old code unless the new one has fewer errors) and
    sends by how much the error changes with each bit of H and which components share rows; the server sums and
    flips what cannot raise the total (:mod:`cofactor.boolean.sweeps`). Absent clients are not counted.
    """

    method: Any
    first: int
    sweeps: int = 3

    @property
    def rank(self) -> int:
        """As the method says."""
        return self.method.rank

    @property
    def rounds(self) -> int:
        """The method's rounds and the sweeps."""
        return self.first + self.sweeps

    @property
    def warm_rounds(self) -> int:
        """Rounds whose losses do not compare with those of the sweeps."""
        return self.first

    @property
    def additive(self) -> bool:
        """Sweeps need sums only; so must the method."""
        return self.first == 0 or self.method.additive

    def rowwise(self, t: int) -> bool:
        """Counts add up over rows."""
        return t >= self.first or self.method.rowwise(t)

    def partial(self) -> Self:
        """Return the sweeps after the method's own form for absent clients."""
        return replace(self, method=self.method.partial())

    def schema(self, n_features: int, t: int) -> dict[str, tuple[int, ...]]:
        """``cells`` (k x m), ``overlap`` (k x k) and ``error``, all counts."""
        if t < self.first:
            return self.method.schema(n_features, t)
        return {"cells": (self.rank, n_features), "overlap": (self.rank, self.rank), "error": ()}

    def start(self, n_features: int, rng: np.random.Generator, factor: Array | None = None) -> Shared:
        """Start as the method does; with no rounds of it, sweep the given factor."""
        shared = self.method.start(n_features, rng, factor)
        return shared if self.first else self._open(shared)

    def _open(self, shared: Shared) -> Shared:
        """Begin the sweeps at the method's final factor; clients can see that they have begun."""
        return Shared(self.method.factor(shared), SWEEPING, loss=shared.loss, drift=shared.drift)

    def join(self, data: Data, shared: Shared, rng: np.random.Generator) -> Local:
        """Prepare the method's state, or that of a client (or a batch of clients) that comes for the sweeps."""
        if "sweeping" in shared.extra:
            return Local(np.zeros((data.shape[0], self.rank), np.uint8))
        return self.method.join(data, shared, rng)

    def step(self, data: Data, shared: Shared, local: Local, t: int, rng: np.random.Generator) -> tuple[Local, Message]:
        """Step the method, or refit the codes and count."""
        if t < self.first:
            return self.method.step(data, shared, local, t, rng)
        words, codes = _packed(data, local, self.rank)
        X, H = Bits(words, data.shape), pack(shared.factor)
        W = greedy_refit(X, H, codes=codes)
        cells, overlap = changes(X, W, H)
        sent = {"cells": cells, "overlap": overlap, "error": np.int64(error(X, W, H))}
        known = {"words": words, "swept": np.ones(len(W), bool)}
        return Local(W, known), Message(sent, float(len(W)))

    def aggregate(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Aggregate as the method does, or flip bits of H."""
        if t < self.first:
            shared = self.method.aggregate(shared, messages, t)
            return self._open(shared) if t + 1 == self.first else shared
        sums = {name: np.rint(a).astype(np.int64) for name, a in total(messages).arrays.items()}
        H = choose_all(Changes(sums["cells"], sums["overlap"]), shared.factor)
        return Shared(H, SWEEPING, loss=0.5 * float(sums["error"]), drift=0.0)

    def factor(self, shared: Shared) -> Array:
        """Return H: swept, or rounded if the run ended before."""
        return self.method.factor(shared)

    def refit(self, data: Data, factor: Array) -> Array:
        """Greedy cover."""
        return self.method.refit(data, factor)


def _packed(data: Data, local: Local, rank: int) -> tuple[Array, Array]:
    """Return the packed rows and the codes to keep; rows that no sweep has seen have the empty code."""
    seen = local.memory.get("swept")
    if seen is None:
        return pack(data).words, np.zeros((data.shape[0], rank), np.uint8)
    if seen.all():
        return local.memory["words"], local.codes
    return pack(data).words, np.where(seen[:, None], local.codes, 0)


def swept(method: Method, *, rounds: int, sweeps: int) -> Method:
    """Return the method with a plan of ``rounds`` rounds, the last ``sweeps`` of them Boolean sweeps."""
    check_plan(rounds, sweeps)
    return method if rounds == method.rounds else Swept(method, rounds - sweeps, sweeps)


def check_plan(rounds: int, sweeps: int) -> None:
    """Refuse a plan without a round for the method itself."""
    if not 0 <= sweeps < rounds:
        raise CofactorError(f"sweeps: expected 0 to {rounds - 1} of the {rounds} rounds, found {sweeps}.")
