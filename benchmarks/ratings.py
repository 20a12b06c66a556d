"""MovieLens latest-small, every user a client: test RMSE by method and participants, and the bytes that it took.

The last 20 % of every user's ratings (by time) are held out. Pooled ALS is the same model on one client.

COFACTOR_DATA=folder python benchmarks/ratings.py
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
from scipy import sparse

from cofactor import FederatedMF, masked, run
from cofactor.data import datasets, ratings_split
from cofactor.engines.history import Round
from cofactor.methods import catalog
from cofactor.types import Shared

GOAL = 0.895
RANKS = (5, 10, 20)
RIDGES = [(ridge, bias) for ridge in (5.0, 8.0, 12.0, 16.0, 24.0) for bias in (2.0, 5.0, 8.0)]
HEAD = f"{'method':16s} {'k':>3s} {'m':>4s} {'rounds':>6s} {'RMSE':>7s} {'pooled':>7s} {f'to {GOAL}':>16s} {'s':>6s}"


def load() -> tuple[ratings_split.RatingsSplit, np.ndarray]:
    """Return the split by time, in double precision, and the times of its training part."""
    R = datasets.load("movielens_latest_small").X.tocsr().astype(np.float64)
    with np.load(Path(os.environ[datasets.VARIABLE]) / "movielens_latest_small.npz") as file:
        times = file["timestamp"].astype(np.float64)
    stamped = sparse.csr_matrix((times, R.indices, R.indptr), shape=R.shape)
    return ratings_split.by_time(R, times), ratings_split.by_time(stamped, times).train.data


def choose(train: sparse.csr_matrix, times: np.ndarray) -> dict[str, float]:
    """Pick the ridges on the last 20 % of the training ratings, without a look at the test part."""
    inner, errors = ratings_split.by_time(train, times), {}
    for ridge, bias in RIDGES:
        method = catalog.make("exact-als", RANKS[0], ridge=ridge, bias_ridge=bias)
        out = run(method, [inner.train], rounds=30)
        errors[ridge, bias] = masked.residual_squares(inner.test, out.codes[0], out.factor).sum()
    ridge, bias = min(errors, key=errors.__getitem__)
    print(f"chosen on the training part: ridge {ridge:g}, bias ridge {bias:g}")
    return {"ridge": ridge, "bias_ridge": bias}


class Watch:
    """Test RMSE after every ``every``-th round, with codes solved for that round's factor."""

    def __init__(self, method, split: ratings_split.RatingsSplit, every: int) -> None:
        self.method, self.split, self.every = method, split, every
        self.errors: list[float] = []
        self.bytes, self.reached = 0, None

    def __call__(self, line: Round, shared: Shared) -> None:
        """Write down bytes, errors, and when the goal was reached."""
        self.bytes += line.bytes_up + line.bytes_down
        if (line.round + 1) % self.every:
            return
        H = self.method.factor(shared)
        W = self.method.refit(self.split.train, H)
        self.errors.append(float(np.sqrt(masked.residual_squares(self.split.test, W, H).sum() / self.split.test.nnz)))
        if self.reached is None and self.errors[-1] <= GOAL:
            self.reached = (line.round + 1, self.bytes)


def compare(split: ratings_split.RatingsSplit, held: dict[str, float]) -> None:
    users = split.train.shape[0]
    rows = [split.train[u] for u in range(users)]
    plans = [("exact-als", k, m, r) for k in RANKS for m, r in ((users, 30),)]
    plans += [("exact-als", RANKS[0], 61, 100)]
    plans += [("masked-fedmavg", RANKS[0], m, r) for m, r in ((users, 200), (100, 400), (50, 600), (10, 1000))]
    print(HEAD)
    for name, k, m, rounds in plans:
        method = catalog.make(name, k, **held)
        begin, watch = time.perf_counter(), Watch(method, split, every=1 if m == users else 10)
        run(method, rows, rounds=rounds, participation=m / users, callbacks=[watch])
        seconds = time.perf_counter() - begin
        alone = Watch(method, split, every=30)
        run(catalog.make("exact-als", k, **held), [split.train], rounds=30, callbacks=[alone])
        goal = f"{watch.reached[0]} / {watch.reached[1] / 1e9:.2f} GB" if watch.reached else "-"
        errors = f"{watch.errors[-1]:7.4f} {alone.errors[-1]:7.4f}"
        print(f"{name:16s} {k:3d} {m:4d} {rounds:6d} {errors} {goal:>16s} {seconds:6.1f}")


def recommend(split: ratings_split.RatingsSplit, held: dict[str, float]) -> None:
    """Compare the estimator with biases alone: RMSE and ranking at 10."""
    for name, ridge in (("biases alone", 1e12), ("FederatedMF", held["ridge"])):
        options = {**held, "ridge": ridge}
        model = FederatedMF(RANKS[0], **options, random_state=0, tol=0).fit(split.train)
        at_10 = ", ".join(f"{n}@10 {v:.4f}" for n, v in model.ranking(split.test, 10).mean.items())
        print(f"{name}: RMSE {model.score(split.test):.4f}, {at_10}")


def scale(*, features: int = 1000, rank: int = 16, observed: int = 50, rounds: int = 6) -> None:
    """Print the median seconds of a round with 10 % of 10^2 to 10^5 one-row clients."""
    for clients in (100, 1000, 10_000, 100_000):
        rng = np.random.default_rng(0)
        values = rng.integers(1, 11, clients * observed) / 2
        items = np.sort((rng.integers(0, features, (clients, 1)) + 17 * np.arange(observed)) % features, axis=1)
        rows = [
            sparse.csr_matrix((values[u * observed :][:observed], items[u], [0, observed]), shape=(1, features))
            for u in range(clients)
        ]
        for name in catalog.names(masked=True):
            begin = time.perf_counter()
            history = run(catalog.make(name, rank), rows, rounds=rounds, participation=0.1).history
            seconds = np.median([line.seconds for line in history[2:]])
            whole = time.perf_counter() - begin
            print(f"{name:16s} {clients:7d} clients: {seconds * 1e3:8.1f} ms a round, {whole:6.1f} s in all")


def main() -> None:
    split, times = load()
    held = choose(split.train, times)
    compare(split, held)
    recommend(split, held)
    scale()


if __name__ == "__main__":
    main()
