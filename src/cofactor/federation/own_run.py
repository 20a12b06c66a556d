"""A client's own record of a run: a run folder like any other, with what left it, its codes, its errors, its report."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cofactor.assurance import ledger, writing
from cofactor.assurance.spending import record
from cofactor.assurance.writing import Party, Signed
from cofactor.data import harmonise, load
from cofactor.data.formats.table import Table
from cofactor.engines.contract import Answer, Client, message_bytes, shared_bytes
from cofactor.engines.flare_refusals import Refused
from cofactor.engines.history import Round, stage_of
from cofactor.files import HeldError, atomic
from cofactor.jobs import new_rows
from cofactor.jobs.client_folder import ClientFolder
from cofactor.jobs.conclude import Conclude, Finding
from cofactor.jobs.config import Config
from cofactor.jobs.folder import RunFolder
from cofactor.method import Method
from cofactor.privacy import account
from cofactor.privacy.account import Account
from cofactor.privacy.errors import BudgetError
from cofactor.records import ClientScore, Evaluation, Input
from cofactor.types import Array, CofactorError, Data, Message, Shared

LOG = logging.getLogger("cofactor.client")
ENDED = "the coordinator ended it"
AGREED = "agreed.json"
"""What the clients have agreed on, for whoever looks: written before the first sum or message leaves."""
HERE = np.array([0])
"""The only client of this folder."""


@dataclass(frozen=True)
class Own:
    """What a client has set for itself: its data, its policy, the salt of the federation, and its home."""

    home: Path
    data: Path
    salt: str
    layer: str | None = None
    left_out: tuple[str, ...] = ()

    @classmethod
    def read(cls, home: Path) -> Own:
        """Read what `cofactor join` wrote."""
        own = json.loads((home / "local" / "cofactor.json").read_text(encoding="utf-8"))
        return cls(home, Path(own["data"]), own["salt"], own.get("layer"), tuple(own.get("left_out", ())))

    def table(self, *, private: bool) -> Table:
        """Read the data; in a private run nothing is guessed."""
        table = load.read_features(self.data, aside=self.left_out, layer=self.layer, guesses=not private)
        apart = self.left_out and not load.has_columns(self.data)
        return harmonise.without(table, self.left_out) if apart else table


class Careful(ClientFolder):
    """A client's folder whose disk may be full: what cannot be written is said in the log, and ends nothing."""

    def write_json(self, name: str, value: Any) -> None:
        """Write a record, if it can be."""
        _try(lambda: super(Careful, self).write_json(name, value), name)

    def write_codes(self, W: Array, rows: Sequence[str] | None = None) -> None:
        """Write the codes, if they can be."""
        _try(lambda: super(Careful, self).write_codes(W, rows), "codes.npy")

    def write_own(self, V: Array) -> None:
        """Write the client's own part, if it can be."""
        _try(lambda: super(Careful, self).write_own(V), "own.npy")

    def write_pictures(self, panels: Any) -> None:
        """Write pictures, if they can be."""
        _try(lambda: super(Careful, self).write_pictures(panels), "view.npz")


def _try(work: Callable[[], Any], name: str) -> None:
    try:
        work()
    except OSError:
        LOG.exception("%s could not be written", name)


