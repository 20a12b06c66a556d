"""The last descent of a union: on rows that are drawn, with the grams of the clients' codes."""

import numpy as np
import pytest

from cofactor import run
from cofactor.combine import summaries
from cofactor.local import unions
from cofactor.local.brief import Brief
from cofactor.local.descents import Descents
from cofactor.local.refit import refit
from cofactor.local.stacked import Stacked, stacked
from cofactor.local.stats import squares
from cofactor.local.threads import lend
from cofactor.local.unions import search
from cofactor.methods.alone import Alone
from cofactor.methods.summed import Summed


def mixed(n, m, k, seed):
    """Rows that mix all components: few of them lie in the cone of so many others."""
    rng = np.random.default_rng(seed)
    return rng.exponential(size=(n, k)) @ rng.exponential(size=(k, m)) ** 2 + 0.3 * rng.exponential(size=(n, m))


@pytest.fixture(scope="module")
def Xs():
    return np.array_split(mixed(240, 30, 8, 0), 6)


@pytest.fixture(scope="module")
def union(Xs):
    own = [Alone(Summed(6))(X, 6, np.random.default_rng(j)) for j, X in enumerate(Xs)]
    return [summaries.summarize(W, H, square=float((X**2).sum())) for X, (W, H) in zip(Xs, own)]


def missed(Xs, H):
    X = np.vstack(Xs)
    return squares(X, refit(X, H), H)[0]


@pytest.mark.parametrize("count", [1, 4])
def test_drawn_codes_are_non_negative_and_have_the_grams(union, count):
    held = stacked(union)
    rows, V = held.drawn(count, np.random.default_rng(0))
    assert V.shape == (6, 6 * count, 6)
    assert V.min() >= 0
    off = np.linalg.norm(V.transpose(0, 2, 1) @ V - held.grams, axis=(1, 2)) / np.linalg.norm(held.grams, axis=(1, 2))
    assert off.max() < (0.1 if count == 1 else 0.02)
    np.testing.assert_allclose(rows.factors, V @ held.factors)
    assert rows.rest == held.rest


def test_drawn_rows_of_empty_and_padded_summaries_are_zero(union):
    few = summaries.summarize(np.ones((3, 2)), union[0].factor[:2], square=10.0)
    nothing = summaries.Summary(union[0].factor, np.zeros((6, 6)), 1.0, 0.0)
    rows, V = stacked([union[0], few, nothing]).drawn(4, np.random.default_rng(0))
    assert np.isfinite(V).all()
    assert not V[1, :, 2:].any()
    assert not rows.factors[2].any()


def test_free_codes_start_where_the_others_ended_and_only_go_down(union):
    held = stacked(union)
    cone = Descents.of(held, [np.random.default_rng(0).uniform(size=(5, 30))]).advance(40)
    free = cone.freed(4, np.random.default_rng(0))
    (before,) = free.codes(0)
    assert before == pytest.approx(cone.codes(0)[0], rel=0.05)
    assert free.advance(40).loss < 0.97 * before


def test_the_factor_ends_closer_to_the_pooled_one(Xs, union):
    floor = min(missed(Xs, run(Summed(5), [np.vstack(Xs)], rounds=400, seed=s).factor) for s in (0, 1))
    cone, free = (missed(Xs, summaries.search(union, 5, drawn=drawn).factor) / floor for drawn in (0, 4))
    assert free < 1 + 0.7 * (cone - 1)
    assert free < 1.02**2


def test_the_gram_of_all_codes_explains_the_drawn_rows(union):
    found = summaries.search(union, 5, drawn=4)
    assert found.gram.shape == (5, 5)
    np.testing.assert_allclose(found.gram, np.einsum("crk,crl->kl", found.codes, found.codes))
    energy = np.vdot(found.gram, found.factor @ found.factor.T)
    assert energy == pytest.approx(sum(s.square for s in union), rel=0.1)


def test_a_union_of_one_row_per_client_is_its_own_factor():
    one = Stacked(np.eye(3)[:, None], np.ones((3, 1, 1)))
    rows, V = one.drawn(4, np.random.default_rng(0))
    np.testing.assert_allclose(np.einsum("cpr,cps->crs", V, V), np.ones((3, 1, 1)))
    assert rows.square == pytest.approx(one.square)


