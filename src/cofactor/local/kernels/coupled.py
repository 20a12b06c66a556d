"""Coordinate descent on many small problems whose rows are coupled: a line of them side by side, one in each lane.

A step of one problem waits for the step before it; steps of as many as there are lanes take as long as one. The file is
imported by the first problem that is no toy, since numba has to be there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from cofactor.local.kernels.compiled import compiled, inner
from cofactor.local.kernels.lines import LINE, Lines, place, room
from cofactor.types import Array

TINY = {np.dtype(kind): float(np.finfo(kind).tiny) for kind in (np.float32, np.float64)}
"""Numbers below it have no inverse."""


@intrinsic
def _add_product(_: Any, out: Any, to: Any, A: Any, i: Any, B: Any, e: Any, first: Any, last: Any) -> Any:
    """``out_(to + a, e + b) += sum_p A_(i + a, p) B_(p, e + b)``, p in ``first:last``, a and b < 4, for every lane."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        made, to, left, i, right, e, first, last = args
        whole, size, add, kinds = Lines(context, builder, A.dtype), e.type, builder.add, signature.args
        begin, four = builder.mul(e, size(LINE)), range(4)
        spots = [place(context, builder, kinds[0], made, add(to, size(a)), begin) for a in four]
        given = [place(context, builder, kinds[2], left, add(i, size(a)), size(0)) for a in four]
        sums = [[whole.sum() for _ in four] for _ in four]
        for its, spot in zip(sums, spots, strict=True):
            for b, one in enumerate(its):
                builder.store(whole.load(add(spot, size(LINE * b))), one)
        with cgutils.for_range_slice(builder, first, last, size(1)) as (p, _):
            row = place(context, builder, kinds[4], right, p, begin)
            lines = [whole.load(add(row, size(LINE * b))) for b in four]
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


def _lines_of(adds: bool) -> Any:
    """Return an instruction for a row times the numbers of a line, one in each lane."""

    @intrinsic
    def lines(_: Any, out: Any, to: Any, A: Any, i: Any, p: Any, B: Any, j: Any, k: Any) -> Any:
        """``out_to = A_ip B_j``, or what is added to it, of k lines."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            made, to, left, i, p, right, j, k = args
            whole, size, add, kinds = Lines(context, builder, A.dtype), k.type, builder.add, signature.args
            zero = size(0)
            x = whole.load(place(context, builder, kinds[2], left, i, builder.mul(p, size(LINE))))
            spot, row = (place(context, builder, kinds[n], a, at, zero) for n, a, at in ((0, made, to), (5, right, j)))
            with cgutils.for_range_slice(builder, zero, builder.mul(k, size(LINE)), size(2 * LINE)) as (e, _):
                for here in (e, add(e, size(LINE))):
                    there = add(spot, here)
                    line = whole.load(add(row, here))
                    new = whole.plus(whole.load(there), x, line) if adds else builder.fmul(x, line)
                    whole.store(new, there)
            return context.get_dummy_value()

        n = types.intp
        return types.void(out, n, A, n, n, B, n, n), generate

    return lines


_add_times, _set_times = _lines_of(True), _lines_of(False)


@inner(error_model="numpy", fastmath={"contract"})
def _four_rows(out: Array, to: int, A: Array, i: int, B: Array, width: int, first: int, last: int) -> None:
    """Add four rows of a product, all its columns."""
    for e in range(0, width, 4):
        _add_product(out, to, A, i, B, e, first, last)


@intrinsic
def _move_four(_: Any, C: Any, i: Any, K: Any, a: Any, inverse: Any, e: Any, k: Any) -> Any:
    """``C_ie = [C_ie + K_ae K_(inverse, e)]_+`` for four e in turn, and what that takes off row a of K, for every lane.

    Among the four each sees what the others did; the rest of all hears of it once.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        codes, i, grams, a, inverse, e, k = args
        whole, size, add, kinds = Lines(context, builder, C.dtype), e.type, builder.add, signature.args
        at, zero = builder.mul(e, size(LINE)), size(0)

        def four(row: Any) -> list[Any]:
            return [whole.load(add(row, size(LINE * b))) for b in range(4)]

        spot, first = place(context, builder, kinds[0], codes, i, at), place(context, builder, kinds[2], grams, a, zero)
        rows = [place(context, builder, kinds[2], grams, add(e, size(b)), zero) for b in range(4)]
        scales, sums = four(place(context, builder, kinds[2], grams, inverse, at)), four(add(first, at))
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
    return types.void(C, n, K, n, n, n, n), generate


