"""The matrices that are made, the same in every run."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from scipy import sparse as sp


@cache
def dense(dtype: str = "float64", n: int = 20000, m: int = 2000, k: int = 50) -> Any:
    """Sparse codes times a sparse factor, and a tenth of noise."""
    rng = np.random.default_rng(0)
    W, H = (rng.uniform(size=s) * (rng.uniform(size=s) < 0.3) for s in ((n, k), (k, m)))
    return (W @ H + 0.1 * rng.uniform(size=(n, m))).astype(dtype)


def small() -> Any:
    """What slow peers can do too."""
    return dense("float32", 4000, 1000, 20)


@cache
def sparse(n: int = 20000, m: int = 20000, density: float = 0.005, dtype: str = "float64") -> Any:
    """Uniform values at random places."""
    rng = np.random.default_rng(0)
    stored = int(n * m * density)
    places = rng.integers(n, size=stored), rng.integers(m, size=stored)
    return sp.csr_matrix((rng.uniform(size=stored).astype(dtype), places), shape=(n, m))


@cache
def ratings(users: int = 600, items: int = 9000, count: int = 100_000) -> Any:
    """Ratings from .5 to 5 at random places."""
    rng = np.random.default_rng(0)
    places = rng.choice(users * items, count, replace=False)
    values = rng.integers(1, 11, count) / 2
    return sp.csr_matrix((values.astype(np.float32), divmod(places, items)), shape=(users, items))
