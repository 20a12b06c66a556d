"""One secure summation from end to end: the clients of a place, and a server that asks them phase by phase."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from cofactor.privacy.errors import HostileInputError, ParameterError
from cofactor.privacy.secure_sum.client import Client
from cofactor.privacy.secure_sum.keys import Keys
from cofactor.privacy.secure_sum.messages import Terms, decode, encode
from cofactor.privacy.secure_sum.neighbours import bound
from cofactor.privacy.secure_sum.packing import Schema, pack, size, unpack
from cofactor.privacy.secure_sum.primitives import new_identity
from cofactor.privacy.secure_sum.rules import Phase
from cofactor.privacy.secure_sum.server import Server
from cofactor.types import Array, Message

PHASES = (Phase.ADVERTISE, Phase.SHARE, Phase.MASK, Phase.AGREE, Phase.UNMASK)


class Members:
    """The clients of one place: their long-term keys, and what each is about to add.

    With ``keys`` they are read here, those of all others too, and no other registry is believed; without, they are made
    now, and the others' are those that the server hands out.
    """

    def __init__(self, clients: Iterable[int], keys: Keys | None = None) -> None:
        here = list(clients)
        self._registry = None if keys is None else keys.registry()
        pairs = [new_identity() if keys is None else keys.pair(client) for client in here]
        self._identities = {client: private for client, (private, _) in zip(here, pairs, strict=True)}
        self.publics = {client: public for client, (_, public) in zip(here, pairs, strict=True)}
        self._vectors: dict[int, Array] = {}
        self._spares: dict[int, bytes] = {}
        self._clients: dict[int, Client] = {}

    def bring(self, messages: Mapping[int, Message], schema: Schema) -> None:
        """Take what each client wants to add in the next sum."""
        self._vectors = {client: pack(message, schema) for client, message in messages.items()}
        self._spares = {client: message.spare for client, message in messages.items()}
        self._clients = {}

    def answer(self, terms: Terms, registry: Mapping[int, bytes], inbox: Mapping[int, Any]) -> dict[int, bytes]:
        """Return the next message of every client here that was written to; terms that hide too little are refused."""
        if terms != terms_of(terms.session, terms.clients, terms.size):
            raise ParameterError("the terms of a sum: expected as many neighbours and shares as its clients need.")
        known = registry if self._registry is None else self._registry
        clients = self._clients or {
            c: Client(terms, c, identity=self._identities[c], registry=known, spare=self._spares[c])
            for c in terms.clients
            if c in self._vectors
        }
        found = {c: encode(clients[c].answer(inbox[c], v)) for c, v in self._vectors.items() if c in inbox}
        self._clients = clients  # not before they have answered
        return found


class Sum(NamedTuple):
    """The sum over the survivors, who they are, the bytes that left the clients, and the seeds of spare noise in it."""

    total: Array
    survivors: tuple[int, ...]
    sent: int
    spares: dict[int, bytes]


Ask = Callable[[Phase, dict[int, Any]], Mapping[int, bytes]]
"""(phase, what each client is sent) -> what came back; clients that have gone are missing in it."""


AskUnder = Callable[[Terms, dict[int, Any]], Mapping[int, bytes]]
"""The same, told under which terms."""


Blame = Callable[[int], bool]
"""Hears who has said something wrong; whether the sum goes on as if that client had gone."""


def _nobody(client: int) -> bool:
    return False


def add_up(terms: Terms, registry: Mapping[int, bytes], ask: Ask, blame: Blame = _nobody) -> Sum:
    """Server: carry the five phases; what a client says wrongly is an error, unless ``blame`` says otherwise."""
    server, sent = Server(terms, registry=registry), 0
    inbox: dict[int, Any] = dict.fromkeys(terms.clients)
    for phase in PHASES:
        heard = ask(phase, inbox)
        sent += sum(map(len, heard.values()))
        for client in sorted(heard):
            try:
                server.receive(decode(heard[client]))
            except HostileInputError:  # the server is as it was
                if not blame(client):
                    raise
        inbox = dict(server.close())
    for client in server.forgers:  # the sum is right without their shares
        blame(client)
    return Sum(server.result(), server.survivors, sent, server.spares)


def terms_of(name: bytes, clients: tuple[int, ...], size: int) -> Terms:
    """Return the terms of a round: with as many neighbours as so many clients need."""
    found = bound(len(clients))
    if found.neighbours == len(clients) - 1:
        return Terms(name, clients, size)
    return Terms(name, clients, size, found.neighbours, found.shares)


def add_messages(
    name: bytes,
    clients: tuple[int, ...],
    schema: Schema,
    *,
    registry: Mapping[int, bytes],
    ask: AskUnder,
    blame: Blame = _nobody,
) -> tuple[Message, Sum]:
    """Server: add up the messages of these clients under a name that is never used again.

    ``ask(terms, inbox)`` carries a phase. Returns the sum as a message, and all else that is known of it.
    """
    terms = terms_of(name, clients, size(schema))
    found = add_up(terms, registry, lambda phase, inbox: ask(terms, inbox), blame)
    return unpack(found.total, schema), found
