"""Penalties of codes and factor as changes of statistics: no solver knows of them.

With ``l1 |F|_1 + l2/2 |F|^2`` the half-problem ``min_{F >= 0} 1/2 |X - F B|^2`` keeps its form:

    gram <- gram + l2 I,    cross <- cross - l1

and so it does with ``overlap/2 sum_{p != l} <W_p, W_l> <H_p, H_l>``, which is 0 where no two components are used in one
row for one feature: the gram of the other factor is multiplied by ``1 + overlap`` off its diagonal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from cofactor.types import Array, CofactorError, Stats


class Penalty(NamedTuple):
    """``l1 |F|_1 + l2/2 |F|^2`` of a factor."""

    l1: float = 0.0
    l2: float = 0.0

    def slope(self, F: Array) -> Array | float:
        """Return its slope, which stands in the denominator of a multiplicative update."""
        return self.l1 + self.l2 * F if self.l2 else self.l1

    def price(self, F: Array) -> float:
        """Return its value."""
        squares = np.einsum("ij,ij->", F, F, dtype=np.float64) if self.l2 else 0.0
        return float(self.l1 * F.sum(dtype=np.float64) + 0.5 * self.l2 * squares)

    def times(self, count: float) -> Penalty:
        """Return it ``count`` times."""
        return Penalty(self.l1 * count, self.l2 * count)


FREE = Penalty()
"""No penalty."""


@dataclass(frozen=True)
class Penalties:
    """Of every code for each feature, of every entry of the factor for each row (so that sizes of data do not matter),
    and of components for each other.

    ``scaled`` says whether they tell how large codes and factor are, ``any`` whether there is one.
    """

    codes: Penalty = FREE
    factor: Penalty = FREE
    overlap: float = 0.0
    scaled: bool = field(init=False)
    any: bool = field(init=False)

    def __post_init__(self) -> None:
        """Refuse rewards."""
        if not (np.isfinite([*self.codes, *self.factor]).all() and min(*self.codes, *self.factor) >= 0):
            raise CofactorError(f"penalties must be numbers >= 0. Found {tuple(self.codes)} and {tuple(self.factor)}.")
        if not (np.isfinite(self.overlap) and self.overlap >= 0):
            raise CofactorError(f"overlap must be a number >= 0. Found {self.overlap}.")
        object.__setattr__(self, "scaled", any((*self.codes, *self.factor)))
        object.__setattr__(self, "any", self.scaled or self.overlap > 0)

    def for_codes(self, stats: Stats, n_features: int) -> Stats:
        """Return the statistics of the codes with what they cost."""
        return _with(stats, self.codes.times(n_features), self.overlap)

    def first(self, stats: Stats) -> Array:
        """Return the codes to begin at: zeros, or with an overlap the one component that explains most of each row.

        From zeros coordinate descent would give a row to the first component, and the overlap would keep it there.
        """
        if not self.overlap:
            return np.zeros_like(stats.cross)
        size, wanted = np.diag(stats.gram), np.maximum(stats.cross, 0)
        alone = wanted * np.where(size > 0, 1 / np.where(size > 0, size, 1), 0).astype(wanted.dtype)
        explained = alone * wanted
        return np.where(explained == np.max(explained, axis=1, keepdims=True), alone, 0)

    def for_factor(self, stats: Stats, rows: float) -> Stats:
        """Return the statistics of the factor with what it costs."""
        return _with(stats, self.factor.times(rows), self.overlap)


UNPENALIZED = Penalties()
"""None of them."""


def _with(stats: Stats, penalty: Penalty, overlap: float) -> Stats:
    gram, cross = stats
    if overlap:
        gram = gram * gram.dtype.type(1 + overlap) - np.diag(gram.dtype.type(overlap) * np.diag(gram))
    if penalty.l2:
        gram = gram + np.eye(len(gram), dtype=gram.dtype) * gram.dtype.type(penalty.l2)
    if not penalty.l1:
        return Stats(gram, cross)
    unused = np.diag(gram) == 0  # solvers leave what has no curvature; what costs and does nothing goes to 0
    return Stats(gram + np.diag(unused).astype(gram.dtype), cross - cross.dtype.type(penalty.l1))
