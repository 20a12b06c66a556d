"""The asynchronous stream on the workers of dask: an order to one client at a time, in real time."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cofactor.engines import dask_worker as worker
from cofactor.engines.contract import Answer, Callback, Streamed, Watch
from cofactor.engines.dask_hosts import Hosts
from cofactor.engines.session import stepped
from cofactor.engines.stream import Live
from cofactor.method import Method
from cofactor.plan import Stream
from cofactor.types import CofactorError, Shared


def stream(
    hosts: Hosts, method: Method, shared: Shared, stream: Stream, *, watch: Watch | None, callbacks: Sequence[Callback]
) -> Streamed:
    """Carry the stream: every client is a host of its own, so that none waits for another but for a free worker."""
    if stream.speeds is not None:
        raise CofactorError("speeds: expected none with an engine of workers, whose clients take the time they take.")
    server = _Server(method, len(hosts.places), stream.deadline, hosts=hosts)
    shared, history, arrivals = server.lead(shared, stream, watch=watch, callbacks=callbacks)
    return Streamed(method.factor(shared), history, arrivals, tuple(sorted(server.absent)))


@dataclass(kw_only=True)
class _Server(Live):
    """The server in the driver, and the answers that it waits for. A client whose worker is lost is given up."""

    hosts: Hosts
    awaited: dict[int, Any] = field(default_factory=dict)

    def post(self, client: int, step: int, shared: Shared) -> None:
        """Give a client an order."""
        order = self.hosts.order(stepped, (shared, step, np.array([client])), worker.whole)
        self.awaited[client] = self.hosts.give(self.hosts.places[client], order)

    def take(self) -> tuple[int, Answer | Exception] | None:
        """Return the answer of a client that has one."""
        for client, future in list(self.awaited.items()):
            if not future.done():
                continue
            del self.awaited[client]
            try:
                answers, error = future.result()
                return client, error or answers[0]
            except (Exception, CancelledError):  # the worker is lost
                if client in self.working:
                    self.give_up(client, np.inf)
        return None
