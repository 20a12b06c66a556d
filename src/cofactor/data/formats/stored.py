"""What rows on disk are read from: sources, and some rows or columns of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from cofactor.local import arrays
from cofactor.types import Array, Data

NEAR = 32
"""Rows over a gap this small are read too: it costs less than opening the file again."""


class Dense:
    """What all sources of dense rows have in common."""

    sparse = False
    shape: tuple[int, int]

    @property
    def cells(self) -> float:
        """Values of a row."""
        return float(self.shape[1])


class Source(Protocol):
    """Rows on disk: how many, of which type, and a way to read some of them. Sources pickle."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the stored values."""
        ...

    @property
    def cells(self) -> float:
        """Stored values of an average row; fewer than the features only where rows are sparse."""
        ...

    @property
    def sparse(self) -> bool:
        """Whether rows are read as CSR."""
        ...

    def read(self, start: int, stop: int) -> Data:
        """Return rows ``start:stop`` as they are stored, dense or CSR."""
        ...


@dataclass(frozen=True, eq=False)
class Derived:
    """The base of sources that read another one first, all of its columns."""

    inner: Source

    @property
    def dtype(self) -> np.dtype[Any]:
        """As the other one says."""
        return self.inner.dtype

    @property
    def cells(self) -> float:
        """As the other one says: so much is read."""
        return self.inner.cells

    @property
    def sparse(self) -> bool:
        """As the other one says."""
        return self.inner.sparse


@dataclass(frozen=True, eq=False)
class Columns(Derived):
    """Some columns of a source."""

    index: Array

    @property
    def shape(self) -> tuple[int, int]:
        """All rows, some features."""
        return self.inner.shape[0], len(self.index)

    def read(self, start: int, stop: int) -> Data:
        """Return rows ``start:stop`` of these columns."""
        return self.inner.read(start, stop)[:, self.index]


@dataclass(frozen=True, eq=False)
class Rows(Derived):
    """Some rows of a source, in any order; near ones are read at once, no more rows than were asked for."""

    index: Array

    @property
    def shape(self) -> tuple[int, int]:
        """Some rows, all features."""
        return len(self.index), self.inner.shape[1]

    def read(self, start: int, stop: int) -> Data:
        """Return rows ``start:stop`` of these rows."""
        wanted = self.index[start:stop]
        if not len(wanted):
            return self.inner.read(0, 0)
        distinct, place = np.unique(wanted, return_inverse=True)
        windows = np.unique(distinct // len(wanted), return_index=True)[1]
        near = np.flatnonzero(np.diff(distinct) > NEAR) + 1
        parts = [self._span(run) for run in np.split(distinct, np.union1d(windows[1:], near))]
        found = parts[0] if len(parts) == 1 else arrays.stack(parts)
        return found if np.array_equal(wanted, distinct) else found[place]

    def _span(self, run: Array) -> Data:
        first, last = int(run[0]), int(run[-1])
        span = self.inner.read(first, last + 1)
        return span if last - first + 1 == len(run) else span[run - first]


def positions(index: Array, length: int) -> Array:
    """Return positions in 0..length-1 for positions (negative ones count from the end) or a mask."""
    return np.arange(length)[np.asarray(index, dtype=None if len(index) else np.intp)]
