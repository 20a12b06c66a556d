"""The asynchronous stream over MPI: process 0 serves one client on every process, point to point and in real time.

Only the start is collective. After it the server sends an order to one client at a time and takes answers from any,
so that a client that hangs keeps nobody waiting. In the end it takes the answers that are still to come, or gives
their clients up, before it tells all what came out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from cofactor.engines.history import Round
from cofactor.engines.inline import InlineSession
from cofactor.engines.mpi import agree
from cofactor.engines.processes import ProcessError, Processes, text_of
from cofactor.engines.rounds import Reply, Watch
from cofactor.engines.stream import Arrival, Plan, StreamRun, give_up, merge, serve
from cofactor.method import SERVER, Method, rng
from cofactor.types import Array, ClientError, Data, Shared

PAUSE = 2e-4
"""Seconds between two looks for a message: waiting must not take a core from a process that computes."""

_UNSENT: list[Any] = []
"""Requests to processes that do not answer any more: MPI may still read their buffers, so they are kept for good."""


class Work(NamedTuple):
    """Server to client: take this step from this state."""

    step: int
    shared: Shared


class End(NamedTuple):
    """Server to client: what came out."""

    factor: Array
    history: list[Round]
    arrivals: list[Arrival]
    absent: tuple[int, ...]


class Failure(NamedTuple):
    """Either way: what went wrong."""

    text: str


class _Job(NamedTuple):
    """A client at work: in which step of its own, on which version of the state, since when."""

    step: int
    version: int
    since: float


def stream(team: Processes, method: Method, Xs: Sequence[Data], plan: Plan) -> StreamRun:
    """Run the plan; every process returns the same factor and history, and the codes of its own client."""
    _check_counts(team, len(Xs))
    with team.guard("the start of the stream"):
        held = agree(team, Xs, empty=True)
        shared = method.start(held.n_features, rng(plan.seed, SERVER, -1), plan.start)
        own = InlineSession(method, held.data, plan.seed, None, first=held.first) if held.data else None
        if own:
            own.join(shared.broadcast())
    processes = [p for p, count in enumerate(team.exchange("the start of the stream", len(held.data))) if count]
    comm = team.comm.Dup()  # late answers must not meet a later run
    if team.first:
        with ThreadPoolExecutor(1) as thread:
            end = _lead(_Server(comm, method, held.n_features, processes, plan.deadline, own, thread), shared, plan)
    else:
        end = _follow(comm, own, held.first)
    if not end.absent:
        comm.Free()
    codes = own.refit(end.factor) if own else []
    return StreamRun(end.factor, codes, end.history, arrivals=end.arrivals, absent=end.absent)


def _check_counts(team: Processes, clients: int) -> None:
    for process, count in enumerate(team.exchange("the clients", clients)):
        if count > 1 or (count == 0 and (process > 0 or team.count == 1)):
            raise ProcessError(
                f"process {process}: a stream over MPI needs one client on each process (process 0, the server, may "
                f"have none). Found {count}; start as many processes as clients."
            )


def _follow(comm: Any, own: InlineSession | None, client: int) -> End:
    """Client: do as told until the end; an order that comes during a step says that this client was given up."""
    assert own is not None
    sent = None
    while isinstance(order := _receive(comm), Work):
        answer = _answer(own, order, client)
        if not comm.iprobe(source=0):
            sent = comm.isend(answer, dest=0)
    if sent and not sent.test()[0]:
        _UNSENT.append(sent)
    if isinstance(order, Failure):
        raise ProcessError(order.text)
    return order


def _receive(comm: Any) -> Any:
    while not comm.iprobe(source=0):
        time.sleep(PAUSE)
    return comm.recv(source=0)


def _answer(own: InlineSession, order: Work, client: int) -> Reply | Failure:
    try:
        return own.round(order.shared, order.step, np.array([client]))[0]
    except Exception as error:
        return Failure(text_of(error))


def _lead(server: _Server, shared: Shared, plan: Plan) -> End:
    """Server: keep every client at work until the plan is fulfilled, then tell all how it ended."""
    with server.failing():
        for client in range(len(server.processes)):
            server.send(client, shared, step=0, version=0)
        shared, history, arrivals = serve(server, shared, plan)
        factor = server.method.factor(shared)
    server.drain()
    end = End(factor, history, arrivals, tuple(sorted(server.absent)))
    server.tell(end)
    return end


@dataclass
class _Server:
    """The state of process 0: who is at work since when, and what is on its way. A client of its own has a thread.

    The first answers of all clients are awaited before any gets its second order: kernels are compiled in them, and a
    client that is ready sooner would use up the plan alone. Those that wait are ``ready`` for the ``latest`` state.
    """

    comm: Any
    method: Method
    n_features: int
    processes: list[int]
    deadline: float
    own: InlineSession | None
    thread: ThreadPoolExecutor
    working: dict[int, _Job] = field(default_factory=dict)
    absent: set[int] = field(default_factory=set)
    here: Future[Reply | Failure] | None = None
    requests: list[Any] = field(default_factory=list)
    ready: dict[int, int] = field(default_factory=dict)
    latest: tuple[Shared, int] | None = None
    began: float = field(default_factory=time.monotonic)

    def send(self, client: int, shared: Shared, *, step: int, version: int) -> None:
        """Give a client the state to work on."""
        order = Work(step, shared.broadcast())
        self.working[client] = _Job(step, version, time.monotonic())
        if self.processes[client] == 0:
            assert self.own is not None
            self.here = self.thread.submit(_answer, self.own, order, client)
        else:
            self._post(self.processes[client], order)

    def update(self, shared: Shared, t: int, watch: Watch | None) -> tuple[Shared, Round, Arrival]:
        """Take the next answer, merge it, and send the result to that client alone."""
        begin = time.monotonic()
        if (arrived := self._next()) is None:
            raise ClientError(f"update {t}: none of the {len(self.processes)} clients is left to answer.")
        client, answer = arrived
        now, job = time.monotonic(), self.working.pop(client)
        if isinstance(answer, Failure):
            raise ProcessError(f"process {self.processes[client]}: {answer.text}")
        schema = self.method.schema(self.n_features, job.step)
        new, line = merge(self.method, shared, answer, t=t, schema=schema, watch=watch)
        self.ready[client], self.latest = job.step + 1, (new, t + 1)
        self._go_on()
        line = line._replace(seconds=time.monotonic() - begin)
        return new, line, Arrival(t, client, t - job.version, now - self.began)

    def _go_on(self) -> None:
        """Give those that are ready their next order, once all first answers are there or given up."""
        if self.latest is None or any(job.step == 0 for job in self.working.values()):
            return
        shared, version = self.latest
        for client, step in self.ready.items():
            self.send(client, shared, step=step, version=version)
        self.ready.clear()

    def _next(self) -> tuple[int, Reply | Failure] | None:
        """Return the next answer of a client that is not given up; None if all are."""
        while self.working:
            if self.here is not None and self.here.done():
                client, answer = 0, self.here.result()
                self.here = None
            elif (arrived := self._take()) is not None:
                client, answer = self.processes.index(arrived[0]), arrived[1]
            else:
                self._expire()
                time.sleep(PAUSE)
                continue
            if client in self.working:
                return client, answer
        return None

    def _expire(self) -> None:
        """Give up the clients whose deadline has passed."""
        late = [c for c, job in self.working.items() if time.monotonic() - job.since > self.deadline]
        for client in late:
            give_up(client, self.deadline, self.working.pop(client).version)
            self.absent.add(client)
        if late:
            self._go_on()

    def _take(self) -> tuple[int, Any] | None:
        """Return (process, what it sent) if something has arrived."""
        from mpi4py import MPI

        status = MPI.Status()
        message = self.comm.improbe(status=status)
        return None if message is None else (status.Get_source(), message.recv())

    def _post(self, process: int, order: Work | End | Failure) -> None:
        self.requests = [r for r in self.requests if not r.test()[0]]
        self.requests.append(self.comm.isend(order, dest=process))

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Raise an error of this block on all processes."""
        try:
            yield
        except Exception as error:
            text = str(error) if isinstance(error, ProcessError) else f"process 0: {text_of(error)}"
            self.drain()
            self.tell(Failure(text))
            raise ProcessError(text) from error

    def drain(self) -> None:
        """Take and forget the answers that are still to come; nobody gets another order."""
        self.ready.clear()
        while (arrived := self._next()) is not None:
            del self.working[arrived[0]]

    def tell(self, order: End | Failure) -> None:
        """Tell all clients that it is over; those that were given up may hear it late, or never."""
        for client, process in enumerate(self.processes):
            if process:
                self._post(process, order)
                if client not in self.absent:
                    self.requests.pop().wait()
        _UNSENT.extend(self.requests)
