"""Laws of every method about what leaves a client: declared, finite, of a size that no client's rows can change."""

import pickle

import numpy as np
import pytest

from cofactor.engines.rounds import check_message
from cofactor.method import SERVER, rng, total
from cofactor.methods import catalog

VARIANTS = {
    **{name: catalog.make(name, 3) for name in catalog.names()},
    "exact, random start": catalog.make("exact", 3, start="random"),
    "exact, lap start": catalog.make("exact", 3, start="lap"),
    "exact, moments start": catalog.make("exact", 3, start="moments"),
    "exact, plain": catalog.make("exact", 3, start="random", momentum=0.0),
    "exact, changes": catalog.make("exact", 3).partial(),
    "oneshot, larger local rank": catalog.make("oneshot", 3, local_rank=5),
}
EVERY = pytest.mark.parametrize("name", VARIANTS)


def play(method, Xs, rounds=5, sums=False):
    """Run by hand, as a real federation would: clients see the broadcast only. Yields (t, messages, shared)."""
    m = Xs[0].shape[1]
    shared = method.start(m, rng(0, SERVER, -1))
    locals_ = [method.join(X, shared.broadcast(), rng(0, j, -1)) for j, X in enumerate(Xs)]
    for t in range(min(rounds, method.rounds or rounds)):
        replies = [
            method.step(X, shared.broadcast(), local, t, rng(0, j, t)) for j, (X, local) in enumerate(zip(Xs, locals_))
        ]
        locals_, messages = [list(r) for r in zip(*replies)]
        shared = method.aggregate(shared, [total(messages)] if sums else messages, t)
        yield t, messages, shared


def sizes(method, Xs):
    return [
        [{n: np.shape(a) for n, a in message.arrays.items()} for message in messages]
        for _, messages, _ in play(method, Xs)
    ]


@EVERY
def test_messages_are_what_the_schema_declares(name, clients):
    for t, messages, _ in play(VARIANTS[name], clients):
        for j, message in enumerate(messages):
            check_message(message, VARIANTS[name].schema(12, t), client=j, t=t)


@EVERY
def test_no_array_has_a_size_that_depends_on_the_rows(name, clients):
    few, many = clients, [np.vstack([X, X[::-1]]) for X in clients]
    assert sizes(VARIANTS[name], few) == sizes(VARIANTS[name], many)
    rows = {len(X) for X in clients}
    assert not any(rows & set(shape) for round_ in sizes(VARIANTS[name], few) for m in round_ for shape in m.values())


@EVERY
def test_messages_are_finite_and_factors_have_nonnegative_unit_rows(name, clients):
    method = VARIANTS[name]
    for t, messages, shared in play(method, clients):
        assert all(np.isfinite(a).all() for m in messages for a in m.arrays.values())
        assert np.isfinite(shared.factor).all()
        assert shared.factor.min() >= 0
        assert np.isfinite(shared.loss) or (name == "exact, moments start" and t < 2)  # two sums have no loss
    H = method.factor(shared)
    assert H.shape == (3, 12)
    np.testing.assert_allclose(np.linalg.norm(H, axis=1), 1, rtol=1e-9)


@EVERY
def test_clients_keep_codes_of_their_own_rows(name, clients):
    method, X = VARIANTS[name], clients[0]
    shared = method.start(12, rng(0, SERVER, -1))
    local, _ = method.step(X, shared.broadcast(), method.join(X, shared, rng(0, 0, -1)), 0, rng(0, 0, 0))
    assert local.codes.shape == (23, 3)
    assert local.codes.dtype == X.dtype


@EVERY
def test_step_and_join_change_nothing_in_place(name, clients):
    method, X = VARIANTS[name], clients[0].copy()
    shared = method.start(12, rng(0, SERVER, -1)).broadcast()
    factor = shared.factor.copy()
    local = method.join(X, shared, rng(0, 0, -1))
    codes = local.codes.copy()
    first = method.step(X, shared, local, 0, rng(0, 0, 0))[1]
    again = method.step(X, shared, local, 0, rng(0, 0, 0))[1]
    np.testing.assert_array_equal(X, clients[0])
    np.testing.assert_array_equal(shared.factor, factor)
    np.testing.assert_array_equal(local.codes, codes)
    for array in first.arrays:
        np.testing.assert_array_equal(first.arrays[array], again.arrays[array])


@pytest.mark.parametrize("name", [n for n, m in VARIANTS.items() if m.additive])
def test_additive_methods_need_only_the_sum(name, clients):
    for (_, _, each), (_, _, summed) in zip(
        play(VARIANTS[name], clients), play(VARIANTS[name], clients, sums=True), strict=True
    ):
        np.testing.assert_allclose(summed.factor, each.factor, rtol=1e-12, atol=1e-14)
        assert summed.loss == pytest.approx(each.loss, rel=1e-12, nan_ok=True)


def test_methods_that_promise_sums():
    additive = {name for name, m in VARIANTS.items() if m.additive}
    assert {
        "exact, random start",
        "exact, lap start",
        "exact, moments start",
        "fedavg",
        "fedprox",
        "ipalm",
        "mur",
    } <= additive
    assert not additive & {"oneshot", "oneshot-lap", "fnmf-lap", "exact"}


@pytest.mark.parametrize("name", [n for n, m in VARIANTS.items() if m.rowwise(3)])
def test_rowwise_messages_add_up_over_rows(name, clients):
    """The message of stacked clients is the sum of theirs, for the same factor."""
    method, stacked = VARIANTS[name], np.vstack(clients)
    t = method.warm_rounds
    shared = [*play(method, clients, rounds=t)][-1][2] if t else method.start(12, rng(0, SERVER, -1))
    sent = [method.step(X, shared.broadcast(), method.join(X, shared, rng(0, 0, -1)), t, rng(0, 0, t)) for X in clients]
    whole = method.step(stacked, shared.broadcast(), method.join(stacked, shared, rng(0, 0, -1)), t, rng(0, 0, t))[1]
    summed = total([message for _, message in sent])
    for array, value in whole.arrays.items():
        np.testing.assert_allclose(summed.arrays[array], value, rtol=1e-12)
    assert summed.weight == whole.weight


@EVERY
def test_methods_pickle_and_compare(name):
    copy = pickle.loads(pickle.dumps(VARIANTS[name]))
    assert copy == VARIANTS[name]
    assert hash(copy) == hash(VARIANTS[name])


@EVERY
def test_broadcast_hides_the_servers_memory(name, clients):
    for _, _, shared in play(VARIANTS[name], clients, rounds=2):
        assert shared.broadcast().memory == {}
        assert shared.broadcast().nbytes == shared.nbytes
