"""Syn-SD, Syn-SSD and the asynchronous ones: what they become in the limits, what they send, what they reach."""

from dataclasses import replace

import numpy as np
import pytest

from cofactor import metrics, run
from cofactor.data import synthetic
from cofactor.local.columns import SomeColumns
from cofactor.local.sketch import SRHT, CountSketch, Gaussian, Subsampling
from cofactor.local.updates import HALS
from cofactor.method import SERVER
from cofactor.method import rng as address
from cofactor.methods import catalog
from cofactor.methods.averaged import Averaged
from cofactor.methods.sketched import Ramp
from cofactor.methods.syn import Exchanged, Relaxed
from cofactor.schedules import at
from cofactor.types import CofactorError, DataError, Message

SYN = ["syn-sd", "syn-ssd-u", "syn-ssd-v", "syn-ssd-uv", "asyn-sd", "asyn-ssd-v"]
SIZES = [300, 40, 60, 30, 70, 50]


@pytest.fixture(scope="module")
def planted():
    return synthetic.blocks(6, SIZES, features=150, rank=5, seed=3).Xs


@pytest.fixture(scope="module")
def pooled(planted):
    result = run(catalog.make("exact", 5), [np.vstack(planted)], rounds=60)
    return metrics.relative_error(np.vstack(planted), result.codes[0], result.factor)


def error(Xs, result):
    return metrics.pooled_error(Xs, result.codes, result.factor)


@pytest.mark.parametrize("name", [n for n in SYN if n.startswith("syn")])
def test_synchronous_methods_come_near_the_pooled_error(name, planted, pooled):
    rounds = 146 if name.endswith(("-u", "-uv")) else 30
    found = min(error(planted, run(catalog.make(name, 5), planted, rounds=rounds, seed=s)) for s in range(3))
    assert found <= 1.05 * pooled


def test_weights_grow_with_the_steps():
    assert [at(Ramp(0.1, 0.1), t) for t in (0, 1, 9)] == pytest.approx([0.1, 0.2, 1.0])


def test_syn_sd_without_weights_is_the_mean_after_hals(planted):
    """With one client and HALS it is plain alternation, whatever the averaging."""
    plain = Averaged(5, HALS(), sweeps=5)
    a, b = (run(m, planted[:1], rounds=4) for m in (catalog.make("syn-sd", 5, weight=0.0), plain))
    np.testing.assert_allclose(a.factor, b.factor, atol=1e-10)


@pytest.mark.parametrize("kind", [Subsampling, Gaussian, CountSketch, SRHT])
def test_every_sketch_serves_on_both_sides(kind, planted, pooled):
    inner = replace(catalog.make("syn-ssd-uv", 5).inner, sketch=kind(0.3))
    result = run(Exchanged(inner, kind(0.3), every=5), planted, rounds=101)
    assert error(planted, result) <= 1.1 * pooled


def test_sketching_all_rows_or_all_features_changes_nothing(planted):
    """A sketch that picks every coordinate is a copy."""
    Xs = [X[:40] for X in planted[1:3]]
    plain = catalog.make("syn-sd", 5)
    a, b = (run(m, Xs, rounds=4) for m in (plain, replace(plain, sketch=Subsampling(40))))
    np.testing.assert_allclose(a.factor, b.factor, atol=1e-10)
    c, d = (run(catalog.make("syn-ssd-u", 5, size=s), Xs, rounds=6) for s in (1.0, 150))
    np.testing.assert_allclose(c.factor, d.factor, atol=1e-8)


def test_exchange_in_every_round_is_syn_sd_with_one_sweep(planted):
    """Without a sketch, and the whole factor each time, the two classes are one method."""
    a = run(catalog.make("syn-ssd-u", 5, sweeps=1, size=1.0, weight=0.1), planted, rounds=6)
    b = run(catalog.make("syn-sd", 5, sweeps=1, weight=0.1), planted, rounds=6)
    np.testing.assert_allclose(a.factor, b.factor, atol=1e-12)
    np.testing.assert_allclose([r.loss for r in a.history], [r.loss for r in b.history], rtol=1e-12)


