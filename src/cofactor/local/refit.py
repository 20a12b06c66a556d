"""The codes that belong to a final factor: every reported error and every ``transform`` uses these."""

from __future__ import annotations

import numpy as np

from cofactor.local.stats import for_codes
from cofactor.local.updates import HALS
from cofactor.types import Array, Data

SOLVE = HALS(sweeps=200, tol=1e-6)


def refit(X: Data, H: Array) -> Array:
    """``argmin_{W >= 0} 1/2 |X - W H|^2`` by HALS, each row until a sweep moves it by 1e-6 (n x k)."""
    stats = for_codes(X, H.astype(X.dtype, copy=False))
    return SOLVE(np.zeros_like(stats.cross), stats)
