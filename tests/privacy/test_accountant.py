from __future__ import annotations

import itertools
import math

import dp_accounting
import mpmath
import pytest
from dp_accounting.pld import privacy_loss_distribution as losses
from dp_accounting.rdp import RdpAccountant

from cofactor.privacy import gaussian, zcdp
from cofactor.privacy.accountant import Budget, Cost, Ledger, Mechanism, Unit, spend
from cofactor.privacy.allowance import Allowance, Parts, Privacy
from cofactor.privacy.errors import BudgetError, ParameterError, UnitError


def gauss(z, **options):
    return Cost(Mechanism.GAUSSIAN, z, **options)


PAPER_MULTIPLIER = math.sqrt(2 * math.log(1.25e5)) / 0.5
"""sigma / Delta of the papers at eps_t = .5, delta = 1e-5: the classic Gaussian formula."""

GOLDEN = [
    ({1: 1}, 4.3771780957, 4.728507),
    ({1: 100}, 91.8172896247, 96.116308),
    ({5: 1000}, 46.2112101912, 48.801693),
    ({10: 100, 5: 50}, 8.3854189242, 9.009959),
    ({PAPER_MULTIPLIER: 200}, 6.8246276758, 7.3460),
    ({PAPER_MULTIPLIER: 2000}, 29.6293567235, 31.4285),
]
"""Multipliers and how often each is released; epsilon at delta = 1e-5, exact and by Renyi accounting."""


def releases(counts, cost=gauss):
    return [cost(z) for z, count in counts.items() for _ in range(count)]


def renyi(events):
    """The epsilon of dp-accounting for pairs of an event and how often it happens."""
    accountant = RdpAccountant()
    for event, count in events:
        accountant.compose(event, count)
    return accountant.get_epsilon(1e-5)


@pytest.mark.parametrize(
    ("epsilon", "delta", "sigma"),
    [(0.5, 1e-5, 7.0318266756), (1, 1e-5, 3.7306316348), (4, 1e-6, 1.1935185872), (8, 1e-5, 0.6002290722)],
)
def test_golden_calibration(epsilon, delta, sigma):
    assert gaussian.calibrate(epsilon, delta) == pytest.approx(sigma, abs=5e-11)


@pytest.mark.parametrize(("counts", "exact", "_rdp"), GOLDEN)
def test_golden_gaussian(counts, exact, _rdp):
    total = spend(releases(counts), 1e-5)
    assert total.epsilon == pytest.approx(exact, abs=6e-11)
    assert total.accountant == "exact Gaussian"


@pytest.mark.parametrize(("counts", "exact", "rdp"), GOLDEN)
def test_another_library_gives_the_same_from_above(counts, exact, rdp):
    # its loss distributions are rounded up to a grid of 1e-4, its Renyi orders are a list
    parts = [losses.from_gaussian_mechanism(float(z)).self_compose(count) for z, count in counts.items()]
    while len(parts) > 1:
        parts.append(parts.pop().compose(parts.pop()))
    composed = parts[0].get_epsilon_for_delta(1e-5)
    assert exact <= composed <= exact * (1 + 1e-3)
    found = renyi((dp_accounting.GaussianDpEvent(float(z)), count) for z, count in counts.items())
    assert found == pytest.approx(rdp, abs=5e-5 if PAPER_MULTIPLIER in counts else 6e-7)
    assert exact < found


def test_golden_dp_nmf():
    allowance = Allowance(Privacy(1, 1e-5), ({"gram": 1.0, "cross": 1.0},) * 100)
    multipliers = [cost.multiplier for cost in allowance.costs(99).values()]
    assert multipliers == pytest.approx([52.7590985417] * 2, abs=5e-11)
    assert allowance.total().epsilon == pytest.approx(1, rel=1e-9)
    assert zcdp.paper_epsilon([PAPER_MULTIPLIER] * 200, 1e-5) == pytest.approx(8.069, abs=1e-3)
    assert zcdp.paper_epsilon([PAPER_MULTIPLIER] * 2000, 1e-5) == pytest.approx(32.80, abs=5e-3)


def test_a_hundred_messages_at_half_are_far_from_half():
    # by the classic formula, as FNMF and FELB print it
    assert spend(releases({PAPER_MULTIPLIER: 100}), 1e-5).epsilon == pytest.approx(4.54, abs=5e-3)


def test_calibration_round_trip():
    epsilons = [1e-4, 1e-2, 0.1, 0.5, 1, 2, 8, 100, 1e4]
    for epsilon, delta in itertools.product(epsilons, [0.3, 1e-2, 1e-5, 1e-10, 1e-100, 1e-300]):
        z = gaussian.calibrate(epsilon, delta)
        assert gaussian.epsilon(1 / z, delta) == pytest.approx(epsilon, rel=1e-9)
        assert math.exp(gaussian.log_delta(epsilon, 1 / z)) == pytest.approx(delta, rel=1e-7)


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


@pytest.mark.parametrize("parts", [Parts(), Parts(3, 4)])
def test_unequal_shares_add_up_to_the_total(parts):
    allowance = Allowance(Privacy(2, 1e-6), ({"a": 1.0, "b": 3.0},) * 7, parts)
    a, b = (cost.multiplier for cost in allowance.costs(0).values())
    assert b * math.sqrt(3) == pytest.approx(a)
    assert allowance.total().epsilon == pytest.approx(2, rel=1e-9)
    assert allowance.ledger(3).spend().epsilon < 2


def test_spend_prints_what_an_epsilon_needs():
    text = str(spend([gauss(1, unit=Unit.CLIENT)], 1e-5))
    expected = "epsilon = 4.37718 at delta = 1e-05 (unit: client; neighbours: zero out one; accountant: exact Gaussian)"
    assert text == expected
    assert "private: no (insecure seed)" in str(spend([gauss(1, private=False)], 1e-5))
    assert str(spend([gauss(1), gauss(0), gauss(0)], 1e-5)).startswith("no finite epsilon at delta = 1e-05")
    assert spend([], 1e-5).epsilon == 0


def test_ledger_refuses_before_the_release():
    allowance = Allowance(Privacy(1, 1e-6), ({"a": 1.0},) * 10)
    cost = allowance.costs(0)["a"]
    ledger = Ledger(Budget(1, 1e-6)).charge(*[cost] * 10)
    with pytest.raises(BudgetError, match=r"the budget is epsilon = 1; with this release the run is at epsilon = 1\.0"):
        ledger.charge(cost)
    assert ledger == allowance.ledger(10)
    assert ledger.spend().epsilon == pytest.approx(1, rel=1e-9)


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
        lambda: gaussian.epsilon(1, 1.5),
        lambda: gaussian.epsilon(-1, 1e-5),
        lambda: gaussian.log_delta(-1, 1),
        lambda: gaussian.log_delta(1, 0),
    ],
)
def test_bad_parameters_are_refused(call):
    with pytest.raises(ParameterError):
        call()


def test_units_do_not_mix():
    with pytest.raises(UnitError):
        spend([gauss(1), gauss(1, unit=Unit.CLIENT)], 1e-5)
