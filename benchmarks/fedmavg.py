"""FedMAvg on planted label-skewed clients: error after 100 rounds by participants, and the two comparison methods.

P = 50 clients of 40 rows, 60 features, rank 5; the component of a row is drawn from its client's Dirichlet(.1) shares.
The noise is set so that the pooled relative error is about .0427. Then clusters of digits sorted by label.

python benchmarks/fedmavg.py
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from cofactor import FederatedKMeans, metrics, run
from cofactor.data import datasets
from cofactor.methods import catalog
from cofactor.methods.clusters import labels
from cofactor.plan import ByShare

CLIENTS, ROWS, FEATURES, RANK, ROUNDS = 50, 40, 60, 5, 100
NOISE = 0.0291


def planted(seed: int = 0) -> tuple[list[np.ndarray], np.ndarray]:
    """Return label-skewed clients and the factor that was put in."""
    rng = np.random.default_rng(seed)
    H = rng.uniform(size=(RANK, FEATURES)) * (rng.uniform(size=(RANK, FEATURES)) < 0.5)
    Xs = []
    for _ in range(CLIENTS):
        labels = rng.choice(RANK, ROWS, p=rng.dirichlet(np.full(RANK, 0.1)))
        W = 0.3 * rng.uniform(size=(ROWS, RANK)) + np.eye(RANK)[labels] * rng.uniform(0.5, 1.5, size=(ROWS, 1))
        Xs.append(np.maximum(W @ H + rng.normal(0, NOISE, (ROWS, FEATURES)), 0))
    return Xs, H


def cosine(H: np.ndarray, planted: np.ndarray) -> float:
    """Return the smallest cosine between matched components."""
    unit = [F / np.linalg.norm(F, axis=1, keepdims=True) for F in (H, planted)]
    found = unit[0] @ unit[1].T
    return float(found[linear_sum_assignment(-found)].min())


def clusters() -> None:
    """Print how well digits sorted by label over 20 clients are told apart."""
    data = datasets.load("digits")
    order = np.argsort(data.labels, kind="stable")
    Xs, truth = np.array_split(data.X[order], 20), data.labels[order]
    plain = run(catalog.make("fedmavg", 10, codes="simplex"), Xs, rounds=30)
    found = {"fedmavg, simplex codes from a random start": labels(plain.codes)}
    for name in catalog.names("clusters"):
        found[f"FederatedKMeans, {name}"] = FederatedKMeans(10, method=name, rounds=30, random_state=0).fit(Xs).labels_
    for name, parts in found.items():
        nmi, ari = (
            f(truth, np.concatenate(parts)) for f in (metrics.normalized_mutual_information, metrics.adjusted_rand)
        )
        print(f"digits, {name}: NMI {nmi:.3f}, ARI {ari:.3f}")


def main() -> None:
    Xs, H = planted()
    mavg = catalog.make("fedmavg", RANK)
    plans = {
        "pooled (exact, 300 rounds)": (catalog.make("exact", RANK), 1.0, 300),
        "fedmavg, all": (mavg, 1.0, ROUNDS),
        **{f"fedmavg, m = {m}": (mavg, ByShare(m), ROUNDS) for m in (10, 5, 1)},
        "fedmavg, Qhat = 10": (catalog.make("fedmavg", RANK, factor_steps=10), 1.0, ROUNDS),
        "fedmavg, constant Q2 = 10": (catalog.make("fedmavg", RANK, constant=True, factor_steps=10), 1.0, ROUNDS),
        "fedmavg, constant Q2 = 10, m = 10": (
            catalog.make("fedmavg", RANK, constant=True, factor_steps=10),
            ByShare(10),
            ROUNDS,
        ),
        "fedmgs, all": (catalog.make("fedmgs", RANK), 1.0, ROUNDS),
    }
    for name, (method, participation, rounds) in plans.items():
        out = run(method, Xs, rounds=rounds, participation=participation)
        error = metrics.pooled_error(Xs, out.codes, out.factor)
        print(f"{name:36s} error {error:.4f}  cosine {cosine(out.factor, H):.4f}  {out.bytes / 1e6:6.2f} MB")
    clusters()


if __name__ == "__main__":
    main()
