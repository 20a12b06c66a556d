"""Boolean methods with default settings against the best pooled factorization, 8 clients, iid and sorted.

    COFACTOR_DATA=folder python benchmarks/boolean_defaults.py                      # everything; half an hour
    COFACTOR_DATA=folder python benchmarks/boolean_defaults.py --data mushroom --rows 8300

Losses are |X xor (W o H)| / |X| after three sweeps, medians over seeds; "pooled" is the best of ASSO and ELBMF on the
stacked rows, each with three exact sweeps. Sorted: by label where there is one, then along the second singular vector.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from scipy import sparse
from sklearn.decomposition import TruncatedSVD
from threadpoolctl import threadpool_limits

from cofactor import boolean, run
from cofactor.boolean import asso, elbmf
from cofactor.data import binarize, datasets, partition
from cofactor.methods import catalog

CLIENTS, TERMS = 8, 5000
METHODS = {"boolean-oneshot": {}, "boolean-exact": {"rounds": 53}, "felb": {"rounds": 53}}


def movielens() -> tuple[sparse.csr_array, None]:
    liked = binarize.threshold(datasets.load("movielens_latest_small").X, 3.5)
    return liked[:, np.flatnonzero(np.asarray(liked.sum(axis=0)).ravel() >= 30)], None


def newsgroups() -> tuple[sparse.csr_array, np.ndarray]:
    data = datasets.load("newsgroups20")
    X = sparse.csr_array(data.X > 0)
    return X[:, np.sort(np.argsort(-X.sum(axis=0), kind="stable")[:TERMS])], data.labels


DATA: dict[str, tuple[Callable, tuple[int, ...]]] = {
    "mushroom": (lambda: (datasets.load("mushroom").X, datasets.load("mushroom").X[:, 0]), (20,)),
    "adult": (
        lambda: (datasets.load("adult_onehot").X, datasets.load("adult_onehot").X[:, [-1]].toarray()[:, 0]),
        (20,),
    ),
    "movielens": (movielens, (20,)),
    "newsgroups": (newsgroups, (50, 200)),
}


def in_order(X: sparse.csr_array, labels: np.ndarray | None) -> np.ndarray:
    second = TruncatedSVD(2, random_state=0).fit_transform(X)[:, 1]
    return np.argsort(second, kind="stable") if labels is None else np.lexsort((second, labels))


def pooled(X: sparse.csr_array, k: int) -> float:
    """The best of two pooled algorithms; a start at .3 is one more chance for ELBMF."""
    found = [asso.factorize(X, k)[1], *(elbmf.factorize(X, k, top=top)[1] for top in (1.0, 0.3))]
    return min(boolean.loss(X, *boolean.polish(X, H)) for H in found)


def judged(name: str, k: int, Xs: list, seed: int) -> tuple[float, float, int]:
    """Loss, CPU seconds and components in use."""
    begin = time.process_time()
    result = run(catalog.make(name, k, sweeps=3, **METHODS[name]), Xs, rounds=1000, seed=seed)
    spent = time.process_time() - begin
    tallies = (boolean.tally(X, W, result.factor) for X, W in zip(Xs, result.codes, strict=True))
    used = sum(np.count_nonzero(W, axis=0) for W in result.codes)
    return sum(tallies, boolean.Tally()).loss, spent, int(np.count_nonzero(used))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", choices=list(DATA), default=list(DATA))
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--rows", type=int, default=0, help="draw so many rows of larger data; 0 takes all")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    for name in options.data:
        load, ranks = DATA[name]
        X, labels = load()
        X = sparse.csr_array(X, dtype=np.float32)
        if 0 < options.rows < X.shape[0]:
            drawn = np.sort(np.random.default_rng(7).permutation(X.shape[0])[: options.rows])
            X, labels = X[drawn], None if labels is None else labels[drawn]
        for k in ranks:
            best = pooled(X, k)
            print(f"{name} {X.shape}, k = {k}: pooled {best:.4f}", flush=True)
            for how in ("iid", "sorted"):
                for method in options.methods:
                    found = []
                    for seed in range(options.seeds):
                        order = partition.iid(X.shape[0], CLIENTS, seed=seed)
                        order = order if how == "iid" else np.array_split(in_order(X, labels), CLIENTS)
                        found.append(judged(method, k, [X[rows] for rows in order], seed))
                    loss, spent, used = np.median(found, axis=0)
                    told = f"{loss:.4f}, {loss / best:.3f} x pooled, {spent:.1f} s of CPU, {used:.0f} in use"
                    print(f"  {how:6s} {method:16s} {told}", flush=True)


if __name__ == "__main__":
    with threadpool_limits(1, "blas"):
        main()
