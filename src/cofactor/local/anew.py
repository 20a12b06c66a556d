"""A way out of minima that no descent leaves: two components become one, and the free one begins anew.

Where a strong component is split in two that the same rows use, and two weak ones share what is left for them, every
small step makes it worse. From the grams of codes and factor one sees which two could be one at the least price.
"""

from __future__ import annotations

import numpy as np

from cofactor.types import Array

TINY = float(np.finfo(np.float64).tiny)
TURNS = 3
"""Steps of the power method: a direction that many rows miss is enough."""
ROWS = 1 << 10
"""Rows that are changed at a time."""


def pairs(codes: Array, factor: Array, count: int) -> list[tuple[int, int]]:
    """Return the pairs of components, of these grams (k x k) of codes and factor, that one could stand for best.

    ``W_p H_p + W_q H_q`` is best met by its first singular vectors, which are not negative; the price is the square of
    the second singular value, and the squares of both are the eigenvalues of the product of the two 2 x 2 grams. In
    double precision: components that nothing is made of cost nothing, and in single 0 / 0 made them cost most.

    >>> pairs(np.ones((3, 3)) + np.diag([0.0, 0.0, 9.0]), np.eye(3), 1)
    [(0, 1)]
    """
    codes, factor = (_near_one(np.asarray(gram, dtype=np.float64)) for gram in (codes, factor))
    p, q = np.triu_indices(len(codes), 1)
    own = np.diag(codes) * np.diag(factor)
    trace = own[p] + own[q] + 2 * (codes * factor)[p, q]
    det = own[p] * own[q] * (1 - _cosines(codes)[p, q] ** 2) * (1 - _cosines(factor)[p, q] ** 2)
    price = 2 * det / np.maximum(trace + np.sqrt(np.maximum(trace**2 - 4 * det, 0)), TINY)
    return [(int(p[i]), int(q[i])) for i in np.argsort(price, kind="stable")[:count]]


def directions(missed: Array, count: int) -> list[Array]:
    """Return directions (m, of norm 1) in which rows (n x m, >= 0) of what is missed have most, one beside the other.

    >>> directions(np.diag([1.0, 3.0, 2.0]), 2)
    [array([0., 1., 0.]), array([0., 0., 1.])]
    """
    found, left = [], _near_one(missed)
    while True:
        v = left[np.argmax(np.einsum("ij,ij->i", left, left))]
        for _ in range(TURNS):
            v = left.T @ (left @ v)
            v = v / max(float(np.linalg.norm(v)), TINY)
        found.append(v)
        if len(found) == count:
            return found
        along = left @ v
        for i in range(0, len(left), ROWS):  # unions of thousands of clients are large
            part = left[i : i + ROWS]
            part -= np.outer(along[i : i + ROWS], v)
            np.maximum(part, 0, out=part)


def merged(H: Array, W: Array, gram: Array, pair: tuple[int, int], direction: Array) -> tuple[Array, Array]:
    """Return (H, W) in which the first of a pair stands for both, and the second is a direction without codes.

    ``gram`` (k x k) is that of the codes W (... x k).
    """
    first, second = pair
    both = list(pair)
    values, vectors = np.linalg.eig(gram[np.ix_(both, both)] @ (H[both] @ H[both].T))
    row = np.abs(vectors[:, np.argmax(values)]) @ H[both]
    new, codes = H.copy(), W.copy()
    codes[..., first] = W[..., both] @ (H[both] @ row) / max(float(row @ row), TINY)
    codes[..., second] = 0
    new[first], new[second] = row, direction
    return new, codes


def _near_one(A: Array) -> Array:
    """Return A (>= 0) times a power of 2, with a largest entry near 1: bits stay, and no product leaves the range."""
    return np.ldexp(A, -int(np.frexp(np.max(A, initial=0.0))[1]))


def _cosines(gram: Array) -> Array:
    size = np.sqrt(np.maximum(np.diag(gram), TINY))
    return np.clip(gram / np.outer(size, size), 0, 1)
