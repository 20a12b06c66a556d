"""What kind of numbers the factors are: where they start, how they are scaled, what is final.

A method is the same for every space; only these few functions differ (Boolean: :mod:`cofactor.boolean.cube`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cofactor.local import arrays
from cofactor.local.init import random_codes, random_factor
from cofactor.local.refit import refit
from cofactor.local.stats import for_codes, gain, normalize, unit_rows
from cofactor.types import Array, Data


class Space(Protocol):
    """The values that W and H may take."""

    @property
    def kind(self) -> str:
        """The kind of the data (:mod:`cofactor.kinds`)."""
        ...

    def first_factor(self, rank: int, n_features: int, rng: np.random.Generator) -> Array:
        """Return a random start of H (k x m) that reads no data."""
        ...

    def first_codes(self, X: Data, H: Array, rng: np.random.Generator) -> Array:
        """Return a random start of W (n x k)."""
        ...

    def scale(self, W: Array, H: Array) -> tuple[Array, Array]:
        """Return (W, H) in the scale in which factors are uploaded and averaged."""
        ...

    def objective(self, X: Data, W: Array, H: Array) -> float:
        """Return ``1/2 |X - R|^2`` of the reconstruction R."""
        ...

    def final(self, H: Array) -> Array:
        """Return H as the result of a run."""
        ...

    def refit(self, X: Data, H: Array) -> Array:
        """Return the codes (n x k) that belong to a final factor."""
        ...


@dataclass(frozen=True)
class NonNegative:
    """W, H >= 0 and R = W H: rows of H at norm 1, the scale in W."""

    kind = "real"

    def first_factor(self, rank: int, n_features: int, rng: np.random.Generator) -> Array:
        """Uniform entries, rows at norm 1."""
        return random_factor(rank, n_features, rng)

    def first_codes(self, X: Data, H: Array, rng: np.random.Generator) -> Array:
        """Uniform entries, scaled to fit X."""
        return random_codes(for_codes(X, H), rng)

    def scale(self, W: Array, H: Array) -> tuple[Array, Array]:
        """Move the norms of the rows of H into W."""
        return unit_rows(W, H)

    def objective(self, X: Data, W: Array, H: Array) -> float:
        """Return ``1/2 |X - W H|^2`` from statistics."""
        return 0.5 * arrays.square(X) + gain(for_codes(X, H), W)

    def final(self, H: Array) -> Array:
        """Rows at norm 1."""
        return normalize(H)

    def refit(self, X: Data, H: Array) -> Array:
        """Non-negative least squares."""
        return refit(X, H)
