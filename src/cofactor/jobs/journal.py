"""What a run over files writes down while it goes: charges before a round, what left the clients, the history."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from cofactor.assurance import ledger, writing
from cofactor.assurance.writing import Signed, Writer
from cofactor.engines.contract import Answer, Callback
from cofactor.engines.history import Round
from cofactor.jobs import uploads
from cofactor.jobs.config import Config
from cofactor.jobs.folder import RunFolder
from cofactor.jobs.place import Place
from cofactor.jobs.preparing import Prepared
from cofactor.method import Method
from cofactor.privacy.charges import Costs
from cofactor.privacy.errors import LedgerError
from cofactor.privacy.signing import Key
from cofactor.types import Array, CofactorError, Shared

MAY_MOVE = ("inputs", "engine", "scheduler", "keys", "ledger")
"""Settings that may be others when a private run goes on: who carries it, where files lie. Data are known by hashes."""
FROM_THE_BEGIN = ("keys", "ledger")
"""What may lie elsewhere by then, and is there from the first round on or never: what is said of a run rests on it."""


@dataclass
class Journal:
    """The journal of a run; ``keys`` are those of the clients of this process, and of none where nothing is private.

    ``prepared`` are the steps before the first round, and what has left the clients for them.
    """

    place: Place
    folder: RunFolder
    names: Sequence[str]
    config: Config
    method: Method
    callbacks: Sequence[Callback] = ()
    streams: bool = False
    keys: Mapping[str, Key] = field(default_factory=dict)
    prepared: Prepared = field(default_factory=Prepared)
    ledger: Writer | None = None
    files: dict[str, Signed] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse to go on without the budget, or the masks, that the run began with."""
        if not self.private:
            self.place.alone("the run folder", self._check_open)

    def _check_open(self) -> None:
        began = self.folder.manifest()
        for name, kept in (("secure", self.config.secure), ("keys", self.config.keys)):
            if began["config"].get(name) and not kept:
                raise CofactorError(
                    f"{self.folder.path}: expected {name} as the run began, found none in run.toml: what its manifest "
                    "says of masks would not hold. Put it back, or start a new run."
                )
        if began.get("privacy") is not None:
            raise LedgerError(
                f"{self.folder.path}: expected the budget that the run began with, found none in run.toml: what is "
                "released would have no noise. Put epsilon and delta back, or start a new run."
            )

    def _check_settings(self) -> None:
        """Refuse to release what the manifest, which was signed for, does not say: it tells what the run costs."""
        began, now = self.folder.manifest()["config"], json.loads(json.dumps(asdict(self.folder.config())))
        other = [name for name in began if name in now and name not in MAY_MOVE and began[name] != now[name]]
        other += [name for name in FROM_THE_BEGIN if (began.get(name) is None) != (now[name] is None)]
        if other:
            raise LedgerError(
                f"{self.folder.path}: expected the settings that the private run began with, found another "
                f"{', '.join(other)} in run.toml: what is released would not be what the manifest says. Put back what "
                "manifest.json has under config, or start a new run."
            )

    @property
    def private(self) -> bool:
        """Whether the run has a budget: then it is charged, and its lines are signed."""
        return self.method.traits.allowance is not None

    @property
    def run(self) -> str:
        """The identity of the run."""
        return ledger.header(self.folder.manifest())["run"]

    def charged(self) -> list[Costs]:
        """Return what was charged, by round; refuse to go on with a ledger that does not hold, or without one."""
        began = self.folder.manifest()["config"].get("ledger")
        if began is not None and self.method.traits.allowance.privacy.ledger is None:
            raise LedgerError(
                f"{self.folder.path}: expected the ledger over runs that the run began with, {began}, found none in "
                'run.toml: what is released would be missing there. Name it again: ledger = "...".'
            )
        return self.place.alone("the ledger", self.folder.charged)

    def charge(self, t: int, costs: Costs, participants: Array) -> None:
        """Write down what a round may release; its clients sign it. It is on disk when this returns."""
        self._signed(ledger.CHARGES, lambda: writing.charged(self.names, t, costs, participants))

    def begin(self, done: int) -> None:
        """Forget what was written of rounds that the checkpoint does not hold, and go on where the ledger ends.

        What the steps before it have learned is written last: where that is cut off, clients are asked for it again.
        """
        asked = self.prepared.asked  # nothing, where the steps were known
        if self.private:
            self.place.alone("the run folder", self._check_settings)
        self.place.alone("the run folder", lambda: self.folder.rewind(done or -len(asked), private=self.private))
        if self.place.here > 0:
            return
        if self.private:
            self.files = self.folder.books()
        else:
            self.ledger = self.folder.log_messages(self.names)
            for t, answers in asked:
                self.ledger(t, answers)
        if self.prepared.arrays:
            self.folder.write_preparation(self.prepared.arrays)

    def sent(self, t: int, answers: Sequence[Answer]) -> None:
        """Write the ledger; in rounds all processes wait, since none may go on with, or save, what is not in it."""
        if self.private:
            self._signed(ledger.FILE, lambda: writing.sent(self.names, t, answers))
        elif not self.streams:
            self.place.alone("the ledger", lambda: self.ledger and self.ledger(t, answers))
            if t == 0 and uploads.keeps(self.method):
                self.place.alone("the uploads", lambda: uploads.save(self.folder.path, self.names, answers))
        elif self.ledger is not None:  # only the server, on process 0, watches a stream
            self.ledger(t, answers)

    def _signed(self, of: str, entries: Callable[[], list[dict[str, Any]]]) -> None:
        """Let process 0 prepare lines, every process sign those of its clients, and process 0 write them."""
        told = self.place.alone("the ledger", lambda: self.files[of].prepare(entries()))
        mine = [(i, self.keys[client].sign(digest)) for i, (client, digest) in enumerate(told) if client in self.keys]
        signatures = dict(self.place.together("the ledger", mine))
        self.place.alone("the ledger", lambda: self.files[of].write(signatures))

    def round(self, line: Round, shared: Shared) -> bool:
        """Let process 0 write the line and tell others."""
        if self.place.here > 0:
            return False
        self.folder.log_round(line)
        return any([callback(line, shared) for callback in self.callbacks])

    def end(self) -> dict[str, Any]:
        """Return where all chains end, signed by all clients of a private run."""
        ended = self.place.alone("the ledger", self._ends)
        run = ledger.header(self.folder.manifest()) if self.keys else {}
        mine = [(client, key.sign(ledger.end_of(run, client, ended))) for client, key in self.keys.items()]
        signatures = dict(self.place.together("the ledger", mine))
        return {**ended, "signatures": signatures} if signatures else ended

    def _ends(self) -> dict[str, Any]:
        """Return where the chains end as they were written: lines that the file lacks by now will show."""
        if self.ledger is not None:
            return {"clients": self.ledger.seals}
        files = {"clients": self.files[ledger.FILE], "charges": self.files[ledger.CHARGES]}
        return {of: {name: end for name, end in file.seals.items() if end.entries} for of, file in files.items()}
