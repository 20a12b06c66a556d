"""Two components become one, and the free one begins where most is missed."""

import numpy as np
import pytest

from cofactor.local import anew


@pytest.fixture
def factors():
    rng = np.random.default_rng(0)
    return rng.exponential(size=(40, 5)), rng.exponential(size=(5, 12))


def test_the_price_of_a_pair_is_its_second_singular_value(factors):
    W, H = factors
    price = {
        (p, q): np.linalg.svd(W[:, [p, q]] @ H[[p, q]], compute_uv=False)[1] for p in range(5) for q in range(p + 1, 5)
    }
    assert anew.pairs(W.T @ W, H @ H.T, 10) == sorted(price, key=price.__getitem__)


def test_one_component_stands_for_a_pair_as_well_as_any_can(factors):
    W, H = factors
    direction = np.eye(12)[3]
    new, codes = anew.merged(H, W, W.T @ W, (1, 4), direction)
    both = W[:, [1, 4]] @ H[[1, 4]]
    off = np.linalg.norm(both - np.outer(codes[:, 1], new[1]))
    assert off == pytest.approx(np.linalg.svd(both, compute_uv=False)[1])
    np.testing.assert_array_equal(new[4], direction)
    assert not codes[:, 4].any()
    assert min(new.min(), codes.min()) >= 0
    np.testing.assert_array_equal(new[[0, 2, 3]], H[[0, 2, 3]])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_components_without_codes_cost_nothing(dtype):
    H = np.vstack([np.eye(3), np.zeros(3)]).astype(dtype)
    W = np.abs(np.random.default_rng(1).normal(size=(9, 4))).astype(dtype)
    W[:, 2] = 0
    assert {2, 3} <= set(anew.pairs(W.T @ W, H @ H.T, 1)[0]) | set(anew.pairs(W.T @ W, H @ H.T, 4)[-1])
    new, codes = anew.merged(H, W, W.T @ W, (2, 3), np.ones(3))
    assert np.isfinite(new).all()
    assert np.isfinite(codes).all()


def test_directions_are_of_what_most_rows_miss_and_none_where_nothing_is():
    rows = np.vstack([np.tile([0.0, 1.0, 1.0, 0.0], (30, 1)), [2.0, 0.0, 0.0, 0.0]])
    first, second = anew.directions(rows, 2)
    np.testing.assert_allclose(second, np.array([0, 1, 1, 0]) / np.sqrt(2), atol=1e-6)
    np.testing.assert_allclose(first, [1, 0, 0, 0], atol=1e-6)
    assert not np.any(anew.directions(np.zeros((3, 4)), 2))
