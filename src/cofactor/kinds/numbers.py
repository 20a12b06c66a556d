"""Kinds of real numbers: non-negative matrices, with gaps too, rows to cluster, row and column blocks of one matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from cofactor.kinds.kind import Score, of_one_row, root
from cofactor.local import apart, arrays
from cofactor.local.columns import SomeColumns
from cofactor.local.stats import squares
from cofactor.local.weighted import Weighted, cells
from cofactor.methods.blocks import Blocks
from cofactor.types import Array, Data, DataError


@dataclass(frozen=True)
class NonNegative:
    """Numbers >= 0, ``X ~ W H``: the error is ``|X - W H|_F / |X|_F``."""

    name: str = "real"
    called: str = "non-negative numbers"
    compares: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    public = pictures = None

    def check(self, X: Any, client: object = 0) -> Data:
        """Refuse NaN, infinite and negative values."""
        return arrays.check(X, client=client)

    def tally(self, method: Any, X: Data, W: Array, H: Array) -> Array:
        """``|X - W H|^2``, ``|X|^2`` and the number of cells; a part of the client's own counts to H."""
        if method is not None and method.traits.apart is not None:
            H = H + apart.own_part(X, W, H, method.traits.apart)
        return np.array([*squares(X, W, H), float(np.prod(X.shape))])

    def score(self, tally: Array) -> Score:
        """Relative error and RMSD."""
        rest, square, cells = tally
        return Score(root(rest, square), root(rest, cells))

    def alone(self, components: Sequence[int]) -> str:
        """What the others leave of a row."""
        return of_one_row("component", components, "it, or what the other components leave of it")


@dataclass(frozen=True)
class Gapped(NonNegative):
    """Numbers >= 0 of which some cells, NaN, were not observed: the error is that of the others, by their weights."""

    name: str = "gaps"
    called: str = "non-negative numbers with missing cells"
    compares: bool = False

    def check(self, X: Any, client: object = 0) -> Data:
        """Refuse infinite and negative values, and weights of cells that are so, or NaN; what a client lacks is NaN."""
        if isinstance(X, SomeColumns):
            X = _over_all(X)
        if isinstance(X, Weighted):
            return Weighted(*(arrays.check(part, client=client) for part in (_observed(X), X.weight)))
        X = arrays.canonical(X) if sparse.issparse(X) else X  # checked below, cells stay where gaps are looked for
        values = X.data if sparse.issparse(X) else X
        if arrays.is_held(X) or np.asarray(values).dtype.kind != "f":
            return arrays.check(X, client=client)
        gaps = np.isnan(values)
        if sparse.issparse(X):
            filled = X.copy()
            filled.data = np.where(gaps, 0, values)
        else:
            filled = np.where(gaps, 0, values)
        found = arrays.check(filled, client=client)
        (found.data if sparse.issparse(found) else found)[gaps] = np.nan
        return found

    def tally(self, method: Any, X: Data, W: Array, H: Array) -> Array:
        """``|X - W H|^2``, ``|X|^2`` and the number of cells, of those that were observed."""
        found = np.zeros(3)
        for rows, part in arrays.blocks(X):
            values, weight = cells(part)
            rest = values - W[rows] @ H
            found += [np.sum(weight * rest**2), np.sum(weight * values**2), np.sum(np.broadcast_to(weight, rest.shape))]
        return found


def _over_all(X: SomeColumns) -> Array:
    """Return a matrix over all features: those that its client lacks were not observed."""
    known = arrays.dense(X.inner.load() if arrays.where(X.inner) == "disk" else X.inner)
    found = np.full(X.shape, np.nan, np.result_type(known.dtype, np.float32))
    found[:, X.index] = known
    return found


def _observed(X: Weighted) -> Array:
    """Return the cells that count, and 0 for the others; NaN counts where it has a weight."""
    return np.where(X.weight > 0, X.X, 0)


@dataclass(frozen=True)
class Clustered(NonNegative):
    """Rows of any sign, each at one of the components or between them: the error is the distance, over the size."""

    name: str = "clusters"
    called: str = "rows to cluster"
    compares: bool = False

    def check(self, X: Any, client: object = 0) -> Data:
        """Refuse NaN and infinite values; negative ones are fine."""
        return arrays.check(X, client=client, signed=True)

    def tally(self, method: Any, X: Data, W: Array, H: Array) -> Array:
        """``|X - W H|^2``, ``|X|^2`` and the number of cells; of dense rows from the differences themselves.

        Rows that lie together far from zero have squares beside which their distances are rounding errors.
        """
        found = super().tally(method, X, W, H)
        if arrays.has_dense_rows(X):
            exact = H.astype(np.float64, copy=False)
            found[0] = sum(float(np.sum((part - W[rows] @ exact) ** 2)) for rows, part in arrays.blocks(X))
        return found

    def alone(self, components: Sequence[int]) -> str:
        """A centre of one row is that row."""
        return of_one_row("centre", components, "it as it is")


@dataclass(frozen=True)
class Blocked(NonNegative):
    """Row and column blocks of one matrix: what counts is that of the rows."""

    name: str = "blocks"
    called: str = "row and column blocks of one matrix"
    compares: bool = False

    def check(self, X: Any, client: object = 0) -> Data:
        """Check both blocks, and that they can be parts of one matrix."""
        if not isinstance(X, Blocks):
            raise DataError(f"expected a row block and a column block, found {type(X).__name__}; see blocks().")
        return X.check(client=client)


NON_NEGATIVE, GAPPED, CLUSTERED, BLOCKED = NonNegative(), Gapped(), Clustered(), Blocked()
