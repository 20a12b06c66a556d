"""MovieLens latest-small, every user a client: test RMSE by method and participants, bytes, and other libraries.

The last 20 % of every user's ratings (by time) are held out as the test part. All settings, ours and those of the other
libraries, are chosen on the last 20 % of the training part; nothing is chosen on the test part. scikit-surprise and
implicit are measured in the same run where they are installed.

COFACTOR_DATA=folder python benchmarks/ratings.py
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from importlib import util
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import sparse

from cofactor import ratings, run
from cofactor.data import datasets, ratings_split
from cofactor.data.ratings_split import RatingsSplit
from cofactor.engines.history import Round
from cofactor.methods import catalog
from cofactor.ratings.ranking import rank_users
from cofactor.types import Shared

GOAL, RANK = 0.895, 5
RIDGES, BIAS_RIDGES, GAMMAS, ALPHAS = (4.0, 8.0, 12.0, 16.0, 24.0), (2.0, 5.0, 8.0), (1.0, 2.0, 4.0), (1.0, 5.0, 20.0)
HEAD = f"{'method':16s} {'k':>3s} {'m':>4s} {'rounds':>6s} {'RMSE':>7s} {'pooled':>7s} {f'to {GOAL}':>18s} {'s':>6s}"


class Model(NamedTuple):
    """Codes of users (n x q) and a factor of items (q x m) whose product are predictions or preferences."""

    W: np.ndarray
    H: np.ndarray


def load() -> tuple[RatingsSplit, RatingsSplit]:
    """Return the split by time, and the same split of its training part to choose settings on."""
    R = datasets.load("movielens_latest_small").X.tocsr().astype(np.float64)
    with np.load(Path(os.environ[datasets.VARIABLE]) / "movielens_latest_small.npz") as file:
        times = file["timestamp"].astype(np.float64)
    stamped = sparse.csr_matrix((times, R.indices, R.indptr), shape=R.shape)
    split = ratings_split.by_time(R, times)
    return split, ratings_split.by_time(split.train, ratings_split.by_time(stamped, times).train.data)


def rmse(model: Model, test: sparse.csr_matrix) -> float:
    return float(np.sqrt(ratings.residual_squares(test, model.W, model.H).sum() / test.nnz))


def ranking(model: Model, split: RatingsSplit) -> dict[str, float]:
    """Return precision, recall and NDCG at 10; ratings of 4 and more are what should have been recommended."""
    relevant = split.test.multiply(split.test >= 4).tocsr()
    return rank_users(model.W, model.H, split.train, relevant, n=10).mean


def pooled(name: str, rounds: int = 30, rank: int = RANK, **settings: float) -> Callable[[sparse.csr_matrix], Model]:
    """Return the fit of one of our methods on one client."""

    def fit(train: sparse.csr_matrix) -> Model:
        out = run(catalog.make(name, rank, **settings), [train], rounds=rounds)
        return Model(out.codes[0], out.factor)

    return fit


def choose(name: str, make: Callable, inner: RatingsSplit, grid: dict[str, tuple], *, by_rank: bool = False) -> dict:
    """Return the settings of the grid with the least RMSE, or the largest NDCG, on the inner held-out part."""

    def loss(settings: dict) -> float:
        model = make(**settings)(inner.train)
        return -ranking(model, inner)["ndcg"] if by_rank else rmse(model, inner.test)

    tried = [dict(zip(grid, values)) for values in product(*grid.values())]
    losses = [loss(settings) for settings in tried]
    best = int(np.argmin(losses))
    shown = ", ".join(f"{n} {v:g}" for n, v in tried[best].items())
    print(f"chosen on the training part: {name}: {shown} ({abs(losses[best]):.4f} there)", flush=True)
    return tried[best]


class Watch:
    """Test RMSE after every ``every``-th round, with codes solved for that round's factor."""

    def __init__(self, method, split: RatingsSplit, every: int) -> None:
        self.method, self.split, self.every = method, split, every
        self.errors: list[float] = []
        self.bytes, self.reached = 0, None

    def __call__(self, line: Round, shared: Shared) -> None:
        """Write down bytes, errors, and when the goal was reached."""
        self.bytes += line.bytes_up + line.bytes_down
        if (line.round + 1) % self.every:
            return
        H = self.method.factor(shared)
        self.errors.append(rmse(Model(self.method.refit(self.split.train, H), H), self.split.test))
        if self.reached is None and self.errors[-1] <= GOAL:
            self.reached = (line.round + 1, self.bytes)


