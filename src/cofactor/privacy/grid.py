"""The fixed-point grid that every released value lies on: integers of 2^-24.

Noise on floating-point numbers leaks their low bits (Mironov 2012); on integers it cannot.
"""

from __future__ import annotations

import math

import numpy as np

from cofactor.privacy.errors import DtypeError, NotFiniteError, OutOfRangeError
from cofactor.types import Array

BITS = 24
STEP = 2.0**-BITS
LIMIT = 2.0**62
"""Values and their sums stay below this many steps."""


def to_grid(values: Array, *, parts: float = 1) -> Array:
    """Return round(x 2^24) as int64; refuses what is not finite, not real, or ``|x| 2^24 >= 2^62 / parts``."""
    x = np.asarray(values)
    if x.dtype.kind not in "fiub":
        raise DtypeError(f"real numbers were expected. Found dtype {x.dtype}.")
    x = x.astype(np.float64)
    if not np.isfinite(x).all():
        raise NotFiniteError(f"finite values were expected. Found {int((~np.isfinite(x)).sum())} NaN or infinite.")
    largest = float(np.abs(x).max(initial=0.0))
    if largest / STEP >= LIMIT / parts:
        raise OutOfRangeError(  # how large it is stays with whoever holds it
            f"secure summation: expected values below {LIMIT * STEP / parts:.3g}, found larger ones; sums over "
            "rows grow with their squares. Divide the data of all clients by a public constant first."
        )
    return np.rint(x / STEP).astype(np.int64)


def from_grid(steps: Array) -> Array:
    """Return the float64 values of int64 grid points."""
    return np.asarray(steps) * STEP


def on_grid(sensitivity: float, size: int) -> float:
    """Return the L2 sensitivity of ``size`` values on the grid: Delta + 2 sqrt(d) 2^-24.

    In each of two worlds a value moves by up to half a step when it is rounded, and by up to half a step when it was a
    floating-point sum (true for float64 sums up to about 1e7 in size).
    """
    return sensitivity + 2 * math.sqrt(size) * STEP
