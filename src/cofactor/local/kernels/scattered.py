"""Rows of a thin dense matrix that stored values gather from or scatter to, a line of cache at a time.

What is gathered is summed in registers. Rows that are scattered to are asked for some values before they are needed:
without that the sums wait for them half of the time. The file is imported by the first product that needs it, since
numba has to be there to define these instructions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from cofactor.local.kernels.compiled import compiled, inner
from cofactor.local.kernels.lines import LINE, Lines, place
from cofactor.types import Array

AHEAD = 16
"""Values between the request for a row and its use: about as long as the third cache takes."""


def _entry(context: Any, builder: Any, kind: Any, a: Any, e: Any) -> Any:
    """Return entry e of a vector, an index as wide as an address."""
    found = builder.load(builder.gep(context.make_array(kind)(context, builder, a).data, [e]))
    return builder.sext(found, e.type) if isinstance(kind.dtype, types.Integer) and kind.dtype.bitwidth < 64 else found


def _sum_of(lines: int) -> Any:
    """Return an instruction for so many lines of a row at once: as many registers hold their sums."""

    @intrinsic
    def summed(
        _: Any, out: Any, i: Any, B: Any, offset: Any, count: Any, indices: Any, data: Any, begin: Any, end: Any
    ) -> Any:
        """``out_i = sum_e x_e B_(j_e)`` over the values ``begin:end``, in the lines from byte ``offset`` on.

        Of the last line these are ``count`` numbers.
        """

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            (out, i, B_, offset, count, indices, data, begin, end), kinds = args, signature.args
            whole, add, size = Lines(context, builder, B.dtype), builder.add, begin.type
            there, sums = whole.first(count), [whole.sum() for _ in range(lines)]
            with cgutils.for_range_slice(builder, begin, end, size(1)) as (e, _):
                x = whole.all_of(_entry(context, builder, kinds[6], data, e))
                row = place(context, builder, kinds[2], B_, _entry(context, builder, kinds[5], indices, e), offset)
                at = [add(row, size(a * LINE)) for a in range(lines)]
                given = [*(whole.load(spot) for spot in at[:-1]), whole.load_some(at[-1], there)]
                for one, line in zip(sums, given, strict=True):
                    builder.store(whole.plus(builder.load(one), x, line), one)
            to = place(context, builder, kinds[0], out, i, offset)
            *full, last = [builder.load(one) for one in sums]
            for a, line in enumerate(full):
                whole.store(line, add(to, size(a * LINE)))
            whole.store_some(last, add(to, size((lines - 1) * LINE)), there)
            return context.get_dummy_value()

        n = types.intp
        return types.void(out, n, B, n, n, indices, data, n, n), generate

    return summed


_four, _two, _one = _sum_of(4), _sum_of(2), _sum_of(1)


@compiled(error_model="numpy", fastmath={"contract"})
def gather_rows(indptr: Array, indices: Array, data: Array, B: Array, out: Array, first: int, last: int) -> None:
    """``out_i = sum_e x_e B_(j_e)`` over the stored values e of rows ``first:last``."""
    length, all_of = out.shape[1] * B.itemsize, LINE // B.itemsize
    for i in range(first, last):
        begin, end, at = np.intp(indptr[i]), np.intp(indptr[i + 1]), 0
        while length - at > 4 * LINE:
            _four(out, i, B, at, all_of, indices, data, begin, end)
            at += 4 * LINE
        if length - at > 3 * LINE:
            _four(out, i, B, at, (length - at - 3 * LINE) // B.itemsize, indices, data, begin, end)
            continue
        if length - at > 2 * LINE:
            _two(out, i, B, at, all_of, indices, data, begin, end)
            at += 2 * LINE
        if length - at > LINE:
            _two(out, i, B, at, (length - at - LINE) // B.itemsize, indices, data, begin, end)
        else:
            _one(out, i, B, at, (length - at) // B.itemsize, indices, data, begin, end)


@compiled(error_model="numpy", fastmath={"contract"})
def gather_numbers(indptr: Array, indices: Array, data: Array, B: Array, out: Array, first: int, last: int) -> None:
    """The same where registers have no masks."""
    for i in range(first, last):
        for a in range(out.shape[1]):
            out[i, a] = 0
        for e in range(np.intp(indptr[i]), np.intp(indptr[i + 1])):
            for a in range(out.shape[1]):
                out[i, a] += data[e] * B[indices[e], a]


@intrinsic
def _add_row(_: Any, out: Any, B: Any, i: Any, indices: Any, data: Any, begin: Any, end: Any, known: Any) -> Any:
    """``out_(j_e) += x_e B_i`` over the values ``begin:end``; those before ``known`` are asked for ahead."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        (out, B_, i, indices, data, begin, end, known), kinds = args, signature.args
        whole, add, sub, size = Lines(context, builder, B.dtype), builder.add, builder.sub, begin.type
        k = builder.extract_value(context.make_array(kinds[1])(context, builder, B_).shape, 1)
        length = builder.mul(k, size(whole.size))
        last = builder.mul(builder.udiv(sub(length, size(1)), size(LINE)), size(LINE))
        there = whole.first(builder.udiv(sub(length, last), size(whole.size)))
        row = place(context, builder, kinds[1], B_, i, size(0))
        rest = whole.load_some(add(row, last), there)

        def target(e: Any) -> Any:
            return place(context, builder, kinds[0], out, _entry(context, builder, kinds[3], indices, e), size(0))

        with cgutils.for_range_slice(builder, begin, end, size(1)) as (e, _):
            x, to, later = whole.all_of(_entry(context, builder, kinds[4], data, e)), target(e), add(e, size(AHEAD))
            coming = target(builder.select(builder.icmp_signed("<", later, known), later, sub(known, size(1))))
            with cgutils.for_range_slice(builder, size(0), last, size(LINE)) as (at, _):
                whole.ask(add(coming, at), to_write=True)
                spot = add(to, at)
                whole.store(whole.plus(whole.load(spot), x, whole.load(add(row, at))), spot)
            whole.ask(add(coming, last), to_write=True)
            whole.ask(add(coming, sub(length, size(1))), to_write=True)
            spot = add(to, last)
            whole.store_some(whole.plus(whole.load_some(spot, there), x, rest), spot, there)
        return context.get_dummy_value()

    n = types.intp
    return types.void(out, B, n, indices, data, n, n, n), generate


