"""Whole lines of cache in registers: what kernels are made of whose sums numba would load and store at every step.

numba has to be there, and is read whole, before any part of it: two threads, of which one began with a part, would each
wait for what the other has half read, and get it so. A kernel on disk is renewed when its own file changes, not when
this one does.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numba
import numpy as np
from llvmlite import binding, ir

from cofactor.local.threads import copy_rows
from cofactor.types import Array

LINE = 64
"""Bytes of a line of cache."""


@cache
def has_long_vectors() -> bool:
    """Whether registers here hold a line of cache."""
    return bool(binding.get_host_cpu_features().get("avx512f", False))


@cache
def has_masks() -> bool:
    """Whether part of a register is loaded and stored at once here; elsewhere that is a branch for every number."""
    return has_long_vectors() or bool(binding.get_host_cpu_features().get("avx2", False))


def in_lines(B: Array) -> Array:
    """Return B with rows that begin and end with a line of cache: as long as before or a little longer."""
    (n, k), per_line = B.shape, LINE // B.itemsize
    out = room(n, -(-k // per_line) * per_line, B.dtype)
    copy_rows(out[:, :k], B)
    out[:, k:] = 0  # what is there by chance may be slow to multiply
    return out


def room(n: int, width: int, dtype: np.dtype[Any]) -> Array:
    """Return room for n rows of whole lines; what is in them is by chance."""
    memory = np.empty((n + 1) * width, dtype)
    first = -memory.ctypes.data % LINE // memory.itemsize
    return memory[first : first + n * width].reshape(n, width)


def place(context: Any, builder: Any, kind: Any, A: Any, i: Any, offset: Any) -> Any:
    """Return the address of byte ``offset`` of row i of A."""
    matrix = context.make_array(kind)(context, builder, A)
    row = builder.mul(i, builder.extract_value(matrix.strides, 0))
    return builder.add(builder.ptrtoint(matrix.data, row.type), builder.add(row, offset))


class Lines:
    """Loads, stores and sums of whole lines of numbers of one type."""

    def __init__(self, context: Any, builder: Any, dtype: Any) -> None:
        number = context.get_data_type(dtype)
        self.size, self.builder = context.get_abi_sizeof(number), builder
        self.kind = ir.VectorType(number, LINE // self.size)
        self.zero = ir.Constant(self.kind, [0.0] * self.kind.count)

    def all_of(self, x: Any) -> Any:
        """Return a line of one number."""
        word, nothing = ir.IntType(32), ir.Constant(self.kind, ir.Undefined)
        first = self.builder.insert_element(nothing, x, word(0))
        same = ir.Constant(ir.VectorType(word, self.kind.count), [0] * self.kind.count)
        return self.builder.shuffle_vector(first, nothing, same)

    def load(self, place: Any) -> Any:
        """Return the line at an address."""
        line = self.builder.load(self.builder.inttoptr(place, self.kind.as_pointer()))
        line.align = self.size
        return line

    def store(self, line: Any, place: Any) -> None:
        """Put a line there."""
        self.builder.store(line, self.builder.inttoptr(place, self.kind.as_pointer())).align = self.size

    def first(self, count: Any) -> Any:
        """Return which numbers of a line are among the first ``count``."""
        word = ir.IntType(32)
        places = ir.Constant(ir.VectorType(word, self.kind.count), list(range(self.kind.count)))
        nothing, same = ir.Constant(places.type, ir.Undefined), ir.Constant(places.type, [0] * self.kind.count)
        known = self.builder.insert_element(nothing, self.builder.trunc(count, word), word(0))
        return self.builder.icmp_signed("<", places, self.builder.shuffle_vector(known, nothing, same))

    def load_some(self, place: Any, there: Any) -> Any:
        """Return the numbers of a line that are ``there``, and zeros: what else is at the address is not touched."""
        at, size = self.builder.inttoptr(place, self.kind.as_pointer()), ir.IntType(32)(self.size)
        load = self._masked("load", self.kind, [at.type, size.type, there.type, self.kind])
        return self.builder.call(load, [at, size, there, self.zero])

    def store_some(self, line: Any, place: Any, there: Any) -> None:
        """Put the numbers of a line there that are to be."""
        at, size = self.builder.inttoptr(place, self.kind.as_pointer()), ir.IntType(32)(self.size)
        store = self._masked("store", ir.VoidType(), [self.kind, at.type, size.type, there.type])
        self.builder.call(store, [line, at, size, there])

    def _masked(self, does: str, returns: Any, takes: list[Any]) -> Any:
        of = f"v{self.kind.count}f{8 * self.size}"
        name, kind = f"llvm.masked.{does}.{of}.p0{of}", ir.FunctionType(returns, takes)
        return numba.core.cgutils.get_or_insert_function(self.builder.module, kind, name)

    def ask(self, place: Any, *, to_write: bool) -> None:
        """Ask for what is at an address, to read or to write it, and do not wait for it."""
        word, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        prefetch = self.builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        # kept in all caches, data
        self.builder.call(prefetch, [self.builder.inttoptr(place, byte), word(int(to_write)), word(3), word(1)])

    def plus(self, line: Any, x: Any, other: Any) -> Any:
        """``line + x other``, rounded once."""
        once = ("contract",)
        return self.builder.fadd(line, self.builder.fmul(x, other, flags=once), flags=once)

    def sum(self) -> Any:
        """Return a place for a sum, which begins at zero and stays in a register."""
        kept = numba.core.cgutils.alloca_once(self.builder, self.kind)
        self.builder.store(self.zero, kept)
        return kept

    def number(self, place: Any) -> Any:
        """Return the number at an address."""
        found = self.builder.load(self.builder.inttoptr(place, self.kind.element.as_pointer()))
        found.align = self.size
        return found

    def add_to(self, place: Any, line: Any) -> None:
        """Add the numbers of a line, in pairs of halves, to the one at an address."""
        count, word = self.kind.count, ir.IntType(32)
        while count > 1:
            count //= 2
            halves = (ir.Constant(ir.VectorType(word, count), list(range(i, i + count))) for i in (0, count))
            line = self.builder.fadd(*(self.builder.shuffle_vector(line, line, half) for half in halves))
        total = self.builder.fadd(self.number(place), self.builder.extract_element(line, word(0)))
        self.builder.store(total, self.builder.inttoptr(place, total.type.as_pointer())).align = self.size

    def moved(self, old: Any, new: Any, scale: Any) -> Any:
        """Return what is above zero of new numbers; the old ones where the scale is 0."""
        above = self.builder.select(self.builder.fcmp_ordered(">", new, self.zero), new, self.zero)
        return self.builder.select(self.builder.fcmp_unordered("!=", scale, self.zero), above, old)
