"""Boolean methods with every option: the same bits everywhere, bits at the end, and sweeps that never do harm.

What leaves a client is a law of all methods (tests/laws/test_law_messages.py).
"""

import numpy as np
import pytest
from scipy import sparse

from cofactor import boolean, run
from cofactor.data import synthetic
from cofactor.engines.inline import Inline
from cofactor.local import batches
from cofactor.methods import catalog
from cofactor.methods.boolean_sweeps import Sweeps, Trial
from cofactor.types import DataError

VARIANTS = {
    **{name: catalog.make(name, 4) for name in catalog.names("boolean")},
    **{f"{name}, swept": catalog.make(name, 4, sweeps=2) for name in catalog.names("boolean")},
    "felb, every": catalog.make("felb", 4, align="every"),
    "felb, sums": catalog.make("felb", 4, align=None, rounds=5, sweeps=2),
    "boolean-exact, changes": catalog.make("boolean-exact", 4, rounds=6, sweeps=2).partial(),
    "asso, or": catalog.make("asso", 4, aggregate="or", align=None),
    "elbmf, rounded": catalog.make("elbmf", 4, aggregate="round", align=None),
}
EVERY = pytest.mark.parametrize("name", VARIANTS)
M = 30


@pytest.fixture(scope="module")
def clients():
    X = synthetic.tiles(91, M, 4, noise=0.03, seed=1).X.astype(np.float32)
    return [X[:33], X[33:72], X[72:]]


@EVERY
def test_factor_and_codes_are_bits(name, clients):
    result = run(VARIANTS[name], clients, rounds=8)
    assert result.factor.shape == (4, M)
    for F in [result.factor, *result.codes]:
        assert F.dtype == np.uint8
        assert F.max(initial=0) <= 1
    assert [W.shape for W in result.codes] == [(33, 4), (39, 4), (19, 4)]


@EVERY
def test_runs_are_reproducible_whatever_the_workers(name, clients):
    a, b = (run(VARIANTS[name], clients, rounds=6, seed=3, engine=Inline(workers)) for workers in (1, 2))
    np.testing.assert_array_equal(a.factor, b.factor)
    assert [r.loss for r in a.history] == [r.loss for r in b.history]


@EVERY
def test_sparse_equals_dense(name, clients):
    a, b = (run(VARIANTS[name], Xs, rounds=6, seed=1) for Xs in (clients, [sparse.csr_matrix(X) for X in clients]))
    different = np.mean(a.factor != b.factor)
    assert different <= 0.01  # sums of floats in another order may tip a bit


@pytest.mark.parametrize("name", ["felb", "boolean-exact", "boolean-oneshot"])
def test_other_values_than_bits_are_refused_at_the_client(name, clients):
    with pytest.raises(DataError, match=r"Found 0.5 in row 0, column 0 at client 0; make bits .*binarize"):
        run(VARIANTS[name], [0.5 * np.ones((5, M)), clients[0]], rounds=1)


@pytest.mark.parametrize("participation", [0.4, 1.0])
@pytest.mark.parametrize("name", ["boolean-exact, changes", "felb, sums"])
def test_sweeps_of_batched_tiny_clients_equal_the_same_clients_alone(name, participation, clients, monkeypatch):
    rows = [X[i : i + 3] for X in clients for i in range(0, len(X), 3)]
    plan = {"rounds": 8, "seed": 2, "participation": participation}
    batched = run(VARIANTS[name], rows, **plan)
    monkeypatch.setattr(batches, "SMALL", 0)
    alone = run(VARIANTS[name], rows, **plan)
    np.testing.assert_array_equal(batched.factor, alone.factor)


@pytest.fixture(scope="module")
def noisy():
    data = synthetic.tiles(300, 80, 5, noise=0.1, seed=2)
    bad = data.factor ^ (np.random.default_rng(0).random(data.factor.shape) < 0.2)
    return data.X.astype(np.float32), bad.astype(np.uint8)


