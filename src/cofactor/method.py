"""What a method is: four pure functions, and the seeds that make every run reproducible."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from cofactor.types import Array, Data, Local, Message, Shared

SERVER = -1
"""The server's address in :func:`rng`."""


def rng(seed: int, client: int, t: int) -> np.random.Generator:
    """Return the generator of one (seed, client, round): no engine, order or thread can change it.

    Rounds count from 0; -1 is before the first one. Addresses are shifted because numpy drops trailing zeros.
    """
    return np.random.default_rng([seed, client + 2, t + 2])


class Method(Protocol):
    """A federated factorization as pure functions over (data, shared, local); implementations are frozen.

    ``rounds`` limits how many rounds make sense (None: as many as the plan says). ``additive`` says that
    ``aggregate`` needs only the sum of the messages: it may be all-reduced or masked. ``rowwise(t)`` says more
    of round t: the message of stacked rows is the sum of the messages of the rows, and every array in
    ``Local`` has one entry per row, so an engine may step many tiny clients as one.
    """

    @property
    def rank(self) -> int:
        """The number of components k."""
        ...

    @property
    def rounds(self) -> int | None:
        """The most rounds this method can use."""
        ...

    @property
    def additive(self) -> bool:
        """Whether the sum of the messages is all that ``aggregate`` needs."""
        ...

    def rowwise(self, t: int) -> bool:
        """Whether the messages of round t add up over the rows of stacked clients."""
        ...

    def partial(self) -> Method:
        """Return the form of this method for runs in which some clients are absent from some rounds."""
        ...

    def schema(self, n_features: int, t: int) -> dict[str, tuple[int, ...]]:
        """Name and shape of every array in a message of round t; nothing else may leave a client."""
        ...

    def start(self, n_features: int, rng: np.random.Generator, factor: Array | None = None) -> Shared:
        """Server, once: a start that reads no data, or the given public factor."""
        ...

    def join(self, data: Data, shared: Shared, rng: np.random.Generator) -> Local:
        """Client, once."""
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


def total(messages: list[Message]) -> Message:
    """Sum messages in client order: arrays and weights."""
    names = messages[0].arrays
    sums = {name: sum_arrays([m.arrays[name] for m in messages]) for name in names}
    return Message(sums, float(sum(m.weight for m in messages)))


def sum_arrays(arrays: list[Array]) -> Array:
    """Add arrays one after the other in double precision, so the order (and the result) is fixed."""
    out = np.array(arrays[0], dtype=np.float64)
    for a in arrays[1:]:
        out += a
    return out
