"""Coordinate descent over rows, a lane of them at a time: what others leave of four components stays in registers.

The file is imported by the first half-problem that is no toy, since numba has to be there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from cofactor.local.kernels.compiled import compiled
from cofactor.local.kernels.lines import LINE, Lines, has_long_vectors, place, room
from cofactor.local.kernels.turning import turn_in, turn_out
from cofactor.types import Array

WIDTH = 4 if has_long_vectors() else 1
"""Lines of a lane: registers have room for four sums of so many."""


@intrinsic
def _improve(_: Any, T: Any, C: Any, G: Any, inverse: Any, gains: Any, start: Any, j: Any, k: Any) -> Any:
    """``T_j = [(C_j + sum_(p != j) G_jp T_p) / g_j]_+`` for a lane of rows and four components from j on, in turn.

    What is the same for all four, the sum over all others, is one small product, in which a value that was loaded
    serves four times; among the four, each sees the others as they are then. Of g the inverse is given: where it is 0,
    a component stays as it was. ``G`` is minus the gram.

    Where ``gains`` is no None, ``T_j (C_j + sum_(p >= j) G_jp T_p)`` of the four is added to it from row ``start`` on:
    what comes later is as it was before the sweep, so that these are the sums of a quadratic form, and cost nothing.

    Registers have room for the sums, a line of each and a weight. Whatever more is kept at a time puts sums aside at
    every step, in some processes across lines of cache, where a sweep then takes 1.4 of its time.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lane, cross, gram, inverses, told, start, j, k = args
        whole, size, add, kinds = Lines(context, builder, T.dtype), j.type, builder.add, signature.args
        four, zero = range(4), size(0)

        def row(kind: Any, matrix: Any, i: Any) -> list[Any]:
            first = place(context, builder, kind, matrix, i, zero)
            return [add(first, size(LINE * a)) for a in range(WIDTH)]

        def weight(b: int, p: Any) -> Any:
            at = place(context, builder, kinds[2], gram, add(j, size(b)), builder.mul(p, size(whole.size)))
            return whole.all_of(whole.number(at))

        sums = [[whole.sum() for _ in range(WIDTH)] for _ in four]
        for b, its in enumerate(sums):
            for one, spot in zip(its, row(kinds[1], cross, add(j, size(b))), strict=True):
                builder.store(whole.load(spot), one)

        def take(p: Any, lines: list[Any], some: Any) -> None:
            for b in some:
                w = weight(b, p)
                for one, line in zip(sums[b], lines, strict=True):
                    builder.store(whole.plus(builder.load(one), w, line), one)

        def take_all(begin: Any, end: Any) -> None:
            with cgutils.for_range_slice(builder, begin, end, size(4)) as (p, _):
                for c in four:
                    spots = row(kinds[0], lane, add(p, size(c)))
                    take(add(p, size(c)), [whole.load(spot) for spot in spots], four)

        take_all(add(j, size(4)), k)
        spots = [row(kinds[0], lane, add(j, size(b))) for b in four]
        for c in four:
            take(add(j, size(c)), [whole.load(spot) for spot in spots[c]], range(c))
        if has_gains:
            first = place(context, builder, kinds[4], told, zero, builder.mul(start, size(whole.size)))
            for a in range(WIDTH):
                to = add(first, size(LINE * a))
                total = whole.load(to)
                for b in four:
                    own = whole.load(spots[b][a])
                    rest = whole.plus(builder.load(sums[b][a]), weight(b, add(j, size(b))), own)
                    total = whole.plus(total, rest, own)
                whole.store(total, to)
        take_all(zero, j)
        for b in four:
            scale = whole.all_of(whole.number(place(context, builder, kinds[3], inverses, add(j, size(b)), zero)))
            new = []
            for one, spot in zip(sums[b], spots[b], strict=True):
                new.append(whole.moved(whole.load(spot), builder.fmul(builder.load(one), scale), scale))
                whole.store(new[-1], spot)
            take(add(j, size(b)), new, range(b + 1, 4))
        return context.get_dummy_value()

    n, has_gains = types.intp, not isinstance(gains, types.NoneType)
    return types.void(T, C, G, inverse, gains, n, n, n), generate


