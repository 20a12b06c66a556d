"""MNIST 70 000 x 784, pixels in [0, 1], 50 clients, rank 50: summed RMSD per method and per round.

COFACTOR_DATA=<folder with mnist.npz> python benchmarks/mnist.py
"""

from __future__ import annotations

import time

from cofactor import run
from cofactor.data import datasets, partition
from cofactor.engines.history import Round
from cofactor.local.refit import refit
from cofactor.methods import catalog
from cofactor.metrics import sum_rmsd
from cofactor.types import Shared

CLIENTS, RANK, GOAL = 50, 50, 6.70


def main() -> None:
    X = datasets.load("mnist").X
    Xs = partition.split(X, partition.iid(len(X), CLIENTS, seed=0))
    for name, rounds in (("oneshot", 1), ("exact", 6)):
        begin = time.perf_counter()
        outcome = run(catalog.make(name, RANK), Xs, rounds=rounds)
        error = sum_rmsd(Xs, outcome.codes, outcome.factor)
        print(f"{name:8s} {rounds} round(s): sum-RMSD {error:.3f}, {time.perf_counter() - begin:.1f} s", flush=True)
    for label, settings in STARTS.items():
        print(f"random start, {label}: {rounds_to_goal(Xs, settings)} rounds to {GOAL}", flush=True)


STARTS = {
    "HALS with one sweep": {"momentum": 0.0, "sweeps": 1},
    "HALS with three sweeps": {"momentum": 0.0},
    "extrapolated, three sweeps (exact)": {},
}


def rounds_to_goal(Xs: list, settings: dict) -> int:
    """Return the first round whose factor, with refitted codes, reaches the goal."""
    reached: list[int] = []
    method = catalog.make("exact", RANK, start="random", **settings)

    def watch(line: Round, shared: Shared) -> bool:
        H = method.factor(shared)
        error = sum_rmsd(Xs, [refit(X, H) for X in Xs], H)
        if error <= GOAL:
            reached.append(line.round + 1)
        return bool(reached)

    run(method, Xs, rounds=100, callbacks=[watch])
    return reached[0] if reached else 101


if __name__ == "__main__":
    main()
