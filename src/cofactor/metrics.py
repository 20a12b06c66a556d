"""How good a factorization is. Errors come from statistics, so nothing of size n x m is made."""

from __future__ import annotations

import numpy as np

from cofactor.local import arrays
from cofactor.local.stats import residual
from cofactor.types import Array, CofactorError, Data


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


def contingency(truth: Array, found: Array) -> Array:
    """Count the rows of every true class in every cluster (classes x clusters).

    Tables over the same classes and clusters add up over clients.
    """
    if np.shape(truth) != np.shape(found) or np.ndim(truth) != 1 or np.size(truth) == 0:
        raise CofactorError(f"expected two labels for every row, found shapes {np.shape(truth)} and {np.shape(found)}.")
    (classes, i), (clusters, j) = (np.unique(a, return_inverse=True) for a in (truth, found))
    return np.bincount(i * len(clusters) + j, minlength=len(classes) * len(clusters)).reshape(len(classes), -1)


def normalized_mutual_information(truth: Array, found: Array) -> float:
    """NMI: ``2 I(a, b) / (H(a) + H(b))``, 1 for the same clusters under other names, near 0 for unrelated ones.

    >>> normalized_mutual_information([0, 0, 1, 1], ["b", "b", "a", "a"])
    1.0
    """
    joint = contingency(truth, found) / len(truth)
    rows, columns = _entropy(joint.sum(axis=1)), _entropy(joint.sum(axis=0))
    if rows + columns == 0:
        return 1.0
    return max(2 * (rows + columns - _entropy(joint)) / (rows + columns), 0.0)


def _entropy(shares: Array) -> float:
    """``-sum p log p``."""
    p = shares[shares > 0]
    return float(-np.sum(p * np.log(p)))


def adjusted_rand(truth: Array, found: Array) -> float:
    """ARI (Hubert and Arabie 1985): agreement of pairs of rows, 1 for the same clusters and 0 on average by chance.

    >>> adjusted_rand([0, 0, 1, 1], [1, 1, 0, 0])
    1.0
    """
    table = contingency(truth, found).astype(np.float64)
    both, rows, columns = (float(np.sum(a * (a - 1)) / 2) for a in (table, table.sum(axis=1), table.sum(axis=0)))
    pairs = len(truth) * (len(truth) - 1) / 2
    chance, most = rows * columns / max(pairs, 1), (rows + columns) / 2
    return 1.0 if most == chance else (both - chance) / (most - chance)
