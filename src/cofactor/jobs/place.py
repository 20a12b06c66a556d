"""Where a job runs: in one process, in several that walk the same way, or here with its clients elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np

from cofactor.engines.contract import Engine
from cofactor.engines.inline import Inline
from cofactor.local import arrays
from cofactor.types import Array, CofactorError, Data

T = TypeVar("T")


class Place:
    """A job's view of its engine: which clients are here, what all processes do, and what only the first does."""

    def __init__(self, engine: Engine | None = None) -> None:
        self.engine: Engine = engine or Inline()
        self._team, self.remote = self.engine.team, self.engine.remote
        self.count, self.here = self._team.count, self._team.here

    @property
    def opens(self) -> bool | None:
        """Whether formats that can be read in parts stay on disk; None leaves it to their size."""
        return True if self.remote or self.count > 1 else None

    def own(self, count: int) -> slice:
        """Return which of ``count`` clients are this process's: ranges whose sizes differ by at most one."""
        if count < self.count:
            raise CofactorError(f"expected at most {count} processes (the clients), found {self.count}.")
        ends = np.cumsum([0, *map(len, np.array_split(np.arange(count), self.count))])
        return slice(int(ends[self.here]), int(ends[self.here + 1]))

    def take(self, X: Data, index: Array) -> Data:
        """Return rows as a client's data: those on disk stay there, unless every process has its own to load."""
        if not arrays.is_held(X):
            return arrays.rows(X, index)
        if self.count == 1:
            return X.take(index)
        first, last = (int(index[0]), int(index[-1])) if len(index) else (0, -1)
        return X.row_block(slice(first, last + 1)) if last - first + 1 == len(index) else X.take(index).load()

    def alone(self, where: str, work: Callable[[], T]) -> T:
        """Let process 0 do the work; every process returns its result."""
        with self.guard(where):
            done = [work()] if self.here == 0 else []
        return self.together(where, done)[0]

    def together(self, where: str, mine: list[T]) -> list[T]:
        """Return the lists of all processes as one."""
        return self._team.together(where, mine)

    def total(self, where: str, mine: int) -> int:
        """Return the sum over all processes."""
        return sum(self.together(where, [mine]))

    @contextmanager
    def guard(self, where: str) -> Iterator[None]:
        """Raise an error of this block on all processes."""
        with self._team.guard(where):
            yield
