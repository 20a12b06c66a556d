"""Beta-divergences and what their minimization needs of the data: one numerator and one denominator for each factor.

``d(x | y) = (x^b + (b - 1) y^b - b x y^(b-1)) / (b (b - 1))``, at b = 1 Kullback-Leibler ``x log(x / y) - x + y``, at
b = 0 Itakura-Saito ``x / y - log(x / y) - 1``. A factor F of ``Y = F B`` is improved by

    F <- F (N / D)^g,    N = (X Y^(b-2)) B^T,    D = Y^(b-1) B^T        (Fevotte and Idier 2011)

with ``g = 1 / (max(2 - b, 0) + max(b - 1, 0))``, which never raises the divergence: it is the minimizer of a majorizer,
and majorizers of several clients add up, so that sums of N and D are enough. With ``gaps``, cells that are NaN belong
to neither N nor D, and cells of :class:`~cofactor.local.weighted.Weighted` data to both by their weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from cofactor.local import arrays, threads
from cofactor.local.kernels import counts
from cofactor.local.kernels.counts import TINY
from cofactor.local.penalties import FREE, Penalty
from cofactor.local.placed import to_host
from cofactor.local.weighted import cells
from cofactor.types import Array, Data

SWEEPS, PASSES = 200, 10
"""The most steps for codes of a final factor, and how often so many are made for the rows that still move."""
STILL, STILL_AT_END = 1e-6, 1e-8
"""Part of its top by which a row's codes still move when they are done: by steps, and by coordinate descent."""
BEGIN = 5
"""Steps before coordinate descent: far from the minimum they are cheaper."""


def exponent(beta: float) -> float:
    """Return the exponent g of a divergence's steps.

    >>> exponent(1), exponent(3)
    (1.0, 0.5)
    """
    return 1 / (max(2 - beta, 0) + max(beta - 1, 0))


class Sums(NamedTuple):
    """Of the shared factor: numerator (k x m), denominator (k x m, or k where columns agree), and the divergence."""

    up: Array
    down: Array
    loss: float


def for_codes(X: Data, W: Array, H: Array, beta: float, *, gaps: bool = False) -> tuple[Array, Array]:
    """Numerator and denominator of the codes (n x k; the denominator of Kullback-Leibler without gaps is k)."""
    if beta == 1 and not gaps:
        if arrays.counts(X):
            return X.count_codes(W, H), H.sum(axis=1)
        up = np.concatenate([_count_codes(part, W[rows], H) for rows, part in _parts(X)])
        return up, H.sum(axis=1)
    found = []
    for rows, part in _parts(X):
        here, seen, Y = _cells(part, W[rows], H)
        found.append(((_counted(here, seen) * Y ** (beta - 2)) @ H.T, (seen * Y ** (beta - 1)) @ H.T))
    return np.concatenate([up for up, _ in found]), np.concatenate([down for _, down in found])


def for_factor(X: Data, W: Array, H: Array, beta: float, *, gaps: bool = False) -> Sums:
    """Sums of the factor over the rows, and the divergence at (W, H)."""
    up, loss = np.zeros(H.shape), 0.0
    if beta == 1 and not gaps:
        if arrays.counts(X):  # what goes to the server is as small as the factor
            found, stored = X.count_factor(W, H)
            sums = to_host(W.sum(axis=0, dtype=np.float64))
            return Sums(to_host(found), sums, stored + float(sums @ H.sum(axis=1, dtype=np.float64)))
        for rows, part in _parts(X):
            found, part_loss = _count_factor(part, W[rows], H)
            up, loss = up + found, loss + part_loss
        return Sums(up, W.sum(axis=0, dtype=np.float64), loss)
    down = np.zeros(H.shape)
    for rows, part in _parts(X):
        F = W[rows]
        here, seen, Y = _cells(part, F, H)
        up = up + F.T @ (_counted(here, seen) * Y ** (beta - 2))
        down = down + F.T @ (seen * Y ** (beta - 1))
        loss += divergence(here, Y, beta, seen)
    return Sums(up, down, loss)


def has_zeros(X: Data) -> bool:
    """Whether a cell is 0: divergences of b <= 0 are infinite there."""
    return any(sparse.issparse(part) or bool((part <= 0).any()) for _, part in _parts(X))


