"""Readers of ``.npy`` and ``.npz`` files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from cofactor.data.formats.row_blocks import BLOCK_BYTES, RowBlocks
from cofactor.data.formats.sources import NpyRows, StoredCSR, StoredRows
from cofactor.data.formats.table import Options, Table, choose, did_you_mean, numbers
from cofactor.data.formats.zipped import Header, header, members, open_npz
from cofactor.types import Array, Data, DataError

SMALL_BYTES = 8 << 20
"""Blocks of a file of rows one after the other: where a read costs its bytes alone, a block had best stay in cache."""
FEATURE_KEYS = ("feature_names", "features", "columns", "var_names")
ROW_KEYS = ("row_names", "rows", "index", "obs_names")
_SPARSE_PARTS = {"format", "shape", "data", "indices", "indptr", "row", "col", "offsets", "_is_array"}


def read_npy(path: Path, options: Options) -> Table:
    """Read an ``.npy`` file: memory-mapped, or as row blocks when it is large."""
    with path.open("rb") as file:
        shape, dtype, fortran, offset = header(file)
    numbers(dtype, path=path)
    if len(shape) != 2:
        raise DataError(f"{path}: expected a matrix (rows x features), found an array of shape {shape}.")
    expected, found = offset + int(np.prod(shape)) * dtype.itemsize, path.stat().st_size
    if found < expected:
        raise DataError(f"{path}: expected {expected} bytes for shape {shape}, found {found}; the file is truncated.")
    source = NpyRows(path, (shape[0], shape[1]), dtype, offset, fortran)
    if (rows := choose(source, options, BLOCK_BYTES if fortran else SMALL_BYTES)) is not None:
        return Table(rows)
    if 0 in shape:  # there is nothing to map
        return Table(np.empty(shape, dtype))
    return Table(np.memmap(path, dtype, mode="r", offset=offset, shape=shape, order="F" if fortran else "C"))


def read_npz(path: Path, options: Options) -> Table:
    """Read an ``.npz`` file: a scipy sparse matrix, or the array ``key``, else ``X``, else the only 2-D one.

    Asked for, CSR matrices and arrays that lie row by row stay on disk as row blocks; others are read whole.

    Feature and row names come from the arrays called so (FEATURE_KEYS, ROW_KEYS; failing that, where it may be guessed,
    the only text with one value per feature, and not per row); other arrays with one value per row become obs.
    """
    headers = members(path)
    with np.load(path) as file:
        if "format" in headers and "shape" in headers and options.key is None:
            X, used = _sparse(file, headers, path, blocks=bool(options.blocks)), _SPARSE_PARTS
        else:
            key = _main(headers, path, options.key)
            numbers(headers[key].dtype, path=path, what=f"the array {key!r}")
            X, used = _dense(file, headers[key], key, path, blocks=bool(options.blocks)), {key}
        lists = {name: h for name, h in headers.items() if name not in used and len(h.shape) == 1}
        alone = options.guesses and X.shape[0] != X.shape[1]  # else names would tell how many rows there are
        features = _names(lists, FEATURE_KEYS, X.shape[1], alone=alone)
        rows = _names({k: h for k, h in lists.items() if k != features}, ROW_KEYS, X.shape[0], alone=False)
        feature_names, row_names = (k and _text(file, lists[k], k, path) for k in (features, rows))
        kept = [k for k, h in lists.items() if h.shape == X.shape[:1] and k not in (features, rows)]
        obs = {key: file[key] for key in kept if not lists[key].dtype.hasobject}
    return Table(X, feature_names or None, row_names or None, obs)


def _sparse(file: Any, headers: dict[str, Header], path: Path, *, blocks: bool) -> Data:
    """Return a sparse matrix that scipy saved, as CSR or as row blocks."""
    kind = file["format"].item()
    if blocks and kind in ("csr", b"csr"):
        n, m = (int(side) for side in file["shape"])
        stored = headers["data"]
        return RowBlocks(StoredCSR(path, "", open_npz, (n, m), stored.dtype, stored.shape[0]))
    X = sparse.csr_matrix(sparse.load_npz(path))
    X.check_format()  # an index out of bounds would crash the products
    return X


def _dense(file: Any, head: Header, key: str, path: Path, *, blocks: bool) -> Data:
    if blocks and not head.fortran:
        return RowBlocks(StoredRows(path, key, open_npz, (head.shape[0], head.shape[1]), head.dtype))
    return file[key]


def _main(headers: dict[str, Header], path: Path, key: str | None) -> str:
    """Return the name of the array that is the matrix."""
    matrices = [name for name, head in headers.items() if len(head.shape) == 2]
    if key is None and "X" not in matrices and len(matrices) == 1:
        return matrices[0]
    wanted = key or "X"
    if wanted in matrices:
        return wanted
    found = ", ".join(f"{name!r} {head.shape}" for name, head in headers.items()) or "no array"
    only = "" if key else " or exactly one 2-D array"
    raise DataError(f"{path}: expected a 2-D array {wanted!r}{only}, found {found}{did_you_mean(wanted, matrices)}")


def _names(lists: dict[str, Header], keys: tuple[str, ...], length: int, *, alone: bool) -> str | None:
    """Return the name of the array that holds names: one of ``keys``, or the only fitting text if ``alone``."""
    fitting = [name for name, head in lists.items() if head.shape == (length,)]
    known = [name for name in keys if name in fitting]
    text = [name for name in fitting if lists[name].dtype.kind == "U"]
    return known[0] if known else text[0] if alone and len(text) == 1 else None


def _text(file: Any, head: Header, key: str, path: Path) -> list[str]:
    if head.dtype.hasobject:
        raise DataError(f"{path}: expected text in {key!r}, found Python objects; save it with .astype(str).")
    names: Array = file[key]
    return names.astype(str).tolist()
