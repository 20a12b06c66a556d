"""What runs on the workers of dask: the clients of a host, held by an actor for the whole run, and what they are told.

All of it is sent to workers by name, so they need cofactor too. What goes wrong at a client comes back as a value: an
error of a task says that a worker was lost, and nothing else.
"""

from __future__ import annotations

import pickle
import socket
import threading
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from threadpoolctl import ThreadpoolController

from cofactor import kinds
from cofactor.engines.checkpoint import Checkpoint, State
from cofactor.engines.contract import Answer, Finished, Work
from cofactor.engines.history import Round, dtype_of
from cofactor.engines.host import UNTOLD, Host
from cofactor.engines.team import Team, text_of, told_of
from cofactor.method import Method, total
from cofactor.types import Array, ClientError, CofactorError, DataError, Local, Message, Shared

Outcome = tuple[Any, Exception | None]
"""What an order led to, or what went wrong."""


class Terms(NamedTuple):
    """What all hosts are told: ``checked`` data are not checked again, tiny ones are stacked (``stacks``) or masked."""

    method: Method
    seed: int
    checked: bool
    stacks: bool
    streams: bool


class Form(NamedTuple):
    """What others may know of a client's data: its features, their names and its type; of its rows nothing."""

    shape: tuple[None, int]
    dtype: np.dtype[Any]
    columns: kinds.Columns


class Steady(Host):
    """A host that may be told a round twice: it answers as it did, and never steps twice.

    So a round can be repeated when clients on another worker were lost in it, and a step counts once for all. No noise
    is drawn anew for a message that may have been seen. Rounds that were stepped long ago are over: nobody asks.
    """

    def __init__(self, *held: Any, **more: Any) -> None:
        super().__init__(*held, **more)
        self.last, self.answers = -1, list[Answer]()

    def step(self, shared: Shared, t: int, participants: Array) -> list[Answer]:
        """Step those of the participants that are here, once."""
        if t > self.last:
            self.answers = super().step(shared, t, participants)
            self.last = t
        return self.answers

    def restore(self, states: list[Local], t: int) -> None:
        """Put the states of round t back."""
        super().restore(states, t)
        self.last = t


class Hosted:
    """The actor: it holds the data of some clients and, once all workers agree on a type, their host.

    It is found by its name in this process, and goes when the driver lets it go. Data that cannot be used are not its
    failure: ``forms`` raises what is wrong with them. Several clients have one BLAS thread each, one alone has all.
    """

    def __init__(self, name: str, terms: bytes, number: int, first: int, data: Sequence[Any]) -> None:
        from distributed import get_worker

        self.lock = threading.Lock()
        self.host: Steady | None = None
        self.error: Exception | None = None
        self.terms: Terms = pickle.loads(terms)
        self.private = self.terms.method.traits.allowance is not None
        self.number, self.first, self.threads = number, first, int(get_worker().state.nthreads)
        self.blas = ThreadpoolController()
        self.limit = self.threads if len(data) == 1 else 1
        try:
            self.columns = [kinds.columns_of(X) for X in data]
            kind = kinds.named(self.terms.method.traits.kind)
            self.data = [
                X if self.terms.checked else kinds.check_one(kind, X, j, private=self.private)
                for j, X in enumerate(data, first)
            ]
        except Exception as error:
            self.error = error
        HERE[name] = self


HERE: WeakValueDictionary[str, Hosted] = WeakValueDictionary()
"""The hosts in this process."""


def carry_out(held: Any, name: str, order: bytes) -> Outcome:
    """Task: do what a host is told. ``held`` is the actor, here to end the task with it if its worker is lost."""
    hosted = HERE[name]
    with hosted.lock, hosted.blas.limit(limits=hosted.limit, user_api="blas"):  # a repeated order may meet itself
        try:
            work, arguments = pickle.loads(order)
            return work(hosted, *arguments), None
        except Exception as error:
            return None, _portable(error, hosted)


