"""Rows of a matrix as lanes, and back: squares of numbers are turned in registers where these hold a line of cache.

The file is imported by the first kernel that works on lanes, since numba has to be there.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from cofactor.local.kernels.compiled import compiled
from cofactor.local.kernels.lines import LINE, Lines, has_long_vectors, place
from cofactor.types import Array

SQUARES = has_long_vectors()
"""Whether squares are turned in registers; elsewhere numbers one by one are no slower."""


@intrinsic
def _turn_square(_: Any, to: Any, i: Any, j: Any, given: Any, p: Any, q: Any) -> Any:
    """``to[i:i + s, j:j + s] = given[p:p + s, q:q + s]^T``, s numbers a line; both lie row by row.

    Each time the two halves of the lines are threaded into each other, one bit of the place in a line becomes one of
    which line it is: after all bits the square is turned.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to, i, j, given, p, q = args
        whole, size, kinds = Lines(context, builder, given_type.dtype), i.type, signature.args
        count, word = whole.kind.count, ir.IntType(32)

        def spot(kind: Any, matrix: Any, row: Any, b: int, column: Any) -> Any:
            return place(
                context, builder, kind, matrix, builder.add(row, size(b)), builder.mul(column, size(whole.size))
            )

        lines = [whole.load(spot(kinds[3], given, p, b, q)) for b in range(count)]
        halves = [
            ir.Constant(ir.VectorType(word, count), [e for a in range(at, at + count // 2) for e in (a, a + count)])
            for at in (0, count // 2)
        ]
        for _ in range(count.bit_length() - 1):
            pairs = zip(lines[: count // 2], lines[count // 2 :], strict=True)
            lines = [builder.shuffle_vector(a, b, half) for a, b in pairs for half in halves]
        for b, line in enumerate(lines):
            whole.store(line, spot(kinds[0], to, i, b, j))
        return context.get_dummy_value()

    n, given_type = types.intp, given
    return types.void(to, n, n, given, n, n), generate


@compiled(error_model="numpy")
def turn_in(T: Array, F: Array, start: int, rows: int) -> None:
    """``T = F[start : start + rows]^T``; F lies row by row, or column by column, and then lines are copied.

    A loop of its own, one array at a time, takes half as long.
    """
    k, step = F.shape[1], LINE // F.itemsize
    if F.flags.f_contiguous:
        for j in range(k):
            line, to = F.T[j, start : start + rows], T[j]
            for r in range(rows):
                to[r] = line[r]
        return
    whole = rows // step * step if SQUARES and k >= step else 0
    for r in range(0, whole, step):
        for j in range(0, k, step):  # the last square ends with the row
            _turn_square(T, min(j, k - step), r, F, start + r, min(j, k - step))
    for r in range(whole, rows):
        row = F[start + r]
        for j in range(k):
            T[j, r] = row[j]


@compiled(error_model="numpy")
def turn_out(F: Array, T: Array, start: int, rows: int, begin: int) -> None:
    """``F[start : start + rows] = T[:, begin : begin + rows]^T``; F lies row by row, or column by column."""
    k, step = F.shape[1], LINE // F.itemsize
    if F.flags.f_contiguous:
        for j in range(k):
            line, to = T[j, begin : begin + rows], F.T[j, start : start + rows]
            for r in range(rows):
                to[r] = line[r]
        return
    whole = rows // step * step if SQUARES and k >= step else 0
    for r in range(0, whole, step):
        for j in range(0, k, step):
            _turn_square(F, start + r, min(j, k - step), T, min(j, k - step), begin + r)
    for r in range(whole, rows):
        row = F[start + r]
        for j in range(k):
            row[j] = T[j, begin + r]
