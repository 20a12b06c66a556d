"""The dask engine: clients live on the workers of a cluster for the whole run, and the driver sees messages only."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from threadpoolctl import threadpool_limits

from cofactor.engines import dask_worker as worker
from cofactor.engines.checkpoint import Checkpoint, State
from cofactor.engines.contract import Answer, Callback, Finished, Rebuilt, Streamed, Watch, Work, used_by
from cofactor.engines.dask_hosts import Hosts, is_lazy
from cofactor.engines.history import Round, adds_up
from cofactor.engines.paying import check_repeat
from cofactor.engines.session import stepped
from cofactor.engines.team import Team
from cofactor.kinds import Checked
from cofactor.method import Method
from cofactor.methods.build import refuse_dealt, refuse_same
from cofactor.plan import ByShare, Plan, Stream
from cofactor.types import Array, CofactorError, Data, DataError, Shared


@dataclass(frozen=True)
class Dask:
    """Workers of a dask cluster: that of a ``distributed.Client``, or of a ``scheduler`` at "tcp://host:8786".

    Clients are dealt to the workers in ranges, in their order, so that seeds, and the result, are those of the inline
    engine. Data are a list, one entry for each client: arrays (sent to their worker once), data on disk, delayed
    objects or futures; or one dask array, whose row chunks are the clients. What is not here already is read and
    computed on the worker. Where sums are enough, messages are added in pairs on the workers, and one total arrives.
    The codes of :func:`cofactor.run` are there if all workers are on this machine.

    A worker may be lost in mid-run: its clients are rebuilt on another one and take their steps again, and the round is
    repeated (:class:`~cofactor.engines.dask_hosts.Hosts`); a private run ends instead, as a message that may have been
    seen is not sent again with other noise. In a stream they are given up instead, like clients that are
    late. ``timeout`` is how many seconds to wait for the scheduler, and for a worker when there is none.
    """

    client: Any = None
    scheduler: str | None = None
    timeout: float = 30.0
    remote = True

    def __post_init__(self) -> None:
        """Say at once if distributed is missing, or who is meant is not."""
        known = _distributed().Client
        if (self.client is None) == (self.scheduler is None):
            found = "neither" if self.client is None else "both"
            raise CofactorError(f"expected a client, or the address of a scheduler (tcp://host:8786); found {found}.")
        if self.client is not None and (not isinstance(self.client, known) or self.client.asynchronous):
            raise CofactorError(
                f"client: expected a distributed.Client, not an asynchronous one; found {self.client!r}. An address is "
                "given as scheduler=..."
            )

    @property
    def team(self) -> Team:
        """The driver alone: workers do as they are told."""
        return Team()

    @contextmanager
    def open(self, method: Method, Xs: Sequence[Data], plan: Plan) -> Iterator[DaskSession]:
        """Bring the clients to the workers, and let them go at the end."""
        if isinstance(plan.participation, ByShare):
            raise CofactorError("participation: a draw by share weighs single messages; give workers a share instead.")
        allowance = method.traits.allowance
        sources = clients_of(Xs, plan if allowance is None else replace(plan, privacy=allowance.privacy))
        terms = worker.Terms(method, plan.seed, isinstance(Xs, Checked), not plan.secure, plan.stream is not None)
        with self._connected() as client, threadpool_limits(1, "blas"):
            hosts = Hosts(client, terms, sources, timeout=self.timeout)
            try:
                hosts.open()
                yield DaskSession(hosts, method)
            finally:
                hosts.close()

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        if self.client is not None:
            yield self.client
            return
        try:
            client = _distributed().Client(self.scheduler, timeout=self.timeout, set_as_default=False)
        except (OSError, ValueError) as error:
            raise CofactorError(
                f"expected a scheduler at {self.scheduler}, found none within {self.timeout:g} s; start one with "
                f"`dask scheduler`, or look for its address in what it prints ({error})."
            ) from error
        with client:
            yield client

    def __deepcopy__(self, memo: Any) -> Dask:
        """Estimators are cloned, clusters are not."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """A model that was fitted on a cluster can be kept without it."""
        address = self.scheduler if self.client is None else self.client.scheduler.address
        return Dask, (None, address, self.timeout)


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise CofactorError(
            f"the dask engine needs dask and distributed: pip install 'cofactor[dask]' ({error})."
        ) from error
    return distributed


def clients_of(Xs: Any, plan: Plan) -> list[Data]:
    """Return one source for each client: the entries of a list, or the row chunks of a dask array."""
    if not is_lazy(Xs):
        if len(Xs) == 0:
            raise DataError("expected at least one client, found an empty list.")
        if plan.privacy is not None:
            refuse_same([_known_by(X) for X in Xs])
        return list(Xs)
    if not hasattr(type(Xs), "rechunk") or Xs.ndim != 2:
        kind = f"{type(Xs).__name__} of {Xs.ndim} dimensions" if hasattr(Xs, "ndim") else type(Xs).__name__
        raise DataError(
            f"expected a dask array of two dimensions or a list of blocks, found a {kind}; of a data frame take "
            ".to_dask_array(lengths=True)."
        )
    X = Xs.rechunk({1: -1})
    if X.numblocks[0] > 1:
        refuse_dealt(plan)
    return [X.blocks[i] for i in range(X.numblocks[0])]


def _known_by(X: Any) -> Hashable:
    """Return what dask knows a block by: two objects with the same keys are the same rows."""
    if not is_lazy(X):
        return id(X)
    return X.key if isinstance(X, _distributed().Future) else str(X.__dask_keys__())


class DaskSession:
    """The driver's side of a run."""

    masks = False
    aloof = False

    def __init__(self, hosts: Hosts, method: Method) -> None:
        self.hosts, self.method = hosts, method
        self.n_clients, self.n_features = len(hosts.sources), hosts.n_features

    def round(self, shared: Shared, t: int, participants: Array) -> list[Answer]:
        """Let the participants step; return their messages, or one total. Repeat it where clients were lost."""
        if self.method.traits.allowance is not None:  # whoever was lost before the round may be rebuilt, and step once
            self._surely(lambda: self.everywhere(worker.present))
        self._remember(shared, t, participants)
        if self.method.traits.additive or adds_up(self.method.traits, t):
            order = self.hosts.order(stepped, (shared, t, participants), worker.summed)
            return [Answer(participants, self._surely(lambda: self.hosts.total(order), t))]
        found = self._surely(lambda: self.step(shared, t, participants, worker.whole), t)
        return [answer for part in found for answer in part]

    def stream(self, shared: Shared, stream: Stream, *, watch: Watch | None, callbacks: Sequence[Callback]) -> Streamed:
        """Let clients answer one by one, in real time."""
        from cofactor.engines import dask_stream

        return dask_stream.stream(self.hosts, self.method, shared, stream, watch=watch, callbacks=callbacks)

    def everywhere(self, work: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Call it with every host."""
        return self.hosts.tell(self.hosts.order(work, *arguments))

    def step(self, shared: Shared, t: int, participants: Array, work: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Step the participants, and call it with every host and its answers."""
        self._remember(shared, t, participants)
        return self.everywhere(stepped, (shared, t, participants), work, *arguments)

    def used(self, clients: Sequence[int], t: int) -> None:
        """Those of all: whoever is lost is rebuilt, and the round repeated."""

    def blame(self, client: int) -> bool:
        """All are one program here: what is wrong is an error of it."""
        return False

    def save(self, checkpoint: Checkpoint, shared: Shared, history: list[Round]) -> None:
        """Let every host write its states next to the checkpoint; the server's part is written here, last."""
        checkpoint = _anywhere(checkpoint)
        count = len(self.hosts.places) + 1
        self._surely(lambda: self.everywhere(worker.save, checkpoint, history, count))
        checkpoint.save(State(shared, [], history), worker.Place(0, count))
        self.hosts.begin_at((checkpoint, len(history)))

    def load(self, checkpoint: Checkpoint) -> State | None:
        """Go back to the last round that driver and hosts hold."""
        checkpoint = _anywhere(checkpoint)
        count = len(self.hosts.places) + 1
        others = self._surely(lambda: self.everywhere(worker.saved, checkpoint, count))
        try:
            saved = checkpoint.load(_Driver(count, others))
        except DataError as error:
            raise DataError(f"{error} The driver is one of them, the others are workers.") from error
        if saved is not None:
            rounds = len(saved.history)
            self._surely(lambda: self.everywhere(worker.restore, checkpoint, rounds, count))
            self.hosts.begin_at((checkpoint, rounds))
        return saved

    def finish(self, factor: Array, work: Sequence[Work]) -> Finished:
        """Return what all clients found, and their codes if all of them are on this machine."""
        here, places = worker.machine(), self.hosts.places
        orders = [self.hosts.order(worker.finish, factor, work[p.first : p.stop], here) for p in places]
        done: list[Finished] = self._surely(lambda: self.hosts.tell(*orders))
        codes = [W for part in done for W in part.codes] if all(part.codes for part in done) else []
        return Finished(
            codes, [finding for part in done for finding in part.findings], used_by(part.used for part in done)
        )

    def _remember(self, shared: Shared, t: int, participants: Array) -> None:
        """Keep what clients are sent, for those that will be rebuilt; what they found alone must be found again."""
        traits = self.method.traits
        self.hosts.remember(shared, t, participants, anew=t in traits.stages and not traits.own)

    def _surely(self, work: Callable[[], Any], t: int | None = None) -> Any:
        """Repeat the work until no client is lost meanwhile; what releases round t of a private run is not repeated."""
        while True:
            try:
                return work()
            except Rebuilt:
                if t is not None:
                    check_repeat(self.method, t)


class _Driver(worker.Place):
    """The driver and what hosts hold, as a team that reads a checkpoint."""

    def __init__(self, count: int, others: list[set[int]]) -> None:
        super().__init__(0, count)
        self.others = others

    def exchange(self, where: str, value: Any = None, *, error: Exception | None = None) -> list[Any]:
        """Return what the driver has, then what hosts have."""
        return [*super().exchange(where, value, error=error), *self.others]


def _anywhere(checkpoint: Checkpoint) -> Checkpoint:
    """Return the checkpoint as workers find it, too."""
    return replace(checkpoint, path=checkpoint.path.absolute())
