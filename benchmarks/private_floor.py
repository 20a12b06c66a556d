"""Private NMF against the floor: never worse than the better of the private mean row and a constant row.

For every dataset of COFACTOR_DATA, epsilon and number of clients, with and without secure sums: the loss
``1/(2N) |X - W H|^2`` (rows of norm 1, codes refitted) of ``dp-moments``, of the noisy mean row with the whole budget,
and of a constant row. The noise of a sum over clients is drawn once, with the deviation that their parts add up to:
that has the distribution of a run (up to the grid of 2^-24) at the price of one client. With "each" real runs are made,
in which every client has its own rows, noise and masks.

COFACTOR_DATA=<folder> python benchmarks/private_floor.py measure [names,...] [seeds,...] [each] >> floor.jsonl
python benchmarks/private_floor.py page floor.jsonl > floor.md
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
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
    """One cell: where, the loss, the two floors, and whether the second moment was released."""

    name: str
    n: int
    m: int
    clients: int
    secure: bool
    epsilon: float
    seed: int
    each: bool
    loss: float
    mean_row: float
    constant: float
    second: bool

    @property
    def floor(self) -> float:
        """The lower one of both floors."""
        return min(self.mean_row, self.constant)


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


def measure(names: str = "", seeds: str = "0", how: str = "") -> None:
    """Print one line of JSON for every cell."""
    way: Way = each if how == "each" else private
    for name in names.split(",") if names else datasets.names():
        begin, X = time.process_time(), rows(name)
        constant, place = objective(X, np.ones((1, X.shape[1]))), (name, *map(int, X.shape))
        for (clients, secure), epsilon, seed in product(CLIENTS, EPSILONS, map(int, seeds.split(","))):
            H, second, sigma = way(X, clients, epsilon=epsilon, secure=secure, seed=seed)
            noise = sigma * np.random.default_rng([seed, 2]).standard_normal(X.shape[1])
            row = objective(X, np.maximum(np.asarray(X.sum(axis=0)).ravel() + noise, 0))
            found = Found(*place, clients, secure, epsilon, seed, bool(how), objective(X, H), row, constant, second)
            print(json.dumps(found), flush=True)
        print(f"{name}: {time.process_time() - begin:.0f} s", file=sys.stderr)


def page(path: str) -> None:
    """Print one line for each dataset and number of clients: mean losses over seeds, and the worst ratio of any."""
    found = [Found(*json.loads(line)) for line in Path(path).read_text().splitlines()]
    print(f"| data, k = {RANK} | clients | {' | '.join(f'epsilon {e:g}' for e in EPSILONS)} | worst ratio |")
    print(f"|---|---|{'---|' * len(EPSILONS)}---|")
    for (name, n, m), (clients, secure) in product(dict.fromkeys(f[:3] for f in found), CLIENTS):
        line = [f for f in found if (f.name, f.clients, f.secure) == (name, clients, secure)]
        if not line:
            continue
        cells = [[f for f in line if f.epsilon == epsilon] for epsilon in EPSILONS]
        losses = [
            f"{np.mean([f.loss for f in those]):.4f}{'' if all(f.second for f in those) else '*'} / "
            f"{np.mean([f.floor for f in those]):.4f}"
            for those in cells
        ]
        worst = max(f.loss / f.floor for f in line)
        print(f"| {name} {n} x {m} | {clients}{', secure' if secure else ''} | {' | '.join(losses)} | {worst:.3f} |")


if __name__ == "__main__":
    {"measure": measure, "page": page}[sys.argv[1]](*sys.argv[2:])
