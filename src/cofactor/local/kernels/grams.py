"""The gram of rows, of which only one triangle is summed, in registers: where these hold a line of cache.

The file is imported by the first gram that is large enough, since numba has to be there.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from cofactor.local.kernels.compiled import compiled
from cofactor.local.kernels.lines import LINE, Lines, place, room
from cofactor.types import Array

WIDTH, HEIGHT = 2, 5
"""Lines, and numbers, of a row that are multiplied with each other at once: as many sums as registers add in turn."""
PART, BLOCK = 1 << 10, 1 << 8
"""Rows of a gram that is added to others in the end, and rows whose sums are added to it: a call is for whole blocks,
so that no bit depends on how many there are in it, or on how many threads share the parts."""
ROWS = 64
"""Rows that are copied into the first cache, in whole lines."""


@intrinsic
def _add(_: Any, out: Any, F: Any, rows: Any, c: Any, offset: Any) -> Any:
    """``out_(c + b) += sum_i F_(i, c + b) F_i`` over the first rows of F, in the lines from byte ``offset`` on."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        made, given, rows, c, offset = args
        whole, size, kinds, add = Lines(context, builder, F.dtype), c.type, signature.args, builder.add
        places = [place(context, builder, kinds[0], made, add(c, size(b)), offset) for b in range(HEIGHT)]
        spots = [[add(row, size(LINE * a)) for a in range(WIDTH)] for row in places]
        totals = [[whole.sum() for _ in row] for row in spots]
        with cgutils.for_range(builder, rows) as loop:
            row = place(context, builder, kinds[1], given, loop.index, size(0))
            lines = [whole.load(add(row, add(offset, size(LINE * a)))) for a in range(WIDTH)]
            for b, its in enumerate(totals):
                x = whole.all_of(whole.number(add(row, builder.mul(add(c, size(b)), size(whole.size)))))
                for one, line in zip(its, lines, strict=True):
                    builder.store(whole.plus(builder.load(one), x, line), one)
        for its, row in zip(totals, spots, strict=True):
            for one, spot in zip(its, row, strict=True):
                whole.store(builder.fadd(whole.load(spot), builder.load(one)), spot)
        return context.get_dummy_value()

    n = types.intp
    return types.void(out, F, n, n, n), generate


def gram_rows(out: Array, F: Array, first: int, last: int) -> None:
    """``out_i += F^T F`` (k x k) over the i-th ``PART`` of rows ``first:last``.

    Rows stand at the end of whole lines, behind zeros: some numbers at a time, from the last ones on, with all lines
    from their own on.
    """
    step = WIDTH * LINE // F.itemsize
    width = (F.shape[1] + HEIGHT - 2) // step * step + step
    some, sums = room(ROWS, width, F.dtype), room(width, width, F.dtype)
    some[:], sums[:] = 0, 0
    _gram_rows(out, F, some, sums, first, last)


@compiled(error_model="numpy", fastmath={"contract"})
def _gram_rows(out: Array, F: Array, some: Array, sums: Array, first: int, last: int) -> None:
    """Take some rows at a time to the sums, and these out after each part."""
    k, step, width = F.shape[1], WIDTH * LINE // F.itemsize, some.shape[1]
    begin = width - k
    for start in range(first, last, ROWS):
        rows = min(ROWS, last - start)
        for r in range(rows):
            row, to = F[start + r], some[r, begin:]
            for j in range(k):
                to[j] = row[j]
        for c in range(width - HEIGHT, begin - HEIGHT, -HEIGHT):
            for line in range(c // step, width // step):
                _add(sums, some, rows, c, line * step * F.itemsize)
        done = start + rows - first
        if done % BLOCK == 0 or start + rows == last:
            made = out[(done - 1) // PART]
            for a in range(k):
                for b in range(a, k):
                    made[a, b] += sums[begin + a, begin + b]
                    made[b, a] = made[a, b]
            for a in range(width):
                for b in range(width):
                    sums[a, b] = 0
