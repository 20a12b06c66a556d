"""What goes wrong at a client of a private run stays there: an error that all can see would tell of its data."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from cofactor.local.outliers import Outliers
from cofactor.local.refit import refit
from cofactor.types import Array, Data

Found = TypeVar("Found")


def unless_it_fails(work: Callable[[], Found], otherwise: Callable[[], Found]) -> Found:
    """Return what the work finds, or what there is otherwise where its numbers are out of any range."""
    try:
        with np.errstate(all="ignore"):
            return work()
    except Exception:  # whatever it is (LinAlgError, overflow, an empty matrix): its name would be a release
        return otherwise()


def codes(data: Data, factor: Array, outliers: Outliers | None = None) -> Array:
    """Return the codes of a client for the final factor, outliers aside; zeros where they cannot be found."""

    def find() -> Array:
        found = refit(data, factor) if outliers is None else outliers.refit(data, factor)
        return found if np.isfinite(found).all() else nothing()

    def nothing() -> Array:
        return np.zeros((data.shape[0], len(factor)))

    return unless_it_fails(find, nothing) if data.shape[0] else nothing()
