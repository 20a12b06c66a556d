"""Outliers: ``X = W H + R`` with sparse R, by soft thresholds (paper DP-NMF, eq. 9). R is never held as a whole."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cofactor.local import arrays
from cofactor.local.stats import for_codes
from cofactor.local.updates import HALS
from cofactor.types import Array, CofactorError, Data

ENOUGH = 60


@dataclass(frozen=True)
class Outliers:
    """``S_{threshold, bound}``: what of a residual counts as outlier, entry by entry.

    Both numbers are in units of the size of an average entry of the row that is not zero, ``|x| / sqrt(entries)``: what
    a sparse row has, it has in few entries, and against all m of them each would be an outlier.
    """

    threshold: float = 0.3
    bound: float = np.inf

    def __post_init__(self) -> None:
        if not (self.threshold >= 0 and self.bound >= 0):
            raise CofactorError(
                f"outliers: expected a threshold and a bound >= 0. Found {self.threshold} and {self.bound}."
            )

    def __call__(self, residual: Array, entries: Array | None = None) -> Array:
        """Return R for rows of norm 1: zero below the threshold, then what exceeds it, at most the bound.

        ``entries`` (n x 1) are how many of a row are not zero; all, unless they are given.
        """
        unit = 1 / np.sqrt(residual.shape[1] if entries is None else np.maximum(entries, 1))
        excess = np.minimum(np.abs(residual) - self.threshold * unit, self.bound * unit)
        return np.sign(residual) * np.maximum(excess, 0.0)

    def explain(self, X: Array, H: Array, sweeps: int) -> tuple[Array, Array]:
        """Return codes of rows of norm 1, and the rows without outliers, by ``sweeps`` turns from codes of zero."""
        W, Z = np.zeros((len(X), len(H))), X
        entries = np.count_nonzero(X, axis=1)[:, None]
        for _ in range(sweeps):
            W = HALS(1)(W, for_codes(Z, H))
            Z = X - self(X - W @ H, entries)
        return W, Z

    def refit(self, X: Data, H: Array) -> Array:
        """Return the codes that belong to a final factor, outliers aside (n x k)."""
        H, W = H.astype(np.float64), np.zeros((X.shape[0], len(H)), X.dtype)
        for here, block in arrays.blocks(X):
            norms = np.linalg.norm(block, axis=1, keepdims=True)
            W[here] = self.explain(block / np.where(norms > 0, norms, 1.0), H, ENOUGH)[0] * norms
        return W
