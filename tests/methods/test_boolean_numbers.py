"""The fast part of the numbers that Boolean methods reach; benchmarks/boolean.py has all of them."""

import numpy as np
import pytest

from cofactor import boolean, run
from cofactor.combine.ballots import Ballot, either, majority, rounded
from cofactor.data import partition, synthetic
from cofactor.methods import catalog
from cofactor.types import Message


def spread(data, c, seed, *, by_tile=False):
    if not by_tile:
        return [data.X[rows] for rows in partition.iid(len(data.X), c, seed=seed)]
    first = np.where(data.codes.any(axis=1), data.codes.argmax(axis=1), data.codes.shape[1])
    return [data.X[rows] for rows in np.array_split(np.argsort(first, kind="stable"), c)]


def excess(name, seed, *, n=1000, c=10, by_tile=False, **options):
    """Loss after refit above that of the planted factor."""
    data = synthetic.tiles(n, 100, 8, noise=0.05, seed=seed)
    Xs = spread(data, c, seed, by_tile=by_tile)
    result = run(catalog.make(name, 8, **options), Xs, rounds=100, seed=seed)
    X = np.vstack(Xs)
    planted = boolean.loss(X, boolean.greedy_refit(X, data.factor), data.factor)
    return boolean.loss(X, np.vstack(result.codes), result.factor) - planted


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("felb", {"align": "every"}),
        ("felb", {"align": "first"}),
        ("falb", {"align": "first"}),
        ("boolean-exact", {}),
        ("boolean-exact", {"by_tile": True}),
        ("boolean-oneshot", {}),
        ("boolean-oneshot", {"by_tile": True}),
        ("asso", {}),
        ("elbmf", {}),
        ("zhang", {}),
    ],
)
def test_planted_tiles_are_found(name, options):
    assert [excess(name, seed, **options) < 0.01 for seed in (0, 2, 3)] == [True] * 3


def test_many_small_clients_are_aligned_once():
    assert excess("felb", 0, n=128 * 50, c=128, align="first", rounds=30) < 0.01
    assert excess("felb", 0, n=128 * 50, c=128, align=None, rounds=30) > 0.1


@pytest.mark.parametrize("name", ["asso", "elbmf", "zhang", "grecond", "mebf"])
def test_alignment_rescues_the_vote(name):
    assert excess(name, 1, align="first") < excess(name, 1, align=None) - 0.1


def test_the_relaxation_is_binary_at_the_end_of_a_long_plan():
    method = catalog.make("felb", 8, rounds=120, rate=1.01)
    data = synthetic.tiles(500, 60, 8, noise=0.05, seed=0)
    seen = []
    run(method, spread(data, 5, 0), rounds=120, callbacks=[lambda line, shared: seen.append(shared.factor) and None])
    assert np.isin(seen[-1], (0, 1)).all()


def test_ties_follow_the_documented_rule():
    bits = [np.array([[1, 1, 0, 0]]), np.array([[1, 0, 1, 0]])]
    messages = [Message({"factor": b.astype(np.uint8)}) for b in bits]
    for rule, expected in ((majority, [1, 1, 1, 0]), (rounded, [1, 0, 0, 0]), (either, [1, 1, 1, 0])):
        assert Ballot(rule)(messages, bits[0], 0).tolist() == [expected]
    messages = [*messages, messages[0]]
    for rule, expected in ((majority, [1, 1, 0, 0]), (rounded, [1, 1, 0, 0]), (either, [1, 1, 1, 0])):
        assert Ballot(rule)(messages, bits[0], 0).tolist() == [expected]


def test_sweeps_help_after_a_vote():
    assert excess("asso", 1, align=None, sweeps=3) < excess("asso", 1, align=None) - 0.02
