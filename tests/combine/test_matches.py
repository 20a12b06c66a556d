"""Matches of large factors: found in single precision where that is enough, and always those of double precision."""

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from cofactor.combine import align
from cofactor.combine.align import Lap, carried, drift, matched_cost


def near(rng, far, k=60, m=1500):
    """Factors that are close, some rows equal to others but for the last digits."""
    reference = rng.random((k, m)).astype(np.float32)
    reference[1] = reference[0] * np.float32(1 + 1e-6)
    H = (reference[rng.permutation(k)] + far * rng.random((k, m))).astype(np.float32)
    return H, reference


@pytest.mark.parametrize("far", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("scale", [1.0, 1e-18, 1e30])
def test_a_match_seen_in_single_precision_is_that_of_double(rng, far, scale):
    H, reference = (np.float32(scale) * F for F in near(rng, far))
    plain = np.zeros((len(H), len(reference)))
    plain[align._assigned(align.cost(H, reference))] = 1
    np.testing.assert_array_equal(Lap()(H, reference), plain)


@pytest.mark.parametrize("k", [60, 55])
def test_the_cost_of_a_match_is_the_least_of_all_assignments(rng, k):
    H, reference = (F.astype(np.float64) for F in near(rng, 1.0))
    table = 0.5 * cdist(H[:k], reference, "sqeuclidean")
    np.testing.assert_allclose(matched_cost(H[:k], reference), table[linear_sum_assignment(table)].sum(), rtol=1e-10)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("k", [60, 55])
def test_a_drift_in_pieces_is_the_norm_of_what_is_left(rng, order, k):
    H, reference = (np.asarray(F, order=order) for F in near(rng, 0.1))
    for other in (H, reference + np.float32(0.01)):
        expected = np.linalg.norm(other[:k] - carried(Lap()(other[:k], reference), reference))
        np.testing.assert_allclose(drift(other[:k], reference), expected, rtol=1e-12)
    few = reference[:k]
    np.testing.assert_allclose(drift(H, few), np.linalg.norm(H - carried(Lap()(H, few), few)), rtol=1e-12)


def test_most_matches_are_seen_in_single_precision(rng):
    reference = near(rng, 0.1)[1][2:]
    found = align._seen_in_single(reference[::-1] + np.float32(0.1), reference)
    assert found is not None
    np.testing.assert_array_equal(found[1], np.arange(len(reference))[::-1])
