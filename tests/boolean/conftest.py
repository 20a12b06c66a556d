"""Planted Boolean data for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

Tiles = Callable[..., tuple[np.ndarray, np.ndarray, np.ndarray]]


def make_tiles(n=120, m=70, k=4, *, density=0.9, noise=0.0, seed=0):
    """Return (X, W, H): k tiles of random rows x random columns, thinned in their union, then flipped."""
    rng = np.random.default_rng(seed)
    W, H = np.zeros((n, k), np.uint8), np.zeros((k, m), np.uint8)
    for component in range(k):
        W[rng.choice(n, int(n * rng.uniform(0.1, 0.3)), replace=False), component] = 1
        H[component, rng.choice(m, int(m * rng.uniform(0.08, 0.2)), replace=False)] = 1
    X = (W.astype(int) @ H > 0) & (rng.random((n, m)) < density)
    return (X ^ (rng.random((n, m)) < noise)).astype(np.uint8), W, H


@pytest.fixture
def tiles() -> Tiles:
    return make_tiles


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
