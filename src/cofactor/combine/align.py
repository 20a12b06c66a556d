"""Alignments: plans P of ``D(H, reference) = min_P 1/2 |H - P reference|^2``.

A row of P says which components of the reference stand behind one component of H; a row of zeros is a
component without a partner. Each alignment is a frozen dataclass, called as ``align(H, reference)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import scipy  # its parts load when they are named

from cofactor.local.placed import Placed
from cofactor.local.threads import each
from cofactor.types import Align, Array

FEW = 4
"""Components of which all permutations are tried."""
LARGE, UNSURE = 1 << 16, 1e-4
"""Cells of a factor from which on it is matched in single precision, and which share of its squares rounding may be."""
COLUMNS = 256
"""Features of which a distance is added up at a time."""
SCALINGS = 300
"""The most scalings of rows and columns that find a plan of transport."""


def cost(H: Array, reference: Array) -> Array:
    """Half squared distances ``1/2 |H_i - reference_j|^2``, by one product."""
    A, B = H.astype(np.float64, copy=False), reference.astype(np.float64, copy=False)
    squares = [np.einsum("km,km->k", M, M) for M in (A, B)]
    return np.maximum(0.5 * np.add.outer(*squares) - A @ B.T, 0.0)


def correlation(H: Array, reference: Array) -> Array:
    """Pearson correlation of every row of H with every row of the reference; 0 for constant rows."""
    A, B = (_centred(M.astype(np.float64)) for M in (H, reference))
    scale = np.outer(np.linalg.norm(A, axis=1), np.linalg.norm(B, axis=1))
    return np.clip(np.divide(A @ B.T, scale, out=np.zeros_like(scale), where=scale > 1e-300), -1, 1)


def _centred(M: Array) -> Array:
    C = M - M.mean(axis=1, keepdims=True)
    flat = np.linalg.norm(C, axis=1) <= 1e-12 * np.linalg.norm(M, axis=1)
    return np.where(flat[:, None], 0, C)


def admissible(H: Array, reference: Array, level: float = 0.05) -> Array:
    """Pairs whose correlation is significantly positive: one-sided Fisher test, Bonferroni over all pairs.

    ``atanh(r) sqrt(m - 3) > z(1 - level / pairs)``. Without the correction half of all matches are false.
    """
    r = correlation(H, reference)
    m = H.shape[1]
    if m <= 3:
        return r > 0
    with np.errstate(divide="ignore"):
        return np.arctanh(r) * np.sqrt(m - 3) > -scipy.special.ndtri(level / r.size)


@dataclass(frozen=True)
class Lap:
    """D1: a permutation, by linear assignment (Kuhn 1955). The default."""

    def __call__(self, H: Array, reference: Array) -> Array:
        """Return the permutation (partial where the ranks differ)."""
        plan = np.zeros((len(H), len(reference)))
        found = _seen_in_single(H, reference)
        plan[_assigned(cost(H, reference)) if found is None else found] = 1
        return plan


def matched_cost(H: Array, reference: Array) -> float:
    """``min_P 1/2 |H - P reference|^2`` over permutations P (partial where the ranks differ), of what has a partner."""
    table = cost(H, reference)
    return float(table[_assigned(table)].sum())


def _seen_in_single(H: Array, reference: Array) -> tuple[Array, Array] | None:
    """Return the assignment of :func:`_assigned` where single precision is enough to see it, else None.

    Most factors are matched to what they came from: every row is nearest to another one. Rows whose nearest two are
    within rounding of each other are measured in double precision.
    """
    single = H.dtype == reference.dtype == np.float32 and len(H) <= len(reference)
    if not single or H.size <= LARGE or isinstance(H, Placed) or isinstance(reference, Placed):
        return None
    with np.errstate(over="ignore", invalid="ignore"):  # of squares that single precision does not hold
        squares = [np.einsum("km,km->k", M, M) for M in (H, reference)]
        table = 0.5 * squares[1] - H @ reference.T  # what does not differ along a row is left out
        nearest = np.argmin(table, axis=1)
        limit = table[np.arange(len(table)), nearest] + UNSURE * (squares[0] + squares[1].max())
    if not np.isfinite(limit).all():
        return None
    for i in np.flatnonzero(np.count_nonzero(table <= limit[:, None], axis=1) > 1):
        nearest[i] = np.argmin(cost(H[i : i + 1], reference))
    return (np.arange(len(H)), nearest) if len(set(nearest.tolist())) == len(H) else None


def _assigned(table: Array) -> tuple[Array, Array]:
    """Rows and columns of the assignment of least cost; where it is plain to see, scipy.optimize need not load."""
    if len(table) > table.shape[1]:
        columns, rows = _assigned(table.T)
        return rows, columns
    rows, nearest = np.arange(len(table)), np.argmin(table, axis=1)
    if len(set(nearest.tolist())) == len(table):  # all rows want another column
        return rows, nearest
    if table.shape[1] <= FEW:
        return rows, np.array(min(permutations(range(table.shape[1]), len(table)), key=lambda p: table[rows, p].sum()))
    found: tuple[Array, Array] = scipy.optimize.linear_sum_assignment(table)
    return found


@dataclass(frozen=True)
class LapRho:
    """D2: a partial permutation over significantly correlated pairs; the rest stays without partner.

    Unmatched components go to dummy nodes at the largest finite cost. From a random start nothing
    matches, so methods use D1 in the first round.
    """

    level: float = 0.05

    def __call__(self, H: Array, reference: Array) -> Array:
        """Return the partial permutation."""
        k = len(H)
        allowed = admissible(H, reference, self.level)
        plan = np.zeros(allowed.shape)
        if not allowed.any():
            return plan
        distance = 1 - correlation(H, reference)
        dummy = distance[allowed].max() + 1e-9
        forbidden = 2 * k * (dummy + 1)
        table = np.hstack([np.where(allowed, distance, forbidden), np.full((k, k), dummy)])
        rows, columns = _assigned(table)
        real = columns < len(reference)
        plan[rows[real], columns[real]] = allowed[rows[real], columns[real]]
        return plan


@dataclass(frozen=True)
class Sinkhorn:
    """D3: a row-stochastic plan by entropic optimal transport (Cuturi 2013).

    The regularization is ``entropy`` times the mean cost and at most 0.03: larger values make every row
    the mean of all rows while the soft loss still falls.
    """

    entropy: float = 0.01

    def __call__(self, H: Array, reference: Array) -> Array:
        """Return the row-stochastic plan."""
        return _transport(cost(H, reference), min(self.entropy, 0.03))


@dataclass(frozen=True)
class SinkhornRho:
    """D3 on the admissible pairs of D2; components without an admissible pair stay without partner."""

    entropy: float = 0.01
    level: float = 0.05

    def __call__(self, H: Array, reference: Array) -> Array:
        """Return the plan; its rows sum to 1 or to 0."""
        allowed = admissible(H, reference, self.level)
        if not allowed.any():
            return np.zeros(allowed.shape)
        table = cost(H, reference)
        blocked = table[allowed].max() + table.mean()
        plan = _transport(np.where(allowed, table, blocked), min(self.entropy, 0.03)) * allowed
        mass = plan.sum(axis=1, keepdims=True)
        return np.divide(plan, mass, out=np.zeros_like(plan), where=mass > 1e-6)


@dataclass(frozen=True)
class Knn:
    """The mean of the ``neighbours`` nearest rows of the reference; several rows may share one."""

    neighbours: int = 1

    def __call__(self, H: Array, reference: Array) -> Array:
        """Return the plan with ``neighbours`` equal entries in each row."""
        q = min(self.neighbours, len(reference))
        nearest = np.argsort(cost(H, reference), axis=1, kind="stable")[:, :q]
        plan = np.zeros((len(H), len(reference)))
        np.put_along_axis(plan, nearest, 1 / q, axis=1)
        return plan


def _transport(table: Array, entropy: float) -> Array:
    """Entropic plan between uniform masses, rows scaled to sum 1."""
    mean = float(table.mean())
    if mean <= 0:
        return np.eye(*table.shape)
    table = table / mean
    # The plain iteration is much faster; the log domain is for costs whose exponential would vanish.
    plan = _scaled(np.exp(-table / entropy)) if table.max() / entropy < 500 else None
    if plan is None:
        import ot

        a, b = (np.full(s, 1 / s) for s in table.shape)
        plan = ot.sinkhorn(a, b, table, entropy, method="sinkhorn_log", numItermax=SCALINGS, stopThr=1e-6, warn=False)
    return plan / plan.sum(axis=1, keepdims=True)


def _scaled(kernel: Array) -> Array | None:
    """``diag(u) kernel diag(v)`` with uniform margins (Cuturi 2013); None where u or v leaves the range of numbers.

    POT's steps, without a look at every single one for infinite values: for a few components that is most of the time.
    """
    over_rows, over_columns = np.ascontiguousarray(kernel.T * kernel.shape[1]), kernel * kernel.shape[0]
    u, v = np.full(kernel.shape[0], 1 / kernel.shape[0]), np.empty(kernel.shape[1])
    with np.errstate(all="ignore"):
        for i in range(SCALINGS):
            np.reciprocal(np.dot(over_rows, u, out=v), out=v)
            np.reciprocal(np.dot(over_columns, v, out=u), out=u)
            if i % 10 == 0 and np.linalg.norm(v * (over_rows @ u) - 1) < 1e-6 * len(v):
                break
        plan: Array = u[:, None] * kernel * v
    return plan if np.isfinite(plan).all() else None


def partners(plan: Array) -> Array:
    """Which rows of a plan have a partner."""
    return plan.sum(axis=1) > 0


def _moves(plan: Array) -> bool:
    """Whether a plan is a (partial) permutation."""
    return np.count_nonzero(plan) == np.count_nonzero(plan == 1) and plan.sum(axis=1).max(initial=0) <= 1


def carried(plan: Array, H: Array) -> Array:
    """``P H`` (k x m); a (partial) permutation only moves rows, which is not a product."""
    if not _moves(plan):
        return plan @ H
    out = np.zeros((len(plan), H.shape[1]), np.result_type(plan, H))
    rows, places = np.nonzero(plan)
    out[rows] = H[places]
    return out


def pull(H: Array, reference: Array, plan: Array, weight: float) -> Array:
    """Proximal step of the alignment-aware drift: ``(H + weight P reference) / (1 + weight)`` where P has a partner."""
    target = np.where(partners(plan)[:, None], carried(plan, reference), H)
    return ((H + weight * target) / (1 + weight)).astype(H.dtype, copy=False)


def drift(H: Array, reference: Array, align: Align | None = None) -> float:
    """``|H - P reference|_F`` after alignment (D1 unless told otherwise): 0 for a permuted copy."""
    plan = (align or Lap())(H, reference)
    if isinstance(H, Placed) or isinstance(reference, Placed) or not _moves(plan):
        return float(np.linalg.norm(H - carried(plan, reference)))
    rows, places = np.nonzero(plan)
    stays = np.array_equal(places, np.arange(len(H))) and len(H) == len(reference)
    square = 0.0
    for low in range(0, H.shape[1], COLUMNS):  # some columns at a time: they stay in cache, in whatever order they are
        part = H[:, low : low + COLUMNS].astype(np.float64)
        there = reference[:, low : low + COLUMNS]
        if stays:
            part -= there
        else:
            part[rows] -= there[places]
        square += float(np.vdot(part, part))
    return float(np.sqrt(square))


def in_place(H: Array, reference: Array) -> Array:
    """The alignment of factors whose components stand in the same order: every one is its own partner."""
    return np.eye(len(H), len(reference))


def mean_drift(Hs: Sequence[Array], reference: Array, align: Align | None = None) -> float:
    """Return the mean :func:`drift` of several factors."""
    return float(np.mean(list(each(lambda H: drift(H, reference, align), Hs))))


def catalog() -> dict[str, Align]:
    """Return every alignment by name: the list that the common laws run over."""
    return {
        "lap": Lap(),
        "lap_rho": LapRho(),
        "sinkhorn": Sinkhorn(),
        "sinkhorn_rho": SinkhornRho(),
        "knn": Knn(),
    }
