"""Readers of annotated matrices: ``.h5ad`` files and ``.zarr`` folders."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from cofactor.data.formats.sources import Open, StoredCSR, StoredRows
from cofactor.data.formats.stored import Source
from cofactor.data.formats.table import Options, Table, choose, did_you_mean, is_large, need, numbers, plain
from cofactor.types import Array, Data, DataError


def read_h5ad(path: Path, options: Options) -> Table:
    """Read ``X`` or a layer of an ``.h5ad`` file (layer "raw": the raw matrix with its own features)."""
    need("anndata", "bio", path=path)
    with open_h5(path) as store:
        return _annotated(store, path, open_h5, options)


def read_zarr(path: Path, options: Options) -> Table:
    """Read a ``.zarr`` folder: an anndata one, a plain 2-D array, or a group with one (``key``, ``X`` or the only)."""
    _check_codecs(path)
    with open_zarr(path) as store:
        annotated = "obs" in store and "var" in store if hasattr(store, "array_keys") else False
        if options.layer is not None and not annotated:
            raise DataError(f"{path}: expected an anndata folder with layer {options.layer!r}, found plain arrays.")
        if hasattr(store, "shape"):
            return Table(_dense(store, path, options, name="", open=open_zarr_array))
        if annotated:
            need("anndata", "bio", path=path)
            return _annotated(store, path, open_zarr, options)
        found = [name for name in store.array_keys() if len(store[name].shape) == 2]
        key = options.key or ("X" if "X" in found or len(found) != 1 else found[0])
        if key not in found:
            raise DataError(
                f"{path}: expected a 2-D array {key!r}, found {', '.join(map(repr, found)) or 'none'}"
                f"{did_you_mean(key, found)}"
            )
        return Table(_dense(store[key], path, options, name=key, open=open_zarr))


def _check_codecs(path: Path) -> None:
    """Refuse arrays that are kept as pickles: libraries of some editions run the code in those that they read."""
    for folder, below, files in os.walk(path):
        for name in sorted({".zarray", ".zmetadata"}.intersection(files)):
            told = json.loads(Path(folder, name).read_text(encoding="utf-8"))
            if '"id": "pickle"' in json.dumps(told):  # however it was spelt
                raise DataError(f"{Path(folder, name)}: expected arrays of numbers and text, found pickles.")
        if ".zarray" in files:  # what is below are chunks
            below.clear()


@contextmanager
def open_h5(path: Path) -> Iterator[Any]:
    """Open an HDF5 file for reading."""
    with need("h5py", "bio", path=path).File(path, "r") as file:
        yield file


@contextmanager
def open_zarr(path: Path) -> Iterator[Any]:
    """Open a zarr folder for reading: a group or an array."""
    yield need("zarr", "io", path=path).open(str(path), mode="r")


@contextmanager
def open_zarr_array(path: Path) -> Iterator[dict[str, Any]]:
    """Open a zarr folder that is one array, as a store where its name is empty."""
    with open_zarr(path) as array:
        yield {"": array}


def _annotated(store: Any, path: Path, open: Open, options: Options) -> Table:
    """Read the chosen matrix of an anndata store, and obs and names, but nothing else."""
    name = _matrix_name(store, path, options.layer)
    element = store[name]
    X = (
        _csr(element, path, options, name=name, open=open)
        if hasattr(element, "keys")
        else _dense(element, path, options, name=name, open=open)
    )
    read_elem = need("anndata.io", "bio", path=path).read_elem
    obs, var = read_elem(store["obs"]), read_elem(store["raw/var" if name == "raw/X" else "var"])
    columns = {str(column): plain(obs[column].to_numpy()) for column in obs.columns}
    return Table(X, var.index.astype(str).tolist(), obs.index.astype(str).tolist(), columns)


def _matrix_name(store: Any, path: Path, layer: str | None) -> str:
    """Return where the matrix lies in the store."""
    layers = list(store["layers"].keys()) if "layers" in store else []
    if layer is None:
        if "X" in store and (hasattr(store["X"], "keys") or store["X"].shape):
            return "X"
        raise DataError(f"{path}: expected a matrix X, found none; choose one of the layers {layers}.")
    if layer in layers:
        return f"layers/{layer}"
    if layer == "raw" and "raw" in store:
        return "raw/X"
    raise DataError(f"{path}: expected a layer {layer!r}, found {layers}{did_you_mean(layer, layers)}")


def _dense(element: Any, path: Path, options: Options, *, name: str, open: Open) -> Data:
    dtype = np.dtype(element.dtype)
    numbers(dtype, path=path, what=f"the array {name!r}" if name else "the array")
    if len(element.shape) != 2:
        raise DataError(f"{path}: expected a matrix (rows x features), found an array of shape {element.shape}.")
    rows = choose(StoredRows(path, name, open, tuple(element.shape), dtype), options)
    return np.asarray(element[:]) if rows is None else rows


def _csr(group: Any, path: Path, options: Options, *, name: str, open: Open) -> Data:
    """Return a sparse matrix of a store as CSR, or as row blocks if it is large and stored as CSR.

    Rows of a CSC matrix lie all over the file: one that is to be read in blocks is read at once, if it is small.
    """
    shape, by_rows = _sparse_shape(group), _is_csr(group)
    data = group["data"]
    numbers(np.dtype(data.dtype), path=path, what=f"the matrix {name!r}")
    source: Source = StoredCSR(path, name, open, shape, np.dtype(data.dtype), int(data.shape[0]))
    rows = choose(source, options)
    if by_rows and rows is not None:
        return rows
    if options.blocks and rows is not None and is_large(rows):
        raise DataError(
            f"{path}: expected CSR (rows) to read {name!r} in blocks, found CSC, which is too large to read at once; "
            "store it as CSR first."
        )
    parts: tuple[Array, ...] = tuple(np.asarray(group[part][:]) for part in ("data", "indices", "indptr"))
    X = (sparse.csr_matrix if by_rows else sparse.csc_matrix)(parts, shape=shape)
    X.check_format()  # an index out of bounds would crash the products
    return X.tocsr()


def _sparse_shape(group: Any) -> tuple[int, int]:
    """Return the shape of a sparse group; older files call it h5sparse_shape."""
    stored = group.attrs["shape"] if "shape" in group.attrs else group.attrs["h5sparse_shape"]
    return int(stored[0]), int(stored[1])


def _is_csr(group: Any) -> bool:
    kind = group.attrs["encoding-type"] if "encoding-type" in group.attrs else group.attrs["h5sparse_format"]
    return str(kind).startswith("csr")
