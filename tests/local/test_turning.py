"""Rows turned into lanes and back."""

import os
import subprocess
import sys

import numpy as np
import pytest

from cofactor.local.kernels import turning
from cofactor.local.kernels.lines import room
from cofactor.local.kernels.orders import SMALL, by_rows
from cofactor.local.threads import lend

ORDERS = {
    "alone": np.ascontiguousarray,
    "part": lambda F: np.hstack([F, F])[:, : F.shape[1]],
    "columns": np.asfortranarray,
}


@pytest.mark.parametrize("squares", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", list(ORDERS))
def test_there_and_back(dtype, order, squares, monkeypatch):
    if squares and not turning.SQUARES:
        pytest.skip("needs registers of a line of cache")
    turn_in, turn_out = (f if squares else f._function for f in (turning.turn_in, turning.turn_out))
    if not squares:  # as plain Python, where the switch is looked at when it runs
        monkeypatch.setattr(turning, "SQUARES", False)
    size = 256 // np.dtype(dtype).itemsize
    for k in (1, 5, 8, 15, 16, 17, 33):
        F = ORDERS[order](np.random.default_rng(k).normal(size=(size + 9, k)).astype(dtype))
        for start, rows in ((0, size), (9, size), (3, 17), (7, 1)):
            T, out = room(k + 2, size, np.dtype(dtype)), np.zeros_like(F)
            T[:] = 0
            assert T.ctypes.data % 64 == 0
            turn_in(T, F, start, rows)
            turn_out(out, T, start, rows, 0)
            np.testing.assert_array_equal(T[:k, :rows], F[start : start + rows].T)
            assert not T[k:].any()
            assert not T[:, rows:].any()
            np.testing.assert_array_equal(out[start : start + rows], F[start : start + rows])
            assert not out[:start].any()
            assert not out[start + rows :].any()


SHORT = """
import numpy as np
from cofactor.local.kernels import lines

lines.has_long_vectors = lambda: False
from cofactor.local import arrays
from cofactor.local.kernels import cpu, lanes, turning

assert (lanes.WIDTH, turning.SQUARES) == (1, False)
rng = np.random.default_rng(0)
for dtype in (np.float64, np.float32):
    F, B = rng.random((203, 13)).astype(dtype), rng.random((13, 80)).astype(dtype)
    gram, cross = B @ B.T, (rng.random((203, 80)).astype(dtype) @ B.T) - dtype(0.3)
    new, ahead, made = cpu.hals_ahead(F, gram, cross, 3, 0.5)
    expected = F.astype(float)
    for _ in range(3):
        for j in range(13):
            expected[:, j] += (cross[:, j] - expected @ gram[j]) / gram[j, j]
            np.maximum(expected[:, j], 0, out=expected[:, j])
    atol = 1e-10 if dtype == np.float64 else 1e-2
    np.testing.assert_allclose(new, expected, atol=atol)
    np.testing.assert_allclose(ahead, np.maximum(1.5 * expected - 0.5 * F, 0), atol=atol)
    np.testing.assert_allclose(made, arrays.gram(ahead))
"""


def test_sweeps_where_vectors_are_short(tmp_path):
    """Another machine: its kernels are compiled for it, and kept apart from those of this one."""
    env = {**os.environ, "NUMBA_CPU_NAME": "generic", "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", SHORT], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_orders_of_large_matrices():
    """Of more numbers than are copied one by one, squares are turned; no thread changes that."""
    for dtype in (np.float32, np.float64):
        for n, k in ((SMALL // 7 + 5, 7), (33, SMALL // 33 + 1), (SMALL + 3, 1), (SMALL // 30 + 1, 30)):
            A = np.random.default_rng(k).normal(size=(n, k)).astype(dtype)
            for given in (A, np.asfortranarray(A), np.repeat(A, 2, axis=1)[:, ::2]):
                for count in (1, 2):
                    with lend(count):
                        found = by_rows(given)
                    assert found.flags.c_contiguous
                    np.testing.assert_array_equal(found, A)
