"""What rank scans by fits on splits of the data share: which ranks there may be, and which of them is suggested."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cofactor.types import Array, CofactorError, Data


def smallest(held: Array) -> tuple[Array, int]:
    """Of errors (K x S) return the standard errors of their gaps to the best, paired over S, and the first within."""
    gaps = held - held[int(np.argmin(held.mean(axis=1)))]
    seeds = held.shape[1]
    error = gaps.std(axis=1, ddof=1) / np.sqrt(seeds) if seeds > 1 else np.zeros(len(held))
    return error, next(i for i in range(len(held)) if gaps[i].mean() <= error[i])


def checked(data: Sequence[Data], ranks: Sequence[int], seeds: int, sides: str) -> list[int]:
    """Return the ranks in order; refuse those that both sides of the matrix have no room for."""
    if seeds < 1:
        raise CofactorError(f"seeds must be a whole number of at least 1. Found {seeds}.")
    limit = min(sum(R.shape[0] for R in data), data[0].shape[1])
    for k in ranks:
        if not 1 <= k <= limit:
            raise CofactorError(f"ranks must be in 1..{limit}, at most {sides}. Found {k}.")
    if not ranks:
        raise CofactorError("ranks: expected at least one rank to scan, found none.")
    return sorted(set(ranks))
