"""Rows that are scattered to are asked for some values before they are needed: they lie anywhere in a large matrix.

The file is imported by the first product that needs it, since numba has to be there to define the request.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from cofactor.local.kernels.compiled import compiled
from cofactor.types import Array

AHEAD = 12
"""Values between the request for a row and its use: about as long as the third cache takes."""
LARGE, LONG = 1 << 22, 192
"""Bytes of a matrix, and of each of its rows, from which on requests gain more than they cost."""
LINE = 64
"""Bytes of a line of cache."""


@intrinsic
def _request(_: Any, A: Any, i: Any, offset: Any) -> Any:
    """Ask for the line of cache at byte ``offset`` of row i of A, without waiting for it."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        matrix = context.make_array(signature.args[0])(context, builder, args[0])
        row = builder.mul(args[1], builder.extract_value(matrix.strides, 0))
        word, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        place = builder.inttoptr(builder.add(builder.ptrtoint(matrix.data, row.type), builder.add(row, args[2])), byte)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        builder.call(prefetch, [place, word(1), word(3), word(1)])  # to write, kept in all caches, data
        return context.get_dummy_value()

    return types.void(A, types.intp, types.intp), generate


@compiled(error_model="numpy", fastmath={"contract"})
def scatter_rows(indptr: Array, indices: Array, data: Array, B: Array, out: Array, first: int, last: int) -> None:
    """``out_(j_e) += x_e B_i`` over the values e with j_e in ``first:last``: no two threads write one place.

    Where that is not all of them, indices are in order.
    """
    k, some = B.shape[1], first > 0 or last < out.shape[0]
    length = k * B.itemsize
    asks = length >= LONG and length * out.shape[0] > LARGE
    for i in range(B.shape[0]):
        row, begin, end = B[i], indptr[i], indptr[i + 1]
        if first > 0:
            begin = _place(indices, begin, end, first)
        if last < out.shape[0]:
            end = _place(indices, begin, end, last)
        known = end if some else indices.size  # values of this thread, also those of the next rows
        for e in range(begin, end):
            if asks and e + AHEAD < known:
                for offset in range(0, length, LINE):
                    _request(out, indices[e + AHEAD], offset)
            x, to = data[e], out[indices[e]]
            for a in range(k):
                to[a] += x * row[a]


@compiled(error_model="numpy")
def _place(indices: Array, begin: int, end: int, j: int) -> int:
    """Return the first of the places ``begin:end`` whose index is not below j."""
    while begin < end:
        middle = (begin + end) >> 1
        if indices[middle] < j:
            begin = middle + 1
        else:
            end = middle
    return begin
