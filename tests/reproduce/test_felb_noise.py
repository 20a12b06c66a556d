"""The paper as printed: noise that is no guarantee, and stale codes."""

import math

import numpy as np
import pytest

from cofactor import Privacy, boolean, run
from cofactor.data import synthetic
from cofactor.methods import catalog
from cofactor.methods.build import Facts, build
from cofactor.plan import Plan
from cofactor.privacy.errors import PrivacyError
from cofactor.types import CofactorError
from cofactor_papers.felb_noise import PaperGaussian, PaperLaplace, PaperNoise, PaperXor, stale


@pytest.fixture(scope="module")
def data():
    return synthetic.tiles(300, 40, 4, noise=0.02, seed=0)


@pytest.fixture(scope="module")
def clients(data):
    return np.array_split(data.X.astype(np.float32), 3)


@pytest.mark.parametrize("unit", ["record", "client"])
def test_nobody_can_take_it_for_a_guarantee(unit, clients):
    """The noise has no price: a run with it costs nobody's budget, promises nothing, and cannot be made private."""
    method, asked = PaperNoise(catalog.make("felb", 4), PaperGaussian(1.0, 1.0)), Privacy(1.0, 1e-6, unit)
    paid = []
    result = run(method, clients, rounds=3, watch=lambda t, answers: paid.extend(a.message.cost for a in answers))
    assert method.traits.allowance is None
    assert (result.epsilon, result.ledger) == (math.inf, None)
    assert all(np.isnan(line.epsilon) for line in result.history)
    assert paid == [{}] * 9
    with pytest.raises(PrivacyError, match="this method has no private form"):
        build(method, 4, Plan(privacy=asked), Facts(3))
    with pytest.raises(CofactorError, match="expected the private form of the method"):
        run(method, clients, Plan(privacy=asked))


@pytest.mark.parametrize(
    ("noise", "deviation"),
    [
        (PaperGaussian(2.0, 0.5), 0.25 * np.sqrt(2 * np.log(25))),
        (PaperLaplace(2.0, 0.5), 0.25 * np.sqrt(2)),
    ],
)
def test_additive_noise_has_the_printed_scale(noise, deviation, rng):
    assert noise(np.zeros((300, 300)), rng).std() == pytest.approx(deviation, rel=0.02)


@pytest.mark.parametrize("noise", [PaperGaussian(1.0, 5.0, clipped=True), PaperLaplace(1.0, 5.0, clipped=True)])
def test_clipped_noise_stays_in_the_cube(noise, rng):
    H = noise(np.full((50, 50), 0.5, np.float32), rng)
    assert H.min() == 0
    assert H.max() == 1
    assert H.dtype == np.float32


def test_xor_flips_bits_at_the_printed_rate(rng):
    H = PaperXor(1.0, 1.0)(np.zeros((300, 300), np.uint8), rng)
    assert H.mean() == pytest.approx(1 / (1 + np.e), abs=0.01)
    assert not PaperXor(1e9, 1.0)(np.zeros((30, 30), np.uint8), rng).any()


@pytest.mark.parametrize("align", [None, "first"])
def test_hardly_any_noise_is_the_method_itself(align, clients):
    method = catalog.make("felb", 4, rounds=20, align=align)
    plain, noisy = (run(m, clients, rounds=20) for m in (method, PaperNoise(method, PaperGaussian(1e9, 1.0))))
    np.testing.assert_array_equal(plain.factor, noisy.factor)


def test_noise_costs_quality(clients, data):
    losses = []
    for epsilon in (1e6, 0.1):
        method = PaperNoise(catalog.make("asso", 4), PaperXor(epsilon, 40.0))
        result = run(method, clients)
        losses.append(boolean.loss(data.X, np.vstack(result.codes), result.factor))
    assert losses[0] < losses[1] - 0.1


@pytest.mark.parametrize("name", ["felb", "asso", "elbmf"])
def test_stale_codes_are_no_better_than_the_refit(name, clients, data):
    method = catalog.make(name, 4)
    H, codes = stale(method, clients, rounds=50)
    result = run(method, clients, rounds=50)
    np.testing.assert_array_equal(result.factor, H)
    refit = boolean.error(data.X, np.vstack(result.codes), H)
    assert refit <= boolean.error(data.X, np.vstack(codes), H)
