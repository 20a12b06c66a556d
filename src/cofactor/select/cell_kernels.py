"""Compiled loops over held-out cells. They release the GIL, so clients run in threads."""

from __future__ import annotations

import numpy as np

from cofactor.local.kernels.compiled import compiled
from cofactor.types import Array

LOST = 1e-10
"""A component with less than this share of its energy in the kept cells of a row gets no code there."""


@compiled()
def products(W: Array, columns: Array, rows: Array, places: Array) -> Array:
    """Inner products of rows of W (n x k) with rows of ``columns`` (m x k), one for each cell."""
    out = np.empty(len(rows))
    for p in range(len(rows)):
        total = 0.0
        for a in range(W.shape[1]):
            total += W[rows[p], a] * columns[places[p], a]
        out[p] = total
    return out


@compiled()
def downdate(own: Array, columns: Array, places: Array) -> None:
    """``own -= sum_c h_c h_c^T`` over the held-out cells of one row, in place (k x k).

    ``own`` is symmetric; four cells are taken at a time, so that it is read and written four times less often.
    """
    k, whole = len(own), len(places) // 4 * 4
    for p in range(0, whole, 4):
        u, v, x, y = columns[places[p]], columns[places[p + 1]], columns[places[p + 2]], columns[places[p + 3]]
        for a in range(k):
            for b in range(a + 1):
                own[a, b] -= u[a] * u[b] + v[a] * v[b] + x[a] * x[b] + y[a] * y[b]
    for p in range(whole, len(places)):
        u = columns[places[p]]
        for a in range(k):
            for b in range(a + 1):
                own[a, b] -= u[a] * u[b]
    for a in range(k):
        for b in range(a):
            own[b, a] = own[a, b]


@compiled(error_model="numpy", fastmath={"contract"})
def masked_hals(
    W: Array,
    stats: tuple[Array, Array],
    columns: Array,
    cells: tuple[Array, Array],
    settings: tuple[float, int, float],
) -> float:
    """Coordinate descent on every row of W (n x k), each with its own gram, in place.

    ``stats`` are (gram, cross) of the kept data, ``columns`` is H^T (m x k), ``cells`` where the held-out cells
    of each row begin (n + 1) and their columns, ``settings`` are (ridge, sweeps, tol).
    Returns ``sum_i w_i gram_i w_i - 2 w_i cross_i``, the ridge left out.
    """
    gram, cross = stats
    starts, places = cells
    ridge, sweeps, tol = settings
    n, k = W.shape
    own = np.empty((k, k))
    gradient = np.empty(k)
    total = 0.0
    for i in range(n):
        w, hidden = W[i], places[starts[i] : starts[i + 1]]
        own[:] = gram
        downdate(own, columns, hidden)
        for a in range(k):
            own[a, a] += ridge * (gram[a, a] - own[a, a])
        for a in range(k):
            gradient[a] = -cross[i, a]
            for b in range(k):
                gradient[a] += own[a, b] * w[b]
        for _ in range(sweeps):
            moved = 0.0
            size = 0.0
            for a in range(k):
                if own[a, a] > LOST * gram[a, a]:
                    delta = max(w[a] - gradient[a] / own[a, a], 0.0) - w[a]
                    if delta != 0:
                        w[a] += delta
                        moved += delta * delta
                        for b in range(k):
                            gradient[b] += delta * own[a, b]
                size += w[a] * w[a]
            if moved <= tol * tol * size:
                break
        for a in range(k):
            total += w[a] * (gradient[a] - cross[i, a])
            for c in hidden:
                total -= ridge * (w[a] * columns[c, a]) ** 2
    return total
