"""Matrices larger than memory: rows that stay on disk and are read a block at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
from scipy import sparse

from cofactor.data.formats.stored import Columns, Rows, Source, positions
from cofactor.local import arrays
from cofactor.local.admitted import check_size, wide
from cofactor.local.threads import in_turn
from cofactor.types import Array, Data, DataError

BLOCK_BYTES = 32 << 20
"""Size of a block in memory, unless told otherwise; the next one is read while one is worked on."""


def working_dtype(stored: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type that :func:`cofactor.local.arrays.check` gives such values: float32 or float64."""
    if stored in (np.float32, np.float64):
        return stored
    return np.dtype(np.float32 if stored.itemsize <= 2 else np.float64)


@dataclass(frozen=True)
class RowBlocks:
    """A matrix X (n x m) of float32 / float64 whose rows are read from ``source`` block by block.

    Blocks are read with plain file reads, never mapped, so at most a few of them are in memory at a time.
    ``X.T`` and item access do not exist on purpose: whoever needs all of X says so with :meth:`load`.
    """

    source: Source
    block_bytes: int = BLOCK_BYTES
    given: np.dtype[Any] | None = None
    """The type of every block, if that is not the one of the source's values in memory."""

    ndim = 2
    __array_ufunc__ = None  # an array times this must fail, not loop over objects

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        return self.source.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of every block: float32 or float64."""
        return self.given or working_dtype(self.source.dtype)

    def astype(self, dtype: Any) -> RowBlocks:
        """Return it with blocks of another type; nothing is read yet."""
        return replace(self, given=np.dtype(dtype))

    @property
    def sparse(self) -> bool:
        """Whether blocks are CSR matrices."""
        return self.source.sparse

    @property
    def nbytes(self) -> int:
        """Bytes that all of X would take in memory."""
        return int(self.shape[0] * self._row_bytes)

    @property
    def block_rows(self) -> int:
        """Rows of a block (the last may have fewer)."""
        return max(1, int(self.block_bytes // max(self._row_bytes, 1.0)))

    @property
    def _row_bytes(self) -> float:
        indices = 8 if self.sparse else 0
        return self.source.cells * (self.dtype.itemsize + indices)

    def blocks(self) -> Iterator[tuple[slice, Data]]:
        """Yield ``(rows, X[rows])`` from the first row to the last, each block a dense C array or CSR.

        This is the loop to fuse work in: all that needs a block while it is in memory costs one read. A thread reads
        the next block meanwhile.
        """
        slices = self.slices()
        if len(slices) <= 1:
            return ((rows, self.row_block(rows)) for rows in slices)
        return in_turn(lambda rows: (rows, self.row_block(rows)), slices, threads=1, ahead=1)

    def slices(self) -> list[slice]:
        """Return the rows of every block."""
        starts = range(0, self.shape[0], self.block_rows)
        return [slice(start, min(start + self.block_rows, self.shape[0])) for start in starts]

    def times_factor(self, H: Array) -> Array:
        """``X H^T`` (n x k)."""
        out = np.empty((self.shape[0], H.shape[0]), np.result_type(self.dtype, H.dtype))
        for rows, block in self.blocks():
            out[rows] = arrays.times_factor(block, H)
        return out

    def times_codes(self, W: Array) -> Array:
        """``X^T W`` (m x k)."""
        out = np.zeros((self.shape[1], W.shape[1]), np.result_type(self.dtype, W.dtype))
        for rows, block in self.blocks():
            out += arrays.times_codes(block, W[rows])
        return out

    def square(self) -> float:
        """``|X|_F^2`` in double precision."""
        return float(self.row_squares().sum())

    def row_squares(self) -> Array:
        """``|x_i|^2`` of every row in double precision (n)."""
        return np.concatenate([np.zeros(0), *(arrays.row_squares(block) for _, block in self.blocks())])

    def rows(self, index: Array) -> Data:
        """Return the rows at ``index`` in memory, in that order."""
        return self.take(index).load()

    def take(self, index: Array) -> RowBlocks:
        """Return the rows at ``index`` (positions or a mask) as row blocks; nothing is read yet."""
        return replace(self, source=Rows(self.source, positions(index, self.shape[0])))

    def columns(self, index: Array) -> RowBlocks:
        """Return the columns at ``index`` (positions or a mask) as row blocks; nothing is read yet."""
        return replace(self, source=Columns(self.source, positions(index, self.shape[1])))

    def load(self) -> Data:
        """Return all of X in memory: a dense array or CSR."""
        return self.row_block(slice(0, self.shape[0]))

    def row_block(self, rows: slice) -> Data:
        """Return consecutive rows in memory: a dense array or CSR."""
        found = self.source.read(rows.start, rows.stop)
        if found.shape[0] != min(rows.stop, self.shape[0]) - rows.start:
            raise DataError(
                f"{getattr(self.source, 'path', 'data on disk')}: expected rows {rows.start}:{rows.stop} of "
                f"{self.shape[0]}, found {found.shape[0]} of them; the file has changed since it was opened."
            )
        return self._cast(found)

    def column_block(self, columns: slice) -> Data:
        """Return consecutive columns in memory: a dense array or CSC.

        A source that can read columns reads these; of another, all rows pass by a block at a time.
        """
        if (read := getattr(self.source, "read_columns", None)) is not None:
            return self._cast(read(columns.start, columns.stop))
        if self.sparse:
            return sparse.vstack([block[:, columns] for _, block in self.blocks()], format="csc")
        out = np.empty((self.shape[0], columns.stop - columns.start), self.dtype)
        for rows, block in self.blocks():
            out[rows] = block[:, columns]
        return out

    def check(self, *, client: object = 0, signed: bool = False) -> RowBlocks:
        """Return it if every value is finite and, unless ``signed``, >= 0, or say where the first other one is.

        Single precision whose squares leave its range is read as double precision from then on.
        """
        if 0 in self.shape:
            raise DataError(f"client {client}: expected rows and features, found shape {self.shape}.")
        largest = 0.0
        for rows, found in self.blocks():
            block = arrays.canonical(found) if self.sparse else found  # a cell that is stored in parts is their sum
            values = block.data if self.sparse else block
            low, high = (values.min(), values.max()) if values.size else (0, 0)
            if not (np.isfinite(low) and (signed or low >= 0) and np.isfinite(high)):
                _refuse(block, rows.start, client, signed=signed)
            largest = max(largest, float(high), -float(low))
        return check_size(wide(self, largest), largest, f"client {client}")

    def _cast(self, block: Data) -> Data:
        if sparse.issparse(block):
            return block.astype(self.dtype, copy=False)
        return np.ascontiguousarray(block, dtype=self.dtype)

    def __array__(self, *args: object, **kwargs: object) -> NoReturn:
        raise TypeError(f"Expected a matrix in memory, found row blocks {self.shape} on disk; use .load() to read all.")


def _refuse(block: Data, start: int, client: object, *, signed: bool) -> NoReturn:
    """Say which cell of a block is not a finite value, or unless ``signed`` not one >= 0."""
    values = block.data if sparse.issparse(block) else block.ravel()
    position = int(np.flatnonzero(~(np.isfinite(values) & (signed | (values >= 0))))[0])
    wanted, remedy = (
        ("finite values", "drop or impute") if signed else ("finite values >= 0", "drop, impute, shift or clip")
    )
    if sparse.issparse(block):
        row, column = np.searchsorted(block.indptr, position, side="right") - 1, block.indices[position]
    else:
        row, column = divmod(position, block.shape[1])
    raise DataError(
        f"client {client}: expected {wanted}, found {values[position]} at row {start + row}, "
        f"column {column}; {remedy} such cells first.",
        int(column),
    )
