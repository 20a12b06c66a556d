"""The console of the command line, and which of several processes prints."""

from __future__ import annotations

import os
import sys
from typing import Any

import rich.console
from rich.text import Text

LAUNCHERS = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
"""Variables in which mpiexec says which process this is (MPICH, PMIx, Open MPI)."""


ORDERS = [*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
"""Characters that terminals obey: control characters, and those that turn the direction of what follows."""
SHOWN = {c: chr(c).encode("unicode_escape").decode() for c in ORDERS if chr(c) not in "\n\t"}


def plain(text: str) -> str:
    """Return a text with the characters that a terminal would obey, and not show, written out.

    >>> print(plain("gene\x1b[2J 1"))
    gene\\x1b[2J 1
    """
    return text.translate(SHOWN)


class Console(rich.console.Console):
    """A console that prints texts as they are: names of clients, files and packages may hold brackets and colons.

    Names come from other people, too: what is in them does nothing to the terminal.
    """

    def __init__(self, **how: Any) -> None:
        super().__init__(markup=False, emoji=False, **how)

    def render_str(self, text: str, **how: Any) -> Text:
        """Make a text to print, of a string or of a cell of a table."""
        return super().render_str(plain(text), **how)


def speaks() -> bool:
    """Whether this is the process that prints: process 0 of an MPI job, or the only one.

    Before MPI has begun, the launcher's variables tell.
    """
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None:
        return bool(mpi.COMM_WORLD.Get_rank() == 0)
    return next((os.environ[name] for name in LAUNCHERS if name in os.environ), "0") == "0"
