"""How good a factorization is. Errors come from statistics, so nothing of size n x m is made."""

from __future__ import annotations

import numpy as np

from cofactor.local import arrays
from cofactor.local.stats import for_codes, gain
from cofactor.types import Array, Data


def residual(X: Data, W: Array, H: Array) -> float:
    """``|X - W H|_F^2``, from ``|X|^2`` and the statistics of the codes."""
    H = H.astype(X.dtype, copy=False)
    return max(arrays.square(X) + 2 * gain(for_codes(X, H), W), 0.0)


def rmsd(X: Data, W: Array, H: Array) -> float:
    """Root mean squared deviation ``sqrt(|X - W H|^2 / (n m))``."""
    return float(np.sqrt(residual(X, W, H) / (X.shape[0] * X.shape[1])))


def relative_error(X: Data, W: Array, H: Array) -> float:
    """``|X - W H|_F / |X|_F`` (unsquared); 0 for data that are all zero."""
    square = arrays.square(X)
    return float(np.sqrt(residual(X, W, H) / square)) if square > 0 else 0.0


def sum_rmsd(Xs: list[Data], Ws: list[Array], H: Array) -> float:
    """Sum over clients of their RMSD: the number that the FNMF paper reports."""
    return sum(rmsd(X, W, H) for X, W in zip(Xs, Ws, strict=True))


def pooled_error(Xs: list[Data], Ws: list[Array], H: Array) -> float:
    """Relative error of all rows together: ``sqrt(sum_j |X_j - W_j H|^2 / sum_j |X_j|^2)``."""
    square = sum(arrays.square(X) for X in Xs)
    rest = sum(residual(X, W, H) for X, W in zip(Xs, Ws, strict=True))
    return float(np.sqrt(rest / square)) if square > 0 else 0.0


def orthogonality_gap(plan: Array) -> float:
    """``|P^T P - I|_F`` of an alignment plan: 0 for a permutation."""
    return float(np.linalg.norm(plan.T @ plan - np.eye(plan.shape[1])))
