"""Coordinate descent on many small problems whose rows are coupled: eight of them side by side, one in each lane.

A step of one problem waits for the step before it; steps of eight problems in a line take as long as one. The file is
imported by the first problem that is no toy, since numba has to be there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from cofactor.local.kernels.compiled import compiled
from cofactor.local.kernels.lanes import sweep_rows
from cofactor.local.kernels.lines import LINE, Lines, place
from cofactor.types import Array

LANES = LINE // 8
"""Problems in a line."""


def _product_of(rows: int) -> Any:
    """Return an instruction for so many rows of a product, and four of its columns."""

    @intrinsic
    def product(_: Any, out: Any, to: Any, A: Any, i: Any, B: Any, e: Any, first: Any, last: Any) -> Any:
        """``out_(to + a, e + b) += sum_p A_(i + a, p) B_(p, e + b)``, p in ``first:last``, for every lane."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            made, to, left, i, right, e, first, last = args
            whole, size, add, kinds = Lines(context, builder, A.dtype), e.type, builder.add, signature.args
            begin = builder.mul(e, size(LINE))
            spots = [place(context, builder, kinds[0], made, add(to, size(a)), begin) for a in range(rows)]
            given = [place(context, builder, kinds[2], left, add(i, size(a)), size(0)) for a in range(rows)]
            sums = [[whole.sum() for _ in range(4)] for _ in range(rows)]
            for its, spot in zip(sums, spots, strict=True):
                for b, one in enumerate(its):
                    builder.store(whole.load(add(spot, size(LINE * b))), one)
            with cgutils.for_range_slice(builder, first, last, size(1)) as (p, _):
                row = place(context, builder, kinds[4], right, p, begin)
                lines = [whole.load(add(row, size(LINE * b))) for b in range(4)]
                for its, there in zip(sums, given, strict=True):
                    x = whole.load(add(there, builder.mul(p, size(LINE))))
                    for one, line in zip(its, lines, strict=True):
                        builder.store(whole.plus(builder.load(one), x, line), one)
            for its, spot in zip(sums, spots, strict=True):
                for b, one in enumerate(its):
                    whole.store(builder.load(one), add(spot, size(LINE * b)))
            return context.get_dummy_value()

        n = types.intp
        return types.void(out, n, A, n, B, n, n, n), generate

    return product


_four_rows, _one_row = _product_of(4), _product_of(1)


