from __future__ import annotations

import math
import time

import numpy as np
import pytest
from scipy import sparse, stats

from cofactor.privacy import clip, samplers
from cofactor.privacy.accountant import Unit, spend
from cofactor.privacy.errors import DtypeError, NotFiniteError, OutOfRangeError, ParameterError
from cofactor.privacy.grid import STEP, from_grid, on_grid, to_grid
from cofactor.privacy.mechanisms import LEAST, Gaussian
from cofactor.privacy.randomness import Source

N = 60_000


def fits(draws, chance, reach):
    """Chi-square of integer draws against probabilities on [-reach, reach], the rest in one cell."""
    k = np.arange(-reach, reach + 1)
    expected = np.append(chance(k), 0) * draws.size
    expected[-1] = max(draws.size - expected.sum(), 1e-9)
    observed = np.append([(draws == i).sum() for i in k], (np.abs(draws) > reach).sum())
    big = expected > 5
    statistic = ((observed - expected)[big] ** 2 / expected[big]).sum()
    return stats.chi2.sf(statistic, big.sum() - 1) > 1e-4


@pytest.mark.parametrize("slack", [2.0**-40, 0.05])
def test_samplers_have_their_law(slack, monkeypatch):
    # a wide slack sends many coins to the many-digit arithmetic: both ways must draw the same law
    monkeypatch.setattr(samplers, "SLACK", slack)
    source, n = Source(insecure_seed=1), N if slack < 0.01 else N // 4
    for sigma in (0.4, 1.0, 3.7):
        rounded = lambda k, s=sigma: stats.norm.cdf((k + 0.5) / s) - stats.norm.cdf((k - 0.5) / s)  # noqa: E731
        assert fits(samplers.rounded_gaussian(sigma, n, source), rounded, 15)


def test_rounding_is_settled_where_floats_end():
    wide = samplers.rounded_gaussian(samplers.MAX_SCALE, 2000, Source(insecure_seed=3))
    assert stats.kstest(wide / samplers.MAX_SCALE, "norm").pvalue > 1e-4
    assert set(np.unique(wide & 1)) == {0, 1}


def test_many_draws_are_independent_blocks():
    # of more than a block: nothing is drawn twice, and the law is that of one block
    many = samplers.rounded_gaussian(1e9, 3 * samplers.BLOCK + 5, Source(seed=bytes(range(32))))
    blocks = [many[i : i + samplers.BLOCK] for i in range(0, many.size, samplers.BLOCK)]
    assert [block.size for block in blocks] == [samplers.BLOCK] * 3 + [5]
    assert np.unique(many).size > 0.999 * many.size
    assert np.abs(np.corrcoef(blocks[:3]) - np.eye(3)).max() < 0.02
    assert stats.kstest(many / 1e9, "norm").pvalue > 1e-4
    assert samplers.rounded_gaussian(1.0, 0, Source()).shape == (0,)


def test_secure_source_by_default():
    assert Source().secure
    assert not Source(insecure_seed=0).secure
    assert (Source(insecure_seed=5).words(4) == Source(insecure_seed=5).words(4)).all()
    assert (Source().words(4) != Source().words(4)).any()
    # a secret seed gives the same bits to whoever knows it, other bits in every draw, and even ones
    again, seed = (Source(seed=bytes(32)) for _ in range(2)), Source(seed=bytes([1] * 32))
    one, other = ((source.words(4), source.words(4)) for source in again)
    np.testing.assert_equal(one, other)
    assert not set(one[0]) & set(one[1])
    assert stats.kstest(seed.words(20_000) / 2.0**64, "uniform").pvalue > 1e-4


def test_noise_has_its_scale_and_lies_on_the_grid():
    mechanism = Gaussian(2.0, 3.0)
    values = np.linspace(-5, 5, 20_000).reshape(100, 200)
    started = time.perf_counter()
    _, cost = mechanism(values)
    assert time.perf_counter() - started < 1
    noisy, _ = mechanism(values, Source(insecure_seed=6))
    assert noisy.shape == values.shape
    np.testing.assert_array_equal(noisy, np.rint(noisy / STEP) * STEP)
    assert stats.kstest((noisy - values).ravel(), stats.norm(0, 6).cdf).pvalue > 1e-5
    assert (cost.multiplier, cost.unit, cost.private) == (2.0, Unit.RECORD, True)


def test_insecure_noise_is_on_record_and_repeats():
    a, cost = Gaussian(1.0, 1.0)(np.zeros(5), Source(insecure_seed=4))
    b, _ = Gaussian(1.0, 1.0)(np.zeros(5), Source(insecure_seed=4))
    np.testing.assert_array_equal(a, b)
    assert not spend([cost], 1e-5).private
    assert "private: no" in str(spend([cost], 1e-5))


def test_no_noise_is_not_private():
    values, cost = Gaussian(0.0, 1.0)(np.array([0.25, -2.0]))
    np.testing.assert_array_equal(values, [0.25, -2.0])
    assert spend([cost], 1e-5).epsilon == math.inf


