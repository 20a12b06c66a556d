from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from cofactor.boolean import Relaxation, alb_prox, elb_prox, elbmf, greedy_refit, ipalm_step, loss


@pytest.mark.parametrize("prox", [elb_prox, alb_prox])
def test_factors_are_bits_and_close_to_planted(tiles, prox, rng):
    X, _, planted = tiles(300, 80, 5, noise=0.05)
    W, H = elbmf.factorize(X, 5, rng, params=Relaxation(prox=prox))
    assert W.shape == (300, 5)
    assert H.shape == (5, 80)
    assert W.dtype == H.dtype == np.uint8
    assert set(np.unique(H)) == set(np.unique(W)) == {0, 1}
    assert loss(X, greedy_refit(X, H), H) <= loss(X, greedy_refit(X, planted), planted) + 0.01


def test_a_growing_rate_makes_the_relaxed_factor_binary_by_itself(tiles, rng):
    X = elbmf.as_float(tiles(density=1.0)[0])
    _, H = elbmf.relax(X, 4, rng, params=Relaxation(rate=1.03), steps=500)
    assert np.abs(H - elbmf.binary(H)).max() < 1e-3


def test_step_equals_the_formula(rng):
    X, W, H = (rng.random(shape) for shape in [(9, 7), (9, 3), (3, 7)])
    W0, H0 = rng.random((9, 3)), rng.random((3, 7))
    params = Relaxation(beta=0.1)
    new_W, new_H = ipalm_step(X, W, H, W_prev=W0, H_prev=H0, t=20, params=params)
    lam = 0.01 * 1.01**20

    E = W + 0.1 * (W - W0)
    eta = 2 * 0.9 / 1.2 / np.linalg.norm(H @ H.T)
    expected = elb_prox(E - eta * (E @ H - X) @ H.T, 0.01 * eta, lam * eta)
    np.testing.assert_allclose(new_W, expected, atol=1e-12)

    E = H + 0.1 * (H - H0)
    eta = 2 * 0.9 / 1.2 / np.linalg.norm(new_W.T @ new_W)
    expected = elb_prox(E - eta * new_W.T @ (new_W @ E - X), 0.01 * eta, lam * eta)
    np.testing.assert_allclose(new_H, expected, atol=1e-12)


def test_sparse_equals_dense(tiles):
    X = tiles(noise=0.02)[0]
    dense = elbmf.relax(elbmf.as_float(X, np.float64), 4, steps=60)
    for form in (sparse.csr_array, sparse.csc_matrix):
        both = elbmf.relax(elbmf.as_float(form(X), np.float64), 4, steps=60)
        np.testing.assert_allclose(both[1], dense[1], atol=1e-9)


def test_a_client_without_ones_gets_empty_components():
    W, H = elbmf.factorize(np.zeros((10, 6), np.uint8), 2, steps=200)
    assert loss(np.zeros((10, 6), np.uint8), W, H) == 0


def test_same_seed_same_factors(tiles):
    X = tiles()[0]
    first, second = (elbmf.factorize(X, 4, np.random.default_rng(3), steps=50) for _ in range(2))
    np.testing.assert_array_equal(first[1], second[1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_step_in_few_passes_rounds_like_its_formula(dtype, order, rng):
    F, before, cross = (np.asarray(rng.random((40, 7)), dtype, order=order) for _ in range(3))
    gram, beta = (np.eye(7) + rng.random((7, 7))).astype(dtype), dtype(elbmf.DEFAULT.beta)
    eta = 2 * (1 - elbmf.DEFAULT.beta) / (1 + 2 * elbmf.DEFAULT.beta) / float(np.linalg.norm(gram))
    E = F + beta * (F - before)
    expected = elbmf.elb_prox((E @ gram - cross) * dtype(-eta) + E, 0.01 * eta, elbmf.lam_at(5) * eta)
    found = elbmf.descend(F, before, gram=gram, cross=cross, t=5, params=elbmf.DEFAULT)
    np.testing.assert_array_equal(found, expected)
