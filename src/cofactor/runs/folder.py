"""A run is a folder: manifest, history, ledger, factor, codes, checkpoint. Every file is written atomically."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from cofactor.engines.checkpoint import Checkpoint, atomic
from cofactor.engines.history import Round
from cofactor.runs import config as configs
from cofactor.runs import ledger
from cofactor.runs.config import Config
from cofactor.types import Array, CofactorError, Shared

PACKAGES = ("cofactor", "numpy", "scipy", "scikit-learn", "numba")


@dataclass(frozen=True)
class RunFolder:
    """The files of one run."""

    path: Path

    @classmethod
    def create(
        cls, path: Path, config: Config, inputs: list[dict[str, Any]], *, privacy: dict[str, Any] | None = None
    ) -> RunFolder:
        """Make the folder with its manifest and configuration; an existing run is never written over.

        ``privacy`` is what a private run will cost in all.
        """
        folder = cls(path)
        if folder.manifest_file.exists():
            raise CofactorError(f"{path}: already holds a run; choose another --out, or `cofactor resume {path}`.")
        if path.exists() and not path.is_dir():
            raise CofactorError(f"{path}: expected a folder to write to, found a file.")
        path.mkdir(parents=True, exist_ok=True)
        folder.write_text("run.toml", configs.to_toml(config))
        manifest = {
            "cofactor": metadata.version("cofactor"),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "seed": config.seed,
            "method": config.method,
            "rank": config.rank,
            "config": json.loads(json.dumps(config.__dict__)),
            "versions": {"python": platform.python_version(), **{p: metadata.version(p) for p in PACKAGES}},
            "inputs": inputs,
            **({"privacy": privacy} if privacy else {}),
        }
        folder.write_json("manifest.json", manifest)
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
    def checkpoint(self) -> Checkpoint:
        """The checkpoint of every round."""
        return Checkpoint(self.path / "checkpoint.npz")

    def manifest(self) -> dict[str, Any]:
        """Read the manifest."""
        return self.read_json("manifest.json")

    def config(self) -> Config:
        """Read the configuration that reproduces the run."""
        return configs.read(self.path / "run.toml")

    def read_json(self, name: str) -> Any:
        """Read a JSON file of the run."""
        try:
            return json.loads((self.path / name).read_text())
        except (OSError, ValueError) as error:
            raise CofactorError(f"{self.path / name}: expected JSON, found: {error}.") from error

    def write_json(self, name: str, value: Any) -> None:
        """Write a JSON file; NaN becomes null."""
        self.write_text(name, json.dumps(_plain(value), indent=1) + "\n")

    def write_text(self, name: str, text: str) -> None:
        """Write a text file."""
        with atomic(self.path / name) as file:
            file.write(text.encode())

    def rewind(self, rounds: int, *, private: bool = False) -> None:
        """Forget what history and ledger say about rounds that the checkpoint does not hold.

        A private release cannot be forgotten: where the ledger holds one of a later round, this refuses to go on.
        """
        if private:
            ledger.unreleased(self.path / ledger.FILE, rounds)
        for name in ("history.jsonl", ledger.FILE):
            file = self.path / name
            lines = file.read_text().splitlines() if file.exists() else []
            kept = [line for line in lines if _is_before(line, rounds)]
            self.write_text(name, "".join(f"{line}\n" for line in kept))

    def log_round(self, line: Round, shared: Shared) -> None:
        """Add one line to the history (a callback of :func:`cofactor.run`)."""
        with open(self.path / "history.jsonl", "a") as file:
            file.write(json.dumps(_plain(line._asdict())) + "\n")

    def log_messages(self, names: Sequence[str]) -> ledger.Writer:
        """Return the watcher that writes down what left each client."""
        return ledger.Writer(self.path / ledger.FILE, self.manifest(), names)

    def verify(self) -> ledger.Check:
        """Check the ledger against the manifest and the history."""
        file = self.path / "history.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        rounds = [t for t in map(_round, lines) if t is not None]
        return ledger.verify(self.path / ledger.FILE, self.manifest(), rounds)

    def seal(self) -> None:
        """Keep where every client's chain ends, once the run is over: lines that are missing later will show."""
        manifest = self.manifest()
        chains = ledger.verify(self.path / ledger.FILE, manifest).chains
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
        with atomic(self.path / "factor.npz") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
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

    def client(self, name: str) -> Path:
        """Return a client's own folder: what is in it never leaves the client."""
        folder = self.path / "clients" / re.sub(r"[^\w.-]", "_", name)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def own_file(self, client: str, name: str) -> Path:
        """Return a file in a client's own folder."""
        return self.client(client) / name

    def write_own(self, client: str, name: str, value: Any) -> None:
        """Write a JSON file into a client's own folder."""
        with atomic(self.own_file(client, name)) as file:
            file.write((json.dumps(_plain(value), indent=1) + "\n").encode())

    def inputs(self) -> list[dict[str, Any]]:
        """Return the clients' data as they were described; in a private run rows and hashes are the clients' own."""
        return [{**line, **self._own_input(line["client"])} for line in self.manifest()["inputs"]]

    def _own_input(self, client: str) -> dict[str, Any]:
        file = self.own_file(client, "input.json")
        return json.loads(file.read_text()) if file.exists() else {}

    def write_codes(self, client: str, W: Array) -> None:
        """Write a client's codes into that client's own folder."""
        with atomic(self.client(client) / "codes.npy") as file:
            np.save(file, W)

    def write_view(self, client: str, panels: dict[str, Array]) -> None:
        """Write small pictures of a client's data into that client's own folder."""
        with atomic(self.client(client) / "view.npz") as file:
            np.savez(file, **panels)  # type: ignore[arg-type]


def _is_before(line: str, rounds: int) -> bool:
    t = _round(line)
    return t is not None and t < rounds


def _round(line: str) -> int | None:
    """Return the round of a line; None for one that was cut off by a crash."""
    try:
        return int(json.loads(line)["round"])
    except (ValueError, KeyError, TypeError):
        return None


def _plain(value: Any) -> Any:
    """Make numbers JSON can hold: NaN and infinities become null."""
    if isinstance(value, dict):
        return {name: _plain(v) for name, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value
