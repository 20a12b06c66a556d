"""The stream over MPI: near the simulated one, with clients that fall silent, fail or are too many."""

from __future__ import annotations

import json
import sys
import time
import warnings
from dataclasses import dataclass

from cofactor import metrics
from cofactor.data import synthetic
from cofactor.engines.loop import run_stream
from cofactor.engines.mpi import Mpi
from cofactor.engines.speeds import Fixed
from cofactor.methods import catalog
from cofactor.methods.averaged import Averaged

RANK, UPDATES, SEEDS = 4, 150, 5  # a seed may end in another local minimum; the best of several does not
engine = Mpi()
team = engine.team
LAST = team.count - 1
Xs = synthetic.blocks(team.count, [200, 40, 50, 60][: team.count], features=40, rank=RANK, seed=5).Xs
mine = Xs[team.here : team.here + 1]


@dataclass(frozen=True)
class Sleepy(Averaged):
    """Its last client takes seconds over its third step."""

    def step(self, data, shared, local, t, rng):
        if t == 2 and team.here == LAST:
            time.sleep(2.0)
        return super().step(data, shared, local, t, rng)


@dataclass(frozen=True)
class Broken(Averaged):
    """Its last client fails in its third step."""

    def step(self, data, shared, local, t, rng):
        if t == 2 and team.here == LAST:
            raise MemoryError("no room for the codes")
        return super().step(data, shared, local, t, rng)


def told(method, Xs, **plan) -> str:
    """Return the text of the error, or 'done'."""
    try:
        run_stream(method, Xs, engine=engine, **plan)
    except ValueError as error:
        return str(error)
    return "done"


def described(Xs, result) -> dict:
    """Return what a stream led to, over all processes."""
    data, codes = ([x for part in team.exchange("described", own) for x in part] for own in (Xs, result.codes))
    return {
        "error": metrics.pooled_error(data, codes, result.factor),
        "staleness": [a.staleness for a in result.arrivals],
        "clients": [a.client for a in result.arrivals],
        "clock": [a.clock for a in result.arrivals],
        "bytes": sorted({(line.bytes_up, line.bytes_down) for line in result.history}),
        "absent": list(result.absent),
        "alike": len(set(team.exchange("alike", (result.factor.tobytes(), str(result.arrivals))))) == 1,
    }


def fail(line, shared):
    """Fail on process 0, as a full disk would."""
    if line.round == 5:
        raise OSError("no space left")


if __name__ == "__main__":
    found: dict[str, object] = {}
    for name in ("asyn-sd", "asyn-ssd-v"):
        method = catalog.make(name, RANK)
        plans = [{"updates": UPDATES, "seed": seed} for seed in range(SEEDS)]
        runs = [described(mine, run_stream(method, mine, engine=engine, **plan)) for plan in plans]
        there = [run_stream(method, Xs, **plan) for plan in plans]
        inline = min(metrics.pooled_error(Xs, result.codes, result.factor) for result in there)
        found[name] = {**min(runs, key=lambda line: line["error"]), "inline": inline}
    served = [] if team.first else mine
    found["server only"] = described(served, run_stream(method, served, updates=30, engine=engine))
    plain = catalog.make("asyn-sd", RANK)
    sleepy, broken = (kind(**plain.__dict__) for kind in (Sleepy, Broken))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = run_stream(sleepy, mine, updates=60, deadline=0.5, engine=engine)
    warned = [str(w.message) for w in caught]
    found["sleepy"] = {**described(mine, result), "warned": warned}
    found["errors"] = {
        "step": team.exchange("step", told(broken, mine)),
        "callback": team.exchange("callback", told(plain, mine, callbacks=[fail])),
        "two": team.exchange("two", told(plain, Xs[:2])),
        "speeds": team.exchange("speeds", told(plain, mine, speeds=Fixed((1.0,)))),
        "after": team.exchange("after", told(plain, mine, updates=5)),
    }
    if team.first:
        with open(sys.argv[1], "w") as file:
            json.dump(found, file)
