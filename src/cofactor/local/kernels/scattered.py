"""Rows of a thin dense matrix that stored values gather from or scatter to, a line of cache at a time.

What is summed stays in registers, which a loop over columns that numba sees does not do; rows that are scattered to are
asked for some values before they are needed. The file is imported by the first product that needs it, since numba has
to be there to define these instructions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from cofactor.local.kernels.compiled import compiled, inner
from cofactor.local.kernels.lines import LINE, Lines, place
from cofactor.types import Array

AHEAD = 12
"""Values between the request for a row and its use: about as long as the third cache takes."""
LARGE, LONG = 1 << 22, 192
"""Bytes of a matrix, and of each of its rows, from which on requests gain more than they cost."""


def _entry(context: Any, builder: Any, kind: Any, a: Any, e: Any) -> Any:
    """Return entry e of a vector, an index as wide as an address."""
    found = builder.load(builder.gep(context.make_array(kind)(context, builder, a).data, [e]))
    return builder.sext(found, e.type) if isinstance(kind.dtype, types.Integer) and kind.dtype.bitwidth < 64 else found


@intrinsic
def _request(_: Any, A: Any, i: Any, offset: Any) -> Any:
    """Ask for the line of cache at byte ``offset`` of row i of A, without waiting for it."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        there = builder.inttoptr(place(context, builder, signature.args[0], *args), byte)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        builder.call(prefetch, [there, word(1), word(3), word(1)])  # to write, kept in all caches, data
        return context.get_dummy_value()

    return types.void(A, types.intp, types.intp), generate


def _sum_of(lines: int) -> Any:
    """Return an instruction for so many lines of a row at once: as many registers hold their sums."""

    @intrinsic
    def summed(_: Any, out: Any, B: Any, offset: Any, indices: Any, data: Any, begin: Any, end: Any) -> Any:
        """``out_0 = sum_e x_e B_(j_e)`` over the values ``begin:end``, in the lines from byte ``offset`` on."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kinds, whole = signature.args, Lines(context, builder, B.dtype)
            offset, begin, end = args[2], args[5], args[6]
            sums = [whole.sum() for _ in range(lines)]
            with cgutils.for_range_slice(builder, begin, end, begin.type(1)) as (e, _):
                j = _entry(context, builder, kinds[3], args[3], e)
                x = whole.all_of(_entry(context, builder, kinds[4], args[4], e))
                row = place(context, builder, kinds[1], args[1], j, offset)
                for i, one in enumerate(sums):
                    line = whole.load(builder.add(row, row.type(i * LINE)))
                    builder.store(whole.plus(builder.load(one), x, line), one)
            to = place(context, builder, kinds[0], args[0], begin.type(0), offset)
            for i, one in enumerate(sums):
                whole.store(builder.load(one), builder.add(to, to.type(i * LINE)))
            return context.get_dummy_value()

        return types.void(out, B, types.intp, indices, data, types.intp, types.intp), generate

    return summed


_four, _two, _one = _sum_of(4), _sum_of(2), _sum_of(1)


@compiled(error_model="numpy", fastmath={"contract"})
def gather_rows(
    indptr: Array, indices: Array, data: Array, B: Array, out: Array, row: Array, first: int, last: int
) -> None:
    """``out_i = sum_e x_e B_(j_e)`` over the stored values e of rows ``first:last``.

    Rows of B are whole lines; ``row`` is room for one of them.
    """
    k, length = out.shape[1], B.shape[1] * B.itemsize
    for i in range(first, last):
        begin, end, at = np.intp(indptr[i]), np.intp(indptr[i + 1]), 0
        while length - at >= 4 * LINE:
            _four(row, B, at, indices, data, begin, end)
            at += 4 * LINE
        if length - at >= 2 * LINE:
            _two(row, B, at, indices, data, begin, end)
            at += 2 * LINE
        if length - at >= LINE:
            _one(row, B, at, indices, data, begin, end)
        for a in range(k):
            out[i, a] = row[0, a]


@compiled(error_model="numpy", fastmath={"contract"})
def scatter_rows(indptr: Array, indices: Array, data: Array, B: Array, out: Array, first: int, last: int) -> None:
    """``out_(j_e) += x_e B_i`` over the values e with j_e in ``first:last``: no two threads write one place.

    Where that is not all of them, indices are in order.
    """
    k, some = B.shape[1], first > 0 or last < out.shape[0]
    length = k * B.itemsize
    asks = length >= LONG and length * out.shape[0] > LARGE
    for i in range(B.shape[0]):
        row, begin, end = B[i], np.intp(indptr[i]), np.intp(indptr[i + 1])
        if first > 0:
            begin = _first_of(indices, begin, end, first)
        if last < out.shape[0]:
            end = _first_of(indices, begin, end, last)
        known = end if some else indices.size  # values of this thread, also those of the next rows
        for e in range(begin, end):
            if asks and e + AHEAD < known:
                for offset in range(0, length, LINE):
                    _request(out, indices[e + AHEAD], offset)
            x, to = data[e], out[indices[e]]
            for a in range(k):
                to[a] += x * row[a]


@inner(error_model="numpy")
def _first_of(indices: Array, begin: int, end: int, j: int) -> int:
    """Return the first of the places ``begin:end`` whose index is not below j."""
    while begin < end:
        middle = (begin + end) >> 1
        if indices[middle] < j:
            begin = middle + 1
        else:
            end = middle
    return begin
