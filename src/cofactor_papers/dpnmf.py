"""DP-NMF with outliers (Saha and Imtiaz): Algorithm 2 as printed, what it costs in total, faces, topics, ratings.

The algorithm here is the paper's, for comparison: its start (NNDSVD) reads the data and pays nothing, and the epsilon
on its axes is that of one step. ``total`` is its own theorem 3.1. The library's methods are beside it at that total.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cofactor.data import datasets
from cofactor.engines.loop import run
from cofactor.local.refit import refit
from cofactor.local.stats import for_codes, lipschitz, normalize
from cofactor.methods.build import Facts, build
from cofactor.plan import Plan
from cofactor.privacy.allowance import Privacy
from cofactor.reproduce.drawn import pictures
from cofactor.types import Array

Cell = dict[str, Any]
DELTA = 1e-5


def total_epsilon(step: float, steps: int) -> float:
    """Theorem 3.1: T steps, each with two Gaussian releases at ``epsilon_t``; ``rho + 2 sqrt(rho log(1 / delta))``."""
    rho = steps * (step / math.sqrt(2 * math.log(1.25 / DELTA))) ** 2
    return rho + 2 * math.sqrt(rho * math.log(1 / DELTA))


def algorithm2(X: Array, cell: Cell, step: float | None, *, nndsvd: bool = True, outliers: float = math.inf) -> Array:
    """Return the factor (k x m) of the paper's Algorithm 2, rows of X at norm 1; ``step`` None adds no noise."""
    n, k, rng = len(X), cell["rank"], np.random.default_rng(cell["seed"])
    H = first(X, k) if nndsvd else normalize(rng.uniform(size=(k, X.shape[1])))
    W, R = np.zeros((n, k)), np.zeros((1, 1))
    scale = 0.0 if step is None else math.sqrt(2 * math.log(1.25 / DELTA)) / step / n
    bounds = (2 * scale, (4 if math.isfinite(outliers) else 2) * scale)
    for _ in range(cell["steps"]):
        clean = X - R
        stats = for_codes(clean, H)
        L = max(lipschitz(stats.gram), 1e-12)
        for _ in range(5):
            W = np.maximum(W - (W @ stats.gram - stats.cross) / L, 0)
        W /= np.maximum(np.linalg.norm(W, axis=1, keepdims=True), 1)
        if math.isfinite(outliers):
            rest = X - W @ H
            R = np.sign(rest) * np.maximum(np.abs(rest) - outliers, 0)
            clean = X - R
        gram = W.T @ W / n + rng.normal(0, bounds[0], (k, k))
        cross = W.T @ clean / n + rng.normal(0, bounds[1], H.shape)
        H = np.maximum(H - cell["rate"] * (gram @ H - cross), 0)
        H /= np.maximum(np.linalg.norm(H, axis=1, keepdims=True), 1)
    return H


def first(X: Array, k: int) -> Array:
    """NNDSVD: positive or negative parts of singular vectors; reads the data and pays nothing."""
    from sklearn.utils.extmath import randomized_svd

    _, _, V = randomized_svd(X, k, random_state=0)
    positive, negative = np.maximum(V, 0), np.maximum(-V, 0)
    larger = np.linalg.norm(positive, axis=1) >= np.linalg.norm(negative, axis=1)
    return normalize(np.where(larger[:, None], positive, negative))


def rows(cell: Cell) -> tuple[Array, Any]:
    """Return rows at norm 1, and the data set; of text the most frequent terms, of tf-idf weights."""
    data = datasets.load(cell["data"])
    X = data.X
    if X.shape[0] > cell.get("data_rows", X.shape[0]):
        X = X[np.sort(np.random.default_rng(0).choice(X.shape[0], cell["data_rows"], replace=False))]
    if hasattr(X, "toarray"):
        kept = np.sort(np.argsort(-np.asarray((X > 0).sum(axis=0)).ravel())[: cell["terms"]])
        X = X[:, kept].toarray()
        X = X * np.log(len(X) / np.maximum((X > 0).sum(axis=0), 1))
        X = X[X.any(axis=1)]
    return normalize(np.asarray(X, np.float64)), data


