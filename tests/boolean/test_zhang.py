from __future__ import annotations

import numpy as np

from cofactor.boolean import error, pack, zhang


def test_balance_keeps_the_product_and_equals_the_maxima(rng):
    W, H = rng.random((9, 3)), 5 * rng.random((3, 7))
    new_W, new_H = zhang.balance(W, H)
    np.testing.assert_allclose(new_W @ new_H, W @ H)
    np.testing.assert_allclose(new_W.max(axis=0), new_H.max(axis=1))


def test_thresholds_are_as_good_as_rounding(tiles, rng):
    X, W, H = tiles()
    noisy_W, noisy_H = 0.3 * W + 0.2 * rng.random(W.shape), 0.3 * H + 0.2 * rng.random(H.shape)
    assert error(X, *zhang.threshold(pack(X), noisy_W, noisy_H)) <= error(X, W, H)