def test_sweeps_on_clients_equal_those_on_the_stacked_rows_bit_for_bit(noisy):
    X, start = noisy
    method = Sweeps(5, 4)
    one = run(method, [X], start=start)
    for c in (2, 7):
        many = run(method, np.array_split(X, c), start=start)
        np.testing.assert_array_equal(many.factor, one.factor)
        np.testing.assert_array_equal(np.vstack(many.codes), one.codes[0])
        assert [r.loss for r in many.history] == [r.loss for r in one.history]


@pytest.mark.parametrize("seed", range(4))
def test_a_sweep_never_raises_the_error(seed, noisy):
    X, bad = noisy
    start = bad ^ (np.random.default_rng(seed).random((5, 80)) < 0.1)
    losses = [r.loss for r in run(Sweeps(5, 30), np.array_split(X, 3), start=start).history]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]
    assert 2 * losses[0] == boolean.error(X, boolean.greedy_refit(X, start), start)


def test_components_that_only_absent_clients_use_stay_as_they_are():
    """Each client has rows of a component of its own, and noise that a new component would cover."""
    tiles, rng = np.kron(np.eye(4), np.ones((1, 6))).astype(np.uint8), np.random.default_rng(0)
    Xs = [((np.tile(tile, (30, 1)) ^ (rng.random((30, 24)) < 0.05)) > 0).astype(np.float32) for tile in tiles]
    for share in (0.25, 0.5, 1.0):
        np.testing.assert_array_equal(run(Sweeps(4, 6), Xs, start=tiles, participation=share).factor, tiles)


def test_an_unused_component_begins_anew_at_the_column_with_most_uncovered_ones(noisy):
    X = noisy[0]
    planted = synthetic.tiles(300, 80, 5, noise=0.1, seed=2).factor
    dead = np.vstack([planted[:3], np.zeros((1, 80), np.uint8), np.ones((1, 80), np.uint8)])
    codes = boolean.greedy_refit(X, dead)
    left = boolean.uncovered(X, codes, dead)
    np.testing.assert_array_equal(left, ((X > 0) & (codes @ dead == 0)).sum(axis=0))
    seeded, fresh = boolean.reseed(dead, np.where(codes.any(axis=0), X.size, 0), left)
    np.testing.assert_array_equal(seeded[:3], dead[:3])
    assert fresh.tolist() == [False] * 3 + [True] * 2
    assert seeded[3:].sum(axis=1).tolist() == [1, 1]
    assert seeded[3].argmax() == left.argmax()
    gain = boolean.error(X, codes, dead) - boolean.error(X, boolean.greedy_refit(X, seeded, codes=codes), seeded)
    assert gain >= np.sort(left)[-2:].sum()


@pytest.mark.parametrize("seed", range(4))
def test_a_weak_component_is_worth_the_errors_it_saves_and_goes_for_a_better_column(seed, noisy):
    X = noisy[0]
    H = synthetic.tiles(300, 80, 5, noise=0.1, seed=2).factor.copy()
    H[4] = 0
    H[4, np.random.default_rng(seed).choice(80, 2, replace=False)] = 1
    codes = boolean.greedy_refit(X, H)
    saved = boolean.worth(boolean.changes(X, codes, H), H)
    before = boolean.error(X, codes, H)
    for component in range(5):
        without = codes.copy()
        without[:, component] = 0
        assert saved[component] == boolean.error(X, without, H) - before
    left = boolean.uncovered(X, codes, H)
    new, fresh = boolean.reseed(H, saved, left)
    after = boolean.error(X, boolean.greedy_refit(X, new, codes=np.where(fresh, 0, codes)), new)
    assert after <= before - (np.sort(left)[::-1][: fresh.sum()].sum() - saved[fresh].sum())
    assert fresh.any() == (left.max() > saved.min())