@intrinsic
def _move(_: Any, C: Any, i: Any, rest: Any, a: Any, gram: Any, inverse: Any, e: Any, k: Any) -> Any:
    """``C_ie = [C_ie + rest_ae inverse_e]_+`` for four e in turn, and what that takes off the rest, for every lane.

    Among the four each sees what the others did; the rest of all hears of it once.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        codes, i, left, a, grams, inverses, e, k = args
        whole, size, add, kinds = Lines(context, builder, C.dtype), e.type, builder.add, signature.args
        at, zero = builder.mul(e, size(LINE)), size(0)

        def four(row: Any) -> list[Any]:
            return [whole.load(add(row, size(LINE * b))) for b in range(4)]

        spot, first = place(context, builder, kinds[0], codes, i, at), place(context, builder, kinds[2], left, a, zero)
        rows = [place(context, builder, kinds[4], grams, add(e, size(b)), zero) for b in range(4)]
        scales, sums = four(place(context, builder, kinds[5], inverses, zero, at)), four(add(first, at))
        back = []
        for b, old in enumerate(four(spot)):
            new = whole.plus(old, sums[b], scales[b])
            new = builder.select(builder.fcmp_ordered(">", new, whole.zero), new, whole.zero)
            whole.store(new, add(spot, size(LINE * b)))
            back.append(builder.fsub(old, new))
            for c, line in list(enumerate(four(add(rows[b], at))))[b + 1 :]:
                sums[c] = whole.plus(sums[c], back[b], line)
        with cgutils.for_range_slice(builder, zero, builder.mul(k, size(LINE)), size(2 * LINE)) as (p, _):
            for here in (p, add(p, size(LINE))):
                line = whole.load(add(first, here))
                for step, row in zip(back, rows, strict=True):
                    line = whole.plus(line, step, whole.load(add(row, here)))
                whole.store(line, add(first, here))
        return context.get_dummy_value()

    n = types.intp
    return types.void(C, n, rest, n, gram, inverse, n, n), generate


@compiled(error_model="numpy", fastmath={"contract"})
def metric(C: Array, grams: Array, gram: Array, cross: Array, sweeps: int) -> None:
    """See :func:`cofactor.local.kernels.cpu.hals_metric`.

    Problem (run, j) is in a lane. Of the gradient of a row, ``to - G (C gram)``, what four rows owe to all others is
    found at once; within a row what is left of it is carried along.
    """
    runs, c, r, k = C.shape
    rows, width = (r + 3) // 4 * 4, (k + 3) // 4 * 4
    T, to, seen, rest = _lanes(rows, width), _lanes(rows, width), _lanes(rows, width), _lanes(4, width)
    G, K, before = _lanes(rows, rows), _lanes(width, width), _lanes(1, width)
    inverse, scale = _lanes(1, width), _lanes(rows, 1)
    for first in range(0, c * runs, LANES):
        count = min(LANES, c * runs - first)
        for i in range(r):
            for lane in range(count):
                run, j = (first + lane) // c, (first + lane) % c
                own = grams[j, i, i]
                scale[i, lane] = 1 / own if own > 0 else 0.0
                for p in range(r):
                    G[i, p * LANES + lane] = -grams[j, i, p]
                for e in range(k):
                    T[i, e * LANES + lane] = C[run, j, i, e]
                    to[i, e * LANES + lane] = cross[run, j, i, e]
        for e in range(k):
            for lane in range(count):
                run = (first + lane) // c
                own = gram[run, e, e]
                inverse[0, e * LANES + lane] = 1 / own if own > 0 else 0.0
                for p in range(k):
                    K[e, p * LANES + lane] = gram[run, e, p]
        seen[:] = 0
        for i in range(0, rows, 4):
            for e in range(0, width, 4):
                _four_rows(seen, i, T, i, K, e, 0, k)
        for _ in range(sweeps):
            for i in range(0, r, 4):
                rest[:] = to[i : i + 4]
                for e in range(0, width, 4):
                    _four_rows(rest, 0, G, i, seen, e, 0, i)
                    _four_rows(rest, 0, G, i, seen, e, i + 4, r)
                for a in range(min(4, r - i)):
                    for e in range(0, width, 4):
                        _one_row(rest, a, G, i + a, seen, e, i, i + 4)
                    for e in range(k):
                        for lane in range(LANES):
                            rest[a, e * LANES + lane] *= scale[i + a, lane]
                            before[0, e * LANES + lane] = rest[a, e * LANES + lane]
                    for e in range(0, width, 4):
                        _move(T, i + a, rest, a, K, inverse, e, width)
                    for x in range(k * LANES):
                        seen[i + a, x] += before[0, x] - rest[a, x]
        for i in range(r):
            for lane in range(count):
                run, j = (first + lane) // c, (first + lane) % c
                for e in range(k):
                    C[run, j, i, e] = T[i, e * LANES + lane]


@compiled(error_model="numpy")
def _lanes(n: int, k: int) -> Array:
    """Return n rows of k lines of zeros, which begin with a line of cache; an odd line keeps columns in other sets."""
    wide = k | 1
    memory = np.zeros((n * wide + 1) * LANES)
    first = -memory.ctypes.data % LINE // 8
    return memory[first : first + n * wide * LANES].reshape(n, wide * LANES)


@compiled(error_model="numpy", fastmath={"contract"})
def sweep_runs(out: Array, F: Array, gram: Array, cross: Array, sweeps: int, first: int, last: int) -> None:
    """``out`` are the rows of runs ``first:last`` of F (runs x n x k) after sweeps for the statistics of each run."""
    for run in range(first, last):
        sweep_rows(out[run], F[run], gram[run], cross[run], sweeps, 0, F.shape[1])
