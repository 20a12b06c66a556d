"""Which matrices are worked on as one: what each of many small ones takes alone is mostly its message."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from cofactor.local import arrays
from cofactor.types import Data

SMALL, BATCH = 8, 1 << 22
"""Matrices of at most so many rows are stacked, so many numbers in a batch. On a device all are one.

A stack of larger ones is faster, too (ten clients of 180 digits: .6 of the time), but its sums are added in another
order, so that a run in one process would no longer be that of other engines to the bit.
"""


class Batch(NamedTuple):
    """Which matrices go together, and the rows of all of them."""

    members: list[int]
    data: Data


def batches(Xs: Sequence[Data]) -> list[Batch]:
    """Return those of two matrices or more: small ones of one form, or all that a device has room for once more."""
    whole = arrays.go_together(list(Xs))
    together: dict[Any, list[int]] = defaultdict(list)
    begin = 0
    for i, X in enumerate(Xs):
        size = 0 if whole else arrays.stored(X)
        if whole or (X.shape[0] <= SMALL and np.isfinite(size)):
            together[arrays.has_dense_rows(X), begin // BATCH].append(i)
            begin += int(size)
    return [Batch(those, arrays.stack([Xs[i] for i in those])) for those in together.values() if len(those) > 1]
