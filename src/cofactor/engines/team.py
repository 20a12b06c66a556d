"""Processes that act together: they meet at named places, and an error of one is an error of all. One is a team too."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from cofactor.types import Array, ClientError, CofactorError, DataError

T = TypeVar("T")
COUNTS = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
"""Variables in which a launcher says how many processes it has started."""


def most() -> int:
    """Return the number of threads that this process may use: its cores, or fewer where the environment says so."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(os.cpu_count() or 1, int(asked)) if asked.isdecimal() and int(asked) > 0 else os.cpu_count() or 1


class ProcessError(ClientError):
    """What went wrong on one process, raised on all of them."""


class Team:
    """This process alone: it meets nobody. Others bring their own way to meet (:class:`Processes`)."""

    here, count = 0, 1

    @property
    def first(self) -> bool:
        """Whether this is process 0: the one that shows progress and writes what all share."""
        return self.here == 0

    def exchange(self, where: str, value: Any = None, *, error: Exception | None = None) -> list[Any]:
        """Return the value, or raise the error."""
        if error is not None:
            raise error
        return [value]

    def sum(self, numbers: Array) -> Array:
        """Return the numbers."""
        return numbers

    def gather(self, data: bytes, sizes: list[int]) -> list[Array]:
        """Nobody needs it alone."""
        raise TypeError("one process has nothing to gather")

    def threads(self) -> int:
        """All cores."""
        return os.cpu_count() or 1

    @contextmanager
    def guard(self, where: str) -> Iterator[None]:
        """Bring an error of this block to the others, wherever they meet next; it is raised on all of them."""
        try:
            yield
        except ProcessError:
            raise
        except Exception as error:
            self.exchange(where, error=error)
            raise

    def each(self, where: str, work: Callable[[], T]) -> list[T]:
        """Let every process do its work; return the results (small ones) of all, in the order of the processes."""
        with self.guard(where):
            result = work()
        return self.exchange(where, result)

    def alone(self, where: str, work: Callable[[], T]) -> T:
        """Let process 0 do the work; every process returns its result."""
        return self.each(where, lambda: work() if self.first else None)[0]  # type: ignore[return-value]

    def together(self, where: str, mine: list[T]) -> list[T]:
        """Return the lists of all processes as one."""
        return [entry for part in self.exchange(where, mine) for entry in part]


@contextmanager
def kept(who: str, *, private: bool) -> Iterator[None]:
    """In a private run let no error of this block tell other processes what was found in data; ``who`` is whose."""
    try:
        yield
    except ProcessError:
        raise
    except Exception as error:
        if not private or (isinstance(error, CofactorError) and error.told is not None):
            raise
        raise DataError(text_of(error)).kept(who) from error


def launched() -> int:
    """Return how many processes this one was started with, by what the launcher says; 1 where there is none."""
    return max((int(os.environ[name]) for name in COUNTS if os.environ.get(name, "").isdecimal()), default=1)


def told_of(error: Exception) -> str:
    """Return what an error says to others: of a client's data in a private run, not what was found in them."""
    return error.told if isinstance(error, CofactorError) and error.told is not None else text_of(error)


def text_of(error: Exception) -> str:
    """Return what an error says; an unexpected one says its kind too."""
    return str(error) if isinstance(error, CofactorError) else f"{type(error).__name__}: {error}"
