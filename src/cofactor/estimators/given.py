"""What a fit is given besides data: a factor or codes to begin at, and how much rows and cells count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from cofactor.estimators.clients import Clients
from cofactor.kinds import Checked
from cofactor.local import arrays
from cofactor.local.stats import for_factor, normalize
from cofactor.local.updates import HALS
from cofactor.local.weighted import Weighted
from cofactor.types import Array, CofactorError, Data, Stats

SWEEPS = 100
"""Sweeps that find a factor for codes to begin at."""
INITS = (None, "random", "custom")


@dataclass(frozen=True, eq=False)
class Given:
    """A factor ``H`` (k x m), or codes ``W``, to begin at; ``weight`` of rows, ``cells`` of cells, all but H as X is.

    A row of weight w counts as often as w rows: ``w d(x | y) = d(w^(1/b) x | w^(1/b) y)`` for a divergence of beta b,
    so that it is scaled, and the factor is the one of the weighted problem. Cells have no such scale: their weights
    go along with them.
    """

    H: Any = None
    W: Any = None
    weight: Any = None
    cells: Any = None
    beta: float = 2.0

    @property
    def named(self) -> dict[str, Any]:
        """What was given, by the names of the arguments."""
        return {"H": self.H, "W": self.W, "sample_weight": self.weight, "cell_weight": self.cells}

    def start(self, held: Clients, data: list[Data]) -> Array | None:
        """Return the factor to begin at: the given one, the least-squares factor of the given codes, or None."""
        if self.H is not None:
            return factor(self.H)
        if self.W is None:
            return None
        parts = [factor(W, "W: expected codes (n x k)") for W in per_client("W", self.W, held, data)]
        stats = [for_factor(X, W.astype(X.dtype, copy=False)) for X, W in zip(data, parts, strict=True)]
        cross = np.sum([s.cross for s in stats], axis=0)
        F = HALS(SWEEPS)(np.zeros_like(cross), Stats(np.sum([s.gram for s in stats], axis=0), cross))
        return normalize(F.T)

    def weigh(self, held: Clients, data: list[Data]) -> list[Data]:
        """Return the data with every row and every cell at its weight."""
        rows = None if self.weight is None else self._weights("sample_weight", self.weight, "row", held, data)
        if self.cells is not None:
            if held.moved or any(map(arrays.is_held, data)):
                raise CofactorError(
                    "cell_weight: expected clients with the same features in the same order, in memory, found others."
                )
            each = self._weights("cell_weight", self.cells, "cell", held, data)
            each = each if rows is None else [w * r[:, None] for w, r in zip(each, rows, strict=True)]
            return Checked([weighted(X, w) for X, w in zip(data, each, strict=True)])
        if rows is None:
            return data
        if self.beta <= 0:
            raise CofactorError(f"sample_weight: expected a beta_loss above 0 to go with it, found {self.beta:g}.")
        return Checked([_scaled(X, r ** (1 / self.beta)) for X, r in zip(data, rows, strict=True)])

    def _weights(self, name: str, values: Any, of: str, held: Clients, data: list[Data]) -> list[Array]:
        """Return one weight for each row or cell of every client, checked."""
        found = [arrays.dense(w) for w in per_client(name, values, held, data)]
        for X, w in zip(data, found, strict=True):
            _check_weights(name, w, X.shape[: 1 if of == "row" else 2], of)
        if not sum(float(w.sum()) for w in found) > 0:
            raise CofactorError(f"{name}: expected a weight that is not zero, found none.")
        return found


NOTHING = Given()
"""Nothing but data."""


def factor(H: Any, expected: str = "H: expected a factor (k x m)") -> Array:
    """Return a given factor, checked."""
    found = np.asarray(H)
    if found.ndim != 2 or found.dtype.kind not in "fiub" or not np.isfinite(found).all() or found.min(initial=0) < 0:
        raise CofactorError(f"{expected} of finite numbers >= 0, found something else.")
    return found.astype(np.result_type(found.dtype, np.float32), copy=False)


def per_client(name: str, values: Any, held: Clients, data: list[Data]) -> list[Any]:
    """Split what is given for every row as the rows are: a list for a list of clients, else one array."""
    if held.rows is not None:
        whole = arrays.dense(values)
        values = [whole[rows] for rows in held.rows] if len(whole) == sum(map(len, held.rows)) else [whole]
    elif len(data) == 1 and not (isinstance(values, list | tuple) and len(values) == 1):
        values = [arrays.dense(values)]
    sizes = [X.shape[0] for X in data]
    if len(data) > 1 and isinstance(values, np.ndarray) and values.dtype != object:  # one array for all of them
        values = np.split(values, np.cumsum(sizes)[:-1]) if len(values) == sum(sizes) else [values]
    found = [np.shape(v)[0] if np.ndim(v) or sparse.issparse(v) else 0 for v in values]
    if found != sizes:
        raise CofactorError(
            f"{name}: expected one entry for each row ({_few(sizes)} of the clients), found {_few(found)}."
        )
    return list(values)


def _few(sizes: list[int]) -> str:
    """Return some sizes as a list in words, the first few of many."""
    return str(sizes) if len(sizes) <= 8 else f"[{', '.join(map(str, sizes[:8]))}, ...], {len(sizes)} in all,"


def _check_weights(name: str, w: Array, shape: tuple[int, ...], of: str) -> None:
    """Refuse weights that are no numbers >= 0, or not one for each."""
    if w.shape != shape or w.dtype.kind not in "fiub" or not np.isfinite(w).all() or w.min(initial=0) < 0:
        raise CofactorError(
            f"{name}: expected one finite number >= 0 for each {of} {shape}, found shape {w.shape} of {w.dtype}"
            f"{', or values that are none' if w.shape == shape else ''}."
        )


def cell_weights(values: Any, shape: tuple[int, ...]) -> Array:
    """Return one weight for each cell of new rows, checked."""
    found = arrays.dense(values)
    _check_weights("cell_weight", found, shape, "cell")
    return found


def weighted(X: Data, weight: Array) -> Data:
    """Return dense rows with the weights of their cells; NaN has none."""
    values = arrays.dense(X)
    return Weighted(np.nan_to_num(values), np.where(np.isnan(values), 0, weight).astype(X.dtype))


def _scaled(X: Data, scale: Array) -> Data:
    if arrays.is_held(X):
        raise CofactorError("sample_weight: expected clients with the same features, in memory, found others.")
    scale = scale.astype(X.dtype)
    return sparse.csr_matrix(sparse.diags(scale) @ X) if sparse.issparse(X) else X * scale[:, None]
