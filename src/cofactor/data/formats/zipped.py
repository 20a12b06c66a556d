"""Parts of the arrays of an ``.npz`` file: what lies before them is passed over and never kept."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cofactor.types import Array, DataError

PART_BYTES = 16 << 20
"""Size of the rows that are read at a time where only some of their columns are kept."""


class Header(NamedTuple):
    """What an npy header says, and where the values begin."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    offset: int


def header(file: Any) -> Header:
    """Read the header of an open npy file and nothing more."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    return Header(shape, dtype, fortran, file.tell())


def members(path: Path) -> dict[str, Header]:
    """Return the headers of all arrays of an npz file."""
    with zipfile.ZipFile(path) as archive:
        return {name.removesuffix(".npy"): _head(archive, name) for name in archive.namelist()}


@contextmanager
def open_npz(path: Path) -> Iterator[dict[str, Any]]:
    """Open an npz file as a store of arrays; the name "" stands for all of them, as a group."""
    with zipfile.ZipFile(path) as archive:
        arrays = {name.removesuffix(".npy"): ZippedArray(archive, name) for name in archive.namelist()}
        yield {**arrays, "": arrays}


@dataclass(frozen=True)
class ZippedArray:
    """One array (1-D, or 2-D row by row), of which ranges of rows, and of columns, can be read."""

    archive: zipfile.ZipFile
    name: str

    def __getitem__(self, index: slice | tuple[slice, slice]) -> Array:
        rows, columns = index if isinstance(index, tuple) else (index, slice(None))
        with self.archive.open(self.name) as file:
            head = header(file)
            start, stop, _ = rows.indices(head.shape[0])
            row_bytes = int(np.prod(head.shape[1:])) * head.dtype.itemsize
            file.seek(head.offset + start * row_bytes)
            if columns == slice(None):
                return self._next(file, head, stop - start)
            step = max(1, PART_BYTES // max(row_bytes, 1))
            parts = [self._next(file, head, min(step, stop - i))[:, columns].copy() for i in range(start, stop, step)]
            return np.concatenate(parts)

    def _next(self, file: Any, head: Header, rows: int) -> Array:
        """Read so many rows on."""
        out = np.empty((max(rows, 0), *head.shape[1:]), head.dtype)
        view, found = memoryview(out.reshape(-1).view(np.uint8).data), 0
        while found < len(view):
            count = file.readinto(view[found:])
            if not count:
                raise DataError(f"{self.name}: expected {len(view)} bytes, found {found}; the file is truncated.")
            found += count
        return out


def _head(archive: zipfile.ZipFile, name: str) -> Header:
    with archive.open(name) as file:
        return header(file)
