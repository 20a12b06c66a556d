"""Bit-packed Boolean matrices: 64 cells a word, the product W o H, and its error without an n x m temporary.

``(W o H)_ij = OR_l W_il and H_lj``. A row is packed along its columns, column j is bit j mod 64 of word
j // 64, and the bits after the last column are zero, so that counting words counts cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from cofactor.boolean.packed import ADD, NONE, ONE, add_bits, kernel, lowest, popcount, union
from cofactor.local import arrays
from cofactor.local.kernels import tensor_bits
from cofactor.local.placed import Placed, placed
from cofactor.local.tensors import tensor_of
from cofactor.types import Array, Data, DataError


@dataclass(frozen=True)
class Bits:
    """A Boolean n x m matrix in ``words`` (n x ceil(m / 64), uint64; on a device int64 with the same bits)."""

    words: Any
    shape: tuple[int, int]

    @property
    def ones(self) -> int:
        """Return |X|, the number of ones."""
        return tensor_bits.ones(self.words.tensor) if is_there(self) else int(_ones(self.words))


class Tally(NamedTuple):
    """Counts of a reconstruction R = W o H; the sum over clients is the tally of the stacked rows.

    ``sum(tallies, Tally())`` adds them up.
    """

    ones: int = 0
    covered: int = 0
    excess: int = 0
    cells: int = 0

    def __add__(self, other: tuple[int, ...]) -> Tally:  # type: ignore[override]
        """Return the tally of both parts together."""
        return Tally(*(a + b for a, b in zip(self, other)))

    @property
    def error(self) -> int:
        """Return |X xor R|."""
        return self.ones - self.covered + self.excess

    @property
    def loss(self) -> float:
        """Return |X xor R| / |X|; with no ones it is 0 for an empty R and infinite otherwise."""
        return self.error / self.ones if self.ones else (np.inf if self.error else 0.0)

    @property
    def recall(self) -> float:
        """Return |X and R| / |X|; 1 with no ones."""
        return self.covered / self.ones if self.ones else 1.0

    @property
    def similarity(self) -> float:
        """Return the share of equal cells, 1 - |X xor R| / (n m)."""
        return 1.0 - self.error / self.cells if self.cells else 1.0


def is_there(X: Bits) -> bool:
    """Whether bits are on a device."""
    return isinstance(X.words, Placed)


def beside(X: Bits, *others: Bits) -> list[Any]:
    """Return the words of X, which is on a device, and of others, as tensors there."""
    device = X.words.tensor.device
    return [a.words.tensor if is_there(a) else tensor_of(a.words.view(np.int64), device) for a in (X, *others)]


def check_boolean(X: Data, client: str | int | None = None) -> None:
    """Raise DataError unless X is a matrix of zeros and ones, naming the first cell that is neither."""
    where = "" if client is None else f" at client {client}"
    if getattr(X, "ndim", 0) != 2:
        raise DataError(f"Boolean data must be a matrix. Found {getattr(X, 'shape', type(X).__name__)}{where}.")
    if X.dtype.kind not in "buif":
        raise DataError(f"Boolean data must be numbers 0 and 1. Found type {X.dtype}{where}.")
    if are_bits(X):
        return
    i, j, value = _first_bad(X)
    raise DataError(
        f"Boolean data must be 0 or 1. Found {value:g} in row {i}, column {j}{where}; "
        "make bits of other values: prepare='binarize=0.5' or --prepare binarize=0.5 is 1 above 0.5 (of 1 and 2: 1.5).",
        int(j),
    )


def are_bits(X: Data) -> bool:
    """Whether numbers are nothing but zeros and ones."""
    if arrays.is_placed(X):
        return X.not_a_bit() is None
    values = arrays.canonical(X).data if sparse.issparse(X) else X
    return values.dtype == bool or np.array_equal(values, values != 0)


def _first_bad(X: Data) -> tuple[int, int, float]:
    if arrays.is_placed(X):
        return X.not_a_bit()
    if not sparse.issparse(X):
        i, j = (int(a) for a in np.argwhere((X != 0) != X)[0])
        return i, j, X[i, j]
    cells = arrays.canonical(X).tocoo()
    bad = np.flatnonzero((cells.data != 0) != cells.data)
    first = bad[np.lexsort((cells.col[bad], cells.row[bad]))[0]]
    return int(cells.row[first]), int(cells.col[first]), cells.data[first]


def pack(X: Data) -> Bits:
    """Pack a dense 0/1 or bool array, or a scipy sparse matrix (never made dense); any nonzero is a one.

    Data on a device are packed there.
    """
    n, m = (int(a) for a in X.shape)
    if isinstance(X, Placed) or arrays.is_placed(X):
        return Bits(Placed(tensor_bits.packed(X.tensor)) if isinstance(X, Placed) else X.words(), (n, m))
    if sparse.issparse(X):
        X = arrays.canonical(X)
        words = np.zeros((n, -(-m // 64)), np.uint64)
        _set_bits(X.indptr, X.indices, X.data != 0, words, X.format == "csr")
        return Bits(words, (n, m))
    packed = np.packbits(np.asarray(X) != 0, axis=1, bitorder="little")
    padded = np.zeros((n, 8 * -(-m // 64)), np.uint8)
    padded[:, : packed.shape[1]] = packed
    return Bits(padded.view("<u8").astype(np.uint64, copy=False), (n, m))


def recalled(words: Any, X: Data) -> Bits:
    """Return the bits of X from their words, brought to where X is: a checkpoint may have kept them elsewhere."""
    if arrays.is_placed(X):
        there = words if isinstance(words, Placed) else placed(np.asarray(words).view(np.int64), X.device)
        return Bits(there, X.shape)
    return Bits(np.asarray(words).view(np.uint64), X.shape)


def as_bits(X: Bits | Data) -> Bits:
    """Return X if it is packed already, else pack it."""
    return X if isinstance(X, Bits) else pack(X)


def unpack(X: Bits) -> Array:
    """Return the dense n x m array of zeros and ones (uint8)."""
    if is_there(X):
        found: Any = Placed(tensor_bits.unpacked(X.words.tensor, X.shape[1]))
        return found
    octets = np.ascontiguousarray(X.words.astype("<u8", copy=False)).view(np.uint8)
    return np.unpackbits(octets, axis=1, count=X.shape[1], bitorder="little")


def product(W: Bits | Data, H: Bits | Data) -> Bits:
    """Return the Boolean product W o H (n x m, packed) of W (n x k) and H (k x m)."""
    W, H = as_bits(W), as_bits(H)
    out = np.empty((W.shape[0], H.words.shape[1]), np.uint64)
    _product(W.words, H.words, out)
    return Bits(out, (W.shape[0], H.shape[1]))


def tally(X: Bits | Data, W: Bits | Data, H: Bits | Data) -> Tally:
    """Count ones, covered ones and covered zeros of X under W o H, row by row; additive over clients."""
    X, W, H = as_bits(X), as_bits(W), as_bits(H)
    if is_there(X):
        x, w, h = beside(X, W, H)
        hits, over = tensor_bits.row_counts(x, w, h, X.shape[1])
        return Tally(X.ones, int(hits.sum()), int(over.sum()), X.shape[0] * X.shape[1])
    ones, covered, excess = (int(a.sum()) for a in row_counts(X.words, W.words, H.words))
    return Tally(ones, covered, excess, X.shape[0] * X.shape[1])


def error(X: Bits | Data, W: Bits | Data, H: Bits | Data) -> int:
    """Return |X xor (W o H)|."""
    return tally(X, W, H).error


def row_errors(X: Bits | Data, W: Bits | Data, H: Bits | Data) -> Array:
    """Return |x xor (w o H)| of every row (n, int64)."""
    X, W, H = as_bits(X), as_bits(W), as_bits(H)
    return errors_of(X.words, W.words, H.words)


def errors_of(X: Array, W: Array, H: Array) -> Array:
    """Return the same from words."""
    ones, covered, excess = row_counts(X, W, H)
    return ones - covered + excess


def row_counts(X: Array, W: Array, H: Array) -> Array:
    """Return by row (3 x n, int64) the ones, those that are covered, and the zeros that are, from words."""
    out = np.empty((3, len(X)), np.int64)
    _row_counts(X, W, H, np.empty(H.shape[1], np.uint64), out)
    return out


def loss(X: Bits | Data, W: Bits | Data, H: Bits | Data) -> float:
    """Return |X xor (W o H)| / |X|."""
    return tally(X, W, H).loss


def columns(X: Bits) -> tuple[Array, Array]:
    """Return (indptr, rows): the rows that hold a one in column j are ``rows[indptr[j]:indptr[j + 1]]``."""
    counts = np.zeros(64 * X.words.shape[1] + 1, np.int64)
    _column_counts(X.words, counts[1:])
    indptr = np.cumsum(counts)[: X.shape[1] + 1]
    rows = np.empty(indptr[-1], np.int32)
    _column_rows(X.words, indptr[:-1].copy(), rows)
    return indptr, rows


@kernel
def _ones(words: Array) -> int:
    total = 0
    for word in words.flat:
        total += popcount(word)
    return total


@kernel
def _set_bits(indptr: Array, indices: Array, stored: Array, words: Array, by_rows: bool) -> None:
    for major in range(indptr.size - 1):
        for p in range(indptr[major], indptr[major + 1]):
            if stored[p]:
                i, j = (major, indices[p]) if by_rows else (indices[p], major)
                words[i, j >> 6] |= ONE << np.uint64(j & 63)


@kernel
def _product(W: Array, H: Array, out: Array) -> None:
    for i in range(W.shape[0]):
        union(W[i], H, out[i], NONE)


@kernel
def _row_counts(X: Array, W: Array, H: Array, row: Array, out: Array) -> None:
    for i in range(X.shape[0]):
        union(W[i], H, row, NONE)
        ones, covered, excess = 0, 0, 0
        for q in range(row.size):
            ones += popcount(X[i, q])
            covered += popcount(X[i, q] & row[q])
            excess += popcount(row[q] & ~X[i, q])
        out[0, i], out[1, i], out[2, i] = ones, covered, excess


@kernel
def _column_counts(words: Array, counts: Array) -> None:
    for i in range(words.shape[0]):
        for q in range(words.shape[1]):
            add_bits(words[i, q], q, counts, ADD)


@kernel
def _column_rows(words: Array, head: Array, rows: Array) -> None:
    for i in range(words.shape[0]):
        for q in range(words.shape[1]):
            word = words[i, q]
            while word != 0:
                j = 64 * q + lowest(word)
                word &= word - ONE
                rows[head[j]] = i
                head[j] += 1
