"""Laws of all local factorizers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from cofactor.boolean import asso, elbmf, error, grecond, greedy_refit, loss, mebf, zhang
from cofactor.types import DataError

FACTORIZERS = [asso.factorize, elbmf.factorize, grecond.factorize, mebf.factorize, zhang.factorize]
DISCRETE = [asso.factorize, grecond.factorize, mebf.factorize]


def name(factorize):
    return factorize.__module__.split(".")[-1]


@pytest.mark.parametrize("factorize", FACTORIZERS, ids=name)
def test_factors_are_bits_of_the_right_shape_and_sparse_equals_dense(factorize, tiles):
    X = tiles(noise=0.02)[0]
    W, H = factorize(X, 4, np.random.default_rng(1))
    assert (W.shape, H.shape) == ((120, 4), (4, 70))
    assert W.dtype == H.dtype == np.uint8
    assert max(W.max(), H.max()) == 1
    assert error(X, W, H) < X.sum()
    for form in (sparse.csr_matrix, sparse.csc_array):
        other = factorize(form(X), 4, np.random.default_rng(1))
        assert abs(loss(X, *other) - loss(X, W, H)) < 0.02
        if factorize in DISCRETE:
            np.testing.assert_array_equal(other[1], H)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("factorize", [asso.factorize, grecond.factorize], ids=name)
def test_planted_tiles_without_noise_are_recovered(factorize, tiles, seed):
    X, _, _ = tiles(200, 100, 4, density=1.0, seed=seed)
    _, H = factorize(X, 4, np.random.default_rng(0))
    assert error(X, greedy_refit(X, H), H) == 0


@pytest.mark.parametrize("factorize", [asso.factorize, elbmf.factorize, zhang.factorize], ids=name)
def test_noisy_tiles_are_nearly_recovered(factorize, tiles):
    X, _, planted = tiles(400, 80, 4, noise=0.05)
    _, H = factorize(X, 4, np.random.default_rng(0))
    assert loss(X, greedy_refit(X, H), H) <= loss(X, greedy_refit(X, planted), planted) + 0.02


@pytest.mark.parametrize("factorize", FACTORIZERS, ids=name)
def test_data_without_ones_and_too_large_a_rank_give_empty_components(factorize):
    zeros = np.zeros((6, 5), np.uint8)
    assert loss(zeros, *factorize(zeros, 3, np.random.default_rng(0))) == 0
    W, H = factorize(np.eye(4, dtype=np.uint8), 6, np.random.default_rng(0))
    assert (W.shape, H.shape) == ((4, 6), (6, 4))


@pytest.mark.parametrize("factorize", FACTORIZERS, ids=name)
def test_other_values_are_refused(factorize):
    with pytest.raises(DataError, match="binarize"):
        factorize(np.array([[0.0, 3.0]]), 1, np.random.default_rng(0))
