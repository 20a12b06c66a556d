"""Data on a device: dense in the narrowest type that holds them exactly, or CSR. Held data, as arrays.py knows them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from cofactor.local.admitted import check_tensors, wide
from cofactor.local.kernels import tensor_bits, tensor_counts
from cofactor.local.placed import Placed, placed
from cofactor.local.tensors import narrow_product, numpy_type, tensor_of, torch, torch_type
from cofactor.types import Array, Data

BLOCK_BYTES = 256 << 20
"""Bytes of a row block: no more of the data are copied, converted or looked at at a time."""


SHARE = 0.4
"""Share of the free memory that clients may take to be stacked."""


def block_rows(shape: tuple[int, int], width: int = 4) -> int:
    """Return how many rows make a block."""
    return max(1, BLOCK_BYTES // max(shape[1] * width, 1))


def split(F: Any) -> Any:
    """Return a float32 tensor (k x a) as two of bfloat16, one under the other (2k x a): their sum has 16 bits of it."""
    high = F.to(torch().bfloat16)
    return torch().cat([high, (F - high.float()).to(torch().bfloat16)])


def product(X: Any, F: Any) -> Any:
    """``F X^T`` (k x n) of dense rows X (n x m) and F (k x m); narrow data are not widened in memory."""
    if X.dtype == F.dtype:
        return F @ X.T
    parts = narrow_product(split(F), X.T)
    return parts[: len(F)] + parts[len(F) :]


def product_of_codes(X: Any, FT: Any) -> Any:
    """``F^T X`` (k x m) of dense rows X (n x m) and F^T (k x n).

    cuBLAS is a third faster in single precision when X is the one that is transposed, ``(X^T F)^T``.
    """
    if X.dtype == FT.dtype:
        return (X.T @ FT.T).T
    parts = narrow_product(split(FT), X)
    return parts[: len(FT)] + parts[len(FT) :]


@dataclass(frozen=True, eq=False)
class Resident:
    """Dense rows X (n x m) on a device; ``dtype`` is that of the numbers that come out of products."""

    tensor: Any
    dtype: np.dtype[Any]

    ndim = 2
    is_dense = True
    __array_ufunc__ = None  # an array times this must fail, not loop over objects

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        return tuple(self.tensor.shape)

    @property
    def device(self) -> Any:
        """Where it is."""
        return self.tensor.device

    @property
    def stored(self) -> str:
        """The type in which the numbers are stored."""
        return str(self.tensor.dtype).removeprefix("torch.")

    def _factor(self, F: Any) -> Any:
        return placed(F, self.device).tensor.to(torch_type(self.dtype))

    def times_factor(self, H: Array) -> Any:
        """``X H^T`` (n x k)."""
        return Placed(product(self.tensor, self._factor(H)).T)

    def times_codes(self, W: Array) -> Any:
        """``X^T W`` (m x k)."""
        return Placed(product_of_codes(self.tensor, self._factor(W).T).T)

    def count_codes(self, W: Array, H: Array) -> Any:
        """``(X / (W H)) H^T`` (n x k)."""
        return Placed(tensor_counts.codes(self.tensor, self._factor(W), self._factor(H)))

    def count_factor(self, W: Array, H: Array) -> tuple[Any, float]:
        """``W^T (X / (W H))`` (k x m) and ``sum x log(x / y) - x``."""
        up, loss = tensor_counts.factor(self.tensor, self._factor(W), self._factor(H))
        return Placed(up), float(loss)

    def words(self) -> Any:
        """Bits, 64 cells a word (n x ceil(m / 64)); any nonzero is a one."""
        return Placed(tensor_bits.packed(self.tensor))

    def not_a_bit(self) -> tuple[int, int, float] | None:
        """Return row, column and value of the first cell that is not 0 or 1."""
        return tensor_bits.first_bad(self.tensor)

    def _blocks(self) -> Any:
        step = block_rows(self.shape)
        for low in range(0, self.shape[0], step):
            yield self.tensor[low : low + step]

    def row_squares(self) -> Array:
        """``|x_i|^2`` of every row in double precision (n), on the host: whoever adds them up needs no device."""
        return self._squares

    @cached_property
    def _squares(self) -> Array:
        found = [block.to(torch().float64).square().sum(1) for block in self._blocks()]
        return torch().cat(found).cpu().numpy()

    def rows(self, index: Array) -> Resident:
        """Return the rows at ``index``, on the device."""
        return Resident(self.tensor[tensor_of(np.asarray(index), self.device)], self.dtype)

    take = rows

    def row_block(self, rows: slice) -> Array:
        """Return consecutive rows in the memory of the host."""
        return self.tensor[rows].to(torch_type(self.dtype)).cpu().numpy()

    def column_block(self, columns: slice) -> Array:
        """Return consecutive columns in the memory of the host."""
        return self.tensor[:, columns].to(torch_type(self.dtype)).cpu().numpy()

    def columns(self, index: Array) -> Resident:
        """Return the columns at ``index``, on the device."""
        return Resident(self.tensor[:, tensor_of(np.asarray(index), self.device)], self.dtype)

    def stacked(self, others: list[Resident]) -> Resident:
        """Return the rows of all of them, in order."""
        parts = [part.tensor for part in (self, *others)]
        if len({part.dtype for part in parts}) > 1:
            parts = [part.to(torch_type(self.dtype)) for part in parts]
        return Resident(torch().cat(parts), self.dtype)

    def has_room(self, parts: list[Resident]) -> bool:
        """Whether so many rows fit on the device once more."""
        if self.device.type != "cuda":
            return True
        needed = sum(part.tensor.numel() * part.tensor.element_size() for part in parts)
        return bool(needed < SHARE * torch().cuda.mem_get_info(self.device)[0])

    def zeros(self, shape: Any) -> Any:
        """Return zeros beside it."""
        return Placed(torch().zeros(shape, dtype=torch_type(self.dtype), device=self.device))

    def astype(self, dtype: Any) -> Resident:
        """Return it with products in another type; what is stored stays where that can hold it."""
        wanted = np.dtype(dtype)
        if wanted == self.dtype:
            return self
        exact = wanted == np.float32 and self.tensor.dtype == torch().bfloat16
        return Resident(self.tensor if exact else self.tensor.to(torch_type(wanted)), wanted)

    def check(self, *, client: object = 0, signed: bool = False) -> Resident:
        """Return it, in double precision where squares need that; or refuse NaN, infinite and negative values."""
        return wide(self, check_tensors(self._blocks(), f"client {client}", signed=signed))


@dataclass(frozen=True, eq=False)
class ResidentSparse(Resident):
    """CSR rows on a device, and their transpose, so that both products go along rows."""

    transposed: Any = None
    is_dense = False

    def has_room(self, parts: list[Any]) -> bool:
        """Whether so many rows fit: what is not zero is little."""
        return True

    @property
    def stored(self) -> str:
        """The type in which the numbers are stored."""
        return f"csr {numpy_type(self.tensor.dtype)}"

    def times_factor(self, H: Array) -> Any:
        """``X H^T`` (n x k)."""
        return Placed(torch().sparse.mm(self.tensor, self._factor(H).T))

    def times_codes(self, W: Array) -> Any:
        """``X^T W`` (m x k)."""
        return Placed(torch().sparse.mm(self.transposed, self._factor(W)))

    @cached_property
    def _squares(self) -> Array:
        host = self._host.astype(np.float64, copy=False)
        return np.asarray(host.multiply(host).sum(axis=1)).ravel()

    @cached_property
    def _host(self) -> Any:
        parts = (self.tensor.values(), self.tensor.col_indices(), self.tensor.crow_indices())
        return sparse.csr_array(tuple(part.cpu().numpy() for part in parts), shape=self.shape)

    def rows(self, index: Array) -> ResidentSparse:
        """Return the rows at ``index``, on the device."""
        return resident_sparse(self._host[index], self.device)

    take = rows

    def row_block(self, rows: slice) -> Any:
        """Return consecutive rows in the memory of the host."""
        return self._host[rows]

    def column_block(self, columns: slice) -> Any:
        """Return consecutive columns in the memory of the host."""
        return self._host.tocsc()[:, columns]

    def columns(self, index: Array) -> ResidentSparse:
        """Return the columns at ``index``, on the device."""
        return resident_sparse(self._host.tocsc()[:, index].tocsr(), self.device)

    def stacked(self, others: list[Any]) -> ResidentSparse:
        """Return the rows of all of them, in order."""
        return resident_sparse(sparse.vstack([part._host for part in (self, *others)], format="csr"), self.device)

    def astype(self, dtype: Any) -> ResidentSparse:
        """Convert."""
        return self if np.dtype(dtype) == self.dtype else resident_sparse(self._host.astype(dtype), self.device)

    def check(self, *, client: object = 0, signed: bool = False) -> ResidentSparse:
        """Return it, in double precision where squares need that; or refuse NaN, infinite and negative values."""
        values = self.tensor.values()
        blocks = [values[None]] if len(values) else []
        return wide(self, check_tensors(blocks, f"client {client}", signed=signed, cell=self._cell))

    def _cell(self, _: int, position: int) -> tuple[int, int]:
        """Return row and column of a value by its position among those that are stored."""
        row = np.searchsorted(self._host.indptr, position, side="right") - 1
        return int(row), int(self._host.indices[position])


def resident_sparse(X: Any, device: Any) -> ResidentSparse:
    """Put a scipy matrix on a device."""
    halves = [_csr(part.tocsr(), device) for part in (X, X.T)]
    return ResidentSparse(halves[0], np.dtype(X.dtype), transposed=halves[1])


def _csr(X: Any, device: Any) -> Any:
    parts = [tensor_of(a, device) for a in (X.indptr.astype(np.int64), X.indices.astype(np.int64), X.data)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CSR is in beta there, and unchecked on purpose: scipy has checked it
        return torch().sparse_csr_tensor(*parts, size=X.shape, check_invariants=False)


def resident(X: Data, device: Any, dtype: np.dtype[Any]) -> Resident:
    """Put dense rows on a device, a block at a time, as bfloat16 where that holds every number (float32 only).

    Whatever the order of X in memory, no more than a block of it is copied on the host.
    """
    n, m = X.shape
    wanted = torch_type(dtype)
    narrow = dtype == np.float32
    kept = torch().empty((n, m), dtype=torch().bfloat16 if narrow else wanted, device=device)
    step = block_rows((n, m), dtype.itemsize)
    for low in range(0, n, step):
        block = _moved(X[low : low + step], device, wanted)
        if narrow and kept.dtype != wanted:
            small = block.to(kept.dtype)
            if bool((small.to(wanted) == block).all()):
                kept[low : low + step] = small
                continue
            kept = _widened(kept, low, wanted)
        kept[low : low + step] = block
    return Resident(kept, dtype)


def _widened(kept: Any, done: int, wanted: Any) -> Any:
    """Return rows as they were before the first that bfloat16 does not hold."""
    wide = torch().empty(kept.shape, dtype=wanted, device=kept.device)
    wide[:done] = kept[:done]
    return wide


def _moved(block: Any, device: Any, wanted: Any) -> Any:
    if isinstance(block, torch().Tensor):
        return block.to(device, wanted)
    return torch().from_numpy(np.ascontiguousarray(block)).to(device).to(wanted)
