"""Secure summation as an engine: it carries any additive method, and the server sees masked messages and their sum."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from cofactor.engines.checkpoint import Checkpoint
from cofactor.engines.inline import Inline, InlineSession
from cofactor.engines.mpi import MpiSession
from cofactor.engines.processes import Processes
from cofactor.engines.rounds import Engine, Reply, check_message
from cofactor.method import Method
from cofactor.privacy import secure_sum  # its names load when they are used: cryptography is an extra
from cofactor.privacy.errors import PrivacyError
from cofactor.privacy.secure_sum.packing import pack, size, unpack
from cofactor.types import Array, Data, Local, Message, Shared

SMALL = 2.0**-10
NOT_ADDITIVE = (
    "secure summation gives the server sums and nothing else; this method needs the message of every single client. "
    "Use a method whose messages are summed (`cofactor methods` says which), such as 'exact' with start='moments'."
)

NO_BUFFER = (
    "secure aggregation of asynchronous updates is refused: the server merges every update as it arrives, without a "
    "buffer of several to add up, so it would see each one. Run the method in rounds."
)


@dataclass(frozen=True)
class Secure:
    """Wrap the inline or the MPI engine: every round is one secure summation over its participants (3 to 200).

    Clients get long-term keys when the run starts, and sign the fresh keys of every round with them. Values travel as
    multiples of 2^-24, so data should be of a scale of about 1.
    """

    engine: Engine = field(default_factory=Inline)

    @contextmanager
    def open(self, method: Method, Xs: Sequence[Data], seed: int) -> Iterator[SecureSession]:
        """Refuse what is not additive; open the engine and hand out the keys."""
        if not method.additive:
            raise PrivacyError(NOT_ADDITIVE)
        with self.engine.open(_Unstacked(method), Xs, seed) as session:
            assert isinstance(session, InlineSession | MpiSession)
            yield SecureSession(session)

    def stream(self, method: Method, Xs: Sequence[Data], plan: Any) -> NoReturn:
        """Refuse: an update that arrives alone has no sum to hide in."""
        raise PrivacyError(NO_BUFFER)


class _Unstacked:
    """A method as it is, but for engines that would step tiny clients as one: each masks its own message."""

    def __init__(self, method: Method) -> None:
        self._method = method

    def __getattr__(self, name: str) -> Any:
        return getattr(self._method, name)

    def rowwise(self, t: int) -> bool:
        """No."""
        return False


class SecureSession:
    """The clients of this process with their keys. Every process runs the server, on the same masked messages."""

    masks = True

    def __init__(self, session: InlineSession | MpiSession) -> None:
        self.session = session
        self.own = session.own if isinstance(session, MpiSession) else session
        self.team: Processes | None = session.team if isinstance(session, MpiSession) else None
        self.n_clients, self.n_features = session.n_clients, session.n_features
        pairs = {self.own.first + j: secure_sum.new_identity() for j in range(self.own.n_clients)}
        self.identities = {client: private for client, (private, _) in pairs.items()}
        self.registry: dict[int, bytes] = self._all({client: public for client, (_, public) in pairs.items()}, "keys")

    def round(self, shared: Shared, t: int, participants: Array) -> list[Reply]:
        """Step the participants, and add their messages up under masks."""
        schema = self.own.method.schema(self.n_features, t)
        self._check_parts(len(participants))
        with self._guard(f"round {t}"):
            replies = self.own.round(shared, t, np.intersect1d(participants, list(self.identities)))
            for reply in replies:
                check_message(reply.message, schema, client=reply.client, t=t)
            vectors = {reply.client: pack(reply.message, schema) for reply in replies}
        cost = self._all({reply.client: reply.message.cost for reply in replies}, f"costs of round {t}")
        terms = self._terms(tuple(int(j) for j in participants), size(schema), t)
        total, survivors, sent = self._sum(terms, vectors, t)
        sums = unpack(total, schema)
        with self._guard(f"round {t}"):
            _check_scale(sums, [reply.message for reply in replies], t)
        empty = {name: np.zeros(shape)[()] for name, shape in schema.items()}
        stand_in = Message(empty, 0.0, next(iter(cost.values())))
        return [Reply(np.array(survivors), stand_in, sent), Reply(participants[:0], sums)]

    def _check_parts(self, participants: int) -> None:
        """Refuse a round in which the clients that must answer would not carry the whole noise."""
        plan, enough = getattr(self.own.method, "plan", None), secure_sum.threshold(participants)
        if plan is not None and plan.parts > enough:
            raise PrivacyError(
                f"the noise of this plan is whole with {plan.parts} clients, and of {participants} in a round only "
                f"{enough} must answer. Make the plan for the number of clients that take part in a round."
            )

    def _terms(self, clients: tuple[int, ...], length: int, t: int) -> secure_sum.Terms:
        """Agree on a session name that is never used again."""
        name = secrets.token_bytes(16)
        return secure_sum.Terms(self._all({0: name}, f"session of round {t}", first=True)[0], clients, length)

    def _sum(self, terms: secure_sum.Terms, vectors: Mapping[int, Array], t: int) -> tuple[Array, tuple[int, ...], int]:
        """Carry the four phases; return the sum, who is in it, and the bytes that left the clients."""
        where = f"secure sum of round {t}"
        server = secure_sum.Server(terms, registry=self.registry)
        clients = {
            c: secure_sum.Client(terms, c, identity=self.identities[c], registry=self.registry)
            for c in terms.clients
            if c in self.identities
        }
        inbox: dict[int, Any] = dict.fromkeys(clients)
        sent = 0
        for phase in ("advertise", "share", "mask", "unmask"):
            with self._guard(where):
                answers = {c: secure_sum.encode(clients[c].answer(inbox[c], vectors[c])) for c in clients if c in inbox}
            heard = self._all(answers, f"{where}: {phase}")
            sent += sum(map(len, heard.values()))
            with self._guard(where):
                for c in sorted(heard):
                    server.receive(secure_sum.decode(heard[c]))
                inbox = dict(server.close())
        return server.result(), server.survivors, sent

    def _all(self, mine: dict[int, Any], where: str, *, first: bool = False) -> dict[int, Any]:
        """Return what all processes bring, or what the first one does."""
        if self.team is None:
            return mine
        told = self.team.exchange(where, mine)
        return told[0] if first else {key: value for part in told for key, value in part.items()}

    @contextmanager
    def _guard(self, where: str) -> Iterator[None]:
        if self.team is None:
            yield
            return
        with self.team.guard(where):
            yield

    def join(self, shared: Shared) -> None:
        """Let every client prepare its state."""
        self.session.join(shared)

    def keep(self, checkpoint: Checkpoint) -> Checkpoint:
        """As the engine keeps it."""
        return self.session.keep(checkpoint)

    def locals(self, t: int) -> list[Local]:
        """Return the states of the clients of this process."""
        return self.session.locals(t)

    def restore(self, states: list[Local], t: int) -> None:
        """Put the states back."""
        self.session.restore(states, t)

    def refit(self, factor: Array) -> list[Array]:
        """Return the codes of the clients of this process."""
        return self.session.refit(factor)


def _check_scale(sums: Message, messages: list[Message], t: int) -> None:
    """Refuse arrays so small that rounding to 2^-24 has eaten their digits; a single number (a loss) may be."""
    for name, a in sums.arrays.items():
        top = float(np.abs(a).max(initial=0.0))
        if np.ndim(a) and top < SMALL and any(np.any(message.arrays[name]) for message in messages):
            raise PrivacyError(
                f"round {t}: {name!r}: expected values of about 1, found {top:.3g} at most; secure summation rounds to "
                "multiples of 6e-8. Multiply the data by a public constant first."
            )
