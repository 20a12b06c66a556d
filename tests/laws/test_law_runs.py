"""Laws of every run: reproducible to the bit, the same for every kind of matrix, in the input's precision."""

import numpy as np
import pytest
from scipy import sparse
from tests.helpers.bits import best_codes
from tests.helpers.methods import (
    KIND,
    NAMES,
    ROUNDS,
    case,
    change,
    codes_fit,
    data,
    dense,
    factor_fits,
    make,
    play,
    same_bits,
)
from threadpoolctl import threadpool_limits

from cofactor import boolean, kinds, run
from cofactor.data import synthetic
from cofactor.engines.inline import Inline
from cofactor.engines.over import in_order
from cofactor.local.sets import Simplex
from cofactor.methods import catalog
from cofactor.types import CofactorError, DataError

EVERY = pytest.mark.parametrize("name", NAMES)
TINY = (3, 1, 20, 5, 8, 30, 2, 6, 1, 7, 12)


def error(name, Xs, result, method):
    """Return the error as the kind of the data counts it, over all clients."""
    kind = kinds.named(method.traits.kind)
    pairs = zip(Xs, result.codes, strict=True)
    return kind.score(sum(kind.tally(method, X, W, result.factor) for X, W in pairs)).error


@EVERY
def test_two_runs_of_one_seed_agree_to_the_bit(name):
    _, method, Xs = case(name)
    same_bits(*(run(method, Xs, rounds=ROUNDS, seed=5) for _ in range(2)))


@EVERY
def test_a_run_is_what_server_and_clients_do_by_hand(name):
    """No engine adds anything: the four functions, called in turn, give the factor and the losses to the bit.

    Components are put in the order of their shares in the end.
    """
    _, method, Xs = case(name)
    Xs = kinds.check(kinds.named(method.traits.kind), Xs)  # in the order of memory in which an engine holds them
    result, played = run(method, Xs, rounds=ROUNDS, engine=Inline(1)), [*play(method, Xs)]
    last = played[-1].shared
    np.testing.assert_array_equal(result.factor, in_order(method.factor(last), last.memory)[0])
    np.testing.assert_array_equal([r.loss for r in result.history], [p.shared.loss for p in played])
    begun = [sum(t <= p.t for t in method.traits.stages) for p in played]
    assert [r.stage + 1 for r in result.history] == begun
    for X, W in zip(Xs, result.codes, strict=True):
        np.testing.assert_array_equal(W, method.refit(X, result.factor))


@EVERY
@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_one_or_two_workers_agree_to_the_bit(name, participation):
    options = {"sweeps": 10} if name.startswith("fnmf") else {}
    kind, method, Xs = case(name, rows=TINY, **options)
    plan = {"rounds": ROUNDS, "seed": 5, "participation": participation}
    if kind == "blocks" and participation < 1:
        with pytest.raises(CofactorError, match="needs every client in every round"):
            run(method, Xs, **plan)
        return
    same_bits(*(run(method, Xs, engine=Inline(workers), **plan) for workers in (1, 2)))


@pytest.mark.parametrize("name", ["exact", "fedavg"])
def test_workers_agree_to_the_bit_when_blas_has_threads(name):
    Xs = synthetic.blocks(2, 1500, features=300, rank=8, seed=0).Xs
    options = {"sweeps": 3} if name == "fedavg" else {"start": "random"}
    with threadpool_limits(2, "blas"):
        one, two = (run(catalog.make(name, 8, **options), Xs, rounds=3, engine=Inline(w)) for w in (1, 2))
    same_bits(one, two)


DRAWS_NOTHING = {"asso", "grecond", "mebf", "exact", "oneshot", "consensus", "shared-own", "exact-beta"}
"""Boolean factorizers that search in a fixed order, and starts that draw the same in every run: no seed is asked."""


@EVERY
def test_the_seed_matters_where_something_is_drawn(name):
    # where its clients may choose, boolean-oneshot takes what draws nothing
    _, method, Xs = case(name, **({"local": "elbmf"} if name == "boolean-oneshot" else {}))
    factors = [run(method, Xs, rounds=ROUNDS, seed=seed).factor for seed in range(4)]
    same = [np.array_equal(H, factors[0]) for H in factors[1:]]
    assert all(same) if name in DRAWS_NOTHING else not all(same)


