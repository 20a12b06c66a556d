"""The processes of an MPI job as a team."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from cofactor.engines.team import ProcessError, Team, text_of, told_of
from cofactor.types import Array, CofactorError


class Processes(Team):
    """The processes of an MPI job (``mpiexec -n 4 ...``), or of a communicator of mpi4py."""

    def __init__(self, comm: Any = None) -> None:
        self.comm = _world() if comm is None else comm
        self.here: int = self.comm.Get_rank()
        self.count: int = self.comm.Get_size()

    def exchange(self, where: str, value: Any = None, *, error: Exception | None = None) -> list[Any]:
        """Meet all processes at ``where``; return their values (small ones), or raise the error that one brought.

        Processes that meet at different places would wait for each other for ever: that is an error too.
        """
        told = self.comm.allgather((where, None if error is None else told_of(error), value))
        for process, (_, text, _) in enumerate(told):
            if text is not None:
                own = error is not None and process == self.here
                raise ProcessError(f"process {process}: {text_of(error) if own and error else text}") from error
        for process, (place, _, _) in enumerate(told):
            if place != told[0][0]:
                raise ProcessError(
                    f"process {process}: expected at {told[0][0]!r} like process 0, found at {place!r}; give every "
                    "process the same method, plan and stopping callbacks."
                )
        return [value for _, _, value in told]

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


def _world() -> Any:
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: mpi4py is there, an MPI library is not
        raise CofactorError(
            f"the mpi engine needs mpi4py and an MPI library: pip install 'cofactor[mpi]' ({error})."
        ) from error
    return MPI.COMM_WORLD
