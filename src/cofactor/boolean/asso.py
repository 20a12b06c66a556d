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
from cofactor.boolean.gains import balances, change_of_balances, change_of_gains, first_gains, rows_with_gain
from cofactor.boolean.packed import kernel, word_places
from cofactor.types import Array, Data

TAUS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
ROUNDED = 1e-6
"""Confidences are ratios: 1 must pass tau = 1 and .7 must pass tau = .7, however they were rounded."""
BLOCK = 8192
CELLS = 50_000_000
"""Up to how many pairs of row and candidate the balances are kept; beyond, they are counted anew where they change."""


def factorize(X: Data, rank: int, rng: np.random.Generator | None = None) -> tuple[Array, Array]:
    """Return Boolean (W n x k, H k x m), uint8, of the tau with the smallest |X xor (W o H)|.

    ``rng`` is not used (nothing is random).
    """
    check_boolean(X)
    bits = pack(X)
    return min(covers(bits, X, rank), key=lambda factors: error(bits, *factors))


def enough(rank: int) -> int:
    """Return how many candidates need to be looked at: those chosen are nearly always among the first ones."""
    return max(1000, 8 * rank)


def covers(bits: Bits, X: Data, rank: int) -> Iterator[tuple[Array, Array]]:
    """Yield the cover (W, H) of every tau; ``bits`` is X packed."""
    confidence = association(X, least=min(TAUS))
    for tau in TAUS:
        yield cover(bits, candidates(confidence, tau), rank)


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
        gains, balance = balances(*lists, words, mass, price)
    else:
        gains, balance = first_gains(*lists, words, mass, price), np.empty((0, 0), np.float32)
    if keep is not None and keep < gains.size:
        top = np.sort(np.argsort(-gains, kind="stable")[:keep])
        gains, words, balance = gains[top], words[top], balance[top] if kept else balance
    places = word_places(words)
    for component in range(rank):
        if gains.max(initial=0.0) <= 1e-9:
            break
        pattern = words[gains.argmax()]
        used = rows_with_gain(X.words, covered, pattern, price)
        W[used, component] = 1
        H[component] = pattern
        if kept:
            there = np.flatnonzero(pattern)
            fresh = np.ascontiguousarray((pattern & ~covered[used])[:, there].T)
            hits = fresh & np.ascontiguousarray(X.words[used][:, there].T)
            chosen = there, pattern[there], fresh, hits
            gains += change_of_balances(chosen, used, mass[used], words, (balance, *price))
        else:
            gains += change_of_gains((X.words[used], covered[used], mass[used]), words, places, pattern, price)
        covered[used] |= pattern
    return W, unpack(Bits(H, (rank, X.shape[1])))


def _fingerprints(words: Array) -> Array:
    """Return 64 bits for every row, equal for equal rows (multiply and shift, as in splitmix64)."""
    out = np.empty(words.shape[0], np.uint64)
    _mix(words, out)
    return out


@kernel
def _mix(words: Array, out: Array) -> None:
    for i in range(words.shape[0]):
        seen = np.uint64(0)
        for q in range(words.shape[1]):
            seen = (seen ^ words[i, q]) * np.uint64(0x9E3779B97F4A7C15)
            seen ^= seen >> np.uint64(31)
        out[i] = seen
