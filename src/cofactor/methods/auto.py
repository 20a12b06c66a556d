"""``method="auto"``: sketched or not, from the shape, the density and the rank, with the reason in one sentence.

Measured (benchmarks/sketched.py, part choice: seconds to a moderate error, one thread, float32), ``exact`` takes this
many times as long as ``dsanls``: 0.2 at 1000 x 1000, 0.3 to 0.5 on 20000 x 800 and 20000 x 2000, 0.6 to 1.1 at 2000 x
2000, 0.8 to 1.4 at 5000 x 5000, 1.3 to 1.9 at 8000 x 8000 and 10000 x 10000. Where at most 0.3 of the values are not
zero, ``dsanls`` does not get there at all. Unsketched methods on blocks do the work of ``exact`` with more traffic (k
numbers for every row and column) and without its start and momentum: they are never chosen.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse

from cofactor.local import arrays
from cofactor.methods.sketched import LARGE
from cofactor.types import Data

DENSE = 0.5
"""Data with fewer values that are not zero than this share are not sketched."""

WIDTHS = 40
"""The shorter side must be at least so many times the rank: a sketch has 4 k columns or more, a tenth of it at most."""

SEEN_ROWS = 256
"""Rows that are looked at for the density."""


class Choice(NamedTuple):
    """The name of a method, and why."""

    method: str
    why: str


def choose(shape: tuple[int, int], rank: int, *, density: float = 1.0, clients: int = 1) -> Choice:
    """Choose between ``exact`` and ``dsanls`` for a matrix in one place, or for clients that keep their rows.

    >>> choose((6000, 8000), 20).method, choose((6000, 8000), 20, clients=3).method, choose((300, 40), 5).method
    ('dsanls', 'exact', 'exact')
    """
    (n, m), short = shape, min(shape)
    if clients > 1:
        return Choice(
            "exact", "exact, because clients keep their rows, and sketched blocks need all columns in one place."
        )
    if density < DENSE:
        return Choice(
            "exact", f"exact, because {density:.0%} of the values are not zero: a sketch would miss most of them."
        )
    if short < LARGE:
        return Choice(
            "exact", f"exact, because the shorter side of {n} x {m} is below {LARGE}: whole products end sooner."
        )
    if short < WIDTHS * rank:
        return Choice(
            "exact", f"exact, because rank {rank} needs a sketch of more than a tenth of {short}: it saves little."
        )
    return Choice(
        "dsanls", f"dsanls, because {n} x {m} dense values in one place are large enough for sketches to pay."
    )


def density_of(X: Data) -> float:
    """Return the share of values that are not zero, of a dense matrix in some of its rows."""
    if sparse.issparse(X):
        return float(X.nnz / max(np.prod(X.shape), 1))
    seen = arrays.rows(X, np.unique(np.linspace(0, X.shape[0] - 1, SEEN_ROWS).astype(int)))
    return density_of(seen) if sparse.issparse(seen) else float(np.count_nonzero(seen) / seen.size)
