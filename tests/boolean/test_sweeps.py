from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cofactor.boolean import changes, choose_all, error, greedy_refit, polish, sweep
from cofactor.boolean.sweeps import Changes


def random_problem(seed, n=40, m=70, k=6):
    rng = np.random.default_rng(seed)
    return tuple((rng.random(shape) < 0.35).astype(np.uint8) for shape in [(n, m), (n, k), (k, m)])


def errors_with(X, W, H, component, bit):
    H = H.copy()
    H[component] = bit
    used = W[:, component] == 1
    return ((W[used].astype(int) @ H > 0) != X[used]).sum(axis=0)


def test_a_sweep_sets_each_bit_to_the_fewer_errors_and_a_tie_keeps_it():
    X, W, H = random_problem(0)
    expected = H.copy()
    for component in range(6):
        zeros, ones = (errors_with(X, W, expected, component, bit) for bit in (0, 1))
        assert (zeros == ones).any()
        expected[component] = np.where(zeros == ones, expected[component], ones < zeros)
    np.testing.assert_array_equal(sweep(X, W, H), expected)


def test_changes_are_the_change_of_error_of_each_flip():
    X, W, H = random_problem(1, m=66)
    sent = changes(X, W, H)
    for component, j in np.ndindex(H.shape):
        flipped = H.copy()
        flipped[component, j] ^= 1
        assert sent.cells[component, j] == error(X, W, flipped) - error(X, W, H)
    np.testing.assert_array_equal(sent.overlap, W.astype(int).T @ W)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_the_error_never_rises(seed):
    X, W, H = random_problem(seed, n=25, m=65)
    before = error(X, W, H)
    assert error(X, W, sweep(X, W, H)) <= before
    together = choose_all(changes(X, W, H), H)
    assert error(X, W, together) <= before
    assert error(X, greedy_refit(X, together, codes=W), together) <= error(X, W, together)


@pytest.mark.parametrize("c", [1, 3, 7])
def test_clients_equal_stacked_rows_bit_for_bit(tiles, c):
    X, W, _ = tiles(noise=0.1)
    H = random_problem(2, k=4)[2]
    parts = [(X[j::c], W[j::c]) for j in range(c)]
    sent = [changes(X_j, W_j, H) for X_j, W_j in parts]
    summed = Changes(sum(s.cells for s in sent), sum(s.overlap for s in sent))
    np.testing.assert_array_equal(choose_all(summed, H), choose_all(changes(X, W, H), H))


def test_sweeps_with_planted_codes_find_the_planted_factor(tiles):
    X, W, H = tiles(density=1.0)
    np.testing.assert_array_equal(sweep(X, W, H), H)
    start = H.copy()
    start[:, ::7] ^= 1
    assert error(X, W, sweep(X, W, start)) < error(X, W, start) / 4


def test_polish_lowers_the_error(tiles):
    X, _, H = tiles(noise=0.05)
    start = H.copy()
    start[:, ::5] ^= 1
    W, better = polish(X, start)
    assert error(X, W, better) < error(X, greedy_refit(X, start), start)
