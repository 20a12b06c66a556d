from __future__ import annotations

import numpy as np
import pytest

from cofactor.boolean import alb_prox, elb_prox, lam_at

GRID = np.linspace(0, 1, 100_001)
POINTS = np.concatenate([np.linspace(-0.6, 1.6, 45), [0.0, 0.499, 0.501, 1.0, 1e-9, 1 - 1e-9]])
POINTS = POINTS[np.abs(POINTS - 0.5) > 1e-6]  # at 1/2 both sides are equally good
REGULARIZATIONS = [(0.01, 0.01), (0.2, 0.0), (0.0, 0.7), (0.05, 3.0), (0.6, 100.0), (0.0, 0.0)]


@pytest.mark.parametrize(("kappa", "lam"), REGULARIZATIONS)
def test_elb_prox_is_the_brute_force_argmin(kappa, lam):
    low = kappa * GRID + lam * GRID**2 / 2
    costs = 0.5 * (GRID - POINTS[:, None]) ** 2 + np.minimum(low, low[::-1])
    np.testing.assert_allclose(elb_prox(POINTS, kappa, lam), GRID[costs.argmin(axis=1)], atol=1e-4)


@pytest.mark.parametrize(("kappa", "lam"), REGULARIZATIONS)
def test_alb_prox_is_the_brute_force_argmin_at_its_rate(kappa, lam):
    clipped = np.clip(POINTS, 0, 1)[:, None]
    d = np.minimum(clipped, 1 - clipped)
    rate = lam / np.maximum(-np.expm1(-10 * d), 1e-300)
    y = np.minimum(GRID, 1 - GRID)
    costs = 0.5 * (GRID - clipped) ** 2 + kappa * y + rate * y**2 / 2
    np.testing.assert_allclose(alb_prox(POINTS, kappa, lam), GRID[costs.argmin(axis=1)], atol=1e-4)


@pytest.mark.parametrize("prox", [elb_prox, alb_prox])
def test_proxes_keep_type_layout_and_input(prox):
    x = np.asfortranarray(np.linspace(-0.5, 1.5, 12, dtype=np.float32).reshape(3, 4))
    before = x.copy()
    out = prox(x, 0.01, 0.1)
    assert out.dtype == np.float32
    assert out.flags.f_contiguous
    np.testing.assert_array_equal(x, before)
    np.testing.assert_allclose(out, prox(x.astype(float), 0.01, 0.1), atol=1e-6)
    np.testing.assert_allclose(prox(x[:, ::2], 0.01, 0.1), out[:, ::2])


@pytest.mark.parametrize("prox", [elb_prox, alb_prox])
def test_proxes_are_symmetric_and_keep_bits(prox):
    x = np.linspace(0, 0.49, 20)
    np.testing.assert_allclose(prox(1 - x, 0.02, 0.3), 1 - prox(x, 0.02, 0.3), atol=1e-12)
    np.testing.assert_array_equal(prox(np.array([0.0, 1.0]), 0.02, 0.3), [0, 1])
    assert np.isin(prox(np.linspace(0, 1, 50), 0.6, 1.0), [0, 1]).all()


def test_the_rate_grows_and_stays_finite():
    assert lam_at(0, 0.01, rate=1.01) == 0.01
    assert lam_at(500, 0.01, rate=1.01) == pytest.approx(0.01 * 1.01**500)
    assert np.isfinite(np.float32(lam_at(10**9, 0.01, rate=1.5)))
    assert lam_at(7, 0.02, rate=1.0) == 0.02
    np.testing.assert_array_equal(elb_prox(np.array([0.4, 0.6]), 0.0, lam_at(10**9)).round(12), [0, 1])
