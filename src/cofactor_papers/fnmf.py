"""FNMF (Dalleiger and Gionis): barycenters, clients under shortage and surplus, drift, noise, and Table 1."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from cofactor.combine import align, barycenter
from cofactor.data import datasets, partition, synthetic
from cofactor.engines.loop import run
from cofactor.local import arrays
from cofactor.local.refit import refit
from cofactor.local.stats import normalize
from cofactor.methods import catalog
from cofactor.methods.wrapped import Wrapped
from cofactor.metrics import orthogonality_gap, sum_rmsd
from cofactor.plan import Stop
from cofactor.types import Array, Data, Local, Message, Shared

Cell = dict[str, Any]


def made(cell: Cell, rank: int, **more: Any) -> Any:
    """Return the method of a cell."""
    spec = cell["spec"]
    return catalog.make(spec.get("name", cell["method"]), rank, **spec.get("options", {}), **more)


def blocks(cell: Cell, clients: int, rows: int) -> list[Data]:
    """Dense blocks in random places, with noise that keeps cells at or above 0: the paper's synthetic data."""
    sizes = {"features": cell["features"], "rank": cell["rank"], "patterns": cell.get("patterns")}
    return synthetic.blocks(clients, rows, scale=cell.get("noise", 0.1), seed=cell["seed"], **sizes).Xs


def pooled(Xs: list[Data], rank: int, rounds: int = 150, starts: int = 2) -> float:
    """Return the sum of RMSDs of the best of pooled runs, with codes refitted: what 1.0 means."""
    method = catalog.make("exact", rank, start="random")
    X = arrays.stack(Xs)
    factors = [run(method, [X], rounds=rounds, seed=s, stop=Stop(1e-6, 10)).factor for s in range(starts)]
    return min(sum_rmsd(Xs, [refit(x, H) for x in Xs], H) for H in factors)


# Figure 1


def centre(cell: Cell) -> dict[str, Any]:
    """Barycenter of permuted copies (ideal) or of factors found apart (realistic): loss, gap, seconds."""
    k, m, c = cell["rank"], cell["features"], cell["clients"]
    rng = np.random.default_rng([cell["seed"], c, m])
    planted = normalize(synthetic.blocks(1, 1, features=m, rank=k, seed=cell["seed"]).factor)
    if cell["setting"] == "ideal":
        factors = [planted[rng.permutation(k)] for _ in range(c)]
    else:
        noisy = [np.maximum(planted + rng.normal(0, cell["noise"], planted.shape), 0) for _ in range(c)]
        factors = [normalize(H[rng.permutation(k)]) for H in noisy]
    made_by = CENTRES[cell["method"]]
    made_by(factors[:2], np.full(2, 0.5), factors[0], 0)  # what is loaded once is not timed
    begin = time.process_time()
    H = made_by(factors, np.full(c, 1 / c), factors[0], 0)
    seconds = time.process_time() - begin
    own = ALIGNED.get(cell["method"], align.Lap())
    plans = [own(H, F) for F in factors]
    exact = [align.Lap()(H, F) for F in factors]
    loss = float(np.mean([np.linalg.norm(H - P @ F) ** 2 / 2 for P, F in zip(exact, factors)]))
    soft = float(np.mean([np.linalg.norm(H - P @ F) ** 2 / 2 for P, F in zip(plans, factors)]))
    gap = float(np.mean([orthogonality_gap(P) for P in plans]))
    true = float(np.linalg.norm(H - align.Lap()(H, planted) @ planted) / np.sqrt(k))
    return {"loss": soft, "exact_loss": loss, "gap": gap, "seconds": seconds, "distance": true}


def lloyd_once(factors: list[Array], weights: Array, current: Array, t: int) -> Array:
    """k-means as it is first tried: one run of Lloyd's algorithm from random rows."""
    from sklearn.cluster import KMeans

    rows = np.vstack(factors)
    return normalize(KMeans(len(current), init="random", n_init=1, random_state=len(rows)).fit(rows).cluster_centers_)


