"""Products of a dense matrix with a thin one, sums in registers: where vectors are as long as a line of cache.

BLAS turns what it multiplies into an order of its own first, which takes as long as few columns of a product, and may
know only shorter vectors: at 10 columns these kernels take a third of its time, at 50 half. The file is imported by the
first product that is large enough, since numba has to be there.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from cofactor.local.kernels.compiled import compiled
from cofactor.local.kernels.grams import PART
from cofactor.local.kernels.lines import LINE, Lines, in_lines, place
from cofactor.local.kernels.orders import by_rows
from cofactor.local.threads import over_rows
from cofactor.types import Array

WIDTH = 4
"""Rows, or lines of a row, that are multiplied at once, each by up to five columns: registers have room for that."""
PANEL = 1 << 18
"""Bytes of the factor that stay in the second cache while rows pass by."""
ROWS, AHEAD = 64, 2
"""Rows of which a few lines each stay in the first cache for all columns of the codes, and so many times as many lines
that come next; sums of them are added up."""
MANY, CHUNKS = 1 << 13, 4
"""So many rows are summed in so many chunks."""


def times_factor(X: Array, H: Array) -> Array:
    """``X H^T`` (n x k); rows are shared, up to the last three, which BLAS multiplies."""
    n, k = len(X), len(H)
    out, whole = np.zeros((n, k), X.dtype), n // WIDTH * WIDTH
    np.matmul(X[whole:], H.T, out=out[whole:])
    for some, first, last in panels(H):
        over_rows(partial(_dot_rows, X, some, out, first, last), whole, (last - first) * k, WIDTH)
    return out


def panels(H: Array) -> list[tuple[Array, int, int]]:
    """Return columns of a factor in whole lines, as many at a time as stay in cache, and which ones they are."""
    (k, m), step = H.shape, LINE // H.itemsize
    panel = max(PANEL // (k * LINE), 8) * step
    cuts = [*range(0, m - step + 1, panel), m]  # the last ones fill a line at least
    return [(_ended(H[:, first:last]), first, last) for first, last in pairwise(cuts)]


def dot_block(out: Array, X: Array, H: Array, parts: list[tuple[Array, int, int]]) -> None:
    """``out = X H^T`` for a few rows, by the calling thread, to the bit as of many; ``parts`` are the panels of H."""
    whole = len(X) // WIDTH * WIDTH
    out[:whole] = 0
    np.matmul(X[whole:], H.T, out=out[whole:])
    for some, first, last in parts:
        _dot_rows(X, some, out, first, last, 0, whole)


def transpose_times_codes(X: Array, W: Array, index: Array | None = None) -> Array:
    """``W^T X`` (k x m), or of rows ``index`` of X, where they are; columns are shared."""
    (n, k), codes = W.shape, by_rows(W)
    sums = [(rows, no_sums(X, k)) for rows in chunks(n)]

    def some(start: int, stop: int) -> None:
        for rows, sums_of in sums:
            of = (X[rows], None) if index is None else (X, index[rows])
            _add_rows(*of, codes[rows], *sums_of, start, stop)

    over_rows(some, _tiles(X), n * k * WIDTH * LINE // X.itemsize)
    return added([sums_of for _, sums_of in sums])


def chunks(n: int) -> list[slice]:
    """Return the parts of n rows that are summed by themselves; what is summed depends on no number of threads."""
    cuts = [round(i * n / CHUNKS / PART) * PART for i in range(1, CHUNKS)] if n >= MANY else []
    return [slice(*pair) for pair in pairwise([0, *cuts, n])]


Sums = tuple[Array, Array]
"""Sums of columns (k x m), and of the last tile of them, where it is not whole: it ends with the columns."""


def no_sums(X: Array, k: int) -> Sums:
    """Return sums of zero for the columns of X."""
    return np.zeros((k, X.shape[1]), X.dtype), np.zeros((k, WIDTH * LINE // X.itemsize), X.dtype)


def add_block(sums: Sums, X: Array, W: Array) -> None:
    """Add ``W^T X`` of a few rows to sums, by the calling thread: ``ROWS`` or a multiple of them, but for the last."""
    _add_rows(X, None, W, *sums, 0, _tiles(X))


def added(parts: list[Sums]) -> Array:
    """Return the sums of all chunks (k x m), added in their order."""
    out, last = parts[0]
    for other, its_last in parts[1:]:
        out += other
        last += its_last
    if (left := out.shape[1] % last.shape[1]) > 0:
        out[:, -left:] = last[:, -left:]
    return out


def _tiles(X: Array) -> int:
    return -(-X.shape[1] * X.itemsize // (WIDTH * LINE))


def _ended(H: Array) -> Array:
    """Return H (k x m) in whole lines; what does not fill the last one is at its end, behind zeros."""
    step = LINE // H.itemsize
    whole = H.shape[1] // step * step
    lines = [H[:, :whole]]
    if whole < H.shape[1]:
        lines += [np.zeros((len(H), whole + step - H.shape[1]), H.dtype), H[:, whole:]]
    return in_lines(np.concatenate(lines, axis=1))


def _dots_of(columns: int) -> Any:
    """Return an instruction for some rows of X and so many of H."""

    @intrinsic
    def dots(_: Any, out: Any, i: Any, X: Any, begin: Any, end: Any, H: Any, c: Any) -> Any:
        """``out_(i + a, c + b) += <X_(i + a), H_(c + b)>``, of X the bytes ``begin:end`` of a row."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            to, i, given, begin, end, factor, c = args
            whole, size, kinds = Lines(context, builder, X.dtype), begin.type, signature.args
            add, zero = builder.add, begin.type(0)
            rows = [place(context, builder, kinds[2], given, add(i, size(a)), begin) for a in range(WIDTH)]
            others = [place(context, builder, kinds[5], factor, add(c, size(b)), zero) for b in range(columns)]
            sums = [[whole.sum() for _ in others] for _ in rows]

            def step(at: Any, line: Any) -> None:
                loaded = [whole.load(add(other, line)) for other in others]
                for row, its in zip(rows, sums, strict=True):
                    x = whole.load(add(row, at))
                    for one, other in zip(its, loaded, strict=True):
                        builder.store(whole.plus(builder.load(one), x, other), one)

            length = builder.sub(end, begin)
            lines = builder.sub(builder.udiv(add(length, size(LINE - 1)), size(LINE)), size(1))
            with cgutils.for_range(builder, lines) as loop:
                at = builder.mul(loop.index, size(LINE))
                step(at, at)
            step(builder.sub(length, size(LINE)), builder.mul(lines, size(LINE)))
            for a, its in enumerate(sums):
                for b, one in enumerate(its):
                    offset = builder.mul(add(c, size(b)), size(whole.size))
                    whole.add_to(place(context, builder, kinds[0], to, add(i, size(a)), offset), builder.load(one))
            return context.get_dummy_value()

        n = types.intp
        return types.void(out, n, X, n, n, H, n), generate

    return dots


