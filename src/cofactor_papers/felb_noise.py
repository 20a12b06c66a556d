"""FELB as it is printed: noise that is NOT a privacy guarantee, and codes left stale.

The paper takes a sensitivity that it estimates (the most ones in a row, or the number of columns), not one that
clipping enforces; it uploads in many rounds at the full epsilon each and never adds them up, and the samplers
are floating point. None of these numbers bounds a privacy loss: for that, use :mod:`cofactor.privacy`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import Protocol

import numpy as np

from cofactor.boolean.elbmf import binary
from cofactor.method import SERVER, Method, rng
from cofactor.methods.wrapped import Wrapped
from cofactor.types import Array, Data, Local, Message, Shared


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


@dataclass(frozen=True)
class PaperNoise(Wrapped):
    """A Boolean method whose uploaded factors carry the paper's noise. NOT a privacy guarantee.

    Only arrays named ``factor`` are changed.
    """

    noise: PaperMechanism

    def step(self, data: Data, shared: Shared, local: Local, t: int, rng: np.random.Generator) -> tuple[Local, Message]:
        """Step the method, then add noise to the factor that it sends."""
        local, message = self.method.step(data, shared, local, t, rng)
        if "factor" not in message.arrays:
            return local, message
        # where sums are enough, clients send their factor times the weight
        scale = message.weight if self.traits.additive else 1.0
        H = message.arrays["factor"]
        noisy = (self.noise(H / H.dtype.type(scale) if scale != 1 else H, rng) * scale).astype(H.dtype)
        return local, Message({**message.arrays, "factor": noisy}, message.weight)


def stale(method: Method, Xs: Sequence[Data], *, rounds: int, seed: int = 0) -> tuple[Array, list[Array]]:
    """Run a method and return its factor with the codes as the rounds left them (the paper's protocol).

    The codes belong to the clients' own factors, not to the merged one: never report their error as the result.
    """
    shared = method.start(Xs[0].shape[1], rng(seed, SERVER, -1))
    held: list[Local] = []
    for t in range(min(rounds, method.rounds or rounds)):
        if t in method.traits.stages:
            held = [method.join(X, shared.broadcast(), t, rng(seed, j, -1)) for j, X in enumerate(Xs)]
        replies = [method.step(X, shared.broadcast(), held[j], t, rng(seed, j, t)) for j, X in enumerate(Xs)]
        held = [local for local, _ in replies]
        shared = method.aggregate(shared, [message for _, message in replies], t)
    return method.factor(shared), [binary(local.codes) for local in held]
