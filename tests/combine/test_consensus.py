"""Consensus of many starts: planted components come back, strays are left out, silhouettes are scikit-learn's."""

import numpy as np
import pytest
from sklearn.metrics import silhouette_samples

from cofactor.combine import consensus
from cofactor.local.stats import normalize
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
    assert found.stability.min() > 0.5
    np.testing.assert_array_equal(found.sizes, 20)


def test_strays_are_left_out():
    planted, factors = starts(strays=0.25)
    found = consensus.agree(factors)
    assert (found.cluster == -1).sum() > 10
    assert (normalize(planted) @ found.factor.T).max(axis=1).min() > 0.98


def test_stability_is_the_silhouette():
    _, factors = starts(noise=0.6)
    found = consensus.agree(factors, density=2.0)
    rows = normalize(np.concatenate(factors))
    expected = silhouette_samples(rows, found.cluster)
    np.testing.assert_allclose(found.stability, [expected[found.cluster == c].mean() for c in range(4)], atol=1e-7)


def test_the_largest_cluster_comes_first():
    _, factors = starts(strays=0.4, seed=3)
    sizes = consensus.agree(factors).sizes
    assert (np.diff(sizes) <= 0).all()


def test_one_component_is_stable_by_size_alone():
    _, factors = starts(k=1)
    found = consensus.agree(factors)
    assert found.factor.shape == (1, 30)
    np.testing.assert_array_equal(found.stability, 0)


def test_refusals():
    _, factors = starts()
    with pytest.raises(CofactorError, match="at least two starts"):
        consensus.agree(factors[:1])
    with pytest.raises(CofactorError, match=r"density: expected a threshold that leaves more than 4 components"):
        consensus.agree(factors, density=1e-9)