def _sums_of(columns: int) -> Any:
    """Return an instruction for some lines of rows of X and so many columns of W."""

    @intrinsic
    def sums(_: Any, out: Any, c: Any, to: Any, W: Any, X: Any, index: Any, at: Any, first: Any, last: Any) -> Any:
        """``out_(c + b) += sum_i W_(i, c + b) X_i`` over ``i = first:last``, from byte ``at`` of X on.

        Where ``index`` is no None, X_i is row ``index_i``. What comes in the rows is asked for, two lines of four at a
        time: they are too many and too far apart for the processor to foresee.
        """

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            made, c, to, codes, given, picked, offset, first, last = args
            whole, size, kinds, add = Lines(context, builder, X.dtype), c.type, signature.args, builder.add
            places = [place(context, builder, kinds[0], made, add(c, size(b)), to) for b in range(columns)]
            spots = [[add(row, size(LINE * a)) for a in range(WIDTH)] for row in places]
            totals = [[whole.sum() for _ in row] for row in spots]
            numbers: Any = None if all_rows else context.make_array(kinds[5])(context, builder, picked)
            pair = builder.urem(builder.udiv(c, size(5)), size(2))
            coming = add(size(AHEAD * WIDTH * LINE), builder.mul(pair, size(2 * LINE)))
            with cgutils.for_range_slice(builder, first, last, size(1)) as (i, _):
                which = i if all_rows else builder.load(builder.gep(numbers.data, [i]))
                row = place(context, builder, kinds[4], given, which, offset)
                for a in range(2):
                    whole.ask(add(row, add(coming, size(LINE * a))), to_write=False)
                lines = [whole.load(add(row, size(LINE * a))) for a in range(WIDTH)]
                code = place(context, builder, kinds[3], codes, i, builder.mul(c, size(whole.size)))
                for b, its in enumerate(totals):
                    w = whole.all_of(whole.number(add(code, size(whole.size * b))))
                    for one, line in zip(its, lines, strict=True):
                        builder.store(whole.plus(builder.load(one), w, line), one)
            for its, row in zip(totals, spots, strict=True):
                for one, spot in zip(its, row, strict=True):
                    whole.store(builder.fadd(whole.load(spot), builder.load(one)), spot)
            return context.get_dummy_value()

        n, all_rows = types.intp, isinstance(index, types.NoneType)
        return types.void(out, n, n, W, X, index, n, n, n), generate

    return sums


_five_dots, _two_dots, _one_dot = _dots_of(5), _dots_of(2), _dots_of(1)
_five_sums, _two_sums, _one_sum = _sums_of(5), _sums_of(2), _sums_of(1)


@compiled(error_model="numpy", fastmath={"contract"})
def _dot_rows(X: Array, H: Array, out: Array, first: int, last: int, start: int, stop: int) -> None:
    """Add ``X[start:stop, first:last] H^T`` to rows of ``out``; H is in lines."""
    k, begin, end = out.shape[1], first * X.itemsize, last * X.itemsize
    for i in range(start, stop, WIDTH):
        c = 0
        while k - c >= 5:
            _five_dots(out, i, X, begin, end, H, c)
            c += 5
        while k - c >= 2:
            _two_dots(out, i, X, begin, end, H, c)
            c += 2
        if k > c:
            _one_dot(out, i, X, begin, end, H, c)


@compiled(error_model="numpy", fastmath={"contract"})
def _add_rows(X: Array, index: Array | None, W: Array, out: Array, end: Array, first: int, last: int) -> None:
    """``out += W^T X``, or of rows ``index`` of X, in tiles ``first:last`` of columns; ``end`` is one in parts."""
    (n, k), tile = W.shape, WIDTH * LINE
    for start in range(0, n, ROWS):
        stop = min(start + ROWS, n)
        for to in range(first * tile, last * tile, tile):
            offset, c = min(to, X.shape[1] * X.itemsize - tile), 0
            made, at = (out, to) if offset == to else (end, 0)
            while k - c >= 5:
                _five_sums(made, c, at, W, X, index, offset, start, stop)
                c += 5
            while k - c >= 2:
                _two_sums(made, c, at, W, X, index, offset, start, stop)
                c += 2
            if k > c:
                _one_sum(made, c, at, W, X, index, offset, start, stop)
