"""Threads over rows: everything is done once, and no bit depends on how many there are."""

import threading

import numpy as np
import pytest
from scipy import sparse
from threadpoolctl import ThreadpoolController

from cofactor.local import arrays
from cofactor.local import threads as module
from cofactor.local.kernels import descent
from cofactor.local.threads import lend, over_rows
from cofactor.local.updates import HALS
from cofactor.types import Stats


@pytest.fixture(autouse=True)
def _worth(monkeypatch):
    monkeypatch.setattr(module, "WORTH", 1)


@pytest.mark.parametrize("n", [0, 1, 7, 128, 1000])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_rows_are_covered_once(n, count):
    seen, pieces = np.zeros(n, int), []

    def work(start, stop):
        pieces.append(start)
        seen[start:stop] += 1

    with lend(count):
        over_rows(work, n, 10, 64)
    assert (seen == 1).all()
    assert max(1, min(count, -(-n // 64))) <= len(pieces) <= max(1, min(count * module.PIECES, -(-n // 64)))
    assert len(pieces) == 1 or count > 1
    assert all(start % 64 == 0 for start in pieces)


def test_a_thread_of_its_own_has_none_to_spare(monkeypatch):
    monkeypatch.setattr(module, "PIECES", 1)
    counts, both = [], threading.Barrier(2)

    def work(*_):
        both.wait(timeout=10)
        over_rows(lambda *_: counts.append(1), 1000, 10)

    with lend(2):
        over_rows(work, 2, 10)
    assert len(counts) == 3, "the caller may use two threads, the one it started only itself"


def test_the_caller_takes_what_a_slow_thread_has_not_begun():
    caller, mine, begun, enough = threading.get_ident(), [], threading.Event(), threading.Event()

    def work(start, _):
        if threading.get_ident() != caller:
            begun.set()
            assert enough.wait(timeout=10)
            return
        assert begun.wait(timeout=10)
        mine.append(start)
        if len(mine) == 2 * module.PIECES - 1:
            enough.set()

    with lend(2):
        over_rows(work, 800, 10)
    assert len(set(mine)) == len(mine) == 2 * module.PIECES - 1


def test_errors_come_out():
    with lend(2), pytest.raises(ZeroDivisionError):
        over_rows(lambda start, _: 1 / (start == 0), 100, 10)


def _works(dtype):
    rng = np.random.default_rng(0)
    X = sparse.random(700, 300, 0.1, format="csr", random_state=0, dtype=dtype)
    W, H = rng.uniform(size=(700, 21)).astype(dtype), rng.uniform(size=(21, 300)).astype(dtype)
    stats = Stats(H @ H.T, arrays.times_factor(X, H))
    yield "codes", lambda: arrays.times_factor(X, H)
    yield "factor", lambda: arrays.times_codes(X, W)
    yield "codes of CSC", lambda: arrays.times_factor(X.tocsc(), H)
    yield "turned", lambda: arrays.contiguous(H.T)
    new, old = rng.uniform(size=(2, 700, 100)).astype(dtype)
    yield "ahead", lambda: descent.extrapolate(new, old, 0.5)
    skewed = X @ sparse.diags_array((np.arange(300) < 9).astype(dtype))
    skewed.eliminate_zeros()
    yield "factor, few columns", lambda: arrays.times_codes(skewed, W)
    mixed = X.copy()
    mixed.indices, mixed.has_sorted_indices = (
        np.concatenate([np.split(X.indices, X.indptr[1:-1])[i][::-1] for i in range(700)]),
        False,
    )
    yield "factor, indices in any order", lambda: arrays.times_codes(mixed, W)
    yield "sweeps", lambda: HALS(3)(W, stats)
    long = rng.uniform(size=(5000, 21)).astype(dtype)
    yield "gram", lambda: arrays.gram(long)
    yield "gram of columns", lambda: arrays.gram(np.asfortranarray(long))
    yield "sweeps to the end", lambda: HALS(30, tol=1e-3)(W, stats)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_bit_depends_on_threads(dtype):
    for name, work in _works(dtype):
        alone = work()
        with lend(3):
            np.testing.assert_array_equal(work(), alone, err_msg=name)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(700, 300), (300, 17), (5, 40), (64, 1)])
def test_dense_products_are_those_of_one_thread(dtype, shape):
    rng = np.random.default_rng(0)
    X, W, H = (rng.uniform(size=s).astype(dtype) for s in (shape, (shape[0], 21), (21, shape[1])))
    close = {"rtol": 1e-5 if dtype == np.float32 else 1e-13}
    for data in (X, np.asfortranarray(X)):
        with lend(3):
            found = arrays.times_factor(data, H), arrays.times_codes(data, W), module.product(W, H)
        for a, b in zip(found, (X @ H.T, X.T @ W, W @ H), strict=True):
            assert a.dtype == dtype
            np.testing.assert_allclose(a, b, **close)


def test_blas_has_one_thread_where_ours_are_lent():
    def counts():
        return {info["num_threads"] for info in ThreadpoolController().info() if info["user_api"] == "blas"}

    before = counts()
    for count in (1, 3):
        with lend(count):
            assert counts() == {1}
    assert counts() == before


@pytest.mark.parametrize(("threads", "ahead"), [(1, 1), (2, 4)])
def test_no_more_items_are_taken_than_may_be_ahead(threads, ahead):
    taken = []

    def items():
        for i in range(20):
            taken.append(i)
            yield i

    for done, out in enumerate(module.in_turn(lambda i: i * i, items(), threads, ahead)):
        assert out == done * done
        assert len(taken) == min(done + ahead + 1, 20)
