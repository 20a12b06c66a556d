"""What a fit to cells of which some are missing says of features and clients that have none."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from cofactor.data.formats.table import few
from cofactor.estimators.clients import is_elsewhere
from cofactor.local import arrays
from cofactor.local.weighted import cells
from cofactor.types import Array, Data, DataError

SHOWN = 5
"""So many are named."""


def look(data: Sequence[Data], clients: Sequence[Any], features: Sequence[Any] | None) -> None:
    """Refuse data without an observed cell; warn of features and clients without one. Data elsewhere are not read."""
    if is_elsewhere(data):
        return
    counts = np.array([_counts(X) for X in data])
    if not counts.any():
        raise DataError(
            "expected cells that were observed, found none: every cell of every client is NaN, or weighs 0."
        )
    lacking = np.flatnonzero(~counts.any(axis=0)).tolist()
    if lacking:
        names = [str(j) if features is None else str(features[j]) for j in lacking]
        known = "nothing is known of them, and components_ has 0 there."
        warnings.warn(f"features that nobody observed: {few(names, SHOWN)}; {known}", stacklevel=4)
    silent = np.flatnonzero(~counts.any(axis=1)).tolist()
    if silent:
        names = [str(clients[j]) for j in silent]
        warnings.warn(f"clients without an observed cell: {few(names, SHOWN)}; their codes are 0.", stacklevel=4)


def _counts(X: Data) -> Array:
    """Return how many cells of every feature were observed."""
    found = np.zeros(X.shape[1])
    for _, part in arrays.blocks(X):
        found += np.sum(np.broadcast_to(np.asarray(cells(part)[1]) > 0, part.shape), axis=0)
    return found
