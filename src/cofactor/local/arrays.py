"""Dense and sparse data behind a few functions, so that no other file asks what kind X is.

Besides numpy arrays and scipy CSR / CSC matrices there are *held* data that keep their rows elsewhere (such as
:class:`cofactor.data.formats.row_blocks.RowBlocks`, which reads them from a file): they bring these functions along as
methods of the same names.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np
from scipy import sparse

from cofactor.local.admitted import check_size, wide
from cofactor.local.kernels import dense_products, sparse_products
from cofactor.local.kernels.orders import by_rows
from cofactor.local.placed import Placed
from cofactor.types import Array, Data, DataError

BLOCK_CELLS = 1 << 22
"""Cells of a block in double precision: 32 MB."""
LEFT_OUT = ", or fit by the method 'exact-gaps', to which NaN was not observed"


def is_held(X: Data) -> bool:
    """Whether X keeps its rows elsewhere and brings its own products."""
    return hasattr(X, "times_factor")


def is_dense(X: Data) -> bool:
    """Whether X is a dense array, in memory or on a device: most data are, so that this is asked first."""
    return isinstance(X, (np.ndarray, Placed))


def is_placed(X: Data) -> bool:
    """Whether X is on a device, and so are the arrays that come out of it."""
    return is_held(X) and hasattr(X, "zeros")


def counts(X: Data) -> bool:
    """Whether X brings the sums of Kullback-Leibler along: it is on a device as a whole."""
    return is_placed(X) and hasattr(X, "count_codes")


def keeps_still(X: Data) -> bool:
    """Whether X is dense on a device, all of it: its products are the same kernels at every time."""
    return counts(X) and X.is_dense


def zeros(shape: tuple[int, ...], X: Data) -> Array:
    """Return zeros in the type of X, beside it: on its device where it has one."""
    return X.zeros(shape) if is_placed(X) else np.zeros(shape, X.dtype)


def contiguous(a: Array) -> Array:
    """Return an array row by row in memory; one on a device as it is, where kernels see to it themselves."""
    return a if isinstance(a, Placed) else by_rows(a)


def where(X: Data) -> str:
    """Return where the rows of X are: on a "device", on "disk" (``X.blocks()`` reads them), or in "memory"."""
    if is_placed(X):
        return "device"
    return "disk" if is_held(X) and hasattr(X, "blocks") else "memory"


def stored(X: Data) -> float:
    """Return how many numbers X has in memory; infinitely many where it keeps its rows elsewhere."""
    if not is_dense(X) and is_held(X):
        return math.inf
    return X.nnz if sparse.issparse(X) else X.shape[0] * X.shape[1]  # cells with weights are as many as there are


def has_dense_rows(X: Data) -> bool:
    """Whether rows of X come into memory dense: then a block of them may be shifted without becoming larger."""
    return isinstance(X, np.ndarray) or (where(X) == "disk" and not X.sparse)


def check(X: Data, *, client: object = 0, signed: bool = False) -> Data:
    """Return X as a float32 / float64 dense C array or CSR / CSC matrix, or say what is wrong with it.

    Floats keep their dtype, unless their squares would leave the range of float32 (:func:`wide`): these become float64.
    Integers and bools become float32 when that is exact (up to 16 bits). ``signed`` lets negative values pass.
    """
    if is_held(X):
        return X.check(client=client, signed=signed)
    where = f"client {client}"
    if np.ma.is_masked(X):
        raise DataError(f"{where}: expected all values, found masked ones; .filled(np.nan) marks them as not observed.")
    if sparse.issparse(X):
        X = canonical(X)
        values = X.data
    else:
        X = values = np.asarray(X)
    if X.ndim != 2:
        raise DataError(f"{where}: expected a matrix (rows x features), found {X.ndim} dimension(s).")
    if X.shape[0] == 0:
        raise DataError(f"{where}: expected at least one row, found an empty client {X.shape}; leave it out.")
    if X.shape[1] == 0:
        raise DataError(f"{where}: expected at least one feature, found shape {X.shape}.")
    if values.dtype.kind not in "fiub":
        raise DataError(f"{where}: expected numbers, found dtype {values.dtype}.")
    if values.dtype not in (np.float32, np.float64):
        small = values.dtype.kind == "b" or values.dtype.itemsize <= 2
        X = X.astype(np.float32 if small else np.float64)
        values = X.data if sparse.issparse(X) else X
    if not sparse.issparse(X):
        X = values = np.ascontiguousarray(X)
    _check_values(X, values, where, signed=signed)
    largest = max(float(values.max()), -float(values.min())) if values.size else 0.0
    return check_size(wide(X, largest), largest, where)


def canonical(X: Data) -> Data:
    """Return a CSR or CSC matrix that has its cells in order and none of them twice; X itself is never changed.

    It is looked at anew: what a matrix remembers of itself is wrong where its indices were changed in place. What lies
    in its arrays behind the last cell is left out: it is no value.
    """
    X = X if X.format in ("csr", "csc") else X.tocsr()
    seen = type(X)((X.data[: X.nnz], X.indices[: X.nnz], X.indptr), X.shape)
    if seen.has_canonical_format:
        return X if len(X.data) == X.nnz else seen
    found = seen.copy()
    found.sum_duplicates()
    return found


def _check_values(X: Data, values: Array, where: str, *, signed: bool) -> None:
    """Refuse NaN, infinite and negative values; one cheap reduction each when all is well."""
    if values.size == 0:
        return
    low, high = values.min(), values.max()
    if np.isfinite(low) and (signed or low >= 0) and np.isfinite(high):
        return
    wanted = "finite values" if signed else "finite values >= 0"
    for name, bad, hint in (
        ("NaN", np.isnan(values), "drop or impute them first" + ("" if signed else LEFT_OUT)),
        ("infinite values", np.isinf(values), "drop or impute them first"),
        ("Negative values in data", values < 0, "shift or clip the data first"),
    ):
        if bad.any():
            row, column = _first(X, bad)
            cells = f"{int(bad.sum())} such cell(s), the first at row {row}, column {column}"
            raise DataError(f"{where}: {name}: expected {wanted}, found {cells}; {hint}.", column)


def _first(X: Data, bad: Array) -> tuple[int, int]:
    """Return row and column of the first bad cell."""
    position = int(np.flatnonzero(bad)[0])
    if not sparse.issparse(X):
        row, column = np.unravel_index(position, X.shape)
        return int(row), int(column)
    major = int(np.searchsorted(X.indptr, position, side="right")) - 1
    minor = int(X.indices[position])
    return (major, minor) if X.format == "csr" else (minor, major)


def times_factor(X: Data, H: Array) -> Array:
    """``X H^T`` (n x k)."""
    if is_dense(X):
        return dense_products.times_factor(X, H)
    return X.times_factor(H) if is_held(X) else sparse_products.times(X, H.T)


def times_factor_each(Xs: Iterable[Data], H: Array) -> Iterator[Array]:
    """Yield ``X H^T`` of every X; H is put in the order in which sparse products read it once for all of them."""
    turned: Array | None = None
    for X in Xs:
        if turned is None and not is_dense(X):
            turned = by_rows(H.T).T
        yield times_factor(X, H if turned is None or is_dense(X) else turned)


def times_codes(X: Data, W: Array) -> Array:
    """``X^T W`` (m x k)."""
    if is_dense(X):
        return dense_products.times_codes(X, W)
    return X.times_codes(W) if is_held(X) else sparse_products.transpose_times(X, W)


def times_picked(X: Data, index: Array, W: Array) -> Array:
    """``X[index]^T W`` (m x k) of a dense matrix in memory."""
    return dense_products.times_picked(X, index, W)


def gram(F: Array) -> Array:
    """``F^T F`` (k x k) of F (n x k): that of some rows at a time, by the threads that were lent, added in order."""
    return F.T @ F if isinstance(F, Placed) else dense_products.gram(F)


def square(X: Data) -> float:
    """``|X|_F^2`` in double precision."""
    return float(row_squares(X).sum())


def row_squares(X: Data) -> Array:
    """``|x_i|^2`` of every row in double precision (n)."""
    if is_held(X):
        return X.row_squares()
    if sparse.issparse(X):
        squares = np.square(X.data[: X.nnz], dtype=np.float64)
        of_rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr)) if X.format == "csr" else X.indices[: X.nnz]
        return np.bincount(of_rows, squares, X.shape[0])
    return np.einsum("ij,ij->i", X, X, dtype=np.float64)


def inner(A: Array, B: Array) -> float:
    """``<A, B>`` in double precision without a double copy of either."""
    if isinstance(A, Placed) or isinstance(B, Placed):
        return np.sum(A * B, dtype=np.float64)  # a number on the device: whoever needs it waits for it
    if A.dtype == B.dtype == np.float64:
        return float(np.vdot(A, B))
    axes = "ij"[: A.ndim]
    return float(np.einsum(f"{axes},{axes}->", A, B, dtype=np.float64))


def blocks(X: Data) -> Iterator[tuple[slice, Array]]:
    """Yield (rows, dense float64 block) so that no more than ``BLOCK_CELLS`` cells are held at a time."""
    n, m = X.shape
    step = max(1, BLOCK_CELLS // m)
    for low in range(0, n, step):
        here = slice(low, min(low + step, n))
        part = row_block(X, here)
        yield here, (part.toarray() if sparse.issparse(part) else part).astype(np.float64)


def dense(X: Data) -> Array:
    """Return a matrix in memory with all of its cells."""
    return X.toarray() if sparse.issparse(X) else np.asarray(X)


def row_block(X: Data, rows: slice) -> Data:
    """Return consecutive rows in memory, a view where X is dense; of held data only these are read."""
    return X.row_block(rows) if is_held(X) else X[rows]


def in_memory(X: Data) -> Data:
    """Return rows on a device in memory; anything else as it is."""
    return X.row_block(slice(0, X.shape[0])) if is_placed(X) else X


def column_block(X: Data, columns: slice) -> Data:
    """Return consecutive columns in memory, a view where X is dense; of held data no more is kept."""
    return X.column_block(columns) if is_held(X) else X[:, columns]


def columns(X: Data, index: Array) -> Data:
    """Return the columns of X at ``index``, where it is; sparse stays sparse."""
    if is_held(X):
        return X.columns(index)
    return X.tocsc()[:, index].tocsr() if sparse.issparse(X) else np.ascontiguousarray(X[:, index])


def stack(Xs: list[Data]) -> Data:
    """Stack rows; sparse stays sparse."""
    if hasattr(Xs[0], "stacked"):
        return Xs[0].stacked(Xs[1:])
    if any(sparse.issparse(X) for X in Xs):
        return sparse.vstack(Xs, format="csr")
    return np.vstack(Xs)


def go_together(Xs: list[Data]) -> bool:
    """Whether clients are on one device that has room for all of their rows once more: one product is then theirs."""
    return len(Xs) > 1 and all(is_placed(X) and type(X) is type(Xs[0]) for X in Xs) and Xs[0].has_room(Xs)


def rows(X: Data, index: Array) -> Data:
    """Return the rows of X at ``index``, in memory."""
    if is_held(X):
        return X.rows(index)
    return (X.tocsr() if sparse.issparse(X) else X)[index]


def scaled_rows(X: Data, scale: Array) -> Data:
    """Multiply every row of X by its own number, in memory; sparse stays sparse."""
    X = X.load() if is_held(X) else X
    scale = scale.astype(np.result_type(X.dtype, np.float32))
    return sparse.csr_matrix(sparse.diags(scale) @ X) if sparse.issparse(X) else np.asarray(X) * scale[:, None]


def block_means(M: Array, side: int) -> Array:
    """Take block means of a dense matrix until no side is longer than ``side``."""
    height, width = M.shape
    block = -(-max(height, width) // side)
    if block == 1:
        return M
    rows, columns = (np.arange(0, n, block) for n in (height, width))
    sums = np.add.reduceat(np.add.reduceat(M, rows, axis=0), columns, axis=1)
    return sums / np.outer(np.diff(np.append(rows, height)), np.diff(np.append(columns, width)))