@EVERY
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_in_is_dtype_out(name, dtype):
    """But for bits, which are bytes, and private runs, which are double whatever they are given (dtype_of)."""
    kind, method, Xs = case(name)
    result = run(method, [change(X, lambda A: A.astype(dtype)) for X in Xs], rounds=ROUNDS)
    dtype = {"boolean": np.uint8, "private": np.float64}.get(kind, dtype)
    assert result.factor.dtype == dtype
    assert all(W.dtype == dtype for W in result.codes)


@EVERY
def test_factor_and_codes_are_of_their_kind_and_say_something(name):
    kind, method, Xs = case(name)
    result = run(method, Xs, rounds=ROUNDS)
    factor_fits(kind, result.factor)
    for X, W in zip(Xs, result.codes, strict=True):
        codes_fit(kind, W)
        assert W.shape[0] == X.shape[0]
    assert error(name, Xs, result, method) < 1


def nearest_on_the_simplex(X, H):
    W, step = np.full((len(X), len(H)), 1 / len(H)), 1 / np.linalg.norm(H @ H.T, 2)
    for _ in range(5000):
        W = Simplex().project(W - step * (W @ H - X) @ H.T)
    return W


HELD = {"shared-own": {"weight": 1e12}}
"""Options with which codes belong to the shared factor alone."""


def best_error(name, method, X, H, solve_nnls):
    """Return the error of the best codes, found in another way than the method's."""
    A = dense(X)
    if KIND[name] == "boolean":
        return boolean.error(A, best_codes(A, H), H)
    if name == "k-means":
        return np.sqrt(np.sum((A[:, None] - H) ** 2, axis=2).min(axis=1).sum())
    if KIND[name] == "gaps":
        seen = ~np.isnan(A)
        rows = [solve_nnls(x[None, s], H[:, s])[0] for x, s in zip(A, seen, strict=True)]
        return np.linalg.norm((A - np.array(rows) @ H)[seen])
    if name == "simplex":
        return np.linalg.norm(A - nearest_on_the_simplex(A, H) @ H)
    return np.linalg.norm(A - solve_nnls(A, H) @ H)


@pytest.mark.parametrize("name", [n for n in NAMES if KIND[n] != "ratings"])
def test_codes_are_the_best_for_the_factor(name, solve_nnls):
    """Within the sweeps of a refit: 0.5 % where the rows of a one-shot mean are nearly parallel.

    Greedy covers of bits are within 5 % of the best of all 2^k. Outliers are nobody's code: dp-nmf goes without. Of the
    divergences one is the square of the error, and own parts are held at zero.
    """
    _, method, Xs = case(name, **{"dp-nmf": {"outliers": None}, "exact-beta": {"beta": 2.0}, **HELD}.get(name, {}))
    result = run(method, Xs, rounds=ROUNDS)
    for X, W in zip(Xs, result.codes, strict=True):
        best = best_error(name, method, X, result.factor, solve_nnls)
        if KIND[name] == "boolean":
            found = boolean.error(dense(X), W, result.factor)
        else:
            found = np.linalg.norm(np.nan_to_num(dense(X) - W @ result.factor))
        assert best * (1 - 1e-9) <= found <= best * (1.05 if KIND[name] == "boolean" else 1.005)


def test_codes_with_outliers_are_the_best_for_the_rows_without_them(solve_nnls):
    _, method, Xs = case("dp-nmf")
    H = run(method, Xs).factor
    for X in Xs:
        rows = X / np.linalg.norm(X, axis=1, keepdims=True)
        W, Z = method.outliers.explain(rows, H, 300)
        np.testing.assert_allclose(W, solve_nnls(Z, H), atol=1e-6)
        np.testing.assert_allclose(method.refit(rows, H), W, atol=2e-3)


@pytest.mark.parametrize("name", catalog.names("ratings"))
def test_codes_of_users_are_where_their_penalized_loss_is_flat(name):
    _, method, Xs = case(name)
    result = run(method, Xs, rounds=ROUNDS)
    layout, p = method.layout, method.layout.code_columns
    for X, W in zip(Xs, result.codes, strict=True):
        rest = np.where(dense(X) > 0, W @ result.factor - dense(X), 0)
        slope = rest @ result.factor.T[:, p] + W[:, p] * layout.penalties
        np.testing.assert_allclose(slope, 0, atol=1e-9)


