"""The round loop: the one place where server and clients meet, whatever carries the messages."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from cofactor.engines import paying
from cofactor.engines.checkpoint import Checkpoint, State
from cofactor.engines.history import Round, Stop
from cofactor.method import SERVER, Method, rng
from cofactor.privacy.accountant import Cost, Ledger
from cofactor.types import Array, ClientError, CofactorError, Data, Local, Message, Shared


@dataclass(frozen=True)
class Reply:
    """What came back from one client, or from a batch of ``clients`` whose messages add up.

    Without a client it is a sum that the engine made of messages that others stand for.
    """

    clients: Array
    message: Message
    sent: int | None = None
    """Bytes that left these clients, where they are not those of the message (secure summation)."""

    @property
    def nbytes(self) -> int:
        """Bytes that left these clients."""
        return self.message.nbytes * len(self.clients) if self.sent is None else self.sent

    @property
    def client(self) -> int:
        """The first (mostly the only) client."""
        return int(self.clients[0]) if len(self.clients) else SERVER


class Session(Protocol):
    """An engine at work on one run."""

    n_clients: int
    n_features: int
    masks: bool
    """Whether nobody sees the message of a single client."""

    def join(self, shared: Shared) -> None:
        """Let every client prepare its private state."""
        ...

    def round(self, shared: Shared, t: int, participants: Array) -> list[Reply]:
        """Let the participants step; return their replies in client order.

        Fewer may answer than were asked, but a step counts for both sides or for none: a client whose reply is not
        returned here must go on from the state that it had before. Methods that send changes rely on it.
        """
        ...

    def keep(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return the checkpoint that holds the clients of this process."""
        ...

    def locals(self, t: int) -> list[Local]:
        """Return the clients' states after round t, for a checkpoint next to them."""
        ...

    def restore(self, states: list[Local], t: int) -> None:
        """Put the states of round t back."""
        ...

    def refit(self, factor: Array) -> list[Array]:
        """Return the codes of every client for the final factor (they never leave it in a real federation)."""
        ...


class Engine(Protocol):
    """What carries messages."""

    def open(self, method: Method, Xs: Sequence[Data], seed: int) -> AbstractContextManager[Session]:
        """Bring method and data together."""
        ...


