"""From what users hold to clients of zeros and ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_array

from cofactor.boolean import check_boolean
from cofactor.data import binarize
from cofactor.estimators.clients import Clients, is_many
from cofactor.local import arrays
from cofactor.types import CofactorError, Data, DataError

KEPT: dict[str, Any] = {"accept_sparse": ("csr", "csc"), "dtype": "numeric", "ensure_all_finite": False}
"""How scikit-learn checks the shape: bits keep their dtype, values are checked here."""


def to_bits(X: Any, *, client: Any = 0, threshold: float | None = None) -> Data:
    """Return one client's data as float32 zeros and ones, cut at the threshold if there is one.

    Without a threshold every other value is an error that names the first such cell.
    """
    try:
        X = check_array(X, **KEPT)
    except ValueError as error:
        raise DataError(f"client {client}: {error}") from error
    values = X.data if sparse.issparse(X) else X
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        count = int((~np.isfinite(values)).sum())
        raise DataError(f"client {client}: expected zeros and ones, found {count} NaN or infinity; fill or drop them.")
    if threshold is not None:
        X = binarize.threshold(X, threshold)
    check_boolean(X, client)
    return X.astype(np.float32)


def split(X: Any, groups: Any = None, *, threshold: float | None = None) -> Clients:
    """Return the clients: the items of a list, the groups of a matrix, or one client."""
    if is_many(X):
        if groups is not None:
            raise CofactorError("expected either a list of clients or one matrix with groups, found both.")
        data = [to_bits(x, client=j, threshold=threshold) for j, x in enumerate(X)]
        return Clients(data, list(range(len(data))), None)
    data = to_bits(X, threshold=threshold)
    if groups is None:
        return Clients([data], [0], None)
    labels = np.asarray(groups)
    if labels.shape != (data.shape[0],):
        raise CofactorError(f"groups: expected one label per row ({data.shape[0]}), found shape {labels.shape}.")
    names, owner = np.unique(labels, return_inverse=True)
    rows = [np.flatnonzero(owner == j) for j in range(len(names))]
    return Clients([arrays.rows(data, r) for r in rows], names.tolist(), rows)
