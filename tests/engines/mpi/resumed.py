"""Runs with checkpoints: cut in two, with a round that one process lost, or killed on the way."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from cofactor import run
from cofactor.data import synthetic
from cofactor.engines.checkpoint import Checkpoint
from cofactor.engines.mpi import Mpi
from cofactor.methods import catalog

ROUNDS, KILL_AT = 8, 4
engine = Mpi()
team = engine.team
folder = Path(sys.argv[1])
Xs = synthetic.blocks(6, [25, 3, 30, 2, 40, 5], features=15, rank=4, seed=3).Xs
mine = [Xs[j] for j in np.array_split(np.arange(len(Xs)), team.count)[team.here]]


def go(name: str, rounds: int, file: str | None, **plan):
    """Run a method on this process's clients."""
    checkpoint = Checkpoint(folder / file) if file else None
    plan = {"engine": engine, **plan}
    return run(catalog.make(name, 4), mine, rounds=rounds, seed=1, checkpoint=checkpoint, **plan)


def same(a, b) -> bool:
    """Whether two runs are the same bit for bit on all processes."""
    alike = np.array_equal(a.factor, b.factor) and [r.loss for r in a.history] == [r.loss for r in b.history]
    alike = alike and all(np.array_equal(V, W) for V, W in zip(a.codes, b.codes, strict=True))
    return all(team.exchange("same", bool(alike)))


def cut() -> dict[str, bool]:
    """Return which methods end like the whole run after a cut; at the second cut process 0 is a round ahead."""
    found = {}
    for name, share in (("exact", 1.0), ("exact", 0.5), ("fnmf-lap", 1.0)):
        file = f"{name}-{share}.npz"
        whole = go(name, ROUNDS, None, participation=share)
        go(name, 3, file, participation=share)
        go(name, 5, file, participation=share)
        if not team.first:
            own = folder / f"{name}-{share}.{team.here}-of-{team.count}.npz"
            os.replace(own.with_suffix(".previous.npz"), own)
        found[f"{name} {share}"] = same(whole, go(name, ROUNDS, file, participation=share))
    return found


def kill(line, shared):
    """Kill the last process after a round."""
    if line.round == KILL_AT and team.here == team.count - 1:
        os.kill(os.getpid(), signal.SIGKILL)


def resumed() -> dict[str, object]:
    """Return whether the killed run ends like one that nothing happened to, and what one process alone is told."""
    told, rounds = "", []
    try:
        go("exact", ROUNDS, "killed.npz", engine=Mpi(comm=MPI.COMM_SELF))
    except ValueError as error:
        told = str(error)
    ended = go("exact", ROUNDS, "killed.npz", callbacks=[lambda line, _: rounds.append(line.round)])
    return {"same": same(ended, go("exact", ROUNDS, None)), "first": rounds[0], "told": told}


if __name__ == "__main__":
    what = sys.argv[2]
    result = cut() if what == "cut" else resumed()
    if team.first:
        (folder / f"{what}.json").write_text(json.dumps(result))
    if what == "cut":
        go("exact", ROUNDS, "killed.npz", callbacks=[kill])
