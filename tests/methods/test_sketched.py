"""Row and column blocks: one result on any number of clients, plain alternation without a sketch, counted bytes."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from cofactor import metrics, run
from cofactor.data import load
from cofactor.engines.contract import check_message
from cofactor.local.sketch import SRHT, CountSketch, Gaussian, Subsampling
from cofactor.local.stats import for_codes, for_factor
from cofactor.local.updates import HALS, ProximalCD
from cofactor.method import SERVER, total
from cofactor.method import rng as address
from cofactor.methods import catalog
from cofactor.methods.blocks import Blocks, blocks
from cofactor.methods.sketched import BLOCKED, Ramp, Sketched
from cofactor.types import CofactorError, DataError

N, M, K = 200, 120, 4
EVERY = pytest.mark.parametrize("name", BLOCKED)


@pytest.fixture(scope="module")
def X():
    draw = np.random.default_rng(3)
    W, H = (draw.exponential(size=s) * (draw.uniform(size=s) < 0.5) for s in ((N, K), (K, M)))
    return W @ H + 0.1 * draw.uniform(size=(N, M))


def go(method, X, clients, **options):
    parts = blocks(X, clients)
    result = run(method, parts, rounds=method.rounds, **options)
    return result, metrics.pooled_error([p.row_block for p in parts], result.codes, result.factor)


@EVERY
def test_any_number_of_clients_gives_the_same_result(name, X):
    method = catalog.make(name, K, shape=X.shape, iterations=8)
    one, three = (go(method, X, c)[0] for c in (1, 3))
    np.testing.assert_allclose(three.factor, one.factor, atol=1e-9)
    np.testing.assert_allclose(np.vstack(three.codes), one.codes[0], atol=1e-7)
    np.testing.assert_allclose([r.loss for r in three.history[1:]], [r.loss for r in one.history[1:]], rtol=1e-9)


@EVERY
@pytest.mark.parametrize("form", [sparse.csr_matrix, sparse.csc_matrix])
def test_sparse_equals_dense(name, form, X):
    thin, method = X * (X > 1), catalog.make(name, K, shape=X.shape, iterations=5)
    np.testing.assert_allclose(go(method, form(thin), 2)[0].factor, go(method, thin, 2)[0].factor, atol=1e-8)


def test_without_a_sketch_it_is_plain_alternation(X):
    method = catalog.make("hals", K, shape=X.shape, iterations=6)
    shared = method.start(M, address(0, SERVER, -1))
    F = method.join(blocks(X, 1)[0], shared, 0, address(0, 0, -1)).memory["columns"]
    stats = for_codes(X, F.T)
    W = np.maximum(stats.cross, 0) / np.linalg.norm(stats.gram, 2)
    for _ in range(6):
        W = HALS()(W, for_codes(X, F.T))
        F = HALS()(F, for_factor(X, W))
    H = F.T / np.linalg.norm(F.T, axis=1, keepdims=True)
    np.testing.assert_allclose(go(method, X, 3)[0].factor, H, atol=1e-9)


@pytest.mark.parametrize("kind", [Subsampling, Gaussian, CountSketch, SRHT])
def test_every_sketch_comes_near_hals(kind, X):
    _, best = go(catalog.make("hals", K, shape=X.shape, iterations=100), X, 1)
    _, found = go(Sketched(K, N, ProximalCD(Ramp()), kind(0.4), kind(0.4), iterations=100), X, 2)
    assert found <= 1.15 * best


def test_without_weight_it_stalls_and_with_it_does_not(X):
    """With weight 0 every iteration solves its own sketched problem, so the error stays above that of HALS."""
    noisy = X + 0.5 * X.mean() * np.random.default_rng(0).uniform(size=X.shape)
    _, best = go(catalog.make("hals", K, shape=X.shape, iterations=150), noisy, 1)
    stalled, moving = (
        go(catalog.make("dsanls", K, shape=X.shape, size=0.2, weight=w, iterations=150), noisy, 1)[1]
        for w in (0.0, 0.02)
    )
    assert moving - best < 0.6 * (stalled - best)


def test_an_iteration_sends_two_products_and_nothing_else_grows(X):
    """2 k d numbers per client and iteration, up and down, plus loss, weight and seed."""
    history = go(catalog.make("dsanls", K, shape=X.shape, size=30, iterations=5), X, 3)[0].history
    assert {r.bytes_up for r in history[1:-1]} == {3 * (8 * K * 30 + 16)}
    assert history[0].bytes_up == 3 * (8 * K * 30 + 16 + 32), "the first round says which rows and columns are there"
    assert {r.bytes_down for r in history[1:]} == {3 * (8 * K * 30 + 8)}
    assert history[-1].bytes_up == 3 * (8 * K * M + 16)


@pytest.mark.parametrize("name", ["mu", "hals", "dsanls"])
def test_iterations_end_where_the_loss_has_settled(name):
    """At a whole factor, which is what that many iterations give; 50 of multiplicative updates were far too few."""
    noisy = np.random.default_rng(0).uniform(size=(500, 400))
    usual = catalog.make(name, K, shape=noisy.shape)
    out, found = go(usual, noisy, 2, stop=1e-4)
    done = len(out.history) // 2
    assert (out.ended, done < usual.iterations) == ("loss", True)
    np.testing.assert_allclose(out.factor, go(replace(usual, iterations=done), noisy, 2)[0].factor, atol=1e-9)
    assert found <= 1.01 * go(replace(usual, iterations=2 * done), noisy, 2)[1]
    few = go(replace(usual, iterations=12), noisy, 2, stop=1e-4)[0]
    assert few.ended == {"dsanls": "few"}.get(name, "iterations")


def test_a_whole_factor_in_between_changes_nothing(X, monkeypatch):
    method = catalog.make("dsanls", K, shape=X.shape, size=0.2, iterations=25)
    out = go(method, X, 3)[0]
    assert [line.bytes_up > 3 * 8 * K * M for line in out.history].count(True) == 3
    monkeypatch.setattr("cofactor.methods.sketched.LOOK", 1000)
    np.testing.assert_allclose(go(replace(method), X, 3)[0].factor, out.factor, rtol=1e-12)


def test_the_loss_of_a_sketch_is_right_on_average(X):
    """At least that of the best codes; after the update it was 9 % below: a factor fits the columns of its sketch."""
    draw = np.random.default_rng(0)
    noisy = X * draw.exponential(size=X.shape)
    out, found = go(catalog.make("dsanls", K, shape=X.shape, size=0.2, iterations=200), noisy, 1)
    objective = 0.5 * (found * np.linalg.norm(noisy)) ** 2
    assert 1 <= np.mean([line.loss for line in out.history[-100:]]) / objective <= 1.1


@EVERY
def test_messages_are_declared_and_their_sum_is_enough(name, X):
    method, parts = catalog.make(name, K, shape=X.shape, iterations=2), blocks(X, 3)
    shared = method.start(M, address(0, SERVER, -1))
    states = [method.join(p, shared, 0, address(0, j, -1)) for j, p in enumerate(parts)]
    for t in range(method.rounds):
        answers = [method.step(p, shared, s, t, address(0, j, t)) for j, (p, s) in enumerate(zip(parts, states))]
        states = [s for s, _ in answers]
        for j, (_, message) in enumerate(answers):
            check_message(message, method.schema(M, t), client=j, t=t)
        messages = [m for _, m in answers]
        summed = method.aggregate(shared, [total(messages)], t)
        shared = method.aggregate(shared, messages, t)
        np.testing.assert_allclose(summed.factor, shared.factor)
    assert pickle.loads(pickle.dumps(method)) == method


def test_a_public_start_is_used(X):
    method = catalog.make("hals", K, shape=X.shape, iterations=1)
    start = np.random.default_rng(9).uniform(size=(K, M))
    a, b, c = (go(method, X, n, start=s)[0].factor for n, s in ((1, start), (3, start), (1, None)))
    np.testing.assert_allclose(a, b, atol=1e-10)
    assert not np.allclose(a, c)


def test_float32_stays_float32(X):
    result, _ = go(catalog.make("dsanls", K, shape=X.shape, iterations=3), X.astype(np.float32), 2)
    assert result.factor.dtype == result.codes[0].dtype == np.float32


def test_the_default_leaves_a_short_side_alone_and_shrinks_large_ones_more():
    tall, square, large = (catalog.make("dsanls", K, shape=s) for s in ((20000, 800), (3000, 2000), (6000, 5000)))
    assert (tall.row_sketch, tall.column_sketch) == (Subsampling(0.1), None)
    assert (square.row_sketch, square.column_sketch) == (Subsampling(0.1), Subsampling(0.1))
    assert large.column_sketch == Subsampling(0.03)


def test_blocks_cover_the_matrix(X):
    parts = blocks(X, 7)
    np.testing.assert_array_equal(np.vstack([p.row_block for p in parts]), X)
    np.testing.assert_array_equal(np.hstack([p.column_block for p in parts]), X)
    assert all(np.shares_memory(p.row_block, X) for p in parts)


def test_all_blocks_of_a_file_are_read_once_and_some_alone(X, tmp_path):
    np.save(tmp_path / "x.npy", X)
    held = load.read(tmp_path / "x.npy", blocks=True).X
    every, some = blocks(held, 3), blocks(held, 3, slice(1, 2))
    assert np.shares_memory(every[1].row_block, every[1].column_block)
    for a, b in zip([*every, *some], [*blocks(X, 3), blocks(X, 3)[1]], strict=True):
        np.testing.assert_array_equal(a.row_block, b.row_block)
        np.testing.assert_array_equal(a.column_block, b.column_block)
        assert (a.first_row, a.first_column) == (b.first_row, b.first_column)


def test_bad_blocks_are_refused(X):
    method = catalog.make("dsanls", K, shape=X.shape, iterations=1)
    with pytest.raises(DataError, match=r"expected 1 to 120 clients.*Found 121; start fewer processes"):
        blocks(X, 121)
    parts = blocks(X, 4)
    with pytest.raises(DataError, match=r"ragged blocks: expected every one of 200 rows .* found 150 in all"):
        run(method, parts[:3], rounds=3)
    moved = [*parts[:3], Blocks(parts[3].row_block, X[:, 85:115], parts[3].first_row, 85)]
    with pytest.raises(DataError, match=r"ragged blocks: expected every one of 120 columns .* some of them twice"):
        run(method, moved, rounds=3)
    with pytest.raises(DataError, match="client 0: expected blocks of one matrix of 150 x 120"):
        run(method, [Blocks(X, X[:150])], rounds=3)
    with pytest.raises(DataError, match="expected 200 rows in all, found 150"):
        run(method, [Blocks(X[:150], X[:150])], rounds=3)
    with pytest.raises(DataError, match="expected a row block and a column block, found ndarray"):
        run(method, [X], rounds=3)


def test_what_cannot_work_is_refused(X):
    with pytest.raises(CofactorError, match=r"at least the rank 4\. Found 3"):
        go(catalog.make("dsanls", K, shape=X.shape, size=3, iterations=1), X, 1)
    with pytest.raises(CofactorError, match=r"at most the sketched side 120\. Found 150"):
        go(catalog.make("dsanls", K, shape=X.shape, size=150, iterations=1), X, 1)
    with pytest.raises(CofactorError, match="every client in every round"):
        run(catalog.make("dsanls", K, shape=X.shape), blocks(X, 4), participation=0.5)
    with pytest.raises(CofactorError, match=r"needs all of its 21 rounds\. Found 6; make it with fewer iterations"):
        run(catalog.make("dsanls", K, shape=X.shape, iterations=10), blocks(X, 2), rounds=6)
