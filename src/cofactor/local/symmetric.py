"""Symmetric matrices as vectors: the upper triangle, off-diagonals times sqrt 2, so that norms stay the same."""

from __future__ import annotations

import numpy as np

from cofactor.types import Array

ROOT2 = float(np.sqrt(2.0))


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
