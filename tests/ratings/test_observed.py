"""Observed entries: exact ALS is pooled ALS and never rises, biases alone have a reference, absence is fine."""

import pickle
from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse

from cofactor import ratings, run
from cofactor.engines.contract import check_message
from cofactor.local import batches
from cofactor.method import SERVER, rng, total
from cofactor.methods import catalog
from cofactor.types import CofactorError

EVERY = pytest.mark.parametrize("name", catalog.names("ratings"))
BIASES = pytest.mark.parametrize("biases", [True, False])


@pytest.fixture(scope="module")
def R():
    """Planted ratings of 60 users and 25 items, 40 % observed; one user and one item without any."""
    draw = np.random.default_rng(0)
    X = 3 + draw.normal(size=(60, 1)) + draw.normal(size=25) + draw.normal(size=(60, 2)) @ draw.normal(size=(2, 25))
    X = np.clip(X + 0.1 * draw.normal(size=X.shape), 0.5, 8)
    mask = draw.uniform(size=X.shape) < 0.4
    mask[7], mask[:, 4] = False, False
    return sparse.csr_matrix((X[mask], np.nonzero(mask)), shape=X.shape)


def rows_of(R):
    return [R[u] for u in range(R.shape[0])]


def rmse(R, result):
    return np.sqrt(ratings.residual_squares(R, np.vstack(result.codes), result.factor).sum() / R.nnz)


def objective(R, W, H, layout):
    fit = 0.5 * ratings.residual_squares(R, W, H).sum()
    return fit + layout.penalty(W[:, layout.code_columns]) + layout.penalty(H[layout.factor_rows].T)


@EVERY
@BIASES
def test_many_clients_equal_one(name, biases, R):
    method = catalog.make(name, 2, ridge=0.5, biases=biases)
    one = run(method, [R], rounds=15)
    for Xs in (rows_of(R), [R[:20], R[20:21], R[21:]]):
        many = run(method, Xs, rounds=15)
        np.testing.assert_allclose([r.loss for r in many.history], [r.loss for r in one.history], rtol=1e-10)
        np.testing.assert_allclose(many.factor, one.factor, atol=1e-8)
        np.testing.assert_allclose(np.vstack(many.codes), one.codes[0], atol=1e-8)


@BIASES
def test_als_objective_is_what_is_reported_and_never_rises(biases, R):
    method = catalog.make("exact-als", 3, ridge=0.3, biases=biases)
    history = run(method, rows_of(R), rounds=40).history
    losses = [line.loss for line in history]
    assert max(b - a for a, b in pairwise(losses)) <= 1e-10 * losses[0]
    shared = method.start(25, rng(0, SERVER, -1))
    local = method.join(R, shared, 0, rng(0, 0, -1))
    for t in range(3):
        local, message = method.step(R, shared, local, t, rng(0, 0, t))
        shared = method.aggregate(shared, [message], t)
    assert shared.loss == pytest.approx(objective(R, local.codes, shared.factor, method.layout), rel=1e-10)


def test_fedmavg_objective_falls_to_near_that_of_als(R):
    losses = {n: run(catalog.make(n, 2, ridge=1.0), [R], rounds=400).history[-1].loss for n in catalog.names("ratings")}
    assert losses["masked-fedmavg"] <= 1.05 * losses["exact-als"]


def test_biases_alone_equal_alternating_closed_forms(R):
    """With factors held at zero, b and c are damped means of what the other leaves."""
    strength = 2.0
    result = run(catalog.make("exact-als", 1, ridge=1e12, bias_ridge=strength), rows_of(R), rounds=200)
    X, mask = R.toarray(), (R != 0).toarray()
    mean = X[mask].mean()
    b, c = np.zeros(60), np.zeros(25)
    for _ in range(500):
        b = (mask * (X - mean - c)).sum(axis=1) / (mask.sum(axis=1) + strength)
        c = (mask * (X - mean - b[:, None])).sum(axis=0) / (mask.sum(axis=0) + strength)
    np.testing.assert_allclose(result.factor[2], c, atol=1e-8)
    np.testing.assert_allclose(result.factor[3], mean)
    np.testing.assert_allclose(np.vstack(result.codes)[:, 1], b, atol=1e-8)


@EVERY
@pytest.mark.parametrize("share", [0.5, 0.1])
def test_few_participants_come_near_the_full_answer(name, share, R):
    method = catalog.make(name, 2, ridge=1.0)
    full, part = (run(method, rows_of(R), rounds=r, participation=p) for r, p in ((300, 1.0), (600, share)))
    # averages over six rows keep some noise, since their steps do not shrink to zero
    assert rmse(R, part) <= (1.2 if name == "masked-fedmavg" else 1.05) * rmse(R, full)


def test_changes_with_everybody_present_are_plain_statistics(R):
    plain = catalog.make("exact-als", 2)
    a, b = (run(m, rows_of(R), rounds=10) for m in (plain, plain.partial()))
    np.testing.assert_allclose(b.factor, a.factor, atol=1e-8)


