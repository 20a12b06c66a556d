"""Barycenters: known answers on factors small enough to see."""

import numpy as np
import pytest

from cofactor import run
from cofactor.combine import barycenter
from cofactor.combine.align import Lap, LapRho
from cofactor.combine.barycenter import (
    SAME,
    FixedPoint,
    FuzzyCMeans,
    Greedy,
    Hierarchical,
    KMeans,
    aligned_mean,
    revived,
    weighted_mean,
)
from cofactor.local.threads import lend
from cofactor.methods import catalog
from cofactor.schedules import Switch

ALL = barycenter.catalog()
E = np.eye(3)


def unit(H):
    return H / np.linalg.norm(H, axis=1, keepdims=True)


def by_angle(H):
    return H[np.lexsort(H.T)]


@pytest.fixture
def planted(rng):
    """Six noisy, permuted copies of a factor and how far each is from it."""
    H = unit(rng.uniform(size=(4, 30)) * (rng.uniform(size=(4, 30)) < 0.4))
    copies = [unit(H + 0.05 * rng.uniform(size=H.shape))[rng.permutation(4)] for _ in range(6)]
    return H, copies


@pytest.mark.parametrize("name", ALL)
def test_centre_of_two_tilted_copies_is_in_the_middle(name):
    """Rows e_i tilted by +-d to a fourth axis in turn: the middle is e_i tilted by half."""
    first = np.hstack([E, np.zeros((3, 1))])
    second = unit(np.hstack([E, np.full((3, 1), 0.4)]))[[2, 0, 1]]
    expected = unit(first + unit(np.hstack([E, np.full((3, 1), 0.4)])))
    H = ALL[name]([first, second], np.ones(2), first, 1)
    np.testing.assert_allclose(by_angle(H), by_angle(expected), atol=1e-3)


@pytest.mark.parametrize("name", ALL)
def test_centre_of_many_noisy_copies_is_nearer_than_any_copy(name, planted, matched_cosines):
    H, copies = planted
    for t in (0, 1):
        center = ALL[name](copies, np.ones(6), unit(H + 0.05), t)
        assert matched_cosines(center, H).min() > min(matched_cosines(C, H).min() for C in copies)


@pytest.mark.parametrize("name", ALL)
def test_zero_weight_is_no_client(name, planted, matched_cosines, rng):
    _, copies = planted
    stranger = unit(rng.uniform(size=(4, 30)))
    with_, without = (
        ALL[name](f, w, copies[0], 1)
        for f, w in (([*copies, stranger], np.array([1.0] * 6 + [0.0])), (copies, np.ones(6)))
    )
    np.testing.assert_allclose(matched_cosines(with_, without), 1, atol=1e-6)


def test_fixed_point_is_one(planted):
    """Aligning to the result and averaging gives the result."""
    _, copies = planted
    center = FixedPoint()(copies, np.ones(6), copies[0], 1)
    again = np.mean([Lap()(center, C) @ C for C in copies], axis=0)
    np.testing.assert_allclose(unit(again), center, atol=1e-12)


def test_fixed_point_starts_at_the_heaviest_client_in_the_first_round(planted, rng):
    _, copies = planted
    nonsense = unit(rng.uniform(size=(4, 30)))
    first = FixedPoint()(copies, np.array([1, 1, 5, 1, 1, 1.0]), nonsense, 0)
    told = FixedPoint()(copies, np.array([1, 1, 5, 1, 1, 1.0]), copies[2], 1)
    np.testing.assert_array_equal(first, told)


def test_fixed_point_follows_a_schedule_of_alignments(planted):
    _, copies = planted
    switched = FixedPoint(Switch(Lap(), LapRho()))
    for t, align in ((0, Lap()), (1, LapRho())):
        expected = FixedPoint(align)(copies, np.ones(6), copies[0], t)
        np.testing.assert_array_equal(switched(copies, np.ones(6), copies[0], t), expected)


