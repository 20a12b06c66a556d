"""The public part of a model of ratings as one file: what every user may have, and all that serving one needs."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from cofactor.estimators.saved import store, stored
from cofactor.files import undamaged
from cofactor.ratings import Layout
from cofactor.types import Array, CofactorError

RATED = "the public part of a model of ratings"


class Public(NamedTuple):
    """The extended factor (see :mod:`cofactor.ratings.halves`), names of its columns, layout and declared range."""

    factor: Array
    items: Array
    layout: Layout
    rating_range: tuple[float, float] | None = None


def arrays(held: Public) -> dict[str, Array]:
    """Return the arrays of the file; what is None is left out."""
    limits = {} if held.rating_range is None else {"rating_range": np.array(held.rating_range)}
    return {"factor": held.factor, "feature_names": held.items, **held.layout.arrays(), **limits}


def write(path: Path, held: Public) -> None:
    """Write the file."""
    store(path, arrays(held))


def read(path: Path) -> Public:
    """Read it, or say what else the file is."""
    found = stored(path, RATED)
    missing = {"factor", "feature_names", "rank", "biases", "ridge", "bias_ridge"} - set(found)
    if missing:
        raise CofactorError(f"{path}: expected {RATED}, found a file without {', '.join(sorted(missing))}.")
    with undamaged(path, RATED):
        return _read(path, found)


def _read(path: Path, found: dict[str, Array]) -> Public:
    alpha, limits = found.get("alpha"), found.get("rating_range")
    layout = Layout(
        int(found["rank"]),
        bool(found["biases"]),
        float(found["ridge"]),
        float(found["bias_ridge"]),
        None if alpha is None else float(alpha),
    )
    if found["factor"].dtype.kind != "f" or not np.isfinite(found["factor"]).all():
        raise CofactorError(f"{path}: expected a factor of finite numbers, found others.")
    if found["factor"].shape != (layout.width, len(found["feature_names"])):
        raise CofactorError(
            f"{path}: expected a factor of shape {(layout.width, len(found['feature_names']))}, "
            f"found {found['factor'].shape}."
        )
    declared = None if limits is None else (float(limits[0]), float(limits[1]))
    return Public(found["factor"], found["feature_names"], layout, declared)
