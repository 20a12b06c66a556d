"""What candidates of a greedy cover gain, and how that changes when one of them is chosen: kernels of :mod:`asso`."""

from __future__ import annotations

import numpy as np

from cofactor.boolean.packed import ONE, kernel, lowest, part, popcount
from cofactor.types import Array


@part
def _value(ones: int, fresh: int, price: tuple[float, float]) -> float:
    """Return what a row gains by a pattern with so many fresh cells, so many of them ones."""
    return max(0.0, price[0] * ones - price[1] * (fresh - ones))


def first_gains(indptr: Array, rows: Array, basis: Array, usage: Array, price: tuple[float, float]) -> Array:
    """Return what every candidate gains by itself, rows by columns: ``rows[indptr[j]:indptr[j + 1]]`` have column j."""
    gains, room = np.zeros(basis.shape[0]), np.zeros((2, usage.size), np.int64)
    _first_gains(indptr, rows, basis, usage, price, room, gains)
    return gains


@kernel
def _first_gains(
    indptr: Array, rows: Array, basis: Array, usage: Array, price: tuple[float, float], room: Array, gains: Array
) -> None:
    hits, touched = room[0], room[1]
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


def balances(indptr: Array, rows: Array, basis: Array, usage: Array, price: tuple[float, float]) -> tuple[Array, Array]:
    """Return what every candidate gains, and ``w_plus |ones| - w_minus |zeros|`` of it in every row (q x n)."""
    gains, out = np.empty(basis.shape[0]), np.empty((basis.shape[0], usage.size), np.float32)
    _balances(indptr, rows, basis, usage, price, gains, out)
    return gains, out


@kernel
def _balances(
    indptr: Array, rows: Array, basis: Array, usage: Array, price: tuple[float, float], gains: Array, out: Array
) -> None:
    both = np.float32(price[0] + price[1])
    for c in range(basis.shape[0]):
        width, own = 0, out[c]
        for q in range(basis.shape[1]):
            width += popcount(basis[c, q])
        for i in range(own.size):
            own[i] = -price[1] * width
        for q in range(basis.shape[1]):
            word = basis[c, q]
            while word != 0:
                j = 64 * q + lowest(word)
                word &= word - ONE
                for i in rows[indptr[j] : indptr[j + 1]]:
                    own[i] += both
        gains[c] = _gain(own, usage)


@part
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


def rows_with_gain(X: Array, covered: Array, pattern: Array, price: tuple[float, float]) -> Array:
    """Return which rows gain by a pattern."""
    gains = np.empty(X.shape[0], np.bool_)
    _gain_of_rows(X, covered, pattern, price, gains)
    return np.flatnonzero(gains)


@kernel
def _gain_of_rows(X: Array, covered: Array, pattern: Array, price: tuple[float, float], gains: Array) -> None:
    for i in range(X.shape[0]):
        ones, fresh = 0, 0
        for q in range(X.shape[1]):
            word = pattern[q] & ~covered[i, q]
            fresh += popcount(word)
            ones += popcount(word & X[i, q])
        gains[i] = price[0] * ones - price[1] * (fresh - ones) > 0


Rows = tuple[Array, Array, Array]


def change_of_gains(
    rows: Rows, basis: Array, places: tuple[Array, Array], pattern: Array, price: tuple[float, float]
) -> Array:
    """Return by candidate how its gain over ``rows`` changes: bits, cover and usage of those that use ``pattern``."""
    change = np.zeros(basis.shape[0])
    _change_of_gains(rows, basis, places, pattern, price, change)
    return change


@kernel
def _change_of_gains(
    rows: Rows, basis: Array, places: tuple[Array, Array], pattern: Array, price: tuple[float, float], change: Array
) -> None:
    X, covered, usage = rows
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


def change_of_balances(
    chosen: tuple[Array, Array, Array, Array],
    used: Array,
    usage: Array,
    basis: Array,
    known: tuple[Array, float, float],
) -> Array:
    """Return the same from the balances, which are brought up to date.

    ``chosen`` is where the pattern has words, these words, what they newly cover in the rows that use it (words x
    rows), and which of that are ones: side by side, so that many rows are counted at once.
    """
    change, room = np.zeros(basis.shape[0]), np.empty((2, used.size), np.int64)
    _change_of_balances(chosen, used, usage, basis, known, room, change)
    return change


@kernel
def _change_of_balances(
    chosen: tuple[Array, Array, Array, Array],
    used: Array,
    usage: Array,
    basis: Array,
    known: tuple[Array, float, float],
    room: Array,
    change: Array,
) -> None:
    where, pattern, fresh, hits = chosen
    balance, plus, minus = known
    lost, ones = room[0], room[1]
    for c in range(basis.shape[0]):
        meets = False
        for p in range(where.size):
            word = basis[c, where[p]] & pattern[p]
            if word != 0:
                if not meets:
                    for i in range(used.size):
                        lost[i] = ones[i] = 0
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
