"""Concentrated privacy (zCDP): the accountant of the discrete Gaussian, and the Renyi formula of the DP-NMF paper.

A discrete Gaussian of parameter sigma on integer vectors of L2 sensitivity Delta is rho-zCDP with
``rho = Delta^2 / (2 sigma^2)``; rho adds up (Canonne, Kamath and Steinke 2020, "The discrete Gaussian for
differential privacy", theorem 4).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from scipy.optimize import brentq, minimize_scalar

from cofactor.privacy.errors import ParameterError
from cofactor.privacy.gaussian import check_delta, check_positive


def rho(multiplier: float) -> float:
    """Return ``1 / (2 z^2)`` for the multiplier ``z = sigma / Delta``; infinite without noise."""
    return math.inf if multiplier == 0 else 0.5 * multiplier**-2


def epsilon(rho: float, delta: float) -> float:
    """Return ``min_{alpha > 1} rho alpha + log(1 / (alpha delta)) / (alpha - 1) + log(1 - 1/alpha)``.

    Every alpha is a valid bound, so the search only makes it small (Canonne, Kamath and Steinke 2020, corollary 13).
    """
    check_delta(delta)
    if not rho >= 0:
        raise ParameterError(f"rho must not be negative. Found {rho}.")
    if rho in (0, math.inf):
        return float(rho)
    centre = 0.5 * (math.log(math.log(1 / delta)) - math.log(rho))  # the minimum without the two small terms

    def bound(s: float) -> float:
        alpha = 1 + math.exp(s)
        return rho * alpha - (math.log(delta) + math.log(alpha)) / (alpha - 1) + math.log1p(-1 / alpha)

    found = minimize_scalar(bound, bounds=(centre - 6, centre + 6), method="bounded", options={"xatol": 1e-10})
    return max(0.0, float(found.fun))


def calibrate(epsilon_: float, delta: float) -> float:
    """Return the smallest multiplier ``sigma / Delta`` of a discrete Gaussian that gives (epsilon, delta)."""
    check_positive("epsilon", epsilon_)
    check_delta(delta)
    low, high = 1e-12, 1.0
    while epsilon(high, delta) < epsilon_:
        high *= 2
    found = brentq(lambda r: epsilon(r, delta) - epsilon_, low, high, xtol=1e-300, rtol=1e-14)
    return math.sqrt(0.5 / found)


def paper_epsilon(multipliers: Iterable[float], delta: float) -> float:
    """Return the epsilon that DP-NMF prints, for comparison: ``mu^2 / 2 + mu sqrt(2 log(1/delta))``.

    Theorem 3.1 at its best order ``alpha = 1 + sqrt(2 log(1/delta)) / mu``, with ``mu^2 = sum_i 1/z_i^2``.
    """
    squared = math.fsum(2 * rho(z) for z in multipliers)
    return squared / 2 + math.sqrt(2 * squared * math.log(1 / check_delta(delta)))