def found(X: Array, cell: Cell) -> tuple[Array, float]:
    """Return the factor of a cell, and what all of it costs."""
    spec, step = cell["spec"], cell.get("epsilon")
    total = math.inf if step is None else total_epsilon(step, cell["steps"])
    if spec.get("own") == "paper":
        extra = {"outliers": cell.get("threshold", math.inf)} if spec.get("outliers") else {}
        return algorithm2(X, cell, step, nndsvd=not spec.get("random"), **extra), total
    plan = Plan(privacy=Privacy(total, DELTA), seed=cell["seed"])
    name = spec.get("name", cell["method"])
    method, plan = build(name, cell["rank"], plan, Facts(1, X.shape[1], len(X)), spec.get("options", {}))
    return run(method, [X], plan).factor, total


def objective(X: Array, H: Array) -> float:
    """``1/(2N) |X - W H|^2`` with codes for this factor."""
    unit = normalize(H)
    W = refit(X, unit)
    return float(np.sum((X - W @ unit) ** 2) / (2 * len(X)))


def utility(cell: Cell) -> dict[str, Any]:
    """Objective by epsilon of one step, and by what the run costs in total."""
    X, _ = rows(cell)
    H, total = found(X, cell)
    level = objective(X, normalize(X.mean(axis=0, keepdims=True)))
    return {"objective": objective(X, H), "total": total, "mean_row": level}


def faces(cell: Cell) -> dict[str, Any]:
    """Components as pictures, and the objective against clean rows; ``dirty``: a tenth of the rows contaminated."""
    clean, data = rows(cell)
    X = clean
    if cell["setting"] == "outliers":
        rng = np.random.default_rng(1)
        bad = rng.choice(len(X), len(X) // 10, replace=False)
        X = clean / clean.max(axis=1, keepdims=True)
        hit = rng.uniform(size=(len(bad), X.shape[1])) < 0.7
        X[bad] += hit * rng.uniform(-1, 1, hit.shape)
        X = normalize(np.maximum(X, 0))
    H, total = found(X, cell)
    order = np.argsort(-refit(clean, normalize(H)).sum(axis=0))
    shown = data.pictures(normalize(H)[order[: cell["shown"]]])
    return {"objective": objective(clean, H), "total": total, "picture": pictures(np.asarray(shown, np.float64))}


def coherence(cell: Cell) -> dict[str, Any]:
    """Mean NPMI of the ten top words of every topic, counted in the same documents."""
    X, _ = rows(cell)
    H, total = found(X, cell)
    present = (X > 0).astype(np.float64)
    share = present.mean(axis=0)
    scores = []
    for component in H:
        top = np.argsort(-component)[:10]
        both = present[:, top].T @ present[:, top] / len(X)
        for i in range(10):
            for j in range(i):
                if both[i, j] > 0:
                    pmi = math.log(both[i, j] / (share[top[i]] * share[top[j]]))
                    scores.append(pmi / -math.log(both[i, j]) if both[i, j] < 1 else 1.0)
                else:
                    scores.append(-1.0)
    return {"npmi": float(np.mean(scores)), "total": total, "objective": objective(X, H)}


def ratings(cell: Cell) -> dict[str, Any]:
    """The paper's RMSE (all pairs, ratings over 5, unrated ones count as 0) and that of the ratings there are."""
    R = datasets.load(cell["data"]).X.tocsr()
    often = np.sort(np.argsort(-np.asarray((R > 0).sum(axis=0)).ravel())[: cell["terms"]])
    R = R[:, often].toarray().astype(np.float64) / 5
    seen = R > 0
    scale = np.maximum(np.linalg.norm(R, axis=1, keepdims=True), 1e-12)
    if cell["spec"].get("own") == "zero":
        guess, total = np.zeros_like(R), 0.0
    elif cell["spec"].get("own") == "constant":
        guess, total = np.where(seen, R[seen].mean(), 0.0), math.inf
    else:
        X = R / scale
        H, total = found(X, cell)
        unit = normalize(H)
        guess = scale * (refit(X, unit) @ unit)
    every = float(np.sqrt(np.mean((R - guess) ** 2)))
    return {"rmse": every, "stars": float(5 * np.sqrt(np.mean((R - guess)[seen] ** 2))), "total": total}
