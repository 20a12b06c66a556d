"""Rounds of few clients that count as one: the server waits until it has heard all of them before it goes on."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from cofactor.local import arrays
from cofactor.method import Method, Traits, total
from cofactor.methods.wrapped import Wrapped
from cofactor.types import Array, Data, Local, Message, Shared

TURNS = 6.0
"""For how many times ``1 / share`` rounds clients are waited for: one in e^6 is not drawn in them."""
OWN = "sent "
"""How names of what was gathered begin, in the memory of the server."""


@dataclass(frozen=True)
class Gathered(Wrapped):
    """A round of ``method`` is a *turn* of at most ``length`` rounds, in which the shared state stands still.

    Each client answers for each of its rows once in a turn, and sends zeros of no weight when it is drawn again. The
    turn ends after ``length`` rounds, or as soon as there is as much weight as the largest turn before had: then
    everybody is in it. The method aggregates the messages of a turn as if they had come in one round, in its form for
    absent clients where some may be missing: in the first turn, and where there is less weight than before. What a turn
    brought that did not end is left out.
    """

    length: int

    @property
    def rounds(self) -> int:
        """As many turns as the method has rounds, at least."""
        return self.length * self.method.rounds

    @cached_property
    def traits(self) -> Traits:
        """As the method says; the server keeps what it was sent."""
        return replace(self.method.traits, together=None, running=True)

    def partial(self) -> Self:
        """It is a form for absent clients."""
        return self

    def start(self, n_features: int, rng: np.random.Generator, factor: Array | None = None) -> Shared:
        """Begin the first turn."""
        return _turn(self.method.start(n_features, rng, factor), 0, 0.0)

    def join(self, data: Data, shared: Shared, t: int, rng: np.random.Generator) -> Local:
        """No row has been in a turn."""
        return _heard(self.method.join(data, shared, t, rng), np.full(data.shape[0], -1))

    def step(self, data: Data, shared: Shared, local: Local, t: int, rng: np.random.Generator) -> tuple[Local, Message]:
        """Answer for the rows that have not been in this turn (one client, or many tiny ones as one batch)."""
        turn, last = int(shared.extra["turn"]), local.memory["turn"]
        own = Local(local.codes, {name: a for name, a in local.memory.items() if name != "turn"})
        new = np.flatnonzero(last != turn)
        if 0 < len(new) < len(last):
            part, message = self.method.step(arrays.rows(data, new), shared, own.rows(new), turn, rng)
            return _heard(own.put(part, new), np.full_like(last, turn)), message
        stepped, message = self.method.step(data, shared, own, turn, rng)
        if len(new):
            return _heard(stepped, np.full_like(last, turn)), message
        return local, message._replace(
            arrays={name: np.zeros_like(a) for name, a in message.arrays.items()}, weight=0.0
        )

    def aggregate(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Add to what the turn has brought; where it ends, go on."""
        known, turn = shared.memory, int(shared.extra["turn"])
        gathered = [*_told(known), *messages]
        gathered = [total(gathered)] if self.traits.additive else [m for m in gathered if m.weight] or gathered[:1]
        weight, most, waited = sum(m.weight for m in gathered), float(known["most"]), int(known["waited"]) + 1
        if waited < self.length and not 0 < most <= weight:
            kept = {"most": known["most"], "waited": np.int64(waited), **_kept(gathered)}
            return shared._replace(memory={**_own(known), **kept})
        method = self.method if turn and weight >= most else self.method.partial()
        new = method.aggregate(shared._replace(memory=_own(known)), gathered, turn)
        return _turn(new, turn + 1, max(weight, most))


def gathered(method: Method, length: int, share: float) -> Method:
    """Return the method in turns of so many rounds, each of a ``share`` of the clients; of one it is the method itself.

    Where turns are too short to hear everybody it is in its form for absent clients.
    """
    if length == 1:
        return method
    return Gathered(method if length >= turn_of(share) else method.partial(), length)


def turn_of(share: float, most: int = sys.maxsize) -> int:
    """Return how many rounds a turn takes where a round is of a ``share`` of the clients: ``most`` at most.

    >>> turn_of(1.0), turn_of(0.25), turn_of(0.25, 10), turn_of(0.25, 0)
    (1, 24, 10, 1)
    """
    return 1 if share == 1 else max(1, min(math.ceil(TURNS / share), most))


def _turn(shared: Shared, turn: int, most: float) -> Shared:
    """Return the state with which a turn begins; ``most`` is the weight of the largest one before."""
    memory = {"most": np.float64(most), "waited": np.int64(0)}
    return shared._replace(extra={**shared.extra, "turn": np.int64(turn)}, memory={**shared.memory, **memory})


def _heard(local: Local, turns: Array) -> Local:
    """Return a client's state with the last turn of each of its rows."""
    return local._replace(memory={**local.memory, "turn": turns})


def _own(memory: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the method itself remembers."""
    return {
        name: a for name, a in memory.items() if not (name in ("most", "waited", "weights") or name.startswith(OWN))
    }


def _kept(messages: list[Message]) -> dict[str, Array]:
    """Return messages as arrays that a server can save."""
    stacked = {OWN + name: np.stack([np.asarray(m.arrays[name]) for m in messages]) for name in messages[0].arrays}
    return {**stacked, "weights": np.array([m.weight for m in messages])}


def _told(memory: Mapping[str, Any]) -> list[Message]:
    """Return the messages again."""
    arrays = {name.removeprefix(OWN): a for name, a in memory.items() if name.startswith(OWN)}
    weights = memory.get("weights", ())
    return [Message({name: a[i] for name, a in arrays.items()}, float(w)) for i, w in enumerate(weights)]
