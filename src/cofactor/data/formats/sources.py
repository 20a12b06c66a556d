"""Where row blocks come from: npy files, and dense or CSR matrices inside HDF5 files and zarr folders.

Every read opens the file anew: a source holds no handle, so it pickles and threads may share it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from cofactor.data.formats.failing import OnDisk
from cofactor.data.formats.stored import Dense
from cofactor.types import Array, Data, DataError

MAPPED_BYTES = 16 << 20
"""Size of the part of a file that is mapped at a time."""

Open = Callable[[Path], AbstractContextManager[Any]]
"""Opens a store of named arrays (an HDF5 file, a zarr group) for reading."""


@dataclass(frozen=True)
class NpyRows(OnDisk, Dense):
    """The matrix of an ``.npy`` file, whose values begin at byte ``offset``, row by row or column by column."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    offset: int
    fortran: bool = False

    def read(self, start: int, stop: int) -> Array:
        """Return rows ``start:stop`` with plain reads: mapped pages would count as resident memory."""
        n, m = self.shape
        with self.rows(start, stop), self.path.open("rb", buffering=0) as file:
            if not self.fortran:
                return self._values(file, start * m, (stop - start) * m).reshape(stop - start, m)
            out = np.empty((stop - start, m), self.dtype)
            for column in range(m):
                out[:, column] = self._values(file, column * n + start, stop - start)
            return out

    def read_columns(self, start: int, stop: int) -> Array:
        """Return columns ``start:stop``; where rows are long, only the pages that hold these are read."""
        with self.rows(0, self.shape[0]):
            return self._by_column(start, stop) if self.fortran else self._mapped(start, stop)

    def _by_column(self, start: int, stop: int) -> Array:
        n = self.shape[0]
        out = np.empty((n, stop - start), self.dtype)
        with self.path.open("rb", buffering=0) as file:
            for column in range(start, stop):
                out[:, column - start] = self._values(file, column * n, n)
        return out

    def _mapped(self, start: int, stop: int) -> Array:
        """The file is mapped a part at a time: what was copied does not count as resident memory any more."""
        n, m = self.shape
        out = np.empty((n, stop - start), self.dtype)
        row_bytes = m * self.dtype.itemsize
        step = max(1, MAPPED_BYTES // max(row_bytes, 1))
        for first in range(0, n, step):
            rows = slice(first, min(first + step, n))
            shape = rows.stop - first, m
            out[rows] = np.memmap(self.path, self.dtype, "r", self.offset + first * row_bytes, shape)[:, start:stop]
        return out

    def _values(self, file: Any, first: int, count: int) -> Array:
        """Return ``count`` values from value ``first`` on, read straight into their place."""
        file.seek(self.offset + first * self.dtype.itemsize)
        values = np.empty(count, self.dtype)
        left = values.view(np.uint8).data
        while left and (got := file.readinto(left)):  # a read may end early
            left = left[got:]
        if left:
            found = count - -(-len(left) // self.dtype.itemsize)
            raise DataError(f"{self.path}: expected {count} values from value {first} on, found {found}.")
        return values


@dataclass(frozen=True)
class StoredRows(OnDisk, Dense):
    """A dense 2-D array at ``name`` in a store; chunks are read as they come."""

    name: str
    open: Open
    shape: tuple[int, int]
    dtype: np.dtype[Any]

    def read(self, start: int, stop: int) -> Array:
        """Return rows ``start:stop``."""
        with self.rows(start, stop), self.open(self.path) as store:
            return np.asarray(store[self.name][start:stop])

    def read_columns(self, start: int, stop: int) -> Array:
        """Return columns ``start:stop``; the chunks that hold them are read."""
        with self.rows(0, self.shape[0]), self.open(self.path) as store:
            return np.asarray(store[self.name][:, start:stop])


@dataclass(frozen=True)
class StoredCSR(OnDisk):
    """A CSR matrix at ``name`` in a store: a group with ``data``, ``indices`` and ``indptr``, as anndata writes."""

    name: str
    open: Open
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    stored: int

    sparse = True

    @property
    def cells(self) -> float:
        """Stored values of an average row."""
        return self.stored / max(self.shape[0], 1)

    def read(self, start: int, stop: int) -> Data:
        """Return rows ``start:stop`` as CSR."""
        with self.rows(start, stop), self.open(self.path) as store:
            group = store[self.name]
            indptr = np.asarray(group["indptr"][start : stop + 1])
            first, last = int(indptr[0]), int(indptr[-1])
            parts = np.asarray(group["data"][first:last]), np.asarray(group["indices"][first:last]), indptr - first
        X = sparse.csr_matrix(parts, shape=(stop - start, self.shape[1]))
        try:
            X.check_format()  # an index out of bounds would crash the products
        except ValueError as error:
            raise DataError(
                f"{self.path}: expected CSR in {self.name!r}, rows {start}:{stop}, found {error}."
            ) from error
        return X
