"""Observed entries: stored values were seen, all others are unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cofactor import ratings
from cofactor.kinds.kind import Score, of_one_row, root
from cofactor.local import arrays
from cofactor.types import Array, Data


@dataclass(frozen=True)
class Rated:
    """Ratings of items, one user a row: the error is relative to predicting zeros, over the observed entries."""

    name: str = "ratings"
    called: str = "observed ratings"
    compares: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    pictures = None

    def check(self, X: Any, client: object = 0) -> Data:
        """Refuse NaN, infinite and negative values, and what does not say which entries were observed."""
        return arrays.check(ratings.observed(X), client=client)

    def tally(self, method: Any, X: Data, W: Array, H: Array) -> Array:
        """The loss, that of predicting zeros, squared residuals, of how many ratings they are, and all ratings.

        Clicks have no residuals.
        """
        layout = method.layout
        most = ratings.losses(X, np.zeros_like(W), H, layout).sum()
        clicks = layout.implicit or X.nnz == 0
        squares = 0.0 if clicks else ratings.residual_squares(X, W, H).sum()
        loss = ratings.losses(X, W, H, layout).sum()
        return np.array([loss, most, squares, 0.0 if clicks else float(X.nnz), float(X.nnz)])

    def score(self, tally: Array) -> Score:
        """Relative error, and RMSE on the observed entries (None for clicks)."""
        loss, most, squares, count, _ = tally
        return Score(root(loss, most), root(squares, count) if count else None)

    def alone(self, components: Sequence[int]) -> str:
        """A part of the one user that uses it."""
        return of_one_row("component", components, "it, or a part of it")

    def public(self, method: Any) -> tuple[list[str], dict[str, Array]]:
        """Biases and the mean lie below the components; the layout says so."""
        layout = method.layout
        rows = [f"component{i}" for i in range(layout.rank)] + ["one", "item_bias", "mean"] * layout.biases
        return rows, layout.arrays()


RATED = Rated()