FIXED: dict[str, Any] = {"lap": align.Lap(), "sk": align.Sinkhorn(), "sk-rho": align.SinkhornRho(), "knn": align.Knn(3)}
ALIGNED: dict[str, Any] = {**FIXED, "kmc": align.Knn(1), "kmc-best": align.Knn(1), "fcm": align.Knn(1)}
CENTRES: dict[str, Any] = {
    **{name: barycenter.FixedPoint(a) for name, a in FIXED.items()},
    "kmc": lloyd_once,
    "kmc-best": barycenter.KMeans(),
    "fcm": barycenter.FuzzyCMeans(),
    "greedy": barycenter.Greedy(),
    "hierarchical": barycenter.Hierarchical(),
}


# Figures 2 and 3


def clients(cell: Cell) -> dict[str, Any]:
    """Error by the number of clients: a fixed number of rows dealt out (shortage), or rows for each (surplus)."""
    c = cell["clients"]
    rows = cell["total"] // c if cell["setting"] == "shortage" else cell["rows"]
    return _ratio(cell, blocks(cell, c, rows))


def drift(cell: Cell) -> dict[str, Any]:
    """Error by local sweeps in a round, the number of all sweeps the same."""
    Xs = blocks(cell, cell["clients"], cell["rows"])
    spec = cell["spec"]
    if spec.get("one_shot") or spec.get("own"):
        return _ratio(cell, Xs)
    rounds = max(cell["total"] // cell["sweeps"], 1)
    return _ratio(cell, Xs, rounds=rounds, sweeps=cell["sweeps"])


def convergence(cell: Cell) -> dict[str, Any]:
    """Error after every round, with codes refitted for that round's factor."""
    Xs = blocks(cell, cell["clients"], cell["rows"])
    floor, curve = pooled(Xs, cell["rank"]), []
    options = {} if "sweeps" not in cell["spec"] else {"sweeps": cell["sweeps"]}
    method = made(cell, cell["rank"], **options)

    def watch(_: Any, shared: Shared) -> None:
        H = method.factor(shared)
        curve.append(sum_rmsd(Xs, [refit(x, H) for x in Xs], H) / floor)

    run(method, Xs, rounds=cell["spec"].get("rounds", cell["rounds"]), seed=cell["seed"], callbacks=[watch])
    return {"round": list(range(1, len(curve) + 1)), "ratio": curve, "last": curve[-1], "first": curve[0]}


def _ratio(cell: Cell, Xs: list[Data], rounds: int | None = None, **more: Any) -> dict[str, Any]:
    floor = pooled(Xs, cell["rank"])
    if cell["spec"].get("own") == "pooled":
        return {"rmsd": floor / len(Xs), "ratio": 1.0, "seconds": 0.0}
    method, own = made(cell, cell["rank"], **more), cell["spec"].get("rounds", cell.get("rounds", 1))
    run(method, [X[: 3 * cell["rank"]] for X in Xs[:2]], rounds=min(own, 2))  # what is loaded once is not timed
    begin = time.process_time()
    result = run(method, Xs, rounds=rounds or own, seed=cell["seed"])
    error = sum_rmsd(Xs, result.codes, result.factor)
    seconds = time.process_time() - begin
    return {"rmsd": error / len(Xs), "ratio": error / floor, "seconds": seconds, "sent": result.bytes}


# Figure 4: the paper's noise, which is no guarantee


@dataclass(frozen=True)
class Noisy(Wrapped):
    """A method whose uploaded factors carry the paper's noise; NOT a privacy guarantee.

    ``sigma = sensitivity / epsilon sqrt(2 log(5 / (4 delta)))`` or Laplace of ``sensitivity / epsilon``. The paper does
    not say what its sensitivity is: nothing is clipped, and rows at norm 1 are all that bounds a factor. It pays
    epsilon in every round and adds nothing up.
    """

    epsilon: float
    sensitivity: float
    laplace: bool = False
    delta: float = 0.05

    def step(self, data: Data, shared: Shared, local: Local, t: int, rng: np.random.Generator) -> tuple[Local, Message]:
        """Step the method, then add noise to the factor that it sends."""
        local, message = self.method.step(data, shared, local, t, rng)
        H: Array = message.arrays["factor"]
        scale = self.sensitivity / self.epsilon
        sigma = scale * math.sqrt(2 * math.log(5 / (4 * self.delta)))
        noise = rng.laplace(0, scale, H.shape) if self.laplace else rng.normal(0, sigma, H.shape)
        weight = message.weight if self.traits.additive else 1.0
        noisy = np.maximum(H / weight + noise, 0) * weight
        return local, Message({**message.arrays, "factor": noisy.astype(H.dtype)}, message.weight)


def noise(cell: Cell) -> dict[str, Any]:
    """Error with the paper's noise on every upload; beside it what the epsilon of all rounds adds up to."""
    Xs = blocks(cell, cell["clients"], cell["rows"])
    floor = pooled(Xs, cell["rank"])
    method, rounds = made(cell, cell["rank"]), cell["spec"].get("rounds", cell["rounds"])
    # one row changes a unit row of a factor by about 1 / rows of its length: the paper's sensitivity, at a guess
    bad = Noisy(method, cell["epsilon"], 1 / cell["rows"], laplace=cell["mechanism"] == "laplace")
    result = run(bad, Xs, rounds=rounds, seed=cell["seed"])
    total = _composed(cell["epsilon"], rounds, laplace=bad.laplace)
    return {"ratio": sum_rmsd(Xs, result.codes, result.factor) / floor, "total": total}


def _composed(epsilon: float, rounds: int, *, laplace: bool) -> float:
    """Return what all rounds cost at delta 0.05, if the sensitivity were one: a sum, or zCDP for Gaussian noise."""
    if laplace or rounds == 1:
        return epsilon * rounds
    rho = rounds * epsilon**2 / (4 * math.log(5 / (4 * 0.05)))
    return min(rounds * epsilon, rho + 2 * math.sqrt(rho * math.log(1 / 0.05)))


def private(cell: Cell) -> dict[str, Any]:
    """Error of a private method with the same total epsilon for the whole run, on the same data."""
    from cofactor.methods.build import Facts, build
    from cofactor.plan import Plan
    from cofactor.privacy.allowance import Privacy

    Xs = blocks(cell, cell["clients"], cell["rows"])
    plan = Plan(privacy=Privacy(cell["epsilon"], 0.05 / len(Xs) / cell["rows"]), secure=True, seed=cell["seed"])
    n = len(Xs) * cell["rows"]
    method, plan = build("dp-moments", cell["rank"], plan, Facts(len(Xs), cell["features"], n))
    result = run(method, Xs, plan)
    return {"ratio": sum_rmsd(Xs, result.codes, result.factor) / pooled(Xs, cell["rank"]), "total": cell["epsilon"]}


def noisy_or_private(cell: Cell) -> dict[str, Any]:
    """A cell of Fig. 4: the paper's mechanism, or ours at that total."""
    return private(cell) if cell["spec"].get("private") else noise(cell)


# Table 1


def table(cell: Cell) -> dict[str, Any]:
    """Sum of the RMSDs of 50 clients on real data."""
    X = real(cell["data"], cell["data_rows"])
    Xs = partition.split(X, partition.iid(X.shape[0], min(cell["clients"], X.shape[0]), seed=cell["seed"]))
    rank = min(cell["rank"], min(X.shape) // 2)
    if cell["spec"].get("own") == "pooled":
        return {"rmsd": pooled(Xs, rank, rounds=100, starts=1)}
    if cell["spec"].get("own") == "mean":
        mean = np.asarray(X.mean(axis=0)).reshape(1, -1)
        H = normalize(mean.astype(X.dtype))
        return {"rmsd": sum_rmsd(Xs, [refit(x, H) for x in Xs], H)}
    result = run(made(cell, rank), Xs, rounds=cell["spec"].get("rounds", cell["rounds"]), seed=cell["seed"])
    return {"rmsd": sum_rmsd(Xs, result.codes, result.factor), "sent": result.bytes}


def real(name: str, rows: int) -> Data:
    """Return some rows of a data set: pixels in [0, 1], ratings and expressions as they are."""
    X = datasets.load(name).X
    if name.startswith("scrna_hnsc"):
        X = np.log1p(X)
    if X.shape[0] > rows:
        X = X[np.sort(np.random.default_rng(0).choice(X.shape[0], rows, replace=False))]
    return X.astype(np.float32)


def convergence_or_drift(cell: Cell) -> dict[str, Any]:
    """A cell of Fig. 3, left or right."""
    return convergence(cell) if cell["part"] == "convergence" else drift(cell)
