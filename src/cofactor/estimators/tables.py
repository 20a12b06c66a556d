"""What people hold in memory (arrays, data frames of pandas and polars, AnnData) as tables with names."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from cofactor.data import load
from cofactor.data.formats.row_blocks import RowBlocks
from cofactor.data.formats.table import Table, did_you_mean, plain
from cofactor.data.load import check_distinct
from cofactor.local import devices
from cofactor.types import Array, CofactorError, Data, DataError


def is_of(X: Any, package: str, name: str) -> bool:
    """Whether X is of a class of another package; nothing is imported for it."""
    return any(kind.__module__.partition(".")[0] == package and kind.__name__ == name for kind in type(X).__mro__)


def is_annotated(X: Any) -> bool:
    """Whether X is an AnnData object."""
    return is_of(X, "anndata", "AnnData")


def is_tensor(X: Any) -> bool:
    """Whether X is a tensor of torch."""
    return is_of(X, "torch", "Tensor")


def is_frame(X: Any) -> bool:
    """Whether X is a data frame: what it calls columns are their names (in tables of pyarrow they are the values)."""
    return (
        hasattr(X, "columns")
        and not callable(X.columns)
        and hasattr(X, "shape")
        and all(isinstance(name, Hashable) for name in X.columns)
    )


def is_lazy(X: Any) -> bool:
    """Whether X is a lazy frame of polars, a plan to read a data frame."""
    return is_of(X, "polars", "LazyFrame")


def in_memory(X: Any) -> Any:
    """Return a table of pyarrow, or a lazy frame of polars, as a data frame, and anything else as it is."""
    if is_lazy(X):
        return X.collect()
    return X.to_pandas() if type(X).__module__.partition(".")[0] == "pyarrow" and hasattr(X, "to_pandas") else X


def _with_gaps(frame: Any) -> Any:
    """Return a data frame of pandas whose sparse columns leave out NaN, not zeros, as a dense one: those are gaps."""
    types = [kind for kind in getattr(frame, "dtypes", ()) if type(kind).__name__ == "SparseDtype"]
    if not any(np.isnan(kind.fill_value) for kind in types):
        return frame
    dense = {name: np.asarray(frame[name]) for name, kind in frame.dtypes.items() if kind in types}
    return frame.assign(**dense) if all(isinstance(name, str) for name in dense) else frame.sparse.to_dense()


def without_numbers(frame: Any) -> list[str]:
    """Return the names of the columns of a data frame whose values are no numbers."""

    def numeric(name: Any) -> bool:
        try:
            held = frame[name]
            column = np.asarray(held.dropna() if hasattr(held, "dropna") else held)  # NA is no number, and no text
            return column.dtype.kind not in "mMc" and np.asarray(column, dtype=np.float64).ndim == 1
        except (ValueError, TypeError):
            return False

    return [str(name) for name in frame.columns if not numeric(name)]


def as_table(X: Any, source: str, *, layer: str | None = None, here: bool = False) -> Table:
    """Return what somebody holds as a table; the matrix of a data frame stays the frame, for others to convert.

    ``layer`` is that of AnnData ("raw" for the raw matrix). A tensor on a device stays there, unless it is wanted
    ``here``.
    """
    if is_annotated(X):
        return replace(_annotated(X, source, layer), source=source)
    if layer is not None:
        raise CofactorError(f"{source}: layer {layer!r} is for AnnData, found {type(X).__name__}.")
    X = devices.settled(X, here=here) if is_tensor(X) else in_memory(X)
    if isinstance(X, np.ma.MaskedArray):  # others would take what lies under the mask for data
        X = np.ma.filled(X.astype(np.result_type(X.dtype, np.float32)), np.nan)
    if not is_frame(X):
        return Table(X, source=source)
    X, columns = _with_gaps(X), list(X.columns)
    names = None if columns == list(range(len(columns))) else [str(name) for name in columns]
    return Table(X, names, _index(X), source=source)


def as_tables(Xs: Sequence[Any], **how: Any) -> list[Table]:
    """Return what clients hold as tables (:func:`as_table`) whose features have distinct names."""
    tables = [as_table(X, f"client {j}", **how) for j, X in enumerate(Xs)]
    for X, table in zip(Xs, tables, strict=True):
        if table.feature_names is not None:
            check_distinct(table, annotated=is_annotated(X))
    return tables


def set_aside(table: Table, name: str) -> tuple[Table, Array]:
    """Return a table without one of its columns, and that column: an obs column, or one of a data frame."""
    if not is_frame(table.X):
        return table, table.column(name)
    names = table.feature_names or []
    if name not in names:
        where = f"{table.source}: expected a column {name!r} to group by"
        raise DataError(f"{where}, found no such column{did_you_mean(name, names)}")
    label = table.X.columns[names.index(name)]
    X = table.X.drop(columns=[label]) if hasattr(table.X, "iloc") else table.X.drop(label)
    return replace(table, X=X, feature_names=[n for n in names if n != name]), plain(table.X[label])


def _index(frame: Any) -> list[str] | None:
    """Return the names of rows; a frame that only counts them has none."""
    index = getattr(frame, "index", None)
    if index is None or type(index).__name__ == "RangeIndex":
        return None
    return [str(name) for name in index]


def _annotated(held: Any, source: str, layer: str | None) -> Table:
    X, var = _matrix(held, source, layer)
    obs = {str(name): plain(held.obs[name].to_numpy()) for name in held.obs.columns}
    return Table(X, [str(name) for name in var], [str(name) for name in held.obs_names], obs)


def _matrix(held: Any, source: str, layer: str | None) -> tuple[Data, Any]:
    """Return the chosen matrix of AnnData, with the names of its features; one that is not in memory in blocks."""
    if held.isbacked:
        if held.is_view:
            raise DataError(f"{source}: a part of AnnData on disk cannot be read in blocks; use .to_memory() first.")
        return load.read(Path(held.filename), layer=layer, blocks=True).X, _var(held, layer)
    if layer == "raw" and "raw" not in held.layers:
        if held.raw is None:
            raise DataError(f"{source}: expected a raw matrix, found none.")
        return _readable(held.raw.X, source), held.raw.var_names
    if layer is not None and layer not in held.layers:
        known, near = list(held.layers), get_close_matches(layer, list(held.layers), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise DataError(f"{source}: expected a layer {layer!r}, found {known or 'none'}{hint}")
    X = held.X if layer is None else held.layers[layer]
    if X is None:
        raise DataError(f"{source}: expected a matrix X, found none; choose one of the layers {list(held.layers)}.")
    return _readable(X, source), held.var_names


def _var(held: Any, layer: str | None) -> Any:
    return held.raw.var_names if layer == "raw" and "raw" not in held.layers else held.var_names


def _readable(X: Any, source: str) -> Data:
    """Return a matrix as it is, and one of dask as rows that are computed a block at a time."""
    if not hasattr(type(X), "__dask_graph__"):
        return X
    if np.isnan(X.shape[0]):
        raise DataError(f"{source}: expected a dask array of known shape, found {X.shape}; use .compute_chunk_sizes().")
    return RowBlocks(ComputedRows(X))


@dataclass(frozen=True, eq=False)
class ComputedRows:
    """Rows of a dask array, computed when they are read."""

    array: Any

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        return int(self.array.shape[0]), int(self.array.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the values."""
        return np.dtype(self.array.dtype)

    @property
    def cells(self) -> float:
        """Values of a row, as if all were stored."""
        return float(self.shape[1])

    @property
    def sparse(self) -> bool:
        """Whether its blocks are sparse."""
        return hasattr(self.array._meta, "tocsr")

    def read(self, start: int, stop: int) -> Data:
        """Return computed rows, dense or CSR."""
        rows = self.array[start:stop].compute()
        return rows.tocsr() if self.sparse else np.asarray(rows)
