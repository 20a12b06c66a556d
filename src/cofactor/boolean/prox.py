"""Regularizers that pull every cell to 0 or 1, their proxes, and the growing rate.

Elastic-binary (ELB, Dalleiger & Vreeken, NeurIPS 2022) on [0, 1], with d = min(x, 1 - x):
``R(x) = kappa d + lam d^2 / 2``. Adaptive (ALB, paper FELB, appendix A): lam becomes
``lam(d) = lam / (1 - exp(-10 d))``, which pulls harder the nearer a cell already is.
"""

from __future__ import annotations

from math import inf, log
from typing import Any, Protocol

import numpy as np

from cofactor.boolean.packed import kernel
from cofactor.local.kernels import tensor_relaxed
from cofactor.local.placed import Placed
from cofactor.types import Array

SHIFT = 10.0
"""Gamma of the paper: how fast the adaptive rate settles to lam with the distance."""


class Prox(Protocol):
    """A prox of a binary regularizer, cell by cell."""

    def __call__(self, x: Array, kappa: float, lam: float, *, out: Array | None = None) -> Array:
        """Return ``argmin_{0 <= y <= 1} 1/2 (y - x)^2 + R(y)`` for every cell of x; ``out=x`` may be written over."""
        ...


def elb_prox(x: Array, kappa: float, lam: float, *, out: Array | None = None) -> Array:
    """Return the prox of ELB: ``clip((x - kappa) / (1 + lam), 0, 1)`` for x <= 1/2, mirrored above.

    Above 1/2 it is ``clip((x + kappa + lam) / (1 + lam), 0, 1)``. The paper prints ``x - kappa sign(x)``
    without the clip, which bounces between two values around 0 and around 1.
    """
    if isinstance(x, Placed):
        return Placed(tensor_relaxed.elb(x.tensor, kappa, lam))
    out = _floating(x) if out is None else out
    _elb(out.ravel(order="K"), out.dtype.type(kappa), out.dtype.type(lam))
    return out


def alb_prox(x: Array, kappa: float, lam: float, *, out: Array | None = None) -> Array:
    """Return the prox of ALB with its rate taken at x: ``d <- max(u (d - kappa) / (u + lam), 0)``.

    x is clipped to [0, 1], d is its distance to the nearer of 0 and 1 (0 at a tie), u = 1 - exp(-10 d).
    """
    if isinstance(x, Placed):
        return Placed(tensor_relaxed.alb(x.tensor, kappa, lam, SHIFT))
    out = _floating(x) if out is None else out
    _alb(out.ravel(order="K"), out.dtype.type(kappa), out.dtype.type(lam))
    return out


def lam_at(t: Any, lam: float = 0.01, *, rate: float = 1.01) -> Any:
    """Return ``lam_t = lam rate^t``; t counts local steps. The growth stops at e^50, where it is forever."""
    last = 50 / log(rate) if rate > 1 else inf
    return lam * rate ** (np.minimum(t, last) if isinstance(t, Placed) else min(t, last))


def _floating(x: Array) -> Array:
    """Return a contiguous floating copy in the layout of x."""
    x = np.asarray(x)
    return np.array(x, dtype=x.dtype if x.dtype.kind == "f" else np.float64, order="K")


@kernel
def _elb(x: Array, kappa: float, lam: float) -> None:
    zero, one, half = x.dtype.type(0), x.dtype.type(1), x.dtype.type(0.5)
    scale = one / (one + lam)
    for p in range(x.size):
        y = x[p] - kappa if x[p] <= half else x[p] + kappa + lam
        x[p] = min(max(y * scale, zero), one)


@kernel
def _alb(x: Array, kappa: float, lam: float) -> None:
    zero, one, half = x.dtype.type(0), x.dtype.type(1), x.dtype.type(0.5)
    shift = x.dtype.type(SHIFT)
    for p in range(x.size):
        low = x[p] <= half
        d = max(x[p] if low else one - x[p], zero)
        if d > kappa:
            u = -np.expm1(-shift * d)
            d = u * (d - kappa) / (u + lam)
        else:
            d = zero
        x[p] = d if low else one - d
