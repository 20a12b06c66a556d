"""What is computed does not depend on how many threads were lent."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from scipy import sparse

from cofactor.boolean import greedy_refit
from cofactor.boolean.factorizers import Asso
from cofactor.boolean.sweeps import changes
from cofactor.combine.ballots import BooleanUnion
from cofactor.local import threads
from cofactor.ratings.halves import Layout, column_stats, solve_codes, solve_factor

COUNTS = (1, 2, 3)


@pytest.fixture(autouse=True)
def little_is_worth_a_thread(monkeypatch):
    monkeypatch.setattr(threads, "WORTH", 1)


def bits(n, m, seed, share=0.2):
    return (np.random.default_rng(seed).random((n, m)) < share).astype(np.uint8)


def under_each_count(work):
    found = []
    for count in COUNTS:
        with threads.lend(count):
            found.append(work())
    return found


def assert_same(results):
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_items_come_back_in_their_order_and_every_thread_works():
    seen, meet = set(), threading.Barrier(3)

    def work(i):
        if i in (0, 1, 11):
            meet.wait(timeout=10)
        seen.add(threading.get_ident())
        return i * i

    with threads.lend(3):
        assert list(threads.each(work, list(range(12)))) == [i * i for i in range(12)]
    assert len(seen) == 3


def test_an_error_in_a_thread_is_raised_here():
    def work(i):
        if i == 2:
            raise ValueError("item 2")

    with threads.lend(2), pytest.raises(ValueError, match="item 2"):
        list(threads.each(work, list(range(5))))


def test_boolean_covers_and_counts_are_the_same_bits():
    X, H, W = bits(203, 90, 0), bits(7, 90, 1, 0.1), bits(203, 7, 2)
    assert_same(under_each_count(lambda: (greedy_refit(X, H), greedy_refit(X, H, codes=W), *changes(X, W, H))))


def test_boolean_factorizations_are_the_same_bits():
    X, rng = bits(80, 40, 3), np.random.default_rng(0)
    union = BooleanUnion(4, 3)

    def work():
        factors = [Asso()(part, 4, rng) for part in (X[:40], X[40:])]
        return (*factors[0], *factors[1], union([union.message(*f) for f in factors], factors[0][1], 0))

    assert_same(under_each_count(work))


def test_ratings_are_the_same_bits():
    rng = np.random.default_rng(0)
    X = sparse.random_array((60, 30), density=0.3, format="csr", rng=rng)
    layout = Layout(3)
    H = np.vstack([rng.random((3, 30)), np.ones(30), np.zeros(30), np.full(30, 0.5)])

    def work():
        W = solve_codes(X, H, layout)
        new, gain = solve_factor(column_stats(X, W, H, layout), H, layout)
        return W, new, np.array(gain)

    assert_same(under_each_count(work))