@dataclass(frozen=True)
class ByShare:
    """Draw ``count`` clients with replacement, each with probability ``p_j = n_j / n`` (Wang et al. 2022).

    A client that is drawn c times uploads once, and its message counts ``c / (count p_j)`` times: an unbiased estimate
    of the sum over all clients, for methods that need only that sum.
    """

    count: int

    def __call__(self, rows: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return the participants in order and how much each one counts; ``rows`` are the n_j."""
        share = rows / rows.sum()
        who, times = np.unique(rng.choice(len(rows), self.count, p=share), return_counts=True)
        return who, times / (self.count * share[who])


Callback = Callable[[Round, Shared], Any]
"""Called after every round; a true answer ends the run."""

Watch = Callable[[int, Sequence[Reply]], Any]
"""Called with the round and all that left the clients in it."""


@dataclass(frozen=True)
class Run:
    """What came out: the shared factor (rows at norm 1, or bits), each client's codes, history, and ledger."""

    factor: Array
    codes: list[Array] = field(repr=False)
    history: list[Round] = field(repr=False)
    converged: bool = False
    ledger: Ledger | None = None

    @property
    def epsilon(self) -> float:
        """What all releases of this run together cost; infinite for a method without noise."""
        return math.inf if self.ledger is None else self.ledger.spend().epsilon

    @property
    def bytes(self) -> int:
        """Everything that was sent, up and down."""
        return sum(r.bytes_up + r.bytes_down for r in self.history)


def run(
    method: Method,
    Xs: Sequence[Data],
    *,
    rounds: int = 50,
    seed: int = 0,
    engine: Engine | None = None,
    participation: float | ByShare = 1.0,
    stop: Stop | None = None,
    callbacks: Sequence[Callback] = (),
    start: Array | None = None,
    checkpoint: Checkpoint | None = None,
    watch: Watch | None = None,
) -> Run:
    """Run a method over the clients' data and return the shared factor with each client's codes.

    ``participation`` is the share of clients drawn for each round, or :class:`ByShare`, which draws them with
    replacement by their rows; ``start`` is a public factor to begin at. With a ``checkpoint`` the run goes on after
    the last round that it holds, to the same result bit for bit. ``watch`` sees every message, before anything is
    done with it.

    >>> import numpy as np
    >>> from cofactor.methods import catalog
    >>> Xs = [np.eye(4), np.ones((3, 4))]
    >>> run(catalog.make("exact", 2, start="random"), Xs, rounds=5).factor.shape
    (2, 4)
    """
    if engine is None:
        from cofactor.engines.inline import Inline

        engine = Inline()
    _check_participation(participation, method)
    if rounds < 1:
        raise CofactorError(f"rounds must be at least 1. Found {rounds}.")
    method = method if participation == 1 else method.partial()
    stop, limit = stop or Stop(), min(rounds, method.rounds or rounds)
    rows = np.array([X.shape[0] for X in Xs]) if isinstance(participation, ByShare) else None
    with engine.open(method, Xs, seed) as session:
        checkpoint = session.keep(checkpoint) if checkpoint else None
        if rows is not None and session.masks:
            raise CofactorError("participation: a draw by share weighs single messages; here is only their sum.")
        if rows is not None and len(rows) != session.n_clients:
            raise CofactorError(
                "participation: a draw by share needs all clients in one process; give a share instead."
            )
        _check_start(start, method, session.n_features)
        paying.check_noise(method, masks=session.masks)
        shared, history = _begin(method, session, seed, start, checkpoint)
        ledger = paying.open_ledger(method, limit, len(history), session.n_clients, Xs)
        warm = _warm_rounds(method)
        for t in range(len(history), limit):
            if stop(history[warm:]):
                break
            drawn = _participants(session, participation, seed, t, rows)
            costs = paying.costs_of(method, t)
            ledger = ledger.charge(*costs.values()) if ledger is not None and costs is not None else None
            shared, line = _round(method, session, shared, t, drawn=drawn, watch=watch, costs=costs)
            history.append(line if ledger is None else line._replace(epsilon=ledger.spend().epsilon))
            if checkpoint and checkpoint.due(t):
                checkpoint.save(State(shared, session.locals(t), history))
            if any([callback(history[-1], shared) for callback in callbacks]):
                break
        converged = method.rounds is not None or stop(history[warm:])
        factor = method.factor(shared)
        return Run(factor, session.refit(factor), history, converged, ledger)


def _begin(
    method: Method, session: Session, seed: int, start: Array | None, checkpoint: Checkpoint | None
) -> tuple[Shared, list[Round]]:
    """Start anew, or where the checkpoint ended."""
    saved = checkpoint.load() if checkpoint else None
    if saved is not None:
        session.restore(saved.locals, len(saved.history) - 1)
        return saved.shared, saved.history
    shared = method.start(session.n_features, rng(seed, SERVER, -1), start)
    session.join(shared.broadcast())
    return shared, []


def _warm_rounds(method: Method) -> int:
    """Rounds of another method at the beginning, whose losses do not compare."""
    return getattr(method, "warm_rounds", 0)


def _check_start(start: Array | None, method: Method, m: int) -> None:
    if start is not None and start.shape != (method.rank, m):
        raise CofactorError(f"start: expected a factor of shape {(method.rank, m)}, found {start.shape}.")
    if start is not None and not (np.isfinite(start).all() and (start >= 0).all()):
        raise CofactorError("start: expected finite numbers >= 0, found NaN, infinite or negative ones.")


def _check_participation(participation: float | ByShare, method: Method) -> None:
    if isinstance(participation, ByShare):
        if participation.count < 1:
            raise CofactorError(f"participation: expected a count of at least 1. Found {participation.count}.")
        if not method.additive:
            raise CofactorError(
                "participation: a draw by share needs a method whose messages are summed; found another."
            )
    elif not 0 < participation <= 1:
        raise CofactorError(f"participation must be in (0, 1]. Found {participation}.")


def _participants(
    session: Session, share: float | ByShare, seed: int, t: int, rows: Array | None
) -> tuple[Array, Array | None]:
    """Draw the clients of round t, without replacement unless by share; and how much each counts (None: once)."""
    c = session.n_clients
    if isinstance(share, ByShare):
        assert rows is not None
        return share(rows, rng(seed, SERVER, t))
    if share >= 1:
        return np.arange(c), None
    count = max(1, round(share * c))
    return np.sort(rng(seed, SERVER, t).choice(c, count, replace=False)), None


def _round(
    method: Method,
    session: Session,
    shared: Shared,
    t: int,
    *,
    drawn: tuple[Array, Array | None],
    watch: Watch | None,
    costs: dict[str, Cost] | None,
) -> tuple[Shared, Round]:
    begin, (participants, counts) = time.perf_counter(), drawn
    replies = session.round(shared.broadcast(), t, participants)
    if not replies:
        raise ClientError(f"round {t}: none of the {len(participants)} participants answered.")
    if watch:
        watch(t, replies)
    schema = method.schema(session.n_features, t)
    for reply in replies:
        check_message(reply.message, schema, client=reply.client, t=t)
        if costs is not None and len(reply.clients):
            paying.check_paid(reply.message, costs, client=reply.client, t=t)
    new = method.aggregate(shared, [_counted(r, participants, counts) for r in replies], t)
    line = Round(
        t,
        float(new.loss),
        float(new.drift),
        sum(r.nbytes for r in replies),
        shared.nbytes * len(participants),
        time.perf_counter() - begin,
        sum(len(r.clients) for r in replies),
    )
    return new, line


def _counted(reply: Reply, participants: Array, counts: Array | None) -> Message:
    """Return a message as often as it counts."""
    if counts is None:
        return reply.message
    own = counts[np.searchsorted(participants, reply.clients)]
    if np.ptp(own) > 0:
        raise CofactorError(
            f"participation: expected clients that answer as one batch to be drawn equally often, found {own[:3]}... "
            f"for clients {reply.clients[:3]}...; draw tiny clients of this method by a share of clients instead."
        )
    arrays = {name: (a * own[0]).astype(np.asarray(a).dtype) for name, a in reply.message.arrays.items()}
    return Message(arrays, reply.message.weight * float(own[0]))


def check_message(message: Message, schema: dict[str, tuple[int, ...]], *, client: int, t: int) -> None:
    """Refuse a message that is not what the method declared: names, shapes, finite numbers, weight."""
    where = f"client {client}, round {t}"
    if set(message.arrays) != set(schema):
        raise ClientError(f"{where}: expected arrays {sorted(schema)}, found {sorted(message.arrays)}.")
    for name, shape in schema.items():
        found = np.shape(message.arrays[name])
        if found != shape:
            raise ClientError(f"{where}: expected {name!r} of shape {shape}, found {found}.")
        if not np.isfinite(message.arrays[name]).all():
            bad = int((~np.isfinite(message.arrays[name])).sum())
            raise ClientError(f"{where}: expected finite numbers in {name!r}, found {bad} NaN or infinite.")
    if not (np.isfinite(message.weight) and message.weight >= 0):
        raise ClientError(f"{where}: expected a weight >= 0, found {message.weight}.")
