"""Data that do not fit on a device: row blocks cross to it while the last one is multiplied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cofactor.local.admitted import check_tensors, wide
from cofactor.local.kernels import tensor_bits
from cofactor.local.placed import Placed, placed
from cofactor.local.resident import Resident, block_rows, product, product_of_codes
from cofactor.local.tensors import torch, torch_type
from cofactor.types import Array

SLOTS = 3
"""Blocks on the device at a time: one is multiplied, one is on its way, one may wait."""


@dataclass(frozen=True, eq=False)
class Streamed:
    """Dense rows X (n x m) in the memory of the host, ``source``, of any order; a block of them at a time on a device.

    Rows that are contiguous are locked in memory where they are, and cross without a copy on the host; others cross
    through locked blocks.
    """

    source: Array
    device: Any
    dtype: np.dtype[Any]

    ndim = 2
    __array_ufunc__ = None
    stored = "host"

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        return self.source.shape[0], self.source.shape[1]

    @cached_property
    def _locked(self) -> Any:
        """All rows as a locked tensor; None where they are not contiguous or the device is this one."""
        if self.device.type != "cuda" or not self.source.flags.c_contiguous or not self.source.flags.writeable:
            return None
        whole = torch().from_numpy(self.source)
        lock = torch().cuda.cudart().cudaHostRegister(whole.data_ptr(), self.source.nbytes, 0)
        return whole if int(lock) == 0 else None

    def _blocks(self) -> Iterator[tuple[slice, Any]]:
        """Yield rows and the block of them on the device, the next ones already on their way."""
        n, m = self.shape
        step, wanted = block_rows(self.shape, self.dtype.itemsize), torch_type(self.dtype)
        spans = [slice(low, min(low + step, n)) for low in range(0, n, step)]
        if self.device.type != "cuda":
            for rows in spans:
                yield rows, torch().from_numpy(np.ascontiguousarray(self.source[rows])).to(wanted)
            return
        cuda = torch().cuda
        slots = [torch().empty((step, m), dtype=wanted, device=self.device) for _ in spans[:SLOTS]]
        through = (
            None if self._locked is not None else [torch().empty((step, m), dtype=wanted).pin_memory() for _ in slots]
        )
        copying, working = cuda.Stream(self.device), cuda.current_stream(self.device)
        arrived, free = ([cuda.Event() for _ in slots] for _ in range(2))
        for event in free:
            event.record(working)

        def send(i: int) -> None:
            rows, slot = spans[i], i % len(slots)
            if through is None:
                held = self._locked[rows]
            else:
                arrived[slot].synchronize()  # the last block in this slot has left the host
                held = through[slot][: rows.stop - rows.start]
                held.numpy()[...] = self.source[rows]
            copying.wait_event(free[slot])
            with cuda.stream(copying):
                slots[slot][: len(held)].copy_(held, non_blocking=True)
                arrived[slot].record(copying)

        for i in range(min(SLOTS - 1, len(spans))):
            send(i)
        for i, rows in enumerate(spans):
            if i + SLOTS - 1 < len(spans):
                send(i + SLOTS - 1)
            slot = i % len(slots)
            working.wait_event(arrived[slot])
            yield rows, slots[slot][: rows.stop - rows.start]
            free[slot].record(working)
        copying.synchronize()

    def _each(self, use: Callable[[slice, Any], None]) -> None:
        with torch().cuda.device(self.device) if self.device.type == "cuda" else nullcontext():
            for rows, block in self._blocks():
                use(rows, block)

    def _factor(self, F: Any) -> Any:
        return placed(F, self.device).tensor.to(torch_type(self.dtype))

    def times_factor(self, H: Array) -> Any:
        """``X H^T`` (n x k)."""
        F = self._factor(H)
        out = torch().empty((len(F), self.shape[0]), dtype=F.dtype, device=self.device)

        def use(rows: slice, block: Any) -> None:
            out[:, rows] = product(block, F)

        self._each(use)
        return Placed(out.T)

    def times_codes(self, W: Array) -> Any:
        """``X^T W`` (m x k)."""
        FT = self._factor(W).T
        out = torch().zeros((len(FT), self.shape[1]), dtype=FT.dtype, device=self.device)

        def use(rows: slice, block: Any) -> None:
            out.add_(product_of_codes(block, FT[:, rows]))

        self._each(use)
        return Placed(out.T)

    def words(self) -> Any:
        """Bits, 64 cells a word (n x ceil(m / 64)), on the device: they are so few that they fit."""
        found: list[Any] = []
        self._each(lambda rows, block: found.append(tensor_bits.packed(block)))
        return Placed(torch().cat(found))

    def not_a_bit(self) -> tuple[int, int, float] | None:
        """Return row, column and value of the first cell that is not 0 or 1."""
        found: list[Any] = []
        self._each(lambda rows, block: found.append((rows.start, tensor_bits.first_bad(block))))
        return next(((low + bad[0], *bad[1:]) for low, bad in found if bad is not None), None)

    def row_squares(self) -> Array:
        """``|x_i|^2`` of every row in double precision (n)."""
        return self._squares

    @cached_property
    def _squares(self) -> Array:
        found: list[Any] = []
        self._each(lambda rows, block: found.append(block.to(torch().float64).square().sum(1)))
        return torch().cat(found).cpu().numpy()

    def rows(self, index: Array) -> Resident:
        """Return the rows at ``index``, on the device."""
        some = torch().from_numpy(np.ascontiguousarray(self.source[index])).to(self.device)
        return Resident(some.to(torch_type(self.dtype)), self.dtype)

    def columns(self, index: Array) -> Resident:
        """Return the columns at ``index``, on the device."""
        some = torch().from_numpy(np.ascontiguousarray(self.source[:, index])).to(self.device)
        return Resident(some.to(torch_type(self.dtype)), self.dtype)

    def take(self, index: Array) -> Streamed:
        """Return the rows at ``index`` as data that stay on the host."""
        return Streamed(self.source[index], self.device, self.dtype)

    def row_block(self, rows: slice) -> Array:
        """Return consecutive rows in the memory of the host."""
        return self.source[rows].astype(self.dtype, copy=False)

    def column_block(self, columns: slice) -> Array:
        """Return consecutive columns in the memory of the host."""
        return self.source[:, columns].astype(self.dtype, copy=False)

    def has_room(self, parts: list[Streamed]) -> bool:
        """There is none."""
        return False

    def zeros(self, shape: Any) -> Any:
        """Return zeros on the device."""
        return Placed(torch().zeros(shape, dtype=torch_type(self.dtype), device=self.device))

    def astype(self, dtype: Any) -> Streamed:
        """Return it with blocks of another type."""
        return self if np.dtype(dtype) == self.dtype else Streamed(self.source, self.device, np.dtype(dtype))

    def check(self, *, client: object = 0, signed: bool = False) -> Streamed:
        """Return it, in double precision where squares need that; or refuse NaN, infinite and negative values."""
        with torch().cuda.device(self.device) if self.device.type == "cuda" else nullcontext():
            largest = check_tensors((block for _, block in self._blocks()), f"client {client}", signed=signed)
        return wide(self, largest)
