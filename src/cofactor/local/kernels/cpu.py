"""Numba kernels over rows. They release the GIL, so clients run in threads; none is parallel by itself."""

from __future__ import annotations

import numba
import numpy as np

from cofactor.types import Array

BLOCK = 64
"""Rows per block of :func:`hals_sweeps`: wide enough to fill vector units, small enough for the L1 cache."""


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def hals_sweeps(F: Array, gram: Array, cross: Array, sweeps: int) -> None:
    """Run a fixed number of coordinate descent sweeps on ``1/2 tr(F gram F^T) - tr(F cross^T)``, F >= 0, in place.

    Rows are independent, so a block of them is transposed and every instruction works on many rows at once.
    Padding makes each row's arithmetic the same wherever it stands: stacking clients changes no bit.
    """
    n, k = F.shape
    padded = (k + 3) // 4 * 4
    G = np.zeros((k, padded), F.dtype)
    inverse = np.zeros(k, F.dtype)
    for j in range(k):
        for p in range(k):
            G[j, p] = gram[j, p]
        if gram[j, j] > 0:
            inverse[j] = 1 / gram[j, j]
        G[j, j] = 0
    T = np.zeros((padded, BLOCK), F.dtype)
    C = np.zeros((k, BLOCK), F.dtype)
    rest = np.empty(BLOCK, F.dtype)
    for start in range(0, n, BLOCK):
        rows = min(BLOCK, n - start)
        for r in range(rows):
            for j in range(k):
                T[j, r] = F[start + r, j]
                C[j, r] = cross[start + r, j]
        for _ in range(sweeps):
            for j in range(k):
                if inverse[j] == 0:
                    continue
                for r in range(BLOCK):
                    rest[r] = C[j, r]
                for p in range(0, padded, 4):
                    g0, g1, g2, g3 = G[j, p], G[j, p + 1], G[j, p + 2], G[j, p + 3]
                    for r in range(BLOCK):
                        rest[r] -= g0 * T[p, r] + g1 * T[p + 1, r] + g2 * T[p + 2, r] + g3 * T[p + 3, r]
                for r in range(BLOCK):
                    new = rest[r] * inverse[j]
                    T[j, r] = new if new > 0 else 0
        for r in range(rows):
            for j in range(k):
                F[start + r, j] = T[j, r]


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def hals_solve(F: Array, gram: Array, cross: Array, sweeps: int, tol: float) -> None:
    """Like :func:`hals_sweeps`, but each row stops once a sweep moves it by at most ``tol`` times its norm.

    The gradient of the row is carried along, so a coordinate that stays costs nothing.
    """
    n, k = F.shape
    gradient = np.empty(k, F.dtype)
    inverse = np.zeros(k, F.dtype)
    for j in range(k):
        if gram[j, j] > 0:
            inverse[j] = 1 / gram[j, j]
    for i in range(n):
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


@numba.njit(nogil=True, cache=True, error_model="numpy")
def extrapolate(new: Array, old: Array, momentum: float) -> Array:
    """Return ``[new + momentum (new - old)]_+`` in one pass."""
    y = np.empty_like(new)
    beta = new.dtype.type(momentum)
    for i in range(new.shape[0]):
        for j in range(new.shape[1]):
            v = new[i, j] + beta * (new[i, j] - old[i, j])
            y[i, j] = v if v > 0 else 0
    return y


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def hals_metric(C: Array, grams: Array, gram: Array, cross: Array, sweeps: int) -> None:
    """Coordinate descent on ``1/2 tr(C_j^T G_j C_j gram) - tr(C_j^T cross_j)``, C_j >= 0 (c x r x k), in place.

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
