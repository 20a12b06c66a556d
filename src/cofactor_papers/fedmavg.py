"""FedMAvg (Wang, Suwandi and Chang; a poster): participants, Qhat, communication to a target, ratings, clusters."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from cofactor import ratings
from cofactor.data import datasets, partition, ratings_split
from cofactor.engines.loop import run
from cofactor.local import arrays
from cofactor.local.refit import refit
from cofactor.methods import catalog
from cofactor.methods.clusters import labels
from cofactor.metrics import adjusted_rand, normalized_mutual_information, pooled_error
from cofactor.plan import ByShare
from cofactor.types import Data, Shared

Cell = dict[str, Any]
NEVER = float("inf")


def made(cell: Cell) -> Any:
    """Return the method of a cell."""
    spec = cell["spec"]
    more = {"factor_steps": cell["qhat"]} if "qhat" in cell else {}
    return catalog.make(spec.get("name", cell["method"]), cell["rank"], **{**spec.get("options", {}), **more})


def planted(cell: Cell) -> list[Data]:
    """Label-skewed clients: the component of a row is drawn from its client's Dirichlet(.1) shares."""
    k, m, n = cell["rank"], cell["features"], cell["rows"]
    rng = np.random.default_rng(cell["seed"])
    H = rng.uniform(size=(k, m)) * (rng.uniform(size=(k, m)) < 0.5)
    Xs = []
    for _ in range(cell["clients"]):
        which = rng.choice(k, n, p=rng.dirichlet(np.full(k, 0.1)))
        W = 0.3 * rng.uniform(size=(n, k)) + np.eye(k)[which] * rng.uniform(0.5, 1.5, size=(n, 1))
        Xs.append(np.maximum(W @ H + rng.normal(0, 0.0291, (n, m)), 0))
    return Xs


def convergence(cell: Cell) -> dict[str, Any]:
    """Relative error by round and by megabytes uploaded; codes refitted for every factor that is looked at."""
    Xs = planted(cell)
    method = made(cell)
    at, sent, errors, up = [], [], [], 0
    X = arrays.stack(Xs)
    floor = pooled_error([X], *_pooled(X, cell["rank"]))

    def watch(line: Any, shared: Shared) -> None:
        nonlocal up
        up += line.bytes_up
        if line.round < 5 or line.round % 5 == 4:
            H = method.factor(shared)
            at.append(line.round + 1)
            sent.append(up / 1e6)
            errors.append(pooled_error(Xs, [refit(x, H) for x in Xs], H) / floor)

    some: dict[str, Any] = {} if cell["m"] >= len(Xs) else {"participation": ByShare(cell["m"])}
    run(method, Xs, rounds=cell["spec"].get("rounds", cell["rounds"]), seed=cell["seed"], callbacks=[watch], **some)
    return _curve(at, sent, errors, cell["goal"])


def _pooled(X: Data, rank: int) -> tuple[list[Any], Any]:
    found = run(catalog.make("exact", rank, start="random"), [X], rounds=200, seed=0)
    return found.codes, found.factor


def _curve(at: list[int], sent: list[float], errors: list[float], goal: float) -> dict[str, Any]:
    reached = [i for i, e in enumerate(errors) if e <= goal]
    return {
        "round": at,
        "megabytes": sent,
        "error": errors,
        "last": errors[-1],
        "best": min(errors),
        "rounds_to_goal": at[reached[0]] if reached else NEVER,
        "megabytes_to_goal": sent[reached[0]] if reached else NEVER,
    }


def recommend(cell: Cell) -> dict[str, Any]:
    """Test RMSE by round and by megabytes uploaded: every user is a client, the last fifth of ratings is held out."""
    R = datasets.load(cell["data"]).X.tocsr().astype(np.float64)
    path = Path(os.environ[datasets.VARIABLE]) / str(datasets.file_of(cell["data"]))
    with np.load(path) as file:
        split = ratings_split.by_time(R, file["timestamp"].astype(np.float64))
    users = split.train.shape[0]
    clients = [split.train[u] for u in range(users)]
    method = made(cell)
    at, sent, errors, up = [], [], [], 0

    def watch(line: Any, shared: Shared) -> None:
        nonlocal up
        up += line.bytes_up
        if line.round < 4 or line.round % 5 == 4:
            H = method.factor(shared)
            at.append(line.round + 1)
            sent.append(up / 1e6)
            errors.append(_rmse(split.test, method.refit(split.train, H), H))

    some: dict[str, Any] = {} if cell["m"] >= users else {"participation": cell["m"] / users}
    run(
        method, clients, rounds=cell["spec"].get("rounds", cell["rounds"]), seed=cell["seed"], callbacks=[watch], **some
    )
    return _curve(at, sent, errors, cell["goal"])


def _rmse(test: sparse.csr_matrix, W: Any, H: Any) -> float:
    return float(np.sqrt(ratings.residual_squares(test, W, H).sum() / test.nnz))


def clusters(cell: Cell) -> dict[str, Any]:
    """Clusters of digits, dealt at random or sorted by class over 20 clients: NMI and ARI against the classes."""
    data = datasets.load("digits")
    assert data.labels is not None
    c = cell["clients"]
    parts = partition.sorted_by(data.labels, c) if cell["split"] == "sorted" else partition.iid(len(data.X), c, seed=0)
    Xs = partition.split(data.X, parts)
    truth = np.concatenate([data.labels[p] for p in parts])
    some: dict[str, Any] = {} if cell["m"] >= c else {"participation": cell["m"] / c}
    result = run(made(cell), Xs, rounds=cell["rounds"], seed=cell["seed"], **some)
    guess = np.concatenate(labels(result.codes))
    return {"nmi": normalized_mutual_information(truth, guess), "ari": adjusted_rand(truth, guess)}
