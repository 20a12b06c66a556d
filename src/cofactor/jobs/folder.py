"""A run is a folder: manifest, history, ledger, factor, codes, checkpoint. Every file is written atomically."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

import numpy as np

from cofactor import records
from cofactor.assurance import ledger
from cofactor.engines.checkpoint import Checkpoint
from cofactor.engines.history import Round
from cofactor.files import atomic
from cofactor.jobs import config as configs
from cofactor.jobs.config import Config
from cofactor.records import Evaluation, Input, Line, Manifest, PrivacyRecord
from cofactor.types import Array, CofactorError

PACKAGES = ("cofactor", "numpy", "scipy", "scikit-learn", "numba")


@dataclass(frozen=True)
class RunFolder:
    """The files of one run."""

    path: Path

    @classmethod
    def create(
        cls, path: Path, config: Config, inputs: Sequence[Input], *, privacy: PrivacyRecord | None = None
    ) -> RunFolder:
        """Make the folder with its manifest and configuration; an existing run is never written over.

        ``privacy`` is what a private run will cost in all; rows and hashes of its data stay with the clients.
        """
        folder = cls(path)
        if folder.manifest_file.exists():
            raise CofactorError(f"{path}: already holds a run; choose another --out, or `cofactor resume {path}`.")
        if path.exists() and not path.is_dir():
            raise CofactorError(f"{path}: expected a folder to write to, found a file.")
        path.mkdir(parents=True, exist_ok=True)
        folder.write_text("run.toml", configs.to_toml(config))
        told = [replace(line, rows=None, sha256=None) for line in inputs] if privacy else list(inputs)
        manifest = Manifest(
            cofactor=metadata.version("cofactor"),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            seed=config.seed,
            method=config.method,
            masks=config.masks(len(inputs)),
            rank=config.rank,
            config=json.loads(json.dumps(asdict(config))),
            versions={"python": platform.python_version(), **{p: metadata.version(p) for p in PACKAGES}},
            inputs=told,
            privacy=privacy,
        )
        folder.write_json("manifest.json", _without_none(asdict(manifest)))
        return folder

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
        return json.loads(self.manifest_file.read_text())

    def manifest_record(self) -> Manifest:
        """Read the manifest."""
        return records.load(Manifest, self.manifest_file)

    def evaluation(self) -> Evaluation:
        """Read what came out of a finished run."""
        if not self.finished:
            raise CofactorError(
                f"{self.path}: expected a finished run, found one that is not; `cofactor resume {self.path}` ends it."
            )
        return records.load(Evaluation, self.path / "evaluation.json")

    def config(self) -> Config:
        """Read the configuration that reproduces the run."""
        return configs.read(self.path / "run.toml")

    def write_json(self, name: str, value: Any) -> None:
        """Write a record as JSON; NaN becomes null."""
        self.write_text(name, _json(value, indent=1))

    def write_text(self, name: str, text: str) -> None:
        """Write a text file."""
        _write(self.path / name, lambda file: file.write(text.encode()))

    def rewind(self, rounds: int, *, private: bool = False) -> None:
        """Forget what history and ledger say about rounds that the checkpoint does not hold.

        A private release cannot be forgotten: where the ledger holds one of a later round, this refuses to go on.
        """
        if private:
            ledger.unreleased(self.ledger_file, rounds)
        for name in ("history.jsonl", ledger.FILE):
            file = self.path / name
            lines = file.read_text().splitlines() if file.exists() else []
            kept = [line for line in lines if _is_before(line, rounds)]
            self.write_text(name, "".join(f"{line}\n" for line in kept))

    def withdraw(self) -> None:
        """Take back a run in which nothing has left a client, such as one whose engine cannot be reached."""
        if self.ledger_file.exists() and self.ledger_file.read_bytes():
            return
        own = [self.path / name for name in ("manifest.json", "run.toml", "history.jsonl", ledger.FILE)]
        for file in (*own, *self.path.glob("clients/*/input.json")):
            file.unlink(missing_ok=True)
        for folder in (*self.path.glob("clients/*"), self.path / "clients", self.path):
            with suppress(OSError):  # not empty: somebody else's
                folder.rmdir()

    def log_round(self, line: Round) -> None:
        """Add one line to the history."""
        with open(self.path / "history.jsonl", "a") as file:
            file.write(_json(Line(**line._asdict())))

    def log_messages(self, names: Sequence[str]) -> ledger.Writer:
        """Return the watcher that writes down what left each client."""
        return ledger.Writer(self.ledger_file, self.manifest(), names)

    def verify(self) -> ledger.Check:
        """Check the ledger against the manifest and the history."""
        file = self.path / "history.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        rounds = [t for t in map(_round, lines) if t is not None]
        return ledger.verify(self.ledger_file, self.manifest(), rounds)

    def seal(self) -> None:
        """Keep where every client's chain ends, once the run is over: lines that are missing later will show."""
        manifest = self.manifest()
        chains = ledger.verify(self.ledger_file, manifest).chains
        clients = {c.client: [c.entries, c.last] for c in chains}
        self.write_json("manifest.json", {**manifest, "ledger": {"clients": clients}})

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
        _write(self.path / "factor.npz", lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]
        head = "\t".join(["feature", *(rows or (f"component{i}" for i in range(len(H))))])
        lines = ("\t".join([name, *(repr(float(v)) for v in column)]) for name, column in zip(names, H.T, strict=True))
        self.write_text("factor.tsv", "\n".join([head, *lines]) + "\n")

    def factor(self) -> tuple[Array, list[str]]:
        """Read (H, feature names)."""
        file = self.path / "factor.npz"
        if not file.exists():
            raise CofactorError(
                f"{file}: expected the factor of a finished run; `cofactor resume {self.path}` ends it."
            )
        with np.load(file) as arrays:
            return arrays["factor"], [str(n) for n in arrays["feature_names"]]

    def client(self, name: str) -> ClientFolder:
        """Return a client's own folder: what is in it never leaves the client, wherever that works."""
        return ClientFolder(self.path.resolve() / "clients" / _file_name(name))

    def inputs(self) -> list[Input]:
        """Return the clients' data as they were described; in a private run rows and hashes are the clients' own."""
        return [replace(line, **self.client(line.client).input()) for line in self.manifest_record().inputs]


