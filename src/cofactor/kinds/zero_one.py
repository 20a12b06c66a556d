"""Zeros and ones: ``X ~ W o H``, an OR of ANDs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from cofactor.boolean import Tally, check_boolean, tally
from cofactor.kinds.kind import Score, of_one_row, root
from cofactor.local import arrays
from cofactor.local.admitted import SizeError
from cofactor.local.placed import to_host
from cofactor.types import Array, Data

VIEW_ROWS, SIDE = 5000, 240
PANELS = ("data", "reconstruction", "error")
COUNTS = ("support", "hits")
"""By component: how many rows use it, and how many ones it covers in them."""


@dataclass(frozen=True)
class ZeroOne:
    """Zeros and ones: the error is ``|X xor (W o H)| / |X|``."""

    name: str = "boolean"
    called: str = "zeros and ones"
    compares: bool = False
    options: Mapping[str, Any] = field(default_factory=lambda: {"sweeps": None})
    """Sweeps at the end are often worth more than the choice of method."""
    public = None

    def check(self, X: Any, client: object = 0) -> Data:
        """Refuse everything but zeros and ones; rows on disk are loaded, as bits are packed."""
        if arrays.is_placed(X):
            check_boolean(X.check(client=client, signed=True), str(client))
            return X
        try:
            X = arrays.check(X.load() if arrays.is_held(X) else X, client=client, signed=True)
        except SizeError as error:
            X = error.data  # no bits, whatever their size
        check_boolean(X, str(client))
        return X

    def tally(self, method: Any, X: Data, W: Array, H: Array) -> Array:
        """Errors, ones, hits and cells, as counts."""
        return np.array(tally(X, W, H), dtype=np.float64)

    def score(self, tally: Array) -> Score:
        """Boolean loss, and the root of the share of wrong cells."""
        counts = Tally(*tally)
        return Score(float(counts.loss), root(counts.error, counts.cells))

    def alone(self, components: Sequence[int]) -> str:
        """A part of the one row that uses it."""
        return of_one_row("component", components, "it, or a part of it")

    def pictures(self, X: Data, W: Array, H: Array) -> dict[str, Array]:
        """Return small grey pictures (block means) of some rows, of ``W o H`` and of where they differ, and ``COUNTS``.

        Rows are ordered by their codes and columns by the components that have them, so that tiles stand together.
        """
        X, W, H = arrays.in_memory(X), to_host(W), to_host(H)
        counts = dict(zip(COUNTS, support(X, W, H), strict=True))
        X, W = arrays.rows(X, np.arange(min(VIEW_ROWS, X.shape[0]))), W[:VIEW_ROWS]
        X = X.toarray() if sparse.issparse(X) else X
        rows, columns = (np.lexsort(M[::-1]) for M in (1 - W.T.astype(int), 1 - H.astype(int)))
        X, R = X[np.ix_(rows, columns)] > 0, (W.astype(int) @ H.astype(int) > 0)[np.ix_(rows, columns)]
        named = dict(zip(PANELS, (X, R, X != R), strict=True))
        return {**{name: arrays.block_means(M.astype(np.float32), SIDE) for name, M in named.items()}, **counts}


def support(X: Data, W: Array, H: Array) -> tuple[Array, Array]:
    """Return by component (k, int64) the rows that use it and the ones of X that it covers in them; both add up."""
    used = np.asarray(W) != 0
    covered = np.asarray(X @ H.T.astype(np.float64))
    return used.sum(axis=0), np.rint(np.where(used, covered, 0).sum(axis=0)).astype(np.int64)


ZERO_ONE = ZeroOne()