def _portable(error: Exception, hosted: Hosted) -> Exception:
    """Return the error, or what it says where it cannot, or must not, travel."""
    if isinstance(error, CofactorError) and error.told is not None:
        return DataError(told_of(error))
    if hosted.private and not isinstance(error, CofactorError):  # other software says what it found: sizes, values
        return ClientError(f"client {hosted.first}, or one next to it: {UNTOLD}")
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return ClientError(text_of(error))
    return error


def add(one: Outcome, other: Outcome) -> Outcome:
    """Task: add two sums of messages, each of which may be of none."""
    for _, error in (one, other):
        if error is not None:
            return None, error
    parts = [message for message, _ in (one, other) if message is not None]
    return (total(parts) if len(parts) > 1 else next(iter(parts), None)), None


def forms(hosted: Hosted) -> list[Form]:
    """Order: say what the data are like, or what is wrong with them."""
    if hosted.error is not None:
        raise hosted.error
    return [Form((None, X.shape[1]), X.dtype, names) for X, names in zip(hosted.data, hosted.columns, strict=True)]


def settle(hosted: Hosted, dtype: np.dtype[Any]) -> None:
    """Order: make the host, of data in the type of all; it knows its number among the hosts."""
    if hosted.error is not None:
        raise hosted.error
    if hosted.host is not None:
        return
    terms, count = hosted.terms, min(hosted.threads, len(hosted.data))
    pool = ThreadPoolExecutor(count) if count > 1 and not terms.streams else None
    data = kinds.as_dtype(hosted.data, dtype_of(terms.method.traits, [dtype]))
    own: Any = {"first": hosted.first, "pool": pool, "stacks": terms.stacks, "masks": not terms.stacks}
    host = Steady(terms.method, data, terms.seed, **own)
    host.kept["number"] = hosted.number
    hosted.host, hosted.data = host, []


def at_host(hosted: Hosted, work: Any, arguments: tuple[Any, ...]) -> Any:
    """Order: do some work at the host."""
    return work(hosted.host, *arguments)


def whole(host: Host, answers: list[Answer]) -> list[Answer]:
    """Host: return the answers as they are."""
    return answers


def summed(host: Host, answers: list[Answer]) -> Message | None:
    """Host: return the sum of the messages of the clients here."""
    return total([answer.message for answer in answers]) if answers else None


def silent(host: Host, answers: list[Answer]) -> None:
    """Host: return nothing of them."""


def present(host: Host) -> None:
    """Host: be there."""


def finish(host: Host, factor: Array, work: Sequence[Work], driver: tuple[str, str]) -> Finished:
    """Host: finish; codes leave only for a driver on the same machine."""
    done = host.finish(factor, work)
    return done if driver == machine() else replace(done, codes=[])


def machine() -> tuple[str, str]:
    """Return what this machine has to itself: a name alone ("localhost") may be that of many."""
    return socket.gethostname(), _boot()


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # another system than Linux
        return f"{uuid.getnode():x}"


class Place(Team):
    """One of the files of a checkpoint: that of the driver (0), or of a host."""

    def __init__(self, here: int, count: int) -> None:
        self.here, self.count = here, count


def save(host: Host, checkpoint: Checkpoint, history: list[Round], count: int) -> None:
    """Host: write the states of the clients here, once for each round; the server's part is the driver's."""
    if host.kept.get("saved") != len(history):
        state = State(Shared(np.zeros((0, 0))), host.states(), history)
        checkpoint.save(state, Place(1 + host.kept["number"], count))
        host.kept["saved"] = len(history)


def saved(host: Host, checkpoint: Checkpoint, count: int) -> set[int]:
    """Host: say after how many rounds there are states."""
    return set(checkpoint.held(Place(1 + host.kept["number"], count)))


def restore(host: Host, checkpoint: Checkpoint, rounds: int, count: int) -> None:
    """Host: put the states after so many rounds back."""
    held = checkpoint.held(Place(1 + host.kept["number"], count))
    if rounds not in held:
        raise CofactorError(
            f"{checkpoint.path}: expected the states of clients {host.first} to {host.first + host.count - 1} after "
            f"{rounds} rounds, found none on this worker; put checkpoints where all workers can read them."
        )
    host.restore(held[rounds].locals, rounds - 1)
