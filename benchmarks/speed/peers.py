"""Other libraries on the same data, and this project beside them."""

from __future__ import annotations

import importlib.util
import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import matrices
import numpy as np
import works
from scipy import sparse

from cofactor import FederatedNMF, run
from cofactor.combine import barycenter
from cofactor.data import datasets
from cofactor.engines.inline import Inline
from cofactor.methods import catalog
from cofactor.methods.build import Facts, build
from cofactor.metrics import relative_error
from cofactor.plan import Plan

FEW, MANY = 4, 24
"""Two lengths of a run: their difference is the cost of iterations without set-up."""
LEAST = 0.3
"""Seconds that are measured at least."""
LADDER = (25, 50, 100, 200, 400)
"""Iterations that are tried until a peer reaches an error."""


def _has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def quiet(work: Callable[[], Any]) -> Callable[[], Any]:
    """Return work without its warnings."""

    def call() -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return work()

    return call


def _each(fit: Callable[[int], object]) -> Callable[[], float]:
    """Return the seconds of one iteration, from runs of two lengths."""

    def call() -> float:
        seconds = []
        for iterations in (FEW, MANY):
            begin = time.process_time()
            fit(iterations)
            seconds.append(time.process_time() - begin)
        return max(seconds[1] - seconds[0], 0.0) / (MANY - FEW)

    return quiet(call)


def _sklearn(X: Any, k: int, **given: Any) -> Any:
    from sklearn.decomposition import NMF

    return NMF(k, **{"init": "random", "tol": 0, "random_state": 0, **given}).fit(X)


def iterations(X: Any, k: int) -> dict[str, Any]:
    """One iteration of everybody."""
    found: dict[str, Any] = {n: w for n, w in works.exact(X, k).items() if n in ("products", "round")}
    found["scikit-learn cd"] = _each(lambda i: _sklearn(X, k, max_iter=i))
    found["scikit-learn mu"] = _each(lambda i: _sklearn(X, k, max_iter=i, solver="mu"))
    found["nimfa lsnmf"] = _each(lambda i: _nimfa(X, k, i, "Lsnmf")) if _has("nimfa") else "nimfa is not installed"
    found["nimfa nmf"] = _each(lambda i: _nimfa(X, k, i, "Nmf")) if _has("nimfa") else "nimfa is not installed"
    found["torchnmf"] = _each(lambda i: _torchnmf(X, k, i)) if _has("torchnmf") else "torchnmf is not installed"
    return found


def _nimfa(X: Any, k: int, count: int, name: str) -> tuple[Any, Any]:
    import nimfa

    setattr(np, "mat", np.asmatrix)  # noqa: B010 (nimfa 1.4 was written for numpy 1)
    fit = getattr(nimfa, name)(np.asarray(X, np.float64), seed="random_vcol", rank=k, max_iter=count, min_residuals=0)()
    return np.asarray(fit.basis()), np.asarray(fit.coef())


def _torchnmf(X: Any, k: int, count: int) -> tuple[Any, Any]:
    import torch
    from torchnmf.nmf import NMF

    torch.manual_seed(0)
    V = torch.from_numpy(X)
    net = NMF(tuple(V.shape), rank=k)
    net.fit(V, beta=2, tol=0, max_iter=count)
    return net.H.detach().numpy(), net.W.detach().numpy().T  # X ~ H W^T there


def rows_of(name: str) -> Any:
    """Return at most 20000 rows of a data set, shuffled, in float32; ``-tfidf`` after its name weighs its counts."""
    plain, _, weighed = name.partition("-")
    X = datasets.load(plain).X
    if weighed:
        from sklearn.feature_extraction.text import TfidfTransformer

        X = TfidfTransformer().fit_transform(X)
    return X[np.random.default_rng(0).permutation(X.shape[0])[:20000]].astype(np.float32)


