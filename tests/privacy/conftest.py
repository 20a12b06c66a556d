"""A round of secure summation that tests carry by hand, so that they can stop it anywhere."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest


class Round:
    """All clients and the server of one round."""

    def __init__(self, clients=4, size=3, *, value=1.0, session=b"round 1", pairs=None):
        from cofactor.privacy.secure_sum import Client, Server, Terms, new_identity

        self.terms = Terms(session, tuple(range(clients)), size)
        self.pairs = pairs or {c: new_identity() for c in range(clients)}
        self.registry = {c: public for c, (_, public) in self.pairs.items()}
        self.server = Server(self.terms, registry=self.registry)
        self.clients = {
            c: Client(self.terms, c, identity=self.pairs[c][0], registry=self.registry) for c in range(clients)
        }
        self.values = np.full(size, value)
        self.inbox = dict.fromkeys(range(clients))
        self.answers = {}

    def answer(self, c):
        client, message = self.clients[c], self.inbox[c]
        calls = {
            "advertise": client.advertise,
            "share": lambda: client.share(message),
            "mask": lambda: client.mask(message, self.values),
            "unmask": lambda: client.unmask(message),
        }
        return calls[client.phase]()

    def ask(self, gone=frozenset()):
        """Let clients answer the phase that is open, without handing the answers in."""
        self.answers = {c: self.answer(c) for c in self.inbox if c not in gone}

    def close(self):
        for message in self.answers.values():
            self.server.receive(message)
        self.inbox = self.server.close()

    def until(self, phase, gone=frozenset()):
        """Stop with the answers of ``phase`` in hand, not yet received."""
        while True:
            now = self.server.phase
            self.ask(gone if now is phase else frozenset())
            if now is phase:
                return self
            self.close()


@pytest.fixture
def carry() -> Callable[..., Round]:
    """Start a round; the extra ``secure`` is looked for only here."""
    return Round
