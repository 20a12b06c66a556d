"""Boolean refit: the codes W of given data and a given Boolean factor H, row by row.

Rows are independent, so a client's refit is the refit of its rows among the stacked ones. Greedy cover is
within .0002 of the best loss on tiles with rank 8, for which all 2^k unions would have to be looked at.
Gains are counted again only where a bound says that they may have become the largest, word by word where
a component has ones; the first bounds come from the components that have the ones of a row.
"""

from __future__ import annotations

import numpy as np

from cofactor.boolean.bits import Bits, as_bits, beside, columns, is_there, unpack
from cofactor.boolean.packed import ONE, cover_twice, kernel, lowest, popcount, union, word_places
from cofactor.local.kernels import tensor_bits
from cofactor.local.placed import Placed
from cofactor.local.threads import over_rows
from cofactor.types import Array, Data

PASSES = 4
"""About how often a row looks at a component."""
WORDS = 16
"""From how many words of a row on it pays to list which components have a column."""


def greedy_refit(X: Bits | Data, H: Bits | Data, *, codes: Bits | Data | None = None) -> Array:
    """Return W (n x k, uint8): each row adds the component of largest gain while that gain is positive.

    gain = |new ones covered| - |new zeros covered|; the lowest component wins a tie. Then components that the later
    ones made useless leave, the most harmful first, and the row adds again, until nothing changes. With ``codes``
    (n x k) a row also begins at its old code, and keeps what comes of it unless the new one has fewer errors, so that
    the total error cannot rise.
    """
    X, H = as_bits(X), as_bits(H)
    if is_there(X):
        return _refit_there(X, H, None if codes is None else as_bits(codes))
    W = np.zeros((X.shape[0], -(-H.shape[0] // 64)), np.uint64)
    old, where = None if codes is None else as_bits(codes).words.copy(), (word_places(H.words), _lists(H))

    def some(start: int, stop: int) -> None:
        rows = X.words[start:stop]
        _greedy(rows, H.words, where, W[start:stop])
        if old is not None:
            _greedy(rows, H.words, where, old[start:stop])
            _keep_better(rows, H.words, old[start:stop], W[start:stop])

    over_rows(some, X.shape[0], PASSES * where[0][1].size)
    return unpack(Bits(W, (X.shape[0], H.shape[0])))


def _refit_there(X: Bits, H: Bits, codes: Bits | None) -> Array:
    """Return the same codes for rows on a device, there."""
    m, shape = X.shape[1], (X.shape[0], H.shape[0])
    rows, factor, *old = beside(X, H, *([] if codes is None else [codes]))
    words = tensor_bits.greedy(rows, rows.new_zeros((shape[0], -(-shape[1] // 64))), factor, m)
    for start in old:
        other = tensor_bits.greedy(rows, start, factor, m)
        words = tensor_bits.better(rows, other, words, factor, m)
    return unpack(Bits(Placed(words), shape))


@kernel
def _gain(x: Array, h: Array, cover: Array, words: Array) -> int:
    gain = 0
    for q in words:
        fresh = h[q] & ~cover[q]
        gain += 2 * popcount(fresh & x[q]) - popcount(fresh)
    return gain


@kernel
def _worst(x: Array, H: Array, code: Array, places: tuple[Array, Array], room: tuple[Array, Array, Array]) -> int:
    """Return the component of a code that gains least beyond the others, if that is nothing; else -1."""
    indptr, words = places
    once, twice, used = room
    worst, least = -1, 1
    for component in used[: cover_twice(code, H, once, twice, used)]:
        gain = _gain(x, H[component], twice, words[indptr[component] : indptr[component + 1]])
        if gain < least:
            worst, least = component, gain
    return worst


@kernel
def _add(code: Array, x: Array, h: Array, chosen: int, cover: Array) -> int:
    """Add a component to a code and its cover; return how many zeros that covers."""
    code[chosen >> 6] |= ONE << np.uint64(chosen & 63)
    zeros = 0
    for q in range(cover.size):
        zeros += popcount(h[q] & ~cover[q] & ~x[q])
        cover[q] |= h[q]
    return zeros


def _lists(H: Bits) -> tuple[Array, Array]:
    """Return the components that have a one in each column, or nothing where few words are faster to count."""
    return columns(H) if H.words.shape[1] >= WORDS else (np.zeros(0, np.int64), np.zeros(0, np.int32))


@kernel
def _gains_alone(x: Array, lists: tuple[Array, Array], sizes: Array, out: Array) -> None:
    """Write what every component would gain by itself: twice its ones that the row has, less its size; or a bound."""
    indptr, components = lists
    if indptr.size == 0:
        out[:] = 64 * x.size
        return
    out[:] = -sizes
    for q in range(x.size):
        word = x[q]
        while word != 0:
            j = 64 * q + lowest(word)
            word &= word - ONE
            for p in range(indptr[j], indptr[j + 1]):
                out[components[p]] += 2


@kernel
def _zeros(x: Array, cover: Array) -> int:
    total = 0
    for q in range(x.size):
        total += popcount(cover[q] & ~x[q])
    return total


@kernel
def _greedy(X: Array, H: Array, where: tuple[tuple[Array, Array], tuple[Array, Array]], W: Array) -> None:
    places, lists = where
    indptr, words = places
    narrow = lists[0].size == 0
    cover, bound = np.empty(X.shape[1], np.uint64), np.empty(H.shape[0], np.int64)
    alone, sizes = np.empty(H.shape[0], np.int64), np.bincount(lists[1], minlength=H.shape[0])
    room = np.empty(X.shape[1], np.uint64), np.empty(X.shape[1], np.uint64), np.empty(H.shape[0], np.int64)
    for i in range(X.shape[0]):
        union(W[i], H, cover)
        _gains_alone(X[i], lists, sizes, alone)
        # what others gain can only rise by zeros that cost nothing any more
        bound[:] = alone + _zeros(X[i], cover)
        while True:
            best, chosen = 0, -1
            for component in range(H.shape[0]):
                # a component in use has nothing fresh, so its gain is 0 and it is never chosen again
                if bound[component] > best:
                    if narrow:  # all words: sooner than to look where they are
                        gain = 0
                        for q in range(cover.size):
                            fresh = H[component, q] & ~cover[q]
                            gain += 2 * popcount(fresh & X[i, q]) - popcount(fresh)
                        bound[component] = gain
                    else:
                        at = words[indptr[component] : indptr[component + 1]]
                        bound[component] = _gain(X[i], H[component], cover, at)
                    if bound[component] > best:
                        best, chosen = bound[component], component
            if chosen >= 0:
                bound += _add(W[i], X[i], H[chosen], chosen, cover)
                continue
            useless = _worst(X[i], H, W[i], places, room)
            if useless < 0:
                break
            W[i, useless >> 6] ^= ONE << np.uint64(useless & 63)
            union(W[i], H, cover)
            bound[:] = alone + _zeros(X[i], cover)


@kernel
def _row_error(x: Array, code: Array, H: Array, cover: Array) -> int:
    union(code, H, cover)
    wrong = 0
    for q in range(x.size):
        wrong += popcount(x[q] ^ cover[q])
    return wrong


@kernel
def _keep_better(X: Array, H: Array, old: Array, W: Array) -> None:
    cover = np.empty(X.shape[1], np.uint64)
    for i in range(X.shape[0]):
        if _row_error(X[i], old[i], H, cover) <= _row_error(X[i], W[i], H, cover):
            W[i] = old[i]
