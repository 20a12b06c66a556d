"""The mechanism: values in, noisy values on the grid and their cost out.

It takes its ``multiplier`` (noise scale over sensitivity) and the ``sensitivity`` that clipping gave; values are
rounded to the grid first, the sensitivity grows by that rounding, and the noise is drawn on the grid, exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cofactor.privacy import samplers
from cofactor.privacy.accountant import Cost, Mechanism, Unit
from cofactor.privacy.errors import OutOfRangeError, ParameterError
from cofactor.privacy.grid import LIMIT, STEP, from_grid, on_grid, to_grid
from cofactor.privacy.randomness import Source
from cofactor.types import Array

LEAST = 8
"""The smallest sigma of a part of the noise, in grid steps.

h clients that each add ``round(N(0, s^2))`` add up to ``round(N(0, h s^2) + U_2 + ... + U_h)``, U uniform in
(-1/2, 1/2), up to ``2 (h + 1) e^(-pi^2 s^2 / 2)`` in the chance of every value: chances of round(N) are the density of
N + U at the integers, and by Poisson's formula the sum of such lattices and the lattice of such a sum have Fourier
series that differ by what lies beyond the first period. For s >= 8 and a million clients that is below 1e-130, and over
all values of 64 bits below 1e-110. So the sum is post-processing (more noise, and rounding) of the Gaussian mechanism
of variance h s^2, and its exact accounting holds."""


@dataclass(frozen=True)
class Gaussian:
    """``x + N(0, sigma^2)`` rounded to the grid, ``sigma = multiplier Delta2``: exact Gaussian accounting holds.

    With ``parts = h`` clients that each add this noise to their own values, every part has variance sigma^2 / h, so
    any h of them carry the whole noise; the cost is that of the sum. Parts of parts need not be whole numbers.
    """

    multiplier: float
    sensitivity: float
    unit: Unit = Unit.RECORD
    parts: float = 1

    def __call__(self, values: Array, source: Source | None = None) -> tuple[Array, Cost]:
        """Return the noisy values and what they cost."""
        source = source or Source()
        steps = to_grid(values, parts=self.parts)
        sigma = self.multiplier * on_grid(self.sensitivity, steps.size) / STEP / math.sqrt(self.parts)
        if self.parts > 1 and 0 < sigma < LEAST:
            raise ParameterError(f"each part needs sigma >= {LEAST} grid steps. Found {sigma:g}.")
        noise = samplers.rounded_gaussian(sigma, steps.size, source) if sigma else 0
        cost = Cost(
            Mechanism.GAUSSIAN, self.multiplier, unit=self.unit, private=source.secure, honest=math.ceil(self.parts)
        )
        return from_grid(_add(steps, noise)), cost


def _add(steps: Array, noise: Array | int) -> Array:
    # noise above 2^62 would need a scale above MAX_SCALE, so the int64 sum itself cannot wrap
    total = steps + (noise.reshape(steps.shape) if isinstance(noise, np.ndarray) else noise)
    if np.abs(total).max(initial=0) >= LIMIT:
        raise OutOfRangeError(f"the noisy value must be below {LIMIT * STEP:g}; clip to a smaller bound.")
    return total