@pytest.mark.parametrize("seed", range(4))
def test_giving_a_component_up_costs_no_more_errors_than_its_price(seed, noisy):
    X, draw = noisy[0], np.random.default_rng(seed)
    H = synthetic.tiles(300, 80, 5, noise=0.1, seed=2).factor.copy()
    H = np.vstack([H, H[:3] & (draw.uniform(size=(3, 80)) < 0.5)])  # parts of others, used by nearly the same rows
    H[:3] &= 1 - H[5:]
    codes = boolean.greedy_refit(X, H)
    price, heirs = boolean.prices(boolean.changes(X, codes, H), H)
    assert (heirs >= 0).any()
    for component, heir in enumerate(heirs):
        without, new = codes.copy(), H.copy()
        without[:, component] = 0
        if heir >= 0:
            new[heir] |= H[component]
        assert boolean.error(X, without, new) - boolean.error(X, codes, H) <= price[component]


def test_of_two_components_that_the_same_rows_use_one_goes_to_what_is_not_covered():
    """Two parts of one block of ones are worth more each than a column of a smaller block, which nobody covered."""
    X = np.zeros((20, 7), np.float32)
    X[:12, :3] = X[12:, 3:] = 1
    H = np.zeros((2, 7), np.uint8)
    H[0, :2] = H[1, 2] = 1
    out = run(Sweeps(2), [X[:15], X[15:]], rounds=3, start=H.astype(np.float64))
    assert sorted(out.factor.tolist()) == [[0, 0, 0, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0, 0]]


def test_a_column_goes_for_one_of_a_block_with_as_many_ones():
    """Eight rows of one feature and eight of three others: one component covers the three."""
    X = np.zeros((16, 4), np.float32)
    X[:8, 0] = X[8:, 1:] = 1
    out = run(Sweeps(1), [X[:11], X[11:]], start=np.eye(1, 4))
    assert out.factor.tolist() == [[0, 1, 1, 1]]
    # a feature with as many ones is no reason to go: it is no more
    out = run(Sweeps(1), [X[:11, :2], X[11:, :2]], start=np.eye(1, 2))
    assert out.factor.tolist() == [[1, 0]]


def test_clients_choose_the_factor_with_the_fewest_errors(noisy):
    X, bad = noisy
    good = synthetic.tiles(300, 80, 5, noise=0.1, seed=2).factor
    for order in ([bad, good], [good, bad]):
        method, rng = Trial(5, 2), np.random.default_rng(0)
        shared = method.start(80, rng, np.vstack(order))
        rows = np.array_split(X, 3)
        sent = [method.step(part, shared, method.join(part, shared, 0, rng), 0, rng)[1] for part in rows]
        chosen = method.aggregate(shared, sent, 0)
        np.testing.assert_array_equal(method.factor(chosen), good)
        assert 2 * chosen.loss == boolean.error(X, boolean.greedy_refit(X, good), good)
        np.testing.assert_array_equal(method.factor(shared), order[0])


def test_more_components_are_never_worse_on_sparse_data():
    rng = np.random.default_rng(0)
    X = (rng.random((400, 300)) < rng.beta(0.3, 8, 300)).astype(np.float32)
    for name, plan in (("boolean-oneshot", {}), ("boolean-exact", {"rounds": 23})):
        found = [run(catalog.make(name, k, sweeps=3, **plan), np.array_split(X, 4), rounds=100) for k in (10, 40)]
        few, many = (boolean.loss(X, np.vstack(r.codes), r.factor) for r in found)
        assert many < few
        assert np.vstack(found[1].codes).any(axis=0).mean() > 0.9


def test_drift_is_by_place_once_components_are_no_longer_matched():
    """To match them for the drift alone would take as long as a client's products."""
    method = catalog.make("felb", 3)
    H = np.eye(3, 6, dtype=np.float32)
    shared = method.start(6, np.random.default_rng(0), H)

    def sent(factor):
        W = np.ones((4, 3), np.float32)
        message = method.aggregator.message(W, factor)
        return message._replace(arrays={**message.arrays, "loss": np.float64(0)})

    apart = [method.aggregate(shared, [sent(H), sent(H[::-1].copy())], t).drift for t in (0, 2)]
    assert apart[0] < 0.1
    assert apart[1] > 1
