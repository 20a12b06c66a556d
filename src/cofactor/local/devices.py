"""Where data are put: on a device, beside it where they do not fit, and back."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from scipy import sparse

from cofactor.local import arrays
from cofactor.local.placed import Placed
from cofactor.local.resident import Resident, resident, resident_sparse
from cofactor.local.streamed import Streamed
from cofactor.local.tensors import numbers, stored_type, torch
from cofactor.types import Array, CofactorError, Data, DataError

KINDS = ("real", "blocks", "boolean")
"""Kinds of data whose methods run on a device; ratings, clusters and gaps have kernels of their own for the CPU."""
ROOM = 0.8
"""Share of the free memory of a device that data may take: products and codes need the rest."""


@runtime_checkable
class Parts(Protocol):
    """Held data that are made of other data, such as a row block and a column block."""

    def parted(self, change: Callable[[Data], Data]) -> Data:
        """Return the same with every part changed."""
        ...


def is_tensor(X: Any) -> bool:
    """Whether X is a tensor of torch; nothing is imported for it."""
    return type(X).__module__.partition(".")[0] == "torch" and hasattr(X, "data_ptr")


def find(device: Any) -> Any:
    """Return a device of torch, or say what torch found instead.

    >>> import pytest; _ = pytest.importorskip("torch")
    >>> find("cpu").type
    'cpu'
    """
    try:
        found = torch().device(device)
    except ImportError:
        raise CofactorError(
            f"device {str(device)!r}: expected torch to be installed, found none; pip install 'cofactor[gpu]'."
        ) from None
    except RuntimeError as error:
        raise CofactorError(f"device: expected 'cuda', 'cuda:1' or 'cpu', found {device!r} ({error}).") from None
    if found.type not in ("cuda", "cpu"):
        raise CofactorError(
            f"device: expected 'cuda', 'cuda:1' or 'cpu', found {str(found)!r}, which is not supported."
        )
    if found.type == "cuda":
        seen = torch().cuda.device_count()
        if not torch().cuda.is_available() or (found.index or 0) >= seen:
            built = f"built for CUDA {torch().version.cuda}" if torch().version.cuda else "built without CUDA"
            raise CofactorError(
                f"device {str(found)!r}: expected a CUDA device, found torch {torch().__version__}, {built}, which "
                f"sees {seen} of them; leave device out, or install a torch and a driver that match."
            )
    return found


def place(X: Data, device: Any) -> Data:
    """Return a client's data on a device: where they do not fit, they stay and are streamed, with a warning.

    Dense values are stored as bfloat16 where that holds every one of them (pixels, small counts, 0 and 1). ``X`` may be
    a numpy array of any order, a scipy matrix, a tensor, or data that are on a device already.
    """
    if isinstance(X, Resident | Streamed):
        return X
    where = find(device)
    if isinstance(X, Parts):
        return X.parted(lambda part: place(part, where))
    if arrays.is_held(X):
        X = arrays.row_block(X, slice(0, X.shape[0]))
    if sparse.issparse(X):
        X = arrays.canonical(X)
        return resident_sparse(X if X.dtype in (np.float32, np.float64) else X.astype(_working(X.dtype)), where)
    if not is_tensor(X):
        X = _native(np.asarray(X))
    if X.ndim != 2 or 0 in X.shape:
        raise DataError(f"expected a matrix (rows x features) with numbers in it, found shape {tuple(X.shape)}.")
    if is_tensor(X) and X.layout != torch().strided:
        return place(_in_rows(X), where)
    return _dense(X, where, _working(stored_type(X.dtype) if is_tensor(X) else X.dtype))


def _native(X: Array) -> Array:
    """Return an array of a type that torch knows: bytes in the order of this machine, at most eight of them."""
    strange = X.dtype.kind == "f" and X.dtype.itemsize > 8
    return X.astype(_working(X.dtype)) if strange or not X.dtype.isnative else X


def _working(stored: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of products: that of floats, float32 for whole numbers of up to 16 bits."""
    if stored.kind not in "fiub":
        raise DataError(f"expected numbers, found dtype {stored}.")
    if stored in (np.float32, np.float64):
        return stored
    return np.dtype(np.float32 if stored.kind == "b" or stored.itemsize <= 2 else np.float64)


