"""DSANLS (Qian et al.): its secure variants, the attack of theorem 3, and Algorithm 4 as printed.

Clusters are simulated client by client from measured steps: a synchronous round takes as long as its slowest client,
and without rounds every client has a clock of its own.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from cofactor.data import datasets, partition
from cofactor.local.refit import refit
from cofactor.local.sketch import Gaussian, Subsampling
from cofactor.local.stats import for_codes, for_factor, normalize, unit_rows
from cofactor.local.updates import HALS
from cofactor.method import SERVER, Method, rng
from cofactor.methods import catalog
from cofactor.metrics import pooled_error
from cofactor.reproduce.drawn import pictures
from cofactor.types import Array, Data
from cofactor_papers.dsanls import NEVER, Cell, matrix, shares

# Figures 6 to 9: secure variants


def dealt(cell: Cell) -> list[Data]:
    """Rows at 10 (or so many) clients: the same for all, or half of them at client 0."""
    X = matrix(cell)
    return partition.split(X, partition.sizes(X.shape[0], shares(cell["split"], cell["clients"]), seed=0))


def secure(cell: Cell) -> dict[str, Any]:
    """Relative error over the seconds of a simulated cluster; codes are refitted before every error."""
    Xs = dealt(cell)
    spec = cell["spec"]
    method = catalog.make(spec.get("name", cell["method"]), cell["rank"], **spec.get("options", {}))
    walk = one_by_one if spec.get("streams") else in_rounds
    seconds, errors = [], []
    limit = spec.get("rounds", cell["rounds"])
    for clock, H, whole in walk(method, Xs, limit, cell["seed"]):
        if whole:
            seconds.append(clock)
            errors.append(pooled_error(Xs, [refit(X, H) for X in Xs], H))
    reached = [s for s, e in zip(seconds, errors) if e <= cell["goal"]]
    steps = limit * spec.get("sweeps", cell["sweeps"])
    return {
        "seconds": seconds,
        "error": errors,
        "last": errors[-1],
        "to_goal": reached[0] if reached else NEVER,
        "rate": steps / seconds[-1],
    }


def in_rounds(method: Method, Xs: list[Data], rounds: int, seed: int) -> Iterator[tuple[float, Array, bool]]:
    """A round takes as long as its slowest client and the server; yield (seconds, H, whether H is new)."""
    shared = method.start(Xs[0].shape[1], rng(seed, SERVER, -1))
    held: list[Any] = [None] * len(Xs)
    every, clock = method.traits.every, 0.0
    for t in range(rounds * every if every > 1 else rounds):
        if t in method.traits.stages:
            held = [method.join(X, shared.broadcast(), t, rng(seed, j, -1)) for j, X in enumerate(Xs)]
        messages, slowest = [], 0.0
        for j, X in enumerate(Xs):
            begin = time.process_time()
            held[j], message = method.step(X, shared.broadcast(), held[j], t, rng(seed, j, t))
            slowest = max(slowest, time.process_time() - begin)
            messages.append(message)
        begin = time.process_time()
        shared = method.aggregate(shared, messages, t)
        clock += slowest + time.process_time() - begin
        yield clock, method.factor(shared), t % every == 0


def one_by_one(method: Method, Xs: list[Data], rounds: int, seed: int) -> Iterator[tuple[float, Array, bool]]:
    """Every client goes at its own pace; the server merges what arrives and answers that client alone."""
    shared = method.start(Xs[0].shape[1], rng(seed, SERVER, -1))
    held = [method.join(X, shared.broadcast(), 0, rng(seed, j, -1)) for j, X in enumerate(Xs)]
    sent, steps = [shared] * len(Xs), [0] * len(Xs)
    queue: list[tuple[float, int, Any]] = []

    def go(j: int, clock: float) -> None:
        begin = time.process_time()
        held[j], message = method.step(Xs[j], sent[j].broadcast(), held[j], steps[j], rng(seed, j, steps[j]))
        steps[j] += 1
        heapq.heappush(queue, (clock + time.process_time() - begin, j, message))

    for j in range(len(Xs)):
        go(j, 0.0)
    for t in range(rounds * len(Xs)):
        clock, j, message = heapq.heappop(queue)
        begin = time.process_time()
        shared = method.aggregate(shared, [message], t)
        clock += time.process_time() - begin
        sent[j] = shared
        yield clock, method.factor(shared), t % len(Xs) == len(Xs) - 1
        go(j, clock)


# Theorem 3


def attack(cell: Cell) -> dict[str, Any]:
    """Rows of one party from its sketched messages: least squares on all that was seen so far."""
    X = matrix(cell).astype(np.float64)
    n = X.shape[1]
    d = round(cell["size"] * n)
    kind = Gaussian(d) if cell["spec"]["sketch"] == "gaussian" else Subsampling(d)
    seen: list[Array] = []
    said: list[Array] = []
    at, errors, kept = [], [], {}
    for t in range(cell["iterations"]):
        S = kind.draw(n, 1, np.random.default_rng([cell["seed"], t]))
        assert S is not None
        dense = S.matrix()
        seen.append(np.asarray(dense.toarray() if hasattr(dense, "toarray") else dense, np.float64))
        said.append(X @ seen[-1])
        if t >= 15 and t % 10 != 9:
            continue
        found = np.linalg.lstsq(np.hstack(seen).T, np.hstack(said).T, rcond=None)[0].T
        at.append(t + 1)
        errors.append(max(float(np.linalg.norm(found - X) / np.linalg.norm(X)), 1e-16))
        kept[t + 1] = found
    shape = datasets.load(cell["data"]).pictures
    shown = np.stack([*(shape(kept[t][:1])[0] for t in cell["shown"]), shape(X[:1])[0]])
    known = next((t for t, e in zip(at, errors) if e < 1e-6), NEVER)
    return {
        "iteration": at,
        "error": errors,
        "known_after": known,
        "picture": pictures(np.clip(shown, 0, 1)),
    }


# Algorithm 4


def algorithm4(cell: Cell) -> dict[str, Any]:
    """Syn-SD by HALS as printed (shared factor first, plain mean, H in any scale) or corrected; codes left over."""
    Xs, spec, k = dealt(cell), cell["spec"], cell["rank"]
    draw = np.random.default_rng(cell["seed"])
    H = draw.uniform(size=(k, Xs[0].shape[1])).astype(np.float32)
    Ws = [draw.uniform(size=(X.shape[0], k)).astype(np.float32) for X in Xs]
    share = np.array([float(X.shape[0]) if spec.get("weighted") else 1.0 for X in Xs])
    share /= share.sum()
    raw, refitted = [], []
    for _ in range(cell["rounds"]):
        mean = np.zeros_like(H)
        for j, X in enumerate(Xs):
            own, W = H, Ws[j]
            for _ in range(cell["sweeps"]):
                if spec["codes_first"]:
                    W = HALS()(W, for_codes(X, own))
                own = HALS()(np.ascontiguousarray(own.T), for_factor(X, W)).T
                if not spec["codes_first"]:
                    W = HALS()(W, for_codes(X, own))
            Ws[j], own = unit_rows(W, own) if spec["normalized"] else (W, own)
            mean = mean + np.float32(share[j]) * own
        H = np.ascontiguousarray(mean)
        raw.append(pooled_error(Xs, Ws, H))
        unit = normalize(H)
        refitted.append(pooled_error(Xs, [refit(X, unit) for X in Xs], unit))
    return {
        "round": list(range(1, len(raw) + 1)),
        "error": raw,
        "refitted": refitted,
        "last": raw[-1],
        "worst": max(raw),
        "last_refitted": refitted[-1],
    }