@dataclass(frozen=True)
class ClientFolder:
    """What belongs to one client alone: codes, pictures, and of a private run its own errors, rows and hash."""

    path: Path

    def write_json(self, name: str, value: Any) -> None:
        """Write a record as JSON."""
        _write(self.path / name, lambda file: file.write(_json(value, indent=1).encode()))

    def write_codes(self, W: Array) -> None:
        """Write the client's codes."""
        _write(self.path / "codes.npy", lambda file: np.save(file, W))

    def write_own(self, V: Array) -> None:
        """Write what the client adds to the factor for itself (k x m)."""
        _write(self.path / "own.npy", lambda file: np.save(file, V))

    def write_pictures(self, panels: Mapping[str, Array]) -> None:
        """Write small pictures of the client's data."""
        _write(self.path / "view.npz", lambda file: np.savez(file, **panels))  # type: ignore[arg-type]

    def input(self) -> dict[str, Any]:
        """Read rows and hash of a private run's data; nothing where they are in the manifest."""
        file = self.path / "input.json"
        return records.read_json(file) if file.exists() else {}


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(records.plain(value), indent=indent) + "\n"


def _write(path: Path, save: Callable[[BinaryIO], Any]) -> None:
    """Write a file as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic(path) as file:
        save(file)


def _file_name(name: str) -> str:
    """Return a name for a folder, another one for every client: what file systems may mind is written in percents.

    >>> _file_name("h 1"), _file_name("h_1"), _file_name("A/B"), _file_name("..")
    ('h%201', 'h_1', 'A%2FB', '%2E%2E')
    """
    quoted = quote(name, safe="")
    return quoted.replace(".", "%2E") if not quoted.strip(".") else quoted


def _without_none(manifest: dict[str, Any]) -> dict[str, Any]:
    """Leave out what was not said, of the inputs too."""
    kept = {name: value for name, value in manifest.items() if value is not None}
    return {**kept, "inputs": [{n: v for n, v in line.items() if v is not None} for line in manifest["inputs"]]}


def _is_before(line: str, rounds: int) -> bool:
    t = _round(line)
    return t is not None and t < rounds


def _round(line: str) -> int | None:
    """Return the round of a line; None for one that was cut off by a crash."""
    try:
        return int(json.loads(line)["round"])
    except (ValueError, KeyError, TypeError):
        return None
