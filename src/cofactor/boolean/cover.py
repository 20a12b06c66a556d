"""Boolean refit: the codes W of given data and a given Boolean factor H, row by row.

Rows are independent, so a client's refit is the refit of its rows among the stacked ones. Greedy cover is
within .0002 of the best loss on tiles with rank 8, for which all 2^k unions would have to be looked at.
Gains are counted again only where a bound says that they may have become the largest, word by word where
a component has ones; the first bounds come from the components that have the ones of a row.
"""

from __future__ import annotations

import numpy as np

from cofactor.boolean.bits import Bits, as_bits, beside, columns, errors_of, is_there, unpack
from cofactor.boolean.packed import NONE, ONE, cover_twice, kernel, lowest, part, popcount, union, word_places
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
    old, places, lists = None if codes is None else as_bits(codes).words.copy(), word_places(H.words), _lists(H)
    sizes = np.bincount(lists[1], minlength=H.shape[0])

    def some(start: int, stop: int) -> None:
        rows, room = X.words[start:stop], _room(H)
        _greedy(rows, H.words, places, lists, sizes, room, W[start:stop])
        if old is not None:
            _greedy(rows, H.words, places, lists, sizes, room, old[start:stop])
            keeps = errors_of(rows, old[start:stop], H.words) <= errors_of(rows, W[start:stop], H.words)
            W[start:stop][keeps] = old[start:stop][keeps]

    over_rows(some, X.shape[0], PASSES * places[1].size)
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


Room = tuple[Array, Array]
"""Words of three rows, and numbers of as many components: kernels that make no arrays are compiled sooner."""


def _room(H: Bits) -> Room:
    (k, _), words = H.shape, H.words.shape[1]
    return np.empty((3, words), np.uint64), np.empty((3, k), np.int64)


@part
def _gain(x: Array, h: Array, cover: Array, words: Array) -> int:
    gain = 0
    for q in words:
        fresh = h[q] & ~cover[q]
        gain += 2 * popcount(fresh & x[q]) - popcount(fresh)
    return gain


@part
def _worst(x: Array, H: Array, code: Array, places: tuple[Array, Array], room: Room) -> int:
    """Return the component of a code that gains least beyond the others, if that is nothing; else -1."""
    indptr, words = places
    twice, used = room[0][2], room[1][2]
    worst, least = NONE, 1
    for component in used[: cover_twice(code, H, room[0][1], twice, used)]:
        gain = _gain(x, H[component], twice, words[indptr[component] : indptr[component + 1]])
        if gain < least:
            worst, least = component, gain
    return worst


@part
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


@part
def _gains_alone(x: Array, lists: tuple[Array, Array], sizes: Array, out: Array) -> None:
    """Write what every component would gain by itself: twice its ones that the row has, less its size; or a bound."""
    indptr, components = lists
    for component in range(out.size):
        out[component] = -sizes[component] if indptr.size else 64 * x.size
    if indptr.size == 0:
        return
    for q in range(x.size):
        word = x[q]
        while word != 0:
            j = 64 * q + lowest(word)
            word &= word - ONE
            for p in range(indptr[j], indptr[j + 1]):
                out[components[p]] += 2


@part
def _zeros(x: Array, cover: Array) -> int:
    total = 0
    for q in range(x.size):
        total += popcount(cover[q] & ~x[q])
    return total


@part
def _begin(x: Array, code: Array, H: Array, cover: Array, alone: Array, bound: Array) -> None:
    """Write the cover of a code, and what others gain at most: it can only rise by zeros that cost nothing any more."""
    union(code, H, cover, NONE)
    free = _zeros(x, cover)
    for component in range(bound.size):
        bound[component] = alone[component] + free


@kernel
def _greedy(
    X: Array, H: Array, places: tuple[Array, Array], lists: tuple[Array, Array], sizes: Array, room: Room, W: Array
) -> None:
    indptr, words = places
    narrow = lists[0].size == 0
    cover, alone, bound = room[0][0], room[1][0], room[1][1]
    for i in range(X.shape[0]):
        _gains_alone(X[i], lists, sizes, alone)
        _begin(X[i], W[i], H, cover, alone, bound)
        while True:
            best, chosen = 0, NONE
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
                free = _add(W[i], X[i], H[chosen], chosen, cover)
                for component in range(H.shape[0]):
                    bound[component] += free
                continue
            useless = _worst(X[i], H, W[i], places, room)
            if useless < 0:
                break
            W[i, useless >> 6] ^= ONE << np.uint64(useless & 63)
            _begin(X[i], W[i], H, cover, alone, bound)
