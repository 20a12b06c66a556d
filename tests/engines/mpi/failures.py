"""What goes wrong on one process is told by all: writes the error that each process raised, case by case."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

import numpy as np

from cofactor import run
from cofactor.data import synthetic
from cofactor.engines.mpi import Mpi
from cofactor.methods import catalog
from cofactor.methods.blocks import Blocks, blocks
from cofactor.methods.summed import Summed
from cofactor.privacy import Privacy
from cofactor.types import ClientError

engine = Mpi()
team = engine.team
LAST = team.count - 1


@dataclass(frozen=True)
class Broken(Summed):
    """Fails at one process, in round 2."""

    def step(self, data, shared, local, t, rng):
        if t == 2 and team.here == LAST:
            raise MemoryError("no room for the codes")
        return super().step(data, shared, local, t, rng)


@dataclass(frozen=True)
class Infinite(Summed):
    """Sends what is no number at one process."""

    def step(self, data, shared, local, t, rng):
        local, message = super().step(data, shared, local, t, rng)
        if team.here == LAST:
            message.arrays["cross"][0, 0] = np.inf
        return local, message


def here(value, other):
    """Return a value on the last process and another one elsewhere."""
    return value if team.here == LAST else other


def fail(line, shared):
    """Fail at process 0, as a full disk would."""
    if team.first and line.round == 1:
        raise OSError("no space left")


def cases():
    """Yield (name, arguments, options)."""
    Xs = synthetic.blocks(team.count, 20, features=9, rank=3, seed=1).Xs
    mine, good = Xs[team.here : team.here + 1], catalog.make("exact", 3, start="random")
    hole = mine[0].copy()
    hole[4, 5] = np.nan
    yield "nan", (good, here([hole], mine)), {}
    private = catalog.make("dp-moments", 3, privacy=Privacy(1, 1e-6))
    yield "private", (private, here([hole], mine)), {"rounds": None}
    yield "step", (Broken(3), mine), {}
    yield "message", (Infinite(3), mine), {}
    yield "features", (good, here([mine[0][:, :8]], mine)), {}
    yield "empty", (good, here([], mine)), {}
    yield "callback", (good, mine), {"callbacks": [fail]}
    yield "disagree", (good, mine), {"callbacks": [lambda line, _: team.first]}
    yield "plan", (good, mine), {"rounds": 0}
    blocked, parts = catalog.make("hals", 3, shape=(60, 9), iterations=1), blocks(np.vstack(Xs), team.count)
    twice = [parts[0] if team.here == LAST else parts[team.here]]
    yield "ragged", (blocked, twice), {}
    short = Blocks(
        parts[LAST].row_block[:-1], parts[LAST].column_block, parts[LAST].first_row, parts[LAST].first_column
    )
    yield "short", (blocked, here([short], [parts[team.here]])), {}
    yield "fine", (good, mine), {}


def outcome(arguments, options) -> str:
    """Return the text of the error, or 'done'."""
    try:
        run(*arguments, **{"rounds": 4, "engine": engine, **options})
    except ValueError as error:
        return f"{isinstance(error, ClientError)} {error}"
    return "done"


if __name__ == "__main__":
    found = {name: team.exchange(name, outcome(arguments, options)) for name, arguments, options in cases()}
    if team.first:
        with open(sys.argv[1], "w") as file:
            json.dump(found, file)