def test_running_sums_are_those_of_everybodys_last_codes(R):
    method = catalog.make("exact-als", 2).partial()
    parts = [R[:20], R[20:40], R[40:]]
    shared = method.start(25, rng(0, SERVER, -1))
    states = [method.join(X, shared, 0, rng(0, j, -1)) for j, X in enumerate(parts)]
    for t, here in enumerate([(0, 1, 2), (0, 1), (2,), (1, 2), (0,)]):
        sent = []
        for j in here:
            states[j], message = method.step(parts[j], shared.broadcast(), states[j], t, rng(0, j, t))
            sent.append(message)
        shared = method.aggregate(shared, sent, t)
    W = np.vstack([s.codes for s in states])
    gram, cross = ratings.column_stats(R, W, shared.factor, method.layout)
    np.testing.assert_allclose(shared.memory["gram"], gram, atol=1e-9)
    np.testing.assert_allclose(shared.memory["cross"], cross, atol=1e-9)
    assert shared.loss == pytest.approx(objective(R, W, shared.factor, method.layout), rel=1e-9)


@EVERY
@pytest.mark.parametrize("share", [1.0, 0.3])
def test_batched_rows_equal_the_same_clients_alone(name, share, R, monkeypatch):
    def go():
        return run(catalog.make(name, 2), rows_of(R), rounds=6, seed=3, participation=share)

    batched = go()
    monkeypatch.setattr(batches, "SMALL", 0)
    alone = go()
    np.testing.assert_allclose(batched.factor, alone.factor, atol=1e-9)
    assert [r.bytes_up for r in batched.history] == [r.bytes_up for r in alone.history]


@EVERY
@BIASES
def test_messages_are_declared_and_their_sum_is_enough(name, biases, R):
    method, parts = catalog.make(name, 3, biases=biases), [R[:20], R[20:41], R[41:]]
    shared = method.start(25, rng(0, SERVER, -1))
    states = [method.join(X, shared, 0, rng(0, j, -1)) for j, X in enumerate(parts)]
    for t in range(4):
        answers = [method.step(X, shared.broadcast(), s, t, rng(0, 0, t)) for X, s in zip(parts, states)]
        states, sent = [list(r) for r in zip(*answers)]
        for j, message in enumerate(sent):
            check_message(message, method.schema(25, t), client=j, t=t)
        summed, shared = (method.aggregate(shared, m, t) for m in ([total(sent)], sent))
        np.testing.assert_allclose(summed.factor, shared.factor, atol=1e-10)


@EVERY
@BIASES
def test_messages_of_rated_items_need_nothing_of_the_others_and_name_them(name, biases, R):
    whole, method = (catalog.make(name, 3, biases=biases, rated_only=only) for only in (False, True))
    first = whole.traits.stages[-1]
    shared = whole.start(25, rng(0, SERVER, -1))
    for j in (0, 7):  # user 7 has no ratings
        user = R[j : j + 1]
        hidden = np.setdiff1d(np.arange(25), user.indices if user.nnz else [0])
        blind = shared.factor.copy()
        blind[:, hidden] = np.nan
        local = method.join(user, shared, first, rng(0, j, -1))
        state, sent = method.step(user, shared._replace(factor=blind), local, first, rng(0, j, first))
        check_message(sent, method.schema(25, first), client=j, t=first)
        np.testing.assert_array_equal(sent.arrays["items"], np.setdiff1d(np.arange(25), hidden))
        state_, sent_ = whole.step(user, shared, local, first, rng(0, j, first))
        np.testing.assert_allclose(state.codes, state_.codes)
        np.testing.assert_allclose(
            method.aggregate(shared, [sent], first).factor, whole.aggregate(shared, [sent_], first).factor
        )


@EVERY
def test_messages_of_rated_items_serve_with_clients_absent_and_not_under_masks_nor_for_clicks(name, R):
    a, b = (
        run(catalog.make(name, 2, rated_only=only), rows_of(R), rounds=12, participation=0.4) for only in (False, True)
    )
    np.testing.assert_allclose(a.factor, b.factor, atol=1e-8)
    assert not catalog.make(name, 2, rated_only=True).traits.additive
    with pytest.raises(CofactorError, match=r"of implicit feedback .alpha. every item counts"):
        catalog.make(name, 2, rated_only=True, alpha=1.0)


def test_message_has_half_a_gram_and_a_cross_per_item():
    p = 5 + 1
    assert catalog.make("exact-als", 5).schema(100, 1) == {
        "gram": (100, p * (p + 1) // 2),
        "cross": (100, p),
        "known": (),
    }
    assert catalog.make("exact-als", 5, biases=False).schema(100, 0)["gram"] == (100, 15)


@EVERY
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_is_kept_and_methods_pickle(name, dtype, R):
    method = catalog.make(name, 2)
    assert pickle.loads(pickle.dumps(method)) == method
    result = run(method, rows_of(R.astype(dtype)), rounds=4)
    assert result.factor.dtype == dtype
    assert result.codes[0].dtype == dtype


@EVERY
def test_equal_ratings_are_predicted_exactly(name):
    R = sparse.csr_matrix(([4.0] * 5, ([0, 0, 1, 2, 2], [0, 1, 1, 0, 3])), shape=(3, 4))
    result = run(catalog.make(name, 2), rows_of(R), rounds=60)
    np.testing.assert_allclose(np.vstack(result.codes) @ result.factor, 4, atol=1e-3)


@EVERY
def test_nobody_rated_anything(name):
    result = run(catalog.make(name, 2), [sparse.csr_matrix((3, 4))], rounds=3)
    assert np.isfinite(result.factor).all()


def test_wrong_options_are_named():
    with pytest.raises(CofactorError, match=r"ridge must be a number >= 0. Found -1"):
        catalog.make("exact-als", 2, ridge=-1)
    with pytest.raises(CofactorError, match=r"gamma must be at least 1. Found 0.5"):
        catalog.make("masked-fedmavg", 2, gamma=0.5)
