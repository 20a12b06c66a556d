"""Small data and small helpers that the tests of every folder share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment, nnls
from threadpoolctl import threadpool_limits

from cofactor.data import synthetic

WAITING = ("test_faults.py", "test_real.py")
"""Files whose real processes wait for each other longest: begun first, so that no worker is left alone with them in the
end, and fewer than there are workers, so that one of these computes meanwhile."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in WAITING)


@pytest.fixture(autouse=True, scope="session")
def one_blas_thread() -> Iterator[None]:
    """The matrices are tiny: more threads only wait for each other."""
    with threadpool_limits(1, "blas"):
        yield


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def clients() -> list[np.ndarray]:
    """Three clients of different size, rank 3, noisy."""
    return synthetic.blocks(3, [23, 31, 17], features=12, rank=3, seed=4).Xs


@pytest.fixture
def tiny_clients() -> list[np.ndarray]:
    """Eleven clients of 1 to 30 rows, most of them small enough to be batched."""
    rows = [3, 1, 20, 5, 8, 30, 2, 6, 1, 7, 12]
    return synthetic.blocks(len(rows), rows, features=15, rank=4, seed=2).Xs


@pytest.fixture
def solve_nnls() -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """The outside reference of every half-problem: scipy's active set method, row by row."""

    def solve(X: np.ndarray, B: np.ndarray) -> np.ndarray:
        return np.array([nnls(B.T, x)[0] for x in X])

    return solve


@pytest.fixture
def matched_cosines() -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Cosine of every planted row with its partner in the found factor, one partner each."""

    def cosines(found: np.ndarray, planted: np.ndarray) -> np.ndarray:
        A, B = (M / np.maximum(np.linalg.norm(M, axis=1, keepdims=True), 1e-300) for M in (planted, found))
        table = A @ B.T
        return table[linear_sum_assignment(-table)]

    return cosines
