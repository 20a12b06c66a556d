"""The clients of one process: they join, step and refit here, in threads, tiny ones as one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np

from cofactor.engines import beside, blockwise
from cofactor.engines.contract import Answer, Client, Finished, Work, check_message, used_by, weight
from cofactor.engines.history import adds_up, draws, stage_of
from cofactor.local import arrays
from cofactor.local.batches import batches
from cofactor.method import Method, Together
from cofactor.types import Array, ClientError, CofactorError, Data, Local, Shared

UNTOLD = "expected a message, found an error. What it says is for that client alone: look there."
"""What others are told of an error at a client in a private run."""


@dataclass
class _Unit:
    """One client, or tiny clients stacked: ``owner`` names the client of every row."""

    members: Array
    data: Data
    owner: Array | None = None
    local: Local | None = None

    @property
    def where(self) -> str:
        """Where its rows are."""
        return arrays.where(self.data)

    @property
    def first(self) -> int:
        """The first (mostly the only) client."""
        return int(self.members[0])


class Host:
    """Clients numbered from ``first``, with their states; ``kept`` is for what an engine puts next to them."""

    def __init__(
        self,
        method: Method,
        data: Sequence[Data],
        seed: int,
        *,
        first: int = 0,
        pool: ThreadPoolExecutor | None = None,
        stacks: bool = True,
        masks: bool = False,
    ) -> None:
        self.method, self.seed, self.first = method, seed, first
        self.traits, self.clients, self.count = method.traits, list(data), len(data)
        self.units = [_Unit(np.array([j]), X) for j, X in enumerate(data, first)]
        self.placed = any(unit.where == "device" for unit in self.units)
        self.pool = pool
        self.stage, self.unstacked, self.masks = -1, stacks, masks
        self.open = not masks and self.traits.allowance is None
        self.own: dict[int, tuple[Array, Array]] = {}
        self.kept: dict[str, Any] = {}

    def step(self, shared: Shared, t: int, participants: Array) -> list[Answer]:
        """Step those of the participants that are here; batches step the rows of theirs."""
        self._prepare(shared, t)
        chosen = np.zeros(self.first + self.count, bool)
        chosen[participants[(participants >= self.first) & (participants < self.first + self.count)]] = True
        units = [u for u in self.units if chosen[u.members].any()]
        schema = self.method.schema(units[0].data.shape[1], t) if units else {}
        alone = partial(self._step, shared=shared, t=t, chosen=chosen, schema=schema)
        begins = self.traits.together
        little, others = ([], units) if begins is None or t < begins else beside.parted(units)
        answers = self._each(alone, others, in_memory=t < self.traits.in_memory)
        if not little:
            return answers
        round_: Any = {"shared": shared, "t": t, "schema": schema, "pool": self.pool}
        answers += beside.step(cast(Together, self.method), little, alone, **round_)
        return sorted(answers, key=lambda answer: answer.client)

    def _prepare(self, shared: Shared, t: int) -> None:
        """Stack tiny clients as soon as their messages add up over rows, and join where a stage begins."""
        stage = stage_of(self.traits, t)
        if stage != self.stage:
            self._remember()
        stacked = self._stack(t)
        if stage != self.stage or stacked:
            self.stage = stage
            self._each(lambda unit: self._join(unit, shared, t), self.units)

    def _join(self, unit: _Unit, shared: Shared, t: int) -> None:
        with self._blame(unit.first, "join"):
            unit.local = self.method.join(unit.data, shared, t, self._draws(unit.first, -1))

    def _draws(self, client: int, t: int) -> np.random.Generator:
        """Return what a client draws from in round t; it joins in -1."""
        return draws(self.seed, client, t, unseeded=self.traits.unseeded)

    def _remember(self) -> None:
        """Keep what clients found alone, before their next stage forgets it."""
        if not self.traits.own or self.own:
            return
        for unit in self.units:
            if unit.local is not None and "factor" in unit.local.memory:
                self.own[unit.first] = unit.local.codes, unit.local.memory["factor"]

    def _step(self, unit: _Unit, shared: Shared, t: int, chosen: Array, schema: dict[str, tuple[int, ...]]) -> Answer:
        stepping, j = unit.members[chosen[unit.members]], unit.first
        with self._blame(j, f"round {t}"):
            assert unit.local is not None
            part, here, X = unit.local, None, unit.data
            if unit.owner is not None and len(stepping) < len(unit.members):
                here = np.flatnonzero(chosen[unit.owner])
                part = part.rows(here)
                X = arrays.rows(X, here)
            if unit.where == "disk" and adds_up(self.traits, t) and self.traits.allowance is None:
                part, message = blockwise.step(
                    lambda b, own: self.method.step(b, shared, own, t, self._draws(j, t)), X, part
                )
            else:
                part, message = self.method.step(X, shared, part, t, self._draws(j, t))
            unit.local = part if here is None else unit.local.put(part, here)
            check_message(message, schema, client=j, t=t)
        return Answer(stepping, message)

    def finish(self, factor: Array, work: Sequence[Work]) -> Finished:
        """Let every client find its codes for the final factor, and do its work; under masks findings stay here."""
        self._remember()
        codes: list[Any] = [None] * self.count
        findings: list[Any] = [None] * self.count

        def finish(unit: _Unit) -> None:
            with self._blame(unit.first, "refit"):
                W = self.method.refit(unit.data, factor)
            places = (unit.members - self.first).tolist()
            ends = np.cumsum([self.clients[place].shape[0] for place in places]).tolist()
            for j, place, begin, end in zip(unit.members, places, [0, *ends], ends):
                codes[place] = W[begin:end]
                if work:
                    client = Client(int(j), self.clients[place], codes[place], self.own.get(int(j)))
                    with self._blame(int(j), "its end") if self.traits.allowance is not None else nullcontext():
                        findings[place] = work[place](client, factor)

        self._each(finish, self.units)
        if self.masks:
            self.kept["found"] = dict(enumerate(findings, self.first))
            return Finished(codes)
        return Finished(codes, findings if work else [], used_by(map(weight, codes)) if self.open else None)

    def data(self) -> list[Data]:
        """Return the data of every unit."""
        return [unit.data for unit in self.units]

    def states(self) -> list[Local]:
        """Return the state of every unit; units are the same in every run of this method over these data.

        Of a private method none: codes, and how many there are, stay in the client, which joins anew after a stop.
        """
        if self.traits.allowance is not None:
            return []
        return [unit.local for unit in self.units if unit.local is not None]

    def restore(self, states: list[Local], t: int) -> None:
        """Put the states of round t back; tiny clients are stacked by then if they ever are."""
        if self.traits.allowance is not None:
            return
        self._stack(t)
        self.stage = stage_of(self.traits, t)
        rows = [(u.data.shape[0], len(s.codes)) for u, s in zip(self.units, states) if u.owner is not None]
        if len(states) != len(self.units) or any(a != b for a, b in rows):
            raise CofactorError(
                f"checkpoint: expected the states of {len(self.units)} clients or batches of tiny ones, with as many "
                f"rows as they have; found {len(states)}: it belongs to other data or to another method."
            )
        for unit, state in zip(self.units, states, strict=True):
            unit.local = state

    def _stack(self, t: int) -> bool:
        """Stack tiny clients, once, when round t allows it; say whether it was done now."""
        if not (self.unstacked and adds_up(self.traits, t)):
            return False
        self.unstacked = False
        found = batches([u.data for u in self.units])
        made = [_batch([self.units[i] for i in batch.members], batch.data) for batch in found]
        inside = {i for batch in found for i in batch.members}
        alone = [unit for i, unit in enumerate(self.units) if i not in inside]
        self.units = sorted([*made, *alone], key=lambda u: u.first)
        return len(made) > 0

    @contextmanager
    def _blame(self, client: int, when: str) -> Iterator[None]:
        """Name the client and the moment in every error; in a private run others hear no more than that.

        There warnings of arithmetic would tell of a row, too.
        """
        private = self.traits.allowance is not None
        told = f"client {client}, {when}: {UNTOLD}" if private else None
        try:
            with np.errstate(all="ignore" if private else None):
                yield
        except CofactorError as error:
            error.told = error.told or told
            raise
        except Exception as error:
            found = ClientError(f"client {client}, {when}: {type(error).__name__}: {error}")
            found.told = told
            raise found from error

    def _each(self, work: Callable[[_Unit], Any], units: list[_Unit], *, in_memory: bool = False) -> list[Any]:
        """Apply ``work`` to the units in threads; results come in the order of the units. One alone has all threads.

        One queue of work is all that a device has: its units wait for each other, unless they work ``in_memory``.
        Where a batch fails, its clients do the work one by one: the error is of the one whose fault it is.
        """

        def done(unit: _Unit) -> Any:
            try:
                return work(unit)
            except CofactorError:
                for member in _members(unit):
                    work(member)
                raise

        threads = self.pool and len(units) > 1 and (in_memory or not self.placed)
        return list((self.pool.map if self.pool and threads else map)(done, units))


def _batch(units: list[_Unit], data: Data) -> _Unit:
    """Return clients as one, with the rows of all."""
    owner = np.repeat([u.first for u in units], [u.data.shape[0] for u in units])
    return _Unit(np.concatenate([u.members for u in units]), data, owner)


def _members(unit: _Unit) -> Iterator[_Unit]:
    """Yield the clients of a batch with their states; none of a client that is alone."""
    for j in () if unit.owner is None else unit.members:
        here = np.flatnonzero(unit.owner == j)
        local = None if unit.local is None else unit.local.rows(here)
        yield _Unit(np.array([j]), arrays.rows(unit.data, here), None, local)
