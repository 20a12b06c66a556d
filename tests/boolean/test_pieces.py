"""The pieces that methods are made of: the space, the update and the choice among factorizers."""

import pickle

import numpy as np
import pytest

from cofactor.boolean import asso, elbmf, error, greedy_refit, pack, polish
from cofactor.boolean.binary import Binary
from cofactor.boolean.cube import Boolean
from cofactor.boolean.factorizers import Adaptive, Asso, Plain, Polished, catalog
from cofactor.local.stats import for_codes


def constant(X, rank, rng):
    """A factorizer that is always wrong: everything is one component of ones."""
    H = np.zeros((rank, X.shape[1]), np.uint8)
    H[0] = 1
    return np.ones((X.shape[0], rank), np.uint8), H


def test_space_ends_in_bits_and_greedy_codes(tiles):
    X, _, H = tiles(noise=0.05)
    space = Boolean()
    relaxed = np.abs(H - 0.3)
    np.testing.assert_array_equal(space.final(relaxed), H)
    np.testing.assert_array_equal(space.refit(X, H), greedy_refit(X, H))
    W = greedy_refit(X, H)
    assert space.objective(X, W, H) == error(X, W, H) / 2
    assert space.scale(W, H) == (W, H)


def test_update_is_the_step_of_elbmf(tiles, rng):
    X = tiles()[0].astype(np.float64)
    W, H = rng.random((len(X), 4)), rng.random((4, X.shape[1]))
    stats = for_codes(X, H)
    once = Binary(steps=1)
    by_hand = elbmf.descend(W, W, gram=stats.gram, cross=stats.cross, t=6, params=once.params)
    np.testing.assert_array_equal(once(W, stats, 6), by_hand)
    twice = elbmf.descend(by_hand, W, gram=stats.gram, cross=stats.cross, t=7, params=once.params)
    np.testing.assert_array_equal(Binary(steps=2)(W, stats, 3), twice)


def test_asso_takes_the_threshold_with_the_lowest_error_after_the_sweeps(tiles, rng):
    X, _, _ = tiles(150, 70, 6, noise=0.1)
    for sweeps in (0, 1):
        each = [polish(X, H, sweeps=sweeps, codes=W) for W, H in asso.covers(pack(X), X, 5)]
        assert error(X, *Asso(sweeps)(X, 5, rng)) == min(error(X, *factors) for factors in each)
    assert error(X, *Asso(3)(X, 5, rng)) <= error(X, *Asso(1)(X, 5, rng))


def test_the_better_factorizer_at_a_small_rank_does_the_work(tiles, rng):
    X, _, _ = tiles(noise=0.02)
    bad, good = Plain(constant), Polished(Plain(asso.factorize))
    np.testing.assert_array_equal(Adaptive(bad, good)(X, 4, rng)[1], good(X, 4, rng)[1])
    assert Adaptive(good, good)(X, 4, rng)[1].any()
    assert Adaptive(bad, good, margin=1.0)(X, 4, rng)[1][0].all()


def test_many_components_are_judged_at_their_own_rank():
    """Forty planted ones look alike to both factorizers at rank 10, and only one of them finds them at rank 40."""
    draw = np.random.default_rng(0)
    X = (draw.random((300, 40)) < 0.05).astype(np.uint8) @ (draw.random((40, 60)) < 0.1).astype(np.uint8) > 0
    X = (X ^ (draw.random(X.shape) < 0.01)).astype(np.uint8)
    relaxed = Polished(Plain(elbmf.factorize, (("top", 0.3),)))
    errors = [
        error(X, *solve(X, 40, np.random.default_rng(0))) for solve in (Asso(), relaxed, Adaptive(Asso(), relaxed))
    ]
    assert errors[2] <= 1.2 * errors[1] < 0.6 * errors[0]


@pytest.mark.parametrize("name", catalog())
def test_factorizers_pickle_and_compare(name):
    copy = pickle.loads(pickle.dumps(catalog()[name]))
    assert copy == catalog()[name]
    assert hash(copy) == hash(catalog()[name])