def test_parts_of_noise_add_up():
    parts = 14
    noise = Gaussian(2.0, 1.0, parts=parts)
    source = Source(insecure_seed=2)
    total = sum(noise(np.zeros(4000), source)[0] for _ in range(parts))
    assert stats.kstest(total, stats.norm(0, 2).cdf).pvalue > 1e-4
    with pytest.raises(ParameterError, match="sigma >= 8 grid steps"):
        Gaussian(1e-7, 1.0, parts=parts)(np.zeros(3))
    assert noise(np.zeros(3))[1].honest == parts


def sum_of_rounded(sigma, clients, reach):
    """Chances of the sum of rounded Gaussians at -reach..reach: those of one, convolved with themselves."""
    k = np.arange(-reach, reach + 1)
    one = stats.norm.cdf(k + 0.5, scale=sigma) - stats.norm.cdf(k - 0.5, scale=sigma)
    found = one
    for _ in range(clients - 1):
        found = np.convolve(found, one)[reach : 3 * reach + 1]
    return found


def rounded_sum(sigma, clients, reach):
    """Chances of round(N + U_2 + ... + U_h): the density of N + U_1 + ... + U_h at the integers, from its transform."""
    w, step = np.linspace(-9 / sigma, 9 / sigma, 20_001, retstep=True)
    bell = np.exp(-clients * (sigma * w) ** 2 / 2) * np.sinc(w / 2 / np.pi) ** clients
    return np.array([np.sum(bell * np.cos(w * k)) for k in range(-reach, reach + 1)]) * step / (2 * np.pi)


@pytest.mark.parametrize("clients", [2, 3, 14])
@pytest.mark.parametrize("sigma", [0.6, 0.8, 1.0, 1.3])
def test_a_sum_of_parts_is_post_processing_of_one_gaussian(sigma, clients):
    """The bound of ``LEAST``, where it is large enough to be seen: it falls as exp(-pi^2 sigma^2 / 2)."""
    reach = math.ceil(9 * sigma * math.sqrt(clients)) + 3
    apart = np.abs(sum_of_rounded(sigma, clients, reach) - rounded_sum(sigma, clients, reach)).max()
    bound = 2 * (clients + 1) * math.exp(-((math.pi * sigma) ** 2) / 2)
    assert apart <= bound + 1e-14
    if clients == 2 and sigma < 1:
        assert apart > 1e-4 * bound  # there is something to be seen
    assert 2 * (10**6 + 1) * math.exp(-((math.pi * LEAST) ** 2) / 2) < 1e-130


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ([np.nan], NotFiniteError),
        ([np.inf], NotFiniteError),
        ([2.0**38], OutOfRangeError),
        ([1j], DtypeError),
        (["a"], DtypeError),
        ([None], DtypeError),
    ],
)
def test_hostile_values_have_named_errors(values, error):
    for mechanism in (Gaussian(1, 1), Gaussian(1, 1, parts=3)):
        with pytest.raises(error):
            mechanism(np.array(values))


def test_noise_that_leaves_the_grid_is_refused():
    with pytest.raises(ParameterError, match="grid units"):
        Gaussian(1e9, 1.0)(np.zeros(2))


def test_grid_keeps_values_and_bounds_sensitivity():
    rng = np.random.default_rng(0)
    x = rng.normal(size=1000)
    assert np.abs(from_grid(to_grid(x)) - x).max() <= STEP / 2
    for _ in range(20):
        a, b = rng.normal(size=(2, 50)) * 1e-6
        moved = np.linalg.norm(from_grid(to_grid(a)) - from_grid(to_grid(b)))
        assert moved <= on_grid(float(np.linalg.norm(a - b)), 50)


def test_clip_shrinks_and_never_grows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 7)) * np.logspace(-3, 3, 30)[:, None]
    rows = clip.rows(X, 1.0)
    lengths = np.linalg.norm(X, axis=1)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), np.minimum(lengths, 1), rtol=1e-12)
    np.testing.assert_array_equal(rows[lengths <= 1], X[lengths <= 1])
    np.testing.assert_allclose(clip.rows(sparse.csr_array(X), 1.0).toarray(), rows, rtol=1e-12)
    assert np.linalg.norm(clip.norm(X, 2.0)) == pytest.approx(2.0)
    np.testing.assert_allclose(clip.norm(np.full((2, 2), 3.0), 5.0), 2.5)
    assert np.linalg.norm(clip.norm(np.full(3, 1e300), 1.0)) == pytest.approx(1.0)
    np.testing.assert_array_equal(clip.rows(np.zeros((2, 3)), 1.0), 0)


def test_clip_refuses_what_has_no_norm():
    with pytest.raises(NotFiniteError, match="NaN or infinite"):
        clip.norm(np.array([1.0, np.nan]), 1.0)
    with pytest.raises(NotFiniteError):
        clip.rows(np.array([[np.inf]]), 1.0)
    with pytest.raises(ParameterError):
        clip.norm(np.ones(2), 0.0)
    with pytest.raises(NotFiniteError):
        clip.require(np.array([np.inf]), 1.0)
    clip.require(np.ones(4), 2.0)
    with pytest.raises(OutOfRangeError, match=r"norm 1 was expected\. Found norm 2"):
        clip.require(np.ones(4), 1.0)
