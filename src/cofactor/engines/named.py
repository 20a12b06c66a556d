"""Engines by name, for the command line and configurations: one file and one line each."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from cofactor.engines.contract import Engine
from cofactor.engines.team import launched
from cofactor.types import CofactorError, unknown

_HOMES = {
    "inline": ("cofactor.engines.inline", "Inline"),
    "mpi": ("cofactor.engines.mpi", "Mpi"),
    "dask": ("cofactor.engines.dask_engine", "Dask"),
    "flare": ("cofactor.engines.flare", "Flare"),
}
"""Module and class; what an engine needs is imported when it is asked for."""
NAMES = tuple(_HOMES)


def named(name: str, **settings: Any) -> Engine:
    """Return an engine by its name, with its settings; only that of MPI is for a process that has others beside it."""
    if name not in _HOMES:
        raise unknown("engine", name, NAMES)
    if name != "mpi" and (count := launched()) > 1:
        raise CofactorError(
            f"--engine {name}: expected one process, found {count}, each with the whole fit to do; add --engine mpi."
        )
    module, engine = _HOMES[name]
    return getattr(import_module(module), engine)(**settings)
