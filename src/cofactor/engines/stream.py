"""The asynchronous stream: the server merges each message as it arrives and answers that client alone.

Clients compute at simulated speeds, so a run on one machine shows what stragglers do; every time is drawn from
(seed, client, step), so the order of arrivals, and with it the result, is reproducible to the bit.
"""

from __future__ import annotations

import heapq
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from cofactor.engines.history import Round
from cofactor.engines.inline import Inline
from cofactor.engines.rounds import Callback, Run, Session, Watch, check_message
from cofactor.method import SERVER, Method, rng
from cofactor.types import Array, ClientError, CofactorError, Data, Shared

SPEED = 1
"""Last word of the address of a simulated time, which keeps it apart from what a method draws in that step."""


class Speeds(Protocol):
    """How long clients take."""

    def __call__(self, client: int, rows: int, rng: np.random.Generator) -> float:
        """Return the simulated seconds of one step of a client with so many rows; inf: it never answers."""
        ...


@dataclass(frozen=True)
class ByRows:
    """``overhead + seconds_per_row * rows``, times ``exp(spread N(0, 1))``: clients with more rows are slower."""

    seconds_per_row: float = 1e-3
    overhead: float = 0.01
    spread: float = 0.1

    def __call__(self, client: int, rows: int, rng: np.random.Generator) -> float:
        """Return the time for these rows."""
        return float((self.overhead + self.seconds_per_row * rows) * np.exp(self.spread * rng.standard_normal()))


@dataclass(frozen=True)
class LogNormal:
    """``median exp(spread N(0, 1))`` whatever the rows."""

    median: float = 1.0
    spread: float = 0.5

    def __call__(self, client: int, rows: int, rng: np.random.Generator) -> float:
        """Return a time."""
        return float(self.median * np.exp(self.spread * rng.standard_normal()))


@dataclass(frozen=True)
class Fixed:
    """The same seconds in every step: one number per client."""

    seconds: tuple[float, ...]

    def __call__(self, client: int, rows: int, rng: np.random.Generator) -> float:
        """Return the client's own number."""
        return self.seconds[client]


class Arrival(NamedTuple):
    """One message at the server; line i of ``StreamRun.arrivals`` belongs to line i of the history.

    ``staleness`` counts the updates of the factor between the version that the client worked on and this arrival;
    ``clock`` is the simulated time in seconds.
    """

    update: int
    client: int
    staleness: int
    clock: float


@dataclass(frozen=True)
class StreamRun(Run):
    """What came out of a stream: a :class:`Run` with its arrivals, and the clients that were given up."""

    arrivals: list[Arrival] = field(default_factory=list, repr=False)
    absent: tuple[int, ...] = ()


@dataclass(order=True)
class _Job:
    """A client at work: when it will answer, on which version of the state, in which step of its own."""

    clock: float
    client: int
    step: int = field(compare=False)
    version: int = field(compare=False)
    shared: Shared = field(compare=False)


def run_stream(
    method: Method,
    Xs: Sequence[Data],
    *,
    updates: int = 200,
    speeds: Speeds | None = None,
    seed: int = 0,
    deadline: float = np.inf,
    start: Array | None = None,
    callbacks: Sequence[Callback] = (),
    watch: Watch | None = None,
) -> StreamRun:
    """Run a method over clients that answer one by one, until the server has merged ``updates`` messages.

    A client that has not answered ``deadline`` simulated seconds after it was sent the factor is given up: a warning
    names it, ``StreamRun.absent`` too, and the others go on; its codes still belong to the final factor.

    >>> from cofactor.methods import catalog
    >>> result = run_stream(catalog.make("asyn-sd", 2), [np.eye(4), np.ones((3, 4))], updates=6)
    >>> result.factor.shape, len(result.arrivals)
    ((2, 4), 6)
    """
    _check(method, updates, deadline)
    method = method.partial()
    with Inline(1).open(method, Xs, seed) as session:
        shared = method.start(session.n_features, rng(seed, SERVER, -1), start)
        session.join(shared.broadcast())
        server = _Server(method, session, Xs, seed, speeds or ByRows(), deadline)
        for j in range(session.n_clients):
            server.send(j, shared, step=0, version=0, clock=0.0)
        history: list[Round] = []
        arrivals: list[Arrival] = []
        for t in range(updates):
            shared, line, arrival = server.update(shared, t, watch)
            history.append(line)
            arrivals.append(arrival)
            if any([callback(line, shared) for callback in callbacks]):
                break
        factor = method.factor(shared)
        absent = tuple(sorted(server.absent))
        return StreamRun(factor, session.refit(factor), history, arrivals=arrivals, absent=absent)


def _check(method: Method, updates: int, deadline: float) -> None:
    if updates < 1:
        raise CofactorError(f"updates must be at least 1. Found {updates}.")
    if not deadline > 0:
        raise CofactorError(f"deadline must be a time above 0. Found {deadline}.")
    if method.rounds is not None or getattr(method, "warm_rounds", 0) > 0:
        raise CofactorError("a stream needs a method without one-upload rounds. Found one; start it at random.")
    if getattr(method, "synchronous", False):
        raise CofactorError("a stream needs a method whose clients do not wait for each other. Found one of rounds.")


@dataclass
class _Server:
    """The event loop: a heap of clients at work, ordered by the time of their answers."""

    method: Method
    session: Session
    Xs: Sequence[Data]
    seed: int
    speeds: Speeds
    deadline: float
    working: list[_Job] = field(default_factory=list)
    absent: set[int] = field(default_factory=set)

    def send(self, client: int, shared: Shared, *, step: int, version: int, clock: float) -> None:
        """Give a client the state, or give it up if its answer would come too late."""
        address = np.random.default_rng([self.seed, client + 2, step + 2, SPEED])
        seconds = self.speeds(client, self.Xs[client].shape[0], address)
        if not seconds >= 0:
            raise CofactorError(f"speeds: client {client}: expected seconds >= 0, found {seconds}.")
        if np.isfinite(seconds) and seconds <= self.deadline:
            heapq.heappush(self.working, _Job(clock + seconds, client, step, version, shared.broadcast()))
            return
        self.absent.add(client)
        within = f"within the deadline of {self.deadline:g} s" if np.isfinite(self.deadline) else "at all"
        message = f"client {client} did not answer {within} after update {version}; the stream goes on without it."
        warnings.warn(message, stacklevel=3)

    def update(self, shared: Shared, t: int, watch: Watch | None) -> tuple[Shared, Round, Arrival]:
        """Take the next answer, merge it, and send the result to that client alone."""
        if not self.working:
            raise ClientError(f"update {t}: none of the {self.session.n_clients} clients is left to answer.")
        begin = time.perf_counter()
        job = heapq.heappop(self.working)
        replies = self.session.round(job.shared, job.step, np.array([job.client]))
        if watch:
            watch(t, replies)
        message = replies[0].message
        check_message(message, self.method.schema(self.session.n_features, job.step), client=job.client, t=job.step)
        new = self.method.aggregate(shared, [message], t)
        self.send(job.client, new, step=job.step + 1, version=t + 1, clock=job.clock)
        took = time.perf_counter() - begin
        line = Round(t, float(new.loss), float(new.drift), message.nbytes, new.nbytes, took, 1)
        return new, line, Arrival(t, job.client, t - job.version, job.clock)
