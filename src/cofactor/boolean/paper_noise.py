"""Noise as the paper FELB draws it, for the reproduction of its figures. NOT a privacy guarantee.

The paper takes a sensitivity that it estimates (the most ones in a row, or the number of columns), not one that
clipping enforces; it uploads in many rounds at the full epsilon each and never adds them up, and the samplers
are floating point. None of these numbers bounds a privacy loss: for that, use :mod:`cofactor.privacy`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, sqrt
from typing import Protocol

import numpy as np

from cofactor.types import Array


class PaperMechanism(Protocol):
    """What is done to the cells of a factor before it is sent."""

    def __call__(self, H: Array, rng: np.random.Generator) -> Array:
        """Return the noisy factor."""
        ...


@dataclass(frozen=True)
class PaperGaussian:
    """``H + N(0, sigma^2)``, ``sigma = sensitivity / epsilon sqrt(2 log(1.25 / delta))``; NOT a guarantee.

    The paper calls sigma the variance; the formula it cites is that of the deviation. ``clipped`` puts the noisy
    cells back into [0, 1] (the paper's dagger; it does not say what is clipped, this is our reading).
    """

    epsilon: float
    sensitivity: float
    delta: float = 0.05
    clipped: bool = False

    def __call__(self, H: Array, rng: np.random.Generator) -> Array:
        """Return the noisy factor."""
        sigma = self.sensitivity / self.epsilon * sqrt(2 * log(1.25 / self.delta))
        return _clip(H + rng.normal(0.0, sigma, H.shape), self.clipped).astype(H.dtype)


@dataclass(frozen=True)
class PaperLaplace:
    """``H + Laplace(sensitivity / epsilon)``; NOT a guarantee. ``clipped`` as for :class:`PaperGaussian`."""

    epsilon: float
    sensitivity: float
    clipped: bool = False

    def __call__(self, H: Array, rng: np.random.Generator) -> Array:
        """Return the noisy factor."""
        return _clip(H + rng.laplace(0.0, self.sensitivity / self.epsilon, H.shape), self.clipped).astype(H.dtype)


@dataclass(frozen=True)
class PaperXor:
    """Every bit of a Boolean factor flipped with probability ``1 / (1 + exp(epsilon / sensitivity))``; NOT a guarantee.

    Randomized response, which is the XOR mechanism of Ji et al. (VLDB 2021) with independent bits.
    """

    epsilon: float
    sensitivity: float

    def __call__(self, H: Array, rng: np.random.Generator) -> Array:
        """Return the flipped bits."""
        # beyond 700 the exponential overflows, and no bit is flipped anyway
        flip = rng.random(H.shape) < 1 / (1 + exp(min(self.epsilon / self.sensitivity, 700.0)))
        return np.where(flip, 1 - H, H).astype(H.dtype)


def _clip(H: Array, clipped: bool) -> Array:
    return np.clip(H, 0.0, 1.0) if clipped else H
