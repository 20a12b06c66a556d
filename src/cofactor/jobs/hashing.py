"""By what a run knows its data again: the hashes of their files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from cofactor.data.formats.failing import state_of
from cofactor.jobs.config import Config
from cofactor.jobs.folder import RunFolder
from cofactor.jobs.place import Place
from cofactor.jobs.reading import Inputs
from cofactor.types import CofactorError


def check_data(folder: RunFolder, found: Mapping[str, str]) -> None:
    """Refuse to go on with other data than those that a run began with; ``found`` are the hashes of its files."""
    before = {line.path: line.sha256 for line in folder.inputs()}
    for path, digest in found.items():
        if before.get(path) != digest:
            raise CofactorError(f"{path}: expected the data that the run began with, found other contents.")


def hashes(config: Config, inputs: Inputs, place: Place) -> dict[str, str]:
    """Return the SHA-256 of every file, which process 0 reads; with noise or masks only of those of the clients here.

    The plain hash of a file tells whoever guesses its contents that the guess is right, so it stays with its client.
    """
    if config.apart:
        return {path: _of_what_was_read(path, inputs) for path in dict.fromkeys(inputs.sources)}
    every = dict.fromkeys(config.inputs)
    return place.alone("the hashes", lambda: {path: _of_what_was_read(path, inputs) for path in every})


def _of_what_was_read(path: str, inputs: Inputs) -> str:
    """Return the hash of a file, or refuse one that was written to since: the hash would be that of other data."""
    digest = sha256(Path(path))
    if state_of(Path(path)) != inputs.states[path]:
        raise CofactorError(
            f"{path}: expected the file as it was before it was read, found that it has changed since: the run "
            "would be of other data than its records say. Start again when nobody writes to it."
        )
    return digest


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, or of all files of a folder in the order of their names, each after its name.

    Blocks of rows are known by the names of their files: contents alone would be those of rows in other places, too.
    """
    digest = hashlib.sha256()
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    for file in files:
        if file is not path:
            digest.update(json.dumps([file.relative_to(path).as_posix(), file.stat().st_size]).encode())
        with open(file, "rb") as stream:
            while chunk := stream.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()
