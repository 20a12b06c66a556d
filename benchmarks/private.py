"""Private NMF at equal total epsilon: faces (CBCL) and digits (MNIST), and faces with outliers (Yale B).

Objective ``1/(2N) |X - W H|^2``, rows of norm 1, codes refitted; mean over seeds. Every row of the tables spends the
printed epsilon for the whole run (record level, one client that holds all rows).

COFACTOR_DATA=<folder with cbcl_faces.npz, mnist.npz, yaleb_32x32.npz> python benchmarks/private.py [seeds] [workers]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import get_context

import numpy as np

from cofactor import Privacy, run
from cofactor.data import datasets
from cofactor.local import arrays
from cofactor.local.outliers import Outliers
from cofactor.local.refit import refit
from cofactor.methods import catalog
from cofactor.methods.dp_nmf import dp_nmf
from cofactor.methods.moments import Moments
from cofactor.privacy import gaussian
from cofactor.types import Array, Message, Shared

FACES, DIGITS = ("cbcl_faces", 25, 1e-5, (1.0, 2.0, 4.0, 8.0)), ("mnist", 30, 1e-6, (0.5, 1.0, 2.0, 4.0))
Fit = Callable[[Array, int, Privacy, int], Array]
"""(rows, rank, privacy, seed) -> factor."""


def no_privacy(X: Array, rank: int, privacy: Privacy, seed: int) -> Array:
    return run(catalog.make("exact", rank), [X], rounds=100, seed=seed).factor


def mean_row(X: Array, rank: int, privacy: Privacy, seed: int) -> Array:
    return X.mean(axis=0, keepdims=True)


def two_moments(X: Array, rank: int, privacy: Privacy, seed: int) -> Array:
    return run(catalog.make("dp-moments", rank, privacy=privacy), [X], seed=seed).factor


@dataclass(frozen=True)
class Uncentred(Moments):
    """One second moment around zero: what centring is worth."""

    def open(self, shared: Shared, sums: Message, *, drowned: bool | None = None) -> Shared:
        """Forget the centre."""
        opened = super().open(shared, sums, drowned=drowned)
        extra = {**opened.extra, "center": np.zeros_like(opened.extra["center"]), "bound": np.float64(1.0)}
        return opened._replace(extra=extra)


def uncentred(X: Array, rank: int, privacy: Privacy, seed: int) -> Array:
    centred = catalog.make("dp-moments", rank, privacy=privacy)
    return run(Uncentred(rank, centred.allowance, centred.factorize), [X], seed=seed).factor


def statistics(**options: float) -> Fit:
    def fit(X: Array, rank: int, privacy: Privacy, seed: int) -> Array:
        return run(dp_nmf(rank, privacy=privacy, outliers=None, **options), [X], rounds=1000, seed=seed).factor

    return fit


def moments_then_statistics(X: Array, rank: int, privacy: Privacy, seed: int) -> Array:
    """Spend half of mu^2 on the moments and half on four rounds of statistics that start at their factor."""
    mu = 1 / gaussian.calibrate(privacy.epsilon, privacy.delta)
    half = replace(privacy, epsilon=gaussian.epsilon(mu / np.sqrt(2), privacy.delta))
    start = two_moments(X, rank, half, seed)
    return run(dp_nmf(rank, privacy=half, outliers=None), [X], seed=seed, start=start).factor


METHODS: dict[str, Fit] = {
    "not private": no_privacy,
    "mean row alone": mean_row,
    "dp-moments": two_moments,
    "one moment, not centred": uncentred,
    "dp-nmf, 1 round": statistics(rounds=1),
    "dp-nmf, 4 rounds": statistics(rounds=4),
    "dp-nmf, 16 rounds": statistics(rounds=16),
    "the paper's procedure, 100 rounds": statistics(rounds=100, steps=1, gram_share=0.5),
    "dp-moments, then dp-nmf": moments_then_statistics,
}
FREE = ("not private", "mean row alone")


@cache
def rows(name: str) -> Array:
    X = datasets.load(name).X.astype(np.float32)
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-12)


def objective(X: Array, H: Array) -> float:
    W = refit(X, H.astype(np.float32))
    return 0.5 * sum(arrays.square(X[i : i + 5000] - W[i : i + 5000] @ H) for i in range(0, len(X), 5000)) / len(X)


def job(case: tuple[str, str, int, float, float, int]) -> float:
    name, method, rank, delta, epsilon, seed = case
    X = rows(name)
    return objective(X, METHODS[method](X, rank, Privacy(epsilon, delta), seed))


# --- outliers ---

CONTAMINATED, PIXELS, YALE_RANK, THRESHOLD = 0.1, 0.7, 25, 0.3


def yale(seed: int) -> tuple[Array, Array, Array]:
    """Return clean faces, faces of which a tenth has noise U[-1, 1] on 70 % of the pixels, and which ones these are."""
    clean, rng = datasets.load("yaleb_32x32").X.astype(np.float64), np.random.default_rng(seed)
    dirty, bad = clean.copy(), rng.choice(len(clean), int(CONTAMINATED * len(clean)), replace=False)
    for i in bad:
        pixels = rng.choice(clean.shape[1], int(PIXELS * clean.shape[1]), replace=False)
        dirty[i, pixels] += rng.uniform(-1, 1, len(pixels))
    return clean, np.maximum(dirty, 0), bad


def outlier_job(case: tuple[float, int]) -> list[float]:
    """Return the distance of W H to the clean faces, all and contaminated ones: plain, and with outliers."""
    epsilon, seed = case
    clean, dirty, bad = yale(seed)
    free = np.isinf(epsilon)
    H = (no_privacy if free else two_moments)(dirty, YALE_RANK, Privacy(1.0 if free else epsilon, 1e-5), seed)
    found = [W @ H for W in (refit(dirty, H), Outliers(THRESHOLD).refit(dirty, H))]
    return [float(np.linalg.norm((R - clean)[w]) / np.linalg.norm(clean[w])) for w in (slice(None), bad) for R in found]


def main(seeds: int = 3, workers: int = 1) -> None:
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for name, rank, delta, epsilons in (FACES, DIGITS):
            cases = [
                (name, method, rank, delta, epsilon, seed)
                for method in METHODS
                for epsilon in epsilons
                for seed in range(seeds)
                if method not in FREE or (epsilon == epsilons[0] and seed == 0)
            ]
            found = dict(zip(cases, pool.map(job, cases), strict=True))
            print(f"\n{name}, k = {rank}, delta = {delta:g}: loss at epsilon {', '.join(map(str, epsilons))}")
            for method in METHODS:
                means = [
                    np.mean([v for c, v in found.items() if c[1] == method and c[4] == epsilon] or np.nan)
                    for epsilon in epsilons
                ]
                print(f"{method:36s}" + "".join(f"{value:9.4f}" for value in means), flush=True)
        print("\nYale B, a tenth of the faces contaminated: distance to the clean faces")
        print(f"{'':14s}{'all: plain':>14s}{'outliers':>12s}{'bad: plain':>14s}{'outliers':>12s}")
        levels = [(e, s) for e in (1.0, 8.0, np.inf) for s in range(seeds)]
        found = dict(zip(levels, pool.map(outlier_job, levels), strict=True))
        for e in (1.0, 8.0, np.inf):
            means = np.mean([v for (level, _), v in found.items() if level == e], axis=0)
            print(f"epsilon {e:<6}" + "".join(f"{value:13.4f}" for value in means), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
