"""Several starts of one method side by side: what they have explained after a few rounds says which one goes on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cofactor.method import Method, Traits
from cofactor.methods.staged import Staged
from cofactor.methods.wrapped import Wrapped
from cofactor.types import Array, Data, Local, Message, Shared

LOSS = "loss of the run"
"""Where the state of all runs keeps that of each."""
RUNS = "runs"
"""Where it says which starts are left."""


STAGE = 5
"""Rounds after which the better half of the runs goes on: a poor one among the best four of eight would be rare."""


@dataclass(frozen=True)
class Raced(Wrapped):
    """``starts`` runs of an additive method at once, halved as they go, in ``rounds`` rounds; the best one is left.

    Where a single start may end in a poor minimum, this is a first stage: messages hold the sums of all runs that are
    left, so that eight of them cost as much as 75 rounds of one. Clients keep the states of all: who was away knows
    those that go on. A given start leaves nothing to choose, and all begin there.
    """

    starts: int = 8
    rounds: int = 20

    @property
    def traits(self) -> Traits:
        """Those of the method: messages of rows still add up."""
        return replace(self.method.traits, together=None)

    def _left(self, t: int) -> int:
        """Return how many runs there are in round t."""
        return -(-self.starts // 2 ** (t // STAGE))

    def schema(self, n_features: int, t: int) -> dict[str, tuple[int, ...]]:
        """What the method sends, once for each run that is left."""
        return _all(self.method.schema(n_features, t) for _ in range(self._left(t)))

    def start(self, n_features: int, rng: np.random.Generator, factor: Array | None = None) -> Shared:
        """Begin at as many starts."""
        runs = [self.method.start(n_features, each, factor) for each in rng.spawn(self.starts)]
        return _packed(runs, np.arange(self.starts))

    def join(self, data: Data, shared: Shared, t: int, rng: np.random.Generator) -> Local:
        """Join every run that is left; those that are gone have a state that nobody asks for."""
        joined = [self.method.join(data, one, t, rng) for one in self._apart(shared)]
        there = shared.extra[RUNS].tolist()
        return _kept([joined[there.index(i) if i in there else 0] for i in range(self.starts)])

    def step(self, data: Data, shared: Shared, local: Local, t: int, rng: np.random.Generator) -> tuple[Local, Message]:
        """Step every run that is left."""
        codes = np.split(local.codes, self.starts, axis=1)
        states = [Local(W, _of(local.memory, i)) for i, W in enumerate(codes)]
        sent = []
        for i, one in zip(shared.extra[RUNS].tolist(), self._apart(shared), strict=True):
            states[i], message = self.method.step(data, one, states[i], t, rng)
            sent.append(message)
        return _kept(states), sent[0]._replace(arrays=_all(message.arrays for message in sent))

    def aggregate(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Aggregate every run; now and then the better half goes on, after the last round the best one is left."""
        runs = [
            self.method.aggregate(one, [_said(message, i) for message in messages], t)
            for i, one in enumerate(self._apart(shared))
        ]
        if t + 1 == self.rounds:
            best = _best(runs)
            return best._replace(factor=self.method.factor(best))
        order = np.sort(np.argsort([one.loss for one in runs], kind="stable")[: self._left(t + 1)])
        return _packed([runs[i] for i in order], shared.extra[RUNS][order])

    def _apart(self, shared: Shared) -> list[Shared]:
        """Return the states of all runs; clients know nothing of losses."""
        found = []
        for i, H in enumerate(np.split(shared.factor, len(shared.extra[RUNS]))):
            memory = _of(shared.memory, i)
            found.append(Shared(H, _of(shared.extra, i), memory, float(memory.pop(LOSS, np.nan))))
        return found


class Chosen(Staged):
    """A method after a start that all clients chose: the best of some, or of their summaries. With absent ones: alone.

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


def _packed(runs: list[Shared], numbers: Array) -> Shared:
    """Return the states of the runs of these starts as one, and what the best remembers where the method looks."""
    best, whole = _best(runs), np.vstack([one.factor for one in runs])
    memory = _all({**one.memory, LOSS: np.float64(one.loss)} for one in runs)
    extra = {**_all(one.extra for one in runs), RUNS: numbers}
    return Shared(whole, extra, {**best.memory, **memory}, best.loss, best.drift)


def _kept(states: list[Local]) -> Local:
    """Return the states of a client in all runs as one; codes stand side by side (n x starts k)."""
    return Local(np.hstack([one.codes for one in states]), _all(one.memory for one in states))


def _best(runs: list[Shared]) -> Shared:
    """Return the state of the lowest loss; before the first round nobody has one."""
    return min(runs, key=lambda one: one.loss)