def federated(split: RatingsSplit, held: dict[str, dict]) -> None:
    """Print RMSE, the same model pooled, and the bytes to the goal, by method and participants."""
    users = split.train.shape[0]
    rows = [split.train[u] for u in range(users)]
    plans = [("exact-als", k, users, 30) for k in (5, 10, 20)] + [("exact-als", RANK, 61, 100)]
    plans += [("masked-fedmavg", RANK, m, r) for m, r in ((users, 200), (100, 400), (50, 600), (10, 1000))]
    print(HEAD)
    for name, k, m, rounds in plans:
        method = catalog.make(name, k, **held[name])
        begin, watch = time.perf_counter(), Watch(method, split, every=1 if m == users else 10)
        run(method, rows, rounds=rounds, participation=m / users, callbacks=[watch])
        seconds = time.perf_counter() - begin
        alone = rmse(pooled("exact-als", rank=k, **held["exact-als"])(split.train), split.test)
        goal = f"{watch.reached[0]} / {watch.reached[1] / 1e9:.3f} GB" if watch.reached else "-"
        print(f"{name:16s} {k:3d} {m:4d} {rounds:6d} {watch.errors[-1]:7.4f} {alone:7.4f} {goal:>18s} {seconds:6.1f}")


def surprise_svd(*, n_epochs: int, reg_all: float, n_factors: int = RANK) -> Callable[[sparse.csr_matrix], Model]:
    """scikit-surprise's SVD: the same model with biases by stochastic gradient descent."""
    from surprise import SVD, Dataset, Reader

    def fit(train: sparse.csr_matrix) -> Model:
        C = train.tocoo()
        reader, triples = Reader(rating_scale=(0.5, 5)), list(zip(C.row, C.col, C.data, [None] * C.nnz))
        data = Dataset(reader=reader)
        held = data.construct_trainset(triples)
        found = SVD(n_factors=n_factors, n_epochs=n_epochs, reg_all=reg_all, random_state=0).fit(held)
        users, items = ([held.to_raw_uid(u) for u in held.all_users()], [held.to_raw_iid(i) for i in held.all_items()])
        W, H = np.zeros((train.shape[0], n_factors + 3)), np.zeros((n_factors + 3, train.shape[1]))
        W[users, :n_factors], W[users, n_factors], W[:, n_factors + 1 :] = found.pu, found.bu, 1
        H[:n_factors, items], H[n_factors], H[n_factors + 1, items] = found.qi.T, 1, found.bi
        H[n_factors + 2] = held.global_mean
        return Model(W, H)

    return fit


def implicit_als(*, alpha: float, ridge: float, rank: int = 32) -> Callable[[sparse.csr_matrix], Model]:
    """ALS of the package implicit: the model of ``exact-als`` with alpha."""
    from implicit.als import AlternatingLeastSquares

    def fit(train: sparse.csr_matrix) -> Model:
        confidence = sparse.csr_matrix((1 + alpha * train.data, train.indices, train.indptr), shape=train.shape)
        found = AlternatingLeastSquares(rank, regularization=ridge, alpha=1.0, iterations=15, random_state=0)
        found.fit(confidence, show_progress=False)
        return Model(np.asarray(found.user_factors, np.float64), np.asarray(found.item_factors, np.float64).T)

    return fit


def libraries(split: RatingsSplit, inner: RatingsSplit, held: dict[str, dict]) -> None:
    """Print RMSE and ranks of our models and of other libraries, each at settings chosen on the training part."""
    clicks = {"alpha": ALPHAS, "ridge": (10.0, 50.0, 200.0)}
    rows = {
        "biases alone": pooled("exact-als", **{**held["exact-als"], "ridge": 1e12}),
        f"exact-als, k = {RANK}": pooled("exact-als", **held["exact-als"]),
    }
    ours = lambda **settings: pooled("exact-als", 15, 32, **settings)  # noqa: E731
    chosen = choose("exact-als, implicit", ours, inner, clicks, by_rank=True)
    rows["exact-als, implicit, k = 32"] = ours(**chosen)
    if util.find_spec("surprise"):
        best = choose("surprise", surprise_svd, inner, {"n_epochs": (20, 40, 80), "reg_all": (0.02, 0.05, 0.1, 0.2)})
        rows[f"surprise SVD, k = {RANK}"] = surprise_svd(**best)
    else:
        print("scikit-surprise: not installed")
    if util.find_spec("implicit"):
        rows["implicit ALS, k = 32"] = implicit_als(**choose("implicit", implicit_als, inner, clicks, by_rank=True))
    else:
        print("implicit: not installed")
    print(f"{'model':28s} {'RMSE':>7s} {'prec@10':>8s} {'rec@10':>8s} {'NDCG@10':>8s} {'s':>6s}")
    for name, fit in rows.items():
        begin = time.perf_counter()
        model = fit(split.train)
        seconds = time.perf_counter() - begin
        error = f"{'-':>7s}" if "implicit" in name else f"{rmse(model, split.test):7.4f}"
        found = " ".join(f"{value:8.4f}" for value in ranking(model, split).values())
        print(f"{name:28s} {error} {found} {seconds:6.1f}", flush=True)


def main() -> None:
    split, inner = load()
    held = {}
    for name, rounds, more in (("exact-als", 30, {}), ("masked-fedmavg", 100, {"gamma": GAMMAS})):
        make = lambda name=name, rounds=rounds, **settings: pooled(name, rounds, **settings)  # noqa: E731
        held[name] = choose(name, make, inner, {"ridge": RIDGES, "bias_ridge": BIAS_RIDGES, **more})
    federated(split, held)
    libraries(split, inner, held)


if __name__ == "__main__":
    main()
