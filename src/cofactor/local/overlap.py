"""Which of several matrices have cells in common: told by where they lie, and not by what is in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy import sparse

from cofactor.types import Array

WORK: Any = 10_000
"""How hard numpy tries to tell cells apart that lie between each other; slices of a matrix take less than a hundred."""

_OBJECTS = ("dok", "lil")
"""Sparse layouts that hold their cells as objects of Python, which no two matrices share."""


def first_overlap(Xs: Iterable[Any]) -> tuple[int, int] | None:
    """Return two of the matrices, the later one last, that have cells of one memory; None where there are none.

    >>> X = np.ones((6, 2))
    >>> first_overlap([X[:3], X[3:]]), first_overlap([X[:4], np.ones((2, 2)), X[3:]])
    (None, (0, 2))
    """
    spans = [(*_span(a), j, a) for j, X in enumerate(Xs) for a in _cells(X) if a.size]
    reaching: list[tuple[int, int, Array]] = []
    found = []
    for low, high, j, a in sorted(spans, key=lambda span: span[:3]):
        reaching = [other for other in reaching if other[0] > low]
        found += [(max(i, j), min(i, j)) for _, i, b in reaching if i != j and _share(a, b)]
        reaching.append((high, j, a))
    return None if not found else min(found)[::-1]


def _cells(X: Any) -> list[Array]:
    if isinstance(X, np.ndarray):
        return [X]
    if not sparse.issparse(X) or X.format in _OBJECTS:
        return []
    return [X.data]


def _span(a: Array) -> tuple[int, int]:
    """Return where its memory begins and ends."""
    begin = a.__array_interface__["data"][0]
    reach = [(n - 1) * step for n, step in zip(a.shape, a.strides, strict=True)]
    return begin + sum(r for r in reach if r < 0), begin + sum(r for r in reach if r > 0) + a.itemsize


def _share(a: Array, b: Array) -> bool:
    try:
        return bool(np.shares_memory(a, b, max_work=WORK))
    except np.exceptions.TooHardError:
        return True
