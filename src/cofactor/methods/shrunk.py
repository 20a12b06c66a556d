"""What known noise leaves of a row of means: its posterior mean, and a factor of pieces of it.

Where the second moment drowns in noise the mean row is all that is known. ``denoised`` takes out of it what the noise
put in; ``pieces`` makes k components of it that fit every row at least as well as the mean row and a constant row do.
"""

from __future__ import annotations

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
    edges = np.arange(np.floor(min(float(x.min(initial=0.0)), 0.0)), top + 2 * BIN, BIN)
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
    """Return a factor (k x m) of disjoint consecutive pieces of a row >= 0, and for k > 1 a constant row.

    Pieces have equal shares of the squared length, and are constant where the row is zero. Their sum is the row, so
    non-negative codes fit no data worse than the best multiple of it, or of the constant row.
    """
    m, count = len(row), max(rank - 1, 1)
    energy = np.cumsum(np.square(row)) if row.any() else np.arange(1.0, m + 1)
    cuts = np.searchsorted(energy, energy[-1] * np.arange(1, count) / count) + 1
    first = np.arange(1, count)
    cuts = np.minimum(np.maximum.accumulate(np.maximum(cuts, first) - first) + first, m - count + first)
    H = np.zeros((rank, m))
    for i, (a, b) in enumerate(zip([0, *cuts], [*cuts, m], strict=True)):
        H[i, a:b] = row[a:b] if row[a:b].any() else 1.0
    if rank > 1:
        H[-1] = 1.0
    return H
