"""The console of the command line, and which of several processes prints."""

from __future__ import annotations

import os
import sys
from typing import Any

import rich.console

LAUNCHERS = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
"""Variables in which mpiexec says which process this is (MPICH, PMIx, Open MPI)."""


class Console(rich.console.Console):
    """A console that prints texts as they are: names of clients, files and packages may hold brackets and colons."""

    def __init__(self, **how: Any) -> None:
        super().__init__(markup=False, emoji=False, **how)


def speaks() -> bool:
    """Whether this is the process that prints: process 0 of an MPI job, or the only one.

    Before MPI has begun, the launcher's variables tell.
    """
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None:
        return bool(mpi.COMM_WORLD.Get_rank() == 0)
    return next((os.environ[name] for name in LAUNCHERS if name in os.environ), "0") == "0"
