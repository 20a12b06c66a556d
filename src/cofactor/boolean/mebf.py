"""MEBF: median expansion, Boolean factorization by geometric segmentation.

Wan, Chang, Zhao, Li, Cao & Zhang, "Fast and efficient Boolean matrix factorization by geometric
segmentation", AAAI 2020. On the ones not yet covered: the column of median count with all columns that hold
at least a share t of its rows is one tile, the row of median count with all rows that hold at least a share
t of its columns another; the better is taken. If neither lowers the error, the same is tried from the
overlap of the two fullest columns and of the two fullest rows (weak signals); if that fails too, it ends.

Choices: the error counts zeros newly covered in X itself; a median tile must save more than the cells of its
own row and column, as in the authors' program, else noise fills the rank with tiles one column wide; medians
are over lines with more than one open one, the fuller line at an even count, the first of tied lines (trying
more of them was no better); t is taken from a grid by training error; components after the end stay empty.
"""

from __future__ import annotations

import numpy as np

from cofactor.boolean.bits import Bits, check_boolean, error, pack, unpack
from cofactor.boolean.packed import ADD, add_bits, get, kernel, popcount
from cofactor.types import Array, Data

THRESHOLDS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def factorize(X: Data, rank: int, rng: np.random.Generator | None = None) -> tuple[Array, Array]:
    """Return Boolean (W n x k, H k x m), uint8, of the threshold with the smallest |X xor (W o H)|.

    ``rng`` is not used (nothing is random).
    """
    check_boolean(X)
    bits = pack(X)
    found = [segment(bits, rank, threshold=t) for t in THRESHOLDS]
    return min(found, key=lambda factors: error(bits, *factors))


def segment(X: Bits, rank: int, *, threshold: float) -> tuple[Array, Array]:
    """Return (W n x k, H k x m) of MEBF on packed X with one threshold."""
    W, H = np.zeros((X.shape[0], rank), np.uint8), np.zeros((rank, X.words.shape[1]), np.uint64)
    open_cells, covered = X.words.copy(), np.zeros_like(X.words)
    for component in range(rank):
        rows, pattern = _best_tile(X, open_cells, covered, threshold)
        if rows.size == 0:
            break
        W[rows, component] = 1
        H[component] = pattern
        open_cells[rows] &= ~pattern
        covered[rows] |= pattern
    return W, unpack(Bits(H, (rank, X.shape[1])))


def _best_tile(X: Bits, open_cells: Array, covered: Array, threshold: float) -> tuple[Array, Array]:
    """Return (rows, packed columns) of the next tile; no rows when no tile lowers the error."""
    by_column, by_row = _sums(open_cells, X.shape[1])
    for pick, outline in ((_median, 1), (_fullest, 0)):
        tiles = [
            _from_columns(open_cells, pick(by_column), threshold),
            _from_rows(open_cells, pick(by_row), threshold),
        ]
        scores = [_score(X.words, covered, *tile, outline) for tile in tiles]
        if max(scores) > 0:
            return tiles[int(np.argmax(scores))]
    return np.empty(0, np.int64), np.zeros(X.words.shape[1], np.uint64)


def _median(sums: Array) -> Array:
    """Return the one line whose count is the median of the lines with more than one open one."""
    counts = np.sort(sums[sums > 1])
    return np.flatnonzero(sums == counts[counts.size // 2])[:1] if counts.size else counts


def _fullest(sums: Array) -> Array:
    """Return the two lines with most open ones (one if there is no second)."""
    order = np.argsort(-sums, kind="stable")[:2]
    return order[sums[order] > 0]


def _from_columns(open_cells: Array, seeds: Array, threshold: float) -> tuple[Array, Array]:
    """Return the rows that hold every seed column, and the columns that share enough of these rows."""
    rows = _rows_with(open_cells, seeds)
    shared, _ = _sums(open_cells[rows], 64 * open_cells.shape[1])
    return rows, pack((shared >= max(threshold * rows.size, 1))[None]).words[0]


def _from_rows(open_cells: Array, seeds: Array, threshold: float) -> tuple[Array, Array]:
    """Return the columns that every seed row holds, and the rows that share enough of these columns."""
    if seeds.size == 0:
        return seeds, np.zeros(open_cells.shape[1], np.uint64)
    pattern = np.bitwise_and.reduce(open_cells[seeds], axis=0)
    return _rows_sharing(open_cells, pattern, threshold), pattern


@kernel
def _sums(words: Array, m: int) -> tuple[Array, Array]:
    columns, rows = np.zeros(64 * words.shape[1], np.int64), np.zeros(words.shape[0], np.int64)
    for i in range(words.shape[0]):
        for q in range(words.shape[1]):
            add_bits(words[i, q], q, columns, ADD)
            rows[i] += popcount(words[i, q])
    return columns[:m], rows


@kernel
def _rows_with(words: Array, seeds: Array) -> Array:
    keep = np.zeros(words.shape[0], np.bool_)
    for i in range(words.shape[0]):
        keep[i] = seeds.size > 0
        for j in seeds:
            keep[i] = keep[i] and get(words[i], j)
    return np.flatnonzero(keep)


@kernel
def _rows_sharing(words: Array, pattern: Array, threshold: float) -> Array:
    size = 0
    for q in range(pattern.size):
        size += popcount(pattern[q])
    keep = np.zeros(words.shape[0], np.bool_)
    for i in range(words.shape[0]):
        shared = 0
        for q in range(pattern.size):
            shared += popcount(words[i, q] & pattern[q])
        keep[i] = size > 0 and shared >= threshold * size
    return np.flatnonzero(keep)


@kernel
def _score(X: Array, covered: Array, rows: Array, pattern: Array, outline: int) -> int:
    """Return the errors that the tile saves, less ``outline`` times its rows and columns."""
    score, width = 0, 0
    for q in range(pattern.size):
        width += popcount(pattern[q])
    for i in rows:
        for q in range(pattern.size):
            fresh = pattern[q] & ~covered[i, q]
            score += 2 * popcount(fresh & X[i, q]) - popcount(fresh)
    return score - outline * (rows.size + width - 1)