def test_rows_average_over_matched_clients_only():
    center = np.array([[1.0, 0.0], [0.0, 1.0]])
    plans = [np.eye(2), np.array([[1.0, 0.0], [0.0, 0.0]])]
    factors = [np.array([[2.0, 0.0], [0.0, 4.0]]), np.array([[8.0, 0.0], [0.0, 100.0]])]
    np.testing.assert_allclose(aligned_mean(center, factors, np.array([1.0, 2.0]), plans), [[6, 0], [0, 4]])


def test_rows_that_nobody_matches_stay():
    center = np.array([[1.0, 2.0]])
    np.testing.assert_array_equal(aligned_mean(center, [np.ones((1, 2))], np.ones(1), [np.zeros((1, 1))]), center)


@pytest.mark.parametrize("kind", [Greedy, Hierarchical])
def test_sequential_and_tree_means_weigh_every_client_alike(kind):
    """With components in the same order both are plain weighted means, whatever the order of joining."""
    factors = [np.diag([1.0, 1.0]) + 0.1 * j * np.array([[0, 1], [0, 0]]) for j in range(5)]
    weights = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    expected = unit(np.average(factors, axis=0, weights=weights))
    np.testing.assert_allclose(kind()(factors, weights, factors[0], 0), expected, rtol=1e-12)


def test_kmeans_finds_separated_groups(planted, matched_cosines):
    H, copies = planted
    centers = KMeans()(copies, np.ones(6), copies[0], 0)
    rows = np.vstack(copies)
    nearest = (rows @ H.T).argmax(axis=1)
    means = unit(np.stack([rows[nearest == i].mean(axis=0) for i in range(4)]))
    np.testing.assert_allclose(matched_cosines(centers, means), 1, atol=1e-9)


def test_fuzzy_means_harden_to_kmeans(planted, matched_cosines):
    _, copies = planted
    hard, fuzzy = (kind(copies, np.ones(6), copies[0], 0) for kind in (KMeans(), FuzzyCMeans(fuzzifier=1.05)))
    np.testing.assert_allclose(matched_cosines(fuzzy, hard), 1, atol=1e-6)


def test_nearest_neighbours_do_not_collapse(rng):
    """Several components may choose one neighbour; iterated, one of ten distinct rows was left."""
    Xs = [rng.gamma(0.3, size=(40, 6)) @ rng.gamma(0.4, size=(6, 30)) for _ in range(5)]
    H = run(catalog.make("fnmf-knn", 6), Xs, rounds=10).factor
    assert H.any(axis=1).all()
    assert np.triu(H @ H.T, 1).max() < SAME


def test_clients_with_too_few_rows_do_not_erase_components(rng):
    """Seven rows are three components of a client, the other three of its upload are zeros."""
    programs = rng.gamma(0.3, size=(6, 30))
    Xs = [rng.gamma(0.3, size=(7, 6)) @ programs for _ in range(12)]
    out = run(catalog.make("oneshot-lap", 6), Xs)
    assert out.factor.any(axis=1).all()
    assert out.empty == ()


def test_what_clients_do_not_have_does_not_come_back():
    """Two distinct rows make two components, however many were asked for."""
    factors = [np.eye(3, 4) * np.array([[1], [1], [0]])] * 2
    center = revived(np.zeros((3, 4)), factors, np.ones(2))
    np.testing.assert_array_equal(np.sort(center.sum(axis=1)), [0, 1, 1])


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_mean_in_pieces_is_numpys_to_the_bit(rng, order):
    Hs = [np.asarray(rng.random((30, 700)), np.float32, order=order) for _ in range(5)]
    weights = rng.random(5)
    expected = np.average(np.stack([H.astype(np.float64) for H in Hs]), axis=0, weights=weights)
    np.testing.assert_array_equal(weighted_mean(Hs, weights), expected)
    with lend(3):
        np.testing.assert_array_equal(
            weighted_mean(Hs * 20, np.tile(weights, 20)), weighted_mean(Hs * 20, np.tile(weights, 20))
        )
