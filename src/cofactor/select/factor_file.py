"""What a factor's file holds, checked: whoever opens it may have it from a stranger."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cofactor.files import undamaged
from cofactor.select.markers import SCORES
from cofactor.types import Array, CofactorError

NUMBERS = "biuf"
"""Kinds of types that hold real numbers."""


def read(path: Path) -> dict[str, Array]:
    """Read all arrays of a factor's file; features without names are counted."""
    with undamaged(path, "a numpy archive"), np.load(path, allow_pickle=False) as file:
        found = checked(path, dict(file))
    return {"feature_names": np.array([f"feature{i}" for i in range(found["factor"].shape[1])]), **found}


def checked(where: object, arrays: dict[str, Array]) -> dict[str, Array]:
    """Return the arrays if factor, names and marker scores are what they should be, and go together."""
    if "factor" not in arrays:
        raise CofactorError(f"{where}: expected the array 'factor', found {sorted(arrays) or 'no arrays'}.")
    H = arrays["factor"]
    if H.ndim != 2 or not H.size or not _finite(H):
        raise CofactorError(f"{where}: expected a finite factor (k x m), found {H.dtype} of shape {H.shape}.")
    for name in ("feature_names", "titles"):
        if name in arrays and arrays[name].shape != H.shape[1:]:
            raise CofactorError(f"{where}: expected {H.shape[1]} {name}, found shape {arrays[name].shape}.")
    scores = arrays.get(SCORES)
    if scores is not None and (scores.shape != H.shape or not _finite(scores)):
        raise CofactorError(
            f"{where}: expected finite {SCORES} of shape {H.shape}, found {scores.dtype} of shape {scores.shape}."
        )
    return arrays


def _finite(values: Array) -> bool:
    return values.dtype.kind in NUMBERS and bool(np.isfinite(values).all())
