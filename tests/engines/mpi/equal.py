"""Every method on several processes, next to the inline engine: writes by how much they differ."""

from __future__ import annotations

import json
import sys

import numpy as np
from scipy import sparse
from tests.helpers.methods import KIND, NAMES, ROUNDS, case, change, data

from cofactor import run
from cofactor.engines.mpi import Mpi
from cofactor.engines.outcome import Run
from cofactor.methods import catalog

SEED = 3
ROWS = (23, 31, 17, 3, 2, 12, 5)
engine = Mpi()
team = engine.team


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
    losses = np.array([(a.loss, b.loss) for a, b in zip(history, there.history, strict=True)])
    told = ~np.isnan(losses).all(axis=1)  # rounds in which neither tells a loss agree in that
    gaps += [abs(a - b) / max(abs(b), 1) for a, b in losses[told]]
    drifts = np.array([(a.drift, b.drift) for a, b in zip(history, there.history, strict=True)])
    fields = ("bytes_up", "bytes_down", "participants", "stage")
    counted, expected = ([[getattr(r, f) for f in fields] for r in h] for h in (history, there.history))
    same = counted == expected and np.allclose(*drifts.T, equal_nan=True, atol=1e-6)
    alike = all(np.array_equal(factor, other) for other, _, _ in parts) and factor.dtype == there.factor.dtype
    return {"name": name, "gap": float(np.max(gaps)), "same": bool(same), "alike": bool(alike)}


def cases():
    """Yield (name, method, data, plan): every name of the catalog, then what else an engine may meet."""
    for name in NAMES:
        _, method, Xs = case(name, rows=ROWS, features=14)
        yield name, method, Xs, {}
        if KIND[name] == "blocks":
            thin = [change(X, lambda A: sparse.csr_matrix(A * (A > 1))) for X in Xs]
            yield f"{name}, sparse", method, thin, {}
    for name in ("exact", "fedavg", "felb", "exact-als", "k-means", "dp-moments"):
        _, method, Xs = case(name, rows=ROWS, features=14)
        yield f"{name}, part of the clients", method, Xs, {"participation": 0.3}
    plain, Xs = catalog.make("exact", 3, start="random"), data("real", ROWS, 14)
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
