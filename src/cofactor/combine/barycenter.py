"""Barycenters ``argmin_H sum_j w_j D(H, H_j)`` of factors whose components come in any order.

Computing one is NP-hard, so all are heuristics. The fixed point is Alg. 1 of the FNMF paper; its appendix
with a sequential and a hierarchical heuristic is not public, so `Greedy` and `Hierarchical` are our designs.
All return rows at norm 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from cofactor.combine.align import COLUMNS, Lap, carried, cost, partners
from cofactor.local.placed import Placed
from cofactor.local.stats import normalize
from cofactor.local.threads import over_rows
from cofactor.schedules import at
from cofactor.types import Array

SAME = 1 - 1e-5
"""Cosine from which on two components are one."""


class Barycenter(Protocol):
    """A centre of factors."""

    def __call__(self, factors: list[Array], weights: Array, current: Array, t: int) -> Array:
        """Return the centre (k x m); ``current`` is the factor that was broadcast in round t."""
        ...


def aligned_mean(center: Array, factors: list[Array], weights: Array, plans: list[Array]) -> Array:
    """``sum_j w_j P_j H_j`` over the clients that have a partner for the row; rows nobody matches stay.

    A row of zeros, of a client with too few rows for the rank, is nobody's partner.
    """
    aligned = [carried(P, H) for P, H in zip(plans, factors, strict=True)]
    there = [partners(P) & A.any(axis=1) for P, A in zip(plans, aligned, strict=True)]
    matched = np.stack(there) * weights[:, None]
    mass = matched.sum(axis=0)
    summed = sum(w[:, None] * A for w, A in zip(matched, aligned, strict=True))
    return np.where(mass[:, None] > 0, summed / np.where(mass > 0, mass, 1)[:, None], center)


def weighted_mean(factors: list[Array], weights: Array) -> Array:
    """``sum_j w_j H_j / sum_j w_j`` in double precision, one after the other, as ``np.average`` adds them.

    No stack of all factors is made: some features at a time stay in cache, and threads that were lent take some each.
    """
    k, m = factors[0].shape
    if any(isinstance(H, Placed) for H in factors):
        return sum((H * w for H, w in zip(factors, weights, strict=True)), np.zeros((k, m))) / weights.sum()
    out = np.zeros((k, m), order="F" if factors[0].flags.f_contiguous else "C")

    def some(start: int, stop: int) -> None:
        for low in range(start, stop, COLUMNS):
            here = out[:, low : min(low + COLUMNS, stop)]
            for H, w in zip(factors, weights, strict=True):
                here += H[:, low : min(low + COLUMNS, stop)] * w
            here /= weights.sum()

    over_rows(some, m, k * len(factors), COLUMNS)
    return out


def revived(center: Array, factors: list[Array], weights: Array) -> Array:
    """Return the centre (rows at norm 1), zeros and doubles replaced by what clients have furthest from all others.

    Alignments that let several components share one partner (nearest neighbours) make doubles, which stay doubles; and
    clients with fewer rows than components send rows of zeros. As many components come back as clients have.
    """
    near = np.triu(center @ center.T, 1).max(axis=0) >= SAME
    lost = np.flatnonzero(near | ~center.any(axis=1))
    if not lost.size:
        return center
    rows, mass = normalize(np.vstack(factors)), np.repeat(weights, [len(H) for H in factors])
    mass = mass * rows.any(axis=1)
    center = center.copy()
    center[lost] = 0
    for i in lost:
        apart = mass * (1 - (rows @ center.T).max(axis=1))
        best = int(np.argmax(apart))
        if apart[best] <= (1 - SAME) * mass[best]:
            break
        center[i] = rows[best]
    return center


@dataclass(frozen=True)
class FixedPoint:
    """Align every factor to the centre, average, repeat until no plan changes (FNMF Alg. 1).

    It starts at the last shared factor. The paper starts at the plain mean, which blurs components that
    are permuted between clients (ratio 1.25 instead of 1.01). In the first round the shared factor is
    random and says nothing, so the factor of the heaviest client is the start. Components that vanish or become doubles
    on the way are found anew (:func:`revived`).
    """

    align: Any = field(default_factory=Lap)
    passes: int = 10

    def __call__(self, factors: list[Array], weights: Array, current: Array, t: int) -> Array:
        """Return the fixed point."""
        align = at(self.align, t)
        center = factors[int(np.argmax(weights))] if t == 0 else current
        plans: list[Array] = []
        for _ in range(self.passes):
            new = [align(center, H) for H in factors]
            if plans and all(np.array_equal(P, Q) for P, Q in zip(plans, new, strict=True)):
                break
            plans = new
            center = revived(normalize(aligned_mean(center, factors, weights, plans)), factors, weights)
        return center


@dataclass(frozen=True)
class KMeans:
    """k-means on the stacked components (Lloyd 1982); forgets that a client has each component once."""

    def __call__(self, factors: list[Array], weights: Array, current: Array, t: int) -> Array:
        """Return the centres."""
        from sklearn.cluster import KMeans as Lloyd

        rows, mass = np.vstack(factors), np.repeat(weights, [len(H) for H in factors])
        lloyd = Lloyd(len(current), n_init=10, random_state=t).fit(rows, sample_weight=mass)
        return normalize(lloyd.cluster_centers_)


@dataclass(frozen=True)
class FuzzyCMeans:
    """Fuzzy c-means on the stacked components (Dunn 1974): memberships ``u ~ d^(-2/(fuzzifier-1))``."""

    fuzzifier: float = 1.5
    passes: int = 100
    tol: float = 1e-6

    def __call__(self, factors: list[Array], weights: Array, current: Array, t: int) -> Array:
        """Return the centres, started at k-means++ like k-means itself."""
        rows, mass = np.vstack(factors), np.repeat(weights, [len(H) for H in factors])
        center = KMeans()(factors, weights, current, t)
        for _ in range(self.passes):
            distance = np.maximum(2 * cost(rows, center), 1e-12)
            closeness = (distance.min(axis=1, keepdims=True) / distance) ** (1 / (self.fuzzifier - 1))
            member = mass[:, None] * (closeness / closeness.sum(axis=1, keepdims=True)) ** self.fuzzifier
            new = (member.T @ rows) / member.sum(axis=0)[:, None]
            moved, center = np.abs(new - center).max(), new
            if moved < self.tol:
                break
        return normalize(center)


@dataclass(frozen=True)
class Greedy:
    """One pass: clients join a running mean one after the other, the heaviest first (our design)."""

    align: Any = field(default_factory=Lap)

    def __call__(self, factors: list[Array], weights: Array, current: Array, t: int) -> Array:
        """Return the running mean after the last client."""
        order = np.argsort(-weights, kind="stable")
        center, mass = factors[order[0]], float(weights[order[0]])
        for j in order[1:]:
            center = _join(at(self.align, t), center, mass, factors[j], float(weights[j]))
            mass += float(weights[j])
        return normalize(center)


@dataclass(frozen=True)
class Hierarchical:
    """Merge neighbours pairwise until one factor is left: a tree of two-factor barycenters (our design)."""

    align: Any = field(default_factory=Lap)

    def __call__(self, factors: list[Array], weights: Array, current: Array, t: int) -> Array:
        """Return the root of the tree."""
        level = [(H, float(w)) for H, w in zip(factors, weights, strict=True)]
        align = at(self.align, t)
        while len(level) > 1:
            pairs = [
                (_join(align, *level[i], *level[i + 1]), level[i][1] + level[i + 1][1])
                for i in range(0, len(level) - 1, 2)
            ]
            level = pairs + level[2 * len(pairs) :]
        return normalize(level[0][0])


def _join(align: Any, H: Array, w: float, other: Array, v: float) -> Array:
    """Barycenter of two: ``(w H + v P other) / (w + v)`` where P has a partner."""
    return aligned_mean(H, [H, other], np.array([w, v]), [np.eye(len(H)), align(H, other)])


def catalog() -> dict[str, Barycenter]:
    """Return every barycenter by name."""
    return {
        "fixed-point": FixedPoint(),
        "k-means": KMeans(),
        "fuzzy-c-means": FuzzyCMeans(),
        "greedy": Greedy(),
        "hierarchical": Hierarchical(),
    }
