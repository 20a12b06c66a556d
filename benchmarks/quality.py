"""How close every method comes to pooling: ratio of the summed RMSD to the best of three pooled runs.

python benchmarks/quality.py                 # medians over 5 seeds: planted blocks, digits, MNIST 3000 rows
python benchmarks/quality.py --seeds 10 blocks
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

import numpy as np

from cofactor import run
from cofactor.data import datasets, partition, synthetic
from cofactor.local import arrays
from cofactor.local.refit import refit
from cofactor.methods import catalog
from cofactor.metrics import sum_rmsd
from cofactor.plan import Stop

METHODS: dict[str, tuple[str, dict[str, object], int]] = {
    "oneshot": ("oneshot", {}, 1),
    "exact, 1+5 rounds": ("exact", {}, 6),
    "exact, 1+9 rounds": ("exact", {}, 10),
    "exact, sums only, 2+9 rounds": ("exact", {"start": "moments"}, 11),
    "exact, random start, 10 rounds": ("exact", {"start": "random"}, 10),
    "no extrapolation, random start, 10 rounds": ("exact", {"start": "random", "momentum": 0.0}, 10),
    "fnmf-lap": ("fnmf-lap", {}, 10),
    "fnmf-lap-rho": ("fnmf-lap-rho", {}, 10),
    "fedavg, independent start": ("fedavg", {}, 10),
    "fedavg, common start": ("fedavg", {"common_start": True}, 10),
    "fedprox": ("fedprox", {}, 10),
    "one-shot LAP": ("oneshot-lap", {}, 1),
    "one-shot mean (ipalm)": ("ipalm", {}, 1),
    "one-shot mean (mur)": ("mur", {}, 1),
}
Problem = Callable[[int], tuple[list, int]]


def blocks(patterns: int | None) -> Problem:
    return lambda seed: (synthetic.blocks(10, 200, features=100, rank=10, patterns=patterns, seed=seed).Xs, 10)


def digits(skewed: bool) -> Problem:
    data = datasets.digits()

    def problem(seed: int) -> tuple[list, int]:
        n = len(data.X)
        parts = (
            partition.dirichlet(data.labels, 10, alpha=0.1, seed=seed) if skewed else partition.iid(n, 10, seed=seed)
        )
        return partition.split(data.X, parts), 15

    return problem


def mnist(by_label: bool) -> Problem:
    data = datasets.load("mnist")

    def problem(seed: int) -> tuple[list, int]:
        chosen = np.random.default_rng(seed).choice(len(data.X), 3000, replace=False)
        X, y = data.X[chosen], data.labels[chosen]
        parts = partition.sorted_by(y, 20) if by_label else partition.iid(3000, 20, seed=seed)
        return partition.split(X, parts), 30

    return problem


def problems() -> dict[str, Problem]:
    found = {
        "blocks, shared patterns": blocks(None),
        "blocks, 5 of 10 patterns": blocks(5),
        "blocks, 3 of 10 patterns": blocks(3),
        "digits, iid": digits(False),
        "digits, label skew": digits(True),
    }
    if os.environ.get(datasets.VARIABLE):
        found |= {"MNIST 3000 rows, iid": mnist(False), "MNIST 3000 rows, sorted by label": mnist(True)}
    else:
        print(f"MNIST is left out: set {datasets.VARIABLE} to the folder that holds mnist.npz")
    return found


def pooled(Xs: list, rank: int) -> float:
    X = arrays.stack(Xs)
    method = catalog.make("exact", rank, start="random")
    factors = [run(method, [X], rounds=400, seed=s, stop=Stop(1e-7, 10)).factor for s in range(3)]
    return min(sum_rmsd(Xs, [refit(x, H) for x in Xs], H) for H in factors)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("only", nargs="?", default="", help="run the problems whose name contains this")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    for name, problem in problems().items():
        if options.only not in name:
            continue
        ratios: dict[str, list[float]] = {label: [] for label in METHODS}
        for seed in range(options.seeds):
            Xs, rank = problem(seed)
            floor = pooled(Xs, rank)
            for label, (method, settings, rounds) in METHODS.items():
                outcome = run(catalog.make(method, rank, **settings), Xs, rounds=rounds, seed=seed)
                ratios[label].append(sum_rmsd(Xs, outcome.codes, outcome.factor) / floor)
        print(f"\n{name}: median ratio to pooled over {options.seeds} seeds (worst)")
        for label, values in ratios.items():
            print(f"  {label:42s} {np.median(values):6.3f}  ({max(values):.3f})", flush=True)


if __name__ == "__main__":
    main()
