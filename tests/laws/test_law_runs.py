"""Laws of every run: reproducible to the bit, the same for every kind of matrix, in the input's precision."""

import numpy as np
import pytest
from scipy import sparse
from threadpoolctl import threadpool_limits

from cofactor import metrics, run
from cofactor.data import synthetic
from cofactor.engines.inline import Inline
from cofactor.methods import catalog

EVERY = pytest.mark.parametrize("name", catalog.names())


def assert_same_bits(a, b):
    np.testing.assert_array_equal(a.factor, b.factor)
    for V, W in zip(a.codes, b.codes, strict=True):
        np.testing.assert_array_equal(V, W)
    assert [(r.loss, r.bytes_up) for r in a.history] == [(r.loss, r.bytes_up) for r in b.history]


@EVERY
def test_two_runs_of_one_seed_agree_to_the_bit(name, clients):
    first, again = (run(catalog.make(name, 3), clients, rounds=4, seed=5) for _ in range(2))
    assert_same_bits(first, again)


@EVERY
@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_one_or_two_workers_agree_to_the_bit(name, participation, tiny_clients):
    method = catalog.make(name, 4, **({"sweeps": 10} if name.startswith("fnmf") else {}))
    plan = {"rounds": 2, "seed": 5, "participation": participation}
    assert_same_bits(*(run(method, tiny_clients, engine=Inline(workers), **plan) for workers in (1, 2)))


@pytest.mark.parametrize("name", ["exact", "fedavg"])
def test_workers_agree_to_the_bit_when_blas_has_threads(name):
    Xs = synthetic.blocks(2, 1500, features=300, rank=8, seed=0).Xs
    options = {"sweeps": 3} if name == "fedavg" else {"start": "random"}
    with threadpool_limits(2, "blas"):
        one, two = (run(catalog.make(name, 8, **options), Xs, rounds=3, engine=Inline(w)) for w in (1, 2))
    assert_same_bits(one, two)


@EVERY
def test_the_seed_matters(name, clients):
    a, b = (run(catalog.make(name, 3), clients, rounds=1, seed=seed) for seed in (0, 1))
    assert not np.array_equal(a.factor, b.factor)


@EVERY
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_in_is_dtype_out(name, dtype, clients):
    result = run(catalog.make(name, 3), [X.astype(dtype) for X in clients], rounds=4)
    assert result.factor.dtype == dtype
    assert all(W.dtype == dtype for W in result.codes)


@EVERY
def test_factor_and_codes_are_nonnegative_and_rows_have_norm_one(name, clients):
    result = run(catalog.make(name, 3), clients, rounds=4)
    np.testing.assert_allclose(np.linalg.norm(result.factor, axis=1), 1, rtol=1e-9)
    assert result.factor.min() >= 0
    assert [W.shape for W in result.codes] == [(len(X), 3) for X in clients]
    assert min(W.min() for W in result.codes) >= 0
    assert metrics.pooled_error(clients, result.codes, result.factor) < 1


@EVERY
def test_codes_are_the_best_for_the_factor(name, clients, solve_nnls):
    """Within the 200 sweeps of a refit: 0.5 % where the rows of a one-shot mean are nearly parallel."""
    result = run(catalog.make(name, 3), clients, rounds=2)
    for X, W in zip(clients, result.codes):
        best = metrics.rmsd(X, solve_nnls(X, result.factor), result.factor)
        assert best * (1 - 1e-9) <= metrics.rmsd(X, W, result.factor) <= best * 1.005


@pytest.mark.parametrize("name", ["exact", "oneshot", "fnmf-lap", "fedavg"])
@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csc_matrix, sparse.csr_array])
def test_sparse_equals_dense(name, kind, tiny_clients):
    dense = [X * (X > 0.2) for X in tiny_clients]
    a, b = (run(catalog.make(name, 4), Xs, rounds=5, seed=1) for Xs in (dense, [kind(X) for X in dense]))
    np.testing.assert_allclose(b.factor, a.factor, atol=1e-8)
    for V, W in zip(a.codes, b.codes):
        np.testing.assert_allclose(W, V, atol=1e-8)
    np.testing.assert_allclose([r.loss for r in b.history], [r.loss for r in a.history], rtol=1e-8)


def test_dense_and_sparse_clients_mix(tiny_clients):
    mixed = [sparse.csr_matrix(X) if j % 2 else X for j, X in enumerate(tiny_clients)]
    a, b = (run(catalog.make("exact", 4), Xs, rounds=5, seed=1) for Xs in (tiny_clients, mixed))
    np.testing.assert_allclose(b.factor, a.factor, atol=1e-8)


@EVERY
def test_float32_is_near_float64(name, clients):
    wide, narrow = (run(catalog.make(name, 3), [X.astype(d) for X in clients], rounds=4) for d in ("f8", "f4"))
    a, b = (metrics.pooled_error(clients, r.codes, r.factor) for r in (wide, narrow))
    assert b == pytest.approx(a, rel=0.02)


@EVERY
@pytest.mark.parametrize("power", [-20, 20])
def test_the_unit_of_the_data_does_not_change_the_factor(name, power, clients):
    a, b = (run(catalog.make(name, 3), [s * X for X in clients], rounds=4) for s in (1.0, 2.0**power))
    np.testing.assert_allclose(b.factor, a.factor, atol=1e-6)
