"""Values that are admitted: of a size whose squares are numbers; those on a device finite, and of the right sign."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from cofactor.local.tensors import torch
from cofactor.types import DataError

SQUARED = 1e140
"""Largest values up to so much, and down to its inverse, have squares and sums of squares in double precision."""
NARROW = 2.0**40
"""Values of float32 data up to so much, and down to its inverse, have squares and sums of squares in float32 too."""
OR_ZERO = ", or as 0 where so little means nothing"


class SizeError(DataError):
    """Values have no squares; ``data`` are admitted otherwise. In a private run they pass, cut to its bounds."""

    def __init__(self, text: str, data: Any) -> None:
        super().__init__(text)
        self.data = data


def check_size(data: Any, largest: float, where: str) -> Any:
    """Return data, or refuse them if the square of the largest value is 0, or infinite: no error of them is true."""
    if largest > 0 and not 1 / SQUARED <= largest <= SQUARED:
        raise SizeError(
            f"{where}: expected a largest value from {1 / SQUARED:g} to {SQUARED:g}, whose squares are numbers, found "
            f"{largest:.3g}; give the data of all clients in another unit{OR_ZERO if largest < 1 else ''}.",
            data,
        )
    return data


def pair(row: int, column: int) -> tuple[int, int]:
    """Return both: values of dense data are where they are.

    >>> pair(1, 2)
    (1, 2)
    """
    return row, column


def wide(X: Any, largest: float) -> Any:
    """Return data of float32 as float64 where squares of the largest value leave float32; others as they are."""
    narrow = largest == 0 or 1 / NARROW <= largest <= NARROW
    return X if narrow or X.dtype == np.float64 else X.astype(np.float64)


def check_tensors(blocks: Iterable[Any], where: str, *, signed: bool, cell: Callable[[int, int], Any] = pair) -> float:
    """Return the largest size of values, in blocks of rows, or refuse some that cannot be factorized.

    ``cell`` says in which row and column of the data a value is.
    """
    first, largest = 0, 0.0
    for block in blocks:
        low, high = (float(a) for a in torch().aminmax(block.float() if block.dtype == torch().bfloat16 else block))
        if not (np.isfinite(low) and np.isfinite(high) and (signed or low >= 0)):
            bad = ~torch().isfinite(block) | ((block < 0) & (not signed))
            i, j = (int(i) for i in bad.nonzero()[0])
            row, column = cell(first + i, j)
            wanted = "finite values" if signed else "finite values >= 0"
            raise DataError(
                f"{where}: expected {wanted}, found {float(block[i, j])} at row {row}, column {column}; "
                "drop, impute, shift or clip them first.",
                column,
            )
        first, largest = first + len(block), max(largest, high, -low)
    check_size(None, largest, where)
    return largest
