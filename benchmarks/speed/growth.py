"""A round against one side at a time: the works of a case are named by that side."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import matrices
import works

from cofactor.methods import catalog

N, M, K, DENSITY = 4000, 1000, 20, 0.01


def _round(Xs: list[Any], k: int = K) -> works.Rounds:
    return works.Rounds(catalog.make("exact", k, start="random"), Xs)


def _dense(n: int = N, m: int = M) -> Any:
    return matrices.dense("float32", n, m, 20)


def rows() -> dict[str, Any]:
    """Rows n."""
    return {str(n): _round([_dense(n)]) for n in (250, 1000, 4000, 16000, 64000)}


def features() -> dict[str, Any]:
    """Features m."""
    return {str(m): _round([_dense(m=m)]) for m in (250, 1000, 4000, 16000)}


def rank() -> dict[str, Any]:
    """Rank k."""
    return {str(k): _round([_dense()], k) for k in (8, 16, 32, 64, 128)}


def density() -> dict[str, Any]:
    """Share of values that are stored."""
    return {str(d): _round([matrices.sparse(8000, 8000, d, "float32")]) for d in (0.002, 0.008, 0.032, 0.128)}


def threads() -> dict[str, Any]:
    """Threads over the rows of one client, as many as there are cores."""
    work, cores = _round([_dense(16000)]), os.cpu_count() or 1
    return {str(c): works.on_threads(work, c) for c in (1, 2, 4, 8, 16, 32, 64) if c <= cores}


def clients() -> dict[str, Any]:
    """Clients of one row each, all in every round."""
    return {
        str(c): _round([_dense(c, 100)[i : i + 1] for i in range(c)]) for c in (100, 1000, 10_000, 100_000, 1_000_000)
    }


SIDES: dict[str, Callable[[], dict[str, Any]]] = {
    "rows": rows,
    "features": features,
    "rank": rank,
    "density": density,
    "threads": threads,
    "clients": clients,
}
