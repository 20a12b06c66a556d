"""Numba kernels over rows. They release the GIL: clients run in threads, and so do the rows of one large client."""

from __future__ import annotations

import numpy as np

from cofactor.local.kernels import toys
from cofactor.local.kernels.compiled import compiled
from cofactor.local.threads import by_rows, over_rows
from cofactor.types import Array

Block = tuple[int, ...]
LANE = 32
"""Rows that are counted as one."""
NARROW, BROAD = (0,) * 3, (0,) * 10
"""Lanes of a block of :func:`hals_sweeps`: of few rows, and of many, where long loops pay.

A kernel is compiled for each: of a tuple the length is known by then, and loops of a known length are a fifth faster.
"""
MANY = 1280
"""Rows from which on blocks are broad."""


PASSED = 8
"""Multiplications that take as long as one number that passes by in memory."""
SMALL = 1 << 16
"""Entries that are copied into the order of rows: kernels of another order would be compiled for them first."""


def _plain(gram: Array, cross: Array) -> tuple[Array, Array]:
    """Return the statistics row by row where they are small, so that one compiled kernel is for all of them."""
    return np.ascontiguousarray(gram), np.ascontiguousarray(cross) if cross.size <= SMALL else cross


def hals_sweeps(F: Array, gram: Array, cross: Array, sweeps: int) -> Array:
    """Return F after so many coordinate descent sweeps on ``1/2 tr(F gram F^T) - tr(F cross^T)``, F >= 0.

    Rows are independent: threads that the caller may use take some each, and no bit depends on how many there are.
    """
    (n, k), (gram, cross) = F.shape, _plain(gram, cross)
    if toys.is_toy(n, k):
        return toys.hals_sweeps(F, gram, cross, sweeps)
    block, F = BROAD if n >= MANY else NARROW, by_rows(F)
    out = np.empty_like(F)
    over_rows(lambda start, stop: _sweep_rows(out, F, gram, cross, sweeps, start, stop, block), n, sweeps * k * k, LANE)
    return out


@compiled(error_model="numpy", fastmath={"contract"})
def _sweep_rows(
    out: Array, F: Array, gram: Array, cross: Array, sweeps: int, first: int, last: int, block: Block
) -> None:
    """``out`` are rows ``first:last`` of F after the sweeps.

    A block is transposed, so that every instruction works on many rows at once. Four components are taken at a time:
    what all others leave of them is one small product, in which a value that was loaded serves four times; among the
    four, each sees the others as they are then. Padding makes each row's arithmetic the same wherever it stands:
    stacking clients changes no bit.
    """
    k = F.shape[1]
    padded = (k + 3) // 4 * 4
    G = np.zeros((padded, padded), F.dtype)
    inverse = np.zeros(padded, F.dtype)
    for j in range(k):
        for p in range(k):
            G[j, p] = gram[j, p]
        if gram[j, j] > 0:
            inverse[j] = 1 / gram[j, j]
        G[j, j] = 0
    size = LANE * len(block)
    T = np.zeros((padded, size), F.dtype)
    C = np.zeros((padded, size), F.dtype)
    R0, R1, R2, R3 = np.empty_like(C[0]), np.empty_like(C[0]), np.empty_like(C[0]), np.empty_like(C[0])
    for start in range(first, last, size):
        rows = min(size, last - start)
        _turn_in(T, F, start, rows)
        _turn_in(C, cross, start, rows)
        for _ in range(sweeps):
            for j in range(0, padded, 4):
                _left_over(C, G, T, j, R0, R1, R2, R3, block)
                _settle(T, G, inverse, R0, j, j + 1, j + 2, j + 3, block)
                _settle(T, G, inverse, R1, j + 1, j, j + 2, j + 3, block)
                _settle(T, G, inverse, R2, j + 2, j, j + 1, j + 3, block)
                _settle(T, G, inverse, R3, j + 3, j, j + 1, j + 2, block)
        _turn_out(out, T, start, rows)


@compiled(error_model="numpy")
def _turn_in(T: Array, F: Array, start: int, rows: int) -> None:
    """``T = F[start : start + rows]^T``; a loop of its own, one array at a time, takes half as long."""
    for r in range(rows):
        row = F[start + r]
        for j in range(F.shape[1]):
            T[j, r] = row[j]


@compiled(error_model="numpy")
def _turn_out(F: Array, T: Array, start: int, rows: int) -> None:
    """``F[start : start + rows] = T^T``."""
    for r in range(rows):
        row = F[start + r]
        for j in range(F.shape[1]):
            row[j] = T[j, r]


@compiled(error_model="numpy", fastmath={"contract"})
def _left_over(C: Array, G: Array, T: Array, j: int, R0: Array, R1: Array, R2: Array, R3: Array, block: Block) -> None:
    """``R = C[j:j+4] - G[j:j+4] T``, without those four: what all others leave of them."""
    for r in range(LANE * len(block)):
        R0[r], R1[r], R2[r], R3[r] = C[j, r], C[j + 1, r], C[j + 2, r], C[j + 3, r]
    for p in range(0, T.shape[0], 4):
        if p == j:
            continue
        a0, a1, a2, a3 = G[j, p], G[j, p + 1], G[j, p + 2], G[j, p + 3]
        b0, b1, b2, b3 = G[j + 1, p], G[j + 1, p + 1], G[j + 1, p + 2], G[j + 1, p + 3]
        c0, c1, c2, c3 = G[j + 2, p], G[j + 2, p + 1], G[j + 2, p + 2], G[j + 2, p + 3]
        d0, d1, d2, d3 = G[j + 3, p], G[j + 3, p + 1], G[j + 3, p + 2], G[j + 3, p + 3]
        for r in range(LANE * len(block)):
            t0, t1, t2, t3 = T[p, r], T[p + 1, r], T[p + 2, r], T[p + 3, r]
            R0[r] -= a0 * t0 + a1 * t1 + a2 * t2 + a3 * t3
            R1[r] -= b0 * t0 + b1 * t1 + b2 * t2 + b3 * t3
            R2[r] -= c0 * t0 + c1 * t1 + c2 * t2 + c3 * t3
            R3[r] -= d0 * t0 + d1 * t1 + d2 * t2 + d3 * t3


@compiled(error_model="numpy", fastmath={"contract"})
def _settle(T: Array, G: Array, inverse: Array, rest: Array, j: int, a: int, b: int, c: int, block: Block) -> None:
    """``T_j = [(rest - G_ja T_a - G_jb T_b - G_jc T_c) / g]_+`` for a block of rows; as it was where g is 0."""
    scale, ga, gb, gc = inverse[j], G[j, a], G[j, b], G[j, c]
    if scale != 0:
        for r in range(LANE * len(block)):
            new = (rest[r] - (ga * T[a, r] + gb * T[b, r] + gc * T[c, r])) * scale
            T[j, r] = new if new > 0 else 0


def hals_solve(F: Array, gram: Array, cross: Array, sweeps: int, tol: float) -> Array:
    """Like :func:`hals_sweeps`, but each row stops once a sweep moves it by at most ``tol`` times its norm."""
    (n, k), (gram, cross) = F.shape, _plain(gram, cross)
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
