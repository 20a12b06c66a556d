"""Numba kernels over rows. They release the GIL: clients run in threads, and so do the rows of one large client."""

from __future__ import annotations

import numpy as np

from cofactor.local.kernels import dense_products, toys
from cofactor.local.kernels.compiled import compiled
from cofactor.local.kernels.orders import SMALL, by_rows
from cofactor.local.threads import over_rows
from cofactor.types import Array

LANE = 64
"""Rows that are counted as one."""
PASSED = 8
"""Multiplications that take as long as one number that passes by in memory."""


def hals_sweeps(F: Array, gram: Array, cross: Array, sweeps: int, pull: float = 0.0) -> Array:
    """Return F after coordinate descent sweeps on ``1/2 tr(E gram E^T) - tr(E (cross + pull F)^T)``, E >= 0, from F on.

    Rows are independent: threads that the caller may use take some each, and no bit depends on how many there are.
    """
    n, k = F.shape
    if toys.is_toy(n, k):
        return toys.hals_sweeps(F, gram, cross + F.dtype.type(pull) * F if pull else cross, sweeps)
    from cofactor.local.kernels.lanes import sweep_rows

    gram, cross, F, mu = np.ascontiguousarray(gram), by_rows(cross), by_rows(F), F.dtype.type(pull)
    out = np.empty_like(F)
    over_rows(lambda start, stop: sweep_rows(out, F, gram, cross, mu, sweeps, start, stop), n, sweeps * k * k, LANE)
    return out


