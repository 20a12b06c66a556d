"""Starts: a random factor that reads no data, and NNDSVD for a client's own data."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from cofactor.local.stats import normalize
from cofactor.types import Array, Data, Stats


def random_factor(rank: int, n_features: int, rng: np.random.Generator) -> Array:
    """Uniform entries, rows at norm 1 (k x m, float64)."""
    return normalize(rng.uniform(size=(rank, n_features)))


def random_codes(stats: Stats, rng: np.random.Generator) -> Array:
    """Uniform codes (n x k), scaled so that W H fits X best: positive, so multiplicative updates can use them."""
    W = rng.uniform(0.1, 1.0, size=stats.cross.shape).astype(stats.cross.dtype)
    down = float(np.sum((W @ stats.gram) * W))
    return W * W.dtype.type(max(np.sum(W * stats.cross), 0) / down if down > 0 else 1)


def nndsvd(X: Data, rank: int, rng: np.random.Generator) -> Array:
    """Non-negative double SVD (Boutsidis and Gallopoulos 2008): the factor H (k x m), rows at norm 1.

    Each right singular vector gives its positive or its negative part, whichever carries more of the
    component. Zeros are lifted a little at random, so that no update is locked. Components beyond the rank
    of the data are random.
    """
    r = min(rank, min(X.shape) - 1)
    H = random_factor(rank, X.shape[1], rng)
    if r >= 1 and abs(X).max() > 0:
        _, _, V = sparse.linalg.svds(X.astype(np.float64), k=r, random_state=rng)
        U = X @ V.T
        for i, (u, v) in enumerate(zip(U.T[::-1], V[::-1], strict=True)):
            plus = np.linalg.norm(np.maximum(u, 0)) * np.linalg.norm(np.maximum(v, 0))
            minus = np.linalg.norm(np.minimum(u, 0)) * np.linalg.norm(np.minimum(v, 0))
            part = np.maximum(v if plus >= minus else -v, 0)
            H[i] = part + rng.uniform(size=part.shape) * part.mean() / 100
    return normalize(H).astype(X.dtype)
