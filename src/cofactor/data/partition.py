"""Spread the rows of one matrix over clients.

A partitioner returns one sorted array of row indices per client; the arrays are disjoint, cover all rows,
and none is empty.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cofactor.data._random import generator
from cofactor.data.formats.table import absent
from cofactor.types import Array, Data, DataError


def iid(n: int, clients: int, *, seed: int = 0) -> list[Array]:
    """Deal n rows at random to clients whose sizes differ by at most one.

    >>> [len(part) for part in iid(7, 3)]
    [3, 2, 2]
    """
    _check_clients(n, clients)
    return _sorted(np.array_split(generator(seed, purpose="iid").permutation(n), clients))


def dirichlet(labels: ArrayLike, clients: int, *, alpha: float = 0.5, seed: int = 0) -> list[Array]:
    """Label skew: the rows of each class go to clients in proportions p ~ Dirichlet(alpha, ..., alpha).

    A small alpha gives each client few classes, a large one makes clients alike. A client that would be left
    empty gets one row of the largest client.
    """
    if not (np.isfinite(alpha) and alpha > 0):
        raise DataError(f"alpha must be a positive number. Found {alpha}. Use 0.5 for a clear label skew.")
    groups = by_group(labels)
    _check_clients(sum(map(len, groups.values())), clients)
    dealt: list[list[Array]] = [[] for _ in range(clients)]
    for index, rows in enumerate(groups.values()):
        rng = generator(seed, index, purpose="dirichlet")
        shares = rng.dirichlet(np.full(clients, alpha))
        for part, piece in zip(dealt, _cut(rng.permutation(rows), shares)):
            part.append(piece)
    return _sorted(_fill_empty([np.concatenate(pieces) for pieces in dealt]))


def sizes(n: int, shares: Sequence[float] | Array, *, seed: int = 0) -> list[Array]:
    """Deal n rows at random to clients of given sizes: fractions that sum to 1, or counts that sum to n.

    A fraction too small for one row still gets one row, from the largest client.

    >>> [len(part) for part in sizes(100, [0.5] + [0.5 / 5] * 5)]
    [50, 10, 10, 10, 10, 10]
    """
    wanted = np.asarray(shares, dtype=float)
    _check_clients(n, wanted.size)
    if wanted.ndim != 1 or not (wanted > 0).all():
        raise DataError(f"shares must be a list of positive numbers, one per client. Found {shares!r}.")
    if not (np.isclose(wanted.sum(), 1.0) or wanted.sum() == n):
        raise DataError(
            f"shares must be fractions that sum to 1, or counts that sum to n = {n}. "
            f"Found a sum of {wanted.sum():g}. Divide them by their sum."
        )
    return _sorted(_fill_empty(_cut(generator(seed, purpose="sizes").permutation(n), wanted / wanted.sum())))


def by_group(groups: ArrayLike) -> dict[Hashable, Array]:
    """One client per distinct value: the sorted values, each with its rows. Dates are called as people write them.

    >>> {name: rows.tolist() for name, rows in by_group(["b", "a", "b"]).items()}
    {'a': [1], 'b': [0, 2]}
    """
    values = _dated(_labels(groups))
    try:
        if absent(values):
            raise DataError("expected a label for every row, found rows without. Fill missing labels first.")
        names, index = np.unique(values, return_inverse=True)
    except TypeError as error:
        kinds = " and ".join(sorted({type(value).__name__ for value in values.tolist()}))
        raise DataError(f"expected labels of one kind, found {kinds}; make texts of all of them.") from error
    rows = np.split(np.argsort(index, kind="stable"), np.cumsum(np.bincount(index))[:-1])
    return dict(zip(names.tolist(), rows))


def sorted_by(labels: ArrayLike, clients: int) -> list[Array]:
    """Sort rows by label and cut them into equal contiguous parts: the hardest label skew."""
    rows = np.concatenate(list(by_group(labels).values()))
    _check_clients(len(rows), clients)
    return _sorted(np.array_split(rows, clients))


def split(X: Data, parts: Iterable[Array] | Mapping[Any, Array]) -> list[Data]:
    """Return the row blocks X_j of a dense array, a sparse matrix (as CSR) or a pandas DataFrame."""
    parts = list(parts.values()) if isinstance(parts, Mapping) else list(parts)
    if hasattr(X, "tocsr"):
        X = X.tocsr()
    elif not hasattr(X, "shape"):
        X = np.asarray(X)
    last = max((int(part.max()) for part in parts if len(part)), default=-1)
    if last >= X.shape[0]:
        raise DataError(
            f"The parts must index the rows of X (0..{X.shape[0] - 1}). Found row {last}. "
            "Partition with as many labels as X has rows."
        )
    return [X.iloc[part] if hasattr(X, "iloc") else X[part] for part in parts]


def _labels(labels: ArrayLike) -> Array:
    values = np.asarray(labels)
    if values.ndim != 1 or not values.size:
        raise DataError(f"Labels must be a list with one value per row. Found shape {values.shape}.")
    return values


def _dated(values: Array) -> Array:
    """Return dates as text: days, or to the second; other labels as they are."""
    if values.dtype.kind != "M" or absent(values):
        return values
    for unit in ("D", "s"):
        coarse = values.astype(f"datetime64[{unit}]")
        if (coarse == values).all():
            return coarse.astype(str)
    return values.astype(str)


def _check_clients(n: int, clients: int) -> None:
    if not 1 <= clients <= n:
        raise DataError(
            f"The number of clients must be in 1..{n} (the number of rows: no client may be empty). "
            f"Found {clients}. Use fewer clients or more rows."
        )


def _cut(rows: Array, shares: Array) -> list[Array]:
    """Cut rows at the rounded cumulative shares."""
    return np.split(rows, np.rint(np.cumsum(shares)[:-1] * len(rows)).astype(np.intp))


def _fill_empty(parts: list[Array]) -> list[Array]:
    """Move one row of the largest part to each empty one; parts hold at least as many rows as parts."""
    for j, part in enumerate(parts):
        if not len(part):
            largest = max(range(len(parts)), key=lambda i: len(parts[i]))
            parts[j], parts[largest] = parts[largest][-1:], parts[largest][:-1]
    return parts


def _sorted(parts: Iterable[Array]) -> list[Array]:
    return [np.sort(part) for part in parts]
