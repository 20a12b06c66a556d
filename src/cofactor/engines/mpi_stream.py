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

from cofactor.engines.contract import Answer, Callback, Streamed, Watch
from cofactor.engines.host import Host
from cofactor.engines.stream import PAUSE, Live
from cofactor.engines.team import ProcessError, Team, text_of, told_of
from cofactor.plan import Stream
from cofactor.types import CofactorError, Shared

_UNSENT: list[Any] = []
"""Requests to processes that do not answer any more: MPI may still read their buffers, so they are kept for good."""


class Work(NamedTuple):
    """Server to client: take this step from this state."""

    step: int
    shared: Shared


class Failure(NamedTuple):
    """Either way: what went wrong."""

    text: str


def stream(
    session: Any, shared: Shared, stream: Stream, *, watch: Watch | None, callbacks: Sequence[Callback]
) -> Streamed:
    """Carry the stream over all processes, which return the same; watch and callbacks are called on process 0."""
    team, host = session.team, session.host
    if stream.speeds is not None:
        raise CofactorError("speeds: expected none with several processes, whose clients take the time they take.")
    processes = _check_counts(team, host.count)
    comm = team.comm.Dup()  # late answers must not meet a later run
    if team.first:
        with ThreadPoolExecutor(1) as thread:
            live = session.method, len(processes), stream.deadline
            server = _Server(*live, comm=comm, host=host, processes=processes, thread=thread)
            end = _lead(server, shared, stream, watch=watch, callbacks=callbacks)
    else:
        end = _follow(comm, host)
    if not end.absent:
        comm.Free()
    return end


def _check_counts(team: Team, clients: int) -> list[int]:
    """Return the processes that have a client: one each, but for the server."""
    counts = team.exchange("the clients", clients)
    for process, count in enumerate(counts):
        if count > 1 or (count == 0 and process > 0):
            raise ProcessError(
                f"process {process}: a stream over MPI needs one client on each process (process 0, the server, may "
                f"have none). Found {count}; start as many processes as clients."
            )
    return [process for process, count in enumerate(counts) if count]


def _follow(comm: Any, host: Host) -> Streamed:
    """Client: do as told until the end; an order that comes during a step says that this client was given up."""
    sent = None
    while isinstance(order := _receive(comm), Work):
        answer = _answer(host, order)
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


def _answer(host: Host, order: Work) -> Answer | Failure:
    try:
        return host.step(order.shared, order.step, np.array([host.first]))[0]
    except Exception as error:
        return Failure(told_of(error))


def _lead(
    server: _Server, shared: Shared, stream: Stream, *, watch: Watch | None, callbacks: Sequence[Callback]
) -> Streamed:
    """Server: keep every client at work until the plan is fulfilled, then tell all how it ended."""
    with server.failing():
        shared, history, arrivals = server.lead(shared, stream, watch=watch, callbacks=callbacks)
        factor = server.method.factor(shared)
    server.drain()
    end = Streamed(factor, history, arrivals, tuple(sorted(server.absent)))
    server.tell(end)
    return end


@dataclass(kw_only=True)
class _Server(Live):
    """The server on process 0, and what is on its way. A client of its own has a thread."""

    comm: Any
    host: Host
    processes: list[int]
    thread: ThreadPoolExecutor
    here: Future[Answer | Failure] | None = None
    requests: list[Any] = field(default_factory=list)

    def post(self, client: int, step: int, shared: Shared) -> None:
        """Give a client an order."""
        order = Work(step, shared)
        if self.processes[client] == 0:
            self.here = self.thread.submit(_answer, self.host, order)
        else:
            self._post(self.processes[client], order)

    def take(self) -> tuple[int, Answer | Exception] | None:
        """Return what has arrived, from the thread or from another process; what went wrong there says where."""
        if self.here is not None and self.here.done():
            client, answer = 0, self.here.result()
            self.here = None
        elif (arrived := self._take()) is not None:
            client, answer = self.processes.index(arrived[0]), arrived[1]
        else:
            return None
        if isinstance(answer, Failure):
            return client, ProcessError(f"process {self.processes[client]}: {answer.text}")
        return client, answer

    def _take(self) -> tuple[int, Any] | None:
        """Return (process, what it sent) if something has arrived."""
        from mpi4py import MPI

        status = MPI.Status()
        message = self.comm.improbe(status=status)
        return None if message is None else (status.Get_source(), message.recv())

    def _post(self, process: int, order: Work | Streamed | Failure) -> None:
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

    def tell(self, order: Streamed | Failure) -> None:
        """Tell all clients that it is over; those that were given up may hear it late, or never."""
        for client, process in enumerate(self.processes):
            if process:
                self._post(process, order)
                if client not in self.absent:
                    self.requests.pop().wait()
        _UNSENT.extend(self.requests)
