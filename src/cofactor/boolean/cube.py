"""The Boolean space: relaxed factors in [0, 1] on the way, bits at the end, greedy cover for the codes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cofactor.boolean.bits import error
from cofactor.boolean.cover import greedy_refit
from cofactor.boolean.elbmf import binary
from cofactor.types import Array, Data


@dataclass(frozen=True)
class Boolean:
    """W, H in [0, 1] while they are relaxed, 0 or 1 when final; R = W o H.

    Starts are uniform in [0, ``top``]. The papers have 1, where W H is k/4 in every cell: on sparse data the first
    steps push most components to zero, and none comes back.
    """

    top: float = 1.0
    kind = "boolean"

    def first_factor(self, rank: int, n_features: int, rng: np.random.Generator) -> Array:
        """Uniform in [0, top]."""
        return self.top * rng.random((rank, n_features))

    def first_codes(self, X: Data, H: Array, rng: np.random.Generator) -> Array:
        """Uniform in [0, top]."""
        return (self.top * rng.random((X.shape[0], len(H)))).astype(H.dtype)

    def scale(self, W: Array, H: Array) -> tuple[Array, Array]:
        """Change nothing: the distance of a cell to 0 and to 1 is what counts."""
        return W, H

    def objective(self, X: Data, W: Array, H: Array) -> float:
        """Return ``1/2 |X xor (W o H)|`` of Boolean factors, which is ``1/2 |X - W o H|^2``."""
        return 0.5 * error(X, W, H)

    def final(self, H: Array) -> Array:
        """Bits (uint8), rounded at 1/2."""
        return binary(H)

    def refit(self, X: Data, H: Array) -> Array:
        """Greedy cover (uint8)."""
        return greedy_refit(X, H)
