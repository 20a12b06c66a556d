"""Engines by name, for the command line and configurations: one file and one line each."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from cofactor.engines.contract import Engine
from cofactor.types import unknown

_HOMES = {
    "inline": ("cofactor.engines.inline", "Inline"),
    "mpi": ("cofactor.engines.mpi", "Mpi"),
    "dask": ("cofactor.engines.dask_engine", "Dask"),
    "flare": ("cofactor.engines.flare", "Flare"),
}
"""Module and class; what an engine needs is imported when it is asked for."""
NAMES = tuple(_HOMES)


def named(name: str, **settings: Any) -> Engine:
    """Return an engine by its name, with its settings."""
    if name not in _HOMES:
        raise unknown("engine", name, NAMES)
    module, engine = _HOMES[name]
    return getattr(import_module(module), engine)(**settings)
