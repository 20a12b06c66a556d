"""Boolean coordinate sweeps of the shared factor H by additive counts: the total error never rises.

Given the codes, the columns of H are independent, and so is every choice for one row of H. Two ways:

- **one component after the other** (:func:`sweep`), where all rows are at hand: the errors in column j with
  H_lj = 0 and with H_lj = 1 are counted over the rows that use component l (the others count the same for both),
  and row l is set to the smaller count. This is exact coordinate descent.
- **all components in one message** (:func:`changes`, :func:`choose_all`). Each client sends once
  ``cells`` (k x m int64), the change of its error if that single bit of H were flipped, and ``overlap``
  (k x k), the rows that use both components. Flips in one column interact only in rows that use both, and
  there by at most one error for a pair: ``change(flips S) <= sum_S cells + sum_{pairs of S} overlap``;
  the server adds flips to a column, best first, while this bound falls. One message of k m + k^2 numbers.

Sums over clients equal the changes of the stacked rows bit for bit, so that works under secure summation.
After either, clients refit with ``greedy_refit(X, H, codes=W)``, which cannot raise a row's error.
"""

from __future__ import annotations

from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from cofactor.boolean.bits import Bits, as_bits, beside, is_there, pack, unpack
from cofactor.boolean.cover import greedy_refit
from cofactor.boolean.packed import ADD, NONE, ONE, TAKE, add_bits, cover_twice, get, kernel, part, union
from cofactor.local.kernels import tensor_bits
from cofactor.local.placed import Placed
from cofactor.local.threads import over_rows
from cofactor.types import Array, Data


class Changes(NamedTuple):
    """What one client sends for a sweep in one message; both arrays add up over clients."""

    cells: Array
    overlap: Array


def changes(X: Bits | Data, W: Bits | Data, H: Bits | Data) -> Changes:
    """Return the change of error for each single flip of a bit of H (k x m) and the overlap of W (k x k)."""
    X, W, H = as_bits(X), as_bits(W), as_bits(H)
    k, m = H.shape
    if is_there(X):
        x, w, h = beside(X, W, H)
        flips, shared = tensor_bits.changes(x, w, h, m)
        return Changes(_there(flips), _there(shared))
    cells = np.zeros((k, 64 * X.words.shape[1]), np.int64)
    overlap, one_by_one = np.zeros((k, k), np.int64), Lock()

    def some(start: int, stop: int) -> None:
        mine, pairs = np.zeros_like(cells), np.zeros_like(overlap)
        words, used = np.empty((2, X.words.shape[1]), np.uint64), np.empty(k, np.int64)
        _changes(X.words[start:stop], W.words[start:stop], H.words, words, used, mine, pairs)
        with one_by_one:
            np.add(cells, mine, out=cells)
            np.add(overlap, pairs, out=overlap)

    over_rows(some, X.shape[0], 64 * X.words.shape[1])
    # rows of zeros uncovered minus ones uncovered, counted by their complement to visit few bits
    cells += np.diag(overlap)[:, None] * (1 - np.pad(unpack(H), ((0, 0), (0, cells.shape[1] - m))))
    return Changes(cells[:, :m], overlap)


def _there(tensor: Any) -> Any:
    return Placed(tensor)


def choose_all(changes: Changes, current: Array) -> Array:
    """Return H (k x m, uint8) after a safe set of flips in every column of ``current``, best flip first."""
    H = np.array(current, dtype=np.uint8)
    price = np.array(changes.cells)
    while True:
        best = price.argmin(axis=0)
        columns = np.flatnonzero(price.min(axis=0, initial=0) < 0)
        if columns.size == 0:
            return H
        flipped = best[columns]
        H[flipped, columns] ^= 1
        price[:, columns] += changes.overlap[:, flipped]
        price[flipped, columns] = np.iinfo(np.int64).max // 2


def uncovered(X: Bits | Data, W: Bits | Data, H: Bits | Data) -> Array:
    """Return by column (m, int64) the ones of X outside W o H; additive over clients."""
    X, W, H = as_bits(X), as_bits(W), as_bits(H)
    if is_there(X):
        x, w, h = beside(X, W, H)
        return _there(tensor_bits.uncovered(x, w, h, X.shape[1]))
    out = np.zeros(64 * X.words.shape[1], np.int64)
    _uncovered(X.words, W.words, H.words, np.empty(X.words.shape[1], np.uint64), out)
    return out[: X.shape[1]]


def reseed(H: Array, price: Array, uncovered: Array, into: Array | None = None) -> tuple[Array, Array]:
    """Return H in which components worth less than a column of their own begin anew as it, and which did (k, bool).

    ``price`` (k) is what it costs to give a component up, ``uncovered`` (m) what a component of that one column gains:
    it covers no zero. The cheapest goes for the best column, as long as that pays; of components with a common feature
    only one goes at a time, because then the prices add up. The component ``into`` (k; -1: none) takes its features.
    What costs as much as it gains pays if another column has as many uncovered ones: they may be of one block.
    """
    new, fresh, touched = np.array(H, dtype=np.uint8), np.zeros(len(H), bool), np.zeros(H.shape[1], bool)
    heirs, kept = np.full(len(H), -1) if into is None else into, np.zeros(len(H), bool)
    columns = np.argsort(-uncovered, kind="stable")
    gains = np.append(uncovered[columns], 0)  # sorted; behind the last column there is nothing to gain
    for component in np.argsort(price, kind="stable"):
        seeded = int(fresh.sum())
        gain, cost = gains[seeded], max(price[component], 0)
        if gain < cost or gain == 0 or (gain == cost and gains[seeded + 1] < gain):
            break
        heir = heirs[component]
        if kept[component] or (heir >= 0 and fresh[heir]):
            continue
        if price[component] > 0 and (touched & (new[component] > 0)).any():
            continue
        touched |= new[component] > 0
        if heir >= 0:
            new[heir], kept[heir] = new[heir] | new[component], True
        new[component], fresh[component] = 0, True
        new[component, columns[seeded]] = 1
    return new, fresh


