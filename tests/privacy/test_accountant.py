from __future__ import annotations

import itertools
import math
import sys

import mpmath
import pytest

from cofactor.privacy import gaussian, pld, zcdp
from cofactor.privacy.accountant import Budget, Cost, Ledger, Unit, calibrate, spend
from cofactor.privacy.errors import BudgetError, MissingExtraError, ParameterError, UnitError
from cofactor.privacy.pld import Mechanism


def gauss(z, count=1, **options):
    return Cost(Mechanism.GAUSSIAN, z, count, **options)


def laplace(b, count=1, **options):
    return Cost(Mechanism.LAPLACE, b, count, **options)


PAPER_MULTIPLIER = math.sqrt(2 * math.log(1.25e5)) / 0.5
"""sigma / Delta of DP-NMF at eps_t = .5, delta = 1e-5: the classic Gaussian formula."""

EXACT = [
    ([gauss(1)], 4.3771780957, 4.728507),
    ([gauss(1, 100)], 91.8172896247, 96.116308),
    ([gauss(5, 1000)], 46.2112101912, 48.801693),
    ([gauss(10, 100), gauss(5, 50)], 8.3854189242, 9.009959),
    ([gauss(PAPER_MULTIPLIER, 100), gauss(PAPER_MULTIPLIER, 100)], 6.8246276758, 7.3460),
    ([gauss(PAPER_MULTIPLIER, 1000), gauss(PAPER_MULTIPLIER, 1000)], 29.6293567235, 31.4285),
]

NUMERIC = [
    ([laplace(1)], 1e-5, 0.9999800, 1.002824),
    ([laplace(10, 100)], 1e-5, 4.220347, 4.532686),
    ([laplace(2, 10)], 1e-6, 4.998978, 4.998981),
    ([gauss(1, 100, sampling=0.1)], 1e-5, 7.046603, 7.903850),
    ([gauss(1, 1000, sampling=0.01)], 1e-5, 1.828244, 2.101367),
    ([gauss(2, 500, sampling=0.1)], 1e-6, 6.216700, 6.679293),
    ([gauss(2, 50), laplace(5, 20)], 1e-5, 21.478415, 22.866256),
]


@pytest.mark.parametrize(
    ("epsilon", "delta", "sigma"),
    [(0.5, 1e-5, 7.0318266756), (1, 1e-5, 3.7306316348), (4, 1e-6, 1.1935185872), (8, 1e-5, 0.6002290722)],
)
def test_golden_calibration(epsilon, delta, sigma):
    assert gaussian.calibrate(epsilon, delta) == pytest.approx(sigma, abs=5e-11)


@pytest.mark.parametrize(("costs", "exact", "_rdp"), EXACT)
def test_golden_gaussian(costs, exact, _rdp):
    total = spend(costs, 1e-5)
    assert total.epsilon == pytest.approx(exact, abs=6e-11)
    assert total.accountant == "exact Gaussian"


@pytest.mark.parametrize(("costs", "_exact", "rdp"), EXACT)
def test_golden_gaussian_rdp(costs, _exact, rdp):
    digits = 5e-5 if costs[0].multiplier == PAPER_MULTIPLIER else 6e-7
    assert pld.rdp_epsilon(costs, 1e-5) == pytest.approx(rdp, abs=digits)


@pytest.mark.parametrize(("costs", "delta", "exact", "rdp"), NUMERIC)
def test_golden_pld_and_rdp(costs, delta, exact, rdp):
    total = spend(costs, delta)
    assert total.accountant == "PLD"
    assert total.epsilon == pytest.approx(exact, abs=1e-4)
    assert pld.rdp_epsilon(costs, delta) == pytest.approx(rdp, abs=6e-7)


def test_golden_discrete_gaussian_and_randomized_response():
    # the table's value is the loss distribution of a scalar count; vectors are charged by zCDP, which is above it
    for count, value in ((1, 0.726643), (100, 9.997418)):
        cost = Cost(Mechanism.DISCRETE_GAUSSIAN, 5, count)
        assert pld.epsilon([cost], 1e-5) == pytest.approx(value, abs=1e-4)
        assert value < spend([cost], 1e-5).epsilon < 1.1 * value
        assert spend([cost], 1e-5).accountant == "zCDP"
    flips = Cost(Mechanism.RANDOMIZED_RESPONSE, 1 / 0.1, 100, unit=Unit.CELL)
    assert spend([flips], 1e-5).epsilon == pytest.approx(4.314041, abs=1e-4)
    assert spend([flips], 1e-5).relation == "change one"


def test_golden_dp_nmf():
    assert gaussian.allocate(1, 1e-5, rounds=100, shares=(1, 1)) == pytest.approx([52.7590985417] * 2, abs=5e-11)
    assert zcdp.paper_epsilon([PAPER_MULTIPLIER] * 200, 1e-5) == pytest.approx(8.069, abs=1e-3)
    assert zcdp.paper_epsilon([PAPER_MULTIPLIER] * 2000, 1e-5) == pytest.approx(32.80, abs=5e-3)


def test_calibration_round_trip():
    epsilons = [1e-4, 1e-2, 0.1, 0.5, 1, 2, 8, 100, 1e4]
    for epsilon, delta in itertools.product(epsilons, [0.3, 1e-2, 1e-5, 1e-10, 1e-100, 1e-300]):
        z = gaussian.calibrate(epsilon, delta)
        assert gaussian.epsilon(1 / z, delta) == pytest.approx(epsilon, rel=1e-9)
        assert gaussian.delta(epsilon, 1 / z) == pytest.approx(delta, rel=1e-7)


