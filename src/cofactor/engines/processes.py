"""Processes that act together under MPI: they meet at named places, and an error of one is an error of all."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from cofactor.types import Array, ClientError, CofactorError

T = TypeVar("T")
LAUNCHERS = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
"""Variables in which mpiexec says which process this is (MPICH, PMIx, Open MPI)."""


class ProcessError(ClientError):
    """What went wrong on one process, raised on all of them."""


class Processes:
    """The processes of an MPI job (``mpiexec -n 4 ...``), or of a communicator of mpi4py."""

    def __init__(self, comm: Any = None) -> None:
        self.comm = _world() if comm is None else comm
        self.here: int = self.comm.Get_rank()
        self.count: int = self.comm.Get_size()

    @property
    def first(self) -> bool:
        """Whether this is process 0: the one that shows progress and writes what all share."""
        return self.here == 0

    def exchange(self, where: str, value: Any = None, *, error: Exception | None = None) -> list[Any]:
        """Meet all processes at ``where``; return their values (small ones), or raise the error that one brought.

        Processes that meet at different places would wait for each other for ever: that is an error too.
        """
        told = self.comm.allgather((where, None if error is None else text_of(error), value))
        for process, (_, text, _) in enumerate(told):
            if text is not None:
                raise ProcessError(f"process {process}: {text}") from error
        for process, (place, _, _) in enumerate(told):
            if place != told[0][0]:
                raise ProcessError(
                    f"process {process}: expected at {told[0][0]!r} like process 0, found at {place!r}; give every "
                    "process the same method, plan and stopping callbacks."
                )
        return [value for _, _, value in told]

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

    def sum(self, numbers: Array) -> Array:
        """Add a flat float64 array over all processes, in place."""
        from mpi4py import MPI

        self.comm.Allreduce(MPI.IN_PLACE, numbers)
        return numbers

    def gather(self, data: bytes, sizes: list[int]) -> list[Array]:
        """Return the bytes of every process; ``sizes`` says how many each has."""
        from mpi4py import MPI

        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(int)
        out = np.empty(offsets[-1], np.uint8)
        mine = np.frombuffer(data, np.uint8)
        self.comm.Allgatherv(mine, [out, sizes, offsets[:-1].tolist(), MPI.BYTE])
        return np.split(out, offsets[1:-1])

    def threads(self) -> int:
        """Return this process's share of the cores that it may use together with others of its machine."""
        from mpi4py import MPI

        node = self.comm.Split_type(MPI.COMM_TYPE_SHARED)
        mine = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
        sharing = sum(bool(mine & theirs) for theirs in node.allgather(mine))
        node.Free()
        return max(1, len(mine) // sharing)


def speaks() -> bool:
    """Whether this is the process that prints: process 0 of an MPI job, or the only one.

    Before MPI has begun, the launcher's variables tell.
    """
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None:
        return bool(mpi.COMM_WORLD.Get_rank() == 0)
    return next((os.environ[name] for name in LAUNCHERS if name in os.environ), "0") == "0"


def _world() -> Any:
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: mpi4py is there, an MPI library is not
        raise CofactorError(
            f"the mpi engine needs mpi4py and an MPI library: pip install 'cofactor[mpi]' ({error})."
        ) from error
    return MPI.COMM_WORLD


def text_of(error: Exception) -> str:
    """Return what an error says; an unexpected one says its kind too."""
    return str(error) if isinstance(error, CofactorError) else f"{type(error).__name__}: {error}"
