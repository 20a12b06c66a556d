"""Starts that read no data: a random factor, and random codes for it."""

from __future__ import annotations

import numpy as np

from cofactor.local.stats import normalize
from cofactor.types import Array, Stats


def random_factor(rank: int, n_features: int, rng: np.random.Generator) -> Array:
    """Uniform entries, rows at norm 1 (k x m, float64)."""
    return normalize(rng.uniform(size=(rank, n_features)))


def random_codes(stats: Stats, rng: np.random.Generator) -> Array:
    """Uniform codes (n x k), scaled so that W H fits X best: positive, so multiplicative updates can use them."""
    W = rng.uniform(0.1, 1.0, size=stats.cross.shape).astype(stats.cross.dtype)
    down = float(np.sum((W @ stats.gram) * W))
    return W * W.dtype.type(max(np.sum(W * stats.cross), 0) / down if down > 0 else 1)
