"""The client's side of a run: read the data, ask the policy, settle, step; codes and ledger stay in its own folder."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from cofactor import kinds
from cofactor.data import load
from cofactor.data.formats.row_blocks import RowBlocks
from cofactor.data.formats.table import Table
from cofactor.engines.contract import Client
from cofactor.engines.flare_clients import Refused
from cofactor.engines.flare_member import Desk, Member, told
from cofactor.federation.features import DTYPES, Said, hashes
from cofactor.federation.policy import Policy
from cofactor.federation.terms import RunTerms
from cofactor.jobs.client_folder import ClientFolder
from cofactor.jobs.conclude import Conclude
from cofactor.jobs.judge import LOCAL_CELLS
from cofactor.jobs.reading import sha256
from cofactor.local.columns import SomeColumns
from cofactor.methods.build import Facts
from cofactor.types import Array, CofactorError, Data, Message

LOG = logging.getLogger("cofactor.client")


@dataclass(frozen=True)
class Own:
    """What a client has set for itself: its data, its policy, the salt of the federation, and its home."""

    home: Path
    data: Path
    salt: str
    layer: str | None = None

    @classmethod
    def read(cls, home: Path) -> Own:
        """Read what `cofactor join` wrote."""
        own = json.loads((home / "local" / "cofactor.json").read_text())
        return cls(home, Path(own["data"]), own["salt"], own.get("layer"))

    def table(self) -> Table:
        """Read the data."""
        return load.read(str(self.data), layer=self.layer)


class ClientJob:
    """One run at one client: first what it is like, then settled, then a member that steps."""

    def __init__(self, told_terms: Any, own: Own) -> None:
        self.own = own
        self.member: Member | None = None
        self.terms: RunTerms | None = None
        try:
            self.terms = RunTerms.read(told_terms)
        except CofactorError:
            LOG.exception("the terms of a run could not be read")
        run = self.terms.run if self.terms else "none"
        self.folder = own.home / "runs" / run
        self.ops: dict[str, Callable[[Any], Any]] = {"hello": self.hello, "settle": self.settle, "names": self.names}
        self.desk = Desk(run, self.ops)
        self.table: Table | None = None
        self.columns: Array | None = None

    def hello(self, value: Any) -> dict[str, Any]:
        """Say what the client is like, if its policy allows the run at all."""
        if self.terms is None:
            raise Refused("order")
        terms = self.terms
        if terms.version != metadata.version("cofactor"):
            raise Refused("version")
        policy = Policy.read(self.own.home)
        policy.check(terms.config, self.own.home, terms.run)
        X = self._data()
        policy.check_rows(X.shape[0])
        policy.check_approved(self.own.home, terms)
        self._same_data()
        assert self.table is not None
        shown = None if terms.config.privacy or terms.config.secure else int(X.shape[0])
        names = hashes(self.table.feature_names, self.own.salt)
        return Said(int(X.shape[1]), X.dtype.newbyteorder("<").str, names, shown, metadata.version("cofactor")).plain()

    def _data(self) -> Data:
        if self.terms is None:
            raise Refused("order")
        if self.table is None:
            try:
                table = self.own.table()
                table = replace(table, X=kinds.named(self.terms.config.kind).check(table.X, 0))
            except (CofactorError, OSError, ValueError) as error:
                LOG.exception("the data cannot be used")
                raise Refused("data") from error
            self.table = table
        return self.table.X

    def _same_data(self) -> None:
        """Refuse to go on with other data than the run began with."""
        file, found = self.folder / "data.json", {"sha256": sha256(self.own.data)}
        if not file.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(found))
        elif json.loads(file.read_text()) != found:
            raise Refused("changed")

    def settle(self, value: Any) -> None:
        """Take a number and the columns of the run, and build the method as the server does."""
        number, clients, features, rows, parts, dtype, union, columns = told(
            value,
            number=int,
            clients=int,
            features=int,
            rows=(int, type(None)),
            groups=(np.ndarray, type(None)),
            dtype=str,
            union=bool,
            columns=np.ndarray,
        )
        if self.terms is None or self.table is None or self.member is not None:
            raise Refused("order")
        if not 0 <= number < clients <= 10_000 or dtype not in DTYPES:
            raise Refused("order")
        X = self._chosen(features, union, columns)
        facts = Facts(clients, features, rows, None if parts is None else tuple(parts.tolist()))
        method, plan = self.terms.made(facts)
        formed, limit = plan.form(method)
        policy = Policy.read(self.own.home)
        policy.check_cost(method, self.own.home, self.terms.run)
        [data] = kinds.as_dtype([X], np.dtype(dtype))
        config = self.terms.config
        private = method.traits.allowance is not None
        cells = LOCAL_CELLS + 1 if rows is None else rows * features
        kind = kinds.KINDS[method.traits.kind]
        compares = kind.compares and not (private or config.secure or union) and cells <= LOCAL_CELLS
        folder = Careful(self.folder)
        close = Conclude(kind, formed, str(number), folder, config.seed, private, compares, rows=self.table.row_names)
        sent = Sent(self.folder / "sent.jsonl", private=private)
        updates = plan.stream.updates if plan.stream else limit
        self.member = Member(
            formed,
            data,
            number,
            config.seed,
            updates,
            keep=self.folder,
            masks=config.secure,
            close=_Closing(close, folder),
            sending=sent,
        )
        self.ops.update(self.member.ops)

    def _chosen(self, features: int, union: bool, columns: Array) -> Data:
        """Return the data with the columns of the run; each column at most once, and none that is not there."""
        assert self.table is not None
        X = self.table.X
        bound = features if union else X.shape[1]
        count = X.shape[1] if union else features
        if columns.dtype.kind != "i" or columns.shape != (count,) or len(np.unique(columns)) < count:
            raise Refused("order")
        if columns.min() < 0 or columns.max() >= bound:
            raise Refused("order")
        self.columns = np.arange(X.shape[1]) if union else columns
        if union:
            return SomeColumns(X, columns, features)
        if np.array_equal(columns, np.arange(X.shape[1])):
            return X
        return X.columns(columns) if isinstance(X, RowBlocks) else X[:, columns]

    def names(self, value: Any) -> list[str] | None:
        """Say what the features of the run are called, once the run is settled."""
        if self.member is None or self.table is None or self.columns is None:
            raise Refused("order")
        names = self.table.feature_names
        return None if names is None else [names[i] for i in self.columns]


class Careful(ClientFolder):
    """A client's folder whose disk may be full: what cannot be written is said in the log, and ends nothing."""

    def write_json(self, name: str, value: Any) -> None:
        """Write a record, if it can be."""
        self._try(lambda: super(Careful, self).write_json(name, value), name)

    def write_codes(self, W: Array, rows: Sequence[str] | None = None) -> None:
        """Write the codes, if they can be."""
        self._try(lambda: super(Careful, self).write_codes(W, rows), "codes.npy")

    def write_own(self, V: Array) -> None:
        """Write the client's own part, if it can be."""
        self._try(lambda: super(Careful, self).write_own(V), "own.npy")

    def write_pictures(self, panels: Any) -> None:
        """Write pictures, if they can be."""
        self._try(lambda: super(Careful, self).write_pictures(panels), "view.npz")

    def write_factor(self, factor: Array) -> None:
        """Write the factor, if it can be."""
        self._try(lambda: np.save(self.path / "factor.npy", factor), "factor.npy")

    def _try(self, work: Callable[[], Any], name: str) -> None:
        try:
            work()
        except OSError:
            LOG.exception("%s could not be written", name)