def prices(changes: Changes, H: Array) -> tuple[Array, Array]:
    """Return at most how many more errors there are without each component, and which one is to take its features.

    Without another in its place (-1) it is what the component saves (:func:`worth`). In a row that uses both nothing is
    lost with one, in a row that uses one of the two at most an error for each feature: of two that the same rows use,
    one is enough. What is used costs at least one error, so that of two that cover the same one stays.
    """
    rows = np.diag(changes.overlap)
    apart = rows[:, None] + rows - 2 * changes.overlap
    shared = H.sum(axis=1, dtype=np.int64)[:, None] * apart
    np.fill_diagonal(shared, np.iinfo(np.int64).max)
    alone, heir = worth(changes, H), shared.argmin(axis=1)
    least = shared[np.arange(len(H)), heir]
    return np.maximum(np.minimum(alone, least), 1), np.where(least < alone, heir, -1)


def worth(changes: Changes, H: Array) -> Array:
    """Return by component (k) how many errors it saves: the changes if all of its ones were flipped, each its own."""
    return (changes.cells * H).sum(axis=1)


def sweep(X: Bits | Data, W: Bits | Data, H: Array, *, usage: Array | None = None) -> Array:
    """Return H (k x m, uint8) after one exact sweep over its components with the codes W fixed; a tie keeps the bit.

    With ``usage`` (n, int64) row i counts that many times.
    """
    X, W, new = as_bits(X), as_bits(W), pack(H)
    mass = np.ones(X.shape[0], np.int64) if usage is None else usage
    words = new.words.shape[1]
    _sweep((X.words, W.words, mass), new.words, X.shape[1], np.empty(words, np.uint64), np.empty((2, 64 * words), int))
    return unpack(new)


def polish(
    X: Bits | Data,
    H: Array,
    *,
    sweeps: int = 3,
    codes: Array | None = None,
    usage: Array | None = None,
) -> tuple[Array, Array]:
    """Return (W, H) after a refit and up to ``sweeps`` sweeps, each with a refit; stops when H stays.

    With ``usage`` (n, int64) row i counts that many times.
    """
    X = as_bits(X)
    H = np.asarray(H, dtype=np.uint8)
    W = greedy_refit(X, H, codes=codes)
    for _ in range(sweeps):
        new = sweep(X, W, H, usage=usage)
        if usage is None:
            new = _alive(X, W, new)
        if np.array_equal(new, H):
            break
        H = new
        W = greedy_refit(X, H, codes=W)
    return W, H


def _alive(X: Bits, W: Array, H: Array) -> Array:
    """Return H with its unused components seeded anew."""
    used = W.any(axis=0)
    return H if np.all(used) else reseed(H, np.where(used, X.ones, 0), uncovered(X, W, H))[0]


@part
def _counts(rows: tuple[Array, Array, Array], H: Array, component: int, others: Array, out: Array) -> int:
    X, W, usage = rows
    used = 0
    for i in range(X.shape[0]):
        if not get(W[i], component):
            continue
        used += usage[i]
        union(W[i], H, others, component)
        for q in range(others.size):
            add_bits(X[i, q] ^ others[q], q, out[0], usage[i])
            add_bits(X[i, q], q, out[1], usage[i])
    return used


@kernel
def _sweep(rows: tuple[Array, Array, Array], H: Array, m: int, others: Array, out: Array) -> None:
    for component in range(H.shape[0]):
        for j in range(out.shape[1]):
            out[0, j] = out[1, j] = 0
        used = _counts(rows, H, component, others, out)
        for j in range(m):
            zeros, ones = out[0, j], used - out[1, j]
            bit = ONE << np.uint64(j & 63)
            if ones < zeros:
                H[component, j >> 6] |= bit
            elif zeros < ones:
                H[component, j >> 6] &= ~bit


@kernel
def _uncovered(X: Array, W: Array, H: Array, row: Array, out: Array) -> None:
    for i in range(X.shape[0]):
        union(W[i], H, row, NONE)
        for q in range(row.size):
            add_bits(X[i, q] & ~row[q], q, out, ADD)


@kernel
def _changes(X: Array, W: Array, H: Array, words: Array, used: Array, cells: Array, overlap: Array) -> None:
    once, twice = words[0], words[1]
    for i in range(X.shape[0]):
        size = cover_twice(W[i], H, once, twice, used)
        for a in range(size):
            component = used[a]
            for b in range(size):
                overlap[component, used[b]] += 1
            for q in range(once.size):
                alone = H[component, q] & ~twice[q]
                add_bits(alone & X[i, q], q, cells[component], ADD)
                add_bits(alone & ~X[i, q], q, cells[component], TAKE)
                # a bit set in H is covered here: only cells where H is 0 may lose from the row count
                absent = (once[q] | X[i, q]) & ~H[component, q]
                add_bits(absent, q, cells[component], TAKE)
                add_bits(X[i, q] & ~once[q], q, cells[component], TAKE)
