"""Every method on several processes, next to the inline engine: writes by how much they differ."""

from __future__ import annotations

import json
import sys

import numpy as np
from scipy import sparse

from cofactor import Privacy, run
from cofactor.data import synthetic
from cofactor.engines.mpi import Mpi
from cofactor.engines.rounds import Run
from cofactor.methods import catalog
from cofactor.methods.blocks import blocks

ROUNDS, SEED = 5, 3
engine = Mpi()
team = engine.processes


def together(method, Xs: list, **plan):
    """Run on all processes; return what this one holds."""
    mine = np.array_split(np.arange(len(Xs)), team.count)[team.here]
    found = run(method, [Xs[j] for j in mine], seed=SEED, engine=engine, **{"rounds": ROUNDS, **plan})
    return found.factor, found.codes, found.history


def difference(name: str, there: Run, parts: list) -> dict:
    """Return the largest difference to the inline run, and whether all that is counted is the same."""
    factor, _, history = parts[0]
    codes = [W for _, own, _ in parts for W in own]
    gaps = [np.abs(factor - there.factor).max()]
    gaps += [np.abs(V - W).max() for V, W in zip(codes, there.codes, strict=True)]
    gaps += [abs(a.loss - b.loss) / max(abs(b.loss), 1) for a, b in zip(history, there.history, strict=True)]
    drifts = np.array([(a.drift, b.drift) for a, b in zip(history, there.history, strict=True)])
    counted, expected = ([(r.bytes_up, r.bytes_down, r.participants) for r in h] for h in (history, there.history))
    same = counted == expected and np.allclose(*drifts.T, equal_nan=True, atol=1e-6)
    alike = all(np.array_equal(factor, other) for other, _, _ in parts) and factor.dtype == there.factor.dtype
    return {"name": name, "gap": float(max(gaps)), "same": bool(same), "alike": bool(alike)}


def cases():
    """Yield (name, method, data, plan)."""
    Xs = synthetic.blocks(7, [23, 31, 17, 3, 2, 12, 5], features=14, rank=3, seed=4).Xs
    for name in catalog.names():
        yield name, catalog.make(name, 3), Xs, {}
    bits = [(X > np.median(X)).astype(float) for X in Xs]
    for name in catalog.names("boolean"):
        yield name, catalog.make(name, 3), bits, {}
    ratings = [sparse.csr_matrix(np.where(X > 1, np.ceil(X), 0)) for X in Xs]
    for name in catalog.names("ratings"):
        yield name, catalog.make(name, 2), ratings, {}
    for name in catalog.names("clusters"):
        yield name, catalog.make(name, 3), Xs, {}
    for name in catalog.names("private"):
        asked = Privacy(1.0, 1e-6, insecure_seed=1)
        yield name, catalog.make_for(name, 3, {}, privacy=asked, participants=7, rounds=ROUNDS), Xs, {}
    X = np.vstack(Xs)
    for name in catalog.names("blocks"):
        method = catalog.make(name, 3, shape=X.shape, iterations=6)
        yield name, method, blocks(X, 7), {"rounds": method.rounds}
        yield f"{name}, sparse", method, blocks(sparse.csr_matrix(X * (X > 1)), 3), {"rounds": method.rounds}
    plain = catalog.make("exact", 3, start="random")
    yield "part of the clients", plain, Xs, {"participation": 0.3}
    yield "part of the clients, averaged", catalog.make("fedavg", 3), Xs, {"participation": 0.3}
    yield "single precision", plain, [X.astype(np.float32) for X in Xs], {}
    yield "mixed precision", plain, [*(X.astype(np.float32) for X in Xs[:-1]), Xs[-1]], {}
    yield "sparse", catalog.make("exact", 3), [sparse.csr_matrix(X) for X in Xs], {}


def check(index: int, parts: list) -> dict:
    """Compare one case with the inline engine."""
    name, method, Xs, plan = list(cases())[index]
    return difference(name, run(method, Xs, seed=SEED, **{"rounds": ROUNDS, **plan}), parts)


if __name__ == "__main__":
    held = team.exchange("runs", [together(method, Xs, **plan) for _, method, Xs, plan in cases()])
    own = range(team.here, len(held[0]), team.count)  # the processes share the work of checking
    lines = team.exchange("checks", [check(i, [runs[i] for runs in held]) for i in own])
    if team.first:
        with open(sys.argv[1], "w") as file:
            json.dump([line for part in lines for line in part], file)
