"""The round loop: the one place where server and clients meet, whatever carries the messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from cofactor.local.stats import normalize
from cofactor.method import SERVER, Method, rng
from cofactor.types import Array, ClientError, CofactorError, Data, Message, Shared


class Round(NamedTuple):
    """One line of the history. ``loss`` is the method's own objective ``sum_j 1/2 |X_j - W_j H|^2`` in that round.

    Methods that average factors report the clients' losses with their own factors; ``drift`` is how far these
    were apart. Errors of the final factor come from the refitted codes instead.
    """

    round: int
    loss: float
    drift: float
    bytes_up: int
    bytes_down: int
    seconds: float
    participants: int


@dataclass(frozen=True)
class Reply:
    """What came back from one client, or from a batch of ``count`` clients whose messages add up."""

    client: int
    message: Message
    count: int = 1


class Session(Protocol):
    """An engine at work on one run."""

    n_clients: int
    n_features: int

    def join(self, shared: Shared) -> None:
        """Let every client prepare its private state."""
        ...

    def round(self, shared: Shared, t: int, participants: Array) -> list[Reply]:
        """Let the participants step; return their replies in client order."""
        ...

    def refit(self, factor: Array) -> list[Array]:
        """Return the codes of every client for the final factor (they never leave it in a real federation)."""
        ...


class Engine(Protocol):
    """What carries messages."""

    def open(self, method: Method, Xs: Sequence[Data], seed: int) -> AbstractContextManager[Session]:
        """Bring method and data together."""
        ...


Callback = Callable[[Round, Shared], Any]
"""Called after every round; a true answer ends the run."""


@dataclass(frozen=True)
class Stop:
    """End a run when the best loss fell by less than ``tol`` of itself over ``patience`` rounds; 0 never stops."""

    tol: float = 0.0
    patience: int = 3

    def __call__(self, history: Sequence[Round]) -> bool:
        """Say whether the run is over."""
        losses = [r.loss for r in history]
        if self.tol <= 0 or len(losses) <= self.patience:
            return False
        before, now = min(losses[: -self.patience]), min(losses)
        return bool(before - now <= self.tol * abs(before))


@dataclass(frozen=True)
class Run:
    """What came out: the shared factor (rows at norm 1), each client's codes, and the history."""

    factor: Array
    codes: list[Array] = field(repr=False)
    history: list[Round] = field(repr=False)
    converged: bool = False

    @property
    def bytes(self) -> int:
        """Everything that was sent, up and down."""
        return sum(r.bytes_up + r.bytes_down for r in self.history)


def run(
    method: Method,
    Xs: Sequence[Data],
    *,
    rounds: int = 50,
    seed: int = 0,
    engine: Engine | None = None,
    participation: float = 1.0,
    stop: Stop | None = None,
    callbacks: Sequence[Callback] = (),
    start: Array | None = None,
) -> Run:
    """Run a method over the clients' data and return the shared factor with each client's codes.

    ``participation`` is the share of clients drawn for each round; ``start`` is a public factor to begin at.

    >>> import numpy as np
    >>> from cofactor.methods import catalog
    >>> Xs = [np.eye(4), np.ones((3, 4))]
    >>> run(catalog.make("exact", 2, start="random"), Xs, rounds=5).factor.shape
    (2, 4)
    """
    if engine is None:
        from cofactor.engines.inline import Inline

        engine = Inline()
    if not 0 < participation <= 1:
        raise CofactorError(f"participation must be in (0, 1]. Found {participation}.")
    if rounds < 1:
        raise CofactorError(f"rounds must be at least 1. Found {rounds}.")
    method = method if participation == 1 else method.partial()
    stop, limit = stop or Stop(), min(rounds, method.rounds or rounds)
    with engine.open(method, Xs, seed) as session:
        _check_start(start, method, session.n_features)
        shared = method.start(session.n_features, rng(seed, SERVER, -1), start)
        session.join(shared.broadcast())
        history: list[Round] = []
        converged = method.rounds is not None
        for t in range(limit):
            shared, line = _round(method, session, shared, t, _participants(session, participation, seed, t))
            history.append(line)
            if any([callback(line, shared) for callback in callbacks]):
                break
            if t + 1 > _warm_rounds(method) and stop(history[_warm_rounds(method) :]):
                converged = True
                break
        factor = normalize(method.factor(shared))
        return Run(factor, session.refit(factor), history, converged)


def _warm_rounds(method: Method) -> int:
    """Rounds of another method at the beginning, whose losses do not compare."""
    return getattr(method, "warm_rounds", 0)


def _check_start(start: Array | None, method: Method, m: int) -> None:
    if start is not None and start.shape != (method.rank, m):
        raise CofactorError(f"start: expected a factor of shape {(method.rank, m)}, found {start.shape}.")


def _participants(session: Session, share: float, seed: int, t: int) -> Array:
    """Draw the clients of round t without replacement."""
    c = session.n_clients
    if share >= 1:
        return np.arange(c)
    count = max(1, round(share * c))
    return np.sort(rng(seed, SERVER, t).choice(c, count, replace=False))


def _round(method: Method, session: Session, shared: Shared, t: int, participants: Array) -> tuple[Shared, Round]:
    begin = time.perf_counter()
    replies = session.round(shared.broadcast(), t, participants)
    if not replies:
        raise ClientError(f"round {t}: none of the {len(participants)} participants answered.")
    schema = method.schema(session.n_features, t)
    for reply in replies:
        check_message(reply.message, schema, client=reply.client, t=t)
    new = method.aggregate(shared, [r.message for r in replies], t)
    answered = sum(r.count for r in replies)
    line = Round(
        t,
        float(new.loss),
        float(new.drift),
        sum(r.message.nbytes * r.count for r in replies),
        shared.nbytes * len(participants),
        time.perf_counter() - begin,
        answered,
    )
    return new, line


def check_message(message: Message, schema: dict[str, tuple[int, ...]], *, client: int, t: int) -> None:
    """Refuse a message that is not what the method declared: names, shapes, finite numbers, weight."""
    where = f"client {client}, round {t}"
    if set(message.arrays) != set(schema):
        raise ClientError(f"{where}: expected arrays {sorted(schema)}, found {sorted(message.arrays)}.")
    for name, shape in schema.items():
        found = np.shape(message.arrays[name])
        if found != shape:
            raise ClientError(f"{where}: expected {name!r} of shape {shape}, found {found}.")
        if not np.isfinite(message.arrays[name]).all():
            bad = int((~np.isfinite(message.arrays[name])).sum())
            raise ClientError(f"{where}: expected finite numbers in {name!r}, found {bad} NaN or infinite.")
    if not (np.isfinite(message.weight) and message.weight >= 0):
        raise ClientError(f"{where}: expected a weight >= 0, found {message.weight}.")
