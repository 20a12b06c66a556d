"""Clients in the processes of a team, mostly of one: all processes run the same server on the same messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from cofactor import kinds
from cofactor.engines import stream as streams
from cofactor.engines.checkpoint import Checkpoint, State
from cofactor.engines.contract import Answer, Callback, Finished, Streamed, Watch, Work, shared_bytes, used_by
from cofactor.engines.history import Round, adds_up, dtype_of
from cofactor.engines.host import Host
from cofactor.engines.team import ProcessError, Team, most
from cofactor.local import devices
from cofactor.local.working import working
from cofactor.method import Method, total
from cofactor.plan import ByShare, Plan, Stream
from cofactor.types import Array, Data, DataError, Message, Shared

Schema = dict[str, tuple[int, ...]]
Form = tuple[str, tuple[int, ...]]
"""Type and shape of an array."""


@contextmanager
def opened(
    team: Team, method: Method, Xs: Sequence[Data], plan: Plan, *, workers: int | None, device: Any = None
) -> Iterator[TeamSession]:
    """Check the data of all processes and start the threads; an error on one process ends all of them.

    Several clients share the threads; one client alone gets all of them for its rows, as the rows of the factor at the
    server do. Tiny ones are one, unless their messages are masked, arrive one by one or are weighed. BLAS is limited
    to one thread for the whole run: a second one that it woke would go on spinning on a core for tens of milliseconds
    while others work, which costs a third of a round.
    """
    with team.guard("the start of the run"):
        if device is not None:  # values are checked there: nothing of the data is copied here beyond a block
            private = method.traits.allowance is not None
            Xs = devices.place_all(Xs, device, method.traits.kind, private=private)
        held = agree(team, method, Xs, empty=plan.stream is not None)
        threads = workers or team.threads()
        count = 1 if plan.stream else min(threads, len(held.data))
        with _pool(count) as pool, working(min(threads, most())):
            stacks = not (plan.secure or plan.stream or isinstance(plan.participation, ByShare))
            own: Any = {"first": held.first, "pool": pool, "stacks": stacks, "masks": plan.secure}
            host = Host(method, held.data, plan.seed, **own)
            yield TeamSession(team, host, held)


@contextmanager
def _pool(count: int) -> Iterator[ThreadPoolExecutor | None]:
    if count <= 1:
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


def agree(team: Team, method: Method, Xs: Sequence[Data], *, empty: bool = False) -> Held:
    """Check the data of all processes, once; ``empty`` allows processes without a client."""
    known = isinstance(Xs, kinds.Checked)
    counts = team.each("the data", lambda: len(Xs if known else kinds.several(Xs)))
    first, n_clients = sum(counts[: team.here]), sum(counts)
    private = method.traits.allowance is not None
    with team.guard("the data"):
        if team.count > 1 and not (len(Xs) or (empty and n_clients)):
            raise DataError(
                f"expected at least one client on each of {team.count} processes, found none here and {n_clients} in "
                "all; start fewer processes."
            )
        known |= team.count > 1 and not len(Xs)
        data = list(Xs) if known else kinds.check(method.traits.kind, Xs, first=first, private=private)
    forms = team.exchange("the data", [(X.shape[1], X.dtype.str) for X in data])
    columns = [] if known else [kinds.columns_of(X) for X in Xs]
    with team.guard("the data"):
        kinds.same_columns(team.together("the columns of data", columns))
    features = next(form[0][0] for form in forms if form)
    for process, form in enumerate(forms):
        if form and form[0][0] != features:
            raise ProcessError(
                f"process {process}: client {sum(counts[:process])}: expected {features} features like client 0, "
                f"found {form[0][0]}; give every client the same columns in the same order."
            )
    dtype = dtype_of(method.traits, [dtype for form in forms for _, dtype in form])
    same = all(X.dtype == dtype for X in data)
    return Held(data if same else kinds.as_dtype(data, dtype), first, n_clients, features)


class TeamSession:
    """One process's clients, and the exchange with the others."""

    masks = False
    aloof = False

    def __init__(self, team: Team, host: Host, held: Held) -> None:
        self.team, self.host, self.method = team, host, host.method
        self.n_clients, self.n_features = held.n_clients, held.n_features

    def round(self, shared: Shared, t: int, participants: Array) -> list[Answer]:
        """Step this process's participants; return what the messages of all processes amount to."""
        where = f"round {t}"
        with self.team.guard(where):
            answers = self.host.step(shared, t, participants)
        if self.team.count == 1:
            return self._sliced(answers, shared)
        schema = self.method.schema(self.n_features, t)
        if self.method.traits.additive or adds_up(self.method.traits, t):
            return self._summed(where, answers, schema, participants)
        return self._gathered(where, answers, schema)

    def _sliced(self, answers: list[Answer], shared: Shared) -> list[Answer]:
        """Count what clients received that asked for some columns of the factor; other processes are sent all of it."""
        if (columns := self.method.traits.sliced) is None:
            return answers
        each = shared.factor.nbytes // shared.factor.shape[1]
        rest = shared_bytes(shared) - shared.factor.nbytes
        return [replace(r, received=each * len(r.message.arrays[columns]) + rest) for r in answers]

    def _summed(self, where: str, answers: list[Answer], schema: Schema, participants: Array) -> list[Answer]:
        """Return the sum of all messages."""
        mine = [answer.message for answer in answers]
        told = self.team.exchange(where, (_dtypes(mine[0]), mine[0].cost) if mine else None)
        dtypes, cost = next(head for head in told if head)
        sums = _unpack_sums(self.team.sum(_pack_sums(mine, schema)), schema)
        return [Answer(participants, sums._replace(cost=cost, dtypes=dtypes))]

    def _gathered(self, where: str, answers: list[Answer], schema: Schema) -> list[Answer]:
        """Return the answers of all processes in client order."""
        mine = [(r.clients, float(r.message.weight), _forms(r.message), r.message.cost) for r in answers]
        heads = self.team.exchange(where, mine)
        sizes = [sum(_size(form) for _, _, forms, _ in those for form in forms.values()) for those in heads]
        data = b"".join(np.asarray(r.message.arrays[name]).tobytes() for r in answers for name in schema)
        return [
            answer
            for those, part in zip(heads, self.team.gather(data, sizes), strict=True)
            for answer in _unpack(those, part, schema)
        ]

    def stream(self, shared: Shared, stream: Stream, *, watch: Watch | None, callbacks: Sequence[Callback]) -> Streamed:
        """Let clients answer one by one: in simulated time in one process, in real time over several."""
        if self.team.count == 1:
            return streams.simulate(self, shared, stream, watch=watch, callbacks=callbacks)
        from cofactor.engines import mpi_stream

        return mpi_stream.stream(self, shared, stream, watch=watch, callbacks=callbacks)

    def everywhere(self, work: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Call it with the host of every process."""
        return self.team.each(work.__name__, lambda: work(self.host, *arguments))

    def step(self, shared: Shared, t: int, participants: Array, work: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Step this process's participants, and call it with the host of every process and its answers."""
        return self.everywhere(stepped, (shared, t, participants), work, *arguments)

    def used(self, clients: Sequence[int], t: int) -> None:
        """Those of all: nobody is lost here without an error."""

    def blame(self, client: int) -> bool:
        """All are one program here: what is wrong is an error of it."""
        return False

    def save(self, checkpoint: Checkpoint, shared: Shared, history: list[Round]) -> None:
        """Write the state of this process."""
        checkpoint.save(State(shared, self.host.states(), history), self.team)

    def load(self, checkpoint: Checkpoint) -> State | None:
        """Go back to the last round that all processes hold."""
        saved = checkpoint.load(self.team)
        if saved is not None:
            self.team.each("restore", lambda: self.host.restore(saved.locals, len(saved.history) - 1))
        return saved

    def finish(self, factor: Array, work: Sequence[Work]) -> Finished:
        """Return the codes of this process's clients, and what all clients found."""
        with self.team.guard("refit"):
            done = self.host.finish(factor, work)
        told = self.team.exchange("refit", Finished([], done.findings, done.used))
        findings = [finding for part in told for finding in part.findings]
        return Finished(
            done.codes,
            findings,
            used_by(part.used for part in told if part.findings or part.used is not None),
        )


def stepped(host: Host, told: tuple[Shared, int, Array], work: Callable[..., Any], *arguments: Any) -> Any:
    """Host: step the participants here, and do the work with their answers."""
    return work(host, host.step(*told), *arguments)


def _dtypes(message: Message) -> dict[str, str]:
    return {name: message.dtype(name).str for name in message.arrays}


def _forms(message: Message) -> dict[str, Form]:
    return {name: (message.dtype(name).str, np.shape(a)) for name, a in message.arrays.items()}


def _size(form: Form) -> int:
    dtype, shape = form
    return np.dtype(dtype).itemsize * int(np.prod(shape))


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


def _unpack(heads: list[Any], part: Array, schema: Schema) -> Iterator[Answer]:
    """Read the messages of one process out of its bytes."""
    place = 0
    for clients, weight, forms, cost in heads:
        found = {}
        for name in schema:
            (dtype, shape), size = forms[name], _size(forms[name])
            found[name] = np.frombuffer(part[place : place + size].tobytes(), dtype).reshape(shape)[()]
            place += size
        yield Answer(clients, Message(found, weight, cost))
