"""ASSO: Boolean factorization from column associations and greedy cover.

Miettinen, Mielikainen, Gionis, Das & Mannila, "The discrete basis problem", IEEE TKDE 2008. Candidate j is
``{l : |x_j and x_l| / |x_j| >= tau}`` for column j; k times, take the candidate of largest

    sum_i max(0, w_plus |new ones of row i covered| - w_minus |new zeros of row i covered|).

Choices: tau is taken from a grid by training error; equal candidates are tried once; when no candidate
gains, the remaining components stay empty. Gains are kept exact but cheap: what each row would gain or lose by each
candidate is kept (n x q, where that fits), and only the words, rows and candidates that the last component touched
are counted again.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import sparse

from cofactor.boolean.bits import Bits, check_boolean, columns, error, pack, unpack
from cofactor.boolean.packed import ONE, kernel, lowest, popcount, word_places
from cofactor.types import Array, Data

TAUS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
ROUNDED = 1e-6
"""Confidences are ratios: 1 must pass tau = 1 and .7 must pass tau = .7, however they were rounded."""
BLOCK = 8192
CELLS = 50_000_000
"""Up to how many pairs of row and candidate the balances are kept; beyond, they are counted anew where they change."""


def factorize(
    X: Data,
    rank: int,
    rng: np.random.Generator | None = None,
    *,
    taus: tuple[float, ...] = TAUS,
    weights: tuple[float, float] = (1.0, 1.0),
) -> tuple[Array, Array]:
    """Return Boolean (W n x k, H k x m), uint8, of the tau with the smallest |X xor (W o H)|.

    ``weights`` reward a covered one and punish a covered zero; ``rng`` is not used (nothing is random).
    """
    check_boolean(X)
    bits = pack(X)
    return min(covers(bits, X, rank, taus=taus, weights=weights), key=lambda factors: error(bits, *factors))


def enough(rank: int) -> int:
    """Return how many candidates need to be looked at: those chosen are nearly always among the first ones."""
    return max(1000, 8 * rank)


def covers(
    bits: Bits,
    X: Data,
    rank: int,
    *,
    taus: tuple[float, ...] = TAUS,
    weights: tuple[float, float] = (1.0, 1.0),
    usage: Array | None = None,
    keep: int | None = None,
) -> Iterator[tuple[Array, Array]]:
    """Yield the cover (W, H) of every tau; ``bits`` is X packed. Options as for :func:`cover`."""
    confidence = association(X, usage, least=min(taus, default=0.0))
    for tau in taus:
        yield cover(bits, candidates(confidence, tau), rank, weights=weights, usage=usage, keep=keep)


def association(X: Data, usage: Array | None = None, *, least: float = 0.0) -> sparse.csr_array:
    """Return the confidences ``c_jl = |x_j and x_l| / |x_j|`` between the columns of X (m x m, sparse).

    With ``usage`` (n) row i counts that many times. Those below ``least`` are left out: most of a sparse X are.
    """
    if sparse.issparse(X):
        B = sparse.csr_array(X, dtype=np.float64)
        # rows of the transpose, so that the product, which is larger than both, comes in rows too
        gram = B.T.tocsr() @ (B if usage is None else B.multiply(usage[:, None]).tocsr())
    else:
        blocks = (slice(i, i + BLOCK) for i in range(0, max(X.shape[0], 1), BLOCK))
        gram = sparse.csr_array(sum(_block_gram(X[rows], None if usage is None else usage[rows]) for rows in blocks))
    gram.eliminate_zeros()
    size = np.maximum(gram.diagonal(), 1)
    gram.data /= np.repeat(size, np.diff(gram.indptr))
    if least > 0:
        gram.data[gram.data < least - ROUNDED] = 0
        gram.eliminate_zeros()
    gram.sort_indices()  # once, and not for every threshold
    return gram


def _block_gram(X: Array, usage: Array | None) -> Array:
    block = np.asarray(X, dtype=np.float64)
    return block.T @ (block if usage is None else block * usage[:, None])


def candidates(confidence: sparse.csr_array, tau: float) -> Bits:
    """Return the distinct rows of the association matrix ``confidence >= tau``, packed (at most m x m)."""
    kept = confidence.data >= tau - ROUNDED
    words = pack(sparse.csr_array((kept, confidence.indices, confidence.indptr), confidence.shape)).words
    first = np.sort(np.unique(_fingerprints(words), return_index=True)[1])
    words = words[first]
    words = words[words.any(axis=1)]
    return Bits(words, (words.shape[0], confidence.shape[1]))


def cover(
    X: Bits,
    basis: Bits,
    rank: int,
    *,
    weights: tuple[float, float] = (1.0, 1.0),
    usage: Array | None = None,
    keep: int | None = None,
) -> tuple[Array, Array]:
    """Return (W, H) of the greedy choice of ``rank`` rows of ``basis`` (q x m) to cover X (n x m).

    Row i counts ``usage[i]`` times, as if it stood there that often. ``keep`` looks on only at the so many candidates
    that gain most by themselves (None: at all of them).
    """
    price = float(weights[0]), float(weights[1])
    mass = np.ones(X.shape[0]) if usage is None else np.asarray(usage, dtype=np.float64)
    W, H = np.zeros((X.shape[0], rank), np.uint8), np.zeros((rank, X.words.shape[1]), np.uint64)
    covered, lists, words = np.zeros_like(X.words), columns(X), basis.words
    kept = len(words) * len(mass) <= CELLS
    if kept:
        gains, balance = _balances(*lists, words, mass, price)
    else:
        gains, balance = _first_gains(*lists, words, mass, price), np.empty((0, 0), np.float32)
    if keep is not None and keep < gains.size:
        top = np.sort(np.argsort(-gains, kind="stable")[:keep])
        gains, words, balance = gains[top], words[top], balance[top] if kept else balance
    places = word_places(words)
    for component in range(rank):
        if gains.max(initial=0.0) <= 1e-9:
            break
        pattern = words[gains.argmax()]
        used = _rows_with_gain(X.words, covered, pattern, price)
        W[used, component] = 1
        H[component] = pattern
        if kept:
            there = np.flatnonzero(pattern)
            fresh = np.ascontiguousarray((pattern & ~covered[used])[:, there].T)
            hits = fresh & np.ascontiguousarray(X.words[used][:, there].T)
            chosen = there, pattern[there], fresh, hits
            gains += _change_of_balances(chosen, used, mass[used], words, (balance, *price))
        else:
            gains += _change_of_gains((X.words[used], covered[used], mass[used]), words, places, pattern, price)
        covered[used] |= pattern
    return W, unpack(Bits(H, (rank, X.shape[1])))


@kernel
def _fingerprints(words: Array) -> Array:
    """Return 64 bits for every row, equal for equal rows (multiply and shift, as in splitmix64)."""
    out = np.zeros(words.shape[0], np.uint64)
    for i in range(words.shape[0]):
        seen = np.uint64(0)
        for q in range(words.shape[1]):
            seen = (seen ^ words[i, q]) * np.uint64(0x9E3779B97F4A7C15)
            seen ^= seen >> np.uint64(31)
        out[i] = seen
    return out


@kernel
def _value(ones: int, fresh: int, price: tuple[float, float]) -> float:
    """Return what a row gains by a pattern with so many fresh cells, so many of them ones."""
    return max(0.0, price[0] * ones - price[1] * (fresh - ones))


@kernel
def _first_gains(indptr: Array, rows: Array, basis: Array, usage: Array, price: tuple[float, float]) -> Array:
    gains = np.zeros(basis.shape[0])
    hits = np.zeros(usage.size, np.int64)
    touched = np.empty(usage.size, np.int64)
    for c in range(basis.shape[0]):
        size, width = 0, 0
        for q in range(basis.shape[1]):
            word = basis[c, q]
            while word != 0:
                j = 64 * q + lowest(word)
                word &= word - ONE
                width += 1
                for p in range(indptr[j], indptr[j + 1]):
                    if hits[rows[p]] == 0:
                        touched[size] = rows[p]
                        size += 1
                    hits[rows[p]] += 1
        for i in touched[:size]:
            gains[c] += usage[i] * _value(hits[i], width, price)
            hits[i] = 0
    return gains


@kernel
def _balances(
    indptr: Array, rows: Array, basis: Array, usage: Array, price: tuple[float, float]
) -> tuple[Array, Array]:
    """Return what every candidate gains, and ``w_plus |ones| - w_minus |zeros|`` of it in every row (q x n)."""
    gains = np.empty(basis.shape[0])
    out = np.empty((basis.shape[0], usage.size), np.float32)
    both = np.float32(price[0] + price[1])
    for c in range(basis.shape[0]):
        width, own = 0, out[c]
        for q in range(basis.shape[1]):
            width += popcount(basis[c, q])
        own[:] = -price[1] * width
        for q in range(basis.shape[1]):
            word = basis[c, q]
            while word != 0:
                j = 64 * q + lowest(word)
                word &= word - ONE
                for i in rows[indptr[j] : indptr[j + 1]]:
                    own[i] += both
        gains[c] = _gain(own, usage)
    return gains, out


@kernel
def _gain(balance: Array, usage: Array) -> float:
    """Return the sum of what rows gain, four at a time."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    whole = balance.size - balance.size % 4
    for i in range(0, whole, 4):
        a += usage[i] * max(balance[i], np.float32(0))
        b += usage[i + 1] * max(balance[i + 1], np.float32(0))
        c += usage[i + 2] * max(balance[i + 2], np.float32(0))
        d += usage[i + 3] * max(balance[i + 3], np.float32(0))
    for i in range(whole, balance.size):
        a += usage[i] * max(balance[i], np.float32(0))
    return (a + b) + (c + d)


