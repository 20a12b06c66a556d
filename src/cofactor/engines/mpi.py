"""The MPI engine: every process holds some clients, and all of them run the same server on the same messages."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from cofactor.engines.checkpoint import Checkpoint, State
from cofactor.engines.inline import InlineSession, as_dtype, check_clients
from cofactor.engines.processes import ProcessError, Processes
from cofactor.engines.rounds import Reply, check_message
from cofactor.engines.stream import Plan, StreamRun
from cofactor.method import Method, total
from cofactor.types import Array, Data, DataError, Local, Message, Shared

Schema = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Mpi:
    """Start a script with ``mpiexec -n 4 python script.py`` and give :func:`cofactor.run` this process's clients.

    Clients are numbered through all processes in order, so that seeds, and the result, are those of the inline engine
    over the lists one after the other. ``run`` returns the shared factor on every process with the codes of its own
    clients. ``workers`` are the threads of each process (default: its share of the machine's cores).
    """

    workers: int | None = None
    comm: Any = None

    def __post_init__(self) -> None:
        """Say at once if mpi4py is missing."""
        _ = self.processes

    @cached_property
    def processes(self) -> Processes:
        """All processes of the job."""
        return Processes(self.comm)

    @contextmanager
    def open(self, method: Method, Xs: Sequence[Data], seed: int) -> Iterator[MpiSession]:
        """Check the data of all processes and start the threads; an error on one process ends all of them."""
        team = self.processes
        with team.guard("the start of the run"):
            held = agree(team, Xs)
            threads = self.workers or team.threads()
            blas = threads if len(held.data) == 1 else 1  # several clients share the threads instead
            with threadpool_limits(blas, "blas"), _pool(min(threads, len(held.data))) as pool:
                yield MpiSession(team, InlineSession(method, held.data, seed, pool, first=held.first), held.n_clients)

    def stream(self, method: Method, Xs: Sequence[Data], plan: Plan) -> StreamRun:
        """Carry an asynchronous stream point to point, with process 0 as the server."""
        from cofactor.engines.mpi_stream import stream

        with threadpool_limits(self.workers or self.processes.threads(), "blas"):
            return stream(self.processes, method, Xs, plan)


@contextmanager
def _pool(count: int) -> Iterator[ThreadPoolExecutor | None]:
    if count == 1:
        yield None
        return
    with ThreadPoolExecutor(count) as pool:
        yield pool


class Held(NamedTuple):
    """This process's data as all processes need them, its first client, how many clients and features there are."""

    data: list[Data]
    first: int
    n_clients: int
    n_features: int


def agree(team: Processes, Xs: Sequence[Data], *, empty: bool = False) -> Held:
    """Check the data of all processes; ``empty`` allows processes without a client."""
    counts = team.each("the data", lambda: len(Xs))
    first, n_clients = sum(counts[: team.here]), sum(counts)
    with team.guard("the data"):
        if not (len(Xs) or (empty and n_clients)):
            raise DataError(
                f"expected at least one client on each of {team.count} processes, found none here and {n_clients} in "
                "all; start fewer processes."
            )
        data = check_clients(Xs, first=first) if len(Xs) else []
    kinds = team.exchange("the data", [(X.shape[1], X.dtype.str) for X in data])
    features = next(kind[0][0] for kind in kinds if kind)
    for process, kind in enumerate(kinds):
        if kind and kind[0][0] != features:
            raise ProcessError(
                f"process {process}: client {sum(counts[:process])}: expected {features} features like client 0, "
                f"found {kind[0][0]}; give every client the same columns in the same order."
            )
    dtype = np.result_type(*(dtype for kind in kinds for _, dtype in kind))
    return Held(as_dtype(data, dtype), first, n_clients, features)


class MpiSession:
    """One process's clients, and the exchange with the others."""

    masks = False

    def __init__(self, team: Processes, own: InlineSession, n_clients: int) -> None:
        self.team, self.own, self.method = team, own, own.method
        self.n_clients, self.n_features = n_clients, own.n_features

    def join(self, shared: Shared) -> None:
        """Let every client prepare its state."""
        self.team.each("join", lambda: self.own.join(shared))

    def round(self, shared: Shared, t: int, participants: Array) -> list[Reply]:
        """Step this process's participants; return what the messages of all processes amount to."""
        where, schema = f"round {t}", self.method.schema(self.n_features, t)
        low, high = self.own.first, self.own.first + self.own.n_clients
        with self.team.guard(where):
            replies = self.own.round(shared, t, participants[(participants >= low) & (participants < high)])
            for reply in replies:
                check_message(reply.message, schema, client=reply.client, t=t)
        if self.team.count == 1:
            return replies
        if self.method.additive or self.method.rowwise(t):
            return self._summed(where, replies, schema, participants)
        return self._gathered(where, replies, schema)

    def _summed(self, where: str, replies: list[Reply], schema: Schema, participants: Array) -> list[Reply]:
        """Return the sum of all messages; unless they are float64, an empty one in their dtypes stands for them."""
        mine = [reply.message for reply in replies]
        told = self.team.exchange(where, (_dtypes(mine[0]), mine[0].cost) if mine else None)
        dtypes, cost = next(head for head in told if head)
        sums = _unpack_sums(self.team.sum(_pack_sums(mine, schema)), schema)
        if all(np.dtype(dtype) == np.float64 for dtype in dtypes.values()):
            return [Reply(participants, sums._replace(cost=cost))]
        empty = {name: np.broadcast_to(np.zeros((), dtypes[name]), shape)[()] for name, shape in schema.items()}
        return [Reply(participants, Message(empty, 0.0, cost)), Reply(participants[:0], sums)]

    def _gathered(self, where: str, replies: list[Reply], schema: Schema) -> list[Reply]:
        """Return the replies of all processes in client order."""
        mine = [(r.clients, float(r.message.weight), _dtypes(r.message), r.message.cost) for r in replies]
        heads = self.team.exchange(where, mine)
        sizes = [sum(_size(dtypes, schema) for _, _, dtypes, _ in those) for those in heads]
        data = b"".join(np.asarray(r.message.arrays[name]).tobytes() for r in replies for name in schema)
        return [
            reply
            for those, part in zip(heads, self.team.gather(data, sizes), strict=True)
            for reply in _unpack(those, part, schema)
        ]

    def keep(self, checkpoint: Checkpoint) -> ProcessCheckpoint:
        """Return this process's own checkpoint next to those of the others."""
        return ProcessCheckpoint(checkpoint.path, checkpoint.every, self.team)

    def locals(self, t: int) -> list[Local]:
        """Return the states of this process's clients."""
        return self.own.locals(t)

    def restore(self, states: list[Local], t: int) -> None:
        """Put the states of this process's clients back."""
        self.team.each("restore", lambda: self.own.restore(states, t))

    def refit(self, factor: Array) -> list[Array]:
        """Return the codes of this process's clients."""
        with self.team.guard("refit"):
            codes = self.own.refit(factor)
        self.team.exchange("refit")
        return codes


def _dtypes(message: Message) -> dict[str, str]:
    return {name: np.asarray(a).dtype.str for name, a in message.arrays.items()}


def _size(dtypes: dict[str, str], schema: Schema) -> int:
    return sum(np.dtype(dtypes[name]).itemsize * int(np.prod(shape)) for name, shape in schema.items())


def _pack_sums(messages: list[Message], schema: Schema) -> Array:
    """Return the sum of this process's messages, weights included, as one flat array; zeros for none."""
    if not messages:
        return np.zeros(1 + sum(int(np.prod(shape)) for shape in schema.values()))
    sums = total(messages) if len(messages) > 1 else messages[0]
    parts = [np.ravel(sums.arrays[name]) for name in schema] + [np.array([sums.weight])]
    return np.concatenate(parts, dtype=np.float64)


def _unpack_sums(flat: Array, schema: Schema) -> Message:
    parts = np.split(flat, np.cumsum([int(np.prod(shape)) for shape in schema.values()]))
    arrays = {name: part.reshape(shape)[()] for (name, shape), part in zip(schema.items(), parts, strict=False)}
    return Message(arrays, float(flat[-1]))


def _unpack(heads: list[Any], part: Array, schema: Schema) -> Iterator[Reply]:
    """Read the messages of one process out of its bytes."""
    place = 0
    for clients, weight, dtypes, cost in heads:
        found = {}
        for name, shape in schema.items():
            size = np.dtype(dtypes[name]).itemsize * int(np.prod(shape))
            found[name] = np.frombuffer(part[place : place + size].tobytes(), dtypes[name]).reshape(shape)[()]
            place += size
        yield Reply(clients, Message(found, weight, cost))


@dataclass(frozen=True)
class ProcessCheckpoint(Checkpoint):
    """A checkpoint in one file per process, ``checkpoint.0-of-4.npz``, with the one before it.

    Processes may be killed when some have written a round and others have not: the run goes on after the last round
    that all of them hold.
    """

    team: Processes | None = None

    @property
    def file(self) -> Path:
        """This process's file."""
        return self._named(f"{self._team.here}-of-{self._team.count}")

    @property
    def previous(self) -> Path:
        """This process's file of the checkpoint before."""
        return self._named(f"{self._team.here}-of-{self._team.count}.previous")

    def save(self, state: State) -> None:
        """Write the state of this process; the checkpoint before it stays."""
        if self.file.exists():
            os.replace(self.file, self.previous)
        Checkpoint(self.file).save(state)

    def load(self) -> State | None:
        """Read this process's state after the last round that all processes hold, or None if there is none."""
        with self._team.guard("the checkpoint"):
            self._check_count()
            saved = [Checkpoint(file).load() for file in (self.previous, self.file)]
            states = {len(state.history): state for state in saved if state}
        rounds = self._team.exchange("the checkpoint", set(states))
        common = set.intersection(*rounds)
        if not common and max(map(len, rounds)) > 1:  # the first checkpoint may be missing, a later one may not
            lost = min(range(len(rounds)), key=lambda process: len(rounds[process]))
            raise ProcessError(f"process {lost}: {self.path}: expected the checkpoint of this process, found none.")
        return states[max(common)] if common else None

    def _check_count(self) -> None:
        """Refuse the checkpoint of another number of processes."""
        counts = {path.stem.rsplit("-", 1)[-1] for path in self.path.parent.glob(self._named("*-of-*").name)}
        counts = {count.removesuffix(".previous") for count in counts}
        if counts and str(self._team.count) not in counts:
            raise DataError(
                f"{self.path}: expected the {' or '.join(sorted(counts))} processes that wrote the checkpoint, found "
                f"{self._team.count}; start as many."
            )

    @property
    def _team(self) -> Processes:
        assert self.team is not None
        return self.team

    def _named(self, what: str) -> Path:
        return self.path.with_name(f"{self.path.stem}.{what}{self.path.suffix}")
