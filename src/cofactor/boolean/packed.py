"""Machine-word primitives that the Boolean kernels share: count, find and visit the bits of a uint64."""

from __future__ import annotations

from typing import Any

import numpy as np

from cofactor.local.kernels.compiled import compiled, inner
from cofactor.types import Array

kernel = compiled()
"""Compile a serial kernel that lets other threads run: clients are the unit of parallelism, not rows."""

part = inner()
"""Compile what other kernels call."""

# numba promotes uint64 with a Python int to float64, so constants must be words themselves
ONE = np.uint64(1)
# what is counted by; a bare Python int would be a type of its own, for which a kernel is compiled once more
ADD: Any = np.int64(1)
TAKE: Any = np.int64(-1)
NONE: Any = np.int64(-1)


_ODD, _PAIRS, _NIBBLES, _BYTES = (
    np.uint64(0x0101010101010101 * byte) for byte in (0b01010101, 0b00110011, 0b00001111, 1)
)
_TWO, _FOUR, _TOP = np.uint64(2), np.uint64(4), np.uint64(56)


@part
def popcount(word: np.uint64) -> int:
    """Count the ones of a word: in bits, pairs, nibbles and bytes at once, which compilers know as one instruction."""
    word = word - ((word >> ONE) & _ODD)
    word = (word & _PAIRS) + ((word >> _TWO) & _PAIRS)
    word = (word + (word >> _FOUR)) & _NIBBLES
    return np.int64((word * _BYTES) >> _TOP)  # type: ignore[return-value]


@part
def lowest(word: np.uint64) -> int:
    """Return the position of the lowest one of a word that is not zero: the number of zeros below it."""
    return popcount(~word & (word - ONE))


@part
def get(row: Array, j: int) -> bool:
    """Return bit j of a packed row."""
    return (row[j >> 6] >> np.uint64(j & 63)) & ONE != 0


@part
def union(codes: Array, H: Array, out: Array, skip: int) -> None:
    """Write to ``out`` the OR of those rows of H that ``codes`` names, without row ``skip``."""
    for q in range(out.size):
        out[q] = 0
    for v in range(codes.size):
        word = codes[v]
        while word != 0:
            component = 64 * v + lowest(word)
            word &= word - ONE
            if component != skip:
                for q in range(out.size):
                    out[q] |= H[component, q]


@part
def add_bits(word: np.uint64, q: int, out: Array, by: int) -> None:
    """Add ``by`` to the counters of the columns that are one in word q of a row."""
    while word != 0:
        out[64 * q + lowest(word)] += by
        word &= word - ONE


def word_places(rows: Array) -> tuple[Array, Array]:
    """Return (indptr, words): the words of row i that are not zero are ``words[indptr[i]:indptr[i + 1]]``."""
    where, words = np.nonzero(rows)
    return np.searchsorted(where, np.arange(rows.shape[0] + 1)), np.ascontiguousarray(words)  # one layout, one loop


@part
def cover_twice(code: Array, H: Array, once: Array, twice: Array, used: Array) -> int:
    """Write what a code covers, what it covers twice, and its components to ``used``; return their number."""
    for q in range(once.size):
        once[q] = twice[q] = 0
    size = 0
    for v in range(code.size):
        word = code[v]
        while word != 0:
            component = 64 * v + lowest(word)
            word &= word - ONE
            used[size] = component
            size += 1
            for q in range(once.size):
                twice[q] |= once[q] & H[component, q]
                once[q] |= H[component, q]
    return size
