"""Numba kernels over rows. They release the GIL: clients run in threads, and so do the rows of one large client."""

from __future__ import annotations

import numpy as np

from cofactor.local.kernels import dense_products, toys
from cofactor.local.kernels.compiled import compiled
from cofactor.local.kernels.orders import SMALL, as_lies, by_rows
from cofactor.local.threads import over_rows
from cofactor.types import Array

LANE = 64
"""Rows that are counted as one."""
PASSED = 8
"""Multiplications that take as long as one number that passes by in memory."""


def hals_sweeps(F: Array, gram: Array, cross: Array, sweeps: int) -> Array:
    """Return F after coordinate descent sweeps on ``1/2 tr(E gram E^T) - tr(E cross^T)``, E >= 0, from F on.

    Rows are independent: threads that the caller may use take some each, and no bit depends on how many there are.
    """
    n, k = F.shape
    if toys.is_toy(n, k):
        return toys.hals_sweeps(F, gram, cross, sweeps)
    from cofactor.local.kernels.lanes import sweep_rows

    gram, cross, F, none = np.ascontiguousarray(gram), by_rows(cross), by_rows(F), F.dtype.type(0)
    out = np.empty_like(F)
    over_rows(lambda start, stop: sweep_rows(out, F, gram, cross, none, sweeps, start, stop), n, sweeps * k * k, LANE)
    return out


def hals_anchored(F: Array, gram: Array, cross: Array, sweeps: int, pull: float) -> tuple[Array, float]:
    """Return :func:`hals_sweeps` with ``pull/2 |E - F|^2``, and ``1/2 tr(F gram F^T) - tr(F cross^T)`` of the given F.

    Factors lie as ``cross`` does: products lie column by column, as the lanes of a sweep do.
    """
    (n, k), mu = F.shape, F.dtype.type(pull)
    if toys.is_toy(n, k):
        new = toys.hals_sweeps(F, gram + mu * np.eye(k, dtype=gram.dtype), cross + mu * F, sweeps)
        return new, float(np.vdot(F @ gram / 2 - cross, F))
    from cofactor.local.kernels.lanes import sweep_rows

    gram, cross = np.ascontiguousarray(gram), as_lies(cross, cross)
    F = as_lies(F, cross)
    out, gains = np.empty_like(F), np.zeros((1, -(-n // LANE) * LANE), F.dtype)

    def some(start: int, stop: int) -> None:
        sweep_rows(out, F, gram, cross, mu, sweeps, start, stop, gains)

    over_rows(some, n, sweeps * k * k, LANE)
    return out, -float(gains[0, :n].sum(dtype=np.float64))


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


def _solve_rows(F: Array, gram: Array, cross: Array, sweeps: int, tol: float, first: int, last: int) -> None:
    """Solve rows ``first:last`` in place."""
    gradient, inverse = np.empty((2, F.shape[1]), F.dtype)
    _invert(gram, inverse)
    _settle_rows(F, gram, cross, inverse, gradient, sweeps, tol, first, last)


def _invert(gram: Array, out: Array) -> None:
    """``out_j = 1 / gram_jj``; 0 where that is 0: such a component stays as it is."""
    out[:] = 0
    np.divide(1, gram.diagonal(), out=out, where=gram.diagonal() > 0)


@compiled(error_model="numpy", fastmath={"contract"})
def _settle_rows(
    F: Array,
    gram: Array,
    cross: Array,
    inverse: Array,
    gradient: Array,
    sweeps: int,
    tol: float,
    first: int,
    last: int,
) -> None:
    """See :func:`_solve_rows`; the gradient of a row is carried: a coordinate that stays costs nothing."""
    k = F.shape[1]
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


def hals_runs(F: Array, gram: Array, cross: Array, sweeps: int) -> Array:
    """Return :func:`hals_sweeps` of several runs, F and ``cross`` runs x n x k, ``gram`` runs x k x k."""
    runs, n, k = F.shape
    if runs == 1 or toys.is_toy(n, k):
        return np.stack([hals_sweeps(*one, sweeps) for one in zip(F, gram, cross, strict=True)])
    from cofactor.local.kernels.lanes import sweep_runs

    out = np.empty_like(F)
    over_rows(lambda start, stop: sweep_runs(out, F, gram, cross, sweeps, start, stop), runs, sweeps * k * k * n)
    return out


def hals_metric(C: Array, grams: Array, gram: Array, cross: Array, sweeps: int) -> None:
    """Coordinate descent on ``1/2 tr(C_j^T G_j C_j gram) - tr(C_j^T cross_j)``, C_j >= 0, for several runs, in place.

    C and ``cross`` are runs x c x r x k, ``grams`` of the rows of C_j c x r x r, ``gram`` runs x k x k. The rows of C_j
    are coupled by G_j.
    """
    if C[0].size * max(C.shape[2:]) > toys.CELLS // 4:
        from cofactor.local.kernels.coupled import metric

        metric(C, grams, gram, cross, sweeps)
        return
    for one in zip(C, gram, cross, strict=True):  # numbers one by one
        toys.hals_metric(one[0], grams, *one[1:], sweeps)