def hals_ahead(F: Array, gram: Array, cross: Array, sweeps: int, momentum: float) -> tuple[Array, Array, Array]:
    """Return F after the sweeps, that extrapolated beyond F, and the gram of the latter.

    It is :func:`hals_sweeps`, :func:`extrapolate` and a gram to the bit; of many rows some at a time, which stay in the
    second cache from one to the next.
    """
    (n, k), F = F.shape, by_rows(F)
    if not dense_products.sums_grams(F):
        new = hals_sweeps(F, gram, cross, sweeps)
        ahead = extrapolate(new, F, momentum)
        return new, ahead, dense_products.gram(ahead)
    from cofactor.local.kernels.grams import BLOCK, PART

    gram, cross = np.ascontiguousarray(gram), by_rows(cross)
    new, ahead, grams = np.empty_like(F), np.empty_like(F), np.zeros((-(-n // PART), k, k), F.dtype)

    def some(start: int, stop: int) -> None:
        for first in range(start, stop, 2 * BLOCK):
            here = slice(first, min(first + 2 * BLOCK, stop))
            codes_ahead(F[here], gram, cross[here], sweeps, momentum, new[here], ahead[here], grams[first // PART :])

    over_rows(some, n, (sweeps + 1) * k * k, PART)
    return new, ahead, grams.sum(axis=0)


def codes_ahead(
    F: Array, gram: Array, cross: Array, sweeps: int, momentum: float, new: Array, ahead: Array, grams: Array
) -> None:
    """Do :func:`hals_ahead` of blocks of rows by the calling thread; grams are added to those of their parts."""
    from cofactor.local.kernels.grams import gram_rows
    from cofactor.local.kernels.lanes import sweep_rows

    n = len(F)
    sweep_rows(new, F, gram, cross, F.dtype.type(0), sweeps, 0, n)
    _extrapolate(ahead, new, F, F.dtype.type(momentum), 0, n)
    gram_rows(grams, ahead, 0, n)


def hals_solve(F: Array, gram: Array, cross: Array, sweeps: int, tol: float) -> Array:
    """Like :func:`hals_sweeps`, but each row stops once a sweep moves it by at most ``tol`` times its norm."""
    (n, k), gram, cross = F.shape, np.ascontiguousarray(gram), by_rows(cross)
    if toys.is_toy(n, k):
        return toys.hals_sweeps(F, gram, cross, sweeps, tol)
    out = np.array(F, order="C")
    over_rows(lambda start, stop: _solve_rows(out, gram, cross, sweeps, tol, start, stop), n, sweeps * k * k // 4, LANE)
    return out


@compiled(error_model="numpy", fastmath={"contract"})
def _solve_rows(F: Array, gram: Array, cross: Array, sweeps: int, tol: float, first: int, last: int) -> None:
    """Solve rows ``first:last`` in place; the gradient of a row is carried: a coordinate that stays costs nothing."""
    k = F.shape[1]
    gradient = np.empty(k, F.dtype)
    inverse = np.zeros(k, F.dtype)
    for j in range(k):
        if gram[j, j] > 0:
            inverse[j] = 1 / gram[j, j]
    for i in range(first, last):
        f = F[i]
        for j in range(k):
            gradient[j] = -cross[i, j]
        for j in range(k):
            if f[j] != 0:
                for p in range(k):
                    gradient[p] += f[j] * gram[j, p]
        for _ in range(sweeps):
            moved = 0.0
            size = 0.0
            for j in range(k):
                new = max(f[j] - gradient[j] * inverse[j], 0)
                delta = F.dtype.type(new - f[j])
                if delta != 0:
                    f[j] += delta
                    moved += delta * delta
                    for p in range(k):
                        gradient[p] += delta * gram[j, p]
                size += f[j] * f[j]
            if moved <= tol * tol * size:
                break


def extrapolate(new: Array, old: Array, momentum: float) -> Array:
    """Return ``[new + momentum (new - old)]_+``."""
    if new.size <= SMALL:
        return toys.extrapolate(new, old, momentum)
    out, beta = np.empty_like(new), new.dtype.type(momentum)
    over_rows(lambda start, stop: _extrapolate(out, new, old, beta, start, stop), len(new), PASSED * new.shape[1])
    return out


@compiled(error_model="numpy")
def _extrapolate(out: Array, new: Array, old: Array, momentum: float, first: int, last: int) -> None:
    """``out`` is ``[new + momentum (new - old)]_+`` in rows ``first:last``, in one pass."""
    for i in range(first, last):
        for j in range(new.shape[1]):
            v = new[i, j] + momentum * (new[i, j] - old[i, j])
            out[i, j] = v if v > 0 else 0


def hals_metric(C: Array, grams: Array, gram: Array, cross: Array, sweeps: int) -> None:
    """Coordinate descent on ``1/2 tr(C_j^T G_j C_j gram) - tr(C_j^T cross_j)``, C_j >= 0 (c x r x k), in place."""
    toy = C.size * max(C.shape[1:]) <= toys.CELLS // 4  # numbers one by one
    (toys.hals_metric if toy else _metric)(C, grams, gram, cross, sweeps)


@compiled(error_model="numpy", fastmath={"contract"})
def _metric(C: Array, grams: Array, gram: Array, cross: Array, sweeps: int) -> None:
    """See :func:`hals_metric`.

    The rows of C_j are coupled by G_j (``grams``, c x r x r); ``C_j gram`` is carried along.
    """
    c, r, k = C.shape
    seen = np.empty((r, k))
    rest = np.empty(k)
    inverse = np.zeros(k)
    for e in range(k):
        if gram[e, e] > 0:
            inverse[e] = 1 / gram[e, e]
    for j in range(c):
        for i in range(r):
            seen[i, :] = 0
            for p in range(k):
                if C[j, i, p] != 0:
                    for e in range(k):
                        seen[i, e] += C[j, i, p] * gram[p, e]
        for _ in range(sweeps):
            for i in range(r):
                own = grams[j, i, i]
                if own <= 0:
                    continue
                for e in range(k):
                    rest[e] = cross[j, i, e]
                for p in range(r):
                    if p != i:
                        for e in range(k):
                            rest[e] -= grams[j, i, p] * seen[p, e]
                for e in range(k):
                    old = C[j, i, e]
                    new = max(old + (rest[e] / own - seen[i, e]) * inverse[e], 0.0)
                    if new != old:
                        C[j, i, e] = new
                        for p in range(k):
                            seen[i, p] += (new - old) * gram[e, p]
