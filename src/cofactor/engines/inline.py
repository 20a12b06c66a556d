"""The inline engine: all clients in this process, in threads, many tiny ones as one batch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from cofactor.engines.checkpoint import Checkpoint
from cofactor.engines.rounds import Reply
from cofactor.local import arrays
from cofactor.method import Method, rng
from cofactor.types import Array, ClientError, CofactorError, Data, DataError, Local, Message, Shared

TINY_ROWS = 8
"""Clients with at most this many rows are stacked where the method's messages add up over rows."""


@dataclass(frozen=True)
class Inline:
    """Threads with BLAS limited to one thread each for the whole run; one client alone gets all of BLAS.

    The server is limited too: a second BLAS thread that it woke would go on spinning on a core for tens of
    milliseconds while clients step, which costs a third of a round.

    Replies are collected in client order and every random number is addressed by (seed, client, round), so the
    result does not depend on ``workers`` or on scheduling.
    """

    workers: int | None = None

    @contextmanager
    def open(self, method: Method, Xs: Sequence[Data], seed: int) -> Iterator[InlineSession]:
        """Check the data, start the threads, and stop them at the end."""
        data = check_clients(Xs, signed=getattr(method, "signed", False))
        count = min(self.workers or os.cpu_count() or 1, len(data))
        if len(data) == 1:
            yield InlineSession(method, data, seed, None)
            return
        with threadpool_limits(1, "blas"), ThreadPoolExecutor(count) as pool:
            yield InlineSession(method, data, seed, pool)


def check_clients(Xs: Sequence[Data], *, first: int = 0, signed: bool = False) -> list[Data]:
    """Check every client's data, and that all have the same features and one dtype (the widest).

    ``first`` is the number of the first client, where these are not all of them; ``signed`` lets negative values pass.
    """
    if len(Xs) == 0:
        raise DataError("expected at least one client, found an empty list.")
    data = [arrays.check(X, client=j, signed=signed) for j, X in enumerate(Xs, first)]
    for j, X in enumerate(data, first):
        if X.shape[1] != data[0].shape[1]:
            raise DataError(
                f"client {j}: expected {data[0].shape[1]} features like client {first}, found {X.shape[1]}; "
                "give every client the same columns in the same order."
            )
    return as_dtype(data, np.result_type(*(X.dtype for X in data)))


def as_dtype(data: list[Data], dtype: np.dtype[Any]) -> list[Data]:
    """Return the data in one dtype; held data keep theirs."""
    return [X if X.dtype == dtype or not hasattr(X, "astype") else X.astype(dtype) for X in data]


@dataclass
class _Unit:
    """One client, or tiny clients stacked: ``owner`` names the client of every row."""

    members: Array
    data: Data
    owner: Array | None = None
    local: Local | None = None