@dataclass(frozen=True)
class _Closing:
    """The client's work at the end: codes and factor into its own folder, and what may be said."""

    conclude: Conclude
    folder: Careful

    def __call__(self, client: Client, factor: Array) -> Any:
        self.folder.write_factor(factor)
        found = self.conclude(client, factor)
        if found is None:
            return None
        return {"rows": found.rows, "tally": np.asarray(found.tally, float), "own": found.own, "summary": found.summary}


class Sent:
    """What left this client, one line a round, written before it leaves.

    No round of a private run leaves twice, whatever the server says, since the noise would be another: without its line
    none leaves at all. In other runs a full disk ends nothing but the line.
    """

    def __init__(self, file: Path, *, private: bool) -> None:
        self.file, self.private = file, private
        lines = file.read_text().splitlines() if file.exists() else []
        self.rounds = {int(json.loads(line)["round"]) for line in lines}

    def __call__(self, t: int, message: Message) -> None:
        """Add the line of one message."""
        if self.private and t in self.rounds:
            raise Refused("released")
        arrays = {name: [list(np.shape(a)), np.asarray(a).dtype.str] for name, a in message.arrays.items()}
        line = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "round": t, "arrays": arrays}
        try:
            with open(self.file, "a") as file:
                file.write(json.dumps(line) + "\n")
        except OSError:
            LOG.exception("what left in round %d could not be written down", t)
            if self.private:
                raise
        self.rounds.add(t)
