"""One client beside scikit-learn's NMF: default fits, Kullback-Leibler, and the time of an import.

    COFACTOR_DATA=... python benchmarks/beside_scikit_learn.py [fits] [loss] [import]

Fits: the relative error of a default fit (codes refitted for both) over that of scikit-learn (nndsvda, cd, tol 1e-4).
Loss: 3000 documents of 5000 counts, rank 20, both from one random start: federated next to pooled, the objective after
50 iterations of ``solver="mu"``, and the time to reach it. Import: medians over fresh processes, interleaved.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
import warnings

import numpy as np
from scipy import sparse
from sklearn.decomposition import NMF
from sklearn.feature_extraction.text import TfidfTransformer

from cofactor import FederatedNMF
from cofactor.data import datasets
from cofactor.local.divergence import for_factor
from cofactor.local.refit import refit
from cofactor.local.stats import squares

RANKS = (10, 20)
KL, ITERATIONS = 20, 50


def _matrices() -> dict[str, object]:
    news, bbc = datasets.load("newsgroups20").X[:3000], datasets.load("bbc_news").X
    return {
        "digits": datasets.digits().X.astype(np.float64),
        "CBCL faces": datasets.load("cbcl_faces").X.astype(np.float64),
        "newsgroups tf-idf": TfidfTransformer().fit_transform(news.astype(np.float64)),
        "BBC": bbc.astype(np.float64),
        "BBC tf-idf": TfidfTransformer().fit_transform(bbc.astype(np.float64)),
    }


def _error(X: object, H: np.ndarray) -> float:
    rest, square = squares(X, refit(X, H), H)
    return float(np.sqrt(rest / square))


def fits() -> None:
    for name, X in _matrices().items():
        for k in RANKS:
            theirs = NMF(k, init="nndsvda").fit(X).components_
            found = [_error(X, FederatedNMF(k, random_state=s).fit(X).components_) for s in range(3)]
            worst = max(found) / _error(X, theirs)
            print(f"{name}, rank {k}: {worst:.4f} times scikit-learn's error (the worst of 3 seeds)", flush=True)


def loss() -> None:
    X = datasets.load("newsgroups20").X[:3000].astype(np.float64)
    X = sparse.csr_matrix(X[:, np.sort(np.argsort(-np.asarray(X.sum(axis=0)).ravel())[:5000])])
    X = X[np.diff(X.indptr) > 0]
    rng = np.random.default_rng(0)
    H = rng.uniform(size=(KL, X.shape[1]))
    H /= np.linalg.norm(H, axis=1, keepdims=True)
    W = np.repeat(np.asarray(X.sum(axis=1)) / H.sum(), KL, axis=1)
    parts = [X[rows] for rows in np.array_split(np.arange(X.shape[0]), 4)]
    seconds: list[float] = []
    how = {"beta_loss": "kullback-leibler", "init": "custom", "rounds": ITERATIONS, "tol": 0, "random_state": 0}
    FederatedNMF(KL, **{**how, "rounds": 2}).fit(X, H=H)  # compiles
    watched = FederatedNMF(KL, **how, callbacks=[lambda t, shared: seconds.append(time.perf_counter())])
    begun = time.perf_counter()
    pooled = watched.fit(X, H=H)
    federated = FederatedNMF(KL, **how).fit(parts, H=H)
    gap = np.abs(federated.components_ - pooled.components_).max() / pooled.components_.max()
    model = NMF(KL, init="custom", solver="mu", beta_loss="kullback-leibler", tol=0, max_iter=ITERATIONS)
    middle = time.perf_counter()
    W, Ht = model.fit_transform(X, W=W.copy(), H=H.copy()), model.components_
    theirs = time.perf_counter() - middle
    aim = for_factor(X, W, Ht, 1.0).loss
    losses = [line.loss for line in pooled.history_]
    ended = for_factor(X, pooled.codes_[0], pooled.components_, 1.0).loss
    first = next((i for i, value in enumerate(losses) if value <= 1.001 * aim), None)
    print(f"{X.shape[0]} x {X.shape[1]} counts, rank {KL}, {ITERATIONS} iterations")
    print(f"federated (4 clients) and pooled differ by {gap:.1e} of the largest entry")
    print(
        f"objective over scikit-learn's: {losses[-1] / aim:.5f} in the last round, {ended / aim:.5f} with final codes"
    )
    if first is not None:
        ours = seconds[first] - begun
        print(f"within .1 % of scikit-learn's after {first + 1} rounds, {ours:.1f} s; it took {theirs:.1f} s: ", end="")
        print(f"{theirs / ours:.1f} times sooner")


def imports(times: int = 11) -> None:
    codes = {"scikit-learn": "from sklearn.decomposition import NMF", "ours": "from cofactor import FederatedNMF"}
    taken: dict[str, list[float]] = {name: [] for name in codes}
    for _ in range(times):
        for name, code in codes.items():
            begun = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            taken[name].append(time.perf_counter() - begun)
    theirs, ours = (statistics.median(taken[name]) for name in codes)
    print(f"import: {ours:.2f} s, scikit-learn's NMF {theirs:.2f} s: {ours / theirs:.2f} times")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    parts = {"fits": fits, "loss": loss, "import": imports}
    for part in sys.argv[1:] or parts:
        parts[part]()
