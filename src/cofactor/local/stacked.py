"""Summaries of clients, and many of them as one problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cofactor.types import Array, CofactorError, Stats

TURNS = 30
"""Steps to and fro between codes that have the gram and codes that are not negative."""


class Summary(NamedTuple):
    """What one client (or a union of clients) sends: factor (r x m), gram (r x r), rows, square ``|X|^2``."""

    factor: Array
    gram: Array
    rows: float
    square: float


class Stacked:
    """Summaries padded to one rank r: factors (c x r x m), grams (c x r x r); ``rest``: what of the data they miss."""

    def __init__(self, factors: Array, grams: Array, rest: float = 0.0) -> None:
        self.factors, self.grams, self.rest = factors, grams, rest
        self.rows = factors.reshape(-1, factors.shape[2])
        self.square = float(np.einsum("crs,crs->", grams, factors @ factors.transpose(0, 2, 1), dtype=np.float64))

    @property
    def alive(self) -> Array:
        """Which of the rows have codes."""
        return np.flatnonzero(np.einsum("crr->cr", self.grams).ravel() > 0)

    def widest(self, count: int) -> Array:
        """Return the ``count`` columns with most energy ``sum_j sum_r G_j[r, r] H_j[r, :]^2``, in order."""
        energy = np.einsum("crr->cr", self.grams).ravel() @ self.rows**2
        return np.sort(np.argsort(-energy, kind="stable")[:count])

    def columns(self, index: Array) -> Stacked:
        """Return some columns; what the others hold is beyond them, and so part of the rest."""
        part = Stacked(np.ascontiguousarray(self.factors[:, :, index]), self.grams)
        part.rest = self.rest + self.square - part.square
        return part

    def light(self) -> Stacked:
        """Return the same in single precision, codes scaled so that their squares add up to 1: no factor is another."""
        size = float(np.einsum("crr->", self.grams))
        part = Stacked(self.factors.astype(np.float32), (self.grams / size).astype(np.float32))
        part.rest = self.rest / size
        return part

    def drawn(self, count: int, rng: np.random.Generator) -> tuple[Stacked, Array]:
        """Return rows ``V_j H_j`` (gram: the identity) and their codes V_j >= 0 (c x p x r) with ``V_j^T V_j ~ G_j``.

        ``V_j = Q R_j`` has the gram ``R_j^T R_j = G_j`` for all Q with orthonormal columns; the nearest such V_j and
        its positive part follow each other.
        """
        values, vectors = np.linalg.eigh(self.grams)
        root = np.sqrt(np.maximum(values, 0))[:, :, None] * vectors.transpose(0, 2, 1)
        size = np.sqrt(np.maximum(np.einsum("crr->cr", self.grams), 0))
        V = rng.exponential(size=(len(size), count * size.shape[1], size.shape[1])) * size[:, None]
        for _ in range(TURNS):
            left, _, right = np.linalg.svd(V @ root.transpose(0, 2, 1), full_matrices=False)
            V = np.maximum(left @ right @ root, 0)
        same = np.broadcast_to(np.eye(V.shape[1]), (len(V), V.shape[1], V.shape[1]))
        return Stacked(V @ self.factors, np.ascontiguousarray(same), self.rest), V

    def stats(self, C: Array) -> Stats:
        """Statistics of the H step: gram ``sum C^T G C``, cross ``(sum C^T G H_j)^T``."""
        k = C.shape[2]
        GC = (self.grams @ C).reshape(-1, k)
        return Stats(C.reshape(-1, k).T @ GC, self.rows.T @ GC)


def stacked(summaries: Sequence[Summary]) -> Stacked:
    """Pad summaries to one rank and stack them, or say why they do not go together."""
    kept = [s for s in summaries if np.trace(s.gram) > 0]
    if not kept:
        raise CofactorError(
            "expected at least one summary that says something, found only empty ones: a client with one sample "
            "(its summary would be that row) or without a value above 0 sends zeros. Use method 'exact'."
        )
    rank, m = max(len(s.factor) for s in summaries), kept[0].factor.shape[1]
    for j, s in enumerate(summaries):
        if s.factor.shape[1] != m:
            raise CofactorError(f"summary {j}: expected {m} features like the first, found {s.factor.shape[1]}.")
    factors, grams = np.zeros((len(summaries), rank, m)), np.zeros((len(summaries), rank, rank))
    for j, s in enumerate(summaries):
        r = len(s.factor)
        factors[j, :r], grams[j, :r, :r] = s.factor, s.gram
    union = Stacked(factors, grams)
    union.rest = max(sum(s.square for s in summaries) - union.square, 0.0)
    return union
