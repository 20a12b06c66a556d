from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from tests.helpers.bits import best_codes

from cofactor.boolean import error, greedy_refit, loss
from cofactor.boolean.bits import row_errors


def random_bits(rng, *shape, density=0.3):
    return (rng.random(shape) < density).astype(np.uint8)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
def test_greedy_is_never_worse_than_all_zero_nor_better_than_the_best(seed):
    rng = np.random.default_rng(seed)
    X, H = random_bits(rng, 12, 70), random_bits(rng, 5, 70)
    greedy, best = greedy_refit(X, H), best_codes(X, H)
    assert error(X, best, H) <= error(X, greedy, H) <= X.sum()


def test_greedy_follows_its_definition(rng):
    X, H = random_bits(rng, 20, 40), random_bits(rng, 6, 40)
    for x, code in zip(X, greedy_refit(X, H)):
        expected = np.zeros(6, np.uint8)
        while True:
            gains = ((H == 1) & ~(expected @ H > 0)) @ (2 * x.astype(int) - 1)
            if gains.max() > 0:
                expected[gains.argmax()] = 1
                continue
            used = np.flatnonzero(expected)
            alone = [((H[c] == 1) & ~(np.delete(expected, c) @ np.delete(H, c, axis=0) > 0)) for c in used]
            worth = [a @ (2 * x.astype(int) - 1) for a in alone]
            if not used.size or min(worth) > 0:
                break
            expected[used[np.argmin(worth)]] = 0
        np.testing.assert_array_equal(code, expected)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
def test_no_single_change_of_a_code_helps(seed):
    rng = np.random.default_rng(seed)
    X, H = random_bits(rng, 12, 70), random_bits(rng, 9, 70, density=0.15)
    W = greedy_refit(X, H)
    for component in range(9):
        other = W.copy()
        other[:, component] ^= 1
        assert (row_errors(X, W, H) <= row_errors(X, other, H)).all()


@pytest.mark.parametrize("seed", range(3))
def test_greedy_is_within_a_hundredth_of_the_best_on_tiles(tiles, seed):
    X, _, H = tiles(300, 90, 8, noise=0.05, seed=seed)
    assert loss(X, greedy_refit(X, H), H) <= loss(X, best_codes(X, H), H) + 0.01


def test_sparse_equals_dense_and_clients_equal_stacked(tiles):
    X, _, H = tiles(noise=0.1)
    W = greedy_refit(X, H)
    np.testing.assert_array_equal(greedy_refit(sparse.csr_array(X), sparse.csc_array(H)), W)
    np.testing.assert_array_equal(np.vstack([greedy_refit(X[:33], H), greedy_refit(X[33:], H)]), W)


def test_old_codes_stay_where_they_are_better(rng):
    X, H = random_bits(rng, 200, 30, density=0.5), random_bits(rng, 6, 30, density=0.5)
    best = best_codes(X, H)
    assert error(X, greedy_refit(X, H), H) > error(X, best, H)
    np.testing.assert_array_equal(greedy_refit(X, H, codes=best), best)
