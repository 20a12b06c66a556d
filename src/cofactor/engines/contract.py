"""What an engine is: it brings a method to the clients' data, and carries messages. All that a new engine must have."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from cofactor.engines.checkpoint import Checkpoint, State
from cofactor.engines.history import Round
from cofactor.engines.team import Team
from cofactor.local.placed import Placed
from cofactor.method import SERVER, Method, fits
from cofactor.plan import Plan, Stream
from cofactor.types import Array, ClientError, Data, Message, Shared


def message_bytes(message: Message) -> int:
    """Bytes on the wire, of one client: the arrays and eight for the weight."""
    dtypes, arrays = message.dtypes, message.arrays
    if not dtypes:
        return sum(map(_bytes, arrays.values())) + 8
    return sum(np.size(a) * np.dtype(dtypes[n]).itemsize if n in dtypes else _bytes(a) for n, a in arrays.items()) + 8


_SIZED = (np.ndarray, np.generic)


def _bytes(a: Any) -> int:
    """Bytes of an array, or of a number of Python, which are eight."""
    return a.nbytes if isinstance(a, _SIZED) else np.size(a) * np.result_type(a).itemsize


def shared_bytes(shared: Shared) -> int:
    """Bytes that one client receives."""
    return shared.factor.nbytes + sum(map(_bytes, shared.extra.values()))


@dataclass(frozen=True)
class Answer:
    """What came back from one client, from clients that were stepped as one, or the total of all that answered."""

    clients: Array
    message: Message
    sent: int | None = None
    """Bytes that left these clients, where they are not those of the message (secure summation)."""
    received: int | None = None
    """Bytes that these clients were sent, where that is not the whole of what all may see."""

    @property
    def nbytes(self) -> int:
        """Bytes that left these clients."""
        return message_bytes(self.message) * len(self.clients) if self.sent is None else self.sent

    @property
    def client(self) -> int:
        """The first (mostly the only) client."""
        return int(self.clients[0]) if len(self.clients) else SERVER


Callback = Callable[[Round, Shared], Any]
"""Called after every round; a true answer ends the run."""

Watch = Callable[[int, Sequence[Answer]], Any]
"""Called with the round and all that left the clients in it, before anything is done with it."""


class Client(NamedTuple):
    """One client at the end of a run, where it lives: what it holds, and the codes that belong to the final factor.

    ``own`` are codes and factor of the client alone, where the method made it factorize alone.
    """

    number: int
    data: Data
    codes: Array
    own: tuple[Array, Array] | None


Work = Callable[[Client, Array], Any]
"""What a client does in the end with itself and the final factor; what it returns may be seen by all."""


class Arrival(NamedTuple):
    """One message at the server of a stream; line i of ``Run.arrivals`` belongs to line i of the history.

    ``staleness`` counts the updates of the factor between the version that the client worked on and this arrival;
    ``clock`` is the time in seconds, simulated unless an engine carries the stream in real time.
    """

    update: int
    client: int
    staleness: int
    clock: float


@dataclass(frozen=True)
class Streamed:
    """What came out of a stream: the factor, what happened, and the clients that were given up."""

    factor: Array
    history: list[Round]
    arrivals: list[Arrival]
    absent: tuple[int, ...] = ()


@dataclass(frozen=True)
class Finished:
    """Codes of the clients that are on this machine anyway, and what the work of all clients returned, in order.

    ``used`` (2 x k) is the largest code of each component, and its :func:`weight` in rows; None: not to be said.
    """

    codes: list[Array] = field(default_factory=list)
    findings: list[Any] = field(default_factory=list)
    used: Array | None = None


def weight(codes: Array) -> Array:
    """Return of every component (2 x k) the largest code u, and ``sum_i (w_i / u)^2``: how many rows like that one.

    A component is the more one row's own the nearer that is to 1: it is fitted to rows by the squares of their codes.
    """
    size = np.abs(codes)
    largest = size.max(axis=0) if len(size) else np.zeros(codes.shape[1], codes.dtype)
    scaled = size / np.where(largest > 0, largest, 1)
    return np.asarray(np.stack([largest, (scaled * scaled).sum(axis=0)]), np.float64)  # here, if it was on a device


def used_by(parts: Iterable[Array | None]) -> Array | None:
    """Return :func:`weight` of the components over clients, from that of parts of them; None where one does not say."""
    found = list(parts)
    said = [used for used in found if used is not None]
    if not said or len(said) < len(found):
        return None
    largest = np.max([u[0] for u in said], axis=0)
    rows = [u[1] * (u[0] / np.where(largest > 0, largest, 1)) ** 2 for u in said]
    return np.stack([largest, np.sum(rows, axis=0)])


class Rebuilt(ClientError):
    """Clients were lost, and are there again with the states that they had: whoever hears it repeats the round.

    What was kept next to them (``host.kept``) is gone. Clients that had stepped give the answers that they gave.
    """


class Session(Protocol):
    """An engine at work on one run. Every random number is addressed by (seed, client, round), so engines agree."""

    n_clients: int
    n_features: int
    method: Method
    masks: bool
    """Whether nobody sees the message of a single client."""
    aloof: bool
    """Whether clients are organisations of their own, which know their data again by themselves."""

    def round(self, shared: Shared, t: int, participants: Array) -> list[Answer]:
        """Let the participants step; return their checked messages in client order, or one answer with their total.

        Clients join where a stage of the method begins. Fewer may answer than were asked, but a step counts for both
        sides or for none: a client whose answer is not returned here must go on from the state that it had before.
        """
        ...

    def stream(self, shared: Shared, stream: Stream, *, watch: Watch | None, callbacks: Sequence[Callback]) -> Streamed:
        """Let clients answer one by one, each to be answered alone, until the server has merged enough."""
        ...

    def everywhere(self, work: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Call ``work(host, *arguments)`` wherever clients live; return what comes back, in the order of the hosts.

        Raises :class:`Rebuilt` where clients were lost meanwhile.
        """
        ...

    def step(self, shared: Shared, t: int, participants: Array, work: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Let the participants step, and call ``work(host, answers, *arguments)`` as :meth:`everywhere` does."""
        ...

    def used(self, clients: Sequence[int], t: int) -> None:
        """Hear whose messages a :meth:`step` of round t has brought into a sum: the steps of others do not count."""
        ...

    def blame(self, client: int) -> bool:
        """Hear that what a client said is wrong; return whether the round, or the secure sum, may go on without it."""
        ...

    def save(self, checkpoint: Checkpoint, shared: Shared, history: list[Round]) -> None:
        """Write the state after the last round of the history, that of clients next to them."""
        ...

    def load(self, checkpoint: Checkpoint) -> State | None:
        """Put the clients back to the last round that all of them hold, and return the server's part; None: nothing."""
        ...

    def finish(self, factor: Array, work: Sequence[Work]) -> Finished:
        """Let every client find its codes for the final factor and do its work (one for each, or none at all)."""
        ...


class Engine(Protocol):
    """What carries messages."""

    @property
    def team(self) -> Team:
        """The processes that walk the same way: this one alone, unless there are several."""
        ...

    @property
    def remote(self) -> bool:
        """Whether clients live elsewhere: what files hold is then read there, and checked there."""
        ...

    def open(self, method: Method, Xs: Sequence[Data], plan: Plan) -> AbstractContextManager[Session]:
        """Bring method and data together."""
        ...


def check_message(message: Message, schema: dict[str, tuple[int, ...]], *, client: int, t: int) -> None:
    """Refuse a message that is not what the method declared: names, shapes, finite numbers, weight."""
    if (wrong := _wrong(message, schema)) is not None:
        raise ClientError(f"client {client}, round {t}: expected {wrong}.")


def _wrong(message: Message, schema: dict[str, tuple[int, ...]]) -> str | None:
    """Return what was expected of a message, and what was found."""
    if message.arrays.keys() != schema.keys():
        return f"arrays {sorted(schema)}, found {sorted(message.arrays)}"
    for name, shape in schema.items():
        sent = message.arrays[name]
        found = sent.shape if isinstance(sent, _SIZED) else np.shape(sent)
        if found != shape and not fits(found, shape):
            return f"{name!r} of shape {shape}, found {found}"
        if isinstance(sent, Placed):
            continue  # what stays on a device is not looked at number by number: whoever merges it sees a loss of NaN
        if not is_finite(sent):
            return f"finite numbers in {name!r}, found {int((~np.isfinite(sent)).sum())} NaN or infinite"
    if not (math.isfinite(message.weight) and message.weight >= 0):
        return f"a weight >= 0, found {message.weight}"
    return None


def is_finite(a: Any) -> bool:
    """Whether all numbers are finite, as they lie: a finite sum of squares says so at once, or each is looked at."""
    if isinstance(a, np.generic):
        return math.isfinite(a)
    a = a.T if isinstance(a, np.ndarray) and a.flags.f_contiguous else a
    return math.isfinite(np.vdot(a, a)) or bool(np.isfinite(a).all())


@dataclass(frozen=True)
class Wrapping:
    """The base of an engine around another one: the same team, at the same places."""

    engine: Engine

    @property
    def team(self) -> Team:
        """As the engine says."""
        return self.engine.team

    @property
    def remote(self) -> bool:
        """As the engine says."""
        return self.engine.remote


class WrappedSession:
    """The base of a session around another one: all is as the engine does it, but for what a subclass changes."""

    masks = False
    aloof = False

    def __init__(self, session: Session) -> None:
        self.session, self.method = session, session.method
        self.n_clients, self.n_features = session.n_clients, session.n_features
        self.everywhere, self.step = session.everywhere, session.step
        self.used, self.blame = session.used, session.blame

    def stream(self, shared: Shared, stream: Stream, *, watch: Watch | None, callbacks: Sequence[Callback]) -> Streamed:
        """As the engine does."""
        return self.session.stream(shared, stream, watch=watch, callbacks=callbacks)

    def save(self, checkpoint: Checkpoint, shared: Shared, history: list[Round]) -> None:
        """As the engine does."""
        self.session.save(checkpoint, shared, history)

    def load(self, checkpoint: Checkpoint) -> State | None:
        """As the engine does."""
        return self.session.load(checkpoint)

    def finish(self, factor: Array, work: Sequence[Work]) -> Finished:
        """As the engine does."""
        return self.session.finish(factor, work)
