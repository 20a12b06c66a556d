"""Kernels of toys against the compiled ones, and a toy that never waits for numba or scipy.optimize."""

import subprocess
import sys

import numpy as np
import pytest

from cofactor.local.kernels import coupled, cpu, lanes, toys


@pytest.fixture
def problem(rng):
    A, B = rng.random((30, 3)), rng.random((3, 12))
    B[1] = 0  # a component that nothing depends on stays as it is
    return rng.random((30, 3)), B @ B.T, A @ B @ B.T - 0.2


@pytest.mark.parametrize("tol", [0.0, 1e-3])
def test_sweeps_are_those_of_the_compiled_kernel(problem, tol):
    F, gram, cross = problem
    assert toys.is_toy(*F.shape)
    expected, before = F.copy(), F.copy()
    if tol:
        found = cpu.hals_solve(F, gram, cross, 50, tol)
        cpu._solve_rows(expected, gram, cross, 50, tol, 0, len(F))
    else:
        found = cpu.hals_sweeps(F, gram, cross, 5)
        lanes.sweep_rows(expected, F, gram, cross, 0.0, 5, 0, len(F))
    np.testing.assert_array_equal(F, before)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(found[:, 1], F[:, 1])


def test_coupled_rows_are_those_of_the_compiled_kernel(rng):
    V, B = rng.random((2, 6, 4)), rng.random((3, 2, 9))
    grams = V.transpose(0, 2, 1) @ V
    grams[1, 2] = grams[1, :, 2] = 0
    given = grams, B @ B.transpose(0, 2, 1), rng.random((3, 2, 4, 2)) - 0.1
    C = rng.random((3, 2, 4, 2))
    found, expected = C.copy(), C.copy()
    cpu.hals_metric(found, *given, 4)
    coupled.metric(expected, *given, 4)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    ("runs", "c", "r", "k"), [(1, 1, 1, 1), (1, 11, 6, 5), (3, 3, 9, 4), (9, 1, 5, 13), (2, 8, 8, 8)]
)
def test_rows_coupled_in_lanes_are_coordinate_descent(rng, runs, c, r, k):
    """One number after the other, each with all others as they are then; one without curvature stays."""
    V, B = rng.random((c, 2 * r, r)), rng.random((runs, k, 2 * k))
    V[0, :, r // 2] *= r > 1
    B[0, k // 2] *= k > 1
    G, K = V.transpose(0, 2, 1) @ V, B @ B.transpose(0, 2, 1)
    C, cross = rng.random((runs, c, r, k)), G @ (rng.random((runs, c, r, k)) - 0.3)
    expected = C.copy()
    for run, j, _ in np.ndindex(runs, c, 3):
        D = expected[run, j]
        for i, e in np.ndindex(r, k):
            if G[j, i, i] > 0 and K[run, e, e] > 0:
                rest = cross[run, j, i, e] - G[j, i] @ D @ K[run, :, e]
                D[i, e] = max(D[i, e] + rest / (G[j, i, i] * K[run, e, e]), 0)
    coupled.metric(C, G, K, cross, 3)
    np.testing.assert_allclose(C, expected, rtol=1e-8, atol=1e-9)


def test_no_bit_of_a_run_depends_on_the_others(rng):
    F, B = rng.random((5, 40, 7)), rng.random((5, 7, 12))
    gram, cross = B @ B.transpose(0, 2, 1), rng.random((5, 40, 12)) @ B.transpose(0, 2, 1)
    together = cpu.hals_runs(F, gram, cross, 3)
    for run in range(5):
        alone = cpu.hals_runs(F[run : run + 1], gram[run : run + 1], cross[run : run + 1], 3)
        np.testing.assert_array_equal(alone[0], together[run])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_bit_of_a_row_depends_on_where_it_stands(rng, dtype):
    n = 3 * cpu.LANE + 5
    F, B = rng.random((n, 7)).astype(dtype), rng.random((7, 12)).astype(dtype)
    gram, cross = B @ B.T, rng.random((n, 12)).astype(dtype) @ B.T
    whole = cpu.hals_sweeps(F, gram, cross, 3)
    np.testing.assert_array_equal(cpu.hals_sweeps(F[5:40], gram, cross[5:40], 3), whole[5:40])
    np.testing.assert_array_equal(cpu.hals_sweeps(np.asfortranarray(F), gram, cross, 3), whole)


@pytest.mark.parametrize("k", [1, 4, 6, 13, 50])
def test_sweeps_in_lanes_are_coordinate_descent(rng, k):
    """One component after the other, each with the others as they are then; one without curvature stays."""
    F, B = rng.random((70, k)), rng.random((k, 80))
    B[k // 2] *= k > 4
    gram, cross = B @ B.T, rng.random((70, k)) @ (B @ B.T) - 0.3
    expected = F.copy()
    for _ in range(3):
        for j in range(k):
            if gram[j, j] > 0:
                expected[:, j] += (cross[:, j] - expected @ gram[j]) / gram[j, j]
                expected[:, j] = np.maximum(expected[:, j], 0)
    found = np.empty_like(F)
    lanes.sweep_rows(found, F, gram, cross, 0.0, 3, 0, 70)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_extrapolation_has_the_bits_of_the_compiled_kernel(rng, dtype):
    new, old = rng.random((2, 40, 5)).astype(dtype)
    found = np.empty_like(new)
    cpu._extrapolate(found, new, old, dtype(0.7), 0, len(new))
    np.testing.assert_array_equal(cpu.extrapolate(new, old, 0.7), found)


def test_a_toy_waits_for_nobody():
    program = """
import sys
import numpy as np
import cofactor
from cofactor.methods import catalog
rng = np.random.default_rng(0)
cofactor.run(catalog.make("exact", 2), [rng.random((30, 8)) for _ in range(2)], rounds=3)
print(*{"numba", "scipy.optimize", "scipy.stats", "sklearn", "matplotlib", "torch"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