def test_gaussian_delta_against_many_digits():
    # 60-digit values of Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu)
    with mpmath.workdps(80):
        for epsilon, mu in [(0, 1e-3), (1e-3, 1e-3), (0.5, 0.1), (1, 0.49), (1, 0.51), (5, 3), (700, 20), (1, 30)]:
            e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
            value = mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)
            assert gaussian.log_delta(epsilon, mu) == pytest.approx(float(mpmath.log(value)), rel=1e-11, abs=1e-11)


def test_limits_of_the_gaussian():
    assert gaussian.epsilon(0, 1e-5) == 0
    assert gaussian.epsilon(1e-6, 1e-5) == 0
    assert gaussian.epsilon(math.inf, 1e-5) == math.inf
    assert gaussian.epsilon(1e4, 1e-300) == pytest.approx(5.0e7 + 1e4 * 37.0, rel=1e-4)
    assert gaussian.compose([2.0, 0.0]) == math.inf
    assert gaussian.compose([3.0, 4.0]) == pytest.approx(5 / 12)


def test_unequal_shares_add_up_to_the_total():
    a, b = gaussian.allocate(2, 1e-6, rounds=7, shares=(1, 3))
    assert b * math.sqrt(3) == pytest.approx(a)
    assert spend([gauss(a, 7), gauss(b, 7)], 1e-6).epsilon == pytest.approx(2, rel=1e-9)


def test_zcdp_is_monotone_valid_and_inverts():
    assert zcdp.epsilon(0, 1e-5) == 0
    for z in (0.3, 1, 5, 50):
        assert zcdp.epsilon(zcdp.rho(z), 1e-5) >= gaussian.epsilon(1 / z, 1e-5)
        assert zcdp.epsilon(zcdp.rho(z), 1e-5) <= zcdp.paper_epsilon([z], 1e-5)
    z = zcdp.calibrate(1, 1e-6)
    assert zcdp.epsilon(zcdp.rho(z), 1e-6) == pytest.approx(1, rel=1e-9)


def test_distributed_noise_costs_what_central_noise_costs():
    sigma = 1e5
    assert zcdp.distributed_rho(sigma, 7.0, clients=14, size=20_000) == pytest.approx(49 / (2 * 14 * sigma**2))
    assert zcdp.distributed_rho(0.3, 1.0, clients=14, size=100) > 1 / (2 * 14 * 0.3**2)


def test_spend_prints_what_an_epsilon_needs():
    text = str(spend([gauss(1, unit=Unit.CLIENT)], 1e-5))
    expected = (
        "epsilon = 4.37718 at delta = 1e-05 (unit: client; neighbours: add/remove one; accountant: exact Gaussian)"
    )
    assert text == expected
    assert "private: no (insecure seed)" in str(spend([gauss(1, private=False)], 1e-5))
    assert str(spend([gauss(0)], 1e-5)).startswith("no finite epsilon at delta = 1e-05")
    assert spend([], 1e-5).epsilon == 0


def test_mixtures_with_discrete_noise_use_rdp():
    costs = [Cost(Mechanism.DISCRETE_GAUSSIAN, 5), laplace(5)]
    total = spend(costs, 1e-5)
    assert total.accountant == "RDP"
    assert total.epsilon > spend([gauss(5), laplace(5)], 1e-5).epsilon


def test_generic_calibration_stays_within_the_budget():
    budget = Budget(2, 1e-5)
    z = calibrate(lambda z: [laplace(z, 5)], budget)
    assert spend([laplace(z, 5)], 1e-5).epsilon <= 2
    assert spend([laplace(0.999 * z, 5)], 1e-5).epsilon > 2


def test_ledger_refuses_before_the_release():
    z = gaussian.allocate(1, 1e-6, rounds=10)[0]
    ledger = Ledger(Budget(1, 1e-6)).charge(gauss(z, 10))
    with pytest.raises(BudgetError, match=r"the budget is epsilon = 1; with this release the run is at epsilon = 1\.0"):
        ledger.charge(gauss(z))
    assert ledger.costs == (gauss(z, 10),)
    assert ledger.spend().epsilon == pytest.approx(1, rel=1e-9)
    assert gauss(z, 2).times(3).count == 6


@pytest.mark.parametrize(
    "call",
    [
        lambda: Budget(0, 1e-5),
        lambda: Budget(-1, 1e-5),
        lambda: Budget(math.nan, 1e-5),
        lambda: Budget(1, 0),
        lambda: Budget(1, 1e-3, n=1000),
        lambda: gauss(-1),
        lambda: gauss(math.nan),
        lambda: gauss(1, -1),
        lambda: gauss(1, sampling=0),
        lambda: Cost(Mechanism.DISCRETE_GAUSSIAN, 1, sampling=0.5),
        lambda: gaussian.epsilon(1, 1.5),
        lambda: gaussian.epsilon(-1, 1e-5),
        lambda: gaussian.delta(-1, 1),
        lambda: gaussian.allocate(1, 1e-5, rounds=0),
        lambda: zcdp.epsilon(-1, 1e-5),
    ],
)
def test_bad_parameters_are_refused(call):
    with pytest.raises(ParameterError):
        call()


def test_units_do_not_mix():
    with pytest.raises(UnitError):
        spend([gauss(1), gauss(1, unit=Unit.CLIENT)], 1e-5)


def test_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting.pld", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'cofactor\[dp\]'"):
        spend([laplace(1)], 1e-5)
