"""Rows that stay on disk: a round reads them once, a thread ahead, and finds what it finds in memory."""

import threading
import tracemalloc
from dataclasses import dataclass, field

import numpy as np
import pytest
from scipy import sparse

from cofactor.data.formats.row_blocks import RowBlocks
from cofactor.engines.host import Host
from cofactor.local.threads import lend
from cofactor.method import SERVER, rng
from cofactor.methods import catalog


@dataclass
class Counted:
    """A source in memory that counts the rows read, and who read them."""

    X: np.ndarray
    rows: int = 0
    readers: set = field(default_factory=set)

    def __post_init__(self):
        self.shape, self.dtype, self.sparse = self.X.shape, self.X.dtype, sparse.issparse(self.X)
        self.cells = float(self.X.shape[1])

    def read(self, start, stop):
        self.rows += stop - start
        self.readers.add(threading.get_ident())
        return self.X[start:stop].copy()


def _rounds(X, count=4):
    method = catalog.make("exact", 3, start="random")
    host, shared, losses = Host(method, [X], 0), method.start(X.shape[1], rng(0, SERVER, -1)), []
    for t in range(count):
        (answer,) = host.step(shared.broadcast(), t, np.array([0]))
        shared = method.aggregate(shared, [answer.message], t)
        losses.append((shared.loss, answer.nbytes))
    return losses


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_matrix], ids=["dense", "csr"])
def test_a_round_reads_once_and_equals_memory(dtype, make):
    X = make(np.random.default_rng(0).uniform(size=(100, 12)).astype(dtype))
    source = Counted(X)
    found = _rounds(RowBlocks(source, block_bytes=12 * 20 * 8))
    assert source.rows == 5 * 100, "once to join, once in each of four rounds"
    assert threading.get_ident() not in source.readers
    np.testing.assert_allclose(found, _rounds(X), rtol=1e-5 if dtype == np.float32 else 1e-12)


def test_a_round_makes_nothing_of_the_size_of_the_data():
    X = np.random.default_rng(0).uniform(size=(4000, 500)).astype(np.float32)
    method = catalog.make("exact", 4, start="random")
    host, shared = Host(method, [X], 0), method.start(500, rng(0, SERVER, -1))
    for t in range(3):
        tracemalloc.start()
        (answer,) = host.step(shared.broadcast(), t, np.array([0]))
        shared = method.aggregate(shared, [answer.message], t)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < X.nbytes / 8, "codes, statistics, and no n x m temporary"


def test_lent_threads_read_and_step_a_block_each_and_change_no_bit():
    X = np.random.default_rng(0).uniform(size=(400, 12))
    alone, shared = Counted(X), Counted(X)
    expected = _rounds(RowBlocks(alone, block_bytes=12 * 10 * 8))
    with lend(3):
        found = _rounds(RowBlocks(shared, block_bytes=12 * 10 * 8))
    assert shared.rows == alone.rows
    assert found == expected
