"""Mechanisms: values in, noisy values on the grid and their cost out.

Each takes its ``multiplier`` (noise scale over sensitivity) and the ``sensitivity`` that clipping gave; values are
rounded to the grid first, the sensitivity grows by that rounding, and the noise is drawn on the grid, exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cofactor.privacy import samplers
from cofactor.privacy.accountant import Cost, Unit
from cofactor.privacy.errors import DtypeError, OutOfRangeError, ParameterError
from cofactor.privacy.gaussian import check_positive
from cofactor.privacy.grid import LIMIT, STEP, from_grid, on_grid, to_grid
from cofactor.privacy.pld import Mechanism
from cofactor.privacy.randomness import Source
from cofactor.types import Array


class Noise(Protocol):
    """What every mechanism is: a pure function of values and a source of randomness."""

    def __call__(self, values: Array, source: Source | None = None) -> tuple[Array, Cost]:
        """Return the noisy values and what they cost."""
        ...


@dataclass(frozen=True)
class Gaussian:
    """``x + N(0, sigma^2)`` rounded to the grid, ``sigma = multiplier Delta2``: exact Gaussian accounting holds."""

    multiplier: float
    sensitivity: float
    unit: Unit = Unit.RECORD

    def __call__(self, values: Array, source: Source | None = None) -> tuple[Array, Cost]:
        """Return the noisy values and what they cost."""
        source = source or Source()
        steps = to_grid(values)
        sigma = self.multiplier * on_grid(self.sensitivity, steps.size) / STEP
        noise = samplers.rounded_gaussian(sigma, steps.size, source) if sigma else 0
        return from_grid(_add(steps, noise)), Cost(
            Mechanism.GAUSSIAN, self.multiplier, unit=self.unit, private=source.secure
        )


@dataclass(frozen=True)
class DiscreteGaussian:
    """``x + N_Z(0, sigma^2)`` on the grid (Canonne, Kamath and Steinke 2020); accounted by zCDP.

    With ``parts = t`` clients that each add this noise to their own values, every part has variance sigma^2 / t, so
    any t of them carry the whole noise; the cost is that of the sum.
    """

    multiplier: float
    sensitivity: float
    unit: Unit = Unit.RECORD
    parts: int = 1

    def __call__(self, values: Array, source: Source | None = None) -> tuple[Array, Cost]:
        """Return the noisy values and what they cost."""
        source = source or Source()
        return from_grid(self.steps(values, source)), self.cost(source)

    def steps(self, values: Array, source: Source) -> Array:
        """Return the noisy values as integers of the grid: what a client masks, with no rounding after the noise."""
        steps = to_grid(values, parts=self.parts)
        sigma = self.multiplier * on_grid(self.sensitivity, steps.size) / STEP / math.sqrt(self.parts)
        if self.parts > 1 and 0 < sigma < 8:
            # above this the sum of parts is a discrete Gaussian to 1e-270 (zcdp.distributed_rho)
            raise ParameterError(f"each part needs sigma >= 8 grid steps. Found {sigma:g}.")
        return _add(steps, samplers.discrete_gaussian(sigma, steps.size, source) if sigma else 0)

    def cost(self, source: Source) -> Cost:
        """Return the cost of one release."""
        return Cost(Mechanism.DISCRETE_GAUSSIAN, self.multiplier, unit=self.unit, private=source.secure)


@dataclass(frozen=True)
class Laplace:
    """``x + Laplace(b)`` rounded to the grid, ``b = multiplier Delta1``: ``eps = 1 / multiplier`` alone."""

    multiplier: float
    sensitivity: float
    unit: Unit = Unit.RECORD

    def __call__(self, values: Array, source: Source | None = None) -> tuple[Array, Cost]:
        """Return the noisy values and what they cost."""
        source = source or Source()
        steps = to_grid(values)
        scale = math.ceil(self.multiplier * on_grid(self.sensitivity, steps.size, order=1) / STEP)
        noise = samplers.rounded_laplace(scale, steps.size, source) if scale else 0
        return from_grid(_add(steps, noise)), Cost(
            Mechanism.LAPLACE, self.multiplier, unit=self.unit, private=source.secure
        )


@dataclass(frozen=True)
class RandomizedResponse:
    """Flip each bit with probability ``p = 1 / (1 + e^eps)`` (Warner 1965).

    For the unit cell one bit is at stake; for a client or record all of its d bits are, and the cost is paid d times:
    at a total of 1 over d = 1000 bits each is flipped with 0.49975, which leaves next to nothing.
    """

    epsilon: float
    unit: Unit = Unit.CELL

    @property
    def flip(self) -> float:
        """The probability of a flip."""
        return 1 / (1 + math.exp(check_positive("epsilon", self.epsilon)))

    def __call__(self, values: Array, source: Source | None = None) -> tuple[Array, Cost]:
        """Return the flipped bits (uint8) and what they cost."""
        source = source or Source()
        bits = _as_bits(values)
        # rounded up past the error of the division: never fewer flips than promised
        threshold = np.uint64(min((1 << 63), int(self.flip * 2.0**64 * (1 + 2.0**-50)) + 1))
        flips = (source.words(bits.size) < threshold).reshape(bits.shape)
        count = 1 if self.unit is Unit.CELL else bits.size
        cost = Cost(Mechanism.RANDOMIZED_RESPONSE, 1 / self.epsilon, count=count, unit=self.unit, private=source.secure)
        return bits ^ flips, cost

    def debias(self, values: Array) -> Array:
        """Return ``(y - p) / (1 - 2 p)``, whose mean is the true bit: for one answer, or for means of answers."""
        return (np.asarray(values, dtype=np.float64) - self.flip) / (1 - 2 * self.flip)


def _add(steps: Array, noise: Array | int) -> Array:
    # noise above 2^62 would need a scale above MAX_SCALE, so the int64 sum itself cannot wrap
    total = steps + (noise.reshape(steps.shape) if isinstance(noise, np.ndarray) else noise)
    if np.abs(total).max(initial=0) >= LIMIT:
        raise OutOfRangeError(f"the noisy value must be below {LIMIT * STEP:g}; clip to a smaller bound.")
    return total


def _as_bits(values: Array) -> Array:
    bits = np.asarray(values)
    if bits.dtype.kind not in "biu":
        raise DtypeError(f"bits (bool or integer) were expected. Found dtype {bits.dtype}.")
    if ((bits != 0) & (bits != 1)).any():
        raise OutOfRangeError("bits must be 0 or 1.")
    return bits.astype(np.uint8)
