"""Half-steps of codes that are done block by block, against the single steps."""

import numpy as np
import pytest

from cofactor.local import arrays, half_steps, threads
from cofactor.local.half_steps import improve_codes
from cofactor.local.kernels import cpu, dense_products, lines, one_pass, thin
from cofactor.local.penalties import UNPENALIZED
from cofactor.local.threads import lend
from cofactor.local.updates import HALS


def made(n, m, k, dtype):
    rng = np.random.default_rng(0)
    return [rng.uniform(size=side).astype(dtype) for side in ((n, m), (k, m), (n, k))]


@pytest.fixture
def little_is_enough(monkeypatch):
    for module, name in ((thin, "MANY"), (dense_products, "LEAST"), (one_pass, "BYTES"), (threads, "WORTH")):
        monkeypatch.setattr(module, name, 1)


def improved(X, H, F):
    fresh = np.zeros(len(X), bool)
    how = {"t": 0, "momentum": 0.5, "changes": False, "penalties": UNPENALIZED}
    return improve_codes(HALS(3), X, H, F, fresh, **how)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sides", [(2 * 512 + 301, 130, 13), (5000, 64, 5), (7, 100, 9), (2051, 200, 128)])
def test_one_pass_is_the_single_steps_to_the_bit(little_is_enough, monkeypatch, dtype, sides):
    X, H, F = made(*sides, dtype)
    if not lines.has_long_vectors():
        pytest.skip("needs registers of a line of cache")
    assert one_pass.fits(X, F)
    found = [improved(X, H, F)]
    for count in (2, 3, 4):
        with lend(count):
            found.append(improved(X, H, F))
    monkeypatch.setattr(one_pass, "fits", lambda *_: False)
    found.append(improved(X, H, F))
    monkeypatch.setattr(half_steps.descent, "hals_ahead", in_turn)
    found.append(improved(X, H, F))
    for other in found[1:]:
        for a, b in zip(found[0][:3], other[:3], strict=True):
            np.testing.assert_array_equal(a, b)


def in_turn(F, gram, cross, sweeps, momentum):
    new = cpu.hals_sweeps(F, gram, cross, sweeps)
    ahead = cpu.extrapolate(new, F, momentum)
    return new, ahead, arrays.gram(ahead)


def test_with_short_vectors_every_step_is_for_itself(little_is_enough, monkeypatch):
    X, H, F = made(300, 70, 6, np.float64)
    here = improved(X, H, F)
    monkeypatch.setattr(lines, "has_long_vectors", lambda: False)
    assert not one_pass.fits(X, F)
    for a, b in zip(here[:3], improved(X, H, F)[:3], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)


def test_what_is_not_many_dense_rows_does_not_fit(monkeypatch):
    monkeypatch.setattr(lines, "has_long_vectors", lambda: True)
    X, _, F = made(thin.MANY, 100, 20, np.float64)
    assert one_pass.fits(X, F)
    assert not one_pass.fits(X[:-1], F[:-1])
    assert not one_pass.fits(np.asfortranarray(X), F)
    assert not one_pass.fits(X.astype(np.float32), F)
    assert not one_pass.fits(X, np.asfortranarray(F))
    assert not one_pass.fits(X[:, ::2], F)
    for count in (2, 3, 4, 7):
        with lend(count):
            assert one_pass.fits(X, F) == (count in {2, 4})


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (1, 7), (5, 4), (63, 16), (64, 12), (65, 30), (700, 50), (1500, 128)])
def test_grams(little_is_enough, dtype, n, k):
    F = np.random.default_rng(1).normal(size=(n, k)).astype(dtype)
    G = arrays.gram(F)
    np.testing.assert_array_equal(G, G.T)
    np.testing.assert_allclose(G, F.astype(float).T @ F, atol=2e-4 if dtype == np.float32 else 1e-12)
    for count in (2, 3):
        with lend(count):
            np.testing.assert_array_equal(arrays.gram(F), G)


@pytest.mark.parametrize("turn", [np.asfortranarray, lambda F: F[::2], lambda F: F.astype(np.int64)])
def test_other_grams_are_those_of_numpy(little_is_enough, turn):
    F = turn(10 * np.random.default_rng(1).normal(size=(90, 5)))
    np.testing.assert_allclose(arrays.gram(F), F.T @ F, atol=1e-10)


def test_long_grams_with_short_vectors(little_is_enough, monkeypatch):
    monkeypatch.setattr(lines, "has_long_vectors", lambda: False)
    F = np.random.default_rng(1).normal(size=(2 * dense_products.FEW + 1, 5))
    np.testing.assert_allclose(arrays.gram(F), F.T @ F, rtol=1e-12)
