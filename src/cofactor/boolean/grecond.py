"""GreConD: Boolean factorization from below by formal concepts, grown one column at a time.

Belohlavek & Vychodil, "Discovery of optimal factors in binary data via a novel method of matrix
decomposition", J. Comput. System Sci. 2010. A component is a concept: all rows that have a set of columns,
times all columns that these rows share; it covers no zero. It grows from no columns by the column whose
concept covers most uncovered ones, while that number rises.

Choices: the lowest column wins a tie; when all ones are covered the remaining components stay empty.
A column's own concept is counted again only while its last count, which cannot rise, may still win.
"""

from __future__ import annotations

import numpy as np

from cofactor.boolean.bits import Bits, check_boolean, columns, pack, unpack
from cofactor.boolean.packed import get, kernel, part, popcount
from cofactor.types import Array, Data


def factorize(X: Data, rank: int, rng: np.random.Generator | None = None) -> tuple[Array, Array]:
    """Return Boolean (W n x k, H k x m), uint8, with W o H <= X; ``rng`` is not used (nothing is random)."""
    check_boolean(X)
    bits = pack(X)
    indptr, rows = columns(bits)
    open_cells = bits.words.copy()
    W, H = np.zeros((X.shape[0], rank), np.uint8), np.zeros((rank, open_cells.shape[1]), np.uint64)
    bound = np.full(X.shape[1], np.iinfo(np.int64).max)
    for component in range(rank):
        extent, intent = _concept(bits.words, open_cells, indptr, rows, bound)
        if extent.size == 0:
            break
        W[extent, component] = 1
        H[component] = intent
        open_cells[extent] &= ~intent
    return W, unpack(Bits(H, (rank, X.shape[1])))


@part
def _coverage(X: Array, open_cells: Array, extent: Array, intent: Array) -> int:
    """Write to ``intent`` the columns shared by the rows ``extent``; return the open ones of the concept."""
    for q in range(intent.size):
        intent[q] = X[extent[0], q]
    for i in extent:
        for q in range(intent.size):
            intent[q] &= X[i, q]
    total = 0
    for i in extent:
        for q in range(intent.size):
            total += popcount(open_cells[i, q] & intent[q])
    return total


@part
def _first_column(X: Array, open_cells: Array, indptr: Array, rows: Array, bound: Array) -> tuple[int, int, Array]:
    best, first = 0, -1
    chosen, intent = np.zeros(X.shape[1], np.uint64), np.zeros(X.shape[1], np.uint64)
    for j in range(bound.size):
        if bound[j] > best and indptr[j + 1] > indptr[j]:
            bound[j] = _coverage(X, open_cells, rows[indptr[j] : indptr[j + 1]], intent)
            if bound[j] > best:
                best, first = bound[j], j
                for q in range(intent.size):
                    chosen[q] = intent[q]
    return best, first, chosen


@part
def _narrow(X: Array, left: Array, extent: Array, j: int, part: Array) -> tuple[int, int]:
    """Write to ``part`` the rows of ``extent`` with column j; return how many and their open ones."""
    size, limit = 0, 0
    for i in extent:
        if get(X[i], j):
            part[size] = i
            size += 1
            limit += left[i]
    return size, limit


@kernel
def _concept(X: Array, open_cells: Array, indptr: Array, rows: Array, bound: Array) -> tuple[Array, Array]:
    """Return (extent rows, intent words) of the greedy concept; no rows when nothing is left to cover."""
    best, first, intent = _first_column(X, open_cells, indptr, rows, bound)
    if first < 0:
        return rows[:0].copy(), intent
    extent = rows[indptr[first] : indptr[first + 1]].copy()
    left = np.zeros(X.shape[0], np.int64)
    for i in extent:
        for q in range(intent.size):
            left[i] += popcount(open_cells[i, q])
    part, trial = np.empty_like(extent), np.empty_like(intent)
    while True:
        grown_extent, grown_intent = extent, intent
        for j in range(bound.size):
            if get(intent, j):
                continue
            size, limit = _narrow(X, left, extent, j, part)
            # no concept covers more than all that is open in its rows
            if size == 0 or limit <= best:
                continue
            count = _coverage(X, open_cells, part[:size], trial)
            if count > best:
                best, grown_extent, grown_intent = count, part[:size].copy(), trial.copy()
        if grown_extent.size == extent.size:
            return extent, intent
        extent, intent = grown_extent, grown_intent
