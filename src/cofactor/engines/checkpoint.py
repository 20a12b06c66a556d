"""Checkpoints: the whole state of a run after a round, in one file without pickle, written atomically."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cofactor.engines.history import Round
from cofactor.engines.team import ProcessError, Team
from cofactor.files import atomic, undamaged
from cofactor.types import Array, DataError, Local, Shared


@dataclass(frozen=True)
class State:
    """Everything a run needs to go on after its last round: server, clients and history."""

    shared: Shared
    locals: list[Local]
    history: list[Round]


@dataclass(frozen=True)
class Checkpoint:
    """What :func:`cofactor.run` writes after every ``every`` rounds and, if it is there, starts from.

    With a ``pause`` rounds that end less than so many seconds after the last one that was written are left out, but for
    the last of all: that much work may have to be done again. Several processes would not agree on it, and take none.
    A private run writes every round, whatever these say, and what it charges before every round.

    One process writes one file. Several write one each, ``checkpoint.0-of-4.npz``, and keep the one before it: they may
    be killed when some have written a round and others have not, and go on after the last round that all of them hold.
    """

    path: Path
    every: int = 1
    pause: float = 0.0

    @property
    def charges(self) -> Path:
        """Where a private run from Python writes what it is charged."""
        return self.path.with_name(f"{self.path.stem}.charges.jsonl")

    def due(self, t: int, since: float) -> bool:
        """Whether round t ends with a checkpoint, so many seconds after the last one."""
        return (t + 1) % self.every == 0 and since >= self.pause

    def rounds(self) -> int | None:
        """Return how many rounds the file of one process holds; None where there is none."""
        if not self.path.exists():
            return None
        with np.load(self.path, allow_pickle=False) as file:
            return len(json.loads(str(file["history"])))

    def save(self, state: State, team: Team) -> None:
        """Write the state of this process; the old checkpoint stays until the new one is whole."""
        file, previous = self._files(team)
        if previous and file.exists():
            os.replace(file, previous)
        with atomic(file) as stream:
            np.savez(stream, **_flatten(state))

    def load(self, team: Team) -> State | None:
        """Read this process's state after the last round that all processes hold, or None if there is none."""
        with team.guard("the checkpoint"):
            self._check_count(team)
            states = self.held(team)
        rounds = team.exchange("the checkpoint", set(states))
        common = set.intersection(*rounds)
        if not common and max(map(len, rounds)) > 1:  # the first checkpoint may be missing, a later one may not
            lost = min(range(len(rounds)), key=lambda process: len(rounds[process]))
            raise ProcessError(f"process {lost}: {self.path}: expected the checkpoint of this process, found none.")
        return states[max(common)] if common else None

    def held(self, team: Team) -> dict[int, State]:
        """Read what this process holds, by the number of rounds that were run."""
        saved = [_read(file) for file in self._files(team) if file]
        return {len(state.history): state for state in saved if state}

    def remove(self) -> None:
        """Delete all files of this checkpoint."""
        for file in (self.path, *self.path.parent.glob(self._named("*-of-*").name)):
            file.unlink(missing_ok=True)

    def _files(self, team: Team) -> tuple[Path, Path | None]:
        """Return this process's file and the one of the checkpoint before it."""
        if team.count == 1:
            return self.path, None
        name = f"{team.here}-of-{team.count}"
        return self._named(name), self._named(f"{name}.previous")

    def _check_count(self, team: Team) -> None:
        """Refuse the checkpoint of another number of processes."""
        counts = {path.stem.rsplit("-", 1)[-1] for path in self.path.parent.glob(self._named("*-of-*").name)}
        counts = {count.removesuffix(".previous") for count in counts} | ({"1"} if self.path.exists() else set())
        if counts and str(team.count) not in counts:
            raise DataError(
                f"{self.path}: expected the {' or '.join(sorted(counts))} processes that wrote the checkpoint, found "
                f"{team.count}; start as many."
            )

    def _named(self, what: str) -> Path:
        return self.path.with_name(f"{self.path.stem}.{what}{self.path.suffix}")


def _read(path: Path) -> State | None:
    if not path.exists():
        return None
    with undamaged(path, "a checkpoint"), np.load(path, allow_pickle=False) as file:
        return _restore({name: file[name] for name in file.files})


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
