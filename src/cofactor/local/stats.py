"""Statistics of a half-problem, the changes that make regularizers out of them, and the loss they give.

Ridge, the FedProx anchor and proximal terms are changes of (gram, cross), not new solvers.
"""

from __future__ import annotations

import numpy as np

from cofactor.local import arrays
from cofactor.local.columns import columns_of
from cofactor.local.graphs import replayed
from cofactor.types import Array, Data, Stats

DIGITS_LOST = 1e3
"""Rounding errors of ``|X|^2``, from which on what is left of it is computed anew."""


def for_codes(X: Data, H: Array) -> Stats:
    """Statistics of ``min_W 1/2 |X - W H|^2``: gram H H^T (k x k), cross X H^T (n x k)."""

    def found(H: Array) -> tuple[Array, Array]:
        seen = H[:, columns_of(X)]
        return arrays.gram(seen.T), arrays.times_factor(X, H)

    return Stats(*(replayed(found, X, "codes", H) if arrays.keeps_still(X) else found(H)))


def for_factor(X: Data, W: Array) -> Stats:
    """Statistics of ``min_H 1/2 |X^T - H^T W^T|^2``: gram W^T W (k x k), cross X^T W (m x k)."""

    def found(W: Array) -> tuple[Array, Array]:
        return arrays.gram(W), arrays.times_codes(X, W)

    return Stats(*(replayed(found, X, "factor", W) if arrays.keeps_still(X) else found(W)))


def ridge(stats: Stats, weight: float) -> Stats:
    """Add ``weight/2 |F|^2`` to the objective."""
    return Stats(stats.gram + weight * np.eye(len(stats.gram), dtype=stats.gram.dtype), stats.cross)


def anchor(stats: Stats, F0: Array, weight: float) -> Stats:
    """Add ``weight/2 |F - F0|^2``: the FedProx anchor, and the proximal term of proximal updates."""
    return Stats(ridge(stats, weight).gram, stats.cross + stats.cross.dtype.type(weight) * F0)


def gain(stats: Stats, F: Array) -> float:
    """``1/2 |X - F B|^2 - 1/2 |X|^2`` from the statistics alone; at most 0 where F B helps."""
    return 0.5 * arrays.inner(stats.gram, arrays.gram(F)) - arrays.inner(stats.cross, F)


def residual(X: Data, W: Array, H: Array) -> float:
    """``|X - W H|_F^2``, from ``|X|^2`` and the statistics of the codes."""
    return squares(X, W, H)[0]


def squares(X: Data, W: Array, H: Array) -> tuple[float, float]:
    """``|X - W H|_F^2`` and ``|X|_F^2``; nothing of size n x m is made.

    Where so little is left that it has few digits as a difference of squares, it is that of the cells, block by block.
    """
    square = arrays.square(X)
    rest = square + 2 * gain(for_codes(X, H.astype(X.dtype, copy=False)), W)
    if rest < DIGITS_LOST * float(np.finfo(X.dtype).eps) * square and arrays.has_dense_rows(X):
        F = H.astype(np.float64, copy=False)
        rest = sum(float(np.sum((part - W[rows] @ F) ** 2)) for rows, part in arrays.blocks(X))
    return max(rest, 0.0), square


def lipschitz(gram: Array) -> float:
    """``||gram||_2``, the Lipschitz constant of the gradient ``F gram - cross``."""
    return float(np.linalg.eigvalsh(gram)[-1])


def unit_rows(W: Array, H: Array) -> tuple[Array, Array]:
    """Move the scale of every component into the codes: same W H, rows of H at norm 1 (zero rows stay)."""
    norms = np.linalg.norm(H, axis=1)
    return W * norms, normalize(H, norms)


def normalize(H: Array, norms: Array | None = None) -> Array:
    """Scale the rows of H to norm 1; zero rows stay zero."""
    norms = np.linalg.norm(H, axis=1) if norms is None else norms
    return H / np.where(norms > 0, norms, 1)[:, None].astype(H.dtype)


def shares(gram: Array, H: Array) -> Array:
    """Share of every component in the squared reconstruction, from ``gram = W^T W`` and H (k).

    ``s_l = <W_l H_l, W H> / |W H|^2 = sum_p gram_lp (H H^T)_lp / |W H|^2``: terms >= 0 that sum to 1; the overlap of
    two components goes half to each. Zeros where there is nothing to share.
    """
    H = H.astype(np.float64, copy=False)
    parts = np.sum(gram * (H @ H.T), axis=1)
    return parts / parts.sum() if parts.sum() > 0 else np.zeros(len(H))
