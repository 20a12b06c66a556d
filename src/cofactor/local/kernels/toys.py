"""The kernels over rows without numba, for half-problems of toys: they end before numba would be imported.

What is a toy is told by shapes alone, so that a run has the same bits in every process. All arithmetic is
entry by entry: that of a row is the same wherever it stands.
"""

from __future__ import annotations

import numpy as np

from cofactor.types import Array

COMPONENTS, LEAST_ROWS, CELLS = 4, 8, 512
"""A toy has at most so many components, at least so many rows (clients of one row are many), and so many products."""


def is_toy(n: int, k: int) -> bool:
    """Whether n rows of k components are few enough."""
    return k <= COMPONENTS and n >= LEAST_ROWS and n * k * k <= CELLS


def hals_sweeps(F: Array, gram: Array, cross: Array, sweeps: int, tol: float = 0.0) -> Array:
    """Return F after coordinate descent sweeps on ``1/2 tr(F gram F^T) - tr(F cross^T)``, F >= 0.

    With ``tol`` > 0 each row stops once a sweep moves it by at most ``tol`` times its norm.
    """
    k = F.shape[1]
    T, C = np.array(F.T, order="C"), np.ascontiguousarray(cross.T)
    going = np.ones(F.shape[0], bool)
    for _ in range(sweeps):
        old = T.copy() if tol > 0 else T
        for j in range(k):
            if gram[j, j] > 0:
                rest = C[j].copy()
                for p in range(k):
                    if p != j:
                        rest -= gram[j, p] * T[p]
                rest /= gram[j, j]
                np.copyto(T[j], np.fmax(rest, 0), where=going)
        if tol > 0:
            going &= ((T - old) ** 2).sum(0) > tol * tol * (T * T).sum(0)
            if not going.any():
                break
    return np.ascontiguousarray(T.T)


def hals_metric(C: Array, grams: Array, gram: Array, cross: Array, sweeps: int) -> None:
    """Coordinate descent on ``1/2 tr(C_j^T G_j C_j gram) - tr(C_j^T cross_j)``, C_j >= 0 (c x r x k), in place."""
    out, (g, k) = C.tolist(), (gram.tolist(), C.shape[2])
    for codes, G, to in zip(out, grams.tolist(), cross.tolist(), strict=True):  # numbers: arrays are slower here
        seen = [[sum(row[p] * g[p][e] for p in range(k)) for e in range(k)] for row in codes]
        for _ in range(sweeps):
            for i, row in enumerate(codes):
                own = G[i][i]
                if own <= 0:
                    continue
                rest = [to[i][e] - sum(G[i][p] * seen[p][e] for p in range(len(codes)) if p != i) for e in range(k)]
                for e in range(k):
                    if g[e][e] > 0:
                        old, row[e] = row[e], max(row[e] + (rest[e] / own - seen[i][e]) / g[e][e], 0.0)
                        for p in range(k):
                            seen[i][p] += (row[e] - old) * g[e][p]
    C[...] = out


def extrapolate(new: Array, old: Array, momentum: float) -> Array:
    """Return ``[new + momentum (new - old)]_+``."""
    return np.fmax(new + new.dtype.type(momentum) * (new - old), 0)
