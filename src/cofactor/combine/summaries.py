"""Mergeable summaries: one upload per client that stands for its data in any later factorization.

A client factorizes alone at rank r and sends ``H_j`` (r x m, rows at norm 1) and ``G_j = W_j^T W_j`` (r x r).
For any H its own reconstruction costs ``|W_j H_j - (W_j C) H|^2 = tr((H_j - C H)^T G_j (H_j - C H))`` with
``C >= 0`` (r x k), so a server can factorize the union of summaries without asking again: late clients
join the union, a tree of servers summarizes summaries, and every rank up to r comes from one upload.
Summaries are not a sum: the server sees each one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from cofactor.local.init import random_factor
from cofactor.local.stats import normalize
from cofactor.local.updates import HALS
from cofactor.types import Array, CofactorError, Stats

CODE_STEPS = 12
STACK_SWEEPS = 60
TOL = 1e-5


class Summary(NamedTuple):
    """What one client (or a union of clients) sends: factor (r x m), gram (r x r), rows, square ``|X|^2``."""

    factor: Array
    gram: Array
    rows: float
    square: float


def summarize(W: Array, H: Array, *, square: float) -> Summary:
    """Summarize a factorization ``X ~ W H`` of data with ``|X|^2 = square``."""
    return Summary(H, (W.T @ W).astype(np.float64), float(W.shape[0]), float(square))


def save(path: str | Path, summaries: Sequence[Summary]) -> None:
    """Write summaries to one npz file."""
    arrays = {f"{name}_{i}": np.asarray(v) for i, s in enumerate(summaries) for name, v in s._asdict().items()}
    with open(path, "wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def load(path: str | Path) -> list[Summary]:
    """Read summaries that :func:`save` wrote; ``load(a) + load(b)`` is their union."""
    with np.load(path, allow_pickle=False) as file:
        count = sum(name.startswith("factor_") for name in file.files)
        if count == 0:
            raise CofactorError(f"{path}: expected saved summaries (arrays factor_0, gram_0, ...), found {file.files}.")
        fields = [{name: file[f"{name}_{i}"] for name in Summary._fields} for i in range(count)]
    return [Summary(f["factor"], f["gram"], float(f["rows"]), float(f["square"])) for f in fields]


def merge(summaries: Sequence[Summary], rank: int, *, seed: int = 0, restarts: int = 8) -> Summary:
    """Summarize a union of summaries as one of the given rank: ``G = sum_j C_j^T G_j C_j``."""
    H, C = fit(summaries, rank, seed=seed, restarts=restarts)
    union = _Union(summaries)
    gram = np.einsum("crk,crs,csl->kl", C, union.grams, C)
    return Summary(H.astype(union.dtype), gram, sum(s.rows for s in summaries), sum(s.square for s in summaries))


def fit(
    summaries: Sequence[Summary], rank: int, *, seed: int = 0, restarts: int = 8, iterations: int = 200
) -> tuple[Array, Array]:
    """Minimize ``sum_j tr((H_j - C_j H)^T G_j (H_j - C_j H))`` over C_j, H >= 0; return (H, stacked C).

    Alternates accelerated projected gradient on all C_j and HALS on H, from NMFs of the stacked rows
    ``sqrt(diag G_j) H_j``. All restarts run a short while, the best half goes on, down to one.
    """
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(min(restarts, os.cpu_count() or 1)) as pool:
        return _best_of(_Union(summaries), rank, seed=seed, restarts=restarts, iterations=iterations, pool=pool)


def _best_of(
    union: _Union, rank: int, *, seed: int, restarts: int, iterations: int, pool: ThreadPoolExecutor
) -> tuple[Array, Array]:
    """Run the restarts side by side and halve them until one is left."""
    runs = list(pool.map(lambda i: _Fit(union, rank, np.random.default_rng([seed, i])), range(restarts)))
    done, budget = 0, max(iterations // 10, 1)
    while True:
        steps = min(budget, iterations) - done
        list(pool.map(lambda run: run.advance(steps), runs))  # noqa: B023
        if len(runs) == 1 and (budget >= iterations or runs[0].converged):
            break
        done, budget = min(budget, iterations), budget * 2
        runs = sorted(runs, key=lambda r: r.loss)[: max(len(runs) // 2, 1)]
    return normalize(runs[0].H), runs[0].scaled_codes()


def loss(summaries: Sequence[Summary], H: Array) -> float:
    """Return ``min_C sum_j tr((H_j - C_j H)^T G_j (H_j - C_j H))``: what H misses of the summaries."""
    union = _Union(summaries)
    return union.solve_codes(H.astype(np.float64), np.zeros((len(summaries), union.rank, len(H))), 200)[1]


class _Union:
    """Summaries padded to one rank and stacked, so that all clients share big products."""

    def __init__(self, summaries: Sequence[Summary]) -> None:
        kept = [s for s in summaries if np.trace(s.gram) > 0]
        if not kept:
            raise CofactorError(
                "expected at least one summary that says something, found only empty ones: a client with one sample "
                "(its summary would be that row) or without a value above 0 sends zeros. Use method 'exact'."
            )
        self.rank = max(len(s.factor) for s in summaries)
        m = kept[0].factor.shape[1]
        self.dtype = kept[0].factor.dtype
        for j, s in enumerate(summaries):
            if s.factor.shape[1] != m:
                raise CofactorError(f"summary {j}: expected {m} features like the first, found {s.factor.shape[1]}.")
        self.factors = np.zeros((len(summaries), self.rank, m))
        self.grams = np.zeros((len(summaries), self.rank, self.rank))
        for j, s in enumerate(summaries):
            r = len(s.factor)
            self.factors[j, :r], self.grams[j, :r, :r] = s.factor, s.gram
        self.rows = self.factors.reshape(-1, m)
        self.lipschitz = np.maximum(np.linalg.eigvalsh(self.grams)[:, -1], 1e-300)
        self.square = float(np.einsum("crs,crs->", self.grams, self.factors @ self.factors.transpose(0, 2, 1)))

    def solve_codes(self, H: Array, C: Array, steps: int) -> tuple[Array, float]:
        """Accelerated projected gradient on all C_j at once; returns (C, loss)."""
        gram = H @ H.T
        cross = self.grams @ (self.rows @ H.T).reshape(C.shape)
        step = (1 / (self.lipschitz * max(np.linalg.eigvalsh(gram)[-1], 1e-300)))[:, None, None]
        y, a = C, 1.0
        for _ in range(steps):
            new = np.maximum(y - step * (self.grams @ y @ gram - cross), 0)
            b = (1 + np.sqrt(1 + 4 * a * a)) / 2
            y, C, a = new + (a - 1) / b * (new - C), new, b
        GC = self.grams @ C
        return C, self.square + float(np.vdot(GC @ gram, C)) - 2 * float(np.vdot(cross, C))

    def for_factor(self, C: Array) -> Stats:
        """Statistics of the H step: gram ``sum C^T G C``, cross ``(sum C^T G H_j)^T``."""
        GC = (self.grams @ C).reshape(-1, C.shape[2])
        return Stats(C.reshape(-1, C.shape[2]).T @ GC, self.rows.T @ GC)


def _improve(F: Array, stats: Stats, sweeps: int) -> Array:
    return HALS(sweeps)(F, stats)


class _Fit:
    """One restart of :func:`fit`."""

    def __init__(self, union: _Union, rank: int, rng: np.random.Generator) -> None:
        self.union, self.loss, self.converged = union, np.inf, False
        scale = np.sqrt(np.einsum("crr->cr", union.grams)).reshape(-1, 1)
        rows = scale * union.rows
        H = random_factor(rank, rows.shape[1], rng)
        codes = np.zeros((len(rows), rank))
        for _ in range(STACK_SWEEPS):
            codes = _improve(codes, Stats(H @ H.T, rows @ H.T), 2)
            H = _improve(H.T, Stats(codes.T @ codes, rows.T @ codes), 2).T
        self.H = H
        C = np.divide(codes, scale, out=np.zeros_like(codes), where=scale > 0)
        self.C = C.reshape(*union.factors.shape[:2], rank)

    def advance(self, iterations: int) -> None:
        """Alternate until the loss falls by less than TOL of itself in one iteration."""
        for _ in range(iterations):
            if self.converged:
                return
            self.C, value = self.union.solve_codes(self.H, self.C, CODE_STEPS)
            self.H = _improve(self.H.T, self.union.for_factor(self.C), 3).T
            self.converged = bool(self.loss - value <= TOL * max(value, 1e-12 * self.union.square))
            self.loss = value

    def scaled_codes(self) -> Array:
        """Codes for the factor with rows at norm 1."""
        return self.C * np.linalg.norm(self.H, axis=1)