def test_a_search_gets_out_of_a_minimum_in_which_one_component_is_two_and_two_are_one():
    """A strong one in halves, two weak ones in one: no descent leaves it."""
    rng = np.random.default_rng(0)
    H = rng.exponential(size=(6, 40)) * (rng.uniform(size=(6, 40)) < 0.4)
    H[0] *= 5
    W = rng.exponential(size=(4, 30, 6)) * (rng.uniform(size=(4, 30, 6)) < 0.4)
    union = Stacked(W @ H + 0.02 * rng.exponential(size=(4, 30, 40)), np.tile(np.eye(30), (4, 1, 1)))
    half = np.arange(40) % 2 == 0
    stuck = Descents.of(union, [np.vstack([H[0] * half, H[0] * ~half, H[1:4], H[4] + H[5]])]).advance(200)
    planted = Descents.of(union, [H]).advance(200)
    assert stuck.loss > 3 * planted.loss
    assert unions._renewed(stuck, 6).advance(60).loss < 1.05 * planted.loss


def test_a_run_in_which_nothing_pays_stays_as_it_is(union):
    best = Descents.of(stacked(union), [np.random.default_rng(0).uniform(size=(1, 30))]).advance(60)
    assert unions._renewed(best, 6) is best


def test_a_start_is_searched_briefly_and_ends_near_the_thorough_one(union, monkeypatch):
    """It takes a quarter of the iterations less, and those on all clients are few."""
    taken = []
    improve = Descents._improve_codes
    monkeypatch.setattr(Descents, "_improve_codes", lambda runs, sweeps: taken.extend(runs.F) or improve(runs, sweeps))
    losses, counts = [], []
    for iterations in (200, 0):
        found = search(union, 5, seed=0, restarts=24, iterations=iterations)
        counts.append(len(taken))
        losses.append(summaries.loss(union, found.factor) + stacked(union).rest)
    assert counts[1] - counts[0] < 0.8 * counts[0]
    assert losses[1] <= 1.05 * losses[0]


@pytest.mark.parametrize("threads", [2, 5])
def test_no_bit_of_a_search_depends_on_the_threads_that_share_its_runs(union, threads):
    """Runs go on side by side, as many as a thread has, and some of them settle before others."""
    with lend(1):
        alone = search(union, 5, seed=0, restarts=11, iterations=60)
    with lend(threads):
        shared = search(union, 5, seed=0, restarts=11, iterations=60)
    np.testing.assert_array_equal(alone.factor, shared.factor)
    np.testing.assert_array_equal(np.stack(alone.runs), np.stack(shared.runs))


ROUNDS = 30
"""After which some runs have settled, and others not."""


def test_a_run_ends_as_it_does_alone_whatever_is_beside_it(union):
    held, starts = stacked(union), np.random.default_rng(3).uniform(size=(9, 5, 30))
    together = Descents.of(held, list(starts)).advance(ROUNDS)
    assert 0 < together.settled.sum() < 9
    for i, start in enumerate(starts):
        alone = Descents.of(held, [start]).advance(ROUNDS)
        np.testing.assert_array_equal(alone.F[0], together.F[i])
        assert alone.loss[0] == together.loss[i]


def counted(seed):
    """Counts of a few programs at one or three clients, in single precision."""
    rng = np.random.default_rng(seed)
    n, m, k = rng.integers(200, 600), rng.integers(60, 200), int(rng.integers(4, 16))
    X = rng.poisson(3 * rng.gamma(0.3, 1, (n, k)) @ rng.gamma(0.3, 1, (k, m))).astype(np.float32)
    return [X] if seed % 2 else np.array_split(X, 3), k


@pytest.mark.parametrize("iterations", [0, 200])
def test_rounding_does_not_choose_among_starts_that_end_in_one_minimum(iterations):
    """As on another processor, or on a device; what such changes grow to on the way to a minimum is far less."""
    apart, rng = [], np.random.default_rng(0)
    for seed in range(12):
        Xs, k = counted(seed)
        own = [Brief(6, 1024)(X, 2 * k, np.random.default_rng(j)) for j, X in enumerate(Xs)]
        union = [summaries.summarize(W, H, square=float((X**2).sum())) for X, (W, H) in zip(Xs, own)]
        rounded = [s._replace(factor=s.factor * rng.uniform(1 - 1e-6, 1 + 1e-6, s.factor.shape)) for s in union]
        a, b = (search(u, k, seed=0, restarts=24, iterations=iterations).factor for u in (union, rounded))
        apart.append(np.linalg.norm(a - b) / np.linalg.norm(a))
    assert max(apart) < 1e-3
