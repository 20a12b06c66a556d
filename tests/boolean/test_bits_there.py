"""Bits on a device: packed there, and covered, counted and refitted as in memory, bit for bit."""

import numpy as np
import pytest
from scipy import sparse

from cofactor.boolean import (
    alb_prox,
    bits,
    changes,
    check_boolean,
    elb_prox,
    greedy_refit,
    tally,
    uncovered,
)
from cofactor.boolean.binary import Binary
from cofactor.boolean.elbmf import Relaxation
from cofactor.local import devices
from cofactor.local.kernels import tensor_bits
from cofactor.local.placed import Placed, placed, to_host
from cofactor.local.streamed import Streamed
from cofactor.types import DataError, Stats

torch = pytest.importorskip("torch")
CPU = torch.device("cpu")
SHAPES = [(40, 30, 3), (30, 130, 7), (20, 64, 66), (1, 1, 1)]


def planted(n, m, k):
    """Rows made of components, some cells of both flipped, and other codes."""
    rng = np.random.default_rng(n)
    H, W = rng.random((k, m)) < 0.3, rng.random((n, k)) < 0.3
    X = (W.astype(int) @ H > 0) ^ (rng.random((n, m)) < 0.1)
    found = X, H ^ (rng.random((k, m)) < 0.1), rng.random((n, k)) < 0.4
    return [a.astype(np.float32) for a in found]


@pytest.fixture(params=["one block", "many blocks"])
def blocks(request, monkeypatch):
    if request.param == "many blocks":
        monkeypatch.setattr(tensor_bits, "ROWS", 7)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("shape", SHAPES)
def test_words_are_those_of_memory(shape, form, blocks):
    X = planted(*shape)[0]
    found = bits.pack(devices.place(form(X), "cpu"))
    np.testing.assert_array_equal(to_host(found.words).view(np.uint64), bits.pack(X).words)
    np.testing.assert_array_equal(to_host(bits.unpack(found)), X)
    assert found.ones == X.sum()


def test_stored_zeros_are_zeros():
    X = sparse.csr_array((np.array([0.0, 1, 1]), np.array([2, 0, 2]), np.array([0, 2, 3])), shape=(2, 3))
    found = bits.unpack(bits.pack(devices.place(X, "cpu")))
    np.testing.assert_array_equal(to_host(found), [[1, 0, 0], [0, 0, 1]])


@pytest.mark.parametrize("shape", SHAPES)
def test_codes_and_counts_are_those_of_memory(shape, blocks):
    X, H, W = planted(*shape)
    there = devices.place(X, "cpu")
    for codes in (None, W):
        found = greedy_refit(there, H, codes=codes)
        assert isinstance(found, Placed)
        np.testing.assert_array_equal(to_host(found), greedy_refit(X, H, codes=codes))
    assert tally(there, W, H) == tally(X, W, H)
    np.testing.assert_array_equal(to_host(uncovered(there, W, H)), uncovered(X, W, H))
    for found, wanted in zip(changes(there, W, H), changes(X, W, H), strict=True):
        np.testing.assert_array_equal(to_host(found), wanted)


def test_rows_that_do_not_fit_are_packed_block_by_block(monkeypatch):
    monkeypatch.setattr("cofactor.local.resident.BLOCK_BYTES", 30 * 4 * 8)
    X, H, _ = planted(40, 30, 3)
    held = Streamed(X, CPU, np.dtype(np.float32))
    np.testing.assert_array_equal(to_host(greedy_refit(held, H)), greedy_refit(X, H))
    X[33, 4] = 3
    with pytest.raises(DataError, match="Found 3 in row 33, column 4 at client b"):
        check_boolean(held, "b")


def test_words_of_a_checkpoint_are_brought_to_the_rows():
    X, H, _ = planted(40, 130, 3)
    there = devices.place(X, "cpu")
    kept = [np.asarray(bits.pack(data).words) for data in (X, there)]
    for words in kept:
        assert isinstance(bits.recalled(words, there).words, Placed)
        assert bits.recalled(words, X).words.dtype == np.uint64
        for data in (X, there):
            np.testing.assert_array_equal(to_host(greedy_refit(bits.recalled(words, data), H)), greedy_refit(X, H))


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_what_is_no_bit_is_named(form, blocks):
    X = planted(40, 30, 3)[0]
    check_boolean(devices.place(form(X), "cpu"))
    X[35, 2] = X[38, 1] = 0.5
    with pytest.raises(DataError, match=r"Found 0\.5 in row 35, column 2"):
        check_boolean(devices.place(form(X), "cpu"))


@pytest.mark.parametrize("prox", [elb_prox, alb_prox])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("beta", [0.01, 0.0])
def test_steps_of_a_relaxation_are_those_of_memory(prox, dtype, beta):
    rng = np.random.default_rng(0)
    F, B = rng.random((9, 5)).astype(dtype), rng.random((5, 20)).astype(dtype)
    stats = Stats(B @ B.T, (rng.random((9, 20)) < 0.4).astype(dtype) @ B.T)
    there = Stats(*(placed(a, CPU) for a in stats))
    update = Binary(Relaxation(prox=prox, beta=beta), steps=6)
    found = update(F, there, 3, F + dtype(0.1))
    assert found.dtype == dtype
    np.testing.assert_allclose(to_host(found), update(F, stats, 3, F + dtype(0.1)), atol=2e-6)


def test_without_information_a_step_stays():
    F = np.array([[0.0, 1.0]], np.float32)
    nothing = Stats(placed(np.zeros((2, 2), np.float32), CPU), placed(np.zeros((1, 2), np.float32), CPU))
    np.testing.assert_array_equal(to_host(Binary()(F, nothing)), F)
