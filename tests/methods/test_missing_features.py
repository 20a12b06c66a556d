import itertools

import numpy as np
import pytest

from cofactor import run
from cofactor.data import synthetic
from cofactor.local.columns import SomeColumns, groups
from cofactor.methods import catalog
from cofactor.metrics import residual


@pytest.fixture(scope="module")
def planted():
    return synthetic.blocks(3, 80, features=30, rank=4, seed=1)


KNOWN = [np.arange(0, 24), np.arange(6, 30), np.r_[0:12, 18:30]]


def masked(Xs):
    return [SomeColumns(X[:, index], index, 30) for X, index in zip(Xs, KNOWN, strict=True)]


def test_groups_are_the_distinct_sets_of_clients():
    numbers = groups(KNOWN, 30)
    assert len(set(numbers)) == 4
    assert numbers[0] == numbers[5] != numbers[6]


def test_clients_that_have_everything_give_the_ordinary_result(planted):
    everything = [SomeColumns(X, np.arange(30), 30) for X in planted.Xs]
    numbers = groups([np.arange(30)] * 3, 30)
    a = run(catalog.make("exact", 4, start="random", groups=numbers), everything, rounds=15)
    b = run(catalog.make("exact", 4, start="random"), planted.Xs, rounds=15)
    np.testing.assert_allclose(a.factor, b.factor, atol=1e-9)


def test_no_seed_ends_far_above_the_others_where_features_are_missing():
    """Of six single random starts one ends at seven times the error of the rest."""
    rng = np.random.default_rng(3)
    H = rng.gamma(0.3, 1, (4, 173))
    known = [np.sort(rng.choice(173, int(173 * share), replace=False)) for share in (0.5, 0.6, 0.8, 0.9)]
    rows = [rng.gamma(0.4, 1, (n, 4)) @ H + 0.01 * rng.gamma(1, 1, (n, 173)) for n in (60, 150, 110, 90)]
    data = [SomeColumns(X[:, index], index, 173) for X, index in zip(rows, known, strict=True)]

    def losses(**start):
        method = catalog.make("exact", 4, groups=groups(known, 173), **start)
        return [run(method, data, seed=seed).history[-1].loss for seed in range(6)]

    alone, best = losses(start="random"), losses()
    assert max(alone) > 10 * min(alone)
    assert max(best) < 1.5 * min(alone)


def test_missing_features_are_left_out_and_not_taken_for_zeros(planted):
    Xs = masked(planted.Xs)
    outcome = run(catalog.make("exact", 4, groups=groups(KNOWN, 30)), Xs, rounds=60)
    full = run(catalog.make("exact", 4, start="random"), planted.Xs, rounds=60)
    cosine = (outcome.factor @ full.factor.T).max(axis=1)
    assert cosine.min() > 0.97
    zeros = [np.where(np.isin(np.arange(30), index), X, 0) for X, index in zip(planted.Xs, KNOWN, strict=True)]
    naive = run(catalog.make("exact", 4, start="random"), zeros, rounds=60)
    assert (naive.factor @ full.factor.T).max(axis=1).min() < cosine.min()


def test_the_loss_is_the_error_over_known_cells_and_never_rises(planted):
    Xs = masked(planted.Xs)
    outcome = run(catalog.make("exact", 4, groups=groups(KNOWN, 30), momentum=0.0), Xs, rounds=30)
    losses = [line.loss for line in outcome.history]
    assert all(b <= a * (1 + 1e-12) for a, b in itertools.pairwise(losses))
    pairs = zip(Xs, outcome.codes, strict=True)
    dense = sum(np.sum((X.inner - W @ outcome.factor[:, X.index]) ** 2) for X, W in pairs)
    assert sum(residual(X, W, outcome.factor) for X, W in zip(Xs, outcome.codes, strict=True)) == pytest.approx(dense)
    assert 0.5 * dense <= losses[-1] * (1 + 1e-9)
