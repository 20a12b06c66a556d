"""Sets that the rows of a factor or of codes may be confined to, each with its projection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cofactor.types import Array, CofactorError


class RowSet(Protocol):
    """A closed convex set of rows; ``cone`` says that a positive multiple of a member is a member.

    ``shares`` says that every member adds up to 1: ``W (H - 1 c^T) = W H - 1 c^T``, for any row c.
    """

    @property
    def cone(self) -> bool:
        """Whether the scale of a row is free."""
        ...

    @property
    def shares(self) -> bool:
        """Whether the entries of a row add up to 1."""
        ...

    def project(self, F: Array) -> Array:
        """Return the nearest F whose rows are members."""
        ...


@dataclass(frozen=True)
class Free:
    """All rows."""

    cone, shares = True, False

    def project(self, F: Array) -> Array:
        """Return F as it is."""
        return F


@dataclass(frozen=True)
class NonNegativeRows:
    """Rows >= 0."""

    cone, shares = True, False

    def project(self, F: Array) -> Array:
        """Cut negative entries off."""
        return np.maximum(F, 0)


@dataclass(frozen=True)
class UnitBall:
    """Rows of norm at most 1."""

    cone, shares = False, False

    def project(self, F: Array) -> Array:
        """Shrink longer rows to norm 1."""
        norms = np.linalg.norm(F, axis=1, keepdims=True)
        return F / np.maximum(norms, 1).astype(F.dtype)


@dataclass(frozen=True)
class Simplex:
    """Rows >= 0 with sum 1: shares, soft assignments to clusters."""

    cone, shares = False, True

    def project(self, F: Array) -> Array:
        """Subtract one threshold per row and cut (Duchi et al. 2008)."""
        ordered = -np.sort(-F, axis=1)
        excess = (np.cumsum(ordered, axis=1, dtype=np.float64) - 1) / np.arange(1, F.shape[1] + 1)
        last = np.maximum(np.sum(ordered > excess, axis=1), 1) - 1
        return np.maximum(F - excess[np.arange(len(F)), last, None].astype(F.dtype), 0)


SETS: dict[str, RowSet] = {
    "free": Free(),
    "non-negative": NonNegativeRows(),
    "unit-ball": UnitBall(),
    "simplex": Simplex(),
}


def named(name: str) -> RowSet:
    """Return a set by name."""
    if name not in SETS:
        raise CofactorError(f"constraint set: expected one of {', '.join(SETS)}; found {name!r}.")
    return SETS[name]