def divergence(X: Array, Y: Array, beta: float, seen: Array | float = 1.0) -> float:
    """``sum d(x | y)`` over the cells of two arrays, each as often as it is ``seen``, in double precision."""
    X, Y = np.asarray(X, np.float64), np.asarray(Y, np.float64)
    if beta == 1:
        return float(np.sum(seen * (_xlog(X, Y) - X + Y)))
    if beta == 0:
        return float(np.sum(seen * (X / Y - np.log(np.where(seen > 0, X / Y, 1.0)) - 1)))
    each = X**beta + (beta - 1) * Y**beta - beta * X * Y ** (beta - 1)
    return float(np.sum(seen * each) / (beta * (beta - 1)))


def _xlog(X: Array, Y: Array) -> Array:
    """``x log(x / y)``, 0 where x is."""
    return np.where(X > 0, X, 0) * np.log(np.where(X > 0, X / Y, 1))


def _parts(X: Data) -> Iterator[tuple[slice, Any]]:
    """Yield (rows, the rows in memory): sparse ones all at once, dense ones in blocks that fit into memory twice."""
    if sparse.issparse(X):
        X = X.tocsr()
    n, m = X.shape
    step = n if sparse.issparse(X) else max(1, arrays.BLOCK_CELLS // m)
    for low in range(0, n, step):
        rows = slice(low, min(low + step, n))
        yield rows, arrays.row_block(X, rows)


def _cells(part: Data, W: Array, H: Array) -> tuple[Array, Array | float, Array]:
    """Return the cells of some rows with 0 for gaps, how much each counts, and the model's cells."""
    return *cells(part), np.maximum(W @ H, TINY)


def _counted(X: Array, seen: Array | float) -> Array:
    """Return every cell times its weight."""
    return X if isinstance(seen, float) else X * seen


def _count_codes(X: Data, W: Array, H: Array) -> Array:
    """``(X / Y) H^T``; of a sparse X only where it is not 0."""
    if not sparse.issparse(X):
        return threads.product(X / np.maximum(threads.product(W, H), TINY), H.T)
    out = np.zeros_like(W)
    counts.codes((X.indptr, X.indices, X.data), W, np.ascontiguousarray(H.T), out)
    return out


def _count_factor(X: Data, W: Array, H: Array) -> tuple[Array, float]:
    """``W^T (X / Y)`` and the divergence; of a sparse X only what is not 0 is visited."""
    if not sparse.issparse(X):
        Y = np.maximum(threads.product(W, H), TINY)
        return arrays.times_codes(X / Y, W).T, divergence(X, Y, 1)
    out = np.zeros(H.T.shape)
    loss = counts.factor((X.indptr, X.indices, X.data), W, np.ascontiguousarray(H.T), out)
    return out.T, float(loss + W.sum(axis=0, dtype=np.float64) @ H.sum(axis=1, dtype=np.float64))


def improve(F: Array, up: Array, down: Array, g: float, most: float = np.inf) -> Array:
    """``F (up / down)^g``, up / down from 1 / most to ``most``; where nothing pulls at a cell it stays."""
    ratio = np.divide(up, down, out=np.ones_like(F), where=(down > 0) & np.isfinite(down))
    ratio = ratio if np.isinf(most) else np.clip(ratio, 1 / most, most)
    return (F * (ratio if g == 1 else ratio**g)).astype(F.dtype, copy=False)


def flat_codes(X: Data, H: Array) -> Array:
    """Codes that are the same for all components, and give every row its sum (n x k): a start that lives."""
    whole = float(H.sum())
    share = np.full((len(H), X.shape[1]), 1 / whole if whole > 0 else 0.0, X.dtype)
    if arrays.counts(X):
        return arrays.times_factor(X, share)
    level = np.concatenate([_row_sums(part) for _, part in _parts(X)]) * (1 / whole if whole > 0 else 0.0)
    return np.repeat(level[:, None], len(H), axis=1).astype(X.dtype, copy=False)


def _row_sums(part: Data) -> Array:
    if not sparse.issparse(part):
        return cells(part)[0].sum(axis=1)
    known = np.nan_to_num(part.data)
    return np.add.reduceat(np.append(known, 0), part.indptr[:-1]) * (np.diff(part.indptr) > 0)


def move_codes(X: Data, W: Array, H: Array, beta: float, penalty: Penalty = FREE, *, gaps: bool = False) -> Array:
    """Return better codes for this factor: one step."""
    up, down = for_codes(X, W, H, beta, gaps=gaps)
    return improve(W, up, np.maximum(down + penalty.slope(W), 0), exponent(beta))


def solve_codes(X: Data, H: Array, beta: float, penalty: Penalty = FREE, *, gaps: bool = False) -> Array:
    """Return codes for a final factor, from flat ones; those of a row do not depend on other rows.

    Steps only come near to a code of 0. For Kullback-Leibler a few are the start of :func:`_settled`, which goes to the
    minimum; other divergences go on with the rows that still move.
    """
    W, how = flat_codes(X, H), (H, beta, penalty)
    if beta == 1:
        begun = _stepped(X, W, *how, gaps=gaps, sweeps=BEGIN)[0]
        settled = _settled(X, to_host(begun), to_host(H), penalty, gaps=gaps)
        return _beside(settled, X)
    if arrays.is_held(X):  # on a device, or in blocks on disk
        return _stepped(X, W, *how, gaps=gaps, sweeps=SWEEPS)[0]
    left = np.arange(len(W))
    for _ in range(PASSES):
        W[left], moving = _stepped(arrays.rows(X, left), W[left], *how, gaps=gaps, sweeps=SWEEPS)
        left = left[moving]
        if not left.size:
            break
    return W


def _beside(W: Array, X: Data) -> Array:
    """Return codes where the rows are: coordinate descent is done by the host, also for rows on a device."""
    if not arrays.is_placed(X):
        return W
    there = arrays.zeros(W.shape, X)
    there[:] = W
    return there


def _stepped(
    X: Data, W: Array, H: Array, beta: float, penalty: Penalty, *, gaps: bool, sweeps: int
) -> tuple[Array, Array]:
    """Return the codes after extrapolated steps, each row until its own stand still, and which rows still move."""
    before, moving = W, np.ones(len(W), bool)
    for t in range(sweeps):
        new = move_codes(X, ahead(W, before, beta, t), H, beta, penalty, gaps=gaps)
        W, before = np.where(moving[:, None], new, W), W
        moving &= to_host(np.max(np.abs(W - before), axis=1) > STILL * np.max(W, axis=1))
        if not moving.any():
            break
    return W, moving


def _settled(X: Data, W: Array, H: Array, penalty: Penalty, *, gaps: bool) -> Array:
    """Return the codes of the least Kullback-Leibler divergence, by coordinate descent over the cells above 0."""
    W, Ht, k = np.array(W, order="C"), np.ascontiguousarray(H.T), len(H)
    tol = max(STILL_AT_END, 8 * float(np.finfo(W.dtype).eps))
    for rows, part in _parts(X):
        here, slopes = _stored(part, H, gaps=gaps)
        codes, slopes = W[rows], np.broadcast_to(slopes + W.dtype.type(penalty.l1), W[rows].shape)

        def settle(low: int, high: int, here: Any = here, codes: Array = codes, slopes: Array = slopes) -> None:
            some = (here.indptr[low : high + 1], here.indices, here.data)
            counts.settle(some, codes[low:high], Ht, slopes[low:high], penalty.l2, SWEEPS, tol)

        threads.over_rows(settle, len(codes), 4 * k * max(here.nnz // max(len(codes), 1), 1))
    return W


def _stored(part: Data, H: Array, *, gaps: bool) -> tuple[Any, Array]:
    """Return the cells of some rows that are not 0 (CSR), and the slopes of the model's part (k; n x k with gaps)."""
    if sparse.issparse(part) and not gaps:
        return part, H.sum(axis=1)
    X, seen = cells(part)
    slopes = H.sum(axis=1) if isinstance(seen, float) else seen @ H.T
    return sparse.csr_array(_counted(X, seen)), slopes


def ahead(F: Array, before: Array, beta: float, t: float, share: float = 1.0) -> Array:
    """``F + a [F - before]_+`` (Hien, Leplat and Gillis 2025): a point ahead that stays positive where F is.

    ``a = 1 - 3 s / (t + 2)`` grows with t, and is nearer to 1 where a step was a ``share`` s of one; majorizers of
    divergences other than 1 <= b <= 2 do not bear it.
    """
    if t < 1 or not 1 <= beta <= 2:
        return F
    return F + F.dtype.type(1 - 3 * share / (t + 2)) * np.maximum(F - before, 0)
