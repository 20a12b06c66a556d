"""Private methods: sensitivities hold for every record, and without noise nothing is lost."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from tests.helpers.private import HARDLY, built, every_form, messages_of, mixtures, moments, privacy

from cofactor import run
from cofactor.combine.aggregators import Mean
from cofactor.local import symmetric
from cofactor.local.refit import refit
from cofactor.methods import catalog
from cofactor.methods.dp_nmf import dp_nmf
from cofactor.metrics import pooled_error


@pytest.fixture
def Xs(rng):
    return mixtures(rng)


def unit_rows(X):
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def first_messages(method, Xs, shared, t=0):
    """The messages of one round, by hand."""
    joined = [method.join(X, shared, t, np.random.default_rng(1)) for X in Xs]
    return [method.step(X, shared, local, t, np.random.default_rng(0))[1] for X, local in zip(Xs, joined)]


# --- sensitivity: one record more moves a release by at most its bound, whatever the record is ---


def differences(method, X, more):
    """Yield |release(X) - release(X and more)| / bound for every array, noise cancelling out."""
    shared = method.start(X.shape[1], np.random.default_rng(0))
    for t in range(method.rounds):
        messages = []
        for data in (X, np.vstack([X, more])):
            local = method.join(data, shared, t, np.random.default_rng(1))
            messages.append(method.step(data, shared, local, t, np.random.default_rng(2))[1])
        for name, a in messages[0].arrays.items():
            release = messages[0].cost[name]
            gap = np.linalg.norm(a - messages[1].arrays[name])
            yield name, gap / release.clip, np.sqrt(a.size) / release.clip
        shared = method.aggregate(shared, messages[:1], t)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["random", "huge", "tiny", "one cell", "equal"]))
@pytest.mark.parametrize("name", ["moments", "narrow moments", "statistics", "statistics with outliers"])
@pytest.mark.parametrize("bound", [None, 0.5])
def test_one_record_moves_a_release_by_at_most_its_bound(name, bound, seed, kind):
    rng = np.random.default_rng(seed)
    X = rng.gamma(0.5, size=(20, 12))
    record = {
        "random": rng.gamma(0.5, size=12),
        "huge": rng.gamma(0.5, size=12) * 1e9,
        "tiny": rng.gamma(0.5, size=12) * 1e-9,
        "one cell": np.eye(12)[3] * 100.0,
        "equal": X[0],
    }[kind]
    method = every_form(HARDLY, "record")[name]
    clipped = replace(method.allowance.privacy, clip=bound)
    method = replace(method, allowance=replace(method.allowance, privacy=clipped))
    for array, moved, slack in differences(method, X, record):
        assert moved <= 1 + 2 * slack * 2.0**-24, array


@pytest.mark.parametrize("name", list(every_form(HARDLY, "client")))
def test_a_client_moves_a_sum_by_at_most_its_bound(name, rng):
    method = every_form(HARDLY, "client")[name]
    shared = method.start(12, np.random.default_rng(0))
    for t in range(method.rounds):
        X = rng.gamma(0.5, size=(30, 12)) * 1e6
        local = method.join(X, shared, t, np.random.default_rng(1))
        message = method.step(X, shared, local, t, np.random.default_rng(2))[1]
        for array, a in message.arrays.items():
            assert np.linalg.norm(a) <= message.cost[array].clip * (1 + 1e-3)
        assert message.weight == 1
        shared = method.aggregate(shared, [message], t)


# --- known answers without noise ---


def test_moments_are_those_of_the_pooled_unit_rows(Xs):
    X = unit_rows(np.vstack(Xs))
    method = moments(privacy(HARDLY))
    shared = method.start(12, np.random.default_rng(0))
    for t in range(2):
        steps = first_messages(method, Xs, shared, t)
        sums = {name: sum(m.arrays[name] for m in steps) for name in steps[0].arrays}
        if t == 0:
            np.testing.assert_allclose(sums["sum"], X.sum(axis=0), atol=1e-3)
            np.testing.assert_allclose(sums["count"], len(X), atol=1e-2)
        shared = method.aggregate(shared, steps, t)
    Y = X - shared.extra["center"]
    Y *= np.minimum(1, shared.extra["bound"] / np.linalg.norm(Y, axis=1, keepdims=True))
    np.testing.assert_allclose(symmetric.unpacked(sums["moment"], 12), Y.T @ Y, atol=1e-3)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, lambda X: X.astype(np.float32)])
def test_without_noise_the_twin_has_the_factor_of_the_data(Xs, kind):
    method = moments(privacy(HARDLY))
    found = run(method, [kind(X) for X in Xs])
    random = np.random.default_rng(0).uniform(size=(3, 12))
    by_chance = pooled_error(Xs, [refit(X, random) for X in Xs], random)
    assert pooled_error(Xs, found.codes, found.factor) < 0.1 * by_chance
    assert (found.factor >= 0).all()
    assert found.history[-1].participants == 4


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_of_many_features_the_most_frequent_enter_the_moment(kind, rng):
    """Three patterns in 20 features, and 100 rare ones that say nothing: the moment need not know these."""
    H = np.hstack([rng.gamma(0.5, size=(3, 20)), np.full((3, 100), 1e-4)])
    X = rng.gamma(0.5, size=(300, 3)) @ H
    method = replace(moments(privacy(HARDLY)), widest=20)
    shared = method.start(120, np.random.default_rng(0))
    first = first_messages(method, [kind(X)], shared)
    np.testing.assert_array_equal(method.aggregate(shared, first, 0).extra["features"], np.arange(20))
    found = run(method, [kind(X)])
    assert pooled_error([X], found.codes, found.factor) < 0.05


def test_statistics_without_noise_are_projected_steps_on_the_pooled_rows(Xs):
    X = unit_rows(np.vstack(Xs))
    method = dp_nmf(3, privacy=privacy(HARDLY), rounds=1, outliers=None, sweeps=200, steps=1)
    shared = method.start(12, np.random.default_rng(0))
    H = shared.factor
    messages = first_messages(method, Xs, shared)
    W = refit(X, H)
    A, B = W.T @ W, W.T @ X
    expected = np.maximum(H - (A @ H - B) / np.linalg.norm(A, 2), 0)
    expected /= np.maximum(np.linalg.norm(expected, axis=1, keepdims=True), 1)
    np.testing.assert_allclose(method.aggregate(shared, messages, 0).factor, expected, atol=1e-3)


def test_client_level_without_noise_and_clip_is_the_method_with_equal_weights(Xs):
    plain = replace(catalog.make("fedavg", 3, common_start=True), aggregator=Mean(weighted=False))
    asked = built(plain, privacy(HARDLY, unit="client", clip=10.0), rounds=4)
    start = np.random.default_rng(5).uniform(size=(3, 12))
    expected, found = (run(m, Xs, rounds=4, start=start) for m in (plain, asked))
    np.testing.assert_allclose(found.factor, expected.factor, atol=5e-3)


def test_votes_without_noise_are_the_plain_count(rng):
    Xs = [(rng.random((60, 12)) < 0.3).astype(float) for _ in range(5)]
    plain = catalog.make("asso", 3, align=None)
    asked = built("asso", privacy(HARDLY, unit="client"), clients=5, rounds=1)
    np.testing.assert_array_equal(run(asked, Xs).factor, run(plain, Xs).factor)
    _, message = messages_of(asked, Xs)[0]
    release = message.cost["factor"]
    assert release.clip == np.sqrt(3 * 12)


# --- what it is good for ---


def test_moments_beat_statistics_and_come_near_the_pooled_factor(rng):
    H = rng.gamma(0.3, size=(5, 40))
    X = rng.gamma(0.3, size=(20_000, 5)) @ H + 0.01
    X = unit_rows(X[X.any(axis=1)])
    ask = privacy(1.0)
    loss = {
        name: pooled_error([X], out.codes, out.factor)
        for name, out in {
            "pooled": run(catalog.make("exact", 5), [X]),
            "moments": run(moments(ask, 5), [X]),
            "statistics": run(dp_nmf(5, privacy=ask, outliers=None), [X]),
        }.items()
    }
    assert loss["moments"] < loss["pooled"] + 0.05
    assert loss["moments"] < loss["statistics"]
