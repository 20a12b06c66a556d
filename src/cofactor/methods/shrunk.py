"""What known noise leaves of a row of means: its posterior mean, and a factor of pieces of it.

Where the second moment drowns in noise the mean row is all that is known. ``denoised`` takes out of it what the noise
put in; ``pieces`` makes k components of it that fit every row at least as well as the mean row and a constant row do.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from cofactor.types import Array

TOP, SPACE, BIN = 20.0, 0.25, 0.1
"""In deviations of the noise: what lies further from zero needs no help; spacing of the prior; bins of the values."""
ROUNDS = 300
"""Steps of expectation maximization; more change nothing."""


def denoised(values: Array, sigma: float) -> Array:
    """Return ``E[theta | x]`` for ``x = theta + N(0, sigma^2)``, ``theta >= 0`` (m), by empirical Bayes.

    The prior of all theta is the one of maximum likelihood on a grid (Kiefer and Wolfowitz 1956), found from the
    histogram of the values. Flat rows shrink to their mean, sparse ones to zero, as the values themselves suggest.
    """
    if sigma <= 0:
        return np.maximum(values, 0.0)
    x = np.asarray(values, dtype=np.float64) / sigma
    top = min(max(float(x.max(initial=0.0)), 1.0), TOP)
    least = max(float(x.min(initial=0.0)), -TOP)  # noise comes nowhere near; hostile numbers would take all memory
    edges = np.arange(np.floor(least), top + 2 * BIN, BIN)
    counts = np.histogram(x, edges)[0]
    theta, middle = np.arange(0.0, top + SPACE, SPACE), (edges[1:] + edges[:-1]) / 2
    likelihood = np.exp(-0.5 * np.square(middle[:, None] - theta))
    prior = np.full(len(theta), 1 / len(theta))
    for _ in range(ROUNDS if counts.any() else 0):
        prior *= likelihood.T @ (counts / np.maximum(likelihood @ prior, 1e-300))
        prior /= prior.sum()
    posterior = (likelihood @ (prior * theta)) / np.maximum(likelihood @ prior, 1e-300)
    near = np.interp(x, middle, posterior)
    return sigma * np.maximum(np.where(x > TOP - 4, x, near), 0.0)


def pieces(row: Array, rank: int) -> Array:
    """Return a factor (k x m) of disjoint consecutive pieces of a row >= 0, and for 1 < k < m a constant row.

    Pieces have equal shares of the squared length, and are constant where the row is zero. Their sum is the row, so
    non-negative codes fit no data worse than the best multiple of it, or of the constant row. With k = m every feature
    is a piece, and everything fits.
    """
    m = len(row)
    constant = 1 < rank < m
    H = np.zeros((rank, m))
    for i, (a, b) in enumerate(_equal(np.square(row), min(rank - constant, m))):
        H[i, a:b] = row[a:b] if row[a:b].any() else 1.0
    if constant:
        H[-1] = 1.0
    return H


def _equal(energy: Array, count: int) -> list[tuple[int, int]]:
    """Return where ``count`` consecutive pieces of equal energy begin and end.

    One feature may have more than a share for itself; the pieces that this leaves over halve the largest of the others.
    """
    m = len(energy)
    until = np.concatenate([[0.0], np.cumsum(energy if energy.any() else np.ones(m))])
    cuts = np.searchsorted(until, until[-1] * np.arange(1, count) / count)
    found = np.unique([0, *np.clip(cuts, 1, m - 1)[: m - 1], m])
    while len(found) <= count:
        split = [(until[b] - until[a], b - a, a, b) for a, b in pairwise(found.tolist()) if b > a + 1]
        *_, a, b = max(split)
        middle = np.searchsorted(until[a + 1 : b - 1], (until[a] + until[b]) / 2) + a + 1
        found = np.unique([*found, middle])
    return list(pairwise(found.tolist()))
