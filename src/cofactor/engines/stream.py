"""The asynchronous stream: the server merges each message as it arrives and answers that client alone.

Clients compute at simulated speeds, so a run on one machine shows what stragglers do; every time is drawn from
(seed, client, step), so the order of arrivals, and with it the result, is reproducible to the bit. Engines of several
processes, such as :class:`~cofactor.engines.mpi.Mpi`, carry the same stream in real time instead (:class:`Live`).
"""

from __future__ import annotations

import heapq
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from cofactor.engines.contract import Answer, Arrival, Callback, Streamed, Watch, shared_bytes
from cofactor.engines.history import Round
from cofactor.engines.merging import state_after, unmerged
from cofactor.engines.over import WINDOW, Trail
from cofactor.engines.speeds import ByRows, Speeds
from cofactor.method import Method
from cofactor.plan import Stream
from cofactor.types import ClientError, CofactorError, Shared

PAUSE = 2e-4
"""Seconds between two looks for a message: waiting must not take a core from a process that computes."""
SPEED = 1
"""Last word of the address of a simulated time, which keeps it apart from what a method draws in that step."""


class Server(Protocol):
    """Whoever takes the answers of clients, one by one."""

    @property
    def method(self) -> Method:
        """What runs."""
        ...

    @property
    def n_clients(self) -> int:
        """How many clients there are."""
        ...

    def update(self, shared: Shared, t: int, watch: Watch | None) -> tuple[Shared, Round, Arrival]:
        """Take the next answer, merge it, and send the result to that client alone."""
        ...


def simulate(
    session: Any, shared: Shared, stream: Stream, *, watch: Watch | None, callbacks: Sequence[Callback]
) -> Streamed:
    """Let the clients of one process answer at the speeds of the stream."""
    server = _Server(session, stream.speeds or ByRows(), stream.deadline)
    for j in range(session.n_clients):
        server.send(j, shared, step=0, version=0, clock=0.0)
    shared, history, arrivals = serve(server, shared, stream, watch=watch, callbacks=callbacks)
    return Streamed(session.method.factor(shared), history, arrivals, tuple(sorted(server.absent)))


def serve(
    server: Server, shared: Shared, stream: Stream, *, watch: Watch | None, callbacks: Sequence[Callback]
) -> tuple[Shared, list[Round], list[Arrival]]:
    """Let a server merge answers until there are enough; return the last state and what happened."""
    history: list[Round] = []
    arrivals: list[Arrival] = []
    trail = Trail(WINDOW * server.n_clients, server.n_clients)
    for t in range(stream.updates):
        shared, line, arrival = server.update(shared, t, watch)
        moved, net = trail(server.method.factor(shared))
        line = line._replace(moved=moved, net=net)
        history.append(line)
        arrivals.append(arrival)
        if any([callback(line, shared) for callback in callbacks]):
            break
    return shared, history, arrivals


def merge(method: Method, shared: Shared, answer: Answer, *, t: int, watch: Watch | None) -> tuple[Shared, Round]:
    """Merge one answer into the state; return the new state and the line of update t, its seconds still to be told."""
    if watch:
        watch(t, [answer])
    try:
        new = state_after(method, shared, [answer.message], t)
    except Exception as error:
        raise unmerged([answer.client], t, error) from error
    return new, Round(t, float(new.loss), float(new.drift), answer.nbytes, shared_bytes(new), 0.0, 1)


def give_up(client: int, deadline: float, version: int) -> None:
    """Warn that the stream goes on without a client."""
    within = f"within the deadline of {deadline:g} s" if np.isfinite(deadline) else "at all"
    message = f"client {client} did not answer {within} after update {version}; the stream goes on without it."
    warnings.warn(message, stacklevel=4)


class Job(NamedTuple):
    """A client at work in real time: in which step of its own, on which version of the state, since when."""

    step: int
    version: int
    since: float