@kernel
def _rows_with_gain(X: Array, covered: Array, pattern: Array, price: tuple[float, float]) -> Array:
    gains = np.zeros(X.shape[0], np.bool_)
    for i in range(X.shape[0]):
        ones, fresh = 0, 0
        for q in range(X.shape[1]):
            word = pattern[q] & ~covered[i, q]
            fresh += popcount(word)
            ones += popcount(word & X[i, q])
        gains[i] = _value(ones, fresh, price) > 0
    return np.flatnonzero(gains)


@kernel
def _change_of_gains(
    rows: tuple[Array, Array, Array],
    basis: Array,
    places: tuple[Array, Array],
    pattern: Array,
    price: tuple[float, float],
) -> Array:
    """Return by candidate how its gain over ``rows`` changes: bits, cover and usage of those that use ``pattern``."""
    X, covered, usage = rows
    change = np.zeros(basis.shape[0])
    indptr, words = places
    for c in range(basis.shape[0]):
        where = words[indptr[c] : indptr[c + 1]]
        meets = False
        for q in where:
            meets |= (basis[c, q] & pattern[q]) != 0
        if not meets:
            continue
        for i in range(X.shape[0]):
            ones, fresh, lost_ones, lost = 0, 0, 0, 0
            for q in where:
                word = basis[c, q] & ~covered[i, q]
                hit = word & X[i, q]
                fresh += popcount(word)
                ones += popcount(hit)
                lost += popcount(word & pattern[q])
                lost_ones += popcount(hit & pattern[q])
            if lost:
                after = _value(ones - lost_ones, fresh - lost, price)
                change[c] += usage[i] * (after - _value(ones, fresh, price))
    return change


