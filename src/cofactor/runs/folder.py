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
from cofactor.engines.rounds import Reply
from cofactor.runs import config as configs
from cofactor.runs.config import Config
from cofactor.types import Array, CofactorError, Shared

PACKAGES = ("cofactor", "numpy", "scipy", "scikit-learn", "numba")


@dataclass(frozen=True)
class RunFolder:
    """The files of one run."""

    path: Path

    @classmethod
    def create(cls, path: Path, config: Config, inputs: list[dict[str, Any]]) -> RunFolder:
        """Make the folder with its manifest and configuration; an existing run is never written over."""
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

    def rewind(self, rounds: int) -> None:
        """Forget what history and ledger say about rounds that the checkpoint does not hold."""
        for name in ("history.jsonl", "ledger.jsonl"):
            file = self.path / name
            lines = file.read_text().splitlines() if file.exists() else []
            kept = [line for line in lines if _is_before(line, rounds)]
            self.write_text(name, "".join(f"{line}\n" for line in kept))

    def log_round(self, line: Round, shared: Shared) -> None:
        """Add one line to the history (a callback of :func:`cofactor.run`)."""
        self._append("history.jsonl", [_plain(line._asdict())])

    def log_messages(self, names: Sequence[str]) -> Any:
        """Return the watcher that writes down what left each client."""

        def watch(t: int, replies: Sequence[Reply]) -> None:
            self._append("ledger.jsonl", [e for r in replies for e in _entries(names, t, r)])

        return watch

    def _append(self, name: str, entries: list[dict[str, Any]]) -> None:
        with open(self.path / name, "a") as file:
            file.writelines(json.dumps(entry) + "\n" for entry in entries)

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

    def write_codes(self, client: str, W: Array) -> None:
        """Write a client's codes into that client's own folder."""
        with atomic(self.client(client) / "codes.npy") as file:
            np.save(file, W)

    def write_view(self, client: str, panels: dict[str, Array]) -> None:
        """Write small pictures of a client's data into that client's own folder."""
        with atomic(self.client(client) / "view.npz") as file:
            np.savez(file, **panels)  # type: ignore[arg-type]


def _entries(names: Sequence[str], t: int, reply: Reply) -> list[dict[str, Any]]:
    """Return one line per client and array; a batch of tiny clients stands for one message each."""
    return [
        {
            "client": names[j],
            "round": t,
            "array": name,
            "shape": list(np.shape(a)),
            "dtype": str(np.asarray(a).dtype),
            "bytes": int(np.asarray(a).nbytes),
            "clip": None,
            "noise": None,
            "cost": None,
        }
        for j in reply.clients
        for name, a in reply.message.arrays.items()
    ]


def _is_before(line: str, rounds: int) -> bool:
    try:
        return int(json.loads(line)["round"]) < rounds
    except (ValueError, KeyError, TypeError):
        return False  # a line that was cut off by a crash


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
