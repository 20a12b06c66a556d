"""The MPI engine: every process holds some clients, and all of them run the same server on the same messages."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cofactor.engines.processes import Processes
from cofactor.engines.session import TeamSession, opened
from cofactor.method import Method
from cofactor.plan import Plan
from cofactor.types import Data


@dataclass(frozen=True)
class Mpi:
    """Start a script with ``mpiexec -n 4 python script.py`` and give :func:`cofactor.run` this process's clients.

    Clients are numbered through all processes in order, so that seeds, and the result, are those of the inline engine
    over the lists one after the other. ``run`` returns the shared factor on every process with the codes of its own
    clients. ``workers`` are the threads of each process (default: its share of the machine's cores).
    """

    workers: int | None = None
    comm: Any = None
    remote = False

    def __post_init__(self) -> None:
        """Say at once if mpi4py is missing."""
        _ = self.team

    @cached_property
    def team(self) -> Processes:
        """All processes of the job."""
        return Processes(self.comm)

    def open(self, method: Method, Xs: Sequence[Data], plan: Plan) -> AbstractContextManager[TeamSession]:
        """Check the data of all processes and start the threads; an error on one process ends all of them."""
        return opened(self.team, method, Xs, plan, workers=self.workers)