class InlineSession:
    """Clients as objects in this process, numbered from ``first``."""

    masks = False

    def __init__(
        self, method: Method, data: list[Data], seed: int, pool: ThreadPoolExecutor | None, *, first: int = 0
    ) -> None:
        self.method, self.seed, self.pool, self.first = method, seed, pool, first
        self.n_clients, self.n_features = len(data), data[0].shape[1]
        self.units = [_Unit(np.array([j]), X) for j, X in enumerate(data, first)]
        self.batched = False

    def join(self, shared: Shared) -> None:
        """Let every client prepare its state."""
        if self.method.rowwise(0):
            self._batch(None)

        def join(unit: _Unit) -> None:
            j = int(unit.members[0])
            with _blame(j, "join"):
                unit.local = self.method.join(unit.data, shared, rng(self.seed, j, -1))

        self._each(join, self.units)

    def round(self, shared: Shared, t: int, participants: Array) -> list[Reply]:
        """Step the participants; batches step the rows of theirs."""
        if not self.batched and self.method.rowwise(t):
            self._batch(shared)
        chosen = np.zeros(self.first + self.n_clients, bool)
        chosen[participants] = True
        units = [u for u in self.units if chosen[u.members].any()]
        return self._each(lambda unit: self._step(unit, shared, t, chosen), units)

    def _step(self, unit: _Unit, shared: Shared, t: int, chosen: Array) -> Reply:
        stepping = unit.members[chosen[unit.members]]
        j = int(unit.members[0])
        with _blame(j, f"round {t}"):
            assert unit.local is not None
            if unit.owner is None or len(stepping) == len(unit.members):
                unit.local, message = self._call(unit.data, shared, unit.local, t, j)
            else:
                here = np.flatnonzero(chosen[unit.owner])
                part = Local(unit.local.codes[here], {n: a[here] for n, a in unit.local.memory.items()})
                part, message = self._call(arrays.rows(unit.data, here), shared, part, t, j)
                unit.local = _write_rows(unit.local, part, here)
        return Reply(stepping, message)

    def _call(self, X: Data, shared: Shared, local: Local, t: int, j: int) -> tuple[Local, Message]:
        return self.method.step(X, shared, local, t, rng(self.seed, j, t))

    def refit(self, factor: Array) -> list[Array]:
        """Return every client's codes for the final factor."""
        codes: list[Array] = [factor] * self.n_clients

        def refit(unit: _Unit) -> None:
            with _blame(int(unit.members[0]), "refit"):
                W = self.method.refit(unit.data, factor)
            bounds = np.flatnonzero(np.diff(np.zeros(len(W)) if unit.owner is None else unit.owner)) + 1
            for j, part in zip(unit.members, np.split(W, bounds), strict=True):
                codes[j - self.first] = part

        self._each(refit, self.units)
        return codes

    def keep(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return the checkpoint as it is: all clients are here."""
        return checkpoint

    def locals(self, t: int) -> list[Local]:
        """Return the state of every unit; units are the same in every run of this method over these data."""
        return [unit.local for unit in self.units if unit.local is not None]

    def restore(self, states: list[Local], t: int) -> None:
        """Put the states back after round t; tiny clients are stacked by then if they ever are."""
        if self.method.rowwise(t):
            self._batch(None)
        if len(states) != len(self.units):
            raise CofactorError(
                f"checkpoint: expected the states of {len(self.units)} clients, found {len(states)}; "
                "it belongs to other data or to another method."
            )
        for unit, state in zip(self.units, states, strict=True):
            unit.local = state

    def _batch(self, shared: Shared | None) -> None:
        """Stack tiny clients, once, as soon as the method's messages add up over rows."""
        self.batched = True
        tiny = [u for u in self.units if u.data.shape[0] <= TINY_ROWS]
        if len(tiny) < 2:
            return
        owner = np.concatenate([np.full(u.data.shape[0], u.members[0]) for u in tiny])
        batch = _Unit(np.concatenate([u.members for u in tiny]), arrays.stack([u.data for u in tiny]), owner)
        if shared is not None:
            batch.local = self.method.join(batch.data, shared, rng(self.seed, int(owner[0]), -1))
        rest = [u for u in self.units if u.data.shape[0] > TINY_ROWS]
        self.units = sorted([*rest, batch], key=lambda u: int(u.members[0]))

    def _each(self, work: Callable[[_Unit], Any], units: list[_Unit]) -> list[Any]:
        """Apply ``work`` to the units in threads; results come in the order of the units."""
        return list((self.pool.map if self.pool else map)(work, units))


def _write_rows(local: Local, part: Local, here: Array) -> Local:
    """Put the rows that stepped back among the others; arrays that are new begin as zeros."""

    def put(old: Array | None, new: Array) -> Array:
        n = len(local.codes)
        out = np.zeros((n, *new.shape[1:]), new.dtype) if old is None else old.copy()
        out[here] = new
        return out

    memory = {name: put(local.memory.get(name), a) for name, a in part.memory.items()}
    return Local(put(local.codes, part.codes), memory)


@contextmanager
def _blame(client: int, when: str) -> Iterator[None]:
    """Name the client and the moment in every error."""
    try:
        yield
    except CofactorError:
        raise
    except Exception as error:
        raise ClientError(f"client {client}, {when}: {type(error).__name__}: {error}") from error