def races(name: str, k: int, *, all_peers: bool = False) -> dict[str, Any]:
    """Seconds to the error at which scikit-learn's default solver ends (nndsvda, tol 1e-4)."""
    X = rows_of(name)
    fit = quiet(lambda: _sklearn(X, k, init="nndsvda", tol=1e-4, max_iter=200))()
    target = 1.0001 * relative_error(X, fit.transform(X), fit.components_)
    square = float(X.multiply(X).sum() if sparse.issparse(X) else np.vdot(X, X))

    def until(clients: int) -> Callable[[], float]:
        Xs = [X[i::clients] for i in range(clients)]

        def race() -> float:
            begin = time.process_time()
            reached = lambda line, shared: line.stage > 0 and 2 * line.loss <= target**2 * square  # noqa: E731
            method = build("exact", k, Plan(200), Facts(clients, X.shape[1], X.shape[0]))[0]
            end = run(method, Xs, rounds=200, stop=None, callbacks=[reached], engine=Inline(workers=1)).history[-1]
            return time.process_time() - begin if reached(end, None) else float("inf")

        return quiet(race)

    def ladder(fit: Callable[[int], Any]) -> Callable[[], float]:
        def race() -> float:
            for count in LADDER:
                begin = time.process_time()
                W, H = fit(count)
                if relative_error(X, W, H) <= target:
                    return time.process_time() - begin
            return float("inf")

        return quiet(race)

    def mu(count: int) -> Any:
        fit = _sklearn(X, k, init="nndsvda", max_iter=count, solver="mu")
        return fit.transform(X), fit.components_

    found: dict[str, Any] = {
        "scikit-learn cd": quiet(lambda: _sklearn(X, k, init="nndsvda", tol=1e-4, max_iter=200)),
        "one client": until(1),
        "ten clients": until(10),
    }
    found["one client"]()  # kernels are loaded
    if not all_peers:
        return found
    found |= {
        "scikit-learn mu": ladder(mu),
        "scikit-learn minibatch": ladder(lambda count: _minibatch(X, k, count)),
    }
    if sparse.issparse(X):
        return found
    if not _has("torchnmf"):
        return {**found, "torchnmf": "torchnmf is not installed"}
    return {**found, "torchnmf": ladder(lambda count: _torchnmf(X, k, count))}


def ten(name: str, k: int) -> dict[str, Any]:
    """Whole default fits to their own ends: of one client, and of ten that share its rows evenly or are all different.

    The latter have rows sorted by their strongest component. Short fits are several under one clock.
    """
    X = rows_of(name)

    def fit(Xs: Any) -> Any:
        return FederatedNMF(k, random_state=0, engine=Inline(workers=1)).fit(Xs)

    alone = quiet(lambda: fit(X))()  # kernels are loaded
    order = np.argsort(alone.transform(X).argmax(axis=1), kind="stable")
    begin = time.process_time()
    quiet(lambda: fit(X))()
    times = max(1, math.ceil(LEAST / max(time.process_time() - begin, 1e-3)))

    def timed(Xs: Any) -> Callable[[], float]:
        def call() -> float:
            begin = time.process_time()
            for _ in range(times):
                fit(Xs)
            return (time.process_time() - begin) / times

        return quiet(call)

    found = {
        "one client": timed(X),
        "ten clients, even": timed([X[i::10] for i in range(10)]),
        "ten clients, sorted": timed([X[part] for part in np.array_split(order, 10)]),
    }
    for work in found.values():
        work()
    return found


def _minibatch(X: Any, k: int, count: int) -> Any:
    from sklearn.decomposition import MiniBatchNMF

    fit = MiniBatchNMF(k, init="nndsvda", max_iter=count // 5, tol=0, max_no_improvement=None, random_state=0).fit(X)
    return fit.transform(X), fit.components_


def ratings() -> dict[str, Any]:
    """One iteration of alternating least squares over observed entries; implicit's also weighs those that are not."""
    X, k = matrices.ratings(), 16
    ours = works.Rounds(catalog.make("exact-als", k), [X])
    if not _has("implicit"):
        return {"exact-als": ours, "implicit als": "implicit is not installed"}
    from implicit.cpu.als import AlternatingLeastSquares

    def fit(count: int) -> None:
        AlternatingLeastSquares(k, iterations=count, num_threads=1, random_state=0).fit(X, show_progress=False)

    return {"exact-als": ours, "implicit als": _each(fit)}


def consensus() -> dict[str, Any]:
    """Twenty starts and what they agree on; of cNMF its factorize step, which is scikit-learn's NMF for each start."""
    X, k, starts = matrices.dense("float64", 2000, 300, 8), 8, 20

    def ours() -> None:
        run(catalog.make("consensus", k, starts=starts), [X], engine=Inline(workers=1))

    def theirs() -> None:
        for seed in range(starts):  # cnmf.cNMF._nmf with its default arguments
            options = {"init": "random", "tol": 1e-4, "max_iter": 1000, "random_state": seed, "solver": "mu"}
            _sklearn(X, k, beta_loss="frobenius", **options)

    return {"consensus": quiet(ours), "cNMF factorize": quiet(theirs)}


def barycenters() -> dict[str, Any]:
    """Merge components of twenty factors: by aligned means, and by POT's barycenter with free support."""
    import ot

    rng = np.random.default_rng(0)
    center = rng.uniform(size=(10, 200))
    factors = [(center + 0.1 * rng.uniform(size=center.shape))[rng.permutation(10)] for _ in range(20)]
    weights, masses = np.full(20, 1 / 20), [np.full(10, 0.1)] * 20

    def theirs() -> None:
        ot.lp.free_support_barycenter(factors, masses, factors[0], numItermax=20)

    found = {
        f"{name} (ours)": (lambda b=b: b(factors, weights, factors[0], 0)) for name, b in barycenter.catalog().items()
    }
    return {**found, "POT free support": quiet(theirs)}
