"""Packed bits on tensors: words of 64 cells as in :mod:`cofactor.boolean.bits`, signed because torch counts in int64.

What goes row by row (cover, errors) is a Triton kernel on packed words on a CUDA device. Anywhere else, and for counts
over all rows, zeros and ones are multiplied as numbers: every sum is whole and far below 2^24, so that single precision
holds it exactly, whatever the order. Results are those of the compiled loops bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from cofactor.local.kernels.tensor_sweeps import has_triton
from cofactor.local.tensors import narrow_product, torch

CELLS = 1 << 25
"""Cells of a row block: so many numbers are unpacked at a time."""
ROWS = 1 << 16
"""Rows of a block, at most: counts of columns then have 17 bits."""
MOST = 4096
"""Words of a row that the kernels take; above it torch does the same, more slowly."""


class Block(NamedTuple):
    """Some rows (n x m), their codes (n x k), what these cover once and twice (n x m), and the factor: 0 and 1."""

    rows: Any
    codes: Any
    once: Any
    twice: Any
    factor: Any


def packed(X: Any) -> Any:
    """Return the words (n x ceil(m / 64)) of a dense or CSR tensor (n x m); any nonzero is a one."""
    n, m = X.shape
    words = torch().zeros((n, -(-m // 64)), dtype=torch().int64, device=X.device)
    if X.layout == torch().sparse_csr:
        rows = torch().repeat_interleave(torch().arange(n, device=X.device), X.crow_indices().diff())
        stored = X.values() != 0
        i, j = rows[stored], X.col_indices()[stored]
        places = i * words.shape[1] + (j >> 6)
        words.view(-1).index_add_(0, places, torch().ones_like(j) << (j & 63))  # a cell is stored once: a sum is an OR
        return words
    octets = words.view(torch().uint8)
    for here in _slices(n, m):
        bits = torch().nn.functional.pad((X[here] != 0).to(torch().uint8), (0, 64 * words.shape[1] - m))
        parts = bits.view(len(bits), -1, 8) << _places(X.device)
        octets[here] = parts.sum(-1, dtype=torch().uint8)
    return words


def first_bad(X: Any) -> Any:
    """Return row, column and value of the first cell of a dense or CSR tensor that is not 0 or 1; None: all are."""
    if X.layout == torch().sparse_csr:
        places = ((X.values() != 0) & (X.values() != 1)).nonzero()[:1, 0]
        if len(places) == 0:
            return None
        row = int(torch().searchsorted(X.crow_indices(), places, right=True)) - 1
        return row, int(X.col_indices()[places]), float(X.values()[places])
    for here in _slices(*X.shape):
        bad = ((X[here] != 0) & (X[here] != 1)).nonzero()[:1]
        if len(bad):
            row, column = here.start + int(bad[0, 0]), int(bad[0, 1])
            return row, column, float(X[row, column])
    return None


def unpacked(words: Any, m: int) -> Any:
    """Return zeros and ones (n x m, uint8)."""
    octets = words.contiguous().view(torch().uint8)
    return ((octets[:, :, None] >> _places(words.device)) & 1).view(len(words), -1)[:, :m]


def row_counts(X: Any, W: Any, H: Any, m: int) -> tuple[Any, Any]:
    """Return by row (n, int64) the ones and the zeros that its code covers; words of X (n x m), W and H."""
    if _is_for_triton(X):
        from cofactor.local.kernels import triton_bits

        return triton_bits.row_counts(X, W, H)
    found = [(_whole(b.rows * b.once), _whole((1 - b.rows) * b.once)) for b in _blocks(X, W, H, m)]
    return tuple(torch().cat(parts) for parts in zip(*found, strict=True)) if found else (X[:, 0], X[:, 0])


def ones(words: Any) -> int:
    """Count the ones of words: in bits, pairs, nibbles and bytes at once."""
    words = words - ((words >> 1) & 0x5555555555555555)
    words = (words & 0x3333333333333333) + ((words >> 2) & 0x3333333333333333)
    words = (words + (words >> 4)) & 0x0F0F0F0F0F0F0F0F
    return int(((words * 0x0101010101010101) >> 56).sum())


def uncovered(X: Any, W: Any, H: Any, m: int) -> Any:
    """Return by column (m, int64) the ones of X outside W o H."""
    total = torch().zeros(m, dtype=torch().int64, device=X.device)
    for block in _blocks(X, W, H, m):
        total += _whole(block.rows * (1 - block.once), 0)
    return total


def changes(X: Any, W: Any, H: Any, m: int) -> tuple[Any, Any]:
    """Return the change of error for each single flip of a bit of H (k x m), and the overlap of codes (k x k).

    Where H_lj is 1, what row i loses with it is ``2 x_ij - 1`` unless it is covered twice; where it is 0, what the row
    loses by it is ``1 - 2 x_ij`` unless it is covered. Summed over the rows that use l, both are products with W^T.
    """
    k = len(H)
    cells = torch().zeros((k, m), dtype=torch().int64, device=X.device)
    overlap = torch().zeros((k, k), dtype=torch().int64, device=X.device)
    has = unpacked(H, m) != 0
    for x, w, once, twice, _ in _blocks(X, W, H, m):
        without, along = (2 * x - 1) * (1 - twice), (1 - 2 * x) * (1 - once)
        cells += torch().where(has, narrow_product(w.T, without), narrow_product(w.T, along)).long()
        overlap += narrow_product(w.T, w).long()
    return cells, overlap


def greedy(X: Any, W: Any, H: Any, m: int) -> Any:
    """Return the words of codes after greedy cover that begins at those of W, as :mod:`cofactor.boolean.cover` says."""
    if _is_for_triton(X):
        from cofactor.local.kernels import triton_bits

        return triton_bits.greedy(X, W, H)
    found = [packed(_cover(b.rows, b.factor, b.codes)) for b in _blocks(X, W, H, m)]
    return torch().cat(found) if found else W


def better(X: Any, W: Any, other: Any, H: Any, m: int) -> Any:
    """Return the codes W where they have no more errors than the other ones, and these elsewhere, as words."""
    one, two = (excess - hits for hits, excess in (row_counts(X, codes, H, m) for codes in (W, other)))
    return torch().where((one <= two)[:, None], W, other)


def _cover(x: Any, h: Any, w: Any) -> Any:
    """Return codes (n x k) of rows x (n x m) by components h (k x m): each row adds, drops, or is done."""
    k, w = len(h), w.clone()
    rows, number = torch().arange(len(x), device=x.device), torch().arange(k, device=x.device)
    while len(rows):
        code, value = w[rows], 2 * x[rows] - 1
        often = narrow_product(code, h)
        # a key sorts by gain, and of equal gains the lowest component comes first
        gains = narrow_product(value * (often == 0), h.T).long() * k + (k - 1 - number)
        best = gains.max(1).values
        alone = narrow_product(value * (often < 2), h.T).long() * k + number
        worst = torch().where(code > 0, alone, k).min(1).values
        adds = best >= k
        drops = ~adds & (worst < k)
        w[rows[adds], k - 1 - best[adds] % k] = 1
        w[rows[drops], worst[drops] % k] = 0
        rows = rows[adds | drops]
    return w


def _blocks(X: Any, W: Any, H: Any, m: int) -> Iterator[Block]:
    kind = torch().bfloat16 if X.is_cuda else torch().float32
    h = unpacked(H, m).to(kind)
    for here in _slices(len(X), m):
        x, w = unpacked(X[here], m).to(kind), unpacked(W[here], len(H)).to(kind)
        often = narrow_product(w, h)
        yield Block(x, w, (often > 0).to(kind), (often > 1).to(kind), h)


def _slices(n: int, m: int) -> Iterator[slice]:
    step = max(1, min(CELLS // max(m, 1), ROWS))
    for low in range(0, n, step):
        yield slice(low, low + step)


def _whole(a: Any, axis: int = 1) -> Any:
    return a.sum(axis, dtype=torch().float32).long()


def _places(device: Any) -> Any:
    return torch().arange(8, dtype=torch().uint8, device=device)


def _is_for_triton(X: Any) -> bool:
    return bool(X.is_cuda and X.shape[1] <= MOST and has_triton())
