"""Secure summation in one process: carried to its end with clients that drop out, or by hand, to stop it anywhere."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from cofactor.privacy.secure_sum.client import Client
from cofactor.privacy.secure_sum.messages import Terms
from cofactor.privacy.secure_sum.packing import Schema, size, unpack
from cofactor.privacy.secure_sum.primitives import new_identity
from cofactor.privacy.secure_sum.protocol import Members, add_up
from cofactor.privacy.secure_sum.rules import Phase
from cofactor.privacy.secure_sum.server import Server
from cofactor.types import Array, Message


class Total(NamedTuple):
    """The sum of the messages of the survivors, who they are, the bytes that left the clients, seeds of spare noise."""

    message: Message
    survivors: tuple[int, ...]
    sent: int
    spares: dict[int, bytes]


def total_of(messages: Mapping[int, Message], schema: Schema, gone: Mapping[int, Phase] | None = None) -> Total:
    """Sum messages under masks; ``gone`` says in which phase a client stops answering."""
    members, left = Members(messages), gone or {}
    members.bring(messages, schema)
    terms = Terms(secrets.token_bytes(16), tuple(sorted(messages)), size(schema))

    def ask(phase: Phase, inbox: dict[int, Any]) -> dict[int, bytes]:
        here = {c: message for c, message in inbox.items() if left.get(c) is not phase}
        return members.answer(terms, members.publics, here)

    found = add_up(terms, members.publics, ask)
    return Total(unpack(found.total, schema), found.survivors, found.sent, found.spares)


def sum_of(arrays: Mapping[int, Array], gone: Mapping[int, Phase] | None = None) -> tuple[Array, tuple[int, ...]]:
    """Sum one array per client under masks; return the sum and the survivors."""
    schema = {"values": np.shape(next(iter(arrays.values())))}
    found = total_of({c: Message({"values": a}) for c, a in arrays.items()}, schema, gone)
    return found.message.arrays["values"], found.survivors


class Round:
    """All clients and the server of one round; ``vectors`` (of all, or by client) is what they add.

    ``graph`` is the number of neighbours and of shares, where not everybody masks with everybody.
    """

    def __init__(
        self,
        clients: int = 4,
        size: int = 3,
        *,
        value: float = 1.0,
        session: bytes = b"round 1",
        pairs: Mapping[int, tuple[bytes, bytes]] | None = None,
        vectors: Mapping[int, Array] | None = None,
        graph: tuple[int, int] | None = None,
    ) -> None:
        self.terms = Terms(session, tuple(range(clients)), size, *(graph or ()))
        self.pairs = pairs or {c: new_identity() for c in range(clients)}
        self.registry = {c: public for c, (_, public) in self.pairs.items()}
        self.server = Server(self.terms, registry=self.registry)
        self.clients = {
            c: Client(self.terms, c, identity=self.pairs[c][0], registry=self.registry, spare=b"%032d" % c)
            for c in range(clients)
        }
        self.values = np.full(size, value)
        self.vectors = vectors or {}
        self.inbox: dict[int, Any] = dict.fromkeys(range(clients))
        self.answers: dict[int, Any] = {}

    def ask(self, gone: frozenset[int] | set[int] = frozenset()) -> None:
        """Let clients answer the phase that is open, without handing the answers in."""
        self.answers = {
            c: self.clients[c].answer(message, self.vectors.get(c, self.values))
            for c, message in self.inbox.items()
            if c not in gone
        }

    def close(self) -> None:
        """Hand the answers in, and end the phase."""
        for message in self.answers.values():
            self.server.receive(message)
        self.inbox = dict(self.server.close())

    def until(self, phase: Phase, gone: frozenset[int] | set[int] = frozenset()) -> Self:
        """Stop with the answers of ``phase`` in hand, not yet received."""
        while True:
            now = self.server.phase
            self.ask(gone if now is phase else frozenset())
            if now is phase:
                return self
            self.close()
