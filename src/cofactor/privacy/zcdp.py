"""The Renyi formula of the DP-NMF paper, for comparison: no run of this package is accounted with it.

A Gaussian of multiplier z is rho-zCDP with ``rho = 1 / (2 z^2)``, and rho adds up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from cofactor.privacy.gaussian import check_delta


def paper_epsilon(multipliers: Iterable[float], delta: float) -> float:
    """Return the epsilon that DP-NMF prints: ``mu^2 / 2 + mu sqrt(2 log(1/delta))``.

    Theorem 3.1 at its best order ``alpha = 1 + sqrt(2 log(1/delta)) / mu``, with ``mu^2 = sum_i 1/z_i^2``.
    """
    squared = math.fsum(math.inf if z == 0 else z**-2 for z in multipliers)
    return squared / 2 + math.sqrt(2 * squared * math.log(1 / check_delta(delta)))
