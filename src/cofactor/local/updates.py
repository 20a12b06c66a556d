"""Solvers of ``min_{F >= 0} 1/2 |X - F B|^2`` as functions of (F, gram, cross); each a frozen dataclass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cofactor.local import bpp
from cofactor.local.kernels import descent
from cofactor.local.placed import Placed
from cofactor.local.stats import lipschitz
from cofactor.schedules import at
from cofactor.types import Array, Stats


def _inverse(L: float) -> float:
    return 1 / L if L > 0 else 0.0


@dataclass(frozen=True)
class MU:
    """Multiplicative update ``F <- F * cross / (F gram)`` (Lee and Seung 2000). Zeros stay zero."""

    sweeps: int = 1

    def __call__(self, F: Array, stats: Stats, t: int = 0, previous: Array | None = None) -> Array:
        """Return F after ``sweeps`` updates."""
        cross = np.maximum(stats.cross, 0)
        for _ in range(self.sweeps):
            down = F @ stats.gram
            F = np.divide(F * cross, down, out=F.copy(), where=down > 0)
        return F


@dataclass(frozen=True)
class HALS:
    """Cyclic coordinate descent over the components (Cichocki and Phan 2009), ``sweeps`` times.

    With ``tol`` > 0 each row stops when a sweep moves it by at most ``tol`` times its norm.
    """

    sweeps: int = 1
    tol: float = 0.0

    def __call__(self, F: Array, stats: Stats, t: int = 0, previous: Array | None = None) -> Array:
        """Return F after the sweeps; the sweeps share one gradient per row."""
        return descent.hals(F, *stats, self.sweeps, self.tol)


@dataclass(frozen=True)
class PGD:
    """Projected gradient ``F <- [F - (F gram - cross)/L]_+``, ``L = ||gram||_2``: one PALM step."""

    sweeps: int = 1

    def __call__(self, F: Array, stats: Stats, t: int = 0, previous: Array | None = None) -> Array:
        """Return F after ``sweeps`` steps."""
        step = F.dtype.type(_inverse(lipschitz(stats.gram)))
        for _ in range(self.sweeps):
            F = _projected(F, F @ stats.gram, stats.cross, step)
        return F


def _projected(F: Array, down: Array, cross: Array, step: Array) -> Array:
    """Return ``[F - step (down - cross)]_+``, in the place of ``down`` where all of it is in memory."""
    if any(isinstance(a, Placed) for a in (F, down, cross)) or not down.dtype == cross.dtype == F.dtype:
        return np.maximum(F - step * (down - cross), 0)
    down -= cross
    down *= step
    np.subtract(F, down, out=down)
    return np.maximum(down, 0, out=down)


@dataclass(frozen=True)
class IPALM:
    """Inertial PALM step (Pock and Sabach 2016).

    ``y = F + beta (F - previous)``, step ``2 (1 - beta) / (1 + 2 beta) / L``, projected.
    """

    inertia: float = 0.25

    def __call__(self, F: Array, stats: Stats, t: int = 0, previous: Array | None = None) -> Array:
        """Return the next iterate; without ``previous`` there is no inertia yet."""
        beta = self.inertia
        y = F if previous is None else F + F.dtype.type(beta) * (F - previous)
        step = F.dtype.type(2 * (1 - beta) / (1 + 2 * beta) * _inverse(lipschitz(stats.gram)))
        return _projected(y, y @ stats.gram, stats.cross, step)


@dataclass(frozen=True)
class ProximalCD:
    """HALS on the objective plus ``mu_t/2 |F - F_old|^2``, ``mu_t = weight_t * mean(diag gram)``.

    The weight is relative, so the scale of the data does not matter; it may be a schedule.
    """

    weight: Any = 0.1
    sweeps: int = 1

    def __call__(self, F: Array, stats: Stats, t: int = 0, previous: Array | None = None) -> Array:
        """Return F after ``sweeps`` sweeps that are anchored at F."""
        return self.gaining(F, stats, t)[0]

    def gaining(self, F: Array, stats: Stats, t: int) -> tuple[Array, Any]:
        """Return the same, and :func:`~cofactor.local.stats.gain` of the given F, in the precision of a sweep."""
        mu = float(at(self.weight, t)) * float(np.mean(np.diag(stats.gram)))
        return descent.hals_anchored(F, *stats, self.sweeps, mu)


@dataclass(frozen=True)
class BPP:
    """The exact non-negative least squares solution by block principal pivoting (Kim and Park 2011)."""

    def __call__(self, F: Array, stats: Stats, t: int = 0, previous: Array | None = None) -> Array:
        """Return the minimizer; F gives only dtype and shape."""
        return bpp.solve(stats.gram, stats.cross).astype(F.dtype, copy=False)


def catalog() -> dict[str, Any]:
    """Return every update by name: the list that the common laws run over."""
    return {
        "mu": MU(),
        "hals": HALS(),
        "pgd": PGD(),
        "ipalm": IPALM(),
        "proximal-cd": ProximalCD(),
        "bpp": BPP(),
    }