def sweep_rows(
    out: Array,
    F: Array,
    gram: Array,
    cross: Array,
    pull: float,
    sweeps: int,
    first: int,
    last: int,
    gains: Array | None = None,
) -> None:
    """``out`` are rows ``first:last`` of F after sweeps on ``1/2 tr(E gram E^T) - tr(E cross^T) + pull/2 |E - F|^2``.

    E >= 0 begins at F. All lie row by row, or all column by column, as lanes do. Zeros in ``gains`` (1 x whole lanes)
    become, for at least one sweep, ``tr(F cross^T) - 1/2 tr(F gram F^T)`` of every row.

    A lane is transposed, so that every instruction works on many rows at once. Padding makes each row's arithmetic the
    same wherever it stands: stacking clients changes no bit.
    """
    _sweep_lanes(out, F, gram, cross, *_rooms(F), gains, pull, sweeps, first, last)


def sweep_runs(out: Array, F: Array, gram: Array, cross: Array, sweeps: int, first: int, last: int) -> None:
    """``out`` are runs ``first:last`` of F (runs x n x k) after the sweeps, each for its own statistics."""
    _sweep_runs(out, F, gram, cross, *_rooms(F), None, F.dtype.type(0), sweeps, first, last)


def _rooms(F: Array) -> tuple[Array, Array, Array, Array]:
    """Return zeros for a gram in fours, for the inverses of its diagonal, and for two lanes."""
    padded = (F.shape[-1] + 3) // 4 * 4
    lanes = room(2 * padded, WIDTH * LINE // F.itemsize, F.dtype)
    lanes[:] = 0
    return np.zeros((padded, padded), F.dtype), np.zeros((padded, 1), F.dtype), lanes[:padded], lanes[padded:]


@compiled(error_model="numpy", fastmath={"contract"})
def _sweep_runs(
    out: Array,
    F: Array,
    gram: Array,
    cross: Array,
    G: Array,
    inverse: Array,
    T: Array,
    C: Array,
    gains: Array | None,
    pull: float,
    sweeps: int,
    first: int,
    last: int,
) -> None:
    """Take one run after the other."""
    begin = np.intp(0)  # a literal would be another type, and all be compiled again
    for run in range(first, last):
        _sweep_lanes(out[run], F[run], gram[run], cross[run], G, inverse, T, C, gains, pull, sweeps, begin, F.shape[1])


@compiled(error_model="numpy", fastmath={"contract"})
def _sweep_lanes(
    out: Array,
    F: Array,
    gram: Array,
    cross: Array,
    G: Array,
    inverse: Array,
    T: Array,
    C: Array,
    gains: Array | None,
    pull: float,
    sweeps: int,
    first: int,
    last: int,
) -> None:
    """Take rows lane by lane through T and C."""
    padded, size = T.shape
    for j in range(gram.shape[0]):
        for p in range(gram.shape[0]):
            G[j, p] = -gram[j, p]
        own = gram[j, j] + pull
        inverse[j, 0] = 1 / own if own > 0 else 0.0
        G[j, j] = -(own + pull) / 2  # which no sweep looks at: the gain is without the pull
    for start in range(first, last, size):
        rows = min(size, last - start)
        turn_in(T, F, start, rows)
        turn_in(C, cross, start, rows)
        if pull != 0:
            for j in range(F.shape[1]):
                old, to = T[j], C[j]
                for r in range(size):
                    to[r] += pull * old[r]
        told = 0
        if gains is not None:  # else this is not compiled
            for j in range(0, padded, 4):
                _improve(T, C, G, inverse, gains, start, j, padded)
            told = 1
        for _ in range(told, sweeps):
            for j in range(0, padded, 4):
                _improve(T, C, G, inverse, None, start, j, padded)
        turn_out(out, T, start, rows, 0)
