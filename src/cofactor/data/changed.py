"""Data whose rows are changed when they are looked at: in memory at once, on disk a block at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cofactor.data.formats.row_blocks import RowBlocks, working_dtype
from cofactor.data.formats.stored import Derived
from cofactor.local.columns import SomeColumns
from cofactor.types import Data

Change = Callable[[Any], Any]
"""Rows in memory (dense or CSR) -> as many rows, of the same form."""


def changed(X: Data, change: Change, width: int | None = None) -> Data:
    """Return X with its rows changed; ``width`` is the number of features afterwards, if it is another."""
    if isinstance(X, SomeColumns):
        return SomeColumns(changed(X.inner, change), X.index, X.n_features)
    if isinstance(X, RowBlocks):
        return replace(X, source=ChangedRows(X.source, change, X.shape[1] if width is None else width))
    return change(X)


def floats(X: Any) -> Any:
    """Return values as floats: single precision where that is exact."""
    return X.astype(working_dtype(X.dtype), copy=False)


@dataclass(frozen=True, eq=False)
class ChangedRows(Derived):
    """A source of rows that are changed after they are read."""

    change: Change
    width: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, and features afterwards."""
        return self.inner.shape[0], self.width

    @property
    def dtype(self) -> np.dtype[Any]:
        """Floats."""
        return working_dtype(self.inner.dtype)

    def read(self, start: int, stop: int) -> Data:
        """Return changed rows."""
        return self.change(self.inner.read(start, stop))
