"""The Gaussian mechanism, exactly: delta, epsilon and calibration from the trade-off parameter mu = Delta / sigma.

``delta(eps) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu)`` (Balle and Wang 2018, "Improving the Gaussian
mechanism for differential privacy", theorem 8). T releases compose to one Gaussian with
``mu^2 = sum_i mu_i^2`` (Dong, Roth and Su 2022, "Gaussian differential privacy"). With
``a = eps/mu - mu/2``, ``b = a + mu`` and the Mills ratio R, ``delta = phi(a) (R(a) - R(b))``: this form keeps its
digits where the difference above loses all of them (delta down to 1e-300, eps up to 1e6).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Real

import numpy as np
import scipy  # its parts load when they are named: nobody else waits half a second for them

from cofactor.privacy.errors import ParameterError

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)
_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


def check_delta(delta: float) -> float:
    """Return delta if it is in (0, 1)."""
    if not (isinstance(delta, Real) and 0 < delta < 1):
        raise ParameterError(f"delta must be in (0, 1). Found {delta!r}.")
    return float(delta)


def check_positive(name: str, value: float) -> float:
    """Return the value if it is positive and finite."""
    if not (isinstance(value, Real) and 0 < value < math.inf):
        raise ParameterError(f"{name} must be positive and finite. Found {value!r}.")
    return float(value)


def log_delta(epsilon: float, mu: float) -> float:
    """Return ``log delta(eps)`` of a Gaussian mechanism with ``mu = Delta / sigma``."""
    if epsilon < 0:
        raise ParameterError(f"epsilon must not be negative. Found {epsilon}.")
    mu = check_positive("mu", mu)
    return _log_delta(epsilon / mu - mu / 2, mu)


def epsilon(mu: float, delta: float) -> float:
    """Return the smallest eps with ``delta(eps) <= delta``; mu = 0 is no release, mu = inf no noise.

    The search runs over ``a = eps/mu - mu/2``, which stays moderate when eps is huge; ``delta <= Phi(-a)`` bounds it.
    """
    check_delta(delta)
    if not mu >= 0:
        raise ParameterError(f"mu must not be negative. Found {mu}.")
    if mu in (0, math.inf):
        return float(mu)
    target, low = math.log(delta), -mu / 2
    if _log_delta(low, mu) <= target:
        return 0.0
    high = -float(scipy.special.ndtri_exp(target))
    if _log_delta(high, mu) >= target:  # e^eps Phi(-b) is below rounding: a is the quantile itself
        return float(mu * (high + mu / 2))
    a = scipy.optimize.brentq(lambda a: _log_delta(a, mu) - target, low, high, xtol=1e-15, rtol=1e-15, maxiter=500)
    return float(mu * (a + mu / 2))


def calibrate(epsilon: float, delta: float) -> float:
    """Return the smallest multiplier ``sigma / Delta`` that gives (epsilon, delta)."""
    check_positive("epsilon", epsilon)
    target = math.log(check_delta(delta))
    quantile = -float(scipy.special.ndtri_exp(target))
    # delta(eps) < Phi(-a), so the mu of Phi(-a) = delta is a lower end
    root = math.hypot(quantile, math.sqrt(2 * epsilon))
    low = 2 * epsilon / (quantile + root) if quantile > 0 else root - quantile
    high = 2 * low
    while log_delta(epsilon, high) < target:
        high *= 2
    if log_delta(epsilon, low) >= target:
        return 1 / low
    solution = scipy.optimize.brentq(
        lambda s: log_delta(epsilon, math.exp(s)) - target, math.log(low), math.log(high), xtol=1e-15, rtol=1e-15
    )
    return math.exp(-solution)


def compose(multipliers: Iterable[float]) -> float:
    """Return the mu of all releases together: ``mu^2 = sum_i (Delta_i / sigma_i)^2``; no noise is mu = inf."""
    return math.sqrt(math.fsum(math.inf if z == 0 else z**-2 for z in multipliers))


def _log_delta(a: float, mu: float) -> float:
    if mu < 0.5:
        return -0.5 * a * a - _LOG_SQRT_2PI + math.log(_mills_drop(a, mu))
    if a >= 0:
        return -0.5 * a * a - _LOG_SQRT_2PI + math.log(_mills(a) - _mills(a + mu))
    tail = math.exp(-0.5 * a * a - _LOG_SQRT_2PI) * _mills(a + mu)
    return math.log(scipy.special.ndtr(-a) - tail)


def _mills(x: float) -> float:
    """R(x) = (1 - Phi(x)) / phi(x)."""
    return math.sqrt(math.pi / 2) * float(scipy.special.erfcx(x / math.sqrt(2)))


def _mills_drop(a: float, mu: float) -> float:
    """R(a) - R(a + mu) as the integral of -R' = 1 - x R(x): no cancellation for small mu."""
    x = a + mu * (_NODES + 1) / 2
    return float(mu / 2 * np.sum(_WEIGHTS * (1 - x * math.sqrt(math.pi / 2) * scipy.special.erfcx(x / math.sqrt(2)))))