@kernel
def _change_of_balances(
    chosen: tuple[Array, Array, Array, Array], used: Array, usage: Array, basis: Array, known: tuple[Array, float, float]
) -> Array:
    """Return the same from the balances, which are brought up to date.

    ``chosen`` is where the pattern has words, these words, what they newly cover in the rows that use it (words x
    rows), and which of that are ones: side by side, so that many rows are counted at once.
    """
    where, pattern, fresh, hits = chosen
    balance, plus, minus = known
    change = np.zeros(basis.shape[0])
    lost, ones = np.zeros(used.size, np.int64), np.zeros(used.size, np.int64)
    for c in range(basis.shape[0]):
        meets = False
        for p in range(where.size):
            word = basis[c, where[p]] & pattern[p]
            if word != 0:
                if not meets:
                    lost[:], ones[:] = 0, 0
                meets = True
                for i in range(used.size):
                    lost[i] += popcount(word & fresh[p, i])
                    ones[i] += popcount(word & hits[p, i])
        if not meets:
            continue
        for i in range(used.size):
            if lost[i]:
                old = balance[c, used[i]]
                new = old - (plus * ones[i] - minus * (lost[i] - ones[i]))
                balance[c, used[i]] = new
                change[c] += usage[i] * (max(new, 0.0) - max(old, 0.0))
    return change
