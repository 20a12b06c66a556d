"""Symmetric matrices as vectors: the upper triangle, as it is or with off-diagonals times sqrt 2, which keeps norms."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from cofactor.local.placed import beside, device_of
from cofactor.types import Array

ROOT2 = float(np.sqrt(2.0))


@cache
def _upper(d: int, device: Any) -> tuple[Array, ...]:
    """Return where the upper triangle is, on the device of what it is for."""
    return tuple(beside(a, device) for a in np.triu_indices(d))


def triangle(M: Array) -> Array:
    """Return the upper triangle row by row."""
    return M[_upper(len(M), device_of(M))]


def triangles(Ms: Array) -> Array:
    """Return the upper triangle of each of several matrices (c x d x d)."""
    rows, columns = _upper(Ms.shape[1], device_of(Ms))
    return Ms[:, rows, columns]


def mirrored(upper: Array, d: int) -> Array:
    """Return the symmetric d x d matrix of an upper triangle.

    >>> mirrored(triangle(np.array([[1, 2], [2, 5]])), 2).tolist()
    [[1.0, 2.0], [2.0, 5.0]]
    """
    M, (rows, columns) = np.empty((d, d), like=upper), _upper(d, device_of(upper))
    M[rows, columns] = M[columns, rows] = upper
    return M


def packed(M: Array) -> Array:
    """Return the d (d + 1) / 2 numbers of a symmetric matrix; their norm is its Frobenius norm."""
    rows, columns = np.triu_indices(len(M))
    return M[rows, columns] * np.where(rows == columns, 1.0, ROOT2)


def unpacked(values: Array, d: int) -> Array:
    """Return the symmetric d x d matrix of packed numbers.

    >>> M = np.array([[1.0, 2.0], [2.0, 5.0]])
    >>> np.allclose(unpacked(packed(M), 2), M)
    True
    """
    rows, columns = np.triu_indices(d)
    M = np.zeros((d, d))
    M[rows, columns] = values / np.where(rows == columns, 1.0, ROOT2)
    return M + np.triu(M, 1).T


def size(d: int) -> int:
    """Return how many numbers a packed d x d matrix has."""
    return d * (d + 1) // 2


def noise_edge(sigma: float, d: int) -> float:
    """Return the largest eigenvalue that noise of this deviation on packed numbers makes: ``sqrt(2 d) sigma``.

    Off-diagonal entries get ``sigma / sqrt 2``, and the eigenvalues of such a matrix end at ``2 sqrt d`` times that
    (Wigner's semicircle).
    """
    return float(ROOT2 * sigma * np.sqrt(d))