def test_messages_of_inner_rounds_have_the_size_of_the_sketch(planted):
    history = run(catalog.make("syn-ssd-u", 5, size=30), planted, rounds=11).history
    whole, sketched = 6 * (8 * 5 * 150 + 8 + 8), 6 * (8 * 5 * 30 + 8 + 8)
    assert [r.bytes_up for r in history] == [whole if t % 5 == 0 else sketched for t in range(11)]
    assert history[3].bytes_down == 6 * (8 * 5 * (150 + 30) + 8)


def test_all_clients_draw_the_same_sketch_of_the_factor_and_their_own_of_the_rows(planted):
    method = catalog.make("syn-ssd-uv", 5, size=30)
    shared = method.start(150, address(0, SERVER, -1))
    a, b = (method._draw(150, int(shared.extra["seed"]), 3).index for _ in range(2))
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, method._draw(150, int(shared.extra["seed"]), 4).index)
    X, W = planted[0], np.ones((300, 5))
    one, two = (method.inner.factor_stats(X, W, address(0, j, 3))[0] for j in (0, 1))
    assert not np.array_equal(one, two)


def test_a_client_that_missed_the_whole_factor_takes_it_later(planted):
    method = catalog.make("syn-ssd-u", 5, size=30)
    result = run(method, planted, rounds=61, participation=0.5)
    assert np.isfinite(result.factor).all()
    assert error(planted, result) < 1.2 * error(planted, run(method, planted, rounds=61))


def test_relaxation_counts_from_one():
    H, new = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])
    sent = [Message({"factor": 7.0 * new}, 7.0)]
    for t in (0, 9):
        w = 10 / (10 + t + 1)
        np.testing.assert_allclose(Relaxed()(sent, H, t), [[1 - w, w]] / np.hypot(w, 1 - w))


@pytest.mark.parametrize("name", ["syn-sd", "syn-ssd-v"])
def test_the_printed_order_is_worse(name, planted):
    local, printed = (
        np.median(
            [
                error(planted, run(catalog.make(name, 5, weight=0.0, printed_order=p), planted, rounds=10, seed=s))
                for s in range(3)
            ]
        )
        for p in (False, True)
    )
    assert printed > 1.02 * local


@pytest.mark.parametrize("name", SYN)
def test_senseless_options_are_refused(name, planted):
    with pytest.raises(CofactorError, match=r"sweeps must be at least 1. Found 0"):
        catalog.make(name, 5, sweeps=0)
    with pytest.raises(CofactorError, match=r"weight must be at least 0. Found -1"):
        catalog.make(name, 5, weight=-1)
    if "ssd" in name:
        with pytest.raises(CofactorError, match=r"at least the rank 5. Found 4"):
            run(catalog.make(name, 5, size=4), planted, rounds=2)
        with pytest.raises(CofactorError, match="at most the sketched side"):
            run(catalog.make(name, 5, size=400), planted, rounds=2)


@pytest.mark.parametrize("name", ["syn-ssd-u", "syn-ssd-uv"])
def test_missing_features_are_refused_where_the_sketch_is_common(name, planted):
    known = np.arange(100)
    Xs = [planted[0], SomeColumns(planted[1][:, known], known, 150)]
    with pytest.raises(DataError, match="needs all of them at every client"):
        run(catalog.make(name, 5), Xs, rounds=2)


@pytest.mark.parametrize("name", ["syn-ssd-v", "syn-ssd-uv", "asyn-ssd-v"])
def test_clients_too_small_for_a_sketch_say_so(name, rng):
    method = catalog.make(name, 3)
    run(method, [rng.uniform(size=(13, 9)) for _ in range(2)], rounds=2)  # no word: twelve of the rows are a sketch
    with pytest.warns(UserWarning, match="a client of 12 rows has too few of them for a sketch at rank 3"):
        run(method, [rng.uniform(size=(12, 9)), rng.uniform(size=(40, 9))], rounds=2)
