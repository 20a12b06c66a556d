"""Numba kernels over the observed entries of a CSR matrix. They release the GIL; none is parallel by itself."""

from __future__ import annotations

import numpy as np

from cofactor.local.kernels.compiled import compiled, inner
from cofactor.types import Array

Entries = tuple[Array, Array, Array, Array]
"""``indptr``, ``indices`` and ``data`` of a CSR matrix, and the weight of every stored entry."""


def room(p: int) -> tuple[Array, Array]:
    """Return room for one problem of p unknowns: kernels that make no arrays of their own are compiled sooner."""
    return np.empty((p, p)), np.empty((2, p))


def residual_square(entries: Entries, codes: Array, factor: Array) -> Array:
    """Weighted ``sum_i (x_ui - w_u h_i)^2`` over the observed entries of every row; ``factor`` is m x q."""
    out = np.zeros(len(entries[0]) - 1)
    add_squares(entries, codes, factor, out)
    return out


@inner(error_model="numpy")
def solve_ridge(A: Array, b: Array, ridge: Array) -> None:
    """Overwrite b by the solution of ``(A + diag(ridge)) x = b``; only the upper triangle of A is read.

    Cholesky in place. A direction without any evidence (a pivot of 0) gets 0.
    """
    p = len(b)
    for i in range(p):
        pivot = A[i, i] + ridge[i]
        floor = 1e-12 * pivot
        for j in range(i):
            pivot -= A[j, i] * A[j, i]
        pivot = np.sqrt(pivot) if pivot > floor else 0.0
        A[i, i] = pivot
        for c in range(i + 1, p):
            rest = A[i, c]
            for j in range(i):
                rest -= A[j, i] * A[j, c]
            A[i, c] = rest / pivot if pivot > 0 else 0.0
    for i in range(p):
        for j in range(i):
            b[i] -= A[j, i] * b[j]
        b[i] = b[i] / A[i, i] if A[i, i] > 0 else 0.0
    for i in range(p - 1, -1, -1):
        for j in range(i + 1, p):
            b[i] -= A[i, j] * b[j]
        b[i] = b[i] / A[i, i] if A[i, i] > 0 else 0.0


@compiled(error_model="numpy")
def solve_rows(
    entries: Entries, features: Array, offset: Array, prior: Array, room: tuple[Array, Array], out: Array
) -> None:
    """Row u of ``out``: ridge regression of ``x_ui - offset_i`` on the rows i of ``features`` that u has observed.

    ``prior`` (p x p) is the gram that every row has before its own: the ridge, and whatever all rows share;
    ``room`` is :func:`room`.
    """
    indptr, indices, values, weights = entries
    p = features.shape[1]
    A, b, none = room[0], room[1][0], room[1][1]
    for u in range(len(indptr) - 1):
        for r in range(p):
            b[r] = none[r] = 0.0
            for c in range(p):
                A[r, c] = prior[r, c]
        for e in range(indptr[u], indptr[u + 1]):
            i = indices[e]
            target = values[e] - offset[i]
            for r in range(p):
                f = weights[e] * features[i, r]
                b[r] += f * target
                for c in range(r, p):
                    A[r, c] += f * features[i, c]
        solve_ridge(A, b, none)
        for r in range(p):
            out[u, r] = b[r]


@compiled(error_model="numpy")
def add_column_stats(entries: Entries, features: Array, offset: Array, gram: Array, cross: Array) -> None:
    """Add, weighted, ``v_u v_u^T`` (upper triangle) to ``gram_i`` and ``v_u (x_ui - o_u)`` to ``cross_i``."""
    indptr, indices, values, weights = entries
    p = features.shape[1]
    for u in range(len(indptr) - 1):
        for e in range(indptr[u], indptr[u + 1]):
            i = indices[e]
            target = values[e] - offset[u]
            at = 0
            for r in range(p):
                f = weights[e] * features[u, r]
                cross[i, r] += f * target
                for c in range(r, p):
                    gram[i, at] += f * features[u, c]
                    at += 1


@compiled(error_model="numpy")
def solve_columns(gram: Array, cross: Array, ridge: Array, room: tuple[Array, Array], out: Array, gains: Array) -> None:
    """Solve every column's ridge problem into ``out`` (m x p).

    ``gains`` (m) is what that gains: ``1/2 g_i^T gram_i g_i - cross_i g_i + 1/2 sum_r ridge_r g_ir^2``.
    """
    m, p = cross.shape
    A, b = room[0], room[1][0]
    for i in range(m):
        at = 0
        gains[i] = 0.0
        for r in range(p):
            b[r] = cross[i, r]
            for c in range(r, p):
                A[r, c] = gram[i, at]
                at += 1
        solve_ridge(A, b, ridge)
        for r in range(p):
            out[i, r] = b[r]
            gains[i] -= 0.5 * cross[i, r] * b[r]


@compiled(error_model="numpy")
def add_squares(entries: Entries, codes: Array, factor: Array, out: Array) -> None:
    """Add, weighted, ``sum_i (x_ui - w_u h_i)^2`` over the observed entries of every row; ``factor`` is m x q."""
    indptr, indices, values, weights = entries
    for u in range(len(out)):
        for e in range(indptr[u], indptr[u + 1]):
            rest = float(values[e])
            for r in range(codes.shape[1]):
                rest -= codes[u, r] * factor[indices[e], r]
            out[u] += weights[e] * rest * rest


@compiled(error_model="numpy")
def add_pulls(entries: Entries, features: Array, offset: Array, factor: Array, pull: Array) -> None:
    """Add, weighted, ``v_u (x_ui - o_u - v_u g_i)`` to the first p columns of ``pull`` and ``|v_u|^2`` to the last."""
    indptr, indices, values, weights = entries
    p = features.shape[1]
    for u in range(len(indptr) - 1):
        curvature = 0.0
        for r in range(p):
            curvature += features[u, r] * features[u, r]
        for e in range(indptr[u], indptr[u + 1]):
            i = indices[e]
            rest = values[e] - offset[u]
            for r in range(p):
                rest -= features[u, r] * factor[i, r]
            for r in range(p):
                pull[i, r] += weights[e] * rest * features[u, r]
            pull[i, p] += weights[e] * curvature
