"""From what users hold to clients of zeros and ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_array

from cofactor.data import binarize
from cofactor.estimators.tables import is_frame
from cofactor.types import Data, DataError


def to_bits(X: Any, *, client: Any = 0, threshold: float | None = None) -> Data:
    """Return one client's data in float32, cut to zeros and ones at the threshold if there is one."""
    try:
        kinds: Any = (np.float64, np.float32) if is_frame(X) else "numeric"  # frames have types of their own, with NA
        X = check_array(X, accept_sparse=("csr", "csc"), dtype=kinds, ensure_all_finite=False, ensure_min_samples=0)
    except ValueError as error:
        told = str(error).partition("\n")[0]  # what follows are the values themselves
        raise DataError(f"client {client}: {told}") from None
    values = X.data if sparse.issparse(X) else X
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        count = int((~np.isfinite(values)).sum())
        raise DataError(f"client {client}: expected zeros and ones, found {count} NaN or infinity; fill or drop them.")
    if threshold is not None:
        X = binarize.threshold(X, threshold)
    return X.astype(np.float32)
