"""The numbers that sketched and asynchronous methods have to reach, with what was asked beside them.

    COFACTOR_DATA=folder python benchmarks/sketched.py               # all but choice; minutes
    python benchmarks/sketched.py --parts race cost                  # some of it

Parts: secure (Syn- and Asyn- variants on MNIST), race (time to an error, sketched or not), cost (one iteration),
mnist (50 iterations of DSANLS and HALS), choice (what method="auto" rests on; many minutes). secure and mnist need
COFACTOR_DATA. One BLAS thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from cofactor import metrics, run
from cofactor.data import datasets, partition
from cofactor.engines.loop import run_stream
from cofactor.local import arrays
from cofactor.local.updates import HALS
from cofactor.method import SERVER, Method, rng
from cofactor.methods import catalog
from cofactor.methods.averaged import Averaged
from cofactor.methods.blocks import Blocks, blocks
from cofactor.methods.sketched import Sketched
from cofactor_papers.dsanls import play

SYN = ("syn-sd", "syn-ssd-u", "syn-ssd-v", "syn-ssd-uv", "asyn-sd", "asyn-ssd-v")
SPLITS = {"uniform": [0.1] * 10, "half at client 0": [0.5] + [0.5 / 9] * 9}
GOAL = 0.19
WEIGHTS = (0.1, 0.02, 0.0)


def leftover(method: Method, Xs: list, *, rounds: int, seed: int) -> float:
    """Return the error of the last factor with the codes left over from the rounds: nobody refits."""
    shared = method.start(Xs[0].shape[1], rng(seed, SERVER, -1))
    states = [method.join(X, shared.broadcast(), 0, rng(seed, j, -1)) for j, X in enumerate(Xs)]
    for t in range(rounds):
        answers = [method.step(X, shared, s, t, rng(seed, j, t)) for j, (X, s) in enumerate(zip(Xs, states))]
        states = [state for state, _ in answers]
        shared = method.aggregate(shared, [message for _, message in answers], t)
    return metrics.pooled_error(Xs, [s.codes for s in states], shared.factor)


def secure() -> Iterator[str]:
    X = datasets.load("mnist").X[:3000]
    for split, shares in SPLITS.items():
        Xs = partition.split(X, partition.sizes(3000, shares, seed=0))
        for name in SYN:
            found = []
            rounds = 96 if name.endswith(("-u", "-uv")) else 20
            for seed in range(3):
                method = catalog.make(name, 10)
                result = (
                    run_stream(method, Xs, updates=200, seed=seed)
                    if name.startswith("asyn")
                    else run(method, Xs, rounds=rounds, seed=seed)
                )
                found.append(metrics.pooled_error(Xs, result.codes, result.factor))
            before = "" if name.startswith("asyn") else f"{leftover(method, Xs, rounds=rounds, seed=2):.4f} (<= .605)"
            yield f"{split:17s} {name:11s} worst of 3 {max(found):.4f} (<= .600)   before refit {before}"
        for order in (False, True):
            method = catalog.make("syn-sd", 10, weight=0.0, printed_order=order)
            before = leftover(method, Xs, rounds=20, seed=0)
            yield f"{split:17s} syn-sd by HALS, printed order {order}: before refit {before:.3f}"


def planted(n: int, m: int, rank: int, dtype: type, seed: int = 0) -> np.ndarray:
    """Half of the entries of both factors are exponential, the others zero; noise that leaves an error of .045."""
    draw = np.random.default_rng(seed)
    W, H = (draw.exponential(size=s) * (draw.uniform(size=s) < 0.5) for s in ((n, rank), (rank, m)))
    X = (W @ H).astype(dtype)
    return X + X.mean() * 0.2 * draw.uniform(size=X.shape).astype(dtype)


def seconds_to(method: Sketched, data: Blocks, goal: float) -> tuple[float, float]:
    """Return (seconds until the goal in the fastest of three runs, or inf; last error)."""
    best, error = np.inf, np.nan
    for _ in range(3):
        for spent, W, H in play(method, data):
            error = metrics.relative_error(data.row_block, W, H)
            if error <= goal:
                best = min(best, spent)
                break
    return best, error


def race() -> Iterator[str]:
    def method_of(weight: float) -> Method:
        return catalog.make("dsanls", 40, shape=X.shape, iterations=300, weight=weight)

    X = planted(5000, 5000, 40, np.float32)
    (data,) = blocks(X, 1)
    plain, last = seconds_to(catalog.make("hals", 40, shape=X.shape, iterations=150), data, GOAL)
    yield f"hals to {GOAL}: {plain:.2f} s (error {last:.4f})"
    for weight in WEIGHTS:
        took, last = seconds_to(method_of(weight), data, GOAL)
        yield f"dsanls, weight {weight}: {took:.2f} s, {plain / took:.2f} x sooner (>= 2.5), error {last:.4f}"
    for weight in WEIGHTS:
        steps = enumerate(play(method_of(weight), data), start=1)
        ends = [metrics.relative_error(X, W, H) for i, (_, W, H) in steps if i % 100 == 0]
        yield f"dsanls, weight {weight}: error after 100, 200, 300 iterations " + " ".join(f"{e:.4f}" for e in ends)


def cost() -> Iterator[str]:
    X = planted(20000, 2000, 50, np.float64)
    (data,) = blocks(X, 1)
    for name, options, limit in (("dsanls", {"size": 0.1}, 0.55), ("hals", {}, 1.12)):
        spent, products = [0.0], []
        for total, W, H in play(catalog.make(name, 50, shape=X.shape, iterations=12, **options), data):
            spent.append(total)
            begin = time.perf_counter()
            (H @ X.T).T, (W.T @ X).T
            products.append(time.perf_counter() - begin)
        took, two = np.diff(spent).min(), min(products)
        yield f"{name:6s} {took:.3f} s, {took / two:.2f} x the two products (<= {limit})"


def mnist() -> Iterator[str]:
    X = datasets.load("mnist").X[:20000]
    (data,) = blocks(X, 1)
    made = {f"dsanls, weight {w}": catalog.make("dsanls", 50, shape=X.shape, weight=w) for w in WEIGHTS}
    for name, method in {**made, "hals": catalog.make("hals", 50, shape=X.shape)}.items():
        *_, (spent, W, H) = play(method, data)
        yield f"{name:20s} {metrics.relative_error(X, W, H):.4f} (dsanls .42, hals .385) in {spent:.1f} s"
    result = run(Averaged(10, HALS(), sweeps=100), [X[:3000]], rounds=1)
    yield f"pooled HALS, 3000 rows, rank 10: {metrics.relative_error(X[:3000], result.codes[0], result.factor):.4f}"


def seconds_of_exact(X: np.ndarray, rank: int, goal: float) -> float:
    """Return the seconds in which statistics from a random start reach a goal, the fastest of two runs."""
    method, square, best = catalog.make("exact", rank, start="random"), arrays.square(X), np.inf
    for _ in range(2):
        begin = time.perf_counter()
        shared = method.start(X.shape[1], rng(0, SERVER, -1))
        local = method.join(X, shared, 0, rng(0, 0, -1))
        for t in range(60):
            local, message = method.step(X, shared, local, t, rng(0, 0, t))
            shared = method.aggregate(shared, [message], t)
            if 2 * shared.loss <= goal**2 * square:
                best = min(best, time.perf_counter() - begin)
                break
    return best


def choice() -> Iterator[str]:
    """A moderate error: most of the way from that of HALS after one iteration to that after forty."""
    shapes = [(1000, 1000, 10), (2000, 2000, 10), (2000, 2000, 40), (20000, 800, 20), (20000, 2000, 50)]
    shapes += [(5000, 5000, 10), (5000, 5000, 40), (5000, 5000, 100), (8000, 8000, 20), (10000, 10000, 40)]
    for n, m, rank, density in [*((*s, 1.0) for s in shapes), (5000, 5000, 20, 0.3), (5000, 5000, 20, 0.1)]:
        X = planted(n, m, rank, np.float32)
        if density < 1:
            X = sparse.csr_matrix(X * (np.random.default_rng(1).uniform(size=X.shape) < density).astype(np.float32))
        (data,) = blocks(X, 1)
        steps = play(catalog.make("hals", rank, shape=X.shape, iterations=40), data)
        errors = [metrics.relative_error(X, W, H) for _, W, H in steps]
        for way in (0.8, 0.95):
            goal = errors[-1] + (1 - way) * (errors[0] - errors[-1])
            took, _ = seconds_to(catalog.make("dsanls", rank, shape=X.shape, iterations=300), data, goal)
            plain = seconds_of_exact(X, rank, goal)
            yield f"{n} x {m}, k = {rank}, density {density}, to {goal:.3f}: exact {plain:.2f} s, dsanls {took:.2f} s"


PARTS = {"secure": secure, "race": race, "cost": cost, "mnist": mnist, "choice": choice}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=["secure", "race", "cost", "mnist"])
    with threadpool_limits(1, "blas"):
        for part in parser.parse_args().parts:
            print(f"\n{part}", flush=True)
            for line in PARTS[part]():
                print(f"  {line}", flush=True)


if __name__ == "__main__":
    main()
