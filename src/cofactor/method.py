"""What a method is: four pure functions, what it declares of itself, and the seeds that make runs reproducible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from cofactor.types import Array, Data, Local, Message, Shared

SERVER = -1
"""The server's address in :func:`rng`."""
OWN = -1
"""In a schema: a side as long as the client's own message says, such as its rated items."""


def rng(seed: int, client: int, t: int) -> np.random.Generator:
    """Return the generator of one (seed, client, round): no engine, order or thread can change it.

    Rounds count from 0; -1 is before the first one. Addresses are shifted because numpy drops trailing zeros.
    """
    return np.random.default_rng([seed, client + 2, t + 2])


@dataclass(frozen=True)
class Traits:
    """What a method is, declared; everything has a default, and nobody asks a method in another way.

    ``kind`` is what its data are (:mod:`cofactor.kinds`). ``additive``: ``aggregate`` needs only the sum of the
    messages, which may be all-reduced or masked. ``rowwise``: from this round on the message of stacked rows is the sum
    of the messages of the rows, and every array in ``Local`` has one entry per row, so that an engine may step many
    tiny clients as one; None is never. ``together``: from this round on clients may be stepped side by side
    (:class:`Together`); None is never. ``streams``: made to merge messages one by one. ``complete``: needs every client
    in every round. ``running``: the server keeps running sums of what clients sent, so their states count.
    ``own``: in its first round every client factorizes alone, and keeps that: codes, and ``factor``.
    ``allowance`` pays for the noise of a private method (:class:`cofactor.privacy.allowance.Allowance`).
    ``apart`` is the weight of what every client adds to the factor for itself (:mod:`cofactor.local.apart`); None:
    nothing.
    ``sliced`` names the array of a message in which a client says which columns of the factor it works with, and needs
    no others; None: it needs all.
    ``judged`` is what says that it is done: its "loss", where that is the objective of all clients in that round, or,
    where losses are of the clients' own copies or of those that answered, how far the "factor" still moves; losses may
    also be an "estimate" of that objective, drawn anew in every round.
    ``iterates``: rounds of its own plan are iterations, at most so many: its losses say whether it has settled.
    ``every``: the factor is renewed in every so many rounds, and stands in those between.
    ``slow``: with all clients it takes so many times the usual rounds until it settles.
    ``retracts``: a round that went too far is taken back, and its loss and factor are those of the one before.
    ``unseeded``: in so many rounds, from the first, clients draw the same whatever the seed is.
    ``in_memory``: in so many rounds, from the first, clients work in memory, also where their rows are on a device.
    ``stages`` are the rounds in which something new begins: clients join anew, and losses do not compare across.
    """

    kind: str = "real"
    additive: bool = False
    rowwise: int | None = None
    together: int | None = None
    streams: bool = False
    complete: bool = False
    running: bool = False
    own: bool = False
    allowance: Any = None
    apart: float | None = None
    sliced: str | None = None
    judged: str = "loss"
    iterates: bool = False
    every: int = 1
    slow: int = 1
    retracts: bool = False
    unseeded: int = 0
    in_memory: int = 0
    stages: tuple[int, ...] = (0,)


class Method(Protocol):
    """A federated factorization as pure functions over (data, shared, local); implementations are frozen."""

    @property
    def rank(self) -> int:
        """The number of components k."""
        ...

    @property
    def rounds(self) -> int | None:
        """The rounds of a method that has a plan of its own (one upload, a schedule, a budget); None: any number."""
        ...

    @property
    def traits(self) -> Traits:
        """What it declares of itself."""
        ...

    def partial(self) -> Method:
        """Return the form of this method for runs in which some clients are absent from some rounds."""
        ...

    def private(self, privacy: Any, *, rounds: int, parts: Any) -> Method:
        """Return the form whose messages are noisy releases, or refuse in words (:class:`PrivacyError`).

        ``parts`` is how many clients' noise adds up to the whole (:class:`cofactor.privacy.allowance.Parts`).
        """
        ...

    def schema(self, n_features: int, t: int) -> dict[str, tuple[int, ...]]:
        """Name and shape of every array in a message of round t; nothing else may leave a client."""
        ...

    def start(self, n_features: int, rng: np.random.Generator, factor: Array | None = None) -> Shared:
        """Server, once: a start that reads no data, or the given public factor."""
        ...

    def join(self, data: Data, shared: Shared, t: int, rng: np.random.Generator) -> Local:
        """Client, at the beginning of a stage (t is its first round): its private state."""
        ...

    def step(self, data: Data, shared: Shared, local: Local, t: int, rng: np.random.Generator) -> tuple[Local, Message]:
        """Client, each round it takes part in."""
        ...

    def aggregate(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Server, each round."""
        ...

    def factor(self, shared: Shared) -> Array:
        """Server, at the end: the factor H (k x m) as it is handed out, rows at norm 1 or bits."""
        ...

    def refit(self, data: Data, factor: Array) -> Array:
        """Client, at the end: the codes that belong to the final factor."""
        ...


class Together(Method, Protocol):
    """A method that draws nothing in its steps, and knows how to step many small clients for less than one by one."""

    def steps(
        self, data: Sequence[Data], shared: Shared, locals: Sequence[Local], t: int
    ) -> list[tuple[Local, Message]]:
        """Clients that are in one place, in a round that all of them take part in: to the bit what each alone does."""
        ...


def total(messages: list[Message]) -> Message:
    """Sum messages in client order, one after the other in double precision, so that the result is fixed."""
    first, *others = messages
    sums = {name: np.positive(a, dtype=np.float64) for name, a in first.arrays.items()}
    for message in others:
        for name, a in message.arrays.items():
            sums[name] += a
    dtypes = {name: first.dtypes.get(name, np.result_type(a)) for name, a in first.arrays.items()}
    return Message(
        sums, float(sum(m.weight for m in messages)), first.cost, dtypes, spared=sum(m.spared for m in messages)
    )


def fits(found: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether an array has a declared shape; a side that is the client's own may have any length.

    >>> fits((7, 3), (OWN, 3)), fits((7, 3), (8, 3))
    (True, False)
    """
    return len(found) == len(shape) and all(b in (a, OWN) for a, b in zip(found, shape, strict=True))
