"""How good a run is: errors of every client, next to its own fit and to a pooled bound where these can be had."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cofactor.boolean import Tally, tally
from cofactor.combine.align import Lap
from cofactor.engines.history import Stop
from cofactor.engines.inline import check_clients
from cofactor.engines.rounds import Run, run
from cofactor.local import arrays
from cofactor.local.refit import refit
from cofactor.method import rng
from cofactor.methods import catalog
from cofactor.methods.alone import Alone
from cofactor.methods.summed import Summed
from cofactor.metrics import pooled_error, relative_error, rmsd
from cofactor.privacy.errors import PrivacyError
from cofactor.runs.folder import RunFolder
from cofactor.runs.inputs import open_inputs
from cofactor.types import Array, CofactorError, Data

POOLED_ROUNDS, POOLED_TOL, POOLED_PATIENCE = 400, 1e-6, 10
LOCAL_CELLS = 2 * 10**8
"""Clients are compared with their own local fit up to this many cells in all; beyond, it would double the work."""


def evaluation(
    data: list[Data], names: Sequence[str], outcome: Run, *, seed: int = 0, compare: bool | None = None
) -> dict[str, Any]:
    """Return the errors of every client, next to the client's own local fit of the same rank where that is cheap."""
    H, codes = outcome.factor, outcome.codes
    compare = is_small(data) if compare is None else compare
    own = [_own_fit(X, len(H), rng(seed, j, -1)) if compare else None for j, X in enumerate(data)]
    clients = [
        {
            "client": name,
            "rows": X.shape[0],
            "error": relative_error(X, W, H),
            "rmsd": rmsd(X, W, H),
            "local_error": fit[0] if fit else None,
            "pooled_error": None,
        }
        for name, X, W, fit in zip(names, data, codes, own, strict=True)
    ]
    match = np.array([_cosines(H, fit[1]) for fit in own if fit]).T if compare else None
    return {
        "error": pooled_error(data, codes, H),
        "rounds": len(outcome.history),
        "converged": outcome.converged,
        "clients": clients,
        "match": match,
    }


def boolean_evaluation(data: list[Data], names: Sequence[str], outcome: Run, *, seed: int = 0) -> dict[str, Any]:
    """Return the Boolean loss ``|X xor (W o H)| / |X|`` of every client and of all rows."""
    counts = [tally(X, W, outcome.factor) for X, W in zip(data, outcome.codes, strict=True)]
    clients = [
        {
            "client": name,
            "rows": X.shape[0],
            "error": count.loss,
            "rmsd": float(np.sqrt(count.error / max(count.cells, 1))),
            "local_error": None,
            "pooled_error": None,
        }
        for name, X, count in zip(names, data, counts, strict=True)
    ]
    whole = sum(counts, Tally())
    return {
        "error": whole.loss,
        "rounds": len(outcome.history),
        "converged": True,
        "clients": clients,
        "match": None,
    }


def is_small(data: list[Data]) -> bool:
    """Whether comparing clients with their own local fits is worth its time."""
    cells = sum(X.shape[0] * X.shape[1] for X in data)
    return cells <= LOCAL_CELLS and not any(map(arrays.is_held, data))


def add_pooled(folder: RunFolder) -> dict[str, Any]:
    """Add the error of a pooled run of the same rank to a run's evaluation: only where all inputs are in one place.

    The bound is the best of three runs on the stacked rows, each client's codes refitted.
    """
    config, result = folder.config(), folder.read_json("evaluation.json")
    if config.privacy:
        raise PrivacyError(
            "a pooled bound is refused: it reads the rows of all clients without noise, and this run is private."
        )
    if config.ratings:
        raise CofactorError("exact-als is the pooled answer already; a pooled bound is there for real data only.")
    inputs = open_inputs(replace(config, method="exact") if config.blocked else config)
    if config.boolean or inputs.known is not None:
        raise CofactorError("a pooled bound is there for real data with the same features at every client only.")
    data = check_clients(inputs.data)
    method, stacked = catalog.make("exact", config.rank, start="random"), arrays.stack(data)
    stop = Stop(POOLED_TOL, POOLED_PATIENCE)
    factors = [run(method, [stacked], rounds=POOLED_ROUNDS, seed=s, stop=stop).factor for s in range(3)]
    codes = [[refit(X, H) for X in data] for H in factors]
    best = min(range(3), key=lambda s: pooled_error(data, codes[s], factors[s]))
    for line, X, W in zip(result["clients"], data, codes[best], strict=True):
        line["pooled_error"] = relative_error(X, W, factors[best])
    result["pooled_error"] = pooled_error(data, codes[best], factors[best])
    folder.write_json("evaluation.json", result)
    return result


def _own_fit(X: Data, rank: int, generator: np.random.Generator) -> tuple[float, Array] | None:
    """Return the error and the factor of a client's own fit; None where it has too few rows for one."""
    if X.shape[0] <= rank:
        return None
    W, H = Alone(Summed(rank))(X, rank, generator)
    return relative_error(X, W, H), H


def _cosines(H: Array, own: Array) -> Array:
    """Cosine of every shared component with the client's own component that it matches."""
    return np.einsum("km,km->k", H, Lap()(H, own) @ own)
