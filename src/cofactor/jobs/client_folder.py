"""The part of a run folder that belongs to one client alone, and how files of a run are written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

import numpy as np

from cofactor import records
from cofactor.files import atomic, undamaged
from cofactor.privacy import signing
from cofactor.privacy.signing import Key
from cofactor.types import Array, CofactorError

KEY = "ledger.key"


@dataclass(frozen=True)
class ClientFolder:
    """What belongs to one client alone: codes, pictures, and of a private run its key, errors, rows and hash."""

    path: Path

    @property
    def key_file(self) -> Path:
        """The key that signs the client's lines in the ledger of a private run."""
        return self.path / KEY

    def key(self) -> Key:
        """Read the client's key, or make one where there is none yet."""
        return signing.load(self.key_file) if self.key_file.exists() else signing.make(self.key_file)

    def write_json(self, name: str, value: Any) -> None:
        """Write a record as JSON."""
        write(self.path / name, lambda file: file.write(as_json(value, indent=1).encode()))

    def write_codes(self, W: Array, rows: Sequence[str] | None = None) -> None:
        """Write the client's codes, and the names of their rows, one on each line: a name of several becomes one."""
        write(self.path / "codes.npy", lambda file: np.save(file, W))
        if rows is not None:
            lines = "".join(re.sub("[\r\n]+", " ", str(name)) + "\n" for name in rows)
            write(self.path / "rows.txt", lambda file: file.write(lines.encode()))

    def row_names(self) -> list[str]:
        """Return the names of the rows of the codes; none where they have no names."""
        file = self.path / "rows.txt"
        return file.read_text(encoding="utf-8").split("\n")[:-1] if file.exists() else []

    def write_own(self, V: Array) -> None:
        """Write what the client adds to the factor for itself (k x m)."""
        write(self.path / "own.npy", lambda file: np.save(file, V))

    def own(self) -> Array:
        """Read what the client adds to the factor for itself, or say where it would be."""
        file = self.path / "own.npy"
        if not file.exists():
            raise CofactorError(
                f"--client: expected the own part of a client of this run in {file}, found none; it stays on the "
                "client's machine: transform its rows there."
            )
        with undamaged(file):
            return np.load(file)

    def write_pictures(self, panels: Mapping[str, Array]) -> None:
        """Write small pictures of the client's data."""
        write(self.path / "view.npz", lambda file: np.savez(file, **panels))  # type: ignore[arg-type]

    def input(self) -> dict[str, Any]:
        """Read rows and hash of a private run's data; nothing where they are in the manifest."""
        file = self.path / "input.json"
        return records.read_json(file) if file.exists() else {}


def as_json(value: Any, indent: int | None = None) -> str:
    """Return a record as text; NaN becomes null."""
    return json.dumps(records.plain(value), indent=indent) + "\n"


def write(path: Path, save: Callable[[BinaryIO], Any]) -> None:
    """Write a file as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic(path) as file:
        save(file)


def file_name(name: str) -> str:
    """Return a name for a folder, another one for every client: what file systems may mind is written in percents.

    >>> file_name("h 1"), file_name("h_1"), file_name("A/B"), file_name("..")
    ('h%201', 'h_1', 'A%2FB', '%2E%2E')
    """
    quoted = quote(name, safe="")
    return quoted.replace(".", "%2E") if not quoted.strip(".") else quoted