@inner(error_model="numpy", fastmath={"contract"})
def _move(C: Array, i: int, K: Array, a: int, inverse: int, width: int) -> None:
    """Move all numbers of a row of C."""
    for e in range(0, width, 4):
        _move_four(C, i, K, a, inverse, e, width)


def metric(C: Array, grams: Array, gram: Array, cross: Array, sweeps: int) -> None:
    """See :func:`cofactor.local.kernels.cpu.hals_metric`."""
    _, c, r, k = C.shape
    rows, width = (r + 3) // 4 * 4, (k + 3) // 4 * 4
    lines = _lanes(3 * rows + width + 6, width, C.dtype)
    G, scale = _lanes(rows, rows, C.dtype), _lanes(rows + 3, 1, C.dtype)
    scale[rows], scale[rows + 1] = 1, -1
    parts = lines, lines[rows:], lines[2 * rows :], lines[3 * rows :]
    for first in range(0, len(C) * c, LINE // C.itemsize):
        _solve_lanes(C, grams, gram, cross, sweeps, first, *parts, G, scale, TINY[C.dtype])


def _lanes(n: int, k: int, dtype: np.dtype[Any]) -> Array:
    """Return n rows of k lines of zeros; an odd number of lines keeps those of a column in other sets of the cache."""
    out = room(n, (k | 1) * (LINE // dtype.itemsize), dtype)
    out[:] = 0
    return out


@compiled(error_model="numpy", fastmath={"contract"})
def _solve_lanes(
    C: Array,
    grams: Array,
    gram: Array,
    cross: Array,
    sweeps: int,
    first: int,
    T: Array,
    to: Array,
    seen: Array,
    K: Array,
    G: Array,
    scale: Array,
    tiny: float,
) -> None:
    """Take the problems from ``first`` on, (run, j) in a lane each, through all sweeps.

    What is left of the gradients of four rows, ``to - G (C gram)``, is found at once; a row that has moved is told to
    those of them that come after it. Below the rows of K there is room for it, for how far one moved, and for inverses;
    below those of ``scale`` are 1, -1 and 0.
    """
    runs, c, r, k = C.shape
    width = (k + 3) // 4 * 4
    rest, moved, inverse, one = width, width + 4, width + 5, scale.shape[0] - 3
    lanes = LINE // C.itemsize
    count = min(lanes, runs * c - first)
    for i in range(r):
        for lane in range(count):
            run, j = (first + lane) // c, (first + lane) % c
            own = grams[j, i, i]
            scale[i, lane] = 1 / own if own > tiny else 0.0
            for p in range(r):
                G[i, p * lanes + lane] = -grams[j, i, p]
            for e in range(k):
                T[i, e * lanes + lane] = C[run, j, i, e]
                to[i, e * lanes + lane] = cross[run, j, i, e]
    for e in range(k):
        for lane in range(count):
            run = (first + lane) // c
            own = gram[run, e, e]
            K[inverse, e * lanes + lane] = 1 / own if own > tiny else 0.0
            for p in range(k):
                K[e, p * lanes + lane] = gram[run, e, p]
    for i in range(0, r, 4):
        for a in range(i, i + 4):
            _set_times(seen, a, scale, one + 2, 0, T, a, width)
        _four_rows(seen, i, T, i, K, width, 0, k)
    for _ in range(sweeps):
        for i in range(0, r, 4):
            for a in range(4):
                _set_times(K, rest + a, scale, one, 0, to, i + a, width)
            _four_rows(K, rest, G, i, seen, width, 0, r)
            for a in range(min(4, r - i)):
                _set_times(K, moved, scale, i + a, 0, K, rest + a, width)
                _set_times(K, rest + a, scale, one, 0, K, moved, width)
                _move(T, i + a, K, rest + a, inverse, width)
                _add_times(K, moved, scale, one + 1, 0, K, rest + a, width)
                _add_times(seen, i + a, scale, one, 0, K, moved, width)
                for b in range(a + 1, 4):
                    _add_times(K, rest + b, G, i + b, i + a, K, moved, width)
    for i in range(r):
        for lane in range(count):
            run, j = (first + lane) // c, (first + lane) % c
            for e in range(k):
                C[run, j, i, e] = T[i, e * lanes + lane]
