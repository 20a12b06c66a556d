"""A run is a folder: manifest, history, ledger, factor, codes, checkpoint. Every file is written atomically."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from cofactor import records
from cofactor.assurance import ledger, writing
from cofactor.assurance.spending import untrue
from cofactor.assurance.writing import Party, Signed, Writer
from cofactor.engines.checkpoint import Checkpoint
from cofactor.engines.history import Round
from cofactor.files import add, held, lines_of, resuming, settled, tsv, undamaged
from cofactor.jobs import config as configs
from cofactor.jobs import made_by
from cofactor.jobs.client_folder import KEY, ClientFolder, as_json, file_name, write
from cofactor.jobs.config import Config
from cofactor.privacy.book import Book
from cofactor.privacy.charges import Costs
from cofactor.records import Evaluation, Input, Line, Manifest, PrivacyRecord
from cofactor.select import factor_file
from cofactor.types import Array, CofactorError

OVER = ("evaluation.json", "factor.npz", "privacy.json")


@dataclass(frozen=True)
class RunFolder:
    """The files of one run."""

    path: Path

    @classmethod
    def create(
        cls,
        path: Path,
        config: Config,
        inputs: Sequence[Input],
        *,
        privacy: PrivacyRecord | None = None,
        keys: Mapping[str, Party] | None = None,
        masks: str | None = None,
    ) -> RunFolder:
        """Make the folder with its manifest and configuration; an existing run is never written over.

        ``privacy`` is what a private run will cost in all, ``keys`` its clients with their keys; rows and hashes of its
        data stay with the clients. ``masks`` says what secure sums rest on, where that is not in the settings.
        """
        folder, masks = cls.free(path), masks or config.masks(len(inputs))
        settled(path).mkdir(exist_ok=True)
        folder.write_text("run.toml", configs.to_toml(config))
        told = [replace(line, rows=None, sha256=None) for line in inputs] if privacy else list(inputs)
        manifest = Manifest(
            cofactor=metadata.version("cofactor"),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            seed=config.seed,
            method=config.method,
            masks=masks,
            rank=config.rank,
            config=json.loads(json.dumps(asdict(config))),
            versions=made_by.versions(),
            inputs=told,
            privacy=privacy,
            keys={name: party.public for name, party in keys.items()} if keys else None,
        )
        if keys:
            writing.begin(path, keys)
        folder.write_json("manifest.json", _without_none(asdict(manifest)))
        return folder

    @classmethod
    def free(cls, path: Path) -> RunFolder:
        """Refuse a place where a run, or a file, is already."""
        folder = cls(path)
        if folder.manifest_file.exists():
            raise CofactorError(f"{path}: already holds a run; choose another --out, or {resuming(path)}.")
        if path.exists() and not path.is_dir():
            raise CofactorError(f"{path}: expected a folder to write to, found a file.")
        return folder

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder alone, by a lock beside it."""
        path = settled(self.path)
        if not path.name:
            raise CofactorError(f"{self.path}: expected a folder to write to, found the root of all.")
        with held(path.with_name(f"{path.name}.lock"), f"the run {self.path}"):
            yield

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open an existing run."""
        folder = cls(path)
        if not folder.manifest_file.exists():
            raise CofactorError(f"{path}: expected a run folder (with manifest.json), found none.")
        return folder

    @property
    def manifest_file(self) -> Path:
        """The file that makes a folder a run."""
        return self.path / "manifest.json"

    @property
    def finished(self) -> bool:
        """Whether the run has ended: its evaluation is written last."""
        return (self.path / "evaluation.json").exists()

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint of every round."""
        return Checkpoint(self.path / "checkpoint.npz")

    @property
    def ledger_file(self) -> Path:
        """What left the clients."""
        return self.path / ledger.FILE

    def manifest(self) -> dict[str, Any]:
        """Read the manifest as it is, for what hashes it."""
        return json.loads(self.manifest_file.read_text(encoding="utf-8"))

    def manifest_record(self) -> Manifest:
        """Read the manifest."""
        return records.load(Manifest, self.manifest_file)

    def evaluation(self) -> Evaluation:
        """Read what came out of a finished run."""
        if not self.finished:
            raise CofactorError(
                f"{self.path}: expected a finished run, found one that is not; {resuming(self.path)} ends it."
            )
        return records.load(Evaluation, self.path / "evaluation.json")

    def config(self) -> Config:
        """Read the configuration that reproduces the run."""
        return configs.read(self.path / "run.toml")

    def write_json(self, name: str, value: Any) -> None:
        """Write a record as JSON; NaN becomes null."""
        self.write_text(name, as_json(value, indent=1))

    def write_text(self, name: str, text: str) -> None:
        """Write a text file."""
        write(self.path / name, lambda file: file.write(text.encode()))

    def rewind(self, rounds: int, *, private: bool = False) -> None:
        """Forget what history and ledger say about rounds that the checkpoint does not hold.

        The ledger of a private run forgets nothing.
        """
        names = ("history.jsonl",) if private else ("history.jsonl", ledger.FILE)
        for file in (self.path / name for name in names if (self.path / name).exists()):
            kept = [line for line in lines_of(file) if (t := _round(line)) is not None and t < rounds]
            self.write_text(file.name, "".join(f"{line}\n" for line in kept))

    def withdraw(self) -> None:
        """Take back a run in which nothing has left a client, such as one whose engine cannot be reached."""
        books = [Book(self.path / name) for name in (ledger.FILE, ledger.CHARGES)]
        if any(book.text() for book in books):
            return
        own = [self.path / name for name in ("manifest.json", "run.toml", "history.jsonl")]
        own += [file for book in books for file in (book.path, book.seal)]
        clients = [
            file
            for name in ("input.json", KEY, KEY.replace(".key", ".pub"))
            for file in self.path.glob(f"clients/*/{name}")
        ]
        for file in (*own, *clients):
            file.unlink(missing_ok=True)
        for folder in (*self.path.glob("clients/*"), self.path / "clients", self.path):
            with suppress(OSError):  # not empty: somebody else's
                folder.rmdir()

    def write_history(self, history: Sequence[Round]) -> None:
        """Write the whole history, those lines too that a crash kept from it."""
        self.write_text("history.jsonl", "".join(as_json(Line(**line._asdict())) for line in history))

    def log_round(self, line: Round) -> None:
        """Add one line to the history."""
        add(self.path / "history.jsonl", as_json(Line(**line._asdict())))

    def log_messages(self, names: Sequence[str]) -> Writer:
        """Return the watcher that writes down what left each client."""
        return Writer(self.ledger_file, self.manifest(), names)

    def books(self) -> dict[str, Signed]:
        """Return what a private run writes into: its ledger and its charges."""
        run = ledger.header(self.manifest())
        return {name: Signed(Book(self.path / name), run) for name in (ledger.FILE, ledger.CHARGES)}

    def charged(self) -> list[Costs]:
        """Return what was charged in a private run, by round; a ledger that does not hold is refused."""
        self.verify().require(self.path)
        return [*ledger.charged(ledger.read(self.path / ledger.CHARGES, ledger.CHARGES))]

    def verify(self) -> ledger.Check:
        """Check the ledger against the manifest, the history and the keys of clients that are here."""
        manifest = self.manifest()
        rounds = [t for t in map(_round, lines_of(self.path / "history.jsonl")) if t is not None]
        here = {name: self.client(name) for name in manifest.get("keys") or {}}
        own = {name: client.key().public for name, client in here.items() if client.key_file.exists()}
        over = [name for name in OVER if (self.path / name).exists()]
        said = (self.path / "run.toml").exists() and self.config().epsilon is not None  # not of what a run was before
        found = ledger.verify(self.path, manifest, rounds, own, private=said, over=over)
        return replace(found, faults=untrue(self.path, manifest)) if found.ok and found.keys else found

    def ends(self) -> dict[str, Any]:
        """Return where every client's chain ends."""
        ends = {"clients": ledger.ends(self.ledger_file)}
        if self.manifest().get("keys"):
            ends["charges"] = ledger.ends(self.path / ledger.CHARGES, ledger.CHARGES)
        return ends

    def seal(self, ends: Mapping[str, Any]) -> None:
        """Keep where every chain ends, once the run is over: lines that are missing later will show."""
        manifest = self.manifest()
        self.write_json("manifest.json", {**manifest, "ledger": ends})
        for name in (ledger.FILE, ledger.CHARGES) if manifest.get("keys") else ():
            Book(self.path / name).seal.unlink(missing_ok=True)

    def write_factor(
        self,
        H: Array,
        feature_names: list[str] | None,
        *,
        image_shape: tuple[int, int] | None = None,
        rows: Sequence[str] | None = None,
        more: Mapping[str, Array] | None = None,
    ) -> None:
        """Write the factor as npz (with ``more`` arrays) and as a table of features by components, or by ``rows``."""
        names = feature_names or [f"feature{i}" for i in range(H.shape[1])]
        arrays = {**(more or {}), "factor": H, "feature_names": np.array(names)}
        if image_shape:
            arrays["image_shape"] = np.array(image_shape)
        write(self.path / "factor.npz", lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]
        head = ("feature", *(rows or (f"component{i}" for i in range(len(H)))))
        lines = ((name, *map(float, column)) for name, column in zip(names, H.T, strict=True))
        self.write_text("factor.tsv", tsv([head, *lines]))

    def write_preparation(self, arrays: Mapping[str, Array]) -> None:
        """Write what the steps before the fit have learned, so that they can be repeated."""
        write(self.path / "preparation.npz", lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]

    def preparation(self) -> dict[str, Array]:
        """Read it; nothing where there are no steps."""
        file = self.path / "preparation.npz"
        if not file.exists():
            return {}
        with undamaged(file), np.load(file) as arrays:
            return dict(arrays)

    def public(self) -> dict[str, Array]:
        """Read all arrays of the factor's file: what everybody may have of a finished run."""
        return factor_file.read(self.factor_file)

    @property
    def factor_file(self) -> Path:
        """The file of the factor, which a run has once it has ended."""
        file = self.path / "factor.npz"
        if not file.exists():
            raise CofactorError(f"{file}: expected the factor of a finished run; {resuming(self.path)} ends it.")
        return file

    def factor(self) -> tuple[Array, list[str]]:
        """Read (H, feature names)."""
        public = self.public()
        return public["factor"], [str(name) for name in public["feature_names"]]

    def client(self, name: str) -> ClientFolder:
        """Return a client's own folder: what is in it never leaves the client, wherever that works."""
        return ClientFolder(self.path.resolve() / "clients" / file_name(name))

    def inputs(self) -> list[Input]:
        """Return the clients' data as they were described; in a private run rows and hashes are the clients' own."""
        return [replace(line, **self.client(line.client).input()) for line in self.manifest_record().inputs]


def _without_none(manifest: dict[str, Any]) -> dict[str, Any]:
    """Leave out what was not said, of the inputs too."""
    kept = {name: value for name, value in manifest.items() if value is not None}
    return {**kept, "inputs": [{n: v for n, v in line.items() if v is not None} for line in manifest["inputs"]]}


def _round(line: str) -> int | None:
    """Return the round of a line; None for one that was cut off by a crash, or is no such line."""
    try:
        return int(json.loads(line)["round"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
