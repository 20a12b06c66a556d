"""The asynchronous stream: the server merges each message as it arrives and answers that client alone.

Clients compute at simulated speeds, so a run on one machine shows what stragglers do; every time is drawn from
(seed, client, step), so the order of arrivals, and with it the result, is reproducible to the bit. An engine such as
:class:`~cofactor.engines.mpi.Mpi` carries the same stream in real time instead.
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
from cofactor.engines.rounds import Callback, Reply, Run, Session, Watch, check_message
from cofactor.method import SERVER, Method, rng
from cofactor.privacy.errors import PrivacyError
from cofactor.privacy.plan import Private
from cofactor.types import Array, ClientError, CofactorError, Data, Shared

SPEED = 1
"""Last word of the address of a simulated time, which keeps it apart from what a method draws in that step."""


NOT_PRIVATE = (
    "privacy is refused: in an asynchronous stream a client sends as many updates as its speed allows, so no plan of "
    "rounds can pay for them beforehand. Run the method in rounds."
)


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
    ``clock`` is the time in seconds, simulated unless an engine carries the stream.
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


@dataclass(frozen=True)
class Plan:
    """How long a stream runs and where it begins; what :func:`run_stream` hands to an engine."""

    updates: int
    seed: int
    deadline: float
    start: Array | None
    callbacks: Sequence[Callback]
    watch: Watch | None


class Streaming(Protocol):
    """An engine that can carry a stream."""

    def stream(self, method: Method, Xs: Sequence[Data], plan: Plan) -> StreamRun:
        """Run the method over the clients of all processes."""
        ...


class Server(Protocol):
    """Whoever takes the answers of clients, one by one."""

    def update(self, shared: Shared, t: int, watch: Watch | None) -> tuple[Shared, Round, Arrival]:
        """Take the next answer, merge it, and send the result to that client alone."""
        ...


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
    engine: Streaming | None = None,
) -> StreamRun:
    """Run a method over clients that answer one by one, until the server has merged ``updates`` messages.

    A client that has not answered ``deadline`` simulated seconds after it was sent the factor is given up: a warning
    names it, ``StreamRun.absent`` too, and the others go on; its codes still belong to the final factor.

    With ``engine=Mpi()`` every process gives its own client (process 0, the server, may have none), time is real, and
    ``deadline`` is in real seconds. Then the order of arrivals, and with it the result, differs from run to run;
    callbacks and ``watch`` are called on process 0.

    >>> from cofactor.methods import catalog
    >>> result = run_stream(catalog.make("asyn-sd", 2), [np.eye(4), np.ones((3, 4))], updates=6)
    >>> result.factor.shape, len(result.arrivals)
    ((2, 4), 6)
    """
    _check(method, updates, deadline)
    method = method.partial()
    plan = Plan(updates, seed, deadline, start, callbacks, watch)
    if engine is not None:
        if speeds is not None:
            raise CofactorError("speeds: expected none with an engine, whose clients take the time they take.")
        return engine.stream(method, Xs, plan)
    with Inline(1).open(method, Xs, seed) as session:
        shared = method.start(session.n_features, rng(seed, SERVER, -1), start)
        session.join(shared.broadcast())
        server = _Server(method, session, Xs, seed, speeds or ByRows(), deadline)
        for j in range(session.n_clients):
            server.send(j, shared, step=0, version=0, clock=0.0)
        shared, history, arrivals = serve(server, shared, plan)
        factor = method.factor(shared)
        absent = tuple(sorted(server.absent))
        return StreamRun(factor, session.refit(factor), history, arrivals=arrivals, absent=absent)


def serve(server: Server, shared: Shared, plan: Plan) -> tuple[Shared, list[Round], list[Arrival]]:
    """Let a server merge answers until the plan is fulfilled; return the last state and what happened."""
    history: list[Round] = []
    arrivals: list[Arrival] = []
    for t in range(plan.updates):
        shared, line, arrival = server.update(shared, t, plan.watch)
        history.append(line)
        arrivals.append(arrival)
        if any([callback(line, shared) for callback in plan.callbacks]):
            break
    return shared, history, arrivals


def merge(
    method: Method, shared: Shared, reply: Reply, *, t: int, schema: dict[str, tuple[int, ...]], watch: Watch | None
) -> tuple[Shared, Round]:
    """Merge one answer into the state; return the new state and the line of update t, its seconds still to be told."""
    if watch:
        watch(t, [reply])
    check_message(reply.message, schema, client=reply.client, t=t)
    new = method.aggregate(shared, [reply.message], t)
    return new, Round(t, float(new.loss), float(new.drift), reply.message.nbytes, new.nbytes, 0.0, 1)


def give_up(client: int, deadline: float, version: int) -> None:
    """Warn that the stream goes on without a client."""
    within = f"within the deadline of {deadline:g} s" if np.isfinite(deadline) else "at all"
    message = f"client {client} did not answer {within} after update {version}; the stream goes on without it."
    warnings.warn(message, stacklevel=4)


def _check(method: Method, updates: int, deadline: float) -> None:
    if isinstance(method, Private):
        raise PrivacyError(NOT_PRIVATE)
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
        give_up(client, self.deadline, version)

    def update(self, shared: Shared, t: int, watch: Watch | None) -> tuple[Shared, Round, Arrival]:
        """Take the next answer, merge it, and send the result to that client alone."""
        if not self.working:
            raise ClientError(f"update {t}: none of the {self.session.n_clients} clients is left to answer.")
        begin = time.perf_counter()
        job = heapq.heappop(self.working)
        (reply,) = self.session.round(job.shared, job.step, np.array([job.client]))
        schema = self.method.schema(self.session.n_features, job.step)
        new, line = merge(self.method, shared, reply, t=t, schema=schema, watch=watch)
        self.send(job.client, new, step=job.step + 1, version=t + 1, clock=job.clock)
        line = line._replace(seconds=time.perf_counter() - begin)
        return new, line, Arrival(t, job.client, t - job.version, job.clock)