def _dense(X: Any, device: Any, dtype: np.dtype[Any]) -> Data:
    n, m = X.shape
    needed = n * m * dtype.itemsize
    if device.type == "cuda":
        free = torch().cuda.mem_get_info(device)[0]
        if needed > ROOM * free:
            return _streaming(X, device, dtype, f"{needed / 1e9:.1f} GB are more than {ROOM:.0%} of {free / 1e9:.1f}")
    try:
        return resident(X, device, dtype)
    except torch().OutOfMemoryError:
        torch().cuda.empty_cache()
        return _streaming(X, device, dtype, f"it ran out of memory for {needed / 1e9:.1f} GB")


def _streaming(X: Any, device: Any, dtype: np.dtype[Any], why: str) -> Streamed:
    warnings.warn(
        f"the data do not fit on {device} ({why}): they stay in memory, and row blocks are streamed to it; a round "
        "then takes as long as two copies of them.",
        stacklevel=4,
    )
    return Streamed(X.cpu().numpy() if is_tensor(X) else X, device, dtype)


def place_all(Xs: Sequence[Data], device: Any, kind: str, *, private: bool) -> list[Data]:
    """Put the data of clients on a device, or refuse what no device takes."""
    where = refuse(device, kind, private=private)
    found = []
    for j, X in enumerate(Xs):
        try:
            found.append(place(X, where))
        except DataError as error:
            raise DataError(f"client {j}: {error}", error.column) from None
    return found


def refuse(device: Any, kind: str, *, private: bool) -> Any:
    """Return a device of torch, or refuse one that is not there, and runs that would not use it."""
    where = device if private else find(device)
    if private or kind not in KINDS:
        found = "a private run" if private else f"data of the kind {kind!r}"
        raise CofactorError(
            f"device {str(where)!r}: expected a method on real numbers or on bits, without noise, found {found}."
        )
    return where


def are_tensors(Xs: Any) -> bool:
    """Whether clients are given as tensors."""
    return isinstance(Xs, list | tuple) and len(Xs) > 0 and is_tensor(Xs[0])


def plain(a: Any) -> Any:
    """Return a tensor or an array on a device as an array in memory; anything else as it is."""
    return numbers(a.detach().cpu()) if is_tensor(a) else np.asarray(a) if isinstance(a, Placed) else a


def settled(X: Any, *, here: bool = False) -> Any:
    """Return what a user holds, one matrix or a list of clients, as this package takes it.

    A tensor in memory is the array that shares it, one on a device data there, unless all are wanted ``here``; anything
    else stays as it is.
    """
    if are_tensors(X):
        return [settled(x, here=here) for x in X]
    if not is_tensor(X):
        return X
    found, where = X.detach(), find(X.device)
    if found.layout != torch().strided and found.ndim == 2:
        there = _in_rows(found)
        return there if here or where.type == "cpu" else place(there, where)
    found = (found.cpu() if here else found).to_dense()
    return numbers(found) if found.device.type == "cpu" else place(found, where)


def _in_rows(X: Any) -> Data:
    """Return a sparse tensor as a scipy matrix in memory: what is zero in it stays away."""
    X = X.cpu()
    if X.layout in (torch().sparse_csr, torch().sparse_csc):
        first, made = X.layout == torch().sparse_csr, (sparse.csr_matrix, sparse.csc_matrix)
        index = (X.col_indices(), X.crow_indices()) if first else (X.row_indices(), X.ccol_indices())
        return made[not first]((numbers(X.values()), *(part.numpy() for part in index)), shape=tuple(X.shape))
    X = X.to_sparse_coo().coalesce()
    rows, columns = X.indices().numpy()
    return sparse.csr_matrix((numbers(X.values()), (rows, columns)), shape=tuple(X.shape))


def returned(a: Any, like: Any) -> Any:
    """Return an array as a user expects it: a tensor where they gave tensors, on the device that they gave them on."""
    if is_tensor(like):
        there = a.tensor if isinstance(a, Placed) else torch().from_numpy(np.ascontiguousarray(a))
        return there.to(like.device)
    return np.asarray(a) if isinstance(a, Placed) else a