@dataclass
class Live(ABC):
    """A server in real time: who is at work since when. An engine says how an order goes out and an answer comes in.

    The first answers of all clients are awaited before any gets its second order: kernels are compiled in them, and a
    client that is ready sooner would use up the plan alone. Those that wait are ``ready`` for the ``latest`` state.
    """

    method: Method
    n_clients: int
    deadline: float
    working: dict[int, Job] = field(default_factory=dict)
    arrived: dict[int, Answer | Exception] = field(default_factory=dict)
    absent: set[int] = field(default_factory=set)
    ready: dict[int, int] = field(default_factory=dict)
    latest: tuple[Shared, int] | None = None
    began: float = field(default_factory=time.monotonic)

    @abstractmethod
    def post(self, client: int, step: int, shared: Shared) -> None:
        """Engine: give a client an order."""

    @abstractmethod
    def take(self) -> tuple[int, Answer | Exception] | None:
        """Engine: return what has arrived, and from whom; None if nothing has."""

    def lead(
        self, shared: Shared, stream: Stream, *, watch: Watch | None, callbacks: Sequence[Callback]
    ) -> tuple[Shared, list[Round], list[Arrival]]:
        """Keep every client at work until the plan is fulfilled."""
        for client in range(self.n_clients):
            self.send(client, shared, step=0, version=0)
        return serve(self, shared, stream, watch=watch, callbacks=callbacks)

    def send(self, client: int, shared: Shared, *, step: int, version: int) -> None:
        """Give a client the state to work on."""
        self.working[client] = Job(step, version, time.monotonic())
        self.post(client, step, shared.broadcast())

    def update(self, shared: Shared, t: int, watch: Watch | None) -> tuple[Shared, Round, Arrival]:
        """Take the next answer, merge it, and send the result to that client alone."""
        begin = time.monotonic()
        if (arrived := self.arrival()) is None:
            raise ClientError(f"update {t}: none of the {self.n_clients} clients is left to answer.")
        client, answer = arrived
        now, job = time.monotonic(), self.working.pop(client)
        if isinstance(answer, Exception):
            raise answer
        new, line = merge(self.method, shared, answer, t=t, watch=watch)
        self.ready[client], self.latest = job.step + 1, (new, t + 1)
        self._go_on()
        line = line._replace(seconds=time.monotonic() - begin)
        return new, line, Arrival(t, client, t - job.version, now - self.began)

    def arrival(self) -> tuple[int, Answer | Exception] | None:
        """Return the next answer of a client that is not given up; None if all are."""
        while self.working:
            while (found := self.take()) is not None:
                if found[0] in self.working:
                    self.arrived[found[0]] = found[1]
            self._expire()
            if self.arrived:
                client = next(iter(self.arrived))
                return client, self.arrived.pop(client)
            time.sleep(PAUSE)
        return None

    def drain(self) -> None:
        """Take and forget the answers that are still to come; nobody gets another order."""
        self.ready.clear()
        while (arrived := self.arrival()) is not None:
            del self.working[arrived[0]]

    def give_up(self, client: int, deadline: float) -> None:
        """Go on without a client that is at work."""
        give_up(client, deadline, self.working.pop(client).version)
        self.absent.add(client)
        self._go_on()

    def _expire(self) -> None:
        """Give up the clients whose deadline has passed, but not those whose answers are here and wait."""
        now = time.monotonic()
        for client in [c for c, job in self.working.items() if now - job.since > self.deadline]:
            if client not in self.arrived:
                self.give_up(client, self.deadline)

    def _go_on(self) -> None:
        """Give those that are ready their next order, once all first answers are there or given up."""
        if self.latest is None or any(job.step == 0 for job in self.working.values()):
            return
        shared, version = self.latest
        for client, step in self.ready.items():
            self.send(client, shared, step=step, version=version)
        self.ready.clear()


@dataclass(order=True)
class _Job:
    """A client at work: when it will answer, on which version of the state, in which step of its own."""

    clock: float
    client: int
    step: int = field(compare=False)
    version: int = field(compare=False)
    shared: Shared = field(compare=False)


@dataclass
class _Server:
    """The event loop: a heap of clients at work, ordered by the time of their answers."""

    session: Any
    speeds: Speeds
    deadline: float
    working: list[_Job] = field(default_factory=list)
    absent: set[int] = field(default_factory=set)

    @property
    def method(self) -> Method:
        """What runs."""
        return self.session.method

    @property
    def n_clients(self) -> int:
        """How many clients there are."""
        return self.session.n_clients

    def send(self, client: int, shared: Shared, *, step: int, version: int, clock: float) -> None:
        """Give a client the state, or give it up if its answer would come too late."""
        host = self.session.host
        address = np.random.default_rng([host.seed, client + 2, step + 2, SPEED])
        seconds = self.speeds(client, host.units[client].data.shape[0], address)
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
        (answer,) = self.session.round(job.shared, job.step, np.array([job.client]))
        new, line = merge(self.session.method, shared, answer, t=t, watch=watch)
        self.send(job.client, new, step=job.step + 1, version=t + 1, clock=job.clock)
        line = line._replace(seconds=time.perf_counter() - begin)
        return new, line, Arrival(t, job.client, t - job.version, job.clock)
