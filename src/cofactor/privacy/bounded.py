"""Rows inside the unit ball, block by block: what makes a sum over records have a finite sensitivity."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cofactor.local import arrays
from cofactor.privacy import clip
from cofactor.types import Array, Data


def blocks(X: Data, bound: float | None) -> Iterator[Array]:
    """Yield dense float64 blocks of rows, every row in the unit ball.

    Rows are scaled to norm 1 (zero rows stay) if ``bound`` is None, and otherwise clipped to norm ``bound`` and divided
    by it.
    """
    for _, block in arrays.blocks(X):
        yield in_ball(block, bound)


def in_ball(rows: Array, bound: float | None) -> Array:
    """Scale rows into the unit ball."""
    if bound is not None:
        return np.asarray(clip.rows(rows, bound)) / bound
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(norms > 0, norms, 1.0)
