"""Several starts of one method side by side: what they have explained after a few rounds says which one goes on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cofactor.method import Method, Traits
from cofactor.methods.staged import Staged
from cofactor.methods.wrapped import Wrapped
from cofactor.types import Array, Data, Local, Message, Shared

LOSS = "loss of the run"
"""Where the state of all runs keeps that of each."""


@dataclass(frozen=True)
class Raced(Wrapped):
    """``starts`` runs of an additive method at once, in ``rounds`` rounds; the factor is that of the lowest loss.

    Where a single start may end in a poor minimum, this is a first stage: messages hold the sums of all runs, so it
    costs as much as that many rounds of one of them. A given start leaves nothing to choose, and all begin there.
    """

    starts: int = 8
    rounds: int = 20

    @property
    def traits(self) -> Traits:
        """Those of the method: messages of rows still add up."""
        return self.method.traits

    def schema(self, n_features: int, t: int) -> dict[str, tuple[int, ...]]:
        """What the method sends, once for each run."""
        return _all(self.method.schema(n_features, t) for _ in range(self.starts))

    def start(self, n_features: int, rng: np.random.Generator, factor: Array | None = None) -> Shared:
        """Begin at as many starts."""
        return _packed([self.method.start(n_features, each, factor) for each in rng.spawn(self.starts)])

    def join(self, data: Data, shared: Shared, t: int, rng: np.random.Generator) -> Local:
        """Join every run."""
        return _kept([self.method.join(data, one, t, rng) for one in self._apart(shared)])

    def step(self, data: Data, shared: Shared, local: Local, t: int, rng: np.random.Generator) -> tuple[Local, Message]:
        """Step every run."""
        codes = np.split(local.codes, self.starts, axis=1)
        states = [Local(W, _of(local.memory, i)) for i, W in enumerate(codes)]
        found = [self.method.step(data, one, mine, t, rng) for one, mine in zip(self._apart(shared), states)]
        sent = _all(message.arrays for _, message in found)
        return _kept([mine for mine, _ in found]), found[0][1]._replace(arrays=sent)

    def aggregate(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Aggregate every run; after the last round the best one is left."""
        runs = [
            self.method.aggregate(one, [_said(message, i) for message in messages], t)
            for i, one in enumerate(self._apart(shared))
        ]
        if t + 1 < self.rounds:
            return _packed(runs)
        best = _best(runs)
        return best._replace(factor=self.method.factor(best))

    def _apart(self, shared: Shared) -> list[Shared]:
        """Return the states of all runs; clients know nothing of losses."""
        found = []
        for i, H in enumerate(np.split(shared.factor, self.starts)):
            memory = _of(shared.memory, i)
            found.append(Shared(H, _of(shared.extra, i), memory, float(memory.pop(LOSS, np.nan))))
        return found


class Chosen(Staged):
    """A method after the best of some starts. With absent clients, or one by one, there is a single one.

    A race in which every round has other clients says little, and what they sent before would have to be said anew.
    """

    def partial(self) -> Any:
        """The method alone."""
        return self.then.partial()


def raced(method: Method, starts: int) -> Method:
    """Return the method after the best of some starts; as it is where there is only one."""
    if starts == 1:
        return method
    first = Raced(method, starts)
    return Chosen(first, first.rounds, method, kept=("observed",))


def _all(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the entries of all runs under their own names."""
    return {f"{name}_{i}": value for i, part in enumerate(parts) for name, value in part.items()}


def _of(whole: Mapping[str, Any], i: int) -> dict[str, Any]:
    """Return the entries of run i."""
    end = f"_{i}"
    return {name.removesuffix(end): value for name, value in whole.items() if name.endswith(end)}


def _said(message: Message, i: int) -> Message:
    """Return what a message says of run i."""
    return message._replace(arrays=_of(message.arrays, i), dtypes=_of(message.dtypes, i))


def _packed(runs: list[Shared]) -> Shared:
    """Return the states of all runs as one, and what the best one remembers where the method looks for it."""
    best, whole = _best(runs), np.vstack([one.factor for one in runs])
    memory = _all({**one.memory, LOSS: np.float64(one.loss)} for one in runs)
    return Shared(whole, _all(one.extra for one in runs), {**best.memory, **memory}, best.loss, best.drift)


def _kept(states: list[Local]) -> Local:
    """Return the states of a client in all runs as one; codes stand side by side (n x starts k)."""
    return Local(np.hstack([one.codes for one in states]), _all(one.memory for one in states))


def _best(runs: list[Shared]) -> Shared:
    """Return the state of the lowest loss; before the first round nobody has one."""
    return min(runs, key=lambda one: one.loss)
