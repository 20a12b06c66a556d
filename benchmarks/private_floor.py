"""Private NMF against the floor: never worse than the better of the private mean row and a constant row.

For every dataset of COFACTOR_DATA, epsilon and number of clients, with and without secure sums: the loss
``1/(2N) |X - W H|^2`` (rows of norm 1, codes refitted) of ``dp-moments``, of the noisy mean row with the whole budget,
and of a constant row. The noise of a sum over clients is drawn once, with the deviation that their parts add up to:
that has the distribution of a run (up to the grid of 2^-24) at the price of one client. With "each" real runs are made,
in which every client has its own rows, noise and masks.

COFACTOR_DATA=<folder> python benchmarks/private_floor.py [names,...] [seeds] [each] > floor.md
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy import sparse

from cofactor import Privacy, run
from cofactor.assurance.worst_case import scaled
from cofactor.data import datasets
from cofactor.local import arrays
from cofactor.local.refit import refit
from cofactor.local.stats import normalize
from cofactor.methods.build import Facts, build
from cofactor.plan import Plan
from cofactor.types import Array, Data, Message

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
CLIENTS = ((1, False), (5, False), (5, True), (20, False), (20, True))
DELTA, RANK, MOST = 1e-5, 10, 20_000
"""Of more rows than MOST a fixed draw is taken."""


Way = Callable[..., tuple[Array, bool, float]]
"""(rows, clients, epsilon, secure, seed) -> factor, whether it knows the second moment, deviation of the mean row."""


class Found(NamedTuple):
    """One cell: the loss, the two floors, and whether the second moment was released."""

    loss: float
    mean_row: float
    constant: float
    second: bool

    @property
    def ratio(self) -> float:
        """Loss over the lower floor: at most 1.02 is what is promised."""
        return self.loss / min(self.mean_row, self.constant)


def rows(name: str) -> Data:
    """Return rows of norm 1, float32."""
    X = datasets.load(name).X
    if X.shape[0] > MOST:
        X = X[np.sort(np.random.default_rng(0).permutation(X.shape[0])[:MOST])]
    if sparse.issparse(X):
        X = X.tocsr().astype(np.float32)
        norms = np.sqrt(arrays.row_squares(X))
        return sparse.csr_matrix(sparse.diags((1 / np.where(norms > 0, norms, 1)).astype(np.float32)) @ X)
    X = np.asarray(X, np.float32)
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-30)


def objective(X: Data, H: Array) -> float:
    """Return the loss of a factor on at most 3000 rows."""
    if X.shape[0] > 3000:
        X = X[np.sort(np.random.default_rng(1).permutation(X.shape[0])[:3000])]
    X, H = X.astype(np.float64), normalize(np.atleast_2d(H)).astype(np.float64)
    W = refit(X, H)
    fit = np.einsum("nk,nk->", arrays.times_factor(X, H), W, dtype=np.float64)
    return 0.5 * (arrays.square(X) - 2 * fit + float(np.sum((W.T @ W) * (H @ H.T)))) / X.shape[0]


def private(X: Data, clients: int, *, epsilon: float, secure: bool, seed: int) -> tuple[Array, bool, float]:
    """Return the factor, whether it knows the second moment, and the deviation of a sum with the whole budget."""
    plan, m = Plan(privacy=Privacy(epsilon, DELTA), secure=secure), X.shape[1]
    method, _ = build("dp-moments", min(RANK, m), plan, Facts(clients, m))
    silent, rng, allowance = scaled(method, 0.0), np.random.default_rng(seed), method.allowance
    shared = method.start(m, np.random.default_rng([seed, 1]))
    for t in range(method.rounds):
        sent = silent.step(X, shared, silent.join(X, shared, t, rng), t, rng)[1]
        noisy = {
            name: a
            + allowance.sigma(t, name, sent.cost[name].clip, clients, clients) * rng.standard_normal(np.shape(a))
            for name, a in sent.arrays.items()
        }
        shared = method.aggregate(shared, [Message(noisy, float(clients), spared=clients)], t)
    whole = allowance.multiplier * np.sqrt(clients / allowance.parts.full)
    return method.factor(shared), bool(shared.extra["second"]), float(whole)


def each(X: Data, clients: int, *, epsilon: float, secure: bool, seed: int) -> tuple[Array, bool, float]:
    """The same by a real run: clients with rows, noise and masks of their own."""
    plan = Plan(privacy=Privacy(epsilon, DELTA), secure=secure, seed=seed)
    method, plan = build("dp-moments", min(RANK, X.shape[1]), plan, Facts(clients, X.shape[1]))
    places = np.array_split(np.random.default_rng(seed).permutation(X.shape[0]), clients)
    found = run(method, [X[np.sort(place)] for place in places], plan)
    parts = method.traits.allowance.parts
    return found.factor, not found.remark, float(method.traits.allowance.multiplier * np.sqrt(clients / parts.full))


def cell(X: Data, constant: float, clients: int, *, epsilon: float, secure: bool, seed: int, way: Way) -> Found:
    H, second, sigma = way(X, clients, epsilon=epsilon, secure=secure, seed=seed)
    noisy = np.asarray(X.sum(axis=0)).ravel() + sigma * np.random.default_rng([seed, 2]).standard_normal(X.shape[1])
    return Found(objective(X, H), objective(X, np.maximum(noisy, 0)), constant, second)


def table(name: str, seeds: int, way: Way) -> Iterator[str]:
    """Yield one line for each number of clients: mean losses over the epsilons, and the worst ratio of any seed."""
    begin, X = time.process_time(), rows(name)
    constant = objective(X, np.ones((1, X.shape[1])))
    for clients, secure in CLIENTS:
        found = [
            [cell(X, constant, clients, epsilon=e, secure=secure, seed=seed, way=way) for seed in range(seeds)]
            for e in EPSILONS
        ]
        losses = [
            f"{np.mean([f.loss for f in those]):.4f}{'' if all(f.second for f in those) else '*'} / "
            f"{np.mean([min(f.mean_row, f.constant) for f in those]):.4f}"
            for those in found
        ]
        worst = max(f.ratio for those in found for f in those)
        who = f"{clients}{', secure' if secure else ''}"
        yield f"| {name} {X.shape[0]} x {X.shape[1]} | {who} | {' | '.join(losses)} | {worst:.3f} |"
    print(f"{name}: {time.process_time() - begin:.0f} s", file=sys.stderr)


def main(names: str = "", seeds: str = "1", how: str = "") -> None:
    chosen = [n for n in (names.split(",") if names else datasets.names()) if n]
    print(f"| data, k = {RANK} | clients | {' | '.join(f'epsilon {e:g}' for e in EPSILONS)} | worst ratio |")
    print(f"|---|---|{'---|' * len(EPSILONS)}---|")
    for name in chosen:
        for line in table(name, int(seeds), each if how == "each" else private):
            print(line, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
