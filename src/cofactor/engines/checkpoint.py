"""Checkpoints: the whole state of a run after a round, in one file without pickle, written atomically."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import BadZipFile

import numpy as np

from cofactor.engines.history import Round
from cofactor.types import Array, CofactorError, Local, Shared


@dataclass(frozen=True)
class State:
    """Everything a run needs to go on after its last round: server, clients and history."""

    shared: Shared
    locals: list[Local]
    history: list[Round]


@dataclass(frozen=True)
class Checkpoint:
    """One file that :func:`cofactor.run` writes after every ``every`` rounds and, if it is there, starts from."""

    path: Path
    every: int = 1

    def due(self, t: int) -> bool:
        """Whether round t ends with a checkpoint."""
        return (t + 1) % self.every == 0

    def save(self, state: State) -> None:
        """Write the state; the old checkpoint stays until the new one is whole."""
        with atomic(self.path) as file:
            np.savez(file, **_flatten(state))

    def load(self) -> State | None:
        """Read the state, or None if nothing was saved yet."""
        if not self.path.exists():
            return None
        try:
            with np.load(self.path, allow_pickle=False) as file:
                return _restore({name: file[name] for name in file.files})
        except (ValueError, KeyError, OSError, EOFError, BadZipFile) as error:
            raise CofactorError(f"{self.path}: expected a checkpoint, found something unreadable: {error}") from error


@contextmanager
def atomic(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that takes its name only when it is complete and on disk."""
    part = path.with_name(path.name + ".part")
    try:
        with open(part, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _flatten(state: State) -> dict[str, Any]:
    shared = state.shared
    flat: dict[str, Any] = {"shared/factor": shared.factor, "history": json.dumps([r._asdict() for r in state.history])}
    flat["shared/numbers"] = np.array([shared.loss, shared.drift])
    flat |= {f"shared/extra/{n}": a for n, a in shared.extra.items()}
    flat |= {f"shared/memory/{n}": a for n, a in shared.memory.items()}
    for j, local in enumerate(state.locals):
        flat[f"local/{j}/codes"] = local.codes
        flat |= {f"local/{j}/memory/{n}": a for n, a in local.memory.items()}
    return flat


def _restore(flat: dict[str, Array]) -> State:
    def under(prefix: str) -> dict[str, Any]:
        return {name.removeprefix(prefix): a[()] for name, a in flat.items() if name.startswith(prefix)}

    loss, drift = flat["shared/numbers"].tolist()
    shared = Shared(flat["shared/factor"], under("shared/extra/"), under("shared/memory/"), loss, drift)
    count = sum(name.endswith("/codes") and name.startswith("local/") for name in flat)
    locals_ = [Local(flat[f"local/{j}/codes"], under(f"local/{j}/memory/")) for j in range(count)]
    return State(shared, locals_, [Round(**line) for line in json.loads(str(flat["history"]))])
