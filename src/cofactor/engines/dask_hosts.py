"""The hosts of a run on the workers of dask, from the driver's side: placed, told what to do, and rebuilt when lost."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any

import numpy as np

from cofactor import kinds
from cofactor.engines import dask_worker as worker
from cofactor.engines.checkpoint import Checkpoint
from cofactor.engines.contract import Rebuilt
from cofactor.engines.host import UNTOLD
from cofactor.engines.log import Log
from cofactor.engines.session import stepped
from cofactor.engines.team import text_of
from cofactor.types import Array, ClientError, CofactorError, Data, DataError, Shared

LOSSES = 3
"""So many workers may be lost with the same clients; after one more, these clients are what ends workers."""
LARGE = 1 << 20
"""Orders of at least so many bytes do not pass through the scheduler once for each host."""
LOOK = 0.05


class Away(Exception):
    """An order did not come to its end; the cause is what dask said."""


@dataclass
class _Place:
    """One host: its clients, and the actor that holds them on a worker. It is ``ready`` once it is up to date."""

    number: int
    first: int
    stop: int
    name: str = ""
    address: str = ""
    actor: Any = None
    blocks: Any = None
    losses: int = 0
    ready: bool = False

    @property
    def lost(self) -> bool:
        """Whether there is no such actor (any more)."""
        return self.actor is None or self.actor.status not in ("pending", "finished")

    @property
    def clients(self) -> str:
        """In words."""
        last = self.stop - 1
        return f"client {last}" if self.first == last else f"clients {self.first} to {last}"


class Hosts:
    """All hosts of a run: contiguous ranges of the clients, each on one worker.

    A host whose worker is lost is rebuilt on another one from the source of its data (a file, a chunk, an array that
    the driver has), and takes again the steps that it has taken since its clients joined, or since the last checkpoint.
    Steps are functions of data, what was sent, and (seed, client, round), so it arrives at the states that were lost:
    the run ends as if nothing had happened, running sums of the server stay right, and nobody else notices.
    """

    def __init__(self, client: Any, terms: worker.Terms, sources: Sequence[Data], *, timeout: float) -> None:
        import cloudpickle

        self.client, self.sources, self.timeout = client, sources, timeout
        self.dumps, self.log = cloudpickle.dumps, Log()
        self.terms, self.single = self.dumps(terms), terms.streams
        self.private = terms.method.traits.allowance is not None
        self.base: tuple[Checkpoint, int] | None = None
        self.dtype: np.dtype[Any] | None = None
        self.n_features, self.troubles = 0, 0
        self.places: list[_Place] = []

    def open(self) -> None:
        """Deal the clients to the workers, and bring them there; in a stream every client is a host."""
        clients = len(self.sources)
        count = clients if self.single else min(len(self.workers()), clients)
        ends = np.cumsum([0, *map(len, np.array_split(np.arange(clients), count))]).tolist()
        self.places = [_Place(i, ends[i], ends[i + 1]) for i in range(count)]
        self._catch_up()

    def remember(self, shared: Shared, t: int, participants: Array, *, anew: bool) -> None:
        """Keep what clients are told in round t, once; where all of them join ``anew``, what was before is over."""
        if t <= self.log.last:
            return
        if anew:
            self.begin_at(None)
        self.log.add(shared, t, participants)
        self.troubles = 0
        for place in self.places:
            place.losses = 0

    def begin_at(self, base: tuple[Checkpoint, int] | None) -> None:
        """From now on, rebuild clients from here: a checkpoint after so many rounds, or new ones."""
        self.base = base
        self.log.clear()

    def tell(self, *orders: bytes) -> list[Any]:
        """Give all hosts an order, or each its own; return what comes back. Those that are lost are rebuilt first."""
        try:
            sent = [self._sent(order) for order in orders]
            sent = sent * len(self.places) if len(sent) == 1 else sent
            return self._values([self.give(place, order) for place, order in zip(self.places, sent, strict=True)])
        except Away as away:
            raise self._renewed(away) from away

    def total(self, order: bytes) -> Any:
        """Give every host this order; return the sum of what comes back, added in pairs on the workers."""
        try:
            sent = self._sent(order)
            parts = [self.give(place, sent) for place in self.places]
            while len(parts) > 1:
                pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
                parts = [self.client.submit(worker.add, *p, pure=False) if len(p) > 1 else p[0] for p in pairs]
            return self._values(parts)[0]
        except Away as away:
            raise self._renewed(away) from away

    def order(self, work: Any, *arguments: Any) -> bytes:
        """Return an order: work at a host."""
        return self.dumps((worker.at_host, (work, arguments)))

    def give(self, place: _Place, order: Any) -> Any:
        """Send an order to a host; return the future of what comes back."""
        return self.client.submit(worker.carry_out, place.actor, place.name, order, workers=[place.address], pure=False)

    def _sent(self, order: bytes) -> Any:
        """Return the order, or where it is large one copy of it that workers take from each other."""
        if len(order) < LARGE:
            return order
        try:
            return self.client.scatter(order, workers=[place.address for place in self.places], hash=False)
        except Exception as error:
            raise Away from error

    def _values(self, futures: list[Any]) -> list[Any]:
        try:
            found = self.client.gather(futures)
        except (Exception, CancelledError) as error:
            raise Away from error
        for _, failure in found:
            if failure is not None:
                raise failure
        return [value for value, _ in found]

    def _renewed(self, away: Away) -> Rebuilt:
        """Rebuild those that were lost; return what to say."""
        self._mark(away)
        self._catch_up()
        return Rebuilt("workers were lost, and their clients rebuilt on others.")

    def _mark(self, away: Away) -> None:
        """Find who was lost; an error without a loss may be the network's, but not for ever."""
        cause, until = away.__cause__, time.monotonic() + 1
        while not any(place.lost for place in self.places) and time.monotonic() < until:
            time.sleep(LOOK)
        lost = [place for place in self.places if place.lost]
        for place in lost:
            self._count(place, cause)
        self.troubles += not lost
        if self.troubles > LOSSES:
            raise ClientError(f"the workers do not answer: {_text(cause)}") from cause

    def _count(self, place: _Place, cause: BaseException | None) -> None:
        place.ready = False
        place.losses += 1
        if place.losses > LOSSES:
            told = (
                f"{place.clients}: expected a worker that can hold them, but {place.losses} were lost or failed in turn"
            )
            raise ClientError(f"{told}: {_text(cause, private=self.private)}") from (None if self.private else cause)

    def _catch_up(self) -> None:
        """Bring every host to where the run is."""
        while behind := [place for place in self.places if not place.ready]:
            try:
                self._bring(behind)
            except Away as away:
                self._mark(away)

    def _bring(self, places: list[_Place]) -> None:
        """Build hosts, and let them take the steps that the others have taken."""
        self._build(places)
        if self.dtype is None:
            found = [form for part in self._all(places, worker.forms) for form in part]
            kinds.alike(found)
            kinds.same_columns([form.columns for form in found])
            self.n_features, self.dtype = found[0].shape[1], np.result_type(*(form.dtype for form in found))
        self._all(places, worker.settle, self.dtype)
        if self.base is not None:
            checkpoint, rounds = self.base
            self._all(places, worker.at_host, worker.restore, (checkpoint, rounds, len(self.places) + 1))
        for told in self.log:
            self._all(places, worker.at_host, stepped, (told, worker.silent))
        for place in places:
            place.ready = True

    def _all(self, places: list[_Place], work: Any, *arguments: Any) -> list[Any]:
        order = self._sent(self.dumps((work, arguments)))
        return self._values([self.give(place, order) for place in places])

    def _build(self, places: list[_Place]) -> None:
        while lost := [place for place in places if place.lost]:
            for place in lost:
                self._place(place)
            for place in lost:
                self._arrive(place)

    def _place(self, place: _Place) -> None:
        """Send the clients of a host to the worker that has the fewest; their data are computed or read there."""
        alive = self.workers()
        place.address = min(alive, key=lambda a: sum(p.address == a and not p.lost for p in self.places))
        place.name = f"clients-{uuid.uuid4().hex}"
        where = {"workers": [place.address], "allow_other_workers": True}
        try:
            place.blocks = self._blocks(place, where)
        except (OSError, ValueError, KeyError) as error:  # the worker is gone
            self._count(place, error)
            return
        more = place.number, place.first, place.blocks
        place.actor = self.client.submit(worker.Hosted, place.name, self.terms, *more, actor=True, pure=False, **where)

    def _blocks(self, place: _Place, where: dict[str, Any]) -> Any:
        """Return futures of the data of a host's clients; what the driver has is sent, once, all in one."""
        items = list(self.sources[place.first : place.stop])
        lazy = [is_lazy(X) for X in items]
        send = {"workers": where["workers"], "hash": False}
        if not any(lazy):
            return self.client.scatter([items], **send)[0]
        asked = iter(self.client.compute([X for X, there in zip(items, lazy) if there], **where))
        return [next(asked) if there else self.client.scatter([X], **send)[0] for X, there in zip(items, lazy)]

    def _arrive(self, place: _Place) -> None:
        """Wait for an actor; say which client's data could not be computed."""
        if place.actor is None:
            return
        error, blocks = self._wait(place.actor), place.blocks
        place.blocks = None  # the actor holds them now
        if error is None:
            [found] = self.client.who_has([place.actor]).values()
            place.address = found[0] if found else place.address
            return
        for j, block in enumerate(blocks if isinstance(blocks, list) else [], place.first):
            if block.status == "error" and self.private:
                raise DataError(f"client {j}: {UNTOLD}")  # it may say what stands in a file
            if block.status == "error":
                raise DataError(f"client {j}: {_text(block.exception())}") from block.exception()
        self._count(place, error)

    def _wait(self, future: Any) -> BaseException | None:
        while True:
            try:
                return future.exception(timeout=1)
            except TimeoutError:
                self.workers()
            except CancelledError as error:
                return error

    def workers(self) -> list[str]:
        """Return the addresses of all workers; wait for the first."""
        where = f"the scheduler {self.client.scheduler.address}"
        try:
            while not (found := list(self.client.nthreads())):
                self.client.wait_for_workers(1, timeout=self.timeout)
            return found
        except TimeoutError as error:
            raise CofactorError(
                f"expected workers at {where}, found none within {self.timeout:g} s; start some with `dask worker`."
            ) from error
        except OSError as error:
            raise CofactorError(f"expected an answer of {where}, found none ({error}).") from error

    def close(self) -> None:
        """Let the actors go, and their data with them."""
        self.log.file.close()
        for place in self.places:
            place.actor = place.blocks = None


def is_lazy(X: Any) -> bool:
    """Whether something is computed on workers: a dask collection, or the future of a block."""
    from dask.base import is_dask_collection
    from distributed import Future

    return isinstance(X, Future) or bool(is_dask_collection(X))


def _text(error: BaseException | None, *, private: bool = False) -> str:
    return text_of(error) if isinstance(error, Exception) and not private else type(error).__name__
