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
def _improve(_: Any, T: Any, C: Any, G: Any, inverse: Any, j: Any, k: Any) -> Any:
    """``T_j = [(C_j + sum_(p != j) G_jp T_p) / g_j]_+`` for a lane of rows and four components from j on, in turn.

    What is the same for all four, the sum over all others, is one small product, in which a value that was loaded
    serves four times; among the four, each sees the others as they are then. Of g the inverse is given: where it is 0,
    a component stays as it was. ``G`` is minus the gram.

    Registers have room for the sums, a line of each and a weight. Whatever more is kept at a time puts sums aside at
    every step, in some processes across lines of cache, where a sweep then takes 1.4 of its time.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lane, cross, gram, inverses, j, k = args
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

        for begin, end in ((zero, j), (add(j, size(4)), k)):
            with cgutils.for_range_slice(builder, begin, end, size(4)) as (p, _):
                for c in four:
                    lines = [whole.load(spot) for spot in row(kinds[0], lane, add(p, size(c)))]
                    for b, its in enumerate(sums):
                        w = weight(b, add(p, size(c)))
                        for one, line in zip(its, lines, strict=True):
                            builder.store(whole.plus(builder.load(one), w, line), one)
        spots = [row(kinds[0], lane, add(j, size(b))) for b in four]
        values = [[whole.load(spot) for spot in its] for its in spots]
        for b in four:
            scale = whole.all_of(whole.number(place(context, builder, kinds[3], inverses, add(j, size(b)), zero)))
            others = [(c, weight(b, add(j, size(c)))) for c in four if c != b]
            for a in range(WIDTH):
                rest = builder.load(sums[b][a])
                for c, w in others:
                    rest = whole.plus(rest, w, values[c][a])
                values[b][a] = whole.moved(values[b][a], builder.fmul(rest, scale), scale)
                whole.store(values[b][a], spots[b][a])
        return context.get_dummy_value()

    n = types.intp
    return types.void(T, C, G, inverse, n, n), generate


def sweep_rows(
    out: Array, F: Array, gram: Array, cross: Array, pull: float, sweeps: int, first: int, last: int
) -> None:
    """``out`` are rows ``first:last`` of F after sweeps on ``1/2 tr(E gram E^T) - tr(E (cross + pull F)^T)``, E >= 0.

    E begins at F; both lie row by row.

    A lane is transposed, so that every instruction works on many rows at once. Padding makes each row's arithmetic the
    same wherever it stands: stacking clients changes no bit.
    """
    _sweep_lanes(out, F, gram, cross, *_rooms(F), pull, sweeps, first, last)


def sweep_runs(out: Array, F: Array, gram: Array, cross: Array, sweeps: int, first: int, last: int) -> None:
    """``out`` are runs ``first:last`` of F (runs x n x k) after the sweeps, each for its own statistics."""
    _sweep_runs(out, F, gram, cross, *_rooms(F), F.dtype.type(0), sweeps, first, last)


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
    pull: float,
    sweeps: int,
    first: int,
    last: int,
) -> None:
    """Take one run after the other."""
    begin = np.intp(0)  # a literal would be another type, and all be compiled again
    for run in range(first, last):
        _sweep_lanes(out[run], F[run], gram[run], cross[run], G, inverse, T, C, pull, sweeps, begin, F.shape[1])


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
        inverse[j, 0] = 1 / gram[j, j] if gram[j, j] > 0 else 0.0
    for start in range(first, last, size):
        rows = min(size, last - start)
        turn_in(T, F, start, rows)
        turn_in(C, cross, start, rows)
        if pull != 0:
            for j in range(F.shape[1]):
                own, to = T[j], C[j]
                for r in range(size):
                    to[r] += pull * own[r]
        for _ in range(sweeps):
            for j in range(0, padded, 4):
                _improve(T, C, G, inverse, j, padded)
        turn_out(out, T, start, rows, 0)
