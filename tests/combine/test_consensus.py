"""Consensus of many starts: planted components come back, strays are left out, silhouettes are scikit-learn's."""

import numpy as np
import pytest
from sklearn.metrics import silhouette_samples

from cofactor import run
from cofactor.combine import consensus, summaries
from cofactor.data import synthetic
from cofactor.local.stats import normalize
from cofactor.methods import catalog
from cofactor.methods.alone import Alone
from cofactor.methods.summed import Summed
from cofactor.types import CofactorError


def starts(n=20, *, k=4, m=30, noise=0.05, strays=0.0, seed=0):
    draw = np.random.default_rng(seed)
    planted = normalize(draw.gamma(0.3, size=(k, m)))
    found = []
    for _ in range(n):
        H = normalize(np.maximum(planted[draw.permutation(k)] + noise * draw.random((k, m)), 0))
        lost = draw.random(k) < strays
        H[lost] = normalize(draw.gamma(0.3, size=(int(lost.sum()), m))) if lost.any() else H[lost]
        found.append(H * draw.uniform(0.5, 2, (k, 1)))
    return planted, found


def test_planted_components_come_back():
    planted, factors = starts()
    found = consensus.agree(factors)
    cosines = normalize(planted) @ found.factor.T
    assert sorted(cosines.argmax(axis=1)) == [0, 1, 2, 3]
    assert cosines.max(axis=1).min() > 0.98
    assert found.silhouette.min() > 0.5
    np.testing.assert_array_equal(found.sizes, 20)


def test_strays_are_left_out():
    planted, factors = starts(strays=0.25)
    found = consensus.agree(factors)
    assert (found.cluster == -1).sum() > 10
    assert (normalize(planted) @ found.factor.T).max(axis=1).min() > 0.98


def test_silhouettes_are_those_of_scikit_learn():
    _, factors = starts(noise=0.6)
    found = consensus.agree(factors, density=2.0)
    rows = normalize(np.concatenate(factors))
    expected = silhouette_samples(rows, found.cluster)
    np.testing.assert_allclose(found.silhouette, [expected[found.cluster == c].mean() for c in range(4)], atol=1e-7)


def test_the_largest_cluster_comes_first():
    _, factors = starts(strays=0.4, seed=3)
    sizes = consensus.agree(factors).sizes
    assert (np.diff(sizes) <= 0).all()


def test_one_component_is_stable_by_size_alone():
    _, factors = starts(k=1)
    found = consensus.agree(factors)
    assert found.factor.shape == (1, 30)
    np.testing.assert_array_equal(found.silhouette, 0)


def test_refusals():
    _, factors = starts()
    with pytest.raises(CofactorError, match="at least two starts"):
        consensus.agree(factors[:1])
    with pytest.raises(CofactorError, match=r"density: expected a threshold that leaves more than 4 components"):
        consensus.agree(factors, density=1e-9)


def test_the_clustergram_shows_the_clusters():
    _, factors = starts(k=3)
    shown = consensus.agree(factors).clustergram
    blocks = np.kron(np.eye(3), np.ones((20, 20)))
    assert shown.shape == (60, 60)
    assert shown[blocks == 1].max() < shown[blocks == 0].min()
    assert consensus.agree(starts(n=100)[1]).clustergram.shape[0] <= consensus.SIDE


def test_starts_of_a_federation_agree_with_the_exact_factor():
    planted = synthetic.blocks(4, 80, features=40, rank=4, seed=2)
    found = run(catalog.make("consensus", 4, starts=20), planted.Xs, seed=0)
    exact = run(catalog.make("exact", 4), planted.Xs, seed=0)
    assert (normalize(found.factor) @ normalize(exact.factor).T).max(axis=1).min() > 0.97
    assert found.silhouette.min() > 0.7
    assert (np.diff(found.share) <= 0).all()
    with pytest.raises(CofactorError, match="at least two"):
        catalog.make("consensus", 4, starts=1)


def test_starts_of_one_client_may_differ():
    """Silhouettes are 1 by construction where a summary has just the components that are asked for."""
    planted = synthetic.blocks(1, 100, features=30, rank=4, seed=2).Xs
    noise = [np.random.default_rng(0).random((100, 30))]
    sure, unsure = (run(catalog.make("consensus", 4, starts=12, density=2.0), Xs).silhouette for Xs in (planted, noise))
    assert sure.min() > 0.8
    assert np.all(unsure < 0.8)
    by_construction = run(catalog.make("consensus", 4, starts=12, local_rank=4), noise)
    assert np.isnan(by_construction.silhouette).all()


def test_from_the_medians_the_factor_goes_on_on_the_union(monkeypatch):
    draw = np.random.default_rng(3)
    Xs = [draw.gamma(2, size=(20, 5)) @ draw.gamma(1, size=(5, 40)) + 4 + draw.random((20, 40)) for _ in range(3)]
    union = [summaries.summarize(*Alone(Summed(9))(X, 9, draw), square=float(np.sum(X**2))) for X in Xs]
    found = summaries.agreed(union, 5, starts=12)
    monkeypatch.setattr(summaries, "REFITTED", 0)
    medians = summaries.agreed(union, 5, starts=12)
    np.testing.assert_array_equal(found.silhouette, medians.silhouette)
    assert summaries.loss(union, found.factor) < summaries.loss(union, medians.factor)


def test_a_consensus_settles_by_rounds_of_exact():
    Xs = synthetic.blocks(3, 40, features=20, rank=3, seed=1).Xs
    agreed = run(catalog.make("consensus", 3, starts=6), Xs)
    settled = run(catalog.make("consensus", 3, starts=6, settles=5), Xs)
    by_hand = run(catalog.make("exact", 3, start="random"), Xs, rounds=5, start=agreed.factor)
    np.testing.assert_allclose(settled.factor, by_hand.factor, atol=1e-12)
    assert len(settled.history) == 6
    np.testing.assert_array_equal(settled.silhouette, agreed.silhouette)
    np.testing.assert_array_equal(settled.clustergram, agreed.clustergram)
    with pytest.raises(CofactorError, match=r"option settles of 'consensus': expected a whole number >= 0"):
        catalog.make("consensus", 3, settles=-1)