@compiled(error_model="numpy", fastmath={"contract"})
def scatter_rows(indptr: Array, indices: Array, data: Array, B: Array, out: Array, first: int, last: int) -> None:
    """``out_(j_e) += x_e B_i`` over the values e with j_e in ``first:last``: no two threads write one place.

    Where that is not all of them, indices are in order.
    """
    some = first > 0 or last < out.shape[0]
    for i in range(B.shape[0]):
        begin, end = _between(indptr, indices, i, first, last if last < out.shape[0] else -1)
        _add_row(out, B, i, indices, data, begin, end, end if some else indices.size)


@compiled(error_model="numpy", fastmath={"contract"})
def scatter_numbers(indptr: Array, indices: Array, data: Array, B: Array, out: Array, first: int, last: int) -> None:
    """The same where registers have no masks."""
    for i in range(B.shape[0]):
        begin, end = _between(indptr, indices, i, first, last if last < out.shape[0] else -1)
        for e in range(begin, end):
            for a in range(B.shape[1]):
                out[indices[e], a] += data[e] * B[i, a]


@inner(error_model="numpy")
def _between(indptr: Array, indices: Array, i: int, first: int, last: int) -> tuple[Any, Any]:
    """Return which values of row i have an index from ``first`` up to ``last``, which is -1 where all of them have."""
    begin, end = np.intp(indptr[i]), np.intp(indptr[i + 1])
    if first > 0:
        begin = _first_of(indices, begin, end, first)
    if last >= 0:
        end = _first_of(indices, begin, end, last)
    return begin, end


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
