"""Zeros and ones out of numbers and categories, for Boolean factorization; sparse stays so where it can."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from cofactor.local import arrays
from cofactor.types import Array, CofactorError, Data, DataError


def threshold(X: Data, value: float, *, strict: bool = False) -> Data:
    """Return ``X >= value`` (``X > value`` if strict) as uint8.

    A sparse X gives a CSR matrix when its zeros stay zeros (value > 0, or value = 0 and strict), else a dense
    array, for then almost every cell is a one.

    >>> threshold([[0.0, 3.5], [4.0, 3.0]], 3.5).tolist()
    [[0, 1], [1, 0]]
    """
    above = np.greater if strict else np.greater_equal
    if sparse.issparse(X) and not above(0, value):
        X = X.tocsr()
        return _pattern(X, above(X.data, value))
    return above(arrays.dense(X), value).astype(np.uint8)


def quantile(X: Data, q: float) -> Data:
    """Return ``X > q-quantile of its column`` as uint8: a share 1 - q of ones per column without ties.

    Implicit zeros count. A sparse X gives a CSR matrix unless some column's quantile is negative.
    """
    if not 0.0 <= q <= 1.0:
        raise CofactorError(f"q must be in [0, 1]. Found {q}. Use 0.9 to keep the top tenth of each column.")
    cuts = _column_quantiles(X.tocsc(), q) if sparse.issparse(X) else np.quantile(X, q, axis=0)
    if not sparse.issparse(X) or (cuts < 0).any():
        return np.greater(arrays.dense(X), cuts).astype(np.uint8)
    X = X.tocsr()
    return _pattern(X, X.data > cuts[X.indices])


def one_hot(
    columns: Sequence[ArrayLike], names: Sequence[str], *, bins: Mapping[str, Sequence[float]] | None = None
) -> tuple[sparse.csr_matrix, Array]:
    """Encode each column by one 0/1 feature per distinct value: (n x m uint8 CSR matrix, m feature names).

    A column named in ``bins`` is numeric and is cut at those edges instead: each interval below, between and
    above them is a feature, also where no row falls. Every row has exactly one 1 per column. Encode before
    rows are spread over clients, or their features differ.

    >>> X, features = one_hot([["a", "b"], [17, 44]], ["type", "age"], bins={"age": [18, 40]})
    >>> features.tolist()
    ['type=a', 'type=b', 'age<18', '18<=age<40', '40<=age']
    >>> X.toarray().tolist()
    [[1, 0, 1, 0, 0], [0, 1, 0, 0, 1]]
    """
    _check_columns(columns, names, bins := bins or {})
    places: list[Array] = []
    features: list[str] = []
    for column, name in zip(columns, names):
        index, labels = _binned(column, name, bins[name]) if name in bins else _levels(column, name)
        places.append(index + len(features))
        features.extend(labels)
    indices = np.column_stack(places)
    n, width = indices.shape
    ones = np.ones(indices.size, dtype=np.uint8)
    parts = (ones, indices.ravel(), np.arange(n + 1) * width)
    return sparse.csr_matrix(parts, shape=(n, len(features))), np.asarray(features)


def _pattern(X: sparse.csr_matrix, keep: Array) -> sparse.csr_matrix:
    """Return X's pattern with ones where ``keep`` (one flag per stored value) holds."""
    out = sparse.csr_matrix((keep.astype(np.uint8), X.indices, X.indptr), shape=X.shape, copy=True)
    out.eliminate_zeros()
    return out


def _column_quantiles(X: sparse.csc_matrix, q: float) -> Array:
    """Quantiles of sparse columns with their zeros, a slab of columns dense at a time."""
    slabs = (X[:, start : start + 256].toarray() for start in range(0, X.shape[1], 256))
    return np.concatenate([np.quantile(slab, q, axis=0) for slab in slabs])


def _levels(column: ArrayLike, name: str) -> tuple[Array, list[str]]:
    values = np.asarray(column)
    # mixed types do not sort; their text does
    levels, index = np.unique(values.astype(str) if values.dtype == object else values, return_inverse=True)
    return index, [f"{name}={level}" for level in levels]


def _binned(column: ArrayLike, name: str, edges: Sequence[float]) -> tuple[Array, list[str]]:
    values, cuts = np.asarray(column, dtype=float), np.asarray(edges, dtype=float)
    if not cuts.size or (np.diff(cuts) <= 0).any():
        raise CofactorError(f"The bins of column {name!r} must be rising edges. Found {list(edges)}.")
    if np.isnan(values).any():
        raise DataError(f"Column {name!r} must have numbers. Found {np.isnan(values).sum()} NaN. Fill or drop them.")
    between = [f"{low:g}<={name}<{high:g}" for low, high in pairwise(cuts)]
    return np.digitize(values, cuts), [f"{name}<{cuts[0]:g}", *between, f"{cuts[-1]:g}<={name}"]


def _check_columns(columns: Sequence[ArrayLike], names: Sequence[str], bins: Mapping[str, object]) -> None:
    shapes = {np.shape(column) for column in columns}
    if len(columns) != len(names) or len(shapes) != 1 or len(next(iter(shapes))) != 1:
        raise DataError(
            "Columns must be equally long lists, one per name. "
            f"Found {len(columns)} columns of shapes {sorted(shapes)} and {len(names)} names."
        )
    if unknown := sorted(set(bins) - set(names)):
        raise CofactorError(f"bins must name columns among {list(names)}. Found {unknown}.")