@dataclass
class OwnRun:
    """The run folder in a client's home: what left is written before it leaves, chained, and signed by its own key.

    No round of a private run leaves twice, whatever the server says, since the noise would be another: without its line
    none leaves at all, and what it costs is charged first, here and in the client's ledger over runs (``account``), if
    it has one. Both are ``held`` alone, by one process of all that a server may begin, until the run is ``over``: then
    nothing more is released. ``noted`` writes down what the whole run costs, before its first round leaves. In other
    runs a full disk ends nothing but the line.
    """

    folder: RunFolder
    name: str
    method: Method
    masks: bool = False
    account: Account | None = None
    data: str = ""
    held: ExitStack = field(default_factory=ExitStack)
    last: float = field(default_factory=time.perf_counter)
    noted: Callable[[], Any] = lambda: None
    books: dict[str, Signed] = field(default_factory=dict)
    rounds: set[int] = field(default_factory=set)
    over: bool = False

    @property
    def private(self) -> bool:
        """Whether what leaves has noise, and is paid for."""
        return self.method.traits.allowance is not None

    @property
    def own(self) -> Careful:
        """Where codes and key are."""
        return Careful(self.folder.client(self.name).path)

    def open(self, config: Config, line: Input, masks: str | None) -> None:
        """Make the folder, or go on with it; a disk that is full ends a private run only."""
        if self.private:
            self._hold()
        try:
            if not self.folder.manifest_file.exists():
                total = record(self.method.traits.allowance.total()) if self.private else None
                keys = {self.name: Party.of(self.name, self.own.key())}
                RunFolder.create(self.folder.path, config, [line], privacy=total, keys=keys, masks=masks)
            self.books = self.folder.books()
            if self.private:
                self.rounds = set(range(len(self.folder.charged())))
        except OSError:
            LOG.exception("the folder of the run could not be written")
            if self.private:
                raise

    def _hold(self) -> None:
        """Be the only job of the run: another one knows of no round that leaves here."""
        try:
            self.held.enter_context(self.folder.held())
        except HeldError as error:
            LOG.warning("%s", error)
            raise Refused("held") from error

    def __call__(self, t: int, message: Message, shared: Shared | None = None) -> None:
        """Write down a message that is about to leave."""
        size = message_bytes(message)
        answer = Answer(HERE, message, size if self.masks else None)
        if self.private:
            self._pay(t, answer)
        else:
            self._note(t, answer)
        self.rounds.add(t)
        now, self.last = time.perf_counter() - self.last, time.perf_counter()
        down = 0 if shared is None else shared_bytes(shared)
        if t >= 0:
            stage = stage_of(self.method.traits, t)
            line = Round(t, np.nan, np.nan, size, down, now, 1, stage=stage)
            _try(lambda: self.folder.log_round(line), "history.jsonl")

    def asked(self, t: int, message: Message) -> None:
        """Write down a sum that is asked for besides the rounds; after the end of a run it is sealed again."""
        self._note(t, Answer(HERE, message, message_bytes(message) if self.masks else None))
        if self.folder.finished and not self.private:
            _try(lambda: self.folder.seal(self._ends()), "manifest.json")

    def _note(self, t: int, answer: Answer) -> None:
        """Write down what a run without noise sends; a disk that is full keeps the line from the file, and no more."""
        if not self.books:
            return
        try:
            self._signed(ledger.FILE, writing.sent([self.name], t, [answer]))
        except OSError:
            LOG.exception("%s could not be written", ledger.FILE)
            _try(lambda: self.books.update(self.folder.books()), ledger.FILE)  # the next line follows the last one

    def _ends(self) -> dict[str, Any]:
        """Return where the ledger ends, signed."""
        ends = self.folder.ends()
        run = ledger.header(self.folder.manifest())
        return {**ends, "signatures": {self.name: self.own.key().sign(ledger.end_of(run, self.name, ends))}}

    def _pay(self, t: int, answer: Answer) -> None:
        if t in self.rounds:
            raise Refused("released")
        if self.over:
            raise Refused("order")
        costs = self.method.traits.allowance.costs(t)
        if not self.rounds:
            self.noted()
        if self.account is not None:
            self.account.charge(self.folder.path.name, t, self.data, costs)
        self._signed(ledger.CHARGES, writing.charged([self.name], t, costs, HERE))
        self._signed(ledger.FILE, writing.sent([self.name], t, [answer]))

    def _signed(self, of: str, entries: list[dict[str, Any]]) -> None:
        key, told = self.own.key(), self.books[of].prepare(entries)
        self.books[of].write({i: key.sign(digest) for i, (_, digest) in enumerate(told)})

    def end(
        self, factor: Array, names: list[str] | None, score: ClientScore, prepared: Mapping[str, Array] | None = None
    ) -> None:
        """Write factor, errors and the end of the ledger, signed where it is, and a report; a fault ends nothing.

        The factor says how its codes are found, so that new rows of this client get theirs here.
        """
        try:
            self.folder.seal(self._ends())  # before the factor: see jobs.job
            if prepared:
                self.folder.write_preparation(prepared)
            more = {**new_rows.public(self.folder.config()), **(prepared or {})}
            self.folder.write_factor(factor, names, more=more)
            spent = self.folder.manifest_record().privacy
            if spent is not None:
                self.folder.write_json("privacy.json", spent)
            found = Evaluation(len(self.rounds), True, score.error, [score], privacy=spent, ended=ENDED)
            self.folder.write_json("evaluation.json", found)
            from cofactor.report.html import render

            render(self.folder.path)
        except Exception:  # codes are written, the run is over for all: a page that cannot be made is not worth it
            LOG.exception("the record of the run could not be finished")
        finally:
            self.over = True
            self.held.close()


def kept_once(file: Path, found: Any, *, needed: bool) -> bool:
    """Whether a file says this, which is written the first time; unless ``needed``, a disk that is full is forgiven.

    Of two that write it at once one does, and the other is held against it.
    """
    if not file.exists():
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with atomic(file, new=True) as stream:
                stream.write(json.dumps(found).encode())
        except FileExistsError:
            pass
        except OSError:
            if needed:
                raise
            LOG.exception("%s could not be written", file.name)
            return True
    return bool(json.loads(file.read_text(encoding="utf-8")) == found)


def show(folder: Path, agreed: dict[str, Any]) -> None:
    """Write down what was agreed on, for the page of this client."""
    _try(lambda: (folder / AGREED).write_text(json.dumps(agreed)), AGREED)


def hold(path: Path, X: Data, planned: Sequence[Any], held: ExitStack) -> tuple[Account, str]:
    """Hold the client's ledger over runs until the run is over, and refuse a run that it has no room for."""
    try:
        found = held.enter_context(account.opened(path))
        assert found.key is not None
        secret = found.key.secret
        data = account.tag([account.fingerprint(X, secret)], X.shape[1], secret)
        found.check(data, planned)
    except BudgetError as error:
        held.close()
        LOG.warning("%s", error)
        raise Refused("total") from error
    except CofactorError as error:
        held.close()
        LOG.exception("the ledger over runs cannot be charged")
        raise Refused("ledger") from error
    return found, data


@dataclass(frozen=True)
class Closing:
    """The client's work at the end: codes, factor, errors and report into its own folder, and what may be said."""

    conclude: Conclude
    run: OwnRun
    names: list[str] | None
    prepared: Mapping[str, Array] = field(default_factory=dict)

    def __call__(self, client: Client, factor: Array) -> Any:
        """Write, and return what the server may know."""
        found = self.conclude(client, factor)
        kind = self.conclude.kind
        tally = kind.tally(self.conclude.method, client.data, client.codes, factor)
        alone = kind.score(found.own).error if isinstance(found, Finding) and found.own is not None else None
        score = ClientScore(self.run.name, client.data.shape[0], *kind.score(tally), local_error=alone)
        self.run.end(factor, self.names, score, self.prepared)
        if not isinstance(found, Finding):  # nothing, or what is added up under masks
            return found
        return {"rows": found.rows, "tally": np.asarray(found.tally, float), "own": found.own, "summary": found.summary}
