"""The asynchronous stream over a network: an order to one client at a time, in real time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cofactor.engines.contract import Answer, Callback, Streamed, Watch, check_message
from cofactor.engines.flare_clients import Clients
from cofactor.engines.stream import Live
from cofactor.method import Method
from cofactor.plan import Stream
from cofactor.types import ClientError, CofactorError, Shared

GLANCE = 0.02
"""Seconds to wait for an answer before looking at deadlines."""


def stream(
    clients: Clients,
    method: Method,
    n_features: int,
    shared: Shared,
    stream: Stream,
    *,
    watch: Watch | None,
    callbacks: Sequence[Callback],
) -> Streamed:
    """Carry the stream; a client that is silent for long, or beyond the deadline, is given up."""
    if stream.speeds is not None:
        raise CofactorError("speeds: expected none with clients over a network, which take the time they take.")
    server = _Server(method, len(clients.names), stream.deadline, clients=clients, n_features=n_features)
    shared, history, arrivals = server.lead(shared, stream, watch=watch, callbacks=callbacks)
    server.drain()
    return Streamed(method.factor(shared), history, arrivals, tuple(sorted(server.absent)))


@dataclass(kw_only=True)
class _Server(Live):
    """The server, and the answers that have arrived."""

    clients: Clients
    n_features: int
    steps: dict[int, int] = field(default_factory=dict)
    found: dict[int, Any] = field(default_factory=dict)

    def post(self, client: int, step: int, shared: Shared) -> None:
        """Give a client an order; its answer to the one before was used."""
        self.steps[client] = step
        self.clients.post("step", client, {"t": step, "counted": step - 1, "shared": shared, "work": None})

    def take(self) -> tuple[int, Answer | Exception] | None:
        """Return the checked answer of a client that has one; give up those that are lost."""
        if not self.found:
            self.found |= self.clients.collect(GLANCE)
        for client in [c for c in self.working if not (self.clients.waits_for(c) or c in self.found)]:
            if client not in self.arrived:
                self.give_up(client, np.inf)
        if not self.found:
            return None
        client = next(iter(self.found))
        message = self.found.pop(client)["answer"]
        try:
            check_message(message, self.method.schema(self.n_features, 0), client=client, t=self.steps[client])
        except ClientError:
            self.clients.drop(client, "reply")
            if client in self.working:
                self.give_up(client, np.inf)
            return None
        return client, Answer(np.array([client]), message)
