"""The range of the second moment, and the mean where there is none to be seen: known answers and floors."""

from __future__ import annotations

import numpy as np
import pytest
from tests.helpers.private import HARDLY, messages_of, mixtures, moments, privacy

from cofactor import Privacy, run
from cofactor.local.refit import refit
from cofactor.methods import catalog
from cofactor.methods.build import Facts, build
from cofactor.methods.shrunk import denoised, pieces
from cofactor.metrics import pooled_error
from cofactor.plan import Plan
from cofactor.types import CofactorError, Message


def ranged(ask, rank=3, **options):
    return catalog.make("dp-range", rank, privacy=ask, **options)


def loss(X, H):
    return pooled_error([X], [refit(X, H)], H)


# --- dp-range ---


def test_without_noise_the_range_has_the_factor_of_the_data(rng):
    Xs = mixtures(rng)
    whole, part = (run(method, Xs) for method in (moments(privacy(HARDLY)), ranged(privacy(HARDLY), width=6)))
    errors = [pooled_error(Xs, out.codes, out.factor) for out in (whole, part)]
    assert errors[1] < 1.2 * errors[0] + 0.01


def test_messages_grow_with_the_features_and_not_with_their_square(rng):
    Xs = [rng.random((20, 200)) for _ in range(2)]
    seen = messages_of(ranged(privacy(), width=8), Xs)
    assert sum(np.size(a) for _, m in seen for a in m.arrays.values()) == 2 * (200 + 1 + 8 * 200 + 200)


def test_a_sketch_that_is_too_narrow_is_refused():
    with pytest.raises(CofactorError, match="width: expected a whole number of at least the rank 3"):
        ranged(privacy(), width=2)


def test_many_clients_with_secure_sums_come_near_the_whole_moment(rng):
    """Utility beside dp-moments: the same patterns at the same noise, from a fraction of the numbers."""
    H = rng.gamma(0.3, size=(4, 60))
    X = rng.gamma(0.3, size=(20_000, 4)) @ H + 0.01
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    found = {name: run(catalog.make(name, 4, privacy=privacy(1.0)), [X]) for name in ("dp-moments", "dp-range")}
    errors = {name: pooled_error([X], out.codes, out.factor) for name, out in found.items()}
    assert errors["dp-range"] < errors["dp-moments"] + 0.05
    assert errors["dp-range"] < 0.5 * loss(X, X.mean(axis=0, keepdims=True))


# --- few rows, many features: the mean ---


@pytest.mark.parametrize("method", ["dp-moments", "dp-range"])
@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_few_rows_are_no_worse_than_the_private_mean_row_or_a_constant_row(method, epsilon, rng):
    X = 1 + rng.gamma(0.5, size=(60, 3)) @ rng.gamma(0.5, size=(3, 400))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    out = run(catalog.make(method, 5, privacy=privacy(epsilon, 1e-5)), [X])
    whole = moments(privacy(epsilon, 1e-5)).allowance.multiplier
    noisy = np.maximum(X.sum(axis=0) + whole * rng.standard_normal(400), 0)
    floor = min(loss(X, noisy[None] / np.linalg.norm(noisy)), loss(X, np.full((1, 400), 0.05)))
    assert pooled_error([X], out.codes, out.factor) < 1.02 * floor
    assert "the whole budget was spent on the mean row" in out.remark
    assert np.isclose(out.epsilon, epsilon)


@pytest.mark.parametrize("counted", [5.0, 60.0, 149.0])
@pytest.mark.parametrize("drowned", [True, False])
def test_a_count_that_noise_made_too_small_puts_no_centre_beyond_the_rows(counted, drowned, rng):
    """Rows of norm 1 are at least as many as their sum is long; one draw in a hundred was worse than the mean row."""
    method = build("dp-moments", 3, Plan(privacy=Privacy(4.0, 1e-5)), Facts(20, 4))[0]
    sums = Message({"sum": np.array([112.0, 62.0, 68.0, 24.0]), "count": np.array(counted)}, 20.0)
    length = np.linalg.norm(sums.arrays["sum"])
    found = method.open(method.start(4, rng), sums, drowned=drowned)
    assert 0.8 * length < found.memory["rows"] <= max(length, counted)
    assert np.linalg.norm(found.extra["center"]) < 1.2
    assert found.extra["second"] != drowned
    if drowned:  # how many rows there are is not known well enough to clip them around a centre
        assert found.extra["bound"] == 1.0


def test_a_run_with_enough_rows_has_nothing_to_remark(rng):
    X = rng.gamma(0.5, size=(3000, 3)) @ rng.gamma(0.5, size=(3, 12))
    assert run(moments(privacy(8.0)), [X]).remark == ""


def test_pieces_fit_no_worse_than_the_row_and_a_constant(rng):
    row, X = rng.gamma(0.5, size=30), rng.random((20, 30))
    for rank in (2, 5, 30):
        H = pieces(row, rank)
        assert H.shape == (rank, 30)
        assert (H.any(axis=1)).all()
        cut = H if rank == 30 else H[:-1]  # with a piece for every feature there is no constant row
        np.testing.assert_allclose(cut.sum(axis=0), row)
        for one in (row, np.ones(30)):
            assert loss(X, H) <= loss(X, one[None] / np.linalg.norm(one)) + 1e-9
    np.testing.assert_array_equal(pieces(row, 1), row[None])
    assert pieces(np.zeros(6), 3).any(axis=1).all()
    assert pieces(np.array([0, 0, 0, 0, 7.0, 0]), 4).any(axis=1).all()


@pytest.mark.parametrize("kind", ["flat", "sparse", "spread"])
def test_what_noise_put_in_is_taken_out(kind, rng):
    """Closer to the truth than the values, and than the better of linear shrinking and a soft threshold."""
    theta = {
        "flat": np.full(2000, 3.0),
        "sparse": np.where(rng.random(2000) < 0.05, 8.0, 0.0),
        "spread": rng.gamma(1.0, 2.0, size=2000),
    }[kind]
    x = theta + rng.standard_normal(2000)
    mean, spread = x.mean(), max(x.var() - 1, 0.0)
    linear = mean + (x - mean) * spread / (spread + 1)
    soft = min((np.maximum(x - c, 0) for c in np.linspace(0, 4, 41)), key=lambda y: np.sum((y - theta) ** 2))
    errors = [float(np.sum((y - theta) ** 2)) for y in (denoised(5 * x, 5.0) / 5, np.maximum(x, 0), linear, soft)]
    assert errors[0] < 0.9 * errors[1]
    assert errors[0] < 1.1 * min(errors[2:]) + 0.01 * len(x)


def test_values_far_above_the_noise_stay_as_they_are(rng):
    x = 100 + rng.standard_normal(50)
    np.testing.assert_array_equal(denoised(x, 1.0), x)
    np.testing.assert_array_equal(denoised(np.array([-1.0, 2.0]), 0.0), [0.0, 2.0])
    assert (denoised(-np.ones(5), 1.0) >= 0).all()
