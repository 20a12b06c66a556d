"""The attack on shared sketches: whoever knows S_1, S_2, ... solves ``F S_t = Y_t`` for F, as soon as there are enough.

A sketch is public, or drawn from a seed that all parties know, so every message ``F S_t`` (rows x d) is d linear
equations for each row of F (rows x n). After ``ceil(n / d)`` rounds there are n of them, and F is known exactly
(Qian et al., theorem 3); before, the equations leave it open.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cofactor.local.random_matrices import Drawn
from cofactor.types import Array


def from_sketches(sketches: Sequence[Drawn], messages: Sequence[Array]) -> Array | None:
    """Return F (rows x n) by least squares on its sketches, or None while they do not determine it.

    >>> from cofactor.local.sketch import Gaussian
    >>> F, draw = np.eye(4), [Gaussian(2).draw(4, 1, np.random.default_rng(t)) for t in range(2)]
    >>> seen = [S.right(F) for S in draw]
    >>> from_sketches(draw[:1], seen[:1]) is None, np.allclose(from_sketches(draw, seen), F)
    (True, True)
    """
    S = np.hstack([_dense(drawn) for drawn in sketches])
    found, _, rank, _ = np.linalg.lstsq(S.T, np.hstack(messages).T, rcond=None)
    return found.T if rank == S.shape[0] else None


def _dense(drawn: Drawn) -> Array:
    matrix = drawn.matrix()
    return np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix, dtype=np.float64)
