"""Cells of which some were not observed, or count more or less than others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from cofactor.types import Array, Data


@dataclass(frozen=True, eq=False)
class Weighted:
    """Dense data X (n x m) of which cell ij counts ``weight_ij`` times; one of weight 0 was not observed."""

    X: Array
    weight: Array
    ndim = 2

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        return self.X.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of X."""
        return self.X.dtype

    def astype(self, dtype: Any) -> Weighted:
        """Return both in another type."""
        return Weighted(self.X.astype(dtype), self.weight.astype(dtype))

    def toarray(self) -> Array:
        """Return the cells, NaN where they were not observed."""
        return np.where(self.weight > 0, self.X, self.dtype.type(np.nan))

    def stacked(self, others: Sequence[Weighted]) -> Weighted:
        """Return the rows of all."""
        parts = [self, *others]
        return Weighted(np.vstack([p.X for p in parts]), np.vstack([p.weight for p in parts]))

    def __getitem__(self, rows: Any) -> Weighted:
        return Weighted(self.X[rows], self.weight[rows])


def cells(part: Data) -> tuple[Array, Array | float]:
    """Return the cells of some rows, 0 where they were not observed, and how much each counts: 1.0 if all are alike."""
    if isinstance(part, Weighted):
        return np.where(part.weight > 0, part.X, 0), part.weight
    X = part.toarray() if sparse.issparse(part) else part
    gap = np.isnan(X)
    return (np.where(gap, 0, X), (~gap).astype(X.dtype)) if gap.any() else (X, 1.0)


def completed(X: Data, W: Array, H: Array) -> Array:
    """Return the cells, those of ``W H`` where none were observed."""
    found = X.toarray() if sparse.issparse(X) or isinstance(X, Weighted) else X
    return np.where(np.isnan(found), (W @ H).astype(found.dtype, copy=False), found)