@pytest.mark.parametrize("name", [n for n in NAMES if KIND[n] != "ratings"])
@pytest.mark.parametrize("form", [sparse.csr_matrix, sparse.csc_matrix, sparse.csr_array])
def test_sparse_equals_dense(name, form):
    """Of bits one in a hundred may tip, since sums of floats come in another order."""
    options = {"sweeps": 10} if name.startswith("fnmf") else {}
    kind, method, Xs = case(name, rows=TINY, **options)
    thin = [change(X, lambda A: A * (np.abs(A) > 0.2)) for X in Xs]
    a, b = (run(method, d, rounds=ROUNDS, seed=1) for d in (thin, [change(X, form) for X in thin]))
    if kind == "boolean":
        assert np.mean(a.factor != b.factor) <= 0.01
        return
    np.testing.assert_allclose(b.factor, a.factor, atol=1e-8)
    for V, W in zip(a.codes, b.codes, strict=True):
        np.testing.assert_allclose(W, V, atol=1e-8)
    np.testing.assert_allclose([r.loss for r in b.history], [r.loss for r in a.history], rtol=1e-8)


@pytest.mark.parametrize("name", catalog.names("ratings"))
def test_dense_ratings_do_not_say_what_is_unknown_and_are_refused(name):
    _, method, Xs = case(name)
    with pytest.raises(DataError, match="stored entries are the observed ones"):
        run(method, [dense(X) for X in Xs], rounds=ROUNDS)


def test_dense_and_sparse_clients_mix(tiny_clients):
    mixed = [sparse.csr_matrix(X) if j % 2 else X for j, X in enumerate(tiny_clients)]
    a, b = (run(catalog.make("exact", 4), Xs, rounds=5, seed=1) for Xs in (tiny_clients, mixed))
    np.testing.assert_allclose(b.factor, a.factor, atol=1e-8)


@EVERY
def test_float32_is_near_float64(name):
    _, method, Xs = case(name)
    narrow = [change(X, lambda A: A.astype("f4")) for X in Xs]
    a, b = (error(name, Xs, run(method, d, rounds=ROUNDS), method) for d in (Xs, narrow))
    assert b == pytest.approx(a, rel=0.02)


@pytest.mark.parametrize("name", [n for n in NAMES if KIND[n] in ("real", "private", "blocks", "clusters")])
@pytest.mark.parametrize("power", [-20, 20])
def test_the_unit_of_the_data_does_not_change_the_factor(name, power):
    """Centres of clusters are in the unit of the data themselves."""
    kind, method, Xs = case(name)
    a, b = (run(method, [change(X, lambda A, s=s: s * A) for X in Xs], rounds=ROUNDS) for s in (1.0, 2.0**power))
    scale = 2.0**power if kind == "clusters" else 1.0
    np.testing.assert_allclose(b.factor / scale, a.factor, atol=1e-6)


@pytest.mark.parametrize("name", catalog.names("boolean"))
def test_bits_have_no_unit(name):
    _, method, Xs = case(name)
    with pytest.raises(DataError, match=r"Found 2 in row 0, column \d+ at client 0"):
        run(method, [2 * X for X in Xs], rounds=ROUNDS)


@pytest.mark.parametrize("power", [-6, 6])
def test_without_a_ridge_the_unit_of_ratings_is_that_of_mean_and_item_biases(power):
    """A ridge is in the unit of the ratings; without one, users take all of the scale but for what items have alone."""
    method, Xs = make("exact-als", 1, ridge=0.0, biases=False), data("ratings")
    a, b = (run(method, [s * X for X in Xs], rounds=ROUNDS) for s in (1.0, 2.0**power))
    np.testing.assert_allclose(b.factor, a.factor, atol=1e-9)
    for V, W in zip(a.codes, b.codes, strict=True):
        np.testing.assert_allclose(W, 2.0**power * V, rtol=1e-9, atol=1e-9)
