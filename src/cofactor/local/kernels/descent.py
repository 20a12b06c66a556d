"""Sweeps over the rows of a half-problem, wherever its arrays are: numba in memory, Triton or torch on a device."""

from __future__ import annotations

from typing import Any

import numpy as np

from cofactor.local.kernels import cpu, tensor_sweeps
from cofactor.local.placed import Placed, placed
from cofactor.types import Array


def hals(F: Array, gram: Array, cross: Array, sweeps: int, tol: float = 0.0) -> Array:
    """Return F (rows x k) after coordinate descent on ``1/2 tr(F gram F^T) - tr(F cross^T)``, F >= 0.

    With ``tol`` > 0 rows stop when a sweep moves them by at most ``tol`` times their norm. F follows the statistics to
    where they are.
    """
    if isinstance(cross, Placed):
        own = [placed(a, cross.tensor.device).astype(F.dtype, copy=False).tensor for a in (F, gram, cross)]
        return Placed(tensor_sweeps.hals(*own, sweeps, tol))
    gram, cross = (np.asarray(a, dtype=F.dtype) for a in (gram, cross))
    return cpu.hals_solve(F, gram, cross, sweeps, tol) if tol > 0 else cpu.hals_sweeps(F, gram, cross, sweeps)


def hals_anchored(F: Array, gram: Array, cross: Array, sweeps: int, weight: float) -> tuple[Array, Any]:
    """Return :func:`hals` on the same objective and ``weight/2 |F - F_0|^2``, and the objective of F_0.

    F_0 is the F that is given; of the objective it is what the statistics say.
    """
    if isinstance(cross, Placed) or isinstance(F, Placed):
        ridge = gram + gram.dtype.type(weight) * np.eye(len(gram), dtype=gram.dtype)
        gain = 0.5 * np.vdot(gram, F.T @ F) - np.vdot(cross, F)
        return hals(F, ridge, cross + cross.dtype.type(weight) * F, sweeps), gain
    gram, cross = (np.asarray(a, dtype=F.dtype) for a in (gram, cross))
    return cpu.hals_anchored(F, gram, cross, sweeps, weight)


def hals_ahead(F: Array, gram: Array, cross: Array, sweeps: int, momentum: Any) -> tuple[Array, Array, Array]:
    """Return :func:`hals`, that extrapolated beyond F (:func:`extrapolate`), and the gram of the latter, to the bit."""
    if isinstance(cross, Placed):
        new = hals(F, gram, cross, sweeps)
        ahead = extrapolate(new, F, momentum)
        return new, ahead, ahead.T @ ahead
    gram, cross = (np.asarray(a, dtype=F.dtype) for a in (gram, cross))
    return cpu.hals_ahead(F, gram, cross, sweeps, momentum)


def extrapolate(new: Array, old: Array, momentum: Any) -> Array:
    """Return ``[new + momentum (new - old)]_+``."""
    if isinstance(new, Placed):
        ahead = momentum.astype(new.dtype) if isinstance(momentum, Placed) else new.dtype.type(momentum)
        return np.maximum(new + ahead * (new - old), 0)
    return cpu.extrapolate(new, old, momentum)
